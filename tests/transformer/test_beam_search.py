"""Beam search: against its definition, against greedy, against all there is."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn

from bookkit.beam import of_model, search
from transformer import (
    BOS,
    EOS,
    PAD,
    Hypothesis,
    Transformer,
    beam_search,
    greedy_decode,
)
from transformer.decoding import length_penalty

from .making import SMALL, make_model, random_batch
from .test_decoding import mixed_modes, modes, unpad
from .test_model import SHAPES

# Shapes are checked in the other tests of decoding; here they cost half a minute.
pytestmark = pytest.mark.usefixtures("unchecked_types")


def slowly(model, ids, *, banned=(), **settings):
    """The definition: one sentence, lists of Python, everything computed again."""
    likely = of_model(model, ids.tolist())

    def follow(outputs):
        rows = likely(outputs)
        for row in rows:
            for token in banned:
                row[token] = -math.inf
        return rows

    return search(follow, eos=model.config.eos_id, **settings)


def same(found, expected, tolerance=1e-9):
    """The hypotheses are those of `slowly`, in their order."""
    assert [h.ids for h in found] == [h.ids for h in expected]
    assert [h.finished for h in found] == [h.finished for h in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.score == pytest.approx(theirs.score, abs=tolerance)
        assert mine.log_probability == pytest.approx(
            theirs.log_probability, abs=tolerance
        )
    return True


def eager(model, amount=1.5):
    """The same model, readier to say EOS, so that hypotheses end at many lengths."""
    with torch.no_grad():
        model.output_projection.bias[model.config.eos_id] += amount
    return model


@pytest.mark.parametrize("seed", range(8))
def test_a_slow_obvious_version_finds_the_same(seed, generator):
    generator.manual_seed(seed)
    changes = [*SHAPES.values()][seed % len(SHAPES)]
    model = eager(make_model(seed=seed, **(dict(output_bias=True) | changes)))
    source = random_batch(generator, size=3).source
    beam_size = int(torch.randint(2, 7, (), generator=generator))
    n_best = int(torch.randint(1, beam_size + 1, (), generator=generator))
    alpha = (0.0, 0.6, 1.0, 3.0)[seed % 4]
    extra = int(torch.randint(0, 4, (), generator=generator))
    found = beam_search(
        model,
        source,
        beam_size=beam_size,
        alpha=alpha,
        max_extra=extra,
        n_best=n_best,
    )
    for row, mine in zip(source, found, strict=True):
        ids = row[row != PAD]
        expected = slowly(
            model,
            ids,
            beam_size=beam_size,
            alpha=alpha,
            limit=len(ids) + extra,
            n_best=n_best,
        )
        assert same(mine, expected)


def test_random_models_end_hypotheses_at_several_lengths(generator):
    model = eager(make_model(output_bias=True))
    source = random_batch(generator).source
    found = beam_search(model, source, n_best=4, max_length=12)
    lengths = [{len(h.ids) for h in hypotheses} for hypotheses in found]
    assert max(map(len, lengths)) >= 3


@pytest.mark.parametrize(
    ("seed", "alpha"), [(0, 0.0), (1, 0.6), (2, 0.6), (3, 2.0), (4, 2.0)]
)
def test_stopping_early_changes_nothing(seed, alpha, generator):
    model = eager(make_model(seed=seed, output_bias=True))
    source = random_batch(generator, size=2).source
    for n_best in (1, 3):
        found = beam_search(
            model, source, beam_size=3, alpha=alpha, max_extra=2, n_best=n_best
        )
        for row, mine in zip(source, found, strict=True):
            ids = row[row != PAD]
            settings = dict(beam_size=3, alpha=alpha, limit=len(ids) + 2)
            to_the_end = slowly(model, ids, n_best=n_best, stop_early=False, **settings)
            assert same(mine, to_the_end)


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("use_cache", [True, False], ids=["cached", "uncached"])
def test_a_beam_of_one_is_greedy_decoding(changes, use_cache, generator):
    model = make_model(**changes)
    source = random_batch(generator, vocab_size=9).source
    greedy = greedy_decode(model, source, max_length=8)
    found = beam_search(model, source, beam_size=1, max_length=8, use_cache=use_cache)
    assert [h.ids for (h,) in found] == unpad(greedy)


def test_a_beam_of_one_is_greedy_decoding_on_a_trained_model(
    copier, short_copies, generator
):
    source = short_copies.batch(24, generator).source
    greedy = unpad(greedy_decode(copier, source, max_length=12))
    assert len({len(ids) for ids in greedy}) >= 4
    found = beam_search(copier, source, beam_size=1, max_length=12)
    assert [h.ids for (h,) in found] == greedy


def every_sequence(vocab_size, longest):
    """All outputs of at most so many tokens, finished or cut at the limit."""
    others = [token for token in range(vocab_size) if token != EOS]
    for length in range(longest):
        for start in itertools.product(others, repeat=length):
            yield [*start, EOS]
    yield from map(list, itertools.product(others, repeat=longest))


@pytest.mark.parametrize(("seed", "alpha"), [(0, 0.0), (1, 0.6), (2, 5.0)])
def test_a_beam_that_holds_all_sequences_is_exhaustive_search(alpha, seed):
    model = make_model(seed=seed, vocab_size=5, output_bias=True)
    source = torch.tensor([[3, 4, 4, EOS]])
    sequences = [*every_sequence(5, 4)]
    assert len(sequences) == 1 + 4 + 16 + 64 + 256
    scored = []
    for length in range(1, 5):
        these = torch.tensor([ids for ids in sequences if len(ids) == length])
        target_in = torch.nn.functional.pad(these[:, :-1], (1, 0), value=BOS)
        logits = model(source.expand(len(these), -1), target_in)
        gold = logits.log_softmax(-1).gather(-1, these[..., None])
        for said, total in zip(these.tolist(), gold.sum((1, 2)).tolist(), strict=True):
            score = total / length_penalty(length, alpha)
            scored.append(Hypothesis(said, total, score, said[-1] == EOS))
    scored.sort(key=lambda h: (not h.finished, -h.score))
    (found,) = beam_search(
        model, source, beam_size=341, alpha=alpha, max_length=4, n_best=341
    )
    assert same(found, scored)
    (best,) = beam_search(model, source, beam_size=256, alpha=alpha, max_length=4)
    assert same(best, scored[:1])


@pytest.mark.parametrize("use_cache", [True, False], ids=["cached", "uncached"])
def test_what_a_sentence_gets_does_not_depend_on_its_batch(use_cache, generator):
    model = eager(make_model(output_bias=True))
    source = random_batch(generator, size=8, source=9).source
    settings = dict(beam_size=3, n_best=3, max_extra=0, use_cache=use_cache)
    together = beam_search(model, source, **settings)
    wider = torch.nn.functional.pad(source.flip(0), (0, 5), value=PAD)
    assert len({len(hs[0].ids) for hs in together}) >= 3
    reordered = beam_search(model, wider, **settings)[::-1]
    for row, among in zip(range(8), together, strict=True):
        alone = source[row : row + 1, : int((source[row] != PAD).sum())]
        (single,) = beam_search(model, alone, **settings)
        for other in (single, reordered[row]):
            assert [h.ids for h in other] == [h.ids for h in among]
            for one, two in zip(other, among, strict=True):
                assert one.score == pytest.approx(two.score, abs=1e-10)


def test_the_limit_is_the_sentences_own_and_not_the_batchs(generator):
    model = make_model(output_bias=True)
    with torch.no_grad():
        model.output_projection.bias[EOS] = -1e6
    source = torch.tensor([[5, 6, 7, 8, EOS], [5, EOS, PAD, PAD, PAD]])
    found = beam_search(model, source, max_extra=3, n_best=4)
    assert [{len(h.ids) for h in hs} for hs in found] == [{8}, {5}]
    assert not any(h.finished for hs in found for h in hs)


@pytest.mark.parametrize("seed", range(2))
def test_the_cache_changes_neither_outputs_nor_scores(seed, generator):
    model = eager(make_model(seed=seed, output_bias=True))
    source = random_batch(generator).source
    settings = dict(n_best=4, max_length=9)
    cached = beam_search(model, source, **settings)
    uncached = beam_search(model, source, use_cache=False, **settings)
    for one, other in zip(sum(cached, []), sum(uncached, []), strict=True):
        assert one.ids == other.ids
        assert one.score == pytest.approx(other.score, abs=1e-10)


def test_a_model_with_a_part_without_a_cache_is_searched_without(generator):
    model = make_model()
    source = random_batch(generator).source
    expected = beam_search(model, source, max_length=8)
    model.decoder.layers[1].self_attention.caches = False
    found = beam_search(model, source, max_length=8)
    assert [h.ids for (h,) in found] == [h.ids for (h,) in expected]


def test_the_memory_of_a_sentence_is_encoded_once(generator, monkeypatch):
    model = make_model()
    calls = []
    encode = model.encode

    def counted(*arguments):
        calls.append(1)
        return encode(*arguments)

    monkeypatch.setattr(model, "encode", counted)
    beam_search(model, random_batch(generator).source, max_length=6)
    assert len(calls) == 1


class Table(Transformer):
    """Says what a table holds: the probability of a token after the one before."""

    def __init__(self, table):
        config = dict(SMALL, vocab_size=len(table))
        super().__init__(type(make_model().config)(**config))
        self.table = torch.tensor(table).double().log()
        self.output_projection = nn.Identity()
        self.asked = []

    def encode(self, source, source_mask):
        return torch.zeros(*source.shape, 1).double()

    def decode(self, target_in, memory, target_mask, memory_mask, *, cache=None):
        self.asked.append(target_in[:, 1:].tolist())
        return self.table[target_in]

    def new_cache(self):
        return None


#         PAD  BOS  EOS   3    4    5
CHOICE = [
    [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],  # after PAD
    [0.0, 0.0, 0.1, 0.5, 0.4, 0.0],  # after the start token
    [0.0, 0.0, 0.0, 1.0, 0.0, 0.0],  # after EOS: asked for in vain
    [0.0, 0.0, 0.4, 0.2, 0.2, 0.2],  # after 3
    [0.0, 0.0, 0.9, 0.1, 0.0, 0.0],  # after 4
    [0.0, 0.0, 0.5, 0.0, 0.0, 0.5],  # after 5
]
SOURCE = torch.tensor([[3, EOS]])
NEVER_ASKED = [1.0, 0.0, 0.0, 0.0]


def test_a_beam_of_two_finds_what_greedy_decoding_misses():
    model = Table(CHOICE)
    (greedy,) = beam_search(model, SOURCE, beam_size=1)[0]
    (best,) = beam_search(model, SOURCE, beam_size=2)[0]
    assert greedy.ids == [3, EOS]
    assert best.ids == [4, EOS]
    assert math.exp(greedy.log_probability) == pytest.approx(0.5 * 0.4)
    assert math.exp(best.log_probability) == pytest.approx(0.4 * 0.9)
    assert best.score == pytest.approx(math.log(0.36) / (7 / 6) ** 0.6)


def test_a_finished_hypothesis_is_never_continued_and_keeps_its_place():
    model = Table(CHOICE)
    (found,) = beam_search(model, SOURCE, beam_size=3, n_best=3, alpha=0.0)
    assert all(EOS not in h.ids[:-1] for h in found)
    # The first step leaves [EOS], [3] and [4]: two places stay.
    assert [math.exp(h.log_probability) for h in found] == pytest.approx(
        [0.36, 0.2, 0.1]
    )
    assert [h.ids for h in found] == [[4, EOS], [3, EOS], [EOS]]


def test_a_larger_alpha_prefers_longer_outputs():
    model = Table(CHOICE)
    lengths = []
    for alpha in (0.0, 0.6, 5.0, 20.0):
        (hypothesis,) = beam_search(model, SOURCE, beam_size=60, alpha=alpha)[0]
        lengths.append(len(hypothesis.ids))
    assert lengths[0] == 2
    assert lengths == sorted(lengths)
    assert lengths[-1] > 6


def test_the_penalty_is_that_of_the_published_code():
    # ((5 + length) / 6) ** alpha, EOS counted: Wu et al. (2016), equation 14.
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(19, 0.5) == 2.0
    assert length_penalty(40, 0.0) == 1.0


def test_the_search_ends_when_nothing_better_can_come():
    model = Table(
        [
            NEVER_ASKED,
            [0.0, 0.0, 0.98, 0.02],
            NEVER_ASKED,
            [0.0, 0.0, 0.01, 0.99],
        ]
    )
    beam_search(model, SOURCE, beam_size=2, alpha=0.0)
    assert len(model.asked) == 1
    beam_search(model, SOURCE, beam_size=2, alpha=0.0, n_best=2)
    # Only the limit of 32 tokens ends the second one.
    assert len(model.asked) == 1 + 32


def test_what_meets_the_limit_ranks_behind_what_is_finished():
    model = Table(
        [
            NEVER_ASKED,
            [0.0, 0.0, 0.1, 0.9],
            NEVER_ASKED,
            [0.0, 0.0, 0.0, 1.0],
        ]
    )
    (found,) = beam_search(model, SOURCE, beam_size=2, n_best=2, max_length=3)
    assert [(h.ids, h.finished) for h in found] == [([EOS], True), ([3, 3, 3], False)]
    assert found[1].score > found[0].score


def test_there_may_be_fewer_sequences_than_asked_for():
    model = Table(
        [NEVER_ASKED, [0.0, 0.0, 0.0, 1.0], NEVER_ASKED, [0.0, 0.0, 1.0, 0.0]]
    )
    (found,) = beam_search(model, SOURCE, beam_size=4, n_best=4)
    assert [h.ids for h in found] == [[3, EOS]]


def test_banned_ids_are_never_said(generator):
    model = make_model(vocab_size=6)
    source = random_batch(generator, vocab_size=6).source
    free = beam_search(model, source, max_length=8, n_best=4)
    assert any(3 in h.ids for hs in free for h in hs)
    kept = beam_search(model, source, max_length=8, n_best=4, banned=[3, EOS])
    for h in sum(kept, []):
        assert 3 not in h.ids
        assert (len(h.ids), h.finished) == (8, False)
    for row, mine in zip(source, kept, strict=True):
        settings = dict(beam_size=4, alpha=0.6, limit=8, n_best=4)
        assert same(mine, slowly(model, row[row != PAD], banned=(3, EOS), **settings))


def test_other_special_ids_are_the_configurations(generator):
    ids = dict(pad_id=11, bos_id=0, eos_id=12, start_id=11)
    model = make_model(output_bias=True, **ids)
    with torch.no_grad():
        model.output_projection.bias[12] += 2
    source = torch.tensor([[5, 6, 12], [4, 12, 11]])
    found = beam_search(model, source, max_extra=3, n_best=4)
    assert any(h.finished for hs in found for h in hs)
    for row, mine in zip(source, found, strict=True):
        kept = row[row != 11]
        settings = dict(beam_size=4, alpha=0.6, limit=len(kept) + 3, n_best=4)
        assert same(mine, slowly(model, kept, **settings))


def test_half_precision_sums_in_float32(generator):
    model = make_model(dtype=torch.bfloat16)
    source = random_batch(generator).source
    found = sum(beam_search(model, source, max_length=6, n_best=4), [])
    # A bfloat16 number has 8 bits of digits; these have more.
    assert any(
        torch.tensor(h.log_probability).bfloat16().item() != h.log_probability
        for h in found
    )


@pytest.mark.parametrize("prepare", [nn.Module.train, nn.Module.eval, mixed_modes])
def test_nothing_is_dropped_and_every_parts_mode_is_left_as_it_was(prepare, generator):
    source = random_batch(generator).source
    expected = beam_search(make_model(), source, max_length=6)
    model = prepare(make_model(dropout=0.5, attention_dropout=0.5))
    before, state = modes(model), torch.get_rng_state()
    assert beam_search(model, source, max_length=6) == expected
    assert modes(model) == before
    assert torch.equal(torch.get_rng_state(), state)


def test_probabilities_that_are_not_numbers_are_an_error(generator):
    model = make_model()
    with torch.no_grad():
        model.decoder.layers[0].feed_forward.narrow.weight.fill_(math.nan)
    with pytest.raises(FloatingPointError, match="NaN"):
        beam_search(model, random_batch(generator).source)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(beam_size=0), "beam_size=0 must be at least 1"),
        (dict(alpha=-0.1), "alpha=-0.1 must be at least 0"),
        (dict(alpha=math.nan), "alpha=nan must be at least 0"),
        (dict(alpha=math.inf), "alpha=inf must be at least 0 and finite"),
        (dict(n_best=0), "n_best=0 must be from 1 to beam_size=4"),
        (dict(n_best=5), "n_best=5 must be from 1 to beam_size=4"),
        (dict(max_extra=-1), "max_extra=-1 must be at least 0"),
        (dict(max_length=0), "max_length=0 must be at least 1"),
        (dict(banned=[13]), "banned holds 13, but the vocabulary has 0 to 12"),
    ],
)
def test_arguments_out_of_range_are_refused_before_any_work(
    settings, message, generator, monkeypatch
):
    model = make_model()
    monkeypatch.setattr(model, "encode", None)
    with pytest.raises(ValueError, match=message):
        beam_search(model, random_batch(generator).source, **settings)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (torch.ones(1, 2), TypeError, "source has dtype torch.float32"),
        (torch.ones(2).long(), ValueError, r"source of shape \(2,\)"),
        (torch.ones(0, 3).long(), ValueError, r"source of shape \(0, 3\)"),
        (torch.ones(1, 33).long(), ValueError, "source is 33 tokens long"),
        (torch.tensor([[13]]), ValueError, "source holds ids from 13 to 13"),
    ],
)
def test_bad_sources_are_refused_as_the_model_refuses_them(source, error, message):
    with pytest.raises(error, match=message):
        beam_search(make_model(), source)
