"""What a reader's browser sees of each page, from the file system."""

import re

import pytest
from tests.site.conftest import VIEWS

# What the theme does against axe-core's rules, and why it stays. A finding
# that no line here explains fails.
EXCEPTIONS: list[tuple[str, str, str]] = [  # rule, selector, reason
    (
        "label-content-name-mismatch",
        r"\.search-button-field$",
        'the theme: its label is "Search", the keys Ctrl+K are shown beside it',
    ),
    (
        "label-content-name-mismatch",
        r"(\.theme-switch-button|\.nav-link)$",
        "the theme: a button with an icon, which axe takes for text",
    ),
    (
        "region",
        r"\.sidebar-primary-items__start > \.sidebar-primary-item:nth-child\(1\)$",
        "the theme: the book's title stands in the sidebar, outside its nav",
    ),
]


def test_no_page_asks_another_host_for_anything(visits):
    asked = [
        f"{visit}: {url}"
        for visit in visits
        for url in visit.requests
        if not url.startswith(("file:", "data:", "blob:"))
    ]
    assert not asked


def test_no_page_has_an_error_in_the_console(visits):
    assert not [f"{v}: {text}" for v in visits for text in v.console]


def test_no_formula_has_an_error(visits):
    assert not [f"{v}: {text}" for v in visits for text in v.facts["tex"]]


def test_formulas_are_drawn(visits):
    drawn = {v.page: v.facts["math"] for v in visits}
    assert drawn["book/notation.html"] > 10


def test_no_page_scrolls_sideways(visits):
    assert not [f"{v}: {v.facts['wide']} px" for v in visits if v.facts["wide"] > 0]


def test_no_code_and_no_formula_is_cut_off(visits):
    assert not [f"{v}: {text!r}" for v in visits for text in v.facts["cut"]]


def test_a_page_has_one_search_box_at_most(visits):
    pages = (v for v in visits if v.page != "search.html")
    assert not [f"{v}: {v.facts['search']}" for v in pages if v.facts["search"] > 1]
    wide = next(iter(VIEWS))
    pages = (v for v in visits if v.view == wide and v.page != "search.html")
    assert not [str(v) for v in pages if v.facts["search"] != 1]


def test_light_and_dark_are_what_the_reader_asks_for(visits):
    wanted = {view: scheme for view, (scheme, *_) in VIEWS.items()}
    assert not [str(v) for v in visits if v.facts["mode"] != wanted[v.view]]


def test_axe_finds_nothing_that_is_not_listed(visits):
    found = {
        f"{v.page}, {v.view}: {rule} at {target}: {html[:160]}"
        for v in visits
        for rule, target, html in v.facts["axe"]
        if not excused(rule, target)
    }
    assert not sorted(found), "\n".join(sorted(found)[:40])


def test_every_exception_from_axe_is_still_needed(visits):
    seen = [(rule, target) for v in visits for rule, target, _ in v.facts["axe"]]
    idle = [
        (rule, selector)
        for rule, selector, _ in EXCEPTIONS
        if not any(r == rule and re.search(selector, t) for r, t in seen)
    ]
    assert not idle


def excused(rule: str, target: str) -> bool:
    return any(
        rule == name and re.search(selector, target) for name, selector, _ in EXCEPTIONS
    )


def test_the_entrance_leads_to_page_one(site, browser):
    page = browser.new_page()
    page.goto((site.root / "index.html").as_uri())
    page.wait_for_url("**/book/index.html", timeout=5000)
    page.close()


@pytest.mark.parametrize("word", ["softmax", "causal"])
def test_the_search_finds_words_from_the_file_system(site, browser, word):
    page = browser.new_page()
    page.goto((site.root / "search.html").as_uri() + f"?q={word}")
    page.wait_for_selector("#search-results li a", timeout=10_000)
    page.close()
