"""translation.json is of the shipped weights, and says what it holds."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import pytest

from transformer.data.text import help_en_de
from transformer.translation import bleu, chrf

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "src/transformer/pretrained/help_en_de/model.safetensors"


@pytest.fixture(scope="module")
def result():
    path = ROOT / "book" / "results" / "translation.json"
    return json.loads(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def references():
    return [german for _, german in help_en_de("test")]


def runs(result, split, averaged):
    return {
        (run["beam"], run["alpha"]): run
        for run in result["runs"]
        if (run["split"], run["averaged"]) == (split, averaged)
    }


def test_the_weights_are_those_that_ship(result):
    content = SHIPPED.read_bytes()
    assert result["weights"]["sha256"] == hashlib.sha256(content).hexdigest()
    assert result["weights"]["bytes"] == len(content) < 15e6


def test_the_scores_are_those_of_the_translations(result, references):
    for averaged in (0, 1):
        found = runs(result, "test", averaged)
        assert found.keys() == {(1, 0.6), (4, 0.6)}
        for run in found.values():
            assert run["bleu"] == pytest.approx(bleu(run["said"], references).score)
            assert run["chrf"] == pytest.approx(chrf(run["said"], references).score)


def test_every_setting_of_the_chapter_was_measured(result):
    found = runs(result, "valid", 0)
    wanted = {(beam, alpha) for beam in (1, 2, 4, 8, 16) for alpha in (0.0, 0.6)}
    assert found.keys() >= (wanted - {(1, 0.0)}) | {(4, 0.3), (4, 1.0), (4, 1.5)}
    assert {run["averaged"] for run in result["runs"]} >= {0, 1, 5}
    assert len(result["teacher_forced"]) == result["settings"]["sentences"]["test"]


def test_without_a_penalty_a_wider_beam_finds_what_is_likelier(result):
    found = runs(result, "valid", 0)
    likely = [found[beam, 0.0]["log_probability"] for beam in (2, 4, 8, 16)]
    assert found[1, 0.6]["log_probability"] < likely[0]
    assert likely == sorted(likely)


def test_the_penalty_makes_outputs_longer(result):
    found = runs(result, "valid", 0)
    lengths = [found[4, alpha]["length_ratio"] for alpha in (0.0, 0.3, 0.6, 1.0, 1.5)]
    assert lengths == sorted(lengths)
    assert math.isfinite(sum(lengths))
