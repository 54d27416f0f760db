"""Beam search as one would write it down, and a check of yours.

One sentence, lists of Python, everything computed again at each step.
`transformer.beam_search` does the same for a batch with a cache; the
tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from bookkit.report import Exam, Report
from transformer import Hypothesis, Transformer

# What was said so far, several times over: for each the log-probability
# of every token that may follow.
Follow = Callable[[list[list[int]]], list[list[float]]]


@dataclass(frozen=True)
class Branch:
    """A continuation that was looked at.

    Attributes:
        ids: what was said.
        total: its log-probability.
        fate: "lives", "ended" or "dropped".
    """

    ids: tuple[int, ...]
    total: float
    fate: str


def search(
    follow: Follow,
    *,
    eos: int,
    limit: int,
    beam_size: int = 4,
    alpha: float = 0.6,
    n_best: int = 1,
    stop_early: bool = True,
    seen: list[list[Branch]] | None = None,
) -> list[Hypothesis]:
    """The n best outputs of one sentence.

    Args:
        follow: outputs so far -> log-probabilities, one row for each.
        eos: the token that ends an output.
        limit: tokens that an output may have.
        beam_size, alpha, n_best: as in `transformer.beam_search`.
        stop_early: stop when nothing better can come.
        seen: takes the continuations of each step, the likeliest
            first.
    """
    live, ended = [(0.0, [])], []
    while live:
        grown = [
            (total + more, [*said, token])
            for (total, said), row in zip(
                live, follow([said for _, said in live]), strict=True
            )
            for token, more in enumerate(row)
            if more > -math.inf
        ]
        grown.sort(key=lambda pair: -pair[0])
        places = beam_size - len(ended)
        live, fates = [], []
        for total, said in grown[:places]:
            done = said[-1] == eos
            if done or len(said) == limit:
                score = total / ((5 + len(said)) / 6) ** alpha
                ended.append(Hypothesis(said, total, score, done))
            else:
                live.append((total, said))
            fates.append("ended" if done else "lives")
        if seen is not None:
            fates += ["dropped"] * (len(grown) - len(fates))
            seen.append(
                [
                    Branch(tuple(g[1]), g[0], f)
                    for g, f in zip(grown, fates, strict=True)
                ]
            )
        ended.sort(key=lambda h: (not h.finished, -h.score))
        if stop_early and live and len(ended) >= n_best:
            bound = live[0][0] / ((5 + limit) / 6) ** alpha
            if bound < ended[n_best - 1].score:
                break
    return ended[:n_best]


def of_model(model: Transformer, source: Sequence[int]) -> Follow:
    """What a model says may follow, for one sentence's token ids."""

    @torch.no_grad()
    def follow(outputs: list[list[int]]) -> list[list[float]]:
        start = model.config.start_id
        target_in = torch.tensor([[start, *said] for said in outputs])
        sources = torch.tensor([list(source)] * len(outputs))
        logits = model(sources, target_in)[:, -1]
        logits[:, model.config.banned_ids] = -math.inf
        return logits.log_softmax(-1).tolist()

    return follow


def of_table(table: dict[str, dict[str, float]]) -> tuple[Follow, list[str]]:
    """A language whose next word depends on the last one alone.

    Args:
        table: after each word, "" at the start, the probabilities of
            the next; "." ends.

    Returns:
        The function that `search` takes, and the words by id; "." is
        the last.
    """
    others = {word for row in table.values() for word in row} - {"."}
    words = [*sorted(others), "."]

    def follow(outputs: list[list[int]]) -> list[list[float]]:
        rows = [table[words[said[-1]] if said else ""] for said in outputs]
        return [
            [math.log(row[w]) if row.get(w) else -math.inf for w in words]
            for row in rows
        ]

    return follow, words


TINY = {
    "": {"a": 0.5, "b": 0.4, ".": 0.1},
    "a": {"a": 0.3, "b": 0.3, ".": 0.4},
    "b": {"a": 0.1, ".": 0.9},
}


def check(mine: Callable) -> Report:
    """A beam search without penalty, on made-up languages.

    Args:
        mine: (follow, beam_size, limit) -> the words of the likeliest
            output that was found. `follow` takes a list of words and
            gives a dictionary: the probability of each word that may
            come next. "." ends an output and is its last word; one
            that has `limit` words without it does not count.

    Raises:
        CheckFailed: with the smallest failing example.
    """
    exam = Exam("beam search", mine)
    early = {"": {"a": 0.6, ".": 0.4}, "a": {".": 1.0}}
    doubtful = {
        "": {"a": 0.9, "b": 0.1},
        "a": {"a": 0.55, ".": 0.45},
        "b": {".": 1.0},
    }
    unlikely = {
        "": {"a": 0.9, "b": 0.1},
        "a": {".": 0.6, "b": 0.4},
        "b": {".": 1.0},
    }
    roundabout = {
        "": {"a": 0.9, "b": 0.1},
        "a": {"c": 1.0},
        "b": {".": 1.0},
        "c": {".": 1.0},
    }
    crowded = {
        "": {"a": 0.5, "b": 0.3, ".": 0.2},
        "a": {"c": 0.52, "d": 0.48},
        "b": {"c": 1.0},
        "c": {".": 0.6, "b": 0.4},
        "d": {".": 1.0},
    }
    for statement, table, beam_size, limit in (
        ("a beam of 1 takes the likeliest word each time", TINY, 1, 5),
        ("a beam of 2 finds what greedy misses", TINY, 2, 5),
        ("an end at once is an output too", {"": {"a": 0.4, ".": 0.6}}, 1, 3),
        ("the search goes on after the first end", early, 2, 3),
        ("what has ended is not continued", doubtful, 2, 4),
        ("totals are products over all words", unlikely, 2, 6),
        ("the limit is kept", roundabout, 3, 2),
        ("what has ended keeps its place in the beam", crowded, 3, 6),
    ):
        ids, words = of_table(table)
        (best,) = search(
            ids, eos=len(words) - 1, limit=limit, beam_size=beam_size, alpha=0.0
        )
        exam.equal(
            statement,
            dict(follow=Language(table), beam_size=beam_size, limit=limit),
            [words[i] for i in best.ids],
        )
    return exam.close()


@dataclass(frozen=True)
class Language:
    """What a reader's search asks: words so far -> the next ones.

    Args:
        table: as in `of_table`.
    """

    table: dict[str, dict[str, float]]

    def __call__(self, words: Sequence[str]) -> dict[str, float]:
        return dict(self.table[words[-1] if words else ""])

    def __repr__(self) -> str:
        rows = "; ".join(
            f"after {word or 'the start'} "
            + ", ".join(f"{next} {share:g}" for next, share in row.items())
            for word, row in self.table.items()
        )
        return f"<{rows}>"
