"""Chapter 11's experiments, on cases that can be counted by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from bookkit import corpus
from transformer.data.streams import encode_pairs
from transformer.data.tokenizer import BytePairEncoding
from transformer.data.toy import SymbolTask

TEXTS = ["save the file", "die Datei speichern", "save, saved", "wave"] * 3


def slow_merges(words, count):
    """The loop of chapter 11, as short as it goes."""
    cut = {word: list(word) for word in words}
    age = {p: i for i, p in enumerate(sorted({c for word in words for c in word}))}
    learned = []
    for _ in range(count):
        pairs = {}
        for word, pieces in cut.items():
            for pair in pairwise(pieces):
                pairs[pair] = pairs.get(pair, 0) + words[word]
        best = min(pairs, key=lambda p: (-pairs[p], age[p[0]], age[p[1]]))
        learned.append(best)
        age.setdefault("".join(best), len(age))
        for pieces in cut.values():
            for at in range(len(pieces) - 1):
                if tuple(pieces[at : at + 2]) == best:
                    pieces[at : at + 2] = ["".join(best)]
    return learned


@pytest.fixture(scope="module")
def tokenizer():
    return BytePairEncoding.fit(TEXTS, 60)


def test_a_smaller_vocabulary_is_the_beginning_of_a_larger(tokenizer):
    fitted = BytePairEncoding.fit(TEXTS, 35)
    begun = corpus.beginning(tokenizer, 35)
    assert begun.encode(TEXTS) == fitted.encode(TEXTS)
    assert corpus.merges(begun) == corpus.merges(fitted)
    assert begun.vocab_size == 35
    with pytest.raises(ValueError, match="size=9999"):
        corpus.beginning(tokenizer, 9999)


def test_merges_of_a_slow_loop_are_the_librarys():
    assert corpus.compare_merges(slow_merges, TEXTS * 9).startswith("as the lib")
    assert slow_merges(corpus.FOUR_WORDS, 4)[:3] == [
        ("a", "v"),
        ("av", "e"),
        ("s", "ave"),
    ]


def test_the_first_wrong_merge_is_named():
    def last_first(words, count):
        return [("s", "a"), *slow_merges(words, count)[1:]]

    said = corpus.compare_merges(last_first, TEXTS)
    assert said == "four words, merge 1: yours ('s', 'a'), the library's ('a', 'v')"

    def one_less(words, count):
        return slow_merges(words, count)[:-1]

    assert "merges" in corpus.compare_merges(one_less, TEXTS)

    def none(words, count):
        raise NotImplementedError("not yet")

    assert corpus.compare_merges(none, TEXTS) == "not yet"


def test_padding_by_hand():
    lengths = np.array([[4, 5, 12], [4, 5, 12]])
    assert corpus.padding_share(lengths, [np.arange(3)]) == pytest.approx(15 / 36)
    assert corpus.padding_share(lengths, [[0], [1], [2]]) == 0


def test_four_ways_lose_no_pair_and_order_as_they_say():
    lengths = np.random.default_rng(0).integers(1, 40, (2, 500))
    ways = corpus.four_ways(lengths, 400, seed=3)
    assert list(ways) == ["corpus order", "shuffled", "sorted", "token budget"]
    for batches in ways.values():
        assert sorted(np.concatenate(batches)) == list(range(500))
    longer = lengths.max(0)[np.concatenate(ways["sorted"])]
    assert (np.diff(longer) >= 0).all()
    share = {k: corpus.padding_share(lengths, v) for k, v in ways.items()}
    assert share["sorted"] < share["shuffled"]


def test_bits_of_pieces_that_are_all_alike(tokenizer):
    count, a_piece, a_letter = corpus.bits(tokenizer, ["a a"], ["save save"])
    assert count == len(tokenizer.encode(["save save"])[0])
    assert a_letter == pytest.approx(a_piece * count / 9)
    assert a_piece > 0


def test_words_have_letters_only():
    found = corpus.words(["Größe: 3 mm, a_b", "mm."])
    assert found == {"Größe", "mm", "a", "b"}


def test_pieces_for_each_word_by_hand(tokenizer):
    # With letters alone, a word of four and its ▁ are five pieces.
    letters = corpus.beginning(tokenizer, 4 + len(set("".join(TEXTS) + "▁") - {" "}))
    assert corpus.pieces_a_word(letters, ["save wave"]) == 5


def test_pieces_on_both_sides_are_those_of_slow_counts(tokenizer):
    german = ["die Datei save", "save save file", "Datei"]
    pairs, _ = encode_pairs(zip(TEXTS[:3], german, strict=True), tokenizer, 99)
    counts = []
    for side in (TEXTS[:3], german):
        pieces = [p.strip("▁") for text in side for p in tokenizer.pieces(text)]
        counts.append({p: pieces.count(p) for p in pieces})
    found = corpus.used_on_both_sides(pairs, tokenizer)
    assert set(found) == set(counts[0]) & set(counts[1])
    rarer = [min(count[piece] for count in counts) for piece in found]
    assert rarer == sorted(rarer, reverse=True)
    long = corpus.used_on_both_sides(pairs, tokenizer, shortest=4)
    assert long == [piece for piece in found if len(piece) >= 4] != found


def test_pieces_that_another_vocabulary_lacks(tokenizer):
    begun = corpus.beginning(tokenizer, 35)
    assert corpus.only_in(begun, tokenizer) == []
    more = corpus.only_in(tokenizer, begun)
    assert len(more) == tokenizer.vocab_size - 35
    assert [len(piece) for piece in more] == sorted(map(len, more), reverse=True)


def test_an_average_batch_by_hand():
    lengths = np.array([[4, 5, 12], [2, 2, 6]])
    average = corpus.average_batch(lengths, [np.array([0, 1]), np.array([2])])
    assert average["cells"].tolist() == [(10 + 12) / 2, (4 + 6) / 2]
    assert average["tokens"].tolist() == [(9 + 12) / 2, (4 + 6) / 2]


def test_sides_sorted_apart_have_less_padding_than_pairs():
    lengths = np.array([[1, 1, 9, 9], [9, 1, 9, 1]])
    together = [np.array([0, 1]), np.array([2, 3])]
    assert corpus.padding_share(lengths, together) == pytest.approx(16 / 56)
    assert corpus.padding_if_sorted_apart(lengths, together) == 0


def test_learning_to_stop_is_two_shares():
    right, stops = corpus.learn_to_stop(SymbolTask("copy", 3, 1, 3))
    assert 0.7 < right <= 1
    assert 0.9 < stops <= 1
