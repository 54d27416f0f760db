"""Section 5, as a command: checkpoints, progress, stop and resume."""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from transformer.checkpoints import (
    checkpoints,
    differences,
    load_checkpoint,
    save_checkpoint,
    save_weights,
)
from transformer.data.streams import mix
from transformer.files import remove_drafts, write_then_rename
from transformer.material import Material, Run, gather
from transformer.model import Transformer
from transformer.processes import Processes
from transformer.trainer import Step, Trainer


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """When a run reports, validates and saves; no weight depends on it.

    Args:
        report_every: steps between lines of metrics.
        validate_every: steps between validations; 0 for none.
        save_every: steps between checkpoints.
        save_minutes: save also when so long has passed; 0 for never.
        keep: checkpoints that stay.
        bleu_sentences: how many of the validation pairs are
            translated; 0 for no BLEU.

    Raises:
        ValueError: naming the field, its value and the rule.
    """

    report_every: int = 50
    validate_every: int = 1000
    save_every: int = 1000
    save_minutes: float = 10.0
    keep: int = 5
    bleu_sentences: int = 200

    def __post_init__(self) -> None:
        for name in ("report_every", "save_every", "keep"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be at least 1"
                )


def train_to(
    out: Path,
    run: Run,
    schedule: Schedule,
    processes: Processes,
    *,
    resume: bool = False,
    compiled: bool = False,
) -> int:
    """Train as `run` says, and leave everything in a folder.

    Args:
        out: gets config.json, tokenizer.json, train.safetensors (the
            encoded data), checkpoints/, metrics.jsonl and, at the
            end, model.safetensors.
        run: what the weights depend on.
        schedule: when to report, validate and save.
        processes: those that train together.
        resume: go on from the newest checkpoint in `out`, or from
            the start where there is none.
        compiled: use torch.compile.

    Returns:
        0, or the number of the signal that stopped the run. What was
        done until then is saved.

    Raises:
        FileExistsError: `out` holds a run and `resume` is False, or
            files of something else.
        FloatingPointError: the loss is not a number any more.
        OSError, ValueError: bad data, another configuration than
            the run in `out` has.
    """
    enter(out, run, resume, processes)
    data = gather(run, out, processes, schedule.bleu_sentences)
    gpus = [processes.device] if processes.device.type == "cuda" else []
    with torch.random.fork_rng(gpus):
        torch.manual_seed(mix(run.training.seed, "weights"))
        trainer = Trainer(
            Transformer(run.model(data.vocab_size)),
            data.stream,
            run.training,
            processes,
            precision=run.precision,
            compiled=compiled,
        )
        logbook = Logbook(out, run, schedule, trainer, data)
        logbook.open()
        stopped_by = go(trainer, run.training.steps, logbook)
    if processes.is_first and not stopped_by:
        save_weights(trainer.model, out / "model.safetensors")
    return stopped_by


def enter(
    out: Path, run: Run, resume: bool, processes: Processes
) -> None:
    """Make the folder, or see that it holds this very run."""
    described = out / "config.json"
    if processes.is_first:
        if described.exists():
            if not resume:
                raise FileExistsError(
                    f"{out} holds a run already: resume it, or choose"
                    " another folder"
                )
            before = json.loads(described.read_text(encoding="utf-8"))
            if odd := differences(before, run.to_dict()):
                raise ValueError(
                    f"{out} holds another run: {'; '.join(odd)}"
                )
        elif out.exists() and any(out.iterdir()):
            raise FileExistsError(
                f"{out} holds files, but no run: choose another folder"
            )
        out.mkdir(parents=True, exist_ok=True)
        remove_drafts(out)
        remove_drafts(out / "checkpoints")
        with write_then_rename(described) as draft:
            draft.write_text(
                json.dumps(run.to_dict(), indent=1) + "\n",
                encoding="utf-8",
            )
    processes.wait()


class Logbook:
    """What a run leaves behind on the way; written by process 0."""

    def __init__(
        self,
        out: Path,
        run: Run,
        schedule: Schedule,
        trainer: Trainer,
        data: Material,
    ) -> None:
        self.folder = out / "checkpoints"
        self.metrics = out / "metrics.jsonl"
        self.schedule = schedule
        self.trainer = trainer
        self.data = data
        self.steps = run.training.steps
        self.about = run.to_dict() | {
            "model": trainer.model.config.to_dict(),
            "fingerprint": data.fingerprint,
        }
        self.is_first = trainer.processes.is_first
        self.start_again()
        self.saved_at = time.monotonic()

    def start_again(self) -> None:
        """Count loss, tokens and seconds from here."""
        self.loss: torch.Tensor | float = 0.0
        self.tokens = 0
        self.since = time.monotonic()

    def open(self) -> None:
        """Go on from the newest checkpoint, if there is one."""
        if found := checkpoints(self.folder):
            self.trainer.load(load_checkpoint(found[-1], self.about))
        if self.is_first:
            self.forget_after(self.trainer.done)
            self.say(f"{self.data.facts}; step {self.trainer.done}")

    def forget_after(self, step: int) -> None:
        """Drop metrics of steps that will be taken again."""
        if not self.metrics.exists():
            return
        kept = []
        for line in self.metrics.read_text("utf-8").splitlines(True):
            # The last line of a process that died may be half a line.
            if line.endswith("\n") and json.loads(line)["step"] <= step:
                kept.append(line)
        with write_then_rename(self.metrics) as draft:
            draft.write_text("".join(kept), encoding="utf-8")

    def note(self, step: Step, last: bool) -> None:
        """Take a step down; report, validate and save when due."""
        self.loss = self.loss + step.loss.double()
        self.tokens += step.tokens
        done, plan = self.trainer.done, self.schedule
        if last or done % plan.report_every == 0:
            self.report()
        every = plan.validate_every
        if every and (done % every == 0 or done == self.steps):
            self.validate()
        minutes = (time.monotonic() - self.saved_at) / 60
        late = 0 < plan.save_minutes <= minutes
        if last or late or done % plan.save_every == 0:
            self.save()

    def report(self) -> None:
        """Mean loss a real token since the last report, and speed."""
        own = float(self.loss)
        (loss,) = self.trainer.processes.add_up(own)
        loss /= max(self.tokens, 1)
        self.refuse(loss)
        speed = self.tokens / (time.monotonic() - self.since)
        self.write(
            loss=loss, rate=self.trainer.rate, tokens_per_second=speed
        )
        self.start_again()

    def validate(self) -> None:
        """The metrics of the data that is kept apart."""
        if self.is_first and self.data.validate:
            self.write(**self.data.validate(self.trainer.model))

    def save(self) -> None:
        """Write a checkpoint."""
        if self.is_first:
            self.refuse(float(self.loss))
            save_checkpoint(
                self.folder,
                self.trainer.state(),
                self.about,
                self.schedule.keep,
            )
        self.saved_at = time.monotonic()

    def refuse(self, loss: float) -> None:
        """Stop before a broken state replaces a sound one."""
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} at step {self.trainer.done}; the"
                f" checkpoints in {self.folder} are from before"
            )

    def write(self, **values: float) -> None:
        """Add a line to the metrics, and show it."""
        if not self.is_first:
            return
        line = {"step": self.trainer.done, **values}
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.say(
            f"step {self.trainer.done} of {self.steps}: "
            + ", ".join(f"{k} {v:.4g}" for k, v in values.items())
        )

    def say(self, text: str) -> None:
        """Print a line, above the progress bar."""
        tqdm.write(text, file=sys.stderr)


def go(trainer: Trainer, steps: int, logbook: Logbook) -> int:
    """Take the steps that are left.

    Returns:
        0, or the number of the signal that ended it before the last.
    """
    terminal = logbook.is_first and sys.stderr.isatty()
    bar = tqdm(
        initial=trainer.done,
        total=steps,
        unit="step",
        disable=not terminal,
    )
    with bar, asked_to_stop() as asked:
        while trainer.done < steps:
            step = trainer.step(stop=bool(asked))
            logbook.note(step, step.stop or trainer.done == steps)
            bar.update()
            if step.stop and trainer.done < steps:
                return asked[0] if asked else signal.SIGTERM
    return 0


@contextmanager
def asked_to_stop() -> Iterator[list[int]]:
    """A list that holds the signal once Ctrl-C or SIGTERM came.

    A second signal does what it always does.
    """
    asked: list[int] = []
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM)
    }

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def remember(number: int, frame: object) -> None:
        asked.append(number)
        restore()

    for number in before:
        signal.signal(number, remember)
    try:
        yield asked
    finally:
        restore()
