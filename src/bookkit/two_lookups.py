"""Two look-ups at once: the smallest task on which one head can fail.

A sequence holds symbols in places. A question names two places, in
order; the answer is what stands in the first and what stands in the
second. One attention fetches both, in one layer as the paper has it,
so that nothing but the number of heads differs from one run to the
next. Section 3.2.2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import transformer
from transformer.attention import recording

SYMBOLS = 16  # different ones
PLACES = 8  # in a sequence
WIDTH = 32  # d_model, the same for any number of heads


class TwoLookups(nn.Module):
    """One attention, add and normalise; then the same around a network.

    Args:
        heads: h, at equal width.
        lookups: how many places a question names: 2, or 1.
        network: False leaves the feed-forward sub-layer out, so that
            the answer is read from the attention's output by a linear
            map.
    """

    def __init__(self, heads: int, lookups: int = 2, network: bool = True) -> None:
        super().__init__()
        self.symbols = nn.Embedding(SYMBOLS, WIDTH)
        self.places = nn.Embedding(PLACES, WIDTH)
        self.asked = nn.ModuleList(nn.Embedding(PLACES, WIDTH) for _ in range(lookups))
        self.attention = transformer.MultiHeadAttention(WIDTH, heads)
        self.around_attention = transformer.AddAndNorm(WIDTH, dropout=0.0)
        self.network = None
        if network:
            self.network = transformer.PositionwiseFeedForward(WIDTH, 4 * WIDTH)
            self.around_network = transformer.AddAndNorm(WIDTH, dropout=0.0)
        self.answer = nn.Linear(WIDTH, lookups * SYMBOLS)

    def forward(self, sequence: Tensor, asked: Tensor) -> Tensor:
        """Logits (batch, lookups, SYMBOLS).

        Args:
            sequence: symbols, (batch, PLACES).
            asked: places, (batch, lookups).
        """
        x = self.symbols(sequence) + self.places.weight
        named = zip(self.asked, asked.T, strict=True)
        query = sum(embed(place) for embed, place in named)[:, None]
        y = self.around_attention(query, lambda q: self.attention(q, x, x))
        if self.network is not None:
            y = self.around_network(y, self.network)
        return self.answer(y[:, 0]).unflatten(-1, (len(self.asked), SYMBOLS))


def questions(count: int, lookups: int, generator: torch.Generator):
    """Fresh sequences, different places asked for, right answers."""
    sequence = torch.randint(SYMBOLS, (count, PLACES), generator=generator)
    order = torch.rand(count, PLACES, generator=generator).argsort(dim=1)
    asked = order[:, :lookups]
    return sequence, asked, sequence.gather(1, asked)


def learn(
    heads: int,
    seed: int,
    *,
    lookups: int = 2,
    network: bool = True,
    steps: int = 1000,
) -> TwoLookups:
    """Train from a seed, on 128 fresh questions a step.

    Adam at rate 3e-3, the same for any number of heads; 0 steps give
    the untrained model.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = TwoLookups(heads, lookups, network)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        sequence, asked, answer = questions(128, lookups, generator)
        logits = model(sequence, asked)
        F.cross_entropy(logits.flatten(0, 1), answer.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


@torch.no_grad()
def accuracy(model: TwoLookups, seed: int) -> float:
    """Share of 4,096 fresh questions answered right, in full."""
    sequence, asked, answer = fresh(model, seed)
    right = model(sequence, asked).argmax(-1) == answer
    return right.all(-1).double().mean().item()


@torch.no_grad()
def weights_on_asked(model: TwoLookups, seed: int) -> Tensor:
    """What each head gives the places asked for: (4096, heads, lookups)."""
    sequence, asked, _ = fresh(model, seed)
    weights = attention_weights(model, sequence, asked)
    return weights.gather(2, asked[:, None].expand(-1, weights.size(1), -1))


@torch.no_grad()
def attention_weights(model: TwoLookups, sequence: Tensor, asked: Tensor) -> Tensor:
    """The weights over places, (batch, heads, PLACES)."""
    with recording([model.attention]):
        model(sequence, asked)
        return model.attention.weights[:, :, 0]


def fresh(model: TwoLookups, seed: int):
    """4,096 questions that the model has not seen."""
    generator = torch.Generator().manual_seed(2**31 + seed)
    return questions(4096, len(model.asked), generator)


def looked_at(model: TwoLookups, seed: int) -> float:
    """How well both places are looked at, mean over fresh questions.

    Each place gets the weight of the head that gives it most; the
    lower of the two counts. A single head gives 1 to all places
    together, so that it cannot come above 0.5.
    """
    on_asked = weights_on_asked(model, seed)
    return on_asked.amax(dim=1).amin(dim=1).double().mean().item()


def accuracies(runs: list[dict]) -> dict[str, list[float]]:
    """Of recorded runs: for each case a share of right answers a seed."""
    cases = runs[0]["accuracy"]
    return {case: [run["accuracy"][case] for run in runs] for case in cases}


def by_outcome(runs: list[dict]) -> dict[str, list[dict]]:
    """Recorded runs whose single head fails, and whose head solves the task."""
    groups = {"fails": [], "solves": []}
    for run in runs:
        groups["solves" if run["accuracy"]["1 head"] > 0.99 else "fails"].append(run)
    return groups


def shares(runs: list[dict]) -> tuple[list[float], list[float]]:
    """What a single head gives the places asked for: the less, the more."""
    both = [sorted(run["weights_on_asked"]["1 head"][0]) for run in runs]
    return [less for less, _ in both], [more for _, more in both]


def lost(given: Tensor, wanted: Tensor) -> float:
    """Share of the variance of `wanted` that the best linear map misses."""
    best = torch.linalg.lstsq(given, wanted, driver="gelsd").solution
    missed = (given @ best - wanted).square().mean() / wanted.square().mean()
    return round(missed.item(), 9)  # nothing is a plain 0
