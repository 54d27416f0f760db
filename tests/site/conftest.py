"""The site, built twice into a temporary folder and visited once.

`site` is built as the repository is: no address, no buttons. `addressed`
has a made-up address, and made-up results on page one where there are none
yet, to see what a published site would hold.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Error, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = "from jupyter_book.cli.main import main; main()"
ADDRESS = "https://github.com/OWNER/REPO"
VIEWS = {  # name: colour scheme, width, height
    "light on a desktop": ("light", 1280, 800),
    "dark on a phone": ("dark", 390, 844),
}
CHROMIUM = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Site:
    """A built site. `page` parses a page once."""

    root: Path
    log: str
    code: int
    parsed: dict[str, BeautifulSoup] = field(default_factory=dict)

    @property
    def pages(self) -> list[str]:
        """Every page, by its path in the site."""
        found = self.root.rglob("*.html")
        names = (path.relative_to(self.root).as_posix() for path in found)
        return sorted(name for name in names if not name.startswith("_static/"))

    def page(self, name: str) -> BeautifulSoup:
        if name not in self.parsed:
            text = (self.root / name).read_text("utf-8")
            self.parsed[name] = BeautifulSoup(text, "html.parser")
        return self.parsed[name]


@dataclass
class Visit:
    """What a browser saw of one page in one view."""

    page: str
    view: str
    console: list[str]
    requests: list[str]
    facts: dict

    def __str__(self) -> str:
        return f"{self.page}, {self.view}"


@pytest.fixture(scope="session")
def builds(tmp_path_factory) -> dict[str, Site]:
    """Both builds, side by side."""
    running = {}
    for name in ("plain", "addressed"):
        folder = tmp_path_factory.mktemp(name)
        config = folder / "_config.yml"
        config.write_text(yaml.safe_dump(configuration(name)), "utf-8")
        command = [sys.executable, "-c", BUILD, "build", str(ROOT), "--all"]
        command += ["--path-output", str(folder), "--config", str(config)]
        command += ["-W", "-n", "--keep-going"]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"},
            )
        running[name] = folder, process
    return {
        name: Site(
            code=process.wait(timeout=300),
            root=folder / "_build" / "html",
            log=(folder / "log").read_text("utf-8"),
        )
        for name, (folder, process) in running.items()
    }


def configuration(name: str) -> dict:
    """The repository's configuration; for "addressed", with an address."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    sphinx = config["sphinx"]
    # Relative to the file, which stands elsewhere here.
    extensions = sphinx["local_extensions"]
    sphinx["local_extensions"] = {k: str(ROOT / v) for k, v in extensions.items()}
    if name == "addressed":
        config["repository"]["url"] = ADDRESS
        sphinx["config"] |= {
            "book_first_page": str(HERE / "first_page.json"),
            "book_execution": str(HERE / "execution.json"),
        }
    else:
        config["repository"]["url"] = ""
    return config


def wrong(site: Site) -> str:
    """The build's warnings; its last lines if it broke off."""
    lines = [line for line in site.log.splitlines() if line.strip()]
    warned = [line for line in lines if "WARNING" in line or "ERROR" in line]
    return "\n".join(warned or lines[-30:])


def built(site: Site) -> Site:
    """The site, warnings or not: those are one test's to report."""
    if not (site.root / "index.html").is_file():
        pytest.fail(f"the site does not build:\n{wrong(site)}", pytrace=False)
    return site


@pytest.fixture(scope="session")
def site(builds) -> Site:
    """The site as the repository is."""
    return built(builds["plain"])


@pytest.fixture(scope="session")
def addressed(builds) -> Site:
    """The site of a repository with an address."""
    return built(builds["addressed"])


@contextmanager
def chromium() -> Iterator[Browser]:
    """Headless Chromium: $CHROMIUM, the system's, or playwright's own."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, names)), None
    )
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM)
        except Error as error:
            pytest.fail(
                "no Chromium: install one (apt-get install chromium, or playwright"
                f" install chromium), or name it in $CHROMIUM\n{error}"
            )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def visits(site, addressed) -> list[Visit]:
    """Every page in every view; page one of the addressed site as well."""
    todo = [(site, name) for name in site.pages if name != "index.html"]
    todo.append((addressed, "book/index.html"))
    # A browser for each view, side by side.
    with ThreadPoolExecutor(len(VIEWS)) as threads:
        seen = threads.map(lambda view: visit_all(view, todo), VIEWS)
        return [visit for visits in seen for visit in visits]


@pytest.fixture(scope="session")
def browser():
    """One browser for what is tried by hand."""
    with chromium() as browser:
        yield browser


def visit_all(view: str, todo: list[tuple[Site, str]]) -> list[Visit]:
    """Open the pages one after the other in one view."""
    axe = (HERE / "vendor" / "axe-core" / "axe.min.js").read_text("utf-8")
    scheme, width, height = VIEWS[view]
    with chromium() as browser:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        return [visit(context, *page, view, axe) for page in todo]


def visit(context, site: Site, name: str, view: str, axe: str) -> Visit:
    """Open one page and measure."""
    page = context.new_page()
    console, requests = [], []
    page.on(
        "console",
        lambda m: console.append(m.text) if m.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: console.append(str(error)))
    page.on("requestfailed", lambda r: console.append(f"failed: {r.url}"))
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site.root / name).as_uri(), wait_until="load")
    page.evaluate("window.MathJax?.startup?.promise")
    facts = page.evaluate(MEASURE)
    page.evaluate(axe)
    facts["axe"] = page.evaluate(AXE)
    page.close()
    return Visit(name, view, console, requests, facts)


AXE = """() => axe
  .run(document, {resultTypes: ['violations'], preload: false})
  .then(r => r.violations.flatMap(
    v => v.nodes.map(n => [v.id, n.target.join(' '), n.html])))"""

MEASURE = """() => {
  const shown = e => e.getClientRects().length > 0;
  const root = document.documentElement;
  return {
    mode: root.dataset.theme,
    // An error is drawn as such, an unknown macro in red, and what has no
    // end stays as it was written.
    tex: [
      ...document.querySelectorAll(
        'mjx-merror, mjx-container [data-mjx-error], mjx-mtext[style*="color: red"]'),
      ...[...document.querySelectorAll('.math')]
        .filter(e => !e.querySelector('mjx-container')),
    ].map(e => e.textContent.trim()),
    math: document.querySelectorAll('mjx-container').length,
    wide: root.scrollWidth - root.clientWidth,
    cut: [...document.querySelectorAll('.bd-article pre, .bd-article mjx-container')]
      .filter(shown)
      .filter(e => {
        const left = e.getBoundingClientRect().left;
        const room = e.parentElement.getBoundingClientRect().left;
        const scrolls = ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
        const long = e.tagName === 'PRE' && e.scrollWidth > e.clientWidth + 1;
        return left < Math.min(room, root.clientWidth) - 1 || (long && !scrolls);
      })
      .map(e => e.textContent.slice(0, 60)),
    search: [...document.querySelectorAll('input[type=search], .search-button-field')]
      .filter(shown).length,
  };
}"""


def pytest_collection_modifyitems(items):
    """One worker for all of it: the builds and the visits are made once."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("site"))


def read(name: str) -> dict:
    return json.loads((HERE / name).read_text("utf-8"))
