"""MarianMT models in our code, and ours in `transformers`.

Measured: logits equal to the bit, or within 2e-6 where the embeddings are
not scaled; float32, logits of size 1.
"""

from __future__ import annotations

import dataclasses
import json
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

from transformer import Transformer, TransformerConfig, beam_search, greedy_decode
from transformer.pretrained import hub, marian

from .hub_server import hub as serve
from .making import largest_difference, make_model
from .marian_models import OPUS, make_marian, random_pairs

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed (extra: dev)"
)

# Which weights are shared, and whether embeddings are scaled.
KINDS = {
    "as published": {},
    "not scaled": dict(scale_embedding=False, activation_function="gelu"),
    "own output": dict(tie_word_embeddings=False),
    "two vocabularies": dict(
        share_encoder_decoder_embeddings=False,
        decoder_vocab_size=70,
        activation_function="relu",
    ),
    "nothing shared": dict(
        share_encoder_decoder_embeddings=False,
        decoder_vocab_size=70,
        tie_word_embeddings=False,
        scale_embedding=False,
    ),
}


def logits_of(theirs, source, target_in):
    with torch.no_grad():
        return theirs(
            input_ids=source,
            attention_mask=(source != theirs.config.pad_token_id).long(),
            decoder_input_ids=target_in,
        ).logits


def generate(theirs, source, **options):
    """Their output without the start token; no EOS is forced at the end."""
    mask = (source != theirs.config.pad_token_id).long()
    options = dict(do_sample=False, forced_eos_token_id=None) | options
    return theirs.generate(input_ids=source, attention_mask=mask, **options)[:, 1:]


def difference(ours, theirs, source, target_in):
    """The largest of the logits, at positions that are not padding."""
    real = target_in != ours.config.pad_id
    real[:, 0] = True
    with torch.no_grad():
        own = ours(source, target_in)[real]
    return largest_difference(own, logits_of(theirs, source, target_in)[real])


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_marian_gives_the_same_logits_in_our_code(kind, tmp_path, generator):
    theirs = make_marian(tmp_path, **KINDS[kind])
    ours = Transformer.from_marian(tmp_path)
    source, target_in = random_pairs(generator, 60)
    assert difference(ours, theirs, source, target_in) <= 1e-5
    assert not ours.training
    assert ours.config.tied == (kind == "as published")


@pytest.mark.slow
def test_logits_and_greedy_output_at_the_published_size(tmp_path, generator):
    theirs = make_marian(tmp_path, size=OPUS)
    ours = Transformer.from_marian(str(tmp_path))
    source, target_in = random_pairs(generator, 58101)
    assert difference(ours, theirs, source, target_in) <= 1e-5
    output = greedy_decode(ours, source, max_length=6)
    assert torch.equal(output, generate(theirs, source, max_new_tokens=6))


@pytest.mark.parametrize("seed", range(2))
def test_greedy_output_is_the_same(seed, tmp_path, generator):
    theirs = make_marian(tmp_path, seed=seed)
    theirs.final_logits_bias[0, 0] = 1.5  # some sentences end early
    theirs.save_pretrained(tmp_path)
    ours = Transformer.from_marian(tmp_path)
    source, _ = random_pairs(generator, 60, size=6)
    expected = generate(theirs, source, num_beams=1, max_new_tokens=20)
    assert torch.equal(greedy_decode(ours, source, max_length=20), expected)


@pytest.mark.parametrize("seed", range(2))
def test_beam_4_output_and_scores_are_the_same(seed, tmp_path, generator):
    """Without length penalties, which differ, and all outputs of one length."""
    theirs = make_marian(tmp_path, seed=seed)
    theirs.final_logits_bias[0, 0] = -1e4
    theirs.save_pretrained(tmp_path)
    ours = Transformer.from_marian(tmp_path)
    source, _ = random_pairs(generator, 60, size=6)
    mask = (source != 59).long()
    expected = theirs.generate(
        input_ids=source,
        attention_mask=mask,
        num_beams=4,
        num_return_sequences=4,
        length_penalty=0.0,
        max_new_tokens=15,
        do_sample=False,
        forced_eos_token_id=None,
        output_scores=True,
        return_dict_in_generate=True,
    )
    found = beam_search(ours, source, beam_size=4, alpha=0.0, max_length=15, n_best=4)
    hypotheses = [one for best in found for one in best]
    assert [one.ids for one in hypotheses] == expected.sequences[:, 1:].tolist()
    scores = torch.tensor([one.score for one in hypotheses])
    assert torch.allclose(scores, expected.sequences_scores, atol=1e-4)


def test_the_length_penalties_differ_by_definition(tmp_path, generator):
    """Theirs is log p / n^penalty, ours log p / ((5 + n) / 6)^alpha."""
    theirs = make_marian(tmp_path)
    theirs.final_logits_bias[0, 0] = -1e4
    theirs.save_pretrained(tmp_path)
    ours = Transformer.from_marian(tmp_path)
    source, _ = random_pairs(generator, 60)
    expected = theirs.generate(
        input_ids=source,
        attention_mask=(source != 59).long(),
        num_beams=4,
        length_penalty=0.6,
        max_new_tokens=9,
        do_sample=False,
        forced_eos_token_id=None,
        output_scores=True,
        return_dict_in_generate=True,
    )
    found = beam_search(ours, source, alpha=0.6, max_length=9)
    for (one,), score in zip(found, expected.sequences_scores, strict=True):
        assert one.score == pytest.approx(one.log_probability / (14 / 6) ** 0.6)
        assert score.item() == pytest.approx(one.log_probability / 9**0.6, rel=1e-4)


def test_padding_is_never_said_though_it_is_the_likeliest(tmp_path, generator):
    theirs = make_marian(tmp_path)
    theirs.final_logits_bias[0, 59] = 50.0
    theirs.save_pretrained(tmp_path)
    ours = Transformer.from_marian(tmp_path)
    source, target_in = random_pairs(generator, 60)
    assert difference(ours, theirs, source, target_in) <= 1e-5
    with torch.no_grad():
        assert (ours(source, target_in).argmax(-1) == 59).all()
    output = greedy_decode(ours, source, max_length=10)
    assert (output[:, 0] != 59).all()
    assert torch.equal(output, generate(theirs, source, max_new_tokens=10))


def test_the_configuration_is_the_papers_but_for_what_marian_changes(tmp_path):
    fields = marian.DEFAULTS | OPUS | dict(model_type="marian")
    config = marian.configuration(fields, {})
    base = TransformerConfig.base(58101)
    ours, papers = dataclasses.asdict(config), dataclasses.asdict(base)
    changed = {name for name in ours if ours[name] != papers[name]}
    assert changed == {
        "pad_id",
        "eos_id",
        "start_id",
        "max_length",
        "layer_norm_eps",
        "attention_bias",
        "activation",
        "sinusoid_layout",
        "output_bias",
    }
    assert config.banned_ids == [58100]


# --- files --------------------------------------------------------------------


def tensors(folder):
    return load_file(folder / "model.safetensors")


def same(one: Transformer, other: Transformer) -> bool:
    own, others = one.state_dict(), other.state_dict()
    return one.config == other.config and all(
        torch.equal(own[name], others[name]) for name in own
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small model's folder; copy it before changing it."""
    folder = tmp_path_factory.mktemp("marian")
    make_marian(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    for file in saved.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def edit(folder, name="config.json", **changes):
    path = folder / name
    fields = json.loads(path.read_text())
    for key, value in changes.items():
        fields[key] = value
        if value is ...:
            del fields[key]
    path.write_text(json.dumps(fields))


def test_torchs_own_format_gives_the_same_model(folder):
    model = marian.load_model(folder)
    (folder / "model.safetensors").rename(folder / "other")
    state = make_marian().state_dict()  # with every alias, and the positions
    assert "model.encoder.embed_positions.weight" in state
    torch.save(state, folder / "pytorch_model.bin")
    assert same(marian.load_model(folder), model)


class Planted:
    ran = False

    def __reduce__(self):
        return setattr, (Planted, "ran", True)


def test_nothing_but_tensors_is_unpickled(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"model.shared.weight": Planted()}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="holds more than tensors"):
        marian.load_model(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Planted(), protocol=2))
    with pytest.raises(ValueError, match="holds more than tensors"):
        marian.load_model(folder)
    torch.save([1, 2], folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="no dictionary of tensors"):
        marian.load_model(folder)
    assert not Planted.ran


def test_half_precision_is_read_as_float32(folder):
    halves = {name: tensor.half() for name, tensor in tensors(folder).items()}
    whole = marian.load_model(folder)
    save_file(halves, folder / "model.safetensors", {"format": "pt"})
    model = marian.load_model(folder)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    for one, other in zip(model.parameters(), whole.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-4)


def test_generation_settings_in_an_old_config_are_read(folder):
    (folder / "generation_config.json").unlink()
    edit(folder, bad_words_ids=[[59]], num_beams=4, bos_token_id=0, min_length=0)
    edit(folder, normalize_before=False, static_position_embeddings=True)
    assert marian.load_model(folder).config.banned_ids == [59]


REFUSED = {
    "model_type": "bart",
    "normalize_before": True,
    "normalize_embedding": True,
    "add_final_layer_norm": True,
    "static_position_embeddings": False,
    "decoder_layers": 1,
    "decoder_ffn_dim": 64,
    "decoder_attention_heads": 8,
    "encoder_layerdrop": 0.1,
    "activation_function": "gelu_new",
    "decoder_start_token_id": None,
    "pad_token_id": 60,
    "eos_token_id": [0, 1],
    "bad_words_ids": [[59], [7]],
    "no_repeat_ngram_size": 3,
    "d_model": ...,
    "encoder_layers": ...,
}


@pytest.mark.parametrize("field", REFUSED)
def test_a_field_that_we_cannot_match_is_named(field, folder):
    (folder / "generation_config.json").unlink()
    edit(folder, **{field: REFUSED[field]})
    with pytest.raises(ValueError, match=field) as refusal:
        marian.load_model(folder)
    assert str(folder) in str(refusal.value)


def test_a_field_of_the_generation_config_counts_too(folder):
    edit(folder, "generation_config.json", repetition_penalty=1.2)
    with pytest.raises(ValueError, match=r"repetition_penalty=1\.2"):
        marian.load_model(folder)


def test_tensors_that_do_not_fit_are_named(folder):
    state = tensors(folder)
    name = "model.decoder.layers.1.encoder_attn.k_proj.weight"
    file = folder / "model.safetensors"

    def refused(changed, match):
        save_file(changed, file, {"format": "pt"})
        with pytest.raises(ValueError, match=match):
            marian.load_model(folder)

    refused({key: state[key] for key in state if key != name}, f"{name} is missing")
    refused(state | {"model.other": torch.zeros(1)}, r"not part of .*: model\.other")
    refused(state | {name: torch.zeros(3, 3)}, "size mismatch")
    positions = {marian.POSITIONS[0]: torch.zeros(64, 32)}
    refused(state | positions, "embed_positions")
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        marian.load_model(folder)
    file.unlink()
    with pytest.raises(OSError, match=r"neither model\.safetensors nor pytorch"):
        marian.load_model(folder)


# --- ours, saved ---------------------------------------------------------------

THEIRS = dict(layer_norm_eps=1e-5, max_length=32)
OURS = {
    "the paper's": {},
    "published spacing": dict(sinusoid_spacing="published"),
    "concatenated": dict(sinusoid_layout="concatenated", activation="gelu"),
    "all biases": dict(attention_bias=True, output_bias=True),
    "untied": dict(tied=False, target_vocab_size=17, output_bias=True),
    "starts with PAD": dict(start_id=0),
}


@pytest.mark.parametrize("kind", OURS)
def test_a_saved_model_of_ours_gives_the_same_logits_in_theirs_and_back(
    kind, tmp_path, generator
):
    ours = make_model(dtype=torch.float32, **THEIRS, **OURS[kind])
    marian.save(ours, tmp_path)
    back = marian.load_model(tmp_path)
    marian.save(back, tmp_path / "again")
    assert same(marian.load_model(tmp_path / "again"), back)
    assert back.config.banned_ids == ours.config.banned_ids
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path).eval()
    source = torch.randint(3, 13, (3, 8), generator=generator)
    source[1, 4:] = 0
    target_in = torch.randint(3, 13, (3, 6), generator=generator)
    assert difference(ours, theirs, source, target_in) <= 1e-5
    assert difference(back, theirs, source, target_in) <= 1e-5
    output = greedy_decode(ours, source, max_length=12)
    assert torch.equal(output, generate(theirs, source, max_new_tokens=12))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (dict(norm="pre"), "norm='pre'"),
        (dict(layer_norm_eps=1e-6), "layer_norm_eps=1e-06"),
        (dict(positions="learned"), "positions='learned'"),
        (dict(d_v=8), "d_v=8"),
    ],
)
def test_what_marian_does_not_have_is_refused(changes, named, tmp_path):
    model = make_model(**(THEIRS | changes))
    with pytest.raises(ValueError, match=named):
        marian.save(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


# --- by name -------------------------------------------------------------------


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """An empty cache, and an address where nobody answers."""
    from huggingface_hub import constants

    def point_at(url):
        monkeypatch.setattr(constants, "ENDPOINT", url)
        template = url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    point_at("http://127.0.0.1:9")
    return point_at


def test_by_name_it_is_fetched_once_and_then_found(no_hub, saved):
    with serve("Some/marian", saved) as url:
        no_hub(url)
        fetched = marian.load_model("Some/marian")
    assert same(fetched, marian.load_model(saved))
    no_hub("http://127.0.0.1:9")
    assert same(marian.load_model("Some/marian"), fetched)


def test_by_name_torchs_own_format_is_taken_where_there_is_no_other(
    no_hub, saved, folder
):
    (folder / "model.safetensors").unlink()
    torch.save(make_marian().state_dict(), folder / "pytorch_model.bin")
    with serve("Some/marian", folder) as url:
        no_hub(url)
        assert same(marian.load_model("Some/marian"), marian.load_model(saved))


def test_without_a_network_it_says_what_to_do(no_hub):
    with pytest.raises(hub.NotHere) as failed:
        marian.load("Helsinki-NLP/opus-mt-en-de")
    text = str(failed.value)
    assert "Helsinki-NLP/opus-mt-en-de is no folder here" in text
    assert "hf download Helsinki-NLP/opus-mt-en-de --local-dir FOLDER" in text
    with pytest.raises(OSError, match="no name of the form"):
        marian.load("no such folder")
