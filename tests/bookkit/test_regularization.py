"""Section 5.4: dropout counted, targets read off a loss, and the figures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.text import Text
from torch.nn import functional as F

from bookkit import CheckFailed, check, example, figures, mutations, regularization
from transformer import LabelSmoothingLoss, Transformer, TransformerConfig

PAIR = example.ids(example.SOURCE), example.ids(example.TARGET_IN)


def counted(**changes):
    config = TransformerConfig(vocab_size=9, layers=3, d_model=16, d_ff=8, **changes)
    model = Transformer(config).eval()
    found = regularization.by_place(regularization.dropouts(model, *PAIR))
    assert not any(part.training for part in model.modules())
    assert not any(part._forward_hooks for part in model.modules())
    return list(found.values())


def test_dropouts_are_counted_where_they_fall():
    assert counted() == [2, 0, 9, 0, 6]
    assert counted(dropout=0.0) == [0] * 5
    assert counted(attention_dropout=0.2, activation_dropout=0.3) == [2, 9, 9, 6, 6]


def test_the_target_that_a_loss_asks_for_is_read_off_its_gradient():
    gold = torch.tensor([3, 0, 1])
    ours = regularization.asked_for(LabelSmoothingLoss(0.2, 0), gold, 5)
    assert torch.allclose(ours, regularization.written_out(gold.tolist(), 5, 0.2))

    def framework(logits, gold):
        flat = logits.flatten(0, 1), gold.flatten()
        return F.cross_entropy(*flat, ignore_index=0, label_smoothing=0.2)

    theirs = regularization.asked_for(framework, gold, 5)[0]
    expected = torch.tensor([0.04, 0.04, 0.04, 0.84, 0.04]).double()
    assert torch.allclose(theirs, expected)


def test_a_right_target_passes_and_a_wrong_one_is_named():
    assert len(check.smoothed_target(regularization.written_out).statements) == 4

    def over_all(gold, classes, smoothing):
        one_hot = F.one_hot(gold, classes).double()
        target = (1 - smoothing) * one_hot + smoothing / classes
        return target * (gold != 0)[:, None]

    with pytest.raises(CheckFailed) as caught:
        check.smoothed_target(over_all)
    assert caught.value.mistakes == ["smoothing_over_all_classes"]


def test_smoothing_at_padding_is_found_and_named():
    with (
        mutations.applied("smoothing_at_padding"),
        pytest.raises(CheckFailed) as caught,
    ):
        check.in_use()
    assert caught.value.mistakes == ["smoothing_at_padding"]


# --- figures -------------------------------------------------------------


def said(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_dropout_places_say_how_many_were_found():
    counts = dict(zip(regularization.PLACES, [2, 0, 18, 0, 12], strict=True))
    figure = figures.dropout_places(counts, 0.1)
    assert figure.get_size_inches()[0] == figures.WIDTH
    assert {"2 × 0.1", "18 × 0.1", "12 × 0.1"} <= set(said(figure))
    assert said(figure).count("none") == 2
    assert "not found: attention weights, inside feed-forward" in figure.alt


def test_confidence_curves_have_a_ring_at_a_minimum_inside():
    p = np.array([0.5, 0.9, 0.99])
    losses = {"falls": [2.0, 1.0, 0.5], "turns": [2.0, 1.0, 1.5]}
    figure = figures.confidence_curve(losses, p)
    (ax,) = figure.axes
    rings = [line for line in ax.lines if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in rings] == [0.9]
    assert "falls, turns" in figure.alt
    with pytest.raises(ValueError, match="losses"):
        figures.confidence_curve({"a": [1.0]}, p)


def test_reliability_pools_seeds_by_their_tokens():
    table = [[[0.2, 0.1, 30], [0.8, 0.6, 10]], [[0.3, 0.5, 10], [0.0, 0.0, 0]]]
    figure = figures.reliability({"model": table})
    (ax,) = figure.axes
    _, each, pooled = ax.lines
    assert len(each.get_xdata()) == 3, "the empty bin is left out"
    assert np.allclose(pooled.get_xdata(), [0.225, 0.8])
    assert np.allclose(pooled.get_ydata(), [0.2, 0.6])
    assert ax.get_aspect() == 1
    assert "model" in figure.alt
