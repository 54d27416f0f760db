"""Bracket scores against cases that were scored by hand, by EVALB's rules."""

from __future__ import annotations

import random

import pytest

from transformer.data.trees import read_tree, words
from transformer.evaluation import (
    BracketErrors,
    bracket_errors,
    bracket_scores,
    brackets,
    branching,
    usual_labels,
)

from .making import random_tree

GOLD = (
    "(S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT a) (NN mat)))) (. .))"
)


@pytest.mark.parametrize(
    ("found", "gold", "right", "of_found", "of_gold"),
    [
        # S 0-6, NP 0-2, VP 2-6, PP 3-6, NP 4-6.
        (GOLD, GOLD, 5, 5, 5),
        # The full stop inside VP: punctuation counts for nothing.
        (GOLD.replace(")))) (. .))", "))) (. .)))"), GOLD, 5, 5, 5),
        # NP attached to the verb: PP is 3-4, the rest stays.
        (
            "(S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on))"
            " (NP (DT a) (NN mat))) (. .))",
            GOLD,
            4,
            5,
            5,
        ),
        # One label wrong.
        (GOLD.replace("(PP", "(ADJP"), GOLD, 4, 5, 5),
        # A flat tree: one bracket of five, and it is right.
        (
            "(S (DT the) (NN cat) (VBD sat) (IN on) (DT a) (NN mat) (. .))",
            GOLD,
            1,
            1,
            5,
        ),
        # A chain of one label counts as often as it stands there.
        ("(NP (NP (NN a)))", "(NP (NN a))", 1, 2, 1),
        ("(NP (NP (NN a)))", "(NP (NP (NN a)))", 2, 2, 2),
        # PRT and ADVP are one label; what wraps the tree is none.
        ("(TOP (S (VB give) (PRT (RP up))))", "(S (VB give) (ADVP (RP up)))", 2, 2, 2),
        # A node over punctuation alone is no bracket.
        ("(S (NN a) (PRN (, ,)))", "(S (NN a) (, ,))", 1, 1, 1),
        # A dash is a colon to the treebank, a hyphen of CRAFT is not.
        ("(S (NP (NN a)) (: -))", "(S (NP (NN a) (: -)))", 2, 2, 2),
        ("(S (NP (NN a)) (HYPH -))", "(S (NP (NN a) (HYPH -)))", 1, 2, 2),
    ],
)
def test_scored_by_hand(found, gold, right, of_found, of_gold):
    score = bracket_scores([read_tree(found)], [read_tree(gold)])
    assert (score.right, score.found, score.gold) == (right, of_found, of_gold)
    assert score.exact == (right == of_found == of_gold)


def test_the_corpus_is_scored_as_one():
    flat = "(S (DT the) (NN cat) (VBD sat) (IN on) (DT a) (NN mat) (. .))"
    found = [read_tree(flat), read_tree(GOLD)]
    score = bracket_scores(found, [read_tree(GOLD)] * 2)
    assert (score.precision, score.recall) == (6 / 6, 6 / 10)
    assert score.f1 == pytest.approx(2 * 1 * 0.6 / 1.6)
    assert (score.exact, score.trees) == (1, 2)


def test_brackets_have_words_as_places():
    assert brackets(read_tree("(S (, ,) (NP (NN a)) (VB b))")) == {
        ("NP", 0, 1): 1,
        ("S", 0, 2): 1,
    }


@pytest.mark.parametrize("seed", range(20))
def test_scores_swap_when_the_trees_do(seed):
    draw = random.Random(seed)
    tree = random_tree(draw)
    while len(list((other := random_tree(draw)).leaves())) != len(list(tree.leaves())):
        pass
    names = iter(leaf.word for leaf in tree.leaves())

    def with_words(node):
        if node.word is not None:
            return type(node)(node.label, word=next(names))
        return type(node)(node.label, tuple(map(with_words, node.children)))

    other = with_words(other)
    one, two = bracket_scores([tree], [other]), bracket_scores([other], [tree])
    assert (one.right, one.precision, one.recall) == (
        two.right,
        two.recall,
        two.precision,
    )
    assert one.f1 == two.f1 <= 1


def test_nothing_found_is_zero_and_not_an_error():
    leaf = read_tree("(NN a)")
    score = bracket_scores([leaf], [leaf])
    assert (score.precision, score.recall, score.f1) == (0, 0, 0)


def test_other_words_are_refused():
    one, two = read_tree("(S (NN a))"), read_tree("(S (NN b))")
    with pytest.raises(ValueError, match="tree 0 is over other words"):
        bracket_scores([one], [two])
    with pytest.raises(ValueError, match="one for each"):
        bracket_scores([one], [])


@pytest.mark.parametrize(
    ("found", "labelled", "bare"),
    [
        (GOLD, 5, 5),
        (GOLD.replace("(PP", "(ADJP").replace("(NP (DT the)", "(QP (DT the)"), 3, 5),
        ("(VP (DT the) (NN cat) (VBD sat) (IN on) (DT a) (NN mat) (. .))", 0, 1),
    ],
)
def test_without_labels_the_words_of_a_bracket_count(found, labelled, bare):
    trees = [read_tree(found)], [read_tree(GOLD)]
    assert bracket_scores(*trees).right == labelled
    assert bracket_scores(*trees, labelled=False).right == bare


def test_a_chain_without_labels_counts_as_often_as_it_is_long():
    one, two = read_tree("(S (NP (NN a)))"), read_tree("(NP (NN a))")
    score = bracket_scores([one], [two], labelled=False)
    assert (score.right, score.found, score.gold) == (1, 2, 1)


ERRORS = [
    (GOLD, BracketErrors()),
    # One label wrong: one error, not two.
    (GOLD.replace("(PP", "(ADJP"), BracketErrors(relabelled=1)),
    # PP is 3-4 where 3-6 is right: inside everything, so no crossing.
    (
        "(S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on))"
        " (NP (DT a) (NN mat))) (. .))",
        BracketErrors(extra=1, missed=1),
    ),
    # "cat sat", 1-3, crosses NP 0-2 and VP 2-6, and both are missed.
    (
        "(S (DT the) (VP (NN cat) (VBD sat)) (PP (IN on) (NP (DT a) (NN mat))) (. .))",
        BracketErrors(crossing=1, crossed=2),
    ),
    ("(S (DT the) (NN cat) (VBD sat) (IN on) (DT a) (NN mat) (. .))", None),
]


@pytest.mark.parametrize(("found", "errors"), ERRORS)
def test_kinds_of_errors_told_by_hand(found, errors):
    errors = errors or BracketErrors(missed=4)
    assert bracket_errors([read_tree(found)], [read_tree(GOLD)]) == errors


@pytest.mark.parametrize("seed", range(30))
def test_every_wrong_bracket_is_one_error(seed):
    draw = random.Random(seed)
    leaves = [f"(NN w{i})" for i in range(8)]

    def grow(inside):
        if len(inside) == 1:
            return inside[0]
        cut = draw.randint(1, len(inside) - 1)
        label = draw.choice(["S", "NP", "VP"])
        return f"({label} {grow(inside[:cut])} {grow(inside[cut:])})"

    found, gold = ([read_tree(grow(leaves)) for _ in range(3)] for _ in range(2))
    score, errors = bracket_scores(found, gold), bracket_errors(found, gold)
    wrong = errors.relabelled + errors.crossing + errors.extra
    lost = errors.relabelled + errors.crossed + errors.missed
    assert (wrong, lost) == (score.found - score.right, score.gold - score.right)
    # Each of two full binary trees that differ crosses the other.
    assert (errors.crossing > 0) == (errors.crossed > 0)
    back = bracket_errors(gold, found)
    assert (back.crossing, back.extra) == (errors.crossed, errors.missed)


# --- baselines ------------------------------------------------------------

CAT = "(S (NP (DT the) (NN cat)) (VP (VBD sat) (ADVP (RB there))) (. .))"
COLD = "(S (NP (PRP it)) (VP (VBD was) (ADJP (JJ cold))) (. .))"
CATS = [read_tree(CAT), read_tree(COLD)]


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        (True, "(S (DT the) (NP (NN cat) (NP (VBD sat) (RB there))) (. .))"),
        (False, "(S (NP (NP (DT the) (NN cat)) (VBD sat)) (RB there) (. .))"),
    ],
)
def test_branching_by_hand(right, expected):
    found = branching(CATS[0], "S", "NP", right=right)
    assert str(found) == expected


@pytest.mark.parametrize(
    "text", ["(NP (NN a))", "(NP (. .))", "(NP (NN a) (. .))", "(S (, ,) (. .))"]
)
def test_branching_over_little(text):
    tree = read_tree(text)
    for right in (True, False):
        found = branching(tree, "S", "NP", right=right)
        assert words(found) == words(tree)
        assert found.label == "S" and all(child.word for child in found.children)


def test_right_branching_is_right_where_the_tree_is():
    chain = read_tree("(S (A a) (NP (B b) (NP (C c) (NP (D d) (E e)))) (. .))")
    found = branching(chain, "S", "NP")
    assert bracket_scores([found], [chain]).f1 == 1
    mirrored = branching(chain, "S", "NP", right=False)
    assert bracket_scores([mirrored], [chain]).right == 1


def test_usual_labels():
    assert usual_labels(CATS) == ("S", "NP")
    assert usual_labels([*CATS, read_tree("(X (VP (V a)) (VP (V b)))")]) == (
        "S",
        "VP",
    )
