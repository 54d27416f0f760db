"""The committed notebooks are in form, and each fault of form is found."""

import json
import re

import psutil
import pytest
from tests.notebooks.planting import change, executed_notebook, facts, set_source

from bookkit import ledger, notebooks

FOLDER = ledger.project_root() / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_is_in_form(path):
    faults = notebooks.check(path)
    assert not faults, "\n".join(map(str, faults))


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The bytes of a small executed notebook."""
    folder = tmp_path_factory.mktemp("notebooks")
    return executed_notebook(folder / "04_small.ipynb").read_bytes()


@pytest.fixture
def path(sound, tmp_path):
    """A copy of it to plant a fault in."""
    copy = tmp_path / "04_small.ipynb"
    copy.write_bytes(sound)
    return copy


def test_a_refreshed_notebook_is_in_form(path):
    assert notebooks.check(path) == []


@pytest.mark.slow
def test_refreshing_again_leaves_no_difference(path, sound):
    before = psutil.Process().children()
    assert notebooks.refresh([path], record=None) == 0
    assert path.read_bytes() == sound
    # Nor a kernel: that of a chapter holds half a gigabyte.
    assert psutil.Process().children() == before


def test_a_refresh_normalises_metadata_and_keeps_ids(path):
    notebook = json.loads(path.read_text("utf-8"))
    assert notebook["metadata"] == notebooks.NOTEBOOK_METADATA
    ids = [cell["id"] for cell in notebook["cells"]]
    assert ids[:3] == ["title", "import", "print"]


def stream(text, name="stdout"):
    output = {"name": name, "output_type": "stream", "text": text}
    return lambda cell: cell.update(outputs=[output])


def metadata(**values):
    return lambda cell: cell["metadata"].update(values)


def image(kind="image/png"):
    shown = {"output_type": "display_data", "metadata": {}, "data": {kind: "iVBO"}}
    return lambda cell: cell["outputs"].append(shown)


def strip(cell):
    cell.update(outputs=[], execution_count=None)


def html(text):
    shown = {"output_type": "display_data", "metadata": {}, "data": {"text/html": text}}
    return lambda cell: cell.update(outputs=[shown])


FAULTS = {
    "never executed": ("execution", dict(print=strip)),
    "executed out of order": (
        "execution",
        dict(print=lambda cell: cell.update(execution_count=9)),
    ),
    "empty": ("execution", dict(print=set_source(""))),
    "stderr": ("errors", dict(print=stream("Warning: old\n", "stderr"))),
    "skipped": ("skips", dict(print=metadata(tags=["nbval-skip"]))),
    "a comment for nbval": ("skips", dict(value=set_source("# NBVAL_SKIP\n42"))),
    "an absolute path": ("paths", dict(print=stream("saved /home/me/x.pt\n"))),
    "a path in the source": ("paths", dict(print=set_source("open('/tmp/x')"))),
    "a path in the text": ("paths", dict(title=set_source("see ~/book"))),
    "an address": ("addresses", dict(print=stream("<object at 0x7f2a9c3d1e50>\n"))),
    "a semicolon": ("semicolons", dict(value=set_source("6 * 7;  # quiet"))),
    "a semicolon within": ("semicolons", dict(value=set_source("a = 1;\na"))),
    "tqdm": ("progress bars", dict(value=set_source("from tqdm import tqdm"))),
    "a bar": ("progress bars", dict(print=stream("50%|#####     | 5/10\n"))),
    "no alt text": ("images", dict(figure=lambda cell: cell["metadata"].clear())),
    "alt text without words": (
        "images",
        dict(figure=metadata(mystnb={"image": {"alt": " "}})),
    ),
    "two images": ("images", dict(figure=image())),
    "an SVG": ("images", dict(figure=image("image/svg+xml"))),
    "Markdown image without alt": ("images", dict(title=set_source("![](a.png)"))),
    "HTML image without alt": ("images", dict(print=html("<img src='data:'>"))),
    "a directive": (
        "portable Markdown",
        dict(title=set_source("```{note}\nRead.\n```")),
    ),
    "a colon directive": (
        "portable Markdown",
        dict(title=set_source(":::note\nx\n:::")),
    ),
    "a role": ("portable Markdown", dict(title=set_source("See {ref}`intro`."))),
    "a label": ("portable Markdown", dict(title=set_source("(here)=\n# Title"))),
    "a block break": ("portable Markdown", dict(title=set_source("a\n\n+++\n\nb"))),
    "a substitution": ("portable Markdown", dict(title=set_source("See {{ name }}."))),
    "a .md link": ("portable Markdown", dict(title=set_source("[x](../book/a.md)"))),
    "math left open": ("portable Markdown", dict(title=set_source("$$ a = b"))),
    "other metadata": ("metadata", dict(print=metadata(collapsed=True))),
    "no id": ("metadata", dict(print=lambda cell: cell.pop("id"))),
    "the id of another": ("metadata", dict(print=lambda cell: cell.update(id="title"))),
    "a changed line": (
        "evidence",
        dict(
            verified=lambda cell: cell["outputs"][0]["data"].update(
                {"text/plain": "measured 64.0 ± 0.7, expected 64 · §3.2.1 · holds"}
            )
        ),
    ),
    "changed metadata": (
        "evidence",
        dict(verified=lambda cell: facts(cell).update(measured=71.0)),
    ),
    "metadata in part": (
        "evidence",
        dict(verified=lambda cell: facts(cell).pop("sense")),
    ),
    "no metadata": (
        "evidence",
        dict(verified=lambda cell: cell["outputs"][0]["metadata"].clear()),
    ),
    "a line that is none": (
        "evidence",
        dict(print=stream("measured 9, expected 9 · §3.2.1 · holds\n")),
    ),
    "an unknown claim": (
        "evidence",
        dict(verified=lambda cell: facts(cell).update(id="gone")),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_form_is_found(fault, path):
    rule, changes = FAULTS[fault]
    change(path, **changes)
    found = notebooks.check(path)
    assert rule in {f.rule for f in found}, found


@pytest.mark.parametrize(
    "text",
    [
        "A role looks like `{ref}` and a set like $\\{1, 2\\}$.",
        "```python\nx = {'a': 1}; y = 2\n```",
        "$$\n\\frac{{a}}{{b}} \\tag{1}\n$$",
        "[chapter 4](04_small.ipynb#evidence-eq1) and https://example.org/home/x",
        "<details><summary>Answer</summary>\n\nYes.\n\n</details>",
        "![a line that rises](line.png)",
        "and/or, 3/4, key/value, a: b",
    ],
)
def test_plain_markdown_is_left_alone(text, path):
    change(path, title=set_source(text))
    assert notebooks.check(path) == []


@pytest.mark.parametrize(
    "code", ["a = ';'", "# end;", "text = '''one;\ntwo;'''", "a = 1; b = 2"]
)
def test_semicolons_that_end_no_statement_are_left_alone(code, path):
    change(path, value=set_source(code))
    assert notebooks.check(path) == []


def test_a_fault_is_told_with_notebook_cell_rule_and_first_words(path):
    change(path, print=strip)
    text = str(notebooks.check(path)[0])
    assert re.match(r"04_small.ipynb, cell 3: execution: has not been executed", text)
    assert "print('1 + 1 =', 1 + 1)" in text


def test_the_command_says_how_many_faults(path, capsys):
    run = ["--folder", str(path.parent), "check"]
    assert notebooks.main(run) == 0
    assert capsys.readouterr().out == "notebooks: 1, faults: 0\n"
    change(path, print=strip)
    assert notebooks.main([*run, "04"]) == 1
    assert "notebooks: 1, faults: 1" in capsys.readouterr().out
    assert notebooks.main([*run, "05"]) == 1
    assert "starts with '05'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_notebook_that_fails_is_left_as_it_was(path, capsys):
    change(path, value=set_source("1 / 0"))
    before = path.read_bytes()
    assert notebooks.refresh([path], record=None) == 1
    assert path.read_bytes() == before
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_record_has_versions_seconds_and_counts(path):
    record = path.with_name("execution.json")
    record.write_text('{"seconds": {"04_small.ipynb": 1.0, "gone.ipynb": 2.0}}')
    content = json.loads(notebooks._record(record, path.parent, {}))
    assert content["seconds"] == {"04_small.ipynb": 1.0}
    assert set(content["versions"]) == {"python", "torch"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", content["date"])
    assert content["verdicts"]["holds"] == 2
    assert content["methods"]["reported"]["not rerun"] == 1
