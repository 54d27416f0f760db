"""Views of a model, for chapters 02 and 07: a map, a trace, a count.

All are read off a real model: the names and files of its parts, the
order in which they run and what they give, its parameters and its
work. A model whose parts are other ones, or run in another order,
gives other views. Arrows, and lines beside and between boxes, are
drawn by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bookkit.figures import (
    ACCENT,
    CARD,
    COLOURS,
    FAINT,
    INK,
    QUIET,
    SHADES,
    WIDTH,
    Figure,
    attention_heatmap,
    blank,
    lines,
    relations,
    style,
)
from bookkit.figures import _arrow as arrow
from transformer import (
    BOS,
    MultiHeadAttention,
    PositionwiseFeedForward,
    TransformerConfig,
)

# How a part is called in the map, and its colour.
WORDS = {
    "source_embedding": ("embedding", QUIET),
    "target_embedding": ("embedding", QUIET),
    "source_positions": ("add positions", QUIET),
    "target_positions": ("add positions", QUIET),
    "encoder.self_attention": ("self-attention", ACCENT),
    "decoder.self_attention": ("masked self-attention", ACCENT),
    "cross_attention": ("attention to memory", COLOURS[1]),
    "feed_forward": ("feed-forward", COLOURS[4]),
    "around": ("add and normalise", QUIET),
    "output_projection": ("output projection", QUIET),
}


@dataclass(frozen=True)
class Step:
    """One part of a model at work.

    Attributes:
        name: as the model calls the part.
        file: where its code stands.
        output: what it gave.
    """

    name: str
    file: str
    output: Tensor

    @property
    def part(self) -> str:
        """The last word of the name."""
        return self.name.rpartition(".")[2]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the output."""
        return tuple(self.output.shape)


def parts(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The boxes of Figure 1; a shared part once for each of its names."""
    for name, part in model._modules.items():
        if isinstance(part, nn.Dropout):
            continue
        if not hasattr(part, "layers"):
            yield name, part
            continue
        for number, layer in enumerate(part.layers):
            for inner, module in layer.named_children():
                yield f"{name}.layers.{number}.{inner}", module


def trace(model: nn.Module, source: Tensor, target_in: Tensor) -> list[Step]:
    """Run the model once; what each part gave, in the order it ran."""
    names: dict[nn.Module, list[str]] = {}
    for name, part in parts(model):
        names.setdefault(part, []).append(name)
    steps: list[Step] = []

    def note(part: nn.Module, given: tuple, output: Tensor) -> None:
        # A shared part is called once for each name, in their order.
        name = names[part][0] if len(names[part]) == 1 else names[part].pop(0)
        steps.append(Step(name, file_of(part), output.detach()))

    hooks = [part.register_forward_hook(note) for part in names]
    try:
        with torch.no_grad():
            model(source, target_in)
    finally:
        for hook in hooks:
            hook.remove()
    return steps


@contextmanager
def counting(model: nn.Module) -> Iterator[dict[str, int]]:
    """How often each stack runs inside the block."""
    runs = {"encoder": 0, "decoder": 0}

    def hook(name: str) -> Callable[..., None]:
        def note(part: nn.Module, given: tuple, output: Tensor) -> None:
            runs[name] += 1

        return note

    hooks = [getattr(model, name).register_forward_hook(hook(name)) for name in runs]
    try:
        yield runs
    finally:
        for placed in hooks:
            placed.remove()


def file_of(part: nn.Module) -> str:
    """The file of `src/transformer` that a part comes from."""
    package, _, module = type(part).__module__.rpartition(".")
    return f"{module}.py" if package == "transformer" else "your own"


def count(model: nn.Module) -> dict[str, int]:
    """Parameters by part of the model; what is shared counts once."""
    kinds = {
        "self_attention": "self-attention",
        "cross_attention": "attention to memory",
        "feed_forward": "feed-forward",
    }
    total: dict[str, int] = {}
    for name, weights in model.named_parameters():
        stack, _, rest = name.partition(".layers.")
        inner = rest.split(".")[1] if rest else ""
        if not rest:
            kind = "embedding"
        elif inner in kinds:
            kind = f"{stack} {kinds[inner]}".replace("decoder attention", "attention")
        else:
            kind = "normalisation"
        total[kind] = total.get(kind, 0) + weights.numel()
    return total


def by_formula(config: TransformerConfig) -> int:
    """How many parameters a model has, as chapter 02 counts by hand."""
    d, ff = config.d_model, config.d_ff
    attentions, networks, norms = 3 * 4 * d * d, 2 * (2 * d * ff + ff + d), 5 * 2 * d
    return config.vocab_size * d + config.layers * (attentions + networks + norms)


# --- the map -----------------------------------------------------------

ACROSS, HIGH, PITCH = 2.5, 0.6, 0.85  # of a box and from box to box, inches


def figure_1(
    steps: Sequence[Step],
    source: Sequence[str] = ("source",),
    target_in: Sequence[str] = ("target so far",),
    target_out: Sequence[str] = ("what comes next",),
    layers: str = "N",
) -> Figure:
    """Figure 1 of the paper, from a trace: one layer of each stack.

    Args:
        steps: from `trace`.
        source, target_in, target_out: the tokens at the ends.
        layers: how many there are, in words.
    """
    left = [s for s in steps if s.name.startswith(("source", "encoder.layers.0"))]
    right = [s for s in steps if s.name.startswith(("target", "decoder.layers.0"))]
    (last,) = [s for s in steps if s.part == "output_projection"]
    rows = len(right) + 1
    height = 0.95 + PITCH * rows + 1.35
    x = {"left": 0.5, "right": 4.2}
    with style():
        made, axes = blank(height, layout="none")
        (ax,) = axes.flat
        made.subplots_adjust(0, 0, 1, 1)
        ax.set(xlim=(0, WIDTH), ylim=(0, height))
        ax.set_axis_off()
        memory = _row([s.part for s in right].index("cross_attention")) + HIGH / 2
        foot, top = _column(ax, x["left"], left, " ".join(source))
        _say(ax, x["left"], foot, top, f"encoder, {layers} layers")
        _lead_memory(ax, x["left"] + ACROSS / 2, top, x["right"], memory)
        _, top = _column(ax, x["right"], right, " ".join(target_in))
        _say(ax, x["right"], memory, top, f"decoder, {layers} layers")
        middle = x["right"] + ACROSS / 2
        y = _row(len(right)) + 0.1
        arrow(ax, (middle, y - PITCH + HIGH), (middle, y))
        _box(ax, x["right"], y, *_look(last), last.file)
        y += HIGH
        arrow(ax, (middle, y), (middle, y + 0.25))
        soft = ("softmax", QUIET, "in the loss, training.py")
        _box(ax, x["right"], y + 0.25, *soft, linestyle=(0, (3, 2)), linewidth=1)
        arrow(ax, (middle, y + 0.25 + HIGH), (middle, y + 0.5 + HIGH))
        top = y + 0.57 + HIGH
        ax.text(middle, top, " ".join(target_out), ha="center", size=12)
    made.alt = (
        "Figure 1 of the paper with the file of each part: the source is embedded"
        " and passes the encoder's layers, each self-attention and feed-forward;"
        " the decoder's layers have masked self-attention, attention to the"
        " encoder's output, and feed-forward; then output projection and softmax"
    )
    return made


def _row(index: int) -> float:
    """The foot of a box; the layers' frame starts after two boxes."""
    return 0.75 + PITCH * index + (0.2 if index >= 2 else 0)


def _look(step: Step) -> tuple[str, str]:
    """A box's words and its colour."""
    stack = step.name.partition(".")[0]
    kind = "around" if step.part.startswith("around") else step.part
    return WORDS.get(f"{stack}.{kind}") or WORDS[kind]


def _column(ax: Axes, x: float, steps: list[Step], given: str) -> tuple[float, float]:
    """Boxes from the bottom up, layers framed; foot and top of the layers."""
    middle = x + ACROSS / 2
    ax.text(middle, 0.18, given, ha="center", size=12)
    arrow(ax, (middle, 0.45), (middle, _row(0)))
    for index, step in enumerate(steps):
        y = _row(index)
        _box(ax, x, y, *_look(step), step.file)
        if index:
            arrow(ax, (middle, _row(index - 1) + HIGH), (middle, y))
        if step.part.startswith("around"):  # the residual connection into it
            side, below = x + ACROSS + 0.14, _row(index - 1) - 0.12
            bend = [middle, side, side], [below, below, y + HIGH / 2]
            ax.plot(*bend, "-", color=QUIET, lw=1)
            end = (x + ACROSS, y + HIGH / 2)
            arrow(ax, (side, y + HIGH / 2), end, colour=QUIET, width=1)
    foot, top = _row(2) - 0.24, _row(len(steps) - 1) + HIGH
    corner, size = (x - 0.1, foot), (ACROSS + 0.34, top + 0.1 - foot)
    frame = FancyBboxPatch(corner, *size, boxstyle="round,pad=0,rounding_size=0.1")
    frame.set(facecolor="none", edgecolor=QUIET, linestyle=(0, (3, 2)), linewidth=1)
    ax.add_patch(frame)
    return foot, top


def _say(ax: Axes, x: float, foot: float, top: float, name: str) -> None:
    """A stack's name, upwards, beside its frame."""
    turned = dict(rotation=90, ha="right", va="center", size=12)
    ax.text(x - 0.16, (foot + top) / 2, name, **turned)


def _lead_memory(ax: Axes, x: float, top: float, to: float, level: float) -> None:
    """From the encoder's last layer to the decoder's second attention."""
    over, between = top + 0.45, to - 0.62
    corners = [x, x, between, between], [top, over, over, level]
    ax.plot(*corners, "-", color=COLOURS[1], lw=1.6)
    arrow(ax, (between, level), (to, level), colour=COLOURS[1])
    ax.text((x + between) / 2, over + 0.08, "memory z", ha="center", size=12)


def _box(
    ax: Axes, x: float, y: float, name: str, colour: str, file: str, **look
) -> None:
    shape = "round,pad=0,rounding_size=0.07"
    box = FancyBboxPatch((x, y), ACROSS, HIGH, boxstyle=shape)
    box.set(**(dict(facecolor=CARD, edgecolor=colour, linewidth=1.8) | look))
    ax.add_patch(box)
    middle = x + ACROSS / 2
    ax.text(middle, y + 0.41, name, ha="center", va="center", size=12.5)
    mono = dict(family="monospace", size=10.5, color=QUIET)
    ax.text(middle, y + 0.17, file, ha="center", va="center", **mono)


# --- one pair through the model ----------------------------------------

CELL, UP = 0.15, 0.9  # a number's side, and from table to table, inches


def journey(
    steps: Sequence[Step],
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
) -> Figure:
    """What stands at each position after each sub-layer, as real numbers.

    Args:
        steps: from `trace` of one pair.
        source_tokens, target_tokens: a label for each row.
    """
    inside = ("self_attention", "cross_attention", "feed_forward")
    shown = [step for step in steps if step.part not in inside]
    left = [s for s in shown if s.name.startswith(("source", "encoder"))]
    right = [s for s in shown if s not in left]
    most = max(s.output.abs().max().item() for s in shown[:-1])
    height = UP * max(len(left), len(right)) + 0.45
    with style():
        made, axes = blank(height, layout="none")
        (ax,) = axes.flat
        made.subplots_adjust(0, 0, 1, 1)
        ax.set_axis_off()
        for x, column, tokens in (
            (0.15, left, source_tokens),
            (3.7, right, target_tokens),
        ):
            ax.text(x, 0.2, "rows: " + " ".join(tokens), size=11, va="center")
            ends = []
            for index, step in enumerate(column):
                last = step is shown[-1]
                limit = step.output.abs().max().item() if last else most
                ends.append(_table(ax, x, index, step, limit))
            for (_, top), (foot, _) in pairwise(ends):
                arrow(ax, (x + 0.5, top + 0.04), (x + 0.5, foot - 0.04))
            if column is left:
                corner = (x + 0.5, ends[-1][1])
        levels = [
            0.4 + UP * index + CELL * len(target_tokens) / 2
            for index, step in enumerate(right)
            if step.part == "around_cross_attention"
        ]
        _memory(ax, corner, levels, 3.7)
        ax.set(xlim=(0, WIDTH), ylim=(0, height))
    made.alt = (
        "Small heat maps from the bottom up, the encoder's on the left and the"
        " decoder's on the right: after every layer a row for each token and as"
        " many columns as the embedding has, until the last one, which has a"
        " column for each token of the vocabulary"
    )
    return made


def _table(
    ax: Axes, x: float, index: int, step: Step, limit: float
) -> tuple[float, float]:
    """One heat map with its words; its foot and its top."""
    table = step.output[0].float()
    rows, columns = table.shape
    foot, end = 0.4 + UP * index, x + columns * CELL
    top = foot + rows * CELL
    ax.imshow(
        table.numpy(),
        cmap=SHADES,
        vmin=-limit,
        vmax=limit,
        extent=(x, end, foot, top),
        interpolation="nearest",
    )
    edge = Rectangle((x, foot), end - x, top - foot, fill=False)
    edge.set(edgecolor=QUIET, linewidth=0.6)
    ax.add_patch(edge)
    beside, middle = dict(va="center", size=11.5), (foot + top) / 2
    name, layer = _after(step)
    ax.text(end + 0.14, middle + 0.12, name, **beside)
    beside |= dict(color=QUIET)
    ax.text(end + 0.14, middle - 0.12, f"{rows} × {columns}", **beside)
    ax.text(end + 0.74, middle - 0.12, layer, **beside)
    return foot, top


def _memory(
    ax: Axes, corner: tuple[float, float], levels: Sequence[float], to: float
) -> None:
    """From the encoder's last table to the rows that read it."""
    x, top = corner
    over, between = max(top + 0.3, levels[-1]), to - 0.25
    look = dict(color=COLOURS[1], lw=1.6)
    ax.plot([x, x, between], [top + 0.04, over, over], "-", **look)
    ax.plot([between, between], [over, levels[0]], "-", **look)
    for level in levels:
        arrow(ax, (between, level), (to - 0.03, level), colour=COLOURS[1])
    ax.text((x + between) / 2, over + 0.08, "memory", ha="center", size=11.5)


def _after(step: Step) -> tuple[str, str]:
    """What a table of the journey is, and of which layer."""
    if step.part.startswith("around"):
        stack, _, number = step.name.split(".")[:3]
        inner = step.part.removeprefix("around_")
        inner = {"attention": "self_attention"}.get(inner, inner)
        words = WORDS.get(f"{stack}.{inner}") or WORDS[inner]
        return words[0], f"layer {int(number) + 1}"
    words = {"embedding": "embedding", "positions": "add positions"}
    return words.get(step.part.rpartition("_")[2], "logits"), ""


# --- what is said next -------------------------------------------------


def what_follows(
    models: Mapping[str, nn.Module],
    source: Tensor,
    written: Tensor,
    tokens: Sequence[str],
) -> Figure:
    """The probability of each token after each that was written.

    Args:
        models: from names to models.
        source: (1, length), ids.
        written: (1, length), from `greedy_decode`; what the decoder
            is given is this after BOS, without the last.
        tokens: the vocabulary.
    """
    given = torch.cat([torch.full((1, 1), BOS), written[:, :-1]], dim=1)
    with torch.no_grad():
        chances = [model(source, given).softmax(-1) for model in models.values()]
    return attention_heatmap(
        torch.cat(chances),
        [tokens[token] for token in given[0]],
        tokens,
        titles=list(models) if len(models) > 1 else (),
        query_label="given up to here",
        key_label="what comes next",
        unit="probability",
    )


# --- where the parameters are ------------------------------------------


def shares(counts: Mapping[str, Mapping[str, int]]) -> Figure:
    """A bar for each model, cut into the shares of its parts.

    Args:
        counts: from a model's name to what `count` gives.
    """
    kinds = list(next(iter(counts.values())))
    kinds.remove("normalisation")  # too little to be seen
    fills = (FAINT, ACCENT, COLOURS[4], "#7fb8da", COLOURS[1], "#7fceb7")
    with style():
        made, axes = blank(1.05 * len(counts) + 1.7)
        (ax,) = axes.flat
        for row, (name, parts_) in enumerate(counts.items()):
            total, start = sum(parts_.values()), 0.0
            for kind, fill in zip(kinds, fills, strict=True):
                share = 100 * parts_[kind] / total
                ax.barh(
                    row,
                    share,
                    left=start,
                    color=fill,
                    edgecolor=CARD,
                    height=0.56,
                    label=None if row else kind,
                )
                dark = fill in (ACCENT, COLOURS[4], COLOURS[1])
                ax.text(
                    start + share / 2,
                    row,
                    f"{share:.0f}%",
                    ha="center",
                    va="center",
                    size=11,
                    color=CARD if dark else INK,
                )
                start += share
            label = f"{name}: {total / 1e6:.1f} million"
            ax.text(0, row - 0.36, label, size=11, va="bottom")
        ax.set_ylim(len(counts) - 0.6, -0.6)
        ax.set_yticks([])
        ax.grid(visible=False)
        ax.spines["left"].set_visible(False)
        ax.set_xlim(0, 100)
        ax.set_xlabel("share of the model's parameters (%)")
        handles, names = ax.get_legend_handles_labels()
        order = [0, 3, 1, 4, 2, 5]  # so that rows are read first
        made.legend(
            [handles[i] for i in order],
            [names[i] for i in order],
            loc="outside lower center",
            ncols=3,
            handlelength=1,
            fontsize=10.5,
        )
    made.alt = (
        f"A bar for each of {', '.join(counts)}, cut into shares of the parameters:"
        f" {', '.join(kinds)}"
    )
    return made


# --- one network, position by position ---------------------------------


def position_by_position(
    network: nn.Module, x: Tensor, tokens: Sequence[str]
) -> Figure:
    """A feed-forward network's way from x to its output, row by row.

    Args:
        network: with the maps `widen` and `narrow`.
        x: (1, positions, d_model).
        tokens: a label for each position.
    """
    caught: list[Tensor] = []
    hook = network.narrow.register_forward_pre_hook(
        lambda part, given: caught.append(given[0])
    )
    with torch.no_grad():
        output = network(x)
    hook.remove()
    side, pitch, gap = 0.148, 0.4, 0.5
    height = pitch * len(tokens) + 0.5
    with style():
        made, axes = blank(height, layout="none")
        (ax,) = axes.flat
        made.subplots_adjust(0, 0, 1, 1)
        ax.set_axis_off()
        ax.set(xlim=(0, WIDTH), ylim=(0, height))
        left, top = 0.98, height - 0.5
        for row, token in enumerate(tokens):
            y = top - pitch * row - side / 2
            ax.text(left - 0.12, y, token, ha="right", va="center", size=11.5)
        names = ("x", "after ReLU", "output")
        maps = ("W₁ b₁", "W₂ b₂", "")
        for name, table, after in zip(
            names, (x[0], caught[0][0], output[0]), maps, strict=True
        ):
            columns = table.size(1)
            end, most = left + columns * side, table.abs().max().item()
            say = f"{name}: {columns}" if name != "x" else f"x: {columns} numbers"
            ax.text(left, top + 0.16, say, size=11.5)
            for row, numbers in enumerate(table):
                y = top - pitch * row - side
                for column, number in enumerate(numbers.tolist()):
                    corner = (left + column * side, y)
                    cell = Rectangle(corner, side, side, lw=0.6, ec=QUIET)
                    shade = 0.5 + 0.5 * number / most
                    cell.set_facecolor(CARD if number == 0 else SHADES(shade))
                    ax.add_patch(cell)
                if after:
                    level = y + side / 2
                    arrow(ax, (end + 0.05, level), (end + gap - 0.05, level))
            over = (end + gap / 2, top - side / 2 + 0.07)
            ax.text(*over, after, ha="center", size=10, color=QUIET)
            left = end + gap
    made.alt = (
        f"Rows of cells for {', '.join(tokens)}: the input, the inner layer after"
        " ReLU, in which the white cells are exactly 0, and the output; arrows"
        " lead along each row and from no row to another"
    )
    return made


def who_moves(
    parts: Mapping[str, Callable[[Tensor], Tensor]], x: Tensor, tokens: Sequence[str]
) -> Figure:
    """Which outputs move when one position's input is changed.

    Args:
        parts: from names to what is to be asked.
        x: (1, positions, d_model).
        tokens: a label for each position.
    """
    return relations(
        [moves(part, x) for part in parts.values()],
        list(parts),
        tokens,
        tokens,
        holds="the output moves",
        fails="it stays as it was, to the last bit",
        across_label="input changed",
    )


@torch.no_grad()
def moves(part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """(output, changed input), True where any bit is another."""
    columns = []
    for place in range(x.size(1)):
        changed = x.clone()
        changed[0, place] += 1
        columns.append((part(changed) != part(x))[0].any(-1))
    return torch.stack(columns, dim=1)


# --- how much work -----------------------------------------------------


def work(config: TransformerConfig, length: int) -> dict[str, int]:
    """Multiplications of an encoder layer's two parts, as PyTorch counts.

    The parts have shapes and no numbers; matrix products are counted.
    """
    d = config.d_model
    with torch.device("meta"):
        x = torch.empty(1, length, d)
        network = PositionwiseFeedForward(d, config.d_ff)
        attention = MultiHeadAttention(d, config.heads)
    calls = {
        "feed-forward": lambda: network(x),
        "attention": lambda: attention(x, x, x),
    }
    counted = {}
    for name, call in calls.items():
        with FlopCounterMode(display=False) as counter:
            call()
        counted[name] = counter.get_total_flops() // 2  # an addition with each
    return counted


def work_shares(config: TransformerConfig, lengths: Sequence[int]) -> Figure:
    """The two parts' shares of the work over the length, and by formula.

    Args:
        config: d_ff is to be 4 d_model.
        lengths: in tokens.
    """
    d = config.d_model
    if config.d_ff != 4 * d:
        raise ValueError(f"d_ff={config.d_ff} must be 4 d_model, {4 * d}")
    counted = [work(config, n) for n in lengths]
    whole = [12 * d + 2 * n for n in lengths]
    return lines(
        lengths,
        {
            name: [100 * both[name] / sum(both.values()) for both in counted]
            for name in ("feed-forward", "attention")
        },
        expected={
            "8d / (12d + 2n)": [100 * 8 * d / w for w in whole],
            "(4d + 2n) / (12d + 2n)": [100 - 100 * 8 * d / w for w in whole],
        },
        xlabel="length n (tokens)",
        ylabel="multiplications (%)",
        xscale="log2",
    )
