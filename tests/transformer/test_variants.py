"""What the configuration can choose instead of the paper as printed."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer import AddAndNorm, PositionalEncoding
from transformer.variants import (
    ACTIVATIONS,
    LearnedPositions,
    NormAndAdd,
    OtherSinusoids,
    sinusoids,
)

from .making import largest_difference, make_model, random_batch, shake


def test_pre_norm_is_x_plus_the_sublayer_of_the_normalised_x(generator):
    connection = NormAndAdd(8, dropout=0.0, eps=1e-3)
    shake(connection, generator)
    x = torch.randn(2, 5, 8, generator=generator)
    norm = connection.norm
    normalised = F.layer_norm(x, (8,), norm.weight, norm.bias, 1e-3)
    torch.testing.assert_close(connection(x, torch.sin), x + normalised.sin())


def test_a_silent_sublayer_leaves_x_untouched_in_pre_norm(generator):
    connection = NormAndAdd(8, dropout=0.0)
    x = torch.randn(2, 5, 8, generator=generator)
    assert torch.equal(connection(x, torch.zeros_like), x)


def test_dropout_in_pre_norm_falls_on_the_sublayers_output(generator):
    connection = NormAndAdd(8, dropout=0.5).train()
    seen = []
    connection.dropout.register_forward_hook(lambda m, i, o: seen.append(i[0]))
    x = torch.randn(2, 5, 8, generator=generator)
    connection(x, torch.sin)
    assert torch.equal(seen[0], connection.norm(x).sin())


def test_the_activations_are_the_frameworks():
    assert {"relu": F.relu, "gelu": F.gelu, "swish": F.silu} == ACTIVATIONS


@pytest.mark.parametrize("name", ["relu", "gelu", "swish"])
def test_the_configuration_chooses_the_activation(name):
    model = make_model(activation=name)
    chosen = {
        layer.feed_forward.activation
        for layer in [*model.encoder.layers, *model.decoder.layers]
    }
    assert chosen == {ACTIVATIONS[name]}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, PositionalEncoding),
        (dict(positions="learned"), LearnedPositions),
        (dict(sinusoid_layout="concatenated"), OtherSinusoids),
        (dict(sinusoid_spacing="published"), OtherSinusoids),
    ],
)
def test_the_configuration_chooses_the_positions(changes, kind):
    model = make_model(**changes)
    assert type(model.source_positions) is kind
    assert type(model.target_positions) is kind
    if kind is OtherSinusoids:
        layout = changes.get("sinusoid_layout", "interleaved")
        spacing = changes.get("sinusoid_spacing", "printed")
        table = sinusoids(32, 16, layout=layout, spacing=spacing).double()
        assert torch.equal(model.target_positions.table, table)


def test_learned_positions_of_source_and_target_are_apart():
    model = make_model(positions="learned")
    source, target = model.source_positions.table, model.target_positions.table
    assert source.shape == target.shape == (32, 16)
    assert source.data_ptr() != target.data_ptr()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_configuration_chooses_the_norms_place_and_eps(norm):
    model = make_model(norm=norm, layer_norm_eps=1e-4)
    kind = {"post": AddAndNorm, "pre": NormAndAdd}[norm]
    around = [m for m in model.modules() if isinstance(m, (AddAndNorm, NormAndAdd))]
    assert {type(m) for m in around} == {kind}
    assert len(around) == 2 * (2 + 3)
    norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm)]
    assert {m.eps for m in norms} == {1e-4}
    assert len(norms) == 10 + (2 if norm == "pre" else 0)


def test_pre_norm_ends_each_stack_with_a_norm(generator):
    model = make_model(norm="pre")
    batch = random_batch(generator)
    for stack in (model.encoder, model.decoder):
        assert isinstance(stack.final_norm, nn.LayerNorm)
    mask, _, _ = model.build_masks(batch.source, batch.source)
    memory = model.encode(batch.source, mask)
    undone = (memory - model.encoder.final_norm.bias) / model.encoder.final_norm.weight
    zero = torch.zeros(4, 7).double()
    assert largest_difference(undone.mean(-1), zero) < 1e-12
    assert largest_difference(undone.var(-1, correction=0), zero + 1) < 1e-4


def test_a_layers_attention_has_the_dropout_of_the_configuration():
    model = make_model(attention_dropout=0.3, activation_dropout=0.2)
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        assert layer.self_attention.dropout == 0.3
        assert layer.feed_forward.dropout.p == 0.2
    assert model.decoder.layers[0].cross_attention.dropout == 0.3
