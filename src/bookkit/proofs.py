"""The book's exact claims, each as a few lines that can fail.

A proof takes no arguments and returns a `Proof`: what was measured
and what the claim has one expect. Chapters show it and call it; the
suite runs it as it is and under the known mistakes that the ledger
names, with which it must come out otherwise. So a proof looks parts
of the model up in `transformer` when it is called. Numbers in upper
case are the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import transformer
from bookkit import reference
from bookkit.cost_checks import multiplications
from transformer import TransformerConfig, complexity, table1

ROUNDING = 1e-12  # what float64 loses in a few thousand steps


@dataclass(frozen=True)
class Proof:
    """What a proof measured, and what the claim has one expect.

    Args:
        measured: the number that came out.
        expected: the number that the claim has one expect.
        tolerance: how far apart they may be; also how far apart two
            runs of the proof may be.
        unit: what the number counts, if it needs saying.
        spread: the measured number's standard error, if it has one.
        sense: "equal", or "below" or "above" where the claim gives
            a bound.
        whole: False where the numbers do not speak for the whole
            claim.
        part: True where a part of the claim holds that the numbers
            speak against.

    Raises:
        ValueError: another sense, or a tolerance below 0.
    """

    measured: float
    expected: float
    tolerance: float
    unit: str = ""
    spread: float | None = None
    _: KW_ONLY
    sense: str = "equal"
    whole: bool = True
    part: bool = False

    def __post_init__(self) -> None:
        if self.sense not in ("equal", "below", "above"):
            raise ValueError(f"sense={self.sense!r} must be equal, below or above")
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance={self.tolerance} must be at least 0")

    @property
    def agrees(self) -> bool:
        """Whether measured is where the claim has it. NaN never is."""
        if self.sense == "below":
            return self.measured < self.expected
        if self.sense == "above":
            return self.measured > self.expected
        return abs(self.measured - self.expected) <= self.tolerance

    @property
    def outcome(self) -> str:
        """ "holds", "scoped" or "against"."""
        if self.agrees:
            return "holds" if self.whole else "scoped"
        return "scoped" if self.part else "against"


# --- what the proofs have in common --------------------------------------


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Independent normal numbers in float64, the same each time."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def small_model(**changes) -> transformer.Transformer:
    """Two layers in float64, every parameter drawn, no dropout."""
    shape = dict(layers=2, d_model=16, d_ff=32, heads=4)
    shape |= dict(vocab_size=13, max_length=32, dropout=0.0)
    config = TransformerConfig(**(shape | changes))
    model = transformer.Transformer(config).double().eval()
    with torch.no_grad():
        for seed, weights in enumerate(model.parameters()):
            noise = draw(*weights.shape, seed=seed)
            if weights.dim() > 1:
                weights.copy_(noise / math.sqrt(weights.size(-1)))
            else:
                weights.add_(0.2 * noise)
    return model


def gap(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference between two tensors."""
    return (ours.double() - theirs.double()).abs().max().item()


def who_sees_whom(output: Tensor, given: Tensor) -> Tensor:
    """From which given positions does each output position learn?

    Args:
        output: (1, positions, width), computed from `given`.
        given: (1, positions, width), a leaf that has a gradient.

    Returns:
        (output positions, given positions), True where any gradient
        arrives.
    """
    direction = draw(output.size(-1), seed=99)
    rows = []
    for position in range(output.size(1)):
        along = output[0, position] @ direction
        (slope,) = torch.autograd.grad(
            along, given, retain_graph=True, materialize_grads=True
        )
        rows.append(slope[0].abs().sum(-1) > 0)
    return torch.stack(rows)


# The source ends with two ids of padding.
SOURCE = torch.tensor([[5, 8, 3, 9, 2, 0, 0]])
TARGET = torch.tensor([[1, 7, 4, 4, 11, 6, 2]])


# --- abstract and section 3.1 ------------------------------------------


def attention_only() -> Proof:
    """Count recurrent and convolutional modules in the base model."""
    model = transformer.Transformer(TransformerConfig.base(100))
    kinds = (nn.RNNBase, nn.RNNCellBase, nn.modules.conv._ConvNd)
    found = [isinstance(part, kinds) for part in model.modules()]
    return Proof(sum(found), 0, 0, "modules")


def residual_norm() -> Proof:
    """A sub-layer's output, against LayerNorm written out."""
    connection = small_model().encoder.layers[0].around_feed_forward
    for norm in connection.modules():  # gain 1, bias 0
        if hasattr(norm, "eps"):
            nn.init.ones_(norm.weight)
            nn.init.zeros_(norm.bias)
    x = draw(1, 5, 16)
    by_hand = reference.normalise(x + torch.tanh(3 * x))
    ours = connection(x, lambda x: torch.tanh(3 * x))
    return Proof(gap(ours, by_hand), 0, 1e-9)


def width_512() -> Proof:
    """Widths that come out of base's embeddings and sub-layers."""
    config = TransformerConfig.base(vocab_size=100, layers=1)
    model, widths = transformer.Transformer(config).eval(), set()

    def note(part: nn.Module, given: tuple, output: Tensor) -> None:
        widths.add(output.size(-1))

    for part in (
        model.source_positions,
        model.target_positions,
        *model.encoder.layers[0].children(),
        *model.decoder.layers[0].children(),
    ):
        part.register_forward_hook(note)
    model(SOURCE, TARGET)
    others = len(widths - {512})
    return Proof(others, 0, 0, "other widths", whole=512 in widths)


def no_peeking() -> Proof:
    """Change each target token; see which predictions move."""
    model, length = small_model(), TARGET.size(1)

    def predict(target: Tensor) -> tuple[Tensor, Tensor]:
        given, wanted = transformer.training.shift(target)
        # Predictions are of the last tokens of the target.
        places = range(length - wanted.size(1), length)
        return model(SOURCE, given)[0], torch.tensor(places)

    before, predicted = predict(TARGET)
    wrong = 0
    for place in range(length):
        changed = TARGET.clone()
        changed[0, place] = 3
        moved = (predict(changed)[0] != before).any(-1)
        wrong += (moved != (predicted > place)).sum().item()
    return Proof(wrong, 0, 0, "wrong pairs")


# --- section 3.2, attention ----------------------------------------------


def weighted_sum() -> Proof:
    """How far the weights are from shares that make the output."""
    query, key, value = (draw(2, 6, 8, seed=seed) for seed in range(3))
    output, weights = transformer.scaled_dot_product_attention(
        query, key, value, return_weights=True
    )
    errors = (
        gap(weights.sum(-1), torch.ones(2, 6)),
        (-weights).max().clamp(min=0).item(),
        gap(output, (weights[..., None] * value[:, None]).sum(-2)),
    )
    return Proof(max(errors), 0, ROUNDING)


def eq1() -> Proof:
    """Largest gap between ours, both ways, loops and the kernel."""
    shape = (2, 3, 6, 8)
    query, key, value = (draw(*shape, seed=seed) for seed in range(3))
    seen = draw(2, 1, 6, 6, seed=3) > -0.5
    seen[..., 0] = True
    worst = 0.0
    for mask in (None, seen):
        given = (query, key, value, mask)
        loops = reference.attention(*given)
        printed, _ = transformer.scaled_dot_product_attention(
            *given, return_weights=True
        )
        fused = transformer.scaled_dot_product_attention(*given)
        kernel = F.scaled_dot_product_attention(query, key, value, mask)
        gaps = [gap(ours, loops) for ours in (printed, fused, kernel)]
        worst = max(worst, *gaps)
    return Proof(worst, 0, ROUNDING)


def unscaled_same() -> Proof:
    """Queries times sqrt(d_k) give the attention without the factor."""
    query, key, value = (draw(2, 6, 8, seed=seed) for seed in range(3))
    output, _ = transformer.scaled_dot_product_attention(
        query * math.sqrt(8), key, value, return_weights=True
    )
    without = (query @ key.transpose(-2, -1)).softmax(-1) @ value
    return Proof(gap(output, without), 0, ROUNDING)


def variance_dk(d_k: int = 64, samples: int = 20_000) -> Proof:
    """The variance of q . k over many independent pairs."""
    query = draw(samples, 1, d_k, seed=1)
    key = draw(samples, 1, d_k, seed=2)
    keys = torch.cat([key, torch.zeros_like(key)], dim=1)
    _, weights = transformer.scaled_dot_product_attention(
        query, keys, keys, return_weights=True
    )
    # The score of a key of zeros is 0: the log of the odds is the
    # other key's score, q . k / sqrt(d_k).
    score = weights.log()[..., 0] - weights.log()[..., 1]
    product = math.sqrt(d_k) * score
    squares = (product - product.mean()) ** 2
    error = squares.std().item() / math.sqrt(samples)
    mean_is_0 = product.mean().abs() < 4 * math.sqrt(d_k / samples)
    variance, whole = squares.mean().item(), bool(mean_is_0)
    return Proof(variance, d_k, 0.05 * d_k, "", error, whole=whole)


def saturation(d_k: int = 512, keys: int = 16) -> Proof:
    """Size of the softmax's Jacobian, median, unscaled over scaled."""
    query = draw(500, 1, d_k, seed=1)
    key = draw(500, keys, d_k, seed=2)
    _, scaled = transformer.scaled_dot_product_attention(
        query, key, key, return_weights=True
    )
    unscaled = (query @ key.transpose(-2, -1)).softmax(-1)

    def jacobian(p: Tensor) -> float:
        matrix = p.diag_embed() - p[:, :, None] * p[:, None, :]
        return matrix.flatten(1).norm(dim=1).median().item()

    ratio = jacobian(unscaled[:, 0]) / jacobian(scaled[:, 0])
    return Proof(ratio, 0.01, 1e-6, sense="below", whole=False)


def multi_head() -> Proof:
    """The batched heads, against one head after the other."""
    attention = small_model().decoder.layers[0].cross_attention
    weights = {
        name.removeprefix("project_"): layer.weight.detach()
        for name, layer in attention.named_children()
        if hasattr(layer, "weight")
    }
    weights.setdefault("output", draw(16, 16))  # if W^O is missing
    x, memory = draw(1, 5, 16, seed=1), draw(1, 7, 16, seed=2)
    loop = reference.heads(weights, 4, x, memory, memory)
    return Proof(gap(attention(x, memory, memory), loop), 0, ROUNDING)


def eight_heads() -> Proof:
    """d_model / h in the base model, where h is 8."""
    base = TransformerConfig.base()
    as_printed = base.heads == 8 and base.d_k == base.d_v == 64
    width = base.d_model / base.heads
    return Proof(width, 64, 0, "columns a head", whole=as_printed)


def equal_width() -> Proof:
    """How wide base's heads are, side by side."""
    base = TransformerConfig.base()
    attention = transformer.MultiHeadAttention(base.d_model, base.heads)
    joined = attention.project_output.in_features
    back = attention.project_output.out_features
    return Proof(joined, base.d_model, 0, "columns", whole=back == 512)


def head_cost() -> Proof:
    """Multiplications of 8 heads, over those of one full-width head."""
    from torch.utils.flop_counter import FlopCounterMode

    n, d = 10, 512
    # Four projections, scores, weighted sums.
    one_head = 4 * n * d * d + n * n * d + n * n * d
    attention = transformer.MultiHeadAttention(d, heads=8)
    attention.record = True  # the plain path, which can be counted
    x = torch.zeros(1, n, d)
    with FlopCounterMode(display=False) as counter:
        attention(x, x, x)
    multiplications = counter.get_total_flops() / 2
    return Proof(multiplications / one_head, 1, 0)


# --- section 3.2.3, the three uses ---------------------------------------


def use_cross() -> Proof:
    """From which source positions each output position learns."""
    model = small_model()
    source_mask, *masks = model.build_masks(SOURCE, TARGET)
    memory = model.encode(SOURCE, source_mask).detach()
    output = model.decode(TARGET, memory.requires_grad_(), *masks)
    wrong = who_sees_whom(output, memory) != (SOURCE != 0)
    return Proof(wrong.sum().item(), 0, 0, "wrong pairs")


def use_encoder() -> Proof:
    """From which positions each real one learns in one layer."""
    model = small_model()
    mask, _, _ = model.build_masks(SOURCE, TARGET)
    below = draw(1, SOURCE.size(1), 16).requires_grad_()
    above = model.encoder.layers[0](below, mask)
    seen = who_sees_whom(above, below)[SOURCE[0] != 0]
    wrong = seen != (SOURCE != 0)
    return Proof(wrong.sum().item(), 0, 0, "wrong pairs")


def use_decoder() -> Proof:
    """Which target positions get a weight above exactly 0."""
    model = small_model()
    _, weights = model(SOURCE, TARGET, return_attention=True)
    length = TARGET.size(1)
    up_to_itself = torch.ones(length, length).tril() == 1
    wrong = (weights["decoder"] > 0) != up_to_itself
    return Proof(wrong.sum().item(), 0, 0, "wrong weights")


# --- sections 3.3 and 3.4 ------------------------------------------------


def eq2() -> Proof:
    """Our feed-forward network, against equation 2 in loops."""
    network = small_model().encoder.layers[0].feed_forward
    x, base = draw(2, 5, 16), TransformerConfig.base()
    by_hand = reference.feed_forward(*network.parameters(), x)
    printed = (base.d_model, base.d_ff) == (512, 2048)
    return Proof(gap(network(x), by_hand), 0, ROUNDING, whole=printed)


def position_wise() -> Proof:
    """Each position on its own, against all positions together."""
    model = small_model()
    layers = [*model.encoder.layers, *model.decoder.layers]
    networks = [layer.feed_forward for layer in layers]
    apart = len(set(map(id, networks))) == len(networks)
    x = draw(1, 5, 16)
    alone = [networks[0](x[:, [i]]) for i in range(5)]
    together = networks[0](x)
    difference = gap(together, torch.cat(alone, dim=1))
    return Proof(difference, 0, ROUNDING, whole=apart)


def kernel_one() -> Proof:
    """The same weights in two convolutions of kernel size 1."""
    network = small_model().encoder.layers[0].feed_forward
    w1, b1, w2, b2 = network.parameters()
    x = draw(2, 5, 16)
    hidden = F.conv1d(x.transpose(1, 2), w1[..., None], b1).relu()
    output = F.conv1d(hidden, w2[..., None], b2).transpose(1, 2)
    return Proof(gap(network(x), output), 0, ROUNDING)


def tied_weights() -> Proof:
    """One matrix's gradient, against the sum over three copies."""
    tied, untied = small_model(), small_model(tied=False)
    untied.load_state_dict(tied.state_dict())

    def matrices(model: nn.Module) -> list[nn.Parameter]:
        model(SOURCE, TARGET).square().mean().backward()
        return [
            model.source_embedding.weight,
            model.target_embedding.weight,
            model.output_projection.weight,
        ]

    (one, *same), copies = matrices(tied), matrices(untied)
    shared = all(matrix is one for matrix in same)
    parts = sum(matrix.grad for matrix in copies)
    return Proof(gap(one.grad, parts), 0, ROUNDING, whole=shared)


def scale_embedding() -> Proof:
    """Length of an embedded token over that of its row, base."""
    embedding = transformer.TokenEmbedding(100, 512).double()
    ids = torch.arange(100)[None]
    rows = embedding.weight[ids]
    ratios = embedding(ids).norm(dim=-1) / rows.norm(dim=-1)
    return Proof(ratios.mean().item(), math.sqrt(512), 1e-9)


# --- section 3.5, positions ----------------------------------------------


def order_needed() -> Proof:
    """The output, shuffled, against that of the shuffled input."""
    model, ids = small_model(), SOURCE[:, :5]
    mask, _, _ = model.build_masks(ids, TARGET)
    shuffled = torch.tensor([3, 0, 4, 1, 2])
    embed, encode = model.source_embedding, model.encoder

    def difference(x: Tensor, y: Tensor) -> float:
        return gap(encode(x, mask)[:, shuffled], encode(y, mask))

    x, y = embed(ids), embed(ids[:, shuffled])
    without = difference(x, y)
    place = model.source_positions
    with_positions = difference(place(x), place(y))
    return Proof(without, 0, ROUNDING, whole=with_positions > 0.1)


def sum_encoding() -> Proof:
    """What both stacks are given, against embedding + position."""
    model, given = small_model(), []

    def note(stack: nn.Module, inputs: tuple) -> None:
        given.append(inputs[0])

    model.encoder.register_forward_pre_hook(note)
    model.decoder.register_forward_pre_hook(note)
    model(SOURCE, TARGET)
    positions = reference.positions(7, model.config.d_model)
    sums = [
        model.source_embedding(SOURCE) + positions,
        model.target_embedding(TARGET) + positions,
    ]
    # The table is kept in float32.
    return Proof(max(map(gap, given, sums)), 0, 1e-6)


def sinusoids() -> Proof:
    """The table, against the two formulas entry by entry."""
    table = transformer.sinusoidal_encoding(50, 512)
    return Proof(gap(table, reference.positions(50, 512)), 0, 1e-6)


def wavelengths() -> Proof:
    """The longest wavelength of base, read off the table."""
    table = transformer.sinusoidal_encoding(2, 512).double()
    step = torch.atan2(table[1, 0::2], table[1, 1::2])  # pos 0 to 1
    waves = 2 * math.pi / step
    ratio = waves[1:] / waves[:-1]
    first = math.isclose(waves[0], 2 * math.pi, rel_tol=1e-6)
    geometric = gap(ratio, ratio[0]) < 1e-6
    nearly = math.isclose(waves[-1], 60611.48, rel_tol=1e-6)
    last = 10_000 * 2 * math.pi
    part = first and geometric and nearly
    return Proof(waves[-1].item(), last, 1, part=part)


def linear_offset(k: int = 7) -> Proof:
    """PE(pos + k), against one rotation of PE(pos), 100 positions."""
    table = transformer.sinusoidal_encoding(100 + k, 512).double()
    angle = k / 10000 ** (torch.arange(0, 512, 2).double() / 512)
    sine, cosine = table[:100, 0::2], table[:100, 1::2]
    rotated = torch.empty(100, 512, dtype=torch.float64)
    rotated[:, 0::2] = sine * angle.cos() + cosine * angle.sin()
    rotated[:, 1::2] = cosine * angle.cos() - sine * angle.sin()
    return Proof(gap(table[k:], rotated), 0, 1e-6)


# --- section 4, counted from Table 1's terms -----------------------------


def conv_k_times() -> Proof:
    """k n d^2 over n d^2, for a kernel of size 3."""
    n, d, k = 50, 512, 3
    return Proof((k * n * d**2) / (n * d**2), k, 0, "times")


def separable() -> Proof:
    """k n d + n d^2 at k = n, over n^2 d + n d^2."""
    n, d = 50, 512
    k = n
    convolution = k * n * d + n * d**2
    attention, point_wise = n**2 * d, n * d**2
    return Proof(convolution / (attention + point_wise), 1, 0)


# --- section 5, training -------------------------------------------------


def step_times() -> Proof:
    """Hours of 100K steps of 0.4 s; a figure of 0.4 is 0.35 to 0.45."""
    base = 0.4 * 100_000 / 3600
    rounding = 0.05 * 100_000 / 3600
    big_days = 1.0 * 300_000 / 3600 / 24
    big = abs(big_days - 3.5) < 0.05
    return Proof(base, 12, rounding, "hours", whole=big)


def eq3() -> Proof:
    """The scheduler's rates, against the two halves of equation 3."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.0)
    scheduler = transformer.NoamScheduler(optimizer, d_model=512)
    worst = 0.0
    for step in range(1, 5001):
        by_hand = reference.rate(step, 512, warmup_steps=4000)
        (ours,) = scheduler.get_last_lr()
        worst = max(worst, abs(ours / by_hand - 1))
        optimizer.step()
        scheduler.step()
    return Proof(worst, 0, ROUNDING)


def label_smoothing() -> Proof:
    """The loss, against the smoothed target written out."""
    smoothing = transformer.TrainingConfig().label_smoothing
    target = torch.tensor([[4, 7, 2, 0], [3, 2, 0, 0]])  # 0 is padding
    logits = draw(2, 4, 13)
    criterion = transformer.LabelSmoothingLoss(smoothing, pad_id=0)
    by_hand = reference.smoothed_loss(logits, target, 0.1, pad_id=0)
    return Proof(gap(criterion(logits, target), by_hand), 0, ROUNDING)


# --- section 6.1: Table 2, as printed ------------------------------------

# Model: BLEU English-German, English-French; cost in FLOPs of each.
SINGLE = {
    "ByteNet": (23.75, None, None, None),
    "Deep-Att + PosUnk": (None, 39.2, None, 1.0e20),
    "GNMT + RL": (24.6, 39.92, 2.3e19, 1.4e20),
    "ConvS2S": (25.16, 40.46, 9.6e18, 1.5e20),
    "MoE": (26.03, 40.56, 2.0e19, 1.2e20),
}
ENSEMBLES = {
    "Deep-Att + PosUnk Ensemble": (None, 40.4, None, 8.0e20),
    "GNMT + RL Ensemble": (26.30, 41.16, 1.8e20, 1.1e21),
    "ConvS2S Ensemble": (26.36, 41.29, 7.7e19, 1.2e21),
}
BASE = (27.3, 38.1, 3.3e18, 3.3e18)
BIG = (28.4, 41.8, 2.3e19, 2.3e19)
P100 = 9.5e12  # footnote 5: sustained operations a second


def column(table: dict[str, tuple], index: int) -> list[float]:
    """The figures that a column of Table 2 has, top to bottom."""
    return [row[index] for row in table.values() if row[index]]


def best_before(pair: int) -> float:
    """The best BLEU before: pair 0 is English-German, 1 is French."""
    return max(column(SINGLE | ENSEMBLES, pair))


def intro_twelve_hours() -> Proof:
    """Language pairs on which base is ahead of all before it."""
    ahead = [BASE[pair] > best_before(pair) for pair in (0, 1)]
    part = ahead == [True, False]
    return Proof(sum(ahead), 2, 0, "of 2 language pairs", part=part)


def ende_big() -> Proof:
    """Big over the best model or ensemble before, English-German."""
    ahead = round(BIG[0] - best_before(0), 2)
    return Proof(ahead, 2.0, 1e-9, "BLEU", sense="above")


def ende_base() -> Proof:
    """Base's cost over the cheapest before, English-German."""
    share = BASE[2] / min(column(SINGLE | ENSEMBLES, 2))
    ahead = BASE[0] > best_before(0)
    return Proof(share, 1, 1e-9, sense="below", whole=ahead)


def enfr_single_models() -> Proof:
    """Big over the best single model before, English-French."""
    in_text = 41.0  # the lower of the paper's two figures
    ahead = round(in_text - max(column(SINGLE, 1)), 2)
    return Proof(ahead, 0, 1e-9, "BLEU", sense="above")


def quarter_cost() -> Proof:
    """Big's cost over that of the best single model, English-French."""
    best = max(SINGLE.values(), key=lambda row: row[1] or 0)
    return Proof(BIG[3] / best[3], 0.25, 1e-9, sense="below")


def fraction_cost() -> Proof:
    """Big's cost over the cheapest single model's, English-French."""
    share = BIG[3] / min(column(SINGLE, 3))
    return Proof(share, 0.25, 1e-9, sense="below")


def table2_flops() -> Proof:
    """Wall clock times 8 devices times 9.5 TFLOPS, base; and big."""
    base = 12 * 3600 * 8 * P100
    big = 3.5 * 86400 * 8 * P100
    printed = abs(big - BIG[2]) < 0.05e19
    return Proof(base, BASE[2], 0.05e18, "FLOPs", whole=printed)


# --- sections 6.2 and 6.3 ------------------------------------------------

# Table 3's last column, in millions.
PARAMETERS = {
    "base": 65,
    "B-dk16": 58,
    "B-dk32": 60,
    "C-N2": 36,
    "C-N4": 50,
    "C-N8": 80,
    "C-d256": 28,
    "C-d1024": 168,
    "C-ff1024": 53,
    "C-ff4096": 90,
    "big": 213,
}


def count_parameters(row: str, **changes) -> int:
    """Parameters of a real model of a row of Table 3, unallocated."""
    with torch.device("meta"):
        config = TransformerConfig.table3(row, **changes)
        model = transformer.Transformer(config)
    return sum(weights.numel() for weights in model.parameters())


def rows_that_round(**changes) -> int:
    """Rows of Table 3 whose count rounds to the printed figure."""
    return sum(
        round(count_parameters(row, **changes) / 1e6) == printed
        for row, printed in PARAMETERS.items()
    )


def table3_params() -> Proof:
    """Rows that round to Table 3's figure, as the code allocated."""
    fit = rows_that_round(vocab_size=40960, attention_bias=True)
    none = rows_that_round(vocab_size=37000) == 0
    part = fit == 10 and none
    return Proof(fit, 11, 0, "of 11 rows", part=part)


# Table 4: parser, setting, F1 on section 23 of the Wall Street Journal.
WSJ_ONLY, SEMI_SUPERVISED = "WSJ only, discriminative", "semi-supervised"
TABLE4 = (
    ("Vinyals & Kaiser et al. (2014)", WSJ_ONLY, 88.3),
    ("Petrov et al. (2006)", WSJ_ONLY, 90.4),
    ("Zhu et al. (2013)", WSJ_ONLY, 90.4),
    ("Dyer et al. (2016)", WSJ_ONLY, 91.7),
    ("Transformer (4 layers)", WSJ_ONLY, 91.3),
    ("Zhu et al. (2013)", SEMI_SUPERVISED, 91.3),
    ("Huang & Harper (2009)", SEMI_SUPERVISED, 91.3),
    ("McClosky et al. (2006)", SEMI_SUPERVISED, 92.1),
    ("Vinyals & Kaiser et al. (2014)", SEMI_SUPERVISED, 92.1),
    ("Transformer (4 layers)", SEMI_SUPERVISED, 92.7),
    ("Luong et al. (2015)", "multi-task", 93.0),
    ("Dyer et al. (2016)", "generative", 93.3),
)


def table4(*settings: str) -> dict[str, float]:
    """F1 by the first name of each row, of these settings."""
    return {name.split()[0]: f1 for name, kind, f1 in TABLE4 if kind in settings}


def parsing_rank() -> Proof:
    """Models ahead of ours in Table 4 that are no RNN Grammar."""

    def ahead(ours: float, *settings: str) -> int:
        others = table4(*settings)
        others.pop("Dyer", None)
        return sum(f1 > ours for f1 in others.values())

    alone = table4(WSJ_ONLY)["Transformer"]
    with_more = table4(SEMI_SUPERVISED)["Transformer"]
    own = ahead(alone, WSJ_ONLY) + ahead(with_more, SEMI_SUPERVISED)
    total = own + ahead(with_more, "multi-task", "generative")
    return Proof(total, 0, 0, "models ahead", part=own == 0)


def parsing_berkeley() -> Proof:
    """Ours over the BerkeleyParser (Petrov et al.), WSJ only."""
    f1 = table4(WSJ_ONLY)
    ahead = round(f1["Transformer"] - f1["Petrov"], 1)
    recurrent = f1["Vinyals"] < f1["Petrov"]
    return Proof(ahead, 0, 1e-9, "F1", sense="above", whole=recurrent)


# --- section 7 -----------------------------------------------------------


def conclusion_ensembles() -> Proof:
    """Big over the best ensemble before, English-German."""
    ahead = round(BIG[0] - max(column(ENSEMBLES, 0)), 2)
    return Proof(ahead, 0, 1e-9, "BLEU", sense="above")


def all_proofs() -> Iterator[str]:
    """The names of this module's proofs."""
    for name, thing in globals().items():
        returns = getattr(thing, "__annotations__", {}).get("return")
        if returns == "Proof":
            yield name


# --- sections 1, 2 and 4: costs, steps and paths ------------------------


def layers_between(distance: int, layer) -> int:
    """How many layers a gradient needs to come that far; 0 if never.

    Args:
        distance: from the first position to the last.
        layer: (x, i) -> the output of layer i, from 0.
    """
    x = draw(distance + 1, 4, seed=3).requires_grad_()
    above = x
    for i in range(distance + 1):
        above = layer(above, i)
        along = above[-1] @ draw(4, seed=4)
        (slope,) = torch.autograd.grad(along, x, retain_graph=True)
        if slope[0].abs().sum() > 0:
            return i + 1
    return 0


def stacked(k: int, dilation=lambda i: 1):
    """A stack of kernels of k positions, for `layers_between`."""
    kernel = draw(4, 4, k, seed=5)

    def layer(x: Tensor, i: int) -> Tensor:
        return table1.convolutional_layer(x, kernel, dilation(i))

    return layer


def full_attention(x: Tensor, i: int) -> Tensor:
    """Attention without a limit, for `layers_between`."""
    return table1.attention_layer(x)


def attention_to(r: int):
    """Layers of restricted attention, for `layers_between`."""
    return lambda x, i: table1.restricted_layer(x, r)


def intro_sequential(n: int = 100) -> Proof:
    """Matrix products in a row behind n states of a recurrence."""
    x = draw(n, 8).requires_grad_()
    states = table1.recurrent_layer(x, draw(16, 8, seed=1))
    chain = complexity.dependent_products(states)
    with torch.random.fork_rng():
        lstm, _ = nn.LSTM(8, 8).double()(x)
    attention = table1.attention_layer(x)
    others = map(complexity.dependent_products, (lstm, attention))
    whole = list(others) == [n, 2]
    return Proof(chain, n, 0, "products in a row", whole=whole)


def background_conv_distance(k: int = 3) -> Proof:
    """Distances 1 to 40 that take other than the predicted layers."""
    contiguous = stacked(k)
    doubling = stacked(k, lambda i: 2**i)
    built = stacked(k, lambda i: 2 ** (i % 5))  # ByteNet's 1 to 16
    wrong = 0
    for distance in range(1, 41):
        ways = contiguous, doubling, full_attention
        found = [layers_between(distance, way) for way in ways]
        linear = math.ceil(distance / (k - 1))
        logarithmic = math.ceil(math.log2(distance / (k - 1) + 1))
        wrong += found != [linear, logarithmic, 1]
    far = [layers_between(200, way) for way in (doubling, built)]
    return Proof(wrong, 0, 0, "of 40 distances", whole=far[0] == far[1])


def table1_cost() -> Proof:
    """Counts that are no fixed multiple of the printed term."""
    constants, wrong = (2, 2, 1, 2), 0
    for n, d, k, r in ((6, 4, 3, 2), (12, 4, 3, 5), (7, 16, 2, 3)):
        x, weight, kernel = draw(n, d), draw(2 * d, d), draw(d, d, k)
        counted = (
            multiplications(table1.attention_layer, x),
            multiplications(table1.recurrent_layer, x, weight),
            multiplications(table1.convolutional_layer, x, kernel),
            multiplications(table1.restricted_layer, x, r),
        )
        by_formula = (
            complexity.self_attention(n, d).operations,
            complexity.recurrent(n, d).operations,
            complexity.convolutional(n, d, k).operations,
            complexity.restricted(n, d, r).operations,
        )
        terms = (n * n * d, n * d * d, k * n * d * d, r * n * d)
        for i in range(4):
            printed = constants[i] * terms[i]
            wrong += not counted[i] == by_formula[i] == printed
    return Proof(wrong, 0, 0, "of 12 counts")


def table1_sequential() -> Proof:
    """Chains of products that are not as the formulas have them."""
    wrong, d = 0, 4
    for n in (5, 20, 80):
        x = draw(n, d).requires_grad_()
        weight, kernel = draw(2 * d, d), draw(d, d, 3)
        counted = [
            complexity.dependent_products(output)
            for output in (
                table1.attention_layer(x),
                table1.recurrent_layer(x, weight),
                table1.convolutional_layer(x, kernel),
                table1.restricted_layer(x, 3),
            )
        ]
        wrong += counted != [2, n, 1, 2]
    return Proof(wrong, 0, 0, "of 3 lengths")


def table1_path() -> Proof:
    """Paths from first to last that are not as the formulas have."""
    wrong, d = 0, 4
    for n, k, r in ((9, 3, 3), (28, 3, 4), (65, 2, 9), (81, 3, 17)):
        x = draw(n, d).requires_grad_()
        states = table1.recurrent_layer(x, draw(2 * d, d))
        found = [
            layers_between(n - 1, full_attention),
            complexity.dependent_products(states[-1]),
            layers_between(n - 1, stacked(k)),
            layers_between(n - 1, stacked(k, lambda i, k=k: k**i)),
            layers_between(n - 1, attention_to(r)),
        ]
        by_formula = [
            complexity.self_attention(n, d).path,
            complexity.recurrent(n, d).path,
            complexity.convolutional(n, d, k).path,
            complexity.convolutional(n, d, k, growth=k).path,
            complexity.restricted(n, d, r).path,
        ]
        log = sum(k**i < n for i in range(n))  # log_k n, rounded up
        printed = [1, n, -(-(n - 1) // (k - 1)), log]
        wrong += found != by_formula or found[:4] != printed
    return Proof(wrong, 0, 0, "of 4 sizes")


def restricted_attention(n: int = 96, r: int = 9) -> Proof:
    """Its multiplications over those of full attention, r over n."""
    x = draw(n, 4)
    full = multiplications(table1.attention_layer, x)
    some = multiplications(table1.restricted_layer, x, r)
    sizes, layer = (r, 2 * r, n), attention_to(r)
    paths = [layers_between(m - 1, layer) for m in sizes]
    expected = [math.ceil((m - 1) / (r - 1)) for m in sizes]
    whole = paths == expected
    return Proof(some / full, r / n, ROUNDING, whole=whole)


def conv_stack(n: int = 81, k: int = 3) -> Proof:
    """Layers until the last of 81 positions learns from the first."""
    one = draw(n, 4, seed=3).requires_grad_()
    (slope,) = torch.autograd.grad(stacked(k)(one, 0)[-1].sum(), one)
    reached = (slope.abs().sum(-1) > 0).sum().item()
    contiguous = layers_between(n - 1, stacked(k))
    dilated = layers_between(n - 1, stacked(k, lambda i: k**i))
    whole = reached == k and contiguous == (n - 1) / (k - 1)
    return Proof(dilated, 4, 0, "dilated layers", whole=whole)
