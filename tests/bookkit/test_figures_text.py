"""Chapter 11's figures, by the words and numbers in them."""

from __future__ import annotations

import matplotlib
import pytest

from bookkit import figures


def words(figure):
    return [t.get_text() for t in figure.findobj(matplotlib.text.Text) if t.get_text()]


def test_pieces_are_boxes_as_long_as_their_letters():
    cuts = {"10": [["ab", "c"], ["d"]], "20": [["abc"], ["d"]]}
    figure = figures.pieces(cuts, label="pieces")
    (ax,) = figure.axes
    assert [round(box.get_width(), 2) for box in ax.patches] == [
        1.84,
        0.84,
        0.84,
        2.84,
        0.84,
    ]
    assert {"ab", "c", "abc", "10", "20", "pieces"} <= set(words(figure))
    assert figure.alt.startswith("The words abc, d cut into")
    with pytest.raises(ValueError, match="counts 1, but there are 2 words"):
        figures.pieces({"10": [["a"], ["b"]], "20": [["a"]]}, label="pieces")


def test_a_histogram_shows_shares_and_marks():
    figure = figures.histogram(
        {"a": [1, 1, 2, 5], "b": [3]}, label="tokens", marks={"width 8": 8}
    )
    (ax,) = figure.axes
    shares = ax.patches[0].get_data().values
    assert shares.tolist() == [0, 0.5, 0.25, 0, 0, 0.25]
    assert ax.get_xlim()[1] > 8
    assert {"tokens", "a", "b", "width 8"} <= set(words(figure))
    assert figure.alt == "Histogram of tokens: a, b; marked: width 8"


def test_blocks_show_a_row_for_each_sequence():
    figure = figures.batch_blocks({"two batches": [[3, 1], [4]], "one": [[2]]})
    first, second = figure.axes
    tokens = [bar.get_paths()[0].get_extents().width for bar in first.collections[::2]]
    padding = [
        bar.get_paths()[0].get_extents().width for bar in first.collections[1::2]
    ]
    assert tokens == [3, 1, 4] and padding == [0, 2, 0]
    assert len(second.collections) == 2
    assert {"two batches", "one", "token", "padding"} <= set(words(figure))
