"""Section 3.2.3: who may attend to whom. True means "may attend"."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def padding_mask(
    ids: Int[Tensor, "batch key"], pad_id: int
) -> Bool[Tensor, "batch 1 1 key"]:
    """Every query may attend to every key that is not padding.

    Args:
        ids: token ids of the sequence that gives the keys.
        pad_id: the id that fills up short sequences.

    The two axes of size 1 stand for heads and queries.
    """
    return (ids != pad_id)[..., None, None, :]


def causal_mask(
    length: int, device: torch.device | None = None
) -> Bool[Tensor, "length length"]:
    """Query i may attend to keys 0 to i: itself and what came before.

    Args:
        length: number of target positions.
        device: where the mask is made; the default device if None.
    """
    allowed = torch.ones(
        length, length, dtype=torch.bool, device=device
    )
    return allowed.tril()
