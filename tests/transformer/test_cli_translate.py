"""The commands `transformer translate` and `transformer evaluate`."""

from __future__ import annotations

import io
import json
import sys
import types

import pytest
import sacrebleu
import torch

from transformer import Transformer, TransformerConfig, cli, cli_translate
from transformer.checkpoints import save_weights
from transformer.data.text import help_en_de
from transformer.data.tokenizer import BytePairEncoding
from transformer.translation import translate

SENTENCES = ["Open the file.", "Save the page as a file.", "Close it."]
REFERENCES = ["Öffnen Sie die Datei.", "Sichern Sie die Seite.", "Schließen Sie."]


@pytest.fixture(scope="module")
def tokenizer():
    return BytePairEncoding.fit([*SENTENCES, *REFERENCES], 90)


@pytest.fixture(scope="module")
def model(tokenizer):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = TransformerConfig.tiny(tokenizer.vocab_size, layers=1, d_model=16)
        return Transformer(config).eval()


@pytest.fixture
def shipped(model, tokenizer, monkeypatch):
    """The book's model is this small one, and says little."""
    monkeypatch.setattr(cli_translate.pretrained, "load", lambda: (model, tokenizer))
    asked = []

    def noted(model, tokenizer, sentences, **options):
        asked.append((sentences, options))
        return translate(model, tokenizer, sentences, max_extra=3, **options)

    monkeypatch.setattr(cli_translate, "translate", noted)
    return asked


@pytest.fixture
def files(tmp_path):
    """A source and a reference, a sentence a line."""
    paths = tmp_path / "source.txt", tmp_path / "reference.txt"
    for path, lines in zip(paths, (SENTENCES, REFERENCES), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return paths


def standard_input(monkeypatch, data: bytes):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_sentence_is_translated_with_beam_4_and_alpha_06(
    shipped, model, tokenizer, capsys
):
    assert cli.main(["translate", SENTENCES[0]]) == 0
    assert shipped == [(SENTENCES[:1], dict(beam_size=4, alpha=0.6))]
    (expected,) = translate(model, tokenizer, SENTENCES[:1], max_extra=3)
    captured = capsys.readouterr()
    assert captured.out == expected + "\n"
    assert captured.err == ""


def test_beam_and_alpha_are_passed_on(shipped):
    cli.main(["translate", "--beam", "2", "--alpha", "1.5", "Open it."])
    assert shipped[0][1] == dict(beam_size=2, alpha=1.5)


def test_a_file_standard_input_and_sentences_may_be_mixed(
    shipped, files, monkeypatch, capsys
):
    standard_input(monkeypatch, "\ufeffClose it.\r\nÖffnen".encode())
    assert cli.main(["translate", str(files[0]), "-", "Save it."]) == 0
    assert shipped[0][0] == [*SENTENCES, "Close it.", "Öffnen", "Save it."]
    assert len(capsys.readouterr().out.splitlines()) == 6


def test_without_text_twelve_sentences_and_a_general_model_are_offered(capsys):
    assert cli.main(["translate"]) == 0
    out = capsys.readouterr().out
    offered = [line for line in out.splitlines() if 'translate "' in line]
    assert len(offered) == 12
    assert "transformer translate --marian Helsinki-NLP/opus-mt-en-de" in out


def test_the_offered_sentences_are_of_the_test_set_and_not_of_the_training():
    offered = set(cli_translate.EXAMPLES)
    assert len(offered) == 12
    assert offered <= {source for source, _ in help_en_de("test")}
    assert not offered & {source for source, _ in help_en_de("train")}


def test_unknown_signs_and_long_sentences_are_warned_of(shipped, capsys):
    long = "the " * 90
    cli.main(["translate", "Open it.", "Open Ω and Ж.", long])
    warnings = capsys.readouterr().err.splitlines()
    assert warnings[:1] == [
        "transformer: warning: sentence 2: never seen in training: Ω Ж"
    ]
    assert "sentence 3: " in warnings[1]
    assert "tokens, but the longest in training had 80" in warnings[1]
    assert "--marian Helsinki-NLP/opus-mt-en-de" in warnings[2]


def test_words_of_another_domain_are_warned_of():
    sentences = ["Save the FILE 2.", "My cat sleeps on the cat's roof."]
    tokenizer = BytePairEncoding.fit(sentences, 80)
    inside, outside = ([*cli_translate.faults(tokenizer, s)] for s in sentences)
    assert inside == []
    assert outside == ["never seen in training: cat sleeps roof"]


def test_few_sentences_of_the_test_set_have_words_that_training_lacks():
    sources = [source for source, _ in help_en_de("test")]
    unseen = [cli_translate.WORD.findall(s.lower()) for s in sources]
    warned = sum(not cli_translate.seen_words().issuperset(u) for u in unseen)
    assert 0 < warned < 0.12 * len(sources)


@pytest.mark.parametrize(("words", "warned"), [(79, False), (80, True)])
def test_eighty_tokens_with_eos_are_within_the_domain(words, warned, tokenizer):
    sentence = " ".join(["the"] * words)
    assert len(tokenizer.encode([sentence])[0]) == words
    assert bool([*cli_translate.faults(tokenizer, sentence)]) == warned


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"Open it.\n\nClose it.\n", ":2: the line is empty"),
        (b"Open it.\n  \n", ":2: the line is empty"),
        (b"Open it.\nOp\xffn\n", ":2: byte 3 is not UTF-8"),
        (b"", "there are no sentences"),
    ],
)
@pytest.mark.parametrize("way", ["file", "-"])
def test_bad_lines_are_named_before_anything_is_translated(
    data, fault, way, shipped, tmp_path, monkeypatch, capsys
):
    path = tmp_path / "bad.txt"
    path.write_bytes(data)
    standard_input(monkeypatch, data)
    assert cli.main(["translate", "-" if way == "-" else str(path)]) == 2
    error = capsys.readouterr().err
    assert fault in error
    if fault.startswith(":"):
        assert ("standard input:2" if way == "-" else "bad.txt:2") in error
    assert shipped == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("missing.txt", "missing.txt: there is no such file"),
        ("folder/of/none", "there is no such file"),
        ("", "a sentence to translate is empty"),
        (" ", "a sentence to translate is empty"),
    ],
)
def test_what_is_neither_a_file_nor_a_sentence_is_an_error(
    text, fault, shipped, capsys
):
    assert cli.main(["translate", text]) == 2
    assert fault in capsys.readouterr().err
    assert shipped == []


@pytest.mark.parametrize("text", ["Stop.", "Open", "a" * 5000 + " b"])
def test_a_word_or_a_long_text_is_a_sentence(text, shipped):
    assert cli.main(["translate", "--beam", "1", text]) == 0
    assert shipped[0][0] == [text]


def test_evaluate_prints_both_scores_with_their_signatures(shipped, files, capsys):
    source, reference = map(str, files)
    arguments = ["--source", source, "--reference", reference, "--beam", "1"]
    assert cli.main(["evaluate", *arguments]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "3 sentences, beam 1, alpha 0.6"
    assert out[1].startswith("BLEU ")
    assert "(nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in out[1]
    assert out[2].startswith("chrF2 ")
    assert "nc:6|nw:0" in out[2]


def test_evaluate_gives_sacrebleus_numbers_as_json(shipped, files, monkeypatch, capsys):
    said = ["Öffnen Sie eine Datei.", "Sie die Seite.", "Schließen"]
    monkeypatch.setattr(cli_translate, "translate", lambda *_, **__: said)
    source, reference = map(str, files)
    arguments = ["--source", source, "--reference", reference, "--json"]
    assert cli.main(["evaluate", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = sacrebleu.corpus_bleu(said, [REFERENCES]).score
    assert found["BLEU"]["score"] == pytest.approx(expected)
    expected = sacrebleu.corpus_chrf(said, [REFERENCES]).score
    assert found["chrF2"]["score"] == pytest.approx(expected)
    assert found["BLEU"]["signature"].startswith("nrefs:1|")
    assert (found["sentences"], found["beam"], found["alpha"]) == (3, 4, 0.6)


def test_without_files_the_test_set_of_the_book_is_taken(shipped, monkeypatch, capsys):
    pairs = help_en_de("test")
    asked = []

    def echo(model, tokenizer, sentences, **options):
        asked.extend(sentences)
        return [reference for _, reference in pairs]

    monkeypatch.setattr(cli_translate, "translate", echo)
    assert cli.main(["evaluate"]) == 0
    assert asked == [source for source, _ in pairs]
    assert "BLEU 100.0" in capsys.readouterr().out


def test_files_of_unequal_length_are_refused(shipped, files, capsys):
    source, reference = files
    reference.write_text("Eins.\nZwei.\n", "utf-8")
    arguments = ["--source", str(source), "--reference", str(reference)]
    assert cli.main(["evaluate", *arguments]) == 2
    assert f"{source}:3: {reference} has no line" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--source", "x"], "--source and --reference go together"),
        (["--source", "no", "--reference", "none"], "No such file"),
        (["--tokenizer", "x"], "--tokenizer is needed with --weights only"),
        (["--weights", "nowhere/x.safetensors"], "No such file"),
        (["--alpha", "-1"], "alpha=-1.0 must be at least 0"),
    ],
)
def test_bad_options_end_with_status_2(arguments, fault, shipped, capsys):
    assert cli.main(["evaluate", *arguments]) == 2
    assert fault in capsys.readouterr().err


def test_weights_of_ones_own_come_with_the_tokenizer_beside_them(
    shipped, model, tokenizer, tmp_path, capsys
):
    save_weights(model, tmp_path / "model.safetensors")
    tokenizer.save(tmp_path / "tokenizer.json")
    cli.main(["translate", "Open Ω."])
    expected = capsys.readouterr()
    assert "warning" in expected.err
    weights = ["--weights", str(tmp_path / "model.safetensors")]
    assert cli.main(["translate", *weights, "Open Ω."]) == 0
    captured = capsys.readouterr()
    assert captured.out == expected.out
    # Of a model of one's own the command does not know the domain.
    assert captured.err == ""
    (tmp_path / "tokenizer.json").rename(tmp_path / "other.json")
    assert cli.main(["translate", *weights, "Open it."]) == 2
    assert "tokenizer.json" in capsys.readouterr().err
    there = ["--tokenizer", str(tmp_path / "other.json")]
    assert cli.main(["translate", *weights, *there, "Open it."]) == 0


def test_a_tokenizer_of_another_vocabulary_is_refused(shipped, model, tmp_path, capsys):
    save_weights(model, tmp_path / "model.safetensors")
    BytePairEncoding.fit(SENTENCES, 60).save(tmp_path / "tokenizer.json")
    weights = ["--weights", str(tmp_path / "model.safetensors")]
    assert cli.main(["translate", *weights, "Open it."]) == 2
    assert "its tokenizer one of" in capsys.readouterr().err


def test_a_marian_model_is_loaded_by_name_or_folder(
    shipped, model, tokenizer, monkeypatch, capsys
):
    names = []

    def load(name):
        names.append(name)
        return model, tokenizer

    module = types.SimpleNamespace(load=load)
    monkeypatch.setitem(sys.modules, "transformer.pretrained.marian", module)
    monkeypatch.setattr(cli_translate.pretrained, "marian", module, raising=False)
    arguments = ["--marian", "Helsinki-NLP/opus-mt-en-de", "Open Ω."]
    assert cli.main(["translate", *arguments]) == 0
    assert names == ["Helsinki-NLP/opus-mt-en-de"]
    assert capsys.readouterr().err == ""
    with pytest.raises(SystemExit):
        cli.main(["translate", "--marian", "a/b", "--weights", "x", "Open."])


@pytest.mark.parametrize("command", ["translate", "evaluate"])
def test_help_names_the_options(command, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([command, "--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    for option in ("--beam", "--alpha", "--weights", "--marian", "--tokenizer"):
        assert option in out
