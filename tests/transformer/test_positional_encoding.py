"""Section 3.5: the printed sinusoids, and the published code's."""

from __future__ import annotations

import math

import pytest
import torch

from transformer import PositionalEncoding, sinusoidal_encoding
from transformer.variants import LearnedPositions, OtherSinusoids, sinusoids

from .making import largest_difference


@pytest.fixture
def doubles():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def angles(table: torch.Tensor) -> torch.Tensor:
    """Radians that each pair turns from one position to the next."""
    sine, cosine = table[1, 0::2], table[1, 1::2]
    return torch.atan2(sine, cosine)


@pytest.mark.usefixtures("doubles")
def test_it_is_the_printed_formula_one_number_at_a_time():
    table = sinusoidal_encoding(40, 10)
    assert table.dtype == torch.float64
    for position in range(40):
        for i in range(5):
            angle = position / 10000 ** (2 * i / 10)
            assert abs(table[position, 2 * i].item() - math.sin(angle)) < 1e-12
            assert abs(table[position, 2 * i + 1].item() - math.cos(angle)) < 1e-12


def test_it_is_computed_in_float64_and_cast():
    table = sinusoidal_encoding(2000, 512)
    assert table.dtype == torch.float32
    position = torch.arange(2000, dtype=torch.float64)[:, None]
    i = torch.arange(256, dtype=torch.float64)
    angle = position / 10000 ** (2 * i / 512)
    assert torch.equal(table[:, 0::2], angle.sin().float())
    assert torch.equal(table[:, 1::2], angle.cos().float())
    rough = (position.float() / 10000 ** (2 * i.float() / 512)).sin()
    assert largest_difference(table[:, 0::2], rough) > 1e-5


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("d_model", [4, 64, 512])
def test_wavelengths_run_from_2_pi_to_almost_10000_times_2_pi(d_model):
    wavelengths = 2 * math.pi / angles(sinusoidal_encoding(2, d_model))
    assert wavelengths[0].item() == pytest.approx(2 * math.pi, rel=1e-12)
    last = 2 * math.pi * 10000 ** ((d_model - 2) / d_model)
    assert wavelengths[-1].item() == pytest.approx(last, rel=1e-9)
    ratios = wavelengths[1:] / wavelengths[:-1]
    ratio = 10000 ** (2 / d_model)
    assert largest_difference(ratios, torch.full_like(ratios, ratio)) < 1e-7


@pytest.mark.usefixtures("doubles")
def test_the_last_wavelength_of_the_base_model_is_60611():
    last = 2 * math.pi / angles(sinusoidal_encoding(2, 512))[-1].item()
    assert last == pytest.approx(60611.48, abs=0.01)


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("offset", [1, 7, 100])
def test_an_offset_is_a_rotation_that_the_position_does_not_change(offset):
    table = sinusoidal_encoding(400, 64)
    rotation = torch.zeros(64, 64)
    for i in range(32):
        turn = offset / 10000 ** (2 * i / 64)
        at = 2 * i
        rotation[at, at], rotation[at, at + 1] = math.cos(turn), math.sin(turn)
        rotation[at + 1, at], rotation[at + 1, at + 1] = -math.sin(turn), math.cos(turn)
    moved = table[:-offset] @ rotation.T
    assert largest_difference(moved, table[offset:]) < 1e-11
    assert largest_difference(rotation @ rotation.T, torch.eye(64)) < 1e-12


@pytest.mark.usefixtures("doubles")
def test_the_published_spacing_reaches_10000_times_2_pi():
    table = sinusoids(2, 512, layout="interleaved", spacing="published")
    wavelengths = 2 * math.pi / angles(table)
    assert wavelengths[0].item() == pytest.approx(2 * math.pi, rel=1e-12)
    assert wavelengths[-1].item() == pytest.approx(10000 * 2 * math.pi, rel=1e-7)
    for i in (0, 100, 255):
        angle = math.exp(-i * math.log(10000) / (512 / 2 - 1))
        assert abs(angles(table)[i].item() - angle) < 1e-12


@pytest.mark.parametrize("spacing", ["printed", "published"])
def test_the_concatenated_layout_is_a_permutation_of_the_columns(spacing):
    interleaved = sinusoids(50, 16, layout="interleaved", spacing=spacing)
    concatenated = sinusoids(50, 16, layout="concatenated", spacing=spacing)
    order = [*range(0, 16, 2), *range(1, 16, 2)]
    assert torch.equal(concatenated, interleaved[:, order])
    assert not torch.equal(concatenated, interleaved)


def test_the_variant_with_the_printed_choices_is_the_printed_table():
    other = sinusoids(300, 64, layout="interleaved", spacing="printed")
    assert torch.equal(other, sinusoidal_encoding(300, 64))


@pytest.mark.parametrize("spacing", ["printed", "published"])
def test_a_single_pair_of_columns_has_a_finite_table(spacing):
    table = sinusoids(3, 2, layout="interleaved", spacing=spacing)
    torch.testing.assert_close(table[:, 0], torch.tensor([0.0, 1.0, 2.0]).sin())


@pytest.mark.parametrize(
    "module",
    [
        PositionalEncoding(8, 20),
        OtherSinusoids(8, 20, "concatenated", "published"),
        LearnedPositions(8, 20),
    ],
    ids=["printed", "published", "learned"],
)
def test_row_p_is_added_to_the_vector_at_position_p(module, generator):
    x = torch.randn(3, 5, 8, generator=generator)
    output = module(x)
    for position in range(5):
        expected = x[:, position] + module.table[position]
        assert torch.equal(output[:, position], expected)


def test_a_fixed_table_is_no_part_of_the_state():
    assert PositionalEncoding(8, 20).state_dict() == {}
    assert OtherSinusoids(8, 20, "concatenated", "printed").state_dict() == {}
    assert not list(PositionalEncoding(8, 20).parameters())


def test_a_fixed_table_moves_with_its_module():
    module = PositionalEncoding(8, 20)
    assert module.to("meta").table.device.type == "meta"
    assert PositionalEncoding(8, 20).double().table.dtype == torch.float64


def test_learned_positions_are_a_parameter_and_learn():
    module = LearnedPositions(8, 20)
    assert list(module.state_dict()) == ["table"]
    module(torch.zeros(1, 5, 8)).sum().backward()
    assert (module.table.grad[:5] == 1).all()
    assert (module.table.grad[5:] == 0).all()


def test_learned_positions_start_like_token_embeddings():
    torch.manual_seed(0)
    table = LearnedPositions(64, 1000).table
    assert table.std().item() == pytest.approx(64**-0.5, rel=0.02)


def test_an_odd_width_is_refused():
    with pytest.raises(ValueError, match=r"d_model=5 must be even: .*sine"):
        sinusoidal_encoding(10, 5)
