"""A step of our Trainer beside a hand-written one of torch.nn.Transformer.

    python benchmarks/trainer_step.py

writes book/results/trainer_step.json and prints a table. In turn, in one
process and on one thread, a step each is taken by

- ours: `transformer.trainer.Trainer` as `transformer train` runs it, in
  float32, with the loss in chunks of 1,024 tokens;
- peer: torch.nn.Transformer in the usual loop, all logits at once;
- peer_chunked: the same with our loss in chunks, so that what is left of
  the difference is not the loss.

All have the same size, weights and batches, dropout at the same places (the
paper's: embeddings and the output of each sub-layer), Adam, schedule and
smoothing. The clock is the process's CPU time, so that what else the machine
does falls on all.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))

from provenance import RESULTS, provenance, write_json
from training_step import Peer, seconds, spread

from transformer import (
    LabelSmoothingLoss,
    NoamScheduler,
    TrainingConfig,
    Transformer,
    TransformerConfig,
)
from transformer.chunked_loss import ChunkedLoss
from transformer.data.batches import Batch, shift
from transformer.data.streams import EncodedPairs, Ragged, TokenBatches
from transformer.processes import Processes
from transformer.trainer import Trainer
from transformer.training import make_optimizer

KINDS = ("ours", "peer", "peer_chunked")
# Tokens a step on each side, several chunks of the loss; rounds.
SIZES = {"tiny": (8000, 4096, 40), "base": (37_000, 2048, 12)}
CHUNK = 1024
LENGTHS = (10, 50)  # of a sentence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=SIZES)
    parser.add_argument("--vocab", type=int, help="default: 8000 and 37000")
    parser.add_argument("--tokens", type=int, help="default: 4096 and 2048")
    parser.add_argument("--rounds", type=int, help="default: 40 and 12")
    parser.add_argument("--out", type=Path, default=RESULTS / "trainer_step.json")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = {
        "provenance": provenance(allow_dirty=options.allow_dirty),
        "settings": {
            "clock": "CPU seconds of the process, one thread",
            "step": "batch, forward, loss, backward, fused Adam, schedule",
            "ours": f"transformer.trainer.Trainer, float32, chunks of {CHUNK}",
            "peer": "torch.nn.Transformer, post-norm, final norms removed,"
            " all logits at once",
            "peer_chunked": "the peer's model with our chunked loss",
            "ratio": "peer / ours: above 1, the peer is slower",
        },
        "sizes": {},
    }
    for size, usual in SIZES.items():
        if options.only in (None, size):
            asked = (options.vocab, options.tokens, options.rounds)
            vocab, tokens, rounds = (
                new or old for new, old in zip(asked, usual, strict=True)
            )
            torch.manual_seed(0)
            result["sizes"][size] = compare(size, vocab, tokens, rounds)
    write_json(options.out, result)
    table(result)


class DroppingPeer(Peer):
    """The peer with dropout where the paper has it."""

    def __init__(self, ours: Transformer) -> None:
        super().__init__(ours)
        self.dropout = nn.Dropout(ours.config.dropout)
        for name, part in self.core.named_modules():
            # dropout1, 2, 3 follow the sub-layers; a plain "dropout" is
            # inside the feed-forward network, and stays at 0 as that of
            # the attention weights, which is no module.
            if isinstance(part, nn.Dropout) and name[-1].isdigit():
                part.p = ours.config.dropout

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(super().embed(ids))


def compare(size: str, vocab: int, tokens: int, rounds: int) -> dict:
    """The three, turn by turn, each on its own copy of one stream."""
    config = getattr(TransformerConfig, size)(
        vocab_size=vocab,
        dropout=0.1,
        attention_bias=True,  # nn.Transformer always has them
        max_length=256,
    )
    run = TrainingConfig(steps=rounds)
    ours = Transformer(config)
    peers = {kind: DroppingPeer(ours) for kind in KINDS[1:]}
    sentences = draw(vocab, pairs=rounds * tokens // LENGTHS[0])
    streams = {kind: TokenBatches(sentences, tokens, seed=0) for kind in KINDS}
    here = Processes(0, 1, torch.device("cpu"))
    trainer = Trainer(ours, streams["ours"], run, here, chunk=CHUNK)
    one_batch = TokenBatches(sentences, tokens, seed=1).take(1)[0]
    same = agreement(trainer, peers["peer"], one_batch)
    steps = {
        kind: make_step(peer, streams[kind], run, kind == "peer_chunked")
        for kind, peer in peers.items()
    }
    steps["ours"] = lambda: trainer.step().tokens
    times, counts = [], []
    for i in range(-2, rounds):
        order = [KINDS[(i + k) % 3] for k in range(3)]
        taken, real = {}, []
        for kind in order:
            taken[kind] = seconds(partial(note, real, steps[kind]))
        assert len(set(real)) == 1, real  # the same batch
        if i >= 0:  # two rounds to warm up
            times.append([taken[kind] for kind in KINDS])
            counts.append(real[0])
        print(f"\r{size}: round {i + 1} of {rounds}", end="", file=sys.stderr)
    print(file=sys.stderr)
    columns = dict(zip(KINDS, zip(*times, strict=True), strict=True))
    return {
        "model": config.to_dict(),
        "parameters": parameters(ours),
        "batch_tokens": tokens,
        "lengths": list(LENGTHS),
        **same,
        "seconds": {kind: spread(list(values)) for kind, values in columns.items()},
        "target_tokens_per_second": {
            kind: spread([n / s for n, s in zip(counts, values, strict=True)])
            for kind, values in columns.items()
        },
        "ratio": {
            kind: spread(
                [b / a for a, b in zip(columns["ours"], columns[kind], strict=True)]
            )
            for kind in KINDS[1:]
        },
        "target_tokens": counts,
        "rounds": [[round(x, 5) for x in row] for row in times],
    }


def note(counts: list[int], step: Callable[[], int]) -> None:
    """Take the step, and keep how many target tokens it had."""
    counts.append(step())


def draw(vocab: int, pairs: int) -> EncodedPairs:
    """Random sentences, as long as sentences are."""
    generator = np.random.default_rng(0)

    def side() -> Ragged:
        lengths = generator.integers(*LENGTHS, size=pairs, endpoint=True)
        return Ragged.of(generator.integers(3, vocab, size=n) for n in lengths)

    return EncodedPairs(side(), side())


def make_step(
    peer: Peer, stream: TokenBatches, run: TrainingConfig, chunked: bool
) -> Callable[[], int]:
    """One update, written out; it returns the target tokens of the step."""
    optimizer = make_optimizer(peer, run)
    scheduler = NoamScheduler(optimizer, peer.config.d_model, run.warmup_steps)
    plain = LabelSmoothingLoss(run.label_smoothing, peer.config.pad_id)
    in_chunks = ChunkedLoss(plain, CHUNK)
    projection = nn.Linear(1, 1, bias=False)
    projection.weight = peer.embedding.weight

    def step() -> int:
        (batch,) = stream.take(1)
        target_in, gold = shift(batch.target)
        if chunked:
            hidden = peer.hidden(batch.source, target_in)
            loss = in_chunks(hidden, gold, projection)
        else:
            loss = plain(peer(batch.source, target_in), gold)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        return int((gold != peer.config.pad_id).sum())

    peer.train()
    return step


def agreement(trainer: Trainer, peer: Peer, batch: Batch) -> dict:
    """Without dropout the two give one loss; with it, as many masks."""
    target_in, gold = shift(batch.target)
    pad_id = trainer.model.config.pad_id
    plain = LabelSmoothingLoss(trainer.config.label_smoothing, pad_id)

    def ours() -> Tensor:
        return trainer.objective(batch.source, target_in, gold)

    def other() -> Tensor:
        return plain(peer(batch.source, target_in), gold)

    torch.backends.mha.set_fastpath_enabled(False)  # nor is it in training
    with torch.no_grad():
        masks = [drawn(trainer.objective.train(), ours), drawn(peer.train(), other)]
        trainer.objective.eval(), peer.eval()
        losses = [ours().item(), other().item()]
    trainer.objective.train(), peer.train()
    assert masks[0] == masks[1], masks
    assert parameters(trainer.model) == parameters(peer)
    assert abs(losses[0] - losses[1]) < 1e-5 * losses[0], losses
    return {
        "loss_without_dropout": losses[0],
        "loss_difference": abs(losses[0] - losses[1]),
        "dropout_masks": sum(masks[0].values()),
    }


class Bernoulli(TorchDispatchMode):
    """Counts the random masks that are drawn, by their shape."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: Counter = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "bernoulli" in str(function) or "dropout" in str(function):
            self.shapes[tuple(args[0].shape)] += 1
        return function(*args, **(kwargs or {}))


def drawn(model: nn.Module, work: Callable[[], Tensor]) -> Counter:
    """The masks of one forward pass."""
    assert model.training
    with Bernoulli() as seen:
        work()
    return seen.shapes


def parameters(model: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(p.numel() for p in model.parameters())


def table(result: dict) -> None:
    """The result, to be read."""
    for size, entry in result["sizes"].items():
        print(f"{size}: {entry['batch_tokens']} tokens a side and step")
        for kind in KINDS:
            ms = 1000 * entry["seconds"][kind]["median"]
            speed = entry["target_tokens_per_second"][kind]["median"]
            line = f"  {kind:14}{ms:10.1f} ms{speed:10.0f} target tokens/s"
            if kind in entry["ratio"]:
                ratio = entry["ratio"][kind]
                line += (
                    f"   {ratio['median']:.3f} times ours"
                    f" ({ratio['quartile_1']:.3f} to {ratio['quartile_3']:.3f})"
                )
            print(line)


if __name__ == "__main__":
    main()
