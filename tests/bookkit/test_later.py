"""Each later change equals the framework's, a closed form or a slow loop."""

import inspect
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bookkit import later
from bookkit.evidence import Measurement
from transformer import (
    Decoder,
    Transformer,
    TransformerConfig,
    causal_mask,
    greedy_decode,
    scaled_dot_product_attention,
    sinusoidal_encoding,
)
from transformer.variants import NormAndAdd


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def close(a, b, within=1e-12):
    return torch.allclose(a, b, rtol=0, atol=within)


# --- norm and feed-forward network


@pytest.mark.parametrize("seed", range(4))
def test_rms_norm_is_the_framework_s(seed):
    x = 10**seed * draw(2, 5, 6, seed=seed)
    ours = later.RMSNorm(6, eps=1e-6).double()
    theirs = nn.RMSNorm(6, eps=1e-6).double()
    with torch.no_grad():
        ours.gain.copy_(draw(6, seed=9))
        theirs.weight.copy_(ours.gain)
    assert close(ours(x), theirs(x))


def test_rms_norm_leaves_the_mean_and_layer_norm_does_not():
    x = draw(4, 8) + 3
    assert later.RMSNorm(8).double()(x).mean() > 0.5
    assert nn.LayerNorm(8).double()(x).mean().abs() < 1e-12


def test_rms_norm_of_vectors_without_a_mean_is_layer_norm():
    x = draw(4, 8)
    x = x - x.mean(-1, keepdim=True)
    layer = nn.LayerNorm(8, eps=1e-6).double()
    assert close(later.RMSNorm(8).double()(x), layer(x))


def test_swiglu_is_the_formula_of_the_paper_it_comes_from():
    network = later.SwiGLU(6, 10).double()
    x = draw(3, 6)
    w, v, w2 = (p.weight.T for p in (network.gate, network.widen, network.narrow))
    gate = x @ w
    expected = (gate / (1 + (-gate).exp()) * (x @ v)) @ w2
    assert close(network(x), expected)


def test_swiglu_of_two_thirds_has_as_many_weights():
    def weights(switch):
        model = later.LanguageModel(79, later.SWITCHES[switch])
        return sum(p.numel() for p in model.parameters())

    assert weights("SwiGLU") == pytest.approx(weights("as printed"), rel=0.01)


# --- positions


@pytest.mark.parametrize("first", [0, 3, 1000])
def test_rotating_position_zero_gives_the_row_of_the_table(first):
    start = torch.tensor([0.0, 1.0] * 8, dtype=torch.float64).expand(5, -1)
    torch.set_default_dtype(torch.float64)
    try:
        table = sinusoidal_encoding(first + 5, 16)[first:]
    finally:
        torch.set_default_dtype(torch.float32)
    assert close(later.rotate(start, first), table)


def test_rotation_is_a_product_of_complex_numbers():
    x = draw(2, 7, 10)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    frequency = 10000 ** -(torch.arange(0, 10, 2, dtype=torch.float64) / 10)
    angle = torch.arange(7, dtype=torch.float64)[:, None] * frequency
    # Section 3.5's order is (sine, cosine): the turn goes clockwise.
    turned = pairs * torch.polar(torch.ones_like(angle), -angle)
    assert close(later.rotate(x), torch.view_as_real(turned).flatten(-2))


@pytest.mark.parametrize("shift", [1, 17, 1000])
def test_shifting_both_positions_leaves_the_score(shift):
    q, k = draw(6, 16), draw(6, 16, seed=1)
    here = later.rotate(q) @ later.rotate(k).mT
    there = later.rotate(q, shift) @ later.rotate(k, shift).mT
    assert close(here, there, 1e-11)
    only_one = later.rotate(q, shift) @ later.rotate(k).mT
    assert not close(here, only_one, 1e-2)


def test_rotation_keeps_lengths():
    x = draw(9, 16)
    assert close(later.rotate(x, 5).norm(dim=-1), x.norm(dim=-1))


def test_slopes_are_those_that_the_authors_print():
    expected = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert later.alibi_slopes(8).tolist() == expected
    sixteen = later.alibi_slopes(16)
    assert sixteen[0].item() == pytest.approx(2**-0.5)
    assert sixteen[1::2].tolist() == pytest.approx(expected)
    for heads in (0, 3, 12):
        with pytest.raises(ValueError, match=f"heads={heads} must be a power of two"):
            later.alibi_slopes(heads)


def test_alibi_is_the_framework_s_attention_with_a_bias():
    q, k, v = (draw(2, 4, 6, 8, seed=i) for i in range(3))
    mask = causal_mask(6)
    bias = torch.empty(4, 6, 6, dtype=torch.float64)
    for head, slope in enumerate(later.alibi_slopes(4)):
        for i in range(6):
            for j in range(6):
                bias[head, i, j] = slope * (j - i) if j <= i else -math.inf
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    found, weights = later.alibi_attention(q, k, v, mask, return_weights=True)
    assert close(found, expected)
    assert close(weights @ v, expected)
    assert close(later.alibi_attention(q, k, v, mask), found)


@pytest.mark.parametrize("attend", [later.rotary_attention, later.alibi_attention])
def test_the_last_query_alone_gets_what_it_gets_among_all(attend):
    q, k, v = (draw(1, 4, 7, 8, seed=i) for i in range(3))
    among_all = attend(q, k, v, causal_mask(7))
    alone = attend(q[:, :, -1:], k, v, causal_mask(7)[-1:])
    assert close(alone, among_all[:, :, -1:])


# --- heads that share


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_grouped_queries_are_the_framework_s(key_heads):
    layer = later.GroupedQueryAttention(16, 4, key_heads).double()
    x = draw(2, 5, 16)
    found = layer(x, x, x, causal_mask(5))
    q = layer.project_query(x).unflatten(-1, (4, 4)).transpose(1, 2)
    k, v = (
        project(x).unflatten(-1, (key_heads, 4)).transpose(1, 2)
        for project in (layer.project_key, layer.project_value)
    )
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    expected = layer.project_output(heads.transpose(1, 2).flatten(2))
    assert close(found, expected)


def test_key_heads_must_divide_the_heads():
    with pytest.raises(ValueError, match="key_heads=3 must divide heads=4"):
        later.GroupedQueryAttention(16, 4, 3)


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_the_cache_shrinks_with_the_key_heads_and_decoding_is_the_same(key_heads):
    config = TransformerConfig(
        vocab_size=11, layers=3, d_model=16, d_ff=8, heads=4, dropout=0.0
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = later.with_key_heads(config, key_heads)
    source = torch.tensor([[5, 6, 7, 2]])
    with_cache = greedy_decode(model, source, max_length=9)
    assert torch.equal(
        with_cache, greedy_decode(model, source, max_length=9, use_cache=False)
    )
    cache = model.new_cache()
    target = torch.tensor([[1, 4, 5, 6, 7]])
    masks = model.build_masks(source, target)
    memory = model.encode(source, masks[0])
    model.decode(target, memory, *masks[1:], cache=cache)
    # Keys and values, layers, key heads, d_k, positions, bytes.
    assert later.cache_bytes(cache) == 2 * 3 * key_heads * 4 * 5 * 4


# --- attention in blocks


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 7, 32, 50])
@pytest.mark.parametrize("block", [1, 8, 64])
def test_attention_in_blocks_is_attention(causal, length, block):
    q, k = (5 * draw(2, 3, length, 8, seed=i) for i in range(2))
    v = draw(2, 3, length, 6, seed=2)
    mask = causal_mask(length) if causal else None
    expected = scaled_dot_product_attention(q, k, v, mask)
    found = later.attention_in_blocks(q, k, v, causal=causal, block=block)
    assert close(found, expected)


def test_attention_in_blocks_takes_more_keys_than_queries():
    q, k, v = draw(9, 4), draw(40, 4, seed=1), draw(40, 4, seed=2)
    found = later.attention_in_blocks(q, k, v, block=16)
    assert close(found, scaled_dot_product_attention(q, k, v))


def test_scores_that_overflow_alone_do_no_harm_in_blocks():
    q = torch.full((4, 1), 50.0, dtype=torch.float64)
    k = torch.arange(64.0, dtype=torch.float64)[:, None]
    assert (q @ k.T).exp().isinf().any()
    v = draw(64, 3)
    found = later.attention_in_blocks(q, k, v, block=16)
    assert close(found, v[-1:].expand(4, -1))


def test_the_largest_tensor_grows_with_the_length_and_not_with_its_square():
    def largest(attend, n):
        q, k, v = (draw(n, 8, seed=i) for i in range(3))
        with later.LargestTensor() as seen:
            attend(q, k, v)
        return seen.numbers

    def all_scores(q, k, v):
        return scaled_dot_product_attention(q, k, v, return_weights=True)

    for n in (64, 128, 256):
        assert largest(all_scores, n) == n * n
        in_blocks = largest(later.attention_in_blocks, n)
        assert in_blocks == max(32 * 32, n * 8)


# --- parts removed


def decoder(norm, seed=0):
    config = TransformerConfig.tiny(11, norm=norm)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Transformer(config).double().decoder.eval()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_decoder_without_cross_attention_is_an_encoder_with_a_causal_mask(norm):
    whole = decoder(norm)
    x, memory = draw(2, 6, 64), draw(2, 4, 64, seed=1)
    mask = causal_mask(6)
    bare = later.without_cross_attention(whole)
    assert isinstance(bare, Decoder)
    found = bare(x, memory, mask, None)
    assert torch.equal(found, later.as_encoder(whole)(x, mask))
    assert torch.equal(found, bare(x, draw(2, 9, 64, seed=2), mask, None))
    assert not close(found, whole(x, memory, mask, None), 1e-2)


# --- the model that is measured


@pytest.mark.parametrize("name", later.SWITCHES)
def test_no_switch_lets_a_letter_see_what_comes_after_it(name):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = later.LanguageModel(13, later.SWITCHES[name]).double()
    ids = torch.arange(12)[None]
    changed = ids.clone()
    changed[0, 7] = 0
    before, after = model(ids), model(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert (before[:, 7:] != after[:, 7:]).any(-1).all()


@pytest.mark.parametrize("name", [n for n in later.SWITCHES if n != "no positions"])
def test_every_switch_knows_the_order(name):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = later.LanguageModel(13, later.SWITCHES[name]).double()
    forth = torch.tensor([[4, 5, 6, 7, 8]])
    back = torch.tensor([[5, 4, 6, 7, 8]])
    assert not close(model(forth)[:, -1], model(back)[:, -1], 1e-6)


def test_one_layer_without_positions_does_not_know_the_order():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        changes = later.SWITCHES["no positions"]
        model = later.LanguageModel(13, changes, layers=1).double()
    forth = torch.tensor([[4, 5, 6, 7, 8]])
    back = torch.tensor([[5, 4, 6, 7, 8]])
    assert close(model(forth)[:, -1], model(back)[:, -1])


def test_a_switch_changes_what_it_names_and_nothing_else():
    sizes = {
        name: sum(p.numel() for p in later.LanguageModel(13, changes).parameters())
        for name, changes in later.SWITCHES.items()
    }
    for name in ("GELU", "rotary", "ALiBi", "no positions"):
        assert sizes[name] == sizes["as printed"]
    assert sizes["as printed"] - sizes["RMSNorm"] == 2 * 2 * 64  # no biases
    assert sizes["pre-norm"] - sizes["as printed"] == 2 * 64  # one norm more
    per_head = 2 * 2 * 64 * 16  # layers, key and value, d_model, d_k
    assert sizes["as printed"] - sizes["2 of 4 key heads"] == 2 * per_head
    assert sizes["as printed"] - sizes["1 of 4 key heads"] == 3 * per_head
    model = later.LanguageModel(13, later.SWITCHES["pre-norm"])
    assert isinstance(model.stack.layers[0].around_attention, NormAndAdd)


def test_the_plain_model_is_the_book_s_decoder_without_cross_attention():
    config = TransformerConfig.tiny(13, heads=4)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        whole = Transformer(config).double().eval()
        plain = later.LanguageModel(13, later.SWITCHES["as printed"]).double()
    plain.embedding.weight = whole.target_embedding.weight
    plain.output_projection.weight = plain.embedding.weight
    plain.stack = later.as_encoder(whole.decoder)
    ids = torch.tensor([[1, 5, 6, 7]])
    mask = causal_mask(4)
    x = whole.target_positions(whole.target_embedding(ids))
    bare = later.without_cross_attention(whole.decoder)
    expected = whole.output_projection(bare(x, x, mask, None))
    assert close(plain(ids), expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1, 0.2, 0.15], "gained"),
        ([-0.1, -0.2, -0.15], "cost"),
        ([-0.1, 0.2, 0.15], "cannot tell"),
        ([0.0], "cannot tell"),
        ([1e-9], "gained"),
    ],
)
def test_the_outcome_is_what_the_rule_says_of_the_whole_interval(values, expected):
    rule = "gained if above 0; cost if below 0; otherwise cannot tell"
    found = Measurement(dict(enumerate(values)))
    assert later.outcome(found, rule) == expected


def test_every_public_name_has_a_docstring():
    for name, thing in vars(later).items():
        ours = getattr(thing, "__module__", None) == later.__name__
        if ours and not name.startswith("_"):
            assert inspect.getdoc(thing), name
