"""Readers' counts, chains and layers: right ones pass, mistakes are named."""

import pytest
import torch

from bookkit import CheckFailed, check
from bookkit.cost_checks import multiplications
from transformer import complexity, table1


def test_right_counts_pass_in_any_form():
    check.costs(
        lambda n, d, k, r: [2 * n * n * d, 2 * n * d * d, k * n * d**2, 2 * r * n * d]
    )


def test_a_forgotten_product_is_named():
    with pytest.raises(CheckFailed) as failed:
        check.costs(
            lambda n, d, k, r: (n * n * d, 2 * n * d * d, k * n * d * d, 2 * r * n * d)
        )
    assert failed.value.mistakes == ["values_not_counted"]
    assert "self-attention, recurrent, convolutional, restricted" in str(failed.value)


def test_the_table_s_bare_terms_are_no_count():
    with pytest.raises(CheckFailed):
        check.costs(lambda n, d, k, r: (n * n * d, n * d * d, k * n * d * d, r * n * d))


def test_chains_another_way_pass():
    def by_recursion(needs):
        def depth(step):
            return 1 + max(map(depth, needs[step]), default=0) if step in needs else 0

        return max(map(depth, needs), default=0)

    check.dependent_steps(by_recursion)


@pytest.mark.parametrize(
    ("wrong", "mistakes"),
    [
        (len, []),
        (lambda needs: 1, []),
        (
            lambda needs: complexity.dependent_steps(
                {step: earlier[:1] for step, earlier in needs.items()}
            ),
            [],
        ),
    ],
)
def test_wrong_chains_fail(wrong, mistakes):
    with pytest.raises(CheckFailed) as failed:
        check.dependent_steps(wrong)
    assert failed.value.mistakes == mistakes


def test_windows_cut_one_by_one_pass():
    def one_by_one(x, r):
        rows = []
        for i in range(len(x)):
            near = x[max(0, i + 1 - r) : i + 1]
            weights = (near @ x[i] / x.size(1) ** 0.5).softmax(0)
            rows.append(weights @ near)
        return torch.stack(rows)

    check.table1(restricted_layer=one_by_one)


def test_a_window_made_by_a_mask_is_named():
    def masked(x, r):
        n = len(x)
        near = torch.ones(n, n, dtype=torch.bool).tril().triu(1 - r)
        scores = (x @ x.mT / x.size(1) ** 0.5).masked_fill(~near, -torch.inf)
        return scores.softmax(-1) @ x

    with pytest.raises(CheckFailed) as failed:
        check.table1(restricted_layer=masked)
    assert failed.value.mistakes == ["window_by_mask"]
    assert "at most 2 n r d = 640" in str(failed.value)


def test_a_layer_that_the_table_lacks_is_refused():
    with pytest.raises(TypeError, match="restricted_layer"):
        check.table1(window=table1.restricted_layer)


def test_multiplications_are_those_of_matrix_products():
    x, y = torch.ones(3, 4), torch.ones(4, 5)
    assert multiplications(torch.matmul, x, y) == 3 * 4 * 5
    assert multiplications(torch.add, x, x) == 0
