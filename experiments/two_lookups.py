"""One, two, four, eight heads at equal width: book/results/two_lookups.json.

    python experiments/two_lookups.py

A question names two places of a sequence, and the answer is what stands
in the first and in the second (src/bookkit/two_lookups.py). Each seed
trains the same layer with 1, 2, 4 and 8 heads, and beside them

- one head asked for one place only: is one head a handicap as such?
- one and two heads without the feed-forward network: what can be read
  from the attention's output by a linear map?

The settings were chosen on seeds 0 to 7, on which one head solved the
task with the network three times of eight. One thread, about 20 seconds
a seed.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from provenance import RESULTS, run_seeds

from bookkit import two_lookups

SEEDS = range(500, 520)  # none that the settings were chosen on
STEPS = 1000
CASES = {
    "1 head": dict(heads=1),
    "2 heads": dict(heads=2),
    "4 heads": dict(heads=4),
    "8 heads": dict(heads=8),
    "1 head, one look-up": dict(heads=1, lookups=1),
    "1 head, no network": dict(heads=1, network=False),
    "2 heads, no network": dict(heads=2, network=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run_seeds(
        RESULTS / "two_lookups.json",
        SEEDS,
        run,
        settings={
            "task": "two look-ups, see src/bookkit/two_lookups.py",
            "symbols": two_lookups.SYMBOLS,
            "places": two_lookups.PLACES,
            "width": two_lookups.WIDTH,
            "steps": STEPS,
            "test_size": 4096,
            "cases": CASES,
        },
        summarise=summarise,
        say=say,
        allow_dirty=options.allow_dirty,
    )


def run(seed: int) -> dict:
    """Accuracy of each case, and where its heads look."""
    measured: dict = {"accuracy": {}, "looked_at": {}, "weights_on_asked": {}}
    for name, case in CASES.items():
        model = two_lookups.learn(**case, seed=seed, steps=STEPS)
        on_asked = two_lookups.weights_on_asked(model, seed).double()
        measured["accuracy"][name] = two_lookups.accuracy(model, seed)
        measured["looked_at"][name] = two_lookups.looked_at(model, seed)
        measured["weights_on_asked"][name] = [
            [round(weight, 4) for weight in head]
            for head in on_asked.mean(dim=0).tolist()
        ]
    start = two_lookups.learn(heads=2, seed=seed, steps=0)
    measured["looked_at"]["2 heads, untrained"] = two_lookups.looked_at(start, seed)
    return measured


def summarise(runs: list[dict]) -> dict:
    """Means over seeds."""
    return {
        number: {
            name: statistics.mean(run[number][name] for run in runs)
            for name in runs[0][number]
        }
        for number in ("accuracy", "looked_at")
    }


def say(run: dict) -> str:
    """One line a seed."""
    numbers = [f"{name} {value:.3f}" for name, value in run["accuracy"].items()]
    return f"seed {run['seed']}: {', '.join(numbers)}"


if __name__ == "__main__":
    main()
