"""Train the model that ships with the book, and put it in its place.

    python experiments/translation_model.py [--out runs/help-en-de] [--steps N]

Stopped with Ctrl-C or killed, it goes on where it was when it is called
again. At the end the last checkpoints are averaged, rounded to half precision
and written to src/transformer/pretrained/help_en_de/, with the tokenizer and
the log of the run. `experiments/translation.py` then measures what came out.

It is the same as

    transformer train --data help-en-de --config small --vocab-size 4000
        --dropout 0.3 --batch-tokens 2048 --longest 80 --warmup 2000
        --seed 1 --precision bfloat16 --save-every 250 --save-minutes 0
        --keep 100 --steps N --out runs/help-en-de

followed by `transformer average`.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from provenance import ROOT

from transformer.checkpoints import (
    average_files,
    checkpoints,
    load_weights,
    save_weights,
)
from transformer.config import TrainingConfig
from transformer.material import Run
from transformer.processes import joined
from transformer.training_run import Schedule, train_to

STEPS = 10_000
AVERAGED = 5  # of the last checkpoints, 250 steps apart
SHIPPED = ROOT / "src" / "transformer" / "pretrained" / "help_en_de"


def the_run(steps: int = STEPS) -> Run:
    """What the weights depend on."""
    return Run(
        data=("help-en-de",),
        preset="small",
        dropout=0.3,
        vocab_size=4000,
        batch_tokens=2048,
        longest=80,
        precision="bfloat16",
        training=TrainingConfig(steps=steps, warmup_steps=2000, seed=1),
    )


SCHEDULE = Schedule(
    report_every=100,
    validate_every=2500,
    save_every=250,
    save_minutes=0.0,
    keep=100,
    bleu_sentences=200,
)


def ship(run: Path, where: Path = SHIPPED) -> None:
    """Average, round, and write what comes with the book."""
    last = checkpoints(run / "checkpoints")[-AVERAGED:]
    if len(last) < AVERAGED:
        raise ValueError(
            f"{run} holds {len(last)} checkpoints, {AVERAGED} are averaged"
        )
    where.mkdir(parents=True, exist_ok=True)
    average_files(last, run / "averaged.safetensors")
    save_weights(
        load_weights(run / "averaged.safetensors", torch.float16),
        where / "model.safetensors",
    )
    for name in ("tokenizer.json", "config.json", "metrics.jsonl"):
        shutil.copyfile(run / name, where / name)


def main() -> None:
    """Train to the end, then ship."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "help-en-de")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--where", type=Path, default=SHIPPED)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with joined("cpu") as alone:
        run = the_run(options.steps)
        if train_to(options.out, run, SCHEDULE, alone, resume=True):
            raise SystemExit("stopped and saved; the same command goes on")
    ship(options.out, options.where)


if __name__ == "__main__":
    main()
