"""The tokenizer of MarianMT models against that of `transformers`."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from transformer.data.text import help_en_de
from transformer.pretrained import marian
from transformer.pretrained.sentence_pieces import SentencePieces
from transformer.translation import translate

from .marian_models import make_marian, write_tokenizer

pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed (extra: dev)"
)
LANGUAGES = (">>deu<<", ">>nld<<")
ODD = [
    "",
    " ",
    "  two  blanks ",
    "tab\tand\nline",
    "fullwidth \uff21\uff22, ligature ﬁ, ½, 10²",
    "cafe\u0301 and café",
    "emoji 🙂 and 漢字 and \u200b nothing",
    ">>deu<< The file is open.",
    ">>deu<<The file",
    ">>xyz<< an unknown language",
    "not in front >>deu<< here",
    ">> not closed",
    "▁ the mark itself",
    "<s> is no special piece here",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    write_tokenizer(folder, help_en_de("train")[:1500], languages=LANGUAGES)
    return folder


@pytest.fixture(scope="module")
def ours(folder):
    return SentencePieces.load(folder)


@pytest.fixture(scope="module")
def theirs(folder):
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    with pytest.warns(UserWarning, match="sacremoses"):
        return transformers.MarianTokenizer(*files)


@pytest.mark.filterwarnings("ignore:Recommended")
def test_ids_and_texts_are_those_of_transformers(ours, theirs):
    texts = [english for english, _ in help_en_de("test")] + ODD
    expected = [ids[:-1] for ids in theirs(texts)["input_ids"]]
    assert ours.encode(texts) == expected
    assert any(1 in ids for ids in expected)  # unknown pieces occur
    for ids in expected:
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    german = [text for _, text in help_en_de("test")]
    expected = [ids[:-1] for ids in theirs(text_target=german)["input_ids"]]
    assert ours.encode_target(german) == expected
    for ids in expected[:200]:
        whole = [theirs.pad_token_id, *ids, 0, theirs.pad_token_id]
        text = theirs.decode(whole, skip_special_tokens=True)
        assert ours.decode(whole) == text
    assert ours.vocab_size == len(theirs)


def test_special_pieces_in_a_text_are_plain_characters(ours, theirs):
    """Where transformers sees the end of the sentence."""
    text = "the end </s> comes"
    assert 0 in theirs(text)["input_ids"][:-1]
    assert 0 not in ours.encode([text])[0]


def test_languages_are_pieces_in_front(ours):
    assert ours.languages == list(LANGUAGES)
    assert ours.encode([">>nld<< Save"])[0][0] == ours.vocabulary[">>nld<<"]
    assert ours.pieces(">>nld<< Save")[0] == ">>nld<<"


def test_decoding_stops_at_the_end_and_leaves_special_pieces_out(ours):
    ids = ours.encode_target(["Die Datei"])[0]
    pad = ours.vocabulary["<pad>"]
    assert ours.decode([pad, *ids, 1, 0, *ids, pad]) == "Die Datei"
    assert ours.decode([]) == ""


def test_two_vocabularies(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    words = json.loads((tmp_path / "vocab.json").read_text("utf-8"))
    other = dict(zip(words, reversed(words.values()), strict=True))
    (tmp_path / "target_vocab.json").write_text(json.dumps(other), "utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"separate_vocabs": true}')
    both = SentencePieces.load(tmp_path)
    one = SentencePieces.load(folder)
    text = ["Die Datei ist offen."]
    assert both.encode(text) == one.encode(text)
    assert both.encode_target(text)[0] == [
        len(words) - 1 - i for i in one.encode_target(text)[0]
    ]
    assert both.decode(both.encode_target(text)[0]) == text[0]


def test_files_that_are_missing_or_broken_are_named(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "vocab.json").write_text('{"</s>": 0, "<unk>": 1}')
    with pytest.raises(ValueError, match=r"vocab\.json: <pad> is missing"):
        SentencePieces.load(tmp_path)
    (tmp_path / "vocab.json").write_text("{")
    with pytest.raises(ValueError, match=r"vocab\.json: no JSON"):
        SentencePieces.load(tmp_path)
    (tmp_path / "target.spm").write_bytes(b"no model")
    with pytest.raises(ValueError, match=r"target\.spm: no SentencePiece model"):
        SentencePieces.load(tmp_path)
    (tmp_path / "source.spm").unlink()
    with pytest.raises(OSError, match=r"source\.spm"):
        SentencePieces.load(tmp_path)


def test_without_sentencepiece_it_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ImportError, match="pip install sentencepiece"):
        SentencePieces.load(folder)


@pytest.mark.filterwarnings("ignore:Recommended")
def test_sentences_are_translated_as_by_transformers(folder, tmp_path, ours, theirs):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    teacher = make_marian(tmp_path, vocab_size=ours.vocab_size)
    model, tokenizer = marian.load(tmp_path)
    texts = ["Save the file.", "Click the tab.", "Choose Insert and then Table."]
    batch = theirs(texts, return_tensors="pt", padding=True)
    # One length for all: no hypothesis may end before the others.
    model.output_projection.bias.data[0] = -torch.inf
    teacher.final_logits_bias[0, 0] = -torch.inf
    longest = batch["input_ids"].size(1) + 5
    output = teacher.generate(
        **batch, num_beams=1, max_new_tokens=longest, forced_eos_token_id=None
    )
    expected = theirs.batch_decode(output, skip_special_tokens=True)
    found = translate(model, tokenizer, texts, beam_size=1, max_extra=longest)
    for one, other in zip(found, expected, strict=True):
        assert one.startswith(other) or other.startswith(one)
        assert len(one) > 20
