"""Adam, section 5.3: what it makes of a stream of gradients.

`moves` runs the book's optimizer, one weight a column; the others say
in closed form what must come out. Moves are in learning rates: the
rate is 1 throughout. `adam` is part of `bookkit.check`; see there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from bookkit import reference
from bookkit.report import Exam, Report
from transformer import training
from transformer.config import TrainingConfig
from transformer.data.toy import SymbolTask
from transformer.recipes import toy_model, train_toy


def moves(
    gradients: Tensor, beta1: float = 0.9, beta2: float = 0.98, eps: float = 1e-9
) -> Tensor:
    """How far each step of the book's optimizer moves each weight.

    Args:
        gradients: (steps, weights), or (steps,) of a single weight.

    Returns:
        The same shape in float64; the sign is against the gradient.
    """
    gradients = gradients.double()
    holder = nn.Module()
    holder.weight = nn.Parameter(torch.zeros_like(gradients[0]))
    config = TrainingConfig(betas=(beta1, beta2), adam_eps=eps)
    optimizer = training.make_optimizer(holder, config)
    for group in optimizer.param_groups:
        group["lr"] = 1.0
    made = []
    for gradient in gradients:
        before = holder.weight.detach().clone()
        holder.weight.grad = gradient.clone()
        optimizer.step()
        made.append(holder.weight.detach() - before)
    return torch.stack(made)


def in_training(
    task: SymbolTask, seed: int, steps: int, beta2: float = 0.98
) -> list[float]:
    """How far all weights of a toy model move, in learning rates.

    Returns:
        The root mean square over the weights, for each step.
    """

    def weights(model: nn.Module) -> Tensor:
        parts = [part.detach().flatten() for part in model.parameters()]
        return torch.cat(parts)

    seen = [weights(toy_model(task, seed))]
    _, history = train_toy(
        task,
        seed,
        watch=lambda step, model: seen.append(weights(model)),
        progress=False,
        steps=steps,
        betas=(0.9, beta2),
        average_last=0,
    )
    pairs = zip(seen, seen[1:], history.rate, strict=False)
    return [
        (after - before).square().mean().sqrt().item() / rate
        for before, after, rate in pairs
    ]


def noise_alone(step: int, beta1: float = 0.9) -> float:
    """Typical move, as a root mean square, if signs are drawn by lot.

    Exact for gradients of one size and random sign. beta2 is not in
    it: the mean of equal squares is that square, however weighted.
    """
    return math.sqrt((1 - beta1) / (1 + beta1) * (1 + beta1**step) / (1 - beta1**step))


def largest(step: int, beta1: float = 0.9, beta2: float = 0.98) -> float:
    """The furthest that any stream of gradients can move a weight.

    By the inequality of Cauchy and Schwarz, with both corrections.
    """
    share = beta1**2 / beta2
    reach = (1 - beta1) / math.sqrt(1 - beta2)
    reach *= math.sqrt((1 - share**step) / (1 - share))
    return reach * math.sqrt(1 - beta2**step) / (1 - beta1**step)


def worst_gradients(steps: int, beta1: float = 0.9, beta2: float = 0.98) -> Tensor:
    """The stream whose last move is the largest: growing, one sign."""
    age = torch.arange(steps - 1, -1, -1, dtype=torch.float64)
    return (beta1 / beta2) ** age


def adam(mine: Callable, *, call: Callable[..., Sequence] | None = None) -> Report:
    """Section 5.3: Adam's moves of one weight, in learning rates.

    Args:
        mine: your function.
        call: (mine, gradients, beta1, beta2, eps) -> the move of each
            step, where your signature differs from mine(gradients,
            beta1, beta2, eps). Gradients are a list of numbers. A
            move is against the gradient; the learning rate is 1.

    Raises:
        CheckFailed: with the smallest failing example.
    """
    call = call or (lambda f, *given: f(*given))
    exam = Exam(
        "Adam",
        lambda *given: [float(move) for move in call(mine, *given)],
        lambda *given: our_moves(*given),
    )
    for statement, gradients, beta2 in (
        ("the first step is one learning rate", [0.5], 0.98),
        ("so it is for a tiny gradient", [1e-6], 0.98),
        ("a second step, smaller gradient", [0.5, 0.1], 0.98),
        ("the sign changes", [0.5, -0.1, 0.2], 0.98),
        ("a gradient of 0 comes first", [0.0, 1.0], 0.98),
        ("beta2 = 0.999", [1.0, 0.01, 0.01], 0.999),
    ):
        given = dict(gradients=gradients, beta1=0.9, beta2=beta2, eps=1e-9)
        exam.equal(statement, given, reference.adam(*given.values()))
    return exam.close()


def our_moves(gradients: Sequence[float], *constants: float) -> list[float]:
    """What the book's optimizer does."""
    stream = torch.tensor(gradients, dtype=torch.float64)
    return moves(stream, *constants).tolist()
