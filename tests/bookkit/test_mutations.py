"""Every known mistake is caught, and nearly every one is named."""

import pytest
import torch

import transformer
from bookkit import CheckFailed, check, mutations
from bookkit.mutations import MUTATIONS
from transformer import Transformer, TransformerConfig

# The rows of shared/engineering_checks.md's table, by our names.
# "weights tied" is no mistake here: it is the paper.
TABLE = """
merge_without_transpose split_without_transpose no_scaling
scale_by_d_model softmax_over_queries no_causal_mask causal_one_ahead
causal_transposed no_positions exponent_doubled unbiased_norm pre_norm
no_residual no_relu layers_shared no_padding_mask no_memory_mask
target_padding_masked_too padding_mask_inverted embedding_not_scaled
standard_normal_start target_not_shifted loss_counts_padding
dropout_at_decode
""".split()

# What a check sees but cannot pin on one cause: many mistakes would
# show in the same way.
NOT_NAMED = {
    "no_memory_mask",
    "no_output_projection",
    "standard_normal_start",
}


def test_every_row_of_the_table_is_there():
    assert set(TABLE) <= set(MUTATIONS)


@pytest.mark.parametrize(
    "mutation",
    [m for m in MUTATIONS.values() if not m.equivalent],
    ids=lambda m: m.name,
)
def test_a_mistake_is_caught(mutation):
    with mutation.applied(), pytest.raises(CheckFailed) as caught:
        check.in_use()
    assert mutation.part in caught.value.part
    named = caught.value.mistakes
    if mutation.name in NOT_NAMED:
        assert named == []
    else:
        assert named == [mutation.name]
        assert mutation.says in str(caught.value)


def test_the_equivalent_mistake_is_one():
    equivalent = [m for m in MUTATIONS.values() if m.equivalent]
    assert [m.name for m in equivalent] == ["target_padding_masked_too"]
    config = TransformerConfig.tiny()
    source = torch.tensor([[3, 4, 2], [5, 2, 0]])
    target = torch.tensor([[1, 3, 4, 2], [1, 5, 2, 0]])
    real = target != config.pad_id
    model = Transformer(config).eval()
    right = model(source, target)
    with equivalent[0].applied():
        _, mask, _ = model.build_masks(source, target)
        assert not mask[1, ..., -1].any()
        same = model(source, target)
        check.in_use()
    # Only what stands at padded positions, which no loss counts and
    # no later step reads, could differ.
    assert torch.allclose(same[real], right[real], atol=1e-6)


def test_nothing_stays_behind():
    check.in_use()
    ours = transformer.attention.scaled_dot_product_attention
    with mutations.applied("no_scaling"):
        assert transformer.attention.scaled_dot_product_attention is not ours
    assert transformer.attention.scaled_dot_product_attention is ours
    check.in_use()
