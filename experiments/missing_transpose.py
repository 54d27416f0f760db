"""Copying with heads cut wrongly: book/results/missing_transpose.json.

    python experiments/missing_transpose.py

Heads are cut, or laid together again, by a change of shape alone, without
the transpose, or both. Every shape fits. Each seed trains the copy task with
each mistake, on the seeds and settings of no_causal_mask.json, whose numbers
"as printed" stand for the right code; and asks which token comes next, all
before it given (teacher-forced accuracy), and what the whole sequence is
(greedy exact match, with the cache of keys and values and without). One
thread, about a minute a seed.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import asdict

import torch
from provenance import RESULTS, run_seeds

from bookkit import mutations
from transformer import TrainingConfig, greedy_decode
from transformer.data.toy import SymbolTask
from transformer.evaluation import (
    exact_match,
    greedy_exact_match,
    teacher_forced_accuracy,
)
from transformer.recipes import toy_model, train_toy

MUTATIONS = (
    "split_without_transpose",
    "merge_without_transpose",
    "no_transpose_at_all",
)
SEEDS = range(300, 305)  # those of no_causal_mask.json
FRESH = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    training = asdict(TrainingConfig.copy_task())
    task = SymbolTask("copy")
    run_seeds(
        RESULTS / "missing_transpose.json",
        SEEDS,
        run,
        settings={
            "task": "copy",
            "data": asdict(task),
            "model": toy_model(task, seed=0).config.to_dict(),
            "training": {key: training[key] for key in training if key != "seed"},
            "batch": task.batch_size,
            "test_size": FRESH,
            "mutations": MUTATIONS,
        },
        summarise=summarise,
        say=say,
        allow_dirty=options.allow_dirty,
    )


def run(seed: int) -> dict:
    """All mistakes, from one seed."""
    measured = {}
    for name in MUTATIONS:
        with mutations.applied(name):
            measured[name] = measure(seed)
    return measured


def measure(seed: int) -> dict:
    """Train one model and examine it."""
    task = SymbolTask("copy")
    model, history = train_toy(task, seed, progress=False)
    fresh = task.batch(FRESH, torch.Generator().manual_seed(2**31 + seed))
    target = fresh.target[:, 1:]
    slow = greedy_decode(
        model, fresh.source, max_length=target.size(1), use_cache=False
    )
    pad = model.config.pad_id
    return {
        "teacher_forced": teacher_forced_accuracy(model, fresh),
        "greedy_exact_match": greedy_exact_match(model, fresh),
        "greedy_exact_match_without_cache": exact_match(slow, target, pad_id=pad),
        "last_loss": statistics.fmean(history.loss[-20:]),
    }


def summarise(runs: list[dict]) -> dict:
    """Medians over seeds."""
    return {
        name: {
            number: statistics.median(run[name][number] for run in runs)
            for number in runs[0][name]
        }
        for name in MUTATIONS
    }


def say(run: dict) -> str:
    """One line a seed."""
    numbers = [
        f"{name} {run[name]['teacher_forced']:.3f}"
        f" / {run[name]['greedy_exact_match']:.3f}"
        for name in MUTATIONS
    ]
    return f"seed {run['seed']}: {', '.join(numbers)}"


if __name__ == "__main__":
    main()
