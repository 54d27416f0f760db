"""Section 5.2: the processes that train one model together.

`torchrun` starts them and tells each its number through the
environment. Without it there is one process, number 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed


@dataclass(frozen=True)
class Processes:
    """This process among those that train together.

    Args:
        rank: its number; number 0 writes the files.
        count: how many there are.
        device: where its model is.
    """

    rank: int
    count: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def share(self) -> slice:
        """Of any list, what this process does."""
        return slice(self.rank, None, self.count)

    def add_up(self, *numbers: int | float) -> list[float]:
        """Each number's sum over all processes, in each of them."""
        sums = torch.tensor(numbers, dtype=torch.float64)
        if self.count > 1:
            sums = sums.to(self.device)
            distributed.all_reduce(sums)
        return sums.tolist()

    def wait(self) -> None:
        """Go on when all have come here."""
        if self.count > 1:
            distributed.barrier()


@contextmanager
def joined(device: str = "auto") -> Iterator[Processes]:
    """Meet the other processes; part from them at the end.

    Args:
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
            Each process of a machine takes a GPU of its own.

    Raises:
        ValueError: another device, or no GPU for this process.
    """
    count = int(os.environ.get("WORLD_SIZE", 1))
    rank = int(os.environ.get("RANK", 0))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    chosen = choose_device(device, local_rank)
    if count == 1:
        yield Processes(0, 1, chosen)
        return
    # Long enough for number 0 to encode all of WMT14.
    distributed.init_process_group(
        "nccl" if chosen.type == "cuda" else "gloo",
        timeout=timedelta(hours=2),
    )
    try:
        yield Processes(rank, count, chosen)
    finally:
        distributed.destroy_process_group()


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """A device by its name.

    Raises:
        ValueError: another name, or no such GPU.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(
            f"device={name!r} must be 'auto', 'cpu' or 'cuda'"
        )
    found = torch.cuda.device_count()
    if name == "cpu" or (name == "auto" and not found):
        return torch.device("cpu")
    if local_rank >= found:
        raise ValueError(
            f"process {local_rank} of this machine has no GPU of its"
            f" own: {found} found"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
