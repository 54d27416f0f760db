"""Section 3.2.1's three ways to score: book/results/attention_scaling.json.

    python experiments/attention_scaling.py
    python experiments/attention_scaling.py --again

One look-up task, d_k from 8 to 512, five seeds: scaled dot product,
the same unscaled, and additive attention. One thread, some minutes.

Five seeds did not settle the claim by the rule that had been set. So
a second run was declared, before it was made, with 20 seeds that the
first had not used, at d_k = 512 alone: --again.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial

import torch
from provenance import RESULTS, run_seeds

from bookkit import lookup

KINDS = ("scaled", "unscaled", "additive")
WIDTHS = (8, 32, 128, 512)
STEPS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    widths = (512,) if options.again else WIDTHS
    name = "attention_scaling_again" if options.again else "attention_scaling"
    run_seeds(
        RESULTS / f"{name}.json",
        range(100, 120) if options.again else range(5),
        partial(run, widths),
        settings={
            "task": "look-up, see src/bookkit/lookup.py",
            "symbols": lookup.SYMBOLS,
            "pairs": lookup.PAIRS,
            "width": lookup.WIDTH,
            "d_k": widths,
            "steps": STEPS,
            "test_size": 4096,
        },
        summarise=partial(summarise, widths),
        say=lambda r: f"seed {r['seed']}: {r['accuracy']}",
        allow_dirty=options.allow_dirty,
    )


def run(widths: tuple[int, ...], seed: int) -> dict:
    """Accuracy of each kind at each d_k."""
    return {
        "accuracy": {
            kind: {str(d_k): lookup.learn(kind, d_k, seed, STEPS) for d_k in widths}
            for kind in KINDS
        }
    }


def summarise(widths: tuple[int, ...], runs: list[dict]) -> dict:
    """The mean over seeds."""
    return {
        kind: {
            str(d_k): statistics.mean(r["accuracy"][kind][str(d_k)] for r in runs)
            for d_k in widths
        }
        for kind in KINDS
    }


if __name__ == "__main__":
    main()
