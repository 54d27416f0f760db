"""Byte-pair encoding through the library, and what it must not do."""

from __future__ import annotations

import json

import pytest

from transformer.config import BOS, EOS, PAD
from transformer.data.tokenizer import SPECIAL, UNKNOWN, BytePairEncoding

TEXTS = [
    "Save the file, then close it.",
    "Speichern Sie die Datei und schließen Sie sie.",
    "The file is open.",
    "Die Datei ist geöffnet.",
] * 3


@pytest.fixture(scope="module")
def tokenizer():
    return BytePairEncoding.fit(TEXTS, 80)


@pytest.mark.parametrize("text", [*TEXTS[:4], "file, file", "fi le  fi"])
def test_what_is_encoded_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode([text])[0]) == text


def test_special_pieces_have_their_ids(tokenizer):
    assert SPECIAL == {PAD: "<pad>", BOS: "<s>", EOS: "</s>", UNKNOWN: "<unk>"}
    (ids,) = tokenizer.encode(["The file"])
    assert min(ids) > max(SPECIAL)


@pytest.mark.parametrize("piece", ["<pad>", "<s>", "</s>"])
def test_special_pieces_in_a_text_are_characters(tokenizer, tmp_path, piece):
    tokenizer.save(tmp_path / "t.json")
    for one in (tokenizer, BytePairEncoding.load(tmp_path / "t.json")):
        (ids,) = one.encode([f"the {piece} file"])
        assert not {PAD, BOS, EOS} & set(ids)


def test_a_character_that_was_never_seen_is_unknown(tokenizer):
    (ids,) = tokenizer.encode(["the Ω"])
    assert UNKNOWN in ids
    assert tokenizer.decode(ids) == "the "


def test_decoding_ends_at_eos(tokenizer):
    (ids,) = tokenizer.encode(["the file"])
    assert tokenizer.decode([BOS, *ids, EOS, PAD, *ids]) == "the file"


def test_an_empty_text_has_no_ids(tokenizer):
    assert tokenizer.encode([""]) == [[]]
    assert tokenizer.decode([]) == ""


def test_two_ways_to_write_an_umlaut_are_one(tokenizer):
    composed, apart = tokenizer.encode(["geöffnet", "geo\u0308ffnet"])
    assert composed == apart


def test_saved_and_loaded_it_is_the_same(tokenizer, tmp_path):
    path = tmp_path / "t.json"
    tokenizer.save(path)
    loaded = BytePairEncoding.load(path)
    assert loaded.encode(TEXTS) == tokenizer.encode(TEXTS)
    assert loaded.vocab_size == tokenizer.vocab_size
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_the_same_text_gives_the_same_merges(tokenizer, tmp_path):
    again = BytePairEncoding.fit(iter(TEXTS), 80)
    for name, one in (("a", tokenizer), ("b", again)):
        one.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_frequent_pairs_are_merged_first():
    # "ab" is the most frequent pair, and no other pair is left then.
    tokenizer = BytePairEncoding.fit(["ab ab ab ac"], 10)
    assert tokenizer.pieces("ab") in (["▁ab"], ["▁", "ab"], ["▁a", "b"])
    assert len(tokenizer.pieces("abab")) < len("▁abab")


def test_no_text():
    with pytest.raises(ValueError, match="no text"):
        BytePairEncoding.fit([], 100)


def test_a_vocabulary_too_small_for_the_characters():
    with pytest.raises(ValueError, match="vocab_size=6 is too small"):
        BytePairEncoding.fit(TEXTS, 6)


@pytest.mark.parametrize("content", ["", "{}", "[1]", "no json"])
def test_a_file_that_is_no_tokenizer(tmp_path, content):
    path = tmp_path / "t.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"t\.json: no tokenizer"):
        BytePairEncoding.load(path)


def test_a_tokenizer_with_other_special_ids(tokenizer, tmp_path):
    path = tmp_path / "t.json"
    tokenizer.save(path)
    spec = json.loads(path.read_text())
    for token in spec["added_tokens"]:
        token["content"] = token["content"].replace("<s>", "<bos>")
    vocabulary = spec["model"]["vocab"]
    vocabulary["<bos>"] = vocabulary.pop("<s>")
    path.write_text(json.dumps(spec))
    with pytest.raises(ValueError, match="<s> must have id 1"):
        BytePairEncoding.load(path)
