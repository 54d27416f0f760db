"""The ledger is sound, and coverage does not fall."""

import json

import pytest

from bookkit import ledger
from bookkit.ledger import LedgerError, coverage, load, main, parse_rule, read

ROOT = ledger.project_root()
NOTEBOOKS = ROOT / "notebooks"

# Raise it as chapters are written; never lower it.
SHOWN_AT_LEAST = 98

SOUND = dict(
    id="a-claim",
    section="3.1",
    kind="claim",
    text="It is so.",
    method="verified",
    chapter="03_encoder_decoder_stacks",
)


def test_the_ledger_is_sound():
    assert ledger.check() == []


def test_the_ledger_has_a_claim_for_every_section():
    without_claims = {"6", "5"}  # a heading over its sub-sections
    sections = {claim.section for claim in load().values()}
    assert sections == set(ledger.SECTIONS) - without_claims


def test_every_chapter_that_exists_shows_its_claims():
    """Take the evidence out of a chapter, and this fails."""
    chapters = {path.stem for path in NOTEBOOKS.glob("*.ipynb")}
    missing = [
        f"{row.claim.id} ({row.claim.chapter})"
        for row in coverage(NOTEBOOKS)
        if row.claim.chapter in chapters and row.notebook is None
    ]
    assert missing == []


def test_coverage_does_not_fall():
    shown = sum(row.notebook is not None for row in coverage(NOTEBOOKS))
    assert shown >= SHOWN_AT_LEAST
    assert shown - SHOWN_AT_LEAST < 10, "chapters were written: raise SHOWN_AT_LEAST"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(verdit="holds"), "no field 'verdit'; verdict is meant"),
        (dict(section="3.6"), "section='3.6' is none of"),
        (dict(section=3.1), "section is missing, or is no text"),
        (dict(text=""), "text is missing"),
        (dict(kind="idea"), "kind='idea' is none of"),
        (dict(method="guessed"), "method='guessed' is none of"),
        (dict(verdict="true"), "verdict='true' is none of"),
        (dict(id="A claim"), "an id is lower-case words"),
        (dict(chapter="chapter 3"), "is no notebook's name"),
        (dict(test="tests/x.py::test_y"), "test is for implemented claims only"),
        (dict(rule="holds if above 0; otherwise against"), "rule is for measured"),
        (dict(method="reported", verdict="holds"), "reported claims, and no others"),
        (dict(verdict="not rerun"), "reported claims, and no others"),
        (dict(method="measured", rule="holds if big"), "rule: "),
    ],
)
def test_a_bad_entry_is_refused_with_claim_field_and_rule(changes, message):
    with pytest.raises(LedgerError, match=message) as error:
        read(SOUND | changes)
    assert changes.get("id", "a-claim") in str(error.value)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (dict(verdict="holds", proof="no_such"), "no proof 'no_such'"),
        (dict(verdict="holds", proof="eq1"), "breaks_with names no mutation"),
        (dict(verdict="holds"), "proof is missing"),
        (dict(proof="eq1", breaks_with=["typo"]), "there is no mutation 'typo'"),
        (
            dict(proof="eq1", breaks_with=["target_padding_masked_too"]),
            "nothing can tell",
        ),
        (
            dict(method="implemented", test="tests/transformer/test_model.py::test_no"),
            "there is no test tests/transformer/test_model.py::test_no",
        ),
        (
            dict(method="measured", verdict="holds", effect="x", seeds=5),
            "rule is missing",
        ),
        (dict(method="reported", verdict="not rerun"), "source is missing"),
        (
            dict(verdict="scoped", proof="eq1", breaks_with=["no_scaling"]),
            "a scoped claim needs a finding",
        ),
    ],
)
def test_what_is_missing_or_named_in_vain_is_found(changes, fault):
    claim = read(SOUND | changes)
    faults = [f for f in ledger.check({claim.id: claim}) if f.startswith("a-claim")]
    assert any(fault in f for f in faults), faults


def test_an_unknown_claim_is_refused_with_those_that_are_near():
    with pytest.raises(LedgerError, match="there is variance-dk"):
        ledger.claim("varience-dk")


# --- rules -----------------------------------------------------------------

RULE = "holds if above 0.5; weaker if between 0 and 0.5; otherwise cannot tell"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.6, 0.9, "holds"),
        (0.5, 0.9, "cannot tell"),
        (0.0, 0.5, "weaker"),
        (0.1, 0.6, "cannot tell"),
        (-1, -0.5, "cannot tell"),
    ],
)
def test_a_rule_speaks_of_the_whole_interval(low, high, verdict):
    assert ledger.decide(RULE, low, high) == verdict


def test_a_rule_of_negative_and_small_numbers_is_read():
    clauses = parse_rule("against if below -1e-3; otherwise holds")
    assert clauses[0] == ("against", "below", float("-inf"), -1e-3)


@pytest.mark.parametrize(
    "rule",
    [
        "holds if above 0",
        "holds if above zero; otherwise against",
        "true if above 0; otherwise against",
        "holds if above 0; against",
        "otherwise holds",
        "holds if above 0; otherwise maybe",
    ],
)
def test_a_rule_that_leaves_doubt_is_refused(rule):
    with pytest.raises(ValueError, match="rule: "):
        parse_rule(rule)


# --- coverage --------------------------------------------------------------


def notebook(folder, name, *found):
    """A file with an evidence line in each cell after the first."""
    cells = [{"cell_type": "markdown", "source": "# Title"}]
    for facts in found:
        output = {"output_type": "display_data", "metadata": {"evidence": facts}}
        cells.append({"cell_type": "code", "source": "", "outputs": [output]})
    path = folder / f"{name}.ipynb"
    path.write_text(json.dumps({"cells": cells}), "utf-8")


EQ1 = dict(id="eq1", section="3.2.1", method="verified", verdict="holds")
ADAM = dict(id="adam", section="5.3", method="implemented", verdict="holds")


def test_coverage_says_what_is_shown_and_where(tmp_path, capsys):
    notebook(tmp_path, "04_small", EQ1)
    notebook(tmp_path, "13_small", ADAM)
    rows = {row.claim.id: row for row in coverage(tmp_path)}
    assert len(rows) == len(load())
    assert (rows["eq1"].notebook, rows["eq1"].cell) == ("04_small.ipynb", 2)
    assert rows["eq2"].notebook is rows["eq2"].verdict is None
    assert rows["eq1"].anchor == "evidence-eq1"
    counts = ledger.summary(rows.values())
    assert counts["holds"] == 2
    assert counts[ledger.OPEN] == len(rows) - 2
    assert ledger.tally(rows.values())["methods"]["implemented"]["holds"] == 1

    assert main(["--json", "--notebooks", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == [
        EQ1 | {"notebook": "04_small.ipynb", "cell": 2},
        ADAM | {"notebook": "13_small.ipynb", "cell": 2},
    ]
    assert main(["--notebooks", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "2 holds" in shown
    assert "%" not in shown


def test_a_claim_shown_twice_is_an_error(tmp_path, capsys):
    notebook(tmp_path, "04_small", EQ1)
    notebook(tmp_path, "05_small", ADAM, EQ1)
    with pytest.raises(
        LedgerError, match=r"eq1 is shown twice: 04.*cell 2; 05.*cell 3"
    ):
        coverage(tmp_path)
    assert main(["--notebooks", str(tmp_path)]) == 1
    assert "shown twice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(id="gone"), "no claim 'gone'"),
        (dict(verdict="against"), "the ledger has 'holds': refresh"),
        (dict(method="measured"), "the ledger has 'verified': refresh"),
    ],
)
def test_evidence_that_the_ledger_does_not_know_is_an_error(changes, message, tmp_path):
    notebook(tmp_path, "04_small", EQ1 | changes)
    with pytest.raises(LedgerError, match=message):
        coverage(tmp_path)
