"""The whole model: tying, causality, padding, dropout, bad input."""

from __future__ import annotations

import io
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer import Transformer, TransformerConfig

from .making import SMALL, largest_difference, make_model, random_batch

# Configurations that every property of the model must hold for.
SHAPES = {
    "paper": {},
    "pre-norm": dict(norm="pre"),
    "learned": dict(positions="learned"),
    "bias": dict(attention_bias=True, output_bias=True),
    "published": dict(sinusoid_layout="concatenated", sinusoid_spacing="published"),
    "free-widths": dict(heads=3, d_k=5, d_v=7),
    "untied": dict(tied=False, target_vocab_size=9),
    "gelu": dict(activation="gelu"),
}
every_shape = pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)


def pair(generator, model, **changes):
    """Source and target_in that suit the model's vocabularies."""
    size = min(model.config.vocab_size, model.config.target_vocab_size)
    batch = random_batch(generator, vocab_size=size, **changes)
    return batch.source, batch.target


def start(**changes):
    """A model as training finds it, weights at their start values."""
    torch.manual_seed(0)
    return Transformer(TransformerConfig(**(SMALL | changes)))


# Vocabularies and tying


def test_one_matrix_serves_source_target_and_output():
    model = start()
    tensors = [
        model.source_embedding.weight,
        model.target_embedding.weight,
        model.output_projection.weight,
    ]
    assert len({tensor.data_ptr() for tensor in tensors}) == 1
    names = [name for name, p in model.named_parameters() if len(p) == 13]
    assert names == ["source_embedding.weight"]


def test_a_saved_and_loaded_model_is_still_tied(generator):
    model, other = make_model(), make_model(seed=1)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    source, target = pair(generator, model)
    assert torch.equal(model(source, target), other(source, target))
    with torch.no_grad():
        other.source_embedding.weight.zero_()
    assert (other.output_projection.weight == 0).all()


def test_the_state_holds_no_position_table():
    assert not [name for name in start().state_dict() if "table" in name]
    learned = start(positions="learned").state_dict()
    assert [name for name in learned if "table" in name] == [
        "source_positions.table",
        "target_positions.table",
    ]


@every_shape
def test_the_initial_loss_is_within_2_of_that_of_guessing(changes, generator):
    model = start(**(dict(vocab_size=500) | changes)).eval()
    source, target = pair(generator, model, size=16)
    logits = model(source, target[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
    assert abs(loss.item() - math.log(model.config.target_vocab_size)) < 2


def test_logits_start_near_variance_1(generator):
    model = start(vocab_size=500, d_model=64, heads=2, d_ff=128).eval()
    source, target = pair(generator, model, size=16)
    assert model(source, target).std().item() == pytest.approx(1.0, rel=0.2)


def test_an_untied_model_has_three_matrices():
    model = start(tied=False)
    tensors = [
        model.source_embedding.weight,
        model.target_embedding.weight,
        model.output_projection.weight,
    ]
    assert len({tensor.data_ptr() for tensor in tensors}) == 3
    assert all(
        std == pytest.approx(16**-0.5, rel=0.2)
        for std in (tensor.std().item() for tensor in tensors)
    )


def test_unequal_vocabularies_size_their_own_ends(generator):
    model = make_model(tied=False, target_vocab_size=9)
    assert model.source_embedding.weight.shape == (13, 16)
    assert model.target_embedding.weight.shape == (9, 16)
    source = torch.tensor([[12, 11, 2]])
    assert model(source, torch.tensor([[1, 8]])).shape == (1, 2, 9)


def test_an_output_bias_is_added_to_the_logits_and_starts_at_0(generator):
    fresh = start(output_bias=True)
    assert (fresh.output_projection.bias == 0).all()
    assert start().output_projection.bias is None
    model = make_model(output_bias=True)
    source, target = pair(generator, model)
    logits = model(source, target)
    bias = model.output_projection.bias.detach().clone()
    nn.init.zeros_(model.output_projection.bias)
    assert largest_difference(logits, model(source, target) + bias) < 1e-12


# What the logits depend on


@every_shape
def test_future_tokens_cannot_change_earlier_logits(changes, generator):
    model = make_model(**changes)
    source, target = pair(generator, model)
    before = model(source, target)
    for position in range(1, target.size(1)):
        changed = target.clone()
        changed[:, position] = (changed[:, position] + 1) % 9
        after = model(source, changed)
        assert largest_difference(after[:, :position], before[:, :position]) == 0
        assert largest_difference(after[:, position], before[:, position]) > 1e-6


@every_shape
def test_future_tokens_get_no_gradient_from_earlier_logits(changes, generator):
    model = make_model(**changes)
    source, target = pair(generator, model)
    vectors = model.target_embedding(target).detach().requires_grad_()
    model.target_positions.register_forward_pre_hook(lambda m, i: (vectors,))
    logits = model(source, target)
    for position in range(target.size(1)):
        (gradient,) = torch.autograd.grad(
            logits[:, position].square().sum(), vectors, retain_graph=True
        )
        assert (gradient[:, position + 1 :] == 0).all()
        assert (gradient[:, : position + 1].abs().sum(-1) > 0).all()


@every_shape
def test_the_whole_past_changes_the_last_logits(changes, generator):
    model = make_model(**changes)
    source, target = pair(generator, model)
    before = model(source, target)[:, -1]
    for position in range(target.size(1)):
        changed = target.clone()
        changed[:, position] = (changed[:, position] + 1) % 9
        after = model(source, changed)[:, -1]
        assert ((after - before).abs().amax(dim=1) > 1e-9).all()


@every_shape
def test_every_real_source_token_changes_every_logit(changes, generator):
    model = make_model(**changes)
    source, target = pair(generator, model)
    before = model(source, target)
    for position in range(source.size(1)):
        real = source[:, position] != 0
        changed = source.clone()
        changed[:, position] = changed[:, position] % 8 + 1
        changed[~real] = source[~real]
        after = model(changed, target)
        moved = (after - before).abs().amax(dim=-1)
        assert (moved[real] > 1e-9).all()
        assert (moved[~real] == 0).all()


@every_shape
def test_padding_the_source_changes_nothing(changes, generator):
    model = make_model(**changes)
    source, target = pair(generator, model)
    padded = F.pad(source, (0, 5), value=0)
    difference = largest_difference(model(padded, target), model(source, target))
    assert difference < 1e-12


@every_shape
def test_padding_the_target_changes_no_logits_before_it(changes, generator):
    model = make_model(**changes)
    source, target = pair(generator, model)
    padded = F.pad(target, (0, 5), value=0)
    after = model(source, padded)[:, : target.size(1)]
    assert largest_difference(after, model(source, target)) < 1e-12


@every_shape
def test_a_batch_of_four_equals_four_batches_of_one(changes, generator):
    model = make_model(**changes)
    source, target = pair(generator, model)
    together = model(source, target)
    for row in range(4):
        length = int((source[row] != 0).sum())
        alone = model(source[row : row + 1, :length], target[row : row + 1])
        assert largest_difference(together[row : row + 1], alone) < 1e-12


def test_without_positions_the_encoder_would_not_see_the_order(generator):
    model = make_model()
    source = torch.randint(3, 13, (2, 6), generator=generator)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    mask = torch.ones(2, 1, 1, 6, dtype=torch.bool)
    seen = model.encode(source, mask)[:, order]
    assert largest_difference(model.encode(source[:, order], mask), seen) > 0.01
    model.source_positions = nn.Identity()
    unseen = model.encode(source, mask)[:, order]
    assert largest_difference(model.encode(source[:, order], mask), unseen) < 1e-12


def test_the_padding_id_is_the_configurations(generator):
    model = make_model(pad_id=7, bos_id=0)
    source = torch.tensor([[5, 6, 2]])
    target = torch.tensor([[0, 5]])
    padded = torch.tensor([[5, 6, 2, 7, 7]])
    difference = largest_difference(model(padded, target), model(source, target))
    assert difference < 1e-12
    real = torch.tensor([[5, 6, 2, 3, 3]])
    assert largest_difference(model(real, target), model(source, target)) > 1e-6


@every_shape
def test_gradients_reach_every_parameter(changes, generator):
    model = start(**changes).double().train()
    source, target = pair(generator, model)
    logits = model(source, target[:, :-1])
    F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # A key bias moves all scores of a query alike: its gradient is 0.
        if not name.endswith("project_key.bias"):
            assert parameter.grad.abs().max() > 1e-8, name


@every_shape
def test_step_by_step_equals_forward(changes, generator):
    model = make_model(**changes)
    source, target_in = pair(generator, model)
    source_mask, target_mask, memory_mask = model.build_masks(source, target_in)
    memory = model.encode(source, source_mask)
    hidden = model.decode(target_in, memory, target_mask, memory_mask)
    logits = model.output_projection(hidden)
    assert memory.shape == (4, 7, 16)
    assert hidden.shape == (4, 6, 16)
    assert torch.equal(logits, model(source, target_in))


def test_masks_are_padding_for_the_source_and_causal_for_the_target(generator):
    model = make_model()
    source, target_in = pair(generator, model)
    source_mask, target_mask, memory_mask = model.build_masks(source, target_in)
    assert torch.equal(source_mask[:, 0, 0], source != 0)
    assert source_mask.shape == memory_mask.shape == (4, 1, 1, 7)
    assert torch.equal(memory_mask, source_mask)
    assert torch.equal(target_mask, torch.ones(6, 6).tril().bool())


def test_the_post_norm_model_ends_in_a_layer_and_no_norm(generator):
    model = start().double().eval()
    source, target = pair(generator, model)
    assert isinstance(model.encoder.final_norm, nn.Identity)
    assert isinstance(model.decoder.final_norm, nn.Identity)
    masks = model.build_masks(source, target)
    memory = model.encode(source, masks[0])
    hidden = model.decode(target, memory, *masks[1:])
    for output in (memory, hidden):
        zero = torch.zeros(output.shape[:2]).double()
        assert largest_difference(output.mean(-1), zero) < 1e-12
        assert largest_difference(output.var(-1, correction=0), zero + 1) < 1e-4


def test_embeddings_and_positions_are_what_the_layers_are_given(generator):
    model = make_model()
    source, target = pair(generator, model)
    seen = {}
    for name in ("encoder", "decoder"):
        getattr(model, name).register_forward_pre_hook(
            lambda m, inputs, name=name: seen.update({name: inputs[0]})
        )
    model(source, target)
    weight, table = model.source_embedding.weight, model.source_positions.table
    assert largest_difference(seen["encoder"], weight[source] * 4 + table[:7]) < 1e-12
    assert largest_difference(seen["decoder"], weight[target] * 4 + table[:6]) < 1e-12


# Attention weights


@every_shape
def test_attention_weights_have_the_promised_shapes_and_rows(changes, generator):
    model = make_model(**changes)
    source, target_in = pair(generator, model)
    plain = model(source, target_in)
    logits, weights = model(source, target_in, return_attention=True)
    heads = model.config.heads
    assert {use: tuple(tensor.shape) for use, tensor in weights.items()} == {
        "encoder": (2, 4, heads, 7, 7),
        "decoder": (2, 4, heads, 6, 6),
        "cross": (2, 4, heads, 6, 7),
    }
    for tensor in weights.values():
        ones = torch.ones(tensor.shape[:-1]).double()
        assert largest_difference(tensor.sum(-1), ones) < 1e-12
    assert largest_difference(logits, plain) < 1e-12


def test_attention_weights_are_0_where_nobody_may_look(generator):
    model = make_model()
    source, target_in = pair(generator, model)
    _, weights = model(source, target_in, return_attention=True)
    padding = (source == 0)[:, None, None, :]
    assert padding.any()
    for use in ("encoder", "cross"):
        blocked = weights[use].masked_select(padding)
        assert (blocked == 0).all()
    assert (weights["decoder"].triu(1) == 0).all()


def test_recording_is_off_after_attention_was_returned(generator):
    model = make_model()
    source, target_in = pair(generator, model)
    model(source, target_in, return_attention=True)
    attentions = [m for m in model.modules() if hasattr(m, "record")]
    assert len(attentions) == 2 + 4
    assert not any(a.record for a in attentions)
    assert all(a.weights is None for a in attentions)


def test_recording_is_off_after_a_failed_call_too(generator):
    model = make_model()
    with pytest.raises(ValueError, match="target_in"):
        model(torch.tensor([[3]]), torch.tensor([[99]]), return_attention=True)
    assert not any(m.record for m in model.modules() if hasattr(m, "record"))


def test_attention_weights_in_training_are_those_before_dropout(generator):
    model = make_model(attention_dropout=0.5).train()
    source, target_in = pair(generator, model)
    _, weights = model(source, target_in, return_attention=True)
    ones = torch.ones(2, 4, 4, 7).double()
    assert largest_difference(weights["encoder"].sum(-1), ones) < 1e-12


# Dropout


def dropouts(monkeypatch, model, source, target_in):
    """Rates of the dropouts that one training pass really runs."""
    rates = {"dropout": [], "weights": []}
    plain, fused = F.dropout, F.scaled_dot_product_attention

    def dropout(x, p=0.5, training=True, inplace=False):
        if p and training:
            rates["dropout"].append(p)
        return plain(x, p, training, inplace)

    def attention(*inputs, dropout_p=0.0, **named):
        if dropout_p:
            rates["weights"].append(dropout_p)
        return fused(*inputs, dropout_p=dropout_p, **named)

    monkeypatch.setattr(F, "dropout", dropout)
    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    model(source, target_in)
    return rates


def test_the_paper_drops_sublayer_outputs_and_embedding_sums_only(
    generator, monkeypatch
):
    model = make_model(dropout=0.25).train()
    rates = dropouts(monkeypatch, model, *pair(generator, model))
    # Two sums; two sub-layers in each encoder layer, three in each decoder layer.
    assert rates == {"dropout": [0.25] * (2 + 2 * 2 + 2 * 3), "weights": []}


def test_attention_and_activation_dropout_are_variants(generator, monkeypatch):
    model = make_model(
        dropout=0.25, attention_dropout=0.5, activation_dropout=0.125
    ).train()
    rates = dropouts(monkeypatch, model, *pair(generator, model))
    assert sorted(rates["dropout"]) == [0.125] * 4 + [0.25] * 12
    assert rates["weights"] == [0.5] * 6


def test_dropout_falls_on_embedding_plus_position(generator):
    model = make_model(dropout=0.25).train()
    source, target_in = pair(generator, model)
    seen = []
    model.dropout.register_forward_hook(lambda m, i, o: seen.append(i[0]))
    model(source, target_in)
    assert len(seen) == 2
    weight, table = model.source_embedding.weight, model.source_positions.table
    assert largest_difference(seen[0], weight[source] * 4 + table[:7]) < 1e-12
    assert largest_difference(seen[1], weight[target_in] * 4 + table[:6]) < 1e-12


def test_training_without_dropout_is_deterministic(generator):
    model = make_model(dropout=0.0).train()
    source, target_in = pair(generator, model)
    assert torch.equal(model(source, target_in), model(source, target_in))
    assert torch.equal(model.eval()(source, target_in), model(source, target_in))


def test_evaluation_with_dropout_is_deterministic_and_training_is_not(generator):
    model = make_model(dropout=0.3)
    source, target_in = pair(generator, model)
    assert torch.equal(model(source, target_in), model(source, target_in))
    model.train()
    assert largest_difference(model(source, target_in), model(source, target_in)) > 0


# Precision


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.5)]
)
def test_lower_precision_stays_close(dtype, tolerance, generator):
    exact = make_model()
    source, target_in = pair(generator, exact)
    rough = make_model(dtype=dtype)
    logits = rough(source, target_in)
    assert logits.dtype == dtype
    difference = largest_difference(logits.double(), exact(source, target_in))
    assert 0 < difference < tolerance


# Bad input

GOOD = torch.tensor([[3, 4, 2], [5, 2, 0]])
LONG = torch.full((2, 33), 3)
BAD_IDS = [
    (GOOD.float(), TypeError, ["dtype torch.float32", "token ids are integers"]),
    (GOOD.bool(), TypeError, ["dtype torch.bool", "token ids are integers"]),
    (GOOD[0], ValueError, ["shape (3,)", "(batch, length)"]),
    (GOOD[None], ValueError, ["shape (1, 2, 3)", "(batch, length)"]),
    (GOOD[:, :0], ValueError, ["shape (2, 0)", "neither of them 0"]),
    (GOOD[:0], ValueError, ["shape (0, 3)", "neither of them 0"]),
    (LONG, ValueError, ["33 tokens long", "max_length=32"]),
    (GOOD + 9, ValueError, ["ids from 9 to 14", "0 to 12"]),
    (GOOD - 1, ValueError, ["ids from -1 to 4", "0 to 12"]),
]


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize("return_attention", [False, True])
@pytest.mark.parametrize("name", ["source", "target_in"])
@pytest.mark.parametrize(("ids", "error", "fragments"), BAD_IDS)
def test_bad_ids_are_refused_with_name_value_and_rule(
    ids, error, fragments, name, return_attention
):
    model = make_model()
    given = {"source": GOOD, "target_in": GOOD} | {name: ids}
    with pytest.raises(error) as refusal:
        model(**given, return_attention=return_attention)
    for fragment in [name, *fragments]:
        assert fragment in str(refusal.value)


@pytest.mark.usefixtures("unchecked_types")
def test_a_scalar_for_ids_is_refused():
    with pytest.raises(ValueError, match=r"source of shape \(\) must be \(batch"):
        make_model()(torch.tensor(3), GOOD)
    with pytest.raises(ValueError, match=r"target_in of shape \(\) must be \(batch"):
        make_model()(GOOD, torch.tensor(3))


@pytest.mark.usefixtures("unchecked_types")
def test_each_vocabulary_has_its_own_limit():
    model = make_model(tied=False, target_vocab_size=9)
    model(torch.tensor([[12]]), torch.tensor([[8]]))
    with pytest.raises(ValueError, match=r"target_in holds ids from 9 to 9.*0 to 8"):
        model(torch.tensor([[12]]), torch.tensor([[9]]))


@pytest.mark.usefixtures("unchecked_types")
def test_a_batch_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"target_in holds 1 sequences, memory 2"):
        make_model()(GOOD, GOOD[:1])


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize("name", ["source_mask", "target_mask", "memory_mask"])
def test_bad_masks_are_refused_with_name_value_and_rule(name):
    model = make_model()
    target_in = torch.tensor([[1, 3, 4, 5], [1, 3, 4, 5]])

    def run(mask):
        source_mask, target_mask, memory_mask = model.build_masks(GOOD, target_in)
        masks = dict(
            source_mask=source_mask, target_mask=target_mask, memory_mask=memory_mask
        ) | {name: mask}
        memory = model.encode(GOOD, masks["source_mask"])
        model.decode(target_in, memory, masks["target_mask"], masks["memory_mask"])

    with pytest.raises(TypeError, match=f"{name} has dtype torch.float32: masks are"):
        run(torch.ones(4, 4))
    with pytest.raises(ValueError, match=rf"{name} of shape \(7, 7\) does not fit"):
        run(torch.ones(7, 7, dtype=torch.bool))


def test_ids_of_other_integer_types_are_taken(generator):
    model = make_model()
    source, target_in = pair(generator, model)
    expected = model(source, target_in)
    assert torch.equal(model(source.int(), target_in.int()), expected)


def test_a_target_as_long_as_the_table_is_taken():
    model = make_model()
    assert model(LONG[:, :32], LONG[:, :32]).shape == (2, 32, 13)
