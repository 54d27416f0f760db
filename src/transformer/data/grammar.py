"""Section 6.3 in small: sentences of which the tree is known.

"Anna saw the man with the telescope ." and "... with the beard ."
have the same words but one, and other trees: the tool belongs to the
seeing, the beard to the man. No sentence has two trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar
from zlib import crc32

import torch

from transformer.data.batches import Batch, make_batch
from transformer.data.trees import WORD, Tree, linearised

# What a node may hold, and how often it does. Behind "@" stands what
# only the grammar knows; the label is what stands before.
RULES: dict[str, dict[str, float]] = {
    "S": {"NP@subject VP .": 1},
    "S@inner": {"NP VP@one": 1},
    "NP@subject": {"NP": 4, "NP@base SBAR@who": 1},
    "NP": {"DT NN": 5, "DT JJ NN": 3, "NNP": 3, "NP@base PP@noun": 3},
    "NP@base": {"DT NN": 3, "DT JJ NN": 1},
    "PP@noun": {"IN@of NP": 1, "IN@with NP@part": 1},
    "NP@part": {"DT NN@part": 3, "DT JJ NN@part": 1},
    "PP@tool": {"IN@with NP@tool": 1},
    "NP@tool": {"DT NN@tool": 3, "DT JJ NN@tool": 1},
    "SBAR@who": {"WHNP VP@plain": 1},
    "WHNP": {"WP": 1},
    "SBAR": {"IN@that S@inner": 1},
    "VP": {"VP@one": 6, "VP@one CC VP@one": 1},
    "VP@one": {"VP@plain": 3, "VBD NP PP@tool": 2, "VBD@say SBAR": 1},
    "VP@plain": {"VBD NP": 3, "VBD@go": 1, "VBD@go ADVP": 1},
    "ADVP": {"RB": 1},
}
LEXICON: dict[str, str] = {
    "DT": "the a",
    "JJ": "tall small young happy strange",
    "NN": "man woman child dog painter king neighbour doctor",
    "NN@part": "beard hat smile tail scar",
    "NN@tool": "telescope camera stick hammer mirror",
    "NNP": "Anna Ben Clara David",
    "VBD": "saw followed found hit watched helped",
    "VBD@say": "said thought knew",
    "VBD@go": "slept left laughed waited",
    "RB": "quietly today often",
    "IN@of": "of",
    "IN@with": "with",
    "IN@that": "that",
    "WP": "who",
    "CC": "and",
    ".": ".",
}


@dataclass(frozen=True)
class Parsing:
    """Sentences of the grammar in, their linearised trees out.

    Args:
        longest: words that a sentence has at most, the full stop
            counted.

    One sentence of ten is never trained on.
    """

    batch_size: ClassVar[int] = 64  # what `recipes` trains with

    longest: int = 20

    def __post_init__(self) -> None:
        if self.longest < 5:
            raise ValueError(
                f"longest={self.longest} must be at least 5"
            )

    @cached_property
    def vocabulary(self) -> list[str]:
        """Token of each id; special ones, words, tree tokens."""
        words = dict.fromkeys(" ".join(LEXICON.values()).split())
        labels = dict.fromkeys(name.split("@")[0] for name in RULES)
        ends = [f"{side}{label}" for label in labels for side in "()"]
        return ["<pad>", "<bos>", "<eos>", *words, WORD, *ends]

    @property
    def vocab_size(self) -> int:
        """Words, tree tokens and special ids."""
        return len(self.vocabulary)

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        """`size` sentences for training, with their trees."""
        trees = self.draw(generator)
        some = (tree for tree in trees if not is_held_out(tree))
        return self.pairs([next(some) for _ in range(size)])

    def held_out(
        self, size: int, generator: torch.Generator
    ) -> list[Tree]:
        """`size` different trees that training never sees."""
        chosen: dict[Tree, None] = {}
        trees = self.draw(generator)
        while len(chosen) < size:
            tree = next(trees)
            if is_held_out(tree):
                chosen[tree] = None
        return list(chosen)

    def pairs(self, trees: list[Tree]) -> Batch:
        """Trees as one batch."""
        ids = {token: i for i, token in enumerate(self.vocabulary)}
        return make_batch(
            [[ids[leaf.word] for leaf in t.leaves()] for t in trees],
            [[ids[token] for token in linearised(t)] for t in trees],
        )

    def tokens(self, ids: list[int]) -> list[str]:
        """What ids stand for, without the special ones."""
        return [self.vocabulary[i] for i in ids if i > 2]

    def draw(self, generator: torch.Generator) -> Iterator[Tree]:
        """Trees of the grammar, without an end."""
        chances = chance(generator)
        while True:
            tree = grow("S", chances)
            if len(list(tree.leaves())) <= self.longest:
                yield tree


def grow(name: str, chances: Iterator[float]) -> Tree:
    """A tree under a node of the grammar."""
    label = name.split("@")[0]
    if name in LEXICON:
        words = LEXICON[name].split()
        word = words[int(next(chances) * len(words))]
        return Tree(label, word=word)
    chosen, left = "", next(chances) * sum(RULES[name].values())
    for inside, weight in RULES[name].items():
        if left >= 0:
            chosen = inside
        left -= weight
    children = [grow(child, chances) for child in chosen.split()]
    if len(children) == 1 and children[0].label == label:
        return children[0]
    return Tree(label, tuple(children))


def chance(generator: torch.Generator) -> Iterator[float]:
    """Numbers from 0 to below 1, without an end."""
    while True:
        yield from torch.rand(
            256, generator=generator, dtype=torch.double
        ).tolist()


def is_held_out(tree: Tree) -> bool:
    """Whether a sentence is kept for testing, by its words."""
    words = " ".join(leaf.word or "" for leaf in tree.leaves())
    return crc32(words.encode()) % 10 == 0
