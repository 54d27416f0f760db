"""Annotated source: live, anchored, and the same in every form."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from importlib.resources import files

import pytest
import torch

import bookkit
import transformer
from bookkit import beam, heads, later, proofs, source, table3
from bookkit.source import StaleNote, notes_of, show_source
from transformer.pretrained import framework, marian

CHAPTERS = sorted(p.name[:-4] for p in (files("bookkit") / "notes").iterdir())
attention = transformer.scaled_dot_product_attention


def lookup(name):
    first, *rest = name.split(".")
    modules = [m for n, m in sys.modules.items() if n.split(".")[0] == "transformer"]
    # What chapters show besides: the book's own code, and A3's.
    modules = [heads, beam, later, proofs, table3, framework, marian, *modules]
    found = next(vars(m)[first] for m in modules if first in vars(m))
    for attribute in rest:
        found = getattr(found, attribute)
    return found


def notes(monkeypatch, **notes):
    """Stand-in for the shipped notes."""
    made = {
        name.replace("__", "."): [{"at": at, "note": text} for at, text in pairs]
        for name, pairs in notes.items()
    }
    monkeypatch.setattr(source, "notes_of", lambda chapter: made)


class Text(HTMLParser):
    """Text, ids and links of a piece of HTML."""

    def __init__(self, html):
        super().__init__()
        self.text, self.ids, self.links, self.described = "", [], [], []
        self.tags, self.skip = [], False
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.skip = tag == "style"
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes["href"]] if "href" in attributes else []
        if "aria-describedby" in attributes:
            self.described.append(attributes["aria-describedby"])

    def handle_endtag(self, tag):
        self.skip = False

    def handle_data(self, data):
        self.text += "" if self.skip else data


# --- the shipped notes -------------------------------------------------


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_shipped_note_is_anchored(chapter):
    for name, written in notes_of(chapter).items():
        shown = show_source(lookup(name), chapter=chapter)
        assert len(shown.notes) == len(written), name


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_shipped_notes_are_few_and_short(chapter):
    for name, written in notes_of(chapter).items():
        assert 2 <= len(written) <= 6, name
        for note in written:
            assert set(note) == {"at", "note"}
            assert len(note["note"]) <= 230, note["note"]


# --- anchors -----------------------------------------------------------


def test_note_on_code_that_is_gone_fails_and_names_both(monkeypatch):
    notes(monkeypatch, scaled_dot_product_attention=[("tanh(", "why tanh")])
    with pytest.raises(StaleNote, match=r"04\.yml.*'tanh\('.*0 times.*why tanh"):
        show_source(attention, chapter="04")


def test_note_on_code_that_stands_twice_fails(monkeypatch):
    notes(monkeypatch, scaled_dot_product_attention=[("mask is not None", "which?")])
    with pytest.raises(StaleNote, match=r"[2-9] times, not once"):
        show_source(attention, chapter="04")


def test_docstring_that_is_folded_away_holds_no_anchor(monkeypatch):
    notes(monkeypatch, scaled_dot_product_attention=[("broadcasts to", "hidden")])
    with pytest.raises(StaleNote):
        show_source(attention, chapter="04")


def test_chapter_without_notes_on_the_object_fails():
    with pytest.raises(LookupError, match=r"04\.yml has no notes on noam_rate"):
        show_source(transformer.noam_rate, chapter="04")
    with pytest.raises(LookupError, match="no notes for chapter '99'"):
        show_source(attention, chapter="99")


def test_notes_are_numbered_by_line_whatever_their_order(monkeypatch):
    notes(
        monkeypatch,
        scaled_dot_product_attention=[
            ("scores.softmax(", "second"),
            ("query @", "first"),
        ],
    )
    shown = repr(show_source(attention, chapter="04"))
    assert re.search(r"query @ .*# \[1\]\n", shown)
    assert re.search(r"scores.softmax\(.*# \[2\]\n", shown)
    assert "[1] first\n\n[2] second" in shown


def test_notes_on_a_method_show_with_its_class(monkeypatch):
    name = "split_heads"
    notes(
        monkeypatch,
        MultiHeadAttention=[("class MultiHeadAttention", "the class")],
        MultiHeadAttention__split_heads=[(".transpose(1, 2)", "the method")],
    )
    shown = show_source(transformer.MultiHeadAttention, chapter="05", part=name)
    assert [note.text for note in shown.notes] == ["the class", "the method"]


# --- what is shown -----------------------------------------------------


def test_long_docstring_folds_to_its_first_line():
    shown = show_source(attention)
    (line,) = [line for line in shown.lines if line.folded]
    assert line.text.strip().startswith('"""Equation 1')
    assert 'sqrt(d_k)) V. ..."""\n' in repr(shown)
    assert "broadcasts to" not in repr(shown)
    assert "broadcasts to" in Text(shown._repr_html_()).text


def test_part_shows_some_methods_in_the_order_of_the_class():
    shown = repr(
        show_source(transformer.MultiHeadAttention, part=["split_heads", "forward"])
    )
    assert shown.index("def forward(") < shown.index("def split_heads(")
    assert "class MultiHeadAttention" in shown
    assert "\n    ...\n" in shown
    assert "def __init__" not in shown and "def merge_heads" not in shown


def test_unknown_part_is_refused():
    with pytest.raises(ValueError, match=r"part='nope'.*forward"):
        show_source(transformer.MultiHeadAttention, part="nope")


def write_module(tmp_path, monkeypatch, text):
    """A module of ours, as far as `show_source` can tell."""
    (tmp_path / "made.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(source, "OURS", ("made",))
    sys.modules.pop("made", None)
    import linecache

    import made

    linecache.clearcache()
    return made


FUNCTION = 'def f(x):\n    """One line."""\n    return f"{x!r:>{3}} é" + "(" * 2\n'


def test_an_edit_elsewhere_in_the_file_changes_nothing(tmp_path, monkeypatch):
    before = write_module(tmp_path, monkeypatch, FUNCTION)
    first = show_source(before.f)._repr_mimebundle_()
    after = write_module(
        tmp_path, monkeypatch, f"import os\n\n\nx = 1\n\n\n{FUNCTION}\n\ny = 2\n"
    )
    assert show_source(after.f)._repr_mimebundle_() == first


def test_an_fstring_is_one_string_in_every_python(tmp_path, monkeypatch):
    made = write_module(tmp_path, monkeypatch, FUNCTION)
    html = show_source(made.f)._repr_html_()
    assert '<span class="bk-s">f"{x!r:&gt;{3}} é"</span>' in html


# --- HTML and text -----------------------------------------------------


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_html_says_what_the_text_says(chapter):
    for name in notes_of(chapter):
        shown = show_source(lookup(name), chapter=chapter)
        html = Text(shown._repr_html_())
        assert "script" not in html.tags
        for line in shown.lines:
            assert line.text in html.text
        for n, note in enumerate(shown.notes, 1):
            assert f"[{n}] {note.text.replace('`', '')}" in html.text


def test_marks_and_notes_point_at_each_other():
    html = Text(show_source(attention, chapter="04")._repr_html_())
    assert len(html.ids) == len(set(html.ids)) == 12
    inside = [link[1:] for link in html.links if link.startswith("#")]
    assert sorted(inside) == sorted(html.ids)
    assert set(html.described) == {i for i in html.ids if "-note-" in i}


def test_ids_differ_between_objects_chapters_and_parts():
    heads = transformer.MultiHeadAttention
    one = show_source(heads.forward, chapter="05")
    two = show_source(heads.split_heads, chapter="05")
    three = show_source(heads, chapter="05", part="forward")
    assert len({one.id, two.id, three.id}) == 3


def test_link_to_the_file_can_be_set():
    shown = show_source(attention, link="../code/")
    assert shown.link == "../code/transformer/attention.py"
    assert 'href="../code/transformer/attention.py"' in shown._repr_html_()
    assert "in src/transformer/attention.py" in repr(show_source(attention))


def test_code_is_escaped():
    html = show_source(transformer.Transformer.build_masks)._repr_html_()
    assert "-&gt;" in html and "->" not in re.sub("<style>.*?</style>", "", html)


# --- the reader's own --------------------------------------------------


def test_a_replaced_part_shows_the_readers_source_without_notes():
    def mine(query, key, value, mask=None):
        return value  # mine

    with bookkit.use(scaled_dot_product_attention=mine):
        shown = show_source(attention, chapter="04")
        also = show_source(transformer.scaled_dot_product_attention, chapter="04")
    assert "return value  # mine" in repr(shown)
    assert repr(shown) == repr(also)
    assert not shown.notes and not shown.link
    said = "your own, in place of the book's scaled_dot_product_attention"
    assert said in " ".join(repr(shown).split())
    assert said in Text(shown._repr_html_()).text
    assert show_source(attention, chapter="04").notes


class Mine(transformer.MultiHeadAttention):
    def forward(self, query, key, value, mask=None):
        return value  # mine


def test_a_replaced_class_and_its_methods():
    with bookkit.use(MultiHeadAttention=Mine):
        for obj in (
            transformer.MultiHeadAttention,
            transformer.MultiHeadAttention.forward,
        ):
            shown = show_source(obj, chapter="05", part=None)
            assert "return value  # mine" in repr(shown)
            assert "your own" in repr(shown)


def test_what_has_no_source_says_so():
    kernel = torch.nn.functional.scaled_dot_product_attention
    assert "cannot tell the source" in repr(show_source(kernel))


def test_a_class_defined_in_a_cell_is_found():
    import linecache

    cell = "class Own:\n    def forward(self, x):\n        return x\n"
    linecache.cache["<cell>"] = (len(cell), None, cell.splitlines(True), "<cell>")
    space = {"__name__": "__nowhere__"}
    exec(compile(cell, "<cell>", "exec"), space)
    assert "return x" in repr(show_source(space["Own"]))


def test_bookkit_gives_it():
    assert bookkit.show_source is show_source
