"""Appendix A3: each difference is one, and the method of Figures 3 to 5.

What the notebook does with a fetched model is done here with a random one.
"""

from __future__ import annotations

import pytest
import torch
from tests.transformer.marian_models import make_marian, write_tokenizer

from bookkit import parity
from transformer import Transformer, TransformerConfig
from transformer.data.text import help_en_de
from transformer.pretrained import framework, marian
from transformer.pretrained.sentence_pieces import SentencePieces


@pytest.fixture(scope="module")
def model():
    return parity.marian_like(0)


@pytest.fixture(scope="module")
def effects(model):
    return parity.effects(model, *parity.batch(0, model.config))


def test_each_difference_changes_the_logits(model, effects):
    assert set(effects) == {*parity.changes(model.config), "start token"}
    assert len(effects) == 11
    assert all(effect.logits > 1e-6 for effect in effects.values())
    sizes = [effect.logits for effect in effects.values()]
    assert sizes == sorted(sizes)


def test_what_the_chapter_says_of_random_weights(effects):
    names = list(effects)
    assert names[0] == "epsilon of the norms"
    assert effects[names[0]].logits < 1e-4
    assert effects[names[0]].tokens == 0
    assert max(names, key=lambda name: effects[name].tokens) == names[-1]
    assert names[-1] == "place of the norms"
    assert effects["start token"].tokens == pytest.approx(2 / 48)
    assert effects["padding mask"].logits > effects["activation"].logits


def test_a_wrong_start_token_matters_less_and_less(model):
    source, target_in = parity.batch(0, model.config)
    other = model(source, parity.starts_with(target_in, model.config.bos_id))
    moved = (other - model(source, target_in)).abs().amax(-1).mean(0)
    assert (moved.diff() < 0).all()


def test_the_paper_s_model_is_spoiled_the_other_way_round():
    paper = Transformer(TransformerConfig.tiny())
    changed = {
        name: c(paper).config for name, c in parity.changes(paper.config).items()
    }
    assert changed["epsilon of the norms"].layer_norm_eps == 1e-5
    assert changed["order of the sines"].sinusoid_layout == "concatenated"
    assert changed["activation"].activation == "swish"
    assert not {"biases of attention", "output bias"} & set(changed)


def test_padding_of_the_target_does_not_count(model):
    source, target_in = parity.batch(0, model.config)
    padded = torch.cat([target_in, target_in.new_full((4, 5), model.config.pad_id)], 1)
    shorter, longer = (parity.effects(model, source, x) for x in (target_in, padded))
    assert list(shorter) == list(longer)
    for name, effect in shorter.items():
        assert longer[name].logits == pytest.approx(effect.logits, abs=1e-12)
        assert longer[name].tokens == effect.tokens


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_last_norm_shows_only_where_gains_and_biases_have_moved():
    for moved, (least, most) in {True: (0.1, 10), False: (0, 1e-4)}.items():
        model = parity.marian_like(0, moved=moved)
        batch = parity.batch(0, model.config)
        core = parity.final_norms(framework.to_framework(model))
        through = framework.logits_through(core, model, *batch)
        assert least < parity.furthest(model(*batch), through) < most
        own = parity.final_norms(model)(*batch)
        assert parity.furthest(own, through) < 1e-12


def test_the_trained_model_is_spoiled_as_the_chapter_says(effects):
    found = parity.trained_effects()
    assert set(effects) - set(found) == {"biases of attention", "output bias"}
    assert found["epsilon of the norms"].tokens == 0
    assert 1e-5 < found["epsilon of the norms"].logits < 1e-3
    assert found["spacing of the sines"].tokens < 0.02
    for name, effect in found.items():
        assert effect.logits > effects[name].logits, name
    most = max(found, key=lambda name: found[name].tokens)
    assert most == "scale of the embeddings"
    stacks, start = "norms after the stacks", "start token"
    assert effects[stacks].tokens < 0.4 and found[stacks].tokens > 0.6
    assert effects[start].tokens < 0.05
    assert found[start].tokens == pytest.approx(1 / 6, abs=0.03)


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
    others = [i for i in range(len(words) + 1) if i != row]
    expected = looks.weights[:, :, others][..., columns].sum(-1).mean(-1)
    assert torch.allclose(looks.others, expected)
    assert looks.even == pytest.approx(len(columns) / (len(words) + 1))
    assert f"head {layer + 1}.{head + 1} gives the most" in str(looks)


def test_a_word_that_is_not_there_is_named(model):
    question = parity.Question("Figure", "a b", "a", ("c",))
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
    looks = parity.control_and(general)
    assert list(looks) == [parity.FIGURE_3, parity.FIGURE_4]
    for models in looks.values():
        (found,) = models[parity.TRAINED]
        assert found.weights.shape[:2] == (2, 4)
        assert len(found.tokens) == found.weights.size(-1)
        sums = found.weights.sum(-1)
        assert torch.allclose(sums, torch.ones_like(sums), atol=1e-5)
    assert f"untrained, {parity.TRAINED}" in parity.looks_figure(looks).alt
    assert capsys.readouterr().out.count("gives the most") == 2
    shown = parity.all_heads(looks)
    assert "explorer" in shown.html and "▁The" in shown.html


def test_without_a_model_from_outside_nothing_is_shown(capsys):
    assert parity.first_words(None) == parity.NONE_HERE
    looks = parity.control_and(None)
    assert all(list(models) == ["untrained"] for models in looks.values())
    said = capsys.readouterr().out
    assert said.count("the best of 48 heads gives") == 2
    assert parity.all_heads(looks) is None
    assert capsys.readouterr().out.strip() == parity.NONE_HERE
    assert "Figure 4: its → Law" in parity.looks_figure(looks).alt


def test_the_control_depends_on_the_seed():
    """So one seed is no control, and the chapter shows the spread of five."""
    for question in parity.QUESTIONS:
        best = [parity.untrained_looks(question, s).shares.max() for s in parity.SEEDS]
        even = parity.untrained_looks(question, 0).even
        assert min(best) > 2 * even
        assert max(best) > 2 * min(best)


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


def unwritten(matrix):
    raise NotImplementedError("yours goes here")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (unwritten, "to do: yours goes here"),
        (lambda m: None, "nothing came back: is there a return?"),
        (lambda m: m.split(3), "8 matrices came back; three are needed"),
        (lambda m: m.chunk(3), "query: right, key: right, value: right"),
        (lambda m: m.view(3, 8, 8), "query: right, key: right, value: right"),
        (
            lambda m: m.chunk(3)[::-1],
            "query: that is the value, key: right, value: that is the query",
        ),
        (
            lambda m: m.view(8, 3, 8).unbind(1),
            ", ".join(f"{n}: rows of several" for n in ("query", "key", "value")),
        ),
        (
            lambda m: m.chunk(3, dim=1),
            "query: (24, 3), but (8, 8) is needed, key: (24, 3), but (8, 8) is"
            " needed, value: (24, 2), but (8, 8) is needed",
        ),
    ],
)
def test_the_exercise_says_what_it_finds(function, said):
    assert parity.three_of_one(function) == said


def test_a_call_that_is_not_refused_is_a_failure():
    assert parity.refusal(int, "x").startswith("invalid literal")
    with pytest.raises(AssertionError, match="not refused"):
        parity.refusal(int, "1")


def test_effects_are_shown_in_one_order(effects):
    fewer = dict(list(effects.items())[::-1])
    del fewer["output bias"]
    models = {"one": effects, "other": fewer}
    alt = parity.effects_figure(models).alt
    assert alt.index("epsilon") < alt.index("padding") < alt.index("place of the norms")
    header, *rows = parity.effects_table(models).splitlines()
    assert header.split() == ["not", "matched", "one", "other"]
    assert [row[:24].strip() for row in rows] == list(effects)
    numbers = {row[:24].strip(): row[24:].split() for row in rows}
    assert [len(said) for said in numbers.values()].count(2) == 1
    assert len(numbers["output bias"]) == 2
    assert all(said[:2] == said[2:] for said in numbers.values() if len(said) > 2)
