"""Section 3.2: scaled dot-product and multi-head attention."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.inputs import check_mask
from transformer.linear import Linear


def scaled_dot_product_attention(
    query: Float[Tensor, "*batch query d_k"],
    key: Float[Tensor, "*batch key d_k"],
    value: Float[Tensor, "*batch key d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    dropout: float = 0.0,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Equation 1: softmax(Q K^T / sqrt(d_k)) V.

    Args:
        query, key, value: any equal leading axes, then positions,
            then width.
        mask: True where a query may attend to a key; broadcasts to
            (..., query, key). A query that may attend to nothing
            gets zeros, and finite gradients.
        dropout: share of the weights that is dropped. The caller
            passes 0.0 when not training.
        return_weights: also return the softmax's rows, before
            dropout. Without it the framework's own kernel computes
            the same output, if it can without storing them.

    Returns:
        The output (..., query, d_v); if asked for, also the weights
        (..., query, key).

    Raises:
        TypeError: the mask is not of dtype bool.
        ValueError: the mask does not broadcast to (..., query, key).
    """
    if mask is not None:
        check_mask(mask, (*query.shape[:-1], key.size(-2)), "mask")
        mask = torch.atleast_2d(mask)  # the kernel asks for two axes
    if not return_weights:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout
        )
    scores = query @ key.transpose(-2, -1) / math.sqrt(key.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(dim=-1)
    if mask is not None:
        # A row of -inf alone comes out of softmax as NaN.
        weights = weights.masked_fill(~mask, 0.0)
    return F.dropout(weights, dropout) @ value, weights


class KeyValueCache:
    """Keys and values that a decoding step need not compute again.

    In self-attention (`grows=True`) each step adds its own. In
    attention over the encoder's output the first step computes them
    all, and later steps take them as they are.
    """

    def __init__(self, *, grows: bool) -> None:
        self.grows = grows
        self.key: Float[Tensor, "batch heads key d_k"] | None = None
        self.value: Float[Tensor, "batch heads key d_v"] | None = None

    def __len__(self) -> int:
        """Number of positions stored."""
        return 0 if self.key is None else self.key.size(2)

    def add(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append new positions; return all that are stored."""
        if self.key is not None:
            key = torch.cat([self.key, key], dim=2)
            value = torch.cat([self.value, value], dim=2)
        self.key, self.value = key, value
        return key, value


class MultiHeadAttention(nn.Module):
    """h attentions side by side, each on its own projections.

    Args:
        d_model: width of queries, keys, values and output.
        heads: h, the number of attentions.
        d_k, d_v: width of one head; d_model / heads if None.
        bias: add a bias to each projection. The paper writes none.
        dropout: of the attention weights. The paper has none.

    Within `recording` the weights of the last call, before dropout,
    stand in `weights`: (batch, heads, query, key).
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads = heads
        d_k = d_k or d_model // heads
        d_v = d_v or d_model // heads
        self.attend = scaled_dot_product_attention
        self.project_query = Linear(d_model, heads * d_k, bias=bias)
        self.project_key = Linear(d_model, heads * d_k, bias=bias)
        self.project_value = Linear(d_model, heads * d_v, bias=bias)
        self.project_output = Linear(heads * d_v, d_model, bias=bias)
        self.dropout = dropout
        self.record = False
        self.weights: Tensor | None = None

    def forward(
        self,
        query: Float[Tensor, "batch query d_model"],
        key: Float[Tensor, "batch key d_model"],
        value: Float[Tensor, "batch key d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        *,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Section 3.2.2: Concat(head_1, ..., head_h) W^O.

        `mask` broadcasts to (batch, heads, query, key). With a
        `cache`, `key` and `value` are the new positions only.
        """
        q = self.split_heads(self.project_query(query))
        k, v = self.keys_and_values(key, value, cache)
        heads = self.attend(
            q,
            k,
            v,
            mask,
            dropout=self.dropout if self.training else 0.0,
            return_weights=self.record,
        )
        if self.record:
            heads, self.weights = heads
        return self.project_output(self.merge_heads(heads))

    def keys_and_values(
        self, key: Tensor, value: Tensor, cache: KeyValueCache | None
    ) -> tuple[Tensor, Tensor]:
        """Project and split keys and values, or take stored ones."""
        if cache and not cache.grows:
            return cache.key, cache.value
        k = self.split_heads(self.project_key(key))
        v = self.split_heads(self.project_value(value))
        return (k, v) if cache is None else cache.add(k, v)

    def split_heads(
        self, x: Float[Tensor, "batch length width"]
    ) -> Float[Tensor, "batch heads length d"]:
        """Cut each position's vector into heads, heads outermost."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def merge_heads(
        self, x: Float[Tensor, "batch heads length d"]
    ) -> Float[Tensor, "batch length width"]:
        """Lay the heads of each position side by side again."""
        return x.transpose(1, 2).flatten(-2)


@contextmanager
def recording(
    attentions: Iterable[MultiHeadAttention],
) -> Iterator[None]:
    """Within it, each attention keeps its weights of the last call."""
    attentions = list(attentions)
    for attention in attentions:
        attention.record = True
    try:
        yield
    finally:
        for attention in attentions:
            attention.record, attention.weights = False, None
