"""`use` puts a part in, and takes it out again."""

import pytest
import torch
from tests.bookkit import naive
from torch import nn

import transformer
from bookkit import check, use, yours
from bookkit.using import originals, replaced
from transformer import Transformer, TransformerConfig, greedy_decode
from transformer.data.toy import SymbolTask
from transformer.evaluation import greedy_exact_match
from transformer.recipes import train_toy

TINY = TransformerConfig.tiny()
SOURCE = torch.tensor([[3, 4, 5, 2], [6, 2, 0, 0]])
TARGET = torch.tensor([[1, 3, 4], [1, 6, 2]])


def everything_in_transformer():
    modules = (
        transformer.attention,
        transformer.encoder_decoder,
        transformer.model,
        transformer.training,
        transformer,
    )
    return [dict(vars(module)) for module in modules]


def zeros(query, key, value, mask=None):
    return torch.zeros_like(query)


def test_a_model_built_inside_computes_with_the_readers_part():
    with use(scaled_dot_product_attention=zeros):
        model = Transformer(TINY)
    heads = model.encoder.layers[0].self_attention(*[torch.ones(1, 2, 64)] * 3)
    assert heads.eq(0).all()


def test_a_model_keeps_the_parts_that_it_was_built_with():
    before = Transformer(TINY).eval()
    right = before(SOURCE, TARGET)
    with use(scaled_dot_product_attention=zeros):
        assert torch.equal(before(SOURCE, TARGET), right)
        inside = Transformer(TINY).eval()
        there = inside(SOURCE, TARGET)
    assert torch.equal(inside(SOURCE, TARGET), there)


def test_everything_is_put_back_on_exit():
    before = everything_in_transformer()
    with use(**naive.ALL_PARTS):
        assert everything_in_transformer() != before
    assert everything_in_transformer() == before


def test_everything_is_put_back_after_an_exception():
    before = everything_in_transformer()
    with pytest.raises(ZeroDivisionError), use(causal_mask=naive.see_past):
        _ = 1 / 0
    assert everything_in_transformer() == before
    assert yours().startswith("your Transformer: 0 of 8")


def test_the_inner_use_wins_and_the_outer_comes_back():
    with use(padding_mask=naive.see_tokens):
        outer = transformer.masks.padding_mask
        with use(padding_mask=lambda ids, pad_id: ids == pad_id):
            assert transformer.masks.padding_mask is not outer
        assert transformer.masks.padding_mask is outer


def test_every_module_that_imported_the_name_sees_the_part():
    with use(MultiHeadAttention=naive.Heads):
        assert transformer.MultiHeadAttention is transformer.model.MultiHeadAttention
        assert issubclass(transformer.model.MultiHeadAttention, naive.Heads)


def test_originals_restores_the_books_parts_for_a_while():
    ours = transformer.masks.causal_mask
    with use(causal_mask=naive.see_past), replaced(causal_mask=lambda n: None):
        with originals():
            assert transformer.masks.causal_mask is ours
        assert transformer.masks.causal_mask(3) is None


def test_an_unknown_part_is_refused_and_the_known_ones_are_listed():
    with pytest.raises(TypeError, match=r"'softmax' is no part.*causal_mask"):
        with use(softmax=torch.softmax):
            pass


def test_a_part_that_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="causal_mask=3 must be a class or a func"):
        with use(causal_mask=3):
            pass


def test_replaced_refuses_a_name_that_is_not_there():
    with pytest.raises(TypeError, match="no 'no_such_thing'"):
        with replaced(no_such_thing=1):
            pass


def test_a_keyword_that_asks_for_nothing_is_left_out():
    with use(scaled_dot_product_attention=zeros):
        assert Transformer(TINY)(SOURCE, TARGET).isfinite().all()


def test_a_keyword_that_asks_for_something_is_named():
    with use(scaled_dot_product_attention=zeros):
        model = Transformer(TransformerConfig.tiny(attention_dropout=0.1))
        with pytest.raises(TypeError, match=r"takes no 'dropout'.*dropout=0.1"):
            model(SOURCE, TARGET)
        model = Transformer(TINY)
        with pytest.raises(TypeError, match="takes no 'return_weights'"):
            model(SOURCE, TARGET, return_attention=True)


def test_a_constructor_keyword_that_asks_for_something_is_named():
    with use(MultiHeadAttention=naive.Heads):
        with pytest.raises(TypeError, match=r"takes no 'd_k'.*d_k=5"):
            Transformer(TransformerConfig.tiny(d_k=5))
        with pytest.raises(TypeError, match="takes no 'bias'"):
            Transformer(TransformerConfig.tiny(attention_bias=True))


@pytest.mark.parametrize(
    "parts",
    [
        dict(MultiHeadAttention=naive.Heads),
        dict(DecoderLayer=naive.Decode),
        naive.ALL_PARTS,
    ],
    ids=["heads", "decoder layer", "all parts"],
)
def test_parts_without_a_cache_decode_without_one(parts):
    torch.manual_seed(0)
    with use(**parts):
        model = Transformer(TINY)
    assert model.new_cache() is None
    output = greedy_decode(model, SOURCE, max_length=4)
    assert len(output) == 2 and 1 <= output.size(1) <= 4


def test_our_own_model_decodes_with_a_cache():
    assert len(Transformer(TINY).new_cache()) == TINY.layers


def test_parts_are_counted():
    assert yours() == "your Transformer: 0 of 8 parts are yours"
    with use(padding_mask=naive.see_tokens, causal_mask=naive.see_past) as said:
        assert said == "your Transformer: 1 of 8 parts are yours: masks"
    with use(**naive.ALL_PARTS) as said:
        assert said.startswith("your Transformer: 8 of 8 parts are yours")


def test_a_part_may_be_given_the_books_own_signature():
    def full(query, key, value, mask=None, *, dropout=0.0, return_weights=False):
        output = naive.dot_attention(query, key, value, mask)
        return (output, torch.ones(1)) if return_weights else output

    with use(scaled_dot_product_attention=full):
        assert transformer.attention.scaled_dot_product_attention is full


def test_a_function_written_in_c_can_be_a_part():
    kernel = torch.nn.functional.scaled_dot_product_attention
    with use(scaled_dot_product_attention=kernel):
        model = Transformer(TINY)
    assert model(SOURCE, TARGET).isfinite().all()


def test_all_parts_of_another_style_pass_every_check():
    with use(**naive.ALL_PARTS):
        reports = check.in_use(**naive.OPTIONS)
    assert len(reports) == 20


@pytest.mark.slow
def test_all_parts_of_another_style_learn_to_copy():
    task = SymbolTask(shortest=1, longest=5)  # its loops are slow
    with use(**naive.ALL_PARTS):
        model, _ = train_toy(task, seed=0, steps=300, warmup_steps=75)
    fresh = task.batch(1000, torch.Generator().manual_seed(1))
    assert isinstance(model.encoder.layers[0].attend, naive.Heads)
    assert not any(isinstance(part, nn.LayerNorm) for part in model.modules())
    assert greedy_exact_match(model, fresh) >= 0.99
