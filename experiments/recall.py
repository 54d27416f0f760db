"""Chapter 1: what distance costs: book/results/recall.json.

    python experiments/recall.py --tune
    python experiments/recall.py

A layer of attention and an LSTM of the same width and nearly the same
number of parameters recall a letter (src/bookkit/recall.py). `--tune`
tries learning rates for both, and for the LSTM forget biases as well,
on two seeds of its own, and writes recall_tuning.json. The second
command trains the chosen settings on ten other seeds; the LSTM also
for three times as many steps. One thread, some ten minutes.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial

import torch
from provenance import RESULTS, run_seeds

from bookkit import recall

LONGEST = {"steps": 32, "marked": 64}
STEPS = {"steps": 1000, "marked": 400}
TRIED = {
    "attention": [dict(rate=rate) for rate in (2e-3, 5e-3, 1e-2)],
    "lstm": [
        dict(rate=rate, forget_bias=bias)
        for rate in (3e-3, 1e-2, 3e-2)
        for bias in (0.0, 1.0, 3.0)
    ],
}
# The best mean over the two seeds of --tune.
CHOSEN: dict[tuple[str, str], dict] = {
    ("attention", "steps"): dict(rate=2e-3),
    ("lstm", "steps"): dict(rate=1e-2, forget_bias=1.0),
    ("attention", "marked"): dict(rate=2e-3),
    ("lstm", "marked"): dict(rate=1e-2, forget_bias=0.0),
}
SEEDS, TUNING_SEEDS = range(100, 110), (900, 901)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    # What has vanished is 0 then, and takes no longer than other numbers.
    torch.set_flush_denormal(True)
    shared = {
        "task": "see src/bookkit/recall.py",
        "longest": LONGEST,
        "steps": STEPS,
        "letters": recall.LETTERS,
        "width": recall.WIDTH,
        "batch": 64,
    }
    if options.tune:
        run_seeds(
            RESULTS / "recall_tuning.json",
            TUNING_SEEDS,
            tune,
            settings={**shared, "tried": TRIED},
            summarise=best,
            say=lambda r: f"seed {r['seed']}: {r['accuracy']}",
            allow_dirty=options.allow_dirty,
        )
        return
    chosen = {" ".join(key): value for key, value in CHOSEN.items()}
    run_seeds(
        RESULTS / "recall.json",
        SEEDS,
        run,
        settings={**shared, "chosen": chosen, "test_size": 500},
        summarise=summarise,
        say=lambda r: f"seed {r['seed']}: {mean_by_half(r)}",
        allow_dirty=options.allow_dirty,
    )


def learn(kind: str, task: str, seed: int, rate: float, times: int = 1, **shape):
    """The model before and after training."""
    make = partial(recall.make, kind, task, LONGEST[task], seed, **shape)
    model = make()
    steps = times * STEPS[task]
    recall.train(model, task, LONGEST[task], seed, steps=steps, rate=rate)
    return make(), model


def accuracies(model, task: str) -> list[float]:
    """At distance 1, 2, ... to the longest."""
    longest = LONGEST[task]
    distances = range(1, longest + 1)
    return [recall.accuracy(model, task, longest, k) for k in distances]


def tune(seed: int) -> dict:
    """Mean accuracy of every setting that is tried."""
    return {
        "accuracy": {
            f"{kind} {task}": {
                name(tried): statistics.mean(
                    accuracies(learn(kind, task, seed, **tried)[1], task)
                )
                for tried in TRIED[kind]
            }
            for task in LONGEST
            for kind in TRIED
        }
    }


def name(tried: dict) -> str:
    """A setting in words."""
    return ", ".join(f"{key} {value:g}" for key, value in tried.items())


def best(runs: list[dict]) -> dict:
    """The setting with the best mean over seeds, by kind and task."""
    return {
        case: max(
            runs[0]["accuracy"][case],
            key=lambda tried: sum(r["accuracy"][case][tried] for r in runs),
        )
        for case in runs[0]["accuracy"]
    }


def run(seed: int) -> dict:
    """Accuracy by distance, and gradients before and after training."""
    accuracy, gradient = {}, {}
    for (kind, task), chosen in CHOSEN.items():
        case = f"{kind} {task}"
        before, after = learn(kind, task, seed, **chosen)
        accuracy[case] = accuracies(after, task)
        for when, model in (("untrained", before), ("trained", after)):
            norms = recall.gradient_norms(model, task, LONGEST[task])
            gradient[f"{case} {when}"] = norms
    plain = recall.make("lstm", "steps", LONGEST["steps"], seed)
    gradient["lstm steps plain"] = recall.gradient_norms(
        plain, "steps", LONGEST["steps"]
    )
    _, longer = learn("lstm", "steps", seed, times=3, **CHOSEN["lstm", "steps"])
    accuracy["lstm steps, 3 times as long"] = accuracies(longer, "steps")
    return {"accuracy": accuracy, "gradient": gradient}


def mean_by_half(result: dict) -> dict:
    """Mean accuracy over the near and the far half of the distances."""
    halves = {}
    for case, values in result["accuracy"].items():
        middle = len(values) // 2
        near, far = values[:middle], values[middle:]
        halves[case] = [statistics.mean(near), statistics.mean(far)]
    return halves


def summarise(runs: list[dict]) -> dict:
    """Near and far half, the mean over seeds."""
    each = [mean_by_half(result) for result in runs]
    return {
        case: [statistics.mean(half[case][i] for half in each) for i in (0, 1)]
        for case in each[0]
    }


if __name__ == "__main__":
    main()
