"""Section 6.1: the average of several checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def average(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor over several state dicts.

    Args:
        states: of one model at several steps, oldest first.

    Returns:
        A state dict of new tensors. Means are taken in float64 and
        cast back. Tensors that are not floating point are taken from
        the last state.

    Raises:
        ValueError: no states, or states of different models.
    """
    if not states:
        raise ValueError("no states to average: give one at least")
    last = states[-1]
    for state in states:
        if shapes(state) != shapes(last):
            odd = dict(shapes(state).items() ^ shapes(last).items())
            raise ValueError(
                "the states are not of one model; they differ in"
                f" {', '.join(sorted(odd))}"
            )
    return {
        name: mean([state[name] for state in states])
        if tensor.is_floating_point()
        else tensor.clone()
        for name, tensor in last.items()
    }


def mean(tensors: Sequence[Tensor]) -> Tensor:
    """The mean, summed in float64, in the dtype that came."""
    total = torch.zeros_like(tensors[0], dtype=torch.float64)
    for tensor in tensors:
        total += tensor
    return (total / len(tensors)).to(tensors[0].dtype)


def shapes(state: dict[str, Tensor]) -> dict[str, torch.Size]:
    """Name and shape of every tensor."""
    return {name: tensor.shape for name, tensor in state.items()}
