"""Section 3.5: sinusoidal positions, added to the embeddings."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


def sinusoidal_encoding(
    length: int, d_model: int
) -> Float[Tensor, "length d_model"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos.

    Computed in float64, returned in the default dtype: in float32
    the angles of late positions are off by 1e-5 and more.

    Raises:
        ValueError: d_model is odd; the columns come in pairs.
    """
    if d_model % 2:
        raise ValueError(
            f"d_model={d_model} must be even: each frequency fills a"
            " sine and a cosine column"
        )
    position = torch.arange(length, dtype=torch.float64)
    pair = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position[:, None] / 10000 ** (pair / d_model)
    table = torch.empty(length, d_model)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()
    return table


class PositionalEncoding(nn.Module):
    """Adds row p of a fixed table to the vector at position p.

    Args:
        d_model: width of the vectors; even.
        max_length: rows of the table. It is not part of the state:
            a saved model holds nothing that a formula gives.
    """

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        table = sinusoidal_encoding(max_length, d_model)
        self.register_buffer("table", table, persistent=False)

    def forward(
        self, x: Float[Tensor, "batch length d_model"]
    ) -> Float[Tensor, "batch length d_model"]:
        """Add the positions 0 to length - 1."""
        return x + self.table[: x.size(1)]
