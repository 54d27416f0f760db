"""Chapter 09's figures, by the numbers in them."""

from __future__ import annotations

import math

import matplotlib
import numpy as np
import pytest
import torch

from bookkit import figures
from transformer import sinusoidal_encoding


def words(figure):
    texts = figure.findobj(matplotlib.text.Text)
    return " | ".join(text.get_text() for text in texts if text.get_text())


def test_wavelengths_end_where_the_printed_formula_ends():
    figure = figures.wavelengths(512)
    above, below = figure.axes
    printed = above.lines[0].get_ydata()
    assert printed[0] == pytest.approx(2 * math.pi)
    assert printed[-1] == pytest.approx(60611.48, abs=0.01)
    assert "60611" in words(figure) and "62832" not in words(figure)
    longer = below.lines[0].get_ydata()
    assert printed[-1] * (1 + longer[-1] / 100) == pytest.approx(20000 * math.pi)


def test_clock_hands_are_the_table():
    figure = figures.clocks([4, 20], 3, 16, pairs=(0, 2))
    (ax,) = figure.axes
    table = sinusoidal_encoding(24, 16).numpy()
    shown = []
    for line in ax.lines:
        x, y = line.get_data()
        shown.append((x[1] - x[0], y[1] - y[0]))
    right = [
        table[p + later, 2 * pair : 2 * pair + 2]
        for pair in (0, 2)
        for p in (4, 20)
        for later in (3, 0)
    ]
    np.testing.assert_allclose(shown, right, atol=1e-6)


def test_wedges_of_a_column_are_equal():
    (ax,) = figures.clocks([4, 20, 57], 3, 16, pairs=(1,)).axes
    wedges = [p for p in ax.patches if isinstance(p, matplotlib.patches.Wedge)]
    sizes = [wedge.theta2 - wedge.theta1 for wedge in wedges]
    turn = math.degrees(3 * 10000 ** (-2 / 16))
    assert sizes == pytest.approx([turn] * 3)


def test_clocks_refuse_a_pair_that_is_not_there():
    with pytest.raises(ValueError, match="pairs holds 8, but d_model=16"):
        figures.clocks([0], 1, 16, pairs=(8,))


def test_products_first_rise_at_44():
    figure = figures.offset_products()
    assert "k = 44" in words(figure)
    pe = sinusoidal_encoding(145, 512).double()
    products = (pe[0] @ pe.T).numpy()
    rises = np.flatnonzero(np.diff(products) > 0) + 1
    assert rises[0] == 44
    drawn = figure.axes[0].lines[0].get_ydata()
    np.testing.assert_allclose(drawn[100:], products[:101], atol=1e-4)
    np.testing.assert_allclose(drawn, drawn[::-1], atol=1e-4)


def test_products_need_room_on_the_left():
    with pytest.raises(ValueError, match="positions holds 50"):
        figures.offset_products(positions=(50,))


def test_half_of_the_pairs_do_not_turn_once_in_512_positions():
    rate = 10000 ** (torch.arange(0, 512, 2).double() / -512)
    assert (2 * math.pi / rate > 512).sum() == 133
