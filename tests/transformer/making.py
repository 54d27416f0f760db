"""Small models, masks and batches for the tests, from a generator."""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn

from transformer import BOS, EOS, PAD, Transformer, TransformerConfig
from transformer.data.batches import Batch
from transformer.data.trees import Tree

SMALL = dict(
    vocab_size=13,
    layers=2,
    d_model=16,
    d_ff=24,
    heads=4,
    dropout=0.0,
    max_length=32,
)


def make_model(*, seed: int = 0, dtype=torch.float64, **changes) -> Transformer:
    """A small model in evaluation mode, no parameter at its start value."""
    model = Transformer(TransformerConfig(**(SMALL | changes)))
    shake(model, torch.Generator().manual_seed(seed))
    return model.to(dtype).eval()


def shake(module: nn.Module, generator: torch.Generator) -> None:
    """Draw every parameter afresh; no bias stays 0 and no gain stays 1."""
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                parameter += 0.2 * noise
            else:
                parameter.copy_(noise * parameter.size(-1) ** -0.5)


def random_mask(
    shape: tuple[int, ...], generator: torch.Generator, share: float = 0.6
) -> Tensor:
    """True in about `share` of the places, at least once in each row."""
    mask = torch.rand(shape, generator=generator) < share
    kept = torch.randint(shape[-1], (*shape[:-1], 1), generator=generator)
    return mask.scatter(-1, kept, True)


def random_batch(
    generator: torch.Generator,
    *,
    size: int = 4,
    source: int = 7,
    target: int = 6,
    vocab_size: int = 13,
) -> Batch:
    """Padded pairs; the first is of full length, the others shorter."""
    ids = torch.randint(EOS + 1, vocab_size, (size, source), generator=generator)
    gold = torch.randint(EOS + 1, vocab_size, (size, target), generator=generator)
    gold[:, 0] = BOS
    for row in range(size):
        end = source - 1 - row % (source - 1)
        ids[row, end], ids[row, end + 1 :] = EOS, PAD
        end = target - 1 - row % (target - 2)
        gold[row, end], gold[row, end + 1 :] = EOS, PAD
    return Batch(ids, gold)


def largest_difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest absolute difference between two tensors of one shape."""
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return (ours - theirs).abs().max().item()


def random_tree(draw: random.Random, depth: int = 0) -> Tree:
    """Any tree: unary chains, wide nodes, few labels that repeat."""
    if depth > 4 or (depth and draw.random() < 0.4):
        return Tree(draw.choice(["NN", "VB", ","]), word=f"w{draw.randrange(9)}")
    children = [random_tree(draw, depth + 1) for _ in range(draw.randint(1, 3))]
    return Tree(draw.choice(["S", "NP", "VP"]), tuple(children))
