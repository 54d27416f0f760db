"""The site around the pages: theme options, scripts, buttons, copies.

What `_config.yml` cannot say. Each function is one trap of Jupyter Book
or its theme, or one thing that the site must hold besides pages.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
from pathlib import Path
from urllib.parse import quote, urlsplit

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.docutils import SphinxRole

COLAB_BRANCH = "colab"  # where the publish workflow puts stamped notebooks


def set_theme_options(app: Sphinx, config: Config) -> None:
    """Add to the theme's options; in `_config.yml` they would replace all."""
    options = config.html_theme_options
    repository = options.get("repository_url")
    theirs = {
        "navbar_persistent": [],  # else a second search field
        "use_download_button": True,
        "use_fullscreen_button": False,
        "use_edit_page_button": bool(repository),
        "use_issues_button": bool(repository),
        "home_page_in_toc": False,  # the title above the contents leads there
        "show_navbar_depth": 1,
        "show_toc_level": 2,
        "pygments_light_style": "a11y-high-contrast-light",
        "pygments_dark_style": "a11y-high-contrast-dark",
        "search_bar_text": "Search this book",
        "footer_content_items": ["copyright.html", "extra-footer.html"],
        "extra_footer": "Code: MIT. Prose and figures: CC BY 4.0.",
    }
    for name, value in theirs.items():
        options[name] = value
    if not repository:
        for name in ("repository_url", "repository_branch", "launch_buttons"):
            options.pop(name, None)
        config.html_baseurl = ""
    elif not config.html_baseurl:
        config.html_baseurl = pages_address(repository)


def pages_address(repository: str) -> str:
    """https://github.com/OWNER/REPO -> where its Pages stand, or ""."""
    parts = urlsplit(repository)
    owner, _, name = parts.path.strip("/").partition("/")
    if parts.netloc != "github.com" or not name:
        return ""
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def leave_thebe_out(app: Sphinx, config: Config) -> None:
    """sphinx-thebe comes with Jupyter Book, and adds itself unasked."""
    for name, listeners in app.events.listeners.items():
        app.events.listeners[name] = [
            listener
            for listener in listeners
            if not listener.handler.__module__.startswith("sphinx_thebe")
        ]


def once_each(app, pagename, templatename, context, doctree) -> None:
    """Each script and style once, and no style of Thebe's.

    Some extensions add theirs twice.
    """
    for kind in ("script_files", "css_files"):
        seen, kept = set(), []
        for asset in context.get(kind, []):
            name = getattr(asset, "filename", None) or str(asset)
            body = getattr(asset, "attributes", {}).get("body", "")
            key = (name.split("?")[0], body)
            if key not in seen and "thebe" not in name:
                kept.append(asset)
            seen.add(key)
        context[kind] = kept


def mend(app, pagename, templatename, context, doctree) -> None:
    """What Sphinx writes and a screen reader stumbles over.

    A signature on several lines comes as a list of definitions without
    terms; entries of the bibliography have a role that no longer exists; a
    data frame's corner is a heading of nothing; folded code has a label that
    hides its title.
    """
    body = context.get("body")
    if not body:
        return
    body = re.sub(r'(?s)<dt class="sig.*?</dt>', plain_lines, body)
    body = body.replace(' role="doc-biblioentry"', "")
    body = body.replace('<div role="list" class="citation-list">', "<div>")
    body = body.replace('<summary aria-label="Toggle hidden content">', "<summary>")
    context["body"] = body.replace("<th></th>", "<td></td>")


def plain_lines(signature: re.Match) -> str:
    """Lines of a signature as what they are."""
    return re.sub(
        r"<(/?)d[ld]>",
        lambda m: "</span>" if m[1] else f'<span class="sig-{m[0][1:3]}">',
        signature[0],
    )


def point_at_colab_branch(app, pagename, templatename, context, doctree) -> None:
    """Launch from the branch of stamped notebooks, edit on the main one."""
    branch = app.config.html_theme_options.get("repository_branch", "main")
    for group in context.get("header_buttons", []):
        if group.get("label") != "launch-buttons":
            continue
        for button in group["buttons"]:
            button["url"] = button["url"].replace(
                f"/blob/{branch}/", f"/blob/{COLAB_BRANCH}/"
            )


def describe(app, pagename, templatename, context, doctree) -> None:
    """The page's first paragraph as its description."""
    if doctree is None:
        return
    for paragraph in doctree.findall(nodes.paragraph):
        text = " ".join(paragraph.astext().split())
        if len(text) > 40:
            cut = text if len(text) <= 160 else text[:157].rsplit(" ", 1)[0] + " ..."
            node = nodes.Element(content=cut)
            context["metatags"] = context.get("metatags", "") + (
                f'<meta name="description" content="{quoted(node["content"])}">\n'
            )
            return


def quoted(text: str) -> str:
    """For an attribute in double quotes."""
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def copy_sources(app: Sphinx, exception: Exception | None) -> None:
    """The code into the site, at its own path: pages link to it."""
    if exception or app.builder.format != "html":
        return
    root, site = Path(app.srcdir), Path(app.outdir)
    for path in sorted((root / "src").rglob("*.py")):
        target = site / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def leave_out_what_no_reader_loads(app: Sphinx, exception: Exception | None) -> None:
    """The themes' source maps, translations, and fonts that are there twice."""
    if exception or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    twice = (f for f in static.rglob("*.ttf") if f.with_suffix(".woff2").exists())
    for path in [*static.rglob("*.map"), *twice]:
        path.unlink()
    shutil.rmtree(static / "locales", ignore_errors=True)


def write_entrance(app: Sphinx, exception: Exception | None) -> None:
    """index.html at the top, which leads to page one."""
    if exception or app.builder.format != "html":
        return
    first = app.config.root_doc + ".html"
    title = quoted(app.config.html_title)
    (Path(app.outdir) / "index.html").write_text(
        "<!doctype html>\n"
        f'<html lang="{app.config.language}"><head><meta charset="utf-8">'
        f"<title>{title}</title>\n"
        f'<meta http-equiv="refresh" content="0; url={first}">\n'
        f'<link rel="canonical" href="{first}"></head>\n'
        f'<body><main><p><a href="{first}">{title}</a></p></main></body></html>\n',
        "utf-8",
    )


def write_sitemap(app: Sphinx, exception: Exception | None) -> None:
    """sitemap.xml, where the site has an address."""
    base = app.config.html_baseurl
    if exception or app.builder.format != "html" or not base:
        return
    pages = "".join(
        f"  <url><loc>{base}{quote(name)}.html</loc></url>\n"
        for name in sorted(app.env.found_docs)
    )
    (Path(app.outdir) / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
        f"{pages}</urlset>\n",
        "utf-8",
    )


class SourceFile(SphinxRole):
    """{source-file}`transformer/attention.py`: a link to the site's copy."""

    def run(self):
        path = f"src/{self.text}"
        if not (Path(self.env.app.srcdir) / path).is_file():
            message = self.inliner.reporter.error(f"there is no {path}")
            return [], [message]
        here = posixpath.dirname(self.env.docname)
        link = nodes.reference("", "", refuri=posixpath.relpath(path, here))
        link += nodes.literal("", path)
        return [link], []


def read_json(app: Sphinx, name: str) -> dict | None:
    """A result file of the book, or None where it does not exist yet."""
    path = Path(app.srcdir) / name
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def setup(app: Sphinx) -> dict:
    app.connect("config-inited", set_theme_options)
    app.connect("config-inited", leave_thebe_out)
    app.connect("html-page-context", once_each, priority=900)
    app.connect("html-page-context", mend, priority=900)
    app.connect("html-page-context", point_at_colab_branch, priority=900)
    app.connect("html-page-context", describe, priority=900)
    app.connect("build-finished", copy_sources)
    app.connect("build-finished", leave_out_what_no_reader_loads)
    app.connect("build-finished", write_entrance)
    app.connect("build-finished", write_sitemap)
    app.add_role("source-file", SourceFile())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
