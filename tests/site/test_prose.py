"""What the prose pages say of the code is so."""

import dataclasses
import importlib.util
import json
import math
import re

import pytest
import torch
import yaml
from tests.site.conftest import ADDRESS, ROOT
from torch import nn
from torch.nn import functional as F

import transformer
from bookkit.colab import FIRST_CELL, stamp
from transformer import TrainingConfig, Transformer, TransformerConfig

FIELDS = {
    field.name
    for config in (TransformerConfig, TrainingConfig)
    for field in dataclasses.fields(config)
}


def page(name: str) -> str:
    """A prose page, its lines joined."""
    return " ".join((ROOT / "book" / f"{name}.md").read_text("utf-8").split())


def parameters(config: TransformerConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in Transformer(config).parameters())


def test_deviations_name_fields_and_objects_that_exist():
    text = re.sub(r"\{cite:p\}`[^`]+`", "", page("deviations"))
    for code in re.findall(r"`([^`]+)`", text):
        name, _, value = code.partition("=")
        known = name in FIELDS or hasattr(transformer, name.split(".")[0])
        preset = hasattr(TrainingConfig, name) or hasattr(TransformerConfig, name)
        assert known or preset or name == "code", code
        if value:
            changed = {name: yaml.safe_load(value)}
            assert getattr(TransformerConfig(**{"vocab_size": 10} | changed), name)


def test_a_choice_that_deviations_name_is_not_the_default():
    text = page("deviations")
    base = TransformerConfig.base()
    for name, value in re.findall(r'`(\w+)="(\w+)"`', text):
        assert getattr(base, name) != value


def test_deviations_give_the_defaults_that_the_code_has():
    text, base, run = page("deviations"), TransformerConfig.base(), TrainingConfig()
    assert base.layer_norm_eps == 1e-6 and "1e-6, `layer_norm_eps`" in text
    assert base.vocab_size == 37000 and "`vocab_size=37000`" in text
    assert base.max_length == 2048 and "2048, `max_length`" in text
    assert run.betas[1] == 0.98 and run.warmup_steps == 4000 and run.factor == 1
    assert run.average_last == 5 and run.snapshot_every == 1500
    assert TrainingConfig.table3("base").average_last == 0
    off = (base.attention_bias, base.attention_dropout, base.activation_dropout)
    assert not any(off) and not base.output_bias and base.tied
    tiny, copy = TransformerConfig.tiny(), TrainingConfig.copy_task()
    assert tiny.dropout == 0 and copy.factor != 1
    assert copy.warmup_steps < run.warmup_steps
    assert copy.snapshot_every < run.snapshot_every


def test_deviations_count_the_parameters_of_base():
    text = page("deviations")
    for config in (
        TransformerConfig.base(),
        TransformerConfig.base(attention_bias=True),
    ):
        assert f"{parameters(config):,}" in text


def test_notation_gives_the_numbers_of_base():
    base, text = TransformerConfig.base(), page("notation")
    assert f"`layers` | a number, {base.layers} in base" in text
    assert f"`d_model` | a number, {base.d_model} in base" in text
    assert f"`heads` | a number, {base.heads} in base" in text
    assert f"`d_ff` | a number, {base.d_ff} in base" in text
    assert f"both {base.d_k} in base" in text and base.d_v == base.d_k
    assert f"a share, {base.dropout} in base" in text


def test_notation_names_parts_that_exist():
    names = {name for name, _ in Transformer(TransformerConfig.tiny()).named_modules()}
    last = {name.rpartition(".")[2] for name in names}
    for part in ("project_query", "project_key", "project_value", "project_output"):
        assert part in last and f"`{part}`" in page("notation")
    assert {"widen", "narrow"} <= last


def test_the_last_wavelength_is_about_60000():
    longest = 2 * math.pi * 10000 ** (510 / 512)
    assert round(longest, -4) == 60_000
    assert "about 60,000 positions" in page("misreadings")


def test_the_lines_on_page_one_run(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_ext"))
    from book_blocks import RUN_IT

    lines = RUN_IT.format(mutation="no_causal_mask", seed=0, steps=2)
    exec(compile(lines.replace("1000", "4"), "page one", "exec"), {})
    forced, greedy = capsys.readouterr().out.splitlines()[-2:]
    assert 0 <= float(forced) <= 1 and 0 <= float(greedy) <= 1


# --- misreadings of code -------------------------------------------------


def test_half_precision_refuses_a_billion():
    scores = torch.zeros(2, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="overflow"):
        scores.masked_fill(torch.tensor([True, False]), -1e9)
    weights = torch.zeros(4).masked_fill(torch.ones(4, dtype=torch.bool), -1e9)
    assert torch.equal(weights.softmax(-1), torch.full((4,), 0.25))


def test_three_heads_of_ten_pass_for_nine_positions_and_fail_for_eight():
    def split(x):  # d_k = 10 // 3, and an axis that is inferred
        return x.reshape(1, -1, 3, 10 // 3)

    with pytest.raises(RuntimeError):
        split(torch.zeros(1, 8, 10))
    assert split(torch.zeros(1, 9, 10)).size(1) == 10


def test_two_smoothings_are_equal_when_one_is_v_over_v_minus_1_times_the_other():
    logits, gold, share = torch.randn(5, 7), torch.arange(5), 0.1
    target = torch.full((5, 7), share / 6)
    target[torch.arange(5), gold] = 1 - share
    ours = -(target * logits.log_softmax(-1)).sum(-1).mean()
    theirs = F.cross_entropy(logits, gold, label_smoothing=share * 7 / 6)
    torch.testing.assert_close(ours, theirs)


def test_the_frameworks_model_has_norms_and_biases_that_the_paper_has_not():
    theirs = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    assert isinstance(theirs.encoder.norm, nn.LayerNorm)
    assert theirs.encoder.layers[0].self_attn.in_proj_bias is not None
    assert theirs.encoder.layers[0].dropout.p > 0


# --- publishing ----------------------------------------------------------


def publisher():
    spec = importlib.util.spec_from_file_location("publish", ROOT / "book/publish.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_publishing_fills_the_address_in_and_nothing_else(tmp_path):
    before = (ROOT / "_config.yml").read_text("utf-8")
    (tmp_path / "_config.yml").write_text(before, "utf-8")
    (tmp_path / "notebooks").mkdir()
    cell = {"cell_type": "code", "source": FIRST_CELL.splitlines(keepends=True)}
    notebook = tmp_path / "notebooks" / "00_made_up.ipynb"
    notebook.write_text(json.dumps({"cells": [cell]}), "utf-8")
    publisher().publish(f"{ADDRESS}.git", tmp_path)
    after = (tmp_path / "_config.yml").read_text("utf-8")
    assert after == before.replace('url: ""', f'url: "{ADDRESS}"', 1)
    (stamped,) = json.loads(notebook.read_text("utf-8"))["cells"]
    assert "".join(stamped["source"]) == stamp(FIRST_CELL, ADDRESS)


def test_publishing_twice_is_refused(tmp_path):
    (tmp_path / "_config.yml").write_text((ROOT / "_config.yml").read_text("utf-8"))
    publisher().publish(ADDRESS, tmp_path)
    with pytest.raises(ValueError, match="url"):
        publisher().publish(ADDRESS, tmp_path)
