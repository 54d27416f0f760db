"""Section 5.4 at scale: a loss that never holds all its logits.

25,000 tokens times 37,000 classes are 3.7 GB of float32, and the loss
needs them about three times. Here a few tokens at a time go through
the output projection and the loss, and their gradients are taken at
once; what stays is as large as the hidden vectors and the weights.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transformer.training import LabelSmoothingLoss


class ChunkedLoss(nn.Module):
    """`loss(projection(hidden), gold)`, a chunk of tokens at a time.

    Args:
        loss: whose smoothing and pad_id are used.
        chunk: tokens that go through the projection together.

    Raises:
        ValueError: chunk is below 1.
    """

    def __init__(self, loss: LabelSmoothingLoss, chunk: int = 1024):
        super().__init__()
        if chunk < 1:
            raise ValueError(f"chunk={chunk} must be at least 1")
        self.loss = loss
        self.chunk = chunk

    def forward(
        self,
        hidden: Float[Tensor, "batch target d_model"],
        gold: Int[Tensor, "batch target"],
        projection: nn.Linear,
    ) -> Float[Tensor, ""]:
        """The mean over real tokens; 0 where there are none.

        Raises:
            ValueError: as `LabelSmoothingLoss` does.
        """
        total = SumOverChunks.apply(
            hidden.flatten(0, 1),
            projection.weight,
            projection.bias,
            gold.flatten(),
            self._sum,
            self.chunk,
        )
        return total / self._count(gold)

    def _sum(self, logits: Tensor, gold: Tensor) -> Tensor:
        return self.loss(logits, gold) * self._count(gold)

    def _count(self, gold: Tensor) -> Tensor:
        return (gold != self.loss.pad_id).sum().clamp(min=1)


class SumOverChunks(torch.autograd.Function):
    """Takes the gradients on the way forward."""

    @staticmethod
    def forward(ctx, hidden, weight, bias, gold, loss, chunk):
        """The sum of `loss` over all chunks of rows."""
        to_hidden = torch.empty_like(hidden)
        to_weight = torch.zeros_like(weight)
        to_bias = None if bias is None else torch.zeros_like(bias)
        total = torch.zeros((), dtype=torch.float64, device=gold.device)
        for start in range(0, len(hidden), chunk):
            rows = slice(start, start + chunk)
            logits = F.linear(hidden[rows], weight, bias)
            with torch.enable_grad():
                logits.requires_grad_()
                part = loss(logits, gold[rows])
            (to_logits,) = torch.autograd.grad(part, logits)
            to_hidden[rows] = to_logits @ weight
            if to_logits.dtype == to_weight.dtype:
                to_weight.addmm_(to_logits.T, hidden[rows])  # in place
            else:  # in mixed precision
                to_weight += to_logits.T @ hidden[rows]
            if bias is not None:
                to_bias += to_logits.sum(dim=0)
            total += part.detach()
        ctx.save_for_backward(to_hidden, to_weight, to_bias)
        return total.to(hidden.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, above):
        """The gradients that `forward` took, times the one above."""
        gradients = [
            None if part is None else above * part
            for part in ctx.saved_tensors
        ]
        return *gradients, None, None, None
