"""The attention explorer: what is drawn is what the tensor holds."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.bookkit.test_explorers import Rows, browser, numbers, opened

import bookkit
from bookkit import example, explorers

__all__ = ["browser"]  # the fixture

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "tests/site/vendor/axe-core/axe.min.js"
SOURCE = ["click", "Save", "As", "…", "click", "</s>"]
TARGET = ["<s>", "auf", "Speichern & <unter>"]
SIDES = {
    "encoder": (SOURCE, SOURCE),
    "decoder": (TARGET, TARGET),
    "cross": (TARGET, SOURCE),
}


def weights(layers=2, heads=3, batch=False, sides=SIDES):
    """Sharp and flat rows; the decoder's masked."""
    draw = torch.Generator().manual_seed(3)
    made = {}
    for kind, (queries, keys) in sides.items():
        scores = 3 * torch.randn(layers, heads, len(queries), len(keys), generator=draw)
        if kind == "decoder":
            scores.masked_fill_(torch.ones_like(scores).triu(1).bool(), -torch.inf)
        made[kind] = scores.softmax(-1)
    return {k: w[:, None] for k, w in made.items()} if batch else made


def shown(**options):
    return bookkit.attention_explorer(weights(), SOURCE, TARGET, **options)


def data(made):
    return Rows(made.html).tags[0][1]["data-given"]


def near(found, expected, atol=5.1e-4):
    torch.testing.assert_close(
        torch.as_tensor(found, dtype=torch.float32), expected, atol=atol, rtol=0
    )


# --- what Python writes ----------------------------------------------------


def test_table_and_text_hold_the_weights_of_the_start():
    made = shown(kind="cross", layer=2, heads=[3, 1])
    header, *rows = Rows(made.html).rows
    assert header == ["query", *SOURCE]
    assert [unescape(row[0]) for row in rows] == ["<s>", "auf", "Speichern & <unter>"]
    near(numbers([row[1:] for row in rows]), weights()["cross"][1, 2])
    lines = repr(made).splitlines()
    assert "Decoder over encoder, layer 2, view lines, heads 3, 1 of 3" in lines[0]
    for row in rows:
        assert any(line.split()[-6:] == row[1:] for line in lines), row


def test_the_data_hold_every_weight_to_a_thousandth():
    given = json.loads(data(shown()))
    assert (given["source"], given["target"]) == (SOURCE, TARGET)
    for kind, tensor in weights().items():
        layers, heads, digits = given[kind]
        assert (layers, heads) == (2, 3)
        pairs = [int(digits[i : i + 2], 32) for i in range(0, len(digits), 2)]
        near(np.array(pairs).reshape(tensor.shape) / 1000, tensor)


def test_a_batch_of_one_and_arrays_give_the_same():
    html = shown().html
    plain = {kind: w.numpy() for kind, w in weights().items()}
    with_grad = {k: w.requires_grad_() for k, w in weights(batch=True).items()}
    assert explorers.attention(plain, SOURCE, TARGET).html == html
    assert explorers.attention(with_grad, SOURCE, TARGET).html == html


def test_it_takes_what_the_model_gives_and_stays_small():
    pair = example.ids(example.SOURCE), example.ids(example.TARGET_IN)
    _, found = example.model()(*pair, return_attention=True)
    made = explorers.attention(found, example.SOURCE, example.TARGET_IN)
    again = explorers.attention(found, example.SOURCE, example.TARGET_IN)
    assert made.html == again.html
    assert len(made.html.encode()) < 20_000


def test_a_weight_costs_two_bytes():
    words = [f"w{i}" for i in range(40)]
    sides = {"encoder": (words, words)}
    made = explorers.attention(weights(6, 8, sides=sides), words)
    assert len(data(made)) < 2 * 6 * 8 * 40 * 40 + 400


def test_nothing_is_loaded_and_nothing_has_an_id():
    html = shown().html
    assert not re.search(r"https?:|url\(|@import|fetch\(|\bimport\b", html)
    assert not [a for _, a in Rows(html).tags if {"id", "src", "href"} & set(a)]


def test_one_kind_alone_will_do():
    made = explorers.attention({"encoder": weights()["encoder"]}, SOURCE)
    assert "Decoder" not in made.html.split("<script>")[0]


def test_every_control_has_a_label():
    tags = Rows(shown().html).tags
    fields = [a["name"] for tag, a in tags if tag in ("input", "select")]
    assert fields == ["kind", "layer", "view", *["head"] * 3, "all"]
    names = [tag for tag, _ in tags if tag in ("label", "input", "select")]
    assert names[::2] == ["label"] * len(fields)


E64 = weights()
WRONG = [
    (({}, SOURCE, TARGET), {}, "weights={} must be a dictionary with encoder"),
    ((E64["cross"], SOURCE, TARGET), {}, "must be a dictionary with encoder"),
    (({"self": E64["cross"]}, SOURCE), {}, "'self' must be one of 'encoder'"),
    (
        ({"encoder": E64["encoder"][0]}, SOURCE),
        {},
        "weights['encoder'] has shape (3, 6, 6): it must be (layer, head, query,",
    ),
    (
        ({"encoder": torch.rand(2, 4, 3, 6, 6)}, SOURCE),
        {},
        "weights['encoder'] has shape (2, 4, 3, 6, 6)",
    ),
    (
        ({"cross": E64["cross"]}, SOURCE, TARGET[:2]),
        {},
        "weights['cross'] has 3 queries, but there are 2 target_tokens",
    ),
    (
        ({"cross": E64["cross"]}, SOURCE[:4], TARGET),
        {},
        "weights['cross'] has 6 keys, but there are 4 source_tokens",
    ),
    (
        ({"encoder": E64["encoder"] * 2}, SOURCE),
        {},
        "weights['encoder'] must hold shares, from 0 to 1",
    ),
    (
        ({"encoder": E64["encoder"] * torch.nan}, SOURCE),
        {},
        "weights['encoder'] must hold shares",
    ),
    ((E64, SOURCE, TARGET), {"kind": "both"}, "kind='both' must be one of 'encoder'"),
    ((E64, SOURCE, TARGET), {"layer": 0}, "layer=0 must be one of 1, 2"),
    ((E64, SOURCE, TARGET), {"heads": [4]}, "heads=4 must be one of 1, 2, 3"),
    ((E64, SOURCE, TARGET), {"heads": []}, "heads=[] must name one at least"),
    ((E64, SOURCE, TARGET), {"view": "arcs"}, "view='arcs' must be one of 'lines'"),
]


@pytest.mark.parametrize("given, options, says", WRONG)
def test_what_does_not_fit_is_refused_by_name(given, options, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        explorers.attention(*given, **options)


# --- in a browser ----------------------------------------------------------

PARTS = """parts => parts.map(part => ({
    head: +part.dataset.head, query: +part.dataset.query, key: +part.dataset.key,
    value: +part.dataset.value, title: part.querySelector("title").textContent,
    opacity: +(getComputedStyle(part).strokeOpacity),
    fill: +(getComputedStyle(part).fillOpacity),
    from: part.y1?.baseVal.value, to: part.y2?.baseVal.value,
    x: part.x?.baseVal.value, y: part.y?.baseVal.value}))"""


def parts(box, tag):
    return box.locator(f"{tag}.weight").evaluate_all(PARTS)


def option(box, side, index):
    label = "queries" if side == "query" else "keys"
    found = box.locator(f'[role=listbox][aria-label="{label}"] [role=option]')
    return found.nth(index)


def tick(box, head, wanted):
    field = box.locator(f"input[name=head][value='{head}']")
    field.set_checked(wanted)


def test_what_is_drawn_is_the_tensor_for_every_kind_layer_and_head(browser):
    page = opened(browser, shown())
    box = page.locator(".explorer")
    for kind, tensor in weights().items():
        box.locator("select[name=kind]").select_option(kind)
        queries, keys = SIDES[kind]
        for layer in (1, 2):
            box.locator("select[name=layer]").select_option(str(layer))
            table = tensor[layer - 1]

            box.locator("select[name=view]").select_option("map")
            cells = parts(box, "rect")
            assert len(cells) == table.numel()
            found = torch.full(table.shape, torch.nan)
            for cell in cells:
                place = cell["head"] - 1, cell["query"], cell["key"]
                found[place] = cell["fill"]
                assert cell["value"] == pytest.approx(cell["fill"], abs=1e-6)
                assert cell["title"].endswith(f" {cell['value']:.3f}")
            near(found, table)
            # Queries down and keys across, in every panel.
            for row in {(c["head"], c["query"]) for c in cells}:
                same = [c for c in cells if (c["head"], c["query"]) == row]
                assert len({c["y"] for c in same}) == 1
                places = [c["x"] for c in sorted(same, key=lambda c: c["key"])]
                assert places == sorted(set(places))

            box.locator("select[name=view]").select_option("lines")
            found = torch.zeros(table.shape)
            for line in parts(box, "line"):
                place = line["head"] - 1, line["query"], line["key"]
                found[place] = line["opacity"]
                # From the row of the query to that of the key.
                row = [(line[end] - 22) / 24 - 0.5 for end in ("from", "to")]
                assert row == pytest.approx([line["query"], line["key"]], abs=0.3)
            missing = found == 0
            near(found[~missing], table[~missing])
            assert (table[missing] < 0.0106).all()
            assert option(box, "query", 0).get_attribute("aria-label") == (
                f"query 1, {queries[0]}"
            )
            assert box.locator("[role=option]").count() == len(queries) + len(keys)
    assert not page.wrong


def test_only_ticked_heads_are_drawn(browser):
    page = opened(browser, shown(heads=[2]))
    box = page.locator(".explorer")
    assert {line["head"] for line in parts(box, "line")} == {2}
    tick(box, 3, True)
    tick(box, 2, False)
    assert {line["head"] for line in parts(box, "line")} == {3}
    every = box.locator("input[name=all]")
    every.check()
    assert {line["head"] for line in parts(box, "line")} == {1, 2, 3}
    tick(box, 1, False)
    assert not every.is_checked()
    every.check()
    every.uncheck()
    assert {line["head"] for line in parts(box, "line")} == {1}
    tick(box, 1, False)
    assert not parts(box, "line")
    assert "No head is chosen" in box.locator(".explorer-said").inner_text()
    assert not page.wrong


def test_a_click_on_a_token_shows_its_weights_alone(browser):
    page = opened(browser, shown(heads=[1, 2]))
    box = page.locator(".explorer")
    encoder = weights()["encoder"][0]
    whole = len(parts(box, "line"))

    option(box, "query", 1).click()
    assert {line["query"] for line in parts(box, "line")} == {1}
    squares = box.locator("rect.square").evaluate_all(
        "all => all.map(one => +getComputedStyle(one).fillOpacity)"
    )
    near(squares, encoder[:2, 1].flatten())
    said = box.locator(".explorer-said")
    assert said.get_attribute("aria-live") == "polite"
    first = encoder[0, 1].argmax().item()
    assert said.inner_text().startswith("Query Save, to keys. Head 1: ")
    assert f"{SOURCE[first]}" in said.inner_text().split("Head 1: ")[1][:12]
    assert f"{encoder[0, 1].max():.3f}" in said.inner_text()
    assert option(box, "query", 1).get_attribute("aria-selected") == "true"

    option(box, "key", 4).click()
    assert {line["key"] for line in parts(box, "line")} == {4}
    assert "Key click (5), from queries." in said.inner_text()
    option(box, "key", 4).click()
    assert len(parts(box, "line")) == whole

    box.locator("select[name=view]").select_option("map")
    box.locator("rect.weight").nth(6 * 2).click()
    assert "Query As, to keys" in said.inner_text()
    assert box.locator("rect.mark").count() == 2
    assert not page.wrong


def test_keys_move_choose_and_leave(browser):
    page = opened(browser, shown(kind="cross", heads=[1]))
    box = page.locator(".explorer")
    box.locator("input[name=all]").focus()
    focused = "document.activeElement.getAttribute('aria-label')"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "query 1, <s>"
    page.keyboard.press("Enter")
    assert {line["query"] for line in parts(box, "line")} == {0}
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == "query 2, auf"
    assert {line["query"] for line in parts(box, "line")} == {1}
    page.keyboard.press("End")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == "query 3, Speichern & <unter>"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "key 1, click"
    page.keyboard.press("ArrowDown")
    assert {line["key"] for line in parts(box, "line")} == {1}
    page.keyboard.press("Escape")
    assert len({line["key"] for line in parts(box, "line")}) > 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert not page.wrong


def test_the_table_follows_what_is_chosen(browser):
    page = opened(browser, shown())
    box = page.locator(".explorer")
    box.locator("summary").click()
    box.locator("select[name=kind]").select_option("decoder")
    box.locator("select[name=layer]").select_option("2")
    rows = box.locator("tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert rows[0] == ["query", *TARGET]
    assert rows[4][0] == "head 2: <s>"
    table = numbers([row[1:] for row in rows[1:]])
    near(table, weights()["decoder"][1].flatten(0, 1))
    scopes = box.locator("th").evaluate_all("all => all.map(one => one.scope)")
    assert scopes.count("col") == 4 and scopes.count("row") == 9
    assert "Decoder self-attention, layer 2" in box.locator("summary").inner_text()


def test_a_kind_with_fewer_layers_and_heads_keeps_to_them(browser):
    several = {
        "encoder": weights(4, 5)["encoder"],
        "cross": weights(2, 3)["cross"],
    }
    made = explorers.attention(several, SOURCE, TARGET, layer=4)
    page = opened(browser, made)
    box = page.locator(".explorer")
    box.locator("select[name=view]").select_option("map")
    assert len(parts(box, "rect")) == 5 * 36
    box.locator("select[name=kind]").select_option("cross")
    cells = parts(box, "rect")
    found = torch.tensor([cell["value"] for cell in cells]).view(3, 3, 6)
    near(found, several["cross"][1])
    assert box.locator("select[name=layer]").input_value() == "2"
    assert box.locator("input[name=head]").nth(3).is_disabled()
    assert not page.wrong


def test_a_ninth_head_has_the_first_one_s_colour_and_a_dash(browser):
    many = {"encoder": weights(1, 9)["encoder"]}
    page = opened(browser, explorers.attention(many, SOURCE))
    style = "all => all.map(one => getComputedStyle(one))"
    looks = {}
    for head in (1, 9):
        lines = page.locator(f"line.weight[data-head='{head}']")
        looks[head] = lines.evaluate_all(
            f"all => ({style})(all).map(s => [s.stroke, s.strokeDasharray])"
        )[0]
    assert looks[1][0] == looks[9][0]
    assert looks[1][1] == "none" and looks[9][1] != "none"
    assert not page.wrong


def test_two_on_a_page_do_not_touch_each_other(browser):
    page = opened(browser, shown(), shown(kind="cross"))
    first, second = page.locator(".explorer").all()
    before = parts(second, "line")
    first.locator("select[name=kind]").select_option("decoder")
    option(first, "query", 1).click()
    assert parts(second, "line") == before
    assert page.evaluate("typeof draw + typeof sides") == "undefinedundefined"


def long_one(**options):
    words = [f"Einstellungsdialog{i}" for i in range(40)]
    sides = {"encoder": (words, words)}
    return explorers.attention(weights(1, 8, sides=sides), words, **options)


@pytest.mark.parametrize("view", ["lines", "map"])
@pytest.mark.parametrize("made", [shown, long_one])
def test_a_phone_does_not_scroll_sideways(browser, made, view):
    page = opened(browser, made(view=view), width=360)
    box = page.locator(".explorer")
    option(box, "query", 1).click()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    box.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    if view == "lines":
        outside = page.locator("svg *").evaluate_all(
            """all => all.filter(one => {
                const box = one.getBoundingClientRect();
                return box.width && (box.left < -.5 || box.right > 360.5);
            }).length"""
        )
        assert outside == 0
    small = box.locator(".hit").evaluate_all(
        "all => Math.min(...all.map(one => one.getBoundingClientRect().height))"
    )
    assert small >= 23.9
    assert not page.wrong


def luminance(colour):
    """Of "rgb(1, 2, 3)" or "color(srgb 0.1 0.2 0.3)", as WCAG has it."""
    values = [float(v) for v in re.findall(r"[\d.]+", colour.replace("srgb", ""))]
    shares = [v if colour.startswith("color") else v / 255 for v in values[:3]]
    linear = [
        v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in shares
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_heads_and_letters_stand_out_in_light_and_dark(browser, scheme):
    page = opened(browser, long_one())
    page.emulate_media(color_scheme=scheme)
    box = page.locator(".explorer")
    option(box, "query", 1).click()
    style = "(one, key) => getComputedStyle(one)[key]"
    back = box.evaluate(style, "backgroundColor")
    assert (luminance(back) < 0.05) == (scheme == "dark")
    stroke = "all => [...new Set(all.map(one => getComputedStyle(one).stroke))]"
    heads = box.locator("line.weight").evaluate_all(stroke)
    assert len(heads) == 8
    assert min(contrast(colour, back) for colour in heads) >= 3
    fill = "all => [...new Set(all.map(one => getComputedStyle(one).fill))]"
    letters = box.locator("svg text").evaluate_all(fill)
    letters.append(box.locator(".explorer-said").evaluate(style, "color"))
    letters.append(box.locator("summary").evaluate(style, "color"))
    assert min(contrast(colour, back) for colour in letters) >= 4.5
    on = box.locator("[aria-selected=true] .hit").evaluate(style, "fill")
    ink = box.locator("[aria-selected=true] text").evaluate(style, "fill")
    assert contrast(ink, on) >= 4.5


@pytest.mark.parametrize("view", ["lines", "map"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser, scheme, view):
    page = opened(browser, shown(view=view))
    page.emulate_media(color_scheme=scheme)
    option(page.locator(".explorer"), "query", 1).click()
    page.locator("summary").click()
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate(
        """() => axe.run(document.querySelector('.explorer')).then(r =>
            r.violations.map(v => [v.id, v.nodes.map(n => n.html.slice(0, 90))]))"""
    )
    assert not found


def test_without_scripts_the_table_is_left(browser):
    page = opened(browser, shown(), scripts=False)
    assert page.get_by_text(explorers.HINT).is_visible()
    assert page.locator("table").is_visible()
    assert not page.locator("select").first.is_visible()
