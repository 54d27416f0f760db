"""Chapter 1: what an order of steps costs: book/results/recurrence_time.json.

    python experiments/recurrence_time.py

CPU time of an LSTM, a convolution and a layer of attention, each with
8 d^2 weights, over one sequence of growing length; and of the LSTM
and the attention over the same number of positions cut into shorter
sequences. Forward and backward, one thread, interleaved; a "seed" is
a repeat, and each number the median of five rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from provenance import RESULTS, run_seeds
from torch import Tensor, nn
from torch.nn import functional as F

from transformer import (
    AddAndNorm,
    EncoderLayer,
    MultiHeadAttention,
    PositionwiseFeedForward,
)

WIDTH = 256
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
POSITIONS = 512
CUTS = (512, 128, 32, 8, 1)  # length of the sequences
ROUNDS = 5


class Attention(nn.Module):
    """An encoder layer with d_ff = 2 d: 4 d^2 and 4 d^2 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = EncoderLayer(
            MultiHeadAttention(WIDTH, heads=4),
            PositionwiseFeedForward(WIDTH, 2 * WIDTH),
            lambda: AddAndNorm(WIDTH, dropout=0.0),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, None)


class Recurrent(nn.Module):
    """The framework's LSTM: four maps of 2 d^2 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class Convolution(nn.Module):
    """A kernel of 4 positions with a gate, as in ConvS2S."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv1d(WIDTH, 2 * WIDTH, kernel_size=4)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.mix(F.pad(x.mT, (3, 0)))
        return F.glu(mixed, dim=1).mT


KINDS = {"recurrent": Recurrent, "convolution": Convolution, "attention": Attention}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    run_seeds(
        RESULTS / "recurrence_time.json",
        range(options.seeds),
        run,
        settings={
            "width": WIDTH,
            "lengths": LENGTHS,
            "positions": POSITIONS,
            "cuts": CUTS,
            "rounds": ROUNDS,
            "dtype": "float32",
        },
        summarise=summarise,
        say=lambda r: f"seed {r['seed']}: {r['cut']}",
        allow_dirty=options.allow_dirty,
    )


def run(seed: int) -> dict:
    """Median milliseconds by kind, over lengths and over cuts."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        models = {kind: make() for kind, make in KINDS.items()}
        whole = {n: torch.randn(1, n, WIDTH) for n in LENGTHS}
        cut = {n: torch.randn(POSITIONS // n, n, WIDTH) for n in CUTS}
    return {
        "milliseconds": times(models, whole),
        "cut": times({k: models[k] for k in ("recurrent", "attention")}, cut),
    }


def times(models: dict, inputs: dict[int, Tensor]) -> dict:
    """Medians, every model and input taken in turn."""
    taken: dict = {kind: {n: [] for n in inputs} for kind in models}
    for _ in range(ROUNDS + 1):
        for n, x in inputs.items():
            for kind, model in models.items():
                taken[kind][n].append(seconds(model, x))
    return {
        kind: {str(n): 1e3 * statistics.median(found[1:]) for n, found in by_n.items()}
        for kind, by_n in taken.items()
    }


def seconds(model: nn.Module, x: Tensor) -> float:
    """CPU time of one forward and backward pass."""
    x = x.clone().requires_grad_()
    started = time.process_time()
    model(x).sum().backward()
    taken = time.process_time() - started
    model.zero_grad()
    return taken


def summarise(runs: list[dict]) -> dict:
    """Medians over the repeats."""

    def middle(part: str) -> dict:
        return {
            kind: {
                n: statistics.median(r[part][kind][n] for r in runs)
                for n in runs[0][part][kind]
            }
            for kind in runs[0][part]
        }

    return {"milliseconds": middle("milliseconds"), "cut": middle("cut")}


if __name__ == "__main__":
    main()
