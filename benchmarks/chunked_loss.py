"""The chunked loss beside the plain one: value, gradients, memory, time.

    python benchmarks/chunked_loss.py [--tokens 4096] [--vocab 37000]

writes book/results/chunked_loss.json and prints what is in it.
Each measurement of memory is a process of its own: the peak of its resident
memory, less what it held before. Times are CPU seconds of one thread,
interleaved, medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))

from provenance import RESULTS, provenance, write_json

from transformer import LabelSmoothingLoss
from transformer.chunked_loss import ChunkedLoss

KINDS = ("plain", "chunked")


def make(options: argparse.Namespace):
    """Hidden vectors, right answers, an output projection."""
    torch.manual_seed(0)
    hidden = torch.randn(8, options.tokens // 8, options.width)
    gold = torch.randint(1, options.vocab, hidden.shape[:2])
    gold[:, -3:] = 0  # padding
    projection = nn.Linear(options.width, options.vocab, bias=False)
    nn.init.normal_(projection.weight, std=options.width**-0.5)
    return hidden.requires_grad_(), gold, projection


def run(kind: str, hidden, gold, projection, chunk: int):
    """One forward and backward pass; loss and gradients."""
    hidden.grad = projection.weight.grad = None
    loss = LabelSmoothingLoss(0.1, pad_id=0)
    if kind == "plain":
        value = loss(projection(hidden), gold)
    else:
        value = ChunkedLoss(loss, chunk)(hidden, gold, projection)
    value.backward()
    return value.item(), hidden.grad, projection.weight.grad


def peak() -> float:
    """The most resident memory so far, in MB; on Linux."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status does not say VmHWM")


def main() -> None:
    """Measure, or be one of the measured processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--vocab", type=int, default=37_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-of", choices=KINDS)
    parser.add_argument("--out", type=Path, default=RESULTS / "chunked_loss.json")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    problem = make(options)
    if options.memory_of:
        before = peak()
        run(options.memory_of, *problem, options.chunk)
        print(peak() - before)
        return
    origin = provenance(allow_dirty=options.allow_dirty)
    outcomes, seconds = {}, {kind: [] for kind in KINDS}
    for _ in range(options.rounds):
        for kind in KINDS:
            started = time.process_time()
            outcomes[kind] = run(kind, *problem, options.chunk)
            seconds[kind].append(time.process_time() - started)
    (one, *grads), (other, *others) = (outcomes[kind] for kind in KINDS)
    result = {
        "provenance": origin,
        "settings": {
            name: getattr(options, name)
            for name in ("tokens", "vocab", "width", "chunk", "rounds")
        },
        "loss": one,
        "loss_difference": abs(one - other),
        "gradient_differences": {
            name: (a - b).abs().max().item()
            for name, a, b in zip(("hidden", "weight"), grads, others, strict=True)
        },
        "largest_gradients": [gradient.abs().max().item() for gradient in grads],
        "megabytes": {},
        "cpu_seconds": {kind: statistics.median(seconds[kind]) for kind in KINDS},
    }
    for kind in KINDS:
        command = [sys.executable, *sys.argv, "--memory-of", kind]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        result["megabytes"][kind] = float(done.stdout)
    write_json(options.out, result)
    print(json.dumps({k: v for k, v in result.items() if k != "provenance"}, indent=2))


if __name__ == "__main__":
    main()
