"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def write_then_rename(path: Path) -> Iterator[Path]:
    """Write to the path that this gives; it is renamed at the end.

    Whoever opens `path` finds the old file or the new one, whole,
    also where the process or the machine dies on the way. A failure
    leaves the old one and no draft.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def remove_drafts(folder: Path) -> None:
    """Delete what a process that died was writing."""
    for draft in folder.glob("*.draft"):
        draft.unlink(missing_ok=True)
