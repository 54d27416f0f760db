"""The checks pass what is right, in any style, and say what is not."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.bookkit import naive
from torch import nn
from torch.nn import functional as F

import transformer
from bookkit import CheckFailed, Report, check, use
from transformer import (
    LabelSmoothingLoss,
    Transformer,
    TransformerConfig,
    scaled_dot_product_attention,
)
from transformer.training import make_optimizer


def test_our_own_parts_pass_every_check():
    reports = check.in_use()
    assert len(reports) == 20
    assert all(isinstance(report, Report) for report in reports)
    assert repr(reports[0]) == "attention: 13 checks passed"


# --- no false alarms -----------------------------------------------------


def numpy_attention(q, k, v, mask):
    kind = q.dtype
    q, k, v = (x.double().numpy() for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask.numpy(), scores, -1e30)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return torch.from_numpy(powers / powers.sum(-1, keepdims=True) @ v).to(kind)


def hidden_attention(q, k, v, hidden):
    scores = q @ k.mT * k.shape[-1] ** -0.5
    if hidden is not None:
        scores = scores.masked_fill(hidden, torch.finfo(q.dtype).min)
    return F.softmax(scores, dim=-1) @ v, scores


def scale_first_attention(q, k, v, mask):
    root = math.sqrt(math.sqrt(q.shape[-1]))
    scores = (q / root) @ (k / root).transpose(-2, -1)
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    return scores.softmax(-1).nan_to_num() @ v


RIGHT_ATTENTIONS = {
    "einsum": (naive.dot_attention, None),
    "numpy": (numpy_attention, None),
    "scales queries and keys": (scale_first_attention, None),
    "the framework's": (F.scaled_dot_product_attention, None),
    "other mask, returns a pair": (
        hidden_attention,
        lambda f, q, k, v, mask: f(q, k, v, None if mask is None else ~mask)[0],
    ),
}


@pytest.mark.parametrize("name", RIGHT_ATTENTIONS)
def test_a_right_attention_raises_nothing(name):
    mine, call = RIGHT_ATTENTIONS[name]
    check.attention(mine, call=call)


class FusedHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, q, k, v, mask=None):
        maps = zip(self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True)
        q, k, v = (
            F.linear(x, w, b).view(len(x), -1, 4, 4).permute(0, 2, 1, 3)
            for x, (w, b) in zip((q, k, v), maps, strict=True)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, mask)
        return self.out(mixed.permute(0, 2, 1, 3).reshape(len(q), -1, 16))


def read_fused(module):
    weights = module.qkv.weight.chunk(3)
    biases = module.qkv.bias.chunk(3)
    read = {"output": module.out.weight, "output_bias": module.out.bias}
    for name, weight, bias in zip(
        ("query", "key", "value"), weights, biases, strict=True
    ):
        read |= {name: weight, f"{name}_bias": bias}
    return read


def read_framework(module):
    weights = module.in_proj_weight.chunk(3)
    return dict(zip(("query", "key", "value"), weights, strict=True)) | {
        "output": module.out_proj.weight
    }


def call_framework(module, q, k, v, mask):
    if mask is not None:
        shape = (len(q), 4, q.shape[1], k.shape[1])
        mask = ~mask.expand(shape).reshape(-1, *shape[2:])
    return module(q, k, v, attn_mask=mask, need_weights=False)[0]


RIGHT_HEADS = {
    "a list of heads": (lambda: naive.Heads(16, 4), naive.read_heads, None),
    "fused projections": (FusedHeads, read_fused, None),
    "the framework's": (
        lambda: nn.MultiheadAttention(16, 4, bias=False, batch_first=True),
        read_framework,
        call_framework,
    ),
}


@pytest.mark.parametrize("name", RIGHT_HEADS)
def test_right_heads_raise_nothing(name):
    make, weights, call = RIGHT_HEADS[name]
    check.heads(make(), heads=4, d_model=16, weights=weights, call=call)


def test_heads_of_unequal_d_k_and_d_v_raise_nothing():
    mine = transformer.MultiHeadAttention(16, 4, d_k=3, d_v=5, bias=True)
    check.heads(mine, heads=4, d_model=16)


RIGHT_MASKS = {
    "loops": (naive.see_tokens, naive.see_past),
    "the other polarity, wrapped": (
        lambda ids, pad_id: ~(ids == pad_id)[:, None, None],
        lambda n: ~torch.ones(n, n, dtype=torch.bool).triu(1),
    ),
    "floats, wrapped": (
        None,
        lambda n: nn.Transformer.generate_square_subsequent_mask(n) == 0,
    ),
    "padding alone": (naive.see_tokens, None),
}


@pytest.mark.parametrize("name", RIGHT_MASKS)
def test_right_masks_raise_nothing(name):
    check.masks(*RIGHT_MASKS[name])


def test_right_networks_raise_nothing():
    check.feed_forward(
        naive.TwoConvolutions(8, 20), d_model=8, weights=naive.read_convolutions
    )
    plain = nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Linear(20, 8))
    check.feed_forward(
        plain,
        d_model=8,
        weights=lambda m: (m[0].weight, m[0].bias, m[2].weight, m[2].bias),
    )


def test_right_embeddings_raise_nothing():
    check.embedding(naive.Table(40, 16))
    plain = nn.Embedding(40, 64)
    nn.init.normal_(plain.weight, std=64**-0.5)
    check.embedding(plain, call=lambda m, ids: m(ids) * 8.0)
    nn.init.normal_(plain.weight)
    check.embedding(plain, call=lambda m, ids: m(ids) * 8.0, untrained=False)


def complex_positions(length, d_model):
    rate = 10000.0 ** -(torch.arange(0, d_model, 2).double() / d_model)
    turn = torch.polar(
        torch.ones(length, d_model // 2, dtype=torch.float64),
        torch.arange(length).double()[:, None] * rate,
    )
    return torch.stack([turn.imag, turn.real], dim=-1).reshape(length, d_model)


def test_right_positions_raise_nothing():
    check.positional_encoding(complex_positions)
    check.positional_encoding(
        naive.Waves, call=lambda f, n, d: f(d, n)(torch.zeros(1, n, d))[0]
    )
    check.positional_encoding(
        lambda width, count: complex_positions(count, width),
        call=lambda f, length, d_model: f(d_model, length),
    )


def test_right_connections_raise_nothing():
    check.connection(naive.SumThenNorm(8), d_model=8)
    norm = nn.LayerNorm(8)  # its eps is 1e-5
    check.connection(norm, d_model=8, call=lambda f, x, step: f(x + step(x)))


def test_right_layers_raise_nothing():
    check.layers(naive.Encode, naive.Decode)
    check.layers(None, naive.Decode)
    check.layers(
        naive.Encode,
        build=lambda layer, attentions, network, connect: layer(
            connect=connect, network=network, attend=attentions[0]
        ),
    )


def test_right_stacks_raise_nothing():
    check.stack(nn.TransformerEncoderLayer(8, 2, 16) for _ in range(3))


def smoothed_kl(logits, target, smoothing, pad_id):
    """Divergence from the target: its entropy is left out."""
    classes = logits.shape[-1]
    wanted = torch.full_like(logits, smoothing / (classes - 1))
    wanted.scatter_(-1, target[..., None], 1 - smoothing)
    losses = F.kl_div(logits.log_softmax(-1), wanted, reduction="none").sum(-1)
    return losses[target != pad_id].mean()


def entropy(smoothing, classes):
    if not smoothing:
        return 0.0
    share = smoothing / (classes - 1)
    gold = (1 - smoothing) * math.log(1 - smoothing)
    return -gold - smoothing * math.log(share)


def test_right_losses_raise_nothing():
    check.loss(naive.WrittenOutLoss)
    check.loss(
        smoothed_kl,
        call=lambda f, logits, target, smoothing, pad_id: (
            f(logits, target, smoothing, pad_id) + entropy(smoothing, logits.shape[-1])
        ),
    )
    check.loss(
        F.cross_entropy,
        call=lambda f, logits, target, smoothing, pad_id: f(
            logits.transpose(1, 2),
            target,
            ignore_index=pad_id,
            label_smoothing=smoothing,
        ),
        over="all",
    )


def lambda_rate(step, d_model, warmup_steps, factor):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: (
            factor * d_model**-0.5 * min((s + 1) ** -0.5, (s + 1) * warmup_steps**-1.5)
        ),
    )
    for _ in range(step - 1):
        optimizer.step()
        scheduler.step()
    return scheduler.get_last_lr()[0]


def test_right_schedules_raise_nothing():
    check.schedule(lambda_rate)
    check.schedule(naive.WarmUp, call=check.scheduler_rate)
    check.schedule(transformer.noam_rate)


def test_a_right_optimizer_raises_nothing():
    model = nn.Linear(2, 2)
    built = torch.optim.Adam(
        [dict(params=[p]) for p in model.parameters()], betas=(0.9, 0.98), eps=1e-9
    )
    check.optimizer(built, model)


def test_a_right_shift_raises_nothing():
    check.shift(lambda t: (t.narrow(1, 0, t.shape[1] - 1), t[:, 1:]))


SPECIAL = dict(pad_id=0, bos_id=1, eos_id=2)
VARIANTS = {
    "as printed": {},
    "pre-norm": dict(norm="pre"),
    "learned positions": dict(positions="learned"),
    "published positions": dict(
        sinusoid_layout="concatenated", sinusoid_spacing="published"
    ),
    "attention biases": dict(attention_bias=True),
    "untied": dict(tied=False),
    "GELU, output bias": dict(activation="gelu", output_bias=True),
    "narrow heads": dict(d_k=4, d_v=12),
    "dropout, evaluation mode": dict(dropout=0.5, attention_dropout=0.5),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_right_model_raises_nothing(name):
    torch.manual_seed(1)
    shape = dict(layers=2, d_model=32, d_ff=64, heads=4)
    config = TransformerConfig(vocab_size=31, **(shape | VARIANTS[name]))
    check.model(Transformer(config).eval(), **SPECIAL)


def test_a_model_with_two_vocabularies_raises_nothing():
    torch.manual_seed(1)
    config = TransformerConfig.tiny(17, target_vocab_size=40, tied=False)
    check.model(Transformer(config).eval(), vocab_size=17, **SPECIAL)


class FrameworkModel(nn.Module):
    """nn.Transformer with the paper's embedding around it."""

    def __init__(self):
        super().__init__()
        self.embed = naive.Table(29, 32)
        self.positions = naive.Waves(32, 50)
        self.core = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)
        self.core.encoder.norm = self.core.decoder.norm = None

    def forward(self, source, target):
        padding = source == 0
        hidden = self.core(
            self.positions(self.embed(source)),
            self.positions(self.embed(target)),
            tgt_mask=~naive.see_past(target.shape[1]),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return hidden @ self.embed.weight.T


def test_the_frameworks_model_raises_nothing():
    torch.manual_seed(2)
    check.model(FrameworkModel().eval(), **SPECIAL)


# --- what a failed check says --------------------------------------------


def no_scaling(q, k, v, mask):
    return scaled_dot_product_attention(q * math.sqrt(q.shape[-1]), k, v, mask)


def test_a_report_gives_the_smallest_example_and_names_the_mistake():
    with pytest.raises(CheckFailed) as failed:
        check.attention(no_scaling)
    report = str(failed.value)
    assert report.startswith("attention: ")
    assert "query = [[2, 0]]" in report
    assert "expected  [[0.8044, 0.1956]]" in report
    assert "got       [[0.8808, 0.1192]]" in report
    assert "scores are not divided by sqrt(d_k) (no_scaling)." in report
    assert failed.value.mistakes == ["no_scaling"]


def test_the_readme_shows_the_report_as_it_is():
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    with pytest.raises(CheckFailed) as failed:
        check.attention(no_scaling)
    report = str(failed.value).splitlines()
    shown = readme.partition("CheckFailed: ")[2].partition("```")[0].splitlines()
    assert shown[:8] == report[:8]
    assert shown[-1] == report[-2]


def test_an_unknown_mistake_is_not_guessed_at():
    with pytest.raises(CheckFailed) as failed:
        check.attention(lambda q, k, v, mask: no_scaling(q, k, v, mask) * 1.01)
    assert failed.value.mistakes == []
    assert "No known mistake gives exactly this output" in str(failed.value)


def test_an_exception_is_reported_with_what_was_given():
    with pytest.raises(CheckFailed, match="ZeroDivisionError: division by zero"):
        check.attention(lambda q, k, v, mask: 1 / 0)


def test_an_untrained_embedding_that_raises_is_reported():
    mine = transformer.TokenEmbedding(5, 4)
    with pytest.raises(CheckFailed, match="ZeroDivisionError") as failed:
        check.embedding(mine, call=lambda f, ids: 1 / 0)
    assert len(failed.value.failed) == 3


def test_a_schedule_that_raises_or_gives_nothing_is_reported():
    with pytest.raises(CheckFailed, match="NotImplementedError: later"):
        check.schedule(raises)
    with pytest.raises(CheckFailed, match="TypeError"):
        check.schedule(lambda *given: None)


def raises(*given):
    raise NotImplementedError("later")


def test_what_is_no_tensor_is_reported_with_a_hint():
    with pytest.raises(CheckFailed, match=r"got       None: is a return missing\?"):
        check.attention(lambda q, k, v, mask: None)
    with pytest.raises(CheckFailed, match="more than the output, pick it with call="):
        check.attention(lambda q, k, v, mask: (q, k))
    with pytest.raises(CheckFailed) as failed:  # a pair is wanted here
        check.shift(lambda target: (target, target))
    assert "pick it with call=" not in str(failed.value)


def test_an_output_of_the_wrong_shape_is_no_match():
    with pytest.raises(CheckFailed) as failed:
        check.attention(lambda q, k, v, mask: q.new_zeros(1))
    assert "got       [0]" in str(failed.value)


def test_a_large_output_is_shown_where_it_differs_most():
    def nearly(q, k, v, mask):
        output = F.scaled_dot_product_attention(q, k, v, mask)
        if output.numel() > 24:
            output.view(-1)[30] += 1
        return output

    with pytest.raises(CheckFailed, match=r"at \[0, 0, 3, 6\]; there mine is"):
        check.attention(nearly)


def test_a_mistake_is_named_inside_use_as_well():
    with use(scaled_dot_product_attention=no_scaling):
        with pytest.raises(CheckFailed) as failed:
            check.in_use()
    assert "no_scaling" in failed.value.mistakes


def test_weights_that_cannot_be_read_are_asked_for():
    with pytest.raises(TypeError, match=r"cannot read the weights of Linear.*weights="):
        check.heads(nn.Linear(4, 4), heads=2, d_model=4)


def test_a_model_that_looks_ahead_is_told_where():
    torch.manual_seed(0)
    model = Transformer(TransformerConfig.tiny(20)).eval()
    model.causal_mask = lambda n, device: torch.ones(n, n, dtype=torch.bool)
    with pytest.raises(CheckFailed) as failed:
        check.model(model, **SPECIAL)
    assert failed.value.failed[0] == "no target token changes logits before it"
    assert "target_in[1] was changed" in str(failed.value)
    assert "position 0" in str(failed.value)


def test_a_model_in_training_mode_is_told_so():
    model = Transformer(TransformerConfig.tiny(20, dropout=0.1))
    with pytest.raises(CheckFailed, match="is the model in evaluation mode"):
        check.model(model, **SPECIAL)


def test_logits_of_the_wrong_shape_end_the_check_of_a_model():
    with pytest.raises(CheckFailed, match=r"shape \(4, 9\), expected \(4, 6, 9\)"):
        check.model(lambda s, t: torch.zeros(len(s), 9), **SPECIAL)


def test_a_missing_parameter_of_the_optimizer_is_named():
    model = nn.Linear(2, 2)
    built = torch.optim.Adam([model.weight], betas=(0.9, 0.98), eps=1e-9)
    with pytest.raises(CheckFailed, match=r"missing: \['bias'\]"):
        check.optimizer(built, model)


def test_weight_decay_is_found():
    model = Transformer(TransformerConfig.tiny())
    built = make_optimizer(model, transformer.TrainingConfig())
    built.param_groups[0]["weight_decay"] = 0.1
    with pytest.raises(CheckFailed, match="weight decay"):
        check.optimizer(built, model)


def test_layers_that_start_from_equal_weights_are_found():
    first = nn.Linear(3, 3)
    second = nn.Linear(3, 3)
    second.load_state_dict(first.state_dict())
    with pytest.raises(CheckFailed, match="no layer has a matrix that another has"):
        check.stack([first, second])


def test_the_convention_of_the_loss_is_named_not_guessed():
    with pytest.raises(ValueError, match="over='some' must be"):
        check.loss(LabelSmoothingLoss, over="some")
    with pytest.raises(CheckFailed):
        check.loss(LabelSmoothingLoss, over="all")


def test_a_source_that_shows_no_end_is_refused():
    with pytest.raises(ValueError, match="some must and some must not"):
        check.greedy_decode(
            lambda source, limit: source,
            lambda s, t: F.one_hot(torch.full_like(t, 5), 9).float(),
            torch.tensor([[3, 2]]),
            bos_id=1,
            eos_id=2,
            pad_id=0,
            max_length=4,
        )


def test_options_for_a_check_that_is_not_there_are_refused():
    with pytest.raises(TypeError, match=r"no check is called \['head'\]"):
        check.in_use(head={})
