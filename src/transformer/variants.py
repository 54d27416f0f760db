"""What the ablations and the published code use instead.

Nothing here is the paper as printed. `model.py` chooses.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "swish": F.silu,
}


class NormAndAdd(nn.Module):
    """Pre-norm: x + Dropout(Sublayer(LayerNorm(x))).

    An option of the published code from August 2017 and its default
    from October on. The stack then ends with one more LayerNorm.
    """

    def __init__(
        self, d_model: int, *, dropout: float, eps: float = 1e-6
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, sublayer: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Normalise x, run the sub-layer, add x."""
        return x + self.dropout(sublayer(self.norm(x)))


def sinusoids(
    length: int, d_model: int, *, layout: str, spacing: str
) -> Float[Tensor, "length d_model"]:
    """Sinusoidal positions with layout and spacing apart.

    Args:
        length: number of positions.
        d_model: width; even, and at least 4 if "published".
        layout: "interleaved" as printed (sine, cosine, sine, ...) or
            "concatenated" as in the published code (sines first).
        spacing: "printed", wavelengths up to 10000^((d-2)/d) 2pi, or
            "published", up to 10000 * 2pi.
    """
    pairs = d_model // 2
    last = pairs if spacing == "printed" else max(pairs - 1, 1)
    exponent = torch.arange(pairs, dtype=torch.float64) / last
    position = torch.arange(length, dtype=torch.float64)
    angle = position[:, None] / 10000**exponent
    both = [angle.sin(), angle.cos()]
    if layout == "concatenated":
        table = torch.cat(both, dim=-1)
    else:
        table = torch.stack(both, dim=-1).flatten(-2)
    return table.to(torch.get_default_dtype())


def positions(
    d_model: int, max_length: int, kind: str, layout: str, spacing: str
) -> nn.Module:
    """What takes the place of `PositionalEncoding`.

    Args:
        kind: "learned", or "sinusoidal" with layout and spacing.
    """
    if kind == "learned":
        return LearnedPositions(d_model, max_length)
    return OtherSinusoids(d_model, max_length, layout, spacing)


class OtherSinusoids(nn.Module):
    """Adds `sinusoids` of another layout or spacing."""

    def __init__(
        self, d_model: int, max_length: int, layout: str, spacing: str
    ) -> None:
        super().__init__()
        table = sinusoids(
            max_length, d_model, layout=layout, spacing=spacing
        )
        self.register_buffer("table", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Add the positions 0 to length - 1."""
        return x + self.table[: x.size(1)]


class LearnedPositions(nn.Module):
    """Table 3, row E: a trained vector for each position."""

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        start = torch.randn(max_length, d_model) * d_model**-0.5
        self.table = nn.Parameter(start)

    def forward(self, x: Tensor) -> Tensor:
        """Add the positions 0 to length - 1."""
        return x + self.table[: x.size(1)]
