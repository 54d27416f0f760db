"""Chapter 18's figures: what they draw is in the trees and the numbers."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest

from bookkit import parsing_figures as drawn
from transformer.data.trees import linearised, read_tree
from transformer.evaluation import BracketErrors, BracketScores

HIGH = read_tree(
    "(S (NP (NNP Anna)) (VP (VBD saw) (NP (DT the) (NN man))"
    " (PP (IN with) (NP (DT a) (NN stick)))) (. .))"
)
LOW = read_tree(
    "(S (NP (NNP Anna)) (VP (VBD saw) (NP (NP (DT the) (NN man))"
    " (PP (IN with) (NP (DT a) (NN stick))))) (. .))"
)
ROWS = [
    ("Other (2006)", "alone", 90.4),
    ("Transformer (4 layers)", "alone", 91.3),
    ("Third", "with more", 93.3),
]


def texts(figure):
    return [t for t in figure.findobj(matplotlib.text.Text) if t.get_text()]


def dark(ax):
    return [
        t.get_text()
        for t in texts(ax)
        if t.get_bbox_patch() and t.get_bbox_patch().get_facecolor()[2] == 0
    ]


def test_a_tree_has_its_words_and_labels():
    found = [t.get_text() for t in texts(drawn.trees({"one": LOW}))]
    for label in ("S", "VP", "PP"):
        assert found.count(label) == 1
    assert found.count("NP") == 4
    assert [w for w in found if w in ("Anna", "saw", "the", "man", "with", ".")]


def test_brackets_that_differ_are_dark_and_no_others():
    figure = drawn.trees({"right": LOW, "found": HIGH})
    assert [dark(ax) for ax in figure.axes] == [["NP"], []]
    # The same label and words are one bracket, wherever the full stop is.
    inside = read_tree(str(LOW).replace("))))) (. .))", ")))) (. .)))"))
    figure = drawn.trees({"right": LOW, "found": inside})
    assert [dark(ax) for ax in figure.axes] == [[], []]


def test_no_line_of_a_tree_crosses_another():
    figure = drawn.trees({"one": LOW})
    lines = [line.get_xydata() for line in figure.axes[0].lines]
    lines = [(a, b) for a, b in lines if not np.array_equal(a, b)]

    def side(a, b, c):
        return np.sign((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))

    def cross(one, two):
        (a, b), (c, d) = one, two
        return (
            side(a, b, c) * side(a, b, d) < -0.5
            and side(c, d, a) * side(c, d, b) < -0.5
        )

    assert not any(
        cross(one, two) for i, one in enumerate(lines) for two in lines[i + 1 :]
    )


def test_the_sequence_is_drawn_token_by_token():
    figure = drawn.tree_and_sequence(LOW)
    below = figure.axes[1]
    tokens = sorted(
        (t.get_position()[0], t.get_text())
        for t in texts(below)
        if t.get_text()[0] in "()X"
    )
    assert [text for _, text in tokens] == linearised(LOW)
    assert len(below.lines) == linearised(LOW).count(")NP") + 3
    for line in below.lines:
        start, end = line.get_xdata()
        opening, closing = tokens[start][1], tokens[end][1]
        assert (opening[0], closing[0]) == ("(", ")") and opening[1:] == closing[1:]


def test_closing_brackets_close_the_right_words():
    tokens = linearised(LOW)
    found = drawn.closings(LOW)
    assert [(token, start, end) for _, token, start, end in found] == [
        (")NP", 0, 1),
        (")NP", 2, 4),
        (")NP", 5, 7),
        (")PP", 4, 7),
        (")NP", 2, 7),
        (")VP", 1, 7),
        (")S", 0, 8),
    ]
    assert [tokens[place] for place, *_ in found] == [token for _, token, *_ in found]


def test_spans_are_outlined_where_the_words_are():
    weights = np.full((2, 3), 1 / 3)
    closings = [(")NP", 0, 1), (")S", 0, 2)]
    figure = drawn.span_attention(
        {"trained": weights, "untrained": weights}, closings, ["a", "b", "<eos>"]
    )
    for ax in figure.axes[:2]:
        outlined = [(p.get_x(), p.get_y(), p.get_width()) for p in ax.patches]
        assert outlined == [(0, 0, 1), (0, 1, 2)]


def test_table_4_marks_ours_and_keeps_the_groups():
    figure = drawn.table4(ROWS)
    (ax,) = figure.axes
    values = [line.get_xdata()[0] for line in ax.lines]
    assert values == [91.3, 90.4, 93.3]
    bold = [t.get_text() for t in texts(ax) if t.get_fontweight() == "bold"]
    assert {text.strip() for text in bold} == {"alone", "91.3", "with more"}


def test_errors_add_up_to_the_brackets():
    score = BracketScores(70, 100, 90, 3, 10)
    errors = BracketErrors(10, 12, 8, 6, 4)
    (ax,) = drawn.error_kinds(score, errors).axes
    widths = [bar.get_width() for bar in ax.patches]
    assert sum(widths[:4]) == score.found and sum(widths[4:]) == score.gold


def test_sentences_longer_than_in_training_are_shaded():
    rows = [
        {"words": [low, low + 4], "sentences": 3, "f1": 1 / low} for low in (1, 6, 11)
    ]
    (ax,) = drawn.by_length({"model": rows}, label="F1", learned=10).axes
    (shade,) = ax.patches
    assert shade.get_x() == 1.5
    (ax,) = drawn.by_length({"model": rows}, label="F1").axes
    assert not ax.patches


@pytest.mark.parametrize(
    "make",
    [
        lambda: drawn.trees({"one": LOW}),
        lambda: drawn.tree_and_sequence(LOW),
        lambda: drawn.table4(ROWS),
        lambda: drawn.by_length(
            {"model": [{"words": [1, 5], "sentences": 3, "f1": 0.5}]}, label="F1"
        ),
        lambda: drawn.error_kinds(BracketScores(1, 2, 2, 0, 1), BracketErrors(1)),
    ],
)
def test_every_figure_says_what_it_shows_and_is_of_one_width(make):
    figure = make()
    assert len(figure.alt) > 20 and repr(figure) == f"Figure: {figure.alt}"
    assert figure.get_figwidth() == 7
