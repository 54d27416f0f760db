"""Section 3.1: sub-layers, layers and stacks as printed."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer import AddAndNorm, Decoder, Encoder, KeyValueCache

from .making import largest_difference, make_model, random_mask, shake


def draw(generator, *shape):
    return torch.randn(*shape, generator=generator).double()


def test_a_connection_is_layer_norm_of_x_plus_sublayer(generator):
    connection = AddAndNorm(8, dropout=0.0, eps=1e-3)
    shake(connection, generator)
    connection.double()
    x = draw(generator, 2, 5, 8)
    total = x + x.sin()
    mean = total.mean(-1, keepdim=True)
    variance = ((total - mean) ** 2).mean(-1, keepdim=True)
    scaled = (total - mean) / (variance + 1e-3).sqrt()
    expected = scaled * connection.norm.weight + connection.norm.bias
    assert largest_difference(connection(x, torch.sin), expected) < 1e-12


def test_a_silent_sublayer_leaves_the_layer_norm_of_x(generator):
    connection = AddAndNorm(8, dropout=0.0).double()
    x = draw(generator, 2, 5, 8)
    expected = F.layer_norm(x, (8,), eps=1e-6)
    assert largest_difference(connection(x, torch.zeros_like), expected) < 1e-12


def test_the_epsilon_is_1e_6_unless_told_otherwise():
    assert AddAndNorm(8, dropout=0.0).norm.eps == 1e-6


def test_a_constant_input_is_normalised_to_0():
    connection = AddAndNorm(8, dropout=0.0)
    output = connection(torch.full((1, 2, 8), 3.0), torch.zeros_like)
    assert (output == 0).all()


def test_dropout_falls_on_the_sublayers_output_before_the_sum(generator):
    connection = AddAndNorm(8, dropout=0.5).double().train()
    x = draw(generator, 2, 5, 8)
    # Where dropout takes everything, only the residual is left.
    connection.dropout.register_forward_hook(lambda m, i, o: torch.zeros_like(o))
    expected = F.layer_norm(x, (8,), eps=1e-6)
    assert largest_difference(connection(x, torch.exp), expected) < 1e-12


def test_dropout_scales_what_it_keeps(generator):
    connection = AddAndNorm(8, dropout=0.5).train()
    seen = []
    connection.dropout.register_forward_hook(lambda m, i, o: seen.append(o))
    x = torch.randn(2, 50, 8, generator=generator)
    connection(x, torch.ones_like)
    assert set(seen[0].unique().tolist()) == {0.0, 2.0}


def test_an_encoder_layer_is_attention_then_feed_forward(generator):
    layer = make_model().encoder.layers[0]
    x, mask = draw(generator, 2, 5, 16), random_mask((2, 4, 5, 5), generator)
    attended = layer.self_attention(x, x, x, mask)
    middle = layer.around_attention.norm(x + attended)
    expected = layer.around_feed_forward.norm(middle + layer.feed_forward(middle))
    assert largest_difference(layer(x, mask), expected) < 1e-12


def test_a_decoder_layer_is_two_attentions_then_feed_forward(generator):
    layer = make_model().decoder.layers[0]
    x, memory = draw(generator, 2, 5, 16), draw(generator, 2, 7, 16)
    mask = random_mask((2, 4, 5, 5), generator)
    memory_mask = random_mask((2, 4, 5, 7), generator)
    own = layer.self_attention(x, x, x, mask)
    one = layer.around_self_attention.norm(x + own)
    cross = layer.cross_attention(one, memory, memory, memory_mask)
    two = layer.around_cross_attention.norm(one + cross)
    expected = layer.around_feed_forward.norm(two + layer.feed_forward(two))
    assert largest_difference(layer(x, memory, mask, memory_mask), expected) < 1e-12


def test_a_post_norm_layers_output_is_normalised(generator):
    layer = make_model().encoder.layers[0]
    nn.init.ones_(layer.around_feed_forward.norm.weight)
    nn.init.zeros_(layer.around_feed_forward.norm.bias)
    output = layer(10 * draw(generator, 3, 5, 16), None)
    zero = torch.zeros(3, 5).double()
    assert largest_difference(output.mean(-1), zero) < 1e-12
    assert largest_difference(output.var(-1, correction=0), zero + 1) < 1e-4


class Doubling(nn.Module):
    """A layer that says what it was given."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x, *others, **named):
        self.seen.append((others, named))
        return 2 * x


def test_an_encoder_runs_its_layers_in_turn_with_one_mask(generator):
    layers = [Doubling() for _ in range(3)]
    x, mask = draw(generator, 2, 5, 4), torch.ones(5, 5, dtype=torch.bool)
    assert torch.equal(Encoder(layers)(x, mask), 8 * x)
    for layer in layers:
        assert len(layer.seen) == 1
        assert layer.seen[0][0][0] is mask


def test_a_decoder_gives_each_layer_the_same_memory_and_its_own_cache(generator):
    layers = [Doubling() for _ in range(3)]
    x, memory = draw(generator, 2, 5, 4), draw(generator, 2, 7, 4)
    masks = torch.ones(5, 5, dtype=torch.bool), torch.ones(5, 7, dtype=torch.bool)
    cache = [(KeyValueCache(grows=True), KeyValueCache(grows=False)) for _ in range(3)]
    output = Decoder(layers)(x, memory, *masks, cache=cache)
    assert torch.equal(output, 8 * x)
    for layer, pair in zip(layers, cache, strict=True):
        others, named = layer.seen[0]
        assert [id(other) for other in others] == [id(memory), *map(id, masks)]
        assert named["cache"] is pair


def test_a_final_norm_comes_last_and_only_if_given(generator):
    x = draw(generator, 2, 5, 4)
    norm = nn.LayerNorm(4).double()
    assert torch.equal(Encoder([Doubling()], norm)(x, None), norm(2 * x))
    assert torch.equal(Decoder([Doubling()], norm)(x, x, None, None), norm(2 * x))
    assert torch.equal(Encoder([Doubling()])(x, None), 2 * x)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_no_two_layers_share_a_tensor_or_start_alike(norm):
    torch.manual_seed(0)
    model = make_model(norm=norm, layers=3)
    for stack in (model.encoder, model.decoder):
        for one, other in itertools.combinations(stack.layers, 2):
            pairs = zip(one.parameters(), other.parameters(), strict=True)
            for mine, yours in pairs:
                assert mine.data_ptr() != yours.data_ptr()
                assert not torch.equal(mine, yours)
