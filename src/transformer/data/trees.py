"""Section 6.3: trees in Penn brackets, as sequences, and back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from jaxtyping import Int
from torch import Tensor

from transformer.config import EOS
from transformer.data.batches import pad
from transformer.data.text import TextError, read_lines

WORD = "XX"  # stands for any word in a linearised tree
TOPS = ("", "TOP", "ROOT", "S1")  # what wraps a tree in treebanks
DEEPEST = 200


@dataclass(frozen=True)
class Tree:
    """A node with children, or a leaf: one word under its tag.

    Args:
        label: a category, such as NP; of a leaf, a part of speech.
        children: subtrees in their order; a leaf has none.
        word: of a leaf.
    """

    label: str
    children: tuple[Tree, ...] = ()
    word: str | None = None

    def __str__(self) -> str:
        inside = self.word or " ".join(map(str, self.children))
        return f"({self.label} {inside})"

    def leaves(self) -> Iterator[Tree]:
        """The words under this node, each with its tag."""
        if self.word is not None:
            yield self
        for child in self.children:
            yield from child.leaves()


# --- Penn bracket format ----------------------------------------------


def read_trees(path: Path | str) -> list[Tree]:
    """The trees of a file, which may stand on one line or on many.

    Args:
        path: UTF-8, compressed where the name ends in .gz or .xz.

    Raises:
        TextError: naming file and line of a fault in the brackets.
        OSError, EOFError: the file cannot be read.
    """
    path = Path(path)
    trees: list[Tree] = []
    open_nodes: list[tuple[str, list[Tree]]] = []
    started = 0
    for number, line in enumerate(read_lines(path), 1):
        started = started if open_nodes else number
        try:
            trees += parse(line, open_nodes)
        except ValueError as fault:
            raise TextError(path, number, str(fault)) from None
    if open_nodes:
        raise TextError(path, started, "the tree is never closed")
    if not trees:
        raise TextError(path, None, "there are no trees")
    return trees


def read_tree(text: str) -> Tree:
    """The one tree that a text holds.

    Raises:
        ValueError: there is none, more than one, or a fault in it.
    """
    open_nodes: list[tuple[str, list[Tree]]] = []
    trees = list(parse(text, open_nodes))
    if len(trees) != 1 or open_nodes:
        raise ValueError(f"{text!r} is not one whole tree")
    return trees[0]


# An opening with its label; a leaf's word with its closing; a closing.
# (CRAFT has leaves of two words; they stay one.)
PIECES = re.compile(r"\(\s*([^\s()]*)|([^\s()][^()]*?)\s*\)|(\))|(\S)")


def parse(
    text: str, open_nodes: list[tuple[str, list[Tree]]]
) -> Iterator[Tree]:
    """The trees that end in a text.

    Args:
        open_nodes: label and children of the nodes that are open,
            outermost first; left as the text leaves them.

    Raises:
        ValueError: a fault in the brackets.
    """
    for label, word, closing, stray in PIECES.findall(text):
        if stray or (not open_nodes and (word or closing)):
            raise ValueError(
                f"{stray or word or closing!r} is outside its place"
            )
        if not (word or closing):
            open_nodes.append((label, []))
            if len(open_nodes) > DEEPEST:
                raise ValueError(f"more than {DEEPEST} nodes deep")
            continue
        name, children = open_nodes.pop()
        if (word and children) or (closing and not children):
            raise ValueError(f"({name} has neither words nor nodes")
        tree = Tree(name, tuple(children), word or None)
        if open_nodes:
            open_nodes[-1][1].append(tree)
        else:
            yield tree


# --- what is learned of a tree ----------------------------------------


def cleaned(tree: Tree) -> Tree | None:
    """Without traces, function tags and the wrapper at the top.

    Traces are leaves tagged -NONE-; nodes that hold nothing else go
    with them. NP-SBJ-1 and NP=2 become NP; -LRB- stays. A node with
    one child of its own label becomes that child.

    Returns:
        None where nothing is left.
    """
    kept = without_traces(tree)
    while kept and kept.label in TOPS and len(kept.children) == 1:
        kept = kept.children[0]
    return kept


def without_traces(tree: Tree) -> Tree | None:
    """`cleaned`, but for the wrapper."""
    label = plain(tree.label)
    if tree.word is not None:
        return None if label == "-NONE-" else replace(tree, label=label)
    children = [without_traces(child) for child in tree.children]
    kept = tuple(child for child in children if child)
    if len(kept) == 1 and kept[0].label == label and kept[0].children:
        return kept[0]
    return Tree(label, kept) if kept else None


def plain(label: str) -> str:
    """A label without function tags and indices."""
    if label.startswith("-"):  # -LRB-, -RRB-, -NONE-
        return label
    return re.split(r"[-=]", label, maxsplit=1)[0]


def linearised(tree: Tree) -> list[str]:
    """A tree as *Grammar as a Foreign Language* writes it.

    Brackets carry their labels, and words with their tags become XX:
    (S (NP XX )NP (VP XX )VP XX )S for "John sleeps ."
    """
    if tree.word is not None:
        return [WORD]
    inside = [token for t in tree.children for token in linearised(t)]
    return [f"({tree.label}", *inside, f"){tree.label}"]


def restored(
    tokens: Iterable[str], leaves: Sequence[Tree], top: str = "S"
) -> tuple[Tree, bool]:
    """The tree that a linearisation stands for, mended where needed.

    A closing bracket closes the innermost node of its label; nodes
    within it that are still open end there too. One that fits no
    open node is left out. What is open at the end is closed. XX
    beyond the last word, and nodes without words, are left out;
    words without an XX are added to the outermost node. Where there
    is not one outermost node, a node `top` is put around all.

    Args:
        tokens: as a model gives them.
        leaves: the sentence's words, with their tags; one at least.

    Returns:
        The tree over exactly these leaves, and whether the tokens
        were well formed, so that nothing had to be mended.

    Raises:
        ValueError: there are no leaves.
    """
    if not leaves:
        raise ValueError("a tree needs one leaf at least")
    sound = True
    left = list(reversed(leaves))
    open_nodes: list[tuple[str, list[Tree]]] = [("", [])]
    for token in tokens:
        labels = [label for label, _ in open_nodes]
        if token.startswith("("):
            open_nodes.append((token[1:], []))
        elif token == WORD and left:
            open_nodes[-1][1].append(left.pop())
        elif token.startswith(")") and token[1:] in labels[1:]:
            sound &= labels[-1] == token[1:]
            while open_nodes[-1][0] != token[1:]:
                sound &= close(open_nodes)
            sound &= close(open_nodes)
        else:
            sound = False
    while len(open_nodes) > 1:
        close(open_nodes)
        sound = False
    found = open_nodes[0][1]
    if left:
        sound = False
        rest = tuple(reversed(left))
        if len(found) == 1 and found[0].word is None:
            found = [Tree(found[0].label, found[0].children + rest)]
        else:
            found += rest
    if len(found) == 1 and (len(leaves) == 1 or found[0].children):
        return found[0], sound
    return Tree(top, tuple(found)), False


def close(open_nodes: list[tuple[str, list[Tree]]]) -> bool:
    """Close the innermost node; False if it is empty and left out."""
    label, children = open_nodes.pop()
    if children:
        open_nodes[-1][1].append(Tree(label, tuple(children)))
    return bool(children)


# --- ids --------------------------------------------------------------

SPECIAL = ["<pad>", "<bos>", "<eos>"]
OTHER = "<other>"  # a rare word whose kind is rare too
ENDINGS = (
    "ing ed ly ion ity ness ment sis al ic ous ive ble er est s y"
).split()


@dataclass(frozen=True)
class ParserVocabulary:
    """Words on one side, tree tokens on the other, ids for each.

    Args:
        words: token of each source id: special ones, words, kinds of
            rare words.
        tokens: token of each target id.
    """

    words: list[str]
    tokens: list[str]

    @classmethod
    def fit(cls, trees: Sequence[Tree], least: int) -> ParserVocabulary:
        """Of training trees.

        Args:
            least: a word, or a kind of rare words, that is seen
                fewer times has no id of its own.
        """
        counted = Counter(w for tree in trees for w in words(tree))
        kinds: Counter[str] = Counter()
        for word, times in counted.items():
            if times < least:
                kinds[kind(word)] += times
        seen = {t for tree in trees for t in linearised(tree)}
        known = [*frequent(counted, least), *frequent(kinds, least)]
        return cls([*SPECIAL, OTHER, *known], [*SPECIAL, *sorted(seen)])

    @cached_property
    def word_ids(self) -> dict[str, int]:
        """Id of each source token."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def token_ids(self) -> dict[str, int]:
        """Id of each target token."""
        return {token: i for i, token in enumerate(self.tokens)}

    def source(self, words: Iterable[str]) -> list[int]:
        """Ids of a sentence: a word's own, or that of its kind."""
        ids = self.word_ids
        other = ids[OTHER]
        return [ids.get(w, ids.get(kind(w), other)) for w in words]

    def target(self, tree: Tree) -> list[int]:
        """Ids of a tree's linearisation.

        Raises:
            KeyError: a label that no training tree had.
        """
        return [self.token_ids[token] for token in linearised(tree)]

    def sentences(
        self, sentences: Iterable[Iterable[str]]
    ) -> Int[Tensor, "batch source"]:
        """Ids of several sentences, as the encoder takes them."""
        return pad([[*self.source(s), EOS] for s in sentences])

    def said(self, ids: Iterable[int]) -> list[str]:
        """Tree tokens of target ids, without the special ones."""
        return [self.tokens[i] for i in ids if i >= len(SPECIAL)]


def words(tree: Tree) -> list[str]:
    """A sentence's words."""
    return [leaf.word or "" for leaf in tree.leaves()]


def frequent(counted: Counter[str], least: int) -> list[str]:
    """What is counted that often, in the order of the alphabet."""
    return sorted(x for x, times in counted.items() if times >= least)


def kind(word: str) -> str:
    """What is known of a word never seen: its shape and its ending.

    <Aa-~s> is one with a capital, a hyphen and an ending in s; <A1>
    has two capitals or more, and a digit.
    """
    capitals = sum(letter.isupper() for letter in word)
    shape = "A" if capitals > 1 else "Aa" if capitals else "a"
    shape += "1" if any(letter.isdigit() for letter in word) else ""
    shape += "-" if "-" in word[1:] else ""
    ends = (e for e in ENDINGS if word.lower().endswith(e))
    ending = next(ends, "") if word[-3:].isalpha() else ""
    return f"<{shape}~{ending}>" if ending else f"<{shape}>"
