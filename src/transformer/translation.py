"""Section 6.1: sentences in, sentences out, and how good they are."""

from __future__ import annotations

from collections.abc import Sequence

import sacrebleu

from transformer.config import EOS
from transformer.data.batches import pad
from transformer.data.tokenizer import BytePairEncoding
from transformer.decoding import greedy_decode
from transformer.model import Transformer


def translate(
    model: Transformer,
    tokenizer: BytePairEncoding,
    sentences: Sequence[str],
    *,
    batch_size: int = 64,
) -> list[str]:
    """Translate by greedy decoding, in batches of similar length.

    A source longer than the model's max_length is cut in front of
    its EOS.
    """
    device = next(model.parameters()).device
    longest = model.config.max_length - 1
    sources = [
        [*ids[:longest], EOS] for ids in tokenizer.encode(sentences)
    ]
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    found = [""] * len(sources)
    for start in range(0, len(order), batch_size):
        some = order[start : start + batch_size]
        batch = pad([sources[i] for i in some]).to(device)
        for i, ids in zip(
            some, greedy_decode(model, batch), strict=True
        ):
            found[i] = tokenizer.decode(ids.tolist())
    return found


def bleu(
    translations: Sequence[str], references: Sequence[str]
) -> sacrebleu.BLEUScore:
    """Corpus BLEU of plain text, 0 to 100, by sacrebleu.

    Raises:
        ValueError: none, or not one reference for each.
    """
    if not translations or len(translations) != len(references):
        raise ValueError(
            f"{len(translations)} translations and {len(references)}"
            " references: BLEU needs one for each, and one at least"
        )
    return sacrebleu.corpus_bleu(list(translations), [list(references)])
