"""What a step costs by formula is what the framework counts."""

import pytest
import torch

from bookkit.flops import counted
from transformer import Transformer, TransformerConfig
from transformer.complexity import forward_flops, training_flops

SIZES = [(3, 7, 5), (1000, 25, 25)]
CONFIGS = {
    "base": TransformerConfig.base(),
    "big": TransformerConfig.big(),
    "unequal d_k and d_v": TransformerConfig.tiny(d_k=8, d_v=16),
    "one head": TransformerConfig.table3("A-h1"),
    "two vocabularies": TransformerConfig.tiny(20, target_vocab_size=31, tied=False),
    "variants": TransformerConfig.small(norm="pre", activation="gelu"),
}


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_the_formula_is_the_framework_s_count(name, size):
    config = CONFIGS[name]
    forward = sum(forward_flops(config, *size).values())
    assert counted(config, *size, backward=False) == forward
    assert counted(config, *size) == training_flops(config, *size)


def test_a_step_of_the_papers_base_takes_nine_and_a_half_tera():
    base = CONFIGS["base"]
    step = training_flops(base, 1000, 25, 25)
    assert step == 9_516_748_800_000
    parts = forward_flops(base, 1000, 25, 25)
    assert parts["output projection"] / sum(parts.values()) == pytest.approx(
        0.2986, 1e-3
    )


def test_each_parameter_of_base_works_on_one_token_of_each_pair():
    """Six operations a parameter and a pair of tokens, within 1%."""
    base = CONFIGS["base"]
    with torch.device("meta"):
        model = Transformer(base)
    parameters = sum(weights.numel() for weights in model.parameters())
    rule = 6 * parameters * 25_000
    assert 1 < training_flops(base, 1000, 25, 25) / rule < 1.01


def test_a_batch_cut_into_pieces_costs_the_same():
    tiny = TransformerConfig.tiny()
    whole = training_flops(tiny, 12, 9, 8)
    assert whole == 3 * training_flops(tiny, 4, 9, 8)
