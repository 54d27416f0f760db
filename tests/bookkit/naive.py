"""A Transformer's parts as somebody else might write them.

Other names, other shapes inside, loops where ours has none: none of
this takes anything from `transformer`. All eight parts of a reader's
own, for `use`.
"""

import math

import torch
from torch import nn


def dot_attention(q, k, v, mask=None):
    scores = torch.einsum("...qd,...kd->...qk", q, k) / math.sqrt(q.shape[-1])
    if mask is not None:
        bias = torch.zeros_like(scores)
        scores = scores + bias.masked_fill(~mask, torch.finfo(q.dtype).min)
    top = scores.amax(dim=-1, keepdim=True)
    powers = torch.exp(scores - top)
    return torch.einsum("...qk,...kd->...qd", powers / powers.sum(-1, keepdim=True), v)


class Heads(nn.Module):
    """A list of heads with projections of their own."""

    def __init__(self, width, count):
        super().__init__()
        size = width // count
        self.wq = nn.ModuleList(nn.Linear(width, size) for _ in range(count))
        self.wk = nn.ModuleList(nn.Linear(width, size) for _ in range(count))
        self.wv = nn.ModuleList(nn.Linear(width, size) for _ in range(count))
        self.wo = nn.Linear(width, width)

    def forward(self, q, k, v, mask=None):
        if mask is not None and mask.dim() == 4:
            mask = mask[:, 0]
        parts = [
            dot_attention(wq(q), wk(k), wv(v), mask)
            for wq, wk, wv in zip(self.wq, self.wk, self.wv, strict=True)
        ]
        return self.wo(torch.cat(parts, dim=-1))


def read_heads(module):
    """For `check.heads(weights=...)`."""
    read = {"output": module.wo.weight, "output_bias": module.wo.bias}
    for name, maps in (
        ("query", module.wq),
        ("key", module.wk),
        ("value", module.wv),
    ):
        read[name] = torch.cat([m.weight for m in maps])
        read[f"{name}_bias"] = torch.cat([m.bias for m in maps])
    return read


def see_tokens(ids, pad_id):
    batch, length = ids.shape
    mask = torch.zeros(batch, 1, 1, length, dtype=torch.bool)
    for b in range(batch):
        mask[b, :, :, ids[b] != pad_id] = True
    return mask


def see_past(length, device=None):
    rows = torch.arange(length, device=device)
    return rows[None, :] <= rows[:, None]


class TwoConvolutions(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up = nn.Conv1d(width, inner, 1)
        self.down = nn.Conv1d(inner, width, 1)

    def forward(self, x):
        y = self.up(x.transpose(1, 2))
        return self.down(torch.where(y > 0, y, 0.0)).transpose(1, 2)


def read_convolutions(module):
    """For `check.feed_forward(weights=...)`."""
    up, down = module.up, module.down
    return up.weight[..., 0], up.bias, down.weight[..., 0], down.bias


class Table(nn.Module):
    """One-hot vectors times a matrix."""

    def __init__(self, vocab_size, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, width) / width**0.5)

    def forward(self, ids):
        one_hot = nn.functional.one_hot(ids, len(self.weight))
        return one_hot.to(self.weight.dtype) @ self.weight * self.weight.shape[1] ** 0.5


class Waves(nn.Module):
    """exp of logs in place of powers, a leading axis of size 1."""

    def __init__(self, width, longest):
        super().__init__()
        table = torch.zeros(1, longest, width)
        place = torch.arange(longest).float().unsqueeze(1)
        rate = torch.exp(
            torch.arange(0, width, 2).float() * -(math.log(10000.0) / width)
        )
        table[0, :, 0::2] = torch.sin(place * rate)
        table[0, :, 1::2] = torch.cos(place * rate)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[:, : x.shape[1]]


class Encode(nn.Module):
    def __init__(self, attend, network, connect):
        super().__init__()
        self.attend, self.network = attend, network
        self.first, self.second = connect(), connect()

    def forward(self, x, mask):
        def look(y):
            return self.attend(y, y, y, mask)

        return self.second(self.first(x, look), self.network)


class Decode(nn.Module):
    def __init__(self, attend, look_up, network, connect):
        super().__init__()
        self.attend, self.look_up, self.network = attend, look_up, network
        self.wraps = nn.ModuleList(connect() for _ in range(3))

    def forward(self, x, memory, target_mask, memory_mask):
        steps = (
            lambda y: self.attend(y, y, y, target_mask),
            lambda y: self.look_up(y, memory, memory, memory_mask),
            self.network,
        )
        for wrap, step in zip(self.wraps, steps, strict=True):
            x = wrap(x, step)
        return x


class SumThenNorm(nn.Module):
    """LayerNorm by hand."""

    def __init__(self, width, dropout=0.0):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x, step):
        y = x + self.drop(step(x))
        y = y - y.mean(-1, keepdim=True)
        variance = (y * y).mean(-1, keepdim=True)
        return self.gain * y * torch.rsqrt(variance + 1e-6) + self.shift


class WrittenOutLoss(nn.Module):
    """The target distribution as a tensor."""

    def __init__(self, smoothing, pad_id):
        super().__init__()
        self.smoothing, self.pad_id = smoothing, pad_id

    def forward(self, logits, target):
        classes = logits.shape[-1]
        logits, target = logits.reshape(-1, classes), target.reshape(-1)
        wanted = torch.full_like(logits, self.smoothing / (classes - 1))
        wanted.scatter_(1, target[:, None], 1 - self.smoothing)
        losses = -(wanted * torch.log_softmax(logits, dim=-1)).sum(-1)
        return losses[target != self.pad_id].mean()


class WarmUp:
    """No scheduler of the framework's: sets the rate by hand."""

    def __init__(self, optimizer, width, warmup_steps=4000, factor=1.0):
        self.optimizer, self.width = optimizer, width
        self.warmup_steps, self.factor, self.done = warmup_steps, factor, 0
        self.step()

    def step(self):
        self.done += 1
        ramp = self.done / self.warmup_steps**1.5
        rate = min(ramp, 1 / math.sqrt(self.done)) / math.sqrt(self.width)
        for group in self.optimizer.param_groups:
            group["lr"] = self.factor * rate


ALL_PARTS = dict(
    scaled_dot_product_attention=dot_attention,
    MultiHeadAttention=Heads,
    padding_mask=see_tokens,
    causal_mask=see_past,
    PositionwiseFeedForward=TwoConvolutions,
    TokenEmbedding=Table,
    PositionalEncoding=Waves,
    EncoderLayer=Encode,
    DecoderLayer=Decode,
    AddAndNorm=SumThenNorm,
    LabelSmoothingLoss=WrittenOutLoss,
    NoamScheduler=WarmUp,
)

# What `check.in_use` must be told about them.
OPTIONS = dict(
    heads=dict(weights=read_heads),
    feed_forward=dict(weights=read_convolutions),
)
