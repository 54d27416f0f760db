"""The linear maps of sections 3.2.2 and 3.3, and how they start."""

from __future__ import annotations

from torch import nn


class Linear(nn.Linear):
    """A linear map that starts from Xavier-uniform weights, bias 0.

    The paper does not say how its weights start. The published code
    draws them from U(-a, a) with a = sqrt(6 / (d_in + d_out)).
    """

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
