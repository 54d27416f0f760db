"""Refuses what a model would misread, before any work is done."""

from __future__ import annotations

import torch
from torch import Tensor

from transformer.config import TransformerConfig


def check_source(
    config: TransformerConfig,
    source: Tensor,
    source_mask: Tensor | None,
) -> None:
    """Check what `Transformer.encode` is given.

    Raises:
        TypeError, ValueError: as `check_ids` and `check_mask` do.
    """
    check_ids(source, "source", config.vocab_size, config.max_length)
    batch, length = source.shape
    shape = (batch, config.heads, length, length)
    check_mask(source_mask, shape, "source_mask")


def check_target(
    config: TransformerConfig,
    target_in: Tensor,
    memory: Tensor,
    target_mask: Tensor | None,
    memory_mask: Tensor | None,
) -> None:
    """Check what `Transformer.decode` is given.

    Raises:
        TypeError, ValueError: as `check_ids` and `check_mask` do.
        ValueError: target_in and memory are of different batches.
    """
    check_target_ids(config, target_in)
    batch, length = target_in.shape
    if len(memory) != batch:
        raise ValueError(
            f"target_in holds {batch} sequences, memory {len(memory)}:"
            " they must be of one batch"
        )
    heads, source = config.heads, memory.size(1)
    check_mask(
        target_mask, (batch, heads, length, length), "target_mask"
    )
    check_mask(
        memory_mask, (batch, heads, length, source), "memory_mask"
    )


def check_target_ids(
    config: TransformerConfig, target_in: Tensor
) -> None:
    """Check the ids alone, so that no encoder runs in vain.

    Raises:
        TypeError, ValueError: as `check_ids` does.
    """
    size = config.target_vocab_size
    check_ids(target_in, "target_in", size, config.max_length)


def check_ids(
    ids: Tensor, name: str, vocab_size: int, longest: int
) -> None:
    """Check token ids.

    Args:
        ids: what was passed as `name`.
        vocab_size: ids must be below it.
        longest: the configuration's max_length.

    Raises:
        TypeError: they are no integers.
        ValueError: they are not (batch, length), longer than
            `longest`, or, on the CPU, outside the vocabulary.
    """
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TypeError(
            f"{name} has dtype {ids.dtype}: token ids are integers"
        )
    check_batch(ids, name)
    if ids.size(1) > longest:
        raise ValueError(
            f"{name} is {ids.size(1)} tokens long, but max_length="
            f"{longest} in the configuration"
        )
    if ids.device.type != "cpu" or torch.compiler.is_compiling():
        return  # a look at the values would hold up a GPU
    low, high = ids.min().item(), ids.max().item()
    if low < 0 or high >= vocab_size:
        raise ValueError(
            f"{name} holds ids from {low} to {high}, but the"
            f" vocabulary has 0 to {vocab_size - 1}"
        )


def check_batch(ids: Tensor, name: str) -> None:
    """Check that ids are (batch, length).

    Raises:
        ValueError: they have other axes, or one of size 0.
    """
    if ids.dim() != 2 or 0 in ids.shape:
        raise ValueError(
            f"{name} of shape {tuple(ids.shape)} must be (batch,"
            " length), neither of them 0"
        )


def check_mask(
    mask: Tensor | None, shape: tuple[int, ...], name: str
) -> None:
    """Check a mask.

    Args:
        mask: what was passed as `name`; None masks nothing.
        shape: of the scores, (..., query, key); the mask must
            broadcast to it.

    Raises:
        TypeError: the mask is not of dtype bool. The framework would
            add a mask of floats to the scores.
        ValueError: the mask does not broadcast to `shape`.
    """
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise TypeError(
            f"{name} has dtype {mask.dtype}: masks are torch.bool,"
            " True where a query may attend to a key"
        )
    # From the last axis on. torch.broadcast_shapes would do, but takes
    # so long that decoding token by token is noticeably slower.
    pairs = zip(reversed(mask.shape), reversed(shape), strict=False)
    fits = all(size in (1, wanted) for size, wanted in pairs)
    if not fits or mask.dim() > len(shape):
        raise ValueError(
            f"{name} of shape {tuple(mask.shape)} does not fit"
            f" attention of shape {tuple(shape)} (..., query, key)"
        )
