"""Section 6.1: sentences in, sentences out, and how good they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric
from torch.nn.utils.rnn import pad_sequence

from transformer.decoding import Hypothesis, beam_search
from transformer.model import Transformer


@runtime_checkable
class Encoding(Protocol):
    """A tokenizer: text to token ids and back, without EOS."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids up to EOS."""


def translate(
    model: Transformer,
    tokenizer: Encoding,
    sentences: Sequence[str],
    *,
    beam_size: int = 4,
    alpha: float = 0.6,
    max_extra: int = 50,
    batch_size: int = 64,
) -> list[str]:
    """Translate in batches of similar length.

    Args:
        beam_size, alpha, max_extra: as in `beam_search`; a beam of 1
            is greedy decoding.
        batch_size: sentences at once. It changes the speed alone.

    Raises:
        ValueError: as `beam_search` does.

    A source longer than the model's max_length is cut in front of
    its EOS.
    """
    found = search(
        model,
        tokenizer,
        sentences,
        batch_size=batch_size,
        beam_size=beam_size,
        alpha=alpha,
        max_extra=max_extra,
    )
    return [tokenizer.decode(best[0].ids) for best in found]


def search(
    model: Transformer,
    tokenizer: Encoding,
    sentences: Sequence[str],
    *,
    batch_size: int = 64,
    **options,
) -> list[list[Hypothesis]]:
    """What `beam_search` finds for each sentence.

    Args:
        batch_size: as in `translate`.
        options: of `beam_search`.
    """
    config = model.config
    device = next(model.parameters()).device
    sources = [
        torch.tensor([*ids[: config.max_length - 1], config.eos_id])
        for ids in tokenizer.encode(sentences)
    ]
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for start in range(0, len(order), batch_size):
        some = order[start : start + batch_size]
        batch = pad_sequence(
            [sources[i] for i in some],
            batch_first=True,
            padding_value=config.pad_id,
        )
        hypotheses = beam_search(model, batch.to(device), **options)
        for i, best in zip(some, hypotheses, strict=True):
            found[i] = best
    return found


@dataclass(frozen=True)
class Score:
    """How near translations are to their references.

    Args:
        name: "BLEU" or "chrF2".
        score: 0 to 100.
        signature: sacrebleu's, which says how it was counted; two
            scores compare only where their signatures are equal.
    """

    name: str
    score: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.score:.1f} ({self.signature})"


def bleu(
    translations: Sequence[str], references: Sequence[str]
) -> Score:
    """Corpus BLEU of plain text, by sacrebleu.

    Raises:
        ValueError: none, or not one reference for each.
    """
    return scored(BLEU(), translations, references)


def chrf(
    translations: Sequence[str], references: Sequence[str]
) -> Score:
    """chrF2 of plain text, by sacrebleu: n-grams of characters.

    Raises:
        ValueError: as `bleu` does.
    """
    return scored(CHRF(), translations, references)


def scored(
    metric: Metric,
    translations: Sequence[str],
    references: Sequence[str],
) -> Score:
    """The score of one of sacrebleu's metrics."""
    if not translations or len(translations) != len(references):
        raise ValueError(
            f"{len(translations)} translations and {len(references)}"
            " references: a score needs one for each, and one at least"
        )
    found = metric.corpus_score(list(translations), [list(references)])
    return Score(found.name, found.score, str(metric.get_signature()))
