"""Reading sentence pairs: what is read, and each fault by its line."""

from __future__ import annotations

import gzip
import lzma
import sys
import types

import pytest

from transformer.data import text
from transformer.data.text import TextError, read_pairs


def file(tmp_path, content: bytes | str, name="pairs.tsv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_two_columns(tmp_path):
    path = file(tmp_path, "a b\tA B\nc\tC\n")
    assert read_pairs(path) == [("a b", "A B"), ("c", "C")]


def test_three_columns_begin_with_an_id(tmp_path):
    path = file(tmp_path, "1\ta\tA\n2\tb\tB\n")
    assert read_pairs(path) == [("a", "A"), ("b", "B")]


def test_two_files(tmp_path):
    paths = file(tmp_path, "a\nb\n", "x.en"), file(tmp_path, "A\nB", "x.de")
    assert read_pairs(*paths) == [("a", "A"), ("b", "B")]


@pytest.mark.parametrize("module", [gzip, lzma])
def test_compressed(tmp_path, module):
    name = {gzip: "pairs.tsv.gz", lzma: "pairs.tsv.xz"}[module]
    path = file(tmp_path, module.compress(b"a\tA\n"), name)
    assert read_pairs(str(path)) == [("a", "A")]


def test_only_line_feeds_end_a_line(tmp_path):
    # U+2028 and a form feed are characters of a sentence.
    path = file(tmp_path, "a\u2028b\x0cc\tA\r\nd\tD\r\n")
    assert read_pairs(path) == [("a\u2028b\x0cc", "A"), ("d", "D")]


def test_a_byte_order_mark_is_no_text(tmp_path):
    assert read_pairs(file(tmp_path, "\ufeffa\tA\n")) == [("a", "A")]


@pytest.mark.parametrize(
    ("content", "line", "fault"),
    [
        ("", None, "no sentence pairs"),
        ("a\tA\nb\n", 2, "2 columns expected, 1 found"),
        ("a\tA\nb\tB\tC\n", 2, "2 columns expected, 3 found"),
        ("a A\n", 1, "2 or 3 columns expected, 1 found"),
        ("a\tb\tc\td\n", 1, "2 or 3 columns expected, 4 found"),
        ("a\tA\n\nb\tB\n", 2, "2 columns expected, 1 found"),
        ("a\tA\n \tB\n", 2, "source is empty"),
        ("a\tA\nb\t\n", 2, "target is empty"),
        ("7\ta\tA\n8\tb\tB\n7\tc\tC\n", 3, "id '7' is that of line 1 too"),
        (b"a\tA\nb\xff\tB\n", 2, "byte 2 is not UTF-8"),
        ("a\tA".encode("utf-16"), 1, "not UTF-8"),
    ],
)
def test_a_fault_is_named_with_file_and_line(tmp_path, content, line, fault):
    path = file(tmp_path, content)
    with pytest.raises(TextError) as caught:
        read_pairs(path)
    place = f"{path}:{line}: " if line else f"{path}: "
    assert str(caught.value).startswith(place)
    assert fault in str(caught.value)


@pytest.mark.parametrize("longer", [0, 1])
def test_two_files_of_unequal_length(tmp_path, longer):
    paths = [file(tmp_path, "a\nb\n", "x.en"), file(tmp_path, "A\nB\n", "x.de")]
    paths[longer].write_text("a\nb\nc\n")
    with pytest.raises(TextError, match="has no line for this one") as caught:
        read_pairs(*paths)
    assert str(caught.value).startswith(f"{paths[longer]}:3: {paths[1 - longer]}")


def test_an_empty_line_in_one_of_two_files(tmp_path):
    paths = file(tmp_path, "a\nb\n", "x.en"), file(tmp_path, "A\n\n", "x.de")
    with pytest.raises(TextError, match="empty") as caught:
        read_pairs(*paths)
    assert str(caught.value).startswith(f"{paths[1]}:2")


@pytest.mark.parametrize("count", [0, 3])
def test_one_or_two_files(tmp_path, count):
    with pytest.raises(ValueError, match=f"{count} files"):
        read_pairs(*[file(tmp_path, "a\tA\n")] * count)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_pairs(tmp_path / "none.tsv")


def test_gzip_that_is_cut_off_is_an_error(tmp_path):
    whole = gzip.compress(b"a\tA\n" * 1000)
    path = file(tmp_path, whole[: len(whole) // 2], "pairs.tsv.gz")
    with pytest.raises((TextError, OSError, EOFError)):
        read_pairs(path)


@pytest.fixture
def datasets(monkeypatch):
    """A stand-in for the package: two pairs in WMT14's format."""
    asked = []

    def load_dataset(*arguments, split):
        asked.append((*arguments, split))
        rows = [("A cat. ", "Eine Katze."), ("", "Ohne Quelle"), ("x", " ")]
        return [{"translation": {"de": de, "en": en}} for en, de in rows]

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    return asked


@pytest.mark.parametrize(
    ("split", "name"), [("train", "train"), ("valid", "validation"), ("test", "test")]
)
def test_wmt14_comes_as_pairs_of_english_and_german(datasets, split, name):
    assert text.wmt14_en_de(split) == [("A cat.", "Eine Katze.")]
    assert datasets == [("wmt/wmt14", "de-en", name)]


def test_wmt14_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match="pip install datasets"):
        text.wmt14_en_de("train")


def test_wmt14_without_a_network(datasets, monkeypatch):
    def fail(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.setattr(sys.modules["datasets"], "load_dataset", fail)
    with pytest.raises(OSError, match="over the network"):
        text.wmt14_en_de("train")
