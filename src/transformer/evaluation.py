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
    found: Sequence[Tree], gold: Sequence[Tree]
) -> BracketScores:
    """Precision, recall and F1 of brackets, by the rules of EVALB.

    Args:
        found: a parser's trees.
        gold: the right ones, over the same words.

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
        right += (ours & theirs).total()
        exact += ours == theirs
        totals[0] += ours.total()
        totals[1] += theirs.total()
    return BracketScores(right, *totals, exact, len(gold))


def brackets(tree: Tree) -> Counter[tuple[str, int, int]]:
    """Each node's label, first word and end, punctuation left out.

    A node that holds nothing but punctuation is no bracket, nor is
    a leaf, nor what wraps a tree in treebanks.
    """
    found: Counter[tuple[str, int, int]] = Counter()

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
