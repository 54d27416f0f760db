"""The book's figures, in one style.

Every function returns a `Figure`; the last line of a cell shows it, at
twice the usual resolution, with `figure.alt` as its text form. Nothing
touches pyplot or the global style.

Figures stand on a white card, so that they are legible on a dark page
as well. Colours can be told apart without colour vision, and lines
also by their dashes, so that a grey print will do. The query is on the
vertical axis, always.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
import seaborn
from matplotlib import figure as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.patches import Circle, FancyBboxPatch, Patch, Rectangle, Wedge
from matplotlib.ticker import MaxNLocator

from transformer.positional_encoding import sinusoidal_encoding
from transformer.training import noam_rate

ACCENT = "#0072b2"
INK = "#2b3037"
QUIET = "#6b737c"
FAINT = "#d9dde1"
CARD = "#ffffff"
WIDTH = 7.0  # inches

# Okabe and Ito's, in an order whose neighbours differ in grey too; the
# dashes tell apart what grey does not.
COLOURS = (ACCENT, "#d55e00", INK, "#cc79a7", "#009e73")
DASHES = ("-", "--", ":", "-.", (0, (6, 1.5, 1, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v")

# From light to dark at every step, so that grey keeps the order.
SHADES = LinearSegmentedColormap.from_list(
    "book", ["#eff3f6", "#b9d6e8", "#5ea3cd", ACCENT, "#08304d"]
)

# Light at 0, orange below and blue above.
SIGNED = LinearSegmentedColormap.from_list(
    "signed", ["#d55e00", "#f3c9a5", "#f6f7f8", "#a9cde4", ACCENT]
)

STYLE = {
    "axes.edgecolor": QUIET,
    "axes.facecolor": CARD,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.prop_cycle": matplotlib.cycler(color=COLOURS, linestyle=DASHES),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "figure.constrained_layout.h_pad": 0.09,
    "figure.constrained_layout.w_pad": 0.09,
    "figure.dpi": 100,
    "figure.facecolor": CARD,
    "font.size": 10,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "text.color": INK,
    "xtick.color": QUIET,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 9.5,
    "ytick.color": QUIET,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 9.5,
}


class Figure(mpl.Figure):
    """A figure with a text form.

    Attributes:
        alt: what is seen, for `mystnb.image.alt` and terminals. It
            holds no measured number, so that it compares equal.
    """

    alt = ""

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"

    def _ipython_display_(self) -> None:
        """Show at twice the resolution, whatever the notebook is set to."""
        from IPython.display import display

        buffer = io.BytesIO()
        with style():
            self.savefig(buffer, dpi=2 * self.dpi, metadata={"Software": None})
        # No height: a page narrower than the width would squeeze it.
        width = round(self.get_figwidth() * self.dpi)
        display(
            {"image/png": with_palette(buffer.getvalue()), "text/plain": repr(self)},
            metadata={"image/png": {"width": width}},
            raw=True,
        )


def with_palette(png: bytes) -> bytes:
    """The same picture in 256 colours: a third of the bytes.

    Each figure is in the notebook, in the site and in the site's copy of
    the notebook.
    """
    from PIL import Image

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as full:
        few = full.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


@contextmanager
def style() -> Iterator[None]:
    """Within it, matplotlib draws in the book's style."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def blank(
    height: float = 3.2,
    rows: int = 1,
    columns: int = 1,
    *,
    layout: str = "constrained",
    **axes: Any,
) -> tuple[Figure, np.ndarray]:
    """An empty figure and its axes, (rows, columns); within `style`.

    All figures are of one width, so that a page that fits them to its
    own shows their letters at one size.
    """
    made = Figure(figsize=(WIDTH, height), layout=layout)
    FigureCanvasAgg(made)
    return made, made.subplots(rows, columns, squeeze=False, **axes)


# --- heat maps ---------------------------------------------------------


def attention_heatmap(
    weights: Any,
    query_tokens: Sequence[str],
    key_tokens: Sequence[str],
    *,
    titles: Sequence[str] = (),
    unit: str = "weight (share of 1)",
    limits: tuple[float, float] = (0.0, 1.0),
    columns: int = 4,
    query_label: str = "query",
    key_label: str = "key",
) -> Figure:
    """Queries down, keys across; the darker, the more weight.

    Args:
        weights: (query, key), or (panel, query, key), such as heads.
        query_tokens, key_tokens: a label for each row and column.
        titles: one a panel.
        unit: of the colour bar.
        limits: values of the lightest and the darkest cell.
        columns: panels in a row.
        query_label, key_label: of the axes.

    Raises:
        ValueError: naming the axis whose size does not fit.
    """
    panels = _panels(weights, "weights")
    count, queries, keys = panels.shape
    _fits("query_tokens", len(query_tokens), "rows of weights", queries)
    _fits("key_tokens", len(key_tokens), "columns of weights", keys)
    if titles:
        _fits("titles", len(titles), "panels of weights", count)
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    longest = max(len(str(token)) for token in query_tokens)
    cell = _cell(keys * columns, 1.6 + 0.08 * longest + 0.15 * columns)
    printed = count == 1 and queries <= 8 and keys <= 8
    with style():
        made, axes = blank(
            rows * (queries * cell + 0.4) + 0.9,
            rows,
            columns,
            layout="none",
        )
        for index, ax in enumerate(axes.flat):
            if index >= count:
                ax.set_axis_off()
                continue
            first, lowest = index % columns == 0, index + columns >= count
            _heatmap(
                ax,
                panels[index],
                SHADES,
                limits,
                query_tokens if first else (),
                key_tokens if lowest else (),
                annot=printed,
                fmt=".2f",
                annot_kws={"size": 9},
                linewidths=0.6 if max(queries, keys) <= 40 else 0,
                linecolor=CARD,
            )
            ax.set_title(titles[index] if titles else "")
            ax.set_xlabel(key_label if lowest else "")
            ax.set_ylabel(query_label if first else "")
        _colour_bar(made, axes, unit)
        made.set_layout_engine("compressed")
    made.alt = (
        f"{'Heat map' if count == 1 else f'{count} heat maps'}, {unit}:"
        f" {queries} queries down ({', '.join(map(str, query_tokens[:8]))}),"
        f" {keys} keys across ({', '.join(map(str, key_tokens[:8]))})"
    )
    return made


def attention_steps(
    query: Any, key: Any, value: Any, tokens: Sequence[str], mask: Any
) -> Figure:
    """Figure 2, left, with its numbers: from Q K^T to the output.

    Args:
        query, key, value: (token, width), of one head.
        tokens: a label for each.
        mask: (query, key) of bool, True where a query may attend.

    Raises:
        ValueError: naming the axis whose size does not fit.
    """
    query, key, value = (
        _matrix(_array(given), name)
        for given, name in ((query, "query"), (key, "key"), (value, "value"))
    )
    for name, given in (("query", query), ("key", key), ("value", value)):
        _fits("tokens", len(tokens), f"rows of {name}", len(given))
    scores = query @ key.T
    scaled = scores / math.sqrt(key.shape[1])
    masked = np.where(_matrix(_array(mask), "mask"), scaled, -np.inf)
    powers = np.exp(masked - masked.max(axis=1, keepdims=True))
    weights = powers / powers.sum(axis=1, keepdims=True)
    columns = [f"v{i + 1}" for i in range(value.shape[1])]
    steps = (
        ("1  MatMul: Q Kᵀ", scores, "query", tokens, "key"),
        ("2  Scale: ÷ √d_k", scaled, "query", tokens, "key"),
        ("3  Mask: −∞ if hidden", masked, "query", tokens, "key"),
        ("4  SoftMax of each row", weights, "query", tokens, "key"),
        ("    the values V", value, "key", columns, "component"),
        ("5  MatMul: weights × V", weights @ value, "query", columns, "component"),
    )
    with style():
        made, axes = blank(2 * (len(tokens) * 0.42 + 1.1), 2, 3, layout="none")
        for ax, (title, values, down, across, below) in zip(
            axes.flat, steps, strict=True
        ):
            # The first three tables share their shades.
            whole = scores if across is tokens else values
            most = float(np.abs(whole).max())
            shares = values is weights
            _heatmap(
                ax,
                values,
                SHADES if shares else SIGNED,
                (0, 1) if shares else (-most, most),
                tokens,
                across,
                annot=np.vectorize(_score)(values),
                fmt="",
                annot_kws={"size": 8.5},
                linewidths=0.6,
                linecolor=CARD,
            )
            for row, column in np.argwhere(values == -np.inf):
                ax.add_patch(
                    Rectangle(
                        (column, row), 1, 1, hatch="////", fc="#f2f2f2", ec="#d9dde1"
                    )
                )
                place = (column + 0.5, row + 0.5)
                ax.text(*place, "−∞", ha="center", va="center", size=9)
            ax.set_title(title)
            ax.set_xlabel(below)
            ax.set_ylabel(down if ax in axes[:, 0] else "")
        made.set_layout_engine("compressed")
    made.alt = (
        f"Six tables for {len(tokens)} tokens, blue above 0 and orange below:"
        " products of queries and keys, scaled, masked, the softmax of each"
        " row, the values, and weights times values"
    )
    return made


def _score(value: float) -> str:
    """A number for a cell, with a minus as wide as a digit."""
    return f"{value:.2f}".replace("-", "−")


def mask_gallery(
    masks: Sequence[Any],
    names: Sequence[str],
    query_tokens: Sequence[Sequence[str]] | Sequence[str],
    key_tokens: Sequence[Sequence[str]] | Sequence[str],
) -> Figure:
    """Masks side by side; a filled cell may be attended to.

    Args:
        masks: each (query, key) of bool; axes of size 1 before them
            are dropped, and one row stands for every query.
        names: one a mask.
        query_tokens, key_tokens: labels, for all masks or for each.

    Raises:
        ValueError: naming the mask and the axis that does not fit.
    """
    _fits("names", len(names), "masks", len(masks))
    shown = ListedColormap(["#ffffff", ACCENT])
    queries = _for_each(query_tokens, len(masks))
    keys = _for_each(key_tokens, len(masks))
    tables = []
    for mask, name, down, across in zip(masks, names, queries, keys, strict=True):
        table = _array(mask)
        if table.dtype != bool:
            raise ValueError(f"mask {name!r} has dtype {table.dtype}, not bool")
        table = _matrix(table, f"mask {name!r}")
        if len(table) == 1:
            table = np.repeat(table, len(down), axis=0)
        _fits("query_tokens", len(down), f"rows of mask {name!r}", table.shape[0])
        _fits("key_tokens", len(across), f"columns of mask {name!r}", table.shape[1])
        tables.append(table)
    width = sum(table.shape[1] for table in tables)
    height = max(table.shape[0] for table in tables)
    labels = max(len(str(token)) for tokens in queries for token in tokens)
    cell = _cell(width, len(tables) * (0.4 + labels * 0.08))
    below = max(len(str(token)) for tokens in keys for token in tokens)
    with style():
        made, axes = blank(
            height * cell + 1.3 + below * 0.09,
            1,
            len(tables),
            layout="none",
            width_ratios=[table.shape[1] for table in tables],
        )
        for index, (ax, table) in enumerate(zip(axes.flat, tables, strict=True)):
            _heatmap(
                ax,
                table,
                shown,
                (0, 1),
                queries[index],
                keys[index],
                linewidths=0.8,
                linecolor=QUIET,
            )
            # White alone could be taken for no cell at all.
            for row, column in zip(*np.nonzero(~table), strict=True):
                ax.plot(column + 0.5, row + 0.5, "x", color=QUIET, markersize=3.5)
            ax.set_anchor("N")
            room = int(table.shape[1] * cell / 0.085)
            ax.set_title(textwrap.fill(names[index], max(room, 10)))
            ax.set_xlabel("key")
            ax.set_ylabel("query" if index == 0 else "")
        made.set_layout_engine("compressed")
        made.legend(
            handles=[
                Patch(facecolor=ACCENT, edgecolor=QUIET, label="may attend"),
                Patch(facecolor=CARD, edgecolor=QUIET, label="×  blocked"),
            ],
            loc="outside lower center",
            ncols=2,
        )
    made.alt = (
        f"{len(tables)} masks, queries down and keys across, a filled cell may be"
        f" attended to: {', '.join(names)}"
    )
    return made


def encoding_matrix(
    length: int, d_model: int, *, table: Any = None, name: str = "positional encoding"
) -> Figure:
    """Every entry of the encoding: positions down, dimensions across.

    Args:
        length: rows shown.
        d_model: columns.
        table: (length, d_model) to show instead of the sinusoids.
        name: of the table.
    """
    values = sinusoidal_encoding(length, d_model) if table is None else table
    values = _matrix(_array(values), "table")
    _fits("length", length, "rows of table", values.shape[0])
    _fits("d_model", d_model, "columns of table", values.shape[1])
    side = min(5.4 / d_model, 5.4 / length)
    limit = max(1.0, float(np.abs(values).max()))
    with style():
        made, axes = blank(length * side + 0.8, layout="compressed")
        (ax,) = axes.flat
        image = ax.imshow(
            values, cmap=SHADES, vmin=-limit, vmax=limit, interpolation="nearest"
        )
        ax.grid(False)
        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.set_xlabel(
            "dimension (even: sine, odd: cosine)" if table is None else "dimension"
        )
        ax.set_ylabel("position")
        _colour_bar(made, axes, "value", image)
    made.alt = (
        f"Heat map of the {name}: {length} positions down, {d_model} dimensions"
        " across, light for low and dark for high values"
    )
    return made


# --- positions and rates -----------------------------------------------


def positional_waves(
    length: int, d_model: int, *, pairs: Sequence[int] = (0, 4, 8, 16)
) -> Figure:
    """Some pairs of the encoding over positions, a panel for each.

    The dots are the table's entries, the lines the waves that they
    sample.

    Args:
        length: positions shown.
        d_model: width of the encoding.
        pairs: i of the formula; pair i fills columns 2i and 2i + 1.

    Raises:
        ValueError: a pair that the width does not have.
    """
    for pair in pairs:
        if not 0 <= pair < d_model // 2:
            raise ValueError(
                f"pairs holds {pair}, but d_model={d_model} has pairs 0 to"
                f" {d_model // 2 - 1}"
            )
    table = _array(sinusoidal_encoding(length, d_model))
    fine = np.linspace(0, length - 1, 40 * length)
    positions = np.arange(length)
    with style():
        made, axes = blank(1.15 * len(pairs) + 0.7, len(pairs), sharex=True)
        for ax, pair in zip(axes.flat, pairs, strict=True):
            rate = 10000 ** (-2 * pair / d_model)
            for odd, (name, wave) in enumerate((("sine", np.sin), ("cosine", np.cos))):
                colour = COLOURS[odd]
                column = table[:, 2 * pair + odd]
                ax.plot(fine, wave(fine * rate), DASHES[odd], color=colour, lw=1.2)
                ax.plot(
                    positions,
                    column,
                    MARKERS[odd],
                    color=colour,
                    markersize=3.5,
                    label=name,
                )
            wavelength = 2 * math.pi / rate
            ax.set_title(
                f"dimensions {2 * pair} and {2 * pair + 1}: wavelength"
                f" {wavelength:.4g} positions"
            )
            ax.set_ylim(-1.15, 1.15)
            ax.set_yticks([-1, 0, 1])
        axes[-1, 0].set_xlabel("position")
        axes[-1, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
        made.supylabel("value", fontsize=10)
        handles = axes[0, 0].get_legend_handles_labels()
        made.legend(*handles, loc="outside upper right", ncols=2)
    made.alt = (
        f"Sine and cosine of the positional encoding over {length} positions, one"
        f" panel for each of the pairs {', '.join(map(str, pairs))} at d_model"
        f" {d_model}: the higher the pair, the longer the wave"
    )
    return made


def learning_rate_curve(
    d_models: Sequence[int] = (512,),
    warmups: Sequence[int] = (4000,),
    *,
    steps: int = 20000,
    factor: float = 1.0,
) -> Figure:
    """Equation 3 over steps, for each width and warm-up.

    Args:
        d_models, warmups: a line for each combination, five at most.
        steps: last step shown.
        factor: multiplies every rate.
    """
    cases = [(width, warmup) for width in d_models for warmup in warmups]
    _at_most(len(COLOURS), len(cases), "combinations of d_models and warmups")
    shown = np.unique(
        [1, *np.linspace(1, steps, 400).astype(int), *(w for w in warmups if w < steps)]
    )
    with style():
        made, axes = blank()
        (ax,) = axes.flat
        for index, (width, warmup) in enumerate(cases):
            rates = [1e3 * noam_rate(int(s), width, warmup, factor) for s in shown]
            label = f"d_model {width}, warm-up {warmup}"
            ax.plot(shown, rates, label=label)
            if warmup <= steps:
                peak = 1e3 * noam_rate(warmup, width, warmup, factor)
                ax.plot(warmup, peak, MARKERS[index], color=COLOURS[index])
                ax.annotate(
                    f"{peak:.3g}",
                    (warmup, peak),
                    xytext=(4, 4),
                    textcoords="offset points",
                    fontsize=9,
                )
        ax.set_xlim(0, steps)
        ax.set_ylim(0, 1.1 * ax.dataLim.ymax)
        ax.set_xlabel("training step")
        ax.set_ylabel("learning rate (× 10⁻³)")
        ax.legend()
    made.alt = (
        "Learning rate over training steps: it rises in a straight line during"
        " warm-up and falls with the inverse square root of the step after it; "
        + "; ".join(f"d_model {w}, warm-up {u}" for w, u in cases)
    )
    return made


# --- measurements ------------------------------------------------------


def loss_curve(
    history: Any,
    *,
    unit: str = "nats a token",
    floor: float | None = None,
    floor_label: str = "the lowest that smoothing allows",
    rate: bool = False,
) -> Figure:
    """Training loss over steps, and the learning rate below it.

    Args:
        history: a `History`, or a mapping from names to them; lists
            of losses will do.
        unit: of the loss.
        floor: a line below which the loss cannot go.
        floor_label: what it is.
        rate: also show the learning rate, which needs a `History`.
    """
    runs = history if isinstance(history, Mapping) else {"": history}
    _at_most(len(COLOURS), len(runs), "histories")
    with style():
        heights = [2, 1] if rate else [1]
        made, axes = blank(
            4.4 if rate else 3.2,
            len(heights),
            sharex=True,
            height_ratios=heights,
        )
        for name, run in runs.items():
            loss = _array(getattr(run, "loss", run))
            steps = np.arange(1, len(loss) + 1)
            axes[0, 0].plot(steps, loss, label=name, linewidth=1.4)
            if rate:
                axes[1, 0].plot(steps, 1e3 * _array(run.rate))
        if floor is not None:
            axes[0, 0].axhline(
                floor,
                color=QUIET,
                linewidth=1,
                linestyle=(0, (2, 2)),
                label=floor_label,
            )
        axes[0, 0].set_ylabel(f"training loss ({unit})")
        axes[0, 0].set_ylim(0, None)
        axes[-1, 0].set_xlabel("training step")
        axes[-1, 0].set_xlim(0, None)
        if rate:
            axes[1, 0].set_ylabel("learning rate\n(× 10⁻³)")
            axes[1, 0].set_ylim(0, None)
        if "" not in runs or floor is not None:
            axes[0, 0].legend()
    named = ", ".join(name for name in runs if name)
    made.alt = (
        f"Training loss in {unit} over training steps"
        + (f" for {named}" if named else "")
        + (", and the learning rate below it" if rate else "")
    )
    return made


def bars(
    values: Mapping[str, float],
    *,
    label: str,
    limit: float | None = 1.0,
    digits: int = 3,
    accent: str | None = None,
    spread: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """A bar for each value, with the value at its end.

    Args:
        values: from names to numbers, from the top down.
        label: of the axis, with its unit.
        limit: where the axis ends; the data decides if None.
        digits: after the point.
        accent: the one bar in colour; all of them if None.
        spread: lowest and highest over seeds.
    """
    names = list(values)
    numbers = [float(values[name]) for name in names]
    with style():
        made, axes = blank(0.5 * len(names) + 0.9)
        (ax,) = axes.flat
        colours = [ACCENT if accent in (None, name) else "#9aa3ad" for name in names]
        ax.barh(names, numbers, color=colours, height=0.58)
        for row, name in enumerate(names):
            low, high = (spread or {}).get(name, (numbers[row], numbers[row]))
            if high > low:
                ax.plot([low, high], [row, row], "-", color=INK, linewidth=1.4)
            ax.annotate(
                f"{numbers[row]:.{digits}f}",
                (max(high, numbers[row]), row),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontweight="bold",
            )
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.grid(axis="x", visible=True)
        ax.tick_params(axis="y", length=0)
        ax.spines["bottom"].set_visible(False)
        top = limit if limit is not None else max(numbers) or 1.0
        ax.set_xlim(0, top * 1.1)
        if limit == 1.0:
            ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
        ax.set_xlabel(label)
    made.alt = f"Bars of {label} for {', '.join(names)}"
    return made


def lines(
    x: Sequence[float],
    values: Mapping[str, Any],
    *,
    xlabel: str,
    ylabel: str,
    expected: Mapping[str, Any] | None = None,
    xscale: str = "linear",
    yscale: str = "linear",
    band: str = "range",
) -> Figure:
    """Measured lines, with a band for the spread over seeds.

    Args:
        x: where it was measured.
        values: from names to (points,) or (seeds, points); five at
            most. A line is the mean over seeds.
        xlabel, ylabel: of the axes, with their units.
        expected: predictions to lay over, from names to (points,).
        xscale, yscale: "linear" or "log"; "log2" for powers of two.
        band: "range", lowest to highest, or "deviation", one standard
            deviation to either side.

    Raises:
        ValueError: a line with another number of points than x.
    """
    _at_most(len(COLOURS), len(values), "lines")
    x = _array(x)
    seeds = 1
    with style():
        made, axes = blank()
        (ax,) = axes.flat
        for index, (name, measured) in enumerate(values.items()):
            runs = np.atleast_2d(_array(measured))
            _fits(f"values[{name!r}]", runs.shape[-1], "points of x", len(x))
            seeds = max(seeds, len(runs))
            middle = runs.mean(0)
            ax.plot(
                x,
                middle,
                # Over a prediction, what was measured is dots alone.
                linestyle="" if expected else DASHES[index],
                marker=MARKERS[index],
                color=COLOURS[index],
                label=name,
            )
            if len(runs) > 1:
                low, high = runs.min(0), runs.max(0)
                if band == "deviation":
                    half = runs.std(0, ddof=1)
                    low, high = middle - half, middle + half
                ax.fill_between(
                    x, low, high, color=COLOURS[index], alpha=0.18, linewidth=0
                )
        for index, (name, predicted) in enumerate((expected or {}).items()):
            _fits(f"expected[{name!r}]", len(predicted), "points of x", len(x))
            ax.plot(
                x,
                _array(predicted),
                color=COLOURS[index % len(COLOURS)],
                linewidth=1.1,
                linestyle=(0, (2, 2)),
                label=f"expected: {name}",
            )
        for axis, scale in ((ax.xaxis, xscale), (ax.yaxis, yscale)):
            _scale(ax, axis, scale, x)
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
        spread = {
            "range": "lowest to highest",
            "deviation": "one standard deviation",
        }[band]
        note = f"band: {spread} of {seeds} seeds" if seeds > 1 else None
        ax.legend(title=note, title_fontsize=9, alignment="left")
    made.alt = (
        f"{ylabel} over {xlabel}: {', '.join(values)}"
        + (f"; expected: {', '.join(expected)}" if expected else "")
        + (f"; {note}" if note else "")
    )
    return made


def strips(
    values: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    label: str,
    limits: tuple[float, float] | None = (0.0, 1.0),
) -> Figure:
    """Every seed a dot, in a row for each case; a tick at the median.

    Args:
        values: from what is compared, two to five of them, to rows:
            from names to a number a seed. A row may lack some.
        label: of the axis, with its unit.
        limits: ends of the axis; the data decides if None.
    """
    _at_most(len(COLOURS), len(values), "kinds")
    rows = list(dict.fromkeys(name for kind in values.values() for name in kind))
    step = 0.62 / len(values)
    with style():
        made, axes = blank(max(0.3 * len(values), 0.45) * len(rows) + 1.1)
        (ax,) = axes.flat
        for index, (kind, cases) in enumerate(values.items()):
            colour = COLOURS[index]
            drawn = {"color": colour, "linestyle": "none", "zorder": 3}
            for name, numbers in cases.items():
                place = rows.index(name) + (index - (len(values) - 1) / 2) * step
                numbers = _array(numbers)
                ax.plot(
                    numbers,
                    np.full(len(numbers), place),
                    MARKERS[index],
                    **drawn,
                    alpha=0.45,
                    markeredgewidth=0,
                    clip_on=False,
                )
                ax.plot(
                    np.median(numbers), place, "|", **drawn, ms=13, mew=2, clip_on=False
                )
            ax.plot([], [], MARKERS[index], **drawn, label=kind)
        ax.set_yticks(range(len(rows)), rows)
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.grid(axis="y", visible=False)
        ax.grid(axis="x", visible=True)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        if limits:
            ax.set_xlim(*limits)
        ax.set_xlabel(label)
        made.legend(loc="outside upper left", ncols=len(values), handlelength=1)
    made.alt = (
        f"{label}, a dot for each seed and a tick at the median, for"
        f" {', '.join(rows)}; {' against '.join(values)}"
    )
    return made


def wavelengths(d_model: int = 512, length: int = 512) -> Figure:
    """How many positions a turn takes, by pair; and in the paper's code.

    Args:
        d_model: width of the encoding; even, and at least 4.
        length: of a sequence, drawn for comparison.
    """
    pair = np.arange(d_model // 2)
    printed = 2 * math.pi * 10000 ** (2 * pair / d_model)
    published = 2 * math.pi * 10000 ** (pair / (d_model // 2 - 1))
    with style():
        made, axes = blank(4.4, 2, sharex=True, height_ratios=[2, 1])
        above, below = axes[:, 0]
        above.plot(pair, printed)
        above.set_yscale("log")
        above.axhline(length, color=QUIET, linewidth=1, linestyle=(0, (2, 2)))
        above.annotate(
            f"a sequence of {length}",
            (0, length),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=9,
        )
        ends = ((pair[0], printed[0], 8, -5), (pair[-1], printed[-1], -8, 0))
        for x, y, right, up in ends:
            above.plot(x, y, "o", color=ACCENT)
            above.annotate(
                f"{y:.{0 if y > 100 else 2}f}",
                (x, y),
                xytext=(right, up),
                textcoords="offset points",
                ha="left" if right > 0 else "right",
            )
        above.set_ylabel("wavelength (positions)")
        below.plot(pair, 100 * (published / printed - 1), color=COLOURS[1])
        below.set_ylabel("published code:\nlonger by (%)")
        below.set_ylim(0, None)
        below.set_xlabel("pair i (columns 2i and 2i + 1)")
    made.alt = (
        f"Wavelength of each pair of columns at d_model {d_model}, on a logarithmic"
        f" axis a straight line up, with a mark at {length} positions; below it, by"
        " how much the published code's wavelengths are longer, which grows with"
        " the pair"
    )
    return made


def clocks(
    positions: Sequence[int], offset: int, d_model: int, *, pairs: Sequence[int]
) -> Figure:
    """Pairs of columns as clock hands, each before and after an offset.

    Args:
        positions: a row of clocks for each.
        offset: from each position to the other.
        d_model: width of the encoding.
        pairs: a column of clocks for each; pair i is columns 2i, 2i + 1.

    Raises:
        ValueError: a pair that the width does not have.
    """
    for pair in pairs:
        if not 0 <= pair < d_model // 2:
            raise ValueError(
                f"pairs holds {pair}, but d_model={d_model} has pairs 0 to"
                f" {d_model // 2 - 1}"
            )
    table = _array(sinusoidal_encoding(max(positions) + offset + 1, d_model))
    across, down = 2.6, 2.5
    with style():
        height = WIDTH / (across * len(pairs) + 2.2) * (down * len(positions) + 1.7)
        made, axes = blank(height)
        (ax,) = axes.flat
        ax.set_axis_off()
        ax.set_aspect("equal")
        for column, pair in enumerate(pairs):
            turn = offset * 10000 ** (-2 * pair / d_model)
            x = across * column
            ax.text(
                x,
                1.25,
                f"columns {2 * pair}, {2 * pair + 1}\nturned by {turn:.3g} rad",
                ha="center",
                va="bottom",
                fontsize=9.5,
            )
            for row, position in enumerate(positions):
                y = -down * row
                ax.add_patch(Circle((x, y), 1, fill=False, edgecolor=QUIET, lw=0.8))
                hands = table[[position, position + offset], 2 * pair : 2 * pair + 2]
                start = math.degrees(math.atan2(hands[0, 1], hands[0, 0]))
                ax.add_patch(
                    Wedge(
                        (x, y),
                        0.55,
                        start - math.degrees(turn),
                        start,
                        facecolor=FAINT,
                    )
                )
                # The later one below, so that the earlier stays in sight.
                for hand in (1, 0):
                    right, up = hands[hand]
                    ax.plot(
                        [x, x + right],
                        [y, y + up],
                        DASHES[hand],
                        color=COLOURS[hand],
                        marker=MARKERS[hand],
                        markevery=[1],
                    )
        for row, position in enumerate(positions):
            ax.text(
                -1.4,
                -down * row,
                f"{position} → {position + offset}",
                ha="right",
                va="center",
            )
        ax.set_xlim(-2.9, across * (len(pairs) - 1) + 1.1)
        ax.set_ylim(-down * (len(positions) - 1) - 1.1, 2.4)
    made.alt = (
        f"Clock hands for the pairs {', '.join(map(str, pairs))} at d_model"
        f" {d_model}, at the positions {', '.join(map(str, positions))} and {offset}"
        " later: within a column of clocks every hand turns by the same angle"
    )
    return made


def offset_products(
    d_model: int = 512, positions: Sequence[int] = (100, 150, 400), reach: int = 100
) -> Figure:
    """Dot products of encodings over their offset, and a closer look.

    Args:
        d_model: width of the encoding.
        positions: whose products are drawn; five at most.
        reach: the longest offset, to either side.

    Raises:
        ValueError: a position with no room on its left.
    """
    _at_most(len(COLOURS), len(positions), "positions")
    if min(positions) < reach:
        raise ValueError(
            f"positions holds {min(positions)}, but offsets go back by {reach}"
        )
    table = sinusoidal_encoding(max(positions) + reach + 1, d_model).double()
    offsets = np.arange(-reach, reach + 1)
    with style():
        made, axes = blank(columns=2, width_ratios=[3, 2])
        wide, close = axes[0]
        for index, position in enumerate(positions):
            near = table[position - reach : position + reach + 1]
            product = _array(near @ table[position])
            for ax, every in ((wide, 15), (close, 6)):
                ax.plot(offsets, product, color=QUIET, linestyle="-", linewidth=1)
                ax.plot(
                    offsets,
                    product,
                    MARKERS[index],
                    color=COLOURS[index],
                    markevery=(index * every // len(positions), every),
                    label=f"p = {position}",
                )
        later = product[reach:]
        rise = int(np.argmax(np.diff(later) > 0)) + 1
        shown = slice(max(rise - 12, 0), min(rise + 14, reach) + 1)
        close.set_xlim(shown.start, shown.stop - 1)
        close.set_ylim(later[shown].min() - 1, later[shown].max() + 1)
        close.axvline(rise, color=QUIET, linewidth=1, linestyle=(0, (2, 2)))
        close.annotate(
            f"k = {rise}",
            (rise, later[shown].max()),
            xytext=(4, -4),
            textcoords="offset points",
            fontsize=9,
        )
        close.set_title("closer: the first rise")
        wide.set_ylabel("PE(p) · PE(p + k)")
        wide.legend()
        for ax in (wide, close):
            ax.set_xlabel("offset k (positions)")
    made.alt = (
        "Dot product of the encodings of two positions over their offset, for"
        f" positions {', '.join(map(str, positions))} at d_model {d_model}: one curve"
        " for all, highest at offset 0, the same to both sides, with ripples on its"
        " way down"
    )
    return made


# --- helpers -----------------------------------------------------------


def _array(value: Any) -> np.ndarray:
    """Tensors of any device, lists and arrays."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() else value
        value = value.numpy()
    return np.asarray(value)


def _matrix(value: np.ndarray, name: str) -> np.ndarray:
    """Without leading axes of size 1."""
    while value.ndim > 2 and value.shape[0] == 1:
        value = value[0]
    if value.ndim != 2 or 0 in value.shape:
        raise ValueError(f"{name} of shape {value.shape} must be a matrix")
    return value


def _panels(value: Any, name: str) -> np.ndarray:
    array = _array(value)
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(
            f"{name} of shape {array.shape} must be (query, key) or"
            " (panel, query, key), such as weights[layer, batch]"
        )
    return array


def _fits(name: str, count: int, other: str, expected: int) -> None:
    if count != expected:
        raise ValueError(f"{name} counts {count}, but there are {expected} {other}")


def _at_most(most: int, count: int, what: str) -> None:
    if not 1 <= count <= most:
        raise ValueError(f"{count} {what}: 1 to {most} can be told apart")


def _for_each(tokens: Sequence, count: int) -> list[Sequence[str]]:
    """Labels for each mask, given once or for each."""
    return [tokens] * count if isinstance(tokens[0], str) else list(tokens)


def _cell(cells: int, taken: float) -> float:
    """Side of a cell in inches, so that a row of them fits the page."""
    return min(0.55, (WIDTH - taken) / cells)


def _heatmap(
    ax: Axes,
    values: np.ndarray,
    shades: Any,
    limits: tuple[float, float],
    rows: Sequence[str],
    columns: Sequence[str],
    **more: Any,
) -> None:
    """Square cells; labels where there are any.

    Seaborn draws the figure to see whether labels overlap: the layout
    had better come later, and the other axes stay out of it.
    """
    others = [other for other in ax.figure.axes if other is not ax]
    for other in others:
        other.set_visible(False)
    seaborn.heatmap(
        values,
        ax=ax,
        cmap=shades,
        vmin=limits[0],
        vmax=limits[1],
        square=True,
        cbar=False,
        xticklabels=[str(token) for token in columns] or False,
        yticklabels=[str(token) for token in rows] or False,
        **more,
    )
    for other in others:
        other.set_visible(True)
    ax.grid(False)
    ax.tick_params(length=0, pad=3)
    turn = any(len(str(token)) > 3 for token in columns)
    ax.tick_params(axis="x", labelrotation=90 if turn else 0)
    ax.tick_params(axis="y", labelrotation=0)


def _colour_bar(made: Figure, axes: np.ndarray, unit: str, image: Any = None) -> None:
    image = image or axes.flat[0].collections[0]
    bar = made.colorbar(image, ax=axes, aspect=24, shrink=0.9, pad=0.02)
    bar.set_label(unit)
    bar.outline.set_visible(False)


def _scale(ax: Axes, axis: Any, scale: str, x: np.ndarray) -> None:
    if scale == "linear":
        return
    base = 2 if scale == "log2" else 10
    setter = ax.set_xscale if axis is ax.xaxis else ax.set_yscale
    setter("log", base=base)
    if axis is ax.xaxis and len(x) <= 10:
        ax.set_xticks(x, [f"{value:g}" for value in x])
        ax.minorticks_off()
    elif base == 2:
        axis.set_major_formatter(lambda value, _: f"{value:g}")


def relations(
    tables: Sequence[Any],
    names: Sequence[str],
    down: Sequence[Sequence[str]] | Sequence[str],
    across: Sequence[Sequence[str]] | Sequence[str],
    *,
    holds: str,
    fails: str,
    down_label: str = "output",
    across_label: str = "input",
) -> Figure:
    """What was found of pairs, side by side; filled where it holds.

    Args:
        tables: each (down, across) of bool.
        names, down, across: as `mask_gallery` takes names and labels.
        holds, fails: what a filled and a crossed cell mean.
        down_label, across_label: of the axes.

    Raises:
        ValueError: naming the table and the axis that does not fit.
    """
    made = mask_gallery(tables, names, down, across)
    (legend,) = made.legends
    for text, meaning in zip(legend.get_texts(), (holds, f"×  {fails}"), strict=True):
        text.set_text(meaning)
    for index, ax in enumerate(made.axes):
        ax.set_xlabel(across_label)
        ax.set_ylabel(down_label if index == 0 else "")
    made.alt = (
        f"{len(names)} tables, {down_label} down and {across_label} across, a"
        f" filled cell means {holds}: {', '.join(names)}"
    )
    return made


def model_map() -> Figure:
    """Figure 1 of the paper, with the number of the chapter on each box."""
    embed = ("embedding + positions", "08 09", QUIET)
    norm = ("add and normalise", "03", QUIET)
    network = ("feed-forward", "07", "#009e73")
    encoder = [("self-attention", "04 05", ACCENT), norm, network, norm]
    decoder = [
        ("masked self-attention", "04 06", ACCENT),
        norm,
        ("attention to the memory", "06", "#d55e00"),
        norm,
        network,
        norm,
    ]
    with style():
        made, axes = blank(6.1, layout="none")
        (ax,) = axes.flat
        made.subplots_adjust(0, 0, 1, 1)
        ax.set(xlim=(0, 7), ylim=(0, 6.1))
        ax.set_axis_off()
        _stack(ax, 0.75, encoder, embed, "source", "encoder, N layers", -0.26)
        _stack(ax, 4.15, decoder, embed, "target so far", "decoder, N layers", 2.68)
        # From the encoder's last layer to the decoder's second attention.
        top, over, level = 3.38, 3.9, 1.1 + 0.62 * 2 + 0.21
        ax.plot(
            [1.75, 1.75, 3.62, 3.62], [top, over, over, level], "-", color=INK, lw=1.4
        )
        _arrow(ax, (3.62, level), (4.15, level))
        ax.text(2.68, over + 0.07, "memory", ha="center", va="bottom", size=9.5)
        _box(ax, 4.15, 5.02, "output projection", "08", QUIET)
        _arrow(ax, (5.15, 4.62), (5.15, 5.02))
        _arrow(ax, (5.15, 5.44), (5.15, 5.64))
        ax.text(5.15, 5.7, "logits: what comes next", ha="center", size=9.5)
    made.alt = (
        "Map of the model: source ids are embedded and pass N encoder layers of"
        " self-attention and feed-forward; their output, the memory, is read by"
        " N decoder layers of masked self-attention, attention to the memory"
        " and feed-forward, which end in logits; a chapter number on each box"
    )
    return made


def _stack(
    ax: Axes,
    x: float,
    boxes: list,
    embed: tuple,
    source: str,
    name: str,
    beside: float,
) -> None:
    """A column of boxes from the bottom up, framed above the first."""
    ax.text(x + 1, 0.06, source, ha="center", size=9.5)
    _arrow(ax, (x + 1, 0.2), (x + 1, 0.3))
    _box(ax, x, 0.3, *embed)
    for index, box in enumerate(boxes):
        y = 1.1 + 0.62 * index
        _arrow(ax, (x + 1, y - (0.38 if index == 0 else 0.2)), (x + 1, y))
        _box(ax, x, y, *box)
        if index % 2 == 0:  # the residual connection around it
            side, below, above = x + 2.22, y - 0.12, y + 0.83
            ax.plot([x + 1, side], [below, below], "-", color=QUIET, lw=1)
            ax.plot([side, side], [below, above], "-", color=QUIET, lw=1)
            _arrow(ax, (side, above), (x + 2.0, above), colour=QUIET, width=1)
    height = 0.62 * len(boxes) + 0.14
    frame = FancyBboxPatch(
        (x - 0.16, 0.9), 2.58, height, boxstyle="round,pad=0,rounding_size=0.1"
    )
    frame.set(facecolor="none", edgecolor=QUIET, linestyle=(0, (3, 2)), linewidth=1)
    ax.add_patch(frame)
    turned = dict(rotation=90, ha="right", va="center", size=9.5)
    ax.text(x + beside, 0.9 + height / 2, name, **turned)


def _box(ax: Axes, x: float, y: float, name: str, chapters: str, colour: str) -> None:
    box = FancyBboxPatch((x, y), 2.0, 0.42, boxstyle="round,pad=0,rounding_size=0.06")
    box.set(facecolor=CARD, edgecolor=colour, linewidth=1.5)
    ax.add_patch(box)
    ax.text(x + 0.1, y + 0.21, name, va="center", size=9)
    ax.text(
        x + 1.93, y + 0.21, chapters, va="center", ha="right", size=7.5, color=QUIET
    )


def _arrow(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str = INK,
    width: float = 1.4,
) -> None:
    look = dict(arrowstyle="-|>", mutation_scale=9, color=colour, linewidth=width)
    ax.annotate("", end, start, arrowprops={**look, "shrinkA": 0, "shrinkB": 0})


def norm_places() -> Figure:
    """Where the norm stands: after the sum, and before the sub-layer."""
    post = ("sub-layer", "+", "LayerNorm")
    pre = ("LayerNorm", "sub-layer", "+")
    with style():
        made, axes = blank(2.9, layout="none")
        (ax,) = axes.flat
        made.subplots_adjust(0, 0, 1, 1)
        ax.set(xlim=(0, 7), ylim=(0, 2.9))
        ax.set_axis_off()
        _connection(
            ax, 1.75, post, "post-norm, as printed", "LayerNorm(x + Sublayer(x))"
        )
        _connection(ax, 0.3, pre, "pre-norm", "x + Sublayer(LayerNorm(x))")
    made.alt = (
        "Two drawings of a residual connection around a sub-layer. Post-norm, as"
        " printed: x goes through the sub-layer, x is added, LayerNorm stands on the"
        " way of the sum. Pre-norm: LayerNorm stands before the sub-layer, and the"
        " way of x past both is free"
    )
    return made


def _connection(
    ax: Axes, y: float, parts: Sequence[str], name: str, formula: str
) -> None:
    """One residual connection from left to right, x passing below."""
    middle, low, x = y + 0.32, y - 0.08, 0.75
    title = dict(va="center", size=10)
    ax.text(0.2, y + 0.82, name, fontweight="bold", **title)
    ax.text(6.8, y + 0.82, formula, ha="right", color=QUIET, **title)
    ax.text(0.3, middle, "x", ha="center", va="center", size=11)
    fork = 0.6
    ax.plot([0.42, x], [middle, middle], "-", color=INK, lw=1.4)
    ax.plot(fork, middle, "o", color=COLOURS[1], ms=5, zorder=3)
    for part in parts:
        if part == "+":
            _arrow(ax, (x, middle), (x + 0.32, middle))
            centre = x + 0.48
            ax.add_patch(Circle((centre, middle), 0.16, fc=CARD, ec=INK, lw=1.4))
            ax.text(centre, middle, "+", ha="center", va="center", size=12)
            path = ([fork, fork, centre, centre], [middle, low, low, middle - 0.34])
            ax.plot(*path, "-", color=COLOURS[1], lw=2.2)
            end = (centre, middle - 0.16)
            _arrow(ax, (centre, middle - 0.35), end, colour=COLOURS[1], width=2.2)
            x = centre + 0.16
            continue
        _arrow(ax, (x, middle), (x + 0.4, middle))
        norm = part == "LayerNorm"
        box = FancyBboxPatch(
            (x + 0.4, middle - 0.22),
            1.4,
            0.44,
            boxstyle="round,pad=0,rounding_size=0.06",
        )
        box.set(facecolor=CARD, edgecolor=ACCENT if norm else QUIET, linewidth=1.5)
        ax.add_patch(box)
        ax.text(x + 1.1, middle, part, ha="center", va="center", size=10)
        x += 1.8
    _arrow(ax, (x, middle), (6.6, middle))


def by_layer(
    panels: Mapping[str, Mapping[str, Any]],
    *,
    ylabel: str,
    yscale: str = "linear",
    xlabel: str = "layer",
) -> Figure:
    """A number for each layer of a stack, with a band over seeds.

    Args:
        panels: from titles to lines; a line's name to (layers,) or
            (seeds, layers). Panels may have unequally many layers and
            share one vertical axis.
        ylabel: with its unit.
        yscale: "linear" or "log".
        xlabel: what is counted from 1.

    Raises:
        ValueError: more lines in a panel than can be told apart.
    """
    seeds = 1
    with style():
        made, axes = blank(3.3, 1, len(panels), sharey=True)
        for ax, (title, values) in zip(axes[0], panels.items(), strict=True):
            _at_most(len(COLOURS), len(values), "lines")
            for index, (name, measured) in enumerate(values.items()):
                runs = np.atleast_2d(_array(measured))
                layers = np.arange(1, runs.shape[1] + 1)
                seeds = max(seeds, len(runs))
                colour = COLOURS[index]
                look = dict(color=colour, linestyle=DASHES[index])
                every = max(1, len(layers) // 9)
                ax.plot(
                    layers,
                    runs.mean(0),
                    marker=MARKERS[index],
                    markevery=every,
                    label=name,
                    **look,
                )
                if len(runs) > 1:
                    ax.fill_between(
                        layers,
                        runs.min(0),
                        runs.max(0),
                        color=colour,
                        alpha=0.18,
                        linewidth=0,
                    )
            ax.set_title(title)
            ax.set_xlabel(xlabel)
            ax.xaxis.set_major_locator(MaxNLocator(7, integer=True, min_n_ticks=2))
            ax.set_yscale(yscale)
        axes[0, 0].set_ylabel(ylabel)
        handles = axes[0, 0].get_legend_handles_labels()
        note = f"band: lowest to highest of {seeds} seeds" if seeds > 1 else None
        made.legend(
            *handles,
            loc="outside upper left",
            ncols=len(handles[0]),
            title=note,
            title_fontsize=9,
            alignment="left",
        )
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    made.alt = (
        f"{ylabel} for each {xlabel}: {', '.join(names)}; in panels for"
        f" {', '.join(panels)}"
    )
    return made


# --- heads ---------------------------------------------------------------

# A light shade for each token, apart in grey as well.
BLOCKS = ("#9fc9e3", "#f6d9a8", "#5b9dc6", "#fdf3e1", "#c9cdd2")


def head_blocks(
    numbered: Any, cuts: Mapping[str, Any], tokens: Sequence[str]
) -> Figure:
    """Where the entries of a table go when it is cut into heads.

    Args:
        numbered: (token, width), its entries numbered from 0 on, row
            by row, so that a number says where it came from.
        cuts: from titles to the same entries, (heads, row, column).
        tokens: a label for each row of the table, five at most.

    Raises:
        ValueError: naming the axis whose size does not fit.
    """
    table = _matrix(_array(numbered), "numbered")
    rows, width = table.shape
    _fits("tokens", len(tokens), "rows of numbered", rows)
    _at_most(len(BLOCKS), rows, "tokens")
    parts = {title: _panels(cut, f"cuts[{title!r}]") for title, cut in cuts.items()}
    cells = sum(len(cut) * (cut.shape[2] + 0.5) + 1 for cut in parts.values()) - 1.5
    side = (WIDTH - 0.2) / cells
    below = max(cut.shape[1] for cut in parts.values())
    with style():
        made, axes = blank((rows + below) * side + 1.5, layout="none")
        (ax,) = axes.flat
        made.subplots_adjust(0, 0, 1, 1)
        ax.set(xlim=(0, WIDTH), ylim=((rows + below) * side + 1.5, 0))
        ax.set_axis_off()
        left = (WIDTH - width * side) / 2
        ax.text(left, 0.3, "one row a token: (length, d_model)")
        _blocks(ax, left, 0.4, side, table, width)
        for row, token in enumerate(tokens):
            place = (left - 0.1, 0.4 + (row + 0.5) * side)
            ax.text(*place, token, ha="right", va="center", size=9.5)
        left, top = 0.1, 0.4 + rows * side + 0.9
        for title, cut in parts.items():
            ax.text(left, top - 0.38, title)
            for head, entries in enumerate(cut):
                ax.text(left, top - 0.1, f"head {head + 1}", size=9, color=QUIET)
                _blocks(ax, left, top, side, entries, width)
                left += (cut.shape[2] + 0.5) * side
            left += side
    made.alt = (
        f"A table of {rows} tokens by {width} numbered entries, a colour for each"
        f" token, and below it what becomes of the entries: {'; '.join(parts)}"
    )
    return made


def _blocks(
    ax: Axes, left: float, top: float, side: float, entries: np.ndarray, width: int
) -> None:
    """A table of entries, each in the colour of the row it came from."""
    for (row, column), entry in np.ndenumerate(entries):
        x, y = left + column * side, top + row * side
        colour = BLOCKS[int(entry) // width]
        ax.add_patch(
            Rectangle((x, y), side, side, facecolor=colour, edgecolor=CARD, lw=1.2)
        )
        middle = (x + side / 2, y + side / 2)
        ax.text(*middle, f"{entry:.0f}", ha="center", va="center", size=8.5)


def multi_head_steps(attention: Any, x: Any, tokens: Sequence[str]) -> Figure:
    """Figure 2, right, with its numbers: from Linear to Linear.

    Args:
        attention: a `MultiHeadAttention`.
        x: (1, token, d_model): queries, keys and values are made of it.
        tokens: a label for each.

    Raises:
        ValueError: there are not as many tokens as labels.
    """
    _fits("tokens", len(tokens), "rows of x", x.size(1))
    q, k, v = (
        attention.split_heads(project(x)).detach()
        for project in (
            attention.project_query,
            attention.project_key,
            attention.project_value,
        )
    )
    done = attention.attend(q, k, v).detach()
    joined = attention.merge_heads(done).detach()
    output = attention.project_output(joined).detach()
    columns = {
        "1  Linear: queries": q,
        "1  Linear: keys": k,
        "1  Linear: values": v,
        "2  Attention": done,
    }
    heads = done.size(1)
    down = len(tokens) * 0.36 + 0.28
    with style():
        made, _ = blank((heads + 1) * down + 0.7, layout="none")
        made.clear()
        grid = made.add_gridspec(heads + 1, len(columns))
        for across, (title, tables) in enumerate(columns.items()):
            most = float(tables.abs().max())
            for head in range(heads):
                ax = made.add_subplot(grid[head, across])
                names = () if across else tokens
                _numbers(ax, tables[0, head], most, names, ())
                ax.set_title("" if head else title)
                ax.set_ylabel("" if across else f"head {head + 1}")
        left = made.add_subplot(grid[heads, :2])
        right = made.add_subplot(grid[heads, 2:])
        most = float(joined.abs().max())
        width = range(1, joined.size(-1) + 1)
        _numbers(left, joined[0], most, tokens, width)
        for head in range(1, heads):
            left.axvline(head * done.size(-1), color=INK, linewidth=1.6)
        left.set_title("3  Concat: head 1 | head 2" if heads == 2 else "3  Concat")
        left.set_ylabel("all heads")
        width = range(1, output.size(-1) + 1)
        _numbers(right, output[0], float(output.abs().max()), (), width)
        right.set_title("4  Linear: times $W^O$")
        for ax in (left, right):
            ax.set_xlabel("column")
        for ax in made.axes:
            _legible(ax)
        made.set_layout_engine("compressed")
    made.alt = (
        f"Tables for {len(tokens)} tokens, blue above 0 and orange below: for each"
        f" of {heads} heads queries, keys, values and what attention makes of them;"
        " below, the heads' outputs side by side, and these times W^O"
    )
    return made


def _legible(ax: Axes) -> None:
    """Digits dark or white, whichever stands out more from their cell.

    Seaborn writes white from a middle tone on, where dark is clearer.
    """
    (cells,) = ax.collections
    dark = seaborn.utils.relative_luminance(INK) + 0.05
    for text, colour in zip(ax.texts, cells.get_facecolors(), strict=True):
        ground = seaborn.utils.relative_luminance(colour) + 0.05
        text.set_color("white" if 1.05 / ground > ground / dark else INK)


def _numbers(
    ax: Axes, table: Any, most: float, rows: Sequence[str], columns: Sequence
) -> None:
    """A table of signed numbers with one digit after the point."""
    values = _array(table)
    words = [f"{value + 0.0:.1f}".replace("-", "−") for value in values.round(1).flat]
    _heatmap(
        ax,
        values,
        SIGNED,
        (-most, most),
        rows,
        columns,
        annot=np.reshape(words, values.shape),
        fmt="",
        annot_kws={"size": 8},
        linewidths=0.6,
        linecolor=CARD,
    )


def tables(
    panels: Mapping[str, Any],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    row_label: str = "token",
    column_label: str = "component",
    across: int = 2,
    signed: bool = True,
) -> Figure:
    """Small tables with their numbers, in one set of shades.

    Args:
        panels: from titles to tables, each (rows, columns).
        rows, columns: their labels.
        row_label, column_label: what the labels are.
        across: tables side by side.
        signed: blue above 0 and orange below; else light for 0 and
            dark for large.

    Raises:
        ValueError: naming the table and the axis that does not fit.
    """
    shown = {name: _matrix(_array(table), name) for name, table in panels.items()}
    for name, table in shown.items():
        _fits("rows", len(rows), f"rows of {name!r}", table.shape[0])
        _fits("columns", len(columns), f"columns of {name!r}", table.shape[1])
    most = max(float(np.abs(table).max()) for table in shown.values())
    across = min(across, len(shown))
    down = math.ceil(len(shown) / across)
    with style():
        height = down * (len(rows) * 0.36 + 0.75) + 0.2
        made, axes = blank(height, down, across, layout="none")
        for ax in axes.flat[len(shown) :]:
            ax.set_axis_off()
        for index, (ax, (name, table)) in enumerate(
            zip(axes.flat, shown.items(), strict=False)
        ):
            left = index % across == 0
            labels = rows if left else ()
            if signed:
                _numbers(ax, table, most, labels, columns)
            else:
                _heatmap(
                    ax,
                    table,
                    SHADES,
                    (0, most),
                    labels,
                    columns,
                    annot=True,
                    fmt=".2f",
                    annot_kws={"size": 9},
                    linewidths=0.6,
                    linecolor=CARD,
                )
                ax.set_aspect("auto")
                ax.tick_params(axis="x", labelrotation=0)
            ax.set_title(name)
            ax.set_xlabel(column_label if index + across >= len(shown) else "")
            ax.set_ylabel(row_label if left else "")
        made.set_layout_engine("constrained" if not signed else "compressed")
    colours = "blue above 0, orange below" if signed else "the darker, the larger"
    named = "; ".join(name for name in shown if name)
    made.alt = (
        f"{len(shown)} tables of numbers, {colours}, {row_label} down"
        f" ({', '.join(map(str, rows))}) and {column_label} across"
        f"{': ' if named else ''}{named}"
    )
    return made


def dependency_graphs(graphs: Mapping[str, Mapping[str, Sequence[str]]]) -> Figure:
    """What is computed from what, side by side; one way from x1 to the end.

    Args:
        graphs: from names to graphs. A graph says of each step, such
            as "h2", what it is computed from, such as ["x2", "h1"].
            The letter is the row, from the bottom up, and the number
            the column. Steps stand after those that they need.
    """
    with style():
        made, axes = blank(2.3, 1, len(graphs), layout="none")
        made.subplots_adjust(0.01, 0.02, 0.99, 0.87, wspace=0.06)
        for ax, (name, needs) in zip(axes.flat, graphs.items(), strict=True):
            steps = [*dict.fromkeys(sum(needs.values(), [])), *needs]
            rows = list(dict.fromkeys(sorted((s[0] for s in steps), key="xabhy".find)))
            place = {s: (int(s[1:]), 1.5 * rows.index(s[0])) for s in steps}
            way = _way("x1", list(needs)[-1], needs)
            for step, earlier in needs.items():
                for other in earlier:
                    marked = (other, step) in way
                    _edge(ax, place[other], place[step], marked)
            for step, (x, y) in place.items():
                on_it = any(step in edge for edge in way)
                ax.add_patch(
                    Circle(
                        (x, y),
                        0.3,
                        facecolor=ACCENT if on_it else CARD,
                        edgecolor=ACCENT if on_it else QUIET,
                        linewidth=1.2,
                        zorder=3,
                    )
                )
                letters = f"{step[0]}$_{step[1:]}$"
                ax.text(
                    *(x, y - 0.02),
                    letters,
                    ha="center",
                    va="center",
                    size=9.5,
                    color=CARD if on_it else INK,
                    zorder=4,
                )
            arrows = "1 arrow" if len(way) == 1 else f"{len(way)} arrows"
            ax.set_title(f"{name}: {arrows}", loc="center")
            columns = max(x for x, _ in place.values())
            ax.set(xlim=(0.5, columns + 0.5), ylim=(-0.4, 3.4), aspect="equal")
            ax.set_axis_off()
    made.alt = (
        f"{len(graphs)} graphs of what is computed from what, the way from the"
        f" first input to the last output marked: {', '.join(graphs)}"
    )
    return made


def _way(start: str, end: str, needs: Mapping) -> list[tuple[str, str]]:
    """The arrows of a shortest way from start to end."""
    ways: dict[str, list] = {start: []}
    for step, earlier in needs.items():
        reached = [[*ways[other], (other, step)] for other in earlier if other in ways]
        if reached:
            ways[step] = min(reached, key=len)
    return ways[end]


def _edge(ax: Axes, start: tuple, end: tuple, marked: bool) -> None:
    look = dict(arrowstyle="-|>", mutation_scale=7, shrinkA=8.5, shrinkB=8.5)
    look |= dict(color=ACCENT, linewidth=2.0) if marked else {}
    look = dict(color="#a9b1ba", linewidth=0.9) | look
    ax.annotate("", end, start, arrowprops=look, zorder=2 if marked else 1)


# --- text and batches ----------------------------------------------------


def pieces(rows: Mapping[str, Sequence[Sequence[str]]], *, label: str) -> Figure:
    """Words cut into pieces, a row for each way to cut them.

    Args:
        rows: from the name of a row to the words, each a list of its
            pieces. All rows cut the same words.
        label: what the names of the rows are.

    Raises:
        ValueError: a row with another number of words.
    """
    first = next(iter(rows.values()))
    words = ["".join(parts) for parts in first]
    starts = np.cumsum([0, *(len(word) + 1.5 for word in words)])
    with style():
        made, axes = blank(0.36 * len(rows) + 0.6)
        (ax,) = axes.flat
        for y, (name, cut) in enumerate(rows.items()):
            _fits(f"rows[{name!r}]", len(cut), "words", len(words))
            for x, parts in zip(starts, cut, strict=False):
                for part in parts:
                    box = FancyBboxPatch(
                        (x + 0.08, y - 0.33),
                        len(part) - 0.16,
                        0.66,
                        boxstyle="round,pad=0,rounding_size=0.12",
                        mutation_aspect=0.5,
                        facecolor="#dcebf5",
                        edgecolor=ACCENT,
                        linewidth=0.9,
                    )
                    ax.add_patch(box)
                    ax.text(
                        *(x + len(part) / 2, y),
                        part,
                        family="monospace",
                        ha="center",
                        va="center_baseline",
                        size=8.5,
                    )
                    x += len(part)
        ax.set(xlim=(-0.3, starts[-1] - 1.2), ylim=(len(rows) - 0.4, -0.6))
        ax.set_yticks(range(len(rows)), list(rows))
        ax.set_ylabel(label)
        ax.set_xticks([])
        ax.tick_params(length=0)
        ax.grid(False)
        ax.spines[:].set_visible(False)
    made.alt = (
        f"The words {', '.join(word.strip('▁') for word in words)} cut into"
        f" pieces, a row for each {label}: {', '.join(rows)}"
    )
    return made


def histogram(
    values: Mapping[str, Any],
    *,
    label: str,
    bin_width: float = 1.0,
    marks: Mapping[str, float] | None = None,
    start: float = 0.0,
) -> Figure:
    """How often which number comes, as outlines over each other.

    Args:
        values: from names to numbers; five at most.
        label: of the numbers, with their unit.
        bin_width: of the bins, which begin at `start`.
        marks: from words to where they stand on the axis.
        start: where the axis begins.
    """
    _at_most(len(COLOURS), len(values), "outlines")
    given = {name: _array(numbers) for name, numbers in values.items()}
    highest = max(numbers.max() for numbers in given.values())
    edges = np.arange(start, highest + bin_width + 1e-9, bin_width)
    marks = marks or {}
    with style():
        made, axes = blank()
        (ax,) = axes.flat
        for index, (name, numbers) in enumerate(given.items()):
            share = np.histogram(numbers, edges)[0] / len(numbers)
            ax.stairs(
                share,
                edges,
                color=COLOURS[index],
                linestyle=DASHES[index],
                linewidth=1.6,
                label=name,
            )
            if index == 0:
                ax.stairs(share, edges, color=COLOURS[0], alpha=0.13, fill=True)
        end = max([edges[-1], *(1.06 * at for at in marks.values())])
        ax.set(xlim=(start, end), ylim=(0, None))
        for words, at in marks.items():
            ax.axvline(at, color=INK, linewidth=1.1, linestyle=(0, (2, 2)))
            ax.annotate(
                words,
                (at, 1),
                xycoords=("data", "axes fraction"),
                xytext=(-4, -2),
                textcoords="offset points",
                rotation=90,
                ha="right",
                va="top",
                size=9.5,
            )
        ax.set_xlabel(label)
        ax.set_ylabel("share of all")
        if len(given) > 1:
            made.legend(loc="outside upper left", ncols=len(given))
    made.alt = f"Histogram of {label}: {', '.join(given)}" + (
        f"; marked: {', '.join(marks)}" if marks else ""
    )
    return made


def batch_blocks(batches: Mapping[str, Sequence[Sequence[int]]]) -> Figure:
    """Batches as blocks: a row for each sequence, padding hatched.

    Args:
        batches: from the name of a row of blocks to its batches, each
            the lengths of its sequences.
    """
    gap = 2
    rows = {name: [list(map(int, b)) for b in row] for name, row in batches.items()}
    widths = [sum(max(b) + gap for b in row) - gap for row in rows.values()]
    heights = [max(map(len, row)) for row in rows.values()]
    unit = min(0.16, (WIDTH - 0.4) / max(widths))
    with style():
        height = unit * sum(heights) + 0.5 * len(rows) + 0.35
        made = Figure(figsize=(WIDTH, height))
        FigureCanvasAgg(made)
        top = height - 0.36
        for (name, row), tall, wide in zip(rows.items(), heights, widths, strict=True):
            place = (0.15, top - unit * tall, unit * wide, unit * tall)
            ax = made.add_axes(
                (
                    place[0] / WIDTH,
                    place[1] / height,
                    place[2] / WIDTH,
                    place[3] / height,
                )
            )
            left = 0
            for lengths in row:
                columns = max(lengths)
                for y, length in enumerate(lengths):
                    at = (y + 0.06, 0.88)
                    ax.broken_barh([(left, length)], at, facecolor=ACCENT)
                    ax.broken_barh(
                        [(left + length, columns - length)],
                        at,
                        facecolor="#eceff1",
                        edgecolor="#9aa3ad",
                        hatch="/////",
                        linewidth=0,
                    )
                left += columns + gap
            ax.set(xlim=(0, wide), ylim=(tall, 0))
            ax.set_axis_off()
            made.text(0.15 / WIDTH, (top + 0.08) / height, name, size=10.5)
            top -= unit * tall + 0.5
        token = Patch(facecolor=ACCENT, label="token")
        padding = Patch(
            facecolor="#eceff1", edgecolor="#9aa3ad", hatch="/////", label="padding"
        )
        made.legend(
            handles=[token, padding],
            loc="lower left",
            bbox_to_anchor=(0.1 / WIDTH, 0.0),
            ncols=2,
            borderaxespad=0.2,
        )
    made.alt = (
        "Batches as blocks, a row for each sequence, tokens filled and padding"
        f" hatched: {'; '.join(rows)}"
    )
    return made


def dropout_places(counts: Mapping[str, int], rate: float) -> Figure:
    """The ways through the model, and where dropout was found on them.

    Args:
        counts: dropouts of one pass, from the five places of
            `bookkit.regularization` to numbers.
        rate: that all of them have.
    """
    rows = {
        "embedding": ("look up", "+ positions", "embedding sums"),
        "attention": (
            "scores, softmax",
            "attention weights",
            "values V, $W^O$",
            "attention output",
            "+",
        ),
        "feed-forward": (
            "W₁, ReLU",
            "inside feed-forward",
            "W₂",
            "feed-forward output",
            "+",
        ),
    }
    with style():
        made, axes = blank(4.0, layout="none")
        (ax,) = axes.flat
        made.subplots_adjust(0, 0, 1, 1)
        ax.set(xlim=(0, 7), ylim=(0, 4.0))
        ax.set_axis_off()
        for index, (name, stops) in enumerate(rows.items()):
            y = 3.35 - 1.3 * index
            ax.text(0.15, y + 0.4, name, fontweight="bold", size=10)
            start = "x" if "+" in stops else "ids"
            ax.text(0.27, y, start, ha="center", va="center", size=10.5)
            x = 0.42
            for stop in stops:
                if stop in counts:
                    x = _dropout(ax, x, y, counts[stop], rate)
                elif stop == "+":
                    x = _sum(ax, x, y, fork=0.5, low=y - 0.6)
                    x = _way_box(ax, x, y, "LayerNorm", 1.02, ACCENT)
                else:
                    x = _way_box(ax, x, y, stop, 1.26, QUIET)
            _arrow(ax, (x, y), (x + 0.3, y))
            if "+" not in stops:
                ax.text(x + 0.38, y, "first layer", va="center", size=10)
    places = {
        "found": [name for name, count in counts.items() if count],
        "not found": [name for name, count in counts.items() if not count],
    }
    said = "; ".join(f"{key}: {', '.join(names)}" for key, names in places.items())
    made.alt = (
        "Three ways from left to right, embedding, attention and feed-forward,"
        " with a filled dot where dropout was found and an empty one where it was"
        f" not, before x is added and the sum normalised; {said}"
    )
    return made


def _way_box(
    ax: Axes, x: float, y: float, name: str, width: float, colour: str
) -> float:
    """An arrow and a box; where the box ends."""
    _arrow(ax, (x, y), (x + 0.2, y))
    box = FancyBboxPatch(
        (x + 0.2, y - 0.2), width, 0.4, boxstyle="round,pad=0,rounding_size=0.06"
    )
    box.set(facecolor=CARD, edgecolor=colour, linewidth=1.5)
    ax.add_patch(box)
    middle = x + 0.2 + width / 2
    ax.text(middle, y, name, ha="center", va="center", size=9.5)
    return x + 0.2 + width


def _dropout(ax: Axes, x: float, y: float, count: int, rate: float) -> float:
    """An arrow and a dot, filled if there is dropout; where it ends."""
    _arrow(ax, (x, y), (x + 0.2, y))
    colour = COLOURS[1] if count else QUIET
    dot = Circle((x + 0.34, y), 0.14, ec=colour, lw=1.5)
    dot.set(facecolor=colour if count else CARD, linestyle="-" if count else ":")
    ax.add_patch(dot)
    says = f"{count} × {rate:g}" if count else "none"
    look = dict(color=INK if count else QUIET, size=9.5)
    if count:
        look["fontweight"] = "bold"
    ax.text(x + 0.34, y - 0.3, says, ha="center", va="center", **look)
    return x + 0.48


def _sum(ax: Axes, x: float, y: float, *, fork: float, low: float) -> float:
    """An arrow and a plus, to which what forked off comes from below."""
    _arrow(ax, (x, y), (x + 0.2, y))
    centre = x + 0.34
    ax.add_patch(Circle((centre, y), 0.14, fc=CARD, ec=INK, lw=1.4))
    ax.text(centre, y, "+", ha="center", va="center", size=11)
    ax.plot(fork, y, "o", color=QUIET, ms=4, zorder=3)
    way = ([fork, fork, centre, centre], [y, low, low, y - 0.3])
    ax.plot(*way, "-", color=QUIET, lw=1.2)
    _arrow(ax, (centre, y - 0.31), (centre, y - 0.14), colour=QUIET, width=1.2)
    return x + 0.48


def confidence_curve(
    losses: Mapping[str, Any],
    probability: Any,
    *,
    ylabel: str = "loss (nats)",
) -> Figure:
    """Loss against what the gold token is given; a ring at the minimum.

    Args:
        losses: from names to (points,); five at most.
        probability: (points,), of the gold token, between 0 and 1.
        ylabel: of the losses, with their unit.
    """
    _at_most(len(COLOURS), len(losses), "lines")
    x = _array(probability)
    with style():
        made, axes = blank()
        (ax,) = axes.flat
        for index, (name, loss) in enumerate(losses.items()):
            loss = _array(loss)
            _fits(f"losses[{name!r}]", len(loss), "probabilities", len(x))
            look = dict(color=COLOURS[index], clip_on=False)
            ax.plot(x, loss, linestyle=DASHES[index], label=name, **look)
            best = int(loss.argmin())
            if 0 < best < len(x) - 1:
                ax.plot(x[best], loss[best], "o", mfc=CARD, mew=1.8, ms=8, **look)
        ax.set_xscale("logit")
        ticks = [0.1, 0.5, 0.9, 0.99, 0.999, 0.9999]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        ax.set_xlim(x[0], x[-1])
        ax.set_ylim(0, None)
        ax.set_xlabel("probability given to the gold token")
        ax.set_ylabel(ylabel)
        ax.legend()
    made.alt = (
        f"{ylabel} over the probability of the gold token, stretched towards 1:"
        f" {', '.join(losses)}; a ring at each lowest point inside"
    )
    return made


def reliability(curves: Mapping[str, Any], *, least: int = 1) -> Figure:
    """Share of tokens that are right against how sure the model was.

    Args:
        curves: from names to (seeds, bins, 3): mean confidence,
            accuracy and number of tokens of each bin. A bin without
            tokens is left out.
        least: tokens that a dot must stand for.
    """
    _at_most(len(COLOURS), len(curves), "lines")
    with style():
        made, axes = blank(4.3)
        (ax,) = axes.flat
        ax.plot([0, 1], [0, 1], color=QUIET, lw=1, ls=(0, (2, 2)), label="just right")
        for index, (name, table) in enumerate(curves.items()):
            table = _array(table)
            sure, right, tokens = table[..., 0], table[..., 1], table[..., 2]
            look = dict(color=COLOURS[index], marker=MARKERS[index])
            shown = tokens >= least
            each = dict(ls="", ms=4, alpha=0.35, mew=0, clip_on=False)
            ax.plot(sure[shown], right[shown], **look, **each)
            total = tokens.sum(0)
            kept = total >= least
            middle = [
                (part * tokens).sum(0)[kept] / total[kept] for part in (sure, right)
            ]
            ax.plot(*middle, **look, ls=DASHES[index], label=name, clip_on=False)
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        ax.set_xlabel("confidence (largest probability)")
        ax.set_ylabel("accuracy (share right)")
        ax.legend(loc="upper left", bbox_to_anchor=(1.02, 1))
    made.alt = (
        "Accuracy over confidence in bins, a small mark for each seed and a line"
        f" through all: {', '.join(curves)}; the diagonal is just right"
    )
    return made
