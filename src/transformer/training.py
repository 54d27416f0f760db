"""Sections 5.3 and 5.4: loss, schedule, and the training loop."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm import tqdm

from transformer.checkpoints import average
from transformer.config import TrainingConfig
from transformer.data.batches import Batch, shift
from transformer.model import Transformer


class LabelSmoothingLoss(nn.Module):
    """Cross-entropy against a target that is a little unsure.

    The gold token's probability is 1 - smoothing; every other class,
    padding's included, shares the rest: smoothing / (V - 1) each. So
    has it the published code; the paper gives no formula.

    Args:
        smoothing: the paper's epsilon_ls, at least 0 and below 1.
        pad_id: targets of this id count nothing.

    Raises:
        ValueError: smoothing is outside its range.
    """

    def __init__(self, smoothing: float, pad_id: int) -> None:
        super().__init__()
        if not 0 <= smoothing < 1:
            raise ValueError(
                f"smoothing={smoothing} must be at least 0 and below 1"
            )
        self.smoothing = smoothing
        self.pad_id = pad_id

    def forward(
        self,
        logits: Float[Tensor, "*batch vocab"],
        target: Int[Tensor, "*batch"],
    ) -> Float[Tensor, ""]:
        """The mean over real tokens; 0 where there are none.

        Raises:
            ValueError: gold would get less than the other classes.
        """
        # The framework spreads its share over all V classes, gold
        # included, so it must be asked for V / (V - 1) times ours.
        classes = logits.size(-1)
        if self.smoothing * classes > classes - 1:
            raise ValueError(
                f"smoothing={self.smoothing} leaves the gold one of"
                f" {classes} classes less than the others"
            )
        total = F.cross_entropy(
            logits.reshape(-1, classes),
            target.reshape(-1),
            ignore_index=self.pad_id,
            label_smoothing=self.smoothing * classes / (classes - 1),
            reduction="sum",
        )
        return total / (target != self.pad_id).sum().clamp(min=1)


def noam_rate(
    step: int,
    d_model: int,
    warmup_steps: int = 4000,
    factor: float = 1.0,
) -> float:
    """Equation 3: d_model^-0.5 min(step^-0.5, step warmup^-1.5).

    Args:
        step: counted from 1.
        d_model: width of the model.
        warmup_steps: the rate rises up to here, then falls.
        factor: multiplies the whole; the paper's is 1.

    Raises:
        ValueError: step is below 1, where the formula has no value.
    """
    if step < 1:
        raise ValueError(f"step={step}: steps are counted from 1")
    shape = min(step**-0.5, step * warmup_steps**-1.5)
    return factor * d_model**-0.5 * shape


class NoamScheduler(LRScheduler):
    """Sets the optimizer's learning rate by equation 3.

    Made, it sets the rate of step 1; each `step()`, called after the
    optimizer's, sets the next. The optimizer's own rate counts
    nothing.

    Raises:
        ValueError: d_model or warmup_steps below 1, factor not above
            0.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        d_model: int,
        warmup_steps: int = 4000,
        factor: float = 1.0,
    ) -> None:
        if d_model < 1 or warmup_steps < 1 or not factor > 0:
            raise ValueError(
                f"d_model={d_model} and warmup_steps={warmup_steps}"
                f" must be at least 1, factor={factor} above 0"
            )
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.factor = factor
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        """The rate for the coming step, for each parameter group."""
        rate = noam_rate(
            self.last_epoch + 1,
            self.d_model,
            self.warmup_steps,
            self.factor,
        )
        return [rate for _ in self.optimizer.param_groups]


@dataclass
class History:
    """What a training run went through, one entry a step."""

    loss: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)


def train(
    model: Transformer,
    batches: Iterable[Batch],
    config: TrainingConfig,
    *,
    watch: Callable[[int, Transformer], None] | None = None,
    progress: bool = True,
) -> History:
    """Train the model; its weights end as the averaged snapshots.

    Args:
        model: trained in place, on the device where it is.
        batches: at least steps * accumulate of them.
        config: section 5 as data.
        watch: called after each step with its number, counted from
            1, and the model; the weights are those of that step.
        progress: a bar in a terminal, a few lines elsewhere.

    Returns:
        Loss and learning rate of each step.

    Raises:
        ValueError: the batches end early.

    Two runs from equal weights with equal batches and seed end with
    equal weights on one machine. The random state outside is left
    as it was.
    """
    device = next(model.parameters()).device
    optimizer = make_optimizer(model, config)
    scheduler = NoamScheduler(
        optimizer,
        model.config.d_model,
        warmup_steps=config.warmup_steps,
        factor=config.factor,
    )
    criterion = LabelSmoothingLoss(
        config.label_smoothing, model.config.pad_id
    )
    stream = (batch.to(device) for batch in batches)
    snapshots: deque = deque(maxlen=config.average_last or None)
    history = History()
    model.train()
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        for step in report(config.steps, history, progress):
            group = take(stream, config.accumulate, step)
            history.rate.append(optimizer.param_groups[0]["lr"])
            history.loss.append(accumulate(model, criterion, group))
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            if watch:
                watch(step, model)
            left = config.steps - step
            if config.average_last > 1 and not (
                left % config.snapshot_every
            ):
                snapshots.append(snapshot(model))
    if snapshots:
        model.load_state_dict(average(list(snapshots)))
    return history


def make_optimizer(model: nn.Module, config: TrainingConfig) -> Adam:
    """Section 5.3's Adam. Its rate is the scheduler's to set."""
    return Adam(
        model.parameters(),
        betas=config.betas,
        eps=config.adam_eps,
        fused=True,
    )


def accumulate(
    model: Transformer,
    criterion: Callable[[Tensor, Tensor], Tensor],
    batches: list[Batch],
) -> float:
    """Add up the gradients of several batches as if they were one.

    Each batch counts by its share of the real target tokens, so that
    neither padding nor the cut into batches matters.

    Returns:
        The mean loss a real token over all of them.
    """
    pad_id = model.config.pad_id
    pairs = [(batch.source, *shift(batch.target)) for batch in batches]
    real = [(gold != pad_id).sum().item() for _, _, gold in pairs]
    total = 0.0
    for (source, target_in, gold), tokens in zip(
        pairs, real, strict=True
    ):
        loss = criterion(model(source, target_in), gold)
        share = loss * (tokens / max(sum(real), 1))
        share.backward()
        total += share.item()
    return total


def take(stream: Iterator[Batch], count: int, step: int) -> list[Batch]:
    """The next `count` batches."""
    taken = list(islice(stream, count))
    if len(taken) < count:
        raise ValueError(
            f"the batches ended in step {step}: {count} a step are"
            " needed for every step of the configuration"
        )
    return taken


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the weights as they are now."""
    state = model.state_dict()
    return {name: tensor.clone() for name, tensor in state.items()}


def report(
    steps: int, history: History, progress: bool
) -> Iterator[int]:
    """Count the steps from 1, saying how far the training is."""
    terminal = progress and sys.stderr.isatty()
    bar = tqdm(range(1, steps + 1), unit="step", disable=not terminal)
    for step in bar:
        yield step
        if terminal:
            bar.set_postfix(loss=f"{history.loss[-1]:.2g}")
        elif progress and step % -(-steps // 5) == 0:
            print(
                f"step {step} of {steps}: loss {history.loss[-1]:.2g}"
            )
