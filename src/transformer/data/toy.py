"""Tasks of our own that a small model learns in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from transformer.config import BOS, EOS, PAD
from transformer.data.batches import Batch, make_batch

FIRST_SYMBOL = max(PAD, BOS, EOS) + 1

RULES: dict[str, Callable[[Sequence[int]], list[int]]] = {
    "copy": list,
    "reverse": lambda symbols: list(reversed(symbols)),
    # The one that encoder self-attention is of use for.
    "sort": sorted,
}


@dataclass(frozen=True)
class SymbolTask:
    """Random symbols in, the same symbols out in another order.

    Args:
        rule: "copy", "reverse" or "sort".
        symbols: how many different symbols there are.
        shortest, longest: lengths are drawn evenly between them,
            both included.

    Raises:
        ValueError: naming the argument, its value and the rule.
    """

    batch_size: ClassVar[int] = 64  # what `recipes` trains with

    rule: str = "copy"
    symbols: int = 10
    shortest: int = 5
    longest: int = 20

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(
                f"rule={self.rule!r} must be one of"
                f" {', '.join(map(repr, RULES))}"
            )
        if self.symbols < 1:
            raise ValueError(
                f"symbols={self.symbols} must be at least 1"
            )
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(
                f"shortest={self.shortest} and longest={self.longest}:"
                " they must be at least 1, in this order"
            )

    @property
    def vocab_size(self) -> int:
        """Symbols and special ids."""
        return FIRST_SYMBOL + self.symbols

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        """`size` fresh pairs, drawn from the generator."""
        lengths = torch.randint(
            self.shortest,
            self.longest + 1,
            (size,),
            generator=generator,
        )
        drawn = torch.randint(
            FIRST_SYMBOL,
            self.vocab_size,
            (size, self.longest),
            generator=generator,
        )
        sources = [
            symbols[:length]
            for symbols, length in zip(
                drawn.tolist(), lengths.tolist(), strict=True
            )
        ]
        return make_batch(
            sources, [RULES[self.rule](s) for s in sources]
        )


ONES = "zero one two three four five six seven eight nine".split()
TEENS = (
    "ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
EINER = "null eins zwei drei vier fünf sechs sieben acht neun".split()
ZEHNER = (
    "zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn"
    " achtzehn neunzehn"
).split()
ZIGER = (
    "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"
).split()
ENGLISH = [*ONES, *TEENS, *TENS, "hundred", "thousand"]
GERMAN = [*EINER, *ZEHNER, *ZIGER, "ein", "und", "hundert", "tausend"]


def english(number: int) -> list[str]:
    """21 -> ["twenty", "one"]: the words of 0 to 999,999.

    Raises:
        ValueError: the number is outside that range.
    """
    _check_number(number)
    if number >= 1000:
        words = [*english(number // 1000), "thousand"]
        return words + (english(number % 1000) if number % 1000 else [])
    if number >= 100:
        words = [ONES[number // 100], "hundred"]
        return words + (english(number % 100) if number % 100 else [])
    if number >= 20:
        words = [TENS[number // 10 - 2]]
        return words + ([ONES[number % 10]] if number % 10 else [])
    return [(ONES + TEENS)[number]]


def german(number: int) -> list[str]:
    """21 -> ["ein", "und", "zwanzig"]: the pieces of one word.

    Joined without spaces they are the number's name.

    Raises:
        ValueError: the number is outside 0 to 999,999.
    """
    _check_number(number)
    if number >= 1000:
        pieces = [*_german_before(number // 1000), "tausend"]
        return pieces + (german(number % 1000) if number % 1000 else [])
    if number >= 100:
        pieces = [*_german_before(number // 100), "hundert"]
        return pieces + (german(number % 100) if number % 100 else [])
    if number >= 20:
        tens = [ZIGER[number // 10 - 2]]
        ones = number % 10
        return [*_german_before(ones), "und", *tens] if ones else tens
    return [(EINER + ZEHNER)[number]]


def _german_before(number: int) -> list[str]:
    """Before another piece, a final "eins" is "ein"."""
    pieces = german(number)
    return [*pieces[:-1], "ein"] if pieces[-1] == "eins" else pieces


def _check_number(number: int) -> None:
    if not 0 <= number < 1_000_000:
        raise ValueError(f"number={number} must be 0 to 999,999")


@dataclass(frozen=True)
class NumberWords:
    """Translate numbers, English to German, up to 999,999.

    "twenty one" becomes "ein und zwanzig": the ones come before the
    tens. One number of ten from 100 on is never trained on.
    """

    batch_size: ClassVar[int] = 128  # what `recipes` trains with

    @property
    def vocabulary(self) -> list[str]:
        """Token of each id; source and target share the ids."""
        return ["<pad>", "<bos>", "<eos>", *ENGLISH, *GERMAN]

    @property
    def vocab_size(self) -> int:
        """Words, pieces and special ids."""
        return len(self.vocabulary)

    def is_held_out(self, number: int) -> bool:
        """Whether the number is kept for testing."""
        # Fibonacci hashing: spreads neighbours over all residues.
        # The upper bits, since the lower ones follow the number's.
        mixed = number * 2654435769 % 2**32 >> 16
        return number >= 100 and mixed % 10 == 0

    def pairs(self, numbers: Sequence[int]) -> Batch:
        """The numbers in words, as one batch."""
        ids = {token: i for i, token in enumerate(self.vocabulary)}
        return make_batch(
            [[ids[word] for word in english(n)] for n in numbers],
            [[ids[piece] for piece in german(n)] for n in numbers],
        )

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        """`size` pairs for training, one to six digits evenly."""
        stream = self._draw(generator)
        numbers = (n for n in stream if not self.is_held_out(n))
        return self.pairs([next(numbers) for _ in range(size)])

    def held_out(self, size: int, generator: torch.Generator) -> Batch:
        """`size` different numbers that training never sees.

        Raises:
            ValueError: size is not 1 to 10,000.
        """
        if not 1 <= size <= 10_000:
            raise ValueError(f"size={size} must be 1 to 10,000")
        chosen: dict[int, None] = {}
        for number in self._draw(generator):
            if self.is_held_out(number):
                chosen[number] = None
            if len(chosen) == size:
                return self.pairs(list(chosen))
        raise AssertionError("the stream of numbers has no end")

    def _draw(self, generator: torch.Generator) -> Iterator[int]:
        while True:
            digits = torch.randint(1, 7, (64,), generator=generator)
            share = torch.rand(
                64, generator=generator, dtype=torch.double
            )
            for length, part in zip(
                digits.tolist(), share.tolist(), strict=True
            ):
                low = 10 ** (length - 1) if length > 1 else 0
                yield low + int(part * (10**length - low))
