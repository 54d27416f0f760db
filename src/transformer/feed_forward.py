"""Section 3.3: the position-wise feed-forward network."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.linear import Linear


class PositionwiseFeedForward(nn.Module):
    """Equation 2: max(0, x W_1 + b_1) W_2 + b_2, at each position.

    Args:
        d_model: width of input and output.
        d_ff: width in between.
        activation: between the two maps; the paper's is ReLU.
        dropout: after the activation. The paper has none.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: Callable[[Tensor], Tensor] = F.relu,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.widen = Linear(d_model, d_ff)
        self.narrow = Linear(d_ff, d_model)
        self.activation = activation
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "*batch d_model"]
    ) -> Float[Tensor, "*batch d_model"]:
        """Apply the network to each position on its own."""
        hidden = self.activation(self.widen(x))
        return self.narrow(self.dropout(hidden))
