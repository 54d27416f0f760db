"""Training without encoder self-attention: book/results/encoder_attention.json.

    python experiments/encoder_attention.py

Copying, sorting and number words, each trained as copy_task.py does, with
one change, in training and in the test: in the encoder a position may attend
to itself only, so that nothing passes from token to token. The same seeds
and the same test as there, where nothing is cut. One thread, about two
minutes a seed.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from copy_task import FIRST_SEED, FRESH, HELD_OUT, make_task, settings
from provenance import RESULTS, run_seeds
from torch import Tensor

from bookkit.using import replaced
from transformer import Encoder
from transformer.evaluation import greedy_exact_match, teacher_forced_accuracy
from transformer.recipes import train_toy

TASKS = ("copy", "sort", "number_words")
run_encoder = Encoder.forward


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run_seeds(
        RESULTS / "encoder_attention.json",
        range(FIRST_SEED, FIRST_SEED + options.seeds),
        run,
        settings={name: settings(name, {}) for name in TASKS}
        | {"cut": "a source position attends to itself only"},
        summarise=summarise,
        say=lambda r: f"seed {r['seed']}: exact match {r['exact_match']}",
        allow_dirty=options.allow_dirty,
    )


def only_itself(self: Encoder, x: Tensor, mask: Tensor) -> Tensor:
    """Whatever the mask, each position sees itself and nothing else."""
    itself = torch.eye(x.size(1), dtype=torch.bool, device=x.device)
    return run_encoder(self, x, itself)


def run(seed: int) -> dict:
    """Exact match and accuracy of each task, with the cut."""
    measured: dict = {"exact_match": {}, "teacher_forced_accuracy": {}}
    for name in TASKS:
        task = make_task(name)
        fresh = torch.Generator().manual_seed(2**31 + seed)
        numbers = name == "number_words"
        test = task.held_out(HELD_OUT, fresh) if numbers else task.batch(FRESH, fresh)
        with replaced(Encoder__forward=only_itself):
            model, _ = train_toy(task, seed, progress=False)
            accuracy = teacher_forced_accuracy(model, test)
            measured["exact_match"][name] = greedy_exact_match(model, test)
        measured["teacher_forced_accuracy"][name] = accuracy
    return measured


def summarise(runs: list[dict]) -> dict:
    """What the book quotes."""
    return {
        f"exact_match_median_{name}": statistics.median(
            run["exact_match"][name] for run in runs
        )
        for name in TASKS
    }


if __name__ == "__main__":
    main()
