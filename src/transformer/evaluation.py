"""How well a model does: what it emits on its own, and its loss."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from transformer.data.batches import Batch, shift
from transformer.data.trees import TOPS, Tree
from transformer.decoding import evaluation_mode, greedy_decode
from transformer.model import Transformer


def exact_match(
    output: Int[Tensor, "batch output"],
    target: Int[Tensor, "batch target"],
    *,
    pad_id: int,
) -> float:
    """Share of sequences that are right from first token to EOS.

    Args:
        output: decoded ids, without start token, with EOS.
        target: the right ids, in the same form.
        pad_id: what fills both up on the right.

    Raises:
        ValueError: not as many outputs as targets.
    """
    if len(output) != len(target):
        raise ValueError(
            f"output holds {len(output)} sequences and target"
            f" {len(target)}: there must be one for each"
        )
    length = max(output.size(1), target.size(1))
    output = F.pad(output, (0, length - output.size(1)), value=pad_id)
    target = F.pad(target, (0, length - target.size(1)), value=pad_id)
    return (output == target).all(dim=1).double().mean().item()


def greedy_exact_match(model: Transformer, batch: Batch) -> float:
    """Share of sequences that greedy decoding gets right, whole."""
    target = batch.target[:, 1:]
    output = greedy_decode(
        model, batch.source, max_length=target.size(1)
    )
    return exact_match(output, target, pad_id=model.config.pad_id)


@torch.no_grad()
def teacher_forced_accuracy(model: Transformer, batch: Batch) -> float:
    """Share of tokens that are right when all before them are given.

    Says little on its own: a model that looks ahead scores 1.
    """
    with evaluation_mode(model):
        logits = model(batch.source, batch.target[:, :-1])
    gold = batch.target[:, 1:]
    real = gold != model.config.pad_id
    right = (logits.argmax(dim=-1) == gold) & real
    return (right.sum() / real.sum()).item()


@torch.no_grad()
def teacher_forced(
    model: Transformer, batches: Iterable[Batch]
) -> tuple[float, float]:
    """Perplexity and token accuracy over several batches.

    Both count real tokens, whatever the batches; there is no label
    smoothing in the perplexity.

    Raises:
        ValueError: there is no real token.
    """
    device = next(model.parameters()).device
    pad_id = model.config.pad_id
    loss = right = real = 0.0
    with evaluation_mode(model):
        for batch in batches:
            target_in, gold = shift(batch.target.to(device))
            logits = model(batch.source.to(device), target_in)
            kept = gold != pad_id
            loss += F.cross_entropy(
                logits[kept].double(), gold[kept], reduction="sum"
            ).item()
            right += (logits.argmax(-1) == gold)[kept].sum().item()
            real += kept.sum().item()
    if not real:
        raise ValueError("no real tokens to evaluate on")
    return math.exp(loss / real), right / real


def perplexity(model: Transformer, batch: Batch) -> float:
    """exp of the mean loss a real token, without label smoothing."""
    return teacher_forced(model, [batch])[0]


# EVALB's COLLINS.prm: leaves with these tags count for nothing, so
# that a comma may hang anywhere; ADVP and PRT are one label.
PUNCTUATION = (",", ":", "``", "''", ".", "-NONE-")
SAME_LABEL = {"PRT": "ADVP"}


@dataclass(frozen=True)
class BracketScores:
    """Brackets of all trees together, and how many are right.

    Args:
        right: in both, with the same label and the same words.
        found, gold: in the trees found, and in the right ones.
        exact: trees without a fault.
        trees: compared.
    """

    right: int
    found: int
    gold: int
    exact: int
    trees: int

    @property
    def precision(self) -> float:
        """Share of the brackets found that are right."""
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """Share of the right brackets that were found."""
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Of the two the harmonic mean, 2 right / (found + gold)."""
        brackets = self.found + self.gold
        return 2 * self.right / brackets if brackets else 0.0


def bracket_scores(
    found: Sequence[Tree],
    gold: Sequence[Tree],
    *,
    labelled: bool = True,
) -> BracketScores:
    """Precision, recall and F1 of brackets, by the rules of EVALB.

    Args:
        found: a parser's trees.
        gold: the right ones, over the same words.
        labelled: False asks for the words of a bracket alone.

    Raises:
        ValueError: not one tree for each, or other words.
    """
    if len(found) != len(gold):
        raise ValueError(
            f"{len(found)} trees found and {len(gold)} right ones:"
            " there must be one for each"
        )
    right = exact = 0
    totals = [0, 0]
    for place, (one, other) in enumerate(zip(found, gold, strict=True)):
        words = [
            [leaf.word for leaf in t.leaves()] for t in (one, other)
        ]
        if words[0] != words[1]:
            raise ValueError(f"tree {place} is over other words")
        ours, theirs = brackets(one), brackets(other)
        if not labelled:
            ours, theirs = spans(ours), spans(theirs)
        right += (ours & theirs).total()
        exact += ours == theirs
        totals[0] += ours.total()
        totals[1] += theirs.total()
    return BracketScores(right, *totals, exact, len(gold))


Brackets = Counter[tuple[str, int, int]]  # label, first word, end


def brackets(tree: Tree) -> Brackets:
    """Each node's label, first word and end, punctuation left out.

    A node that holds nothing but punctuation is no bracket, nor is
    a leaf, nor what wraps a tree in treebanks.
    """
    found: Brackets = Counter()

    def walk(node: Tree, start: int) -> int:
        if node.word is not None:
            return start + (node.label not in PUNCTUATION)
        end = start
        for child in node.children:
            end = walk(child, end)
        if end > start and node.label not in TOPS:
            found[
                SAME_LABEL.get(node.label, node.label), start, end
            ] += 1
        return end

    walk(tree, 0)
    return found


def spans(found: Brackets) -> Brackets:
    """The same brackets with no label."""
    bare: Brackets = Counter()
    for (_, start, end), times in found.items():
        bare["", start, end] += times
    return bare


@dataclass(frozen=True)
class BracketErrors:
    """What is wrong with the brackets of all trees together.

    Args:
        relabelled: right words, wrong label; counted once, though a
            bracket is found and another missed.
        crossing: found, and overlaps a gold one without either being
            inside the other.
        extra: found, crosses nothing, and is not in the gold tree.
        crossed: a gold one that is missed, crossed by one found.
        missed: a gold one that is missed and not crossed.

    So found - right = relabelled + crossing + extra, and gold - right
    = relabelled + crossed + missed.
    """

    relabelled: int = 0
    crossing: int = 0
    extra: int = 0
    crossed: int = 0
    missed: int = 0


def bracket_errors(
    found: Sequence[Tree], gold: Sequence[Tree]
) -> BracketErrors:
    """The errors by their kinds.

    Args:
        found, gold: as `bracket_scores` takes them.
    """
    relabelled = crossing = extra = crossed = missed = 0
    for one, other in zip(found, gold, strict=True):
        ours, theirs = brackets(one), brackets(other)
        wrong, lost = spans(ours - theirs), spans(theirs - ours)
        relabelled += (wrong & lost).total()
        for span in (wrong - lost).elements():
            crosses = any(cross(span, bracket) for bracket in theirs)
            crossing += crosses
            extra += not crosses
        for span in (lost - wrong).elements():
            crosses = any(cross(span, bracket) for bracket in ours)
            crossed += crosses
            missed += not crosses
    return BracketErrors(relabelled, crossing, extra, crossed, missed)


def cross(
    one: tuple[str, int, int], other: tuple[str, int, int]
) -> bool:
    """Whether brackets overlap, neither inside the other."""
    (_, a, b), (_, c, d) = one, other
    return a < c < b < d or c < a < d < b


# --- what a parser that knows nothing would get -----------------------


def branching(
    tree: Tree, top: str, inner: str, *, right: bool = True
) -> Tree:
    """The tree where each word stands beside all that follow it.

    Args:
        tree: over the same words.
        top, inner: labels of the outermost node and of all others.
        right: False puts each word beside all that come before it.

    Punctuation at the end hangs from the outermost node.
    """
    leaves = list(tree.leaves())
    last = len(leaves)
    while last > 1 and leaves[last - 1].label in PUNCTUATION:
        last -= 1
    inside, rest = leaves[:last], leaves[last:]
    if not right:
        inside.reverse()
    node: tuple[Tree, ...] = (inside.pop(),)
    while inside:
        below = node if len(node) == 1 else (Tree(inner, node),)
        word = inside.pop()
        node = (word, *below) if right else (*below, word)
    return Tree(top, (*node, *rest))


def usual_labels(trees: Iterable[Tree]) -> tuple[str, str]:
    """The label that most outermost nodes have, and most others."""
    tops: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for tree in trees:
        tops[tree.label] += 1
        for (label, *_), times in brackets(tree).items():
            others[label] += times
        others[tree.label] -= 1
    return tops.most_common(1)[0][0], others.most_common(1)[0][0]
