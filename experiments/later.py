"""Chapter 20: what later changes gain and cost: book/results/later.json.

    python experiments/later.py tune
    python experiments/later.py

A decoder without an encoder reads English help texts letter by letter and
says which letter comes next. One model as printed, and one for each switch of
`bookkit.later.SWITCHES`; the same windows of 64 letters for all models of a
seed. Each has the better of two peak rates of its own, found on one other
seed and on the validation texts (`tune`, book/results/later_tuning.json). A
first tuning with 0.002, 0.004 and 0.008 had the last as its best for every
switch (book/results/later_tuning_low.json), hence 0.008 and 0.016.
Reported is the loss on the test texts, in bits a letter: over windows of 64
letters, as in training, and for the four kinds of positions also over windows
of 512. One thread.

Declared before the run, over the seeds, of the loss as printed minus the loss
with the switch, and of the loss beyond the 64 letters minus that from letter
33 to 64.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from functools import cache

import torch
from provenance import RESULTS, read_json, run_seeds
from torch import Tensor
from torch.nn import functional as F

from bookkit.later import SWITCHES, LanguageModel
from transformer import TrainingConfig
from transformer.data.text import help_en_de
from transformer.training import NoamScheduler, make_optimizer

GAIN = "gained if above 0; cost if below 0; otherwise cannot tell"
BEYOND = (
    "worse beyond if above 0.05; as good beyond if below 0.05; otherwise cannot tell"
)
SEEDS = range(700, 705)
TUNED_ON = 790  # not among them
PEAKS = (8e-3, 1.6e-2)
WINDOW, LONG, BATCH = 64, 512, 16
STEPS, WARMUP, WIDTH = 400, 40, 64
POSITIONS = ("as printed", "rotary", "ALiBi", "no positions")


def main() -> None:
    """Tune, or run every seed with the peaks found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("tune", "run"), default="run")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    settings = {
        "corpus": "help_en_de, English, letters",
        "window": WINDOW,
        "long": LONG,
        "batch": BATCH,
        "steps": STEPS,
        "warmup_steps": WARMUP,
        "d_model": WIDTH,
        "peaks": PEAKS,
        "declared": {"gain": GAIN, "beyond": BEYOND},
    }
    if options.what == "tune":
        run_seeds(
            RESULTS / "later_tuning.json",
            [TUNED_ON],
            tune,
            settings=settings,
            summarise=lambda runs: {"best": best(runs[0]["loss"])},
            say=lambda run: str(best(run["loss"])),
            allow_dirty=options.allow_dirty,
        )
        return
    peaks = read_json(RESULTS / "later_tuning.json")["summary"]["best"]
    run_seeds(
        RESULTS / "later.json",
        SEEDS,
        lambda seed: run(seed, peaks),
        settings=settings | {"peak": peaks},
        summarise=summarise,
        say=lambda run: f"seed {run['seed']}: {run['loss']}",
        allow_dirty=options.allow_dirty,
    )


@cache
def letters(split: str) -> tuple[Tensor, int]:
    """The English sentences of a split as ids, and how many ids there are.

    One line each. Letters that training does not have are left out.
    """
    known = {c: i for i, c in enumerate(sorted(set(text("train"))))}
    return torch.tensor([known[c] for c in text(split) if c in known]), len(known)


def text(split: str) -> str:
    """The English sentences, one line each."""
    return "\n".join(english for english, _ in help_en_de(split))


def learn(name: str, seed: int, peak: float) -> LanguageModel:
    """Train the model of a switch."""
    ids, size = letters("train")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LanguageModel(size, SWITCHES[name])
    draw = torch.Generator().manual_seed(seed)
    optimizer = make_optimizer(model, TrainingConfig())
    factor = peak * (WIDTH * WARMUP) ** 0.5
    scheduler = NoamScheduler(optimizer, WIDTH, WARMUP, factor)
    for _ in range(STEPS):
        starts = torch.randint(len(ids) - WINDOW, (BATCH, 1), generator=draw)
        window = ids[starts + torch.arange(WINDOW + 1)]
        bits(model, window).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    return model


def bits(model: LanguageModel, window: Tensor) -> Tensor:
    """The loss of each letter but the first, in bits, (windows, length)."""
    logits = model(window[:, :-1])
    loss = F.cross_entropy(logits.mT, window[:, 1:], reduction="none")
    return loss / math.log(2)


@torch.no_grad()
def by_position(model: LanguageModel, split: str, length: int) -> Tensor:
    """The mean loss at each position over all windows of a split."""
    ids, _ = letters(split)
    windows = ids.unfold(0, length + 1, length)
    return torch.cat([bits(model, some) for some in windows.split(64)]).mean(0)


def tune(seed: int) -> dict:
    """The validation loss of every switch at every peak."""
    return {
        "loss": {
            name: {
                f"{peak:g}": by_position(learn(name, seed, peak), "valid", WINDOW)
                .mean()
                .item()
                for peak in PEAKS
            }
            for name in SWITCHES
        }
    }


def best(losses: dict) -> dict:
    """For each switch the peak with the lowest loss."""
    return {name: float(min(found, key=found.get)) for name, found in losses.items()}


def run(seed: int, peaks: dict) -> dict:
    """Every switch, from one seed."""
    started = time.process_time()
    found: dict = {"loss": {}, "weights": {}, "within": {}, "beyond": {}, "curve": {}}
    for name in SWITCHES:
        model = learn(name, seed, peaks[name])
        found["loss"][name] = by_position(model, "test", WINDOW).mean().item()
        found["weights"][name] = sum(p.numel() for p in model.parameters())
        if name in POSITIONS:
            curve = by_position(model, "test", LONG)
            found["within"][name] = curve[WINDOW // 2 : WINDOW].mean().item()
            found["beyond"][name] = curve[WINDOW:].mean().item()
            blocks = curve.view(-1, 16).mean(1).tolist()
            found["curve"][name] = [round(loss, 4) for loss in blocks]
    return found | {"cpu_seconds": time.process_time() - started}


def summarise(runs: list[dict]) -> dict:
    """Means over seeds."""
    return {
        part: {
            name: statistics.fmean(run[part][name] for run in runs)
            for name in runs[0][part]
        }
        for part in ("loss", "within", "beyond")
    }


if __name__ == "__main__":
    main()
