"""Explorers: drawings with controls, for a page without a kernel.

    from bookkit import explorers

    explorers.positions()

What an explorer shows is HTML with its own style and script: nothing
is loaded, and nothing runs in Python when a slider moves. Where no
scripts run, as in a notebook that is not trusted, a table and a line
that says so are left. `explorer/` holds the styles and the scripts.

Another explorer needs a file beside `explorer/positions.js`, and a
function here that calls `_explorer` with its controls and its table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from transformer.positional_encoding import sinusoidal_encoding
from transformer.training import noam_rate


@dataclass(frozen=True)
class Slider:
    """One number to choose: from `low` to `high`, in steps."""

    name: str  # by which the script knows it
    label: str
    low: float
    high: float
    value: float
    step: float = 1

    def __post_init__(self) -> None:
        steps = (self.value - self.low) / self.step
        if not self.low <= self.value <= self.high or steps % 1:
            raise ValueError(
                f"{self.name}={self.value} must be from {self.low} to"
                f" {self.high}, in steps of {self.step}"
            )

    def __str__(self) -> str:
        return f"{self.label} {self.value} ({self.low} to {self.high})"

    @property
    def html(self) -> str:
        return (
            f"<label><span>{escape(self.label)}</span>"
            f'<input type="range" name="{self.name}" min="{self.low}"'
            f' max="{self.high}" step="{self.step}" value="{self.value}">'
            f'<b aria-hidden="true">{self.value}</b></label>'
        )


@dataclass(frozen=True)
class Choice:
    """One of several options: value -> what is shown."""

    name: str
    label: str
    options: Mapping[Any, str]
    value: Any

    def __post_init__(self) -> None:
        _one_of(self.name, self.value, self.options)

    def __str__(self) -> str:
        return f"{self.label} {self.options[self.value]}"

    @property
    def html(self) -> str:
        options = "".join(
            f'<option value="{value}"{" selected" * (value == self.value)}>'
            f"{escape(shown)}</option>"
            for value, shown in self.options.items()
        )
        return (
            f"<label><span>{escape(self.label)}</span>"
            f'<select name="{self.name}">{options}</select></label>'
        )


@dataclass(frozen=True)
class Ticks:
    """Numbers from 1 to tick, each in its own colour, and one for all."""

    name: str
    label: str
    count: int
    ticked: Sequence[int]

    def __post_init__(self) -> None:
        if not self.ticked:
            raise ValueError(f"{self.label}=[] must name one at least")
        for number in self.ticked:
            _one_of(self.label, number, range(1, self.count + 1))

    def __str__(self) -> str:
        return f"{self.label} {', '.join(map(str, self.ticked))} of {self.count}"

    @property
    def html(self) -> str:
        boxes = "".join(
            f'<label style="--of:var(--ex-{self.name}-{(number - 1) % 8})">'
            f'<input type="checkbox" name="{self.name}" value="{number}"'
            f"{' checked' * (number in self.ticked)}>{number}</label>"
            for number in range(1, self.count + 1)
        )
        return (
            f'<div class="explorer-choices" role="group" aria-label="{self.label}">'
            f'<span aria-hidden="true">{self.label}</span>{boxes}<label>'
            f'<input type="checkbox" name="all"'
            f"{' checked' * (len(set(self.ticked)) == self.count)}>all</label></div>"
        )


@dataclass(frozen=True)
class Explorer:
    """HTML, and a text that says the same; shown by a notebook."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


def positions(d_model: int = 16, position: int = 5, offset: int = 3) -> Explorer:
    """The encoding of two positions, as clock hands, waves and columns.

    Args:
        d_model: width to start from; even, 4 to 128.
        position: to start from, 0 to 100.
        offset: from there to the other position, 0 to 50.

    Raises:
        ValueError: naming the argument, its value and the rule.
    """
    sliders = [
        Slider("d_model", "d_model", 4, 128, d_model, step=2),
        Slider("position", "position", 0, 100, position),
        Slider("offset", "offset to another", 0, 50, offset),
    ]
    columns = min(d_model, 16)
    table = sinusoidal_encoding(10, d_model)[:, :columns]
    return _explorer(
        "positions",
        "Positions as clock hands",
        sliders,
        caption=f"Encoding of positions 0 to 9 at d_model {d_model}"
        + (f", first {columns} columns" if columns < d_model else ""),
        header=["position", *map(str, range(columns))],
        rows=[
            [str(row), *(_minus(f"{value:.3f}") for value in values)]
            for row, values in enumerate(table.tolist())
        ],
    )


def learning_rate(d_model: int = 512, warmup: int = 4000) -> Explorer:
    """Equation 3 and its peak, beside the base model's.

    Args:
        d_model: width to start from; 64 to 2048, in steps of 64.
        warmup: steps of warm-up, 100 to 16000, in steps of 100.

    Raises:
        ValueError: naming the argument, its value and the rule.
    """
    sliders = [
        Slider("d_model", "d_model", 64, 2048, d_model, step=64),
        Slider("warmup", "warm-up (steps)", 100, 16000, warmup, step=100),
    ]
    steps = sorted({1, 100, 1000, warmup, 10_000, 20_000, 100_000})
    return _explorer(
        "learning_rate",
        "The learning rate of equation 3",
        sliders,
        caption=f"Learning rate at d_model {d_model} with {warmup} steps of warm-up",
        header=["step", "rate"],
        rows=[[str(n), _power(noam_rate(n, d_model, warmup))] for n in steps],
    )


# --- attention -----------------------------------------------------------

# Kind: its name, and the sides that ask and are asked.
KINDS = {
    "encoder": ("Encoder self-attention", "source", "source"),
    "decoder": ("Decoder self-attention", "target", "target"),
    "cross": ("Decoder over encoder", "target", "source"),
}
VIEWS = {"lines": "lines", "map": "heat maps"}


def attention(
    weights: Mapping[str, Any],
    source_tokens: Sequence[str],
    target_tokens: Sequence[str] = (),
    *,
    kind: str | None = None,
    layer: int = 1,
    heads: Sequence[int] | None = None,
    view: str = "lines",
) -> Explorer:
    """The attention weights of one sentence pair, head by head.

    Args:
        weights: what `model(..., return_attention=True)` gives:
            "encoder", "decoder" and "cross", or some of them, each
            (layer, head, query, key), or with a batch of 1 after the
            layer. They are kept to a thousandth.
        source_tokens: a label for each source id.
        target_tokens: a label for each id of the decoder's input; what
            a row of the decoder writes is the next one.
        kind: to start from; the first that is there if None.
        layer: to start from, counted from 1.
        heads: to start from, counted from 1; all if None.
        view: to start from, "lines" or "map".

    Raises:
        ValueError: naming the argument, its value and the rule.
    """
    tokens = {
        "source": list(map(str, source_tokens)),
        "target": list(map(str, target_tokens)),
    }
    tables = _attention_tables(weights, tokens)
    kind = next(iter(tables)) if kind is None else _one_of("kind", kind, tables)
    layers, count = tables[kind].shape[:2]
    _one_of("layer", layer, range(1, layers + 1))
    heads = list(range(1, count + 1) if heads is None else heads)
    most = max(table.shape[0] for table in tables.values())
    most_heads = max(table.shape[1] for table in tables.values())
    ticks = Ticks("head", "heads", most_heads, heads)
    for head in heads:
        _one_of("heads", head, range(1, count + 1))
    name, asking, asked = KINDS[kind]
    shown = tables[kind][layer - 1, heads[0] - 1] / 1000
    return _explorer(
        "attention",
        "Attention, head by head",
        [
            Choice("kind", "attention", {k: KINDS[k][0] for k in tables}, kind),
            Choice("layer", "layer", {n: str(n) for n in range(1, most + 1)}, layer),
            Choice("view", "view", VIEWS, view),
            ticks,
        ],
        caption=f"{name}, layer {layer}: weights of head {heads[0]}",
        header=["query", *tokens[asked]],
        rows=[
            [token, *(f"{weight:.3f}" for weight in row)]
            for token, row in zip(tokens[asking], shown, strict=True)
        ],
        given={
            **{side: those for side, those in tokens.items() if those},
            **{
                kind: [*table.shape[:2], two_digits(table)]
                for kind, table in tables.items()
            },
        },
    )


def _attention_tables(
    weights: Mapping[str, Any], tokens: Mapping[str, Sequence[str]]
) -> dict[str, np.ndarray]:
    """Kind -> (layer, head, query, key), in whole thousandths."""
    if not isinstance(weights, Mapping) or not weights:
        raise ValueError(
            f"weights={weights!r:.60} must be a dictionary with {', '.join(KINDS)},"
            " or with some of them"
        )
    for given in weights:
        _one_of("the key of weights", given, KINDS)
    tables = {}
    for kind, (_, asking, asked) in KINDS.items():
        if kind not in weights:
            continue
        table = weights[kind]
        if hasattr(table, "detach"):
            table = table.detach().cpu().double()
        table = np.asarray(table, dtype=float)
        if table.ndim == 5 and table.shape[1] == 1:
            table = table[:, 0]
        label = f"weights[{kind!r}]"
        if table.ndim != 4 or 0 in table.shape:
            raise ValueError(
                f"{label} has shape {table.shape}: it must be (layer, head, query,"
                " key), or have a batch of 1 after the layer"
            )
        for axis, what, side in ((2, "queries", asking), (3, "keys", asked)):
            if table.shape[axis] != len(tokens[side]):
                raise ValueError(
                    f"{label} has {table.shape[axis]} {what}, but there are"
                    f" {len(tokens[side])} {side}_tokens"
                )
        if not (np.isfinite(table) & (table > -1e-4) & (table < 1.0001)).all():
            raise ValueError(f"{label} must hold shares, from 0 to 1")
        tables[kind] = np.rint(table.clip(0, 1) * 1000).astype(int)
    return tables


def two_digits(table: np.ndarray) -> str:
    """Thousandths to base 32, as the script reads them: 1000 is v8."""
    digits = np.array(list("0123456789abcdefghijklmnopqrstuv"))
    pairs = np.stack([digits[table.ravel() // 32], digits[table.ravel() % 32]])
    return "".join(pairs.T.ravel())


# --- what all of them share ----------------------------------------------


def _explorer(
    name: str,
    title: str,
    controls: Sequence[Slider | Choice | Ticks],
    *,
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    given: Mapping[str, Any] | None = None,
) -> Explorer:
    """The frame: controls, an empty drawing, and a table for no scripts.

    Args:
        name: of the script in `explorer/`, and of its style if any.
        title: over the controls, and in terminals.
        caption, header, rows: the table.
        given: data for the script.
    """
    data = json.dumps(given, ensure_ascii=False, separators=(",", ":"))
    data = data.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;")
    # In a drawing that can be clicked, parts have roles of their own.
    still = given is None
    choices = [control for control in controls if isinstance(control, Choice)]
    # No ids: two explorers of one kind may stand on a page. The drawing
    # comes empty, since a notebook that is not trusted loses it.
    html = [
        f'<div class="explorer" data-explorer="{name}"'
        + (f" data-given='{data}'" if given else "")
        + ">",
        f"<style>{_short('frame.css')}{_short(f'{name}.css')}</style>",
        f'<p class="explorer-title">{escape(title)}</p>',
        f'<p class="explorer-hint">{HINT}</p>',
        '<div class="explorer-live" hidden>',
        '<div class="explorer-choices">' * bool(choices),
        *(control.html for control in choices),
        "</div>" * bool(choices),
        *(control.html for control in controls if control not in choices),
        '<div class="explorer-draw">'
        f'<svg role="{"img" if still else "group"}" aria-label="{escape(title)}"></svg>'
        "</div>",
        f'<p class="explorer-said" aria-live="{"off" if still else "polite"}"></p>',
        "</div>",
        _table(caption, header, rows),
        f"<script>(() => {{\n{_short(f'{name}.js')}\n{_short('frame.js')}\n}})();"
        "</script>",
        "</div>",
    ]
    html = [line for line in html if line]
    text = [
        f"Explorer: {title}. Controls: {', '.join(map(str, controls))}.",
        HINT,
        "",
        f"{caption}:",
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = (cell.rjust(w) for cell, w in zip(row, widths, strict=True))
        text.append("  ".join(cells))
    return Explorer("\n".join(html), "\n".join(text))


HINT = (
    "The controls need scripts: open this page in the book, or trust the"
    " notebook and run the cell."
)


def _one_of(name: str, value: Any, allowed: Any) -> Any:
    """The value, if it is allowed.

    Raises:
        ValueError: it is not.
    """
    if value not in allowed:
        shown = ", ".join(map(repr, allowed))
        raise ValueError(f"{name}={value!r} must be one of {shown}")
    return value


def _table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return (
        f"<details open><summary>{escape(caption)}, as a table</summary>"
        f'<div class="explorer-table" role="group" tabindex="0"'
        f' aria-label="{escape(caption)}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></details>"
    )


def _minus(number: str) -> str:
    """With a minus as wide as a digit."""
    return number.replace("-", "−")


def _power(number: float) -> str:
    """7e-04 as 7.00e−4, the way the scripts write it."""
    digits, _, exponent = f"{number:.2e}".partition("e")
    return _minus(f"{digits}e{int(exponent):+d}")


def _short(name: str) -> str:
    """A file of `explorer/`, if any, without comments and indentation."""
    file = files("bookkit") / "explorer" / name
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))
