"""Figures of chapter 20: the ledger summed up, and what switches gain."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from bookkit import figures
from bookkit.evidence import Measurement
from bookkit.figures import (
    ACCENT,
    CARD,
    COLOURS,
    DASHES,
    INK,
    MARKERS,
    QUIET,
    Figure,
    blank,
    style,
)
from bookkit.ledger import METHODS, OPEN, VERDICTS

# Verdict: fill, ink of the number, hatch. Told apart in grey as well.
LOOKS = {
    "holds": (ACCENT, CARD, ""),
    "scoped": ("#b9d6e8", INK, ""),
    "weaker": ("#f3c9a5", INK, "//"),
    "cannot tell": ("#d9dde1", INK, ".."),
    "against": ("#7a2800", CARD, "\\\\\\"),
    "not rerun": (CARD, INK, ""),
    OPEN: (CARD, INK, "xx"),
}
OUTCOMES = {"gained": ACCENT, "cost": "#d55e00", "cannot tell": QUIET}


def verdict_counts(methods: Mapping[str, Mapping[str, int]]) -> Figure:
    """Claims by the way they are shown, cut into verdicts.

    Args:
        methods: method -> verdict -> how many, as
            `bookkit.ledger.tally` counts.
    """
    rows = [name for name in METHODS if methods.get(name)]
    verdicts = [v for v in (*VERDICTS, OPEN) if any(methods[m].get(v) for m in rows)]
    with style():
        made, axes = blank(0.48 * len(rows) + 1.5)
        (ax,) = axes.flat
        left = np.zeros(len(rows))
        for verdict in verdicts:
            counts = np.array([methods[row].get(verdict, 0) for row in rows])
            fill, ink, hatch = LOOKS[verdict]
            bars = ax.barh(
                rows,
                counts,
                left=left,
                height=0.62,
                color=fill,
                hatch=hatch,
                # The hatch has the colour of the edge.
                edgecolor=ink if ink == CARD and hatch else QUIET,
                linewidth=0.8,
                label=verdict,
            )
            for bar, count in zip(bars, counts, strict=True):
                if count:
                    _centred(ax, bar, str(count), ink, hatch, fill)
            left += counts
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.grid(axis="x", visible=True)
        ax.tick_params(axis="y", length=0)
        ax.set_xlim(0, 1.02 * left.max())
        ax.set_xlabel("claims")
        made.legend(
            loc="outside upper left",
            ncols=min(5, len(verdicts)),
            handlelength=1.4,
            columnspacing=1.4,
        )
    made.alt = f"Bars of claims for {', '.join(rows)}, cut into {', '.join(verdicts)}"
    return made


def _centred(ax: Axes, bar, text: str, ink: str, hatch: str, fill: str) -> None:
    """A number in the middle of its piece of a bar."""
    behind = {"facecolor": fill, "edgecolor": "none", "pad": 1.2} if hatch else None
    x = bar.get_x() + bar.get_width() / 2
    y = bar.get_y() + bar.get_height() / 2
    ax.text(x, y, text, color=ink, ha="center", va="center", bbox=behind, fontsize=9.5)


def gains(
    differences: Mapping[str, Measurement],
    outcomes: Mapping[str, str],
    *,
    label: str,
) -> Figure:
    """What each switch gains, to the right of nought, or costs.

    Args:
        differences: switch -> a number for each seed.
        outcomes: switch -> "gained", "cost" or "cannot tell".
        label: of the axis, with its unit.
    """
    names = list(differences)
    with style():
        made, axes = blank(0.37 * len(names) + 1.2)
        (ax,) = axes.flat
        ax.axvline(0, color=INK, linewidth=0.9, linestyle="-")
        for row, (name, found) in enumerate(differences.items()):
            colour = OUTCOMES[outcomes[name]]
            seeds = list(found.values.values())
            ax.plot(seeds, [row] * len(seeds), "|", color=colour, alpha=0.6, ms=9)
            reach = found.half_width or 0.0
            low, high = found.mean - reach, found.mean + reach
            ax.plot([low, high], [row, row], "-", color=colour, linewidth=2.2)
            marker = "D" if outcomes[name] == "cannot tell" else "o"
            face = CARD if outcomes[name] == "cannot tell" else colour
            ax.plot(found.mean, row, marker, color=colour, markerfacecolor=face, ms=6)
            ax.annotate(
                f"{found.mean:+.3f}".replace("-", "−"),
                (1.01, row),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=9.5,
            )
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.grid(axis="y", visible=False)
        ax.grid(axis="x", visible=True)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.set_xlabel(label)
        for side, word, place in (
            ("right", "worse than as printed", (-8, 6)),
            ("left", "better", (8, 6)),
        ):
            ax.annotate(
                word,
                (0, 1),
                xycoords=("data", "axes fraction"),
                xytext=place,
                textcoords="offset points",
                ha=side,
                color=QUIET,
                fontsize=9.5,
            )
        decided = dict(color=INK, marker="o", linestyle="none")
        undecided = dict(color=INK, marker="D", linestyle="none", mfc=CARD)
        made.legend(
            handles=[
                Line2D([], [], label="mean, decided", **decided),
                Line2D([], [], label="mean, cannot tell", **undecided),
                Line2D([], [], color=INK, linewidth=2.2, label="95% interval"),
                Line2D([], [], label="a seed", **decided | {"marker": "|", "ms": 9}),
            ],
            loc="outside lower center",
            ncols=4,
            handlelength=1.4,
            columnspacing=1.4,
        )
    made.alt = (
        f"{label}: a point with its interval and a tick for each seed, for"
        f" {', '.join(names)}; right of nought is a gain"
    )
    return made


def beyond(
    positions: Sequence[float],
    curves: Mapping[str, Sequence[Sequence[float]]],
    trained: int,
) -> Figure:
    """The loss along a window that is longer than those of training.

    Each line has its name at its end.

    Args:
        positions: where it was measured.
        curves: kind of positions -> seeds -> a loss for each of them.
        trained: length of the windows in training.
    """
    made = figures.lines(
        positions,
        curves,
        xlabel="position in the window (letters)",
        ylabel="loss (bits a letter)",
    )
    with style():
        (ax,) = made.axes
        note = ax.get_legend().get_title().get_text()
        ax.get_legend().remove()
        for line, runs in zip(list(ax.lines), curves.values(), strict=True):
            line.set_markersize(3.5)
            ax.annotate(
                line.get_label(),
                (positions[-1], statistics.fmean(run[-1] for run in runs)),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                fontsize=9.5,
            )
        ax.axvline(trained, color=INK, linewidth=0.9, linestyle=":")
        ax.annotate(
            f"trained up to {trained}",
            (trained, 1),
            xycoords=("data", "axes fraction"),
            xytext=(5, -4),
            textcoords="offset points",
            va="top",
            color=QUIET,
            fontsize=9.5,
        )
        ax.annotate(
            note if note != "None" else "",
            (1, 0),
            xycoords="axes fraction",
            xytext=(-4, 4),
            textcoords="offset points",
            ha="right",
            va="bottom",
            color=QUIET,
            fontsize=9,
        )
    made.alt += f"; a line marks the trained length, {trained}"
    return made


def race(
    curves: Mapping[str, Sequence[Sequence[tuple[float, float]]]], target: float
) -> Figure:
    """Perplexity against CPU time, and when each seed is there.

    Args:
        curves: model -> seeds -> (seconds, perplexity), as training
            went.
        target: the perplexity that both are to reach.
    """
    with style():
        made, axes = blank()
        (ax,) = axes.flat
        ax.axhline(target, color=QUIET, linewidth=0.9, linestyle=":")
        for index, (name, runs) in enumerate(curves.items()):
            look = dict(color=COLOURS[index], linestyle=DASHES[index])
            for run in runs:
                ax.plot(*zip(*run, strict=True), linewidth=1.4, **look)
            there = [when for run in runs if (when := _reached(run, target))]
            dots = dict(color=COLOURS[index], linestyle="none", clip_on=False)
            ax.plot(
                there, [target] * len(there), MARKERS[index], ms=7, zorder=3, **dots
            )
            shown = dict(marker=MARKERS[index], markersize=7, linewidth=1.4)
            ax.plot([], [], label=name, **look, **shown)
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(FixedLocator([5, 10, 20, 50, 100, 200, 500, 1000]))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.yaxis.set_minor_formatter(lambda value, _: "")
        ax.set_xlim(left=0)
        ax.annotate(
            f"target: {target:g}",
            (0, target),
            xytext=(5, 4),
            textcoords="offset points",
            color=QUIET,
            fontsize=9.5,
        )
        ax.set_xlabel("CPU time of training (s), one thread")
        ax.set_ylabel("perplexity (a piece)")
        ax.legend(
            title="a line for each seed, a mark at the target",
            title_fontsize=9,
            alignment="left",
            frameon=True,
            framealpha=1,
            edgecolor="none",
        )
    made.alt = (
        f"Perplexity over CPU time for {' and '.join(curves)}, a line for each"
        " seed, with a mark where it comes down to the target, a dotted line"
    )
    return made


def _reached(run: Sequence[tuple[float, float]], target: float) -> float | None:
    """When a curve first comes down to the target, straight in its log."""
    for (start, above), (end, below) in pairwise(run):
        if above > target >= below:
            return start + (end - start) * log(above / target) / log(above / below)
    return None
