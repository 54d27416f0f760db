"""Section 7: time to equal quality, a Transformer and an LSTM.

    python experiments/lstm.py tune (then: more, then: last)
    python experiments/lstm.py

writes book/results/lstm.json. Both translate the short pairs of the book's
corpus, English to German, with equally many weights (within 2%), on the same
batches in the same order. The LSTM is the framework's: two layers each side,
the encoder in both directions, and attention of Luong and others over it. Its
attention is not fed back into the next step, so that a whole sentence goes
through one call. Loss, optimizer and the shape of the schedule are the same
for both, dropout too; the LSTM's gradients are clipped. Each has the best of
four peak rates of its own, found on another seed and the validation pairs:
`tune` has three, and since the highest was best for both, `more` has one more
for both. It was best for the LSTM, so `last` has another for it alone
(book/results/lstm_tuning*.json).

Time is CPU time of one thread, for training alone. The two take turns, 25
steps each, so that whatever else the machine does slows both alike. After
each turn the perplexity on the test pairs is taken. Each goes on for 30
seconds and until it has reached the target, but not beyond 120 seconds.
When it was reached is read off a straight line between two looks, in the
logarithm of the perplexity.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from functools import cache

import torch
from provenance import RESULTS, read_json, run_seeds
from torch import Tensor, nn
from torch.nn import functional as F

from transformer import (
    LabelSmoothingLoss,
    NoamScheduler,
    TokenEmbedding,
    TrainingConfig,
    Transformer,
    TransformerConfig,
)
from transformer.data.batches import Batch, shift
from transformer.data.streams import EncodedPairs, TokenBatches, encode_pairs, mix
from transformer.data.text import help_en_de
from transformer.data.tokenizer import BytePairEncoding
from transformer.evaluation import teacher_forced
from transformer.training import make_optimizer

PIECES, LONGEST, BUDGET = 2000, 32, 1024
SHAPE = dict(layers=2, d_model=128, d_ff=512, heads=4, dropout=0.1, max_length=64)
HIDDEN = 90  # of one direction; so both have equally many weights
WARMUP, TURN = 100, 25
SECONDS, AT_MOST = 30, 120
TARGET = 80.0  # perplexity; fixed after the tuning, before the runs
SEEDS = range(800, 803)
TUNED_ON = 890  # not among them
CLIP = 1.0
KINDS = ("transformer", "lstm")
TUNING = {  # file, peaks, kinds, seconds
    "tune": ("lstm_tuning", (1e-3, 2e-3, 4e-3), KINDS, 30),
    "more": ("lstm_tuning_more", (8e-3,), KINDS, 30),
    "last": ("lstm_tuning_last", (1.6e-2,), ("lstm",), 20),
}


class Recurrent(nn.Module):
    """An LSTM encoder and decoder with attention, called as `Transformer` is.

    Args:
        config: of the Transformer beside it.
        hidden: width of one direction of the encoder; the decoder has twice it.
        layers: of each side.
    """

    def __init__(
        self, config: TransformerConfig, hidden: int = HIDDEN, layers: int = 2
    ) -> None:
        super().__init__()
        self.config = config
        d = config.d_model
        self.embedding = TokenEmbedding(config.vocab_size, d)
        kind = dict(num_layers=layers, dropout=config.dropout, batch_first=True)
        self.encoder = nn.LSTM(d, hidden, bidirectional=True, **kind)
        self.decoder = nn.LSTM(d, 2 * hidden, **kind)
        self.score = nn.Linear(2 * hidden, 2 * hidden, bias=False)
        self.combine = nn.Linear(4 * hidden, d)
        self.output_projection = nn.Linear(d, config.vocab_size, bias=False)
        self.output_projection.weight = self.embedding.weight
        self.dropout = nn.Dropout(config.dropout)
        for name, parameter in self.named_parameters():
            if "bias_ih" in name:  # the forget gate starts open
                nn.init.ones_(parameter.data.chunk(4)[1])

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Logits for the token that follows each of `target_in`."""
        memory, state = self.encoder(self.dropout(self.embedding(source)))
        # Of each layer the last states of both directions side by side.
        state = tuple(
            s.unflatten(0, (-1, 2)).transpose(1, 2).flatten(2).contiguous()
            for s in state
        )
        x, _ = self.decoder(self.dropout(self.embedding(target_in)), state)
        mask = (source != self.config.pad_id)[:, None]
        found = F.scaled_dot_product_attention(
            self.score(x), memory, memory, attn_mask=mask, scale=1.0
        )
        x = torch.tanh(self.combine(torch.cat([found, x], dim=-1)))
        return self.output_projection(self.dropout(x))


class Racer:
    """A model in training, and the CPU time it has used.

    Args:
        kind: "transformer" or "lstm".
        seed: of weights, order of the batches and dropout.
        peak: of the learning rate.
        split: whose perplexity is taken.
    """

    def __init__(self, kind: str, seed: int, peak: float, split: str) -> None:
        config = TransformerConfig(vocab_size=corpus()[0].vocab_size, **SHAPE)
        make = Transformer if kind == "transformer" else Recurrent
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.model = make(config)
        self.clip = CLIP if kind == "lstm" else None
        self.seed, self.done, self.seconds = seed, 0, 0.0
        self.stream = TokenBatches(corpus()[1], BUDGET, seed)
        self.optimizer = make_optimizer(self.model, TrainingConfig())
        factor = peak * (config.d_model * WARMUP) ** 0.5
        self.scheduler = NoamScheduler(self.optimizer, config.d_model, WARMUP, factor)
        self.criterion = LabelSmoothingLoss(0.1, config.pad_id)
        self.held_out = held_out(split)
        self.curve: list[tuple[float, float]] = []

    def turn(self) -> None:
        """Train for some steps, then look."""
        batches = self.stream.take(TURN)
        self.model.train()
        started = time.process_time()
        for batch in batches:
            self.step(batch)
        self.seconds += time.process_time() - started
        perplexity, _ = teacher_forced(self.model, self.held_out)
        self.curve.append((round(self.seconds, 3), round(perplexity, 4)))

    def step(self, batch: Batch) -> None:
        """Update the weights once."""
        torch.manual_seed(mix(self.seed, self.done))
        target_in, gold = shift(batch.target)
        self.criterion(self.model(batch.source, target_in), gold).backward()
        if self.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.done += 1


@cache
def corpus() -> tuple[BytePairEncoding, EncodedPairs]:
    """The vocabulary of all training pairs, and the short pairs in pieces."""
    pairs = help_en_de("train")
    tokenizer = BytePairEncoding.fit((text for pair in pairs for text in pair), PIECES)
    return tokenizer, encode_pairs(pairs, tokenizer, LONGEST)[0]


@cache
def held_out(split: str) -> list[Batch]:
    """The short pairs of another split, in batches."""
    pairs = encode_pairs(help_en_de(split), corpus()[0], LONGEST)[0]
    stream = TokenBatches(pairs, 2 * BUDGET, seed=0)
    return stream.take(len(stream.batches))


def race(racers: list[Racer], seconds: float, target: float = math.inf) -> None:
    """Let them take turns until each has used its seconds and is there."""

    def goes_on(racer: Racer) -> bool:
        short = racer.seconds < AT_MOST and reached(racer.curve, target) is None
        return racer.seconds < seconds or short

    while running := [racer for racer in racers if goes_on(racer)]:
        for racer in running:
            racer.turn()


def at(curve: list, seconds: float) -> float:
    """The perplexity last seen within that time."""
    return [found for used, found in curve if used <= seconds][-1]


def reached(curve: list, target: float) -> float | None:
    """The time at which the perplexity came down to the target."""
    before = None
    for used, found in curve:
        if found <= target:
            if before is None:
                return used
            start, above = before
            share = math.log(above / target) / math.log(above / found)
            return start + share * (used - start)
        before = used, found
    return None


def tune(peaks: tuple, kinds: tuple, seconds: float, seed: int) -> dict:
    """The kinds at every peak: the curves on the validation pairs."""
    cases = [(kind, peak) for peak in peaks for kind in kinds]
    racers = {case: Racer(case[0], seed, case[1], "valid") for case in cases}
    race(list(racers.values()), seconds)
    return {
        "curve": {
            kind: {f"{peak:g}": racers[kind, peak].curve for peak in peaks}
            for kind in kinds
        }
    }


def best(*tunings: dict) -> dict:
    """For each kind the peak with the lowest perplexity.

    That is after as many steps as all its runs have: they need not have had
    equally much of the machine.
    """
    peaks = {}
    for kind in KINDS:
        curves = {
            peak: curve
            for tuning in tunings
            for peak, curve in tuning["runs"][0]["curve"].get(kind, {}).items()
        }
        last = min(map(len, curves.values())) - 1
        peaks[kind] = float(min(curves, key=lambda peak: curves[peak][last][1]))
    return peaks


def run(seed: int, peaks: dict) -> dict:
    """Both kinds from one seed, taking turns."""
    racers = {kind: Racer(kind, seed, peaks[kind], "test") for kind in KINDS}
    race(list(racers.values()), SECONDS, TARGET)
    curves = {kind: racer.curve for kind, racer in racers.items()}
    weights = {
        kind: sum(p.numel() for p in racer.model.parameters())
        for kind, racer in racers.items()
    }
    return {
        "seconds_to_target": {k: reached(c, TARGET) for k, c in curves.items()},
        "perplexity": {k: at(c, SECONDS) for k, c in curves.items()},
        "steps": {kind: racer.done for kind, racer in racers.items()},
        "weights": weights,
        "curve": curves,
    }


def summarise(runs: list[dict]) -> dict:
    """Means over seeds; None where a target was not reached."""
    found: dict = {}
    for part in ("seconds_to_target", "perplexity"):
        found[part] = {}
        for kind in KINDS:
            values = [run[part][kind] for run in runs]
            found[part][kind] = None if None in values else statistics.fmean(values)
    return found


def main() -> None:
    """Tune, or run every seed with the peaks found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = (*TUNING, "run")
    parser.add_argument("what", nargs="?", choices=what, default="run")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    settings = {
        "corpus": "help_en_de",
        "pieces": PIECES,
        "longest": LONGEST,
        "budget": BUDGET,
        "shape": SHAPE,
        "hidden": HIDDEN,
        "warmup_steps": WARMUP,
        "turn": TURN,
        "clip": CLIP,
    }
    if options.what != "run":
        name, peaks, kinds, seconds = TUNING[options.what]
        run_seeds(
            RESULTS / f"{name}.json",
            [TUNED_ON],
            lambda seed: tune(peaks, kinds, seconds, seed),
            settings=settings | {"peaks": peaks, "seconds": seconds},
            summarise=lambda runs: {},
            say=lambda run: str(run["curve"]),
            allow_dirty=options.allow_dirty,
        )
        return
    files = [RESULTS / f"{name}.json" for name, *_ in TUNING.values()]
    peaks = best(*map(read_json, files))
    run_seeds(
        RESULTS / "lstm.json",
        SEEDS,
        lambda seed: run(seed, peaks),
        settings=settings
        | {"seconds": SECONDS, "at_most": AT_MOST, "target": TARGET, "peak": peaks},
        summarise=summarise,
        say=lambda run: (
            f"seed {run['seed']}: {run['seconds_to_target']} {run['perplexity']}"
        ),
        allow_dirty=options.allow_dirty,
    )


if __name__ == "__main__":
    main()
