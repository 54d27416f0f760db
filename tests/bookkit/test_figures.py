"""Figures, by the data and the words in them; how they look is looked at."""

from __future__ import annotations

import io
import subprocess
import sys
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image

from bookkit import figures
from transformer import (
    MultiHeadAttention,
    causal_mask,
    noam_rate,
    padding_mask,
    scaled_dot_product_attention,
    sinusoidal_encoding,
)
from transformer.training import History

TOKENS = ["The", "animal", "was", "tired"]


def weights(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0)).softmax(-1)


def cells(ax):
    """What a heat map shows, (rows, columns)."""
    return ax.collections[0].get_array()


def words(figure):
    """Every label, title and tick of a figure."""
    return " | ".join(
        text.get_text()
        for text in figure.findobj(matplotlib.text.Text)
        if text.get_text()
    )


def every_figure():
    run = History(loss=[2.0, 1.0], rate=[1e-4, 2e-4])
    yield figures.attention_heatmap(weights(4, 4), TOKENS, TOKENS)
    yield figures.mask_gallery([causal_mask(4)], ["causal"], TOKENS, TOKENS)
    yield figures.encoding_matrix(10, 16)
    yield figures.positional_waves(20, 64, pairs=(0, 4))
    yield figures.learning_rate_curve((256, 512))
    yield figures.loss_curve(run, rate=True, floor=0.3)
    yield figures.bars({"a": 1.0, "b": 0.0}, label="share of 1")
    yield figures.lines([1, 2], {"a": [[1, 2], [2, 3]]}, xlabel="x", ylabel="y")
    yield figures.strips({"kind": {"a": [0.5], "b": [1.0]}}, label="share of 1")
    yield figures.by_layer({"deep": {"a": [[1, 2], [2, 3]]}}, ylabel="y")
    yield figures.tables({"t": weights(2, 3)}, ["r", "s"], ["u", "v", "w"])


# --- all of them -------------------------------------------------------


def test_importing_bookkit_imports_no_plotting():
    code = "import sys, bookkit; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_figures_leave_the_global_style_and_pyplot_alone():
    before = dict(matplotlib.rcParams)
    for figure in every_figure():
        assert not hasattr(figure, "number")  # pyplot does not know it
    assert dict(matplotlib.rcParams) == before
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []


def test_every_figure_has_labelled_axes_alt_text_and_one_width():
    for figure in every_figure():
        assert figure.get_size_inches()[0] == figures.WIDTH
        assert len(figure.alt) > 20
        assert repr(figure) == f"Figure: {figure.alt}"
        (*_, last) = [ax for ax in figure.axes if ax.get_xlabel()]
        named = [t.get_text() for t in last.get_yticklabels()] == ["a", "b"]
        words = [ax.get_ylabel() for ax in figure.axes] + [figure.get_supylabel()]
        assert any(words) or named


def test_equal_input_gives_an_equal_picture():
    def drawn():
        figure = figures.attention_heatmap(weights(4, 4), TOKENS, TOKENS)
        figure.canvas.draw()
        return np.asarray(figure.canvas.buffer_rgba())

    assert np.array_equal(drawn(), drawn())


def test_a_notebook_shows_it_once_at_twice_the_size(monkeypatch):
    display = pytest.importorskip("IPython.display")
    shown = []
    monkeypatch.setattr(display, "display", lambda *a, **k: shown.append((a, k)))
    figures.bars({"a": 1.0}, label="share of 1")._ipython_display_()
    (((data,), keywords),) = shown
    assert data["image/png"].startswith(b"\x89PNG")
    width = int.from_bytes(data["image/png"][16:20])
    assert width == 2 * keywords["metadata"]["image/png"]["width"] == 1400
    assert data["text/plain"].startswith("Figure: Bars of share of 1")


def test_a_palette_changes_bytes_and_no_looks():
    buffer = io.BytesIO()
    heat = torch.linspace(0, 1, 4096).view(64, 64)
    figure = figures.attention_heatmap(heat, range(64), range(64))
    figure.savefig(buffer, dpi=200)
    few = figures.with_palette(buffer.getvalue())
    assert len(few) < 0.6 * len(buffer.getvalue())
    a, b = (
        np.asarray(Image.open(data).convert("RGB"), dtype=float)
        for data in (buffer, io.BytesIO(few))
    )
    assert a.shape == b.shape
    assert np.abs(a - b).mean() < 1  # of 255


def test_neighbouring_colours_differ_in_grey():
    def grey(colour):
        return matplotlib.colors.to_rgb(colour) @ np.array([0.299, 0.587, 0.114])

    greys = [grey(colour) for colour in figures.COLOURS]
    assert all(abs(a - b) > 0.1 for a, b in pairwise(greys))
    shades = [grey(figures.SHADES(x)[:3]) for x in np.linspace(0, 1, 50)]
    assert all(np.diff(shades) < 0)
    assert len(set(map(str, figures.DASHES))) == len(figures.COLOURS)


# --- heat maps ---------------------------------------------------------


def test_heatmap_has_the_query_on_the_vertical_axis():
    w = weights(3, 4)
    figure = figures.attention_heatmap(w, TOKENS[:3], TOKENS)
    ax = figure.axes[0]
    assert np.allclose(cells(ax), w)
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("query", "key")
    assert [t.get_text() for t in ax.get_yticklabels()] == TOKENS[:3]
    assert [t.get_text() for t in ax.get_xticklabels()] == TOKENS
    assert ax.get_aspect() == 1
    assert ax.yaxis_inverted()  # the first query on top
    assert figure.axes[-1].get_ylabel() == "weight (share of 1)"


def test_heatmap_prints_the_values_of_small_tables_only():
    small = figures.attention_heatmap(weights(2, 8), TOKENS[:2], TOKENS * 2)
    large = figures.attention_heatmap(weights(2, 9), TOKENS[:2], list("abcdefghi"))
    assert len(small.axes[0].texts) == 16
    assert not large.axes[0].texts


def test_heatmap_scale_is_the_same_whatever_the_weights():
    for w in (weights(4, 4), torch.eye(4)):
        figure = figures.attention_heatmap(w, TOKENS, TOKENS)
        assert figure.axes[0].collections[0].get_clim() == (0, 1)


def test_heatmaps_of_heads_label_the_outer_axes_only():
    figure = figures.attention_heatmap(
        weights(8, 4, 4), TOKENS, TOKENS, titles=[f"head {i}" for i in range(8)]
    )
    panels = figure.axes[:8]
    assert [ax.get_title(loc="left") for ax in panels][7] == "head 7"
    assert [bool(ax.get_ylabel()) for ax in panels] == [i % 4 == 0 for i in range(8)]
    assert [bool(ax.get_xlabel()) for ax in panels] == [i >= 4 for i in range(8)]


@pytest.mark.parametrize(
    ("shape", "queries", "keys", "says"),
    [
        ((4, 4), 3, 4, "query_tokens counts 3, but there are 4 rows"),
        ((4, 4), 4, 5, "key_tokens counts 5, but there are 4 columns"),
        ((4,), 4, 4, r"must be \(query, key\)"),
        ((2, 2, 4, 4), 4, 4, r"weights\[layer, batch\]"),
    ],
)
def test_heatmap_refuses_what_does_not_fit(shape, queries, keys, says):
    with pytest.raises(ValueError, match=says):
        figures.attention_heatmap(weights(*shape), ["q"] * queries, ["k"] * keys)


def test_heatmap_takes_half_precision_and_gradients():
    w = weights(4, 4).to(torch.bfloat16).requires_grad_()
    figures.attention_heatmap(w, TOKENS, TOKENS)


def test_mask_gallery_shows_who_may_attend():
    source = padding_mask(torch.tensor([[3, 4, 5, 0]]), 0)
    figure = figures.mask_gallery(
        [source, causal_mask(3)],
        ["padding", "causal"],
        [TOKENS, TOKENS[:3]],
        [TOKENS, TOKENS[:3]],
    )
    padding, causal = figure.axes[:2]
    assert cells(padding).tolist() == [[1, 1, 1, 0]] * 4
    assert cells(causal).tolist() == np.tri(3).tolist()
    blocked = [(*line.get_xdata(), *line.get_ydata()) for line in causal.lines]
    assert blocked == [(1.5, 0.5), (2.5, 0.5), (2.5, 1.5)]
    assert "may attend" in words(figure) and "blocked" in words(figure)


def test_mask_gallery_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="'soft' has dtype float32"):
        figures.mask_gallery([torch.ones(4, 4)], ["soft"], TOKENS, TOKENS)
    with pytest.raises(ValueError, match="rows of mask 'causal'"):
        figures.mask_gallery([causal_mask(3)], ["causal"], TOKENS, TOKENS[:3])


# --- positions, rates, measurements ------------------------------------


def test_encoding_matrix_shows_the_table_of_src():
    ax = figures.encoding_matrix(10, 16).axes[0]
    assert np.allclose(ax.images[0].get_array(), sinusoidal_encoding(10, 16))
    assert (ax.get_ylabel(), ax.get_xlabel()[:9]) == ("position", "dimension")
    learned = torch.randn(10, 16)
    shown = figures.encoding_matrix(10, 16, table=learned).axes[0].images[0]
    assert np.allclose(shown.get_array(), learned)
    assert shown.get_clim()[1] == pytest.approx(learned.abs().max().item())


def test_the_dots_of_the_waves_are_the_table_and_lie_on_the_lines():
    figure = figures.positional_waves(20, 64, pairs=(0, 5))
    table = sinusoidal_encoding(20, 64)
    for ax, pair in zip(figure.axes, (0, 5), strict=True):
        for odd in (0, 1):
            line, dots = ax.lines[2 * odd], ax.lines[2 * odd + 1]
            assert np.allclose(dots.get_ydata(), table[:, 2 * pair + odd])
            there = np.interp(dots.get_xdata(), line.get_xdata(), line.get_ydata())
            assert np.allclose(there, dots.get_ydata(), atol=1e-3)
    assert "wavelength 6.283 positions" in words(figure)


def test_waves_refuse_a_pair_that_is_not_there():
    with pytest.raises(ValueError, match="pairs 0 to 31"):
        figures.positional_waves(20, 64, pairs=(32,))


def test_learning_rate_curve_is_equation_3_with_its_peaks():
    figure = figures.learning_rate_curve((512, 1024), (4000,))
    ax = figure.axes[0]
    line = ax.lines[0]
    at = list(line.get_xdata()).index(4000)
    assert line.get_ydata()[at] == pytest.approx(1e3 * noam_rate(4000, 512))
    assert max(line.get_ydata()) == line.get_ydata()[at]
    assert "0.699" in words(figure) and "0.494" in words(figure)
    assert ax.get_ylabel() == "learning rate (× 10⁻³)"


def test_loss_curve_counts_steps_from_1_and_starts_at_0():
    run = History(loss=[2.0, 1.5, 1.0], rate=[1e-4, 2e-4, 3e-4])
    figure = figures.loss_curve(run, rate=True)
    loss, rate = figure.axes
    assert list(loss.lines[0].get_xdata()) == [1, 2, 3]
    assert list(loss.lines[0].get_ydata()) == run.loss
    assert rate.lines[0].get_ydata() == pytest.approx([0.1, 0.2, 0.3])
    assert loss.get_ylim()[0] == 0
    assert "nats a token" in loss.get_ylabel()
    assert [
        t.get_text()
        for t in figures.loss_curve({"a": run, "b": [1, 2]})
        .axes[0]
        .get_legend()
        .get_texts()
    ] == ["a", "b"]


def test_bars_print_their_values_and_zero_is_one_of_them():
    figure = figures.bars(
        {"teacher-forced accuracy": 1.0, "greedy exact match": 0.0},
        label="share of test sequences",
    )
    ax = figure.axes[0]
    assert [patch.get_width() for patch in ax.patches] == [1, 0]
    assert [text.get_text() for text in ax.texts] == ["1.000", "0.000"]
    assert ax.yaxis_inverted()  # the first on top


def test_lines_are_means_and_bands_reach_from_lowest_to_highest():
    runs = np.array([[1.0, 2.0], [3.0, 6.0]])
    figure = figures.lines(
        [4, 16], {"a": runs}, xlabel="width", ylabel="variance", expected={"d": [4, 16]}
    )
    ax = figure.axes[0]
    assert list(ax.lines[0].get_ydata()) == [2, 4]
    band = ax.collections[0].get_paths()[0].vertices
    assert {(4, 1), (4, 3), (16, 2), (16, 6)} <= {tuple(v) for v in band}
    assert (
        ax.get_legend().get_title().get_text() == "band: lowest to highest of 2 seeds"
    )


def test_lines_refuse_what_cannot_be_told_apart_or_does_not_fit():
    with pytest.raises(ValueError, match="6 lines: 1 to 5"):
        figures.lines([1], {name: [1] for name in "abcdef"}, xlabel="x", ylabel="y")
    with pytest.raises(ValueError, match=r"values\['a'\] counts 3.*2 points of x"):
        figures.lines([1, 2], {"a": [1, 2, 3]}, xlabel="x", ylabel="y")


def test_strips_have_a_dot_for_each_seed_and_a_tick_at_the_median():
    made = figures.strips(
        {"before": {"copy": [0.2, 0.5, 0.9]}, "after": {"copy": [0.9], "sort": [1]}},
        label="share",
    )
    (ax,) = made.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["copy", "sort"]
    drawn = {
        (line.get_marker(), tuple(np.ravel(line.get_xdata())))
        for line in ax.lines
        if len(line.get_xdata())
    }
    before, after = figures.MARKERS[:2]
    dots = {(before, (0.2, 0.5, 0.9)), (after, (0.9,)), (after, (1,))}
    assert drawn == dots | {("|", (0.5,)), ("|", (0.9,)), ("|", (1,))}
    assert "before" in words(made) and "after" in words(made)


def test_relations_say_what_a_filled_cell_means():
    table = torch.tensor([[True, False], [True, True]])
    figure = figures.relations(
        [table], ["decoder"], ["a", "b"], ["c", "d"], holds="it moves", fails="stays"
    )
    said = words(figure)
    assert "it moves" in said and "×  stays" in said
    assert "output" in said and "input" in said
    assert "a filled cell means it moves" in figure.alt
    with pytest.raises(ValueError, match="decoder"):
        figures.relations(
            [table], ["decoder"], ["a"], ["c", "d"], holds="it moves", fails="stays"
        )


def test_the_steps_of_attention_are_those_of_the_equation():
    draw = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(4, 2, generator=draw) for _ in range(3))
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    figure = figures.attention_steps(query, key, value, TOKENS, mask)
    shown = [np.asarray(cells(ax)).reshape(4, -1) for ax in figure.axes]
    output, weights = scaled_dot_product_attention(
        query, key, value, mask, return_weights=True
    )
    assert np.allclose(shown[0], query @ key.T)
    assert np.allclose(shown[1], query @ key.T / 2**0.5)
    assert np.allclose(shown[3], weights, atol=1e-6)
    assert np.allclose(shown[5], output, atol=1e-6)
    assert words(figure).count("−∞") >= 6
    with pytest.raises(ValueError, match="tokens"):
        figures.attention_steps(query, key, value, TOKENS[:3], mask)


# --- heads ---------------------------------------------------------------


def test_head_blocks_colour_an_entry_by_the_row_it_came_from():
    entries = torch.arange(32).view(4, 8)
    split = entries.view(4, 2, 4).transpose(0, 1)
    figure = figures.head_blocks(entries, {"split": split}, TOKENS)
    (ax,) = figure.axes
    shown = [patch.get_facecolor() for patch in ax.patches]
    rows = [*entries.flatten() // 8, *split.flatten() // 8]
    wanted = [matplotlib.colors.to_rgba(figures.BLOCKS[row]) for row in rows]
    assert shown == wanted
    assert all(token in words(figure) for token in TOKENS)
    with pytest.raises(ValueError, match="tokens counts 3"):
        figures.head_blocks(entries, {"split": split}, TOKENS[:3])


def test_multi_head_steps_end_in_what_the_module_gives():
    attention = MultiHeadAttention(8, heads=2)
    x = torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(0))
    figure = figures.multi_head_steps(attention, x, TOKENS)
    *_, joined, output = figure.axes
    assert np.allclose(cells(output), attention(x, x, x)[0].detach(), atol=1e-6)
    heads = [cells(figure.axes[index]) for index in (6, 7)]
    assert np.allclose(cells(joined), np.concatenate(heads, axis=1))
    with pytest.raises(ValueError, match="tokens counts 3"):
        figures.multi_head_steps(attention, x, TOKENS[:3])


def test_norm_places_draws_both_orders():
    said = words(figures.norm_places())
    assert said.index("post-norm") < said.index("pre-norm")
    assert "sub-layer | + | LayerNorm" in said
    assert "LayerNorm | sub-layer | +" in said
    assert "LayerNorm(x + Sublayer(x))" in said
    assert "x + Sublayer(LayerNorm(x))" in said


def test_panels_by_layer_may_be_unequally_deep():
    two, three = [[1, 2], [3, 6]], [1, 2, 3]
    figure = figures.by_layer(
        {"low": {"a": two}, "high": {"a": three}}, ylabel="norm", yscale="log"
    )
    low, high = figure.axes
    assert list(low.lines[0].get_xdata()) == [1, 2]
    assert list(low.lines[0].get_ydata()) == [2, 4]
    assert list(high.lines[0].get_ydata()) == three
    assert low.get_yscale() == "log" and low.get_ylabel() == "norm"
    assert "lowest to highest of 2 seeds" in words(figure)


def test_tables_show_their_numbers_in_one_set_of_shades():
    given = {"one": [[1.0, -2.0]], "two": [[0.25, 4.0]]}
    figure = figures.tables(given, ["r"], ["u", "v"])
    for ax, table in zip(figure.axes, given.values(), strict=True):
        assert cells(ax).tolist() == table
        assert ax.collections[0].get_clim() == (-4, 4)
    assert "−2.0" in words(figure)
    plain = figures.tables(
        {"": [[1.0, 2.0]]}, ["r"], ["u", "v"], across=1, signed=False
    )
    assert plain.axes[0].collections[0].get_clim() == (0, 2)
    with pytest.raises(ValueError, match="columns of 'one'"):
        figures.tables(given, ["r"], ["u"])


def test_dependency_graphs_count_the_arrows_of_the_shortest_way():
    graphs = {
        "recurrence": {"h1": ["x1"], "h2": ["x2", "h1"], "h3": ["x3", "h2"]},
        "attention": {f"y{t}": ["x1", "x2", "x3"] for t in (1, 2, 3)},
    }
    figure = figures.dependency_graphs(graphs)
    assert figure.get_size_inches()[0] == figures.WIDTH
    assert "recurrence: 3 arrows" in words(figure)
    assert "attention: 1 arrow" in words(figure)
    assert "recurrence, attention" in figure.alt
    drawn = [len(ax.texts) - len(ax.patches) for ax in figure.axes]
    assert drawn == [5, 9], "an arrow for each pair"
