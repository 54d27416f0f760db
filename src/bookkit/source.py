"""Annotated source: what runs, live from `src/`, with notes beside it.

A note is anchored to a piece of code. When the shown source no longer
contains that piece exactly once, showing it fails.
"""

from __future__ import annotations

import ast
import inspect
import io
import keyword
import linecache
import re
import sys
import textwrap
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import transformer
from bookkit import using

# Where the book's files stand, seen from a notebook. The site build
# copies them, so that the link also works there.
LINK = "../src"
OURS = ("transformer", "bookkit")


class StaleNote(LookupError):
    """A note whose piece of code is gone, or stands there twice."""


def show_source(
    obj: Any,
    *,
    chapter: str | None = None,
    part: str | Sequence[str] | None = None,
    link: str = LINK,
) -> AnnotatedSource:
    """Show the source of a function, class or method, with notes.

    Args:
        obj: what to show. If `use` put a part of the reader's own in
            its place, that is shown instead, without notes.
        chapter: whose notes stand beside it, such as "04"; none if
            None.
        part: of a class, the methods to show; the others become
            `...`.
        link: folder of the source files, for the link to them.

    Raises:
        StaleNote: a note's piece of code is not there exactly once.
        LookupError: the chapter has no notes on the object.
        ValueError: `part` names what the class does not have.
    """
    name, own = _readers_own(obj)
    if name:
        return AnnotatedSource(_name(own), _lines(own)[0], replaces=name)
    part = [part] if isinstance(part, str) else part
    lines, ranges = _lines(obj, part)
    module = _module(obj)
    if module.partition(".")[0] not in OURS:
        return AnnotatedSource(_name(obj), lines, replaces="")
    notes = _anchored(chapter, ranges, lines) if chapter else []
    id = "-".join(["source", chapter or "", *_name(obj).split(".")])
    return AnnotatedSource(
        _name(obj),
        lines,
        notes,
        link=f"{link.rstrip('/')}/{_path(module)}",
        id="--".join([id, *(part or [])]),
    )


@dataclass(frozen=True)
class Line:
    """A line of code; `folded` are the lines of a docstring below it."""

    text: str
    row: int = 0  # in the object's own source, from 1; 0: not in it
    folded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Note:
    """A note and the index of its line."""

    line: int
    text: str


@dataclass(frozen=True)
class AnnotatedSource:
    """What `show_source` returns: HTML and plain text that say the same.

    `replaces` is None for the book's code. For the reader's it is the
    name that theirs stands in for, or empty.
    """

    name: str
    lines: list[Line]
    notes: Sequence[Note] = ()
    link: str = ""
    id: str = ""
    replaces: str | None = None

    def heading(self) -> str:
        """What this is; over the code."""
        if self.replaces is None:
            return self.name
        instead = f", in place of the book's {self.replaces}" if self.replaces else ""
        return (
            f"{self.name}: your own{instead}."
            " The notes are on the book's code, so none are shown."
        )

    def marks(self, index: int) -> list[int]:
        """Numbers of the notes on a line, from 1."""
        return [n for n, note in enumerate(self.notes, 1) if note.line == index]

    def __repr__(self) -> str:
        heading = self.heading()
        if self.link:
            heading += f" in {self.link.removeprefix('../')}"
        text = [*textwrap.wrap(heading, 72), ""]
        for index, line in enumerate(self.lines):
            marks = "".join(f" [{n}]" for n in self.marks(index))
            folded = " ..." + line.text.lstrip()[:3] if line.folded else ""
            text.append(line.text + folded + (f"  #{marks}" if marks else ""))
        for n, note in enumerate(self.notes, 1):
            plain = re.sub(r"\[([^]]+)\]\(([^)]+)\)", r"\1 (\2)", note.text)
            indent = " " * len(f"[{n}] ")
            text += ["", textwrap.fill(f"[{n}] {plain}", 72, subsequent_indent=indent)]
        return "\n".join(text)

    def _repr_html_(self) -> str:
        return _html(self)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/html": _html(self), "text/plain": repr(self)}


# --- finding the source ------------------------------------------------


def _readers_own(obj: Any) -> tuple[str, Any]:
    """The name of a part, and what stands in its place under `use`."""
    name, _, method = _name(obj).partition(".")
    ours = _module(obj).partition(".")[0] in OURS
    for part, mine in using._in_use.items():
        if obj is getattr(transformer, part) or (ours and name == part):
            return part, getattr(mine, method, mine) if ours and method else mine
    return "", None


def _source(obj: Any) -> str:
    """The object's own lines, whatever the file holds besides."""
    if not (inspect.isclass(obj) or inspect.isroutine(obj)):
        obj = type(obj)  # such as functools.partial
    try:
        source = inspect.getsource(inspect.unwrap(obj))
    except (OSError, TypeError):
        source = _class_in_a_cell(obj)
    return textwrap.dedent(source)


def _class_in_a_cell(obj: Any) -> str:
    """A class of a notebook has no file: find it through a method."""
    for method in vars(obj).values() if inspect.isclass(obj) else ():
        code = getattr(inspect.unwrap(method), "__code__", None)
        cell = linecache.getlines(code.co_filename) if code else []
        for node in ast.walk(ast.parse("".join(cell))):
            if isinstance(node, ast.ClassDef) and (
                node.name == obj.__name__
                and node.lineno <= code.co_firstlineno <= node.end_lineno
            ):
                return "".join(cell[_first(node) - 1 : node.end_lineno])
    return f"# Python cannot tell the source of {_name(obj)}.\n"


def _name(obj: Any) -> str:
    name = getattr(obj, "__qualname__", type(obj).__qualname__)
    return name.rpartition("<locals>.")[2]


def _module(obj: Any) -> str:
    return getattr(obj, "__module__", None) or ""


def _path(module: str) -> str:
    """The module's file below `src/`."""
    found = sys.modules[module]
    file = Path(found.__file__)
    up = module.count(".") + hasattr(found, "__path__")
    return file.relative_to(file.parents[up]).as_posix()


# --- what is shown of it -----------------------------------------------


def _lines(
    obj: Any, part: Sequence[str] | None = None
) -> tuple[list[Line], dict[str, range]]:
    """The shown lines, and where the object and its methods stand."""
    source = _source(obj)
    text = source.splitlines()
    body = ast.parse(source).body
    node = body[0] if body else ast.Module([], [])
    methods = {
        item.name: item
        for item in getattr(node, "body", [])
        if isinstance(node, ast.ClassDef) and isinstance(item, ast.FunctionDef)
    }
    unknown = [name for name in part or () if name not in methods]
    if unknown:
        raise ValueError(
            f"part={unknown[0]!r} is no method of {_name(obj)}, which"
            f" has {', '.join(methods) or 'none'}"
        )
    folds = _docstrings(node, text)
    lines: list[Line] = []
    row = 1
    while row <= len(text):
        last = folds.get(row, row)
        lines.append(Line(text[row - 1], row, tuple(text[row:last])))
        row = last + 1
    if part is not None:
        lines = _only(lines, node, [methods[name] for name in part])
    ranges = {_name(obj): range(len(lines))}
    for name, item in methods.items():
        rows = range(_first(item), item.end_lineno + 1)
        at = [i for i, line in enumerate(lines) if line.row in rows]
        if at:
            ranges[f"{_name(obj)}.{name}"] = range(at[0], at[-1] + 1)
    return lines, ranges


def _docstrings(node: ast.AST, text: list[str]) -> dict[int, int]:
    """First and last row of each docstring that runs over lines."""
    folds = {}
    for item in ast.walk(node):
        if isinstance(item, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(item):
            first, last = item.body[0].lineno, item.body[0].end_lineno
            if not re.search(r"\w", text[first - 1]):
                first += 1  # its first words stand a line lower
            if last > first:
                folds[first] = last
    return folds


def _only(lines: list[Line], node: ast.ClassDef, methods: list) -> list[Line]:
    """The class's head and some methods; `...` for what lies between."""
    head = node.body[0]
    documented = ast.get_docstring(node) is not None
    blocks = [range(_first(node), head.end_lineno + 1 if documented else head.lineno)]
    for item in sorted(methods, key=_first):
        blocks.append(range(_first(item), item.end_lineno + 1))
    indent = " " * head.col_offset
    shown: list[Line] = []
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        shown += [line for line in lines if line.row in block]
        stop = after.start if after else node.end_lineno + 1
        if any(line.text.strip() for line in lines if block.stop <= line.row < stop):
            shown += [Line(""), Line(f"{indent}...")]
        if after:
            shown.append(Line(""))
    return shown


def _first(node: Any) -> int:
    """The row of a definition, decorators included."""
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


# --- notes -------------------------------------------------------------


def notes_of(chapter: str) -> dict[str, list[dict[str, str]]]:
    """A chapter's notes, by the name of what they are on."""
    import yaml  # only where notes are shown

    file = files("bookkit") / "notes" / f"{chapter}.yml"
    if not file.is_file():
        raise LookupError(f"there are no notes for chapter {chapter!r}")
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def _anchored(chapter: str, ranges: dict[str, range], lines: list[Line]) -> list[Note]:
    """The notes on what is shown, in the order of their lines."""
    notes = notes_of(chapter)
    found = []
    for name in ranges:
        for number, note in enumerate(notes.get(name, ()), 1):
            text = {i: lines[i].text for i in ranges[name]}
            times = sum(line.count(note["at"]) for line in text.values())
            if times != 1:
                raise StaleNote(
                    f"notes/{chapter}.yml, note {number} on {name}, is"
                    f" anchored to {note['at']!r}, which the shown"
                    f" source contains {times} times, not once. The"
                    f" note: {' '.join(note['note'].split())}"
                )
            line = next(i for i in text if note["at"] in text[i])
            found.append(Note(line, " ".join(note["note"].split())))
    if not found:
        raise LookupError(
            f"notes/{chapter}.yml has no notes on {next(iter(ranges))}, only"
            f" on {', '.join(notes)}; to show it without, leave chapter out"
        )
    return sorted(found, key=lambda note: note.line)


# --- HTML --------------------------------------------------------------


def _html(shown: AnnotatedSource) -> str:
    paint = _painter(shown.lines)
    blocks: list[str] = []
    open_lines: list[str] = []

    def close() -> None:
        if open_lines:
            blocks.append(f"<pre><code>{''.join(open_lines)}</code></pre>")
            open_lines.clear()

    for index, line in enumerate(shown.lines):
        numbers = shown.marks(index)
        code = paint(line.text, line.row)
        code += "".join(_mark(shown.id, n) for n in numbers)
        kind = "bk-line bk-noted" if numbers else "bk-line"
        if line.folded:
            close()
            rest = [
                _line("bk-line", text, paint(text, line.row + n))
                for n, text in enumerate(line.folded, 1)
            ]
            blocks.append(
                f"<details><summary>{_line(kind, line.text, code, end=_MORE)}"
                f"</summary><pre><code>{''.join(rest)}</code></pre></details>"
            )
        else:
            open_lines.append(_line(kind, line.text, code))
        if numbers:
            close()
        blocks += [_note(shown.id, n, shown.notes[n - 1].text) for n in numbers]
    close()
    heading = escape(shown.heading(), quote=False)
    if shown.link:
        file = escape(shown.link.removeprefix("../"), quote=False)
        of = f"<code>{shown.name}</code> in " if "." in shown.name else ""
        heading = f'{of}<a href="{escape(shown.link)}">{file}</a>'
    return (
        f'<div class="bk-source" role="group" aria-label="Source of {shown.name}">'
        f'<style>{_css()}</style><p class="bk-file">{heading}</p>'
        f'<div class="bk-code">{"".join(blocks)}</div></div>'
    )


def _line(kind: str, text: str, code: str, end: str = "\n") -> str:
    indent = len(text) - len(text.lstrip())
    return f'<span class="{kind}" style="--bk-in:{indent}">{code}{end}</span>'


def _mark(id: str, n: int) -> str:
    return (
        f' <a class="bk-mark" id="{id}-line-{n}" href="#{id}-note-{n}"'
        f' aria-label="note [{n}]" aria-describedby="{id}-note-{n}">[{n}]</a>'
    )


def _note(id: str, n: int, text: str) -> str:
    text = escape(text, quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    text = re.sub(r"\[([^]]+)\]\(([^)]+)\)", r'<a href="\2">\1</a>', text)
    back = f'<a class="bk-mark" href="#{id}-line-{n}" aria-label="line [{n}]">[{n}]</a>'
    return f'<div class="bk-note" role="note" id="{id}-note-{n}">{back} {text}</div>'


def _painter(lines: list[Line]):
    """Colours a line by Python's own tokens: k, s, c and n in all.

    No highlighter's version shows in a notebook, and the same code
    gives the same output in every Python: before 3.12 an f-string is
    one token, so it is one here.
    """
    rows = {}
    for line in lines:
        for n, text in enumerate([line.text, *line.folded]):
            if line.row:
                rows[line.row + n] = text
    spans: dict[int, list[tuple[int, int, str]]] = {}
    height = max(rows, default=0)
    source = "\n".join(rows.get(row, "") for row in range(1, height + 1))
    for start, end, kind in _tokens(source):
        for row in range(start[0], end[0] + 1):
            left = start[1] if row == start[0] else 0
            right = end[1] if row == end[0] else len(rows.get(row, ""))
            spans.setdefault(row, []).append((left, right, kind))

    def paint(text: str, row: int) -> str:
        html, done = "", 0
        for left, right, kind in spans.get(row, ()) if row else ():
            html += _code(text[done:left])
            inside = _code(text[left:right])
            html += f'<span class="bk-{kind}">{inside}</span>' if inside else ""
            done = right
        return html + _code(text[done:])

    return paint


def _code(text: str) -> str:
    """Escaped, and where it must wrap, better after a bracket."""
    return re.sub(r"\((?=[^)])", "(<wbr>", escape(text, quote=False))


def _tokens(source: str):
    """(start, end, kind) of keywords, strings, comments and names defined."""
    kinds = {tokenize.STRING: "s", tokenize.COMMENT: "c"}
    opening = getattr(tokenize, "FSTRING_START", None)
    closing = getattr(tokenize, "FSTRING_END", None)
    depth, begun, before = 0, (1, 0), ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if opening and token.type == opening:
            begun = begun if depth else token.start
            depth += 1
        elif opening and token.type == closing:
            depth -= 1
            if not depth:
                yield begun, token.end, "s"
        elif depth:
            continue
        elif token.type in kinds:
            yield token.start, token.end, kinds[token.type]
        elif token.type == tokenize.NAME and before in ("def", "class"):
            yield token.start, token.end, "n"
        elif token.type == tokenize.NAME and keyword.iskeyword(token.string):
            yield token.start, token.end, "k"
        before = token.string


_MORE = ' <span class="bk-more">…</span>'


@cache
def _css() -> str:
    css = (files("bookkit") / "source.css").read_text(encoding="utf-8")
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.S)
    return re.sub(r"\s+", " ", css).strip()
