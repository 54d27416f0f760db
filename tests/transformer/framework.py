"""Our model beside `nn.Transformer` with the same weights, for gradients.

`FrameworkTransformer` owns its parameters, so that each has a gradient of
its own. The mapping of names is `transformer.pretrained.framework`'s.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer import Transformer
from transformer.pretrained.framework import part_names, to_framework


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
        self.core = to_framework(ours)
        self.names = part_names(config.layers, config.norm)
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
