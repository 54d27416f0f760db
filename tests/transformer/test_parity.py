"""Our modules against the framework's: outputs and gradients.

The framework's boolean masks mean the opposite of ours: True = may NOT
attend. Measured: float64 4e-15 in outputs and 2e-14 in gradients;
float32 2e-6, and 4e-7 of the largest gradient. The tolerances leave
room for other machines.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from transformer import MultiHeadAttention
from transformer.pretrained.framework import (
    ATTENTION,
    DECODER_LAYER,
    ENCODER_LAYER,
    joined,
    part_names,
    parted,
)

from .framework import FrameworkTransformer, gradients, weights
from .making import largest_difference, make_model, random_batch, random_mask, shake

TOLERANCE = {torch.float64: 1e-10, torch.float32: 5e-6}
DTYPES = [torch.float64, torch.float32]
BATCH = 3
BASE = dict(d_model=512, d_ff=2048, heads=8)


def random_input(generator, dtype, *shape):
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    return values.to(dtype).requires_grad_()


def leaves(*tensors):
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def compare(ours, theirs, names, our_inputs, their_inputs, our_output, their_output):
    """Largest differences: in the outputs, in all gradients."""
    generator = torch.Generator().manual_seed(7)
    pull = torch.randn(our_output.shape, generator=generator, dtype=torch.float64)
    (our_output * pull.to(our_output.dtype)).sum().backward()
    (their_output * pull.to(their_output.dtype)).sum().backward()
    # Biases that we leave out have a gradient in the framework only.
    back = parted(gradients(theirs), names)
    differences = [
        largest_difference(tensor, back[name])
        for name, tensor in gradients(ours).items()
        if name in back
    ]
    differences += [
        largest_difference(own.grad, other.grad)
        for own, other in zip(our_inputs, their_inputs, strict=True)
    ]
    largest = max(tensor.abs().max().item() for tensor in back.values())
    return largest_difference(our_output, their_output), max(differences), largest


def check(differences, dtype):
    """Outputs are near 1; gradients are not, so float32 counts by their size."""
    outputs, grads, largest = differences
    assert outputs <= TOLERANCE[dtype]
    size = largest if dtype == torch.float32 else 1
    assert grads <= TOLERANCE[dtype] * size


def attention_difference(heads, d_k, queries, keys, bias, masked, dtype):
    generator = torch.Generator().manual_seed(heads * 100 + keys)
    d_model = heads * d_k
    ours = MultiHeadAttention(d_model, heads, bias=bias)
    shake(ours, generator)
    ours.to(dtype)
    theirs = nn.MultiheadAttention(d_model, heads, batch_first=True, dtype=dtype)
    theirs.load_state_dict(joined(weights(ours), ATTENTION))
    query = random_input(generator, dtype, BATCH, queries, d_model)
    key = random_input(generator, dtype, BATCH, keys, d_model)
    value = random_input(generator, dtype, BATCH, keys, d_model)
    mask = random_mask((BATCH, heads, queries, keys), generator) if masked else None
    copies = leaves(query, key, value)
    output = ours(query, key, value, mask)
    blocked = None if mask is None else ~mask.flatten(0, 1)
    expected, _ = theirs(*copies, attn_mask=blocked)
    return compare(
        ours, theirs, ATTENTION, [query, key, value], copies, output, expected
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize(
    ("heads", "d_k", "queries", "keys"),
    [(1, 8, 5, 5), (4, 4, 5, 9), (2, 16, 9, 3), (8, 64, 6, 7)],
)
def test_attention_equals_nn_multihead_attention(
    heads, d_k, queries, keys, bias, masked, dtype
):
    difference = attention_difference(heads, d_k, queries, keys, bias, masked, dtype)
    check(difference, dtype)


def layer_difference(kind, norm, bias, masked, dtype, **size):
    """An encoder or decoder layer, taken from a whole model of ours."""
    generator = torch.Generator().manual_seed(len(kind + norm))
    model = make_model(
        norm=norm, attention_bias=bias, layers=1, dtype=dtype, **size
    ).train()
    config = model.config
    common = dict(
        dropout=0.0,
        batch_first=True,
        norm_first=norm == "pre",
        layer_norm_eps=config.layer_norm_eps,
        dtype=dtype,
    )
    shape = (config.d_model, config.heads, config.d_ff)
    x = random_input(generator, dtype, BATCH, 6, config.d_model)
    memory = random_input(generator, dtype, BATCH, 9, config.d_model)
    own = cross = None
    if masked:
        own = random_mask((BATCH, config.heads, 6, 6), generator)
        cross = random_mask((BATCH, config.heads, 6, 9), generator)
    blocked = None if own is None else ~own.flatten(0, 1)
    blocked_cross = None if cross is None else ~cross.flatten(0, 1)
    if kind == "encoder":
        ours, names = model.encoder.layers[0], ENCODER_LAYER
        theirs = nn.TransformerEncoderLayer(*shape, **common)
        inputs, copies = [x], leaves(x)
        output = ours(x, own)
    else:
        ours, names = model.decoder.layers[0], DECODER_LAYER
        theirs = nn.TransformerDecoderLayer(*shape, **common)
        inputs, copies = [x, memory], leaves(x, memory)
        output = ours(x, memory, own, cross)
    theirs.load_state_dict(joined(weights(ours), names))
    if kind == "encoder":
        expected = theirs(*copies, src_mask=blocked)
    else:
        expected = theirs(*copies, tgt_mask=blocked, memory_mask=blocked_cross)
    return compare(ours, theirs, names, inputs, copies, output, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("size", [{}, BASE], ids=["small", "base"])
def test_layers_equal_the_frameworks(size, kind, norm, bias, masked, dtype):
    check(layer_difference(kind, norm, bias, masked, dtype, **size), dtype)


def model_difference(norm, bias, masks, dtype, **size):
    """The whole model: logits, and the gradients of every weight."""
    generator = torch.Generator().manual_seed(3)
    ours = make_model(norm=norm, attention_bias=bias, dtype=dtype, **size).train()
    theirs = FrameworkTransformer(ours).train()
    heads = ours.config.heads
    batch = random_batch(generator, source=9, target=7)
    source, target_in = batch.source, batch.target[:, :-1]
    if masks == "random":
        sizes = [(9, 9), (6, 6), (6, 9)]
        allowed = [random_mask((4, heads, *size), generator) for size in sizes]
        memory = ours.encode(source, allowed[0])
        hidden = ours.decode(target_in, memory, allowed[1], allowed[2])
        output = ours.output_projection(hidden)
        expected = theirs(source, target_in, [~mask.flatten(0, 1) for mask in allowed])
    else:
        output = ours(source, target_in)
        expected = theirs(source, target_in)
    outputs, grads, largest = compare(
        ours, theirs.core, theirs.names, [], [], output, expected
    )
    embedding = largest_difference(
        ours.source_embedding.weight.grad, theirs.embedding.grad
    )
    return outputs, max(grads, embedding), largest


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("masks", ["padding", "random"])
@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_model_equals_nn_transformer_without_its_extra_norms(
    norm, bias, masks, dtype
):
    check(model_difference(norm, bias, masks, dtype), dtype)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_the_frameworks_extra_final_norms_would_change_the_logits(generator):
    ours = make_model()
    batch = random_batch(generator)
    theirs = FrameworkTransformer(ours)
    theirs.core.encoder.norm = nn.LayerNorm(16).double()
    theirs.core.decoder.norm = nn.LayerNorm(16).double()
    with_norms = theirs(batch.source, batch.target)
    without = ours(batch.source, batch.target)
    assert largest_difference(without, with_norms) > 0.01


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_weights_mapped_to_the_framework_and_back_are_the_same(norm):
    model = make_model(norm=norm, attention_bias=True)
    names = part_names(model.config.layers, norm)
    own = weights(model)
    back = parted(joined(own, names), names)
    rest = set(own) - set(back)
    assert rest == {"source_embedding.weight"}
    assert all(torch.equal(back[name], own[name]) for name in back)
