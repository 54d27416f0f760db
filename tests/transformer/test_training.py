"""Sections 5.3 and 5.4: loss, schedule, and the training loop."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, Adam

from transformer import (
    LabelSmoothingLoss,
    NoamScheduler,
    TrainingConfig,
    Transformer,
    TransformerConfig,
    noam_rate,
    train,
    training,
)
from transformer.data.batches import Batch
from transformer.data.toy import SymbolTask
from transformer.evaluation import greedy_exact_match, teacher_forced_accuracy

from .making import SMALL, largest_difference, make_model, random_batch

TASK = SymbolTask("copy", symbols=10, shortest=1, longest=6)


def start(seed=0, dtype=torch.float32, **changes):
    """A small model at its start values, the same for the same seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Transformer(TransformerConfig(**(SMALL | changes))).to(dtype)


def stream(count, size=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [TASK.batch(size, generator) for _ in range(count)]


def short_run(**changes):
    run = dict(steps=4, warmup_steps=10, factor=0.2, average_last=0)
    return TrainingConfig.copy_task(**(run | changes))


# Label smoothing


def smoothed(logits, target, smoothing, pad_id):
    """The loss against a distribution that is written out."""
    classes = logits.size(-1)
    wanted = torch.full_like(logits, smoothing / (classes - 1)).detach()
    wanted.scatter_(-1, target[..., None], 1 - smoothing)
    sums = wanted.sum(-1)
    assert largest_difference(sums, torch.ones_like(sums)) < 1e-12
    losses = -(wanted * logits.log_softmax(-1)).sum(-1)
    return losses[target != pad_id].mean()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("pad_id", [0, 3])
def test_smoothing_gives_every_other_class_eps_over_v_minus_1(
    smoothing, pad_id, generator
):
    logits = 3 * torch.randn(4, 5, 7, generator=generator, dtype=torch.double)
    target = torch.randint(0, 7, (4, 5), generator=generator)
    assert (target == pad_id).any()
    mine = logits.clone().requires_grad_()
    written = logits.clone().requires_grad_()
    loss = LabelSmoothingLoss(smoothing, pad_id)(mine, target)
    expected = smoothed(written, target, smoothing, pad_id)
    assert abs(loss.item() - expected.item()) < 1e-12
    loss.backward()
    expected.backward()
    assert largest_difference(mine.grad, written.grad) < 1e-12
    assert (mine.grad[target == pad_id] == 0).all()


def test_no_smoothing_is_the_frameworks_cross_entropy(generator):
    logits = torch.randn(20, 7, generator=generator, dtype=torch.double)
    target = torch.randint(0, 7, (20,), generator=generator)
    loss = LabelSmoothingLoss(0.0, pad_id=0)(logits, target)
    expected = F.cross_entropy(logits, target, ignore_index=0)
    assert abs(loss.item() - expected.item()) < 1e-12


def test_smoothing_is_the_frameworks_with_eps_times_v_over_v_minus_1(generator):
    logits = torch.randn(20, 7, generator=generator, dtype=torch.double)
    target = torch.randint(1, 7, (20,), generator=generator)
    loss = LabelSmoothingLoss(0.1, pad_id=0)(logits, target).item()
    scaled = F.cross_entropy(logits, target, label_smoothing=0.1 * 7 / 6).item()
    assert abs(loss - scaled) < 1e-12
    unscaled = F.cross_entropy(logits, target, label_smoothing=0.1).item()
    assert abs(loss - unscaled) > 1e-3


def test_the_smallest_loss_is_the_entropy_of_the_smoothed_target(generator):
    smoothing, classes = 0.1, 7
    rest = smoothing / (classes - 1)
    entropy = -((1 - smoothing) * math.log(1 - smoothing) + smoothing * math.log(rest))
    target = torch.arange(1, 7)
    best = torch.full((6, classes), math.log(rest), dtype=torch.double)
    best.scatter_(1, target[:, None], math.log(1 - smoothing))
    loss = LabelSmoothingLoss(smoothing, pad_id=0)
    assert abs(loss(best, target).item() - entropy) < 1e-12
    for _ in range(20):
        noise = 0.3 * torch.randn(6, classes, generator=generator).double()
        assert loss(best + noise, target).item() > entropy
    assert loss(50 * best.exp(), target).item() > entropy


def test_padding_changes_neither_loss_nor_gradient(generator):
    logits = torch.randn(4, 5, 7, generator=generator, dtype=torch.double)
    target = torch.randint(1, 7, (4, 5), generator=generator)
    loss = LabelSmoothingLoss(0.1, pad_id=0)
    short = logits.clone().requires_grad_()
    noise = torch.randn(4, 3, 7, generator=generator).double()
    long = torch.cat([logits, noise], dim=1).requires_grad_()
    one, other = loss(short, target), loss(long, F.pad(target, (0, 3)))
    assert abs(one.item() - other.item()) < 1e-12
    one.backward()
    other.backward()
    assert largest_difference(short.grad, long.grad[:, :5]) < 1e-12
    assert (long.grad[:, 5:] == 0).all()


def test_a_batch_of_padding_costs_0_and_has_finite_gradients():
    logits = torch.randn(2, 3, 7, requires_grad=True)
    loss = LabelSmoothingLoss(0.1, pad_id=0)(logits, torch.zeros(2, 3).long())
    loss.backward()
    assert loss.item() == 0
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("smoothing", [0.8, 0.99])
def test_smoothing_that_leaves_gold_less_than_the_others_is_refused(smoothing):
    # Of 4 classes the others would get 0.8 / 3 each, the gold one 0.2.
    loss = LabelSmoothingLoss(smoothing, pad_id=0)
    with pytest.raises(ValueError, match=f"smoothing={smoothing}"):
        loss(torch.zeros(6, 4), torch.ones(6).long())


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 1.5, float("nan")])
def test_smoothing_outside_its_range_is_refused(smoothing):
    with pytest.raises(
        ValueError, match=f"smoothing={smoothing} must be at least 0 and below 1"
    ):
        LabelSmoothingLoss(smoothing, pad_id=0)


# The schedule


@pytest.mark.parametrize(
    ("d_model", "warmup", "factor"), [(512, 4000, 1.0), (64, 100, 0.24)]
)
def test_the_schedule_is_equation_3_for_steps_1_to_20000(d_model, warmup, factor):
    optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=123.0)
    scheduler = NoamScheduler(optimizer, d_model, warmup_steps=warmup, factor=factor)
    for step in range(1, 20_001):
        formula = factor / math.sqrt(d_model)
        formula *= min(1 / math.sqrt(step), step / warmup**1.5)
        rate = optimizer.param_groups[0]["lr"]
        assert abs(rate - formula) <= 1e-12 * formula
        assert scheduler.get_last_lr() == [rate]
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize(("d_model", "peak"), [(512, 6.99e-4), (1024, 4.94e-4)])
def test_the_rate_peaks_at_the_end_of_warm_up(d_model, peak):
    rates = {step: noam_rate(step, d_model) for step in range(1, 20_001)}
    assert max(rates, key=rates.get) == 4000
    assert rates[4000] == pytest.approx((d_model * 4000) ** -0.5, rel=1e-12)
    assert rates[4000] == pytest.approx(peak, abs=0.005e-4)


def test_the_rate_rises_in_a_line_and_falls_with_the_root():
    assert noam_rate(2000, 512) == pytest.approx(noam_rate(1, 512) * 2000)
    assert noam_rate(16_000, 512) == pytest.approx(noam_rate(4000, 512) / 2)
    assert noam_rate(1, 512) == pytest.approx(1.75e-7, rel=0.005)
    assert noam_rate(100_000, 512) == pytest.approx(1.40e-4, rel=0.005)


@pytest.mark.parametrize("step", [0, -1])
def test_steps_below_1_are_refused(step):
    with pytest.raises(ValueError, match=f"step={step}: steps are counted from 1"):
        noam_rate(step, 512)


@pytest.mark.parametrize(
    "changes",
    [dict(d_model=0), dict(warmup_steps=0), dict(factor=0.0), dict(factor=-1.0)],
)
def test_a_bad_schedule_is_refused_with_its_values(changes):
    optimizer = SGD([nn.Parameter(torch.zeros(1))])
    arguments = dict(d_model=64, warmup_steps=10, factor=1.0) | changes
    with pytest.raises(ValueError) as refusal:
        NoamScheduler(optimizer, **arguments)
    ((name, value),) = changes.items()
    assert f"{name}={value}" in str(refusal.value)
    assert "must be at least 1" in str(refusal.value)


def test_every_parameter_group_gets_the_same_rate():
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": lr} for lr in (1.0, 9.0)]
    optimizer = SGD(groups, lr=5.0)
    NoamScheduler(optimizer, 64, warmup_steps=10)
    rates = [group["lr"] for group in optimizer.param_groups]
    assert rates == [noam_rate(1, 64, 10)] * 2


def test_a_schedule_goes_on_where_it_was_saved():
    def make():
        optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        return optimizer, NoamScheduler(optimizer, 64, warmup_steps=10)

    optimizer, scheduler = make()
    for _ in range(7):
        optimizer.step()
        scheduler.step()
    again, resumed = make()
    again.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(scheduler.state_dict())
    assert again.param_groups[0]["lr"] == noam_rate(8, 64, 10)
    assert resumed.get_last_lr() == [noam_rate(8, 64, 10)]
    for step in range(9, 15):
        again.step()
        resumed.step()
        assert again.param_groups[0]["lr"] == noam_rate(step, 64, 10)


def test_a_saved_schedule_holds_numbers_only():
    optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    state = NoamScheduler(optimizer, 64, warmup_steps=10, factor=0.5).state_dict()
    assert (state["d_model"], state["warmup_steps"], state["factor"]) == (64, 10, 0.5)
    assert not any(isinstance(value, torch.optim.Optimizer) for value in state.values())


# The optimizer


def test_adam_has_the_papers_constants():
    optimizer = training.make_optimizer(make_model(), TrainingConfig())
    assert type(optimizer) is Adam
    group = optimizer.param_groups[0]
    assert group["betas"] == (0.9, 0.98)
    assert group["eps"] == 1e-9
    assert group["weight_decay"] == 0
    assert not group["amsgrad"]


def test_adam_takes_the_configurations_constants():
    config = TrainingConfig(betas=(0.5, 0.6), adam_eps=1e-7)
    group = training.make_optimizer(make_model(), config).param_groups[0]
    assert (group["betas"], group["eps"]) == ((0.5, 0.6), 1e-7)


def test_every_parameter_is_optimised_once():
    model = make_model(norm="pre", attention_bias=True)
    optimizer = training.make_optimizer(model, TrainingConfig())
    (group,) = optimizer.param_groups
    assert {id(p) for p in group["params"]} == {id(p) for p in model.parameters()}
    assert len(group["params"]) == len(list(model.parameters()))


def test_two_steps_are_adam_by_the_book():
    model = start(dtype=torch.float64)
    batches = stream(2)
    config = short_run(steps=2, label_smoothing=0.1)
    by_hand = start(dtype=torch.float64)
    moments = {name: (0.0, 0.0) for name, _ in by_hand.named_parameters()}
    criterion = LabelSmoothingLoss(0.1, 0)
    for step, batch in enumerate(batches, start=1):
        by_hand.zero_grad()
        logits = by_hand(batch.source, batch.target[:, :-1])
        criterion(logits, batch.target[:, 1:]).backward()
        rate = noam_rate(step, 16, 10, 0.2)
        with torch.no_grad():
            for name, parameter in by_hand.named_parameters():
                first, second = moments[name]
                first = 0.9 * first + 0.1 * parameter.grad
                second = 0.98 * second + 0.02 * parameter.grad**2
                moments[name] = first, second
                first, second = first / (1 - 0.9**step), second / (1 - 0.98**step)
                parameter -= rate * first / (second.sqrt() + 1e-9)
    train(model, batches, config, progress=False)
    for one, other in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert largest_difference(one, other) < 1e-10


# Gradient accumulation


def trim(batch):
    """Without columns that hold padding only."""
    return Batch(
        batch.source[:, : int((batch.source != 0).sum(1).max())],
        batch.target[:, : int((batch.target != 0).sum(1).max())],
    )


def cut(batch, *sizes):
    """A batch in several, of unequal sequences and tokens, padded afresh."""
    parts = zip(batch.source.split(sizes), batch.target.split(sizes), strict=True)
    return [trim(Batch(source, target)) for source, target in parts]


def test_gradients_of_micro_batches_add_up_to_one_big_batchs():
    (batch,) = stream(1, size=12)
    parts = cut(batch, 2, 7, 3)
    tokens = [int((part.target[:, 1:] != 0).sum()) for part in parts]
    assert len(set(tokens)) == 3
    found = []
    for batches in ([batch], parts):
        model = start()
        criterion = LabelSmoothingLoss(0.1, 0)
        loss = training.accumulate(model, criterion, batches)
        found.append((loss, [p.grad for p in model.parameters()]))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-6)
    for whole, summed in zip(found[0][1], found[1][1], strict=True):
        assert largest_difference(whole, summed) < 1e-6


def counted(monkeypatch):
    """The optimizers and schedulers that training makes."""
    made = []
    make, scheduler = training.make_optimizer, training.NoamScheduler

    def make_optimizer(model, config):
        made.append(make(model, config))
        return made[-1]

    class Scheduler(scheduler):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            made.append(self)

    monkeypatch.setattr(training, "make_optimizer", make_optimizer)
    monkeypatch.setattr(training, "NoamScheduler", Scheduler)
    return made


def test_twenty_accumulated_steps_equal_twenty_big_ones(monkeypatch):
    made = counted(monkeypatch)
    whole = stream(20, size=12)
    parts = [part for batch in whole for part in cut(batch, 2, 7, 3)]
    one, other = start(dtype=torch.float64), start(dtype=torch.float64)
    big = train(one, whole, short_run(steps=20), progress=False)
    small = train(other, parts, short_run(steps=20, accumulate=3), progress=False)
    for mine, yours in zip(one.parameters(), other.parameters(), strict=True):
        assert largest_difference(mine, yours) < 1e-10
    assert big.rate == small.rate
    assert small.loss == pytest.approx(big.loss, abs=1e-10)
    for optimizer in made[0::2]:
        steps = {int(state["step"]) for state in optimizer.state.values()}
        assert steps == {20}
    assert [scheduler.last_epoch for scheduler in made[1::2]] == [20, 20]


def test_accumulation_takes_exactly_the_batches_it_needs():
    batches = iter(stream(7))
    train(start(), batches, short_run(steps=3, accumulate=2), progress=False)
    assert len(list(batches)) == 1


def test_a_micro_batch_of_padding_counts_nothing():
    (batch,) = stream(1)
    empty = Batch(batch.source, torch.zeros_like(batch.target))
    found = []
    for batches in ([batch], [batch, empty]):
        model = start(dtype=torch.float64)
        loss = training.accumulate(model, LabelSmoothingLoss(0.1, 0), batches)
        found.append((loss, [p.grad for p in model.parameters()]))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-12)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert largest_difference(one, other) < 1e-12


# The loop


def final_weights(seed=0, **changes):
    model = start(dropout=0.3)
    history = train(model, stream(4), short_run(seed=seed, **changes), progress=False)
    return history, [p.detach().clone() for p in model.parameters()]


def test_training_twice_with_one_seed_gives_equal_weights():
    torch.manual_seed(1)
    first = final_weights()
    torch.manual_seed(2)
    torch.rand(5)
    second = final_weights()
    assert first[0] == second[0]
    for one, other in zip(first[1], second[1], strict=True):
        assert torch.equal(one, other)


def test_another_seed_drops_other_units():
    first, second = final_weights(seed=0), final_weights(seed=1)
    assert first[0].loss != second[0].loss


def test_training_leaves_the_random_state_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    final_weights()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_history_has_an_entry_a_step():
    history = train(start(), stream(4), short_run(), progress=False)
    assert len(history.loss) == len(history.rate) == 4
    assert history.rate == [noam_rate(step, 16, 10, 0.2) for step in (1, 2, 3, 4)]


def test_the_recorded_loss_is_that_of_the_weights_before_the_step():
    batches = stream(4)
    losses = [LabelSmoothingLoss(0.1, 0)(*logits_and_gold(start(), batches[0]))]

    def watch(step, model):
        if step < 4:
            pair = logits_and_gold(model, batches[step])
            losses.append(LabelSmoothingLoss(0.1, 0)(*pair))

    config = short_run(label_smoothing=0.1)
    history = train(start(), batches, config, watch=watch, progress=False)
    expected = [loss.item() for loss in losses]
    assert history.loss == pytest.approx(expected, abs=1e-6)


def logits_and_gold(model, batch):
    with torch.no_grad():
        return model(batch.source, batch.target[:, :-1]), batch.target[:, 1:]


def test_watch_sees_every_step_with_its_weights():
    seen = []
    model = start()
    train(
        model,
        stream(4),
        short_run(),
        watch=lambda step, watched: seen.append(
            (step, watched is model, watched.source_embedding.weight.sum().item())
        ),
        progress=False,
    )
    assert [step for step, _, _ in seen] == [1, 2, 3, 4]
    assert all(same for _, same, _ in seen)
    assert len({total for _, _, total in seen}) == 4
    assert seen[-1][2] == model.source_embedding.weight.sum().item()


def test_the_model_trains_in_training_mode_whatever_it_came_in():
    model, seen = start(dropout=0.3).eval(), []
    train(
        model,
        stream(4),
        short_run(),
        watch=lambda _, watched: seen.append(watched.training),
        progress=False,
    )
    assert seen == [True] * 4


@pytest.mark.parametrize(
    ("steps", "average_last", "snapshot_every", "averaged"),
    [
        (7, 3, 2, [3, 5, 7]),
        (7, 2, 1, [6, 7]),
        (4, 5, 1, [1, 2, 3, 4]),
        (6, 5, 4, [2, 6]),
        (5, 1, 2, [5]),
        (5, 0, 2, [5]),
    ],
)
def test_the_weights_end_as_the_mean_of_the_last_snapshots(
    steps, average_last, snapshot_every, averaged
):
    kept = {}
    model = start(dropout=0.1)
    train(
        model,
        stream(steps),
        short_run(
            steps=steps, average_last=average_last, snapshot_every=snapshot_every
        ),
        watch=lambda step, watched: kept.update(
            {step: [p.detach().clone() for p in watched.parameters()]}
        ),
        progress=False,
    )
    for number, parameter in enumerate(model.parameters()):
        chosen = [kept[step][number].double() for step in averaged]
        mean = torch.stack(chosen).mean(0)
        assert largest_difference(parameter.double(), mean) < 1e-7
    assert (
        model.output_projection.weight.data_ptr()
        == model.source_embedding.weight.data_ptr()
    )


def test_averaging_does_not_touch_the_training_itself():
    plain = train(start(), stream(6), short_run(steps=6), progress=False)
    config = short_run(steps=6, average_last=3, snapshot_every=1)
    assert train(start(), stream(6), config, progress=False) == plain


@pytest.mark.parametrize(
    ("given", "accumulate", "message"),
    [
        (3, 1, "the batches ended in step 4: 1 a step are needed"),
        (0, 1, "the batches ended in step 1: 1 a step are needed"),
        (5, 2, "the batches ended in step 3: 2 a step are needed"),
    ],
)
def test_batches_that_end_early_are_an_error_that_says_where(
    given, accumulate, message
):
    config = short_run(accumulate=accumulate)
    with pytest.raises(ValueError, match=message):
        train(start(), stream(given), config, progress=False)


def test_one_batch_can_be_learned_by_heart():
    model = start(d_model=32, d_ff=64)
    (batch,) = stream(1, size=8, seed=3)
    config = short_run(steps=150, warmup_steps=40, factor=0.3, label_smoothing=0.0)
    history = train(model, [batch] * 150, config, progress=False)
    assert history.loss[0] > 1.5
    assert history.loss[-1] < 0.05
    assert teacher_forced_accuracy(model, batch) == 1.0
    assert greedy_exact_match(model, batch) == 1.0


def test_a_model_that_was_trained_copies_what_it_has_never_seen(copier, short_copies):
    fresh = torch.Generator().manual_seed(99)
    assert greedy_exact_match(copier, short_copies.batch(300, fresh)) >= 0.95


# Progress


@pytest.mark.parametrize(
    ("steps", "lines"), [(1, 1), (3, 3), (5, 5), (7, 3), (23, 4), (40, 5)]
)
def test_outside_a_terminal_a_few_lines_tell_the_progress(steps, lines, capsys):
    model, config = start(), short_run(steps=steps)
    history = train(model, stream(1) * steps, config)
    out, err = capsys.readouterr()
    printed = out.splitlines()
    assert len(printed) == lines
    for line in printed:
        step = int(line.split()[1])
        assert line == f"step {step} of {steps}: loss {history.loss[step - 1]:.2g}"
    assert "step/s" not in err


def test_without_progress_nothing_is_printed(capsys):
    train(start(), stream(4), short_run(), progress=False)
    assert capsys.readouterr() == ("", "")


def test_in_a_terminal_there_is_a_bar_with_the_loss_and_no_lines(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    history = train(start(), stream(4), short_run())
    out, err = capsys.readouterr()
    assert out == ""
    assert "4/4" in err
    assert f"loss={history.loss[-1]:.2g}" in err


def test_a_random_batch_trains_too(generator):
    batch = random_batch(generator)
    history = train(start(), [batch] * 4, short_run(), progress=False)
    assert all(math.isfinite(loss) for loss in history.loss)
