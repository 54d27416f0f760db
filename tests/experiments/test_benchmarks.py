"""The benchmarks run, where a test can afford it, on tiny sizes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(name: str, *options: str) -> str:
    """A script of benchmarks/ in a process of its own; what it prints."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *options],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_gpu_script_measures_on_any_device(tmp_path):
    out = tmp_path / "gpu.json"
    size = "--config tiny --vocab 50 --batch-tokens 200 --device cpu --steps 2"
    more = "--warmup 1 --peak 1e12 --allow-dirty --only float32 --out"
    run("gpu", *size.split(), *more.split(), str(out))
    result = json.loads(out.read_text())
    found = result["variants"]["float32"]
    low, high = found["ms_quartiles"]
    assert 0 < low <= found["ms_per_step"] <= high
    assert 0 < found["utilisation"] < 1
    # Forward and backward are about 6 operations a parameter and token.
    assert 1e8 < found["flops_of_a_step"] < 1e9
    assert result["provenance"]["commit"]


@pytest.mark.slow
def test_the_chunked_loss_is_compared_with_the_plain_one(tmp_path):
    out = tmp_path / "loss.json"
    size = "--tokens 64 --vocab 500 --width 16 --chunk 20 --allow-dirty --out"
    run("chunked_loss", *size.split(), str(out))
    result = json.loads(out.read_text())
    assert result["loss_difference"] < 1e-5
    assert max(result["gradient_differences"].values()) < 1e-6
    assert min(result["cpu_seconds"].values()) > 0


@pytest.mark.slow
def test_the_trainer_is_compared_with_the_frameworks_model(tmp_path):
    out = tmp_path / "step.json"
    size = "--only tiny --rounds 2 --tokens 128 --vocab 60 --allow-dirty --out"
    run("trainer_step", *size.split(), str(out))
    (found,) = json.loads(out.read_text())["sizes"].values()
    assert found["dropout_masks"] == 12  # 2 inputs, 2 layers with 2 and 3
    assert found["loss_difference"] < 1e-5 * found["loss_without_dropout"]
    assert len(found["rounds"]) == 2
    assert min(ratio["quartile_1"] for ratio in found["ratio"].values()) > 0


@pytest.mark.slow
def test_decoding_is_timed_where_all_say_the_same(tmp_path):
    out = tmp_path / "decoding.json"
    names = ["cached", "uncached"]
    if importlib.util.find_spec("transformers"):
        names.append("MarianMT generate")
    size = ["--rounds", "2", "--shapes", "d=128", "--only", *names, "--cases"]
    cases = ["greedy, batch 1", "beam 4, batch 1"]
    run("decoding", *size, *cases, "--allow-dirty", "--out", str(out))
    result = json.loads(out.read_text())
    for case in cases:
        found = result["shapes"]["d=128"][case]
        assert list(found) == names
        assert all(one["same_tokens"] for one in found.values())
        assert found["cached"]["ratio"]["median"] == 1
        assert min(one["tokens_per_second"] for one in found.values()) > 0
