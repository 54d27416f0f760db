"""Appendix A3: each difference is one, and the method of Figures 3 to 5.

What the notebook does with a fetched model is done here with a random one.
"""

from __future__ import annotations

import pytest
import torch
from tests.transformer.marian_models import make_marian, write_tokenizer

from bookkit import parity
from transformer.data.text import help_en_de
from transformer.pretrained import marian
from transformer.pretrained.sentence_pieces import SentencePieces


@pytest.fixture(scope="module")
def model():
    return parity.marian_like(0)


@pytest.fixture(scope="module")
def effects(model):
    return parity.effects(model, *parity.batch(0, model.config))


def test_each_difference_changes_the_logits(effects):
    assert set(effects) == {*parity.CHANGES, "another start token"}
    assert all(effect.logits > 1e-6 for effect in effects.values())
    sizes = [effect.logits for effect in effects.values()]
    assert sizes == sorted(sizes)


def test_what_the_chapter_says_of_the_smallest_and_the_largest(effects):
    names = list(effects)
    assert names[0] == "norm's epsilon 1e-6"
    assert effects[names[0]].logits < 1e-4
    assert effects[names[0]].tokens == 0
    assert max(names, key=lambda name: effects[name].tokens) == names[-1]
    assert names[-1] == "norm before the sub-layer"


def test_nothing_changed_is_the_same_model(model):
    source, target_in = parity.batch(1, model.config)
    same = parity.changed(model)
    assert torch.equal(same(source, target_in), model(source, target_in))
    untied = parity.changed(model, tied=False)
    assert torch.equal(untied(source, target_in), model(source, target_in))


def test_padding_shows_only_where_there_is_padding(model):
    source, target_in = parity.batch(0, model.config)
    seen = parity.padding_seen(model)
    differs = (seen(source, target_in) - model(source, target_in)).abs().amax((1, 2))
    assert (differs > 1e-3).tolist() == [False, True, True, True]


def test_words_are_put_together_from_pieces():
    pieces = ["▁mak", "ing", "▁it", "▁", "more", "</s>"]
    expected = [("making", [0, 1]), ("it", [2]), ("more", [3, 4]), ("</s>", [5])]
    assert parity.words(pieces) == expected


@pytest.mark.parametrize("question", [parity.FIGURE_3, parity.FIGURE_4])
def test_the_share_of_a_head_is_its_weight_on_the_words(question):
    looks = parity.untrained_looks(question, seed=1)
    words = question.sentence.split()
    row = words.index(question.asking)
    columns = [words.index(word) for word in question.asked]
    expected = looks.weights[:, :, row, columns].sum(-1)
    assert looks.shares.shape == (6, 8)
    assert torch.allclose(looks.shares, expected)
    layer, head = looks.best
    assert looks.shares[layer, head] == looks.shares.max()
    assert looks.even == pytest.approx(2 / (len(words) + 1))
    assert f"head {layer + 1}.{head + 1} gives the most" in str(looks)


def test_a_word_that_is_not_there_is_named(model):
    question = parity.Question("a b", "a", ("c",))
    with pytest.raises(ValueError, match="'c' is not a word"):
        parity.look(model, [3, 4, 0], ["▁a", "▁b", "</s>"], question)


def test_what_the_notebook_does_with_a_model_from_outside(tmp_path, capsys):
    """Its cells with FETCH on, from a folder in the place of the name."""
    pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    paper = [(q.sentence,) * 2 for q in (parity.FIGURE_3, parity.FIGURE_4)]
    write_tokenizer(tmp_path, help_en_de("train")[:400] + 5 * paper, size=200)
    pieces = SentencePieces.load(tmp_path).vocab_size
    make_marian(tmp_path, vocab_size=pieces, max_position_embeddings=200)
    general = marian.load(tmp_path)
    assert isinstance(parity.first_words(general), str)
    for question in (parity.FIGURE_3, parity.FIGURE_4):
        looks = parity.control_and(general, question)
        found = looks[parity.TRAINED]
        assert found.weights.shape[:2] == (2, 4)
        assert len(found.tokens) == found.weights.size(-1)
        sums = found.weights.sum(-1)
        assert torch.allclose(sums, torch.ones_like(sums), atol=1e-5)
        assert f"untrained, {parity.TRAINED}" in parity.look_figure(looks).alt
    assert capsys.readouterr().out.count("gives the most") == 4
    shown = parity.all_heads(looks)
    assert "explorer" in shown.html and "▁The" in shown.html


def test_without_a_model_from_outside_nothing_is_shown(capsys):
    assert parity.first_words(None) == parity.NONE_HERE
    looks = parity.control_and(None, parity.FIGURE_3)
    assert list(looks) == ["untrained"]
    assert parity.all_heads(looks) == parity.NONE_HERE
    assert parity.look_figure(looks).alt
    assert capsys.readouterr().out.startswith("untrained: head")


@pytest.mark.parametrize("seed", range(2))
def test_logits_and_output_are_compared_with_transformers(seed):
    pytest.importorskip("transformers", reason="transformers is not installed")
    ours = parity.marian_like(seed).float()
    batch = parity.batch(seed, ours.config)
    theirs, back = parity.exchange(ours, *batch)
    assert parity.same_output(back, theirs, batch[0]) == {
        "greedy": True,
        "beam 4": True,
    }
    draw = torch.Generator().manual_seed(seed)
    back.output_projection.bias.data += 5 * torch.randn(1000, generator=draw)
    assert not any(parity.same_output(back, theirs, batch[0]).values())
    with pytest.raises(AssertionError):
        parity.exchange(parity.padding_seen(ours), *batch)


def test_the_exercise_knows_right_from_wrong():
    def unwritten(matrix):
        raise NotImplementedError("yours goes here")

    assert parity.three_of_one(unwritten) == "yours goes here"
    assert parity.three_of_one(lambda m: m.chunk(3)).count("right") == 3
    turned = parity.three_of_one(lambda m: m.chunk(3)[::-1])
    assert turned == "query: another matrix, key: right, value: another matrix"


def test_a_call_that_is_not_refused_is_a_failure():
    assert parity.refusal(int, "x").startswith("invalid literal")
    with pytest.raises(AssertionError, match="not refused"):
        parity.refusal(int, "1")


def test_effects_are_drawn_smallest_first(effects):
    alt = parity.effects_figure(effects).alt
    assert alt.index("epsilon") < alt.index("padding") < alt.index("norm before")
