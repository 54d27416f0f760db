"""Small notebooks that are sound, and how to plant faults in them."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from bookkit import notebooks

FIGURE = """\
import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(2, 1))
ax.plot([0, 1], [0, 1])
plt.show()"""


SMALL = {
    "import": "from bookkit import evidence, proofs",
    "print": "print('1 + 1 =', 1 + 1)",
    "value": "6 * 7",
    "verified": "evidence('variance-dk', proofs.variance_dk())",
    "implemented": "evidence('adam')",
    "reported": "evidence('enfr-big')",
    "figure": FIGURE,
}


def executed_notebook(path: Path, sources: dict[str, str] = SMALL) -> Path:
    """A refreshed notebook of a title and these code cells, by id."""
    cells = [new_markdown_cell("# Small\n\nScores are $q \\cdot k$.", id="title")]
    cells += [new_code_cell(text, id=name) for name, text in sources.items()]
    for cell in cells:
        if cell.source == FIGURE:
            cell.metadata["mystnb"] = {"image": {"alt": "A line that rises."}}
    notebook = new_notebook(cells=cells, metadata={"title": "a draft"})
    nbformat.write(notebook, path)
    assert notebooks.refresh([path], record=None) == 0
    return path


def change(path: Path, **cells) -> None:
    """Apply a function to the cells of these ids."""
    notebook = json.loads(path.read_text("utf-8"))
    for cell in notebook["cells"]:
        if cell["id"] in cells:
            cells[cell["id"]](cell)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False), "utf-8")


def set_source(text: str):
    """A change of a cell's source."""
    return lambda cell: cell.update(source=text)


def facts(cell: dict) -> dict:
    """The metadata of a cell's evidence line."""
    (output,) = cell["outputs"]
    return output["metadata"]["evidence"]
