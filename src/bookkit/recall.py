"""Recall a letter that stands some way back: what distance costs.

A sequence of random letters ends with a question; the answer is one
of the letters. Two tasks:

    "steps"   the question says how many steps back. A letter may be
              asked from every distance, so all must be kept.
    "marked"  one letter is marked, and the question asks for that
              one, wherever it stands. One letter must be kept.

Two models of one width and nearly equal parameters answer: a layer of
the book's attention under a causal mask, and an LSTM.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer import (
    AddAndNorm,
    EncoderLayer,
    MultiHeadAttention,
    PositionalEncoding,
    PositionwiseFeedForward,
    TokenEmbedding,
    causal_mask,
)
from transformer.variants import NormAndAdd

LETTERS = 16
WIDTH = 32


def questions(
    task: str,
    count: int,
    longest: int,
    generator: torch.Generator,
    distance: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Fresh sequences and their answers.

    Args:
        task: "steps" or "marked".
        longest: letters before the question, the longest distance.
        distance: of the answer, in all sequences; drawn evenly from 1
            to `longest` if None.

    Returns:
        ids (count, longest + 1), answers (count,). Letters are 0 to
        15, marked ones 16 to 31; the question is 15 plus the number
        of steps, or 32.
    """
    ids = torch.randint(LETTERS, (count, longest + 1), generator=generator)
    back = torch.randint(1, longest + 1, (count, 1), generator=generator)
    if distance is not None:
        back.fill_(distance)
    place = longest - back
    answer = ids.gather(1, place)
    if task == "marked":
        ids.scatter_(1, place, answer + LETTERS)
        ids[:, longest] = 2 * LETTERS
    else:
        ids[:, longest] = LETTERS - 1 + back[:, 0]
    return ids, answer[:, 0]


def vocabulary(task: str, longest: int) -> int:
    """How many ids the task has."""
    return 2 * LETTERS + 1 if task == "marked" else LETTERS + longest


class Attention(nn.Module):
    """Layers of the book's encoder that may look back only.

    Args:
        vocab_size: ids that may come in.
        layers: one is enough to answer.
        window: how many positions a query sees, itself included; all
            before it if None.
        connect: the connection around a sub-layer.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        layers: int = 1,
        window: int | None = None,
        connect: type[nn.Module] = AddAndNorm,
        longest: int = 256,
    ) -> None:
        super().__init__()
        self.embed = TokenEmbedding(vocab_size, WIDTH)
        self.positions = PositionalEncoding(WIDTH, longest + 1)
        self.layers = nn.ModuleList(
            EncoderLayer(
                MultiHeadAttention(WIDTH, heads=2),
                PositionwiseFeedForward(WIDTH, 2 * WIDTH),
                lambda: connect(WIDTH, dropout=0.0),
            )
            for _ in range(layers)
        )
        pre_norm = connect is NormAndAdd
        self.final_norm = nn.LayerNorm(WIDTH) if pre_norm else nn.Identity()
        self.answer = nn.Linear(WIDTH, LETTERS)
        self.window = window

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (batch, LETTERS) for the answer."""
        return self.read(self.embed(ids))

    def read(self, x: Tensor) -> Tensor:
        """From embedded ids to logits."""
        x, mask = self.positions(x), causal_mask(x.size(1))
        if self.window:
            mask = mask.triu(1 - self.window)
        for layer in self.layers:
            x = layer(x, mask)
        return self.answer(self.final_norm(x)[:, -1])


class Recurrent(nn.Module):
    """An LSTM, and the state after the question.

    Args:
        vocab_size: ids that may come in.
        forget_bias: what is added to the bias of its forget gates;
            above 0 it forgets less at the start.
    """

    def __init__(self, vocab_size: int, *, forget_bias: float = 0.0) -> None:
        super().__init__()
        self.embed = TokenEmbedding(vocab_size, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        with torch.no_grad():  # gates: input, forget, candidate, output
            self.lstm.bias_hh_l0[WIDTH : 2 * WIDTH] += forget_bias
        self.answer = nn.Linear(WIDTH, LETTERS)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (batch, LETTERS) for the answer."""
        return self.read(self.embed(ids))

    def read(self, x: Tensor) -> Tensor:
        """From embedded ids to logits."""
        return self.answer(self.lstm(x)[0][:, -1])


def make(kind: str, task: str, longest: int, seed: int, **shape) -> nn.Module:
    """ "attention" or "lstm", untrained; the random state is left alone."""
    model = {"attention": Attention, "lstm": Recurrent}[kind]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return model(vocabulary(task, longest), **shape)


def train(
    model: nn.Module,
    task: str,
    longest: int,
    seed: int,
    *,
    steps: int,
    rate: float,
    warmup: int = 50,
    batch: int = 64,
    distance: int | None = None,
    watch: Callable[[int], None] = lambda step: None,
) -> None:
    """Adam on fresh questions, gradients clipped to norm 1.

    The rate rises evenly over `warmup` steps, then stays. `distance`
    is that of all questions, drawn for each if None; `watch` is
    called after each step.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = rate * min(1, step / warmup)
        ids, answer = questions(task, batch, longest, generator, distance)
        F.cross_entropy(model(ids), answer).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        watch(step)


@torch.no_grad()
def accuracy(
    model: nn.Module, task: str, longest: int, distance: int, count: int = 500
) -> float:
    """Share of right answers, on questions that training does not draw."""
    generator = torch.Generator().manual_seed(1_000_000 + distance)
    ids, answer = questions(task, count, longest, generator, distance)
    return (model(ids).argmax(-1) == answer).double().mean().item()


def gradient_norms(
    model: nn.Module, task: str, longest: int, count: int = 200
) -> list[float]:
    """How much the logits depend on the letter 1, 2, ... steps back.

    For each distance the norm of the gradient of one logit, of a
    random mixture of them, by the embedded letter; the mean over
    questions. All distances are asked alike.
    """
    generator = torch.Generator().manual_seed(2_000_000)
    ids, _ = questions(task, count, longest, generator)
    x = model.embed(ids).detach().requires_grad_()
    mixture = torch.randn(LETTERS, generator=generator) / LETTERS**0.5
    (slope,) = torch.autograd.grad((model.read(x) @ mixture).sum(), x)
    return slope[:, :longest].norm(dim=-1).mean(0).flip(0).tolist()
