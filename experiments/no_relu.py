"""Copying and sorting without ReLU, and how sparse ReLU is.

    python experiments/no_relu.py            # book/results/no_relu.json

Each seed trains the copy task and the sort task as printed and with the
mistake `no_relu`, under which the feed-forward network is one linear map
written as two. Set before the run: a task counts as solved without ReLU
if the median over seeds of greedy exact match on 1,000 fresh sequences is
at least 0.95. Of the models as printed it also keeps, for each of the
four feed-forward networks, which share of the numbers after ReLU is 0 on
the real positions of these sequences, before training and after it, how
many of the 256 columns are 0 at every position, and how widely the other
columns' own shares lie apart. One thread, about a minute and a half a
seed.
"""

from __future__ import annotations

import argparse
import statistics
from contextlib import nullcontext
from dataclasses import asdict

import torch
from provenance import RESULTS, run_seeds
from torch import Tensor

from bookkit import mutations
from transformer import PAD, TrainingConfig, Transformer
from transformer.data.batches import Batch
from transformer.data.toy import SymbolTask
from transformer.evaluation import greedy_exact_match, teacher_forced_accuracy
from transformer.recipes import toy_model, train_toy

MUTATION = "no_relu"
KINDS = ("as_printed", MUTATION)
TASKS = ("copy", "sort")
SEEDS = range(520, 525)  # none that a recipe was tuned on
FRESH = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run_of = asdict(TrainingConfig.copy_task())
    run_seeds(
        RESULTS / "no_relu.json",
        SEEDS,
        run,
        settings={
            "tasks": TASKS,
            "data": asdict(SymbolTask()),
            "model": toy_model(SymbolTask(), seed=0).config.to_dict(),
            "training": {key: run_of[key] for key in run_of if key != "seed"},
            "batch": SymbolTask.batch_size,
            "test_size": FRESH,
            "mutation": MUTATION,
        },
        summarise=summarise,
        say=say,
        allow_dirty=options.allow_dirty,
    )


def run(seed: int) -> dict:
    """Both tasks, with and without ReLU."""
    measured: dict = {}
    for name in TASKS:
        task = SymbolTask(name)
        fresh = task.batch(FRESH, torch.Generator().manual_seed(2**31 + seed))
        measured[name] = {}
        for kind in KINDS:
            planted = mutations.applied(kind) if kind == MUTATION else nullcontext()
            with planted:
                model, history = train_toy(task, seed, progress=False)
            measured[name][kind] = {
                "greedy_exact_match": greedy_exact_match(model, fresh),
                "teacher_forced": teacher_forced_accuracy(model, fresh),
                "last_loss": statistics.fmean(history.loss[-20:]),
            }
            if kind == "as_printed":
                start = toy_model(task, seed)
                measured[name]["zeros_at_the_start"] = zeros(start, fresh)
                measured[name]["zeros_when_trained"] = zeros(model, fresh)
    return measured


@torch.no_grad()
def zeros(model: Transformer, batch: Batch) -> dict:
    """For each network, what of its inner layer is 0."""
    found: dict = {}
    target_in = batch.target[:, :-1]
    stacks = {"encoder": (model.encoder, batch.source)}
    stacks["decoder"] = (model.decoder, target_in)
    for stack, (part, ids) in stacks.items():
        for number, layer in enumerate(part.layers, 1):
            caught: list[Tensor] = []
            hook = layer.feed_forward.narrow.register_forward_pre_hook(
                lambda _, given, caught=caught: caught.append(given[0])
            )
            model(batch.source, target_in)
            hook.remove()
            zero = (caught[0] == 0)[ids != PAD].double()
            columns = zero.mean(0)
            lowest, highest = columns.quantile(torch.tensor([0.1, 0.9]).double())
            found[f"{stack} {number}"] = {
                "share": columns.mean().item(),
                "always": int((columns == 1).sum()),
                "columns_from": lowest.item(),
                "columns_to": highest.item(),
            }
    return found


def summarise(runs: list[dict]) -> dict:
    """Medians over seeds."""

    def median(pick) -> float:
        return statistics.median(pick(run) for run in runs)

    return {
        name: {
            **{
                kind: median(
                    lambda run, k=kind, n=name: run[n][k]["greedy_exact_match"]
                )
                for kind in KINDS
            },
            **{
                when: {
                    network: median(
                        lambda run, n=name, w=when, x=network: run[n][w][x]["share"]
                    )
                    for network in runs[0][name][when]
                }
                for when in ("zeros_at_the_start", "zeros_when_trained")
            },
        }
        for name in TASKS
    }


def say(run: dict) -> str:
    """One line a seed."""
    numbers = [
        f"{name} {run[name]['as_printed']['greedy_exact_match']:.3f}"
        f" / {run[name][MUTATION]['greedy_exact_match']:.3f}"
        for name in TASKS
    ]
    shares = run["copy"]["zeros_when_trained"]
    listed = ", ".join(f"{shares[network]['share']:.2f}" for network in shares)
    return f"seed {run['seed']}: {', '.join(numbers)}; zeros {listed}"


if __name__ == "__main__":
    main()
