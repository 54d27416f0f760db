"""Chapter 10: do short paths make it easier? book/results/short_paths.json.

    python experiments/short_paths.py --tune
    python experiments/short_paths.py

A marked letter stands first, 32 positions before the question, and
four layers of attention must bring it there. The models are alike in
every weight; they differ in how far back a position may see, so that
the letter needs one, two, three or all four layers. `--tune` tries
three learning rates for each, on two seeds of its own, and writes
short_paths_tuning.json. Beside it, the first and the last model are
trained with the letter anywhere. One thread, some twelve minutes.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from provenance import RESULTS, run_seeds

from bookkit import recall
from transformer.variants import NormAndAdd

DISTANCE, LAYERS, STEPS, EVERY = 32, 4, 300, 25
WINDOWS = {1: 33, 2: 17, 3: 12, 4: 9}  # path -> positions seen
RATES = (1e-3, 3e-3, 1e-2)
# By path, the best mean over the two seeds of --tune.
CHOSEN = {1: 1e-2, 2: 1e-2, 3: 3e-3, 4: 1e-3}
SEEDS, TUNING_SEEDS = range(100, 110), (900, 901)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    shared = {
        "task": "marked, see src/bookkit/recall.py",
        "distance": DISTANCE,
        "layers": LAYERS,
        "windows": {str(path): window for path, window in WINDOWS.items()},
        "steps": STEPS,
        "batch": 32,
        "test_size": 500,
    }
    if options.tune:
        run_seeds(
            RESULTS / "short_paths_tuning.json",
            TUNING_SEEDS,
            tune,
            settings={**shared, "rates": RATES},
            summarise=best,
            say=lambda r: f"seed {r['seed']}: {r['accuracy']}",
            allow_dirty=options.allow_dirty,
        )
        return
    run_seeds(
        RESULTS / "short_paths.json",
        SEEDS,
        run,
        settings={
            **shared,
            "every": EVERY,
            "chosen": {str(path): rate for path, rate in CHOSEN.items()},
        },
        summarise=summarise,
        say=lambda r: f"seed {r['seed']}: {last(r)}",
        allow_dirty=options.allow_dirty,
    )


def learn(
    path: int, seed: int, rate: float, distance: int | None, steps: int = STEPS
) -> list[float]:
    """Accuracy at the longest distance, every few steps of training."""
    model = recall.make(
        "attention",
        "marked",
        DISTANCE,
        seed,
        layers=LAYERS,
        window=WINDOWS[path],
        connect=NormAndAdd,
    )
    seen = []

    def watch(step: int) -> None:
        if step % EVERY == 0:
            found = recall.accuracy(model, "marked", DISTANCE, DISTANCE)
            seen.append(found)

    recall.train(
        model,
        "marked",
        DISTANCE,
        seed,
        steps=steps,
        rate=rate,
        batch=32,
        distance=distance,
        watch=watch,
    )
    return seen


def tune(seed: int) -> dict:
    """Mean accuracy over the run, which favours whoever learns early."""
    return {
        "accuracy": {
            str(path): {
                f"{rate:g}": statistics.mean(learn(path, seed, rate, DISTANCE))
                for rate in RATES
            }
            for path in WINDOWS
        }
    }


def best(runs: list[dict]) -> dict:
    """The rate with the best mean over seeds, by path."""
    return {
        path: max(
            runs[0]["accuracy"][path],
            key=lambda rate: sum(r["accuracy"][path][rate] for r in runs),
        )
        for path in runs[0]["accuracy"]
    }


def run(seed: int) -> dict:
    """Accuracy over the steps, by path; and with the letter anywhere.

    For three seeds also the longest path, for five times as long, at
    the rate of the path before it: in the tuning none of its rates
    did better than chance.
    """
    longer = {}
    if seed in SEEDS[:3]:
        longer["4"] = learn(4, seed, CHOSEN[3], DISTANCE, steps=5 * STEPS)
    return {
        "longer": longer,
        "far": {
            str(path): learn(path, seed, CHOSEN[path], DISTANCE) for path in WINDOWS
        },
        "anywhere": {
            str(path): learn(path, seed, CHOSEN[path], None) for path in (1, 4)
        },
    }


def last(result: dict) -> dict:
    """What is left at the end of training."""
    return {
        where: {path: seen[-1] for path, seen in result[where].items()}
        for where in ("far", "anywhere")
    }


def summarise(runs: list[dict]) -> dict:
    """Means over the seeds, at the end."""
    ends = [last(result) for result in runs]
    return {
        where: {
            path: statistics.mean(end[where][path] for end in ends)
            for path in ends[0][where]
        }
        for where in ends[0]
    }


if __name__ == "__main__":
    main()
