"""What a model does before it has learned anything.

Chapter 03 looks at activations, gradients and the first step by depth,
chapter 08 at the first loss. Every function builds a model from a
seed; inside `mutations.applied` or `use` it is one with the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import transformer
from transformer import TransformerConfig
from transformer.data.batches import Batch
from transformer.data.toy import SymbolTask
from transformer.training import shift

TASK = SymbolTask("reverse", shortest=4, longest=8)
BATCH = 32


def build(norm: str, layers: int, seed: int) -> tuple[transformer.Transformer, Batch]:
    """A model of d_model 64, and one batch of `TASK`.

    Args:
        norm: "post" or "pre".
        layers: in each stack.
        seed: of both.
    """
    config = TransformerConfig.tiny(TASK.vocab_size, layers=layers, norm=norm)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformer.Transformer(config)
    return model, TASK.batch(BATCH, torch.Generator().manual_seed(seed))


@torch.no_grad()
def variances(norm: str, layers: int, seed: int) -> list[float]:
    """Of what each encoder layer puts out, over all its entries."""
    model, batch = build(norm, layers, seed)
    mask, _, _ = model.build_masks(batch.source, batch.target)
    x = model.source_positions(model.source_embedding(batch.source))
    found = []
    for layer in model.encoder.layers:
        x = layer(x, mask)
        found.append(x.var().item())
    return found


def gradients(norm: str, layers: int, seed: int) -> dict[str, list[float]]:
    """The norm of the loss's gradient, layer by layer.

    Of the second matrix of each feed-forward network, "encoder" and
    "decoder"; 0 where no gradient arrives.
    """
    model, batch = build(norm, layers, seed)
    target_in, gold = shift(batch.target)
    logits = model(batch.source, target_in)
    cross_entropy(logits.mT, gold, ignore_index=0).backward()

    def size(layer: nn.Module) -> float:
        slope = layer.feed_forward.narrow.weight.grad
        return 0.0 if slope is None else slope.norm().item()

    return {
        "encoder": [size(layer) for layer in model.encoder.layers],
        "decoder": [size(layer) for layer in model.decoder.layers],
    }


def moved(norm: str, layers: int, seed: int, rate: float = 1e-3) -> float:
    """How far one step of Adam moves the decoder's output.

    Returns:
        The length of the difference over the length of the output.
    """
    model, batch = build(norm, layers, seed)
    target_in, gold = shift(batch.target)
    source_mask, *masks = model.build_masks(batch.source, target_in)

    def output() -> Tensor:
        memory = model.encode(batch.source, source_mask)
        return model.decode(target_in, memory, *masks)

    before = output()
    logits = model.output_projection(before)
    cross_entropy(logits.mT, gold, ignore_index=0).backward()
    torch.optim.Adam(model.parameters(), lr=rate).step()
    with torch.no_grad():
        return ((output() - before).norm() / before.norm()).item()


# --- how the matrix of section 3.4 starts ---------------------------------


def published(model: nn.Module) -> None:
    """N(0, 1 / d_model), all three: the published code and ours."""
    for part in _matrices(model):
        nn.init.normal_(part.weight, std=model.config.d_model**-0.5)


def xavier(model: nn.Module) -> None:
    """Xavier uniform, all three."""
    for part in _matrices(model):
        nn.init.xavier_uniform_(part.weight)


def framework(model: nn.Module) -> None:
    """N(0, 1), as nn.Embedding; untied, the output as nn.Linear."""
    source, target, output = _matrices(model)
    nn.init.normal_(source.weight)
    if not model.config.tied:
        nn.init.normal_(target.weight)
        nn.Linear.reset_parameters(output)


def _matrices(model: nn.Module) -> tuple[nn.Module, ...]:
    return model.source_embedding, model.target_embedding, model.output_projection


@torch.no_grad()
def first_losses(
    starts: Iterable[Callable[[nn.Module], None]],
    *,
    tied: bool,
    seed: int,
    vocab: int = 8000,
) -> list[float]:
    """The loss on random tokens, for each start of the same model.

    Base's width and depth; its feed-forward networks are narrower,
    for time.
    """
    config = TransformerConfig.base(vocab, d_ff=512, tied=tied, target_vocab_size=vocab)
    found = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformer.Transformer(config).eval()
        source, target_in, gold = torch.randint(3, vocab, (3, 4, 16))
        for start in starts:
            start(model)
            logits = model(source, target_in)
            found.append(cross_entropy(logits.flatten(0, 1), gold.flatten()).item())
    return found
