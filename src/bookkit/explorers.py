"""Explorers: drawings with sliders, for a page without a kernel.

    from bookkit import explorers

    explorers.positions()

What an explorer shows is HTML with its own style and script: nothing
is loaded, and nothing runs in Python when a slider moves. Where no
scripts run, as in a notebook that is not trusted, a table and a line
that says so are left. `explorer/` holds the style and the scripts.

Another explorer needs a file beside `explorer/positions.js`, and a
function here that calls `_explorer` with its sliders and its table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

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


# --- what all of them share ----------------------------------------------


def _explorer(
    name: str,
    title: str,
    sliders: Sequence[Slider],
    *,
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> Explorer:
    """The frame: sliders, an empty drawing, and a table for no scripts.

    Args:
        name: of the script in `explorer/`.
        title: over the sliders, and in terminals.
        caption, header, rows: the table.

    Raises:
        ValueError: a slider starts where it cannot stand.
    """
    for slider in sliders:
        steps = (slider.value - slider.low) / slider.step
        if not slider.low <= slider.value <= slider.high or steps % 1:
            raise ValueError(
                f"{slider.name}={slider.value} must be from {slider.low} to"
                f" {slider.high}, in steps of {slider.step}"
            )
    # No ids: two explorers of one kind may stand on a page. The drawing
    # comes empty, since a notebook that is not trusted loses it.
    html = [
        f'<div class="explorer" data-explorer="{name}">',
        f"<style>{_short('frame.css')}</style>",
        f'<p class="explorer-title">{escape(title)}</p>',
        f'<p class="explorer-hint">{HINT}</p>',
        '<div class="explorer-live" hidden>',
        *map(_slider, sliders),
        f'<svg role="img" aria-label="{escape(title)}"></svg>',
        '<p class="explorer-said"></p>',
        "</div>",
        _table(caption, header, rows),
        f"<script>(() => {{\n{_short(f'{name}.js')}\n{_short('frame.js')}\n}})();"
        "</script>",
        "</div>",
    ]
    start = ", ".join(f"{s.label} {s.value} ({s.low} to {s.high})" for s in sliders)
    text = [f"Explorer: {title}. Sliders: {start}.", HINT, "", f"{caption}:"]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = (cell.rjust(w) for cell, w in zip(row, widths, strict=True))
        text.append("  ".join(cells))
    return Explorer("\n".join(html), "\n".join(text))


HINT = (
    "The sliders need scripts: open this page in the book, or trust the"
    " notebook and run the cell."
)


def _slider(slider: Slider) -> str:
    return (
        f"<label><span>{escape(slider.label)}</span>"
        f'<input type="range" name="{slider.name}" min="{slider.low}"'
        f' max="{slider.high}" step="{slider.step}" value="{slider.value}">'
        f'<b aria-hidden="true">{slider.value}</b></label>'
    )


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
    """A file of `explorer/` without comments and indentation."""
    text = (files("bookkit") / "explorer" / name).read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))
