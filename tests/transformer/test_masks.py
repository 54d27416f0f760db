"""One convention: True = may attend."""

from __future__ import annotations

import pytest
import torch

from transformer import causal_mask, padding_mask
from transformer.inputs import check_mask


def test_padding_may_not_be_attended_to():
    ids = torch.tensor([[5, 6, 0, 0], [5, 0, 6, 7]])
    expected = [[True, True, False, False], [True, False, True, True]]
    mask = padding_mask(ids, 0)
    assert mask.dtype == torch.bool
    assert mask.shape == (2, 1, 1, 4)
    assert mask[:, 0, 0].tolist() == expected


def test_the_padding_id_is_the_callers():
    ids = torch.tensor([[0, 9, 9]])
    assert padding_mask(ids, 9).flatten().tolist() == [True, False, False]


def test_query_i_may_attend_to_keys_0_to_i():
    mask = causal_mask(5)
    for query in range(5):
        for key in range(5):
            assert mask[query, key].item() == (key <= query)


def test_row_i_of_the_causal_mask_allows_i_plus_1_keys():
    assert causal_mask(6).sum(dim=1).tolist() == [1, 2, 3, 4, 5, 6]


def test_masks_are_made_where_they_are_asked_for():
    assert causal_mask(3, torch.device("meta")).device.type == "meta"
    assert causal_mask(3).device.type == "cpu"
    ids = torch.zeros(1, 2, dtype=torch.long, device="meta")
    assert padding_mask(ids, 0).device.type == "meta"


@pytest.mark.parametrize(
    "shape", [(2, 4, 3, 5), (2, 1, 1, 5), (3, 5), (1, 5), (5,), (1, 1, 3, 1), ()]
)
def test_masks_that_broadcast_to_the_scores_are_accepted(shape):
    check_mask(torch.ones(shape, dtype=torch.bool), (2, 4, 3, 5), "mask")


@pytest.mark.parametrize(
    "shape", [(2, 4, 5, 3), (3,), (3, 4, 3, 5), (1, 2, 4, 3, 5), (2, 5), (2, 3, 5)]
)
def test_a_mask_that_does_not_fit_is_refused_with_both_shapes(shape):
    with pytest.raises(ValueError) as refusal:
        check_mask(torch.ones(shape, dtype=torch.bool), (2, 4, 3, 5), "target_mask")
    message = str(refusal.value)
    assert f"target_mask of shape {shape}" in message
    assert "does not fit attention of shape (2, 4, 3, 5)" in message
    assert "(..., query, key)" in message


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_a_mask_that_is_not_boolean_is_refused_with_its_dtype(dtype):
    with pytest.raises(TypeError) as refusal:
        check_mask(torch.ones(3, 5, dtype=dtype), (2, 4, 3, 5), "source_mask")
    message = str(refusal.value)
    assert f"source_mask has dtype {dtype}" in message
    assert "masks are torch.bool, True where a query may attend" in message


def test_a_mask_fits_exactly_where_it_broadcasts_to_the_scores(generator):
    """As torch.broadcast_shapes has it, on random shapes."""
    seen = set()
    for _ in range(300):
        sizes = torch.randint(1, 4, (8,), generator=generator).tolist()
        shape = tuple(sizes[:4])
        mask = torch.ones(sizes[4:][: sizes[0] + 1], dtype=torch.bool)
        if mask.dim() and sizes[1] == 1:
            shape = shape[1:]
        try:
            fits = torch.broadcast_shapes(mask.shape, shape) == shape
        except RuntimeError:
            fits = False
        seen.add(fits)
        try:
            check_mask(mask, shape, "mask")
            accepted = True
        except ValueError:
            accepted = False
        assert accepted == fits, (mask.shape, shape)
    assert seen == {True, False}
