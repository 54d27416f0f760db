"""Our weights in `torch.nn.Transformer`, and its weights in ours.

`nn.Transformer` is the two stacks alone. Embeddings, positions and
output projection are the caller's; `logits_through` lends it ours.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.config import TransformerConfig
from transformer.model import Transformer
from transformer.shapes import Logits, SourceIds, TargetIds
from transformer.variants import ACTIVATIONS

# The beginnings of names: ours, the framework's.
ATTENTION = {"": ""}
ENCODER_LAYER = {
    "self_attention.": "self_attn.",
    "feed_forward.widen.": "linear1.",
    "feed_forward.narrow.": "linear2.",
    "around_attention.norm.": "norm1.",
    "around_feed_forward.norm.": "norm2.",
}
DECODER_LAYER = {
    "self_attention.": "self_attn.",
    "cross_attention.": "multihead_attn.",
    "feed_forward.widen.": "linear1.",
    "feed_forward.narrow.": "linear2.",
    "around_self_attention.norm.": "norm1.",
    "around_cross_attention.norm.": "norm2.",
    "around_feed_forward.norm.": "norm3.",
}
THREE = ("project_query", "project_key", "project_value")
KINDS = ("weight", "bias")

State = Mapping[str, Tensor]


def to_framework(model: Transformer) -> nn.Transformer:
    """The framework's Transformer with our weights.

    Its final norms are None where the norms stand as printed: left
    at their default, they would normalise once more.

    Args:
        model: of any size; its embeddings, positions and output
            projection stay behind.

    Returns:
        batch_first, in our dtype and on our device, in evaluation
        mode.

    Raises:
        ValueError: d_k or d_v is not d_model / heads, which the
            framework cannot have.
    """
    config = model.config
    for name in ("d_k", "d_v"):
        if getattr(config, name) * config.heads != config.d_model:
            raise ValueError(
                f"{name}={getattr(config, name)}: nn.Transformer has"
                f" d_model / heads = {config.d_model}/{config.heads}"
                " only"
            )
    core = nn.Transformer(
        config.d_model,
        config.heads,
        config.layers,
        config.layers,
        config.d_ff,
        dropout=config.dropout,
        activation=ACTIVATIONS[config.activation],
        layer_norm_eps=config.layer_norm_eps,
        batch_first=True,
        norm_first=config.norm == "pre",
    )
    if config.norm == "post":
        core.encoder.norm = core.decoder.norm = None
    for part in core.modules():  # it drops out where we do, no more
        if isinstance(part, nn.MultiheadAttention):
            part.dropout = config.attention_dropout
        elif hasattr(part, "linear1"):
            part.dropout.p = config.activation_dropout
    names = part_names(config.layers, config.norm)
    core.load_state_dict(joined(dict(model.named_parameters()), names))
    return core.to(model.output_projection.weight).eval()


def from_framework(
    core: nn.Transformer,
    embedding: Tensor,
    target_embedding: Tensor | None = None,
    output: Tensor | None = None,
    output_bias: Tensor | None = None,
    **fields,
) -> Transformer:
    """Our model with the weights of the framework's Transformer.

    Args:
        core: post-norm without its final norms, or pre-norm with
            them.
        embedding: (vocab, d_model), before the factor sqrt(d_model);
            alone, it serves in all three places.
        target_embedding, output: (target vocab, d_model), where they
            are not `embedding`; one given alone serves as the other.
        output_bias: (target vocab).
        fields: of the configuration, such as pad_id, max_length or
            the kind of positions, which `core` does not know.

    Returns:
        in evaluation mode, in the dtype of `core`.

    Raises:
        ValueError: naming the part of `core` that we do not have, or
            the tensor that does not fit.
    """
    shape = shape_of(core)
    tied = target_embedding is None and output is None
    if target_embedding is None:
        target_embedding = embedding if output is None else output
    output = target_embedding if output is None else output
    config = TransformerConfig(
        vocab_size=len(embedding),
        target_vocab_size=len(target_embedding),
        tied=tied,
        output_bias=output_bias is not None,
        **(shape | fields),
    )
    state = parted(
        core.state_dict(), part_names(config.layers, config.norm)
    )
    state["source_embedding.weight"] = embedding
    state["target_embedding.weight"] = target_embedding
    state["output_projection.weight"] = output
    if output_bias is not None:
        state["output_projection.bias"] = output_bias
    model = Transformer(config).to(
        core.encoder.layers[0].linear1.weight
    )
    own = model.state_dict()
    for name, tensor in state.items():
        if name in own and own[name].shape != tensor.shape:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}, but"
                f" {tuple(own[name].shape)} is needed"
            )
    # Learned positions, which `core` has not, stay as they start.
    model.load_state_dict(
        {name: state.get(name, own[name]) for name in own}
    )
    return model.eval()


def logits_through(
    core: nn.Transformer,
    model: Transformer,
    source: SourceIds,
    target_in: TargetIds,
) -> Logits:
    """`model`'s logits with `core` in the place of its stacks.

    The framework's masks say the opposite of ours: True = hidden.
    """
    padding = source == model.config.pad_id
    past = model.causal_mask(target_in.size(1), target_in.device)
    hidden = core(
        model.source_positions(model.source_embedding(source)),
        model.target_positions(model.target_embedding(target_in)),
        tgt_mask=~past,
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    return model.output_projection(hidden)


def part_names(layers: int, norm: str) -> dict[str, str]:
    """The parts of `Transformer` and of `nn.Transformer`."""
    names = {}
    stacks = {"encoder": ENCODER_LAYER, "decoder": DECODER_LAYER}
    for stack, parts in stacks.items():
        for i in range(layers):
            at = f"{stack}.layers.{i}."
            names |= {at + our: at + its for our, its in parts.items()}
        if norm == "pre":
            names[f"{stack}.final_norm."] = f"{stack}.norm."
    return names


def joined(ours: State, names: dict[str, str]) -> dict[str, Tensor]:
    """Our tensors under the framework's names.

    Query, key and value maps become one; a missing bias becomes 0.
    Serves for weights and for gradients alike.
    """
    theirs = {}
    for own, other in names.items():
        if f"{own}project_output.weight" not in ours:
            for kind in KINDS:
                theirs[other + kind] = ours[own + kind]
            continue
        weights = [ours[f"{own}{part}.weight"] for part in THREE]
        out = ours[f"{own}project_output.weight"]
        theirs[f"{other}in_proj_weight"] = torch.cat(weights)
        theirs[f"{other}out_proj.weight"] = out
        biases = [
            ours.get(f"{own}{part}.bias", weight.new_zeros(len(weight)))
            for part, weight in zip(THREE, weights, strict=True)
        ]
        theirs[f"{other}in_proj_bias"] = torch.cat(biases)
        theirs[f"{other}out_proj.bias"] = ours.get(
            f"{own}project_output.bias", out.new_zeros(len(out))
        )
    return theirs


def parted(theirs: State, names: dict[str, str]) -> dict[str, Tensor]:
    """The framework's tensors under our names.

    With all its biases; one that it was made without comes as 0,
    but for those of attention, which we can do without, too.
    """
    ours = {}
    for own, other in names.items():
        if f"{other}in_proj_weight" in theirs:
            for kind in KINDS:
                if f"{other}in_proj_{kind}" not in theirs:
                    continue
                parts = theirs[f"{other}in_proj_{kind}"].chunk(3)
                for part, tensor in zip(THREE, parts, strict=True):
                    ours[f"{own}{part}.{kind}"] = tensor
                out = theirs[f"{other}out_proj.{kind}"]
                ours[f"{own}project_output.{kind}"] = out
            continue
        weight = theirs[f"{other}weight"]
        ours[f"{own}weight"] = weight
        ours[f"{own}bias"] = theirs.get(
            f"{other}bias", weight.new_zeros(len(weight))
        )
    return ours


def shape_of(core: nn.Transformer) -> dict:
    """What of our configuration `core` settles.

    Raises:
        ValueError: naming the part that we do not have.
    """
    encoder, decoder = core.encoder, core.decoder
    layers, others = len(encoder.layers), len(decoder.layers)
    if layers != others:
        raise ValueError(
            f"num_encoder_layers={layers}, num_decoder_layers={others}:"
            " our stacks are of one height"
        )
    facts = [layer_facts(x) for x in [*encoder.layers, *decoder.layers]]
    shape = facts[0]
    for name, value in shape.items():
        if odd := [f[name] for f in facts if f[name] != value]:
            raise ValueError(
                f"{name} is {value!r} in the first layer and"
                f" {odd[0]!r} in another: ours are all alike"
            )
    pre = shape["norm"] == "pre"
    for name, stack in (("encoder", encoder), ("decoder", decoder)):
        if pre and stack.norm is None:
            raise ValueError(
                f"{name}.norm is None, but our pre-norm stacks end"
                " with a norm"
            )
        if not pre and stack.norm is not None:
            raise ValueError(
                f"{name}.norm is a norm after the last norm: our"
                " post-norm stacks, as the paper's, have none. Train"
                " without it, or set it to None and get other logits"
            )
    return dict(layers=layers, d_model=core.d_model, **shape)


def layer_facts(layer: nn.Module) -> dict:
    """What of our configuration one layer settles.

    A layer of the decoder whose activation is given as a module, not
    as a function, holds ReLU instead (seen in torch 2.6 and 2.13):
    so that each is asked.
    """
    return dict(
        heads=layer.self_attn.num_heads,
        d_ff=layer.linear1.out_features,
        dropout=layer.dropout1.p,
        attention_dropout=layer.self_attn.dropout,
        activation_dropout=layer.dropout.p,
        activation=activation_of(layer.activation),
        norm="pre" if layer.norm_first else "post",
        layer_norm_eps=layer.norm1.eps,
        attention_bias=layer.self_attn.in_proj_bias is not None,
    )


def activation_of(function) -> str:
    """Our name for the framework's activation.

    Raises:
        ValueError: we do not have it.
    """
    modules = {nn.ReLU: F.relu, nn.SiLU: F.silu}
    if isinstance(function, nn.GELU) and function.approximate == "none":
        function = F.gelu
    function = modules.get(type(function), function)
    for name, ours in ACTIVATIONS.items():
        if function is ours:
            return name
    raise ValueError(
        f"activation={function!r} must be one of"
        f" {', '.join(map(repr, ACTIVATIONS))}"
    )
