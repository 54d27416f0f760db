"""Section 4: counts against a slow count, and against what really ran."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bookkit import reference
from transformer import (
    AddAndNorm,
    EncoderLayer,
    MultiHeadAttention,
    PositionwiseFeedForward,
    complexity,
    table1,
)
from transformer.attention import recording

SIZES = [(1, 1, 1, 1), (6, 4, 3, 2), (5, 8, 2, 5), (9, 3, 4, 4)]


def multiplications(function, *given) -> int:
    with FlopCounterMode(display=False) as counter:
        function(*given)
    return counter.get_total_flops() // 2


def weights(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


# --- operations --------------------------------------------------------


@pytest.mark.parametrize(("n", "d", "k", "r"), SIZES)
def test_operations_are_what_loops_count_one_by_one(n, d, k, r):
    counted = reference.multiplications(n, d, k, r)
    formulas = (
        complexity.self_attention(n, d),
        complexity.recurrent(n, d),
        complexity.convolutional(n, d, k),
        complexity.restricted(n, d, r),
    )
    assert tuple(cost.operations for cost in formulas) == counted


@pytest.mark.parametrize(("n", "d", "k", "r"), SIZES[1:])
def test_operations_are_what_the_layers_multiply(n, d, k, r):
    x, weight, kernel = weights(n, d), weights(2 * d, d), weights(d, d, k)
    for cost, layer, *given in (
        (complexity.self_attention(n, d), table1.attention_layer, x),
        (complexity.recurrent(n, d), table1.recurrent_layer, x, weight),
        (complexity.convolutional(n, d, k), table1.convolutional_layer, x, kernel),
        (complexity.restricted(n, d, r), table1.restricted_layer, x, r),
    ):
        assert multiplications(layer, *given) == cost.operations


def test_the_parts_of_an_encoder_layer_are_what_it_multiplies():
    n, d, d_ff = 10, 16, 24
    heads = MultiHeadAttention(d, heads=4)
    layer = EncoderLayer(
        heads,
        PositionwiseFeedForward(d, d_ff),
        lambda: AddAndNorm(d, dropout=0.0),
    )
    with recording([heads]):
        counted = multiplications(layer, torch.zeros(1, n, d), None)
    assert sum(complexity.encoder_layer(n, d, d_ff).values()) == counted


def test_an_lstm_multiplies_four_times_as_much_as_a_plain_recurrence():
    lstm = nn.LSTM(6, 6).double()  # in float32 one kernel hides it all
    counted = multiplications(lstm, weights(12, 6))
    assert complexity.lstm(12, 6).operations == counted


def test_attention_and_recurrence_cost_the_same_where_n_is_d():
    for d in (8, 64):
        at, before, after = d, d - 1, d + 1
        recurrent = complexity.recurrent
        attention = complexity.self_attention
        assert attention(at, d).operations == recurrent(at, d).operations
        assert attention(before, d).operations < recurrent(before, d).operations
        assert attention(after, d).operations > recurrent(after, d).operations


# --- sequential operations ---------------------------------------------


@pytest.mark.parametrize("n", [2, 7, 300])
def test_sequential_is_the_chain_that_autograd_recorded(n):
    x, kernel = weights(n, 4).requires_grad_(), weights(4, 4, 3)
    for cost, output in (
        (complexity.self_attention(n, 4), table1.attention_layer(x)),
        (complexity.recurrent(n, 4), table1.recurrent_layer(x, weights(8, 4))),
        (complexity.convolutional(n, 4, 3), table1.convolutional_layer(x, kernel)),
        (complexity.restricted(n, 4, 2), table1.restricted_layer(x, 2)),
    ):
        assert complexity.dependent_products(output) == cost.sequential


def test_the_framework_s_lstm_is_as_long_a_chain():
    output, _ = nn.LSTM(4, 4).double()(weights(50, 4))
    assert complexity.dependent_products(output) == 50


def test_steps_beside_each_other_do_not_add_up():
    needs = {"a": ["x"], "b": ["x"], "c": ["a", "b"], "d": ["x"]}
    assert complexity.dependent_steps(needs) == 2
    assert complexity.dependent_steps(needs, lambda step: step == "b") == 1
    assert complexity.dependent_steps({}) == 0


def test_a_shared_step_is_recorded_once_and_before_those_that_need_it():
    x = torch.ones(2, 2, requires_grad=True)
    y = x @ x
    z = (y @ y) + y
    needs = complexity.recorded_steps(z)
    order = list(needs)
    assert len(order) == len(set(order))
    for step, earlier in needs.items():
        assert all(order.index(e) < order.index(step) for e in earlier)
    assert complexity.dependent_products(z) == 2


# --- paths -------------------------------------------------------------


def layers_until_seen(n, layer) -> int:
    x = weights(n, 3).requires_grad_()
    above = x
    for i in range(n):
        above = layer(above, i)
        (slope,) = torch.autograd.grad(above[-1].sum(), x, retain_graph=True)
        if slope[0].any():
            return i + 1
    raise AssertionError("never")


@pytest.mark.parametrize("n", [2, 3, 9, 10, 27, 28, 40])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_paths_are_where_the_first_gradient_arrives(n, k):
    kernel = weights(3, 3, k)

    def contiguous(x, i):
        return table1.convolutional_layer(x, kernel)

    def dilated(x, i):
        return table1.convolutional_layer(x, kernel, k**i)

    def restricted(x, i):
        return table1.restricted_layer(x, k)

    path = layers_until_seen
    assert path(n, contiguous) == complexity.convolutional(n, 3, k).path
    assert path(n, dilated) == complexity.convolutional(n, 3, k, growth=k).path
    assert path(n, restricted) == complexity.restricted(n, 3, k).path


def test_a_dilated_stack_takes_the_logarithm_of_the_length():
    for k in (2, 3, 10):
        for exponent in (1, 2, 3, 4):
            at, after = k**exponent, k**exponent + 1
            assert complexity.convolutional(at, 1, k, growth=k).path == exponent
            assert complexity.convolutional(after, 1, k, growth=k).path == exponent + 1


def test_who_looks_at_nobody_else_never_hears_of_the_first():
    assert complexity.convolutional(5, 4, k=1).path == math.inf
    assert complexity.restricted(5, 4, r=1).path == math.inf
    assert complexity.restricted(1, 4, r=1).path == 0


# --- the layers --------------------------------------------------------


def test_a_batch_is_its_sequences():
    x = weights(2, 3, 7, 4)
    weight, kernel = weights(8, 4), weights(4, 4, 3)
    flat = x.flatten(0, 1)
    for layer, given, batch in (
        (table1.attention_layer, (), x),
        (table1.recurrent_layer, (weight,), x),
        (table1.convolutional_layer, (kernel, 2), flat),
        (table1.restricted_layer, (3,), x),
    ):
        together = layer(batch, *given)
        assert together.shape == batch.shape
        for i, sequence in enumerate(flat):
            alone = layer(sequence, *given)
            assert torch.allclose(together.reshape(flat.shape)[i], alone)


def test_attention_to_all_before_is_causal_attention():
    x = weights(6, 4)
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    expected = reference.attention(x, x, x, causal)
    assert torch.allclose(table1.restricted_layer(x, 6), expected)
    assert torch.allclose(table1.restricted_layer(x, 9), expected)
