"""An evidence line says what came out, or fails."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bookkit import EvidenceFailed, Measurement, evidence, ledger, mutations, proofs
from bookkit.evidence import (
    MASKS,
    bundle,
    differences,
    line,
    masked_text,
    number,
    results,
    sanitize_file,
    stable,
)
from bookkit.proofs import Proof

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ledger.read(
    dict(
        id="a-measure",
        section="6.2",
        kind="claim",
        text="It is better.",
        method="measured",
        chapter="17_model_variations",
        verdict="holds",
        effect="BLEU with minus BLEU without.",
        seeds=[0, 1, 2],
        rule="holds if above 0; against if below 0; otherwise cannot tell",
    )
)


@pytest.fixture
def claims(monkeypatch):
    """Claims by id; a test may put in others."""
    there = dict(ledger.load())
    there["a-measure"] = MEASURED
    monkeypatch.setattr(ledger, "load", lambda: there)
    return there


def shown(capsys) -> str:
    """The visible line of what was printed last."""
    return capsys.readouterr().out.splitlines()[0]


def test_a_proof_is_one_line_with_the_rest_below(capsys):
    evidence("variance-dk", Proof(64.1234, 64, 3.2, "", 0.912))
    first, *folded = capsys.readouterr().out.splitlines()
    assert first.endswith(": measured 64.1 ± 0.9, expected 64 · §3.2.1 · holds")
    assert first.startswith("The variance of q . k")
    assert folded[0].startswith("    The paper says: For independent components")
    assert any(text.startswith("    How: Verified by variance_dk()") for text in folded)


@pytest.mark.parametrize("given", [(), (proofs.eq1,), (proofs.eq1(),)])
def test_the_proof_may_be_left_out_named_or_given(given, capsys):
    evidence("eq1", *given)
    assert shown(capsys).endswith("expected 0 within 1e-12 · §3.2.1 · holds")


def test_a_scoped_claim_says_so(capsys):
    evidence("wavelengths")
    assert shown(capsys).endswith(": measured 60611, expected 62832 · §3.5 · scoped")


def test_an_implemented_claim_shows_its_test(capsys):
    evidence("adam")
    says = "implemented, pinned by test_adam_has_the_papers_constants · §5.3 · holds"
    assert shown(capsys) == says


def test_a_reported_claim_shows_its_source(capsys):
    evidence("enfr-big")
    out = capsys.readouterr().out
    assert out.startswith("quoted from the paper · §6.1 · not rerun\n")
    assert "To run it again: " in out


# --- failing, in either direction ------------------------------------------


def test_an_outcome_worse_than_declared_fails():
    with pytest.raises(
        EvidenceFailed, match=r"declared 'holds', came out as 'against'"
    ):
        evidence("eq1", Proof(0.5, 0, 1e-12))


def test_an_outcome_better_than_declared_fails():
    with mutations.applied("published_spacing"):
        with pytest.raises(
            EvidenceFailed, match="declared 'scoped', came out as 'holds'"
        ):
            evidence("wavelengths")


def test_a_claim_without_a_verdict_fails(claims):
    claims["eq1"] = replace(claims["eq1"], verdict=None)
    with pytest.raises(EvidenceFailed, match="the ledger declares no verdict"):
        evidence("eq1")


def test_a_test_that_is_gone_fails(claims):
    claims["adam"] = replace(claims["adam"], test="tests/gone.py::test_gone")
    with pytest.raises(EvidenceFailed, match=r"no test tests/gone.py"):
        evidence("adam")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("eq1", 0.0), ("eq1", Measurement({0: 1.0})), ("adam", Proof(0, 0, 0))],
)
def test_evidence_of_another_kind_is_refused(name, wrong):
    with pytest.raises(TypeError, match=name):
        evidence(name, wrong)


def test_numbers_that_are_not_finite_are_refused():
    with pytest.raises(EvidenceFailed):
        evidence("eq1", Proof(float("nan"), 0, 1))
    with pytest.raises(ValueError, match="must be finite"):
        Measurement({0: float("inf")})


# --- measurements ------------------------------------------------------------


def test_a_measurement_is_decided_by_its_interval(claims, capsys):
    evidence("a-measure", Measurement({0: 1.0, 1: 1.2, 2: 1.1}, "BLEU"))
    out = capsys.readouterr().out
    assert out.startswith("measured 1.1 ± 0.2 BLEU, expected above 0 · §6.2 · holds\n")
    assert "    each: 0: 1, 1: 1.2, 2: 1.1.\n" in out
    with pytest.raises(EvidenceFailed, match="came out as 'cannot tell'"):
        evidence("a-measure", Measurement({0: 1.0, 1: -1.2, 2: 1.1}))
    with pytest.raises(EvidenceFailed, match="came out as 'against'"):
        evidence("a-measure", Measurement({0: -1.0, 1: -1.2, 2: -1.1}))


@pytest.mark.parametrize("seeds", [{0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.1, 7: 1.2}])
def test_other_seeds_than_the_declared_are_refused(seeds, claims):
    with pytest.raises(EvidenceFailed, match="the ledger declares 0, 1, 2"):
        evidence("a-measure", Measurement(seeds))


def test_a_number_of_seeds_may_be_declared(claims, capsys):
    claims["a-measure"] = replace(MEASURED, seeds=2)
    evidence("a-measure", Measurement({5: 1.0, 6: 1.01}))
    with pytest.raises(EvidenceFailed, match="1 seeds were run"):
        evidence("a-measure", Measurement({5: 1.0}))


def test_one_value_has_no_seeds_and_no_interval(claims, capsys):
    claims["a-measure"] = replace(MEASURED, seeds=1)
    evidence("a-measure", Measurement({"once": 1.0}))
    out = capsys.readouterr().out
    assert "How: Measured once: " in out and "±" not in out


def test_a_measurement_without_a_rule_stated_before_is_refused(claims):
    claims["a-measure"] = replace(MEASURED, rule=None)
    with pytest.raises(EvidenceFailed, match="before the run"):
        evidence("a-measure", Measurement({0: 1.0, 1: 1.2, 2: 1.1}))


def test_the_interval_is_students():
    """Mean 2, deviation 1, three values: 4.303 / sqrt(3)."""
    assert Measurement({0: 1, 1: 2, 2: 3}).half_width == pytest.approx(2.4843, abs=1e-4)
    assert Measurement({0: 1}).half_width is None
    many = {seed: float(seed % 2) for seed in range(61)}
    assert Measurement(many).half_width == pytest.approx(
        2.0003 * 0.5041 / 61**0.5, 1e-2
    )


def test_a_measurement_reads_a_result_file(tmp_path, monkeypatch):
    runs = [{"seed": 0, "score": {"last": 0.5}}, {"seed": 1, "score": {"last": 0.7}}]
    (tmp_path / "book" / "results").mkdir(parents=True)
    (tmp_path / "book" / "results" / "x.json").write_text(json.dumps({"runs": runs}))
    monkeypatch.setattr(ledger, "project_root", lambda: tmp_path)
    assert Measurement.from_results("x", "score.last").mean == pytest.approx(0.6)
    double = Measurement.from_results("x", lambda run: 2 * run["score"]["last"])
    assert double.values == {0: 1.0, 1: 1.4}
    with pytest.raises(FileNotFoundError, match=r"no book/results/y.json"):
        results("y")


# --- what is shown -------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (64.0, "64"),
        (63.877, "63.9"),
        (0.191666, "0.192"),
        (60611.4794, "60611"),
        (63_045_632, "63045632"),
        (6.988e-4, "6.99e-4"),
        (1e-12, "1e-12"),
        (4.44089e-16, "4.44e-16"),
        (3.2832e18, "3.28e18"),
        (-0.5, "-0.5"),
    ],
)
def test_numbers_are_written_in_one_way(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    "name", ["eq1", "wavelengths", "adam", "enfr-big", "variance-dk"]
)
def test_html_and_text_say_the_same_and_come_from_the_metadata(name, monkeypatch):
    kept = []
    monkeypatch.setitem(
        evidence.__globals__, "display", lambda data, facts: kept.append((data, facts))
    )
    evidence(name)
    ((data, facts),) = kept
    facts = json.loads(json.dumps(facts))  # as a notebook keeps it
    assert bundle(ledger.claim(name), facts) == data
    text, html = data["text/plain"], data["text/html"]
    assert text.splitlines()[0] == line(facts)
    assert f'id="evidence-{name}"' in html
    plain = re.sub(r"<[^>]+>", "", html).replace("&#x27;", "'").replace("&lt;", "<")
    for words in text.splitlines():
        body = words.strip().partition(": ")[2] or words
        assert body in plain
    assert "<script" not in html
    assert "http" not in html
    assert html.count("<summary>") == html.count("</summary>") == 1


def test_only_the_numbers_of_evidence_lines_are_masked(claims):
    facts = dict(
        id="a-measure",
        section="6.2",
        method="measured",
        verdict="holds",
        measured=1.1,
        spread=0.2,
        unit="BLEU",
        sense="above",
        expected=0,
        tolerance=0.1,
        seeds=["0", "1", "2"],
        values=[1.0, 1.2, 1.1],
    )
    other = facts | dict(measured=1.15, values=[1.05, 1.25, 1.15], spread=0.21)
    stricter = facts | dict(expected=1)

    def masked(facts):
        texts = bundle(MEASURED, facts)
        for pattern, replacement in MASKS:
            texts = {k: re.sub(pattern, replacement, v) for k, v in texts.items()}
        return texts

    assert bundle(MEASURED, facts) != bundle(MEASURED, other)
    assert masked(facts) == masked(other)
    assert masked(facts) != masked(stricter)
    assert masked_text("measured 3 apples, expected 4\nloss 0.31") == []


def test_the_sanitize_file_is_that_of_the_masks():
    assert (ROOT / "nbval_sanitize.cfg").read_text("utf-8") == sanitize_file()
    read = re.findall("^regex: (.*)$\n^replace: (.*)$", sanitize_file(), re.M)
    assert tuple(read) == MASKS, "as nbval reads it"


# --- comparing two runs ----------------------------------------------------------

FACTS = dict(
    id="x", measured=1.0, spread=0.1, tolerance=0.5, expected=1, verdict="holds"
)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, None),
        (dict(measured=1.5), None),
        (dict(measured=1.6), "measured is 1.6 now and 1.0 in the notebook"),
        (dict(spread=0.3), None),
        (dict(verdict="scoped"), "verdict is scoped now"),
        (dict(expected=2), "expected is 2 now"),
        (dict(tolerance=5), "tolerance is 5 now"),
        (dict(measured=None), "measured is None now"),
        (dict(id="y"), r"evidence for \['x'\] is committed"),
    ],
)
def test_numbers_may_differ_by_the_tolerance_and_nothing_else_may(change, fault):
    found = differences([FACTS | change], [FACTS])
    assert bool(found) == bool(fault)
    if fault:
        assert re.search(fault, found[0])


def test_evidence_that_is_missing_differs():
    assert differences([], [FACTS])
    assert differences([FACTS], [])
    assert not differences([], [])


def test_numbers_are_kept_short():
    assert stable(1 / 3) == 0.33333333
    assert stable([64.0, 0.5]) == [64, 0.5]
    assert stable("x") == "x"


def test_importing_the_book_loads_neither_notebook_nor_figure_tools():
    heavy = "IPython matplotlib seaborn yaml nbformat nbclient".split()
    code = f"import bookkit, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
