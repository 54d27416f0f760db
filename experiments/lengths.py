"""Section 3.5: lengths beyond training: book/results/lengths.json.

    python experiments/lengths.py

The copy task by the book's recipe, trained on lengths 5 to 20, with
three tables of positions: the sinusoids as printed, learned ones, and
the sinusoids with their exponent doubled by mistake. Each model is
then measured at lengths 5 to 40, on the same fresh sequences for all
three. The models with sinusoids are those of `copy_task.py`. One
thread; five seeds take some eight minutes.

A first run of this script used the recipe of its day, one head and no
label smoothing. At length 25 it gave 0.000 for every kind and seed.
When the recipe changed, it was run again with nothing else changed.
"""

from __future__ import annotations

import argparse
import statistics
from contextlib import nullcontext

import torch
from provenance import RESULTS, run_seeds
from torch import Tensor

from bookkit import mutations
from transformer import TrainingConfig, Transformer, TransformerConfig
from transformer.data.batches import Batch, shift
from transformer.data.toy import SymbolTask
from transformer.decoding import evaluation_mode
from transformer.evaluation import greedy_exact_match, teacher_forced_accuracy
from transformer.training import train

KINDS = ("sinusoidal", "learned", "doubled exponent")
LENGTHS = (5, 10, 15, 20, 21, 22, 23, 25, 30, 40)
SEQUENCES = 500  # at each length
TASK = SymbolTask("copy", shortest=5, longest=20)
# Seeds that no recipe was tuned on, see tune_toy.py.
FIRST_SEED = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run_seeds(
        RESULTS / "lengths.json",
        range(FIRST_SEED, FIRST_SEED + options.seeds),
        run,
        settings={
            "task": "copy",
            "trained_on": [TASK.shortest, TASK.longest],
            "kinds": KINDS,
            "lengths": LENGTHS,
            "sequences": SEQUENCES,
            "max_length": shape("learned").max_length,
        },
        summarise=summarise,
        say=say,
        allow_dirty=options.allow_dirty,
    )


def shape(kind: str) -> TransformerConfig:
    """The copy task's model; learned tables have rows to spare."""
    positions = "learned" if kind == "learned" else "sinusoidal"
    return TransformerConfig.tiny(TASK.vocab_size, positions=positions)


def learn(kind: str, seed: int, **changes) -> Transformer:
    """As `recipes.train_toy`, with positions of another kind."""
    doubled = kind == "doubled exponent"
    planted = mutations.applied("exponent_doubled") if doubled else nullcontext()
    with torch.random.fork_rng(), planted:
        torch.manual_seed(seed)
        model = Transformer(shape(kind))
    draw = torch.Generator().manual_seed(seed)
    batches = iter(lambda: TASK.batch(TASK.batch_size, draw), None)
    config = TrainingConfig.copy_task(seed=seed, **changes)
    train(model, batches, config, progress=False)
    return model


def run(seed: int) -> dict:
    """Every kind at every length."""
    fresh = torch.Generator().manual_seed(2**31 + seed)
    tests = {
        length: SymbolTask("copy", shortest=length, longest=length).batch(
            SEQUENCES, fresh
        )
        for length in LENGTHS
    }
    return {kind: measure(learn(kind, seed), tests) for kind in KINDS}


def measure(model: Transformer, tests: dict[int, Batch]) -> dict:
    """Whole sequences, single tokens, and tokens by their position."""
    return {
        "exact_match": {
            str(length): greedy_exact_match(model, test)
            for length, test in tests.items()
        },
        "teacher_forced_accuracy": {
            str(length): teacher_forced_accuracy(model, test)
            for length, test in tests.items()
        },
        "right_at_position": right_at_position(model, tests[max(tests)]).tolist(),
    }


@torch.no_grad()
def right_at_position(model: Transformer, batch: Batch) -> Tensor:
    """Teacher-forced accuracy at each target position, in one length."""
    target_in, gold = shift(batch.target)
    with evaluation_mode(model):
        logits = model(batch.source, target_in)
    return (logits.argmax(dim=-1) == gold).double().mean(dim=0)


def summarise(runs: list[dict]) -> dict:
    """Mean exact match over seeds."""
    return {
        kind: {
            str(length): statistics.mean(
                run[kind]["exact_match"][str(length)] for run in runs
            )
            for length in LENGTHS
        }
        for kind in KINDS
    }


def say(run: dict) -> str:
    """One line for one seed: exact match at lengths 20 and 25."""
    each = "; ".join(
        f"{kind} {run[kind]['exact_match']['20']:.3f}"
        f" {run[kind]['exact_match']['25']:.3f}"
        for kind in KINDS
    )
    return f"seed {run['seed']}: {each}"


if __name__ == "__main__":
    main()
