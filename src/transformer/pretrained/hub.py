"""Finds a model's files: in a folder here, or by name at a hub."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

NAME = re.compile(r"[\w.-]+/[\w.-]+")


class NotHere(OSError):
    """A model that is no folder here and cannot be fetched."""


def folder_of(
    name: Path | str, small: tuple[str, ...], weights: tuple[str, ...]
) -> Path:
    """The folder that holds a model's files.

    Args:
        name: a folder, or OWNER/MODEL at huggingface.co. What was
            fetched once is found again without a network.
        small: files to fetch, as far as they are there.
        weights: files of which the first that is there is fetched.

    Raises:
        NotHere: saying what to do.
        ImportError: `huggingface_hub` is needed and not installed.
    """
    if Path(name).is_dir():
        return Path(name)
    if not NAME.fullmatch(str(name)):
        raise NotHere(
            f"{name} is no folder here, and no name of the form"
            " OWNER/MODEL, such as Helsinki-NLP/opus-mt-en-de"
        )
    try:
        from huggingface_hub import hf_hub_download, snapshot_download
        from huggingface_hub.errors import EntryNotFoundError
    except ImportError as error:
        raise ImportError(
            f"to fetch {name}, install huggingface_hub:"
            " pip install sentencepiece huggingface_hub"
        ) from error
    try:
        # Without a network this finds what was fetched before.
        found = snapshot_download(str(name), allow_patterns=[*small])
        if any(Path(found, file).exists() for file in weights):
            return Path(found)
        for file in weights:
            with suppress(EntryNotFoundError):
                hf_hub_download(str(name), file)
                return Path(found)
        raise FileNotFoundError(f"it has no {' or '.join(weights)}")
    except Exception as error:  # of its HTTP library, of the system
        raise NotHere(
            f"{name} is no folder here and could not be fetched from"
            " huggingface.co. Is there a network, and is the name"
            f" right? Where there is one, `hf download {name}"
            " --local-dir FOLDER` fetches it; then give FOLDER in the"
            f" place of the name. What went wrong: {first_line(error)}"
        ) from error


def first_line(error: Exception) -> str:
    """An exception in one line, with its type."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}".removesuffix(": ")
