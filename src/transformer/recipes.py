"""How the toy tasks are learned: one recipe, from one seed.

Equation 3's shape, label smoothing of 0.1 and the average of the last
five snapshots are the paper's. Ours: a small model without dropout,
500 steps, and a rate that peaks at 3e-3 after 100 of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from transformer.config import TrainingConfig, TransformerConfig
from transformer.data.toy import NumberWords, SymbolTask
from transformer.model import Transformer
from transformer.training import History, train


def toy_model(task: SymbolTask | NumberWords, seed: int) -> Transformer:
    """An untrained model of the task's shape.

    The random state outside is left as it was.
    """
    config = TransformerConfig.tiny(task.vocab_size)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Transformer(config)


def train_toy(
    task: SymbolTask | NumberWords,
    seed: int,
    *,
    watch: Callable[[int, Transformer], None] | None = None,
    progress: bool = True,
    **changes,
) -> tuple[Transformer, History]:
    """Make a model and train it on fresh batches.

    Args:
        task: what to learn; it says how many pairs a batch has.
        seed: of weights, batches and dropout.
        watch, progress: as `train` takes them.
        changes: to `TrainingConfig.copy_task`, such as steps=100.

    Returns:
        The trained model and its history.
    """
    config = TrainingConfig.copy_task(seed=seed, **changes)
    model = toy_model(task, seed)
    draw = torch.Generator().manual_seed(seed)
    batches = iter(lambda: task.batch(task.batch_size, draw), None)
    history = train(
        model, batches, config, watch=watch, progress=progress
    )
    return model, history
