"""Figures of chapter 18: trees, their sequences, and what parsers get."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from bookkit.figures import (
    ACCENT,
    CARD,
    COLOURS,
    DASHES,
    FAINT,
    INK,
    MARKERS,
    QUIET,
    Figure,
    attention_heatmap,
    blank,
    style,
)
from transformer.data.trees import Tree, linearised, words
from transformer.evaluation import (
    PUNCTUATION,
    SAME_LABEL,
    BracketErrors,
    BracketScores,
    brackets,
)

PALE = "#e3eff7"
ORANGE = COLOURS[1]


# --- trees -----------------------------------------------------------------


def trees(shown: Mapping[str, Tree], *, height: float = 0.42) -> Figure:
    """Trees over one sentence; brackets that one of them lacks are dark.

    Args:
        shown: title -> tree.
        height: inches from a node to the one above it.
    """
    with style():
        levels = [_depth(tree) for tree in shown.values()]
        made, axes = blank(
            height * (sum(levels) + len(levels)) + 0.5 * len(levels),
            rows=len(shown),
            height_ratios=[level + 1 for level in levels],
        )
        common = set.intersection(*(set(brackets(t)) for t in shown.values()))
        for ax, (title, tree) in zip(axes[:, 0], shown.items(), strict=True):
            _draw(ax, tree, common)
            ax.set_title(title)
    made.alt = (
        f"Trees over the words {' '.join(words(next(iter(shown.values()))))}:"
        f" {', '.join(shown)}"
    )
    return made


def tree_and_sequence(tree: Tree) -> Figure:
    """A tree, and below it the sequence, each bracket over what it holds."""
    tokens = linearised(tree)
    deepest = _depth(tree)
    with style():
        made, axes = blank(
            0.42 * _depth(tree) + 0.36 * deepest + 1.5,
            rows=2,
            height_ratios=[_depth(tree) + 1, 0.85 * deepest + 1.6],
        )
        _draw(axes[0, 0], tree, set(brackets(tree)))
        leaves = len(words(tree))
        nodes = (len(tokens) - leaves) // 2
        axes[0, 0].set_title(f"a tree of {leaves} words and {nodes} nodes")
        ax = axes[1, 0]
        open_at: list[int] = []
        said = iter(words(tree))
        for place, token in enumerate(tokens):
            if token.startswith("("):
                open_at.append(place)
            level = -len(open_at) if token != "XX" else -deepest - 1
            if token.startswith(")"):
                start = open_at.pop()
                ax.plot([start, place], [level, level], "-", color=ACCENT, lw=1)
            inner = token == "XX"
            ax.text(
                place,
                level,
                token,
                ha="center",
                va="center",
                fontsize=9.5,
                color=QUIET if inner else INK,
                bbox=dict(boxstyle="square,pad=0.12", facecolor=CARD, edgecolor=CARD),
            )
            if inner:
                ax.text(
                    place,
                    level - 0.45,
                    next(said),
                    rotation=90,
                    ha="center",
                    va="top",
                    fontsize=9.5,
                )
        longest = max(map(len, words(tree)))
        ax.set_xlim(-0.7, len(tokens) - 0.3)
        ax.set_ylim(-deepest - 1.7 - 0.3 * longest, -0.4)
        ax.set_axis_off()
        ax.set_title(f"its sequence of {len(tokens)} tokens, read from left to right")
    made.alt = (
        f"A tree over {' '.join(words(tree))}, and below it its sequence of"
        f" {len(tokens)} tokens; a line joins each opening bracket to its closing one"
    )
    return made


def _depth(tree: Tree) -> int:
    """Brackets around the deepest word, steps from the root down to it."""
    return max((1 + _depth(child) for child in tree.children), default=0)


def _draw(ax: Axes, tree: Tree, common: set) -> None:
    """Words in a row at the bottom, each node over its words."""
    sentence = words(tree)
    wide = [max(len(word), 3) + 1.5 for word in sentence]
    middles, end = [], 0.0
    for width in wide:
        middles.append(end + width / 2)
        end += width
    bottom = _depth(tree)
    counts = [leaf.label not in PUNCTUATION for leaf in tree.leaves()]
    before = [0, *itertools.accumulate(counts)]

    def place(node: Tree, start: int, depth: int) -> tuple[float, int]:
        """Where a node is across, and the word after its last."""
        if node.word is not None:
            ax.text(
                middles[start],
                -bottom - 0.15,
                node.word,
                ha="center",
                va="top",
                fontsize=10,
                fontstyle="italic",
            )
            # Straight down, so that it crosses nothing.
            ax.plot([middles[start]] * 2, [-depth, -bottom], ":", color=QUIET, lw=0.9)
            return middles[start], start + 1
        below, after = [], start
        for child in node.children:
            x, after = place(child, after, depth + 1)
            below.append(x)
        x, y = (below[0] + below[-1]) / 2, -depth
        for child in below:
            ax.plot([x, child], [y, y - 1], "-", color=QUIET, lw=0.9, zorder=1)
        label = SAME_LABEL.get(node.label, node.label)
        span = label, before[start], before[after]
        wrong = span not in common and span[1] < span[2]
        ax.text(
            x,
            y,
            node.label,
            ha="center",
            va="center",
            fontsize=10,
            color="white" if wrong else INK,
            bbox=dict(
                boxstyle="round,pad=0.25",
                facecolor=ORANGE if wrong else PALE,
                edgecolor=INK if wrong else ACCENT,
                linewidth=1.2 if wrong else 0.8,
            ),
            zorder=2,
        )
        return x, after

    place(tree, 0, 0)
    ax.set_xlim(0, end)
    ax.set_ylim(-bottom - 0.8, 0.5)
    ax.set_axis_off()


# --- attention -------------------------------------------------------------


def closings(tree: Tree) -> list[tuple[int, str, int, int]]:
    """The closing brackets of a tree's sequence.

    Returns:
        Of each its place among the tokens, which is also the place of the
        decoder's query that says it; the token; first word and end of what
        it closes.
    """
    found = []
    open_at: list[int] = []
    said = 0
    for place, token in enumerate(linearised(tree)):
        if token.startswith("("):
            open_at.append(said)
        elif token.startswith(")"):
            found.append((place, token, open_at.pop(), said))
        else:
            said += 1
    return found


def span_attention(
    weights: Mapping[str, Sequence],
    closings: Sequence[tuple[str, int, int]],
    sentence: Sequence[str],
) -> Figure:
    """Where the decoder looks as it closes brackets; their words outlined.

    Args:
        weights: title -> (closing bracket, word), shares of 1.
        closings: of each row the label, the first word and the end.
        sentence: the words, and the end of the sentence.
    """
    made = attention_heatmap(
        list(weights.values()),
        [label for label, _, _ in closings],
        sentence,
        titles=list(weights),
        columns=2,
        query_label="closing bracket said next",
        key_label="sentence",
    )
    for ax in made.axes[: len(weights)]:
        for row, (_, start, end) in enumerate(closings):
            ax.add_patch(
                Rectangle(
                    (start, row),
                    end - start,
                    1,
                    fill=False,
                    edgecolor=ORANGE,
                    linewidth=1.8,
                    clip_on=False,
                )
            )
    made.alt = (
        f"Heat maps of attention from {len(closings)} closing brackets to"
        f" {len(sentence)} places of the sentence, the words of each bracket"
        f" outlined: {', '.join(weights)}"
    )
    return made


# --- scores ----------------------------------------------------------------


def table4(rows: Sequence[tuple[str, str, float]]) -> Figure:
    """F1 of the paper's Table 4, one group below another.

    Args:
        rows: parser, setting and F1, in the order of the table.
    """
    settings = list(dict.fromkeys(setting for _, setting, _ in rows))
    with style():
        made, axes = blank(0.27 * (len(rows) + 1.1 * len(settings)) + 0.8)
        (ax,) = axes.flat
        y, ticks, names = 0.0, [], []
        for setting in settings:
            ax.text(
                0.0,
                y,
                f" {setting}",
                transform=ax.get_yaxis_transform(),
                va="center",
                fontweight="bold",
                fontsize=9.5,
                bbox=dict(boxstyle="square,pad=0.1", facecolor=CARD, edgecolor=CARD),
            )
            y += 1
            group = [row for row in rows if row[1] == setting]
            for name, _, f1 in sorted(group, key=lambda row: -row[2]):
                ours = name.startswith("Transformer")
                ax.plot(
                    f1,
                    y,
                    "D" if ours else "o",
                    color=ACCENT if ours else QUIET,
                    markerfacecolor=ACCENT if ours else CARD,
                    markersize=7,
                    linestyle="",
                )
                ax.annotate(
                    f"{f1:.1f}",
                    (f1, y),
                    xytext=(9, 0),
                    textcoords="offset points",
                    va="center",
                    fontweight="bold" if ours else "normal",
                    bbox=dict(
                        boxstyle="square,pad=0.1", facecolor=CARD, edgecolor=CARD
                    ),
                )
                ticks.append(y)
                names.append(name)
                y += 1
            y += 0.25
        ax.set_yticks(ticks, names)
        ax.set_ylim(y - 0.4, -0.7)
        ax.set_xlim(87.5, 94.2)
        ax.grid(axis="y", visible=False)
        ax.grid(axis="x", visible=True)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.set_xlabel("F1 (%) on section 23 of the Wall Street Journal")
    made.alt = f"Dots of F1 for {len(rows)} parsers in {len(settings)} groups: " + (
        ", ".join(settings)
    )
    return made


def by_length(
    rows: Mapping[str, Sequence[Mapping]], *, label: str, learned: int | None = None
) -> Figure:
    """F1 of short and long sentences.

    Args:
        rows: parser -> a row for each range of lengths, with `words`
            (least and most), `sentences` and `f1`.
        label: of the vertical axis.
        learned: words of the longest sentence in training; ranges beyond
            are shaded.
    """
    first = next(iter(rows.values()))
    learned = max(row["words"][1] for row in first) if learned is None else learned
    with style():
        made, axes = blank(3.2)
        (ax,) = axes.flat
        for index, (name, some) in enumerate(rows.items()):
            f1 = [row["f1"] for row in some]
            ax.plot(
                range(len(some)),
                f1,
                color=COLOURS[index],
                linestyle=DASHES[index],
                marker=MARKERS[index],
            )
            place = min(1, len(f1) - 1)
            ax.annotate(
                name,
                (place, f1[place]),
                xytext=(8, 6),
                textcoords="offset points",
                color=COLOURS[index],
                fontweight="bold",
            )
        longer = [i for i, row in enumerate(first) if row["words"][0] > learned]
        if longer:
            ax.axvspan(longer[0] - 0.5, len(first), color=FAINT, alpha=0.5, lw=0)
            ax.text(
                longer[0] - 0.42,
                0.97,
                "longer than any\nin training",
                va="top",
            )
        ax.set_xticks(
            range(len(first)),
            [
                f"{row['words'][0]} to {row['words'][1]}\n({row['sentences']})"
                for row in first
            ],
        )
        ax.set_xlim(-0.4, len(first) - 0.6)
        ax.set_ylim(0, 1)
        ax.set_xlabel("words of the sentence (number of sentences)")
        ax.set_ylabel(label)
    made.alt = f"{label} over the length of the sentence: {', '.join(rows)}"
    return made


def error_kinds(score: BracketScores, errors: BracketErrors) -> Figure:
    """Two bars of brackets: those found, and those of the right trees."""
    wrong = errors.relabelled
    rows = {
        "found": (score.right, wrong, errors.crossing, errors.extra),
        "in the\nright trees": (score.right, wrong, errors.crossed, errors.missed),
    }
    kinds = ("right", "wrong label", "crosses, or is crossed", "too many, or missed")
    colours = (PALE, "#5b9dc6", ORANGE, "#f6d9a8")
    hatches = ("", "", "//", "..")
    with style():
        made, axes = blank(2.6)
        (ax,) = axes.flat
        for y, parts in enumerate(rows.values()):
            start = 0
            for place, count in enumerate(parts):
                ax.barh(
                    y,
                    count,
                    left=start,
                    height=0.55,
                    color=colours[place],
                    edgecolor=CARD,
                    hatch=hatches[place],
                    label=kinds[place] if y == 0 else None,
                )
                ax.text(
                    start + count / 2,
                    y + 0.3,
                    f"{count}" if count else "",
                    ha="center",
                    va="top",
                )
                start += count
        ax.set_yticks(range(len(rows)), list(rows))
        ax.set_ylim(1.65, -0.45)
        ax.grid(axis="both", visible=False)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.set_xlabel("brackets")
        made.legend(loc="outside upper center", ncols=4, handlelength=1.6)
    made.alt = (
        "Two bars of brackets in parts: those found (right, wrong label, crosses a"
        " right one, too many) and those of the right trees (right, wrong label,"
        " crossed, missed)"
    )
    return made
