"""Sentences in, sentences out: order, batches, limits, scores."""

from __future__ import annotations

import pytest
import sacrebleu
import torch

from transformer import EOS, Transformer, TransformerConfig, beam_search, greedy_decode
from transformer.data.tokenizer import BytePairEncoding
from transformer.translation import bleu, chrf, search, translate

SENTENCES = [
    "Open the file and save it.",
    "Close.",
    "Save the page as a file.",
    "Open it.",
]
SAID = ["Öffnen Sie die Datei.", "Sichern Sie die Seite."]
REFERENCES = ["Öffnen Sie eine Datei.", "Speichern Sie die Seite."]


@pytest.fixture(scope="module")
def tokenizer():
    return BytePairEncoding.fit(SENTENCES + REFERENCES, 80)


@pytest.fixture(scope="module")
def model(tokenizer):
    with torch.random.fork_rng():
        torch.manual_seed(2)
        shape = dict(layers=1, d_model=16, max_length=24, output_bias=True)
        model = Transformer(TransformerConfig.tiny(tokenizer.vocab_size, **shape))
    return model.double().eval()


def alone(model, tokenizer, sentence, **options):
    ids = torch.tensor([[*tokenizer.encode([sentence])[0], EOS]])
    return beam_search(model, ids, **options)[0]


def test_each_sentence_gets_its_own_translation_in_its_place(model, tokenizer):
    options = dict(beam_size=2, max_extra=2)
    expected = [
        tokenizer.decode(alone(model, tokenizer, s, **options)[0].ids)
        for s in SENTENCES
    ]
    assert len(set(expected)) == len(SENTENCES)
    for batch_size in (1, 2, 64):
        found = translate(model, tokenizer, SENTENCES, batch_size=batch_size, **options)
        assert found == expected


def test_a_beam_of_one_says_what_greedy_decoding_says(model, tokenizer):
    ids = torch.tensor([[*tokenizer.encode(SENTENCES[:1])[0], EOS]])
    greedy = greedy_decode(model, ids, max_length=ids.size(1) + 3)
    (said,) = translate(model, tokenizer, SENTENCES[:1], beam_size=1, max_extra=3)
    assert said == tokenizer.decode(greedy[0].tolist())


def test_search_gives_the_hypotheses_with_their_scores(model, tokenizer):
    options = dict(beam_size=3, n_best=3, max_extra=1)
    found = search(model, tokenizer, SENTENCES, **options)
    for sentence, hypotheses in zip(SENTENCES, found, strict=True):
        expected = alone(model, tokenizer, sentence, **options)
        assert [h.ids for h in hypotheses] == [h.ids for h in expected]
        assert hypotheses[0].score == pytest.approx(expected[0].score, abs=1e-10)


def test_a_source_that_is_too_long_keeps_its_eos(model, tokenizer, monkeypatch):
    sources = []
    encode = model.encode
    monkeypatch.setattr(
        model,
        "encode",
        lambda source, mask: sources.append(source) or encode(source, mask),
    )
    translate(model, tokenizer, ["Open it. " * 20], beam_size=1, max_extra=0)
    assert sources[0].shape == (1, 24)
    assert sources[0][0, -1] == EOS


def test_no_sentences_give_no_translations(model, tokenizer):
    assert translate(model, tokenizer, []) == []


def test_scores_are_sacrebleus_with_their_signatures():
    one, other = bleu(SAID, REFERENCES), chrf(SAID, REFERENCES)
    assert one.score == pytest.approx(sacrebleu.corpus_bleu(SAID, [REFERENCES]).score)
    assert other.score == pytest.approx(sacrebleu.corpus_chrf(SAID, [REFERENCES]).score)
    assert (one.name, other.name) == ("BLEU", "chrF2")
    version = f"version:{sacrebleu.__version__}"
    assert one.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}"
    assert str(other) == f"chrF2 {other.score:.1f} ({other.signature})"


@pytest.mark.parametrize("score", [bleu, chrf])
@pytest.mark.parametrize("wrong", [[], SAID[:1]])
def test_a_score_needs_a_translation_for_each_reference(score, wrong):
    with pytest.raises(ValueError, match="one for each"):
        score(wrong, REFERENCES)


def test_bleu_is_the_chapters_geometric_mean():
    said = ["Klicken Sie auf die Taste."]
    found = bleu(said, ["Klicken Sie auf die Schaltfläche."])
    by_hand = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert found.score == pytest.approx(by_hand)
