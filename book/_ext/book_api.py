"""Docstrings as they stand in src/, turned into pages without a warning.

Names of other projects link to their documentation through the short list
below, so that no inventory has to be fetched or kept.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import sys
import textwrap
from itertools import takewhile
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

PYTHON = "https://docs.python.org/3/library/"
TORCH = "https://docs.pytorch.org/docs/stable/"
ELSEWHERE = {  # by the last part of the name
    "Any": PYTHON + "typing.html#typing.Any",
    "Path": PYTHON + "pathlib.html#pathlib.Path",
    "Namespace": PYTHON + "argparse.html#argparse.Namespace",
    **{
        name: f"{PYTHON}collections.abc.html#collections.abc.{name}"
        for name in ("Callable", "Iterable", "Iterator", "Mapping", "Sequence")
    },
    "Tensor": TORCH + "tensors.html#torch.Tensor",
    "Generator": TORCH + "generated/torch.Generator.html",
    "device": TORCH + "tensor_attributes.html#torch.device",
    "dtype": TORCH + "tensor_attributes.html#torch.dtype",
    "Size": TORCH + "size.html",
    "Adam": TORCH + "generated/torch.optim.Adam.html",
    "Optimizer": TORCH + "optim.html#torch.optim.Optimizer",
    "LRScheduler": TORCH + "generated/torch.optim.lr_scheduler.LRScheduler.html",
    **{
        name: f"{TORCH}generated/torch.nn.{name}.html"
        for name in ("Module", "ModuleList", "Embedding", "Linear")
    },
    **{
        name: "https://docs.kidger.site/jaxtyping/api/array/"
        for name in ("Bool", "Float", "Int")
    },
    "Figure": "https://matplotlib.org/stable/api/figure_api.html",
    "Axes": "https://matplotlib.org/stable/api/_as_gen/matplotlib.axes.Axes.html",
}

# The order of the page.
ORDER = {
    "transformer": "config masks attention feed_forward embeddings"
    " positional_encoding encoder_decoder variants model decoding data.batches"
    " data.toy data.text data.tokenizer data.streams data.trees data.grammar"
    " evaluation translation complexity checkpoints pretrained.shipped"
    " pretrained.framework pretrained.marian training chunked_loss processes"
    " trainer material training_run".split(),
    "bookkit": "using checks report mutations evidence ledger source figures"
    " explorers environment".split(),
}
UNLISTED = {
    f"transformer.{name}"
    for name in "__main__ cli cli_train cli_translate data files".split()
}
# What readers call, where a module holds more than that.
MEMBERS = {
    "bookkit.mutations": "Mutation of applied add",
    "bookkit.evidence": "evidence Measurement EvidenceFailed",
    "bookkit.ledger": "Claim Row load coverage LedgerError",
    "bookkit.source": "show_source",
    "bookkit.figures": "FUNCTIONS",
    "bookkit.explorers": "positions learning_rate attention",
    "bookkit.environment": "describe",
}


def link_elsewhere(app, env, node, content):
    """A name of Python, PyTorch or jaxtyping; several between commas.

    A name of another project that is not in the list, or of ours that the
    page leaves out, stays without a link. One that does not exist is a
    warning.
    """
    target = node.get("reftarget", "")
    if ", " in target:  # napoleon takes "TypeError, ValueError" for one name
        if all(address(name) for name in target.split(", ")):
            return nodes.inline("", "", content)
        return None
    url = address(target)
    if url:
        return nodes.reference("", "", content, internal=False, refuri=url)
    if node.get("refdomain") != "py":
        return None
    root, dot, _ = target.partition(".")
    theirs = dot and root not in ORDER
    if theirs or exists(target, node.get("py:module")):
        return nodes.inline("", "", content)
    return None


def exists(name: str, module: str | None) -> bool:
    """Whether it is something of ours that the page does not list."""
    owner, _, last = name.rpartition(".")
    found = sys.modules.get(owner or module or "")
    return hasattr(found, last)


def address(name: str) -> str | None:
    """Where a name of another project is documented."""
    name = name.rpartition(".")[2]
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    kind = getattr(builtins, name, None)
    if isinstance(kind, type):
        page = "exceptions" if issubclass(kind, BaseException) else "functions"
        return f"{PYTHON}{page}.html#{name}"
    return PYTHON + "constants.html#None" if name == "None" else None


def list_modules(app: Sphinx, docname: str, source: list[str]) -> None:
    """`<!-- modules of PACKAGE -->` becomes a section for each module."""

    def sections(match: re.Match) -> str:
        package = match[1]
        root = Path(app.srcdir) / "src"
        found = {
            ".".join(path.relative_to(root / package).with_suffix("").parts)
            for path in (root / package).rglob("*.py")
            if path.stem != "__init__"
        }
        names = [name for name in ORDER[package] if name in found]
        if package == "transformer":  # of bookkit only what readers call
            names += sorted(found - set(names))
        full = [f"{package}.{name}" for name in names]
        return "\n".join(section(name) for name in full if name not in UNLISTED)

    source[0] = re.sub(r"<!-- modules of (\w+) -->", sections, source[0])


def section(module: str) -> str:
    """Name, link to the file, docstrings."""
    path = module.replace(".", "/") + ".py"
    names = MEMBERS.get(module, "").split()
    there = vars(importlib.import_module(module)) if names else {}
    if names == ["FUNCTIONS"]:
        functions = (v for v in there.values() if inspect.isfunction(v))
        names = [f.__name__ for f in functions if f.__module__ == module]
    members = ", ".join(
        name for name in names if name in there and not name.startswith("_")
    )
    return (
        f"## {module.partition('.')[2]}\n\n{{source-file}}`{path}`\n\n"
        f"```{{eval-rst}}\n.. automodule:: {module}\n   :members: {members}\n```\n"
    )


def as_readers_take_it(app, what, name, obj, options, lines: list[str]) -> None:
    """Docstrings are written to be read as they are, not as markup.

    An indented block after a blank line is code. Under "Returns:" a hanging
    indent makes a list. A star is a star.
    """
    marked: list[str] = []
    before = section = ""  # the last line that is not blank; its section
    hanging = hangs(lines)
    code = False
    for i, line in enumerate(lines):
        opens = line.startswith("    ") and i and not lines[i - 1].strip()
        if re.fullmatch(r"[A-Z]\w+:", line):
            section = line
        if opens and not section and not before.startswith(" "):
            marked += [f".. code-block:: {language(lines[i:])}", ""]
            code = True
        if line.strip() and not line.startswith(" "):
            code = False
        before = line if line.strip() else before
        if not code:
            line = re.sub(r"(`[^`]*`)|\*", lambda m: m[1] or r"\*", line)
        if section == "Returns:" and hanging and re.match(r" {4}\S", line):
            line = "    - " + line.strip()
        elif section == "Returns:" and hanging and line.startswith(" " * 8):
            line = "      " + line.strip()
        marked.append(line)
    lines[:] = marked


def language(lines: list[str]) -> str:
    """Of the indented block that the lines begin with."""
    block = takewhile(lambda line: not line.strip() or line.startswith(" "), lines)
    try:
        ast.parse(textwrap.dedent("\n".join(block)))
    except SyntaxError:
        return "text"
    return "python"


def hangs(lines: list[str]) -> bool:
    """Whether the section "Returns:" has lines of a hanging indent."""
    text = "\n".join(lines)
    found = re.search(r"^Returns:\n((?: +\S.*\n?)+)", text, re.MULTILINE)
    return bool(found) and bool(re.search(r"^ {8}", found[1], re.MULTILINE))


def setup(app: Sphinx) -> dict:
    app.connect("source-read", list_modules)
    app.connect("missing-reference", link_elsewhere)
    app.connect("autodoc-process-docstring", as_readers_take_it, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
