"""Exact match, teacher-forced accuracy and perplexity."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from transformer import EOS, Transformer
from transformer.data.batches import make_batch
from transformer.evaluation import (
    exact_match,
    greedy_exact_match,
    perplexity,
    teacher_forced_accuracy,
)

from .making import make_model, random_batch
from .test_decoding import Scripted, mixed_modes, modes


def test_a_match_is_exact_only_if_every_token_is_right():
    target = torch.tensor([[5, 6, 2, 0], [5, 2, 0, 0], [7, 7, 7, 2], [4, 2, 0, 0]])
    output = torch.tensor([[5, 6, 2, 0], [5, 6, 2, 0], [7, 7, 7, 2], [4, 0, 2, 0]])
    assert exact_match(output, target, pad_id=0) == 0.5


@pytest.mark.parametrize("extra", [0, 1, 3])
def test_padding_at_the_end_does_not_count(extra):
    short = torch.tensor([[5, 6, 2]])
    long = F.pad(short, (0, extra), value=0)
    assert exact_match(short, long, pad_id=0) == 1.0
    assert exact_match(long, short, pad_id=0) == 1.0


def test_a_token_too_many_or_too_few_is_wrong():
    target = torch.tensor([[5, 6, 2]])
    assert exact_match(torch.tensor([[5, 6, 2, 7]]), target, pad_id=0) == 0.0
    assert exact_match(torch.tensor([[5, 2]]), target, pad_id=0) == 0.0
    assert exact_match(torch.tensor([[5, 6]]), target, pad_id=0) == 0.0


def test_the_padding_id_is_the_callers():
    target = torch.tensor([[5, 6, 9]])
    assert exact_match(torch.tensor([[5, 6]]), target, pad_id=9) == 1.0
    assert exact_match(torch.tensor([[5, 6]]), target, pad_id=0) == 0.0


def test_greedy_exact_match_counts_whole_decoded_sequences():
    pairs = [[5, 6], [7], [8, 8, 8], [4, 5]]
    wrong = [[5, 6], [7, 7], [8, 8], [4, 5]]
    assert greedy_exact_match(Scripted(), make_batch(pairs, pairs)) == 1.0
    assert greedy_exact_match(Scripted(), make_batch(pairs, wrong)) == 0.5


def test_a_model_that_runs_on_is_wrong():
    # It says the right tokens, but where EOS should come it goes on.
    batch = make_batch([[5, 6, 7, 8]], [[5, 6, 7]])
    assert greedy_exact_match(Scripted(), batch) == 0.0
    source = torch.tensor([[5, 6, 7, 7, 7, 7]])
    endless = type(batch)(source, torch.tensor([[1, 5, 6, 7, 7, EOS]]))
    assert greedy_exact_match(Scripted(), endless) == 0.0


def by_hand(model, batch):
    """Log-probability of each real token, and whether it was the likeliest."""
    found = []
    for source, target in zip(batch.source, batch.target, strict=True):
        logits = model(source[None], target[None, :-1])[0].log_softmax(-1)
        for row, gold in zip(logits, target[1:].tolist(), strict=True):
            if gold != 0:
                found.append((row[gold].item(), row.argmax().item() == gold))
    return found


def test_perplexity_is_exp_of_the_mean_loss_a_real_token(generator):
    model, batch = make_model(), random_batch(generator)
    losses = [-log for log, _ in by_hand(model, batch)]
    expected = math.exp(sum(losses) / len(losses))
    assert perplexity(model, batch) == pytest.approx(expected, rel=1e-10)


def test_a_model_that_knows_nothing_has_the_vocabularys_perplexity(generator):
    model = make_model(tied=False)
    torch.nn.init.zeros_(model.output_projection.weight)
    assert perplexity(model, random_batch(generator)) == pytest.approx(13.0)


def test_teacher_forced_accuracy_counts_real_tokens(generator):
    model, batch = make_model(), random_batch(generator, size=8)
    # Make some of the targets right, so that the share is not near 0.
    for column in range(1, 5, 2):
        likeliest = model(batch.source, batch.target)[:, column - 1].argmax(-1)
        real = batch.target[:, column] != 0
        batch.target[:, column] = torch.where(real, likeliest, 0)
    right = [likeliest for _, likeliest in by_hand(model, batch)]
    share = sum(right) / len(right)
    assert 0.2 < share < 1
    assert teacher_forced_accuracy(model, batch) == pytest.approx(share)


@pytest.mark.parametrize(
    "measure", [greedy_exact_match, teacher_forced_accuracy, perplexity]
)
def test_measuring_drops_nothing_and_leaves_every_mode(measure, generator):
    model = mixed_modes(make_model(dropout=0.5))
    batch, before = random_batch(generator), modes(model)
    values = {measure(model, batch) for _ in range(3)}
    assert modes(model) == before
    assert values == {measure(model.eval(), batch)}


def test_measuring_builds_no_graph(generator, monkeypatch):
    model, seen = make_model(), []
    forward = Transformer.forward

    def watched(self, *inputs, **named):
        seen.append(torch.is_grad_enabled())
        return forward(self, *inputs, **named)

    monkeypatch.setattr(Transformer, "forward", watched)
    perplexity(model, random_batch(generator))
    teacher_forced_accuracy(model, random_batch(generator))
    assert seen == [False, False]


@pytest.mark.usefixtures("unchecked_types")
def test_outputs_and_targets_of_different_batches_are_refused():
    with pytest.raises(ValueError, match="output"):
        exact_match(torch.tensor([[5, 2]]), torch.tensor([[5, 2], [5, 2]]), pad_id=0)
