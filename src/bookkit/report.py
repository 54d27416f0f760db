"""What a check says: what was given, expected and found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bookkit import mutations
from bookkit.using import originals


class CheckFailed(AssertionError):
    """A check failed. Its text is the report.

    Attributes:
        part: what was checked.
        failed: the statements that do not hold.
        mistakes: names of known mistakes that give the same output.
    """

    def __init__(
        self, text: str, part: str, failed: list[str], mistakes: list[str]
    ) -> None:
        super().__init__(text)
        self.part = part
        self.failed = failed
        self.mistakes = mistakes


@dataclass(frozen=True)
class Report:
    """A check that passed, and the statements that it found true."""

    part: str
    statements: tuple[str, ...]

    def __repr__(self) -> str:
        return f"{self.part}: {len(self.statements)} checks passed"


@dataclass
class Exam:
    """Collects the outcomes of one check, then says them.

    Args:
        part: what is checked; also the key of its known mistakes.
        mine: the thing to check, called with a case's inputs.
        ours: the book's own, called in the same way. Under a known
            mistake it tells whether `mine` makes that mistake.
    """

    part: str
    mine: Callable[..., Any]
    ours: Callable[..., Any] | None = None
    passed: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    cases: list[tuple[tuple, Any, float]] = field(default_factory=list)
    nameable: bool = False  # whether a failed statement is a case

    def equal(
        self,
        statement: str,
        given: dict[str, Any],
        expected: Any,
        tolerance: float = 1e-5,
    ) -> None:
        """`mine(*given.values())` comes out as expected."""
        got = outcome(self.mine, tuple(given.values()))
        self.cases.append((tuple(given.values()), got, tolerance))
        if same(got, expected, tolerance):
            self.passed.append(statement)
        else:
            wanted = show(expected) + difference(expected, got)
            self.fail(statement, given, wanted, got)

    def gives(
        self,
        statement: str,
        given: dict[str, Any],
        holds: Callable[[Any], bool],
        wanted: str,
    ) -> None:
        """What `mine(*given.values())` gives has a property."""
        got = outcome(self.mine, tuple(given.values()))
        self.cases.append((tuple(given.values()), got, 1e-5))
        if isinstance(got, Tensor) and holds(got):
            self.passed.append(statement)
        else:
            self.fail(statement, given, wanted, got)

    def fail(self, statement: str, given: dict, wanted: str, got: Any) -> None:
        """Note down a failing example."""
        lines = [f"given     {name} = {show(value)}" for name, value in given.items()]
        lines += [f"expected  {wanted}", f"got       {show(got)}{_hint(got, wanted)}"]
        self.failed.append((statement, "\n".join(lines)))
        self.nameable = True

    def true(self, statement: str, holds: bool, found: str) -> None:
        """The statement holds; `found` says what was seen."""
        if holds:
            self.passed.append(statement)
        else:
            self.failed.append((statement, found))

    def close(self) -> Report:
        """Return a report, or raise it."""
        if not self.failed:
            return Report(self.part, tuple(self.passed))
        total = len(self.passed) + len(self.failed)
        mistakes = self.known_mistakes()
        lines = [f"{self.part}: {len(self.failed)} of {total} checks failed"]
        # The smallest example comes first; the others add little.
        (statement, detail), *others = self.failed
        lines += [f"\n  failed: {statement}"]
        lines += [f"    {line}" for line in detail.splitlines()]
        if others:
            also = "; ".join(statement for statement, _ in others)
            lines.append(f"\n  also failed: {also}")
        lines.append("")
        for name in mistakes:
            says = mutations.MUTATIONS[name].says
            lines.append(f"  A known mistake gives exactly this: {says} ({name}).")
        if not mistakes:
            lines.append("  No known mistake gives exactly this output.")
        if self.passed:
            lines.append("  What holds: " + "; ".join(self.passed) + ".")
        raise CheckFailed(
            "\n".join(lines),
            self.part,
            [statement for statement, _ in self.failed],
            mistakes,
        )

    def known_mistakes(self) -> list[str]:
        """The mistakes under which ours gives all that mine gave."""
        if self.ours is None or not self.nameable:
            return []
        with originals():
            if self.ours_does_the_same():
                return []  # then it is no mistake of that part
        found = []
        for mutation in mutations.of(self.part):
            with originals(), mutation.applied():
                if self.ours_does_the_same():
                    found.append(mutation.name)
        return found

    def ours_does_the_same(self) -> bool:
        """Whether ours gives all that mine gave."""
        return all(
            same(outcome(self.ours, inputs), got, tolerance)
            for inputs, got, tolerance in self.cases
        )


def outcome(function: Callable[..., Any], inputs: Sequence) -> Any:
    """What the call returns, or the exception that it raises.

    Random draws are the same in every call, so that what a mistake
    does at random can be told from what another does.
    """
    try:
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            return function(*inputs)
    except Exception as error:
        return error


def same(got: Any, expected: Any, tolerance: float) -> bool:
    """Equal: numbers within the tolerance, shapes and types exactly.

    The tolerance is relative to the largest expected value.
    """
    if isinstance(expected, Exception):
        return type(got) is type(expected) and str(got) == str(expected)
    if isinstance(expected, tuple | list):
        return (
            isinstance(got, tuple | list)
            and len(got) == len(expected)
            and all(same(g, e, tolerance) for g, e in zip(got, expected, strict=True))
        )
    if isinstance(expected, Tensor):
        if not isinstance(got, Tensor) or got.shape != expected.shape:
            return False
        if not expected.is_floating_point():
            return torch.equal(got.to(expected.dtype), expected)
        got, expected = got.double(), expected.double()
        finite = expected[expected.isfinite()]
        size = finite.abs().max().item() if finite.numel() else 1.0
        return torch.allclose(
            got,
            expected,
            rtol=0,
            atol=tolerance * max(size, 1e-30),
            equal_nan=True,
        )
    if isinstance(expected, float):
        if not isinstance(got, int | float):
            return False
        return abs(got - expected) <= tolerance * abs(expected)
    return got == expected


def show(value: Any) -> str:
    """A value in a line: small tensors in full, large by shape."""
    if isinstance(value, Exception):
        text = str(value).splitlines()
        return f"{type(value).__name__}: {text[0] if text else ''}"
    if value is None:
        return "None"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(show(item) for item in value) + ")"
    if not isinstance(value, Tensor):
        return f"{value:.6g}" if isinstance(value, float) else repr(value)
    if value.numel() > 24:
        kind = str(value.dtype).removeprefix("torch.")
        return f"{kind} of shape {tuple(value.shape)}"
    return _nested(value.tolist())


def _hint(got: Any, wanted: str) -> str:
    """What to look at where the output is not of the kind that is wanted."""
    if got is None:
        return ": is a return missing?"
    if isinstance(got, tuple) and not wanted.startswith("("):
        return ": if that is more than the output, pick it with call="
    return ""


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_nested(item) for item in value) + "]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def difference(expected: Any, got: Any) -> str:
    """Where two large tensors of one shape differ most."""
    if not isinstance(expected, Tensor) or not isinstance(got, Tensor):
        return ""
    if got.shape != expected.shape or expected.numel() <= 24:
        return ""
    gap = (got.double() - expected.double()).abs().nan_to_num(torch.inf)
    place = tuple(int(i) for i in torch.unravel_index(gap.argmax(), gap.shape))
    return (
        f", {expected[place].item():.5g} at {list(place)}; there mine is"
        f" {got[place].item():.5g}"
    )
