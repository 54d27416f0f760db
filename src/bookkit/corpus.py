"""Chapter 11's experiments: vocabularies, and ways to cut a corpus."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from tokenizers import Tokenizer

from transformer.config import EOS
from transformer.data.streams import EncodedPairs, cut_by_length
from transformer.data.tokenizer import BytePairEncoding
from transformer.data.toy import SymbolTask
from transformer.decoding import greedy_decode
from transformer.evaluation import teacher_forced_accuracy
from transformer.recipes import train_toy

# Chapter 11 learns on it by hand; ▁ marks the start of a word.
FOUR_WORDS = {"▁save": 4, "▁saved": 2, "▁wave": 1, "▁file": 3}

Merge = tuple[str, str]


def sentences(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Both sides of all pairs, in one list."""
    return [sentence for pair in pairs for sentence in pair]


def words(texts: Iterable[str]) -> set[str]:
    """The different words, without figures and punctuation."""
    return {word for text in texts for word in re.findall(r"[^\W\d_]+", text)}


def merges(tokenizer: BytePairEncoding) -> list[Merge]:
    """What was learned, in order."""
    model = json.loads(tokenizer.tokenizer.to_str())["model"]
    return [tuple(merge) for merge in model["merges"]]


def beginning(tokenizer: BytePairEncoding, size: int) -> BytePairEncoding:
    """The vocabulary of `size` pieces that this one began with.

    Raises:
        ValueError: it has fewer than `size`.
    """
    if size > tokenizer.vocab_size:
        raise ValueError(f"size={size} is above the {tokenizer.vocab_size} there are")
    data = json.loads(tokenizer.tokenizer.to_str())
    vocab = {p: i for p, i in data["model"]["vocab"].items() if i < size}
    kept = [m for m in data["model"]["merges"] if "".join(m) in vocab]
    data["model"] |= {"vocab": vocab, "merges": kept}
    return BytePairEncoding(Tokenizer.from_str(json.dumps(data)))


def word_counts(tokenizer: BytePairEncoding, texts: Iterable[str]) -> Counter:
    """The words that pieces are made in, with ▁ where a blank was."""
    cut = tokenizer.tokenizer.pre_tokenizer.pre_tokenize_str
    return Counter(word for text in texts for word, _ in cut(text))


def pieces_a_word(tokenizer: BytePairEncoding, texts: Sequence[str]) -> float:
    """A word is what stands between blanks."""
    count = sum(len(text.split()) for text in texts)
    return sum(map(len, tokenizer.encode(texts))) / count


def used_on_both_sides(
    pairs: EncodedPairs, tokenizer: BytePairEncoding, shortest: int = 0
) -> list[str]:
    """Pieces that sources and targets have, without their ▁.

    Those first that are most frequent on the side where they are
    less so.

    Args:
        shortest: characters that a piece must have.
    """
    size = tokenizer.vocab_size
    sides = (pairs.source, pairs.target)
    rarer = np.min([np.bincount(side.ids, minlength=size) for side in sides], axis=0)
    order = np.argsort(-rarer, kind="stable")
    pieces = [
        tokenizer.tokenizer.id_to_token(i).strip("▁")
        for i in order.tolist()
        if rarer[i] > 0
    ]
    return [piece for piece in pieces if len(piece) >= shortest]


def only_in(tokenizer: BytePairEncoding, other: BytePairEncoding) -> list[str]:
    """Pieces that the other vocabulary lacks, the longest first."""
    ours, theirs = (set(some.tokenizer.get_vocab()) for some in (tokenizer, other))
    return sorted(ours - theirs, key=lambda piece: (-len(piece), piece))


def compare_merges(
    yours: Callable[[Mapping[str, int], int], Sequence[Merge]],
    texts: Sequence[str],
) -> str:
    """The reader's merges beside the library's; the first difference.

    Args:
        yours: (words with their counts, number of merges) -> merges.
        texts: to learn on, after the four words.
    """
    four = [w.strip("▁") for w, times in FOUR_WORDS.items() for _ in range(times)]
    for name, lines, size in (("four words", four, 20), ("real text", texts, 130)):
        fitted = BytePairEncoding.fit(lines, size)
        right = merges(fitted)
        try:
            found = yours(word_counts(fitted, lines), len(right))
        except NotImplementedError as missing:
            return str(missing)
        found = [tuple(pair) for pair in found]
        for step, (got, want) in enumerate(zip(found, right, strict=False), 1):
            if got != want:
                return f"{name}, merge {step}: yours {got}, the library's {want}"
        if len(found) != len(right):
            return f"{name}: {len(found)} merges, {len(right)} were asked for"
    return "as the library's, on four words and on real text"


def padding_share(lengths: np.ndarray, batches: Iterable[np.ndarray]) -> float:
    """Of all cells of the batches, both sides together.

    Args:
        lengths: (2, pairs), tokens of source and target.
        batches: indices of pairs.
    """
    batches = list(batches)
    tokens = sum(lengths[:, b].sum() for b in batches)
    cells = sum(lengths[:, b].max(1).sum() * len(b) for b in batches)
    return float(1 - tokens / cells)


def padding_if_sorted_apart(
    lengths: np.ndarray, batches: Sequence[np.ndarray]
) -> float:
    """Where sources and targets are sorted each for itself: a mistake.

    Args:
        lengths: (2, pairs).
        batches: how many pairs each batch has, in this order.
    """
    ends = np.cumsum([len(batch) for batch in batches])
    cut = np.split(np.arange(lengths.shape[1]), ends[:-1])
    return padding_share(np.sort(lengths, axis=1), cut)


def average_batch(
    lengths: np.ndarray, batches: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """Cells and tokens of a batch on average, (source, target)."""
    return {
        "cells": np.mean([lengths[:, b].max(1) * len(b) for b in batches], axis=0),
        "tokens": np.mean([lengths[:, b].sum(1) for b in batches], axis=0),
    }


def four_ways(
    lengths: np.ndarray, budget: int, seed: int
) -> dict[str, list[np.ndarray]]:
    """The same pairs cut into about as many batches in four ways.

    By a fixed number of pairs: in the order given, shuffled, or
    sorted by the longer side; and by a budget of tokens. The fixed
    number is that which the budget gives on average.
    """
    draw = torch.Generator().manual_seed(seed)
    by_budget = cut_by_length(lengths, budget, draw)
    count = lengths.shape[1]
    size = round(count / len(by_budget))
    shuffled = torch.randperm(count, generator=draw).numpy()
    longer = lengths[:, shuffled].max(0)
    orders = {
        "corpus order": np.arange(count),
        "shuffled": shuffled,
        "sorted": shuffled[np.argsort(longer, kind="stable")],
    }
    cut = {
        name: np.split(order, range(size, count, size))
        for name, order in orders.items()
    }
    return cut | {"token budget": by_budget}


def bits(
    tokenizer: BytePairEncoding, known: Sequence[str], fresh: Sequence[str]
) -> tuple[int, float, float]:
    """How a model does that only knows how frequent each piece is.

    Returns:
        Pieces in `fresh`, bits for each of them, and bits for each
        character, by the counts in `known`, 1 added to each.
    """
    seen = np.concatenate(tokenizer.encode(known))
    count = np.bincount(seen, minlength=tokenizer.vocab_size) + 1
    surprise = -np.log2(count / count.sum())
    ids = np.concatenate(tokenizer.encode(fresh))
    total = float(surprise[ids].sum())
    return len(ids), total / len(ids), total / sum(map(len, fresh))


def learn_to_stop(task: SymbolTask, seed: int = 0) -> tuple[float, float]:
    """Train a small model on the task, in a second or two.

    Returns:
        Of fresh targets, the share of tokens that it gets right where
        it is given those before; and of the outputs that it writes on
        its own, the share with an EOS within 10 tokens.
    """
    model, _ = train_toy(task, seed, steps=60, progress=False)
    fresh = task.batch(200, torch.Generator().manual_seed(9))
    right = teacher_forced_accuracy(model, fresh)
    output = greedy_decode(model, fresh.source, max_length=10)
    return right, (output == EOS).any(dim=1).double().mean().item()
