"""Adam's moves: the optimizer, the closed forms, and the check."""

import math

import pytest
import torch

from bookkit import CheckFailed, adam, check, mutations, reference
from transformer import TrainingConfig, training
from transformer.data.toy import SymbolTask


def stepwise(gradients, beta1, beta2, eps):
    """As most people write it."""
    mean = square = 0.0
    moved = []
    for t, g in enumerate(gradients, start=1):
        mean = beta1 * mean + (1 - beta1) * g
        square = beta2 * square + (1 - beta2) * g * g
        root = math.sqrt(square / (1 - beta2**t))
        moved.append(-mean / (1 - beta1**t) / (root + eps))
    return moved


def test_a_right_adam_raises_nothing():
    assert len(check.adam(stepwise).statements) == 6
    check.adam(lambda *given: torch.tensor(stepwise(*given), dtype=torch.float64))
    check.adam(
        lambda betas, stream: stepwise(stream, *betas, 1e-9),
        call=lambda f, gradients, beta1, beta2, eps: f((beta1, beta2), gradients),
    )


def test_a_mistake_in_adam_is_named_with_the_smallest_example():
    def not_corrected(gradients, beta1, beta2, eps):
        mean = square = 0.0
        moved = []
        for g in gradients:
            mean = beta1 * mean + (1 - beta1) * g
            square = beta2 * square + (1 - beta2) * g * g
            moved.append(-mean / (math.sqrt(square) + eps))
        return moved

    with pytest.raises(CheckFailed) as caught:
        check.adam(not_corrected)
    assert caught.value.mistakes == ["adam_not_corrected"]
    assert "gradients = (0.5)" in str(caught.value)


@pytest.mark.parametrize("beta2", [0.98, 0.999])
def test_the_optimizer_is_adam_written_out(beta2):
    generator = torch.Generator().manual_seed(3)
    stream = torch.randn(40, generator=generator, dtype=torch.float64)
    wanted = reference.adam(stream.tolist(), 0.9, beta2, 1e-9)
    got = adam.moves(stream, beta2=beta2)
    assert torch.allclose(got, torch.tensor(wanted).double(), atol=1e-6)
    columns = adam.moves(torch.stack([stream, -stream], dim=1), beta2=beta2)
    assert torch.equal(columns[:, 0], got)
    assert torch.equal(columns[:, 1], -got)


def test_noise_alone_is_the_size_of_moves_whose_signs_are_drawn():
    generator = torch.Generator().manual_seed(4)
    signs = torch.randint(0, 2, (30, 20_000), generator=generator) * 2.0 - 1
    for beta2 in (0.98, 0.999):
        size = adam.moves(signs, beta2=beta2).square().mean(1).sqrt()
        for step in (1, 2, 5, 30):
            wanted = adam.noise_alone(step)
            assert size[step - 1].item() == pytest.approx(wanted, abs=0.01)


@pytest.mark.parametrize("beta2", [0.98, 0.999])
@pytest.mark.parametrize("steps", [1, 2, 10, 100])
def test_the_furthest_move_is_reached_and_never_passed(steps, beta2):
    limit = adam.largest(steps, beta2=beta2)
    worst = adam.worst_gradients(steps, beta2=beta2)
    reached = -adam.moves(worst, beta2=beta2)[-1].item()
    assert reached == pytest.approx(limit, rel=1e-6)
    generator = torch.Generator().manual_seed(steps)
    noise = worst[:, None] * (1 + torch.randn(steps, 500, generator=generator) / 5)
    assert adam.moves(noise, beta2=beta2)[-1].abs().max() <= limit + 1e-9


def test_in_the_long_run_it_is_1_7_with_the_papers_constants():
    assert adam.largest(10_000) == pytest.approx(1.698, abs=1e-3)
    assert adam.largest(100_000, beta2=0.999) == pytest.approx(7.270, abs=1e-3)


def test_the_rate_of_the_mistaken_optimizers_is_still_the_optimizers():
    for mistake in mutations.of("Adam"):
        with mistake.applied():
            weight = torch.nn.Linear(1, 1, bias=False)
            made = training.make_optimizer(weight, TrainingConfig())
            made.param_groups[0]["lr"] = 0.0
            before = weight.weight.detach().clone()
            weight.weight.grad = torch.ones_like(before)
            made.step()
            assert torch.equal(weight.weight, before)


def test_the_first_step_of_a_model_is_one_learning_rate():
    task = SymbolTask("copy", shortest=3, longest=5)
    moved = adam.in_training(task, seed=0, steps=3)
    assert len(moved) == 3
    # Less the weights without a gradient, such as padding's row.
    assert moved[0] == pytest.approx(1, abs=0.01)
    assert all(0 < each < 1.7 for each in moved)
