"""Section 6.1: weights saved, found again, and averaged."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from transformer.config import TransformerConfig
from transformer.files import write_then_rename
from transformer.model import Transformer

State = dict[str, Tensor]


def average(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor over several state dicts.

    Args:
        states: of one model at several steps, oldest first.

    Returns:
        A state dict of new tensors. Means are taken in float64 and
        cast back. Tensors that are not floating point are taken from
        the last state.

    Raises:
        ValueError: no states, or states of different models.
    """
    if not states:
        raise ValueError("no states to average: give one at least")
    last = states[-1]
    for state in states:
        if shapes(state) != shapes(last):
            odd = dict(shapes(state).items() ^ shapes(last).items())
            raise ValueError(
                "the states are not of one model; they differ in"
                f" {', '.join(sorted(odd))}"
            )
    return {
        name: mean([state[name] for state in states])
        if tensor.is_floating_point()
        else tensor.clone()
        for name, tensor in last.items()
    }


def mean(tensors: Sequence[Tensor]) -> Tensor:
    """The mean, summed in float64, in the dtype that came."""
    total = torch.zeros_like(tensors[0], dtype=torch.float64)
    for tensor in tensors:
        total += tensor
    return (total / len(tensors)).to(tensors[0].dtype)


def shapes(state: State) -> dict[str, torch.Size]:
    """Name and shape of every tensor."""
    return {name: tensor.shape for name, tensor in state.items()}


def save_weights(model: Transformer, path: Path | str) -> None:
    """Write weights and configuration as one safetensors file."""
    about = {"config": json.dumps(model.config.to_dict())}
    with write_then_rename(Path(path)) as draft:
        save_file(without_aliases(model.state_dict()), draft, about)


def without_aliases(state: State) -> State:
    """Each tensor under one of its names: the tied matrix has three."""
    names = {tensor.data_ptr(): name for name, tensor in state.items()}
    return {name: state[name].contiguous() for name in names.values()}


def load_weights(
    path: Path | str, dtype: torch.dtype = torch.float32
) -> Transformer:
    """The model that `save_weights` wrote, in evaluation mode.

    Args:
        dtype: of the weights here, whatever it is in the file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no such model.
    """
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
        config = TransformerConfig(**json.loads(about["config"]))
        model = Transformer(config).to(dtype)
        fill(model, load_file(path))
    except (SafetensorError, KeyError, TypeError, RuntimeError) as e:
        raise ValueError(f"{path}: no weights of this book: {e}") from e
    return model.eval()


def fill(model: Transformer, state: State) -> None:
    """Load weights that `without_aliases` has thinned out.

    Raises:
        KeyError: they are not those of this model.
    """
    missing, left_over = model.load_state_dict(state, strict=False)
    needed = without_aliases(model.state_dict()).keys()
    if odd := [*needed & missing, *left_over]:
        raise KeyError(f"missing or left over: {', '.join(odd)}")


def save_checkpoint(
    folder: Path, state: dict, config: dict, keep: int
) -> Path:
    """Write a training state; drop all but the newest `keep`.

    Args:
        folder: made where it is missing.
        state: from `Trainer.state`.
        config: what the run is; `load_checkpoint` compares it.
        keep: at least 1.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{state['step']:08d}.pt"
    with write_then_rename(path) as draft:
        torch.save({"config": json.dumps(config), **state}, draft)
    for old in checkpoints(folder)[:-keep]:
        old.unlink()
    return path


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    return sorted(folder.glob("step-*.pt"))


def load_checkpoint(path: Path, config: dict | None = None) -> dict:
    """Read a training state, on the CPU.

    Args:
        path: what `save_checkpoint` wrote.
        config: refuse a state that was written under another.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no checkpoint, or of another configuration,
            whose differences are named.
    """
    try:
        state = torch.load(
            path, map_location="cpu", mmap=True, weights_only=True
        )
        state["config"] = before = json.loads(state["config"])
    except (pickle.UnpicklingError, RuntimeError, KeyError) as e:
        raise ValueError(f"{path}: no checkpoint: {e}") from e
    if config is not None and (odd := differences(before, config)):
        raise ValueError(f"{path} is of another run: {'; '.join(odd)}")
    return state


def differences(before: dict, now: dict) -> list[str]:
    """Where two configurations differ, in words."""
    # As JSON holds them, so that a tuple equals a list.
    now = json.loads(json.dumps(now))
    return [
        f"{name} was {before.get(name)!r}, now {now.get(name)!r}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]


def average_files(paths: list[Path], out: Path) -> None:
    """Average checkpoints or safetensors files into one of the latter.

    Checkpoints are mapped into memory, not read into it: one tensor
    after another is averaged.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: no files, or not of one model.
    """
    if not paths:
        raise ValueError("no files to average: give one at least")
    model = read_model(paths[0])
    fill(model, average([read_state(path) for path in paths]))
    save_weights(model, out)


def read_state(path: Path) -> State:
    """The weights of a checkpoint or of a safetensors file.

    Raises:
        OSError, ValueError: as `read_model` does.
    """
    if path.suffix == ".safetensors":
        return without_aliases(load_weights(path).state_dict())
    return without_aliases(load_checkpoint(path)["model"])


def read_model(path: Path) -> Transformer:
    """The model of a checkpoint or of a safetensors file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is neither.
    """
    if path.suffix == ".safetensors":
        return load_weights(path)
    state = load_checkpoint(path)
    model = Transformer(TransformerConfig(**state["config"]["model"]))
    fill(model, without_aliases(state["model"]))
    return model.eval()
