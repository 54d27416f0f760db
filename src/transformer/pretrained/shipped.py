"""The model that comes with the book."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from importlib.resources import as_file, files
from pathlib import Path

from transformer.checkpoints import load_weights
from transformer.data.tokenizer import BytePairEncoding
from transformer.model import Transformer

SHIPPED = {"help-en-de": "help_en_de"}  # name: folder beside this file


def load(
    name: str = "help-en-de",
) -> tuple[Transformer, BytePairEncoding]:
    """A model that comes with the book, and its tokenizer.

    The weights are stored in half precision; here they are float32.

    Args:
        name: "help-en-de", English to German, help pages of an
            office suite. Its model card says how it was trained.

    Raises:
        FileNotFoundError: its weights are not in this installation.
        ValueError: no model has that name.
    """
    with folder_of(name) as folder:
        weights = folder / "model.safetensors"
        if not weights.exists():
            raise FileNotFoundError(
                f"the weights of {name} are not here; in a clone,"
                " python experiments/translation_model.py trains them"
            )
        tokenizer = BytePairEncoding.load(folder / "tokenizer.json")
        return load_weights(weights), tokenizer


def training_log(name: str = "help-en-de") -> list[dict]:
    """What was measured while such a model trained, step by step.

    Each entry has "step" and either "loss" (a token of the training
    batches, smoothed), "rate" and "tokens_per_second", or
    "perplexity", "accuracy" and "bleu" on validation sentences.

    Raises:
        ValueError: no model has that name.
    """
    with folder_of(name) as folder:
        lines = (folder / "metrics.jsonl").read_text("utf-8")
    return [json.loads(line) for line in lines.splitlines()]


def folder_of(name: str) -> AbstractContextManager[Path]:
    """Where the files of a model lie, while the context is open."""
    if name not in SHIPPED:
        raise ValueError(
            f"name={name!r} must be one of"
            f" {', '.join(map(repr, SHIPPED))}"
        )
    return as_file(files("transformer.pretrained") / SHIPPED[name])
