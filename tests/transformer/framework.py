"""Our weights under the framework's names, and back.

Both directions take and give a dict of tensors by parameter name, so
that they serve for weights and for gradients alike.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer import Transformer

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


def model_names(layers: int, norm: str) -> dict[str, str]:
    """The parts of `Transformer` and of `nn.Transformer`."""
    names = {}
    stacks = {"encoder": ENCODER_LAYER, "decoder": DECODER_LAYER}
    for stack, parts in stacks.items():
        for i in range(layers):
            at = f"{stack}.layers.{i}."
            names |= {at + ours: at + theirs for ours, theirs in parts.items()}
        if norm == "pre":
            names[f"{stack}.final_norm."] = f"{stack}.norm."
    return names


def to_framework(ours: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    """Query, key and value maps become one; a missing bias becomes 0."""
    theirs = {}
    for own, other in names.items():
        if f"{own}project_output.weight" not in ours:
            for kind in ("weight", "bias"):
                theirs[other + kind] = ours[own + kind]
            continue
        weights = [ours[f"{own}{part}.weight"] for part in THREE]
        theirs[f"{other}in_proj_weight"] = torch.cat(weights)
        theirs[f"{other}out_proj.weight"] = ours[f"{own}project_output.weight"]
        zero = [weight.new_zeros(len(weight)) for weight in weights]
        biases = [
            ours.get(f"{own}{part}.bias", none)
            for part, none in zip(THREE, zero, strict=True)
        ]
        theirs[f"{other}in_proj_bias"] = torch.cat(biases)
        theirs[f"{other}out_proj.bias"] = ours.get(
            f"{own}project_output.bias", weights[0].new_zeros(weights[0].size(1))
        )
    return theirs


def from_framework(theirs: dict[str, Tensor], names: dict[str, str]):
    """The other way round. Biases come along, also where we have none."""
    ours = {}
    for own, other in names.items():
        if f"{other}in_proj_weight" not in theirs:
            for kind in ("weight", "bias"):
                ours[own + kind] = theirs[other + kind]
            continue
        for kind in ("weight", "bias"):
            parts = theirs[f"{other}in_proj_{kind}"].chunk(3)
            for part, tensor in zip(THREE, parts, strict=True):
                ours[f"{own}{part}.{kind}"] = tensor
            ours[f"{own}project_output.{kind}"] = theirs[f"{other}out_proj.{kind}"]
    return ours


def weights(module: nn.Module) -> dict[str, Tensor]:
    """The parameters of a module by name."""
    return {name: p.detach() for name, p in module.named_parameters()}


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """Their gradients by name."""
    return {name: p.grad for name, p in module.named_parameters()}


class FrameworkTransformer(nn.Module):
    """`nn.Transformer` with our model's weights, and what it leaves out.

    Embedding, positions and output projection, which `nn.Transformer`
    does not have, are written out here.
    """

    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        config = ours.config
        self.pad_id = config.pad_id
        self.core = nn.Transformer(
            config.d_model,
            config.heads,
            config.layers,
            config.layers,
            config.d_ff,
            dropout=0.0,
            layer_norm_eps=config.layer_norm_eps,
            batch_first=True,
            norm_first=config.norm == "pre",
        )
        if config.norm == "post":
            # The framework normalises once more; the paper does not.
            self.core.encoder.norm = self.core.decoder.norm = None
        self.names = model_names(config.layers, config.norm)
        self.core.load_state_dict(to_framework(weights(ours), self.names))
        self.embedding = nn.Parameter(ours.source_embedding.weight.detach().clone())
        self.register_buffer("table", ours.source_positions.table.clone())
        self.to(self.embedding.dtype)

    def embed(self, ids: Tensor) -> Tensor:
        scaled = self.embedding[ids] * self.embedding.size(1) ** 0.5
        return scaled + self.table[: ids.size(1)]

    def forward(self, source: Tensor, target_in: Tensor, masks=None) -> Tensor:
        """`masks` for source, target and memory: True = may NOT attend."""
        length = target_in.size(1)
        ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
        own, target, memory = masks or (None, ahead, None)
        padding = None if masks else source == self.pad_id
        hidden = self.core(
            self.embed(source),
            self.embed(target_in),
            src_mask=own,
            tgt_mask=target,
            memory_mask=memory,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return F.linear(hidden, self.embedding)
