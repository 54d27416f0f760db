"""Section 5.1: sentence pairs from files, with the faults named."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Iterable, Iterator
from importlib import resources
from itertools import zip_longest
from pathlib import Path

Pair = tuple[str, str]


class TextError(ValueError):
    """A file of text that cannot be used: which, where and why."""

    def __init__(self, path: Path, line: int | None, fault: str):
        where = f"{path}:{line}" if line else f"{path}"
        super().__init__(f"{where}: {fault}")


def read_pairs(*paths: Path | str) -> list[Pair]:
    """Source and target sentences, in the order of the file.

    Args:
        paths: one file whose lines are "source TAB target" or
            "id TAB source TAB target"; or two files, where a line of
            the second translates the same line of the first. UTF-8,
            compressed where the name ends in .gz or .xz.

    Raises:
        TextError: naming file and line, if a line is no UTF-8, a
            side is empty, the columns are not those of the first
            line, an id comes twice, two files differ in their number
            of lines, or there are no pairs.
        OSError, EOFError: a file cannot be read.
        ValueError: not one or two paths.
    """
    files = [Path(path) for path in paths]
    if len(files) == 1:
        pairs = list(split_columns(files[0]))
    elif len(files) == 2:
        pairs = list(side_by_side(*files))
    else:
        raise ValueError(
            f"{len(files)} files: sentence pairs come from one file"
            " of two columns or from two files"
        )
    if not pairs:
        raise TextError(files[0], None, "there are no sentence pairs")
    return pairs


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file, without their ends.

    Raises:
        TextError: a line is no UTF-8.
    """
    read = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with read(path, "rb") as file:
        yield from decode_lines(file, path)


def decode_lines(file: Iterable[bytes], path: Path) -> Iterator[str]:
    """The lines of an open file, without their ends.

    Raises:
        TextError: naming `path` and line, if one is no UTF-8.
    """
    for number, line in enumerate(file, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            fault = f"byte {error.start + 1} is not UTF-8"
            raise TextError(path, number, fault) from None
        yield text.rstrip("\r\n")


def split_columns(path: Path) -> Iterator[Pair]:
    """The pairs of a file with a TAB between the columns."""
    first_line_of: dict[str, int] = {}
    columns = None
    for number, line in enumerate(read_lines(path), 1):
        parts = line.split("\t")
        columns = columns or len(parts)
        if len(parts) != columns or columns not in (2, 3):
            wanted = columns if columns in (2, 3) else "2 or 3"
            fault = f"{wanted} columns expected, {len(parts)} found"
            raise TextError(path, number, fault)
        source, target = parts[-2:]
        refuse_empty(path, number, source=source, target=target)
        if columns == 3:
            before = first_line_of.setdefault(parts[0], number)
            if before != number:
                fault = f"id {parts[0]!r} is that of line {before} too"
                raise TextError(path, number, fault)
        yield source, target


def side_by_side(sources: Path, targets: Path) -> Iterator[Pair]:
    """The pairs of two files of equal length."""
    lines = zip_longest(read_lines(sources), read_lines(targets))
    for number, (source, target) in enumerate(lines, 1):
        if source is None or target is None:
            ended, longer = sources, targets
            if target is None:
                ended, longer = targets, sources
            fault = f"{ended} has no line for this one"
            raise TextError(longer, number, fault)
        refuse_empty(sources, number, line=source)
        refuse_empty(targets, number, line=target)
        yield source, target


def refuse_empty(path: Path, number: int, **sides: str) -> None:
    """Raise a TextError if a side holds nothing but blanks."""
    for name, text in sides.items():
        if not text.strip():
            raise TextError(path, number, f"the {name} is empty")


def help_en_de(split: str) -> list[Pair]:
    """The corpus that ships with the book, English to German.

    Args:
        split: "train", "valid" or "test".

    Raises:
        ValueError: another split.
    """
    if split not in ("train", "valid", "test"):
        raise ValueError(
            f"split={split!r} must be 'train', 'valid' or 'test'"
        )
    folder = resources.files("transformer") / "data" / "help_en_de"
    with resources.as_file(folder / f"{split}.tsv.xz") as path:
        return read_pairs(path)


def wmt14_en_de(split: str) -> list[Pair]:
    """WMT 2014 English to German, as section 5.1 uses it.

    About 4.5 million pairs for training; "valid" is newstest2013,
    "test" newstest2014. Pairs with an empty side, of
    which the training text has some, are left out. Needs the package
    `datasets` and, the first time, a network.

    Raises:
        ImportError: `datasets` is not installed.
        OSError: the data are neither here nor can be fetched.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ImportError(
            "wmt14-ende needs the package `datasets`:"
            " pip install datasets"
        ) from error
    try:
        name = {"valid": "validation"}.get(split, split)
        rows = load_dataset("wmt/wmt14", "de-en", split=name)
    except Exception as error:
        raise OSError(
            "WMT14 could not be loaded; the first time it is fetched"
            f" over the network, about 1.5 GB: {error}"
        ) from error
    return full_pairs(row["translation"] for row in rows)


def full_pairs(rows: Iterable[dict[str, str]]) -> list[Pair]:
    """English and German of those rows that have both."""
    return [
        (row["en"].strip(), row["de"].strip())
        for row in rows
        if row["en"].strip() and row["de"].strip()
    ]
