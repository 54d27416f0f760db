"""The ledger: the paper's claims, and what the notebooks show of them.

    python -m bookkit.ledger           a table, and counts by verdict
    python -m bookkit.ledger --json    what is shown, as a list
    python -m bookkit.ledger --check   is claims.yml sound?

`claims.yml`, beside this module, says what the paper claims and how
it came out; its head describes the fields. What is covered is read
from the metadata of the committed notebooks' outputs and from
nowhere else.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path

CLAIMS = Path(__file__).with_name("claims.yml")

KINDS = ("definition", "design", "claim", "procedure", "result")
METHODS = ("verified", "measured", "implemented", "arithmetic", "reported")
VERDICTS = ("holds", "scoped", "weaker", "cannot tell", "against", "not rerun")
OPEN = "not yet shown"
SECTIONS = (
    "abstract 1 2 3 3.1 3.2 3.2.1 3.2.2 3.2.3 3.3 3.4 3.5 4"
    " 5 5.1 5.2 5.3 5.4 6 6.1 6.2 6.3 7 appendix"
).split()

# Fields that only claims of these methods have.
OF_METHOD = {
    "proof": ("verified", "arithmetic"),
    "breaks_with": ("verified",),
    "effect": ("measured",),
    "seeds": ("measured",),
    "rule": ("measured",),
    "test": ("implemented",),
    "source": ("reported",),
    "rerun_needs": ("reported",),
}


class LedgerError(ValueError):
    """The ledger, or what a notebook says of it, is not sound."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper. The head of claims.yml says more."""

    id: str
    section: str
    kind: str
    text: str
    method: str
    chapter: str
    verdict: str | None = None
    finding: str = ""
    cites: tuple[str, ...] = ()
    proof: str | None = None
    breaks_with: tuple[str, ...] = ()
    effect: str | None = None
    seeds: int | tuple[int, ...] | None = None
    rule: str | None = None
    test: str | None = None
    source: str | None = None
    rerun_needs: str | None = None


@dataclass(frozen=True)
class Row:
    """A claim, and where the notebooks show it.

    Attributes:
        verdict: as the notebook has it; None where none shows it.
        notebook: the file's name; None where none shows it.
        cell: counted from 1 over all cells of the notebook.
        evidence: the output's metadata, numbers and all.
    """

    claim: Claim
    verdict: str | None = None
    notebook: str | None = None
    cell: int | None = None
    evidence: dict | None = None

    @property
    def anchor(self) -> str:
        """The id of the evidence line in the notebook's page."""
        return f"evidence-{self.claim.id}"

    def brief(self) -> dict:
        """What `--json` prints of it."""
        return {
            "id": self.claim.id,
            "section": self.claim.section,
            "method": self.claim.method,
            "verdict": self.verdict,
            "notebook": self.notebook,
            "cell": self.cell,
        }


# --- reading -------------------------------------------------------------


def load(path: Path = CLAIMS) -> dict[str, Claim]:
    """The claims by id, in the order of the file.

    Raises:
        LedgerError: naming claim, field, value and rule, for the
            first thing that is wrong.
    """
    return _load(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _load(path: Path, _changed: int) -> dict[str, Claim]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = yaml.load(path.read_text("utf-8"), Loader=loader)
    claims: dict[str, Claim] = {}
    for entry in entries:
        claim = read(entry)
        if claim.id in claims:
            raise LedgerError(f"{claim.id}: stands twice in {path.name}")
        claims[claim.id] = claim
    return claims


def read(entry: dict) -> Claim:
    """One entry of the file as a claim.

    Raises:
        LedgerError: an unknown or missing field, a value outside its
            vocabulary, a field of another method, a bad rule.
    """
    name = entry.get("id", entry)

    def wrong(text: str) -> LedgerError:
        return LedgerError(f"{name}: {text}")

    known = [field.name for field in fields(Claim)]
    for field in entry:
        if field not in known:
            near = get_close_matches(field, known, 1)
            hint = f"; {near[0]} is meant?" if near else ""
            raise wrong(f"there is no field {field!r}{hint}")
    for field in ("id", "section", "kind", "text", "method", "chapter"):
        if not entry.get(field) or not isinstance(entry[field], str):
            raise wrong(f"{field} is missing, or is no text")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry["id"]):
        raise wrong("an id is lower-case words with hyphens between them")
    if not re.fullmatch(r"[0-9A]\d_[a-z0-9_]+", entry["chapter"]):
        raise wrong(f"chapter={entry['chapter']!r} is no notebook's name")
    for field, choices in (
        ("section", SECTIONS),
        ("kind", KINDS),
        ("method", METHODS),
        ("verdict", (*VERDICTS, None)),
    ):
        if entry.get(field) not in choices:
            listed = ", ".join(map(str, choices))
            raise wrong(f"{field}={entry[field]!r} is none of {listed}")
    for field, methods in OF_METHOD.items():
        if entry.get(field) and entry["method"] not in methods:
            raise wrong(f"{field} is for {' and '.join(methods)} claims only")
    if (entry["method"] == "reported") != (entry.get("verdict") == "not rerun"):
        raise wrong('reported claims, and no others, have the verdict "not rerun"')
    if entry.get("rule"):
        try:
            parse_rule(entry["rule"])
        except ValueError as error:
            raise wrong(str(error)) from None
    values = dict(entry)
    for field in ("cites", "breaks_with", "seeds"):
        if isinstance(values.get(field), list):
            values[field] = tuple(values[field])
    return Claim(**values)


def claim(name: str) -> Claim:
    """The claim of that id.

    Raises:
        LedgerError: there is none.
    """
    claims = load()
    if name not in claims:
        near = get_close_matches(name, claims, 3)
        hint = f"; there is {', '.join(near)}" if near else ""
        raise LedgerError(f"the ledger has no claim {name!r}{hint}")
    return claims[name]


# --- rules of measured claims ----------------------------------------------

_NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
_CLAUSE = re.compile(
    rf"(?P<verdict>[a-z ]+?) if (?:(?P<sense>above|below) (?P<bound>{_NUMBER})"
    rf"|between (?P<low>{_NUMBER}) and (?P<high>{_NUMBER}))"
)


def parse_rule(rule: str) -> list[tuple[str, str, float, float]]:
    """A rule's clauses as (verdict, sense, low, high), in order.

    The interval of the measurement must lie between low and high.
    The last clause is the one for everything else.

    Raises:
        ValueError: it is not of the form that claims.yml describes.
    """
    *clauses, last = [part.strip() for part in rule.split(";")]
    parsed = []
    for clause in clauses:
        match = _CLAUSE.fullmatch(clause)
        if not match or match["verdict"] not in VERDICTS:
            raise ValueError(
                f"rule: {clause!r} is not like 'holds if above 0',"
                " 'weaker if between -1 and 0'"
            )
        low, high = float("-inf"), float("inf")
        if match["sense"] == "above":
            low = float(match["bound"])
        elif match["sense"] == "below":
            high = float(match["bound"])
        else:
            low, high = float(match["low"]), float(match["high"])
        parsed.append((match["verdict"], match["sense"] or "between", low, high))
    verdict = last.removeprefix("otherwise ")
    if verdict == last or verdict not in VERDICTS or not parsed:
        raise ValueError("rule: it must end with '; otherwise cannot tell' or the like")
    return [*parsed, (verdict, "otherwise", float("-inf"), float("inf"))]


def decide(rule: str, low: float, high: float) -> str:
    """The verdict of the first clause that the interval fits into."""
    for verdict, sense, least, most in parse_rule(rule):
        inside = least < low and high < most
        if sense == "between":
            inside = least <= low and high <= most
        if sense == "otherwise" or inside:
            return verdict
    raise AssertionError("the last clause takes everything")


# --- checking --------------------------------------------------------------


def project_root() -> Path | None:
    """The repository that this package, or the caller, stands in."""
    places = [*CLAIMS.parents, Path.cwd(), *Path.cwd().parents]
    for place in places:
        if (place / "pyproject.toml").is_file() and (place / "src/bookkit").is_dir():
            return place
    return None


def check(claims: dict[str, Claim] | None = None) -> list[str]:
    """What is wrong with the ledger beyond single fields.

    Proofs, mutations, tests and works that are named must exist; a
    claim whose chapter exists, or that has a verdict, must have what
    its method needs; every proof belongs to exactly one claim.

    Returns:
        One sentence for each fault.
    """
    from bookkit import proofs
    from bookkit.mutations import MUTATIONS

    claims = load() if claims is None else claims
    root = project_root()
    faults = []
    known_proofs = set(proofs.all_proofs())
    bibliography = root and root / "book" / "references.bib"
    works = None
    if bibliography and bibliography.is_file():
        works = set(
            re.findall(r"^@\w+\{([^,\s]+)", bibliography.read_text("utf-8"), re.M)
        )
    for claim in claims.values():
        say = f"{claim.id}: ".__add__
        if claim.proof and claim.proof not in known_proofs:
            faults.append(say(f"bookkit.proofs has no proof {claim.proof!r}"))
        for mutation in claim.breaks_with:
            if mutation not in MUTATIONS:
                faults.append(say(f"there is no mutation {mutation!r}"))
            elif MUTATIONS[mutation].equivalent:
                faults.append(say(f"nothing can tell {mutation!r} apart"))
        if claim.test and root and not test_exists(claim.test, root):
            faults.append(say(f"there is no test {claim.test}"))
        for work in claim.cites:
            if works is not None and work not in works:
                faults.append(say(f"book/references.bib has no {work!r}"))
        chapter = root and root / "notebooks" / f"{claim.chapter}.ipynb"
        if claim.verdict or (chapter and chapter.is_file()):
            faults += map(say, missing(claim))
    used = Counter(claim.proof for claim in claims.values() if claim.proof)
    for proof in sorted(known_proofs | set(used)):
        if used[proof] != 1:
            faults.append(f"proof {proof}: {used[proof]} claims have it, not 1")
    return faults


def missing(claim: Claim) -> list[str]:
    """What the claim still needs before a chapter can show it."""
    needed = {
        "verified": ("verdict", "proof"),
        "arithmetic": ("verdict", "proof"),
        "measured": ("verdict", "effect", "seeds", "rule"),
        "implemented": ("verdict", "test"),
        "reported": ("verdict", "source", "rerun_needs"),
    }[claim.method]
    faults = [f"{name} is missing" for name in needed if not getattr(claim, name)]
    may_have_none = claim.method != "verified" or claim.kind == "design"
    if not claim.breaks_with and not may_have_none:
        faults.append("breaks_with names no mutation")
    if claim.verdict == "scoped" and not claim.finding:
        faults.append("a scoped claim needs a finding that says how far it goes")
    return faults


def test_exists(node: str, root: Path) -> bool:
    """Whether `tests/file.py::test_name` is there."""
    file, _, name = node.partition("::")
    return name.partition("[")[0] in _tests(root / file)


@functools.lru_cache(maxsize=64)
def _tests(file: Path) -> frozenset[str]:
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text("utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef)
    )


# pytest would take it for a test of its own.
test_exists.__test__ = False  # type: ignore[attr-defined]


# --- coverage --------------------------------------------------------------


def notebooks_folder() -> Path:
    """Where the committed notebooks are.

    Raises:
        LedgerError: outside a copy of the repository.
    """
    root = project_root()
    if root is None:
        raise LedgerError("no notebooks here: name their folder, --notebooks DIR")
    return root / "notebooks"


def coverage(notebooks: Path | None = None) -> list[Row]:
    """Every claim, and where the committed notebooks show it.

    Args:
        notebooks: their folder; the repository's if None.

    Returns:
        A row a claim, in the order of claims.yml.

    Raises:
        LedgerError: evidence for a claim that does not exist, twice
            for one claim, or with another verdict or method than the
            ledger's: the notebook has to be refreshed.
    """
    folder = notebooks_folder() if notebooks is None else Path(notebooks)
    claims = load()
    rows: dict[str, Row] = {}
    for path in sorted(folder.glob("*.ipynb")):
        for cell, found in evidence_in(json.loads(path.read_text("utf-8"))):
            name, where = found.get("id"), f"{path.name}, cell {cell}"
            if name not in claims:
                raise LedgerError(f"{where}: the ledger has no claim {name!r}")
            if name in rows:
                first = f"{rows[name].notebook}, cell {rows[name].cell}"
                raise LedgerError(f"{name} is shown twice: {first}; {where}")
            claim = claims[name]
            for field in ("verdict", "method", "section"):
                if found.get(field) != getattr(claim, field):
                    raise LedgerError(
                        f"{where}: {name} has {field}={found.get(field)!r}, the"
                        f" ledger has {getattr(claim, field)!r}: refresh the notebook"
                    )
            rows[name] = Row(claim, claim.verdict, path.name, cell, found)
    return [rows.get(name, Row(claim)) for name, claim in claims.items()]


def evidence_in(notebook: dict) -> Iterable[tuple[int, dict]]:
    """(cell, metadata) of each evidence line; cells count from 1."""
    for number, cell in enumerate(notebook.get("cells", []), start=1):
        for output in cell.get("outputs", []):
            found = output.get("metadata", {}).get("evidence")
            if isinstance(found, dict):
                yield number, found


def summary(rows: Iterable[Row]) -> dict[str, int]:
    """How many claims have each verdict, and how many are open."""
    counts = Counter(row.verdict or OPEN for row in rows)
    return {verdict: counts[verdict] for verdict in (*VERDICTS, OPEN)}


def tally(rows: Iterable[Row]) -> dict:
    """Counts for the site: all, by verdict, and by method and verdict."""
    rows = list(rows)
    methods = {}
    for method in METHODS:
        counts = summary(row for row in rows if row.claim.method == method)
        methods[method] = {name: n for name, n in counts.items() if n}
    return {"claims": len(rows), "verdicts": summary(rows), "methods": methods}


# --- the command -------------------------------------------------------------


def table(rows: list[Row], every: bool) -> str:
    """The rows in columns, with the counts below."""
    lines = [("claim", "section", "method", "verdict", "notebook", "cell")]
    for row in rows:
        if row.notebook or every:
            brief = row.brief()
            brief["verdict"] = brief["verdict"] or OPEN
            lines.append(tuple("" if v is None else str(v) for v in brief.values()))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    counts = ", ".join(f"{n} {name}" for name, n in summary(rows).items() if n)
    return "\n".join([*text, "", f"{len(rows)} claims: {counts}"])


def main(arguments: list[str] | None = None) -> int:
    """What the head of this module says. 1 if something is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bookkit.ledger",
        description="What the notebooks show of the paper's claims.",
    )
    parser.add_argument("--json", action="store_true", help="a list for programs")
    parser.add_argument(
        "--all", action="store_true", help="also what no notebook shows yet"
    )
    parser.add_argument(
        "--check", action="store_true", help="check claims.yml and stop"
    )
    parser.add_argument("--notebooks", type=Path, metavar="DIR", help="another folder")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            faults = check()
            print("\n".join(faults) if faults else f"{len(load())} claims, no fault")
            return 1 if faults else 0
        rows = coverage(options.notebooks)
    except LedgerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        briefs = [row.brief() for row in rows if row.notebook or options.all]
        print(json.dumps(briefs, indent=1, ensure_ascii=False))
    else:
        print(table(rows, every=options.all))
    return 0


if __name__ == "__main__":
    sys.exit(main())
