"""Files of the site: links, images, sizes, sources, buttons."""

import hashlib
import posixpath
import re
from collections import Counter
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from tests.site.conftest import ADDRESS, ROOT, read, wrong

VENDORED = ROOT / "book" / "_static" / "vendor" / "mathjax"
MEGABYTE = 1_000_000


def chapters() -> list[str]:
    """The notebooks that _toc.yml lists."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    listed = [entry["file"] for part in toc["parts"] for entry in part["chapters"]]
    return [name for name in listed if name.startswith("notebooks/")]


def links(soup):
    """Address and tag of all that a page links to or loads."""
    for tag in soup.find_all(["a", "link", "script", "img", "iframe", "source"]):
        for attribute in ("href", "src"):
            if tag.get(attribute) is not None:
                yield tag[attribute], tag


def test_the_site_builds_without_a_warning(site, addressed):
    for built in (site, addressed):
        if built.code:
            pytest.fail(wrong(built), pytrace=False)
    assert len(site.pages) > 10


def test_internal_links_and_anchors_lead_somewhere(site, addressed):
    found = []
    for built in (site, addressed):
        ids = {
            name: {tag["id"] for tag in built.page(name).find_all(id=True)}
            for name in built.pages
        }
        for name in built.pages:
            for address, _ in links(built.page(name)):
                parts = urlsplit(address)
                if parts.scheme or parts.netloc:
                    continue
                path = unquote(parts.path)
                here = posixpath.dirname(name)
                target = (
                    posixpath.normpath(posixpath.join(here, path)) if path else name
                )
                if not (built.root / target).is_file():
                    found.append(f"{name}: {address}")
                anchor = unquote(parts.fragment)
                if anchor and target in ids and anchor not in ids[target]:
                    found.append(f"{name}: {address} (no such anchor)")
    assert not sorted(set(found))


def test_no_page_loads_anything_from_elsewhere(site, addressed):
    found = []
    for built in (site, addressed):
        for name in built.pages:
            for address, tag in links(built.page(name)):
                told = tag.name in ("a",) or tag.get("rel") == ["canonical"]
                if urlsplit(address).netloc and not told:
                    found.append(f"{name}: {address}")
    assert not found


def test_no_style_sheet_loads_anything_from_elsewhere(site):
    found = [
        f"{path.name}: {match}"
        for path in site.root.rglob("*.css")
        for match in re.findall(
            r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^)'\"\s]+)",
            path.read_text("utf-8"),
        )
    ]
    assert not found


def test_every_image_has_a_text(site):
    found = []
    for name in site.pages:
        for image in site.page(name).find_all("img"):
            text = (image.get("alt") or "").strip()
            if re.fullmatch(r"\S*[0-9a-f]{32,}\S*|", text):
                found.append(f"{name}: {image.get('src', '')[:60]} has alt={text!r}")
    assert not found


def test_no_page_is_over_a_megabyte_and_the_site_not_over_forty(site):
    pages = {name: (site.root / name).stat().st_size for name in site.pages}
    assert {k: v for k, v in pages.items() if v > MEGABYTE} == {}
    whole = sum(p.stat().st_size for p in site.root.rglob("*") if p.is_file())
    assert whole <= 40 * MEGABYTE


def test_no_script_or_style_is_loaded_twice(site):
    for name in site.pages:
        loaded = [
            address.split("?")[0]
            for address, tag in links(site.page(name))
            if tag.name == "script" or tag.get("rel") == ["stylesheet"]
        ]
        assert [k for k, n in Counter(loaded).items() if n > 1] == [], name


def test_nothing_of_thebe_or_binder_is_left(site):
    for name in site.pages:
        text = (site.root / name).read_text("utf-8").lower()
        assert "thebe" not in text.replace("thebelab", "thebe"), name
        assert "mybinder" not in text, name


def test_the_sources_are_in_the_site_as_they_are(site):
    sources = sorted((ROOT / "src").rglob("*.py"))
    assert sources
    for path in sources:
        copy = site.root / path.relative_to(ROOT)
        assert copy.read_bytes() == path.read_bytes()


def test_every_page_says_what_it_is_about(site):
    for name in site.pages:
        if name.startswith(("book/", "notebooks/")):
            found = site.page(name).find("meta", attrs={"name": "description"})
            assert found and len(found["content"]) > 30, name


def test_every_chapter_and_every_prose_page_is_in_the_contents():
    toc = (ROOT / "_toc.yml").read_text("utf-8")
    files = [*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "book").glob("*.md")]
    names = [path.relative_to(ROOT).with_suffix("").as_posix() for path in files]
    missing = [name for name in names if not re.search(rf"\b{name}\b", toc)]
    assert not missing


def test_mathjax_is_as_it_was_published():
    listed = dict(
        reversed(line.split("  ", 1))
        for line in (VENDORED / "SHA256SUMS").read_text("utf-8").splitlines()
    )
    found = {
        f"./{path.relative_to(VENDORED).as_posix()}": hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in VENDORED.rglob("*")
        if path.is_file() and path.name not in ("README.md", "SHA256SUMS")
    }
    assert found == listed
    assert "Apache License" in (VENDORED / "LICENSE").read_text("utf-8")


# --- with and without an address ---------------------------------------


def colab_links(site, name: str) -> list[str]:
    found = (address for address, _ in links(site.page(name)))
    return [a for a in found if a.startswith("https://colab.research.google.com/")]


def test_without_an_address_there_are_no_buttons_and_no_sitemap(site):
    assert not (site.root / "sitemap.xml").exists()
    for name in site.pages:
        text = (site.root / name).read_text("utf-8")
        assert "colab.research.google.com" not in text, name
        assert "/edit/" not in text and "/issues/new" not in text, name


def test_with_an_address_the_sitemap_lists_every_page(addressed):
    text = (addressed.root / "sitemap.xml").read_text("utf-8")
    listed = set(re.findall(r"<loc>https://owner\.github\.io/REPO/(.*?)</loc>", text))
    pages = {n for n in addressed.pages if n.startswith(("book/", "notebooks/"))}
    assert listed == pages


def test_every_chapter_opens_in_colab_a_file_that_exists(addressed):
    if not chapters():
        pytest.skip("no chapter yet")
    for chapter in chapters():
        found = colab_links(addressed, f"{chapter}.html")
        assert len(found) == 1, chapter
        branch, _, path = found[0].split("/blob/", 1)[1].partition("/")
        assert branch == "colab"
        assert found[0].split("/github/")[1].startswith("OWNER/REPO/")
        assert (ROOT / path).is_file(), found[0]


def test_with_an_address_pages_can_be_edited_and_errors_reported(addressed):
    for name in addressed.pages:
        if not name.startswith(("book/", "notebooks/")):
            continue
        found = [address for address, _ in links(addressed.page(name))]
        edits = [a for a in found if a.startswith(f"{ADDRESS}/edit/main/")]
        assert edits, name
        for address in edits:
            assert (ROOT / address.removeprefix(f"{ADDRESS}/edit/main/")).is_file()
        assert any(a.startswith(f"{ADDRESS}/issues/new") for a in found), name


# --- page one ------------------------------------------------------------


def test_the_bars_show_what_the_result_file_says(addressed):
    page = addressed.page("book/index.html")
    values = [tag.get_text() for tag in page.select(".two-bars .value")]
    result = read("first_page.json")
    assert values == [
        f"{result['teacher_forced']:.3f}",
        f"{result['greedy_exact_match']:.3f}",
    ]
    assert f'mutations.applied("{result["mutation"]}")' in page.get_text()


def test_page_one_has_bars_and_strip_only_where_there_are_results(site):
    page = site.page("book/index.html")
    for selector, name in ((".two-bars", "first_page"), (".strip", "execution")):
        exists = (ROOT / "book" / "results" / f"{name}.json").is_file()
        assert bool(page.select(selector)) == exists


def test_the_strip_says_when_with_what_and_how_it_came_out(addressed):
    strip = addressed.page("book/index.html").select_one(".strip")
    facts = {row.dt.get_text(): row.dd.get_text() for row in strip.find_all("div")}
    assert facts == {
        "Last executed": "2000-01-31",
        "Python": "3.11.0",
        "PyTorch": "0.0.0",
        "Notebooks": "2, 4 s all together",
        "Claims proved": "2",
        "Measured": "1",
        "Implemented": "0",
        "Against the paper": "1",
        "Not rerunnable": "2",
        "Not shown yet": "3",
    }
