"""Section 3: one token at a time, fed with what came before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Int
from torch import Tensor, nn

from transformer.model import Transformer


@torch.no_grad()
def greedy_decode(
    model: Transformer,
    source: Int[Tensor, "batch source"],
    *,
    max_length: int | None = None,
    use_cache: bool = True,
) -> Int[Tensor, "batch output"]:
    """Take the likeliest token at each step, until EOS.

    Args:
        source: token ids, padded on the right.
        max_length: tokens to give at most, EOS counted; the source's
            length + 50 if None, as in section 6.1. Never more than
            the configuration's max_length.
        use_cache: keep keys and values of earlier steps. The output
            is the same; without, each step computes all of them.

    Returns:
        Token ids without the start token, with EOS, then padding: as
        many columns as the longest output needs. A sequence that met
        the limit has no EOS.

    Raises:
        TypeError, ValueError: as `Transformer.encode` does; or
            max_length is below 1.

    The model decodes in evaluation mode and is left in the mode in
    which it came.
    """
    config = model.config
    if max_length is None:
        max_length = source.size(-1) + 50
    if max_length < 1:
        raise ValueError(f"max_length={max_length} must be at least 1")
    max_length = min(max_length, config.max_length)
    with evaluation_mode(model):
        mask, _, _ = model.build_masks(source, source)
        memory = model.encode(source, mask)
        cache = model.new_cache() if use_cache else None
        output = source.new_full((len(source), 1), config.start_id)
        finished = torch.zeros_like(output, dtype=torch.bool)
        while output.size(1) <= max_length and not finished.all():
            _, target_mask, _ = model.build_masks(source, output)
            hidden = model.decode(
                output, memory, target_mask, mask, cache=cache
            )
            logits = model.output_projection(hidden[:, -1:])
            token = logits.argmax(dim=-1)
            token = token.masked_fill(finished, config.pad_id)
            output = torch.cat([output, token], dim=1)
            finished |= token == config.eos_id
    return output[:, 1:]


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Within it no dropout; after it every module's own mode again."""
    modes = {part: part.training for part in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training
