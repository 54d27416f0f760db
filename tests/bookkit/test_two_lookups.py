"""The task with two look-ups: what its numbers say."""

import torch

from bookkit import two_lookups


def test_a_question_names_two_places_and_the_answer_stands_there():
    generator = torch.Generator().manual_seed(0)
    sequence, asked, answer = two_lookups.questions(50, 2, generator)
    assert (asked[:, 0] != asked[:, 1]).all()
    for row, places, symbols in zip(sequence, asked, answer, strict=True):
        assert row[places].tolist() == symbols.tolist()


def test_any_number_of_heads_has_the_same_parameters():
    counts = {
        sum(p.numel() for p in two_lookups.TwoLookups(heads).parameters())
        for heads in (1, 2, 4, 8)
    }
    assert len(counts) == 1


def test_one_head_cannot_look_at_both_places_with_more_than_half():
    model = two_lookups.learn(heads=1, seed=0, steps=0)
    with torch.no_grad():
        model.attention.project_query.weight.mul_(30)
    assert two_lookups.looked_at(model, seed=0) <= 0.5


def test_learning_leaves_the_random_state_as_it_was_and_repeats():
    before = torch.random.get_rng_state()
    first, second = (two_lookups.learn(2, seed=3, steps=2) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_recorded_runs_are_told_apart_by_whether_one_head_solves_the_task():
    fails = {"accuracy": {"1 head": 0.06}, "weights_on_asked": {"1 head": [[0.9, 0]]}}
    solves = {"accuracy": {"1 head": 1.0}, "weights_on_asked": {"1 head": [[0.2, 0.7]]}}
    runs = [fails, solves]
    assert two_lookups.accuracies(runs) == {"1 head": [0.06, 1.0]}
    assert two_lookups.by_outcome(runs) == {"fails": [fails], "solves": [solves]}
    assert two_lookups.shares(runs) == ([0, 0.2], [0.9, 0.7])


def test_an_even_mix_loses_half_of_either_part_and_a_copy_nothing():
    part, other = torch.randn(2, 4000, 3, generator=torch.Generator().manual_seed(0))
    assert abs(two_lookups.lost(part + other, part) - 0.5) < 0.02
    assert two_lookups.lost(torch.cat([part, part], 1).double(), part.double()) == 0
