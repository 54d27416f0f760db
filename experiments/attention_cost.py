"""What attention costs: book/results/attention_cost.json.

    python experiments/attention_cost.py

Time and memory of additive attention, of the printed equation and of
the fused kernel, forward and backward, at equal shapes. Interleaved
in one process, one thread; seconds are medians over the rounds.
Memory is what PyTorch's profiler says was allocated and held at the
peak of one forward and backward pass, above what was there before.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from provenance import RESULTS, run_seeds
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from bookkit.lookup import Additive
from transformer import scaled_dot_product_attention

BATCH, HEADS, LENGTHS, D_K = 2, 4, (64, 128, 256), 64
ROUNDS = 5


def additive(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(v . tanh(q + k)) V."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        scores = Additive(D_K)
    flat = [x.flatten(0, 1) for x in (query, key, value)]
    mixed = scores(flat[0], flat[1]).softmax(dim=-1) @ flat[2]
    return mixed.view_as(value)


def printed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Equation 1, its weights written to memory."""
    return scaled_dot_product_attention(query, key, value, return_weights=True)[0]


def fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Equation 1 by the framework's kernel."""
    return scaled_dot_product_attention(query, key, value)


KINDS = {"additive": additive, "printed": printed, "fused": fused}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run_seeds(
        RESULTS / "attention_cost.json",
        range(options.seeds),
        run,
        settings={
            "batch": BATCH,
            "heads": HEADS,
            "lengths": LENGTHS,
            "d_k": D_K,
            "rounds": ROUNDS,
            "dtype": "float32",
        },
        summarise=summarise,
        say=lambda r: f"seed {r['seed']}: {r['milliseconds']}",
        allow_dirty=options.allow_dirty,
    )


def run(seed: int) -> dict:
    """Median milliseconds and peak megabytes, by kind and length."""
    times: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}
    memory: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}
    for length in LENGTHS:
        given = inputs(length, seed)
        rounds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(ROUNDS + 2):
            for kind, function in KINDS.items():
                rounds[kind].append(seconds(function, given))
        for kind, function in KINDS.items():
            times[kind][str(length)] = 1e3 * statistics.median(rounds[kind][2:])
            memory[kind][str(length)] = peak(function, given) / 1e6
    return {"milliseconds": times, "megabytes": memory}


def inputs(length: int, seed: int) -> list[Tensor]:
    """Query, key and value that want gradients."""
    generator = torch.Generator().manual_seed(seed)
    shape = (BATCH, HEADS, length, D_K)
    return [torch.randn(shape, generator=generator).requires_grad_() for _ in range(3)]


def once(function, given: list[Tensor]) -> None:
    """Forward and backward."""
    function(*given).sum().backward()
    for tensor in given:
        tensor.grad = None


def seconds(function, given: list[Tensor]) -> float:
    """CPU time of one pass."""
    started = time.process_time()
    once(function, given)
    return time.process_time() - started


def peak(function, given: list[Tensor]) -> int:
    """Bytes held at the worst moment of one pass."""
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True
    ) as profiler:
        once(function, given)
    held = worst = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            worst = max(worst, held)
    return worst


def summarise(runs: list[dict]) -> dict:
    """Medians over seeds of the ratios to the printed equation."""
    return {
        measure: {
            kind: {
                str(length): statistics.median(
                    r[measure][kind][str(length)] / r[measure]["printed"][str(length)]
                    for r in runs
                )
                for length in LENGTHS
            }
            for kind in KINDS
        }
        for measure in ("milliseconds", "megabytes")
    }


if __name__ == "__main__":
    main()
