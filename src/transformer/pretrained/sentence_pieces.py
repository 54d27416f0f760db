"""The tokenizer of MarianMT models: SentencePiece and a word list."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

UNKNOWN, END, PADDING = "<unk>", "</s>", "<pad>"


class SentencePieces:
    """Text to token ids and back, without EOS and padding.

    Used as `BytePairEncoding` is. Source and target language each
    have a SentencePiece model, which cuts text into pieces; the ids
    of the pieces stand in vocab.json, mostly for both languages at
    once. A text for a multilingual model begins with its target
    language, as in ">>deu<< The file is open."

    The ids are those of `transformers.MarianTokenizer` but for a
    text that holds "</s>", "<unk>" or "<pad>": here they are plain
    characters. Neither normalises punctuation before SentencePiece
    does what its model says, mostly NFKC.

    Args:
        source, target: SentencePiece processors.
        vocabulary: pieces of the source, with their ids.
        target_vocabulary: of the target, where it has its own.
    """

    def __init__(
        self,
        source: Any,
        target: Any,
        vocabulary: dict[str, int],
        target_vocabulary: dict[str, int] | None = None,
    ) -> None:
        self.source, self.target = source, target
        self.vocabulary = vocabulary
        self.target_vocabulary = target_vocabulary or vocabulary
        self.target_pieces = {
            i: piece for piece, i in self.target_vocabulary.items()
        }
        self.eos_id = self.vocabulary[END]

    @classmethod
    def load(cls, folder: Path | str) -> SentencePieces:
        """Read source.spm, target.spm and vocab.json.

        Raises:
            ImportError: `sentencepiece` is not installed.
            OSError: a file is missing or cannot be read.
            ValueError: a file is not what its name says.
        """
        try:
            import sentencepiece
        except ImportError as error:
            raise ImportError(
                "MarianMT's tokenizer needs the package sentencepiece:"
                " pip install sentencepiece huggingface_hub"
            ) from error
        folder = Path(folder)
        sides = []
        for side in ("source", "target"):
            data = (folder / f"{side}.spm").read_bytes()
            pieces = sentencepiece.SentencePieceProcessor()
            try:
                pieces.LoadFromSerializedProto(data)
            except RuntimeError as error:
                raise ValueError(
                    f"{folder / side}.spm: no SentencePiece model"
                ) from error
            sides.append(pieces)
        words = [read_vocabulary(folder / "vocab.json")]
        if has_two_vocabularies(folder):
            words.append(read_vocabulary(folder / "target_vocab.json"))
        return cls(*sides, *words)

    @property
    def vocab_size(self) -> int:
        """Pieces of the source, the special ones included."""
        return len(self.vocabulary)

    @property
    def languages(self) -> list[str]:
        """What a text may begin with; empty for one target language."""
        return [
            piece
            for piece in self.vocabulary
            if piece.startswith(">>") and piece.endswith("<<")
        ]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of source texts; unknown pieces have one id."""
        return [
            identify(self.pieces(text), self.vocabulary)
            for text in texts
        ]

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of target texts."""
        return [
            identify(cut(text, self.target), self.target_vocabulary)
            for text in texts
        ]

    def pieces(self, text: str) -> list[str]:
        """The pieces of one source text as they are written."""
        return cut(text, self.source)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of target ids up to EOS, special pieces left out.

        Raises:
            KeyError: an id that no piece has.
        """
        ids = list(ids)
        if self.eos_id in ids:
            ids = ids[: ids.index(self.eos_id)]
        pieces = [self.target_pieces[i] for i in ids]
        special = (UNKNOWN, END, PADDING)
        text = self.target.decode_pieces(
            [piece for piece in pieces if piece not in special]
        )
        return text.replace("▁", " ").strip()


def cut(text: str, model: Any) -> list[str]:
    """The pieces of a text; a language in front is one piece."""
    language = []
    if text.startswith(">>") and "<<" in text:
        end = text.index("<<") + 2
        language, text = [text[:end]], text[end:]
    return language + model.encode(text, out_type=str)


def identify(
    pieces: Sequence[str], vocabulary: dict[str, int]
) -> list[int]:
    """The id of each piece, or that of <unk>."""
    unknown = vocabulary[UNKNOWN]
    return [vocabulary.get(piece, unknown) for piece in pieces]


def read_vocabulary(path: Path) -> dict[str, int]:
    """Pieces and their ids.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no such file, or a special piece is missing.
    """
    try:
        vocabulary = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: no JSON: {error}") from error
    for piece in (UNKNOWN, END, PADDING):
        if piece not in vocabulary:
            raise ValueError(f"{path}: {piece} is missing")
    return vocabulary


def has_two_vocabularies(folder: Path) -> bool:
    """Whether the target language has ids of its own."""
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return False
    settings = json.loads(path.read_text(encoding="utf-8"))
    return bool(settings.get("separate_vocabs"))
