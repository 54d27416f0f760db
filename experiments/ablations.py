"""Table 3 in small: one change at a time, on the book's corpus.

    python experiments/ablations.py base
    python experiments/ablations.py h1 h16 dk8 N1

writes book/results/ablations/NAME.json for each name. Two such commands may
run beside each other, each on one thread. `base` runs first, from eight seeds:
its spread says which differences can be seen at all. Every other row changes
one thing and runs from the first five of these seeds, for as many steps on
the same batches; no checkpoints are averaged, as section 6.2 says. Measured
on the validation pairs: perplexity a piece without smoothing, accuracy with
the sentence so far given, BLEU with beam 4 and alpha 0.6. About five CPU
minutes a run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import cache

import torch
from provenance import RESULTS, run_seeds

from transformer import TrainingConfig, Transformer, TransformerConfig
from transformer.data.streams import EncodedPairs, TokenBatches, encode_pairs
from transformer.data.text import help_en_de
from transformer.data.tokenizer import BytePairEncoding
from transformer.evaluation import teacher_forced
from transformer.processes import joined
from transformer.trainer import Trainer
from transformer.translation import bleu, translate

SEEDS = range(900, 908)  # none on which anything was timed or chosen
FEW = SEEDS[:5]
PIECES = 2000
LONGEST = 80  # tokens of a side, EOS counted
BUDGET = 1024  # tokens of a batch and side, padding counted
SHAPE = dict(layers=4, d_model=128, d_ff=512, heads=4, max_length=256)
RUN = dict(steps=1500, warmup_steps=400, factor=0.5)

# What changes in the model, and what in training: Table 3, in this order.
ROWS: dict[str, tuple[dict, dict]] = {
    "base": ({}, {}),
    "h1": (dict(heads=1, d_k=128, d_v=128), {}),
    "h16": (dict(heads=16, d_k=8, d_v=8), {}),
    "dk8": (dict(d_k=8), {}),
    "N1": (dict(layers=1), {}),
    "ff1024": (dict(d_ff=1024), {}),
    "no_dropout": (dict(dropout=0.0), {}),
    "no_smoothing": ({}, dict(label_smoothing=0.0)),
    "learned": (dict(positions="learned"), {}),
}


def main() -> None:
    """Run the rows that are named, all seeds of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="+", choices=ROWS)
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for row in options.rows:
        changes, training = ROWS[row]
        run_seeds(
            RESULTS / "ablations" / f"{row}.json",
            SEEDS if row == "base" else FEW,
            lambda seed, row=row: one(row, seed),
            settings={
                "row": row,
                "changes": changes | training,
                "corpus": "help_en_de",
                "pieces": PIECES,
                "longest": LONGEST,
                "budget": BUDGET,
                "shape": SHAPE,
                "training": RUN,
                "beam": 4,
                "alpha": 0.6,
            },
            summarise=summarise,
            say=say,
            allow_dirty=options.allow_dirty,
        )


@cache
def corpus() -> tuple[BytePairEncoding, EncodedPairs]:
    """The vocabulary, and the training pairs in its pieces."""
    pairs = help_en_de("train")
    tokenizer = BytePairEncoding.fit((text for pair in pairs for text in pair), PIECES)
    return tokenizer, encode_pairs(pairs, tokenizer, LONGEST)[0]


def one(row: str, seed: int) -> dict:
    """Train a row from a seed, and measure it."""
    tokenizer, pairs = corpus()
    changes, training = ROWS[row]
    start = time.process_time()
    torch.manual_seed(seed)
    model = Transformer(
        TransformerConfig(vocab_size=tokenizer.vocab_size, **(SHAPE | changes))
    )
    with joined("cpu") as alone:
        trainer = Trainer(
            model,
            TokenBatches(pairs, BUDGET, seed),
            TrainingConfig(**RUN, **training, seed=seed),
            alone,
        )
        last = [trainer.step() for _ in range(RUN["steps"])][-100:]
    trained = time.process_time() - start
    return {
        **measured(model.eval(), tokenizer),
        "parameters": sum(p.numel() for p in model.parameters()),
        "last_loss": sum(s.loss.item() for s in last) / sum(s.tokens for s in last),
        "training_cpu_seconds": trained,
        "cpu_seconds": time.process_time() - start,
    }


def measured(model: Transformer, tokenizer: BytePairEncoding) -> dict:
    """Perplexity, accuracy and BLEU on the validation pairs."""
    pairs = help_en_de("valid")
    encoded = encode_pairs(pairs, tokenizer, LONGEST)[0]
    stream = TokenBatches(encoded, BUDGET, seed=0)
    batches = stream.take(len(stream.batches))
    perplexity, accuracy = teacher_forced(model, batches)
    sources, references = zip(*pairs, strict=True)
    said = translate(model, tokenizer, sources, beam_size=4, alpha=0.6)
    return {
        "perplexity": perplexity,
        "accuracy": accuracy,
        "bleu": bleu(said, references).score,
    }


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
