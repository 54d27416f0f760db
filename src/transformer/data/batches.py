"""Section 5.1: sequences of unequal length in one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from transformer.config import BOS, EOS, PAD


@dataclass(frozen=True)
class Batch:
    """Pairs of sequences, padded on the right.

    Args:
        source: token ids, each sequence ended by EOS.
        target: token ids, each sequence between BOS and EOS.
    """

    source: Int[Tensor, "batch source"]
    target: Int[Tensor, "batch target"]

    def __len__(self) -> int:
        return len(self.source)

    def to(self, device: torch.device | str) -> Batch:
        """The same pairs on another device."""
        return Batch(self.source.to(device), self.target.to(device))


def make_batch(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Batch:
    """Add BOS and EOS, pad, and stack.

    Args:
        sources, targets: token ids without special ids, as many
            sources as targets.

    Raises:
        ValueError: no pairs, or not as many sources as targets.
    """
    if not sources or len(sources) != len(targets):
        raise ValueError(
            f"{len(sources)} sources and {len(targets)} targets: a"
            " batch needs pairs, one at least"
        )
    return Batch(
        source=pad([[*source, EOS] for source in sources]),
        target=pad([[BOS, *target, EOS] for target in targets]),
    )


def pad(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Stack sequences, the short ones filled up with PAD."""
    longest = max(map(len, sequences))
    return torch.tensor(
        [[*ids, *[PAD] * (longest - len(ids))] for ids in sequences]
    )


def shift(
    target: Int[Tensor, "batch length"],
) -> tuple[
    Int[Tensor, "batch length-1"], Int[Tensor, "batch length-1"]
]:
    """Teacher forcing: what the decoder is given, what it must say.

    At each position the decoder is given the tokens up to there and
    must say the next one.

    Returns:
        target_in, without the last column; target_out, without the
        first.
    """
    return target[:, :-1], target[:, 1:]
