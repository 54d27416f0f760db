"""Explorers: what they say without scripts, and what a browser draws."""

from __future__ import annotations

import os
import re
import shutil
from html.parser import HTMLParser

import pytest
import torch

from bookkit import explorers
from bookkit.explorers import Slider
from transformer import sinusoidal_encoding

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)


class Rows(HTMLParser):
    """The rows of the table, and every tag with its attributes."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.tags, self.cell = [], [], False
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append([])
        self.cell = tag in ("td", "th")

    def handle_data(self, data):
        if self.cell:
            self.rows[-1].append(data)

    def handle_endtag(self, tag):
        self.cell = False


def numbers(rows):
    return torch.tensor([[float(x.replace("−", "-")) for x in row] for row in rows])


@pytest.mark.parametrize("d_model", [4, 16, 128])
def test_the_table_holds_the_encoding(d_model):
    shown = explorers.positions(d_model)
    header, *rows = Rows(shown.html).rows
    columns = min(d_model, 16)
    assert header == ["position", *map(str, range(columns))]
    table = numbers(rows)
    assert torch.equal(table[:, 0], torch.arange(10.0))
    right = sinusoidal_encoding(10, d_model)[:, :columns]
    torch.testing.assert_close(table[:, 1:], right, atol=5.1e-4, rtol=0)


def test_the_text_holds_the_same_numbers():
    shown = explorers.positions(8)
    header, *rows = Rows(shown.html).rows
    lines = [line.split() for line in repr(shown).splitlines()]
    assert all(row in lines for row in (header, *rows))
    assert "d_model 8 (4 to 128)" in repr(shown)


def test_it_is_small_and_the_same_each_time():
    shown = explorers.positions()
    assert shown._repr_html_() == explorers.positions().html
    assert all(len(explorers.positions(d).html.encode()) < 15_000 for d in (4, 128))


def test_nothing_is_loaded_and_nothing_has_an_id():
    html = explorers.positions().html
    tags = Rows(html).tags
    assert not re.search(r"https?:|url\(|@import|fetch|import\b", html)
    assert not [a for _, a in tags if {"id", "src", "href"} & set(a)]


def test_without_scripts_a_hint_and_the_table_are_left():
    html = explorers.positions().html
    assert re.search(r"<svg[^>]*></svg>", html)
    assert '<div class="explorer-live" hidden>' in html
    assert "<details open>" in html and explorers.HINT in html


def test_every_slider_has_a_label():
    html = explorers.positions().html
    labels = re.findall(r"<label><span>([^<]+)</span><input[^>]*name=\"(\w+)\"", html)
    assert labels == [
        ("d_model", "d_model"),
        ("position", "position"),
        ("offset to another", "offset"),
    ]


@pytest.mark.parametrize(
    "given, says",
    [
        ({"d_model": 7}, "d_model=7 must be from 4 to 128, in steps of 2"),
        ({"d_model": 130}, "d_model=130 must be from 4 to 128, in steps of 2"),
        ({"position": 101}, "position=101 must be from 0 to 100"),
        ({"offset": -1}, "offset=-1 must be from 0 to 50"),
    ],
)
def test_a_start_that_no_slider_has_is_refused(given, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        explorers.positions(**given)


def test_a_new_explorer_needs_a_script_sliders_and_a_table():
    made = explorers._explorer(
        "positions",
        "A < B",
        [Slider("rate", "rate & peak", 0, 1, 0.5, step=0.25)],
        caption="rates",
        header=["step", "rate"],
        rows=[["1", "0.5"]],
    )
    assert "A &lt; B" in made.html and "rate &amp; peak" in made.html
    assert Rows(made.html).rows == [["step", "rate"], ["1", "0.5"]]
    assert "rate & peak 0.5 (0 to 1)" in repr(made)


# --- in a browser ----------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    with playwright.sync_playwright() as started:
        options = ["--no-sandbox", "--disable-gpu"]
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield chromium
        chromium.close()


def opened(browser, *shown, width=760, scripts=True):
    """A page with explorers, and what went wrong on it."""
    context = browser.new_context(
        java_script_enabled=scripts, viewport={"width": width, "height": 900}
    )
    page = context.new_page()
    page.wrong = []
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("console", lambda message: page.wrong.append(message.text))
    boxes = "".join(explorer.html for explorer in shown)
    page.set_content(f'<!doctype html><body style="margin:16px">{boxes}')
    return page


def drawn(box):
    """The values of the cells, both positions after each other."""
    script = "cells => cells.map(cell => Number(cell.dataset.value))"
    return torch.tensor(box.locator("rect.cell").evaluate_all(script))


def hands(box):
    """Right and up of each hand, as shares of the circle's radius."""
    script = """lines => lines.map(l => [l.x2.baseVal.value - l.x1.baseVal.value,
        l.y1.baseVal.value - l.y2.baseVal.value])"""
    tips = torch.tensor(box.locator("line.here").evaluate_all(script))
    return tips / tips.norm(dim=-1, keepdim=True)


def test_what_is_drawn_is_the_encoding(browser):
    starts = [(16, 5, 3), (64, 20, 5)]
    page = opened(browser, *(explorers.positions(*start) for start in starts))
    for index, (d_model, position, offset) in enumerate(starts):
        box = page.locator(".explorer").nth(index)
        table = sinusoidal_encoding(position + offset + 1, d_model)
        right = torch.cat([table[position], table[position + offset]])
        torch.testing.assert_close(drawn(box), right, atol=1e-6, rtol=0)
    row = sinusoidal_encoding(6, 16)[5].view(-1, 2)  # eight pairs, eight clocks
    first = page.locator(".explorer").first
    torch.testing.assert_close(hands(first), row, atol=1e-4, rtol=0)
    pe = sinusoidal_encoding(9, 16)
    assert f"is {pe[5] @ pe[8]:.2f}." in first.locator(".explorer-said").inner_text()
    assert not page.wrong


def test_a_slider_moves_by_keyboard_and_moves_its_own_explorer_alone(browser):
    page = opened(browser, explorers.positions(), explorers.positions())
    first, second = page.locator(".explorer").all()
    first.locator("input[name=d_model]").focus()
    page.keyboard.press("ArrowRight")
    assert (len(drawn(first)), len(drawn(second))) == (2 * 18, 2 * 16)
    page.keyboard.press("Home")
    assert len(drawn(first)) == 2 * 4
    page.keyboard.press("End")
    assert len(drawn(first)) == 2 * 128
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    right = sinusoidal_encoding(5, 128)[4]
    torch.testing.assert_close(drawn(first)[:128], right, atol=1e-6, rtol=0)
    assert not page.wrong


def test_it_fits_a_phone_and_leaves_no_globals(browser):
    page = opened(browser, explorers.positions(128, 100, 50), width=390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    outside = page.locator("svg *").evaluate_all(
        """parts => parts.filter(part => {
            const box = part.getBoundingClientRect();
            return box.left < 0 || box.right > 390;
        }).length"""
    )
    assert outside == 0
    assert page.evaluate("typeof draw + typeof box") == "undefinedundefined"
    assert page.locator(".explorer-hint").count() == 0


def test_without_scripts_a_browser_shows_the_table_and_no_sliders(browser):
    page = opened(browser, explorers.positions(), scripts=False)
    assert page.get_by_text(explorers.HINT).is_visible()
    assert page.locator("table").is_visible()
    assert not page.locator("input").first.is_visible()
