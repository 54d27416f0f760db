"""One sentence pair, followed through the chapters.

A small model with random weights, always the same: d_model is 8, so
that every vector fits on a line. Nothing here has been trained; what
its attention does means nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

import transformer

SOURCE = ["save", "the", "file", "<eos>"]
TARGET_IN = ["<bos>", "die", "Datei", "speichern"]
TARGET_OUT = ["die", "Datei", "speichern", "<eos>"]
VOCABULARY = ["<pad>", "<bos>", "<eos>", *SOURCE[:3], *TARGET_IN[1:]]


def ids(tokens: list[str]) -> Tensor:
    """Token ids, (1, length): a batch of one sentence."""
    return torch.tensor([[VOCABULARY.index(token) for token in tokens]])


def model() -> transformer.Transformer:
    """Two layers, two heads, d_model 8; in evaluation mode."""
    config = transformer.TransformerConfig(
        vocab_size=len(VOCABULARY),
        layers=2,
        d_model=8,
        d_ff=16,
        heads=2,
        dropout=0.0,
        max_length=16,
    )
    with torch.random.fork_rng():
        torch.manual_seed(2017)
        return transformer.Transformer(config).eval()
