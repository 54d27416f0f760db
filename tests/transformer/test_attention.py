"""Equation 1, multi-head attention and its cache."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer import KeyValueCache, MultiHeadAttention, scaled_dot_product_attention
from transformer.attention import recording

from .making import largest_difference, random_mask, shake

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
# d_k, d_v, query length, key length
SIZES = [(8, 8, 5, 5), (4, 7, 3, 6), (16, 2, 6, 3), (64, 64, 10, 20)]


def inputs(generator, d_k, d_v, queries, keys, dtype=torch.float64, lead=(2, 3)):
    def draw(*shape):
        return torch.randn(*lead, *shape, generator=generator).to(dtype)

    return draw(queries, d_k), draw(keys, d_k), draw(keys, d_v)


@torch.no_grad()
def slowly(query, key, value, mask=None):
    """Equation 1 for one head, one number at a time."""
    queries, d_k = query.shape
    keys, d_v = value.shape
    output = torch.zeros(queries, d_v, dtype=torch.float64)
    for i in range(queries):
        scores = {}
        for j in range(keys):
            if mask is not None and not mask[i, j]:
                continue
            product = sum(float(query[i, c]) * float(key[j, c]) for c in range(d_k))
            scores[j] = math.exp(product / math.sqrt(d_k))
        total = sum(scores.values())
        for j, score in scores.items():
            for c in range(d_v):
                output[i, c] += score / total * float(value[j, c])
    return output


@pytest.mark.parametrize("return_weights", [False, True], ids=["fused", "printed"])
@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
def test_attention_equals_three_nested_loops(masked, return_weights, generator):
    query, key, value = inputs(generator, 4, 3, 5, 6, lead=())
    mask = random_mask((5, 6), generator) if masked else None
    output = scaled_dot_product_attention(
        query, key, value, mask, return_weights=return_weights
    )
    output = output[0] if return_weights else output
    assert largest_difference(output, slowly(query, key, value, mask)) < 1e-12


def test_attention_of_two_keys_by_hand():
    query = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
    key = torch.tensor([[math.log(3.0), 0, 0, 0], [0.0, 5, 5, 5]])
    value = torch.tensor([[4.0], [8.0]])
    # The scores are 2 log 3 / sqrt(4) = log 3, and 0: weights 3/4 and 1/4.
    output, weights = scaled_dot_product_attention(
        query, key, value, return_weights=True
    )
    torch.testing.assert_close(weights, torch.tensor([[0.75, 0.25]]))
    torch.testing.assert_close(output, torch.tensor([[5.0]]))
    torch.testing.assert_close(
        scaled_dot_product_attention(query, key, value), torch.tensor([[5.0]])
    )


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 5e-6)]
)
@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
@pytest.mark.parametrize("size", SIZES)
def test_the_printed_equation_equals_the_fused_kernel(
    size, masked, dtype, tolerance, generator
):
    query, key, value = inputs(generator, *size, dtype)
    mask = random_mask((2, 3, *size[2:]), generator) if masked else None
    fused = scaled_dot_product_attention(query, key, value, mask)
    printed, _ = scaled_dot_product_attention(
        query, key, value, mask, return_weights=True
    )
    assert fused.shape == (2, 3, size[2], size[1])
    assert largest_difference(printed, fused) <= tolerance


@pytest.mark.parametrize(
    ("lead", "shape"),
    [
        *itertools.product([(), (2,), (2, 3)], [(), (6,), (1, 6), (5, 1), (5, 6)]),
        *itertools.product([(2,), (2, 3)], [(1, 5, 6)]),
        *itertools.product([(2, 3)], [(2, 1, 1, 6), (2, 3, 5, 1), (3, 1, 6)]),
    ],
)
def test_both_paths_take_any_mask_that_broadcasts(lead, shape, generator):
    query, key, value = inputs(generator, 4, 3, 5, 6, lead=lead)
    mask = random_mask(shape, generator) if shape else torch.tensor(True)
    full = mask.expand(*lead, 5, 6)
    expected, _ = scaled_dot_product_attention(
        query, key, value, full, return_weights=True
    )
    printed, _ = scaled_dot_product_attention(
        query, key, value, mask, return_weights=True
    )
    fused = scaled_dot_product_attention(query, key, value, mask)
    assert largest_difference(printed, expected) == 0
    assert largest_difference(fused, expected) < 1e-12


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_runs_and_masked_weights_are_exactly_0(dtype, generator):
    query, key, value = inputs(generator, 8, 4, 5, 6, dtype)
    mask = random_mask((2, 3, 5, 6), generator)
    printed, weights = scaled_dot_product_attention(
        query, key, value, mask, return_weights=True
    )
    fused = scaled_dot_product_attention(query, key, value, mask)
    exact = scaled_dot_product_attention(
        query.double(), key.double(), value.double(), mask
    )
    assert printed.dtype == weights.dtype == fused.dtype == dtype
    assert (weights[~mask] == 0).all()
    assert (weights[mask] > 0).all()
    # A few roundings of numbers up to 4.
    tolerance = 16 * torch.finfo(dtype).eps
    assert largest_difference(printed.double(), exact) <= tolerance
    assert largest_difference(fused.double(), exact) <= tolerance


@pytest.mark.parametrize("return_weights", [False, True], ids=["fused", "printed"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_fully_masked_row_gives_zeros_and_finite_gradients(
    dtype, return_weights, generator
):
    tensors = inputs(generator, 8, 4, 5, 6, dtype)
    query, key, value = (x.clone().requires_grad_() for x in tensors)
    mask = random_mask((2, 1, 5, 6), generator)
    mask[0, 0, 2] = False  # one row of the first sequence
    mask[1] = False  # all of the second
    output = scaled_dot_product_attention(
        query, key, value, mask, return_weights=return_weights
    )
    if return_weights:
        output, weights = output
        assert (weights[0, :, 2] == 0).all()
        assert (weights[1] == 0).all()
    assert (output[0, :, 2] == 0).all()
    assert (output[1] == 0).all()
    assert (output[0, :, 0] != 0).any()
    (output.float() ** 2).sum().backward()
    for tensor in (query, key, value):
        assert tensor.grad.isfinite().all()
        assert (tensor.grad[1] == 0).all()
    assert (query.grad[0, :, 2] == 0).all()
    assert (query.grad[0, :, 0] != 0).any()


def test_fully_masked_rows_have_equal_gradients_on_both_paths(generator):
    mask = random_mask((2, 3, 5, 6), generator)
    mask[:, :, 1] = False
    tensors = inputs(generator, 8, 4, 5, 6)
    found = []
    for return_weights in (False, True):
        query, key, value = (x.clone().requires_grad_() for x in tensors)
        output = scaled_dot_product_attention(
            query, key, value, mask, return_weights=return_weights
        )
        output = output[0] if return_weights else output
        (output**2).sum().backward()
        found.append((query.grad, key.grad, value.grad))
    for fused, printed in zip(*found, strict=True):
        assert largest_difference(fused, printed) < 1e-12


@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
def test_rows_of_weights_sum_to_1(masked, generator):
    query, key, value = inputs(generator, 8, 4, 5, 6)
    mask = random_mask((5, 6), generator) if masked else None
    _, weights = scaled_dot_product_attention(
        query, key, value, mask, return_weights=True
    )
    assert weights.shape == (2, 3, 5, 6)
    assert largest_difference(weights.sum(-1), torch.ones(2, 3, 5).double()) < 1e-12


def test_scores_are_divided_by_the_root_of_d_k(generator):
    query, key, value = inputs(generator, 16, 4, 5, 6)
    _, weights = scaled_dot_product_attention(query, key, value, return_weights=True)
    ratios = (weights / weights[..., :1]).log()
    scores = torch.einsum("...qd,...kd->...qk", query, key) / 4
    assert largest_difference(ratios, scores - scores[..., :1]) < 1e-12


def test_weights_are_returned_as_they_were_before_dropout(generator):
    query, key, value = inputs(generator, 8, 4, 5, 6)
    _, plain = scaled_dot_product_attention(query, key, value, return_weights=True)
    torch.manual_seed(0)
    output, weights = scaled_dot_product_attention(
        query, key, value, dropout=0.5, return_weights=True
    )
    assert torch.equal(weights, plain)
    torch.manual_seed(0)
    assert largest_difference(output, F.dropout(plain, 0.5) @ value) < 1e-12
    assert largest_difference(output, plain @ value) > 0.01


def test_dropout_changes_the_fused_output_and_keeps_its_mean(generator):
    query, key = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 400, 4)
    value = torch.ones(1, 1, 400, 1)
    torch.manual_seed(0)
    outputs = torch.stack(
        [
            scaled_dot_product_attention(query, key, value, dropout=0.2)
            for _ in range(50)
        ]
    )
    # Each is the mean of 400 weights of 0 or 1.25: spread 0.025.
    assert outputs.std().item() == pytest.approx(0.025, rel=0.4)
    assert outputs.mean().item() == pytest.approx(1.0, abs=0.02)


def test_a_float_mask_is_refused(unchecked_types, generator):
    query, key, value = inputs(generator, 4, 4, 5, 6)
    for return_weights in (False, True):
        with pytest.raises(TypeError, match=r"mask has dtype torch.float32: masks are"):
            scaled_dot_product_attention(
                query, key, value, torch.ones(5, 6), return_weights=return_weights
            )


def test_a_mask_of_the_wrong_shape_is_refused(generator):
    query, key, value = inputs(generator, 4, 4, 5, 6)
    mask = torch.ones(6, 5, dtype=torch.bool)
    for return_weights in (False, True):
        with pytest.raises(
            ValueError, match=r"mask of shape \(6, 5\).*shape \(2, 3, 5, 6\)"
        ):
            scaled_dot_product_attention(
                query, key, value, mask, return_weights=return_weights
            )


# Multi-head attention


def make_attention(generator, d_model=12, heads=3, **changes):
    attention = MultiHeadAttention(d_model, heads, **changes)
    shake(attention, generator)
    return attention.double()


def draw(generator, *shape):
    return torch.randn(*shape, generator=generator).double()


def head_by_head(attention, query, key, value, mask):
    """Concat(head_1, ..., head_h) W^O with matrices cut out by hand."""
    maps = (
        attention.project_query,
        attention.project_key,
        attention.project_value,
        attention.project_output,
    )
    w_q, w_k, w_v, w_o = (linear.weight.T for linear in maps)
    b_q, b_k, b_v, b_o = (
        torch.zeros(1).double() if linear.bias is None else linear.bias
        for linear in maps
    )
    q, k, v = query @ w_q + b_q, key @ w_k + b_k, value @ w_v + b_v
    d_k, d_v = q.size(-1) // attention.heads, v.size(-1) // attention.heads
    heads = []
    for h in range(attention.heads):
        wide, deep = slice(h * d_k, (h + 1) * d_k), slice(h * d_v, (h + 1) * d_v)
        rows = []
        for b in range(len(query)):
            one = None if mask is None else mask[b, h]
            rows.append(slowly(q[b, :, wide], k[b, :, wide], v[b, :, deep], one))
        heads.append(torch.stack(rows))
    return torch.cat(heads, dim=-1) @ w_o + b_o


@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize(
    ("heads", "d_k", "d_v"), [(3, None, None), (1, 12, 12), (5, 2, 3)]
)
def test_multi_head_attention_equals_one_head_at_a_time(
    heads, d_k, d_v, bias, masked, generator
):
    attention = make_attention(generator, heads=heads, d_k=d_k, d_v=d_v, bias=bias)
    query, key = draw(generator, 2, 4, 12), draw(generator, 2, 5, 12)
    value = draw(generator, 2, 5, 12)
    mask = random_mask((2, heads, 4, 5), generator) if masked else None
    expected = head_by_head(attention, query, key, value, mask)
    assert largest_difference(attention(query, key, value, mask), expected) < 1e-10


def test_head_h_sees_its_own_slice_of_its_own_token_only(generator):
    attention = make_attention(generator)
    x = draw(generator, 2, 5, 12)
    split = attention.split_heads(x)
    assert split.shape == (2, 3, 5, 4)
    for head in range(3):
        assert torch.equal(split[:, head], x[:, :, 4 * head : 4 * head + 4])
    assert torch.equal(attention.merge_heads(split), x)


def test_projections_have_biases_only_if_asked_for():
    def biases(attention):
        return sum(name.endswith("bias") for name, _ in attention.named_parameters())

    assert biases(MultiHeadAttention(12, 3)) == 0
    assert biases(MultiHeadAttention(12, 3, bias=True)) == 4


def test_projections_start_xavier_uniform_with_bias_0():
    torch.manual_seed(0)
    attention = MultiHeadAttention(64, 4, d_k=8, d_v=24, bias=True)
    for linear in (m for m in attention.modules() if isinstance(m, nn.Linear)):
        bound = math.sqrt(6 / (linear.in_features + linear.out_features))
        largest = linear.weight.abs().max().item()
        assert 0.98 * bound < largest <= bound
        spread = linear.weight.std().item()
        assert spread == pytest.approx(bound / math.sqrt(3), rel=0.05)
        assert (linear.bias == 0).all()


def test_attention_dropout_acts_in_training_only(generator):
    attention = make_attention(generator, dropout=0.5)
    x = draw(generator, 2, 5, 12)
    plain = attention.eval()(x, x, x)
    assert torch.equal(plain, attention(x, x, x))
    attention.train()
    torch.manual_seed(0)
    assert largest_difference(plain, attention(x, x, x)) > 0.01
    with recording([attention]):
        attention(x, x, x)
        weights = attention.weights
    ones = torch.ones(2, 3, 5).double()
    assert largest_difference(weights.sum(-1), ones) < 1e-12


def test_weights_are_kept_within_recording_only(generator):
    attention = make_attention(generator)
    query, key = draw(generator, 2, 4, 12), draw(generator, 2, 5, 12)
    plain = attention(query, key, key)
    assert attention.weights is None
    with recording(iter([attention])):
        recorded = attention(query, key, key)
        assert attention.weights.shape == (2, 3, 4, 5)
    assert largest_difference(plain, recorded) < 1e-12
    assert attention.weights is None
    assert not attention.record


def test_recording_ends_with_an_exception_too(generator):
    attention = make_attention(generator)
    with pytest.raises(KeyError), recording([attention]):
        raise KeyError
    assert not attention.record
    assert attention.weights is None


# The cache


def test_a_cache_starts_empty_and_counts_positions(generator):
    cache = KeyValueCache(grows=True)
    assert len(cache) == 0
    for expected in (2, 3, 7):
        new = expected - len(cache)
        cache.add(draw(generator, 1, 3, new, 4), draw(generator, 1, 3, new, 5))
        assert len(cache) == expected


def test_a_cache_gives_back_what_was_added_in_order(generator):
    cache = KeyValueCache(grows=True)
    key, value = draw(generator, 2, 3, 6, 4), draw(generator, 2, 3, 6, 5)
    for start, end in ((0, 1), (1, 4), (4, 6)):
        stored = cache.add(key[:, :, start:end], value[:, :, start:end])
        assert torch.equal(stored[0], key[:, :, :end])
        assert torch.equal(stored[1], value[:, :, :end])


def test_growing_attention_equals_attention_over_all_so_far(generator):
    attention = make_attention(generator, bias=True)
    x = draw(generator, 2, 6, 12)
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    full = attention(x, x, x, causal)
    cache = KeyValueCache(grows=True)
    for end in range(1, 7):
        new = x[:, end - 1 : end]
        step = attention(new, new, new, causal[end - 1 : end, :end], cache=cache)
        assert largest_difference(step[:, 0], full[:, end - 1]) < 1e-12


def test_a_cache_that_does_not_grow_is_filled_once(generator):
    attention = make_attention(generator)
    query, memory = draw(generator, 2, 1, 12), draw(generator, 2, 5, 12)
    cache = KeyValueCache(grows=False)
    expected = attention(query, memory, memory)
    calls = []
    attention.project_key.register_forward_hook(lambda *_: calls.append(1))
    for _ in range(3):
        step = attention(query, memory, memory, cache=cache)
        assert largest_difference(step, expected) < 1e-12
    assert len(cache) == 5
    assert len(calls) == 1
