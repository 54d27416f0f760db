"""Steps that can be saved, shared and cut into batches."""

from __future__ import annotations

import pytest
import torch

from transformer import TrainingConfig, Transformer, TransformerConfig, train
from transformer.data.streams import EncodedPairs, Ragged, TaskBatches, TokenBatches
from transformer.data.toy import SymbolTask
from transformer.processes import Processes, choose_device
from transformer.trainer import Trainer

ALONE = Processes(0, 1, torch.device("cpu"))
TASK = SymbolTask("copy", symbols=5, shortest=2, longest=6)


def make_trainer(
    *, dropout=0.1, accumulate=1, precision="float32", factor=0.24, **options
):
    torch.manual_seed(0)
    config = TransformerConfig.tiny(
        TASK.vocab_size, d_model=16, d_ff=24, dropout=dropout, max_length=32
    )
    training = TrainingConfig.copy_task(
        accumulate=accumulate, average_last=0, warmup_steps=10, factor=factor
    )
    stream = options.pop("stream", None) or TaskBatches(TASK, 6, seed=0)
    return Trainer(
        Transformer(config), stream, training, ALONE, precision=precision, **options
    )


def weights(trainer):
    return {n: t.detach().clone() for n, t in trainer.model.state_dict().items()}


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def furthest(one, other):
    return max((one[n] - other[n]).abs().max().item() for n in one)


def test_without_dropout_it_is_the_loop_of_section_5():
    trainer = make_trainer(dropout=0.0, precision="float64", accumulate=2)
    plain = make_trainer(dropout=0.0, precision="float64", accumulate=2)
    for _ in range(20):
        trainer.step()
    config = TrainingConfig.copy_task(
        steps=20, accumulate=2, average_last=0, warmup_steps=10
    )
    train(plain.model, plain.stream.take(40), config, progress=False)
    assert furthest(weights(trainer), weights(plain)) < 1e-12


def test_the_loss_is_the_sum_over_real_tokens():
    one, other = make_trainer(dropout=0.0), make_trainer(dropout=0.0)
    step = one.step()
    (batch,) = other.stream.take(1)
    assert step.tokens == (batch.target[:, 1:] != 0).sum()
    assert not step.stop
    logits = other.model(batch.source, batch.target[:, :-1])
    loss = other.objective.loss.loss(logits, batch.target[:, 1:])
    assert step.loss.item() / step.tokens == pytest.approx(loss.item(), rel=1e-6)


@pytest.mark.parametrize("before", [1, 5])
def test_a_resumed_trainer_goes_on_to_the_very_bit(before, tmp_path):
    whole = make_trainer()
    for _ in range(before):
        whole.step()
    torch.save(whole.state(), tmp_path / "state.pt")
    for _ in range(6):
        whole.step()
    resumed = make_trainer()
    torch.manual_seed(123)  # nothing hangs on the random state outside
    resumed.load(torch.load(tmp_path / "state.pt", weights_only=True))
    assert resumed.done == before
    for _ in range(6):
        resumed.step()
    assert equal(weights(whole), weights(resumed))
    assert whole.rate == resumed.rate
    assert whole.stream.position() == resumed.stream.position()


@pytest.mark.parametrize("forgotten", ["optimizer", "scheduler", "stream"])
def test_every_part_of_the_state_is_needed(forgotten):
    whole = make_trainer()
    for _ in range(3):
        whole.step()
    state = {**whole.state(), forgotten: make_trainer().state()[forgotten]}
    state["model"] = weights(whole)
    whole.step()
    resumed = make_trainer()
    resumed.load(state)
    resumed.step()
    assert not equal(weights(whole), weights(resumed))


def test_dropout_differs_from_step_to_step_and_place_to_place():
    # The same batch at each step: only dropout can make a difference.
    pairs = EncodedPairs(Ragged.of([[5, 6, 7]]), Ragged.of([[5, 6, 7]]))
    stream = TokenBatches(pairs, 64, seed=0)
    still = make_trainer(accumulate=2, stream=stream, factor=1e-30)
    losses = {still.step().loss.item() for _ in range(5)}
    assert len(losses) == 5


def test_a_step_in_one_batch_or_in_two(generator):
    # The same pairs, as one batch or cut in two, give the same weights.
    ids = [torch.randint(3, 8, (4,), generator=generator).tolist() for _ in range(8)]

    class Fixed:
        def __init__(self, parts):
            self.parts = parts

        def take(self, count, share=slice(None)):
            step = 8 // self.parts
            cuts = [ids[i : i + step] for i in range(0, 8, step)]
            pairs = EncodedPairs(Ragged.of(ids), Ragged.of(ids))
            assert count == len(cuts)
            starts = range(0, 8, step)
            return [pairs.batch(list(range(i, i + step))) for i in starts][share]

        def position(self):
            return {}

        def go_to(self, position):
            pass

    outcomes = []
    for parts in (1, 2, 4):
        trainer = make_trainer(
            dropout=0.0, accumulate=parts, precision="float64", stream=Fixed(parts)
        )
        for _ in range(5):
            trainer.step()
        outcomes.append(weights(trainer))
    assert furthest(outcomes[0], outcomes[1]) < 1e-12
    assert furthest(outcomes[0], outcomes[2]) < 1e-12


def test_bfloat16_leaves_weights_in_float32_and_learns():
    trainer = make_trainer(precision="bfloat16", dropout=0.0)
    losses = [(s := trainer.step()).loss.item() / s.tokens for _ in range(40)]
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters())
    assert losses[-1] < losses[0]
    exact = make_trainer(dropout=0.0).step()
    assert losses[0] != exact.loss.item() / exact.tokens
    assert losses[0] == pytest.approx(exact.loss.item() / exact.tokens, rel=0.02)


def test_another_precision_is_refused():
    with pytest.raises(ValueError, match="precision='half'"):
        make_trainer(precision="half")


def test_batches_that_cannot_be_shared_evenly():
    training = TrainingConfig.copy_task(accumulate=3)
    model = Transformer(TransformerConfig.tiny(TASK.vocab_size))
    two = Processes(0, 2, torch.device("cpu"))
    with pytest.raises(ValueError, match=r"accumulate=3 .* evenly by 2"):
        Trainer(model, TaskBatches(TASK, 2, 0), training, two)


def test_devices():
    assert choose_device("cpu").type == "cpu"
    with pytest.raises(ValueError, match="device='tpu'"):
        choose_device("tpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu():
    assert choose_device("auto").type == "cpu"
    with pytest.raises(ValueError, match="no GPU of its own: 0 found"):
        choose_device("cuda")
