"""Whole models to `nn.Transformer` and back. Measured: 1e-14 in float64.

Layers and gradients are compared in test_parity.py.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer import sinusoidal_encoding
from transformer.pretrained.framework import (
    from_framework,
    logits_through,
    to_framework,
)

from .making import largest_difference, make_model, random_batch, shake

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")


def make_core(generator, *, norm="post", activation="relu", bias=True, **changes):
    """The framework's Transformer, shaken, without its extra norms."""
    core = nn.Transformer(
        16,
        4,
        **dict(num_encoder_layers=2, num_decoder_layers=2) | changes,
        dim_feedforward=24,
        dropout=0.0,
        activation=activation,
        batch_first=True,
        norm_first=norm == "pre",
        bias=bias,
    )
    if norm == "post":
        core.encoder.norm = core.decoder.norm = None
    shake(core, generator)
    return core.double().eval()


def by_hand(core, table, source, target_in, *, output=None, bias=0.0):
    """What a user of `nn.Transformer` writes around it."""
    length = target_in.size(1)
    positions = sinusoidal_encoding(32, 16)
    source_vectors, target_vectors = (
        F.embedding(ids, table) * math.sqrt(16) + positions[: ids.size(1)]
        for ids in (source, target_in)
    )
    hidden = core(
        source_vectors,
        target_vectors,
        tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
        src_key_padding_mask=source == 0,
        memory_key_padding_mask=source == 0,
    )
    return hidden @ (table if output is None else output).T + bias


@pytest.fixture(autouse=True)
def double():
    """Tables of positions in float64, too."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("activation", ["relu", "gelu", "swish"])
@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_our_weights_give_the_same_logits_in_the_framework(
    norm, bias, activation, generator
):
    model = make_model(norm=norm, attention_bias=bias, activation=activation)
    batch = random_batch(generator, source=9)
    ours = model(batch.source, batch.target)
    theirs = logits_through(to_framework(model), model, batch.source, batch.target)
    assert largest_difference(ours, theirs) <= 1e-12


@pytest.mark.parametrize("activation", ["relu", "gelu", F.silu, nn.ReLU()])
@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_frameworks_weights_give_the_same_logits_in_ours(
    norm, bias, activation, generator
):
    core = make_core(generator, norm=norm, activation=activation, bias=bias)
    table = torch.randn(13, 16, generator=generator)
    model = from_framework(core, table, max_length=32)
    batch = random_batch(generator, source=9)
    theirs = by_hand(core, table, batch.source, batch.target)
    assert largest_difference(model(batch.source, batch.target), theirs) <= 1e-12
    assert model.config.tied
    assert model.config.attention_bias == bias


def test_matrices_that_are_not_shared_and_an_output_bias(generator):
    core = make_core(generator)
    table, output = torch.randn(2, 13, 16, generator=generator)
    bias = torch.randn(13, generator=generator)
    batch = random_batch(generator)
    model = from_framework(core, table, table, output, bias, max_length=32)
    theirs = by_hand(core, table, batch.source, batch.target, output=output, bias=bias)
    assert largest_difference(model(batch.source, batch.target), theirs) <= 1e-12
    assert not model.config.tied


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_there_and_back_gives_the_same_weights(norm):
    model = make_model(norm=norm, attention_bias=True)
    back = from_framework(
        to_framework(model), model.source_embedding.weight.detach(), max_length=32
    )
    assert back.config == model.config
    own, other = model.state_dict(), back.state_dict()
    assert own.keys() == other.keys()
    assert all(torch.equal(own[name], other[name]) for name in own)


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_a_final_norm_of_the_framework_is_refused_and_would_matter(part, generator):
    core = make_core(generator)
    table = torch.randn(13, 16, generator=generator)
    batch = random_batch(generator)
    without = by_hand(core, table, batch.source, batch.target)
    getattr(core, part).norm = nn.LayerNorm(16).double()
    with_norm = by_hand(core, table, batch.source, batch.target)
    assert largest_difference(without, with_norm) > 0.01
    with pytest.raises(ValueError, match=f"{part}.norm is a norm after"):
        from_framework(core, table)


def test_the_framework_as_it_comes_is_refused():
    core = nn.Transformer(16, 4, 2, 2, 24, batch_first=True)
    with pytest.raises(ValueError, match=r"encoder\.norm"):
        from_framework(core, torch.zeros(13, 16))


def test_what_we_do_not_have_is_refused_by_name(generator):
    table = torch.zeros(13, 16)
    pre = make_core(generator, norm="pre")
    pre.decoder.norm = None
    with pytest.raises(ValueError, match=r"decoder\.norm is None"):
        from_framework(pre, table)
    with pytest.raises(ValueError, match="num_decoder_layers=3"):
        from_framework(make_core(generator, num_decoder_layers=3), table)
    with pytest.raises(ValueError, match="activation="):
        from_framework(make_core(generator, activation=F.elu), table)
    with pytest.raises(ValueError, match=r"source_embedding\.weight has shape"):
        from_framework(make_core(generator), torch.zeros(13, 8))
    with pytest.raises(ValueError, match="d_k=8: nn"):
        to_framework(make_model(d_k=8))


def test_a_module_as_activation_is_not_what_the_framework_decodes_with(generator):
    """Its decoder layers fall back to ReLU: the layers are not alike."""
    core = make_core(generator, activation=nn.GELU())
    with pytest.raises(ValueError, match="activation is 'gelu' in the first layer"):
        from_framework(core, torch.zeros(13, 16))


def test_dropout_stands_where_ours_does():
    model = make_model(dropout=0.3, attention_dropout=0.2, activation_dropout=0.1)
    core = to_framework(model)
    for layer in (core.encoder.layers[0], core.decoder.layers[1]):
        assert (layer.self_attn.dropout, layer.dropout.p) == (0.2, 0.1)
        assert layer.dropout1.p == layer.dropout2.p == 0.3
    back = from_framework(core, torch.zeros(13, 16), max_length=32)
    assert back.config.dropout == 0.3
    assert back.config.attention_dropout == 0.2
    assert back.config.activation_dropout == 0.1


def test_the_mode_and_the_dtype_are_those_asked_for():
    core = to_framework(make_model(dtype=torch.float32))
    assert not core.training
    assert {p.dtype for p in core.parameters()} == {torch.float32}
