"""Strict nbval turns red for each fault that is planted.

Each cell of a notebook holds one fault, or a change that is none. A
chapter whose evidence is taken out altogether, and a note that has
gone stale, are found by tests/bookkit.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from tests.notebooks.planting import change, executed_notebook, facts, set_source

ROOT = Path(__file__).resolve().parents[2]


def number(new):
    """Change an evidence line's number, in all that is shown of it."""

    def put(cell):
        (output,) = cell["outputs"]
        for kind, text in output["data"].items():
            text = text if isinstance(text, str) else "".join(text)
            assert "63.9" in text
            output["data"][kind] = text.replace("63.9", f"{new:.1f}")
        facts(cell)["measured"] = new

    return put


def expectation(cell):
    data = cell["outputs"][0]["data"]
    data["text/plain"] = [
        t.replace(", expected 0", ", expected 1") for t in data["text/plain"]
    ]


def printed(text):
    return lambda cell: cell["outputs"][0].update(text=text)


VARIANCE = "evidence('variance-dk', proofs.variance_dk())"
SOUND = {
    "the import": ("from bookkit import evidence, mutations, proofs", None),
    "an untouched line": ("print(1 + 1)", None),
    "an untouched proof": ("evidence('eq1')", None),
    "evidence within its tolerance": (VARIANCE, number(64.9)),
}
PLANTED = {
    "a changed number": ("print(1 + 1)", printed("3\n")),
    "a changed value": (
        "6 * 7",
        lambda cell: cell["outputs"][0]["data"].update({"text/plain": "43"}),
    ),
    "a stripped cell": (
        "print(2 + 2)",
        lambda cell: cell.update(outputs=[], execution_count=None),
    ),
    "stripped outputs": ("evidence('eq2')", lambda cell: cell.update(outputs=[])),
    "1/0": ("1 + 0", set_source("1/0")),
    "evidence out of its tolerance": (VARIANCE, number(68.0)),
    "a wider tolerance": (
        "evidence('weighted-sum')",
        lambda cell: facts(cell).update(tolerance=99),
    ),
    "another verdict": (
        "evidence('saturation')",
        lambda cell: facts(cell).update(verdict="holds"),
    ),
    "another expectation": ("evidence('no-peeking')", expectation),
    "evidence without its numbers": (
        "evidence('kernel-one')",
        lambda cell: cell["outputs"][0]["metadata"].clear(),
    ),
    "evidence taken out": ("evidence('adam')", set_source("'adam'")),
    "a known mistake": (
        "evidence('use-decoder')",
        set_source(
            "with mutations.applied('no_causal_mask'):\n    evidence('use-decoder')"
        ),
    ),
}
CASES = {
    name.replace(" ", "-").replace("/", "-"): c for name, c in (SOUND | PLANTED).items()
}
NAMES = list(SOUND | PLANTED)


@pytest.fixture(scope="module")
def failed(tmp_path_factory) -> set[str]:
    """The cells that failed, by what was planted in them."""
    folder = tmp_path_factory.mktemp("planted")
    shutil.copy(ROOT / "notebooks" / "conftest.py", folder)
    sources = {name: text for name, (text, _) in CASES.items()}
    path = executed_notebook(folder / "00_planted.ipynb", sources)
    change(path, **{name: put for name, (_, put) in CASES.items() if put})
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "--nbval", "-q", f"--rootdir={folder}"]
    command += [f"--nbval-sanitize-with={ROOT / 'nbval_sanitize.cfg'}"]
    command += ["-p", "no:cacheprovider", f"--junit-xml={report}", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    cells = list(ElementTree.parse(report).iter("testcase"))
    assert len(cells) == len(NAMES)
    return {
        NAMES[int(cell.get("name").removeprefix("Cell "))]
        for cell in cells
        if len(cell)  # a failure or an error inside
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_what_is_sound_passes(name, failed):
    assert name not in failed


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name, failed):
    assert name in failed


# --- what cannot be planted in seconds -------------------------------------


@pytest.fixture
def strict():
    """notebooks/conftest.py as a module."""
    before = dict(os.environ)
    file = ROOT / "notebooks" / "conftest.py"
    spec = importlib.util.spec_from_file_location("strict_conftest", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    os.environ.clear()
    os.environ.update(before)


class Item(SimpleNamespace):
    """What the hooks ask of a cell of nbval's."""

    def __init__(self, timed_out=False, **more):
        cell = SimpleNamespace(source="1", execution_count=1, outputs=[])
        super().__init__(
            cell_num=0,
            cell=cell,
            test_outputs=[],
            output_timeout=5,
            parent=SimpleNamespace(timed_out=timed_out),
            config=SimpleNamespace(option=SimpleNamespace(nbval_lax=False)),
            **more,
        )

    def raise_cell_error(self, message, *more):
        raise AssertionError(message)


def test_a_cell_that_goes_on_after_its_time_fails(strict):
    item = Item()
    call = strict.pytest_runtest_call(item)
    next(call)
    item.parent.timed_out = True
    with pytest.raises(AssertionError, match="took too long"):
        call.send(None)


def test_a_cell_waits_longer_for_its_output_than_nbval(strict):
    item = Item()
    strict.pytest_runtest_setup(item)
    assert item.output_timeout == strict.SECONDS_FOR_OUTPUT > 5


def test_strict_settings_are_the_default_of_the_folder(strict):
    option = SimpleNamespace(
        nbval=True,
        nbval_current_env=False,
        nbval_cell_timeout=2000,
        nbval_sanitize_with=None,
    )
    strict.pytest_configure(SimpleNamespace(option=option))
    assert option.nbval_current_env
    assert option.nbval_cell_timeout == strict.SECONDS_A_CELL
    assert option.nbval_sanitize_with == str(ROOT / "nbval_sanitize.cfg")
    assert os.environ["OMP_NUM_THREADS"] == "1"
