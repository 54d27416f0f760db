"""What a step of the base model costs on a GPU: time, tokens, memory.

    python benchmarks/gpu.py                    # one GPU; about five minutes
    python benchmarks/gpu.py --config tiny --batch-tokens 400 --device cpu \\
        --steps 2 --out /tmp/tiny.json          # the same script anywhere

Each variant trains on made-up sentence pairs of 16 to 40 tokens, in
batches of `--batch-tokens` a side as section 5.1 has them. The first
steps are not counted; then each step is timed with the device drained
before and after. PyTorch counts the floating-point operations of a step,
and the utilisation is their share of the peak that you name with --peak
(FLOP/s: the maker's figure for dense bfloat16).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))

from provenance import RESULTS, provenance, write_json

from transformer import (
    LabelSmoothingLoss,
    TrainingConfig,
    Transformer,
    TransformerConfig,
)
from transformer.data.batches import shift
from transformer.data.streams import EncodedPairs, Ragged, TokenBatches
from transformer.processes import Processes, choose_device
from transformer.trainer import Trainer

ALL_AT_ONCE = 1 << 40  # a chunk that no step fills: the plain loss
VARIANTS = {
    "float32": dict(chunk=ALL_AT_ONCE),
    "bfloat16": dict(precision="bfloat16", chunk=ALL_AT_ONCE),
    "bfloat16, chunked loss": dict(precision="bfloat16", chunk=4096),
    "bfloat16, compiled": dict(precision="bfloat16", chunk=ALL_AT_ONCE, compiled=True),
    "bfloat16, chunked loss, compiled": dict(
        precision="bfloat16", chunk=4096, compiled=True
    ),
}


def made_up_pairs(count: int, vocab_size: int) -> EncodedPairs:
    """Random ids in sentences of 16 to 40 tokens."""
    draw = np.random.default_rng(0)

    def side() -> Ragged:
        lengths = draw.integers(15, 40, count)
        return Ragged.of([draw.integers(4, vocab_size, n) for n in lengths])

    return EncodedPairs(side(), side())


def count_flops(config: TransformerConfig, stream: TokenBatches) -> float:
    """Floating-point operations of a step, the mean of ten batches.

    Counted by PyTorch while shapes without numbers go through the model
    and the plain loss, forward and backward. A multiplication and an
    addition are two.
    """
    with torch.device("meta"):
        model = Transformer(config)
    loss = LabelSmoothingLoss(0.1, config.pad_id)
    counted = []
    for batch in stream.take(10):
        target_in, gold = shift(batch.to("meta").target)
        with FlopCounterMode(display=False) as counter:
            loss(model(batch.source.to("meta"), target_in), gold).backward()
        counted.append(counter.get_total_flops())
    return statistics.mean(counted)


def drain(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(options: argparse.Namespace, device: torch.device, **variant) -> dict:
    """Train a little, and say what a step took."""
    torch.manual_seed(0)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    config = getattr(TransformerConfig, options.config)(options.vocab)
    pairs = made_up_pairs(20 * options.batch_tokens // 28, options.vocab)
    stream = TokenBatches(pairs, options.batch_tokens, seed=0)
    flops = count_flops(config, stream)
    trainer = Trainer(
        Transformer(config),
        stream,
        TrainingConfig(steps=1000),
        Processes(0, 1, device),
        **variant,
    )
    for _ in range(options.warmup):
        trainer.step()
    seconds, tokens = [], []
    for _ in range(options.steps):
        drain(device)
        started = time.perf_counter()
        step = trainer.step()
        drain(device)
        seconds.append(time.perf_counter() - started)
        tokens.append(step.tokens)
    found = {
        "ms_per_step": 1000 * statistics.median(seconds),
        "ms_quartiles": [1000 * float(q) for q in np.quantile(seconds, [0.25, 0.75])],
        "target_tokens_per_second": sum(tokens) / sum(seconds),
        "flops_of_a_step": flops,
    }
    if options.peak:
        found["utilisation"] = flops / statistics.median(seconds) / options.peak
    if device.type == "cuda":
        found["peak_memory_mb"] = torch.cuda.max_memory_allocated(device) / 2**20
    return found


def main() -> None:
    """Measure every variant; write the result after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="base")
    parser.add_argument("--vocab", type=int, default=37_000)
    parser.add_argument("--batch-tokens", type=int, default=25_000)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--peak", type=float, help="FLOP/s of the device")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=[*VARIANTS])
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu.json")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    device = choose_device(options.device)
    origin = provenance(allow_dirty=options.allow_dirty)
    if device.type == "cuda":
        origin["machine"]["gpu"] = torch.cuda.get_device_name(device)
    result = {
        "provenance": origin,
        "settings": {
            name: getattr(options, name)
            for name in ("config", "vocab", "batch_tokens", "warmup", "steps", "peak")
        },
        "variants": {},
    }
    for name in options.only:
        found = measure(options, device, **VARIANTS[name])
        result["variants"][name] = found
        print(f"{name}: {found['ms_per_step']:.1f} ms a step", flush=True)
        write_json(options.out, result)


if __name__ == "__main__":
    main()
