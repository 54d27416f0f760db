"""The model that comes with the book: how it is loaded."""

from __future__ import annotations

import pytest
import torch

from transformer import pretrained
from transformer.checkpoints import save_weights
from transformer.data.tokenizer import BytePairEncoding
from transformer.pretrained import shipped
from transformer.translation import translate

from .making import largest_difference, make_model


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setitem(shipped.SHIPPED, "small", "folder")
    monkeypatch.setattr(shipped, "files", lambda package: tmp_path)
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def test_half_precision_becomes_float32(folder):
    model = make_model(seed=3).half()
    save_weights(model, folder / "model.safetensors")
    BytePairEncoding.fit(["a b c"], 20).save(folder / "tokenizer.json")
    loaded, tokenizer = pretrained.load("small")
    for name, weight in loaded.state_dict().items():
        assert weight.dtype == torch.float32
        assert largest_difference(weight, model.state_dict()[name].float()) == 0
    assert tokenizer.decode(tokenizer.encode(["a b"])[0]) == "a b"


def test_weights_that_are_not_there_are_said_to_be_missing(folder):
    with pytest.raises(FileNotFoundError, match="weights of small are not here"):
        pretrained.load("small")


def test_other_names_are_refused():
    with pytest.raises(ValueError, match="name='large' must be one of 'help-en-de'"):
        pretrained.load("large")


def test_the_model_that_ships_translates_and_its_log_goes_to_the_end():
    log = pretrained.training_log()
    judged = [line for line in log if "perplexity" in line]
    steps = [line["step"] for line in judged]
    assert steps == sorted(set(steps)) and len(steps) >= 5
    assert log[-1] == judged[-1]
    assert judged[0]["perplexity"] > 10 * judged[-1]["perplexity"]
    model, tokenizer = pretrained.load()
    assert model.config.vocab_size == tokenizer.vocab_size == 4000
    said = translate(model, tokenizer, ["Save the file.", "Close the file."])
    assert said == ["Speichern Sie die Datei.", "Schließen Sie die Datei."]
