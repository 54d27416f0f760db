"""Section 3.4: token embeddings, scaled, ready to be shared."""

from __future__ import annotations

import math

from jaxtyping import Float, Int
from torch import Tensor, nn


class TokenEmbedding(nn.Embedding):
    """A vector for each token id, multiplied by sqrt(d_model).

    The weights start from N(0, 1 / d_model), as in the published
    code. Scaled, each entry then has variance 1; unscaled, as the
    same matrix gives the logits, they start near N(0, 1) too.

    Args:
        vocab_size: number of token ids.
        d_model: width of a vector.
    """

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.embedding_dim**-0.5)

    def forward(
        self, ids: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length d_model"]:
        """Look the ids up and scale."""
        return super().forward(ids) * math.sqrt(self.embedding_dim)
