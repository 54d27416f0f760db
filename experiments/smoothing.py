"""Label smoothing on and off: perplexity, accuracy and calibration.

    python experiments/smoothing.py        # book/results/smoothing.json

Each seed trains one model twice on the book's corpus, English to German,
with smoothing 0 and with the paper's 0.1. Weights at the start, batches
and dropout are the same for both. Measured on the pairs held out for
validation, with the sentence so far given, over all real tokens: the
perplexity, which knows of no smoothing; the share of tokens that are
right; the mean confidence, which is the largest probability; and the
expected calibration error, over BINS bins of equal width between 0 and 1:
the distance between mean confidence and accuracy in a bin, averaged with
the bin's share of the tokens. No BLEU. One thread, about three
minutes a seed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache

import torch
from provenance import RESULTS, run_seeds
from torch.nn import functional as F

from transformer import TrainingConfig, Transformer, TransformerConfig
from transformer.data.batches import Batch, shift
from transformer.data.streams import EncodedPairs, TokenBatches, encode_pairs
from transformer.data.text import help_en_de
from transformer.data.tokenizer import BytePairEncoding
from transformer.decoding import evaluation_mode
from transformer.training import train

SEEDS = range(700, 705)  # none on which anything was timed or chosen
SMOOTHING = (0.0, 0.1)
PIECES = 2000
LONGEST = 64  # tokens of a side, EOS counted
BUDGET = 512  # tokens of a batch and side, padding counted
BINS = 10
SHAPE = dict(layers=2, d_model=128, d_ff=512, heads=4, max_length=256)
RUN = dict(steps=800, warmup_steps=200, factor=0.3, snapshot_every=20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    training = asdict(TrainingConfig(**RUN))
    for name in ("seed", "label_smoothing"):
        del training[name]
    run_seeds(
        RESULTS / "smoothing.json",
        SEEDS,
        run,
        settings={
            "corpus": "help_en_de",
            "pieces": PIECES,
            "longest": LONGEST,
            "budget": BUDGET,
            "smoothing": SMOOTHING,
            "model": shape().to_dict(),
            "training": training,
            "bins": BINS,
        },
        summarise=summarise,
        say=say,
        allow_dirty=options.allow_dirty,
    )


def shape() -> TransformerConfig:
    """The model; dropout is the paper's 0.1."""
    return TransformerConfig(vocab_size=PIECES, **SHAPE)


@cache
def corpus() -> dict[str, EncodedPairs]:
    """Training and validation pairs, in pieces learned on the former."""
    pairs = {split: help_en_de(split) for split in ("train", "valid")}
    texts = (text for pair in pairs["train"] for text in pair)
    tokenizer = BytePairEncoding.fit(texts, PIECES)
    return {
        split: encode_pairs(some, tokenizer, LONGEST)[0]
        for split, some in pairs.items()
    }


def run(seed: int) -> dict:
    """Both models of a seed, by their smoothing."""
    return {str(amount): one(seed, amount) for amount in SMOOTHING}


def one(seed: int, amount: float) -> dict:
    """Train with so much smoothing, and measure."""
    pairs, start = corpus(), time.process_time()
    torch.manual_seed(seed)
    model = Transformer(shape())
    config = TrainingConfig(**RUN, label_smoothing=amount, seed=seed)
    stream = TokenBatches(pairs["train"], BUDGET, seed)
    history = train(
        model, iter(lambda: stream.take(1)[0], None), config, progress=False
    )
    return {
        **measured(model, once(pairs["valid"])),
        "last_loss": statistics.fmean(history.loss[-50:]),
        "epochs": stream.epoch + stream.done / len(stream.batches),
        "cpu_seconds": time.process_time() - start,
    }


def once(pairs: EncodedPairs) -> Iterator[Batch]:
    """Every pair once."""
    stream = TokenBatches(pairs, 2048, seed=0)
    return iter(stream.take(len(stream.batches)))


@torch.no_grad()
def measured(model: Transformer, batches: Iterator[Batch]) -> dict:
    """What the model says of the next token, against what it is."""
    losses, confidences, hits = [], [], []
    with evaluation_mode(model):
        for batch in batches:
            target_in, gold = shift(batch.target)
            real = gold != model.config.pad_id
            logits = model(batch.source, target_in)[real].double()
            losses.append(F.cross_entropy(logits, gold[real], reduction="none"))
            confidence, said = logits.softmax(-1).max(-1)
            confidences.append(confidence)
            hits.append((said == gold[real]).double())
    confidence, hit = torch.cat(confidences), torch.cat(hits)
    bins = in_bins(confidence, hit)
    gaps = (bin["tokens"] * abs(bin["confidence"] - bin["accuracy"]) for bin in bins)
    return {
        "perplexity": math.exp(torch.cat(losses).mean().item()),
        "accuracy": hit.mean().item(),
        "confidence": confidence.mean().item(),
        "calibration_error": sum(gaps) / len(hit),
        "tokens": len(hit),
        "bins": bins,
    }


def in_bins(confidence: torch.Tensor, hit: torch.Tensor) -> list[dict]:
    """Tokens of like confidence together; empty bins are left out."""
    place = (confidence * BINS).long().clamp(max=BINS - 1)
    return [
        {
            "bin": number,
            "tokens": int((place == number).sum()),
            "confidence": confidence[place == number].mean().item(),
            "accuracy": hit[place == number].mean().item(),
        }
        for number in place.unique().tolist()
    ]


def summarise(runs: list[dict]) -> dict:
    """Means over seeds."""
    names = ("perplexity", "accuracy", "confidence", "calibration_error")
    return {
        str(amount): {
            name: statistics.fmean(run[str(amount)][name] for run in runs)
            for name in names
        }
        for amount in SMOOTHING
    }


def say(run: dict) -> str:
    """One line a seed."""
    parts = [
        f"{amount}: perplexity {found['perplexity']:.2f},"
        f" accuracy {found['accuracy']:.4f},"
        f" confidence {found['confidence']:.3f},"
        f" error {found['calibration_error']:.3f},"
        f" {found['cpu_seconds']:.0f} s"
        for amount, found in ((a, run[str(a)]) for a in SMOOTHING)
    ]
    return f"seed {run['seed']}: " + "; ".join(parts)


if __name__ == "__main__":
    main()
