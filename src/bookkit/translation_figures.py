"""Figures of chapter 16: what a score costs, and how a beam searches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from bookkit.beam import Branch
from bookkit.figures import (
    ACCENT,
    COLOURS,
    DASHES,
    FAINT,
    INK,
    MARKERS,
    QUIET,
    Figure,
    blank,
    style,
)

SIDES = {
    "right": dict(xytext=(8, 0), ha="left", va="center"),
    "left": dict(xytext=(-8, 0), ha="right", va="center"),
    "above": dict(xytext=(0, 7), ha="center", va="bottom"),
    "below": dict(xytext=(0, -7), ha="center", va="top"),
}
LOOKS = {  # colour, marker, filled
    "single model": (QUIET, "o", False),
    "ensemble": (QUIET, "s", True),
    "Transformer": (ACCENT, "D", True),
}


def cost_and_score(
    panels: Mapping[str, Mapping[str, Mapping[str, tuple]]],
) -> Figure:
    """BLEU over training cost, a panel for each pair of languages.

    Args:
        panels: title -> kind ("single model", "ensemble", "Transformer")
            -> name -> (cost in FLOPs, BLEU, side of the label) or, where
            a paper gives two scores, (cost, (lower, higher), side).
    """
    with style():
        made, axes = blank(2.75 * len(panels), rows=len(panels), sharex=True)
        for ax, (title, kinds) in zip(axes[:, 0], panels.items(), strict=True):
            for kind, models in kinds.items():
                colour, marker, filled = LOOKS[kind]
                look = dict(color=colour, markerfacecolor=colour if filled else "white")
                for number, (name, (cost, score, side)) in enumerate(models.items()):
                    scores = score if isinstance(score, tuple) else (score,)
                    ax.plot(
                        [cost] * len(scores),
                        scores,
                        linestyle=":",
                        marker=marker,
                        label=None if number else kind,
                        markersize=6.5,
                        **look,
                    )
                    ax.annotate(
                        name,
                        (cost, max(scores)),
                        textcoords="offset points",
                        color=INK if kind == "Transformer" else QUIET,
                        fontsize=9,
                        **SIDES[side],
                    )
            ax.set_xscale("log")
            ax.set_title(title)
            ax.set_ylabel("BLEU")
            ax.margins(x=0.12, y=0.16)
        axes[-1, 0].set_xlabel("training cost (FLOPs, as the paper counts them)")
        handles, _ = axes[0, 0].get_legend_handles_labels()
        for handle in handles:
            handle.set_linestyle("")
        axes[0, 0].legend(handles=handles, loc="upper right")
    made.alt = (
        f"BLEU over training cost on a logarithmic axis for {' and '.join(panels)}:"
        " single models, ensembles, and the two Transformers"
    )
    return made


def beam_tree(
    seen: Sequence[Sequence[Branch]],
    word: Callable[[int], str],
    *,
    dropped: int = 1,
) -> Figure:
    """The hypotheses of a beam, step by step, from left to right.

    Args:
        seen: of `bookkit.beam.search`.
        word: a token id in letters.
        dropped: continuations to show in each step beside those that
            stayed.
    """
    columns = [_shown(step, dropped) for step in seen]
    rows = max(map(len, columns))
    with style():
        made, axes = blank(0.52 * rows + 0.5)
        (ax,) = axes.flat
        places: dict[tuple[int, ...], tuple[float, float]] = {(): (0, 0)}
        paper = dict(boxstyle="round,pad=0.25", facecolor="white", edgecolor="none")
        ax.text(0, 0, "start", ha="center", va="center", color=QUIET, bbox=paper)
        for x, column in enumerate(columns, 1):
            parents = [places[branch.ids[:-1]][1] for branch in column]
            order = sorted(
                range(len(column)), key=lambda i: (-parents[i], -column[i].total)
            )
            for place, i in enumerate(order):
                branch = column[i]
                y = (len(column) - 1) / 2 - place
                _edge(ax, places[branch.ids[:-1]], (x, y), branch.fate)
                _node(ax, x, y, branch, word(branch.ids[-1]))
                places[branch.ids] = (x, y)
        ax.set_xlim(-0.45, len(columns) + 0.5)
        ax.set_ylim(-rows / 2, rows / 2)
        ax.set_axis_off()
    made.alt = (
        f"A tree that grows for {len(columns)} steps: boxes for what stays in the"
        " beam, dark boxes for what has ended, grey words for what is dropped"
    )
    return made


def _shown(step: Sequence[Branch], dropped: int) -> list[Branch]:
    """What stayed, and the best of the rest."""
    stayed = [branch for branch in step if branch.fate != "dropped"]
    return [*stayed, *step[len(stayed) : len(stayed) + dropped]]


def _edge(ax, start: tuple, end: tuple, fate: str) -> None:
    ax.plot(
        # From middle to middle; what stands there covers the ends.
        [start[0], end[0]],
        [start[1], end[1]],
        color=FAINT if fate == "dropped" else QUIET,
        linewidth=0.9,
        linestyle="-",
        zorder=1,
    )


def _node(ax, x: float, y: float, branch: Branch, name: str) -> None:
    """A word, and the probability of all that was said up to it."""
    face, edge, ink = {
        "lives": ("#e3eff7", ACCENT, INK),
        "ended": (INK, INK, "white"),
        "dropped": ("white", "white", QUIET),
    }[branch.fate]
    share = math.exp(branch.total)
    ax.text(
        x,
        y,
        f"{name}\n{share:.2f}" if share >= 0.005 else f"{name}\n<0.01",
        ha="center",
        va="center",
        fontsize=9,
        color=ink,
        linespacing=1.15,
        bbox=dict(boxstyle="round,pad=0.25", facecolor=face, edgecolor=edge),
        zorder=2,
    )


def panels(
    x: Sequence[float],
    values: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    xlabel: str,
    xscale: str = "linear",
    level: Mapping[str, float] | None = None,
) -> Figure:
    """Panels side by side over one horizontal axis.

    Args:
        x: where it was measured, as many as there are values.
        values: label of a vertical axis -> line -> values.
        xlabel: of the horizontal axis, with its unit.
        xscale: "linear", or "log2" for powers of two.
        level: label of a vertical axis -> where a line lies across.
    """
    with style():
        made, axes = blank(3.0, columns=len(values))
        for ax, (label, lines) in zip(axes[0], values.items(), strict=True):
            if label in (level or {}):
                ax.axhline(level[label], color=QUIET, linewidth=0.9, linestyle="-")
            for index, (name, line) in enumerate(lines.items()):
                ax.plot(
                    x,
                    line,
                    color=COLOURS[index],
                    linestyle=DASHES[index],
                    marker=MARKERS[index],
                    label=name,
                )
            if xscale == "log2":
                ax.set_xscale("log", base=2)
            ax.set_xticks(x, [f"{each:g}" for each in x])
            ax.minorticks_off()
            ax.set_xlabel(xlabel)
            ax.set_ylabel(label)
        if len(next(iter(values.values()))) > 1:
            axes[0, 0].legend()
    names = ", ".join(next(iter(values.values())))
    made.alt = f"{' and '.join(values)} over {xlabel}: {names}"
    return made
