"""The command `transformer`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import torch

from transformer.cli_train import add_average, add_train, whole_number
from transformer.cli_translate import add_evaluate, add_translate
from transformer.data.toy import FIRST_SYMBOL, SymbolTask
from transformer.decoding import greedy_decode
from transformer.evaluation import greedy_exact_match
from transformer.recipes import train_toy

# From this many steps on, demo promises this share of sequences.
DEMO_STEPS, DEMO_GOAL = 500, 0.99


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="transformer", description=__doc__
    )
    commands = parser.add_subparsers(dest="command", required=True)
    add_demo(commands)
    add_train(commands)
    add_average(commands)
    add_translate(commands)
    add_evaluate(commands)
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except (ArithmeticError, ImportError, OSError, ValueError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 2


def add_demo(commands) -> None:
    """Declare `transformer demo`."""
    command = commands.add_parser(
        "demo",
        help="learn to copy, decode, and say how often it is right",
        description="Train a small Transformer to copy sequences of 5"
        " to 20 symbols, then let it copy 1,000 fresh ones on its own."
        f" From {DEMO_STEPS} steps on the exit status is 1 if less"
        f" than {DEMO_GOAL:.0%} come out right.",
    )
    command.add_argument(
        "--steps",
        type=whole_number,
        default=DEMO_STEPS,
        help="updates of the weights (default: %(default)s)",
    )
    command.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of weights, data and test (default: %(default)s)",
    )
    command.set_defaults(run=demo)


def demo(options: argparse.Namespace) -> int:
    """Train on the copy task and report greedy exact match."""
    started = time.perf_counter()
    task = SymbolTask("copy")
    model, _ = train_toy(task, options.seed, steps=options.steps)
    fresh = torch.Generator().manual_seed(2**31 + options.seed)
    test = task.batch(1000, fresh)
    output = greedy_decode(model, test.source[:3])
    for source, copied in zip(test.source[:3], output, strict=True):
        print(f"  source  {symbols(source)}")
        print(f"  output  {symbols(copied)}")
    share = greedy_exact_match(model, test)
    seconds = time.perf_counter() - started
    print(
        f"greedy exact match on {len(test)} fresh sequences:"
        f" {share:.3f}  (seed {options.seed}, {options.steps} steps,"
        f" {seconds:.0f} s)"
    )
    if options.steps >= DEMO_STEPS and share < DEMO_GOAL:
        print(f"less than {DEMO_GOAL}: something is wrong")
        return 1
    return 0


def symbols(ids: torch.Tensor) -> str:
    """Ids as the symbols 0, 1, 2, ..., without special ids."""
    shown = [i - FIRST_SYMBOL for i in ids.tolist()]
    return " ".join(str(i) for i in shown if i >= 0)
