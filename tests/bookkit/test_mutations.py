"""Every known mistake is caught, and nearly every one is named."""

import json
import subprocess
import sys

import pytest
import torch

import transformer
from bookkit import check, mutations
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


@pytest.fixture(scope="module")
def caught() -> dict:
    """What a reader's process says of each mistake: part, names, text.

    Another process, because in this one every signature is checked, which
    makes all the checks four times as slow.
    """
    done = subprocess.run(
        [sys.executable, "-c", CATCH], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


CATCH = """
import json
import torch
from bookkit import CheckFailed, check
from bookkit.mutations import MUTATIONS

torch.set_num_threads(1)
said = {}
for name, mutation in MUTATIONS.items():
    with mutation.applied():
        try:
            check.in_use()
        except CheckFailed as failed:
            said[name] = failed.part, failed.mistakes, str(failed)
print(json.dumps(said))
"""


def test_mistakes_are_caught_and_named(caught):
    mistakes = {name: m for name, m in MUTATIONS.items() if not m.equivalent}
    assert list(caught) == list(mistakes)
    for name, (part, named, text) in caught.items():
        assert mistakes[name].part in part, name
        assert named == ([] if name in NOT_NAMED else [name])
        assert name in NOT_NAMED or mistakes[name].says in text


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
