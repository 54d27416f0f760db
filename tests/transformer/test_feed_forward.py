"""Equation 2."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from transformer import PositionwiseFeedForward

from .making import largest_difference, shake


def make_feed_forward(generator, **changes):
    network = PositionwiseFeedForward(6, 10, **changes)
    shake(network, generator)
    return network.double().eval()


def test_it_is_equation_2_one_number_at_a_time(generator):
    network = make_feed_forward(generator)
    w_1, b_1 = network.widen.weight.tolist(), network.widen.bias.tolist()
    w_2, b_2 = network.narrow.weight.tolist(), network.narrow.bias.tolist()
    x = torch.randn(6, generator=generator).double()
    hidden = [
        max(0.0, sum(w * v for w, v in zip(row, x.tolist(), strict=True)) + b)
        for row, b in zip(w_1, b_1, strict=True)
    ]
    expected = [
        sum(w * v for w, v in zip(row, hidden, strict=True)) + b
        for row, b in zip(w_2, b_2, strict=True)
    ]
    assert 0.0 in hidden
    output = network(x)
    assert largest_difference(output, torch.tensor(expected).double()) < 1e-6
    torch.testing.assert_close(output.tolist(), expected, rtol=0, atol=1e-12)


def test_a_position_does_not_depend_on_the_others(generator):
    network = make_feed_forward(generator)
    x = torch.randn(2, 5, 6, generator=generator).double()
    together = network(x)
    for batch in range(2):
        for position in range(5):
            alone = network(x[batch, position])
            assert largest_difference(together[batch, position], alone) < 1e-12


def test_it_is_not_linear(generator):
    network = make_feed_forward(generator)
    x = torch.randn(2, 5, 6, generator=generator).double()
    zero = torch.zeros_like(x)
    bend = network(x) + network(-x) - 2 * network(zero)
    assert bend.abs().max() > 0.1


@pytest.mark.parametrize("activation", [F.gelu, F.silu])
def test_another_activation_takes_the_place_of_relu(activation, generator):
    network = make_feed_forward(generator, activation=activation)
    x = torch.randn(2, 5, 6, generator=generator).double()
    expected = network.narrow(activation(network.widen(x)))
    assert torch.equal(network(x), expected)
    assert (
        largest_difference(network(x), network.narrow(network.widen(x).relu())) > 0.01
    )


def test_both_maps_have_biases_that_start_at_0():
    network = PositionwiseFeedForward(6, 10)
    assert (network.widen.bias == 0).all()
    assert (network.narrow.bias == 0).all()
    assert network.widen.bias.shape == (10,)


def test_weights_start_xavier_uniform():
    torch.manual_seed(0)
    network = PositionwiseFeedForward(64, 256)
    bound = math.sqrt(6 / (64 + 256))
    for linear in (network.widen, network.narrow):
        assert 0.98 * bound < linear.weight.abs().max().item() <= bound


def test_dropout_is_off_by_default_and_stands_after_the_activation(generator):
    x = torch.randn(2, 5, 6, generator=generator).double()
    plain = make_feed_forward(generator).train()
    assert torch.equal(plain(x), plain(x))
    network = make_feed_forward(generator, dropout=0.5).train()
    seen = []
    network.dropout.register_forward_hook(lambda m, i, o: seen.append(i[0]))
    network(x)
    assert torch.equal(seen[0], network.widen(x).relu())
