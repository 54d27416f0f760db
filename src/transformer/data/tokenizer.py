"""Section 5.1: byte-pair encoding, one vocabulary for both sides."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from transformer.config import BOS, EOS, PAD
from transformer.files import write_then_rename

UNKNOWN = 3
SPECIAL = {PAD: "<pad>", BOS: "<s>", EOS: "</s>", UNKNOWN: "<unk>"}


class BytePairEncoding:
    """Text to token ids and back, without BOS, EOS and padding.

    The `tokenizers` library does the work. A blank is written as "▁"
    at the start of the piece that follows it, and punctuation marks
    are pieces of their own.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        # "</s>" in a text is five characters, not the end.
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer

    @classmethod
    def fit(
        cls, texts: Iterable[str], vocab_size: int
    ) -> BytePairEncoding:
        """Learn the merges from training text of both languages.

        Args:
            texts: sentences; only those of the training set.
            vocab_size: pieces at most, the special ones included.

        Raises:
            ValueError: no text, or a vocabulary that cannot hold the
                special pieces and the characters of the text.
        """
        tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[UNKNOWN]))
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
        )
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[
                AddedToken(SPECIAL[i], special=True)
                for i in sorted(SPECIAL)
            ],
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        found = tokenizer.get_vocab_size()
        if found == len(SPECIAL):
            raise ValueError("no text to learn byte pairs from")
        if found > vocab_size:
            raise ValueError(
                f"vocab_size={vocab_size} is too small: special pieces"
                f" and single characters alone are {found}"
            )
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path | str) -> BytePairEncoding:
        """Read what `save` wrote.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not such a file.
        """
        text = Path(path).read_text(encoding="utf-8")
        try:
            tokenizer = Tokenizer.from_str(text)
        except Exception as error:
            raise ValueError(
                f"{path}: no tokenizer: {error}"
            ) from error
        for i, piece in SPECIAL.items():
            if tokenizer.token_to_id(piece) != i:
                raise ValueError(f"{path}: {piece} must have id {i}")
        return cls(tokenizer)

    def save(self, path: Path | str) -> None:
        """Write vocabulary and merges as JSON."""
        with write_then_rename(Path(path)) as draft:
            self.tokenizer.save(os.fspath(draft))

    @property
    def vocab_size(self) -> int:
        """Pieces, the special ones included."""
        return self.tokenizer.get_vocab_size()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text; [3], <unk>, for unseen characters."""
        found = self.tokenizer.encode_batch(
            list(texts), add_special_tokens=False
        )
        return [encoding.ids for encoding in found]

    def pieces(self, text: str) -> list[str]:
        """The pieces of one text as they are written."""
        return self.tokenizer.encode(
            text, add_special_tokens=False
        ).tokens

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids up to EOS, special pieces left out."""
        ids = list(ids)
        if EOS in ids:
            ids = ids[: ids.index(EOS)]
        return self.tokenizer.decode(ids, skip_special_tokens=True)
