"""How well a model does: what it emits on its own, and its loss."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from transformer.data.batches import Batch, shift
from transformer.decoding import evaluation_mode, greedy_decode
from transformer.model import Transformer


def exact_match(
    output: Int[Tensor, "batch output"],
    target: Int[Tensor, "batch target"],
    *,
    pad_id: int,
) -> float:
    """Share of sequences that are right from first token to EOS.

    Args:
        output: decoded ids, without start token, with EOS.
        target: the right ids, in the same form.
        pad_id: what fills both up on the right.

    Raises:
        ValueError: not as many outputs as targets.
    """
    if len(output) != len(target):
        raise ValueError(
            f"output holds {len(output)} sequences and target"
            f" {len(target)}: there must be one for each"
        )
    length = max(output.size(1), target.size(1))
    output = F.pad(output, (0, length - output.size(1)), value=pad_id)
    target = F.pad(target, (0, length - target.size(1)), value=pad_id)
    return (output == target).all(dim=1).double().mean().item()


def greedy_exact_match(model: Transformer, batch: Batch) -> float:
    """Share of sequences that greedy decoding gets right, whole."""
    target = batch.target[:, 1:]
    output = greedy_decode(
        model, batch.source, max_length=target.size(1)
    )
    return exact_match(output, target, pad_id=model.config.pad_id)


@torch.no_grad()
def teacher_forced_accuracy(model: Transformer, batch: Batch) -> float:
    """Share of tokens that are right when all before them are given.

    Says little on its own: a model that looks ahead scores 1.
    """
    with evaluation_mode(model):
        logits = model(batch.source, batch.target[:, :-1])
    gold = batch.target[:, 1:]
    real = gold != model.config.pad_id
    right = (logits.argmax(dim=-1) == gold) & real
    return (right.sum() / real.sum()).item()


@torch.no_grad()
def teacher_forced(
    model: Transformer, batches: Iterable[Batch]
) -> tuple[float, float]:
    """Perplexity and token accuracy over several batches.

    Both count real tokens, whatever the batches; there is no label
    smoothing in the perplexity.

    Raises:
        ValueError: there is no real token.
    """
    device = next(model.parameters()).device
    pad_id = model.config.pad_id
    loss = right = real = 0.0
    with evaluation_mode(model):
        for batch in batches:
            target_in, gold = shift(batch.target.to(device))
            logits = model(batch.source.to(device), target_in)
            kept = gold != pad_id
            loss += F.cross_entropy(
                logits[kept].double(), gold[kept], reduction="sum"
            ).item()
            right += (logits.argmax(-1) == gold)[kept].sum().item()
            real += kept.sum().item()
    if not real:
        raise ValueError("no real tokens to evaluate on")
    return math.exp(loss / real), right / real


def perplexity(model: Transformer, batch: Batch) -> float:
    """exp of the mean loss a real token, without label smoothing."""
    return teacher_forced(model, [batch])[0]
