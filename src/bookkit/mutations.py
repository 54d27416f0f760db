"""Known mistakes, as code that runs.

Each is a variant of one part of `transformer`, a few lines long, put
in place by the mechanism of `use`. The suite proves that the checks
catch every one; the checks use them to name a mistake.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam

import transformer
from bookkit.using import replaced
from transformer import complexity, decoding, encoder_decoder, table1, training
from transformer.variants import NormAndAdd, sinusoids


@dataclass(frozen=True)
class Mutation:
    """One mistake.

    Attributes:
        name: for tables and reports.
        part: the check that looks at the mutated part.
        says: the mistake in words.
        objects: what stands in place of what, for `replaced`.
        equivalent: true if no observation can tell it apart, and why
            stands in `says`.
    """

    name: str
    part: str
    says: str
    objects: dict[str, Any]
    equivalent: bool = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within it, `transformer` makes the mistake."""
        with replaced(**self.objects):
            yield


MUTATIONS: dict[str, Mutation] = {}


def of(part: str) -> list[Mutation]:
    """The mistakes of one part, as `Mutation.part` names it."""
    return [m for m in MUTATIONS.values() if m.part == part]


def applied(name: str):
    """`with mutations.applied("no_causal_mask"): ...`

    Raises:
        KeyError: no mistake of that name.
    """
    return MUTATIONS[name].applied()


def add(part: str, name: str, says: str, *, equivalent=False, **objects: Any) -> None:
    """Register a mistake."""
    MUTATIONS[name] = Mutation(name, part, says, objects, equivalent)


# --- attention, section 3.2.1 ------------------------------------------


def attention_with(
    *,
    scale: Callable[[Tensor], float] = lambda key: key.size(-1) ** -0.5,
    fill: float = -math.inf,
    axis: int = -1,
    polarity: bool = True,
    keep_nan: bool = False,
    mask_last: bool = False,
) -> Callable:
    """The printed equation with one thing about it changed."""

    def scaled_dot_product_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        *,
        dropout: float = 0.0,
        return_weights: bool = False,
    ):
        scores = query @ key.transpose(-2, -1) * scale(key)
        blocked = torch.tensor(False)
        if mask is not None:
            blocked = ~mask if polarity else mask
        if not mask_last:
            scores = scores.masked_fill(blocked, fill)
        weights = scores.softmax(dim=axis)
        if mask_last:
            weights = weights.masked_fill(blocked, 0.0)
        if not keep_nan:
            weights = weights.nan_to_num(0.0)
        output = F.dropout(weights, dropout) @ value
        return (output, weights) if return_weights else output

    return scaled_dot_product_attention


def attention_mistake(name: str, says: str, **change: Any) -> None:
    """Register a changed equation."""
    function = attention_with(**change)
    add("attention", name, says, scaled_dot_product_attention=function)


attention_mistake(
    "no_scaling",
    "scores are not divided by sqrt(d_k)",
    scale=lambda key: 1.0,
)
attention_mistake(
    "scale_by_d_k",
    "scores are divided by d_k, not by its square root",
    scale=lambda key: 1 / key.size(-1),
)
attention_mistake(
    "scale_inverted",
    "scores are multiplied by sqrt(d_k)",
    scale=lambda key: key.size(-1) ** 0.5,
)
attention_mistake(
    "softmax_over_queries",
    "the softmax runs over queries, not keys",
    axis=-2,
)
attention_mistake(
    "mask_inverted",
    "the mask is read the wrong way round",
    polarity=False,
)
attention_mistake(
    "mask_fills_zero",
    "masked scores become 0, which still gets weight",
    fill=0.0,
)
attention_mistake(
    "mask_fills_1e9",
    "masked scores become -1e9, which half precision cannot hold",
    fill=-1e9,
)
attention_mistake(
    "mask_after_softmax",
    "the mask comes after the softmax: weights no longer sum to 1",
    mask_last=True,
)
attention_mistake(
    "fully_masked_is_nan",
    "a query that may attend to nothing gets NaN",
    keep_nan=True,
)


# --- heads, section 3.2.2 ----------------------------------------------


class MergeWithoutTranspose(transformer.MultiHeadAttention):
    def merge_heads(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), x.size(2), -1)


class SplitWithoutTranspose(transformer.MultiHeadAttention):
    def split_heads(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), self.heads, x.size(1), -1)


class NoTransposeAtAll(MergeWithoutTranspose):
    def split_heads(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), self.heads, x.size(1), -1)


class HeadsInnermost(transformer.MultiHeadAttention):
    def split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.heads)).movedim(-1, 1)


class ScaleByModelWidth(transformer.MultiHeadAttention):
    def keys_and_values(self, key, value, cache):
        k, v = super().keys_and_values(key, value, cache)
        width = self.project_query.in_features
        # 1/sqrt(d_k) is applied later: make it 1/sqrt(d_model).
        return k * math.sqrt(k.size(-1) / width), v


class NoOutputProjection(transformer.MultiHeadAttention):
    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.project_output = nn.Identity()


class KeysFromQueries(transformer.MultiHeadAttention):
    def forward(self, query, key, value, mask=None, *, cache=None):
        return super().forward(query, query, query, mask, cache=cache)


for name, says, heads in (
    (
        "merge_without_transpose",
        "heads are merged by a reshape without the transpose",
        MergeWithoutTranspose,
    ),
    (
        "split_without_transpose",
        "heads are split by a reshape without the transpose",
        SplitWithoutTranspose,
    ),
    (
        "no_transpose_at_all",
        "heads are split and merged by reshapes, without any transpose",
        NoTransposeAtAll,
    ),
    (
        "heads_innermost",
        "a head takes every h-th feature, not a block of d_k",
        HeadsInnermost,
    ),
    (
        "scale_by_d_model",
        "scores are divided by sqrt(d_model), not sqrt(d_k)",
        ScaleByModelWidth,
    ),
    (
        "no_output_projection",
        "heads are concatenated but W^O is missing",
        NoOutputProjection,
    ),
    (
        "keys_from_queries",
        "keys and values are taken from the query argument, so that"
        " the decoder never sees the encoder",
        KeysFromQueries,
    ),
):
    add("heads", name, says, MultiHeadAttention=heads)


# --- masks, section 3.2.3 ----------------------------------------------


def causal_with(change: Callable[[Tensor], Tensor]) -> Callable:
    """A causal mask made from a square of True."""

    def causal_mask(length: int, device=None) -> Tensor:
        square = torch.ones(length, length, dtype=torch.bool, device=device)
        return change(square)

    return causal_mask


def padding_with(change: Callable[[Tensor], Tensor]) -> Callable:
    """A padding mask made from "is no padding", (batch, key)."""

    def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
        return change(ids != pad_id)[:, None, None, :]

    return padding_mask


def queries_masked(ids: Tensor, pad_id: int) -> Tensor:
    """Hides padded queries, where padded keys should be hidden."""
    return (ids != pad_id)[:, None, :, None].expand(-1, -1, -1, ids.size(1))


add(
    "masks",
    "no_causal_mask",
    "every target position sees the whole target",
    causal_mask=causal_with(lambda square: square),
)
add(
    "masks",
    "causal_one_ahead",
    "the causal mask lets one future position through",
    causal_mask=causal_with(lambda square: square.tril(1)),
)
add(
    "masks",
    "causal_transposed",
    "the causal mask is transposed: only the future is seen",
    causal_mask=causal_with(lambda square: square.triu()),
)
add(
    "masks",
    "causal_without_self",
    "a position may not attend to itself, the first to nothing",
    causal_mask=causal_with(lambda square: square.tril(-1)),
)
add(
    "masks",
    "no_padding_mask",
    "padding may be attended to",
    padding_mask=padding_with(torch.ones_like),
)
add(
    "masks",
    "padding_mask_inverted",
    "only padding may be attended to",
    padding_mask=padding_with(torch.logical_not),
)
add(
    "masks",
    "padding_mask_hides_queries",
    "padded queries are hidden, padded keys are not",
    padding_mask=queries_masked,
)


def no_memory_mask(self, source: Tensor, target_in: Tensor):
    source_mask, target_mask, memory_mask = _build_masks(self, source, target_in)
    return source_mask, target_mask, torch.ones_like(memory_mask)


def target_padding_too(self, source: Tensor, target_in: Tensor):
    source_mask, target_mask, memory_mask = _build_masks(self, source, target_in)
    real = self.padding_mask(target_in, self.config.pad_id)
    return source_mask, target_mask & real, memory_mask


_build_masks = transformer.Transformer.build_masks
add(
    "model",
    "no_memory_mask",
    "attention over the encoder's output sees padding",
    Transformer__build_masks=no_memory_mask,
)
add(
    "model",
    "target_padding_masked_too",
    "no mistake, and its absence is none: padding on the right of a"
    " target is in the future of every real position",
    equivalent=True,
    Transformer__build_masks=target_padding_too,
)


# --- feed-forward, section 3.3 -----------------------------------------


class NoActivation(transformer.PositionwiseFeedForward):
    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(self.widen(x))


class ActivationLast(transformer.PositionwiseFeedForward):
    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.narrow(self.widen(x)))


class GeluForRelu(transformer.PositionwiseFeedForward):
    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(F.gelu(self.widen(x)))


class MixesPositions(transformer.PositionwiseFeedForward):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.activation(self.widen(x))
        return self.narrow(hidden.mean(-2, keepdim=True) + 0 * hidden)


for name, says, network in (
    ("no_relu", "ReLU is forgotten", NoActivation),
    ("relu_last", "ReLU comes after the second map", ActivationLast),
    ("gelu_for_relu", "GELU takes the place of ReLU", GeluForRelu),
    ("mixes_positions", "positions are averaged", MixesPositions),
):
    add("feed_forward", name, says, PositionwiseFeedForward=network)


# --- embedding, section 3.4 --------------------------------------------


class NotScaled(transformer.TokenEmbedding):
    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)


class ScaledDown(transformer.TokenEmbedding):
    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight) / math.sqrt(self.embedding_dim)


class ScaledByWidth(transformer.TokenEmbedding):
    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight) * self.embedding_dim


class StandardNormalStart(transformer.TokenEmbedding):
    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight)


for name, says, embedding in (
    (
        "embedding_not_scaled",
        "embeddings are not multiplied by sqrt(d_model)",
        NotScaled,
    ),
    (
        "embedding_scaled_down",
        "embeddings are divided by sqrt(d_model)",
        ScaledDown,
    ),
    (
        "embedding_scaled_by_width",
        "embeddings are multiplied by d_model, not its root",
        ScaledByWidth,
    ),
):
    add("embedding", name, says, TokenEmbedding=embedding)
add(
    "model",
    "standard_normal_start",
    "the tied matrix starts from N(0, 1), as nn.Embedding does",
    TokenEmbedding=StandardNormalStart,
)


# --- positions, section 3.5 --------------------------------------------


def encoding_with(angle: Callable[[Tensor, Tensor, int], Tensor]):
    """Sines and cosines of other angles, interleaved."""

    def sinusoidal_encoding(length: int, d_model: int) -> Tensor:
        position = torch.arange(length, dtype=torch.float64)[:, None]
        pair = torch.arange(d_model // 2, dtype=torch.float64)
        angles = angle(position, pair, d_model)
        table = torch.stack([angles.sin(), angles.cos()], dim=-1)
        return table.flatten(-2).to(torch.get_default_dtype())

    return sinusoidal_encoding


def encoding_mistake(name: str, says: str, function: Callable) -> None:
    """Register another table of positions."""
    add("positions", name, says, sinusoidal_encoding=function)


encoding_mistake(
    "no_positions",
    "no position is added",
    lambda length, d_model: torch.zeros(length, d_model),
)
encoding_mistake(
    "exponent_doubled",
    "2i is taken for i: the exponent is twice what it should be",
    encoding_with(lambda p, i, d: p / 10000 ** (4 * i / d)),
)
encoding_mistake(
    "exponent_halved",
    "i is taken for 2i: the exponent is half of what it should be",
    encoding_with(lambda p, i, d: p / 10000 ** (i / d)),
)
encoding_mistake(
    "positions_from_one",
    "positions are counted from 1",
    encoding_with(lambda p, i, d: (p + 1) / 10000 ** (2 * i / d)),
)
encoding_mistake(
    "sine_cosine_swapped",
    "cosine fills the even columns, sine the odd ones",
    lambda length, d_model: (
        sinusoids(length, d_model, layout="interleaved", spacing="printed")
        .unflatten(-1, (-1, 2))
        .flip(-1)
        .flatten(-2)
    ),
)
encoding_mistake(
    "concatenated",
    "sines come first, then cosines, as in the published code but not in the paper",
    lambda length, d_model: sinusoids(
        length, d_model, layout="concatenated", spacing="printed"
    ),
)
encoding_mistake(
    "published_spacing",
    "wavelengths run up to 10000 * 2pi, as in the published code but"
    " not in the printed formula",
    lambda length, d_model: sinusoids(
        length, d_model, layout="interleaved", spacing="published"
    ),
)
encoding_mistake(
    "published_positions",
    "layout and spacing are the published code's, not the paper's",
    lambda length, d_model: sinusoids(
        length, d_model, layout="concatenated", spacing="published"
    ),
)


# --- layers, section 3.1 -----------------------------------------------


class UnbiasedNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        deviation = x.std(-1, keepdim=True)
        return self.weight * centred / (deviation + self.eps) + self.bias


class AddAndUnbiasedNorm(transformer.AddAndNorm):
    def __init__(self, d_model: int, *, dropout: float, eps=1e-6):
        super().__init__(d_model, dropout=dropout, eps=eps)
        self.norm = UnbiasedNorm(d_model, eps)


class NoResidual(transformer.AddAndNorm):
    def forward(self, x: Tensor, sublayer: Callable) -> Tensor:
        return self.norm(self.dropout(sublayer(x)))


class NormBeforeAdd(transformer.AddAndNorm):
    def forward(self, x: Tensor, sublayer: Callable) -> Tensor:
        return x + self.norm(self.dropout(sublayer(x)))


class NoNorm(transformer.AddAndNorm):
    def forward(self, x: Tensor, sublayer: Callable) -> Tensor:
        return x + self.dropout(sublayer(x))


for name, says, connection in (
    (
        "unbiased_norm",
        "LayerNorm divides by the unbiased standard deviation",
        AddAndUnbiasedNorm,
    ),
    (
        "pre_norm",
        "x is normalised before the sub-layer, not after the sum",
        NormAndAdd,
    ),
    ("no_residual", "x is not added to the sub-layer", NoResidual),
    (
        "norm_before_add",
        "the sub-layer's output is normalised before x is added",
        NormBeforeAdd,
    ),
    ("no_norm", "the sum is not normalised", NoNorm),
):
    add("connection", name, says, AddAndNorm=connection)


class EncoderFeedForwardFirst(transformer.EncoderLayer):
    def forward(self, x, mask):
        x = self.around_feed_forward(x, self.feed_forward)
        return self.around_attention(x, lambda x: self.self_attention(x, x, x, mask))


class EncoderIgnoresMask(transformer.EncoderLayer):
    def forward(self, x, mask):
        return super().forward(x, torch.ones_like(mask))


class CrossBeforeSelf(transformer.DecoderLayer):
    def forward(self, x, memory, target_mask, memory_mask, *, cache=None):
        own, cross = cache or (None, None)
        x = self.around_cross_attention(
            x,
            lambda x: self.cross_attention(x, memory, memory, memory_mask, cache=cross),
        )
        x = self.around_self_attention(
            x,
            lambda x: self.self_attention(x, x, x, target_mask, cache=own),
        )
        return self.around_feed_forward(x, self.feed_forward)


class NoCrossAttention(transformer.DecoderLayer):
    def forward(self, x, memory, target_mask, memory_mask, *, cache=None):
        own, _ = cache or (None, None)
        x = self.around_self_attention(
            x,
            lambda x: self.self_attention(x, x, x, target_mask, cache=own),
        )
        return self.around_feed_forward(x, self.feed_forward)


class CrossSwapsRoles(transformer.DecoderLayer):
    def forward(self, x, memory, target_mask, memory_mask, *, cache=None):
        x = self.around_self_attention(
            x, lambda x: self.self_attention(x, x, x, target_mask)
        )
        x = self.around_cross_attention(
            x, lambda x: self.cross_attention(x, x, x, target_mask)
        )
        return self.around_feed_forward(x, self.feed_forward)

    caches = False


for name, says, objects in (
    (
        "feed_forward_first",
        "the feed-forward network comes before self-attention",
        dict(EncoderLayer=EncoderFeedForwardFirst),
    ),
    (
        "encoder_ignores_mask",
        "the encoder layer does not pass its mask on",
        dict(EncoderLayer=EncoderIgnoresMask),
    ),
    (
        "cross_before_self",
        "the decoder attends to the memory before itself",
        dict(DecoderLayer=CrossBeforeSelf),
    ),
    (
        "no_cross_attention",
        "the decoder never attends to the memory",
        dict(DecoderLayer=NoCrossAttention),
    ),
    (
        "cross_is_self",
        "the second attention looks at the target again, not at the memory",
        dict(DecoderLayer=CrossSwapsRoles),
    ),
):
    add("layers", name, says, **objects)


class SharedEncoder(encoder_decoder.Encoder):
    def __init__(self, layers, final_norm=None) -> None:
        layers = list(layers)
        super().__init__([layers[0]] * len(layers), final_norm)


class SharedDecoder(encoder_decoder.Decoder):
    def __init__(self, layers, final_norm=None) -> None:
        layers = list(layers)
        super().__init__([layers[0]] * len(layers), final_norm)


add(
    "stack",
    "layers_shared",
    "all layers of a stack are one layer, used N times",
    Encoder=SharedEncoder,
    Decoder=SharedDecoder,
)


# --- loss, schedule, optimizer, sections 5.3 and 5.4 -------------------


def loss_with(
    *,
    share: Callable[[float, int], float] = lambda eps, v: eps * v / (v - 1),
    ignore_padding: bool = True,
    over_all: bool = False,
    reduction: str = "mean",
) -> type[nn.Module]:
    """The loss with one thing about it changed."""

    class ChangedLoss(training.LabelSmoothingLoss):
        def forward(self, logits: Tensor, target: Tensor) -> Tensor:
            classes = logits.size(-1)
            total = F.cross_entropy(
                logits.reshape(-1, classes),
                target.reshape(-1),
                ignore_index=self.pad_id if ignore_padding else -100,
                label_smoothing=share(self.smoothing, classes),
                reduction="sum",
            )
            if reduction == "sum":
                return total
            counted = target.numel()
            if ignore_padding and not over_all:
                counted = (target != self.pad_id).sum()
            return total / counted

    return ChangedLoss


class SmoothingAtPadding(training.LabelSmoothingLoss):
    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        log_p, real = logits.log_softmax(-1), target != self.pad_id
        gold = log_p.gather(-1, target[..., None])[..., 0]
        others = (log_p.sum(-1) - gold) / (logits.size(-1) - 1)
        own = ((1 - self.smoothing) * gold)[real].sum()
        shared = self.smoothing * others.sum()  # at padding too
        return -(own + shared) / real.sum().clamp(min=1)


for name, says, changed in (
    (
        "loss_counts_padding",
        "padding counts as a token to be predicted",
        loss_with(ignore_padding=False),
    ),
    (
        "loss_mean_over_padding",
        "the sum over real tokens is divided by all tokens",
        loss_with(over_all=True),
    ),
    (
        "loss_is_a_sum",
        "losses are summed, not averaged over real tokens",
        loss_with(reduction="sum"),
    ),
    (
        "smoothing_over_all_classes",
        "the share is eps / V, gold included, as in the framework,"
        " where the published code has eps / (V - 1)",
        loss_with(share=lambda eps, v: eps),
    ),
    (
        "no_smoothing",
        "labels are not smoothed",
        loss_with(share=lambda eps, v: 0.0),
    ),
    (
        "smoothing_at_padding",
        "padding is masked for the gold token's part of the loss alone",
        SmoothingAtPadding,
    ),
):
    add("loss", name, says, LabelSmoothingLoss=changed)


def rate_with(formula: Callable[[int, int, int], float]) -> Callable:
    """Equation 3 with one thing about it changed."""

    def noam_rate(
        step: int,
        d_model: int,
        warmup_steps: int = 4000,
        factor: float = 1.0,
    ) -> float:
        return factor * formula(step, d_model, warmup_steps)

    return noam_rate


for name, says, formula in (
    (
        "steps_from_zero",
        "the first step has rate 0: steps are counted from 0",
        lambda s, d, w: (
            d**-0.5 * min((s - 1) ** -0.5, (s - 1) * w**-1.5) if s > 1 else 0.0
        ),
    ),
    (
        "no_warm_up",
        "the rate falls from the first step on",
        lambda s, d, w: d**-0.5 * s**-0.5,
    ),
    (
        "no_decay",
        "the rate stays at its peak after the warm-up",
        lambda s, d, w: d**-0.5 * min(w**-0.5, s * w**-1.5),
    ),
    (
        "width_not_inverted",
        "the rate grows with sqrt(d_model)",
        lambda s, d, w: d**0.5 * min(s**-0.5, s * w**-1.5),
    ),
    (
        "width_left_out",
        "d_model^-0.5 is left out",
        lambda s, d, w: min(s**-0.5, s * w**-1.5),
    ),
    (
        "max_for_min",
        "max stands where min should",
        lambda s, d, w: d**-0.5 * max(s**-0.5, s * w**-1.5),
    ),
):
    add("schedule", name, says, noam_rate=rate_with(formula))

add(
    "optimizer",
    "adam_defaults",
    "Adam has the framework's betas and eps, not the paper's",
    make_optimizer=lambda model, config: Adam(model.parameters()),
)


# --- shift and decoding ------------------------------------------------

add(
    "shift",
    "target_not_shifted",
    "the decoder is given the token that it must say",
    shift=lambda target: (target[:, 1:], target[:, 1:]),
)
add(
    "shift",
    "shifted_by_two",
    "the decoder must say the token after the next",
    shift=lambda target: (target[:, :-2], target[:, 2:]),
)


@contextmanager
def dropout_left_on(model: nn.Module) -> Iterator[None]:
    modes = {part: part.training for part in model.modules()}
    model.train()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def decode_with(change: Callable[[Tensor, Any], Tensor]) -> Callable:
    """Greedy decoding whose output is changed at the end."""

    def greedy_decode(model, source, *, max_length=None, use_cache=True):
        output = _greedy_decode(
            model, source, max_length=max_length, use_cache=use_cache
        )
        return change(output, model.config)

    return greedy_decode


def runs_on(model, source, *, max_length=None, use_cache=True):
    """Takes as many tokens as allowed, EOS or not."""
    limit = max_length or source.size(1) + 50
    output = source.new_full((len(source), 1), model.config.start_id)
    with torch.no_grad(), decoding.evaluation_mode(model):
        for _ in range(limit):
            logits = model(source, output)[:, -1:]
            output = torch.cat([output, logits.argmax(-1)], dim=1)
    return output[:, 1:]


def starts_from_padding(model, source, *, max_length=None, use_cache=True):
    """Decodes from PAD although training started from BOS."""
    config, right = model.config, model.config.start_id
    object.__setattr__(config, "start_id", config.pad_id)
    try:
        return _greedy_decode(model, source, max_length=max_length)
    finally:
        object.__setattr__(config, "start_id", right)


_greedy_decode = decoding.greedy_decode
add(
    "greedy_decode",
    "dropout_at_decode",
    "dropout is left on while decoding",
    evaluation_mode=dropout_left_on,
)
add(
    "greedy_decode",
    "first_sequence_only",
    "only the first sequence of a batch is decoded",
    greedy_decode=decode_with(
        lambda output, config: output[:1].expand(len(output), -1)
    ),
)
add(
    "greedy_decode",
    "decode_runs_on",
    "decoding does not stop at EOS",
    greedy_decode=runs_on,
)
add(
    "greedy_decode",
    "starts_from_padding",
    "decoding starts from PAD, training from BOS",
    greedy_decode=starts_from_padding,
)


# --- what layers cost and how far they reach, section 4 ----------------

_convolutional_layer = table1.convolutional_layer


def state_not_carried(x: Tensor, weight: Tensor) -> Tensor:
    """Every step starts from zeros, so that all could run at once."""
    both = torch.cat([x, torch.zeros_like(x)], dim=-1)
    return (both @ weight).tanh()


def window_by_mask(x: Tensor, r: int) -> Tensor:
    """All scores are computed; all but r of a row are hidden."""
    near = torch.ones(x.size(-2), x.size(-2), dtype=torch.bool)
    near = near.tril().triu(1 - r)
    output, _ = transformer.scaled_dot_product_attention(
        x, x, x, near, return_weights=True
    )
    return output


for name, says, objects in (
    (
        "state_not_carried",
        "the recurrence starts from zeros at every step",
        dict(recurrent_layer=state_not_carried),
    ),
    (
        "dilation_forgotten",
        "the kernel's positions stand side by side whatever the dilation",
        dict(
            convolutional_layer=lambda x, kernel, dilation=1: _convolutional_layer(
                x, kernel
            )
        ),
    ),
    (
        "window_by_mask",
        "restricted attention computes all scores and hides most: nothing is saved",
        dict(restricted_layer=window_by_mask),
    ),
    (
        "window_ignored",
        "restricted attention sees everything before",
        dict(restricted_layer=lambda x, r: window_by_mask(x, x.size(-2))),
    ),
):
    add("Table 1", name, says, **objects)


def values_not_counted(n: int, d: int) -> complexity.Cost:
    return complexity.Cost(n * n * d, sequential=2, path=1)


def shortest_chain(needs, counts=lambda _: True) -> int:
    shortest: dict = {}
    for step, earlier in needs.items():
        before = [shortest.get(other, 0) for other in earlier]
        shortest[step] = min(before, default=0) + counts(step)
    return max(shortest.values(), default=0)


add(
    "costs",
    "values_not_counted",
    "self-attention is counted without the weighted sum of the values",
    self_attention=values_not_counted,
)
add(
    "dependent steps",
    "shortest_chain",
    "a step is taken to wait for the first that it needs, not for the last",
    dependent_steps=shortest_chain,
)


# --- Adam's update, section 5.3 ----------------------------------------


def adam_with(
    *,
    corrected: bool = True,
    swapped: bool = False,
    root: Callable[[Tensor, float], Tensor] = lambda square, eps: square.sqrt() + eps,
) -> Callable:
    """A `make_optimizer` whose Adam has one thing changed.

    Its settings, which can be read off it, are the right ones.
    """

    class ChangedAdam(Adam):
        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                beta1, beta2 = group["betas"]
                if swapped:
                    beta1, beta2 = beta2, beta1
                for weight in group["params"]:
                    if weight.grad is not None:
                        self.move(weight, group, beta1, beta2)

        def move(self, weight, group, beta1, beta2):
            kept = self.state[weight]
            if not kept:
                zero = torch.zeros_like(weight)
                kept |= dict(step=0, mean=zero, square=zero)
            kept["step"] += 1
            gradient, t = weight.grad, kept["step"]
            mean = kept["mean"] = beta1 * kept["mean"] + (1 - beta1) * gradient
            square = beta2 * kept["square"] + (1 - beta2) * gradient**2
            kept["square"] = square
            if corrected:
                mean, square = mean / (1 - beta1**t), square / (1 - beta2**t)
            weight -= group["lr"] * mean / root(square, group["eps"])

    return lambda model, config: ChangedAdam(
        model.parameters(), betas=config.betas, eps=config.adam_eps
    )


for name, says, changed in (
    (
        "adam_not_corrected",
        "the running means, which start at 0, are not corrected for it",
        adam_with(corrected=False),
    ),
    (
        "adam_eps_in_the_root",
        "eps is added to the square, under the root",
        adam_with(root=lambda square, eps: (square + eps).sqrt()),
    ),
    (
        "adam_betas_swapped",
        "beta1 is used for the squares and beta2 for the gradients",
        adam_with(swapped=True),
    ),
):
    add("Adam", name, says, make_optimizer=changed)


# --- what a step costs, sections 5.2 and 6.1 ---------------------------


def flops_with(
    *,
    each: int = 2,
    scores: bool = True,
    output: bool = True,
    memory: Callable[[int, int], int] = lambda source, target: source,
) -> Callable:
    """A count of the forward pass with one thing about it changed."""

    def forward_flops(config, pairs: int, source: int, target: int) -> dict:
        asked = memory(source, target)  # by the decoder, of the encoder
        attend, square = complexity.scores, complexity.projections
        network = 2 * config.d_model * config.d_ff * (source + target)
        products = square(config, source, source) + square(config, target, target)
        products += square(config, target, asked) + network
        if scores:
            products += attend(config, source, source)
            products += attend(config, target, target)
            products += attend(config, target, source)
        products *= config.layers
        if output:
            products += target * config.d_model * config.target_vocab_size
        return {"all": each * pairs * products}

    return forward_flops


for name, says, function in (
    (
        "flops_without_additions",
        "a multiplication and its addition are counted as one operation",
        flops_with(each=1),
    ),
    (
        "flops_without_scores",
        "the products between tokens, Q K^T and weights times V, are not counted",
        flops_with(scores=False),
    ),
    (
        "flops_without_output",
        "the output projection is not counted, as if the tied matrix were a table only",
        flops_with(output=False),
    ),
    (
        "flops_memory_by_target",
        "keys and values of the memory are counted once for each target token",
        flops_with(memory=lambda source, target: target),
    ),
):
    add("flops", name, says, forward_flops=function)
