"""The check of costs passes what is right and names what is not."""

import pytest

from bookkit import CheckFailed, check, reference


def formula(layers, d_model, d_ff, vocab_size, pairs, source, target):
    square, network = d_model**2, 2 * d_model * d_ff
    encoder = source * (4 * square + network) + 2 * source**2 * d_model
    decoder = target * (6 * square + network) + 2 * source * square
    decoder += 2 * target * (target + source) * d_model
    once = layers * (encoder + decoder) + target * d_model * vocab_size
    return 2 * pairs * once


def test_a_right_count_raises_nothing():
    assert len(check.flops(formula).statements) == 5
    check.flops(lambda shape: formula(*shape), call=lambda f, *given: f(given))


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (lambda *given: formula(*given) // 2, "flops_without_additions"),
        (
            lambda n, d, f, v, b, s, t: (
                formula(n, d, f, v, b, s, t) - 2 * b * t * d * v
            ),
            "flops_without_output",
        ),
    ],
)
def test_a_wrong_count_is_named(wrong, name):
    with pytest.raises(CheckFailed) as caught:
        check.flops(wrong)
    assert caught.value.mistakes == [name]


def test_the_reference_by_hand():
    # One token a side, width 2: 6 products of attention with 4 or 2
    # multiplications, three times; two of 4, twice; one of 2 by 4.
    multiplications = 3 * (4 * 4 + 2 * 2) + 2 * (2 * 4) + 2 * 4
    assert reference.flops(1, 2, 2, 4, 1, 1, 1) == 2 * multiplications == 168
