"""Trees: read, cleaned, made a sequence, restored from any sequence."""

from __future__ import annotations

import lzma
import random

import pytest

from transformer.data.text import TextError
from transformer.data.trees import (
    SPECIAL,
    ParserVocabulary,
    Tree,
    cleaned,
    kind,
    linearised,
    read_tree,
    read_trees,
    restored,
)

from .making import random_tree

JOHN = "(S (NP (NNP John)) (VP (VBZ sleeps)) (. .))"


def words(tree: Tree) -> list[str | None]:
    return [leaf.word for leaf in tree.leaves()]


# --- reading --------------------------------------------------------------


def test_a_tree_is_written_as_it_was_read():
    assert str(read_tree(JOHN)) == JOHN
    assert words(read_tree(JOHN)) == ["John", "sleeps", "."]


@pytest.mark.parametrize("seed", range(20))
def test_any_tree_survives_writing_and_reading(seed):
    tree = random_tree(random.Random(seed))
    assert read_tree(str(tree)) == tree


def test_a_file_may_spread_trees_over_lines(tmp_path):
    path = tmp_path / "wsj.mrg.xz"
    text = f"\n( (S\n    (NP (NNP John))\n  (VP (VBZ sleeps)) (. .)) )\n{JOHN}{JOHN}\n"
    path.write_bytes(lzma.compress(text.encode()))
    trees = read_trees(path)
    assert [str(cleaned(tree)) for tree in trees] == [JOHN] * 3


def test_a_leaf_of_two_words_is_one_leaf():
    tree = read_tree("(NML (NN Xpd TTD) (HYPH /))")
    assert words(tree) == ["Xpd TTD", "/"]


@pytest.mark.parametrize(
    ("text", "line", "fault"),
    [
        ("", None, "no trees"),
        ("(S (NN a))\n(S (NN a)\n\n", 2, "never closed"),
        ("(S (NN a))\n\n(NN b))", 3, "'\\)' is outside its place"),
        ("(S (NN a) b)", 1, "neither words nor nodes|outside its place"),
        ("b (S (NN a))", 1, "'b' is outside its place"),
        ("(S b (NN a))", 1, "'b' is outside its place"),
        ("(S (NN a) ())", 1, "neither words nor nodes"),
        ("(S" * 201, 1, "more than 200 nodes deep"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path, text, line, fault):
    path = tmp_path / "bad.ptb"
    path.write_text(text)
    where = f"bad.ptb:{line}: " if line else "bad.ptb: "
    with pytest.raises(TextError, match=f"{where}.*({fault})"):
        read_trees(path)


@pytest.mark.parametrize("text", ["", "(S (NN a)", JOHN + JOHN])
def test_one_tree_is_one(text):
    with pytest.raises(ValueError, match="not one whole tree"):
        read_tree(text)


# --- cleaning -------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("( (S (NP-SBJ-1 (NN a)) (VP (VB b))))", "(S (NP (NN a)) (VP (VB b)))"),
        ("(ROOT (S=2 (NN|NP a)))", "(S (NN|NP a))"),
        # A trace goes, and what held nothing else goes with it.
        (
            "(S (NP-SBJ (-NONE- *-1)) (VP (VB b) (S (NP (-NONE- *)))))",
            "(S (VP (VB b)))",
        ),
        # What is left of a node over a node of its label is one node.
        ("(S (NP (NP (NN a)) (SBAR (-NONE- *T*))) (VB b))", "(S (NP (NN a)) (VB b))"),
        ("(NP (-LRB- -LRB-) (NN a) (-RRB- -RRB-))",) * 2,
    ],
)
def test_cleaning(raw, clean):
    assert str(cleaned(read_tree(raw))) == clean


def test_nothing_but_traces_leaves_nothing():
    assert cleaned(read_tree("(S (NP (-NONE- *)) (VP (-NONE- *)))")) is None


# --- as a sequence --------------------------------------------------------


def test_the_sequence_of_a_tree():
    sequence = "(S (NP XX )NP (VP XX )VP XX )S"
    assert linearised(read_tree(JOHN)) == sequence.split()


@pytest.mark.parametrize("seed", range(50))
def test_a_sound_sequence_gives_the_tree_back(seed):
    tree = random_tree(random.Random(seed))
    assert restored(linearised(tree), list(tree.leaves())) == (tree, True)


@pytest.mark.parametrize(
    ("tokens", "mended"),
    [
        # Unclosed, closed too often, closed by the wrong label.
        ("(S (NP XX )NP (VP XX", "(S (NP a) (VP b))"),
        ("(S XX XX )S )S", "(S a b)"),
        ("(S (NP XX (VP XX )NP )S", "(S (NP a (VP b)))"),
        ("(S XX )NP XX )S", "(S a b)"),
        # Words too many and too few; nothing at all.
        ("(S XX XX XX )S", "(S a b)"),
        ("(S (NP XX )NP )S", "(S (NP a) b)"),
        ("", "(TOP a b)"),
        ("XX XX", "(TOP a b)"),
        ("(NP XX )NP (VP XX )VP", "(TOP (NP a) (VP b))"),
        ("(S XX XX (NP )NP )S", "(S a b)"),
        ("(S XX <unk> XX )S", "(S a b)"),
    ],
)
def test_mending(tokens, mended):
    leaves = [Tree("", word="a"), Tree("", word="b")]
    tree, sound = restored(tokens.split(), leaves, top="TOP")
    assert str(tree).replace("( a)", "a").replace("( b)", "b") == mended
    assert not sound


@pytest.mark.parametrize("seed", range(200))
def test_any_tokens_give_a_tree_over_the_words(seed):
    draw = random.Random(seed)
    tokens = ["XX", "(S", ")S", "(NP", ")NP", "junk"]
    leaves = [Tree("NN", word=f"w{i}") for i in range(draw.randint(1, 6))]
    tokens = draw.choices(tokens, k=draw.randint(0, 20))
    found, sound = restored(tokens, leaves)
    assert list(found.leaves()) == leaves
    assert restored(linearised(found), leaves)[0] == found
    assert all(token != "junk" for token in linearised(found))
    assert not (sound and "junk" in tokens)


def test_one_word_may_stand_alone():
    leaf = Tree("UH", word="no")
    assert restored(["XX"], [leaf]) == (leaf, True)


def test_no_words_no_tree():
    with pytest.raises(ValueError, match="one leaf at least"):
        restored(["XX"], [])


# --- ids ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("mutation", "<a~ion>"),
        ("Mutations", "<Aa~s>"),
        ("DNA", "<A>"),
        ("p53", "<a1>"),
        ("knock-outs", "<a-~s>"),
        ("IL-2", "<A1->"),
        ("-", "<a>"),
        ("2.5", "<a1>"),
        ("β", "<a>"),
        # Three letters at the end before an ending is one.
        ("3s", "<a1>"),
    ],
)
def test_what_is_known_of_a_word_never_seen(word, expected):
    assert kind(word) == expected


def test_rare_words_are_known_by_their_kind():
    trees = [read_tree(f"(NP (DT the) (NN {w}))") for w in ("mutation", "station", "x")]
    vocabulary = ParserVocabulary.fit(trees, least=2)
    assert vocabulary.words[4:] == ["the", "<a~ion>"]
    the, ion = 4, 5
    # The third is of a kind that was seen once; so is no sentence empty.
    assert vocabulary.source(["the", "nation", "x", "Y"]) == [the, ion, 3, 3]
    assert vocabulary.tokens == [*SPECIAL, "(NP", ")NP", "XX"]


def test_sentences_are_padded_and_end():
    vocabulary = ParserVocabulary.fit([read_tree(JOHN)], least=1)
    john, dot = vocabulary.source(["John", "."])
    ids = vocabulary.sentences([["John", "."], ["."]]).tolist()
    assert ids == [[john, dot, 2], [dot, 2, 0]]


@pytest.mark.parametrize("seed", range(10))
def test_ids_give_the_tree_back(seed):
    trees = [random_tree(random.Random(seed)) for _ in range(3)]
    vocabulary = ParserVocabulary.fit(trees, least=2)
    for tree in trees:
        said = vocabulary.said([*vocabulary.target(tree), 2, 0, 0])
        assert said == linearised(tree)
        assert restored(said, list(tree.leaves())) == (tree, True)


def test_a_label_that_was_never_seen_is_refused():
    vocabulary = ParserVocabulary.fit([read_tree(JOHN)], least=1)
    with pytest.raises(KeyError, match="PP"):
        vocabulary.target(read_tree("(PP (IN in))"))


@pytest.mark.parametrize("seed", range(20))
def test_one_token_changed_is_no_tree(seed):
    draw = random.Random(seed)
    tree = random_tree(draw)
    tokens = linearised(tree)
    others = sorted({*tokens, "XX", "(S", ")S", "(new", ")new"})
    for place, token in enumerate(tokens):
        other = draw.choice([o for o in others if o != token])
        changed = [*tokens[:place], other, *tokens[place + 1 :]]
        assert not restored(changed, list(tree.leaves()))[1]
