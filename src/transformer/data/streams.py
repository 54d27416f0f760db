"""Section 5.1: batches of about as many tokens, without an end.

A stream gives the batches of one update after another. What comes
next is a function of its seed and its position, so that a run which
saves the position goes on as if it had never stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from transformer.data.batches import Batch, make_batch
from transformer.data.text import Pair
from transformer.data.tokenizer import BytePairEncoding
from transformer.data.toy import NumberWords, SymbolTask
from transformer.files import write_then_rename


@runtime_checkable
class Stream(Protocol):
    """Batches without an end."""

    def take(
        self, count: int, share: slice = slice(None)
    ) -> list[Batch]:
        """The next `count` batches; of them, those in `share`.

        Processes that train together take the same `count`, each its
        own share, so that none is lost and none comes twice.
        """

    def position(self) -> dict[str, int]:
        """Where the stream stands; for `go_to`."""

    def go_to(self, position: dict[str, int]) -> None:
        """Go on from there."""


@dataclass(frozen=True)
class Ragged:
    """Sequences of unequal length, end to end in one array.

    Args:
        ids: all token ids.
        starts: where each sequence starts, and the end of the last.
    """

    ids: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(
        cls, sequences: Iterable[Sequence[int] | np.ndarray]
    ) -> Ragged:
        """Put sequences end to end."""
        parts = [np.asarray(ids, dtype=np.int32) for ids in sequences]
        ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return cls(np.concatenate([*parts, np.int32([])]), ends)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int | np.integer) -> list[int]:
        start, end = self.starts[index], self.starts[index + 1]
        return self.ids[start:end].tolist()

    @property
    def lengths(self) -> np.ndarray:
        """How many tokens each sequence has."""
        return np.diff(self.starts)


@dataclass(frozen=True)
class EncodedPairs:
    """Sentence pairs as token ids, without BOS and EOS."""

    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.source)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of sources and targets, EOS counted, (2, pairs)."""
        return 1 + np.stack([self.source.lengths, self.target.lengths])

    def batch(self, indices: np.ndarray | Sequence[int]) -> Batch:
        """These pairs, padded."""
        return make_batch(
            [self.source[i] for i in indices],
            [self.target[i] for i in indices],
        )

    def fingerprint(self) -> str:
        """Equal for equal pairs in equal order, and for no others."""
        digest = hashlib.sha256()
        for array in self._arrays().values():
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def save(self, path: Path) -> None:
        """Write the ids, so that they are computed once."""
        with write_then_rename(path) as draft:
            save_file(self._arrays(), draft)

    @classmethod
    def load(cls, path: Path) -> EncodedPairs:
        """Read what `save` wrote.

        Raises:
            ValueError: the file holds something else.
        """
        try:
            arrays = load_file(path)
            return cls(
                Ragged(arrays["source"], arrays["source_starts"]),
                Ragged(arrays["target"], arrays["target_starts"]),
            )
        except (KeyError, SafetensorError) as error:
            raise ValueError(f"{path}: no encoded pairs") from error

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            "source": self.source.ids,
            "source_starts": self.source.starts,
            "target": self.target.ids,
            "target_starts": self.target.starts,
        }


def encode_pairs(
    pairs: Iterable[Pair], tokenizer: BytePairEncoding, longest: int
) -> tuple[EncodedPairs, int]:
    """Encode, leaving out the pairs that are too long.

    A pair is kept whole or not at all: half a sentence is not the
    translation of the other half, and every sequence ends in EOS.

    Args:
        longest: tokens that a side may have, EOS counted.

    Returns:
        The pairs in their order, and how many were left out.

    Raises:
        ValueError: no pair is left.
    """
    sources, targets, seen = [], [], 0
    pairs = iter(pairs)
    while some := list(islice(pairs, 100_000)):
        seen += len(some)
        encoded = zip(
            tokenizer.encode([source for source, _ in some]),
            tokenizer.encode([target for _, target in some]),
            strict=True,
        )
        for source, target in encoded:
            if max(len(source), len(target)) < longest:
                sources.append(np.asarray(source, dtype=np.int32))
                targets.append(np.asarray(target, dtype=np.int32))
    if not sources:
        raise ValueError(
            f"none of {seen} pairs has both sides within {longest}"
            " tokens"
        )
    kept = EncodedPairs(Ragged.of(sources), Ragged.of(targets))
    return kept, seen - len(kept)


def cut_by_length(
    lengths: np.ndarray, budget: int, generator: torch.Generator
) -> list[np.ndarray]:
    """One epoch: pairs of similar length together, batches shuffled.

    Args:
        lengths: (2, pairs), tokens of source and target.
        budget: tokens that a batch may have on each side, padding
            counted: sequences times the longest of them.
        generator: orders pairs of equal length, and the batches.

    Returns:
        Indices of the pairs, an array for each batch. Every pair is
        in one of them.
    """
    shuffled = torch.randperm(lengths.shape[1], generator=generator)
    order = shuffled.numpy()
    longer = lengths.max(axis=0)
    # The last key counts first; equal pairs stay as shuffled.
    order = order[np.lexsort([lengths[0, order], longer[order]])]
    starts, longest = [0], 0
    for here, length in enumerate(longer[order].tolist()):
        longest = max(longest, length)
        if (here + 1 - starts[-1]) * longest > budget:
            starts.append(here)
            longest = length
    batches = np.split(order, starts[1:])
    places = torch.randperm(len(batches), generator=generator)
    return [batches[place] for place in places.tolist()]


class TokenBatches:
    """Batches of sentence pairs, by a budget of tokens.

    Args:
        pairs: what to draw from; each once in an epoch.
        budget: tokens that a batch may have on each side.
        seed: of the order, anew in every epoch.

    Raises:
        ValueError: a pair is longer than the budget.
    """

    def __init__(
        self, pairs: EncodedPairs, budget: int, seed: int
    ) -> None:
        longest = pairs.lengths.max()
        if longest > budget:
            raise ValueError(
                f"a pair of {longest} tokens does not fit into a batch"
                f" of {budget}"
            )
        self.pairs = pairs
        self.budget = budget
        self.seed = seed
        self.go_to({"epoch": 0, "batch": 0})

    def position(self) -> dict[str, int]:
        """As `Stream` has it."""
        return {"epoch": self.epoch, "batch": self.done}

    def go_to(self, position: dict[str, int]) -> None:
        """As `Stream` has it."""
        self.epoch = position["epoch"]
        self.done = position["batch"]
        order = torch.Generator().manual_seed(
            mix(self.seed, self.epoch)
        )
        self.batches = cut_by_length(
            self.pairs.lengths, self.budget, order
        )

    def take(
        self, count: int, share: slice = slice(None)
    ) -> list[Batch]:
        """As `Stream` has it."""
        taken = [self._next() for _ in range(count)]
        return [self.pairs.batch(indices) for indices in taken[share]]

    def _next(self) -> np.ndarray:
        if self.done == len(self.batches):
            self.go_to({"epoch": self.epoch + 1, "batch": 0})
        self.done += 1
        return self.batches[self.done - 1]


class TaskBatches:
    """Batches of a toy task, each drawn from its number."""

    def __init__(
        self, task: SymbolTask | NumberWords, size: int, seed: int
    ) -> None:
        self.task = task
        self.size = size
        self.seed = seed
        self.done = 0

    def position(self) -> dict[str, int]:
        """As `Stream` has it."""
        return {"epoch": 0, "batch": self.done}

    def go_to(self, position: dict[str, int]) -> None:
        """As `Stream` has it."""
        self.done = position["batch"]

    def take(
        self, count: int, share: slice = slice(None)
    ) -> list[Batch]:
        """As `Stream` has it."""
        numbers = range(self.done, self.done + count)[share]
        self.done += count
        return [self._batch(number) for number in numbers]

    def _batch(self, number: int) -> Batch:
        draw = torch.Generator().manual_seed(mix(self.seed, number))
        return self.task.batch(self.size, draw)


def mix(*numbers: int | str) -> int:
    """One seed from several numbers or words; another for others."""
    text = ",".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:7])
