"""Section 3: the Transformer, put together from its parts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer import variants
from transformer.attention import (
    KeyValueCache,
    MultiHeadAttention,
    recording,
)
from transformer.config import TransformerConfig
from transformer.embeddings import TokenEmbedding
from transformer.encoder_decoder import (
    AddAndNorm,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
)
from transformer.feed_forward import PositionwiseFeedForward
from transformer.linear import Linear
from transformer.masks import causal_mask, check_mask, padding_mask
from transformer.positional_encoding import PositionalEncoding


class Transformer(nn.Module):
    """An encoder and a decoder: token ids in, logits out.

    Args:
        config: the shape, the special ids and the variants.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        parts = Parts(config)
        self.source_embedding = parts.embedding(config.vocab_size)
        self.target_embedding = self.source_embedding
        if not config.tied:
            self.target_embedding = parts.embedding(
                config.target_vocab_size
            )
        self.source_positions = parts.positions()
        self.target_positions = parts.positions()
        self.dropout = nn.Dropout(config.dropout)
        layers = range(config.layers)
        self.encoder = Encoder(
            [parts.encoder_layer() for _ in layers], parts.final_norm()
        )
        self.decoder = Decoder(
            [parts.decoder_layer() for _ in layers], parts.final_norm()
        )
        self.output_projection = parts.output_projection()
        if config.tied:
            weight = self.target_embedding.weight
            self.output_projection.weight = weight
        self.padding_mask = padding_mask
        self.causal_mask = causal_mask

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target_in: Int[Tensor, "batch target"],
        *,
        return_attention: bool = False,
    ):
        """Logits for the token that follows each of `target_in`.

        Args:
            source: token ids, padded on the right with pad_id.
            target_in: the start token and the target so far.
            return_attention: also return the attention weights,
                {"encoder", "decoder", "cross"}, each (layer, batch,
                head, query, key), before dropout.

        Returns:
            logits (batch, target, vocab), or (logits, weights).

        Raises:
            TypeError, ValueError: as `encode` and `decode` do.
        """
        if return_attention:
            return self.with_attention(source, target_in)
        source_mask, target_mask, memory_mask = self.build_masks(
            source, target_in
        )
        memory = self.encode(source, source_mask)
        hidden = self.decode(
            target_in, memory, target_mask, memory_mask
        )
        return self.output_projection(hidden)

    def build_masks(
        self,
        source: Int[Tensor, "batch source"],
        target_in: Int[Tensor, "batch target"],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The masks of the three uses of attention, section 3.2.3.

        Returns:
            source_mask (batch, 1, 1, source), in the encoder.
            target_mask (target, target), in the decoder. Targets are
                padded on the right, where causality hides padding.
            memory_mask (batch, 1, 1, source), decoder to encoder.
        """
        source_mask = self.padding_mask(source, self.config.pad_id)
        target_mask = self.causal_mask(
            target_in.size(-1), target_in.device
        )
        return source_mask, target_mask, source_mask

    def encode(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "..."],
    ) -> Float[Tensor, "batch source d_model"]:
        """The encoder's output, which the decoder calls memory.

        Raises:
            TypeError: ids that are no integers, a mask not of bool.
            ValueError: ids outside the vocabulary, a sequence that
                is empty or longer than config.max_length, a mask
                that does not fit.
        """
        config = self.config
        check_ids(
            source, "source", config.vocab_size, config.max_length
        )
        batch, length = source.shape
        shape = (batch, config.heads, length, length)
        check_mask(source_mask, shape, "source_mask")
        x = self.source_positions(self.source_embedding(source))
        return self.encoder(self.dropout(x), source_mask)

    def decode(
        self,
        target_in: Int[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        target_mask: Bool[Tensor, "..."],
        memory_mask: Bool[Tensor, "..."],
        *,
        cache: Sequence | None = None,
    ) -> Float[Tensor, "batch new d_model"]:
        """The decoder's output, before the output projection.

        With a `cache` from `new_cache`, `target_in` is still the
        whole target so far; only positions that the cache does not
        hold are computed and returned.

        Raises:
            TypeError, ValueError: as `encode` does.
        """
        config = self.config
        vocab_size = config.target_vocab_size
        check_ids(target_in, "target_in", vocab_size, config.max_length)
        batch, length = target_in.shape
        if len(memory) != batch:
            raise ValueError(
                f"target_in holds {batch} sequences, memory"
                f" {len(memory)}: they must be the same batch"
            )
        shape = (batch, config.heads, length, length)
        check_mask(target_mask, shape, "target_mask")
        shape = (*shape[:-1], memory.size(1))
        check_mask(memory_mask, shape, "memory_mask")
        x = self.target_positions(self.target_embedding(target_in))
        if cache:
            done = len(cache[0][0])
            x, target_mask = x[:, done:], target_mask[..., done:, :]
        return self.decoder(
            self.dropout(x),
            memory,
            target_mask,
            memory_mask,
            cache=cache,
        )

    def new_cache(self) -> list | None:
        """An empty cache for `decode`; None if a part has no cache."""
        for part in self.decoder.modules():
            if not getattr(part, "caches", True):
                return None
        return [
            (KeyValueCache(grows=True), KeyValueCache(grows=False))
            for _ in self.decoder.layers
        ]

    def with_attention(self, source: Tensor, target_in: Tensor):
        """`forward`, and the weights of every attention."""
        parts = {
            "encoder": [x.self_attention for x in self.encoder.layers],
            "decoder": [x.self_attention for x in self.decoder.layers],
            "cross": [x.cross_attention for x in self.decoder.layers],
        }
        with recording(sum(parts.values(), [])):
            logits = self.forward(source, target_in)
            weights = {
                use: torch.stack([part.weights for part in uses])
                for use, uses in parts.items()
            }
        return logits, weights


class Parts:
    """Makes a model's parts; the one place that chooses variants."""

    def __init__(self, config: TransformerConfig) -> None:
        self.config = config

    def embedding(self, vocab_size: int) -> nn.Module:
        return TokenEmbedding(vocab_size, self.config.d_model)

    def positions(self) -> nn.Module:
        config = self.config
        size = (config.d_model, config.max_length)
        sinusoids = (config.sinusoid_layout, config.sinusoid_spacing)
        if config.positions == "learned":
            return variants.LearnedPositions(*size)
        if sinusoids == ("interleaved", "printed"):
            return PositionalEncoding(*size)
        return variants.OtherSinusoids(*size, *sinusoids)

    def attention(self) -> nn.Module:
        config = self.config
        return MultiHeadAttention(
            config.d_model,
            config.heads,
            d_k=config.d_k,
            d_v=config.d_v,
            bias=config.attention_bias,
            dropout=config.attention_dropout,
        )

    def feed_forward(self) -> nn.Module:
        config = self.config
        return PositionwiseFeedForward(
            config.d_model,
            config.d_ff,
            activation=variants.ACTIVATIONS[config.activation],
            dropout=config.activation_dropout,
        )

    def connection(self) -> nn.Module:
        config = self.config
        post = config.norm == "post"
        connection = AddAndNorm if post else variants.NormAndAdd
        return connection(
            config.d_model,
            dropout=config.dropout,
            eps=config.layer_norm_eps,
        )

    def final_norm(self) -> nn.Module | None:
        config = self.config
        if config.norm == "post":
            return None
        return nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def encoder_layer(self) -> nn.Module:
        return EncoderLayer(
            self.attention(), self.feed_forward(), self.connection
        )

    def decoder_layer(self) -> nn.Module:
        return DecoderLayer(
            self.attention(),
            self.attention(),
            self.feed_forward(),
            self.connection,
        )

    def output_projection(self) -> nn.Linear:
        config = self.config
        projection = Linear(
            config.d_model,
            config.target_vocab_size,
            bias=config.output_bias,
        )
        nn.init.normal_(projection.weight, std=config.d_model**-0.5)
        return projection


def check_ids(ids: Tensor, name: str, vocab_size: int, longest: int):
    """Refuse token ids that the model would misread or crash on.

    Raises:
        TypeError: they are no integers.
        ValueError: they are not (batch, length), longer than
            `longest`, or outside the vocabulary.
    """
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TypeError(
            f"{name} has dtype {ids.dtype}: token ids are integers"
        )
    if ids.dim() != 2 or 0 in ids.shape:
        raise ValueError(
            f"{name} of shape {tuple(ids.shape)} must be (batch,"
            " length), neither of them 0"
        )
    if ids.size(1) > longest:
        raise ValueError(
            f"{name} is {ids.size(1)} tokens long, but max_length="
            f"{longest} in the configuration"
        )
    low, high = ids.min().item(), ids.max().item()
    if low < 0 or high >= vocab_size:
        raise ValueError(
            f"{name} holds ids from {low} to {high}, but the"
            f" vocabulary has 0 to {vocab_size - 1}"
        )
