"""What a training step costs, counted: sections 5.2 and 6.1.

`counted` lets the framework count the products of a real model;
`flops` is part of `bookkit.check`; see there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

import transformer
from bookkit import reference
from bookkit.report import Exam, Report
from transformer import TransformerConfig, complexity


def counted(
    config: TransformerConfig,
    pairs: int,
    source: int,
    target: int,
    *,
    backward: bool = True,
    device: str = "meta",
) -> int:
    """What the framework's counter says of one step of our model.

    Args:
        config, pairs, source, target: as `forward_flops` takes them.
        backward: also count the way back.
        device: "meta" computes nothing, and counts all the same.
    """
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device(device), torch.random.fork_rng():
        model = transformer.Transformer(config)
        given = torch.full((pairs, source), config.eos_id)
        target_in = torch.full((pairs, target), config.eos_id)
    with FlopCounterMode(display=False) as counter:
        logits = model(given, target_in)
        if backward:
            logits.sum().backward()
    return counter.get_total_flops()


def flops(mine: Callable, *, call: Callable[..., int] | None = None) -> Report:
    """Section 6.1: operations of a Transformer's forward pass.

    Args:
        mine: your function.
        call: (mine, layers, d_model, d_ff, vocab_size, pairs, source,
            target) -> a whole number, where your signature differs
            from mine(layers, ...). Encoder and decoder have `layers`
            each; every sentence of `pairs` has `source` and `target`
            tokens. Products of matrices count, a multiplication and
            its addition as two operations.

    Raises:
        CheckFailed: with the smallest failing example.
    """
    call = call or (lambda f, *given: f(*given))
    exam = Exam("flops", lambda *given: call(mine, *given), our_flops)
    names = "layers d_model d_ff vocab_size pairs source target".split()
    for statement, *sizes in (
        ("one of everything", 1, 2, 2, 4, 1, 1, 1),
        ("two pairs", 1, 2, 2, 4, 2, 1, 1),
        ("longer sources than targets", 1, 2, 6, 4, 1, 5, 2),
        ("longer targets than sources", 2, 4, 6, 10, 3, 2, 7),
        ("base", 6, 512, 2048, 37000, 1000, 25, 25),
    ):
        given = dict(zip(names, sizes, strict=True))
        exam.equal(statement, given, reference.flops(*sizes))
    return exam.close()


def our_flops(
    layers: int,
    d_model: int,
    d_ff: int,
    vocab_size: int,
    pairs: int,
    source: int,
    target: int,
) -> int:
    """What the book's formula says."""
    shape = dict(layers=layers, d_model=d_model, d_ff=d_ff, heads=1)
    config = TransformerConfig(vocab_size=vocab_size, **shape)
    parts = complexity.forward_flops(config, pairs, source, target)
    return sum(parts.values())
