"""Chapter 20's figures show what they are given."""

import matplotlib
import pytest

from bookkit import later_figures as drawn
from bookkit import ledger
from bookkit.evidence import Measurement


def words(figure):
    return [t.get_text() for t in figure.findobj(matplotlib.text.Text) if t.get_text()]


def tally():
    return ledger.tally(ledger.Row(c, c.verdict) for c in ledger.load().values())


def test_the_pieces_of_the_bars_are_the_ledger_s_claims():
    counted = tally()
    figure = drawn.verdict_counts(counted["methods"])
    (ax,) = figure.axes
    assert sum(bar.get_width() for bar in ax.patches) == counted["claims"]
    numbers = [text.get_text() for text in ax.texts]
    given = [n for counts in counted["methods"].values() for n in counts.values()]
    assert sorted(numbers) == sorted(map(str, given))
    for verdict, count in counted["verdicts"].items():
        assert (verdict in words(figure)) == (count > 0)


def test_every_verdict_has_a_look_of_its_own():
    looks = {(fill, hatch) for fill, _, hatch in drawn.LOOKS.values()}
    assert set(drawn.LOOKS) == {*ledger.VERDICTS, ledger.OPEN}
    assert len(looks) == len(drawn.LOOKS)


def test_a_gain_is_drawn_where_it_is_measured():
    found = {
        "better": Measurement({0: 0.2, 1: 0.3, 2: 0.25}),
        "worse": Measurement({0: -0.2, 1: -0.3, 2: -0.25}),
    }
    outcomes = {"better": "gained", "worse": "cost"}
    figure = drawn.gains(found, outcomes, label="gain (bits)")
    shown = words(figure)
    assert "+0.250" in shown and "−0.250" in shown
    points = [
        line
        for line in figure.axes[0].lines
        if line.get_marker() == "o" and len(line.get_xdata()) == 1
    ]
    assert [line.get_xdata()[0] for line in points] == pytest.approx([0.25, -0.25])
    assert [line.get_ydata()[0] for line in points] == [0, 1]


def test_an_outcome_without_a_name_is_refused():
    with pytest.raises(KeyError):
        drawn.gains({"x": Measurement({0: 1.0})}, {"x": "won"}, label="gain")


def test_the_trained_length_is_marked():
    figure = drawn.beyond([16, 64, 256], {"rotary": [[3, 2, 2], [3, 2, 4]]}, 64)
    assert "trained up to 64" in words(figure)
    assert any(list(line.get_xdata()) == [64, 64] for line in figure.axes[0].lines)


def test_each_line_beyond_has_its_name_where_it_ends():
    figure = drawn.beyond([16, 64, 256], {"rotary": [[3, 2, 2], [3, 2, 4]]}, 64)
    (ax,) = figure.axes
    assert ax.get_legend() is None
    (name,) = [text for text in ax.texts if text.get_text() == "rotary"]
    assert name.xy == (256, 3)


def test_the_race_draws_every_seed_and_where_it_reaches_the_target():
    curves = {
        "one": [[(1, 100), (3, 25)], [(1, 80), (3, 40)], [(1, 90), (3, 45)]],
        "other": [[(1, 100), (2, 70)]] * 3,
    }
    figure = drawn.race(curves, 50.0)
    (ax,) = figure.axes
    assert "target: 50" in words(figure)
    seeds = [line for line in ax.lines if line.get_marker() in ("", "None")]
    assert len(seeds) == 1 + 2 * 3  # and the target
    reached = [line for line in ax.lines if line.get_linestyle() == "None"]
    assert [len(line.get_xdata()) for line in reached] == [3, 0]
    assert reached[0].get_xdata()[0] == pytest.approx(2)
    assert set(reached[0].get_ydata()) == {50.0}
    assert ax.get_yscale() == "log"
