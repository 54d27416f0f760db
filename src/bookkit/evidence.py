"""One line of evidence for a claim of the ledger, that can fail.

    from bookkit import Measurement, evidence, proofs

    evidence("variance-dk", proofs.variance_dk())
    evidence("extrapolate", Measurement.from_results("lengths", value="exact_match"))
    evidence("adam")          # implemented: shows the test that pins it
    evidence("enfr-big")      # reported: shows where it stands

The line is shown as text and as HTML, the rest folded away. Numbers,
verdict and id go into the output's metadata, from which the line can
be made again: `bundle` does, for the tests. Between two runs numbers
may differ by the tolerance that stands in the metadata.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

KEY = "evidence"  # in an output's metadata

# What nbval leaves out when it compares text: the numbers of an evidence
# line, which `differences` compares. nbval_sanitize.cfg has the same.
MASKS = (
    (
        r"(?m)\bmeasured .*?(?=, expected .* · "
        r"(?:holds|scoped|weaker|cannot tell|against)$)",
        "measured NUMBER",
    ),
    (r"(?m)^    each: .*$", "    each: NUMBERS"),
    (
        r'<span class="evidence-measured">[^<]*</span>',
        '<span class="evidence-measured">NUMBER</span>',
    ),
)

# Quiet, and right in light and dark: what the site has no CSS for.
STYLE = (
    "border-left:3px solid var(--evidence-colour,currentColor);"
    "padding:.1em 0 .1em .8em;margin:.6em 0"
)

# Two-sided 95% quantiles of Student's t for 1 to 30 degrees of freedom.
_T95 = (
    "12.71 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262 2.228"
    " 2.201 2.179 2.160 2.145 2.131 2.120 2.110 2.101 2.093 2.086"
    " 2.080 2.074 2.069 2.064 2.060 2.056 2.052 2.048 2.045 2.042"
)


class EvidenceFailed(AssertionError):
    """What came out is not what the ledger declares, or is nothing."""


@dataclass(frozen=True)
class Measurement:
    """A number for each seed.

    Args:
        values: seed, or the name of a run -> number.
        unit: what the number counts, if it needs saying.
        tolerance: how far the mean may be off in another run of the
            notebook: 0 for numbers from a result file.
        what: the quantity in a few words, for the start of the line.

    Raises:
        ValueError: no values, one that is not finite, or a tolerance
            below 0.
    """

    values: Mapping[Any, float]
    unit: str = ""
    tolerance: float = 0.0
    what: str = ""

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("values is empty: a measurement needs numbers")
        for seed, value in self.values.items():
            if not math.isfinite(value):
                raise ValueError(f"values[{seed!r}]={value} must be finite")
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance={self.tolerance} must be at least 0")

    @classmethod
    def from_results(
        cls,
        name: str,
        value: str | Callable[[dict], float],
        unit: str = "",
        what: str = "",
    ) -> Measurement:
        """One number a run from `book/results/NAME.json`.

        Args:
            name: of the file, without ".json".
            value: the key in each of the file's `runs`, dots going
                deeper, or a function of a run.

        Raises:
            FileNotFoundError: there is no such file.
        """

        def pick(run: dict) -> float:
            if callable(value):
                return value(run)
            for key in value.split("."):
                run = run[key]
            return run

        runs = results(name)["runs"]
        return cls({run["seed"]: pick(run) for run in runs}, unit, what=what)

    @property
    def mean(self) -> float:
        """Over all seeds."""
        return statistics.fmean(self.values.values())

    @property
    def half_width(self) -> float | None:
        """Of the 95% interval of the mean; None for a single value."""
        n = len(self.values)
        if n < 2:
            return None
        quantiles = [float(t) for t in _T95.split()]
        t = quantiles[n - 2] if n - 2 < len(quantiles) else 1.96 + 2.5 / (n - 1)
        return t * statistics.stdev(self.values.values()) / math.sqrt(n)

    def decided_by(self, rule: str) -> str:
        """The verdict that a rule of the ledger gives."""
        from bookkit.ledger import decide

        reach = self.half_width or 0.0
        return decide(rule, self.mean - reach, self.mean + reach)


def results(name: str) -> dict:
    """What `book/results/NAME.json` holds.

    Raises:
        FileNotFoundError: there is no such file, neither in the
            repository nor in the installed package.
    """
    from bookkit.ledger import project_root

    root = project_root()
    folders = [root / "book" / "results"] if root else []
    folders.append(Path(__file__).with_name("results"))
    for folder in folders:
        path = folder / f"{name}.json"
        if path.is_file():
            return json.loads(path.read_text("utf-8"))
    raise FileNotFoundError(f"there is no book/results/{name}.json here")


def evidence(name: str, shown: Any = None) -> None:
    """Show one line of evidence, or fail.

    Args:
        name: the claim's id.
        shown: for verified and arithmetic claims a `Proof`, or the
            function that gives it, or nothing, which runs the
            ledger's; for measured claims a `Measurement`; for others
            nothing.

    Raises:
        EvidenceFailed: the outcome is not the declared verdict, in
            either direction; no verdict is declared; other seeds
            than the declared; the test that is named is not there.
        LedgerError: the ledger has no such claim.
        TypeError: `shown` is of another kind than the claim's method
            asks for.
    """
    from bookkit import ledger

    claim = ledger.claim(name)
    facts = {
        "id": claim.id,
        "section": claim.section,
        "method": claim.method,
        "verdict": claim.verdict,
        **_found(claim, shown),
    }
    facts = {key: stable(value) for key, value in facts.items() if value is not None}
    display(bundle(claim, facts), facts)


def display(data: dict[str, str], facts: dict) -> None:
    """Hand the line to the notebook; outside one, print it."""
    try:
        from IPython import get_ipython
        from IPython.display import display as show
    except ImportError:
        get_ipython = lambda: None  # noqa: E731
    if get_ipython() is None:
        print(data["text/plain"])
    else:
        show(data, raw=True, metadata={KEY: facts})


def _found(claim, shown: Any) -> dict:
    """Numbers and outcome, checked against the declared verdict."""
    if claim.method in ("verified", "arithmetic"):
        return _proved(claim, shown)
    if claim.method == "measured":
        return _measured(claim, shown)
    if shown is not None:
        raise TypeError(
            f"{claim.id} is {claim.method}: evidence({claim.id!r}) takes nothing more"
        )
    return _implemented(claim) if claim.method == "implemented" else {}


def _proved(claim, shown: Any) -> dict:
    from bookkit import proofs

    if shown is None:
        if claim.proof is None:
            raise EvidenceFailed(f"{claim.id}: the ledger names no proof yet")
        shown = getattr(proofs, claim.proof)
    proof = shown() if callable(shown) else shown
    if not isinstance(proof, proofs.Proof):
        raise TypeError(
            f"{claim.id} is {claim.method}: it needs a Proof, not"
            f" {type(proof).__name__}"
        )
    doc = getattr(proofs, claim.proof).__doc__ if claim.proof else ""
    numbers = {
        "what": doc.partition("\n")[0].rstrip("."),
        "measured": proof.measured,
        "spread": proof.spread,
        "unit": proof.unit or None,
        "sense": proof.sense,
        "expected": proof.expected,
        "tolerance": proof.tolerance,
    }
    _require(claim, proof.outcome, numbers)
    return numbers


def _measured(claim, shown: Any) -> dict:
    from bookkit.ledger import parse_rule

    if not isinstance(shown, Measurement):
        raise TypeError(
            f"{claim.id} is measured: it needs a Measurement, not"
            f" {type(shown).__name__}"
        )
    if not claim.rule or not claim.seeds:
        raise EvidenceFailed(
            f"{claim.id}: state effect, seeds and rule in claims.yml before the run"
        )
    _require_seeds(claim, shown)
    clauses = parse_rule(claim.rule)
    wanted = [clause for clause in clauses if clause[0] == "holds"] or clauses
    _, sense, low, high = wanted[0]
    bounds = {"above": low, "below": high, "between": [low, high]}
    numbers = {
        "what": shown.what or None,
        "measured": shown.mean,
        "spread": shown.half_width,
        "unit": shown.unit or None,
        "sense": sense,
        "expected": bounds[sense],
        "tolerance": shown.tolerance,
        "seeds": [str(seed) for seed in shown.values],
        "values": list(shown.values.values()),
    }
    _require(claim, shown.decided_by(claim.rule), numbers)
    return numbers


def _require_seeds(claim, shown: Measurement) -> None:
    declared = claim.seeds
    if isinstance(declared, int):
        if len(shown.values) != declared:
            raise EvidenceFailed(
                f"{claim.id}: {len(shown.values)} seeds were run, the ledger"
                f" declares {declared}"
            )
    elif {str(seed) for seed in declared} != {str(seed) for seed in shown.values}:
        raise EvidenceFailed(
            f"{claim.id}: the seeds {', '.join(map(str, shown.values))} were run, the"
            f" ledger declares {', '.join(map(str, declared))}"
        )


def _implemented(claim) -> dict:
    from bookkit.ledger import project_root, test_exists

    root = project_root()
    if not claim.test:
        raise EvidenceFailed(f"{claim.id}: the ledger names no test yet")
    if root and (root / "tests").is_dir() and not test_exists(claim.test, root):
        raise EvidenceFailed(f"{claim.id}: there is no test {claim.test}")
    _require(claim, claim.verdict, {})
    return {"test": claim.test}


def _require(claim, outcome: str | None, numbers: dict) -> None:
    """Fail unless the outcome is the declared verdict."""
    came = f"came out as {outcome!r}"
    if numbers:
        came += f": {saying(numbers)}"
    if claim.verdict is None:
        raise EvidenceFailed(f"{claim.id}: {came}, but the ledger declares no verdict")
    if outcome != claim.verdict:
        raise EvidenceFailed(
            f"{claim.id} (section {claim.section}): declared {claim.verdict!r}, {came}"
        )


# --- what is shown -----------------------------------------------------------


def line(facts: dict) -> str:
    """The visible line, from an output's metadata alone."""
    head = {
        "implemented": f"implemented, pinned by {_test_name(facts)}",
        "reported": "quoted from the paper",
    }.get(facts["method"]) or saying(facts)
    return f"{head} · {place(facts['section'])} · {facts['verdict']}"


def saying(facts: dict) -> str:
    """Variance of q.k: measured 64.1 ± 0.7, expected 64"""
    measured, expected = _measured_text(facts), _expected_text(facts)
    what = f"{facts['what']}: " if facts.get("what") else ""
    return f"{what}measured {measured}, expected {expected}"


def place(section: str) -> str:
    """§3.2.1, or the part's name where it has no number."""
    return f"§{section}" if section[0].isdigit() else section


def number(value: float, spread: float | None = None) -> str:
    """A number as it is read: three digits, or as many as its spread.

    Whole numbers and those from 1000 on are given without decimals,
    below 1e-3 and from 1e7 on with an exponent.
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    size = abs(value)
    if spread and size < 1e7:
        decimals = max(0, -math.floor(math.log10(spread)))
        if decimals < 7:
            return f"{value:.{decimals}f}"
    if float(value).is_integer() and size < 1e12:
        return str(int(value))
    if 1000 <= size < 1e7:
        return f"{value:.0f}"
    if 1e-3 <= size < 1000:
        return f"{value:.3g}"
    digits, exponent = f"{value:.2e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


def _measured_text(facts: dict) -> str:
    spread = facts.get("spread")
    text = number(facts["measured"], spread)
    if spread:
        text += f" ± {number(spread, spread)}"
    return f"{text} {facts['unit']}" if facts.get("unit") else text


def _expected_text(facts: dict) -> str:
    expected, sense = facts["expected"], facts["sense"]
    if sense == "between":
        return f"between {number(expected[0])} and {number(expected[1])}"
    if sense != "equal":
        return f"{sense} {number(expected)}"
    if expected == 0 and facts["tolerance"]:
        return f"0 within {number(facts['tolerance'])}"
    return number(expected)


def _test_name(facts: dict) -> str:
    return facts.get("test", "").partition("::")[2]


def details(claim, facts: dict) -> list[tuple[str, str]]:
    """What is folded away: pairs of a heading and a text."""
    pairs = [("The paper says", claim.text)]
    if claim.finding:
        pairs.append(("We find", claim.finding))
    pairs.append(("How", _how(claim, facts)))
    if claim.breaks_with:
        from bookkit.mutations import MUTATIONS

        mistakes = [f"{MUTATIONS[name].says} ({name})" for name in claim.breaks_with]
        pairs.append(("This check fails if", "; ".join(mistakes)))
    if facts.get("values"):
        both = zip(facts["seeds"], facts["values"], strict=True)
        pairs.append(("each", ", ".join(f"{seed}: {number(v)}" for seed, v in both)))
    return [(head, text if text.endswith(".") else f"{text}.") for head, text in pairs]


def _how(claim, facts: dict) -> str:
    if claim.method == "reported":
        return f"{claim.source} To run it again: {claim.rerun_needs}"
    if claim.method == "implemented":
        return f"Implemented; pinned by {claim.test}"
    if claim.method == "measured":
        decided = f"{claim.effect} Decided before the run: {claim.rule}"
        seeds = len(facts["seeds"])
        if seeds == 1:
            return f"Measured once: {decided}"
        spread = "± is half of the mean's 95% interval over seeds"
        return f"Measured, {seeds} seeds: {decided}. {spread}"
    text = f"{claim.method.capitalize()} by {claim.proof}() in bookkit/proofs.py."
    if facts.get("spread"):
        text += " ± is one standard error."
    if facts["sense"] == "equal":
        text += f" Tolerance {number(facts['tolerance'])}"
    return text


def bundle(claim, facts: dict) -> dict[str, str]:
    """The output's text and HTML, from its metadata and the ledger."""
    folded = details(claim, facts)
    text = [line(facts), *(f"    {head}: {body}" for head, body in folded)]
    return {"text/plain": "\n".join(text), "text/html": _html(facts, folded)}


def _html(facts: dict, folded: list[tuple[str, str]]) -> str:
    name = escape(facts["id"])

    def masked(text: str) -> str:
        return f'<span class="evidence-measured">{escape(text)}</span>'

    summary = escape(line(facts))
    if "measured" in facts:
        text = escape(_measured_text(facts))
        before, found, after = summary.partition(f"measured {text}, expected")
        assert found
        number = masked(_measured_text(facts))
        summary = f"{before}measured {number}, expected{after}"
    verdict = escape(facts["verdict"])
    summary = (
        f'{summary[: -len(verdict)]}<strong class="evidence-verdict">{verdict}</strong>'
    )
    rows = [
        f"<dt>{escape(head[0].upper() + head[1:])}</dt>"
        f"<dd>{masked(body) if head == 'each' else escape(body)}</dd>"
        for head, body in folded
    ]
    return "\n".join(
        [
            f'<details class="evidence" id="evidence-{name}"'
            f' data-verdict="{verdict}" style="{STYLE}">',
            f"<summary>{summary}</summary>",
            "<dl>",
            *rows,
            "</dl>",
            "</details>",
        ]
    )


# --- comparing two runs --------------------------------------------------------


def stable(value: Any) -> Any:
    """As it is stored: eight digits, whole numbers as such."""
    if isinstance(value, list):
        return [stable(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, float):
        return value
    if not math.isfinite(value):
        raise EvidenceFailed(f"{value} is no evidence: a number must be finite")
    rounded = float(f"{value:.8g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def differences(fresh: list[dict], committed: list[dict]) -> list[str]:
    """How the evidence of a cell differs between two runs.

    Numbers may differ by the tolerance in the metadata, the spread by
    a tenth as well; everything else must be equal.

    Returns:
        A sentence for each difference; none if all is well.
    """
    new, old = ([facts.get("id") for facts in run] for run in (fresh, committed))
    if new != old:
        return [f"evidence for {old} is committed, for {new} came out"]
    found = []
    for now, before in zip(fresh, committed, strict=True):
        name = before["id"]
        allowed = before.get("tolerance", 0)
        for key in sorted(now.keys() | before.keys()):
            a, b = now.get(key), before.get(key)
            slack = allowed
            if key == "spread" and a is not None and b is not None:
                slack = max(allowed, 0.1 * abs(b))
            if key in ("measured", "spread", "values"):
                same = _close(a, b, slack)
            else:
                same = a == b
            if not same:
                found.append(
                    f"{name}: {key} is {a} now and {b} in the notebook"
                    f" (tolerance {allowed})"
                )
    return found


def _close(a: Any, b: Any, slack: float) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(lambda x, y: _close(x, y, slack), a, b))
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return a == b
    return abs(a - b) <= slack * (1 + 1e-6)


def sanitize_file() -> str:
    """The content of nbval_sanitize.cfg."""
    head = [
        "# What nbval leaves out of its comparison of outputs: the numbers of",
        "# evidence lines. notebooks/conftest.py compares those within their",
        "# tolerance, and the format check lets nobody else use these forms.",
        "# Made by: python -m bookkit.notebooks sanitize > nbval_sanitize.cfg",
    ]
    for index, (pattern, replacement) in enumerate(MASKS):
        head += ["", f"[mask{index}]", f"regex: {pattern}", f"replace: {replacement}"]
    return "\n".join(head) + "\n"


def masked_text(text: str) -> list[str]:
    """The parts of a text that the masks would hide."""
    return [match[0] for pattern, _ in MASKS for match in re.finditer(pattern, text)]
