"""The whole Transformer on one page, assembled from `src/transformer`.

    python -m bookkit.one_file              print it
    python -m bookkit.one_file -o FILE      write it

`one_file.txt`, beside this module, is the page with its bodies left
out: definitions in order, each with a comment, and under them where the
statements come from.

    @ masks.causal_mask     the statements in this function, class or
                            module, without docstrings, and without an
                            `if` that ends in `raise`
    + a | b                 of them those alone that begin with a or b
    - a | b                 not those, nor what is indented under them
    < a | b                 not those, but what is indented under them
    ^ name                  the variable's value in its place
    old => new              a piece of a statement, and what it becomes

These apply to the `@` above them, in their order. One that fits nothing
is an error, so the page cannot fall behind the source.
"""

from __future__ import annotations

import argparse
import ast
import io
import itertools
import linecache
import re
import sys
import tokenize
import types
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from bookkit.source import AnnotatedSource, Line

NAME = "transformer_one_file.py"
WIDTH = 88
MOST_LINES = 400

Row = tuple[int, str]  # depth, and a statement or a comment on one line


class StalePart(LookupError):
    """The outline names what the sources, or the page, do not have."""


def _outline() -> str:
    return files("bookkit").joinpath("one_file.txt").read_text("utf-8")


@cache
def _text(module: str) -> str:
    path = files("transformer").joinpath(*module.split("."))
    return Path(f"{path}.py").read_text("utf-8")


@cache
def assemble() -> str:
    """The file's text, always the same within a process.

    Raises:
        StalePart: a line of the outline fits nothing.
    """
    page: list[str] = []
    taken: list[Row] = []
    for line in [*_outline().splitlines(), ""]:
        text = line.strip() + " "  # so that "old =>" has its " => ", too
        if text.startswith("@ "):
            depth = line.index("@") // 4
            page += _written(taken)
            taken = [(depth + d, row) for d, row in _taken(text[2:-1])]
        elif taken and (text[0] in "+-<^" or " => " in text):
            taken = _edited(taken, text)
        else:
            page += [*_written(taken), line]
            taken = []
    return "\n".join(page)


# --- what is taken -----------------------------------------------------------


def _taken(name: str) -> list[Row]:
    """The statements of a module, or of what it defines."""
    folder, *parts = Path(str(files("transformer"))), *name.split(".")
    module = parts.pop(0)
    if (folder / module).is_dir():
        module = f"{module}.{parts.pop(0)}"
    rows = _rows(_text(module))
    for part in parts:
        heads = (f"def {part}(", f"class {part}(", f"class {part}:")
        found = [i for i, (_, text) in enumerate(rows) if text.startswith(heads)]
        if not found:
            raise StalePart(f"transformer.{module} has no {'.'.join(parts)}")
        rows = rows[found[0] + 1 : _end(rows, found[0])]
    return [(depth - len(parts), text) for depth, text in _accepted(rows)]


def _rows(source: str) -> list[Row]:
    """Every statement on one line, without docstrings."""
    rows: list[Row] = []
    lines, spans = source.splitlines(), {}
    layout = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        (first, start), (last, end) = token.start, token.end
        if token.type == tokenize.COMMENT:
            rows += [] if spans else [(start // 4, token.string)]
        elif token.type == tokenize.NEWLINE:
            pieces = [lines[row - 1][a:b] for row, (a, b) in spans.items()]
            if not pieces[0].startswith('"""'):
                depth = next(iter(spans.values()))[0] // 4
                rows.append((depth, _joined(pieces)))
            spans = {}
        elif token.type not in layout:
            for row in range(first, last + 1):
                left = spans.get(row, (start if row == first else 0,))[0]
                spans[row] = (left, end if row == last else None)
    return rows


def _joined(pieces: list[str]) -> str:
    """The lines of one statement as one."""
    text = pieces[0]
    for piece in map(str.strip, pieces[1:]):
        closes = piece[0] in ")]}"
        text = text.removesuffix(",") if closes else text
        text += ("" if closes or text[-1] in "([{" else " ") + piece
    return text


def _end(rows: list[Row], at: int) -> int:
    """Where the rows end that are indented under a row."""
    inside = itertools.takewhile(lambda row: row[0] > rows[at][0], rows[at + 1 :])
    return at + 1 + len(list(inside))


def _accepted(rows: list[Row]) -> list[Row]:
    """Without an `if` that ends in `raise`."""
    kept: list[Row] = []
    while rows:
        end = _end(rows, 0)
        tests, refuses = rows[0][1].startswith("if "), rows[end - 1][1][:6] == "raise "
        if not (tests and refuses):
            kept.append(rows[0])
            end = 1
        rows = rows[end:]
    return kept


# --- what is left of it ------------------------------------------------------


def _edited(rows: list[Row], edit: str) -> list[Row]:
    """The rows after one line of the outline.

    Raises:
        StalePart: a part of the line fits none of them.
    """
    old, arrow, new = edit.partition(" => ")
    if arrow:
        changed = [(depth, text.replace(old, new.strip())) for depth, text in rows]
        if changed == rows:
            raise StalePart(f"{edit.strip()}: no statement has that")
        return changed
    sign, _, listed = edit.strip().partition(" ")
    starts = [f"{listed} = "] if sign == "^" else listed.split(" | ")
    for start in starts:
        if not any(text.startswith(start) for _, text in rows):
            raise StalePart(f"{sign} {start}: no statement begins so")
    if sign == "^":
        return _substituted(rows, listed)
    kept: list[Row] = []
    while rows:
        fits, end = rows[0][1].startswith(tuple(starts)), _end(rows, 0)
        if sign == "+":
            kept += rows[:end] if fits else []
        elif not fits:
            kept, end = [*kept, rows[0]], 1
        elif sign == "<":
            kept += [(depth - 1, text) for depth, text in rows[1:end]]
        rows = rows[end:]
    return kept


def _substituted(rows: list[Row], name: str) -> list[Row]:
    """Without the variable: its value where it was used."""
    at = next(i for i, (_, text) in enumerate(rows) if text.startswith(f"{name} = "))
    value = rows[at][1].removeprefix(f"{name} = ")
    used = re.compile(rf"(?<![\w.]){name}\b(?!=)")
    return rows[:at] + [(d, used.sub(lambda _: value, t)) for d, t in rows[at + 1 :]]


# --- writing it down ---------------------------------------------------------


def _written(rows: list[Row]) -> list[str]:
    """Lines of `WIDTH` columns at most; a blank one after a function."""
    lines: list[str] = []
    inner = [i for i, (_, text) in enumerate(rows) if text.startswith("def ")]
    ends = {_end(rows, i) for i in inner}
    for at, (depth, text) in enumerate(rows, 1):
        lines += _wrapped(text, depth) + [""] * (at in ends)
    return lines


def _wrapped(text: str, depth: int) -> list[str]:
    """One line, or as many as it takes, broken at the last bracket."""
    indent = "    " * depth
    found = list(re.finditer(r"[(\[{]\.+[)\]}]", _outside_brackets(text)))
    if len(indent + text) <= WIDTH or not found:
        return [indent + text]
    start, end = found[-1].start() + 1, found[-1].end() - 1
    body = [f"{indent}    {text[start:end]}"]
    if len(body[0]) > WIDTH:
        pieces = [_wrapped(piece, depth + 1) for piece in _pieces(text[start:end])]
        body = [line for piece in pieces for line in piece]
    return [indent + text[:start], *body, indent + text[end:]]


def _pieces(inside: str) -> list[str]:
    """At the outermost commas, or before `for` and `if` of a comprehension."""
    outer = _outside_brackets(inside)
    comprehension = " for " in outer
    between = r"(?= (?:for|if) )" if comprehension else r"(?<=,)"
    cuts = [0, *(m.start() for m in re.finditer(between, outer)), len(inside)]
    pieces = [inside[a:b].strip() for a, b in itertools.pairwise(cuts)]
    return [p if comprehension else p.rstrip(",") + "," for p in pieces if p]


def _outside_brackets(text: str) -> str:
    """The text, with dots where an outermost bracket or a string is open."""
    outer, depth, quoted = "", 0, False
    for i, letter in enumerate(text):
        quoted ^= letter == '"' and text[i - 1 : i] != "\\"
        depth -= not quoted and letter in ")]}"
        outer += "." if depth or quoted else letter
        depth += not quoted and letter in "([{"
    return outer


# --- using it ----------------------------------------------------------------


def load() -> types.ModuleType:
    """The page as a module, run from its text."""
    text = assemble()
    module = types.ModuleType(NAME.removesuffix(".py"))
    linecache.cache[NAME] = (len(text), None, text.splitlines(True), NAME)
    exec(compile(text, NAME, "exec", dont_inherit=True), module.__dict__)
    return module


def show(*names: str) -> AnnotatedSource:
    """Some definitions of the page, as they stand there.

    Args:
        names: such as "Linear" or "MultiHeadAttention.split_heads".

    Raises:
        StalePart: the page has no such definition.
    """
    text = assemble().splitlines()
    lines: list[Line] = []
    for name in names:
        owner, _, method = name.partition(".")
        body = ast.parse("\n".join(text)).body
        for part in filter(None, (owner, method)):
            found = [n for n in body if getattr(n, "name", "") == part]
            if not found:
                raise StalePart(f"the page has no {name}")
            body = getattr(found[0], "body", [])
        node = found[0]
        first = min(
            [node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]
        )
        if lines:
            lines += [Line(""), Line("")][: 1 if method else 2]
        lines += [Line(text[row - 1], row) for row in range(first, node.end_lineno + 1)]
    return AnnotatedSource(", ".join(names), lines, id="page-" + "-".join(names))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(
        prog="python -m bookkit.one_file", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    text = assemble()
    if options.output is None:
        print(text, end="")
    else:
        options.output.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
