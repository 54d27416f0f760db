"""The slow, obvious version of each part, for the checks.

Written apart from `transformer`: loops and float64, straight from
the paper. Nothing here is fast, and nothing here is shared with what
it checks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Equation 1, one query at a time; any leading axes.

    A query that may attend to nothing gets zeros.
    """
    query, key, value = query.double(), key.double(), value.double()
    queries, keys = query.size(-2), key.size(-2)
    leading = query.shape[:-2]
    if mask is None:
        mask = torch.ones(queries, keys, dtype=torch.bool)
    mask = mask.expand(*leading, queries, keys)
    output = value.new_zeros(*leading, queries, value.size(-1))
    for place in torch.cartesian_prod(
        *(torch.arange(n) for n in (*leading, queries))
    ).view(-1, len(leading) + 1):
        *batch, i = place.tolist()
        batch = tuple(batch)
        allowed = [j for j in range(keys) if mask[(*batch, i, j)]]
        if not allowed:
            continue
        scores = [
            float(query[(*batch, i)] @ key[(*batch, j)]) / math.sqrt(key.size(-1))
            for j in allowed
        ]
        top = max(scores)
        powers = [math.exp(score - top) for score in scores]
        for j, power in zip(allowed, powers, strict=True):
            share = power / sum(powers)
            output[(*batch, i)] += share * value[(*batch, j)]
    return output


def heads(
    weights: dict[str, Tensor],
    count: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    """Section 3.2.2: one head after the other, then W^O.

    Args:
        weights: "query", "key", "value", "output", each (out, in) as
            in nn.Linear; biases, if any, as "query_bias" and so on.
        count: h, the number of heads.
        query, key, value: (batch, length, d_model).
        mask: broadcasts to (batch, heads, query, key).
    """
    w = {name: tensor.double() for name, tensor in weights.items()}

    def project(x: Tensor, name: str) -> Tensor:
        return x.double() @ w[name].T + w.get(f"{name}_bias", 0.0)

    q, k, v = (
        project(x, name)
        for x, name in (
            (query, "query"),
            (key, "key"),
            (value, "value"),
        )
    )
    if mask is not None:
        mask = mask.expand(len(q), count, q.size(1), k.size(1))
    d_k, d_v = k.size(-1) // count, v.size(-1) // count
    done = [
        attention(
            q[..., h * d_k : (h + 1) * d_k],
            k[..., h * d_k : (h + 1) * d_k],
            v[..., h * d_v : (h + 1) * d_v],
            None if mask is None else mask[:, h],
        )
        for h in range(count)
    ]
    return project(torch.cat(done, dim=-1), "output")


def feed_forward(w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, x: Tensor) -> Tensor:
    """Equation 2, one position at a time; w1 and w2 are (out, in)."""
    rows = []
    for row in x.double().reshape(-1, x.size(-1)):
        hidden = w1.double() @ row + b1.double()
        hidden = hidden * (hidden > 0)
        rows.append(w2.double() @ hidden + b2.double())
    return torch.stack(rows).view(*x.shape[:-1], -1)


def normalise(x: Tensor, eps: float = 1e-6) -> Tensor:
    """LayerNorm with gain 1 and bias 0: biased variance."""
    x = x.double()
    mean = x.sum(-1, keepdim=True) / x.size(-1)
    variance = ((x - mean) ** 2).sum(-1, keepdim=True) / x.size(-1)
    return (x - mean) / (variance + eps).sqrt()


def positions(length: int, d_model: int) -> Tensor:
    """Section 3.5's two formulas, entry by entry."""
    table = torch.empty(length, d_model, dtype=torch.float64)
    for pos in range(length):
        for i in range(d_model // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            table[pos, 2 * i] = math.sin(angle)
            table[pos, 2 * i + 1] = math.cos(angle)
    return table


def smoothed_loss(
    logits: Tensor, target: Tensor, smoothing: float, pad_id: int
) -> Tensor:
    """Cross-entropy with the target distribution written out."""
    classes = logits.size(-1)
    losses = []
    for row, gold in zip(
        logits.double().reshape(-1, classes),
        target.reshape(-1).tolist(),
        strict=True,
    ):
        if gold == pad_id:
            continue
        wanted = torch.full_like(row, smoothing / (classes - 1))
        wanted[gold] = 1 - smoothing
        losses.append(-(wanted * row.log_softmax(-1)).sum())
    return torch.stack(losses).mean()


def rate(step: int, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """Equation 3, in the two pieces that it is made of."""
    if step < warmup_steps:
        shape = step / warmup_steps**1.5
    else:
        shape = 1 / math.sqrt(step)
    return factor * shape / math.sqrt(d_model)


def recurrence(x: Tensor, weight: Tensor) -> Tensor:
    """h_t = tanh([x_t, h_(t-1)] W) for x of (n, d), weight of (2d, d)."""
    state = torch.zeros(x.size(-1), dtype=torch.float64)
    states = []
    for given in x.double():
        both = [*given, *state]
        state = sum(part * row for part, row in zip(both, weight.double(), strict=True))
        state = torch.tanh(state)
        states.append(state)
    return torch.stack(states)


def convolution(x: Tensor, kernel: Tensor, dilation: int) -> Tensor:
    """Position i from i, i - dilation, ...; the kernel is (out, in, k)."""
    k = kernel.size(-1)
    output = torch.zeros(len(x), len(kernel), dtype=torch.float64)
    for i in range(len(x)):
        for tap in range(k):
            place = i - (k - 1 - tap) * dilation
            if place >= 0:
                output[i] += kernel[:, :, tap].double() @ x[place].double()
    return output


def multiplications(n: int, d: int, k: int, r: int) -> tuple[int, int, int, int]:
    """Table 1's four layers in loops, one multiplication at a time.

    Self-attention, recurrence, convolution, restricted attention.
    """
    attention = recurrent = convolutional = restricted = 0
    for _ in range(n):  # each position
        for _ in range(n):  # asks each other one, and mixes its value
            for _ in range(d):
                attention += 2
        for _ in range(d):  # each component of its state
            for _ in range(d):  # from the input and from the state before
                recurrent += 2
        for _ in range(d):
            for _ in range(k):  # from k positions
                for _ in range(d):
                    convolutional += 1
        for _ in range(r):
            for _ in range(d):
                restricted += 2
    return attention, recurrent, convolutional, restricted


def adam(
    gradients: Sequence[float], beta1: float, beta2: float, eps: float
) -> list[float]:
    """Adam's moves of one weight at a learning rate of 1."""
    moved = []
    for t in range(1, len(gradients) + 1):
        mean = square = 0.0
        for i in range(1, t + 1):  # each gradient so far, by its age
            mean += (1 - beta1) * beta1 ** (t - i) * gradients[i - 1]
            square += (1 - beta2) * beta2 ** (t - i) * gradients[i - 1] ** 2
        mean /= 1 - beta1**t
        square /= 1 - beta2**t
        moved.append(-mean / (math.sqrt(square) + eps))
    return moved


def flops(
    layers: int,
    d_model: int,
    d_ff: int,
    vocab_size: int,
    pairs: int,
    source: int,
    target: int,
) -> int:
    """A forward pass, product by product: (rows, inner, columns)."""

    def attention(asking: int, asked: int) -> list[tuple[int, int, int]]:
        square = d_model, d_model
        return [
            (asking, *square),  # queries
            (asked, *square),  # keys
            (asked, *square),  # values
            (asking, d_model, asked),  # scores, over all heads
            (asking, asked, d_model),  # sums of values
            (asking, *square),  # output
        ]

    def network(tokens: int) -> list[tuple[int, int, int]]:
        return [(tokens, d_model, d_ff), (tokens, d_ff, d_model)]

    products = [(target, d_model, vocab_size)]
    for _ in range(layers):
        products += attention(source, source) + network(source)
        products += attention(target, target) + attention(target, source)
        products += network(target)
    total = 0
    for rows, inner, columns in products:
        total += 2 * rows * inner * columns
    return pairs * total
