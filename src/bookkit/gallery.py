"""Appendix A2: what each known mistake shows, and which check finds it.

    gallery.rows()                 each mistake of the model, as trained
    gallery.find("no_relu")        the checks, run on it now
    gallery.table(rows, found)     all of it, by section

`experiments/bug_gallery.py` makes the runs.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from html import escape

from bookkit import mutations
from bookkit.checks import every_check
from bookkit.evidence import results
from bookkit.figures import (
    ACCENT,
    COLOURS,
    FAINT,
    INK,
    QUIET,
    Figure,
    blank,
    lines,
    style,
)
from bookkit.report import CheckFailed

RIGHT = "as_printed"
# The model, in the paper's order; a check's name stands for its mistakes.
SECTIONS: dict[str, tuple[str, ...]] = {
    "3.1 layers and norms": ("connection", "layers", "stack"),
    "3.2.1 attention": ("attention",),
    "3.2.2 heads": ("heads",),
    "3.2.3 masks": ("masks", "no_memory_mask", "target_padding_masked_too"),
    "3.3 feed-forward": ("feed_forward",),
    "3.4 embeddings": ("embedding", "standard_normal_start"),
    "3.5 positions": ("positions",),
}
AROUND: dict[str, tuple[str, ...]] = {
    "the shift": ("shift",),
    "5.3 schedule": ("schedule",),
    "5.3 Adam": ("optimizer", "Adam"),
    "5.4 loss": ("loss",),
    "decoding": ("greedy_decode",),
}
# For the exercise: each shows otherwise to somebody who sees logits alone.
HIDDEN = (
    "causal_one_ahead",
    "cross_is_self",
    "merge_without_transpose",
    "no_memory_mask",
    "no_relu",
    "padding_mask_inverted",
)
A_LINE = 9  # dots, in the figure of all mistakes
WORST = {"loss": math.inf, "accuracy": -math.inf, "copy": -math.inf, "sort": -math.inf}


@dataclass(frozen=True)
class Row:
    """One mistake, trained; or the right code.

    Attributes:
        section: where its table has it.
        loss, accuracy, copy, sort: a number a seed: the last training
            loss, teacher-forced accuracy and greedy exact match on
            copying; and greedy exact match on sorting, empty where it
            was not trained.
        stops: the error that decoding ends in, if it does.
    """

    name: str
    section: str
    loss: tuple[float, ...]
    accuracy: tuple[float, ...]
    copy: tuple[float, ...]
    sort: tuple[float, ...]
    stops: str = ""

    @property
    def equivalent(self) -> bool:
        """Whether nothing can tell it from the right code."""
        return self.name != RIGHT and mutations.MUTATIONS[self.name].equivalent

    def median(self, number: str) -> float:
        """Over seeds; of nothing, NaN."""
        values = getattr(self, number)
        return statistics.median(values) if values else math.nan

    def passes(self, task: str) -> bool:
        """By the rule that stood before the run."""
        return self.median(task) >= rule()["passes"]


@dataclass(frozen=True)
class Found:
    """What the checks say of one mistake.

    Attributes:
        check: of its part.
        statement: the first that fails; empty if none does.
        failed: how many fail.
        named: whether the check names this mistake and no other.
        symptoms: what `check.model` says, which sees logits alone.
    """

    name: str
    check: str
    statement: str
    failed: int
    named: bool
    symptoms: tuple[str, ...]


def rule() -> dict:
    """What passing and showing mean, as declared."""
    return results("bug_gallery")["settings"]["rule"]


def seeds() -> str:
    """How many each mistake has, in words."""
    counted = {
        kind: len(given) for kind, given in results("bug_gallery")["seeds"].items()
    }
    return (
        f"{counted['copy']} on copying, {counted['sort']} on sorting,"
        f" {counted['around']} around the model"
    )


def names(sections: Mapping[str, Sequence[str]] = SECTIONS) -> dict[str, str]:
    """Mistakes of these sections, with the section of each."""
    listed = {
        name: section
        for section, members in sections.items()
        for member in members
        for name in (
            [member]
            if member in mutations.MUTATIONS
            else [mutation.name for mutation in mutations.of(member)]
        )
    }
    return dict(sorted(listed.items(), key=lambda item: list(sections).index(item[1])))


def rows(sections: Mapping[str, Sequence[str]] = SECTIONS) -> list[Row]:
    """The mistakes of these sections, by section."""
    return [row(name, section) for name, section in names(sections).items()]


def row(name: str = RIGHT, section: str = "") -> Row:
    """One mistake, or the right code; over the seeds that are complete."""
    data = results("bug_gallery")
    around = name in names(AROUND)
    found: dict[tuple[str, str], list[float]] = {}
    stops = ""
    for run in data["runs"]:
        kept = RIGHT if name == RIGHT else "around" if around else run["task"]
        if run["kind"] == name and run["seed"] in data["seeds"][kept]:
            stops = run.get("error", stops)
            for number, key in (("loss", "last_loss"), ("accuracy", "teacher_forced")):
                found.setdefault((run["task"], number), []).append(
                    WORST[number] if run[key] is None else run[key]
                )
            whole = run["greedy_exact_match"]
            found.setdefault((run["task"], "whole"), []).append(
                WORST["copy"] if whole is None else whole
            )
    return Row(
        name,
        section,
        *(
            tuple(found.get(key, ()))
            for key in (
                ("copy", "loss"),
                ("copy", "accuracy"),
                ("copy", "whole"),
                ("sort", "whole"),
            )
        ),
        stops=stops,
    )


def outside(number: str, one: Row, right: Row) -> int:
    """Where the median lies: 1 above the right code's range, −1 below.

    The range is widened by the declared margin; 0 is within it.
    """
    margin = rule()[f"{number}_margin"]
    middle, values = one.median(number), getattr(right, number)
    return (middle > max(values) + margin) - (middle < min(values) - margin)


def find(name: str) -> Found:
    """Plant a mistake, and run the check of its part and `check.model`."""
    every, part = every_check({}), plain(mutations.MUTATIONS[name].part)
    check = next(called for called in every if plain(called) == part)
    with mutations.applied(name):
        own = complaints(every[check])
        whole = own if check == "model" else complaints(every["model"])
    return Found(
        name,
        check,
        own.failed[0] if own else "",
        len(own.failed) if own else 0,
        bool(own) and own.mistakes == [name],
        tuple(whole.failed) if whole else (),
    )


def plain(name: str) -> str:
    """Letters and digits: a part's title and its check's name are alike."""
    return "".join(filter(str.isalnum, name)).lower()


def complaints(run: Callable) -> CheckFailed | None:
    """What a check says, an error included; None if it passes."""
    try:
        run()
    except CheckFailed as failed:
        return failed
    except Exception as error:
        return CheckFailed(str(error), "", ["it runs"], [])
    return None


def counts(shown: Sequence[Row], found: Mapping[str, Found]) -> dict[str, int]:
    """How many of the mistakes each way of looking shows."""
    right = row()
    real = [one for one in shown if not one.equivalent]
    copies = [one for one in real if one.passes("copy")]
    return {
        "mistakes": len(real),
        "training loss": sum(outside("loss", one, right) != 0 for one in real),
        "token accuracy": sum(outside("accuracy", one, right) != 0 for one in real),
        "copying": len(real) - len(copies),
        "copying, sorting": sum(
            not (one.passes("copy") and one.passes("sort")) for one in real
        ),
        "check.model": sum(bool(found[one.name].symptoms) for one in real),
        "the part's check": sum(bool(found[one.name].failed) for one in real),
    }


def symptoms(found: Mapping[str, Found]) -> str:
    """From what `check.model` says to the parts whose mistakes it is."""
    said: dict[str, list[str]] = {}
    for one in found.values():
        for statement in one.symptoms:
            parts = said.setdefault(statement, [])
            if one.check not in parts:
                parts.append(one.check)
    return "\n".join(
        f"not so: {statement}\n        {', '.join(parts)}"
        for statement, parts in said.items()
    )


def hidden(seed: int) -> AbstractContextManager[None]:
    """Plants one of six mistakes, another for each of six seeds."""
    order = random.Random(0).sample(HIDDEN, len(HIDDEN))
    return mutations.applied(order[seed % len(order)])


# --- the table -------------------------------------------------------------------


class Table:
    """Lines of text in groups, which a notebook shows as tables to unfold.

    Args:
        head: of each column. What follows a line break in a cell is
            said smaller; in the first column, not in the text form.
        groups: title -> lines; the first is unfolded.
    """

    def __init__(
        self, head: Sequence[str], groups: Mapping[str, Sequence[Sequence[str]]]
    ) -> None:
        self.head, self.groups = head, groups

    def __repr__(self) -> str:
        short = [
            [
                [first.partition("\n")[0], *(c.replace("\n", " ") for c in others)]
                for first, *others in lines
            ]
            for lines in self.groups.values()
        ]
        lines = [self.head, *(line for group in short for line in group)]
        wide = [max(map(len, column)) for column in zip(*lines, strict=True)]

        def row(line: Sequence[str]) -> str:
            cells = (c.ljust(w) for c, w in zip(line, wide, strict=True))
            return "  ".join(cells).rstrip()

        text = [row(self.head)]
        for title, group in zip(self.groups, short, strict=True):
            text += ["", title, *map(row, group)]
        return "\n".join(text)

    def _repr_html_(self) -> str:
        return "\n".join(
            f"<details{' open' if place == 0 else ''}><summary>{escape(title)}"
            f"</summary>\n{self._rows(title, lines)}\n</details>"
            for place, (title, lines) in enumerate(self.groups.items())
        )

    def _rows(self, title: str, lines: Sequence[Sequence[str]]) -> str:
        left = 'style="text-align:left;padding:.25rem .5rem"'

        def cell(text: str) -> str:
            name, _, more = map(escape, text.partition("\n"))
            if not more:
                return name
            if more.startswith("("):  # a range, which stays in one piece
                more = f'<span style="white-space:nowrap">{more}</span>'
            return f"{name}<br><small>{more}</small>"

        head = "".join(f'<th {left} scope="col">{escape(h)}</th>' for h in self.head)
        wide = f'{left[:-1]};min-width:15rem"'
        body = (
            "".join(f"<td {left}>{cell(text)}</td>" for text in line[:-1])
            + f"<td {wide}>{cell(line[-1])}</td>"
            for line in lines
        )
        # A table of pandas' class, which the site shows in dark too.
        return "\n".join(
            [
                '<div style="overflow-x:auto" tabindex="0" role="region"'
                f' aria-label="{escape(title)}"><table class="dataframe">',
                f"<thead><tr>{head}</tr></thead><tbody>",
                *(f"<tr>{cells}</tr>" for cells in body),
                "</tbody></table></div>",
            ]
        )


def table(shown: Sequence[Row], found: Mapping[str, Found]) -> Table:
    """The right code and each mistake, with what shows it, by section.

    Args:
        shown: the mistakes; sorting has a column if one was sorted.
        found: what the checks say now.
    """
    taken = results("bug_gallery")["checks"]
    sorts = any(one.sort for one in shown)
    head = ["mistake", "loss", "copies", *(["sorts"] if sorts else [])]
    head += ["check.model", "its own check, and what fails first"]
    groups: dict[str, list[list[str]]] = {}
    for section in dict.fromkeys(one.section for one in shown):
        here = [one for one in shown if one.section == section]
        passing = sum(one.passes("copy") for one in here)
        groups[f"{section}: {len(here)}, of which {passing} copy"] = [
            line(one, found, taken, sorts) for one in (row(), *here)
        ]
    return Table(head, groups)


def line(one: Row, found: Mapping[str, Found], taken: dict, sorts: bool) -> list[str]:
    """The right code's or one mistake's cells."""
    cells = [
        said(one.loss, 2),
        "stops with an error" if one.stops else said(one.copy, 3),
        *([said(one.sort, 3)] if sorts else []),
    ]
    if one.name == RIGHT:
        return ["the right code", *cells, "passes", "passes"]
    seen = found[one.name]
    name = f"{one.name}\n{mutations.MUTATIONS[one.name].says}"
    if not seen.failed:
        return [name, *cells, "passes", "passes\nit is no mistake"]
    seconds = f"{seen.check}, {taken[one.name]['cpu_seconds']:.2f} s"
    whole = "fails" if seen.symptoms else "passes"
    return [name, *cells, whole, f"{seconds}\n{seen.statement}"]


def said(values: Sequence[float], digits: int) -> str:
    """Median and, where they differ, lowest and highest."""
    if not values:
        return "–"
    low, middle, high = (
        f"{value:.{digits}f}" if math.isfinite(value) else "none"
        for value in (min(values), statistics.median(values), max(values))
    )
    return middle if low == high else f"{middle}\n({low}–{high})"


# --- figures ---------------------------------------------------------------------


def crossed(shown: Sequence[Row]) -> Figure:
    """Each mistake a dot, by its loss across and by what it can do down."""
    right, real = row(), [one for one in shown if not one.equivalent]
    losses = {"lower": -1, "within the range": 0, "higher": 1}
    lanes: dict[str, Callable[[Row], bool]] = {
        "copies,\nsorts": lambda one: one.passes("copy") and one.passes("sort"),
        "copies,\ndoes not sort": lambda one: (
            one.passes("copy") and not one.passes("sort")
        ),
        "does\nnot copy": lambda one: not one.passes("copy"),
    }
    with style():
        made, axes = blank(4.4)
        (ax,) = axes.flat
        for down, belongs in enumerate(lanes.values()):
            for across, side in enumerate(losses.values()):
                count = sum(
                    belongs(one) and outside("loss", one, right) == side for one in real
                )
                places = [divmod(i, A_LINE) for i in range(count)]
                ax.plot(
                    [across + 0.16 + 0.085 * column for _, column in places],
                    [down + 0.34 + 0.14 * line for line, _ in places],
                    "o",
                    ms=7,
                    color=ACCENT if down == 0 else COLOURS[1] if down == 1 else INK,
                )
                ax.annotate(
                    f"{count}",
                    (across + 0.08, down + 0.12),
                    va="center",
                    fontweight="bold" if count else "normal",
                    color=INK if count else QUIET,
                    fontsize=12,
                )
        ax.hlines([0, 1, 2, 3], 0, 3, color=FAINT, linewidth=1, clip_on=False)
        ax.vlines([0, 1, 2, 3], 0, 3, color=FAINT, linewidth=1, clip_on=False)
        ax.set_xlim(0, 3)
        ax.set_ylim(3, 0)
        ax.set_yticks([0.5, 1.5, 2.5], lanes, fontsize=11)
        ax.set_xticks([0.5, 1.5, 2.5], losses, fontsize=11)
        ax.set_xlabel("training loss, beside that of the right code", fontsize=11)
        ax.xaxis.set_ticks_position("top")
        ax.xaxis.set_label_position("top")
        ax.tick_params(length=0)
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
    made.alt = (
        "Three rows of three fields with a dot for each mistake: training loss lower,"
        " within the range or higher than the right code's, across; copies and sorts,"
        " copies and does not sort, does not copy, down"
    )
    return made


def shown_by(counted: Mapping[str, int]) -> Figure:
    """Of all mistakes, how many each way of looking shows."""
    total = counted["mistakes"]
    ways = {name: count for name, count in counted.items() if name != "mistakes"}
    with style():
        made, axes = blank(0.52 * len(ways) + 0.9)
        (ax,) = axes.flat
        for place, (name, count) in enumerate(ways.items()):
            ax.barh(place, total, color=FAINT, height=0.62)
            checks = name.startswith(("check", "the part"))
            ax.barh(place, count, color=ACCENT if checks else INK, height=0.62)
            ax.annotate(
                f"{count}",
                (count, place),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontweight="bold",
                fontsize=11,
            )
        ax.set_yticks(range(len(ways)), ways, fontsize=11)
        ax.invert_yaxis()
        ax.grid(visible=False)
        ax.tick_params(axis="y", length=0)
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.set_xlim(0, total * 1.08)
        ax.set_xlabel(f"mistakes that show, of {total}", fontsize=11)
    made.alt = f"Bars of how many mistakes show, for {', '.join(ways)}"
    return made


def curves(kinds: Mapping[str, str]) -> Figure:
    """Training loss of some kinds, from the first seed, under other names.

    Args:
        kinds: what the legend says -> a mistake, or `RIGHT`.
    """
    data = results("bug_gallery")
    every, first = data["settings"]["loss_every"], data["seeds"][RIGHT][0]
    found = {
        run["kind"]: run["loss"]
        for run in data["runs"]
        if (run["task"], run["seed"]) == ("copy", first) and "loss" in run
    }
    steps = [every * (i + 1) for i in range(len(found[RIGHT]))]
    return lines(
        steps,
        {name: found[kind] for name, kind in kinds.items()},
        xlabel=f"step (mean of the last {every})",
        ylabel="training loss (nats)",
    )
