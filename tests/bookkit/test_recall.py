"""The recall tasks ask what they say, and the two models are equals."""

import pytest
import torch

from bookkit import recall
from transformer.variants import NormAndAdd

TASKS = ("steps", "marked")


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("distance", [1, 5, 12])
def test_the_answer_stands_as_far_back_as_asked(distance):
    ids, answer = recall.questions("steps", 50, 12, draw(), distance)
    assert torch.equal(ids[:, 12 - distance], answer)
    assert (ids[:, 12] == recall.LETTERS - 1 + distance).all()


def test_exactly_one_letter_is_marked_and_it_is_the_answer():
    ids, answer = recall.questions("marked", 200, 12, draw())
    marked = (ids >= recall.LETTERS) & (ids < 2 * recall.LETTERS)
    assert (marked.sum(1) == 1).all()
    assert torch.equal(ids[marked] - recall.LETTERS, answer)
    assert (ids[:, 12] == 2 * recall.LETTERS).all()
    assert marked[:, :12].any(0).all(), "every place is used"


@pytest.mark.parametrize("task", TASKS)
def test_ids_stay_within_the_vocabulary(task):
    ids, answer = recall.questions(task, 500, 12, draw())
    assert ids.min() >= 0 and ids.max() < recall.vocabulary(task, 12)
    assert answer.max() < recall.LETTERS


@pytest.mark.parametrize("task", TASKS)
def test_the_models_have_equal_parameters_to_one_in_a_hundred(task):
    sizes = [
        sum(p.numel() for p in recall.make(kind, task, 32, seed=0).parameters())
        for kind in ("attention", "lstm")
    ]
    assert abs(sizes[0] / sizes[1] - 1) < 0.01


def test_a_model_depends_on_its_seed_alone():
    state = torch.get_rng_state()
    first, again = (recall.make("lstm", "steps", 8, seed=3) for _ in range(2))
    ids, _ = recall.questions("steps", 2, 8, draw())
    assert torch.equal(first(ids), again(ids))
    assert torch.equal(torch.get_rng_state(), state)


def test_gradients_stop_at_the_window_times_the_layers():
    def reached(layers, window):
        model = recall.make(
            "attention",
            "steps",
            16,
            0,
            layers=layers,
            window=window,
            connect=NormAndAdd,
        )
        norms = recall.gradient_norms(model, "steps", 16, count=3)
        return sum(norm > 0 for norm in norms)

    assert reached(1, 4) == 3
    assert reached(3, 4) == 9
    assert reached(1, None) == 16


def test_both_models_learn_a_short_one():
    for kind, rate in (("attention", 5e-3), ("lstm", 1e-2)):
        model = recall.make(kind, "marked", 4, seed=0)
        recall.train(model, "marked", 4, seed=0, steps=150, rate=rate)
        assert recall.accuracy(model, "marked", 4, distance=4) > 0.9
