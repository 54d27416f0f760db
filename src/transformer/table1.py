"""Section 4, Table 1: the four layers that it compares, bare.

As the table has them: no projections, no feed-forward network, no
heads. All look back only, but for attention without a limit, which
looks both ways. `complexity.py` counts what each costs.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

Sequence = Float[Tensor, "*batch n d"]


def attention_layer(x: Sequence) -> Sequence:
    """Every position attends to every position."""
    return attend(x, x)


def attend(query: Tensor, key: Tensor, mask: Tensor | None = None):
    """Equation 1, its two products plain; the keys are the values."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(key.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1) @ key


def recurrent_layer(
    x: Sequence, weight: Float[Tensor, "two_d d"]
) -> Sequence:
    """h_t = tanh([x_t, h_(t-1)] W), one position after the other."""
    state, states = torch.zeros_like(x[..., 0, :]), []
    for given in x.unbind(-2):
        state = torch.cat([given, state], dim=-1) @ weight
        state = state.tanh()
        states.append(state)
    return torch.stack(states, dim=-2)


def convolutional_layer(
    x: Sequence, kernel: Float[Tensor, "d d k"], dilation: int = 1
) -> Sequence:
    """Each position mixes itself and k-1 before, `dilation` apart."""
    reach = (kernel.size(-1) - 1) * dilation
    padded = F.pad(x.transpose(-2, -1), (reach, 0))
    mixed = F.conv1d(padded, kernel, dilation=dilation)
    return mixed.transpose(-2, -1)


def restricted_layer(x: Sequence, r: int) -> Sequence:
    """Each position attends to r: itself and r-1 before."""
    n = x.size(-2)
    before = F.pad(x, (0, 0, r - 1, 0))
    near = before.unfold(-2, r, 1).transpose(-2, -1)  # (n, r, d)
    place = torch.arange(n)[:, None] + torch.arange(1 - r, 1)
    mask = (place >= 0).unsqueeze(-2)
    return attend(x.unsqueeze(-2), near, mask).squeeze(-2)
