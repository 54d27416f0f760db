"""Section 6.1's average."""

from __future__ import annotations

import pytest
import torch

from transformer.checkpoints import average

from .making import largest_difference, make_model, random_batch


def state(*values, dtype=torch.float32):
    return {"w": torch.tensor(values, dtype=dtype), "n": torch.tensor(3)}


def test_the_average_is_the_mean_of_each_entry():
    result = average([state(1.0, 5.0), state(2.0, 7.0), state(6.0, 0.0)])
    assert result["w"].tolist() == [3.0, 4.0]


def test_the_average_of_equal_states_is_that_state(generator):
    one = make_model(dtype=torch.float32).state_dict()
    result = average([one] * 5)
    assert result.keys() == one.keys()
    assert all(torch.equal(result[name], one[name]) for name in one)


def test_the_average_of_w_and_minus_w_is_0(generator):
    w = torch.randn(3, 4, generator=generator)
    assert (average([{"w": w}, {"w": -w}])["w"] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_means_are_taken_in_float64_and_cast_back(dtype):
    # In the dtype itself the small ones would vanish beside the large one.
    states = [{"w": torch.tensor([2048.0], dtype=dtype)}]
    states += [{"w": torch.tensor([2**-13], dtype=dtype)} for _ in range(3)]
    result = average(states)["w"]
    assert result.dtype == dtype
    exact = (2048.0 + 3 * 2**-13) / 4
    assert result.item() == torch.tensor(exact, dtype=torch.float64).to(dtype).item()


def test_many_small_steps_do_not_get_lost():
    states = [{"w": torch.tensor([1.0 + i * 2**-23])} for i in range(2)] * 8
    states += [{"w": torch.tensor([2.0**24])}, {"w": torch.tensor([-(2.0**24)])}]
    exact = sum(s["w"].double().item() for s in states) / len(states)
    assert average(states)["w"].item() == torch.tensor(exact).item()


def test_tensors_of_integers_are_those_of_the_last_state():
    states = [{"n": torch.tensor([1, 2])}, {"n": torch.tensor([3, 4])}]
    result = average(states)["n"]
    assert result.tolist() == [3, 4]
    assert result.data_ptr() != states[1]["n"].data_ptr()


def test_the_average_shares_no_memory_with_the_states():
    states = [state(1.0), state(3.0)]
    average(states)["w"].zero_()
    assert [s["w"].item() for s in states] == [1.0, 3.0]


def test_an_averaged_state_can_be_loaded(generator):
    models = [make_model(seed=seed, norm="pre") for seed in range(3)]
    mean = average([model.state_dict() for model in models])
    models[0].load_state_dict(mean)
    for name, parameter in models[0].named_parameters():
        assert torch.equal(parameter, mean[name])
    batch = random_batch(generator)
    apart = models[1](batch.source, batch.target)
    assert largest_difference(models[0](batch.source, batch.target), apart) > 0.01


def test_no_states_are_refused():
    with pytest.raises(ValueError, match="no states to average: give one at least"):
        average([])


@pytest.mark.parametrize(
    "other",
    [
        {"w": torch.zeros(3), "n": torch.tensor(3)},
        {"n": torch.tensor(3)},
        {"w": torch.zeros(2), "n": torch.tensor(3), "extra": torch.zeros(1)},
    ],
)
def test_states_of_different_models_are_refused_with_the_names_that_differ(other):
    with pytest.raises(
        ValueError, match=r"not of one model; they differ in"
    ) as refusal:
        average([state(1.0, 2.0), other])
    odd = "extra" if "extra" in other else "w"
    assert str(refusal.value).endswith(f"differ in {odd}")
