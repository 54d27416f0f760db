"""Greedy decoding: cached, batched, stopped, and without side effects."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer import BOS, EOS, PAD, Transformer, TransformerConfig, greedy_decode
from transformer.decoding import evaluation_mode

from .making import SMALL, largest_difference, make_model, random_batch
from .test_model import SHAPES, pair

every_shape = pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)


class Scripted(Transformer):
    """Says its source token by token, whatever it has said before.

    What comes after EOS in the script must never be said.
    """

    def __init__(self, **changes):
        super().__init__(TransformerConfig(**(SMALL | changes)))
        self.output_projection = nn.Identity()
        self.lengths = []

    def encode(self, source, source_mask):
        return F.one_hot(source, 13).double()

    def decode(self, target_in, memory, target_mask, memory_mask, *, cache=None):
        self.lengths.append(target_in.size(1))
        said = F.pad(memory, (0, 0, 0, 40))[:, : target_in.size(1)]
        return said[:, -1:] if cache else said


def naively(model, source, steps):
    """The definition: run everything again for each token, one source at a time."""
    outputs = []
    for row in source:
        ids = row[row != model.config.pad_id][None]
        output = torch.tensor([[model.config.start_id]])
        for _ in range(steps):
            logits = model(ids, output)[0, -1]
            output = torch.cat([output, logits.argmax()[None, None]], dim=1)
            if output[0, -1] == model.config.eos_id:
                break
        outputs.append(output[0, 1:].tolist())
    return outputs


def unpad(output):
    """Rows without what comes after EOS."""
    rows = []
    for row in output.tolist():
        rows.append(row[: row.index(EOS) + 1] if EOS in row else row)
    return rows


@every_shape
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)]
)
def test_cached_logits_equal_uncached_ones_at_every_step(
    changes, dtype, tolerance, generator
):
    model = make_model(dtype=dtype, **changes)
    source, target = pair(generator, model, target=9)
    mask, causal, _ = model.build_masks(source, target)
    memory = model.encode(source, mask)
    full = model.output_projection(model.decode(target, memory, causal, mask))
    cache = model.new_cache()
    for end in range(1, target.size(1) + 1):
        hidden = model.decode(
            target[:, :end], memory, causal[:end, :end], mask, cache=cache
        )
        assert hidden.shape == (4, 1, 16)
        logits = model.output_projection(hidden)
        assert largest_difference(logits[:, 0], full[:, end - 1]) <= tolerance
        assert {len(own) for own, _ in cache} == {end}
        assert {len(cross) for _, cross in cache} == {source.size(1)}


def test_a_cache_can_take_several_tokens_at_once(generator):
    model = make_model()
    source, target = pair(generator, model, target=9)
    mask, causal, _ = model.build_masks(source, target)
    memory = model.encode(source, mask)
    full = model.decode(target, memory, causal, mask)
    cache, done = model.new_cache(), 0
    for end in (3, 4, 9):
        hidden = model.decode(
            target[:, :end], memory, causal[:end, :end], mask, cache=cache
        )
        assert largest_difference(hidden, full[:, done:end]) < 1e-12
        done = end


@every_shape
@pytest.mark.parametrize("use_cache", [True, False], ids=["cached", "uncached"])
def test_decoding_follows_its_definition(changes, use_cache, generator):
    model = make_model(**changes)
    source, _ = pair(generator, model)
    output = greedy_decode(model, source, max_length=9, use_cache=use_cache)
    assert unpad(output) == naively(model, source, 9)


@pytest.mark.parametrize("use_cache", [True, False], ids=["cached", "uncached"])
def test_a_batch_is_decoded_like_its_sequences_one_by_one(
    copier, short_copies, use_cache, generator
):
    source = short_copies.batch(24, generator).source
    together = greedy_decode(copier, source, use_cache=use_cache)
    lengths = {len(row) for row in unpad(together) if EOS in row}
    assert len(lengths) >= 4, "the outputs must end at different steps"
    for row in range(24):
        alone = source[row : row + 1, : int((source[row] != PAD).sum())]
        single = greedy_decode(copier, alone, use_cache=use_cache)
        assert unpad(single) == unpad(together[row : row + 1])


def test_the_cache_does_not_change_what_is_decoded(copier, short_copies, generator):
    source = short_copies.batch(50, generator).source
    cached = greedy_decode(copier, source)
    assert torch.equal(cached, greedy_decode(copier, source, use_cache=False))


def test_after_eos_a_real_model_says_nothing_but_padding(
    copier, short_copies, generator
):
    output = greedy_decode(copier, short_copies.batch(50, generator).source)
    ended = (output == EOS).cumsum(1) - (output == EOS).long()
    assert ended.any()
    assert (output[ended > 0] == PAD).all()
    assert (output[:, -1] != PAD).any()


SCRIPT = torch.tensor(
    [
        [5, 6, EOS, 9, 9, 9],
        [EOS, 7, 7, 7, 7, 7],
        [5, 6, 7, 8, EOS, 4],
        [5, EOS, EOS, 3, EOS, 3],
    ]
)


@pytest.mark.parametrize("use_cache", [True, False], ids=["cached", "uncached"])
def test_each_sequence_stops_at_its_own_eos_and_is_padded_after(use_cache):
    output = greedy_decode(Scripted(), SCRIPT, use_cache=use_cache)
    assert output.tolist() == [
        [5, 6, EOS, PAD, PAD],
        [EOS, PAD, PAD, PAD, PAD],
        [5, 6, 7, 8, EOS],
        [5, EOS, PAD, PAD, PAD],
    ]


def test_decoding_ends_when_the_last_sequence_has_ended():
    model = Scripted()
    greedy_decode(model, SCRIPT)
    assert model.lengths == [1, 2, 3, 4, 5]


def test_a_pad_that_the_model_says_before_eos_does_not_end_it():
    output = greedy_decode(Scripted(), torch.tensor([[5, PAD, 6, EOS]]))
    assert output.tolist() == [[5, PAD, 6, EOS]]


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_no_more_tokens_come_than_max_length(limit):
    output = greedy_decode(Scripted(), SCRIPT, max_length=limit)
    assert output.shape == (4, limit)
    assert output[2].tolist() == [5, 6, 7, 8][:limit]
    assert EOS not in output[2]


def test_without_max_length_50_tokens_more_than_the_source_may_come():
    endless = torch.full((2, 7), 5)
    model = Scripted(max_length=100)
    model.encode = lambda source, mask: F.one_hot(torch.full((2, 90), 5), 13).double()
    assert greedy_decode(model, endless).shape == (2, 57)


@pytest.mark.parametrize("limit", [None, 1000])
def test_the_configurations_max_length_is_the_limit_of_limits(limit, generator):
    model = make_model(output_bias=True, max_length=10)
    with torch.no_grad():
        model.output_projection.bias[EOS] = -1e6
    source = random_batch(generator).source
    output = greedy_decode(model, source, max_length=limit)
    assert output.shape == (4, 10)
    assert (output != EOS).all()


def test_the_first_token_follows_the_start_token(generator):
    source = random_batch(generator).source
    for start_id in (BOS, PAD, 7):
        model = make_model(start_id=start_id)
        logits = model(source, torch.full((4, 1), start_id))
        first = greedy_decode(model, source, max_length=1)
        assert torch.equal(first, logits.argmax(-1))


def test_other_special_ids_are_the_configurations(generator):
    model = Scripted(pad_id=11, bos_id=0, eos_id=12)
    output = greedy_decode(model, torch.tensor([[5, 12, 3], [4, 5, 12]]))
    assert output.tolist() == [[5, 12, 11], [4, 5, 12]]


def test_output_has_the_ids_dtype_and_no_gradient(generator):
    model = make_model()
    output = greedy_decode(model, random_batch(generator).source, max_length=3)
    assert output.dtype == torch.long
    assert not output.requires_grad


def test_decoding_in_training_mode_drops_nothing(generator):
    model = make_model(dropout=0.5, attention_dropout=0.5)
    source = random_batch(generator).source
    expected = greedy_decode(model, source, max_length=15)
    model.train()
    first = greedy_decode(model, source, max_length=15)
    second = greedy_decode(model, source, max_length=15)
    assert torch.equal(first, second)
    assert torch.equal(first, expected)


def modes(model):
    return {name: part.training for name, part in model.named_modules()}


def mixed_modes(model):
    """Some parts in training, some not, in no order that a flag could hold."""
    for number, part in enumerate(model.modules()):
        part.training = number % 3 != 1
    assert len(set(modes(model).values())) == 2
    return model


@pytest.mark.parametrize("prepare", [nn.Module.train, nn.Module.eval, mixed_modes])
def test_every_parts_mode_is_left_as_it_was(prepare, generator):
    model = prepare(make_model(dropout=0.3))
    before = modes(model)
    greedy_decode(model, random_batch(generator).source, max_length=3)
    assert modes(model) == before


@pytest.mark.parametrize("prepare", [nn.Module.train, nn.Module.eval, mixed_modes])
def test_every_parts_mode_is_left_as_it_was_after_an_exception(
    prepare, generator, monkeypatch
):
    model = prepare(make_model(dropout=0.3))
    before = modes(model)
    with pytest.raises(ValueError, match="source holds ids"):
        greedy_decode(model, torch.tensor([[99]]))
    assert modes(model) == before

    def interrupt(*_, **__):
        assert not any(modes(model).values())
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "decode", interrupt)
    with pytest.raises(KeyboardInterrupt):
        greedy_decode(model, random_batch(generator).source)
    assert modes(model) == before


def test_evaluation_mode_is_on_inside_and_undone_outside():
    model = mixed_modes(make_model())
    before = modes(model)
    with evaluation_mode(model):
        assert not any(modes(model).values())
    assert modes(model) == before


def test_decoding_leaves_the_random_state_alone(generator):
    model = make_model(dropout=0.5).train()
    before = torch.get_rng_state()
    greedy_decode(model, random_batch(generator).source, max_length=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_with_a_part_without_a_cache_is_decoded_without(generator):
    model = make_model()
    source = random_batch(generator).source
    expected = greedy_decode(model, source, max_length=8)
    model.decoder.layers[1].self_attention.caches = False
    assert model.new_cache() is None
    assert torch.equal(greedy_decode(model, source, max_length=8), expected)


@pytest.mark.parametrize("limit", [0, -3])
def test_a_max_length_below_1_is_refused(limit, generator):
    source = random_batch(generator).source
    with pytest.raises(ValueError, match=f"max_length={limit} must be at least 1"):
        greedy_decode(make_model(), source, max_length=limit)


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (torch.ones(1, 2), TypeError, "source has dtype torch.float32"),
        (torch.ones(2).long(), ValueError, r"source of shape \(2,\)"),
        (torch.ones(1, 0).long(), ValueError, r"source of shape \(1, 0\)"),
        (torch.ones(0, 3).long(), ValueError, r"source of shape \(0, 3\)"),
        (torch.ones(1, 33).long(), ValueError, "source is 33 tokens long"),
        (torch.tensor([[13]]), ValueError, "source holds ids from 13 to 13"),
    ],
)
def test_bad_sources_are_refused_as_the_model_refuses_them(source, error, message):
    with pytest.raises(error, match=message):
        greedy_decode(make_model(), source)
