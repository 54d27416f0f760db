"""Copying with an unshifted target: book/results/target_not_shifted.json.

    python experiments/target_not_shifted.py

Each seed trains the copy task three times: as printed, with the mistake
`no_causal_mask` and with the mistake `target_not_shifted`, under which
the decoder is given the very token that it must say. The question was set
before the run: which of the three ends with the lowest training loss, and
what is it worth? Beside the loss each model has its share of right tokens
measured twice on the same 1,000 fresh sequences, once with the shift that
it was trained with, as a validation in the same code would, and once with
the right one; and the share of sequences that it decodes whole. One
thread, about a minute a seed.
"""

from __future__ import annotations

import argparse
import statistics
from contextlib import nullcontext
from dataclasses import asdict

import torch
from no_causal_mask import without_padding
from provenance import RESULTS, run_seeds

from bookkit import mutations
from transformer import PAD, TrainingConfig, greedy_decode, training
from transformer.data.toy import SymbolTask
from transformer.decoding import evaluation_mode
from transformer.evaluation import exact_match, teacher_forced_accuracy
from transformer.recipes import toy_model, train_toy

MISTAKES = ("no_causal_mask", "target_not_shifted")
KINDS = ("as_printed", *MISTAKES)
SEEDS = range(510, 515)  # none that a recipe was tuned on
FRESH = 1000
EVERY = 10  # steps whose mean loss is kept
SHOWN = 3  # sequences kept, to be looked at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run_of = asdict(TrainingConfig.copy_task())
    task = SymbolTask("copy")
    run_seeds(
        RESULTS / "target_not_shifted.json",
        SEEDS,
        run,
        settings={
            "task": "copy",
            "data": asdict(task),
            "model": toy_model(task, seed=0).config.to_dict(),
            "training": {key: run_of[key] for key in run_of if key != "seed"},
            "batch": task.batch_size,
            "test_size": FRESH,
            "mutations": MISTAKES,
            "loss_every": EVERY,
        },
        summarise=summarise,
        say=say,
        allow_dirty=options.allow_dirty,
    )


def run(seed: int) -> dict:
    """The three models of a seed."""
    measured = {}
    for kind in KINDS:
        planted = mutations.applied(kind) if kind in MISTAKES else nullcontext()
        with planted:
            measured[kind] = measure(seed)
    return measured


def measure(seed: int) -> dict:
    """Train one model and examine it."""
    task = SymbolTask("copy")
    model, history = train_toy(task, seed, progress=False)
    fresh = task.batch(FRESH, torch.Generator().manual_seed(2**31 + seed))
    target = fresh.target[:, 1:]
    output = greedy_decode(model, fresh.source, max_length=target.size(1))
    groups = zip(*[iter(history.loss)] * EVERY, strict=True)
    return {
        "last_loss": statistics.fmean(history.loss[-20:]),
        "loss": [round(statistics.fmean(group), 4) for group in groups],
        "accuracy_as_trained": accuracy_as_trained(model, fresh),
        "teacher_forced": teacher_forced_accuracy(model, fresh),
        "greedy_exact_match": exact_match(output, target, pad_id=PAD),
        "shown": {
            "source": without_padding(fresh.source[:SHOWN], PAD),
            "output": without_padding(output[:SHOWN], PAD),
        },
    }


@torch.no_grad()
def accuracy_as_trained(model, batch) -> float:
    """Share of right tokens with the shift that is now in use."""
    given, gold = training.shift(batch.target)
    with evaluation_mode(model):
        said = model(batch.source, given).argmax(-1)
    real = gold != PAD
    return (((said == gold) & real).sum() / real.sum()).item()


def summarise(runs: list[dict]) -> dict:
    """Medians over seeds."""
    numbers = (
        "last_loss",
        "accuracy_as_trained",
        "teacher_forced",
        "greedy_exact_match",
    )
    return {
        kind: {
            number: statistics.median(run[kind][number] for run in runs)
            for number in numbers
        }
        for kind in KINDS
    }


def say(run: dict) -> str:
    """One line a seed."""
    numbers = [
        f"{kind} {run[kind]['last_loss']:.4f}"
        f" / {run[kind]['accuracy_as_trained']:.3f}"
        f" / {run[kind]['greedy_exact_match']:.3f}"
        for kind in KINDS
    ]
    return f"seed {run['seed']}: {', '.join(numbers)}"


if __name__ == "__main__":
    main()
