"""Sentences of the small grammar: one tree each, fresh ones held out."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice

import pytest
import torch

from transformer.config import EOS
from transformer.data.grammar import LEXICON, RULES, Parsing, is_held_out
from transformer.data.trees import linearised, read_tree


def some_trees(count, seed=0, **changes):
    draw = Parsing(**changes).draw(torch.Generator().manual_seed(seed))
    return list(islice(draw, count))


def sentence(tree):
    return [leaf.word for leaf in tree.leaves()]


def parses(words):
    """In how many ways the rules give a sentence: a chart, the slow way."""

    @cache
    def ways(name, start, end):
        if name in LEXICON:
            one = end == start + 1
            return int(one and words[start] in LEXICON[name].split())
        return sum(among(inside, start, end) for inside in RULES[name])

    @cache
    def among(inside, start, end):
        first, _, rest = inside.partition(" ")
        if not rest:
            return ways(first, start, end)
        return sum(
            ways(first, start, middle) * among(rest, middle, end)
            for middle in range(start + 1, end)
        )

    return ways("S", 0, len(words))


def test_no_sentence_has_two_trees():
    for tree in some_trees(150):
        assert parses(tuple(sentence(tree))) == 1


def test_the_chart_sees_two_trees_where_there_are_two(monkeypatch):
    # Were the tool the man's as well, nothing could tell.
    monkeypatch.setitem(RULES, "PP@noun", {"IN@with NP@tool": 1})
    assert parses(tuple("Anna saw the man with the camera .".split())) == 2


def test_one_word_decides_where_with_belongs():
    words = [f"(NN {word})" for word in LEXICON["NN@tool"].split()]
    seen = set()
    for tree in map(str, some_trees(1500)):
        if found := re.search(r"\(VP \(VBD \w+\) (.*)\(PP \(IN with\) (.*)", tree):
            before, after = found.groups()
            if "VBD" in before + after:
                continue  # more than one verb could have the tool
            tool = any(word in after for word in words)
            assert (before.count("(") == before.count(")")) == tool
            seen.add(tool)
    assert seen == {True, False}


@pytest.mark.parametrize("longest", [5, 8, 20])
def test_no_sentence_is_longer_than_allowed(longest):
    lengths = [len(sentence(t)) for t in some_trees(100, longest=longest)]
    assert max(lengths) <= longest


def test_held_out_sentences_are_never_trained_on():
    task = Parsing()
    draw = torch.Generator().manual_seed(1)
    held_out = task.held_out(50, draw)
    assert len(set(held_out)) == 50
    assert all(map(is_held_out, held_out))
    kept = {tuple(task.pairs([tree]).source[0].tolist()) for tree in held_out}
    batch = task.batch(200, torch.Generator().manual_seed(2))
    for ids in batch.source.tolist():
        assert tuple(ids[: ids.index(EOS) + 1]) not in kept


def test_about_one_sentence_of_ten_is_held_out():
    share = sum(map(is_held_out, some_trees(5000))) / 5000
    assert 0.05 < share < 0.16


def test_a_batch_is_the_words_and_the_tree_in_tokens():
    task = Parsing()
    tree = read_tree("(S (NP (NNP Anna)) (VP (VBD slept)) (. .))")
    batch = task.pairs([tree])
    assert task.tokens(batch.source[0].tolist()) == ["Anna", "slept", "."]
    assert task.tokens(batch.target[0].tolist()) == linearised(tree)


def test_the_same_seed_gives_the_same_sentences():
    first, again = (
        Parsing().batch(8, torch.Generator().manual_seed(3)) for _ in range(2)
    )
    assert torch.equal(first.source, again.source)
    assert torch.equal(first.target, again.target)


def test_too_short_a_limit_is_refused():
    with pytest.raises(ValueError, match="longest=4 must be at least 5"):
        Parsing(longest=4)
