"""Our training step beside torch.nn.Transformer's, and what a cache saves.

    python benchmarks/training_step.py

writes book/results/training_step.json and prints a table. The two models
have the same size, the same number of parameters and the same weights,
and give the same logits; both are post-norm without dropout, with the
same embedding, positions, tied projection, loss, optimizer and batches.
They take turns in one process on one thread, and the clock is the
process's CPU time, so that what else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))

from provenance import RESULTS, provenance, write_json

from transformer import (
    LabelSmoothingLoss,
    TrainingConfig,
    Transformer,
    TransformerConfig,
    greedy_decode,
)
from transformer.data.batches import Batch, pad, shift
from transformer.training import accumulate, make_optimizer

SHAPES = {
    "d=128": dict(vocab_size=4000, layers=2, d_model=128, d_ff=512, heads=4),
    "base": dict(vocab_size=37000),
}
# Pairs a batch, shortest and longest sequence. With 37,000 tokens to
# choose from, more than a few sentences a step take minutes here.
DATA = {"d=128": (32, 20, 40), "base": (4, 20, 30)}
DECODE_BATCH, DECODE_TOKENS, SOURCE_TOKENS = 32, 50, 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--base-rounds", type=int, default=15)
    parser.add_argument("--decode-rounds", type=int, default=10)
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    result = {
        "provenance": provenance(allow_dirty=options.allow_dirty),
        "settings": {
            "clock": "CPU seconds of the process, one thread",
            "step": "forward, backward, fused Adam; dropout 0 in both",
            "ratio": "peer / ours: above 1, the peer is slower",
            "peer": "torch.nn.Transformer, post-norm, final norms removed",
        },
        "training": {
            name: training_step(name, rounds)
            for name, rounds in (
                ("d=128", options.rounds),
                ("base", options.base_rounds),
            )
        },
        "decoding": decoding(options.decode_rounds),
    }
    write_json(RESULTS / "training_step.json", result)
    table(result)


class Peer(nn.Module):
    """torch.nn.Transformer as the paper has it, with our weights."""

    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        config = ours.config
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.register_buffer("table", ours.source_positions.table.clone())
        self.core = nn.Transformer(
            config.d_model,
            config.heads,
            config.layers,
            config.layers,
            config.d_ff,
            dropout=0.0,
            layer_norm_eps=config.layer_norm_eps,
            batch_first=True,
        )
        self.core.encoder.norm = self.core.decoder.norm = None
        self.load_state_dict(peer_weights(ours), strict=False)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        return F.linear(self.hidden(source, target_in), self.embedding.weight)

    def hidden(self, source: Tensor, target_in: Tensor) -> Tensor:
        """What the decoder hands to the output projection."""
        blocked = source == self.config.pad_id
        length = target_in.size(1)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        return self.core(
            self.embed(source),
            self.embed(target_in),
            tgt_mask=future,
            tgt_is_causal=True,  # its fast path
            src_key_padding_mask=blocked,
            memory_key_padding_mask=blocked,
        )

    def embed(self, ids: Tensor) -> Tensor:
        scaled = self.embedding(ids) * math.sqrt(self.config.d_model)
        return scaled + self.table[: ids.size(1)]


def peer_weights(ours: Transformer) -> dict[str, Tensor]:
    """Our weights under the peer's names."""
    state = {"embedding.weight": ours.source_embedding.weight}
    for stack in ("encoder", "decoder"):
        for i, layer in enumerate(getattr(ours, stack).layers):
            parts = {
                "linear1": layer.feed_forward.widen,
                "linear2": layer.feed_forward.narrow,
            }
            if stack == "encoder":
                attentions = {"self_attn": layer.self_attention}
                around = [layer.around_attention]
            else:
                attentions = {
                    "self_attn": layer.self_attention,
                    "multihead_attn": layer.cross_attention,
                }
                around = [
                    layer.around_self_attention,
                    layer.around_cross_attention,
                ]
            around.append(layer.around_feed_forward)
            for j, connection in enumerate(around):
                parts[f"norm{j + 1}"] = connection.norm
            where = f"core.{stack}.layers.{i}"
            for name, attention in attentions.items():
                parts[f"{name}.out_proj"] = attention.project_output
                inward = [
                    attention.project_query,
                    attention.project_key,
                    attention.project_value,
                ]
                for kind in ("weight", "bias"):
                    state[f"{where}.{name}.in_proj_{kind}"] = torch.cat(
                        [getattr(part, kind) for part in inward]
                    )
            for name, part in parts.items():
                state[f"{where}.{name}.weight"] = part.weight
                state[f"{where}.{name}.bias"] = part.bias
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def training_step(name: str, rounds: int) -> dict:
    """Both models, turn by turn, on the same batches."""
    config = TransformerConfig(
        # nn.Transformer always has biases in attention.
        **SHAPES[name],
        dropout=0.0,
        attention_bias=True,
        max_length=256,
    )
    ours = Transformer(config)
    peer = Peer(ours)
    sizes = [sum(p.numel() for p in model.parameters()) for model in (ours, peer)]
    assert sizes[0] == sizes[1], sizes
    generator = torch.Generator().manual_seed(0)
    difference = compare(ours, peer, draw(name, generator))
    steps = [make_step(ours), make_step(peer)]
    times: list[list[float]] = []
    for i in range(-2, rounds):
        batch = draw(name, generator)
        pair = [0.0, 0.0]
        for k in (0, 1) if i % 2 else (1, 0):
            pair[k] = seconds(lambda k=k, batch=batch: steps[k](batch))
        if i >= 0:  # two rounds to warm up
            times.append(pair)
        print(f"\r{name}: round {i + 1} of {rounds}", end="", file=sys.stderr)
    print(file=sys.stderr)
    pairs, shortest, longest = DATA[name]
    return {
        "model": config.to_dict(),
        "parameters": sizes[0],
        "batch": pairs,
        "lengths": [shortest, longest],
        "largest_logit_difference": difference,
        "ours_seconds": spread([ours for ours, _ in times]),
        "peer_seconds": spread([peer for _, peer in times]),
        "ratio": spread([peer / ours for ours, peer in times]),
        "rounds": [[round(x, 5) for x in pair] for pair in times],
    }


def compare(ours: Transformer, peer: Peer, batch: Batch) -> float:
    """The largest difference between the logits of the two."""
    target_in, _ = shift(batch.target)
    with torch.no_grad():
        one, other = (m(batch.source, target_in) for m in (ours, peer))
    difference = (one - other).abs().max().item()
    assert difference < 1e-4, difference
    return difference


def draw(name: str, generator: torch.Generator) -> Batch:
    """Random sentences, as long as sentences are, padded."""
    pairs, shortest, longest = DATA[name]
    vocabulary = SHAPES[name]["vocab_size"]

    def sentences(first: list[int]) -> Tensor:
        lengths = torch.randint(shortest, longest + 1, (pairs,), generator=generator)
        return pad(
            [
                first
                + torch.randint(3, vocabulary, (length,), generator=generator).tolist()
                for length in lengths.tolist()
            ]
        )

    return Batch(source=sentences([]), target=sentences([1]))


def make_step(model: nn.Module) -> Callable[[Batch], None]:
    """One update, as `transformer.train` does it."""
    run = TrainingConfig()
    optimizer = make_optimizer(model, run)
    for group in optimizer.param_groups:
        group["lr"] = 1e-4
    criterion = LabelSmoothingLoss(run.label_smoothing, model.config.pad_id)

    def step(batch: Batch) -> None:
        accumulate(model, criterion, [batch])
        optimizer.step()
        optimizer.zero_grad()

    model.train()
    return step


def decoding(rounds: int) -> dict:
    """Greedy, with and without the cache, to the same tokens."""
    config = TransformerConfig(
        **SHAPES["d=128"], dropout=0.0, output_bias=True, max_length=256
    )
    model = Transformer(config)
    with torch.no_grad():  # no sentence may end early
        model.output_projection.bias[config.eos_id] = -1e4
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(
        3,
        config.vocab_size,
        (DECODE_BATCH, SOURCE_TOKENS),
        generator=generator,
    )

    def decode(use_cache: bool) -> Tensor:
        return greedy_decode(
            model, source, max_length=DECODE_TOKENS, use_cache=use_cache
        )

    assert decode(True).shape == (DECODE_BATCH, DECODE_TOKENS)
    same = torch.equal(decode(True), decode(False))
    times = [
        [seconds(lambda: decode(True)), seconds(lambda: decode(False))]
        for _ in range(rounds)
    ]
    return {
        "model": config.to_dict(),
        "batch": DECODE_BATCH,
        "tokens": DECODE_TOKENS,
        "source_tokens": SOURCE_TOKENS,
        "same_tokens": same,
        "cached_seconds": spread([cached for cached, _ in times]),
        "uncached_seconds": spread([uncached for _, uncached in times]),
        "speed_up": spread([uncached / cached for cached, uncached in times]),
        "rounds": [[round(x, 5) for x in pair] for pair in times],
    }


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds that the work takes."""
    started = time.process_time()
    work()
    return time.process_time() - started


def spread(values: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {
        "quartile_1": round(low, 4),
        "median": round(middle, 4),
        "quartile_3": round(high, 4),
    }


def table(result: dict) -> None:
    """The result, to be read."""
    print(f"{'':24}{'ours, ms':>10}{'other, ms':>10}  ratio (quartiles)")
    rows = {
        f"training step, {name}": (
            entry["ours_seconds"],
            entry["peer_seconds"],
            entry["ratio"],
        )
        for name, entry in result["training"].items()
    }
    cache = result["decoding"]
    rows["greedy, without cache"] = (
        cache["cached_seconds"],
        cache["uncached_seconds"],
        cache["speed_up"],
    )
    for name, (ours, other, ratio) in rows.items():
        print(
            f"{name:24}{1000 * ours['median']:10.1f}"
            f"{1000 * other['median']:10.1f}  {ratio['median']:.2f}"
            f" ({ratio['quartile_1']:.2f} to {ratio['quartile_3']:.2f})"
        )


if __name__ == "__main__":
    main()
