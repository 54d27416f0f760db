"""Blocks of the prose pages that come from results and from the ledger.

A block whose data do not exist yet is left out, and the build says so. No
number stands in a page that no code has produced.
"""

from __future__ import annotations

import html
import posixpath
from collections import Counter
from pathlib import Path

from book_site import read_json
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

logger = logging.getLogger(__name__)

FIRST_PAGE = "book/results/first_page.json"
EXECUTION = "book/results/execution.json"
VERDICTS = {  # in the order of the pages; what each says of the paper
    "holds": "came out as the paper says",
    "scoped": "holds within limits that we state",
    "weaker": "the paper's wording says more than we could show",
    "cannot tell": "our evidence does not decide",
    "against": "came out against the paper",
    "not rerun": "quoted with its source; nobody can rerun it here",
}


PROVED = ("holds", "scoped")
OPEN = "not yet shown"  # as bookkit.ledger has it


class Block(SphinxDirective):
    """What the directives share."""

    def missing(self, what: str) -> list:
        logger.info("[book] %s: left out, %s", self.env.docname, what)
        return []

    def data(self, name: str) -> dict | None:
        self.env.note_dependency(name)
        return read_json(self.env.app, name)

    def page(self, docname: str, text: str, anchor: str = "") -> nodes.Node:
        """A link to a page of the book, or its text where there is none."""
        if docname not in self.env.found_docs:
            return nodes.Text(text)
        here = posixpath.dirname(self.env.docname)
        uri = posixpath.relpath(docname, here) + ".html"
        return nodes.reference("", text, refuri=uri + anchor)

    def parse(self) -> list:
        node = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, node)
        return node.children


class WhenPage(Block):
    """Its content, if the page that it names is part of the book."""

    has_content = True
    required_arguments = 1

    def run(self) -> list:
        if self.arguments[0] not in self.env.found_docs:
            return self.missing(f"{self.arguments[0]} is not written")
        return self.parse()


class Chapter(SphinxRole):
    """{chapter}`04_scaled_dot_product_attention`: its title, as a link.

    A chapter that is not written yet is named without a link.
    """

    def run(self):
        docname = f"notebooks/{self.text}"
        if docname not in self.env.found_docs:
            text = chapter_title(self.text)
            return [nodes.inline("", text, classes=["unwritten"])], []
        node = addnodes.pending_xref(
            "",
            nodes.inline("", self.text),
            refdomain="std",
            reftype="doc",
            reftarget=f"/{docname}",
            refexplicit=False,
            refwarn=True,
            refdoc=self.env.docname,
        )
        return [node], []


class FirstPage(Block):
    """Two bars of one model: the one a loss sees, the one that counts."""

    def run(self) -> list:
        result = self.data(self.config.book_first_page)
        if result is None:
            return self.missing(f"{self.config.book_first_page} does not exist")
        bars = "".join(
            bar(label, float(result[key]), note)
            for key, label, note in (
                (
                    "teacher_forced",
                    "Teacher-forced accuracy",
                    "each next token, the true ones given",
                ),
                (
                    "greedy_exact_match",
                    "Greedy exact match",
                    "whole sequences, written on its own",
                ),
            )
        )
        steps, seed = int(result["steps"]), int(result["seed"])
        caption = (
            f"One model, trained for {steps:,} steps on copying short sequences"
            f" (seed {seed}). Its code has one mistake. Can you find it?"
        )
        block = (
            '<figure class="two-bars">\n<dl>\n'
            f"{bars}</dl>\n<figcaption>{caption}</figcaption>\n</figure>"
        )
        return [nodes.raw("", block, format="html"), *self.answer(result)]

    def answer(self, result: dict) -> list:
        """Folded: the name of the mistake and the lines that run it."""
        name = str(result["mutation"])
        lines = RUN_IT.format(
            mutation=name, seed=int(result["seed"]), steps=int(result["steps"])
        )
        code = nodes.literal_block(lines, lines, language="python")
        where = self.page(
            "notebooks/06_applications_of_attention", "the chapter on the three masks"
        )
        says = nodes.paragraph("", "", nodes.Text(f"{mistake(name)} See "), where)
        says += nodes.Text(".")
        opening = (
            '<details class="answer"><summary>The bug, and the lines that run it'
            "</summary>"
        )
        return [
            nodes.raw("", opening, format="html"),
            says,
            code,
            nodes.raw("", "</details>", format="html"),
        ]


RUN_IT = """\
import torch
from bookkit import mutations
from transformer.cli import train_toy
from transformer.data.toy import SymbolTask
from transformer.evaluation import (
    greedy_exact_match,
    teacher_forced_accuracy,
)

task = SymbolTask("copy")
fresh = task.batch(1000, torch.Generator().manual_seed(2**31 + {seed}))
with mutations.applied("{mutation}"):
    model, _ = train_toy(task, seed={seed}, steps={steps})
    print(teacher_forced_accuracy(model, fresh))
    print(greedy_exact_match(model, fresh))
"""


def bar(label: str, share: float, note: str) -> str:
    """One row: name, bar, number. The bar is decoration, the text says all."""
    return (
        f"<div><dt>{label} <small>{note}</small></dt>"
        f'<dd><span class="track" aria-hidden="true">'
        f'<span class="fill" style="width: {share:.1%}"></span></span>'
        f' <span class="value">{share:.3f}</span></dd></div>\n'
    )


def mistake(name: str) -> str:
    """What the mistake is, in the words of `bookkit.mutations`."""
    from bookkit import mutations

    says = mutations.MUTATIONS[name].says if name in mutations.MUTATIONS else name
    return says[0].upper() + says[1:] + "."


class ExecutionStrip(Block):
    """When the notebooks last ran, with what, and how the claims came out."""

    def run(self) -> list:
        ran = self.data(self.config.book_execution)
        if ran is None:
            return self.missing(f"{self.config.book_execution} does not exist")
        facts = []
        if "date" in ran:
            facts.append(("Last executed", str(ran["date"])[:10]))
        versions = {**ran.get("versions", {}), **ran}
        for key, label in (("python", "Python"), ("torch", "PyTorch")):
            if key in versions:
                facts.append((label, str(versions[key])))
        seconds = ran.get("seconds")
        if isinstance(seconds, dict) and seconds:
            times = [float(value) for value in seconds.values()]
            facts.append(
                ("Notebooks", f"{len(times)}, {sum(times):.0f} s all together")
            )
        facts += [(name, str(n)) for name, n in claim_counts(ran)]
        rows = "".join(
            f"<div><dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd></div>\n"
            for k, v in facts
        )
        strip = f'<dl class="strip simple">\n{rows}</dl>'
        return [nodes.raw("", strip, format="html")]


def claim_counts(ran: dict) -> list[tuple[str, int]]:
    """Claims in words, from the counts of `bookkit.ledger.tally`."""
    if isinstance(ran.get("tally"), dict):
        ran = ran["tally"]
    methods = ran.get("methods") or {}
    verdicts = first_dict(ran, "verdicts", "claims")
    if not methods:
        return [(f"Claims: {name}", n) for name, n in verdicts.items() if n]
    proved = [methods.get(name, {}) for name in ("verified", "arithmetic")]
    shown = {
        "Claims proved": sum(
            counts.get(verdict, 0) for counts in proved for verdict in PROVED
        ),
        "Measured": answered(methods.get("measured", {})),
        "Implemented": answered(methods.get("implemented", {})),
        "Against the paper": verdicts.get("against", 0),
        "Not rerunnable": verdicts.get("not rerun", 0),
        "Not shown yet": verdicts.get("not yet shown", 0),
    }
    return list(shown.items())


def first_dict(data: dict, *keys: str) -> dict:
    """The first of these that is a table."""
    return next((data[k] for k in keys if isinstance(data.get(k), dict)), {})


def answered(counts: dict) -> int:
    """Claims that a chapter shows, whatever came out."""
    return sum(n for verdict, n in counts.items() if verdict != "not yet shown")


class Repository(Block):
    """Edit this page, report an error: where the repository is known."""

    def run(self) -> list:
        options = self.config.html_theme_options
        url = options.get("repository_url")
        if not url:
            return self.missing("repository.url is not set")
        branch = options.get("repository_branch") or "main"
        path = self.env.doc2path(self.env.docname, base=False)
        edit = nodes.reference(
            "", "Edit this page", refuri=f"{url}/edit/{branch}/{path}"
        )
        report = nodes.reference("", "Report an error", refuri=f"{url}/issues/new")
        line = nodes.paragraph("", "", edit, nodes.Text(" · "), report)
        line["classes"].append("repository-links")
        return [line]


def claims(app: Sphinx) -> list | None:
    """The rows of the ledger, or None while there is no ledger."""
    try:
        from bookkit import ledger
    except ImportError:
        return None
    return ledger.coverage(Path(app.srcdir) / "notebooks")


class CoverageCounts(Block):
    """How many claims there are of each verdict. Never one percentage."""

    def run(self) -> list:
        rows = claims(self.env.app)
        if rows is None:
            return self.pending()
        counts = Counter(row.verdict or OPEN for row in rows)
        listed = [
            [nodes.Text(name), nodes.Text(str(counts[name])), nodes.Text(says)]
            for name, says in {**VERDICTS, OPEN: "no chapter shows it yet"}.items()
            if counts[name]
        ]
        return [table(["Verdict", "Claims", "Which means"], listed)]

    def pending(self) -> list:
        self.missing("the counts of the ledger: there is no bookkit.ledger")
        text = "The ledger is not part of this build, so nothing is counted here."
        return [nodes.note("", nodes.paragraph("", text))]


class CoverageTable(CoverageCounts):
    """Every claim: what the paper says, how it came out, where it is shown."""

    def run(self) -> list:
        body = []
        for row in claims(self.env.app) or []:
            claim = row.claim
            says = nodes.container("", nodes.paragraph("", claim.text))
            if row.notebook and claim.finding:
                says += nodes.paragraph("", f"We find: {claim.finding}")
            body.append(
                [
                    nodes.Text(section_name(claim.section)),
                    says,
                    nodes.Text(claim.method),
                    nodes.Text(row.verdict or OPEN),
                    self.shown_in(row),
                ]
            )
        if not body:
            return []
        titles = ["Section", "Claim", "Method", "Verdict", "Shown in"]
        return [table(titles, body, "coverage")]

    def shown_in(self, row) -> nodes.Node:
        if not row.notebook:
            return nodes.Text("")
        name = Path(row.notebook).stem
        chapter = f"Chapter {name.partition('_')[0]}"
        return self.page(f"notebooks/{name}", chapter, f"#{row.anchor}")


def section_name(section: str) -> str:
    """3.2.1 -> §3.2.1; "appendix" stays."""
    return f"§{section}" if section[0].isdigit() else section


class PaperMap(Block):
    """Lines of `section | title | notebook | module`, with the claims counted."""

    has_content = True

    def run(self) -> list:
        rows = claims(self.env.app)
        body = []
        for line in self.content:
            if not line.strip():
                continue
            section, title, chapter, modules = (x.strip() for x in line.split("|"))
            cells = [
                nodes.Text(f"{section} {title}".strip()),
                self.chapter(chapter),
                self.modules(modules),
            ]
            if rows is not None:
                cells.append(nodes.Text(str(count(rows, section))))
            body.append(cells)
        titles = ["Paper", "Chapter", "Module"]
        if rows is not None:
            titles.append("Claims")
        return [table(titles, body)]

    def chapter(self, name: str) -> nodes.Node:
        if f"notebooks/{name}" not in self.env.found_docs:
            return nodes.Text(f"{name[:2]}, not written yet")
        return self.page(f"notebooks/{name}", chapter_title(name))

    def modules(self, names: str) -> nodes.Node:
        cell = nodes.inline()
        here = posixpath.dirname(self.env.docname)
        for i, name in enumerate(filter(None, names.split())):
            if i:
                cell += nodes.Text(" ")
            path = f"src/transformer/{name}"
            if not (Path(self.env.app.srcdir) / path).exists():
                raise self.error(f"there is no {path}")
            link = nodes.reference("", "", refuri=posixpath.relpath(path, here))
            cell += link
            link += nodes.literal("", name)
        return cell


def count(rows: list, section: str) -> int:
    """Claims of exactly this section, written §3.2.1."""
    wanted = section.lstrip("§")
    return sum(row.claim.section == wanted for row in rows)


def chapter_title(name: str) -> str:
    """04_scaled_dot_product_attention -> 04 Scaled dot product attention."""
    number, _, words = name.partition("_")
    return f"{number} {words.replace('_', ' ').capitalize()}"


def table(titles: list[str], rows: list[list[nodes.Node]], kind: str = ""):
    """A table that scrolls sideways where the screen is narrow."""
    group = nodes.tgroup(cols=len(titles))
    group += [nodes.colspec(colwidth=1) for _ in titles]
    head, body = nodes.thead(), nodes.tbody()
    group += [head, body]
    for target, cells in [(head, [nodes.Text(t) for t in titles])] + [
        (body, row) for row in rows
    ]:
        line = nodes.row()
        for cell in cells:
            holder = cell if isinstance(cell, nodes.container) else None
            inside = holder.children if holder else [nodes.paragraph("", "", cell)]
            line += nodes.entry("", *inside)
        target += line
    return nodes.table("", group, classes=["colwidths-auto", *kind.split()])


def setup(app: Sphinx) -> dict:
    app.add_config_value("book_first_page", FIRST_PAGE, "env")
    app.add_config_value("book_execution", EXECUTION, "env")
    for name, directive in {
        "when-page": WhenPage,
        "first-page": FirstPage,
        "execution-strip": ExecutionStrip,
        "repository-links": Repository,
        "coverage-counts": CoverageCounts,
        "coverage-table": CoverageTable,
        "paper-map": PaperMap,
    }.items():
        app.add_directive(name, directive)
    app.add_role("chapter", Chapter())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
