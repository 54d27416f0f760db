"""Appendix A2's table, figures and exercise, on results made up here."""

import pytest

from bookkit import gallery, mutations
from bookkit.gallery import RIGHT, Found, Row, Table
from bookkit.mutations import MUTATIONS

COUNTING = {"Table 1", "costs", "dependent steps", "flops"}  # nothing is trained


def run(kind, seed, last, whole, *, task="copy", **more):
    made = dict(task=task, seed=seed, kind=kind, last_loss=last)
    return made | dict(teacher_forced=0.99, greedy_exact_match=whole) | more


@pytest.fixture
def made_up(monkeypatch):
    """The right code, a silent mistake, one that sorts badly, one that stops."""
    runs = []
    for seed in (1, 2, 3):
        runs += [
            run(RIGHT, seed, 0.5 + seed / 100, 1.0, loss=[2.0, 1.0, 0.5]),
            run(RIGHT, seed, 0.5, 0.995, task="sort"),
        ]
    for seed in (1, 2):
        runs += [
            run("no_relu", seed, 0.51, 1.0),
            run("no_decay", seed, 0.51, 1.0),
            run("no_relu", seed, 0.5, 1.0, task="sort"),
            run("no_positions", seed, 0.9, 0.992),
            run("no_positions", seed, 0.5, 0.2, task="sort"),
            run("keys_from_queries", seed, None, None, error="ValueError: no"),
            run("target_padding_masked_too", seed, 0.51, 1.0),
            run("target_padding_masked_too", seed, 0.51, 1.0, task="sort"),
        ]
    runs.append(run("no_relu", 3, 9.9, 0.0))  # of a seed that is not complete
    rule = dict(passes=0.99, loss_margin=0.02, accuracy_margin=0.005)
    data = {
        "settings": {"rule": rule, "loss_every": 20},
        "seeds": {"copy": [1, 2], "sort": [1, 2], "around": [1], RIGHT: [1, 2, 3]},
        "checks": {name: {"cpu_seconds": 0.05} for name in MUTATIONS},
        "runs": runs,
    }
    monkeypatch.setattr(gallery, "results", lambda name: data)
    kinds = "no_relu no_positions keys_from_queries target_padding_masked_too".split()
    return [gallery.row(kind, "a section") for kind in kinds]


@pytest.fixture
def found():
    """What the checks would say of them."""
    said = {
        "no_relu": Found("no_relu", "feed_forward", "x < 0", 2, True, ()),
        "no_positions": Found("no_positions", "positions", "y", 1, True, ("order",)),
        "keys_from_queries": Found("keys_from_queries", "heads", "z", 1, True, ("it",)),
    }
    nothing = Found("target_padding_masked_too", "model", "", 0, False, ())
    return said | {"target_padding_masked_too": nothing}


def test_every_mistake_has_one_place():
    listed = [*gallery.names(), *gallery.names(gallery.AROUND)]
    wanted = [m.name for m in MUTATIONS.values() if m.part not in COUNTING]
    assert sorted(listed) == sorted(wanted)


def test_sections_come_in_the_paper_s_order():
    assert list(dict.fromkeys(gallery.names().values())) == list(gallery.SECTIONS)
    assert list(gallery.SECTIONS) == sorted(gallery.SECTIONS)


@pytest.mark.parametrize(
    ("name", "part", "sees"),
    [
        ("no_relu", "feed_forward", ()),
        ("no_memory_mask", "model", ("padding after the source changes nothing",)),
        ("keys_from_queries", "heads", ("it runs",)),
        ("adam_betas_swapped", "adam", ()),
    ],
)
def test_the_checks_are_run_on_the_mistake(name, part, sees):
    found = gallery.find(name)
    assert (found.check, found.symptoms) == (part, sees)
    assert found.failed and found.statement
    assert found.named == (name != "no_memory_mask")


def test_nothing_is_found_of_the_equivalent_one():
    found = gallery.find("target_padding_masked_too")
    assert (found.statement, found.failed, found.symptoms) == ("", 0, ())


def test_only_complete_seeds_count(made_up):
    assert made_up[0].loss == (0.51, 0.51)
    assert gallery.row().loss == (0.51, 0.52, 0.53)
    assert gallery.row("no_decay").loss == (0.51,)


def test_what_lies_outside_the_range_needs_the_margin(made_up):
    silent, lost, stops, _ = made_up
    right = gallery.row()
    assert gallery.outside("loss", silent, right) == 0
    assert gallery.outside("loss", lost, right) == 1
    assert gallery.outside("loss", stops, right) == 1  # its loss is no number
    low = Row("x", "", loss=(0.49,), accuracy=(), copy=(), sort=())
    assert gallery.outside("loss", low, right) == 0
    low = Row("x", "", loss=(0.48,), accuracy=(), copy=(), sort=())
    assert gallery.outside("loss", low, right) == -1


def test_the_counts_leave_out_what_is_no_mistake(made_up, found):
    assert gallery.counts(made_up, found) == {
        "mistakes": 3,
        "training loss": 2,
        "token accuracy": 0,
        "copying": 1,
        "copying, sorting": 2,
        "check.model": 2,
        "the part's check": 3,
    }


def test_the_table_says_the_same_as_text_and_as_html(made_up, found):
    table = gallery.table(made_up, found)
    text, html = repr(table), table._repr_html_()
    for words in ("no_relu", "0.992", "stops with an error", "heads, 0.05 s"):
        assert words in text and words in html
    assert "(0.51–0.53)" in text and "(0.51–0.53)" in html
    assert MUTATIONS["no_relu"].says in html
    assert "x &lt; 0" in html and "x < 0" in text
    assert html.count("<details") == html.count("<details open") == 1


def test_sections_are_folded_but_the_first():
    html = Table(["a", "b"], {"one": [["1", "2"]], "two": [["3", "4"]]})._repr_html_()
    assert html.count("<details") == 2 and html.count("<details open") == 1
    assert html.count('scope="col"') == 4 and "<th></th>" not in html


def test_a_dot_for_each_mistake(made_up):
    (ax,) = gallery.crossed(made_up).axes
    dots = [len(line.get_xdata()) for line in ax.lines]
    assert len(dots) == 9 and sum(dots) == 3
    assert dots[1] == dots[5] == dots[8] == 1  # silent, sorts badly, stops
    assert sorted(text.get_text() for text in ax.texts) == ["0"] * 6 + ["1"] * 3


def test_a_bar_for_each_way_of_looking(made_up, found):
    counted = gallery.counts(made_up, found)
    (ax,) = gallery.shown_by(counted).axes
    shown = [int(text.get_text()) for text in ax.texts]
    assert shown == list(counted.values())[1:]


def test_curves_do_not_give_names_away(made_up):
    (ax,) = gallery.curves({"A": RIGHT}).axes
    assert list(ax.lines[0].get_ydata()) == [2.0, 1.0, 0.5]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["A"]


def test_symptoms_name_the_parts(found):
    text = gallery.symptoms(found)
    assert text.index("order") < text.index("positions") < text.index("heads")


def test_six_seeds_hide_six_mistakes(monkeypatch):
    planted = []
    monkeypatch.setattr(mutations, "applied", planted.append)
    for seed in range(6):
        gallery.hidden(seed)
    assert sorted(planted) == sorted(gallery.HIDDEN)
    assert set(planted) <= set(MUTATIONS)
