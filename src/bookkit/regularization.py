"""Section 5.4: where dropout falls, and what a smoothed loss asks for.

`smoothed_target` is part of `bookkit.check`; see there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bookkit.report import Exam, Report
from transformer import training
from transformer.config import PAD

# Where dropout could fall, in the order in which a token meets it.
PLACES = (
    "embedding sums",
    "attention weights",
    "attention output",
    "inside feed-forward",
    "feed-forward output",
)


def dropouts(
    model: nn.Module, source: Tensor, target_in: Tensor
) -> list[tuple[str, float]]:
    """Every dropout of one training pass: in which module, at what rate.

    All calls of the framework's two functions that drop something
    are listened to, whatever module makes them.

    Returns:
        (name of the module, rate) in order; rates of 0 as well.
    """
    running, found = [""], []
    plain, fused = F.dropout, F.scaled_dot_product_attention

    def dropout(x, p=0.5, training=True, inplace=False):
        found.append((running[-1], p if training else 0.0))
        return plain(x, p, training, inplace)

    def attention(*inputs, dropout_p=0.0, **named):
        found.append((running[-1], dropout_p))
        return fused(*inputs, dropout_p=dropout_p, **named)

    hooks = []
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(F, "dropout", dropout))
        stack.enter_context(
            mock.patch.object(F, "scaled_dot_product_attention", attention)
        )
        for name, part in model.named_modules():
            hooks += [
                part.register_forward_pre_hook(
                    lambda *_, name=name: running.append(name)
                ),
                part.register_forward_hook(lambda *_: running.pop() and None),
            ]
        training = model.training
        with torch.no_grad(), torch.random.fork_rng():
            model.train()(source, target_in)
        model.train(training)
    for hook in hooks:
        hook.remove()
    return found


def by_place(found: Sequence[tuple[str, float]]) -> dict[str, int]:
    """How many dropouts above rate 0 fall in each of `PLACES`."""
    counts = Counter(place(name) for name, rate in found if rate)
    return {name: counts[name] for name in PLACES}


def place(name: str) -> str:
    """Which of `PLACES` a module of the book's model stands for."""
    if name == "dropout":
        return "embedding sums"
    if "around_feed_forward" in name:
        return "feed-forward output"
    if "around_" in name:
        return "attention output"
    return "inside feed-forward" if "feed_forward" in name else "attention weights"


def asked_for(loss: Callable, gold: Tensor, classes: int) -> Tensor:
    """The target distributions that a loss asks for, by its gradient.

    The gradient of a cross-entropy with respect to the logits is
    softmax minus target, divided by the number of tokens that count.

    Args:
        loss: (logits, gold) -> a mean over real tokens.
        gold: (tokens,) of ids, `PAD` among them.

    Returns:
        (tokens, classes); zeros where there is no gradient at all.
    """
    logits = torch.zeros(1, len(gold), classes, dtype=torch.float64)
    with torch.enable_grad():
        logits.requires_grad_()
        (slope,) = torch.autograd.grad(loss(logits, gold[None]), logits)
    real = (gold != PAD).sum()
    target = logits.detach().softmax(-1) - real * slope
    return torch.where((slope == 0).all(-1, keepdim=True), 0.0, target)[0]


def our_target(gold: Tensor, classes: int, smoothing: float) -> Tensor:
    """What the book's loss asks for."""
    return asked_for(training.LabelSmoothingLoss(smoothing, PAD), gold, classes)


def smoothed_target(
    mine: Callable, *, call: Callable[..., Tensor] | None = None
) -> Report:
    """Section 5.4: the distribution that each token is compared with.

    Args:
        mine: your function.
        call: (mine, gold, classes, smoothing) -> (tokens, classes),
            where your signature differs from mine(gold, classes,
            smoothing). Padding has the id 0: its rows are 0, and its
            class gets the share of any other.

    Raises:
        CheckFailed: with the smallest failing example.
    """
    call = call or (lambda f, *given: f(*given))
    exam = Exam(
        "loss", lambda *given: torch.as_tensor(call(mine, *given)).double(), our_target
    )
    for statement, gold, classes, smoothing in (
        ("no smoothing: all for the gold token", [2], 3, 0.0),
        ("a vocabulary of 5, smoothing 0.2", [3], 5, 0.2),
        ("two tokens, the paper's 0.1", [3, 1], 6, 0.1),
        ("rows of padding are 0", [2, 0, 0], 5, 0.2),
    ):
        given = dict(gold=torch.tensor(gold), classes=classes, smoothing=smoothing)
        exam.equal(statement, given, written_out(gold, classes, smoothing))
    return exam.close()


def written_out(gold: Sequence[int], classes: int, smoothing: float) -> Tensor:
    """The target distributions, entry by entry."""
    rows = []
    for token in gold:
        share = smoothing / (classes - 1)
        row = [1 - smoothing if c == token else share for c in range(classes)]
        rows.append([0.0] * classes if token == PAD else row)
    return torch.tensor(rows, dtype=torch.float64)
