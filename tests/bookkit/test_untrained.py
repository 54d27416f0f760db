"""What chapters 03 and 08 measure before any training."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from bookkit import mutations, untrained


def test_post_norm_keeps_the_variance_at_1_and_pre_norm_lets_it_grow():
    assert untrained.variances("post", 4, seed=0) == pytest.approx([1] * 4, abs=1e-3)
    assert all(a < b for a, b in pairwise(untrained.variances("pre", 4, seed=0)))
    with mutations.applied("no_norm"):
        assert untrained.variances("post", 4, seed=0)[-1] > 30


def test_gradients_fall_down_the_post_norm_decoder_by_cross_attention():
    printed = untrained.gradients("post", 12, seed=0)
    assert printed["decoder"][0] < printed["decoder"][-1] / 10
    assert printed["encoder"][0] > printed["encoder"][-1] / 10
    with mutations.applied("no_cross_attention"):
        without = untrained.gradients("post", 12, seed=0)
    assert without["decoder"][0] > without["decoder"][-1] / 3
    assert without["encoder"] == [0.0] * 12


def test_one_step_moves_the_output_less_at_a_lower_rate():
    low, high = (untrained.moved("post", 2, seed=0, rate=r) for r in (1e-5, 1e-3))
    assert 0 < low < high / 10


def test_only_tied_and_from_n_0_1_is_the_first_loss_far_from_ln_v():
    starts = (untrained.published, untrained.xavier, untrained.framework)
    good, small, bad = untrained.first_losses(starts, tied=True, seed=0)
    assert good < 10 and small == pytest.approx(math.log(8000), abs=0.5)
    assert bad > 80
    assert max(untrained.first_losses(starts, tied=False, seed=0)) < 10


def test_the_random_state_outside_is_left_as_it_was():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    untrained.build("pre", 1, seed=0)
    untrained.first_losses([untrained.published], tied=True, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
