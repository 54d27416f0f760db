"""Table 3 as data, parameter counts, and every rule's message."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from transformer import BOS, EOS, PAD, TrainingConfig, Transformer, TransformerConfig
from transformer.config import table3_rows

# N, d_model, d_ff, h, d_k, d_v, P_drop, eps_ls, steps: the paper's Table 3.
TABLE3 = {
    "base": (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000),
    "A-h1": (6, 512, 2048, 1, 512, 512, 0.1, 0.1, 100_000),
    "A-h4": (6, 512, 2048, 4, 128, 128, 0.1, 0.1, 100_000),
    "A-h16": (6, 512, 2048, 16, 32, 32, 0.1, 0.1, 100_000),
    "A-h32": (6, 512, 2048, 32, 16, 16, 0.1, 0.1, 100_000),
    "B-dk16": (6, 512, 2048, 8, 16, 64, 0.1, 0.1, 100_000),
    "B-dk32": (6, 512, 2048, 8, 32, 64, 0.1, 0.1, 100_000),
    "C-N2": (2, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000),
    "C-N4": (4, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000),
    "C-N8": (8, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000),
    "C-d256": (6, 256, 2048, 8, 32, 32, 0.1, 0.1, 100_000),
    "C-d1024": (6, 1024, 2048, 8, 128, 128, 0.1, 0.1, 100_000),
    "C-ff1024": (6, 512, 1024, 8, 64, 64, 0.1, 0.1, 100_000),
    "C-ff4096": (6, 512, 4096, 8, 64, 64, 0.1, 0.1, 100_000),
    "D-drop0.0": (6, 512, 2048, 8, 64, 64, 0.0, 0.1, 100_000),
    "D-drop0.2": (6, 512, 2048, 8, 64, 64, 0.2, 0.1, 100_000),
    "D-ls0.0": (6, 512, 2048, 8, 64, 64, 0.1, 0.0, 100_000),
    "D-ls0.2": (6, 512, 2048, 8, 64, 64, 0.1, 0.2, 100_000),
    "E-learned": (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000),
    "big": (6, 1024, 4096, 16, 64, 64, 0.3, 0.1, 300_000),
}


def closed_form(row: str, vocab_size: int, bias: bool, max_length: int = 2048) -> int:
    """The parameters of a row, counted on paper."""
    layers, d, d_ff, h, d_k, d_v = TABLE3[row][:6]
    attention = 2 * d * h * d_k + 2 * d * h * d_v
    if bias:
        attention += 2 * h * d_k + h * d_v + d
    feed_forward = d * d_ff + d_ff + d_ff * d + d
    norm = 2 * d
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    positions = 2 * max_length * d if row == "E-learned" else 0
    return vocab_size * d + layers * (encoder_layer + decoder_layer) + positions


def count(config: TransformerConfig) -> int:
    with torch.device("meta"):
        model = Transformer(config)
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_defaults_are_the_papers_base_model():
    config = TransformerConfig.base()
    assert dataclasses.asdict(config) == dict(
        vocab_size=37000,
        layers=6,
        d_model=512,
        d_ff=2048,
        heads=8,
        d_k=64,
        d_v=64,
        dropout=0.1,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        max_length=2048,
        norm="post",
        layer_norm_eps=1e-6,
        attention_bias=False,
        attention_dropout=0.0,
        activation="relu",
        activation_dropout=0.0,
        positions="sinusoidal",
        sinusoid_layout="interleaved",
        sinusoid_spacing="printed",
        target_vocab_size=37000,
        tied=True,
        output_bias=False,
        start_id=1,
    )
    assert (PAD, BOS, EOS) == (0, 1, 2)


def test_training_defaults_are_the_papers_base_run():
    assert dataclasses.asdict(TrainingConfig()) == dict(
        steps=100_000,
        warmup_steps=4000,
        factor=1.0,
        betas=(0.9, 0.98),
        adam_eps=1e-9,
        label_smoothing=0.1,
        accumulate=1,
        average_last=5,
        snapshot_every=1500,
        seed=0,
    )


def test_all_rows_of_table_3_are_there_in_its_order():
    assert table3_rows() == list(TABLE3)


@pytest.mark.parametrize("row", TABLE3)
def test_each_row_has_table_3s_values(row):
    model, run = TransformerConfig.table3(row), TrainingConfig.table3(row)
    shape = (model.layers, model.d_model, model.d_ff, model.heads, model.d_k, model.d_v)
    training = (model.dropout, run.label_smoothing, run.steps)
    assert shape + training == TABLE3[row]
    assert model.positions == ("learned" if row == "E-learned" else "sinusoidal")
    assert run.average_last == 0, "section 6.2: no checkpoint averaging"


def test_base_and_big_are_their_rows():
    assert TransformerConfig.base() == TransformerConfig.table3("base")
    assert TransformerConfig.big() == TransformerConfig.table3("big")


@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize("row", TABLE3)
def test_each_row_has_as_many_parameters_as_the_closed_form(row, bias):
    config = TransformerConfig.table3(row, attention_bias=bias)
    assert count(config) == closed_form(row, 37000, bias)


def test_base_has_63_045_632_parameters():
    assert count(TransformerConfig.base()) == 63_045_632


def test_base_with_attention_biases_has_63_082_496_parameters():
    assert count(TransformerConfig.base(attention_bias=True)) == 63_082_496


@pytest.mark.parametrize(
    ("row", "millions"),
    [
        ("B-dk16", 55.97),
        ("B-dk32", 58.33),
        ("C-N2", 33.64),
        ("C-N4", 48.35),
        ("C-N8", 77.75),
        ("C-d256", 26.82),
        ("C-d1024", 163.82),
        ("C-ff1024", 50.45),
        ("C-ff4096", 88.24),
        ("big", 214.17),
    ],
)
def test_counts_agree_with_those_worked_out_elsewhere(row, millions):
    assert round(count(TransformerConfig.table3(row)) / 1e6, 2) == millions


def test_d_k_and_d_v_are_free_of_d_model_and_heads():
    config = TransformerConfig(
        vocab_size=13, d_model=10, heads=3, d_k=5, d_v=7, d_ff=4, layers=1
    )
    attention = 10 * 15 + 10 * 15 + 10 * 21 + 21 * 10
    feed_forward = 10 * 4 + 4 + 4 * 10 + 10
    assert count(config) == 13 * 10 + 3 * attention + 2 * feed_forward + 5 * 20


def test_one_of_d_k_and_d_v_may_be_given_alone():
    config = TransformerConfig(vocab_size=13, d_model=16, heads=2, d_k=3)
    assert (config.d_k, config.d_v) == (3, 8)


def test_presets_take_changes_and_vocabularies():
    config = TransformerConfig.big(vocab_size=50, dropout=0.1, norm="pre")
    assert (config.vocab_size, config.dropout, config.norm) == (50, 0.1, "pre")
    assert (config.d_model, config.heads) == (1024, 16)
    row = TransformerConfig.table3("A-h1", vocab_size=9, layers=1)
    assert (row.vocab_size, row.layers, row.d_k) == (9, 1, 512)
    assert TrainingConfig.table3("big", average_last=20).average_last == 20
    small, tiny = TransformerConfig.small(), TransformerConfig.tiny()
    assert (small.vocab_size, tiny.vocab_size) == (8000, 13)
    assert TransformerConfig.tiny(20, heads=4).d_k == 16


def test_a_configuration_survives_json():
    config = TransformerConfig.tiny(d_k=5, norm="pre", start_id=0)
    assert TransformerConfig(**json.loads(json.dumps(config.to_dict()))) == config


def test_configurations_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TransformerConfig.tiny().d_model = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainingConfig().steps = 3


def test_the_copy_tasks_rate_peaks_at_3e_3_for_a_width_of_64():
    run = TrainingConfig.copy_task()
    peak = run.factor * (64 * run.warmup_steps) ** -0.5
    assert peak == pytest.approx(3e-3)
    assert (run.steps, run.label_smoothing, run.snapshot_every) == (500, 0.1, 25)


WHOLE = "must be a whole number of at least"
SHARE = "must be at least 0 and below 1"
BAD_MODELS = [
    (dict(vocab_size=0), ["vocab_size=0", WHOLE, "1"]),
    (dict(target_vocab_size=0), ["target_vocab_size=0", WHOLE]),
    (dict(layers=0), ["layers=0", WHOLE]),
    (dict(layers=1.5), ["layers=1.5", WHOLE]),
    (dict(layers=True), ["layers=True", WHOLE]),
    (dict(layers="2"), ["layers='2'", WHOLE]),
    (dict(d_model=0), ["d_model=0", WHOLE]),
    (dict(d_model=-2, d_k=1, d_v=1), ["d_model=-2", WHOLE]),
    (dict(d_ff=0), ["d_ff=0", WHOLE]),
    (dict(heads=0), ["heads=0", WHOLE]),
    (dict(heads=0, d_k=4, d_v=4), ["heads=0", WHOLE]),
    (dict(heads=-1, d_k=4, d_v=4), ["heads=-1", WHOLE]),
    (dict(d_k=0), ["d_k=0", WHOLE]),
    (dict(d_v=0), ["d_v=0", WHOLE]),
    (dict(max_length=0), ["max_length=0", WHOLE]),
    (dict(d_model=10, heads=3), ["d_model=10", "not divisible by", "heads=3"]),
    (dict(d_model=10, heads=3, d_k=2), ["d_model=10", "heads=3"]),
    (dict(dropout=1.0), ["dropout=1.0", SHARE]),
    (dict(dropout=-0.1), ["dropout=-0.1", SHARE]),
    (dict(dropout=float("nan")), ["dropout=nan", SHARE]),
    (dict(dropout="much"), ["dropout", "much", SHARE]),
    (dict(attention_dropout=1), ["attention_dropout=1", SHARE]),
    (dict(activation_dropout=2), ["activation_dropout=2", SHARE]),
    (dict(norm="none"), ["norm='none'", "must be one of", "'post', 'pre'"]),
    (dict(activation="tanh"), ["activation='tanh'", "'relu', 'gelu', 'swish'"]),
    (dict(positions="rotary"), ["positions='rotary'", "'sinusoidal', 'learned'"]),
    (
        dict(sinusoid_layout="split"),
        ["sinusoid_layout='split'", "'interleaved', 'concatenated'"],
    ),
    (
        dict(sinusoid_spacing="even"),
        ["sinusoid_spacing='even'", "'printed', 'published'"],
    ),
    (dict(layer_norm_eps=0.0), ["layer_norm_eps=0.0", "must be above 0"]),
    (dict(d_model=15, heads=3), ["d_model=15", "must be even", "sinusoidal"]),
    (
        dict(target_vocab_size=9),
        ["tied=True", "vocab_size=13", "target_vocab_size=9", "tied=False"],
    ),
    (dict(pad_id=13), ["pad_id=13", "not an id of a vocabulary of 13"]),
    (dict(bos_id=-1), ["bos_id=-1", "not an id of a vocabulary of 13"]),
    (dict(eos_id=99), ["eos_id=99", "not an id of a vocabulary of 13"]),
    (dict(start_id=13), ["start_id=13", "not an id of a vocabulary of 13"]),
    (dict(pad_id=1.5), ["pad_id=1.5", "id"]),
    (
        dict(target_vocab_size=5, tied=False, start_id=5),
        ["start_id=5", "vocabulary of 5"],
    ),
    (dict(eos_id=0), ["eos_id=0 must differ", "pad_id=0"]),
    (dict(eos_id=1), ["eos_id=1 must differ", "bos_id=1"]),
    (dict(start_id=2), ["eos_id=2 must differ", "start_id=2"]),
    (dict(pad_id=1), ["pad_id and bos_id are both 1"]),
]
BAD_RUNS = [
    (dict(steps=0), ["steps=0", WHOLE, "1"]),
    (dict(steps=2.5), ["steps=2.5", WHOLE]),
    (dict(warmup_steps=0), ["warmup_steps=0", WHOLE]),
    (dict(accumulate=0), ["accumulate=0", WHOLE]),
    (dict(snapshot_every=0), ["snapshot_every=0", WHOLE]),
    (dict(average_last=-1), ["average_last=-1", WHOLE, "0"]),
    (dict(label_smoothing=1.0), ["label_smoothing=1.0", SHARE]),
    (dict(label_smoothing=-0.1), ["label_smoothing=-0.1", SHARE]),
    (dict(factor=0.0), ["factor=0.0", "must be above 0"]),
    (dict(adam_eps=0.0), ["adam_eps=0.0", "must be above 0"]),
    (dict(betas=(0.9, 1.0)), ["betas=(0.9, 1.0)", "two numbers", "below 1"]),
    (dict(betas=(0.9,)), ["betas=(0.9,)", "two numbers"]),
    (dict(betas=(-0.1, 0.9)), ["betas=(-0.1, 0.9)", "at least 0"]),
]


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize(("changes", "fragments"), BAD_MODELS)
def test_a_bad_model_is_refused_with_field_value_and_rule(changes, fragments):
    with pytest.raises(ValueError) as refusal:
        TransformerConfig(**(dict(vocab_size=13, d_model=16, heads=2) | changes))
    for fragment in fragments:
        assert fragment in str(refusal.value)


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize(("changes", "fragments"), BAD_RUNS)
def test_a_bad_run_is_refused_with_field_value_and_rule(changes, fragments):
    with pytest.raises(ValueError) as refusal:
        TrainingConfig(**changes)
    for fragment in fragments:
        assert fragment in str(refusal.value)


@pytest.mark.parametrize("config", [TransformerConfig, TrainingConfig])
def test_an_unknown_row_is_refused_with_the_rows_there_are(config):
    with pytest.raises(ValueError, match=r"row='A-h3' is not in Table 3.*A-h4.*big"):
        config.table3("A-h3")


def test_fields_must_be_named():
    with pytest.raises(TypeError, match="positional"):
        TransformerConfig(37000, 6)


def test_odd_widths_are_fine_with_learned_positions():
    config = TransformerConfig(vocab_size=13, d_model=15, heads=3, positions="learned")
    assert config.d_model == 15


def test_the_start_token_may_be_padding():
    assert TransformerConfig.tiny(start_id=0).start_id == 0


def test_padding_is_banned_from_the_output_where_it_is_the_start_token():
    assert TransformerConfig.tiny().banned_ids == []
    assert TransformerConfig.tiny(start_id=0).banned_ids == [0]
    assert TransformerConfig.tiny(pad_id=12, start_id=12).banned_ids == [12]
