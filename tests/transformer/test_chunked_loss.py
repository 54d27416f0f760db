"""The loss in chunks is the plain loss, to the last digits."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from transformer.chunked_loss import ChunkedLoss, SumOverChunks
from transformer.training import LabelSmoothingLoss

PAD = 0


def problem(generator, dtype, bias=False, tokens=(3, 7), vocab=11, width=8):
    hidden = torch.randn(*tokens, width, generator=generator, dtype=dtype)
    gold = torch.randint(1, vocab, tokens, generator=generator)
    gold[-1, 2:] = PAD
    projection = nn.Linear(width, vocab, bias=bias, dtype=dtype)
    with torch.no_grad():
        for parameter in projection.parameters():
            values = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(values.to(dtype))
    return hidden.requires_grad_(), gold, projection


def outcome(loss, hidden, projection, above=1.0):
    hidden.grad = None
    projection.zero_grad()
    (loss * above).backward()
    gradients = [hidden.grad, *(p.grad for p in projection.parameters())]
    return [loss.detach(), *(g.clone() for g in gradients)]


@pytest.mark.parametrize("chunk", [1, 4, 7, 21, 100])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
def test_value_and_gradients_are_those_of_the_plain_loss(
    generator, chunk, smoothing, bias
):
    hidden, gold, projection = problem(generator, torch.float64, bias)
    plain = LabelSmoothingLoss(smoothing, PAD)
    ours = ChunkedLoss(plain, chunk)
    expected = outcome(plain(projection(hidden), gold), hidden, projection, 0.7)
    found = outcome(ours(hidden, gold, projection), hidden, projection, 0.7)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-13, rtol=1e-13)


def test_in_float32_with_many_classes(generator):
    hidden, gold, projection = problem(
        generator, torch.float32, tokens=(4, 64), vocab=5000, width=32
    )
    plain = LabelSmoothingLoss(0.1, PAD)
    expected = outcome(plain(projection(hidden), gold), hidden, projection)
    found = outcome(
        ChunkedLoss(plain, 50)(hidden, gold, projection), hidden, projection
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)


def test_gradients_are_those_of_finite_differences(generator):
    hidden, gold, projection = problem(generator, torch.float64, bias=True)
    ours = ChunkedLoss(LabelSmoothingLoss(0.1, PAD), chunk=4)

    def loss(hidden, weight, bias):
        rows = hidden.flatten(0, 1)
        return SumOverChunks.apply(rows, weight, bias, gold.flatten(), ours._sum, 4)

    given = (hidden, projection.weight, projection.bias)
    assert torch.autograd.gradcheck(loss, given)


def test_no_chunk_holds_all_logits(generator, monkeypatch):
    hidden, gold, projection = problem(generator, torch.float32, tokens=(4, 25))
    sizes = []
    plain = LabelSmoothingLoss(0.1, PAD)
    forward = plain.forward

    def watched(logits, target):
        sizes.append(len(logits))
        return forward(logits, target)

    monkeypatch.setattr(plain, "forward", watched)
    ChunkedLoss(plain, 30)(hidden, gold, projection)
    assert sizes == [30, 30, 30, 10]


def test_only_padding_gives_0_and_no_gradient(generator):
    hidden, gold, projection = problem(generator, torch.float32)
    loss = ChunkedLoss(LabelSmoothingLoss(0.1, PAD), 4)
    found = outcome(
        loss(hidden, torch.zeros_like(gold), projection), hidden, projection
    )
    assert all((part == 0).all() for part in found)


def test_under_autocast_the_loss_stays_float32(generator):
    hidden, gold, projection = problem(generator, torch.float32)
    plain = LabelSmoothingLoss(0.1, PAD)
    expected = outcome(plain(projection(hidden), gold), hidden, projection)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = ChunkedLoss(plain, 4)(hidden, gold, projection)
    found = outcome(loss, hidden, projection)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, atol=0.03, rtol=0.03)


def test_a_chunk_has_a_token_at_least():
    with pytest.raises(ValueError, match="chunk=0"):
        ChunkedLoss(LabelSmoothingLoss(0.1, PAD), 0)
