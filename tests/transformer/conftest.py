"""A model that has learned something, trained once for all tests."""

from __future__ import annotations

import jaxtyping
import pytest
import torch

from transformer import TrainingConfig, Transformer, TransformerConfig, train
from transformer.data.toy import SymbolTask


@pytest.fixture(scope="session")
def short_copies() -> SymbolTask:
    """Copying 1 to 6 of 5 symbols: learned in seconds."""
    return SymbolTask("copy", symbols=5, shortest=1, longest=6)


@pytest.fixture(scope="session")
def copier(short_copies) -> Transformer:
    """A model that copies short sequences and ends them."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Transformer(
            TransformerConfig.tiny(
                short_copies.vocab_size, d_model=32, d_ff=64, max_length=32
            )
        )
    generator = torch.Generator().manual_seed(0)
    batches = (short_copies.batch(32, generator) for _ in range(300))
    config = TrainingConfig.copy_task(steps=300, warmup_steps=50, factor=0.2)
    # Shapes are checked in every test; 300 checked steps take 8 s more.
    jaxtyping.config.update("jaxtyping_disable", True)
    train(model, batches, config, progress=False)
    jaxtyping.config.update("jaxtyping_disable", False)
    return model.eval()
