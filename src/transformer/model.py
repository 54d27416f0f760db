"""Section 3: the Transformer, put together from its parts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
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
from transformer.inputs import (
    check_batch,
    check_source,
    check_target,
    check_target_ids,
)
from transformer.linear import Linear
from transformer.masks import causal_mask, padding_mask
from transformer.positional_encoding import PositionalEncoding
from transformer.shapes import (
    Logits,
    Mask,
    Source,
    SourceIds,
    TargetIds,
)


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
        source: SourceIds,
        target_in: TargetIds,
        *,
        return_attention: bool = False,
    ) -> Logits | tuple[Logits, dict[str, Tensor]]:
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
        check_target_ids(self.config, target_in)
        source_mask, target_mask, memory_mask = self.build_masks(
            source, target_in
        )
        memory = self.encode(source, source_mask)
        hidden = self.decode(
            target_in, memory, target_mask, memory_mask
        )
        return self.output_projection(hidden)

    def build_masks(
        self, source: SourceIds, target_in: TargetIds
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The masks of the three uses of attention, section 3.2.3.

        Returns:
            source_mask (batch, 1, 1, source), in the encoder.
            target_mask (target, target), in the decoder. Targets are
                padded on the right, where causality hides padding.
            memory_mask (batch, 1, 1, source), decoder to encoder.

        Raises:
            ValueError: ids that are not (batch, length).
        """
        check_batch(source, "source")
        check_batch(target_in, "target_in")
        source_mask = self.padding_mask(source, self.config.pad_id)
        target_mask = self.causal_mask(
            target_in.size(-1), target_in.device
        )
        return source_mask, target_mask, source_mask

    def encode(self, source: SourceIds, source_mask: Mask) -> Source:
        """The encoder's output, which the decoder calls memory.

        Raises:
            TypeError: ids that are no integers, a mask not of bool.
            ValueError: ids outside the vocabulary, a sequence that
                is empty or longer than config.max_length, a mask
                that does not fit.
        """
        check_source(self.config, source, source_mask)
        x = self.source_positions(self.source_embedding(source))
        return self.encoder(self.dropout(x), source_mask)

    def decode(
        self,
        target_in: TargetIds,
        memory: Source,
        target_mask: Mask,
        memory_mask: Mask,
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
        check_target(
            self.config, target_in, memory, target_mask, memory_mask
        )
        x = self.target_positions(self.target_embedding(target_in))
        if cache:
            done = len(cache[0][0])
            x, target_mask = x[:, done:], target_mask[..., done:, :]
        x = self.dropout(x)
        masks = (target_mask, memory_mask)
        return self.decoder(x, memory, *masks, cache=cache)

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

    @classmethod
    def from_marian(cls, path_or_name) -> Transformer:
        """A MarianMT model, from a folder or by name (appendix A3)."""
        from transformer.pretrained import marian

        return marian.load_model(path_or_name)


class Parts:
    """Makes a model's parts; the one place that chooses variants."""

    def __init__(self, config: TransformerConfig) -> None:
        self.config = config

    def embedding(self, vocab_size: int) -> nn.Module:
        return TokenEmbedding(vocab_size, self.config.d_model)

    def positions(self) -> nn.Module:
        c = self.config
        kind = (c.positions, c.sinusoid_layout, c.sinusoid_spacing)
        if kind == ("sinusoidal", "interleaved", "printed"):
            return PositionalEncoding(c.d_model, c.max_length)
        return variants.positions(c.d_model, c.max_length, *kind)

    def attention(self) -> nn.Module:
        c = self.config
        widths = dict(d_k=c.d_k, d_v=c.d_v, bias=c.attention_bias)
        return MultiHeadAttention(
            c.d_model, c.heads, dropout=c.attention_dropout, **widths
        )

    def feed_forward(self) -> nn.Module:
        c = self.config
        between = variants.ACTIVATIONS[c.activation]
        dropout = c.activation_dropout
        return PositionwiseFeedForward(
            c.d_model, c.d_ff, activation=between, dropout=dropout
        )

    def connection(self) -> nn.Module:
        c = self.config
        post = c.norm == "post"
        connection = AddAndNorm if post else variants.NormAndAdd
        return connection(
            c.d_model, dropout=c.dropout, eps=c.layer_norm_eps
        )

    def final_norm(self) -> nn.Module | None:
        if self.config.norm == "post":
            return None
        eps = self.config.layer_norm_eps
        return nn.LayerNorm(self.config.d_model, eps=eps)

    def encoder_layer(self) -> nn.Module:
        attention, network = self.attention(), self.feed_forward()
        return EncoderLayer(attention, network, self.connection)

    def decoder_layer(self) -> nn.Module:
        own, cross = self.attention(), self.attention()
        network = self.feed_forward()
        return DecoderLayer(own, cross, network, self.connection)

    def output_projection(self) -> nn.Linear:
        c = self.config
        classes = c.target_vocab_size
        projection = Linear(c.d_model, classes, bias=c.output_bias)
        nn.init.normal_(projection.weight, std=c.d_model**-0.5)
        return projection
