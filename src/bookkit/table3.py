"""Section 6.2: Table 3 as printed, counted, and run again in small.

    table3.counts(vocab_size=37000)          parameters, row by row
    table3.vocabularies("base")              sizes that print 65 million
    table3.trainer(settings, seed)           a small run of a row
    table3.difference("base", "h1", "bleu")  from the committed runs

`experiments/ablations.py` makes the runs; here is what both it and
chapter 17 need.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn

from bookkit.evidence import Measurement, results
from bookkit.figures import (
    ACCENT,
    COLOURS,
    DASHES,
    FAINT,
    INK,
    MARKERS,
    QUIET,
    Figure,
    blank,
    style,
)
from bookkit.ledger import claim
from bookkit.proofs import PARAMETERS, count_parameters
from bookkit.report import CheckFailed, Report
from transformer import TrainingConfig, Transformer, TransformerConfig
from transformer.data.streams import EncodedPairs, TokenBatches, encode_pairs
from transformer.data.text import Pair, help_en_de
from transformer.data.tokenizer import BytePairEncoding
from transformer.processes import Processes
from transformer.trainer import Trainer

# Perplexity a piece and BLEU on newstest2013, as printed.
PRINTED = {
    "base": (4.92, 25.8),
    "A-h1": (5.29, 24.9),
    "A-h4": (5.00, 25.5),
    "A-h16": (4.91, 25.8),
    "A-h32": (5.01, 25.4),
    "B-dk16": (5.16, 25.1),
    "B-dk32": (5.01, 25.4),
    "C-N2": (6.11, 23.7),
    "C-N4": (5.19, 25.3),
    "C-N8": (4.88, 25.5),
    "C-d256": (5.75, 24.5),
    "C-d1024": (4.66, 26.0),
    "C-ff1024": (5.12, 25.4),
    "C-ff4096": (4.75, 26.2),
    "D-drop0.0": (5.77, 24.6),
    "D-drop0.2": (4.95, 25.5),
    "D-ls0.0": (4.67, 25.3),
    "D-ls0.2": (5.47, 25.7),
    "E-learned": (4.92, 25.7),
    "big": (4.33, 26.4),
}
NAMES = {
    "base": "base",
    "A-h1": "A  1 head",
    "A-h4": "A  4 heads",
    "A-h16": "A  16 heads",
    "A-h32": "A  32 heads",
    "B-dk16": "B  d_k = 16",
    "B-dk32": "B  d_k = 32",
    "C-N2": "C  2 layers",
    "C-N4": "C  4 layers",
    "C-N8": "C  8 layers",
    "C-d256": "C  d_model = 256",
    "C-d1024": "C  d_model = 1024",
    "C-ff1024": "C  d_ff = 1024",
    "C-ff4096": "C  d_ff = 4096",
    "D-drop0.0": "D  no dropout",
    "D-drop0.2": "D  dropout 0.2",
    "D-ls0.0": "D  no smoothing",
    "D-ls0.2": "D  smoothing 0.2",
    "E-learned": "E  learned positions",
    "big": "big",
}

# What the printed counts may have been counted on.
ASSUMPTIONS: dict[str, dict] = {
    "37,000 tokens": dict(vocab_size=37000),
    "40,960 rows": dict(vocab_size=40960),
    "and biases": dict(vocab_size=40960, attention_bias=True),
    "and target spaces": dict(vocab_size=40960, attention_bias=True, target_spaces=32),
}

# Our small rows, and the row of Table 3 whose change is most like theirs.
OURS = {
    "h1": ("1 head (4)", "A-h1"),
    "h16": ("16 heads (4)", "A-h32"),
    "dk4": ("d_k = 4 (16)", "B-dk16"),
    "N1": ("1 layer (2)", "C-N2"),
    "ff512": ("d_ff = 512 (256)", "C-ff4096"),
    "no_dropout": ("no dropout (0.1)", "D-drop0.0"),
    "no_smoothing": ("no smoothing (0.1)", "D-ls0.0"),
    "learned": ("learned positions", "E-learned"),
}


# --- the small runs ------------------------------------------------------


@dataclass(frozen=True)
class ShortPairs:
    """The book's corpus, of its pairs those with two short sides."""

    tokenizer: BytePairEncoding
    train: EncodedPairs
    valid: EncodedPairs
    valid_text: list[Pair]


@cache
def vocabulary(pieces: int) -> BytePairEncoding:
    """The pieces of all training pairs, both languages together."""
    texts = (text for pair in help_en_de("train") for text in pair)
    return BytePairEncoding.fit(texts, pieces)


@cache
def short_pairs(pieces: int, longest: int) -> ShortPairs:
    """What the small runs learn from, and what they are measured on.

    Args:
        pieces: of the vocabulary, made from all training pairs.
        longest: tokens that a side may have, EOS counted.
    """
    train, valid = help_en_de("train"), help_en_de("valid")
    tokenizer = vocabulary(pieces)
    sides = [tokenizer.encode(side) for side in zip(*valid, strict=True)]
    short = [
        pair
        for pair, *both in zip(valid, *sides, strict=True)
        if max(map(len, both)) < longest
    ]
    return ShortPairs(
        tokenizer,
        encode_pairs(train, tokenizer, longest)[0],
        encode_pairs(short, tokenizer, longest)[0],
        short,
    )


def trainer(settings: Mapping, seed: int) -> Trainer:
    """A row of the small table, before its first step.

    Args:
        settings: as a result file has them, with pieces, longest,
            budget, shape and training.
        seed: of the first weights, the batches and the dropout.
    """
    words = short_pairs(settings["pieces"], settings["longest"])
    torch.manual_seed(seed)
    pieces = words.tokenizer.vocab_size
    config = TransformerConfig(vocab_size=pieces, **settings["shape"])
    return Trainer(
        Transformer(config),
        TokenBatches(words.train, settings["budget"], seed),
        TrainingConfig(**settings["training"], seed=seed),
        Processes(0, 1, torch.device("cpu")),
    )


def first_losses(settings: Mapping, seed: int, steps: int) -> list[float]:
    """Losses a token of the first steps of a run, made anew."""
    training = trainer(settings, seed)
    made = [training.step() for _ in range(steps)]
    return [step.loss.item() / step.tokens for step in made]


def recipe(row: str) -> dict:
    """What the committed runs of a row had in common."""
    return results(f"ablations/{row}")["settings"]


def runs(row: str, *, start: bool = False) -> dict[int, dict]:
    """The committed runs of a row of `OURS`, or of "base", by seed.

    Args:
        start: those that stop after the first 450 steps.
    """
    folder = "ablations_start" if start else "ablations"
    return {run["seed"]: run for run in results(f"{folder}/{row}")["runs"]}


def difference(
    one: str,
    other: str,
    key: str | Callable[[dict], float],
    *,
    start: bool = False,
    **said: str,
) -> Measurement:
    """A row minus another, for each seed that both have.

    Args:
        one, other: rows of `OURS`, or "base".
        key: what to take of a run: its name, or a function.
        start: as `runs` takes it.
        said: `what` and `unit` of the measurement.
    """
    pick = key if callable(key) else lambda run: run[key]
    ones, others = runs(one, start=start), runs(other, start=start)
    both = [seed for seed in ones if seed in others]
    return Measurement({s: pick(ones[s]) - pick(others[s]) for s in both}, **said)


def ratio(one: str, other: str, *, start: bool = False, **said: str) -> Measurement:
    """Perplexity of a row over another's from the same seed, minus 1."""

    def logarithm(run: dict) -> float:
        return math.log(run["perplexity"])

    log = difference(one, other, logarithm, start=start)
    return Measurement({s: math.expm1(v) for s, v in log.values.items()}, **said)


def smallest_visible(values: Sequence[float], pairs: int = 5) -> float:
    """The half interval of a difference that pairs of runs would have.

    As if two rows spread as these values do, and a pair shared
    nothing: its difference then has sqrt(2) times their deviation. A
    true difference of that size is found in about half of all cases.

    Args:
        values: one number a seed, of one and the same row.
        pairs: seeds that both rows are run from.
    """
    deviation = math.sqrt(2) * statistics.stdev(values)
    t95 = {4: 3.182, 5: 2.776, 8: 2.365}[pairs]
    return t95 * deviation / math.sqrt(pairs)


def single_runs(row: str) -> list[float]:
    """Perplexity of every run of a row over every run of base, minus 1.

    As if each were the only one. Of base itself: each over each other.
    """
    ones, others = runs(row), runs("base")
    return [
        ones[one]["perplexity"] / others[other]["perplexity"] - 1
        for one in ones
        for other in others
        if not (row == "base" and one == other)
    ]


def loss_gaps(row: str, blocks: int = 4) -> list[list[float]]:
    """Training loss of a row minus base's, a list for each seed.

    Args:
        blocks: of 25 steps, whose mean is taken together.
    """
    ones, others = runs(row), runs("base")
    gaps = []
    for seed in ones:
        pair = zip(ones[seed]["losses"], others[seed]["losses"], strict=True)
        each = [one - other for one, other in pair]
        starts = range(0, len(each), blocks)
        gaps.append([statistics.fmean(each[i : i + blocks]) for i in starts])
    return gaps


def pieces_a_word(pieces: int, sentences: Sequence[str]) -> float:
    """Into how many pieces a vocabulary cuts a word, on average.

    A sentence's end counts as a word of one piece.

    Args:
        pieces: of the vocabulary, made from the book's corpus.
    """
    cut = sum(len(ids) + 1 for ids in vocabulary(pieces).encode(sentences))
    return cut / sum(len(text.split()) + 1 for text in sentences)


# What each row decides: perplexity of which row over which, minus 1, and
# by what rule. For a claim its id stands here, and the rule in the ledger.
SIGN = "scoped if above 0; against if below 0; otherwise cannot tell"
DECIDES: dict[str, tuple[str, str, str]] = {
    "1 head is worse than 4": ("h1", "base", "table3-heads"),
    "16 heads are worse than 4": ("h16", "base", SIGN),
    "d_k = 4 is worse than 16": ("dk4", "base", "table3-dk"),
    "1 layer is worse than 2": ("N1", "base", "table3-size"),
    "d_ff = 256 is worse than 512": ("base", "ff512", SIGN),
    "no dropout is worse than 0.1": ("no_dropout", "base", "table3-dropout"),
    "smoothing is worse than none": ("base", "no_smoothing", SIGN),
    "learned positions are alike": ("learned", "base", "table3-positions"),
}


def decided(statement: str, *, start: bool = False) -> tuple[Measurement, str]:
    """The ratio that a statement of `DECIDES` names, and the verdict.

    A row of which not all seeds are in decides nothing.
    """
    one, other, rule = DECIDES[statement]
    found = ratio(one, other, start=start)
    if len(found.values) < 5:
        return found, "cannot tell"
    if rule != SIGN:
        rule = claim(rule).rule
    return found, found.decided_by(rule)


def printed_ratio(one: str, other: str) -> float:
    """What Table 3 has for the rows most like ours."""
    first, second = (
        PRINTED["base" if row == "base" else OURS[row][1]][0] for row in (one, other)
    )
    return first / second - 1


def verdicts(*, start: bool = False) -> str:
    """A line for each statement: ours, the paper's, the verdict."""
    lines = [f"{'perplexity':29} {'ours':>14} {'paper':>7}  verdict"]
    for statement, (one, other, _) in DECIDES.items():
        if not {one, other} <= {"base", *finished(start=start)}:
            lines.append(f"{statement:29} {'not run':>14}")
            continue
        found, verdict = decided(statement, start=start)
        # Spaces that do not break: on a phone the line does, before it.
        ours = f"{100 * found.mean:+.1f}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"
        ours += f"{100 * found.half_width:.1f}%"
        paper = f"{100 * printed_ratio(one, other):+.1f}%"
        seeds = len(found.values)
        few = "" if seeds >= 5 else f" ({seeds} seeds of 5)"
        lines.append(f"{statement:29} {ours:>14} {paper:>7}  {verdict}{few}")
    return "\n".join(lines)


# --- parameters --------------------------------------------------------------


@cache
def counted(row: str, *, target_spaces: int = 0, **changes) -> int:
    """Parameters of a real model of a row; no memory is taken.

    Args:
        row: of `transformer.config.table3_rows`.
        target_spaces: rows of a further table, as wide as the model;
            the published code had 32 of them, for target languages.
        changes: fields of `TransformerConfig`, such as vocab_size.
    """
    width = TransformerConfig.table3(row).d_model
    with torch.device("meta"):
        spaces = nn.Embedding(target_spaces, width).weight
    return count_parameters(row, **changes) + spaces.numel()


def counts(**assumption) -> str:
    """Each row of Table 3 that prints a count, beside ours.

    Args:
        assumption: as `counted` takes it.
    """
    lines = [f"{'millions':17} printed counted fits"]
    fit = 0
    for row, printed in PARAMETERS.items():
        millions = counted(row, **assumption) / 1e6
        same = round(millions) == printed
        fit += same
        lines.append(
            f"{NAMES[row]:17} {printed:7} {millions:7.2f} {'yes' if same else 'no'}"
        )
    return "\n".join([*lines, f"{fit} of {len(PARAMETERS)} rows"])


def vocabularies(row: str, **assumption) -> range:
    """Sizes of the vocabulary with which a row prints its count."""
    width = TransformerConfig.table3(row).d_model  # one tied matrix
    # Any size will do to count the rest.
    rest = counted(row, vocab_size=1000, **assumption) - 1000 * width
    printed = PARAMETERS[row] * 1_000_000
    low, high = (
        math.ceil((printed + half - rest) / width) for half in (-500_000, 500_000)
    )
    return range(low, high)


def parameters(mine: Callable[[TransformerConfig], int]) -> Report:
    """A reader's formula against real models.

    Args:
        mine: configuration -> number of parameters.

    Raises:
        CheckFailed: with the smallest failing example, and what the
            difference looks like.
    """
    small = dict(vocab_size=11, d_ff=7, heads=1)
    cases = {
        "one layer, two wide": TransformerConfig(**small, layers=1, d_model=2),
        "three layers": TransformerConfig(**small, layers=3, d_model=2),
        "keys narrower than values": TransformerConfig(
            vocab_size=11, d_ff=7, layers=1, d_model=4, heads=2, d_k=1, d_v=2
        ),
        "heads wider than the model": TransformerConfig(
            vocab_size=11, d_ff=7, layers=1, d_model=4, heads=2, d_k=8, d_v=8
        ),
        "base": TransformerConfig.base(),
        "big": TransformerConfig.big(),
    }
    passed = []
    for name, config in cases.items():
        with torch.device("meta"):
            right = sum(w.numel() for w in Transformer(config).parameters())
        try:
            got = mine(config)
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
        if got != right:
            raise CheckFailed(
                f"parameters: failed: {name}\n    given     {_given(config)}\n"
                f"    expected  {right:,}\n    got       {got}\n{_looks(config, got)}",
                "parameters",
                [name],
                [],
            )
        passed.append(name)
    return Report("parameters", tuple(passed))


def _given(config: TransformerConfig) -> str:
    names = ("vocab_size", "layers", "d_model", "d_ff", "heads", "d_k", "d_v")
    return ", ".join(f"{name}={getattr(config, name)}" for name in names)


def _looks(config: TransformerConfig, got: object) -> str:
    """What a wrong count looks like, if it looks like anything."""
    right = _parts(config)
    layers, heads = config.layers, config.heads
    mistakes = {
        "the shared matrix is counted three times": 2 * right["matrix"],
        "the shared matrix is counted twice": right["matrix"],
        "a decoder layer has two attentions": -layers * right["attention"],
        "a layer's normalisations are left out": -5 * layers * right["norm"],
        "a normalisation has a scale and a shift": -5 * layers * right["norm"] // 2,
        "the feed-forward networks have biases": -2
        * layers
        * (config.d_ff + config.d_model),
        "attention has no biases in the paper": 3
        * layers
        * (heads * (2 * config.d_k + config.d_v) + config.d_model),
    }
    if isinstance(got, int):
        total = _total(right, layers)
        for says, amount in mistakes.items():
            if got - total == amount:
                return f"  That is the count if one overlooks or does this: {says}."
    return "  No mistake that we know gives exactly this."


def _parts(config: TransformerConfig) -> dict[str, int]:
    d, heads = config.d_model, config.heads
    return {
        "matrix": config.vocab_size * d,
        "attention": 2 * d * heads * (config.d_k + config.d_v),
        "feed-forward": 2 * d * config.d_ff + config.d_ff + d,
        "norm": 2 * d,
    }


def _total(parts: Mapping[str, int], layers: int) -> int:
    encoder = parts["attention"] + parts["feed-forward"] + 2 * parts["norm"]
    decoder = encoder + parts["attention"] + parts["norm"]
    return parts["matrix"] + layers * (encoder + decoder)


# --- figures -----------------------------------------------------------------


def as_printed() -> Figure:
    """Table 3 as differences from base, a dot for each row."""
    rows = [row for row in PRINTED if row != "base"]
    base = PRINTED["base"]
    panels = (
        ("BLEU minus base's", [PRINTED[row][1] - base[1] for row in rows]),
        ("perplexity minus base's", [PRINTED[row][0] - base[0] for row in rows]),
    )
    kinds = {  # by the sign of what is better
        1: ("o", ACCENT, ACCENT, "better than base"),
        0: ("s", INK, "white", "the same"),
        -1: ("o", COLOURS[1], "white", "worse"),
    }
    with style():
        made, axes = blank(0.25 * len(rows) + 0.9, 1, 2, sharey=True)
        for ax, (label, values), good in zip(axes[0], panels, (1, -1), strict=True):
            ax.axvline(0, color=INK, linewidth=0.9)
            for place, value in enumerate(values):
                better = round(value * good, 9)
                sign = (better > 0) - (better < 0)
                marker, colour, fill, _ = kinds[sign]
                ax.plot([0, value], [place, place], "-", color=FAINT, linewidth=2)
                ax.plot(value, place, marker, color=colour, mfc=fill, zorder=3)
            ax.set_xlabel(label)
            ax.set_title("better to the right" if good > 0 else "better to the left")
            _row_axis(ax, [NAMES[row] for row in rows])
            for place in range(1, len(rows)):
                if rows[place][0] != rows[place - 1][0]:
                    ax.axhline(place - 0.5, color=FAINT, linewidth=0.8)
        for marker, colour, fill, name in kinds.values():
            axes[0, 0].plot([], [], marker, color=colour, mfc=fill, label=name)
        made.legend(loc="outside upper left", ncols=3, handlelength=1)
    made.alt = (
        "Two panels, BLEU and perplexity, a dot for the difference of each of"
        f" {len(rows)} rows of Table 3 from base: {', '.join(NAMES[r] for r in rows)}"
    )
    return made


def _row_axis(ax, names: Sequence[str]) -> None:
    """Names from the top down, without a frame."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", visible=True)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def vocabulary_ranges(**assumption) -> Figure:
    """For each row, the vocabularies with which its count is printed.

    Args:
        assumption: as `counted` takes it, without vocab_size.
    """
    rows = list(PARAMETERS)
    with style():
        made, axes = blank(0.3 * len(rows) + 1.1)
        (ax,) = axes.flat
        for size, name in ((37000, "37,000"), (40960, "40,960")):
            ax.axvline(size, color=INK, linewidth=1, linestyle=(0, (3, 2)))
            ax.annotate(name, (size, -0.55), xytext=(4, 2), textcoords="offset points")
        ends = [vocabularies(row, **assumption) for row in rows]
        ax.set_xlim(min(e.start for e in ends) - 400, max(e.stop for e in ends) + 400)
        for place, row in enumerate(rows):
            sizes = vocabularies(row, **assumption)
            colour = COLOURS[1] if row == "big" else ACCENT
            ax.barh(
                place,
                len(sizes),
                left=sizes.start,
                color=colour,
                height=0.5,
                hatch="////" if row == "big" else None,
                edgecolor="white",
                linewidth=0,
            )
        _row_axis(ax, [f"{NAMES[row]}: {PARAMETERS[row]} M" for row in rows])
        ax.set_ylim(len(rows) - 0.5, -0.9)
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        ax.set_xlabel("sizes of the vocabulary that give the printed count")
    made.alt = (
        "A bar for each row of Table 3 that prints a count: the sizes of the"
        " vocabulary with which the count rounds to it; two upright lines at"
        " 37,000 and 40,960"
    )
    return made


def spread() -> Figure:
    """BLEU and perplexity of base, a dot for each of its seeds."""
    found = runs("base")
    panels = (("BLEU", "bleu"), ("perplexity", "perplexity"))
    with style():
        made, axes = blank(1.6, 1, 2)
        for ax, (label, key) in zip(axes[0], panels, strict=True):
            values = [run[key] for run in found.values()]
            ax.plot(values, [0] * len(values), "o", color=ACCENT, alpha=0.55, ms=7)
            ax.plot(statistics.fmean(values), 0, "|", color=INK, ms=22, mew=2)
            ax.set_yticks([])
            ax.set_ylim(-1, 1)
            ax.grid(axis="y", visible=False)
            ax.grid(axis="x", visible=True)
            ax.spines["left"].set_visible(False)
            ax.margins(x=0.15)
            ax.set_xlabel(f"{label}, validation pairs")
            ax.set_title(f"{len(values)} seeds, mean {statistics.fmean(values):.1f}")
    made.alt = (
        "Two strips of dots, BLEU and perplexity of the small base model, a dot"
        " for each seed and a tick at the mean"
    )
    return made


def finished(*, start: bool = False) -> list[str]:
    """Rows of `OURS` of which there are two runs at least."""
    found = []
    for row in OURS:
        try:
            both = runs(row, start=start).keys() & runs("base", start=start).keys()
        except FileNotFoundError:
            continue
        if len(both) > 1:
            found.append(row)
    return found


def beside(*, start: bool = False) -> Figure:
    """Our differences from base with their intervals, and the paper's.

    Args:
        start: put the runs that stop early below the long ones, each
            against its own base.
    """
    rows = list(OURS)
    kinds = [("ours, 2,400 steps", False, ACCENT, "o", ACCENT)]
    if start:
        kinds.append(("ours, 450 steps", True, QUIET, "s", "white"))
    gap = 0.5 / len(kinds)
    sides = (
        (False, "perplexity (percent above base)", "better to the left"),
        (True, "BLEU minus base's", "better to the right"),
    )
    with style():
        height = (0.56 if start else 0.46) * len(rows) + 1.3
        made, axes = blank(height, 1, 2, sharey=True)
        for ax, (bleu, label, better) in zip(axes[0], sides, strict=True):
            ax.axvline(0, color=INK, linewidth=0.9)
            for place, row in enumerate(rows):
                for index, (_, early, colour, marker, fill) in enumerate(kinds):
                    if row not in finished(start=early):
                        continue
                    if bleu:
                        ours = difference(row, "base", "bleu", start=early)
                        times = 1
                    else:
                        ours, times = ratio(row, "base", start=early), 100
                    middle, reach = times * ours.mean, times * ours.half_width
                    at = place - 0.25 + gap * index
                    ends = [middle - reach, middle + reach]
                    ax.plot(ends, [at, at], "-", color=colour, linewidth=2)
                    ax.plot(middle, at, marker, color=colour, mfc=fill, ms=5.5)
                printed, of_base = PRINTED[OURS[row][1]], PRINTED["base"]
                if bleu:
                    paper = printed[1] - of_base[1]
                else:
                    paper = 100 * (printed[0] / of_base[0] - 1)
                ax.plot(paper, place + 0.25, "D", color=COLOURS[1], mfc="white", ms=5)
            _row_axis(ax, [OURS[row][0] for row in rows])
            for place in range(1, len(rows)):
                ax.axhline(place - 0.5, color=FAINT, linewidth=0.8)
            ax.set_xlabel(label)
            ax.set_title(better)
        for name, _, colour, marker, fill in kinds:
            ax.plot([], [], f"{marker}-", color=colour, mfc=fill, label=name)
        ax.plot([], [], "D", color=COLOURS[1], mfc="white", label="the paper")
        made.legend(loc="outside upper left", ncols=3)
    below = ", below it that of runs that stopped early as a square" if start else ""
    made.alt = (
        "Two panels, perplexity and BLEU against base: for each of"
        f" {', '.join(OURS[row][0] for row in rows)} our difference as a dot with"
        f" its interval{below}, and the paper's as a diamond"
    )
    return made


def catching_up(**rows: str) -> Figure:
    """Training loss of rows minus base's, over the steps.

    Args:
        rows: from names of rows of `OURS` to what to call them.
    """
    with style():
        made, axes = blank(3.4)
        (ax,) = axes.flat
        ax.axhline(0, color=INK, linewidth=0.9)
        ends = [(0.0, "base", INK)]
        for index, (row, name) in enumerate(rows.items()):
            gaps = loss_gaps(row)
            steps = [100 * i + 50 for i in range(len(gaps[0]))]
            low, middle, high = (
                [choose(at) for at in zip(*gaps, strict=True)]
                for choose in (min, statistics.fmean, max)
            )
            colour = COLOURS[index]
            ax.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
            ax.plot(
                steps, middle, DASHES[index], color=colour, marker=MARKERS[index], ms=4
            )
            ends.append((middle[-1], name, colour))
        for height, name, colour in ends:
            low_line = name != "base" and abs(height) < 0.03
            ax.annotate(
                name,
                (steps[-1], height),
                xytext=(8, -9 if low_line else 7 if name == "base" else -3),
                textcoords="offset points",
                color=colour,
                annotation_clip=False,
            )
        ax.set_xlabel("step")
        ax.set_ylabel("training loss minus base's (nats)")
        ax.set_title(f"band: lowest to highest of {len(gaps)} seeds")
    made.alt = (
        "Training loss minus that of base over the steps, with a band for the"
        f" seeds, for {', '.join(rows.values())}"
    )
    return made
