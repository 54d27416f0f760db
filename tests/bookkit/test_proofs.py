"""Every proof gives its verdict, and its mistakes give another."""

import inspect
import math

import pytest

from bookkit import mutations, proofs
from bookkit.ledger import load
from bookkit.proofs import Proof

PROVED = {claim.id: claim for claim in load().values() if claim.proof}
BROKEN = [(name, m) for name, claim in PROVED.items() for m in claim.breaks_with]


def proof(name: str):
    return getattr(proofs, PROVED[name].proof)


@pytest.mark.parametrize("name", PROVED)
def test_a_proof_gives_the_declared_verdict_twice(name):
    once, again = proof(name)(), proof(name)()
    assert once == again
    assert once.outcome == PROVED[name].verdict


@pytest.mark.parametrize(
    ("name", "mutation"), BROKEN, ids=[f"{name}/{m}" for name, m in BROKEN]
)
def test_a_known_mistake_turns_the_proof(name, mutation):
    """Another outcome, or no outcome at all: the claim's cell fails."""
    with mutations.applied(mutation):
        try:
            outcome = proof(name)().outcome
        except Exception as error:
            outcome = type(error).__name__
    assert outcome != PROVED[name].verdict


@pytest.mark.parametrize("name", PROVED)
def test_a_proof_can_be_shown_and_called_as_it_is(name):
    lines, _ = inspect.getsourcelines(proof(name))
    assert proof(name).__doc__.strip().endswith(".")
    assert len(lines) <= 40, "no shown function is longer"
    assert max(map(len, lines)) <= 73, "72 columns and the line's end"
    parameters = inspect.signature(proof(name)).parameters.values()
    assert all(p.default is not p.empty for p in parameters)


def test_variance_is_the_width_for_every_width_of_chapter_04():
    for d_k in (4, 16, 64):
        assert proofs.variance_dk(d_k).outcome == "holds"


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (dict(measured=1.0, expected=1, tolerance=0), "holds"),
        (dict(measured=1.1, expected=1, tolerance=0.2), "holds"),
        (dict(measured=1.3, expected=1, tolerance=0.2), "against"),
        (dict(measured=1.3, expected=1, tolerance=0.2, part=True), "scoped"),
        (dict(measured=1.0, expected=1, tolerance=0.2, whole=False), "scoped"),
        (dict(measured=1, expected=2, tolerance=0, sense="below"), "holds"),
        (dict(measured=2, expected=2, tolerance=9, sense="below"), "against"),
        (dict(measured=3, expected=2, tolerance=0, sense="above"), "holds"),
        (dict(measured=2, expected=2, tolerance=9, sense="above"), "against"),
        (dict(measured=math.nan, expected=0, tolerance=9), "against"),
        (dict(measured=math.nan, expected=0, tolerance=9, sense="below"), "against"),
        (dict(measured=math.inf, expected=0, tolerance=9), "against"),
    ],
)
def test_the_outcome_is_computed(given, outcome):
    assert Proof(**given).outcome == outcome


@pytest.mark.parametrize("wrong", [dict(tolerance=-1), dict(tolerance=0, sense="near")])
def test_a_proof_of_no_meaning_is_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        Proof(1, 1, **wrong)
