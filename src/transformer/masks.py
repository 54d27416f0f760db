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


def check_mask(mask: Tensor, shape: tuple[int, ...], name: str):
    """Refuse a mask that would be misread.

    Args:
        mask: what was passed as `name`.
        shape: of the scores, (..., query, key); the mask must
            broadcast to it.

    Raises:
        TypeError: the mask is not of dtype bool. The framework would
            add a mask of floats to the scores.
        ValueError: the mask does not broadcast to `shape`.
    """
    if mask.dtype != torch.bool:
        raise TypeError(
            f"{name} has dtype {mask.dtype}: masks are torch.bool,"
            " True where a query may attend to a key"
        )
    try:
        fits = torch.broadcast_shapes(mask.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} of shape {tuple(mask.shape)} does not fit"
            f" attention of shape {tuple(shape)} (..., query, key)"
        )
