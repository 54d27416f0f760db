"""Chapter 02's views follow the model, and nothing but the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bookkit import architecture, example, figures, mutations, use
from transformer import Transformer, TransformerConfig, greedy_decode

SOURCE = example.ids(example.SOURCE)
TARGET = example.ids(example.TARGET_IN[:3])


@pytest.fixture
def steps():
    return architecture.trace(example.model(), SOURCE, TARGET)


def words(figure):
    return [text.get_text() for ax in figure.axes for text in ax.texts]


# --- the trace ---------------------------------------------------------


def test_the_trace_has_every_part_once_in_the_order_of_the_run(steps):
    model = example.model()
    assert sorted(s.name for s in steps) == sorted(
        name for name, _ in architecture.parts(model)
    )
    assert [s.part for s in steps if s.name.startswith("decoder.layers.0")] == [
        "self_attention",
        "around_self_attention",
        "cross_attention",
        "around_cross_attention",
        "feed_forward",
        "around_feed_forward",
    ]


def test_the_shared_embedding_has_both_its_names(steps):
    shapes = {s.name: s.shape for s in steps}
    assert shapes["source_embedding"] == (1, 4, 8)
    assert shapes["target_embedding"] == (1, 3, 8)


def test_the_trace_ends_with_the_logits(steps):
    model = example.model()
    assert torch.equal(steps[-1].output, model(SOURCE, TARGET))
    assert (steps[-1].name, steps[-1].file) == ("output_projection", "linear.py")


def test_tracing_leaves_no_hook(steps):
    model = example.model()
    architecture.trace(model, SOURCE, TARGET)
    assert not any(part._forward_hooks for part in model.modules())


def test_a_part_of_the_readers_own_is_named_as_such():
    class Mine(nn.Module):
        def __init__(self, d_model, d_ff):
            super().__init__()

        def forward(self, x):
            return x

    with use(PositionwiseFeedForward=Mine):
        steps = architecture.trace(example.model(), SOURCE, TARGET)
    (file,) = {s.file for s in steps if s.part == "feed_forward"}
    assert file == "your own"


# --- the count ---------------------------------------------------------


@pytest.mark.parametrize("row", ["base", "big"])
def test_the_count_is_of_all_parameters(row):
    with torch.device("meta"):
        model = Transformer(TransformerConfig.table3(row))
    total = sum(weights.numel() for weights in model.parameters())
    assert sum(architecture.count(model).values()) == total


def test_the_parts_of_base_are_as_counted_by_hand():
    with torch.device("meta"):
        counted = architecture.count(Transformer(TransformerConfig.base()))
    assert counted == {
        "embedding": 37000 * 512,
        "encoder self-attention": 6 * 4 * 512**2,
        "encoder feed-forward": 6 * (2 * 512 * 2048 + 2048 + 512),
        "decoder self-attention": 6 * 4 * 512**2,
        "attention to memory": 6 * 4 * 512**2,
        "decoder feed-forward": 6 * (2 * 512 * 2048 + 2048 + 512),
        "normalisation": 30 * 1024,
    }


@pytest.mark.parametrize("row", ["base", "big"])
def test_the_formula_of_the_chapter_counts_as_the_model_has(row):
    config = TransformerConfig.table3(row)
    with torch.device("meta"):
        counted = architecture.count(Transformer(config))
    assert architecture.by_formula(config) == sum(counted.values())


# --- runs and work -----------------------------------------------------


def test_writing_runs_the_decoder_once_a_token():
    model = example.model()
    with architecture.counting(model) as runs:
        written = greedy_decode(model, SOURCE, max_length=4)
    assert runs == {"encoder": 1, "decoder": written.size(1)}
    assert not model.encoder._forward_hooks and not model.decoder._forward_hooks


def test_the_work_is_as_the_formulas_say():
    n, d = 16, 512
    assert architecture.work(TransformerConfig.base(), n) == {
        "feed-forward": n * 8 * d**2,
        "attention": n * (4 * d**2 + 2 * n * d),
    }


def test_shares_of_the_work_want_a_network_four_times_as_wide():
    with pytest.raises(ValueError, match="d_ff"):
        architecture.work_shares(TransformerConfig.base(d_ff=1024), [16])


def test_a_part_that_mixes_positions_moves_them_all():
    x = torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(architecture.moves(torch.relu, x.abs()), torch.eye(3) > 0)
    assert architecture.moves(lambda x: x - x.mean(1, keepdim=True) ** 2, x).all()


# --- the figures -------------------------------------------------------


def test_figure_1_has_a_box_and_a_file_for_each_part(steps):
    shown = words(architecture.figure_1(steps))
    assert shown.count("add and normalise") == 5
    assert shown.count("attention.py") == 3
    assert {"masked self-attention", "attention to memory", "memory z"} <= set(shown)


def test_figure_1_follows_the_order_of_the_run():
    with mutations.applied("cross_before_self"):
        steps = architecture.trace(example.model(), SOURCE, TARGET)
    shown = words(architecture.figure_1(steps))
    assert shown.index("attention to memory") < shown.index("masked self-attention")


def test_the_journey_shows_the_sizes_of_every_table(steps):
    shown = words(architecture.journey(steps, example.SOURCE, example.TARGET_IN[:3]))
    assert shown.count("4 × 8") == 6
    assert shown.count("3 × 8") == 8
    assert shown.count("3 × 9") == 1


def test_the_shares_of_a_model_add_up():
    counts = {"small": architecture.count(example.model())}
    figure = architecture.shares(counts)
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    left_out = counts["small"]["normalisation"] / sum(counts["small"].values())
    assert sum(widths) == pytest.approx(100 * (1 - left_out))


def test_position_by_position_leaves_white_what_relu_set_to_0():
    network = example.model().encoder.layers[0].feed_forward
    x = torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(0))
    figure = architecture.position_by_position(network, x, ["a", "b", "c"])
    cells = figure.axes[0].patches
    zeros = (network.widen(x) <= 0).sum()
    white = [cell for cell in cells if cell.get_facecolor()[:3] == (1, 1, 1)]
    assert len(cells) == 3 * (8 + 16 + 8)
    assert len(white) == zeros > 0
    assert not network.narrow._forward_pre_hooks


def test_the_figures_have_alt_text_and_the_books_width(steps):
    for figure in (
        architecture.figure_1(steps),
        architecture.journey(steps, example.SOURCE, example.TARGET_IN[:3]),
        architecture.shares({"small": architecture.count(example.model())}),
        architecture.position_by_position(
            example.model().encoder.layers[0].feed_forward, torch.ones(1, 1, 8), ["a"]
        ),
        architecture.what_follows(
            {"one": example.model(), "other": example.model()},
            SOURCE,
            TARGET,
            example.VOCABULARY,
        ),
        architecture.who_moves({"relu": torch.relu}, torch.ones(1, 1, 8), ["a"]),
        architecture.work_shares(TransformerConfig.base(), [16, 32]),
    ):
        assert isinstance(figure, figures.Figure)
        assert figure.get_size_inches()[0] == figures.WIDTH
        assert len(figure.alt) > 20
