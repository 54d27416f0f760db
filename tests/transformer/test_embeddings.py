"""Section 3.4: scaled token embeddings."""

from __future__ import annotations

import math

import pytest
import torch

from transformer import TokenEmbedding
from transformer.positional_encoding import sinusoidal_encoding


def test_ids_pick_rows_times_the_root_of_d_model():
    embedding = TokenEmbedding(7, 12)
    ids = torch.tensor([[3, 0, 3], [6, 1, 2]])
    output = embedding(ids)
    for row in range(2):
        for column in range(3):
            expected = embedding.weight[ids[row, column]] * math.sqrt(12)
            torch.testing.assert_close(output[row, column], expected)


def test_weights_start_with_variance_1_over_d_model():
    torch.manual_seed(0)
    weight = TokenEmbedding(2000, 64).weight
    assert weight.mean().item() == pytest.approx(0.0, abs=0.002)
    assert weight.var().item() == pytest.approx(1 / 64, rel=0.02)


def test_scaled_embeddings_and_positions_start_at_the_same_size():
    torch.manual_seed(0)
    embedding = TokenEmbedding(500, 64)
    tokens = embedding(torch.arange(500)[None]).square().mean().sqrt()
    positions = sinusoidal_encoding(500, 64).square().mean().sqrt()
    assert positions.item() == pytest.approx(math.sqrt(0.5), rel=1e-4)
    assert 0.5 < tokens.item() / positions.item() < 2


def test_padding_has_a_vector_that_learns_like_any_other():
    embedding = TokenEmbedding(5, 4)
    embedding(torch.tensor([[0, 1]])).sum().backward()
    assert (embedding.weight.grad[:2] == 2.0).all()
    assert (embedding.weight.grad[2:] == 0.0).all()
