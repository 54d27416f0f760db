"""What chapters 1 and 10 report was run with what the tuning chose."""

import pytest
from tests.experiments.test_results import load, script


def chosen_in_words(module) -> dict[str, str]:
    if module.__name__ == "recall":
        return {
            " ".join(case): module.name(setting)
            for case, setting in module.CHOSEN.items()
        }
    return {str(path): f"{rate:g}" for path, rate in module.CHOSEN.items()}


@pytest.mark.parametrize("name", ["recall", "short_paths"])
def test_the_chosen_settings_are_the_best_of_the_tuning(name):
    tuning, module = load(f"{name}_tuning"), script(name)
    assert len(tuning["runs"]) == len(tuning["seeds"]) == 2
    assert module.best(tuning["runs"]) == tuning["summary"]
    assert chosen_in_words(module) == tuning["summary"]


@pytest.mark.parametrize("name", ["recall", "short_paths"])
def test_no_reported_seed_was_used_for_the_tuning(name):
    tuned, reported = load(f"{name}_tuning")["seeds"], load(name)["seeds"]
    assert tuned and not set(tuned) & set(reported)


@pytest.mark.parametrize(
    "name", ["recall", "short_paths", "recurrence_time", "table1_time"]
)
def test_results_are_whole_clean_and_summed_up_rightly(name):
    result = load(name)
    assert [run["seed"] for run in result["runs"]] == result["seeds"]
    assert result["provenance"]["clean"]
    assert result["provenance"]["machine"]["threads"] == 1
    assert script(name).summarise(result["runs"]) == result["summary"]
