"""Section 5 at full size: steps that can be saved and shared.

`training.train` is the loop in its plain form. Here is what a run of
days needs around it: several processes, mixed precision, a loss in
chunks, and a state from which it goes on to the very bit.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from transformer.chunked_loss import ChunkedLoss
from transformer.config import TrainingConfig
from transformer.data.batches import Batch, shift
from transformer.data.streams import Stream, mix
from transformer.model import Transformer
from transformer.processes import Processes
from transformer.training import (
    LabelSmoothingLoss,
    NoamScheduler,
    make_optimizer,
)

PRECISIONS = ("float32", "bfloat16", "float64")


@dataclass(frozen=True)
class Step:
    """What came of a step.

    Args:
        loss: summed over the real tokens of this process, as a
            tensor, so that no GPU is waited for.
        tokens: real target tokens, of all processes.
        stop: whether any process has been asked to stop.
    """

    loss: Tensor
    tokens: int
    stop: bool


class Objective(nn.Module):
    """A model and its loss in one module: what is differentiated."""

    def __init__(self, model: Transformer, loss: ChunkedLoss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(
        self, source: Tensor, target_in: Tensor, gold: Tensor
    ) -> Tensor:
        """The mean loss a real token of one batch."""
        model = self.model
        source_mask, target_mask, memory_mask = model.build_masks(
            source, target_in
        )
        memory = model.encode(source, source_mask)
        hidden = model.decode(
            target_in, memory, target_mask, memory_mask
        )
        return self.loss(hidden, gold, model.output_projection)


class Trainer:
    """Takes one step after another.

    Args:
        model: trained in place; moved to the processes' device.
        stream: where the batches come from; config.accumulate of
            them make a step, shared among the processes.
        config: section 5 as data.
        processes: those that train this model together.
        precision: "float32"; "bfloat16" for the products, with
            weights and loss in float32; or "float64".
        compiled: let torch.compile translate model and loss.
        chunk: tokens that go through the loss together.

    Raises:
        ValueError: another precision, or a step's batches cannot be
            shared evenly.

    Dropout in a batch is a function of seed, step and the batch's
    place in the step. So it is the same after a resume, and for any
    number of processes.
    """

    def __init__(
        self,
        model: Transformer,
        stream: Stream,
        config: TrainingConfig,
        processes: Processes,
        *,
        precision: str = "float32",
        compiled: bool = False,
        chunk: int = 1024,
    ) -> None:
        if precision not in PRECISIONS:
            raise ValueError(
                f"precision={precision!r} must be one of"
                f" {', '.join(map(repr, PRECISIONS))}"
            )
        if config.accumulate % processes.count:
            raise ValueError(
                f"accumulate={config.accumulate} batches cannot be"
                f" shared evenly by {processes.count} processes"
            )
        self.config = config
        self.stream = stream
        self.processes = processes
        self.precision = precision
        wide = precision == "float64"
        self.model = model.to(
            processes.device, torch.float64 if wide else torch.float32
        )
        self.model.train()
        smoothed = LabelSmoothingLoss(
            config.label_smoothing, model.config.pad_id
        )
        objective = Objective(model, ChunkedLoss(smoothed, chunk))
        if processes.count > 1:
            objective = DistributedDataParallel(objective)
        self.objective = objective
        if compiled:
            # One program for every length of a batch.
            self.objective = torch.compile(objective, dynamic=True)
        self.optimizer = make_optimizer(model, config)
        self.scheduler = NoamScheduler(
            self.optimizer,
            model.config.d_model,
            warmup_steps=config.warmup_steps,
            factor=config.factor,
        )
        self.done = 0

    @property
    def rate(self) -> float:
        """The learning rate of the coming step."""
        return self.optimizer.param_groups[0]["lr"]

    def step(self, stop: bool = False) -> Step:
        """Update the weights once.

        Args:
            stop: whether this process has been asked to stop.
        """
        share = self.processes.share()
        batches = self.stream.take(self.config.accumulate, share)
        places = range(self.config.accumulate)[share]
        own = sum(map(self.real_tokens, batches))
        tokens, stopping = self.processes.add_up(own, stop)
        loss = torch.zeros((), device=self.processes.device).double()
        for place, batch in zip(places, batches, strict=True):
            torch.manual_seed(mix(self.config.seed, self.done, place))
            last = place == places[-1]
            loss += self._differentiate(batch, tokens, last=last)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.done += 1
        return Step(loss, int(tokens), stopping > 0)

    def _differentiate(
        self, batch: Batch, tokens: float, *, last: bool
    ) -> Tensor:
        """Add a batch's part to the gradients; return its loss.

        The processes exchange gradients once a step, with the last
        batch, and take their mean where the sum is wanted.
        """
        real = self.real_tokens(batch)
        share = real * self.processes.count / max(tokens, 1)
        batch = batch.to(self.processes.device)
        target_in, gold = shift(batch.target)
        with nullcontext() if last else self._no_exchange():
            with self._mixed_precision():
                loss = self.objective(batch.source, target_in, gold)
            (loss * share).backward()
        return loss.detach() * real

    def _no_exchange(self):
        no_sync = getattr(self.objective, "no_sync", nullcontext)
        return no_sync()

    @contextmanager
    def _mixed_precision(self):
        if self.precision != "bfloat16":
            yield
            return
        kind = self.processes.device.type
        with torch.autocast(kind, dtype=torch.bfloat16):
            if kind != "cpu":
                yield
                return
            # On CPU the fused kernel's backward pass is slow in
            # bfloat16, for sentences of some 20 tokens.
            with sdpa_kernel(SDPBackend.MATH):
                yield

    def real_tokens(self, batch: Batch) -> int:
        """Target tokens of a batch that count in the loss."""
        gold = batch.target[:, 1:]
        return int((gold != self.model.config.pad_id).sum())

    def state(self) -> dict:
        """All that the coming steps depend on."""
        return {
            "step": self.done,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "stream": self.stream.position(),
        }

    def load(self, state: dict) -> None:
        """Go on from a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.stream.go_to(state["stream"])
        self.done = state["step"]
