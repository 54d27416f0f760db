"""Section 3.2.1's three ways to score: book/results/attention_scaling.json.

    python experiments/attention_scaling.py

One look-up task, d_k from 8 to 512, five seeds: scaled dot product,
the same unscaled, and additive attention. One thread, some minutes.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from provenance import RESULTS, run_seeds

from bookkit import lookup

KINDS = ("scaled", "unscaled", "additive")
WIDTHS = (8, 32, 128, 512)
STEPS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run_seeds(
        RESULTS / "attention_scaling.json",
        range(options.seeds),
        run,
        settings={
            "task": "look-up, see src/bookkit/lookup.py",
            "symbols": lookup.SYMBOLS,
            "pairs": lookup.PAIRS,
            "width": lookup.WIDTH,
            "d_k": WIDTHS,
            "steps": STEPS,
            "test_size": 4096,
        },
        summarise=summarise,
        say=lambda r: f"seed {r['seed']}: {r['accuracy']}",
        allow_dirty=options.allow_dirty,
    )


def run(seed: int) -> dict:
    """Accuracy of each kind at each d_k."""
    return {
        "accuracy": {
            kind: {str(d_k): lookup.learn(kind, d_k, seed, STEPS) for d_k in WIDTHS}
            for kind in KINDS
        }
    }


def summarise(runs: list[dict]) -> dict:
    """The mean over seeds."""
    return {
        kind: {
            str(d_k): statistics.mean(r["accuracy"][kind][str(d_k)] for r in runs)
            for d_k in WIDTHS
        }
        for kind in KINDS
    }


if __name__ == "__main__":
    main()
