"""The committed results are complete, ours, and what the book says."""

import importlib.util
import json
import re
import statistics
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "book" / "results"
REPORTED = ["copy_task", "number_words", "reverse_task", "sort_task"]
# `make notebooks` writes execution.json: the state of the book, no result.
MEASURED = sorted(set(RESULTS.glob("*.json")) - {RESULTS / "execution.json"})


def load(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def script(name: str):
    """A module of experiments/, which is no package."""
    folder = str(ROOT / "experiments")
    spec = importlib.util.spec_from_file_location(name, f"{folder}/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def summaries_agree(said: dict, computed: dict) -> bool:
    return said == pytest.approx(computed, abs=1e-12)


@pytest.mark.parametrize("path", MEASURED, ids=lambda p: p.stem)
def test_every_result_says_where_it_comes_from(path):
    text = path.read_text("utf-8")
    origin = json.loads(text)["provenance"]
    assert re.fullmatch(r"[0-9a-f]{40}", origin["commit"])
    assert re.fullmatch(r"[0-9a-f]{64}", origin["src_sha256"])
    assert origin["command"].startswith(("python experiments/", "python benchmarks/"))
    assert {"python", "torch"} <= set(origin["versions"])
    assert {"cpu", "cores", "threads"} <= set(origin["machine"])
    assert re.match(r"\d{4}-\d\d-\d\dT", origin["date"])
    assert not re.search(r'[" ](/|~/|[A-Z]:\\)\w', text), "an absolute path"


@pytest.mark.parametrize(
    "name", [*REPORTED, "training_step", "trainer_step", "decoding"]
)
def test_reported_results_were_measured_on_committed_code(name):
    assert load(name)["provenance"]["clean"]


@pytest.mark.parametrize("name", REPORTED)
def test_summaries_are_those_of_the_runs(name):
    result = load(name)
    assert [run["seed"] for run in result["runs"]] == result["seeds"]
    computed = script("copy_task").summarise(result["runs"])
    assert summaries_agree(result["summary"], computed)


@pytest.mark.parametrize("name", REPORTED)
def test_results_are_of_the_recipe_that_the_code_has_now(name):
    written = load(name)["settings"]
    now = script("copy_task").settings(written["task"], {})
    assert written == json.loads(json.dumps(now))


@pytest.mark.parametrize("name", REPORTED)
def test_no_reported_seed_was_used_for_tuning(name):
    tuned = {entry["seed"] for entry in load("tune_toy")["tried"]}
    assert tuned and not tuned & set(load(name)["seeds"])


def test_the_copy_task_is_solved_on_twenty_seeds():
    result = load("copy_task")
    matches = [run["exact_match"] for run in result["runs"]]
    assert len(matches) == 20
    assert statistics.median(matches) >= 0.999
    assert min(matches) >= 0.99
    assert result["provenance"]["machine"]["threads"] == 1


def test_number_words_are_solved_on_numbers_never_seen():
    result = load("number_words")
    assert result["settings"]["test_size"] == 1605
    matches = [run["exact_match"] for run in result["runs"]]
    assert len(matches) >= 5
    assert statistics.median(matches) >= 0.999


def test_the_training_step_is_compared_between_equals():
    result = load("training_step")
    for entry in result["training"].values():
        assert entry["largest_logit_difference"] < 1e-4
        ratios = [peer / ours for ours, peer in entry["rounds"]]
        assert entry["ratio"]["median"] == pytest.approx(
            statistics.median(ratios), rel=1e-2
        )
    assert result["decoding"]["same_tokens"]


def test_the_trainer_is_compared_between_equals():
    result = load("trainer_step")
    assert set(result["sizes"]) == {"tiny", "base"}
    for entry in result["sizes"].values():
        assert entry["loss_difference"] < 1e-5 * entry["loss_without_dropout"]
        assert entry["dropout_masks"] == 2 + 5 * entry["model"]["layers"]
        assert len(entry["rounds"]) == len(entry["target_tokens"])
        for column, kind in enumerate(("peer", "peer_chunked"), start=1):
            ratios = [row[column] / row[0] for row in entry["rounds"]]
            assert entry["ratio"][kind]["median"] == pytest.approx(
                statistics.median(ratios), rel=1e-2
            )


def test_decoding_was_timed_in_every_case_with_the_same_tokens():
    shapes = load("decoding")["shapes"]
    assert set(shapes) == {"d=128", "d=256"}
    for cases in shapes.values():
        assert len(cases) == 4
        for found in cases.values():
            assert set(found) == {"cached", "uncached", "MarianMT generate"}
            assert all(entry["same_tokens"] for entry in found.values())
