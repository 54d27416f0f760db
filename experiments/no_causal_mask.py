"""Copying without a causal mask: book/results/no_causal_mask.json.

    python experiments/no_causal_mask.py

Each seed trains the copy task twice, once as printed and once with the
mistake `no_causal_mask`, and asks both models two questions about the
same 1,000 fresh sequences: which token comes next, all before it given
(teacher-forced accuracy), and what is the whole sequence (greedy exact
match; once with the cache and once without). The first question is then
asked once more with the future hidden, of the same weights: what is left
did not come from the future. One thread, about a minute a seed.

The seed with the median exact match is also what the first page shows:
book/results/first_page.json.
"""

from __future__ import annotations

import argparse
import statistics
from contextlib import nullcontext
from dataclasses import asdict

import torch
from provenance import RESULTS, now, run_seeds, write_json

from bookkit import mutations
from transformer import TrainingConfig, causal_mask, greedy_decode
from transformer.data.toy import SymbolTask
from transformer.evaluation import (
    exact_match,
    greedy_exact_match,
    teacher_forced_accuracy,
)
from transformer.recipes import toy_model, train_toy

MUTATION = "no_causal_mask"
SEEDS = range(300, 305)  # none that a recipe was tuned on
FRESH = 1000
SHOWN = 3  # sequences kept, to be looked at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    training = asdict(TrainingConfig.copy_task())
    task = SymbolTask("copy")
    result = run_seeds(
        RESULTS / "no_causal_mask.json",
        SEEDS,
        run,
        settings={
            "task": "copy",
            "data": asdict(task),
            "model": toy_model(task, seed=0).config.to_dict(),
            "training": {key: training[key] for key in training if key != "seed"},
            "batch": task.batch_size,
            "test_size": FRESH,
            "mutation": MUTATION,
        },
        summarise=summarise,
        say=say,
        allow_dirty=options.allow_dirty,
    )
    write_json(RESULTS / "first_page.json", first_page(result))


def run(seed: int) -> dict:
    """What both models say, and how low their losses are."""
    measured = {}
    for name, planted in (
        ("as_printed", nullcontext()),
        (MUTATION, mutations.applied(MUTATION)),
    ):
        with planted:
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
    output = greedy_decode(model, fresh.source[:SHOWN], max_length=target.size(1))
    pad = model.config.pad_id
    accuracy = teacher_forced_accuracy(model, fresh)
    match = greedy_exact_match(model, fresh)
    model.causal_mask = causal_mask  # the book's own, whatever it had
    return {
        "teacher_forced": accuracy,
        "teacher_forced_future_hidden": teacher_forced_accuracy(model, fresh),
        "greedy_exact_match": match,
        "greedy_exact_match_without_cache": exact_match(slow, target, pad_id=pad),
        "last_loss": statistics.fmean(history.loss[-20:]),
        "shown": {
            "source": without_padding(fresh.source[:SHOWN], pad),
            "output": without_padding(output, pad),
        },
    }


def without_padding(ids: torch.Tensor, pad: int) -> list[list[int]]:
    """As lists, each as long as it is."""
    return [[id for id in row if id != pad] for row in ids.tolist()]


def summarise(runs: list[dict]) -> dict:
    """Medians over seeds."""
    numbers = (
        "teacher_forced",
        "teacher_forced_future_hidden",
        "greedy_exact_match",
        "last_loss",
    )
    return {
        model: {
            number: statistics.median(run[model][number] for run in runs)
            for number in numbers
        }
        for model in ("as_printed", MUTATION)
    }


def say(run: dict) -> str:
    """One line a seed."""
    numbers = [
        f"{model} {run[model]['teacher_forced']:.3f}"
        f" / {run[model]['greedy_exact_match']:.3f}"
        for model in ("as_printed", MUTATION)
    ]
    return f"seed {run['seed']}: {', '.join(numbers)}"


def first_page(result: dict) -> dict:
    """The run whose exact match is the median."""
    ordered = sorted(
        result["runs"], key=lambda run: run[MUTATION]["greedy_exact_match"]
    )
    chosen = ordered[len(ordered) // 2]
    return {
        "provenance": result["provenance"],
        "teacher_forced": chosen[MUTATION]["teacher_forced"],
        "greedy_exact_match": chosen[MUTATION]["greedy_exact_match"],
        "seed": chosen["seed"],
        "steps": result["settings"]["training"]["steps"],
        "mutation": MUTATION,
        "chosen": "the seed with the median greedy exact match",
        "from": "book/results/no_causal_mask.json",
        "date": now(),
    }


if __name__ == "__main__":
    main()
