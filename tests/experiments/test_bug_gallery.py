"""The bug gallery's result is whole, and appendix A2 says what it says."""

import json
import statistics
from collections import Counter

import pytest
from tests.experiments.test_results import load, script

from bookkit import gallery
from bookkit.mutations import MUTATIONS


@pytest.fixture(scope="module")
def result():
    return load("bug_gallery")


@pytest.fixture(scope="module")
def experiment():
    return script("bug_gallery")


def test_every_mistake_was_trained_from_every_seed(result, experiment):
    wanted = [
        (task, seed, kind)
        for task, seed, kinds in experiment.plan(result["seeds"], result["runs"])
        for kind in kinds
    ]
    runs = [(run["task"], run["seed"], run["kind"]) for run in result["runs"]]
    assert Counter(runs) == Counter(wanted)
    assert len(set(wanted)) == len(wanted)


def test_the_rules_are_those_set_before_the_run(result, experiment):
    settings = result["settings"]
    assert settings["rule"] == experiment.RULE
    assert settings["training"] == {
        task: json.loads(json.dumps(experiment.settings_of(recipe)))
        for task, recipe in experiment.RECIPES.items()
    }
    assert result["provenance"]["clean"]


def test_the_mistakes_are_those_there_are_now(result):
    listed = [
        name for names in result["settings"]["mistakes"].values() for name in names
    ]
    shown = [*gallery.names(), *gallery.names(gallery.AROUND)]
    assert sorted(listed) == sorted(shown)


def test_the_right_code_solves_both_tasks_from_every_seed(result):
    for task in ("copy", "sort"):
        whole = [
            run["greedy_exact_match"]
            for run in result["runs"]
            if (run["task"], run["kind"]) == (task, gallery.RIGHT)
        ]
        assert len(whole) == 5
        assert statistics.median(whole) >= result["settings"]["rule"]["passes"]


def test_each_mistake_fails_the_check_of_its_part(result):
    for name, seen in result["checks"].items():
        mutation = MUTATIONS[name]
        assert seen["own"] == mutation.part.lower()
        assert (seen["own"] in seen["failed"]) == (not mutation.equivalent)
        assert set(seen["named"]) <= {name}


def test_who_copies_has_learned_to_sort_or_not(result):
    sorted_ = {run["kind"] for run in result["runs"] if run["task"] == "sort"}
    copying = {one.name for one in gallery.rows() if one.passes("copy")}
    assert copying <= sorted_


def test_what_the_chapter_says_of_the_numbers(result):
    right = gallery.row()
    real = [one for one in gallery.rows() if not one.equivalent]
    failed = {name: seen["failed"] for name, seen in result["checks"].items()}

    def shows(number):
        return {one.name for one in real if gallery.outside(number, one, right)}

    copying = [one for one in real if one.passes("copy")]
    sorting = [one for one in copying if one.passes("sort")]
    assert (len(real), len(copying)) == (51, 51 - 24)
    assert len(shows("loss")) == 11 and shows("loss") == shows("accuracy")
    assert not shows("loss") & {one.name for one in copying}
    assert not any(gallery.outside("loss", one, right) < 0 for one in real)
    unsorted = {one.name for one in copying} - {one.name for one in sorting}
    assert unsorted == {"no_relu", "concatenated"}
    assert sum("model" in failed[one.name] for one in real) == 25
    assert max(seen["cpu_seconds"] for seen in result["checks"].values()) < 0.1


def test_what_the_chapter_says_of_single_mistakes():
    rows = {one.name: one for one in gallery.rows() + gallery.rows(gallery.AROUND)}
    right = gallery.row()
    four = [right, *map(rows.get, "no_causal_mask no_relu exponent_doubled".split())]
    assert max(four, key=lambda one: one.loss[0]) is right
    assert min(four, key=lambda one: one.loss[0]).name == "no_relu"
    assert [one.passes("copy") for one in four] == [True, False, True, True]
    stop = {name for name, one in rows.items() if one.stops}
    assert stop == {"keys_from_queries", "padding_mask_hides_queries"}
    astray = rows["no_memory_mask"]
    assert min(astray.accuracy) > 0.999 and max(astray.copy) < 0.9
    assert rows["concatenated"].sort < rows["no_relu"].sort
    assert max(rows["target_not_shifted"].loss) < min(right.loss)
    assert {one.copy for one in rows.values() if "shift" in one.section} == {(0.0,)}
    schedule = [one for one in rows.values() if one.section == "5.3 schedule"]
    assert sum(max(one.copy) < 0.01 for one in schedule) == 4
    assert rows["dropout_at_decode"].copy[0] == right.copy[0]
