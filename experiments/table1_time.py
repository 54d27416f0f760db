"""Chapter 10: Table 1, timed: book/results/table1_time.json.

    python experiments/table1_time.py

CPU time of the table's four layers against length and against width,
and of recurrence over attention where n and d cross. Forward and
backward, one thread, interleaved; a "seed" is a repeat, and each
number the median of three rounds. The recurrent layer is the
framework's nn.RNN, which is faster than our loop and multiplies the
same: 2 n d^2.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import torch
from provenance import RESULTS, run_seeds
from torch import Tensor, nn

from transformer import MultiHeadAttention, table1

K, R = 3, 32
LENGTHS = (64, 128, 256, 512, 1024, 2048)  # at width 64
WIDTHS = (32, 64, 128, 256, 512, 1024)  # at length 128
CROSSING = {64: (16, 32, 64, 128), 256: (64, 128, 256, 512)}
BATCHES = (1, 16)
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    run_seeds(
        RESULTS / "table1_time.json",
        range(options.seeds),
        run,
        settings={
            "k": K,
            "r": R,
            "lengths": LENGTHS,
            "width": 64,
            "widths": WIDTHS,
            "length": 128,
            "crossing": {str(d): ns for d, ns in CROSSING.items()},
            "batches": BATCHES,
            "rounds": ROUNDS,
            "dtype": "float32",
        },
        summarise=summarise,
        say=lambda r: f"seed {r['seed']}: {r['crossing']}",
        allow_dirty=options.allow_dirty,
    )


def layers(d: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """The table's layers for width d, on weights drawn once."""
    rnn = nn.RNN(d, d, bias=False, batch_first=True)
    kernel = (torch.randn(d, d, K) / (K * d) ** 0.5).requires_grad_()
    return {
        "self-attention": table1.attention_layer,
        "recurrent": lambda x: rnn(x)[0],
        "convolutional": lambda x: table1.convolutional_layer(x, kernel),
        "restricted": lambda x: table1.restricted_layer(x, R),
    }


def whole(d: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """What one would use: projections and four heads, and an LSTM."""
    heads, lstm = MultiHeadAttention(d, heads=4), nn.LSTM(d, d, batch_first=True)
    return {
        "attention": lambda x: heads(x, x, x),
        "recurrent": lambda x: lstm(x)[0],
    }


def run(seed: int) -> dict:
    """Medians, in milliseconds."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        at_width = layers(64)
        by_length = [(f, (1, n, 64)) for n in LENGTHS for f in at_width.values()]
        by_width = [(f, (1, 128, d)) for d in WIDTHS for f in layers(d).values()]
        crossing, cases = [], []
        for d, batch in itertools.product(CROSSING, BATCHES):
            bare, full = layers(d), whole(d)
            for n in CROSSING[d]:
                cases.append((str(d), str(batch), str(n)))
                shape = (batch, n, d)
                crossing += [
                    (bare["self-attention"], shape),
                    (bare["recurrent"], shape),
                    (full["attention"], shape),
                    (full["recurrent"], shape),
                ]
        taken = times(by_length + by_width + crossing)
    names = list(at_width)
    a, b = len(by_length), len(by_length) + len(by_width)
    ratios: dict = {}
    for i, (d, batch, n) in enumerate(cases):
        attention, recurrent, heads, lstm = taken[b + 4 * i : b + 4 * i + 4]
        place = ratios.setdefault(d, {}).setdefault(batch, {})
        place[n] = {"bare": recurrent / attention, "whole": lstm / heads}
    return {
        "by_length": sorted_out(names, LENGTHS, taken[:a]),
        "by_width": sorted_out(names, WIDTHS, taken[a:b]),
        "crossing": ratios,
    }


def sorted_out(names: list[str], sizes: tuple, taken: list[float]) -> dict:
    """By layer, then by size."""
    rows = zip(*[iter(taken)] * len(names), strict=True)
    found: dict = {name: {} for name in names}
    for size, row in zip(sizes, rows, strict=True):
        for name, milliseconds in zip(names, row, strict=True):
            found[name][str(size)] = milliseconds
    return found


def times(cases: list) -> list[float]:
    """Medians over the rounds, every case taken in turn."""
    rounds = [[seconds(*case) for case in cases] for _ in range(ROUNDS + 1)]
    return [1e3 * statistics.median(each) for each in zip(*rounds[1:], strict=True)]


def seconds(layer: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> float:
    """CPU time of one forward and backward pass."""
    x = torch.randn(shape, requires_grad=True)
    started = time.process_time()
    layer(x).sum().backward()
    return time.process_time() - started


def summarise(runs: list[dict]) -> dict:
    """Medians over the repeats."""

    def middle(*found):
        if isinstance(found[0], dict):
            return {key: middle(*(f[key] for f in found)) for key in found[0]}
        return statistics.median(found)

    return {
        part: middle(*(run[part] for run in runs))
        for part in ("by_length", "by_width", "crossing")
    }


if __name__ == "__main__":
    main()
