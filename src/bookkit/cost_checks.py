"""Checks of section 4: counts, chains and the four layers of Table 1.

Part of `bookkit.check`; see there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import transformer
from bookkit import reference
from bookkit.report import Exam, Report
from transformer import complexity
from transformer import table1 as layers

ROWS = "self-attention, recurrent, convolutional, restricted"


def costs(mine: Callable) -> Report:
    """Section 4: how many multiplications Table 1's four layers take.

    Args:
        mine: (n, d, k, r) -> four whole numbers in the order of the
            table, for n positions of width d: self-attention, the
            recurrent layer, a kernel of k positions, attention to r
            positions. What counts is multiplications in matrix
            products; attention has two of them, and so has a step of
            the recurrence: one with the input and one with the state.

    Raises:
        CheckFailed: with the smallest failing example.
    """
    exam = Exam("costs", lambda *given: tuple(mine(*given)), our_costs)
    for n, d, k, r in ((1, 1, 1, 1), (4, 2, 3, 2), (2, 5, 1, 2), (9, 3, 2, 4)):
        exam.equal(
            f"n={n}, d={d}, k={k}, r={r}: {ROWS}",
            dict(n=n, d=d, k=k, r=r),
            reference.multiplications(n, d, k, r),
        )
    return exam.close()


def our_costs(n: int, d: int, k: int, r: int) -> tuple[int, ...]:
    """What the book's formulas say."""
    return (
        complexity.self_attention(n, d).operations,
        complexity.recurrent(n, d).operations,
        complexity.convolutional(n, d, k).operations,
        complexity.restricted(n, d, r).operations,
    )


def dependent_steps(mine: Callable) -> Report:
    """Section 4: the longest chain of steps that wait for each other.

    Args:
        mine: needs -> a whole number. `needs` is a dictionary: for
            each step the list of what it is computed from, earlier
            steps or things that are given. Steps stand after those
            that they need.

    Raises:
        CheckFailed: with the smallest failing example.
    """
    exam = Exam("dependent steps", mine, lambda n: complexity.dependent_steps(n))
    for statement, needs, steps in (
        ("one step", {"h1": ["x1"]}, 1),
        ("two steps, neither needs the other", {"y1": ["x1"], "y2": ["x2"]}, 1),
        ("two in a row", {"h1": ["x1"], "h2": ["x2", "h1"]}, 2),
        (
            "a short cut does not shorten the wait",
            {"a": ["x"], "b": ["a"], "c": ["b", "a", "x"]},
            3,
        ),
        (
            "the longest chain need not end last",
            {"a": ["x"], "b": ["a"], "c": ["b"], "d": ["x"]},
            3,
        ),
        ("nothing to do", {}, 0),
    ):
        exam.equal(statement, dict(needs=needs), steps)
    return exam.close()


def table1(**mine: Callable) -> Report:
    """Section 4: the four layers of Table 1, bare.

    Args:
        mine: yours in place of the book's, by name: attention_layer,
            recurrent_layer, convolutional_layer, restricted_layer.
            Inputs are (n, d).

    Raises:
        CheckFailed: with the first failing example.
        TypeError: another name.
    """
    names = [name for name in vars(layers) if name.endswith("_layer")]
    for name in mine:
        if name not in names:
            raise TypeError(f"{name!r} is none of {', '.join(names)}")

    def ours(what: str, layer: str, *given) -> Tensor:
        return look(what, getattr(transformer.table1, layer), *given)

    def asked(what: str, layer: str, *given) -> Tensor:
        chosen = mine.get(layer) or getattr(transformer.table1, layer)
        return look(what, chosen, *given)

    exam = Exam("Table 1", asked, ours)
    draw = torch.Generator().manual_seed(4)

    def equals(statement: str, layer: str, right: Tensor, **given) -> None:
        given = dict(what="output", layer=layer) | given
        exam.equal(statement, given, right.float())

    x = torch.randn(5, 2, generator=draw)
    weight = torch.randn(4, 2, generator=draw) / 2
    kernel = torch.randn(2, 2, 3, generator=draw)
    equals(
        "every position attends to every position",
        "attention_layer",
        reference.attention(x, x, x),
        x=x,
    )
    equals(
        "a state goes from each position to the next",
        "recurrent_layer",
        reference.recurrence(x, weight),
        x=x,
        weight=weight,
    )
    for dilation in (1, 2):
        equals(
            f"a kernel of 3 positions, {dilation} apart",
            "convolutional_layer",
            reference.convolution(x, kernel, dilation),
            x=x,
            kernel=kernel,
            dilation=dilation,
        )
    for r in (1, 3, 5):
        near = torch.ones(5, 5, dtype=torch.bool).tril().triu(1 - r)
        equals(
            f"attention to {r} positions",
            "restricted_layer",
            reference.attention(x, x, x, near),
            x=x,
            r=r,
        )
    long = torch.randn(40, 2, generator=draw)
    exam.gives(
        "attention to 4 of 40 positions multiplies for no more than those",
        dict(what="multiplications", layer="restricted_layer", x=long, r=4),
        lambda counted: bool(counted <= 2 * 40 * 4 * 2),
        "at most 2 n r d = 640 multiplications",
    )
    return exam.close()


def look(what: str, layer: Callable[..., Tensor], *given) -> Tensor:
    """The layer's output, or how many multiplications it takes."""
    if what == "output":
        return layer(*given)
    return torch.tensor(multiplications(layer, *given))


def multiplications(function: Callable, *given) -> int:
    """In the matrix products that the framework sees go by."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        function(*given)
    return counter.get_total_flops() // 2
