"""What changed after 2017, each change as one small switch.

Everything here is put together from the parts of `transformer`; none
of it is in the paper. Chapter 20 shows it, `experiments/later.py`
measures it on a decoder without an encoder that predicts letters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bookkit.evidence import Measurement
from transformer import (
    AddAndNorm,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    MultiHeadAttention,
    PositionalEncoding,
    PositionwiseFeedForward,
    TokenEmbedding,
    Transformer,
    TransformerConfig,
    causal_mask,
    scaled_dot_product_attention,
)
from transformer.attention import KeyValueCache
from transformer.linear import Linear
from transformer.variants import NormAndAdd

# --- norm and feed-forward network ------------------------------------------


class RMSNorm(nn.Module):
    """Each vector over its own size; no mean is taken, no bias added.

    Zhang and Sennrich (2019).

    Args:
        d_model: width.
        eps: added to the mean square before the root.
    """

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Tensor:
        """x / sqrt(mean(x^2) + eps), times the gain."""
        size = (x.square().mean(-1, keepdim=True) + self.eps).sqrt()
        return self.gain * x / size


class SwiGLU(nn.Module):
    """(Swish(x W) * x V) W_2: one of two maps opens and shuts the other.

    Shazeer (2020). Three matrices in place of two, so two thirds of
    the width have as many weights.

    Args:
        d_model: width of input and output.
        d_ff: width in between.
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate = Linear(d_model, d_ff, bias=False)
        self.widen = Linear(d_model, d_ff, bias=False)
        self.narrow = Linear(d_ff, d_model, bias=False)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Tensor:
        """Apply the network to each position on its own."""
        return self.narrow(F.silu(self.gate(x)) * self.widen(x))


# --- positions ---------------------------------------------------------------


def rotate(
    x: Float[Tensor, "*batch length d"], first: int = 0
) -> Float[Tensor, "*batch length d"]:
    """Turn each pair of columns by its frequency times the position.

    Section 3.5's R(position), which takes PE(0) to PE(position), for
    any vector in place of PE(0).

    Args:
        x: queries or keys of one head or several; d is even.
        first: position of the first of them.
    """
    d = x.size(-1)
    position = torch.arange(first, first + x.size(-2), dtype=torch.float64)
    pair = torch.arange(0, d, 2, dtype=torch.float64)
    angle = position[:, None] / 10000 ** (pair / d)
    sin, cos = angle.sin().to(x), angle.cos().to(x)
    a, b = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([a * cos + b * sin, b * cos - a * sin], dim=-1)
    return turned.flatten(-2)


def rotary_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, **options
):
    """Equation 1 on queries and keys that are turned first.

    Su and others (2021). A score then depends on what stands at two
    positions and on how far apart they are. With a cache there are
    fewer queries than keys, the last ones.
    """
    first = key.size(-2) - query.size(-2)
    return scaled_dot_product_attention(
        rotate(query, first), rotate(key), value, mask, **options
    )


def alibi_slopes(heads: int) -> Tensor:
    """2^(-8/h), 2^(-16/h), ... 2^-8: how fast each head forgets.

    Raises:
        ValueError: heads is no power of two, for which the authors
            have another series.
    """
    if heads < 1 or heads & (heads - 1):
        raise ValueError(f"heads={heads} must be a power of two")
    return 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)


def alibi_attention(
    query: Float[Tensor, "batch heads query d_k"],
    key: Float[Tensor, "batch heads key d_k"],
    value: Float[Tensor, "batch heads key d_v"],
    mask: Tensor | None = None,
    *,
    dropout: float = 0.0,
    return_weights: bool = False,
):
    """Equation 1 with scores that sink with distance, head by head.

    Press and others (2022).
    """
    keys = torch.arange(key.size(-2))
    queries = keys[-query.size(-2) :]  # the last ones, with a cache
    distance = (queries[:, None] - keys).abs()
    slopes = alibi_slopes(query.size(-3)).to(query)
    scores = query @ key.mT / math.sqrt(key.size(-1))
    scores = scores - slopes[:, None, None] * distance
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(dim=-1)
    output = F.dropout(weights, dropout) @ value
    return (output, weights) if return_weights else output


# --- heads that share, attention in blocks ------------------------------------


class GroupedQueryAttention(MultiHeadAttention):
    """Several heads of queries share one head of keys and values.

    Ainslie and others (2023); with one for all, Shazeer (2019).

    Args:
        d_model: width of queries, keys, values and output.
        heads: of the queries.
        key_heads: of keys and values; divides heads.
    """

    def __init__(self, d_model: int, heads: int, key_heads: int) -> None:
        super().__init__(d_model, heads)
        if heads % key_heads:
            raise ValueError(f"key_heads={key_heads} must divide heads={heads}")
        self.width, self.shared_by = d_model // heads, heads // key_heads
        narrow = key_heads * self.width
        self.project_key = Linear(d_model, narrow, bias=False)
        self.project_value = Linear(d_model, narrow, bias=False)

    def split_heads(self, x: Tensor) -> Tensor:
        """As many heads as x is wide."""
        return x.unflatten(-1, (-1, self.width)).transpose(1, 2)

    def keys_and_values(
        self, key: Tensor, value: Tensor, cache: KeyValueCache | None
    ) -> tuple[Tensor, Tensor]:
        """The cache holds the few; attention gets each one repeated."""
        k, v = super().keys_and_values(key, value, cache)
        times = self.shared_by
        return k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)


def with_key_heads(config: TransformerConfig, key_heads: int) -> Transformer:
    """A model whose decoder looks at itself with fewer heads of keys."""
    model = Transformer(config).eval()
    for layer in model.decoder.layers:
        layer.self_attention = GroupedQueryAttention(
            config.d_model, config.heads, key_heads
        )
    return model


def cache_bytes(caches: Iterable[tuple[KeyValueCache, ...]]) -> int:
    """What the keys and values of `Transformer.new_cache` take.

    Keys and values that grow with the output, not those of the memory.
    """
    stored = [cache for layer in caches for cache in layer if cache.grows]
    return sum(c.key.nbytes + c.value.nbytes for c in stored)


def attention_in_blocks(
    query: Float[Tensor, "*batch query d_k"],
    key: Float[Tensor, "*batch key d_k"],
    value: Float[Tensor, "*batch key d_v"],
    *,
    causal: bool = False,
    block: int = 32,
) -> Float[Tensor, "*batch query d_v"]:
    """Equation 1, exactly, without ever holding all scores.

    FlashAttention (Dao and others, 2022; the loops as in its second
    version, Dao, 2023) without its point, which is to stay in a GPU's
    fast memory. The softmax runs along: when a larger score comes,
    what was added up is made smaller by the same factor.

    Args:
        causal: query i attends to keys 0 to i.
        block: queries, and keys, that are taken at a time.
    """
    done = []
    for top in range(0, query.size(-2), block):
        q = query[..., top : top + block, :] / math.sqrt(query.size(-1))
        largest = torch.full_like(q[..., :1], -math.inf)
        total = torch.zeros_like(largest)
        output = q.new_zeros(*q.shape[:-1], value.size(-1))
        end = top + block if causal else key.size(-2)
        for left in range(0, min(end, key.size(-2)), block):
            k, v = (t[..., left : left + block, :] for t in (key, value))
            scores = q @ k.mT
            if causal:
                rows = torch.arange(top, top + q.size(-2))[:, None]
                columns = torch.arange(left, left + k.size(-2))
                scores = scores.masked_fill(columns > rows, -math.inf)
            new = torch.maximum(largest, scores.amax(-1, keepdim=True))
            shrink = (largest - new).exp()
            weights = (scores - new).exp()
            total = shrink * total + weights.sum(-1, keepdim=True)
            output = shrink * output + weights @ v
            largest = new
        done.append(output / total)
    return torch.cat(done, dim=-2)


class LargestTensor(TorchDispatchMode):
    """Within it, every tensor that an operation returns is looked at.

    Attributes:
        numbers: how many the largest of them holds.
    """

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        """Run the operation."""
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return result


# --- a decoder on its own -----------------------------------------------------


class Skip(nn.Module):
    """Around a sub-layer that is to be left out."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """x as it is."""
        return x


def without_cross_attention(decoder: Decoder) -> Decoder:
    """The decoder with the middle sub-layer of each layer left out.

    Args:
        decoder: as it was made; the same weights serve both.
    """
    layers = []
    for layer in decoder.layers:
        bare = DecoderLayer(
            layer.self_attention, layer.cross_attention, layer.feed_forward, Skip
        )
        bare.around_self_attention = layer.around_self_attention
        bare.around_feed_forward = layer.around_feed_forward
        layers.append(bare)
    return Decoder(layers, decoder.final_norm)


def as_encoder(decoder: Decoder) -> Encoder:
    """An encoder of the decoder's self-attention and feed-forward parts."""
    layers = []
    for layer in decoder.layers:
        plain = EncoderLayer(layer.self_attention, layer.feed_forward, Skip)
        plain.around_attention = layer.around_self_attention
        plain.around_feed_forward = layer.around_feed_forward
        layers.append(plain)
    return Encoder(layers, decoder.final_norm)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What a model has in place of the paper's parts.

    Args:
        norm_first: norm before each sub-layer, and one at the end.
        norm: "layer" or "rms".
        network: "relu", "gelu" or "swiglu".
        positions: "sinusoids", "rotary", "alibi" or "none".
        key_heads: of keys and values; as many as of queries if None.
    """

    norm_first: bool = False
    norm: str = "layer"
    network: str = "relu"
    positions: str = "sinusoids"
    key_heads: int | None = None


SWITCHES = {
    "as printed": Changes(),
    "pre-norm": Changes(norm_first=True),
    "RMSNorm": Changes(norm="rms"),
    "GELU": Changes(network="gelu"),
    "SwiGLU": Changes(network="swiglu"),
    "rotary": Changes(positions="rotary"),
    "ALiBi": Changes(positions="alibi"),
    "no positions": Changes(positions="none"),
    "2 of 4 key heads": Changes(key_heads=2),
    "1 of 4 key heads": Changes(key_heads=1),
    "five together": Changes(
        norm_first=True, norm="rms", network="swiglu", positions="rotary", key_heads=2
    ),
}


class LanguageModel(nn.Module):
    """A decoder without an encoder: it says which token comes next.

    Args:
        vocab_size: rows of the one embedding matrix.
        changes: to the paper's parts.
        layers, d_model, d_ff, heads: as in `TransformerConfig`.
        max_length: rows of the table of positions, if there is one.
    """

    def __init__(
        self,
        vocab_size: int,
        changes: Changes,
        *,
        layers: int = 2,
        d_model: int = 64,
        d_ff: int = 256,
        heads: int = 4,
        max_length: int = 512,
    ) -> None:
        super().__init__()
        norms = {"layer": nn.LayerNorm, "rms": RMSNorm}
        attends = {"rotary": rotary_attention, "alibi": alibi_attention}

        def norm() -> nn.Module:
            return norms[changes.norm](d_model, eps=1e-6)

        def connection() -> nn.Module:
            kind = NormAndAdd if changes.norm_first else AddAndNorm
            made = kind(d_model, dropout=0.0)
            made.norm = norm()
            return made

        def attention() -> nn.Module:
            made = MultiHeadAttention(d_model, heads)
            if changes.key_heads:
                made = GroupedQueryAttention(d_model, heads, changes.key_heads)
            made.attend = attends.get(changes.positions, made.attend)
            return made

        def network() -> nn.Module:
            if changes.network == "swiglu":
                return SwiGLU(d_model, round(2 / 3 * d_ff))
            between = {"relu": F.relu, "gelu": F.gelu}[changes.network]
            return PositionwiseFeedForward(d_model, d_ff, activation=between)

        def layer() -> nn.Module:
            return EncoderLayer(attention(), network(), connection)

        self.embedding = TokenEmbedding(vocab_size, d_model)
        self.positions: nn.Module = nn.Identity()
        if changes.positions == "sinusoids":
            self.positions = PositionalEncoding(d_model, max_length)
        self.stack = Encoder(
            [layer() for _ in range(layers)], norm() if changes.norm_first else None
        )
        self.output_projection = nn.Linear(d_model, vocab_size, bias=False)
        self.output_projection.weight = self.embedding.weight

    def forward(
        self, ids: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab"]:
        """Logits for the token that follows each of `ids`."""
        mask = causal_mask(ids.size(1), ids.device)
        x = self.positions(self.embedding(ids))
        return self.output_projection(self.stack(x, mask))


# --- what came of it ----------------------------------------------------------


def outcome(found: Measurement, rule: str) -> str:
    """What a rule says of the 95% interval over seeds.

    Args:
        found: a number for each seed.
        rule: such as "gained if above 0; cost if below 0; otherwise
            cannot tell". The first clause that fits counts.
    """
    reach = found.half_width or 0.0
    for clause in rule.split("; "):
        word, _, bound = clause.partition(" if ")
        sense, _, number = bound.partition(" ")
        above = sense == "above" and found.mean - reach > float(number)
        below = sense == "below" and found.mean + reach < float(number)
        if above or below:
            return word
    return clause.removeprefix("otherwise ")
