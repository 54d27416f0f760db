"""Chapter 16: the search that is shown, its check, and its figures."""

from __future__ import annotations

import math

import matplotlib
import pytest

from bookkit import beam, proofs
from bookkit import translation_figures as drawn
from bookkit.report import CheckFailed


def words(figure):
    return [t.get_text() for t in figure.findobj(matplotlib.text.Text) if t.get_text()]


def best(table, **settings):
    follow, names = beam.of_table(table)
    (found, *_) = beam.search(
        follow, **dict(dict(eos=len(names) - 1, limit=5, alpha=0.0), **settings)
    )
    return [names[i] for i in found.ids], math.exp(found.log_probability)


def test_the_example_comes_out_as_the_chapter_computes_it_by_hand():
    assert best(beam.TINY, beam_size=1) == (["a", "."], pytest.approx(0.2))
    assert best(beam.TINY, beam_size=2) == (["b", "."], pytest.approx(0.36))
    # The quiz's first question.
    other = beam.TINY | {"b": {"a": 0.6, ".": 0.4}}
    assert best(other, beam_size=2) == (["a", "."], pytest.approx(0.2))


def test_every_step_is_seen_with_what_became_of_it():
    follow, names = beam.of_table(beam.TINY)
    seen = []
    beam.search(follow, eos=2, limit=5, beam_size=2, alpha=0.0, seen=seen)
    first, second = seen
    assert [(b.ids, b.fate) for b in first] == [
        ((0,), "lives"),
        ((1,), "lives"),
        ((2,), "dropped"),
    ]
    assert [b.fate for b in second] == ["ended"] * 2 + ["dropped"] * 3
    assert [names[i] for i in second[0].ids] == ["b", "."]
    assert math.exp(second[0].total) == pytest.approx(0.36)


def by_hand(
    follow, beam_size, limit, *, freeze=True, product=True, places=True, first=False
):
    """The chapter's solution, and four mistakes."""
    live, ended = [(1.0, [])], []
    for _ in range(limit):
        grown = [
            (p * q if product else q, [*said, word])
            for p, said in live
            for word, q in follow(said).items()
        ]
        grown.sort(key=lambda pair: -pair[0])
        free = beam_size - len(ended) if places else beam_size
        kept = grown[:free] if freeze else grown[:1]
        ended += [pair for pair in kept if pair[1][-1] == "."]
        live = [pair for pair in kept if pair[1][-1] != "."]
        if first and ended:
            break
    return max(ended, key=lambda pair: pair[0])[1]


def test_the_check_passes_what_is_right_and_names_what_is_not():
    assert "8 checks passed" in repr(beam.check(by_hand))
    with pytest.raises(CheckFailed, match="finds what greedy misses"):
        beam.check(lambda *of: by_hand(*of, freeze=False))
    with pytest.raises(CheckFailed) as caught:
        beam.check(lambda *of: by_hand(*of, product=False))
    assert "totals are products over all words" in caught.value.failed
    for mistake, statement in (
        (dict(places=False), "what has ended keeps its place in the beam"),
        (dict(first=True), "the search goes on after the first end"),
    ):
        with pytest.raises(CheckFailed) as caught:
            beam.check(lambda *of, mistake=mistake: by_hand(*of, **mistake))
        assert caught.value.failed == [statement]
    with pytest.raises(CheckFailed, match="takes the likeliest"):
        beam.check(lambda follow, beam_size, limit: ["."])


def test_the_check_refuses_one_word_too_many():
    def longer(follow, beam_size, limit):
        return by_hand(follow, beam_size, limit + 1)

    with pytest.raises(CheckFailed) as caught:
        beam.check(longer)
    assert caught.value.failed == ["the limit is kept"]


def test_cost_and_score_shows_every_model_and_both_figures_of_the_paper():
    base, big = proofs.BASE, proofs.BIG
    figure = drawn.cost_and_score(
        {
            "English-French": {
                "single model": {"MoE": (1.2e20, 40.56, "left")},
                "ensemble": {"ConvS2S": (1.2e21, 41.29, "above")},
                "Transformer": {
                    "base": (base[3], base[1], "right"),
                    "big": (big[3], (41.0, big[1]), "below"),
                },
            }
        }
    )
    (ax,) = figure.axes
    assert ax.get_xscale() == "log"
    heights = sorted(y for line in ax.lines for y in line.get_ydata())
    assert heights == [38.1, 40.56, 41.0, 41.29, 41.8]
    assert {"MoE", "ConvS2S", "base", "big", "English-French", "BLEU"} <= set(
        words(figure)
    )


def test_the_tree_has_a_box_for_what_stays_and_a_word_for_the_best_of_the_rest():
    follow, names = beam.of_table(beam.TINY)
    seen = []
    beam.search(follow, eos=2, limit=5, beam_size=2, alpha=0.0, seen=seen)
    figure = drawn.beam_tree(seen, names.__getitem__)
    shown = words(figure)
    first = ["start", "a\n0.50", "b\n0.40", ".\n0.10"]
    assert shown == [*first, ".\n0.20", "a\n0.15", ".\n0.36"]
    (ax,) = figure.axes
    assert len(ax.lines) == 6
    assert figure.alt.startswith("A tree that grows for 2 steps")


def test_panels_stand_over_one_axis():
    figure = drawn.panels(
        [1, 2, 4],
        {"BLEU": {"a": [1, 2, 3], "b": [3, 2, 1]}, "length": {"a": [1, 1, 1]}},
        xlabel="beam size",
        xscale="log2",
        level={"length": 1.0},
    )
    left, right = figure.axes
    assert [line.get_label() for line in left.lines] == ["a", "b"]
    assert len(right.lines) == 2
    assert [t.get_text() for t in left.get_xticklabels()] == ["1", "2", "4"]
    assert figure.alt == "BLEU and length over beam size: a, b"
