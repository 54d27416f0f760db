"""Table 3 in small: one change at a time, on the book's corpus.

    python experiments/ablations.py base
    python experiments/ablations.py N1 h1 h16 dk4
    python experiments/ablations.py --start base N1

writes book/results/ablations/NAME.json for each name. Two such commands may
run beside each other, each on one thread. `base` runs first, from eight seeds:
its spread says which differences can be seen at all. Every other row changes
one thing and runs from the first five of these seeds, for as many steps on
the same batches; no checkpoints are averaged, as section 6.2 says. Training
and validation are the pairs of at most LONGEST tokens a side. Measured
on the validation pairs: perplexity a piece without smoothing, accuracy with
the sentence so far given, BLEU with beam 4 and alpha 0.6. About a minute and a
half of CPU time a run.

The shape was chosen on seed 880, by perplexity over CPU time: 4 layers of 128
columns had got less far in several times the time.

`--start` is the first version of this experiment: 450 steps and other seeds,
20 seconds a run, written to book/results/ablations_start/. What it showed was
how rows start, so the runs were made longer, with seeds of their own. (The
files there were written before this option had a name.)
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from provenance import RESULTS, run_seeds

from bookkit.table3 import short_pairs, trainer
from transformer import LabelSmoothingLoss, Transformer
from transformer.data.batches import Batch, shift
from transformer.data.streams import TokenBatches
from transformer.evaluation import teacher_forced
from transformer.trainer import Step
from transformer.translation import bleu, translate

SEEDS = range(920, 928)  # none on which anything was timed or chosen
START_SEEDS = range(910, 918)
FEW = 5  # of them, for all rows but base
PIECES = 2000
LONGEST = 16  # tokens of a side, EOS counted
BUDGET = 512  # tokens of a batch and side, padding counted
SHAPE = dict(layers=2, d_model=64, d_ff=256, heads=4, max_length=256)
RUN = dict(steps=2400, warmup_steps=150, factor=0.5)
START_STEPS = 450
FIRST = 25  # steps whose losses are kept one by one
BLOCK = 25  # steps whose mean loss is kept

# What changes in the model, and what in training: Table 3, in this order.
ROWS: dict[str, tuple[dict, dict]] = {
    "base": ({}, {}),
    "h1": (dict(heads=1, d_k=64, d_v=64), {}),
    "h16": (dict(heads=16, d_k=4, d_v=4), {}),
    "dk4": (dict(d_k=4), {}),
    "N1": (dict(layers=1), {}),
    "ff512": (dict(d_ff=512), {}),
    "no_dropout": (dict(dropout=0.0), {}),
    "no_smoothing": ({}, dict(label_smoothing=0.0)),
    "learned": (dict(positions="learned"), {}),
}


def main() -> None:
    """Run the rows that are named, all seeds of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="+", choices=ROWS)
    parser.add_argument("--start", action="store_true", help="450 steps")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = RESULTS / ("ablations_start" if options.start else "ablations")
    for row in options.rows:
        given = settings(row, start=options.start)
        run_seeds(
            folder / f"{row}.json",
            seeds(row, start=options.start),
            lambda seed, given=given: one(given, seed),
            settings=given,
            summarise=summarise,
            say=lambda run, row=row: f"{row}, {say(run)}",
            allow_dirty=options.allow_dirty,
        )


def seeds(row: str, *, start: bool = False) -> list[int]:
    """Eight for base, and the first five of them for the others."""
    every = list(START_SEEDS if start else SEEDS)
    return every if row == "base" else every[:FEW]


def settings(row: str, *, start: bool = False) -> dict:
    """All that the runs of a row have in common."""
    run = RUN | (dict(steps=START_STEPS) if start else {})
    changes, training = ROWS[row]
    return {
        "row": row,
        "changes": changes | training,
        "corpus": "help_en_de",
        "pieces": PIECES,
        "longest": LONGEST,
        "budget": BUDGET,
        "shape": SHAPE | changes,
        "training": run | training,
        "beam": 4,
        "alpha": 0.6,
    }


def one(given: dict, seed: int) -> dict:
    """Train a row from a seed, and measure it."""
    words = short_pairs(given["pieces"], given["longest"])
    start = time.process_time()
    training = trainer(given, seed)
    steps = range(given["training"]["steps"])
    losses = [loss_of(training.step()) for _ in steps]
    trained = time.process_time() - start
    stream = training.stream
    return {
        **measured(training.model.eval(), training.config.label_smoothing, given),
        "parameters": sum(p.numel() for p in training.model.parameters()),
        "first_losses": losses[:FIRST],
        "losses": [
            statistics.fmean(losses[i : i + BLOCK])
            for i in range(0, len(losses), BLOCK)
        ],
        "epochs": stream.epoch + stream.done / len(stream.batches),
        "training_pairs": len(words.train),
        "validation_pairs": len(words.valid),
        "training_cpu_seconds": trained,
        "cpu_seconds": time.process_time() - start,
    }


def loss_of(step: Step) -> float:
    """A real token's, with the row's own smoothing."""
    return step.loss.item() / step.tokens


def measured(model: Transformer, smoothing: float, given: dict) -> dict:
    """Perplexity, accuracy and BLEU on the validation pairs.

    Beside them the loss that training works on, smoothed as the row
    was trained: the number that must not be taken for the perplexity.
    """
    words = short_pairs(given["pieces"], given["longest"])
    stream = TokenBatches(words.valid, 1024, seed=0)
    batches = stream.take(len(stream.batches))
    perplexity, accuracy = teacher_forced(model, batches)
    sources, references = zip(*words.valid_text, strict=True)
    said = translate(
        model, words.tokenizer, sources, beam_size=given["beam"], alpha=given["alpha"]
    )
    return {
        "perplexity": perplexity,
        "accuracy": accuracy,
        "bleu": bleu(said, references).score,
        "smoothed_loss": smoothed(model, batches, smoothing),
    }


@torch.no_grad()
def smoothed(model: Transformer, batches: list[Batch], smoothing: float) -> float:
    """The mean smoothed loss of a real token."""
    criterion = LabelSmoothingLoss(smoothing, model.config.pad_id)
    total = tokens = 0.0
    for batch in batches:
        target_in, gold = shift(batch.target)
        real = (gold != model.config.pad_id).sum().item()
        total += criterion(model(batch.source, target_in), gold).item() * real
        tokens += real
    return total / tokens


def summarise(runs: list[dict]) -> dict:
    """Mean and standard deviation over seeds."""
    found = {}
    for name in ("perplexity", "accuracy", "bleu"):
        values = [run[name] for run in runs]
        spread = statistics.stdev(values) if len(values) > 1 else None
        found[name] = {"mean": statistics.fmean(values), "sd": spread}
    return found


def say(run: dict) -> str:
    """One line a run."""
    return (
        f"seed {run['seed']}: perplexity {run['perplexity']:.2f},"
        f" BLEU {run['bleu']:.2f}, {run['cpu_seconds']:.0f} CPU s"
    )


if __name__ == "__main__":
    main()
