"""Section 3.1: sub-layers, layers and stacks, post-norm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from transformer.attention import KeyValueCache
from transformer.shapes import Mask, Source, Target


class AddAndNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))).

    Args:
        d_model: width of x.
        dropout: of the sub-layer's output, section 5.4.
        eps: added to the variance before the square root.
    """

    def __init__(
        self, d_model: int, *, dropout: float, eps: float = 1e-6
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        sublayer: Callable[[Tensor], Tensor],
    ) -> Float[Tensor, "batch length d_model"]:
        """Run the sub-layer on x, add x, normalise."""
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward.

    Args:
        self_attention: (query, key, value, mask) -> output.
        feed_forward: x -> output.
        connect: makes the connection around one sub-layer, called
            once for each.
    """

    def __init__(
        self,
        self_attention: nn.Module,
        feed_forward: nn.Module,
        connect: Callable[[], nn.Module],
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.feed_forward = feed_forward
        self.around_attention = connect()
        self.around_feed_forward = connect()

    def forward(self, x: Source, mask: Mask) -> Source:
        """`mask` says which positions may be attended to."""

        def look_around(x: Tensor) -> Tensor:
            return self.self_attention(x, x, x, mask)

        x = self.around_attention(x, look_around)
        return self.around_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over memory, feed-forward.

    Args:
        self_attention, cross_attention: as in `EncoderLayer`.
        feed_forward: x -> output.
        connect: makes the connection around one sub-layer.
    """

    def __init__(
        self,
        self_attention: nn.Module,
        cross_attention: nn.Module,
        feed_forward: nn.Module,
        connect: Callable[[], nn.Module],
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.around_self_attention = connect()
        self.around_cross_attention = connect()
        self.around_feed_forward = connect()

    def forward(
        self,
        x: Target,
        memory: Source,
        target_mask: Mask,
        memory_mask: Mask,
        *,
        cache: tuple[KeyValueCache, KeyValueCache] | None = None,
    ) -> Target:
        """`memory` is the encoder's output.

        With a `cache` (for self-attention, for cross-attention), x
        holds the new positions only.
        """
        own, cross = cache or (None, None)

        def look_back(x: Tensor) -> Tensor:
            return self.self_attention(x, x, x, target_mask, cache=own)

        def look_up(x: Tensor) -> Tensor:
            return self.cross_attention(
                x, memory, memory, memory_mask, cache=cross
            )

        x = self.around_self_attention(x, look_back)
        x = self.around_cross_attention(x, look_up)
        return self.around_feed_forward(x, self.feed_forward)


class Stack(nn.Module):
    """N layers, one after the other.

    Args:
        layers: in order.
        final_norm: after the last layer. The paper has none.
    """

    def __init__(
        self,
        layers: Iterable[nn.Module],
        final_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm or nn.Identity()


class Encoder(Stack):
    """Layers that take (x, mask)."""

    def forward(self, x: Source, mask: Mask) -> Source:
        """Every layer sees the same mask."""
        for layer in self.layers:
            x = layer(x, mask)
        return self.final_norm(x)


class Decoder(Stack):
    """Layers that take (x, memory, target_mask, memory_mask)."""

    def forward(
        self,
        x: Target,
        memory: Source,
        target_mask: Mask,
        memory_mask: Mask,
        *,
        cache: Sequence | None = None,
    ) -> Target:
        """Every layer attends to the same memory.

        `cache` holds a pair for each layer.
        """
        caches = cache or [None] * len(self.layers)
        context = (memory, target_mask, memory_mask)
        for layer, pair in zip(self.layers, caches, strict=True):
            x = layer(x, *context, cache=pair)
        return self.final_norm(x)
