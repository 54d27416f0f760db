"""Checks of a Transformer and of its parts, for anybody's code.

    from bookkit import check
    check.model(my_logits, pad_id=0, bos_id=1, eos_id=2)
    check.attention(mine, call=lambda f, q, k, v, mask: f(q, k, v, ~mask))

A check that passes returns a `Report`; one that fails raises
`CheckFailed`, whose text says what was given, expected and found,
and names the known mistake that gives exactly that output, if one
does. Nothing is guessed: where your code has another signature or
another convention, `call` says how to call it.

What stands on the expected side comes from `bookkit.reference`, the
slow and obvious version, never from `transformer`. The same checks
guard `transformer` itself: `check.in_use()`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import transformer
import transformer.complexity
from bookkit import reference
from bookkit.adam import adam, our_moves
from bookkit.cost_checks import costs, dependent_steps, our_costs, table1
from bookkit.flops import flops, our_flops
from bookkit.regularization import smoothed_target as smoothed_target
from bookkit.report import CheckFailed, Exam, Report, outcome
from transformer import training
from transformer.data import batches

# Two outputs that should be equal may differ by this share of the
# largest; one that should change must change by ten times as much.
TOLERANCE = 1e-5


def attention(mine: Callable, *, call: Callable[..., Tensor] | None = None) -> Report:
    """Section 3.2.1: softmax(Q K^T / sqrt(d_k)) V.

    Args:
        mine: your attention.
        call: (mine, query, key, value, mask) -> output, where your
            signature differs from mine(query, key, value, mask). The
            mask is None or of dtype bool, True where a query may
            attend to a key, and broadcasts to (..., query, key).
            Inputs have two, three or four axes.

    For a query that may attend to nothing any finite output passes:
    zeros, or an even average over what is hidden.

    Raises:
        CheckFailed: with the first failing example; small ones come
            first.
    """
    call = call or (lambda f, q, k, v, mask: f(q, k, v, mask))

    def ours(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None):
        function = transformer.attention.scaled_dot_product_attention
        return function(q, k, v, mask, return_weights=True)[0]

    exam = Exam("attention", lambda *given: call(mine, *given), ours)

    def equals(statement: str, q, k, v, mask=None, tolerance=1e-5):
        given = dict(query=q, key=k, value=v, mask=mask)
        right = reference.attention(q, k, v, mask).to(q.dtype)
        exam.equal(statement, given, right, tolerance)

    draw = _normal(seed=1)
    one, two = torch.tensor([[2.0, 0.0]]), torch.eye(2)
    equals("one query and two keys", one, two, two)
    equals("two queries and two keys", draw(2, 2), two, draw(2, 2))
    mask = torch.tensor([[True, False], [True, True]])
    equals("a masked key gets no weight", draw(2, 2), two, draw(2, 2), mask)
    equals("d_k is not d_v", draw(3, 4), draw(3, 4), draw(3, 2))
    equals("as many keys as it takes", draw(2, 4), draw(5, 4), draw(5, 4))
    equals("four axes", *(draw(2, 3, 4, 8) for _ in range(3)))
    mask = _random_mask(2, 1, 3, 5, seed=2)
    q, k, v = draw(2, 4, 3, 8), draw(2, 4, 5, 8), draw(2, 4, 5, 8)
    equals("a mask for each sequence, over all heads", q, k, v, mask)
    mask = _random_mask(2, 4, 3, 5, seed=14)
    equals("a mask for each head", q, k, v, mask)
    low = torch.tensor([[-1e5, 0.0], [0.0, 0.0]])
    mask = torch.tensor([[True, False]])
    equals("hidden keys, visible scores far below 0", one, low, two, mask)
    equals("large scores", 30 * draw(2, 4), 30 * draw(3, 4), draw(3, 4))
    q, k, v = draw(2, 2), two, draw(2, 2)
    exam.gives(
        "a query that may attend to nothing gives finite numbers",
        dict(
            query=q,
            key=k,
            value=v,
            mask=torch.tensor([[False, False], [True, True]]),
        ),
        lambda got: bool(got.isfinite().all()),
        "finite numbers",
    )
    mask = torch.tensor([[True, False], [True, True]])
    for dtype in (torch.bfloat16, torch.float16):
        kind = str(dtype).removeprefix("torch.")
        half = [x.to(dtype) for x in (q, k, v)]
        equals(f"{kind}, masked", *half, mask, 2e-2)
    return exam.close()


def heads(
    mine: nn.Module,
    *,
    heads: int,
    d_model: int,
    weights: Callable[[Any], dict[str, Tensor]] | None = None,
    call: Callable[..., Tensor] | None = None,
) -> Report:
    """Section 3.2.2: Concat(head_1, ..., head_h) W^O.

    Args:
        mine: your multi-head attention, built, without dropout or in
            evaluation mode.
        heads: h.
        d_model: its width.
        weights: mine -> {"query", "key", "value", "output"}, each a
            matrix (out, in) as in nn.Linear, with "query_bias" and so
            on where there are biases. Head i has the i-th block of
            rows of the first three. Needed unless the names are
            those of transformer.MultiHeadAttention.
        call: (mine, query, key, value, mask) -> output; masks are
            True where a query may attend and broadcast to (batch,
            heads, query, key).

    Raises:
        CheckFailed: with the smallest failing example.
        TypeError: `weights` is needed.
    """
    call = call or (lambda f, q, k, v, mask: f(q, k, v, mask))
    read = _weights_or(weights, _our_projections, mine, "heads")
    matrices = {name: w.detach().float() for name, w in read.items()}
    has_output = "output" in matrices
    matrices.setdefault("output", torch.eye(len(matrices["value"])))

    def ours(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None):
        module = transformer.attention.MultiHeadAttention(
            d_model,
            heads,
            d_k=len(matrices["query"]) // heads,
            d_v=len(matrices["value"]) // heads,
            bias="query_bias" in matrices,
        )
        for name, tensor in matrices.items():
            part, _, bias = name.partition("_")
            projection = getattr(module, f"project_{part}")
            target = getattr(projection, bias or "weight", None)
            if target is not None:
                target.copy_(tensor)
        return module.eval()(q, k, v, mask)

    exam = Exam("heads", lambda *given: call(mine, *given), ours)

    def equals(statement: str, q, k, v, mask=None) -> None:
        given = dict(query=q, key=k, value=v, mask=mask)
        right = reference.heads(matrices, heads, q, k, v, mask)
        exam.equal(statement, given, right)

    exam.true(
        "the heads are projected by W^O",
        has_output,
        "weights() gives no 'output'",
    )
    draw = _normal(seed=3)
    x = draw(1, 1, d_model)
    equals("one position", x, x, x)
    x = draw(1, 3, d_model)
    equals("three positions", x, x, x)
    x = draw(2, 4, d_model)
    equals("a batch, causal mask", x, x, x, _causal(4))
    q, k, v = draw(2, 3, d_model), draw(2, 5, d_model), draw(2, 5, d_model)
    equals("other keys than queries, and other values", q, k, v)
    mask = _random_mask(2, 1, 1, 5, seed=4)
    equals("a mask for each sequence", q, k, v, mask)
    return exam.close()


def masks(
    padding_mask: Callable[[Tensor, int], Tensor] | None = None,
    causal_mask: Callable[[int], Tensor] | None = None,
) -> Report:
    """Section 3.2.3: who may attend to whom; True means may attend.

    Args:
        padding_mask: (ids, pad_id) -> a mask of dtype bool that
            broadcasts to (batch, heads, query, key).
        causal_mask: length -> a mask of dtype bool that broadcasts
            to (query, key).

    Where your masks are True for what is hidden, or floats, wrap
    them: `causal_mask=lambda n: ~mine(n)`. One of the two is enough.

    Raises:
        CheckFailed: with the smallest failing example.
    """

    def run(padding: Callable, causal: Callable, *given: Any) -> Tensor:
        if len(given) == 1:
            return causal(*given).expand(given[0], given[0])
        batch, length = given[0].shape
        return padding(*given).expand(batch, 1, length, length)

    exam = Exam(
        "masks",
        lambda *given: run(padding_mask, causal_mask, *given),
        lambda *given: run(
            transformer.masks.padding_mask,
            transformer.masks.causal_mask,
            *given,
        ),
    )
    if causal_mask is not None:
        for length in (1, 2, 3, 6):
            exam.equal(
                f"causal, length {length}: row i allows keys 0 to i",
                dict(length=length),
                torch.tensor([[j <= i for j in range(length)] for i in range(length)]),
            )
    if padding_mask is not None:
        for ids in ([[5]], [[5, 0]], [[5, 6, 0], [7, 8, 9]]):
            right = [[[[j != 0 for j in row] for _ in row]] for row in ids]
            exam.equal(
                f"padding, {len(ids)} of length {len(ids[0])}: keys that"
                " are padding are hidden from every query",
                dict(ids=torch.tensor(ids), pad_id=0),
                torch.tensor(right),
            )
        ids = torch.tensor([[0, 3, 9, 9]])
        exam.equal(
            "padding is what has the id that is given",
            dict(ids=ids, pad_id=9),
            (ids != 9)[:, None, None].expand(1, 1, 4, 4),
        )
    return exam.close()


def feed_forward(
    mine: nn.Module,
    *,
    d_model: int,
    weights: Callable[[Any], Sequence[Tensor]] | None = None,
    call: Callable[..., Tensor] | None = None,
) -> Report:
    """Section 3.3: max(0, x W_1 + b_1) W_2 + b_2 at each position.

    Args:
        mine: your network, built, without dropout or in evaluation
            mode.
        d_model: its width.
        weights: mine -> (W_1, b_1, W_2, b_2), the matrices (out, in)
            as in nn.Linear. Needed unless the names are those of
            transformer.PositionwiseFeedForward.
        call: (mine, x) -> output; x is (batch, length, d_model).

    Raises:
        CheckFailed: with the smallest failing example.
        TypeError: `weights` is needed.
    """
    call = call or (lambda f, x: f(x))
    read = _weights_or(weights, _our_maps, mine, "feed_forward")
    w1, b1, w2, b2 = (tensor.detach().float() for tensor in read)

    def ours(x: Tensor) -> Tensor:
        module = transformer.feed_forward.PositionwiseFeedForward(d_model, len(w1))
        for map_, weight, bias in (
            (module.widen, w1, b1),
            (module.narrow, w2, b2),
        ):
            map_.weight.copy_(weight)
            map_.bias.copy_(bias)
        return module.eval()(x)

    exam = Exam("feed_forward", lambda x: call(mine, x), ours)
    draw = _normal(seed=5)
    for statement, x in (
        ("one position", draw(1, 1, d_model)),
        ("the opposite of it", -draw(1, 1, d_model)),
        ("positions do not mix", draw(2, 5, d_model)),
    ):
        right = reference.feed_forward(w1, b1, w2, b2, x)
        exam.equal(statement, dict(x=x), right)
    return exam.close()


def embedding(
    mine: nn.Module,
    *,
    weights: Callable[[Any], Tensor] | None = None,
    call: Callable[..., Tensor] | None = None,
    untrained: bool = True,
) -> Report:
    """Section 3.4: vectors times sqrt(d_model).

    Args:
        mine: your embedding, built.
        weights: mine -> the matrix (vocab, d_model); mine.weight if
            None.
        call: (mine, ids) -> vectors; ids are (batch, length).
        untrained: also check the scale at the start.

    Raises:
        CheckFailed: with the smallest failing example.
    """
    call = call or (lambda f, ids: f(ids))
    read = _weights_or(weights, lambda m: m.weight, mine, "embedding")
    matrix = read.detach().float()
    vocab, d_model = matrix.shape

    def ours(ids: Tensor) -> Tensor:
        module = transformer.embeddings.TokenEmbedding(vocab, d_model)
        module.weight.copy_(matrix)
        return module(ids)

    exam = Exam("embedding", lambda ids: call(mine, ids), ours)
    for statement, ids in (
        ("one token", [[vocab - 1]]),
        ("a batch", [[1, 2, 3], [2, 2, 0]]),
    ):
        given = torch.tensor(ids)
        right = matrix.double()[given] * math.sqrt(d_model)
        exam.equal(
            f"{statement}: the matrix's rows times sqrt(d_model)",
            dict(ids=given),
            right,
        )
    if untrained:
        every = outcome(exam.mine, (torch.arange(vocab)[None],))
        ran = isinstance(every, Tensor)
        size = every.double().pow(2).mean().sqrt().item() if ran else math.nan
        positions = math.sqrt(0.5)
        exam.true(
            "at the start, vectors are about as large as positions",
            positions / 2 < size < positions * 2,
            f"root mean square {size:.3g}; sinusoids have"
            f" {positions:.3g}, and half to twice that is expected",
        )
    return exam.close()


def positional_encoding(
    mine: Callable, *, call: Callable[..., Tensor] | None = None
) -> Report:
    """Section 3.5: the printed sinusoids.

    Args:
        mine: your function, or a class or module.
        call: (mine, length, d_model) -> the table (length, d_model),
            where your signature differs from mine(length, d_model).
            For a module that adds the table to its input, give it
            zeros.

    Raises:
        CheckFailed: with the smallest failing example.
    """
    call = call or (lambda f, length, d_model: f(length, d_model))
    exam = Exam(
        "positions",
        lambda *given: call(mine, *given),
        lambda *given: transformer.positional_encoding.sinusoidal_encoding(*given),
    )
    for length, d_model in ((1, 2), (2, 2), (3, 4), (5, 8), (200, 32)):
        exam.equal(
            f"{length} positions of width {d_model}",
            dict(length=length, d_model=d_model),
            reference.positions(length, d_model),
        )
    return exam.close()


def connection(
    mine: nn.Module,
    *,
    d_model: int,
    call: Callable[..., Tensor] | None = None,
) -> Report:
    """Section 3.1: LayerNorm(x + Sublayer(x)), with a biased variance.

    Args:
        mine: your connection around a sub-layer, built, untrained,
            without dropout or in evaluation mode.
        d_model: its width.
        call: (mine, x, sublayer) -> output; sublayer is a function.

    Raises:
        CheckFailed: with the smallest failing example.
    """
    call = call or (lambda f, x, sublayer: f(x, sublayer))

    def ours(x: Tensor, sublayer: Callable) -> Tensor:
        module = transformer.encoder_decoder.AddAndNorm(d_model, dropout=0.0)
        return module(x, sublayer)

    exam = Exam("connection", lambda *given: call(mine, *given), ours)
    draw = _normal(seed=6)
    for statement, x, sublayer in (
        (
            "a sub-layer that gives 0: LayerNorm(x)",
            draw(1, 1, d_model) * 3 + 1,
            _named("0", lambda x: 0 * x),
        ),
        (
            "a sub-layer that gives x: LayerNorm(2x)",
            draw(1, 2, d_model) * 3 + 1,
            _named("x", lambda x: x),
        ),
        (
            "any sub-layer: LayerNorm(x + Sublayer(x))",
            draw(2, 3, d_model) * 3 + 1,
            _named("x * x - 1", lambda x: x * x - 1),
        ),
    ):
        right = reference.normalise(x + sublayer(x))
        exam.equal(statement, dict(x=x, sublayer=sublayer), right)
    return exam.close()


def layers(
    encoder_layer: Callable | None = None,
    decoder_layer: Callable | None = None,
    *,
    build: Callable[..., Callable] | None = None,
) -> Report:
    """Section 3.1: which sub-layers, in which order, on what.

    The layers are built around stand-ins for attention and
    feed-forward whose outputs are known.

    Args:
        encoder_layer, decoder_layer: your classes. A layer is called
            as layer(x, mask), and layer(x, memory, target_mask,
            memory_mask).
        build: (layer, attentions, feed_forward, connect) -> a built
            layer, where your signature differs from
            layer(*attentions, feed_forward, connect). `attentions`
            has one for the encoder and two for the decoder;
            connect() gives a connection, called as connection(x,
            sublayer).

    Raises:
        CheckFailed: with the smallest failing example.
    """
    build = build or (
        lambda layer, attentions, feed_forward, connect: layer(
            *attentions, feed_forward, connect
        )
    )

    def make(layer: Callable, count: int, with_: Callable) -> Callable:
        attentions = [StandInAttention(share) for share in (0.5, 2.0)]
        return with_(
            layer,
            attentions[:count],
            StandInFeedForward(),
            StandInConnection,
        )

    def run(encoder: Callable, decoder: Callable, with_: Callable, given):
        count = 1 if len(given) == 2 else 2
        layer = make((encoder, decoder)[count - 1], count, with_)
        return layer(*given)

    def as_ours(layer, attentions, feed_forward, connect):
        return layer(*attentions, feed_forward, connect)

    exam = Exam(
        "layers",
        lambda *given: run(encoder_layer, decoder_layer, build, given),
        lambda *given: run(
            transformer.encoder_decoder.EncoderLayer,
            transformer.encoder_decoder.DecoderLayer,
            as_ours,
            given,
        ),
    )
    draw = _normal(seed=7)
    around, feed = StandInConnection(), StandInFeedForward()
    own, cross = StandInAttention(0.5), StandInAttention(2.0)
    for batch, length, source in ((1, 2, 3), (2, 3, 4)):
        x, memory = draw(batch, length, 4), draw(batch, source, 4)
        mask = _random_mask(batch, 1, 1, length, seed=8)
        size = f"batch of {batch}"
        if encoder_layer is not None:
            y = around(x, lambda x, m=mask: own(x, x, x, m))
            exam.equal(
                f"encoder, {size}: self-attention, then feed-forward",
                dict(x=x, mask=mask),
                around(y, feed),
            )
        if decoder_layer is not None:
            causal = _causal(length)
            seen = _random_mask(batch, 1, 1, source, seed=9)
            y = around(x, lambda x, m=causal: own(x, x, x, m))
            y = around(
                y,
                lambda y, to=memory, m=seen: cross(y, to, to, m),
            )
            exam.equal(
                f"decoder, {size}: self-attention, attention to the"
                " memory, then feed-forward",
                dict(
                    x=x,
                    memory=memory,
                    target_mask=causal,
                    memory_mask=seen,
                ),
                around(y, feed),
            )
    return exam.close()


def stack(mine: Iterable[nn.Module]) -> Report:
    """Section 3.1: N layers of one shape, each with its own weights.

    Args:
        mine: your layers, untrained, in order.

    Raises:
        CheckFailed: layers share tensors, or start from equal ones.
    """
    layers = list(mine)

    def unlike_others(layers: Sequence[nn.Module]) -> list[int]:
        """For each layer, the matrices that no other layer has."""
        all_ = [[p for p in layer.parameters() if p.dim() > 1] for layer in layers]
        return [
            sum(
                not any(
                    p.shape == q.shape and torch.equal(p, q)
                    for other in all_[:i] + all_[i + 1 :]
                    for q in other
                )
                for p in own
            )
            for i, own in enumerate(all_)
        ]

    def ours() -> list[int]:
        config = transformer.TransformerConfig.tiny(layers=len(layers))
        model = transformer.model.Transformer(config)
        return unlike_others(model.encoder.layers)

    exam = Exam("stack", lambda: unlike_others(layers), ours)
    exam.equal(
        "no layer has a matrix that another has",
        {},
        [sum(p.dim() > 1 for p in layer.parameters()) for layer in layers],
    )
    return exam.close()


def loss(
    mine: Callable,
    *,
    call: Callable[..., Tensor] | None = None,
    over: str = "others",
) -> Report:
    """Section 5.4: label smoothing; the mean over real tokens.

    Args:
        mine: your loss.
        call: (mine, logits, target, smoothing, pad_id) -> loss, where
            your signature differs from mine(smoothing, pad_id)(logits,
            target). Logits are (batch, length, vocab).
        over: which classes share the smoothing: "others" than gold,
            as in the published code, or "all", as in the framework.
            The paper does not say.

    Raises:
        CheckFailed: with the smallest failing example.
        ValueError: `over` is neither.
    """
    if over not in ("others", "all"):
        raise ValueError(f"over={over!r} must be 'others' or 'all'")
    call = call or (
        lambda f, logits, target, smoothing, pad_id: f(smoothing, pad_id)(
            logits, target
        )
    )

    def ours(logits, target, smoothing, pad_id):
        criterion = training.LabelSmoothingLoss(smoothing, pad_id)
        return criterion(logits, target)

    exam = Exam("loss", lambda *given: call(mine, *given), ours)
    draw = _normal(seed=10)
    for statement, target, classes, smoothing in (
        ("one token, no smoothing: cross-entropy", [[1]], 3, 0.0),
        ("padding counts nothing", [[1, 0]], 3, 0.0),
        ("smoothing 0.1", [[2, 1]], 3, 0.1),
        ("smoothing and padding", [[3, 1, 2], [4, 0, 0]], 6, 0.1),
        ("smoothing 0.3", [[3, 1, 2], [4, 4, 0]], 6, 0.3),
    ):
        gold = torch.tensor(target)
        logits = 2 * draw(*gold.shape, classes)
        given = dict(logits=logits, target=gold, smoothing=smoothing, pad_id=0)
        share = smoothing
        if over == "all":
            share = smoothing * (classes - 1) / classes
        right = reference.smoothed_loss(logits, gold, share, 0)
        exam.equal(statement, given, right)
    return exam.close()


def schedule(mine: Callable, *, call: Callable[..., float] | None = None) -> Report:
    """Section 5.3, equation 3; steps are counted from 1.

    Args:
        mine: your function or scheduler class.
        call: (mine, step, d_model, warmup_steps, factor) -> the rate
            in that step, where your signature differs from mine(step,
            d_model, warmup_steps, factor). For a scheduler class
            that is made as mine(optimizer, d_model,
            warmup_steps=..., factor=...), give `scheduler_rate`.

    Raises:
        CheckFailed: with the smallest failing example.
    """
    call = call or (lambda f, *given: f(*given))
    exam = Exam(
        "schedule",
        lambda *given: float(call(mine, *given)),
        lambda *given: scheduler_rate(training.NoamScheduler, *given),
    )
    for step, d_model, warmup_steps, factor in (
        (1, 4, 4, 1.0),
        (2, 4, 4, 1.0),
        (4, 4, 4, 1.0),
        (5, 4, 4, 1.0),
        (1, 512, 4000, 1.0),
        (10, 512, 4000, 1.0),
        (40, 64, 10, 1.0),
        (40, 64, 100, 2.0),
    ):
        exam.equal(
            f"step {step} of width {d_model}, warm-up {warmup_steps},"
            f" factor {factor:g}",
            dict(
                step=step,
                d_model=d_model,
                warmup_steps=warmup_steps,
                factor=factor,
            ),
            reference.rate(step, d_model, warmup_steps, factor),
        )
    return exam.close()


def scheduler_rate(
    scheduler_class: Callable,
    step: int,
    d_model: int,
    warmup_steps: int,
    factor: float,
) -> float:
    """The rate that a scheduler has set when step `step` is made."""
    weight = nn.Parameter(torch.zeros(1))
    # A rate that would show if it had an effect.
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scheduler = scheduler_class(
        optimizer, d_model, warmup_steps=warmup_steps, factor=factor
    )
    for _ in range(step - 1):
        optimizer.step()
        scheduler.step()
    return optimizer.param_groups[0]["lr"]


def optimizer(mine: Any, model: nn.Module | None = None) -> Report:
    """Section 5.3: Adam with betas 0.9 and 0.98, eps 1e-9.

    Args:
        mine: your optimizer, built.
        model: whose every parameter it must have, once.

    Raises:
        CheckFailed: with what differs.
    """

    def settings(built: Any) -> list:
        return [
            [*map(float, group["betas"]), float(group["eps"])]
            for group in built.param_groups
        ]

    def ours() -> list:
        built = training.make_optimizer(nn.Linear(1, 1), transformer.TrainingConfig())
        return settings(built) * len(mine.param_groups)

    exam = Exam("optimizer", lambda: settings(mine), ours)
    exam.equal(
        "betas are 0.9 and 0.98, eps is 1e-9",
        {},
        [[0.9, 0.98, 1e-9] for _ in mine.param_groups],
    )
    decays = [g.get("weight_decay", 0) for g in mine.param_groups]
    exam.true("no weight decay", not any(decays), f"weight decay {decays}")
    if model is not None:
        held = [id(p) for g in mine.param_groups for p in g["params"]]
        wanted = {id(p): name for name, p in model.named_parameters()}
        missing = [wanted[i] for i in wanted if i not in held]
        exam.true(
            "every parameter is there, once",
            not missing and len(held) == len(set(held)) == len(wanted),
            f"missing: {missing}; {len(held)} held, {len(set(held))}"
            f" different, the model has {len(wanted)}",
        )
    return exam.close()


def shift(
    mine: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> Report:
    """Section 3.1: the decoder is given what precedes what it says.

    Args:
        mine: target -> (target_in, target_out); targets stand between
            BOS and EOS, padded on the right.

    Raises:
        CheckFailed: with the smallest failing example.
    """
    exam = Exam(
        "shift",
        lambda target: tuple(mine(target)),
        lambda target: tuple(batches.shift(target)),
    )
    for statement, target in (
        ("BOS, one token, EOS", [[1, 5, 2]]),
        ("three tokens", [[1, 5, 6, 7, 2]]),
        ("a batch with padding", [[1, 5, 6, 2], [1, 7, 2, 0]]),
    ):
        exam.equal(
            f"{statement}: each token is to be said one step after the"
            " token before it is given",
            dict(target=torch.tensor(target)),
            (
                torch.tensor([row[:-1] for row in target]),
                torch.tensor([row[1:] for row in target]),
            ),
        )
    return exam.close()


def greedy_decode(
    mine: Callable[[Tensor, int], Tensor],
    logits_fn: Callable[[Tensor, Tensor], Tensor],
    source: Tensor,
    *,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    max_length: int,
    ours: Callable[[Tensor, int], Tensor] | None = None,
) -> Report:
    """Decoding: the likeliest token at each step, until EOS.

    Args:
        mine: (source, max_length) -> token ids (batch, output),
            without BOS; what follows EOS must be padding.
        logits_fn: (source, target_in) -> logits, of the same model.
        source: token ids (batch, source), of which some must decode
            to EOS within max_length - 1 tokens and some must not.
        bos_id: what decoding starts from.
        eos_id, pad_id: the ids that end and fill up.
        max_length: tokens to give at most.
        ours: the book's decoding of the same model, for names of
            mistakes.

    Raises:
        CheckFailed: with the smallest failing example.
        ValueError: this source does not show what it must.
    """

    def slowly(row: Tensor, limit: int) -> list[int]:
        output = [bos_id]
        while len(output) <= limit and output[-1:] != [eos_id]:
            logits = logits_fn(row[None], torch.tensor([output]))
            output.append(int(logits[0, -1].argmax()))
        return output[1:]

    def filled(rows: list[list[int]]) -> Tensor:
        longest = max(map(len, rows))
        return torch.tensor([r + [pad_id] * (longest - len(r)) for r in rows])

    with torch.no_grad():
        rows = [slowly(row, max_length) for row in source]
    ends = [row[-1] == eos_id for row in rows]
    if all(ends) or not any(len(r) < max_length for r in rows):
        raise ValueError(
            f"of {len(rows)} sequences {sum(ends)} end within"
            f" max_length={max_length}: some must and some must not"
        )
    exam = Exam("greedy_decode", mine, ours)
    single = min(range(len(rows)), key=lambda i: len(rows[i]))
    exam.equal(
        "one sequence: each token is the likeliest, up to EOS",
        dict(source=source[single : single + 1], max_length=max_length),
        filled([rows[single]]),
    )
    exam.equal(
        "a batch: each sequence as if it were alone",
        dict(source=source, max_length=max_length),
        filled(rows),
    )
    exam.equal(
        "at most max_length tokens",
        dict(source=source, max_length=2),
        filled([row[:2] for row in rows]),
    )
    return exam.close()


def model(
    logits_fn: Callable[[Tensor, Tensor], Tensor],
    *,
    pad_id: int,
    bos_id: int,
    eos_id: int,
    vocab_size: int | None = None,
    untrained: bool = True,
) -> Report:
    """A whole model, by what it computes alone.

    Args:
        logits_fn: (source, target_in) -> logits (batch, target,
            vocab), in evaluation mode. Sources end with EOS and are
            padded on the right; target_in starts with BOS.
        pad_id, bos_id, eos_id: the special ids.
        vocab_size: of the source; as many as there are logits if
            None.
        untrained: also check the loss at the start.

    Raises:
        CheckFailed: with the smallest failing example.
    """
    with torch.no_grad():
        return _Model(logits_fn, pad_id, bos_id, eos_id, vocab_size).examine(untrained)


class _Model:
    """The statements of `check.model`, on one small batch."""

    def __init__(self, logits_fn, pad_id, bos_id, eos_id, vocab_size):
        self.logits_fn = logits_fn
        self.pad, self.eos = pad_id, eos_id
        probe = torch.tensor([[eos_id]]), torch.tensor([[bos_id]])
        self.classes = logits_fn(*probe).size(-1)
        self.exam = Exam("model", logits_fn)
        special = {pad_id, bos_id, eos_id}

        def tokens(size: int) -> list[int]:
            return [i for i in range(size) if i not in special]

        self.source_tokens = tokens(vocab_size or self.classes)
        self.target_tokens = tokens(self.classes)
        draw = torch.Generator().manual_seed(11)

        def pick(pool: list[int], *shape: int) -> Tensor:
            chosen = torch.randint(len(pool), shape, generator=draw)
            return torch.tensor(pool)[chosen]

        self.source = pick(self.source_tokens, 4, 7)
        for row, length in enumerate((6, 4, 5, 2)):
            self.source[row, length] = eos_id
            self.source[row, length + 1 :] = pad_id
        self.target = pick(self.target_tokens, 4, 6)
        self.target[:, 0] = bos_id
        self.logits = logits_fn(self.source, self.target)

    def examine(self, untrained: bool) -> Report:
        shape = (*self.target.shape, self.classes)
        self.exam.true(
            "logits are (batch, target, vocab)",
            tuple(self.logits.shape) == shape,
            f"shape {tuple(self.logits.shape)}, expected {shape}",
        )
        if not self.exam.failed:
            self.repeatable()
            self.causal()
            self.past_visible()
            self.source_used()
            self.padding_invisible()
            self.batch_independent()
            self.order_seen()
        if untrained and not self.exam.failed:
            self.starts_uninformed()
        return self.exam.close()

    def gap(self, a: Tensor, b: Tensor) -> float:
        """The largest difference, as a share of the largest logit."""
        size = self.logits.abs().max().clamp(min=1e-30)
        gap = (a - b).abs().max() / size
        return float(gap.nan_to_num(torch.inf))

    def changed(self, row: int, at: int, *, source: bool) -> Tensor:
        """Logits with one token of one sequence changed."""
        ids = (self.source if source else self.target).clone()
        pool = self.source_tokens if source else self.target_tokens
        old = int(ids[row, at])
        ids[row, at] = pool[(pool.index(old) + 1) % len(pool)]
        if source:
            return self.logits_fn(ids, self.target)
        return self.logits_fn(self.source, ids)

    def repeatable(self) -> None:
        again = self.logits_fn(self.source, self.target)
        gap = self.gap(again, self.logits)
        self.exam.true(
            "two calls give the same logits",
            gap == 0,
            f"they differ by {gap:.2g} of the largest logit: is the"
            " model in evaluation mode?",
        )

    def causal(self) -> None:
        found = ""
        for at in range(self.target.size(1) - 1, 0, -1):
            now = self.changed(0, at, source=False)
            for i in range(at):
                gap = self.gap(now[0, i], self.logits[0, i])
                if gap > TOLERANCE:
                    found = (
                        f"target_in[{at}] was changed, and the logits at"
                        f" position {i}, before it, moved by {gap:.2g} of"
                        " the largest logit"
                    )
        self.exam.true("no target token changes logits before it", not found, found)

    def past_visible(self) -> None:
        last = self.target.size(1) - 1
        blind = [
            at
            for at in range(1, last + 1)
            if self.gap(
                self.changed(0, at, source=False)[0, last],
                self.logits[0, last],
            )
            < 10 * TOLERANCE
        ]
        self.exam.true(
            "every target token so far can change the next one's logits",
            not blind,
            f"target_in{blind} were changed one at a time, and the"
            f" logits at position {last} did not move",
        )

    def source_used(self) -> None:
        blind = [
            at
            for at in range(6)
            if self.gap(self.changed(0, at, source=True), self.logits) < 10 * TOLERANCE
        ]
        self.exam.true(
            "every source token can change the logits",
            not blind,
            f"source{blind} were changed one at a time, and no logit moved",
        )

    def padding_invisible(self) -> None:
        more = torch.full((4, 3), self.pad)
        padded = torch.cat([self.source, more], dim=1)
        gap = self.gap(self.logits_fn(padded, self.target), self.logits)
        self.exam.true(
            "padding after the source changes nothing",
            gap <= TOLERANCE,
            f"three padding ids were appended to every source, and the"
            f" logits moved by {gap:.2g} of the largest",
        )

    def batch_independent(self) -> None:
        alone = torch.cat(
            [
                self.logits_fn(s[None], t[None])
                for s, t in zip(self.source, self.target, strict=True)
            ]
        )
        gap = self.gap(alone, self.logits)
        self.exam.true(
            "a sequence's logits do not depend on its batch",
            gap <= TOLERANCE,
            f"four sequences in a batch and one at a time: logits differ"
            f" by {gap:.2g} of the largest",
        )

    def order_seen(self) -> None:
        """Swapping two unequal tokens must show."""
        source, target = self.source.clone(), self.target.clone()
        first, second = source[0, 0].item(), source[0, 1].item()
        if first == second:
            other = self.source_tokens
            second = other[(other.index(second) + 1) % len(other)]
        source[0, :2] = torch.tensor([first, second])
        before = self.logits_fn(source, target)[0]
        source[0, :2] = torch.tensor([second, first])
        gap = self.gap(self.logits_fn(source, target)[0], before)
        self.exam.true(
            "the order of the source is seen",
            gap >= 10 * TOLERANCE,
            "the first two source tokens changed places, and no logit moved",
        )
        pool = self.target_tokens
        target[0, 1:3] = torch.tensor(pool[:2])
        before = self.logits_fn(self.source, target)[0, -1]
        target[0, 1:3] = torch.tensor(pool[:2]).flip(0)
        after = self.logits_fn(self.source, target)[0, -1]
        self.exam.true(
            "the order of the target so far is seen",
            self.gap(after, before) >= 10 * TOLERANCE,
            "the second and third target token changed places, and the"
            " last logits did not move",
        )

    def starts_uninformed(self) -> None:
        gold = self.target[:, 1:]
        lost = nn.functional.cross_entropy(
            self.logits[:, :-1].flatten(0, 1).double(), gold.flatten()
        ).item()
        even = math.log(self.classes)
        self.exam.true(
            "at the start the loss is near ln V",
            abs(lost - even) < 2,
            f"loss {lost:.3g}, ln V = ln {self.classes} = {even:.3g}; a"
            " model that knows nothing is within 2 of it",
        )


def in_use(**options: dict[str, Any]) -> list[Report]:
    """Every check, on what `transformer` consists of at the moment.

    Inside `use(...)` that includes your parts.

    Args:
        options: arguments for single checks, by the check's name:
            `heads=dict(weights=...)`, where your part needs them.

    Raises:
        CheckFailed: the reports of all checks that failed.
    """
    reports, failures = [], []
    for name, run in every_check(options).items():
        try:
            reports.append(run())
        except CheckFailed as failure:
            failures.append(failure)
        except Exception as error:
            text = f"{name}: could not run: {type(error).__name__}: {error}"
            failures.append(CheckFailed(text, name, ["it runs"], []))
    if failures:
        raise CheckFailed(
            "\n\n".join(map(str, failures)),
            ", ".join(failure.part for failure in failures),
            [line for f in failures for line in f.failed],
            [name for f in failures for name in f.mistakes],
        )
    return reports


def every_check(options: dict[str, dict]) -> dict[str, Callable]:
    """The checks that `in_use` runs, by name, on what is in use then.

    Args:
        options: as `in_use` takes them.

    Raises:
        TypeError: options for a check that does not exist.
    """
    config = transformer.TransformerConfig(
        vocab_size=23, layers=2, d_model=32, d_ff=64, heads=4
    )
    unknown = set(options) - set(_CHECKS)
    if unknown:
        raise TypeError(
            f"no check is called {sorted(unknown)}: there are {', '.join(_CHECKS)}"
        )
    return {
        name: lambda run=run, name=name: run(config, **options.get(name, {}))
        for name, run in _CHECKS.items()
    }


def _built(config: Any) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(12)
        return transformer.model.Transformer(config).eval()


def _check_positions(config, **options: Any) -> Report:
    def through_module(module_class, length: int, d_model: int):
        module = module_class(d_model, length)
        return module(torch.zeros(1, length, d_model))[0]

    return positional_encoding(
        transformer.positional_encoding.PositionalEncoding,
        **(dict(call=through_module) | options),
    )


def _check_heads(config, **options: Any) -> Report:
    built = transformer.attention.MultiHeadAttention(32, 4)
    return heads(built.eval(), heads=4, d_model=32, **options)


def _check_feed_forward(config, **options: Any) -> Report:
    built = transformer.feed_forward.PositionwiseFeedForward(8, 16)
    return feed_forward(built.eval(), d_model=8, **options)


def _check_connection(config, **options: Any) -> Report:
    built = transformer.encoder_decoder.AddAndNorm(8, dropout=0.1)
    return connection(built.eval(), d_model=8, **options)


def _check_stack(config, **options: Any) -> Report:
    built = _built(config)
    stack(built.decoder.layers, **options)
    return stack(built.encoder.layers, **options)


def _check_optimizer(config, **options: Any) -> Report:
    built = _built(config)
    made = training.make_optimizer(built, transformer.TrainingConfig())
    return optimizer(made, built, **options)


def _check_model(config, **options: Any) -> Report:
    special = dict(pad_id=config.pad_id, bos_id=config.bos_id, eos_id=config.eos_id)
    return model(_built(config), **(special | options))


def _check_decoding(config, **options: Any) -> Report:
    scripted = Scripted(config)

    def likely(source: Tensor, target: Tensor) -> Tensor:
        return scripted.scores(source, target)

    def decode(source: Tensor, max_length: int) -> Tensor:
        return transformer.decoding.greedy_decode(
            scripted, source, max_length=max_length
        )

    source = torch.randint(3, 23, (6, 8), generator=torch.Generator().manual_seed(13))
    for row, length in enumerate((3, 7, 1, 5, 6, 2)):
        source[row, length] = config.eos_id
        source[row, length + 1 :] = config.pad_id
    return greedy_decode(
        decode,
        likely,
        source,
        bos_id=config.start_id,
        eos_id=config.eos_id,
        pad_id=config.pad_id,
        max_length=6,
        **(dict(ours=decode) | options),
    )


# In the order of the paper; each takes a configuration and options.
_CHECKS: dict[str, Callable[..., Report]] = {
    "attention": lambda _, **o: attention(
        transformer.attention.scaled_dot_product_attention, **o
    ),
    "heads": _check_heads,
    "masks": lambda _, **o: masks(
        transformer.masks.padding_mask, transformer.masks.causal_mask, **o
    ),
    "feed_forward": _check_feed_forward,
    "embedding": lambda _, **o: embedding(
        transformer.embeddings.TokenEmbedding(50, 32), **o
    ),
    "positions": _check_positions,
    "connection": _check_connection,
    "layers": lambda _, **o: layers(
        transformer.encoder_decoder.EncoderLayer,
        transformer.encoder_decoder.DecoderLayer,
        **o,
    ),
    "stack": _check_stack,
    "loss": lambda _, **o: loss(training.LabelSmoothingLoss, **o),
    "schedule": lambda _, **o: schedule(
        training.NoamScheduler, **(dict(call=scheduler_rate) | o)
    ),
    "optimizer": _check_optimizer,
    "adam": lambda _, **o: adam(our_moves, **o),
    "shift": lambda _, **o: shift(batches.shift, **o),
    "model": _check_model,
    "greedy_decode": _check_decoding,
    "costs": lambda _, **o: costs(our_costs, **o),
    "dependent_steps": lambda _, **o: dependent_steps(
        transformer.complexity.dependent_steps, **o
    ),
    "table1": lambda _, **o: table1(**o),
    "flops": lambda _, **o: flops(our_flops, **o),
}


class Scripted(transformer.Transformer):
    """A model for decoding alone: what it says next is written here.

    The token after position t is fixed by source token t and by the
    target token there; it is EOS where the source has EOS or padding.
    In training mode dropout disturbs it.
    """

    def __init__(self, config: transformer.TransformerConfig) -> None:
        nn.Module.__init__(self)  # none of a Transformer's parts
        self.config = config
        self.dropout = nn.Dropout(0.3)
        self.output_projection = nn.Identity()

    def scores(self, source: Tensor, target_in: Tensor) -> Tensor:
        config, length = self.config, target_in.size(1)
        filled = nn.functional.pad(source, (0, length))[:, :length]
        said = 3 + (filled + target_in) % (config.vocab_size - 3)
        said = said.masked_fill(filled < 3, config.eos_id)
        return nn.functional.one_hot(said, config.vocab_size).float()

    def build_masks(self, source: Tensor, target_in: Tensor):
        return (torch.ones(1, dtype=torch.bool),) * 3

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        return source

    def decode(self, target_in, memory, target_mask, memory_mask, *, cache):
        return self.dropout(self.scores(memory, target_in))

    def new_cache(self) -> None:
        return None


class StandInAttention(nn.Module):
    """Part of the query, and the mean of the values in sight."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, query, key, value, mask=None, *, cache=None):
        shape = (len(query), 1, query.size(1), key.size(1))
        seen = mask.expand(shape)[:, 0].to(value.dtype)
        seen = seen / seen.sum(-1, keepdim=True)
        return self.share * query + seen @ (value + 0.1 * key)


class StandInFeedForward(nn.Module):
    """Squares, less 1."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x - 1


class StandInConnection(nn.Module):
    """LayerNorm(x + Sublayer(x)) by the reference."""

    def forward(self, x: Tensor, sublayer: Callable) -> Tensor:
        return reference.normalise(x + sublayer(x)).to(x.dtype)


def _our_projections(mine: Any) -> dict[str, Tensor]:
    read = {}
    for name in ("query", "key", "value", "output"):
        projection = getattr(mine, f"project_{name}")
        if isinstance(projection, nn.Identity):  # a known mistake
            continue
        read[name] = projection.weight
        if projection.bias is not None:
            read[f"{name}_bias"] = projection.bias
    return read


def _our_maps(mine: Any) -> tuple[Tensor, ...]:
    first, second = mine.widen, mine.narrow
    return first.weight, first.bias, second.weight, second.bias


def _weights_or(weights: Callable | None, ours: Callable, mine: Any, of: str):
    if weights is not None:
        return weights(mine)
    try:
        return ours(mine)
    except AttributeError as error:
        raise TypeError(
            f"check.{of} cannot read the weights of"
            f" {type(mine).__name__}: {error}. Pass weights=, a function"
            " that returns them"
        ) from None


def _normal(seed: int) -> Callable[..., Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator)


def _random_mask(*shape: int, seed: int) -> Tensor:
    """Random, but every query may attend to the first key."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(*shape, generator=generator) < 0.6
    mask[..., 0] = True
    return mask


def _causal(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril()


def _named(name: str, function: Callable) -> Callable:
    """A function that a report shows by name."""

    class Named:
        def __call__(self, x: Tensor) -> Tensor:
            return function(x)

        def __repr__(self) -> str:
            return name

    return Named()


__all__ = [
    name
    for name, value in list(globals().items())
    if inspect.isfunction(value) and not name.startswith("_")
]
