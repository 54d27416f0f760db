"""The small Table 3: whole, by its own settings, and decided by the rules."""

import json
import math
import re
import statistics

import pytest
from tests.experiments.test_results import RESULTS, load, script

from bookkit import table3
from bookkit.ledger import decide
from bookkit.ledger import load as ledger

ablations = script("ablations")
ROWS = list(ablations.ROWS)
CLAIMED = {
    statement: rule
    for statement, (*_, rule) in table3.DECIDES.items()
    if rule.startswith("table3-")
}


BUDGETS = [(row, start) for start in (False, True) for row in ROWS]


def stored(row: str, start: bool) -> dict:
    return load(f"{'ablations_start' if start else 'ablations'}/{row}")


@pytest.mark.parametrize("folder", ["ablations", "ablations_start"])
def test_every_row_was_run_and_no_other(folder):
    found = sorted(path.stem for path in (RESULTS / folder).glob("*.json"))
    assert found == sorted(ROWS)
    assert list(table3.OURS) == ROWS[1:]


@pytest.mark.parametrize(("row", "start"), BUDGETS)
def test_all_seeds_are_in_by_the_recipe_that_the_code_has_now(row, start):
    found = stored(row, start)
    assert found["seeds"] == ablations.seeds(row, start=start)
    assert [run["seed"] for run in found["runs"]] == found["seeds"]
    now = json.loads(json.dumps(ablations.settings(row, start=start)))
    assert found["settings"] == now
    assert found["summary"] == ablations.summarise(found["runs"])


@pytest.mark.parametrize(("row", "start"), BUDGETS)
def test_a_row_was_run_on_committed_code_on_one_thread(row, start):
    origin = stored(row, start)["provenance"]
    assert origin["clean"] and origin["machine"]["threads"] == 1
    assert re.fullmatch(r"[0-9a-f]{40}", origin["commit"])
    assert origin["command"].startswith("python experiments/ablations.py")
    assert not re.search(r'[" ](/|~/|[A-Z]:\\)\w', json.dumps(origin))
    for fact in ("transformer_sha256", "versions", "machine"):
        assert origin[fact] == stored("base", start)["provenance"][fact]


@pytest.mark.parametrize(("row", "start"), BUDGETS)
def test_a_run_says_what_it_was(row, start):
    found = stored(row, start)
    steps = found["settings"]["training"]["steps"]
    for run in found["runs"]:
        assert run["perplexity"] > 1 and 0 <= run["bleu"] <= 100
        assert len(run["first_losses"]) == ablations.FIRST
        assert len(run["losses"]) == math.ceil(steps / ablations.BLOCK)
        first = statistics.fmean(run["first_losses"][: ablations.BLOCK])
        assert first == pytest.approx(run["losses"][0])
        if row == "no_smoothing":
            plain = math.log(run["perplexity"])
            assert run["smoothed_loss"] == pytest.approx(plain, rel=1e-5)
        else:
            assert math.exp(run["smoothed_loss"]) > run["perplexity"]


def test_a_row_changes_one_thing_and_nothing_else():
    base = ablations.settings("base")
    for row in ROWS[1:]:
        here = ablations.settings(row)
        apart = {
            name
            for part in ("shape", "training")
            for name, value in here[part].items()
            if base[part].get(name) != value
        }
        assert apart == set(here["changes"]), row
        assert {k: v for k, v in here.items() if k not in CHANGED} == {
            k: v for k, v in base.items() if k not in CHANGED
        }


CHANGED = ("row", "changes", "shape", "training")


def test_no_reported_seed_was_tuned_on():
    reported = {*ablations.SEEDS, *ablations.START_SEEDS}
    assert len(reported) == 16 and not reported & set(range(880, 910))


@pytest.mark.parametrize("statement", table3.DECIDES)
def test_a_verdict_is_what_the_rule_gives_for_the_interval(statement):
    one, other, rule = table3.DECIDES[statement]
    runs = [
        {run["seed"]: run["perplexity"] for run in load(f"ablations/{name}")["runs"]}
        for name in (one, other)
    ]
    gaps = [runs[0][seed] / runs[1][seed] - 1 for seed in ablations.seeds("h1")]
    half = 2.776 * statistics.stdev(gaps) / math.sqrt(5)
    low, high = statistics.fmean(gaps) - half, statistics.fmean(gaps) + half
    found, verdict = table3.decided(statement)
    assert list(found.values.values()) == pytest.approx(gaps)
    if statement in CLAIMED:
        assert ledger()[rule].verdict == verdict
        rule = ledger()[rule].rule
    assert verdict == decide(rule, low, high)


@pytest.mark.parametrize("name", [*sorted(set(CLAIMED.values())), "learned-alike"])
def test_a_claims_seeds_are_those_that_were_run(name):
    assert list(ledger()[name].seeds) == ablations.seeds("h1")
