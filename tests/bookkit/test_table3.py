"""Section 6.2: counts, small runs, differences, and the figures."""

from __future__ import annotations

import math
import random
import statistics

import pytest
import torch

from bookkit import CheckFailed, table3
from bookkit.proofs import PARAMETERS
from transformer import Transformer, TransformerConfig
from transformer.config import table3_rows

SETTINGS = dict(
    pieces=300,
    longest=12,
    budget=64,
    shape=dict(layers=1, d_model=16, d_ff=16, heads=2, max_length=32),
    training=dict(steps=3, warmup_steps=2),
)


def by_hand(config: TransformerConfig) -> int:
    d, f, n = config.d_model, config.d_ff, config.layers
    attention = config.heads * (2 * config.d_k + 2 * config.d_v) * d
    inner = d * f + f + f * d + d
    encoder = attention + inner + 2 * 2 * d
    decoder = 2 * attention + inner + 3 * 2 * d
    return config.vocab_size * d + n * (encoder + decoder)


def test_every_row_is_named_and_printed():
    assert list(table3.PRINTED) == list(table3.NAMES) == table3_rows()
    assert set(PARAMETERS) <= set(table3.PRINTED)
    assert {row for _, row in table3.OURS.values()} <= set(table3.PRINTED)


@pytest.mark.parametrize("seed", range(20))
def test_the_formula_counts_real_models(seed):
    draw = random.Random(seed)
    sizes = {name: draw.randint(1, 9) for name in ("layers", "d_ff", "heads")}
    sizes |= dict(d_k=draw.randint(1, 5), d_v=draw.randint(1, 5))
    sizes |= dict(vocab_size=draw.randint(3, 50), d_model=2 * draw.randint(1, 9))
    config = TransformerConfig(**sizes)
    real = sum(p.numel() for p in Transformer(config).parameters())
    assert by_hand(config) == real


def test_the_rows_that_round_are_none_nine_ten_and_ten():
    fit = [
        table3.counts(**assumption).splitlines()[-1]
        for assumption in table3.ASSUMPTIONS.values()
    ]
    assert fit == [f"{n} of 11 rows" for n in (0, 9, 10, 10)]
    assert table3.counted("base", vocab_size=37000) == 63_045_632
    more = table3.counted("big", vocab_size=37000, target_spaces=32)
    assert more - table3.counted("big", vocab_size=37000) == 32 * 1024


@pytest.mark.parametrize("row", PARAMETERS)
def test_a_rows_vocabularies_end_where_its_count_no_longer_rounds(row):
    sizes = table3.vocabularies(row, attention_bias=True)

    def rounds(size: int) -> bool:
        counted = table3.counted(row, vocab_size=size, attention_bias=True)
        return round(counted / 1e6) == PARAMETERS[row]

    ends = (sizes.start - 1, sizes.start, sizes.stop - 1, sizes.stop)
    assert [rounds(size) for size in ends] == [False, True, True, False]


def test_ten_rows_agree_on_a_vocabulary_and_big_does_not():
    sizes = {row: table3.vocabularies(row, attention_bias=True) for row in PARAMETERS}
    big = sizes.pop("big")
    low = max(each.start for each in sizes.values())
    high = min(each.stop for each in sizes.values())
    assert (low, high) == (40932, 41161)
    assert 37000 not in big and 40960 not in big and big.stop < low


def test_a_right_formula_passes_and_known_mistakes_are_named():
    assert len(table3.parameters(by_hand).statements) == 6
    wrong = {
        "three times": lambda c: by_hand(c) + 2 * c.vocab_size * c.d_model,
        "twice": lambda c: by_hand(c) + c.vocab_size * c.d_model,
        "two attentions": lambda c: (
            by_hand(c) - c.layers * c.heads * 2 * (c.d_k + c.d_v) * c.d_model
        ),
        "left out": lambda c: by_hand(c) - c.layers * 10 * c.d_model,
        "a shift": lambda c: by_hand(c) - c.layers * 5 * c.d_model,
        "have biases": lambda c: by_hand(c) - 2 * c.layers * (c.d_ff + c.d_model),
        "no biases in the paper": lambda c: (
            by_hand(c) + 3 * c.layers * (c.heads * (2 * c.d_k + c.d_v) + c.d_model)
        ),
        "that we know": lambda c: by_hand(c) + 1,
    }
    for says, formula in wrong.items():
        with pytest.raises(CheckFailed, match=says):
            table3.parameters(formula)
    with pytest.raises(CheckFailed, match="ZeroDivisionError"):
        table3.parameters(lambda config: 1 // 0)


def test_biases_are_what_a_model_with_biases_has_more():
    def count(**changes) -> int:
        config = TransformerConfig(vocab_size=5, layers=2, d_model=8, d_ff=3, **changes)
        return sum(p.numel() for p in Transformer(config).parameters())

    shape = dict(heads=2, d_k=3, d_v=5)
    more = count(**shape, attention_bias=True) - count(**shape)
    assert more == 3 * 2 * (2 * (2 * 3 + 5) + 8)


def test_a_small_run_depends_on_its_seed_and_nothing_else():
    first = table3.first_losses(SETTINGS, 1, 3)
    torch.manual_seed(99)
    assert table3.first_losses(SETTINGS, 1, 3) == first
    assert table3.first_losses(SETTINGS, 2, 3) != first


def test_rows_of_one_seed_see_the_same_batches():
    wide = SETTINGS | {"shape": SETTINGS["shape"] | dict(d_ff=32, dropout=0.0)}
    one, other = (table3.trainer(given, 1).stream for given in (SETTINGS, wide))
    for ours, theirs in zip(one.take(3), other.take(3), strict=True):
        assert torch.equal(ours.source, theirs.source)
        assert torch.equal(ours.target, theirs.target)


def test_training_and_validation_have_no_long_pairs():
    words = table3.short_pairs(300, 12)
    for pairs in (words.train, words.valid):
        assert pairs.lengths.max() == 12
    assert len(words.valid) == len(words.valid_text)
    german = [target for _, target in words.valid_text]
    assert [words.valid.target[i] for i in range(len(german))] == (
        words.tokenizer.encode(german)
    )


def test_pieces_a_word_count_a_sentences_end():
    words = table3.vocabulary(300)
    one = words.encode(["Datei"])[0]
    assert table3.pieces_a_word(300, ["Datei"]) == (len(one) + 1) / 2
    assert table3.pieces_a_word(300, ["die Datei", "die"]) == pytest.approx(
        sum(len(ids) + 1 for ids in words.encode(["die Datei", "die"])) / 5
    )


def test_single_runs_pair_everything_but_a_run_with_itself(monkeypatch):
    stored(monkeypatch, base={1: 1.0, 2: 3.0}, h1={1: 5.0})
    e2, e4 = math.exp(2), math.exp(4)
    assert table3.single_runs("base") == pytest.approx([1 / e2 - 1, e2 - 1])
    assert table3.single_runs("h1") == pytest.approx([e4 - 1, e2 - 1])


def test_loss_gaps_are_means_over_blocks_of_one_seed(monkeypatch):
    losses = {
        "ablations/h1": {7: [1.0, 2.0, 3.0]},
        "ablations/base": {8: [0.0, 0.0, 0.0], 7: [0.5, 1.0, 1.0]},
    }
    files = {
        name: {"runs": [dict(seed=s, losses=values) for s, values in runs.items()]}
        for name, runs in losses.items()
    }
    monkeypatch.setattr(table3, "results", files.__getitem__)
    assert table3.loss_gaps("h1", blocks=2) == [[0.75, 2.0]]


def stored(monkeypatch, **rows: dict[int, float]) -> None:
    files = {
        f"{folder}/{row}": {
            "runs": [
                dict(seed=seed, bleu=value, perplexity=math.exp(value))
                for seed, value in values.items()
            ]
        }
        for row, values in rows.items()
        for folder in ("ablations", "ablations_start")
    }

    def read(name: str) -> dict:
        if name not in files:
            raise FileNotFoundError(name)
        return files[name]

    monkeypatch.setattr(table3, "results", read)


def test_differences_are_between_runs_of_one_seed(monkeypatch):
    stored(monkeypatch, base={1: 2.0, 2: 3.0, 3: 9.0}, h1={2: 1.0, 1: 1.5})
    found = table3.difference("base", "h1", "bleu", what="one")
    assert found.values == {1: 0.5, 2: 2.0} and found.what == "one"
    over = table3.ratio("h1", "base").values
    assert over == pytest.approx({1: math.exp(-0.5) - 1, 2: math.exp(-2.0) - 1})
    assert table3.finished() == ["h1"]


def test_a_row_with_too_few_seeds_decides_nothing(monkeypatch):
    base = {seed: 3 + seed / 100 for seed in range(5)}
    more = {seed: 3.5 + seed / 90 for seed in range(4)}
    stored(monkeypatch, base=base, h16=more, no_smoothing=base, h1=more | {4: 3.6})
    assert table3.decided("16 heads are worse than 4")[1] == "cannot tell"
    assert table3.decided("1 head is worse than 4")[1] == "scoped"
    assert table3.decided("smoothing is worse than none")[1] == "cannot tell"
    said = {line[:29].strip(): line[29:] for line in table3.verdicts().splitlines()}
    assert said["16 heads are worse than 4"].endswith("cannot tell (4 seeds of 5)")
    assert said["1 head is worse than 4"].endswith("+7.5%  scoped")
    assert said["1 layer is worse than 2"].strip() == "not run"


def test_what_can_be_seen_is_the_half_interval_of_independent_pairs():
    draw = random.Random(0)
    values = [draw.gauss(0, 2) for _ in range(8)]
    half = table3.smallest_visible(values)
    pairs = [
        [draw.gauss(0, 1) - draw.gauss(0, 1) for _ in range(5)] for _ in range(4000)
    ]
    scale = statistics.stdev(values)
    # Differences of nothing leave the interval in one case of twenty.
    out = [
        abs(statistics.fmean(some)) > 2.776 * statistics.stdev(some) / math.sqrt(5)
        for some in pairs
    ]
    assert 0.035 < statistics.fmean(out) < 0.065
    assert half == pytest.approx(2.776 * scale * math.sqrt(2 / 5))


@pytest.mark.parametrize(
    "draw",
    [
        table3.as_printed,
        lambda: table3.vocabulary_ranges(attention_bias=True),
    ],
)
def test_figures_of_the_printed_table_are_drawn(draw):
    made = draw()
    made.draw_without_rendering()
    assert "Table 3" in made.alt or "parameters" in made.alt


def test_figures_of_the_small_runs_are_drawn(monkeypatch):
    values = {seed: 10 + seed / 100 for seed in range(5)}
    stored(monkeypatch, base=values, h1=values, learned={0: 3.0, 1: 4.0, 2: 5.0})
    for made in (table3.spread(), table3.beside(), table3.beside(start=True)):
        made.draw_without_rendering()
        assert "BLEU" in made.alt and "perplexity" in made.alt
    assert "learned positions" in made.alt


def test_the_figure_of_losses_over_steps_is_drawn():
    made = table3.catching_up(N1="1 layer")
    made.draw_without_rendering()
    assert "1 layer" in made.alt
