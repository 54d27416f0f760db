"""Look a key up: the smallest task on which attention can fail.

A sequence holds pairs of a key and a value; a query names one of the
keys; the answer is its value. One attention without heads answers, so
that nothing but its scores differs from one run to the next. Section
3.2.1 compares three ways to score.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SYMBOLS = 64  # different keys, and different values
PAIRS = 16  # in a sequence
WIDTH = 64  # of the vectors for keys and values


def scaled(query: Tensor, key: Tensor) -> Tensor:
    """q.k / sqrt(d_k): the paper's scores.

    Args:
        query: (batch, query, d_k).
        key: (batch, key, d_k).

    Returns:
        Scores (batch, query, key).
    """
    return query @ key.transpose(-2, -1) / math.sqrt(key.size(-1))


def unscaled(query: Tensor, key: Tensor) -> Tensor:
    """q.k: the same without its divisor."""
    return query @ key.transpose(-2, -1)


class Additive(nn.Module):
    """v . tanh(q + k): a network with one hidden layer of width d_k.

    The projections W_q and W_k of Bahdanau's form stand before it, as
    they do before a dot product.
    """

    def __init__(self, d_k: int) -> None:
        super().__init__()
        self.v = nn.Parameter(torch.randn(d_k) / math.sqrt(d_k))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores (batch, query, key), as `scaled` gives them."""
        pairs = query.unsqueeze(-2) + key.unsqueeze(-3)
        return torch.tanh(pairs) @ self.v


def make_scores(kind: str, d_k: int) -> Callable[[Tensor, Tensor], Tensor]:
    """ "scaled", "unscaled" or "additive", by name."""
    if kind == "additive":
        return Additive(d_k)
    return {"scaled": scaled, "unscaled": unscaled}[kind]


class LookUp(nn.Module):
    """Query and keys projected to d_k, values taken as they are.

    Projections start from N(0, 1 / width): a query's and a key's
    components then have variance 1, as the paper's footnote assumes.
    """

    def __init__(self, kind: str, d_k: int) -> None:
        super().__init__()
        self.keys = nn.Embedding(SYMBOLS, WIDTH)
        self.values = nn.Embedding(SYMBOLS, WIDTH)
        self.project_query = nn.Linear(WIDTH, d_k, bias=False)
        self.project_key = nn.Linear(WIDTH, d_k, bias=False)
        for projection in (self.project_query, self.project_key):
            nn.init.normal_(projection.weight, std=WIDTH**-0.5)
        self.scores = make_scores(kind, d_k)
        self.answer = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, key: Tensor, value: Tensor, query: Tensor) -> Tensor:
        """Logits (batch, SYMBOLS) for the value that is asked for.

        Args:
            key, value: ids, (batch, PAIRS).
            query: ids, (batch,).
        """
        q = self.project_query(self.keys(query)[:, None])
        k = self.project_key(self.keys(key))
        weights = self.scores(q, k).softmax(dim=-1)
        return self.answer((weights @ self.values(value))[:, 0])


def questions(count: int, generator: torch.Generator):
    """Fresh sequences: keys, values, queries and right answers."""
    order = torch.rand(count, SYMBOLS, generator=generator).argsort(dim=1)
    key = order[:, :PAIRS]
    value = torch.randint(SYMBOLS, (count, PAIRS), generator=generator)
    asked = torch.randint(PAIRS, (count, 1), generator=generator)
    return (
        key,
        value,
        key.gather(1, asked)[:, 0],
        value.gather(1, asked)[:, 0],
    )


def learn(kind: str, d_k: int, seed: int, steps: int = 200) -> float:
    """Train from a seed; return the accuracy on 4,096 fresh questions.

    Args:
        kind: "scaled", "unscaled" or "additive".
        d_k: width of queries and keys.
        seed: of weights and questions.
        steps: of Adam at rate 1e-3, 128 questions each.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LookUp(kind, d_k)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        *given, answer = questions(128, generator)
        F.cross_entropy(model(*given), answer).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        *given, answer = questions(4096, generator)
        right = model(*given).argmax(-1) == answer
    return right.double().mean().item()
