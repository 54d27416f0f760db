"""Run the notebooks and save them; check their form.

    python -m bookkit.notebooks refresh            all of them
    python -m bookkit.notebooks refresh 04 09      those that start so
    python -m bookkit.notebooks check [04 ...]     form only, nothing runs
    python -m bookkit.notebooks sanitize           nbval_sanitize.cfg

`refresh` runs each notebook top to bottom in a fresh kernel of this
Python, one thread, in the notebooks' own folder, and writes outputs
and normalised metadata. Run twice it leaves no difference. It also
writes `book/results/execution.json`. A notebook that fails is left
as it was.

`check` reads the committed files. Its rules, by name, are in `RULES`.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import json
import os
import platform
import re
import subprocess
import sys
import time
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bookkit.ledger import LedgerError, coverage, load, tally

NOTEBOOK_METADATA = {
    "kernelspec": {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}
CELL_METADATA = ("jupyter", "mystnb", "slideshow", "tags")
SECONDS_A_CELL = 600


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with one cell.

    Attributes:
        notebook: the file's name.
        cell: counted from 1 over all cells; 0 for the whole file.
        rule: its name in `RULES`.
        says: what is wrong, and what to do.
        begins: the first words of the cell.
    """

    notebook: str
    cell: int
    rule: str
    says: str
    begins: str = ""

    def __str__(self) -> str:
        where = f"cell {self.cell}" if self.cell else "file"
        begins = f'  "{self.begins}"' if self.begins else ""
        return f"{self.notebook}, {where}: {self.rule}: {self.says}{begins}"


# --- normal form -------------------------------------------------------------


def normalise(notebook: dict) -> None:
    """Bring metadata into the one form, in place.

    Notebook metadata is `NOTEBOOK_METADATA`; cells keep the keys in
    `CELL_METADATA`, and their ids; a cell without an id, or with one
    that stands twice, gets one made from its source.
    """
    notebook["metadata"] = json.loads(json.dumps(NOTEBOOK_METADATA))
    notebook["nbformat"], notebook["nbformat_minor"] = 4, 5
    taken: set[str] = set()
    for cell in notebook["cells"]:
        metadata = cell.get("metadata", {})
        cell["metadata"] = {k: metadata[k] for k in CELL_METADATA if metadata.get(k)}
        if not cell.get("id") or cell["id"] in taken:
            cell["id"] = _new_id(cell, taken)
        taken.add(cell["id"])


def _new_id(cell: dict, taken: set[str]) -> str:
    count = 0
    while True:
        seed = f"{cell['cell_type']}\n{source(cell)}\n{count}"
        name = hashlib.sha256(seed.encode()).hexdigest()[:8]
        if name not in taken:
            return name
        count += 1


def source(cell: dict) -> str:
    """A cell's source as one string, however the file has it."""
    text = cell.get("source", "")
    return text if isinstance(text, str) else "".join(text)


def texts(output: dict) -> Iterator[tuple[str, str]]:
    """(MIME type or stream name, text) of all text in an output."""
    if output["output_type"] == "stream":
        yield output["name"], _joined(output["text"])
    elif output["output_type"] == "error":
        yield "error", "\n".join([output["evalue"], *output["traceback"]])
    for kind, content in output.get("data", {}).items():
        if kind.startswith("text/"):
            yield kind, _joined(content)


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


# --- the format check ----------------------------------------------------------


def code_cells(notebook: dict) -> Iterator[tuple[int, dict]]:
    """(number from 1 over all cells, cell) of cells that hold code."""
    for number, cell in enumerate(notebook["cells"], start=1):
        if cell["cell_type"] == "code":
            yield number, cell


def markdown_cells(notebook: dict) -> Iterator[tuple[int, str]]:
    """(number, Markdown without its code) of text cells."""
    for number, cell in enumerate(notebook["cells"], start=1):
        if cell["cell_type"] == "markdown":
            text = re.sub(
                r"^(```|~~~)\w*\n.*?^\1\s*$", "", source(cell), flags=re.M | re.S
            )
            yield number, re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)


Found = Iterator[tuple[int, str]]


def executed(notebook: dict) -> Found:
    """Every code cell has run, in order, from 1 and without gaps."""
    expected = 1
    for number, cell in code_cells(notebook):
        if not source(cell).strip():
            yield number, "an empty code cell: remove it"
            continue
        count = cell.get("execution_count")
        if count is None:
            yield number, "has not been executed: refresh the notebook"
        elif count != expected:
            yield number, f"ran as number {count}, not {expected}: refresh the notebook"
        expected = (count or expected) + 1


def no_errors(notebook: dict) -> Found:
    """No cell wrote to stderr, and none failed unless tagged so."""
    for number, cell in code_cells(notebook):
        tagged = "raises-exception" in cell["metadata"].get("tags", [])
        for output in cell["outputs"]:
            if output["output_type"] == "error" and not tagged:
                yield number, f"failed with {output['ename']}"
            if output.get("name") == "stderr":
                first = _joined(output["text"]).strip().partition("\n")[0]
                yield number, f"wrote to stderr: {first[:60]}"


def no_skips(notebook: dict) -> Found:
    """Nothing is kept from nbval but by the tag for outputs."""
    for number, cell in code_cells(notebook):
        tags = cell["metadata"].get("tags", [])
        if "nbval-skip" in tags:
            yield number, "the tag nbval-skip keeps the cell from running"
        if re.search(r"^\s*#\s*(NBVAL_|PYTEST_VALIDATE)", source(cell), re.M):
            yield number, "a comment for nbval: readers see it, use a tag"
        if "nbval-ignore-output" in tags and not cell["outputs"]:
            yield number, "nbval-ignore-output on a cell without outputs"


_PATHS = re.compile(
    r"(?<![\w.:/~-])(/(?:home|Users|root|tmp|work|usr|opt|var|mnt|content)/[\w.-]+"
    r"|~/[\w.-]+|[A-Z]:\\\w+)|site-packages"
)


def no_paths(notebook: dict) -> Found:
    """No absolute or home path, in sources or outputs."""
    for number, cell in enumerate(notebook["cells"], start=1):
        parts = [source(cell)]
        for output in cell.get("outputs", []):
            parts += [text for _, text in texts(output)]
        for text in parts:
            if match := _PATHS.search(text):
                yield number, f"names the path {match[0]!r}"
                break


def no_addresses(notebook: dict) -> Found:
    """No output holds an address such as 0x7f3a..."""
    for number, cell in code_cells(notebook):
        for output in cell["outputs"]:
            for _, text in texts(output):
                if match := re.search(r"\b0x[0-9a-f]{6,}\b", text):
                    yield number, f"an address, {match[0]}, differs in each run"


def no_semicolons(notebook: dict) -> Found:
    """No statement ends with a semicolon: nbval shows the output."""
    for number, cell in code_cells(notebook):
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(source(cell)).readline))
        except (tokenize.TokenError, SyntaxError, IndentationError):
            continue  # a cell magic; ruff and the run see to the rest
        words = [t for t in tokens if t.type not in (tokenize.COMMENT, tokenize.NL)]
        for word, after in itertools.pairwise(words):
            ends = after.type in (tokenize.NEWLINE, tokenize.ENDMARKER)
            if word.string == ";" and word.type == tokenize.OP and ends:
                yield number, f"line {word.start[0]} ends with a semicolon"


def no_bars(notebook: dict) -> Found:
    """No progress bar: pass progress=False."""
    for number, cell in code_cells(notebook):
        if re.search(r"\btqdm\b", source(cell)):
            yield number, "uses tqdm: its bar is different in each run"
        for output in cell["outputs"]:
            for _, text in texts(output):
                if re.search(r"\d+%\|.*\||\d(it|step)/s", text):
                    yield number, "a progress bar in the output: progress=False"


def one_image_with_alt(notebook: dict) -> Found:
    """A cell shows one image at most, and says what is in it."""
    for number, cell in code_cells(notebook):
        images = [
            kind
            for output in cell["outputs"]
            for kind in output.get("data", {})
            if kind.startswith("image/")
        ]
        if len(images) > 1:
            yield number, f"{len(images)} images in one cell: one a cell"
        alt = cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")
        if images and len(alt.strip()) < 10:
            yield number, "an image without alt text: metadata mystnb.image.alt"
        if any(kind == "image/svg+xml" for kind in images):
            yield number, "an SVG image: nbval cannot compare it, use PNG"
    for number, text in markdown_cells(notebook):
        if re.search(r"!\[\s*\]\(", text):
            yield number, "an image without alt text: ![what is seen](...)"
    for number, cell in enumerate(notebook["cells"], start=1):
        html = source(cell) if cell["cell_type"] == "markdown" else ""
        for output in cell.get("outputs", []):
            html += "".join(text for kind, text in texts(output) if kind == "text/html")
        for tag in re.findall(r"<img\b[^>]*>", html):
            if not re.search(r"\balt=(\"[^\"]+\"|'[^']+')", tag):
                yield number, "an <img> without alt text"


# What a directive or a role is made of looks like code to others, so it
# is looked for in the whole cell; the rest outside of code.
_MYST_ANYWHERE = {
    r"^\s*(```|~~~)\{": "a MyST directive",
    r"(?<![\w`])\{[a-z][\w:+-]*\}`": "a MyST role",
}
_MYST_IN_TEXT = {
    r"^\s*:{3,}": "a MyST directive in colons",
    r"^\([\w-]+\)=\s*$": "a MyST label",
    r"^\+\+\+": "a MyST block break",
    r"\{\{[^}$]*\}\}": "a MyST substitution",
    r"\]\([^)\s]+\.md(#[^)]*)?\)": "a link to a .md page, which only the site has",
    r"^\s*\\begin\{(align|equation)\*?\}": "a bare environment: use $$ lines",
}


def portable_markdown(notebook: dict) -> Found:
    """Markdown that Colab, JupyterLab and code hosts read alike."""
    for number, text in markdown_cells(notebook):
        whole = source(notebook["cells"][number - 1])
        words = re.sub(r"\$\$.*?\$\$|\$[^$\n]*\$", "", text, flags=re.S)
        for places, patterns in ((whole, _MYST_ANYWHERE), (words, _MYST_IN_TEXT)):
            for pattern, what in patterns.items():
                if match := re.search(pattern, places, re.M):
                    yield number, f"{what}: {match[0].strip()!r}"
        if text.count("$$") % 2:
            yield number, "$$ is opened and not closed"


def normal_metadata(notebook: dict) -> Found:
    """Metadata is what `normalise` leaves."""
    if notebook["metadata"] != NOTEBOOK_METADATA:
        yield 0, "metadata is not normalised: refresh the notebook"
    if (notebook["nbformat"], notebook["nbformat_minor"]) != (4, 5):
        yield 0, "the format is not 4.5: refresh the notebook"
    ids = [cell.get("id") for cell in notebook["cells"]]
    for number, cell in enumerate(notebook["cells"], start=1):
        other = set(cell["metadata"]) - set(CELL_METADATA)
        if other:
            yield number, f"metadata {', '.join(sorted(other))}: refresh the notebook"
        if not cell.get("id"):
            yield number, "has no id: refresh the notebook"
        elif ids.index(cell["id"]) != number - 1:
            yield number, f"has the id {cell['id']} of another cell"
        for output in cell.get("outputs", []):
            mimes = output.get("data", {})
            if any("widget" in kind for kind in mimes):
                yield number, "a widget, which a static page cannot show"


def true_evidence(notebook: dict) -> Found:
    """Evidence lines are those that their metadata give, no others."""
    from bookkit.evidence import bundle, masked_text

    claims = load()
    for number, cell in code_cells(notebook):
        for output in cell["outputs"]:
            facts = output.get("metadata", {}).get("evidence")
            shown = dict(texts(output))
            if not isinstance(facts, dict):
                if any(masked_text(text) for text in shown.values()):
                    yield number, "looks like an evidence line and is none"
                continue
            if facts.get("id") not in claims:
                yield number, f"the ledger has no claim {facts.get('id')!r}"
                continue
            try:
                right = bundle(claims[facts["id"]], facts)
            except (KeyError, TypeError, AttributeError) as error:
                yield number, f"the evidence's metadata is not whole: {error!r}"
                continue
            if right != shown:
                yield (
                    number,
                    (
                        f"the line for {facts['id']} is not that of its metadata and"
                        " the ledger: refresh the notebook"
                    ),
                )


RULES: dict[str, Callable[[dict], Found]] = {
    "execution": executed,
    "errors": no_errors,
    "skips": no_skips,
    "paths": no_paths,
    "addresses": no_addresses,
    "semicolons": no_semicolons,
    "progress bars": no_bars,
    "images": one_image_with_alt,
    "portable Markdown": portable_markdown,
    "metadata": normal_metadata,
    "evidence": true_evidence,
}


def check(path: Path) -> list[Fault]:
    """What is wrong with the form of a notebook; [] if nothing."""
    notebook = json.loads(path.read_text("utf-8"))
    if notebook.get("nbformat") != 4:
        return [Fault(path.name, 0, "metadata", "is not of notebook format 4")]
    faults = []
    for rule, find in RULES.items():
        for number, says in find(notebook):
            begins = ""
            if number:
                words = source(notebook["cells"][number - 1]).split()
                begins = " ".join(words)[:50]
            faults.append(Fault(path.name, number, rule, says, begins))
    return sorted(faults, key=lambda fault: fault.cell)


# --- running -------------------------------------------------------------------


def run(path: Path, seconds_a_cell: float = SECONDS_A_CELL) -> dict:
    """The notebook, executed top to bottom in a fresh kernel.

    Args:
        path: of the notebook; its folder is the working directory.
        seconds_a_cell: longer, and the cell has failed.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
        nbclient.exceptions.CellTimeoutError: a cell took too long.
        nbclient.exceptions.DeadKernelError: the kernel died.
    """
    import ipykernel.kernelspec
    import nbformat
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    class ThisPython(KernelSpecManager):
        """Whatever kernels are installed, run this interpreter."""

        def get_kernel_spec(self, kernel_name: str):
            return self.kernel_spec_class(
                resource_dir=ipykernel.kernelspec.RESOURCES,
                **ipykernel.kernelspec.get_kernel_dict(),
            )

    notebook = nbformat.read(path, as_version=4)
    normalise(notebook)
    client = NotebookClient(
        notebook,
        km=AsyncKernelManager(kernel_spec_manager=ThisPython()),
        timeout=seconds_a_cell,
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    # What the kernel itself has to say is of no use; cells' stderr is kept.
    # With a manager of ours, nbclient would leave the kernel running.
    client.execute(
        env={**os.environ, **QUIET}, stderr=subprocess.DEVNULL, cleanup_kc=True
    )
    normalise(notebook)
    return notebook


QUIET = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def save(notebook: dict, path: Path) -> None:
    """Write the whole notebook, or leave the old one as it is."""
    import nbformat

    text = nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"
    write(path, text)


def write(path: Path, text: str) -> None:
    """Write under another name, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def refresh(paths: list[Path], record: Path | None) -> int:
    """Run and save each; the number of those that failed.

    Args:
        paths: the notebooks.
        record: `execution.json`, to be brought up to date; or None.
    """
    from nbclient.exceptions import (
        CellExecutionError,
        CellTimeoutError,
        DeadKernelError,
    )

    failed, seconds = 0, {}
    for path in paths:
        start = time.perf_counter()
        try:
            notebook = run(path)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            failed += 1
            print(f"{path.name}: failed, left as it was\n{error}", file=sys.stderr)
            continue
        save(notebook, path)
        seconds[path.name] = round(time.perf_counter() - start, 1)
        print(f"{path.name}: {seconds[path.name]} s", flush=True)
    if record and seconds:
        try:
            write(record, _record(record, paths[0].parent, seconds))
        except LedgerError as error:
            failed += 1
            print(f"error: {error}", file=sys.stderr)
    return failed


def _record(record: Path, folder: Path, seconds: dict[str, float]) -> str:
    """What was executed when, with what, and what it shows."""
    import torch

    old = json.loads(record.read_text("utf-8")) if record.is_file() else {}
    there = sorted(path.name for path in folder.glob("*.ipynb"))
    known = {**old.get("seconds", {}), **seconds}
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "seconds": {name: known[name] for name in there if name in known},
        **tally(coverage(folder)),
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


# --- the command -----------------------------------------------------------------


def chosen(folder: Path, names: list[str]) -> list[Path]:
    """The notebooks whose names start so; all where none is named.

    Raises:
        LedgerError: a name that no notebook starts with.
    """
    paths = sorted(folder.glob("*.ipynb"))
    if not names:
        return paths
    found: list[Path] = []
    for name in names:
        stem = Path(name).name.removesuffix(".ipynb")
        fits = [path for path in paths if path.stem.startswith(stem)]
        if not fits:
            raise LedgerError(f"no notebook in {folder.name}/ starts with {stem!r}")
        found += fits
    return sorted(set(found))


def main(arguments: list[str] | None = None) -> int:
    """What the head of this module says. 1 if something is wrong."""
    from bookkit.ledger import notebooks_folder

    parser = argparse.ArgumentParser(
        prog="python -m bookkit.notebooks", description="Run or check the notebooks."
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="another folder")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, says in (("refresh", "run and save"), ("check", "check the form")):
        command = commands.add_parser(name, help=says)
        command.add_argument("names", nargs="*", metavar="NAME", help="such as 04")
    commands.add_parser("sanitize", help="print nbval_sanitize.cfg")
    options = parser.parse_args(arguments)
    if options.command == "sanitize":
        from bookkit.evidence import sanitize_file

        print(sanitize_file(), end="")
        return 0
    try:
        folder = (options.folder or notebooks_folder()).resolve()
        paths = chosen(folder, options.names)
    except LedgerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.command == "refresh":
        record = None
        if options.folder is None:
            record = folder.parent / "book" / "results" / "execution.json"
        return 1 if refresh(paths, record) else 0
    faults = [fault for path in paths for fault in check(path)]
    for fault in faults:
        print(fault)
    print(f"notebooks: {len(paths)}, faults: {len(faults)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
