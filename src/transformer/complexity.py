"""Section 4: what a layer costs, and how far it leaves positions apart.

Table 1's rows, counted for the layers in `table1.py` and one
sequence. The table gives orders; these are exact: multiplications in
matrix products, and nothing for a softmax or a tanh.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from transformer.config import TransformerConfig


@dataclass(frozen=True)
class Cost:
    """A row of Table 1, for one layer.

    Attributes:
        operations: multiplications in its matrix products.
        sequential: matrix products that have to wait for each other.
        path: how many layers, or steps of a recurrence, lie between
            the first position and the last.
    """

    operations: int
    sequential: int
    path: int | float


def self_attention(n: int, d: int) -> Cost:
    """n queries ask n keys, and mix n values."""
    scores = n * n * d
    sums = n * n * d
    return Cost(scores + sums, sequential=2, path=1)


def recurrent(n: int, d: int) -> Cost:
    """n steps, each from an input and a state to the next state."""
    step = (d + d) * d
    return Cost(n * step, sequential=n, path=n)


def convolutional(n: int, d: int, k: int, growth: int = 1) -> Cost:
    """A kernel of k positions; each layer's gaps `growth` as wide.

    1 is a stack of contiguous kernels, k the dilated one of Table 1.
    """
    path = layers_to_reach(n - 1, lambda i: (k - 1) * growth**i)
    return Cost(n * k * d * d, sequential=1, path=path)


def restricted(n: int, d: int, r: int) -> Cost:
    """n queries ask r keys each, and mix r values."""
    scores = n * r * d
    sums = n * r * d
    path = layers_to_reach(n - 1, lambda i: r - 1)
    return Cost(scores + sums, sequential=2, path=path)


def layers_to_reach(
    distance: int, reach: Callable[[int], int]
) -> int | float:
    """How many layers, if layer i looks `reach(i)` positions back.

    Infinitely many, if they look at their own position alone.
    """
    if distance > 0 and reach(0) < 1:
        return math.inf
    layers = covered = 0
    while covered < distance:
        covered += reach(layers)
        layers += 1
    return layers


def encoder_layer(n: int, d: int, d_ff: int) -> dict[str, int]:
    """Multiplications of a whole encoder layer, by part.

    Table 1 counts the last of the three alone.
    """
    return {
        "projections": 4 * n * d * d,
        "feed-forward": 2 * n * d * d_ff,
        "attention": self_attention(n, d).operations,
    }


def lstm(n: int, d: int) -> Cost:
    """An LSTM: three gates and a candidate, where Table 1 has one."""
    plain = recurrent(n, d)
    return Cost(4 * plain.operations, plain.sequential, plain.path)


# --- steps that have to wait for each other ---------------------------

Needs = Mapping[Hashable, Iterable[Hashable]]


def dependent_steps(
    needs: Needs, counts: Callable[[Hashable], bool] = lambda _: True
) -> int:
    """The longest chain of steps in which each needs the one before.

    Args:
        needs: for each step the steps whose results it takes. A step
            stands after those; what stands nowhere is given.
        counts: which steps count; the others take no time.
    """
    longest: dict[Hashable, int] = {}
    for step, earlier in needs.items():
        before = [longest.get(other, 0) for other in earlier]
        longest[step] = max(before, default=0) + counts(step)
    return max(longest.values(), default=0)


def recorded_steps(output: Tensor) -> dict:
    """How an output was computed, as autograd has recorded it."""
    needs: dict = {}
    waiting = [output.grad_fn]
    while waiting:
        step = waiting[-1]
        earlier = [other for other, _ in step.next_functions if other]
        missing = [other for other in earlier if other not in needs]
        if missing:
            waiting += missing
        else:
            needs[waiting.pop()] = earlier
    return needs


def is_product(step) -> bool:
    """Whether a recorded step is a matrix product."""
    kinds = ("MmBackward", "AddmmBackward", "BmmBackward")
    return step.name().startswith((*kinds, "ConvolutionBackward"))


def dependent_products(output: Tensor) -> int:
    """Matrix products behind an output that wait for each other."""
    return dependent_steps(recorded_steps(output), is_product)


# --- what training costs, section 5.2 and Table 2 ---------------------


def forward_flops(
    config: TransformerConfig, pairs: int, source: int, target: int
) -> dict[str, int]:
    """Floating-point operations of one forward pass, by part.

    Those in matrix products, a multiplication and its addition being
    two. Norms, softmax, dropout and look-ups are left out.

    Args:
        config: of the model.
        pairs: how many sentence pairs the batch has.
        source, target: tokens of a sentence, its padding included.
    """
    c, s, t = config, source, target
    network = 2 * c.d_model * c.d_ff
    own, other = projections(c, t, t), projections(c, t, s)
    once = {
        "encoder attention": c.layers * projections(c, s, s),
        "encoder feed-forward": c.layers * s * network,
        "decoder attention": c.layers * (own + other),
        "decoder feed-forward": c.layers * t * network,
        "scores and sums": c.layers
        * (scores(c, s, s) + scores(c, t, t) + scores(c, t, s)),
        "output projection": t * c.d_model * c.target_vocab_size,
    }
    return {part: 2 * pairs * count for part, count in once.items()}


def projections(
    config: TransformerConfig, asking: int, asked: int
) -> int:
    """Multiplications of W^Q and W^O, and of W^K and W^V."""
    heads = config.heads * (config.d_k + config.d_v)
    return (asking + asked) * config.d_model * heads


def scores(config: TransformerConfig, asking: int, asked: int) -> int:
    """Multiplications of Q K^T, and of the weights and V."""
    return asking * asked * config.heads * (config.d_k + config.d_v)


def training_flops(
    config: TransformerConfig, pairs: int, source: int, target: int
) -> int:
    """Operations of one training step: three times the forward pass.

    On the way back each product becomes two: one gives the gradient
    of what went in, one that of the weights.
    """
    forward = forward_flops(config, pairs, source, target)
    return 3 * sum(forward.values())
