"""`transformer train`: files, stops, resumes, several processes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from transformer import cli, training_run
from transformer.checkpoints import checkpoints, load_checkpoint, load_weights
from transformer.data.tokenizer import BytePairEncoding
from transformer.translation import bleu, translate

ROOT = Path(__file__).resolve().parents[2]
COPY = """--data copy --config tiny --batch-tokens 400 --longest 40
--device cpu --save-minutes 0""".split()


def train(out, *options, steps=6, data=COPY):
    """Run the command in this process; its exit status."""
    fixed = ["--steps", str(steps), "--out", str(out)]
    return cli.main(["train", *data, *fixed, *map(str, options)])


def metrics(out):
    lines = (out / "metrics.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def final(out):
    return load_file(out / "model.safetensors")


def equal(one, other):
    return one.keys() == other.keys() and all(
        torch.equal(one[name], other[name]) for name in one
    )


def furthest(one, other):
    return max((one[name] - other[name]).abs().max().item() for name in one)


@pytest.fixture
def pairs(tmp_path):
    """Two files of sentence pairs: to train on, and to validate on."""
    nouns = {"file": "Datei", "page": "Seite", "line": "Zeile", "cell": "Zelle"}
    verbs = {"open": "Öffnen", "save": "Speichern", "close": "Schließen"}
    lines = [
        f"{verb.capitalize()} the {noun}.\t{tun} Sie die {wort}.\n"
        for verb, tun in verbs.items()
        for noun, wort in nouns.items()
    ]
    paths = tmp_path / "train.tsv", tmp_path / "valid.tsv"
    paths[0].write_text("".join(lines * 3), "utf-8")
    paths[1].write_text("".join(lines[:5]), "utf-8")
    return paths


def from_files(pairs):
    return [
        *("--data", str(pairs[0]), "--valid", str(pairs[1])),
        *"--config tiny --batch-tokens 200 --longest 30 --vocab-size 90".split(),
        *"--device cpu --save-minutes 0 --warmup 20".split(),
    ]


def test_a_run_leaves_everything_in_its_folder(tmp_path, pairs):
    out = tmp_path / "run"
    options = "--validate-every 4 --report-every 3 --save-every 2 --keep 2".split()
    assert train(out, *options, data=from_files(pairs)) == 0
    assert sorted(p.name for p in out.rglob("*") if p.is_file()) == [
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "step-00000004.pt",
        "step-00000006.pt",
        "tokenizer.json",
        "train.safetensors",
    ]
    lines = metrics(out)
    assert [line["step"] for line in lines] == [3, 4, 6, 6]
    assert lines[0].keys() == {"step", "loss", "rate", "tokens_per_second"}
    assert lines[1].keys() == {"step", "perplexity", "accuracy", "bleu"}
    config = json.loads((out / "config.json").read_text())
    assert config["preset"] == "tiny" and config["training.warmup_steps"] == 20
    model = load_weights(out / "model.safetensors")
    tokenizer = BytePairEncoding.load(out / "tokenizer.json")
    assert model.config.vocab_size == tokenizer.vocab_size
    last = load_checkpoint(checkpoints(out / "checkpoints")[-1])
    assert all(torch.equal(last["model"][n], t) for n, t in final(out).items())


@pytest.mark.slow
def test_what_is_learned_is_seen_in_the_validation(tmp_path, pairs):
    out = tmp_path / "run"
    data = [*from_files(pairs), "--factor", "0.1"]
    train(out, "--validate-every", 10, steps=120, data=data)
    said = [line for line in metrics(out) if "bleu" in line]
    assert said[-1]["perplexity"] < 1.2 and said[0]["perplexity"] > 2
    assert said[-1]["accuracy"] > 0.97
    assert said[-1]["bleu"] > 90
    model = load_weights(out / "model.safetensors")
    tokenizer = BytePairEncoding.load(out / "tokenizer.json")
    sources = ["Save the page.", "Open the file.", "Close the cell."]
    assert translate(model, tokenizer, sources) == [
        "Speichern Sie die Seite.",
        "Öffnen Sie die Datei.",
        "Schließen Sie die Zelle.",
    ]


def test_the_perplexity_has_no_smoothing(tmp_path, pairs):
    # An untrained model: near the size of the vocabulary, whatever the loss.
    out = tmp_path / "run"
    options = "--smoothing 0.5 --validate-every 1 --factor 1e-9".split()
    train(out, *options, steps=1, data=from_files(pairs))
    model = load_weights(out / "model.safetensors")
    (line,) = [line for line in metrics(out) if "perplexity" in line]
    lines = [line.split("\t") for line in pairs[1].read_text("utf-8").splitlines()]
    tokenizer = BytePairEncoding.load(out / "tokenizer.json")
    loss = tokens = 0
    for source, target in lines:
        ids = [tokenizer.encode([side])[0] for side in (source, target)]
        given = torch.tensor([[*ids[0], 2]]), torch.tensor([[1, *ids[1]]])
        gold = torch.tensor([*ids[1], 2])
        logs = model(*given)[0].double().log_softmax(-1)
        loss -= logs[range(len(gold)), gold].sum().item()
        tokens += len(gold)
    assert line["perplexity"] == pytest.approx(torch.tensor(loss / tokens).exp().item())


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_resumed_run_ends_with_the_very_same_weights(tmp_path, pairs, stop):
    data = from_files(pairs)
    options = "--dropout 0.2 --save-every 2 --report-every 1".split()
    options += ["--validate-every", "0"]
    train(tmp_path / "whole", *options, data=data)
    train(tmp_path / "parts", *options, data=data, steps=stop)
    train(tmp_path / "parts", *options, "--resume", data=data)
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))
    for whole, parts in zip(
        metrics(tmp_path / "whole"), metrics(tmp_path / "parts"), strict=True
    ):
        whole.pop("tokens_per_second", None), parts.pop("tokens_per_second", None)
        assert whole == parts


def test_steps_that_are_taken_again_leave_no_second_line(tmp_path):
    out = tmp_path / "run"
    train(out, "--save-every", 4, "--report-every", 1)
    (out / "checkpoints" / "step-00000006.pt").unlink()
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "lo')  # what a kill can leave
    train(out, "--save-every", 4, "--report-every", 1, "--resume")
    steps = [line["step"] for line in metrics(out) if "loss" in line]
    assert steps == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--factor 0.5", "training.factor was 0.24, now 0.5"),
        ("--config small", "preset was 'tiny', now 'small'"),
        ("--seed 3", "training.seed was 0, now 3"),
        ("--dropout 0.3", "dropout was None, now 0.3"),
        ("--batch-tokens 300", "batch_tokens was 400, now 300"),
    ],
)
def test_another_configuration_is_refused_by_name(tmp_path, capsys, options, said):
    out = tmp_path / "run"
    train(out, steps=2)
    before = (out / "checkpoints" / "step-00000002.pt").read_bytes()
    assert train(out, *options.split(), "--resume") == 2
    assert f"{out} holds another run: {said}" in capsys.readouterr().err
    assert (out / "checkpoints" / "step-00000002.pt").read_bytes() == before


def test_other_data_are_refused(tmp_path, pairs, capsys):
    out, data = tmp_path / "run", from_files(pairs)
    train(out, data=data, steps=2)
    with pairs[0].open("a", encoding="utf-8") as file:
        file.write("A page.\tEine Seite.\n")
    (out / "train.safetensors").unlink()
    assert train(out, "--resume", data=data, steps=4) == 2
    assert "fingerprint was" in capsys.readouterr().err


def test_a_folder_with_a_run_is_not_written_over(tmp_path, capsys):
    out = tmp_path / "run"
    train(out, steps=2)
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert train(out, steps=4) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before


def test_a_folder_with_other_files_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("my only copy")
    assert train(tmp_path) == 2
    assert "holds files, but no run" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_bad_data_are_refused_before_anything_is_trained(tmp_path, pairs, capsys):
    pairs[1].write_text("a\tA\n\tB\n", "utf-8")
    assert train(tmp_path / "run", data=from_files(pairs)) == 2
    assert f"{pairs[1]}:2: the source is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--longest 1", "longest=1 must be at least 2"),
        ("--longest 500", "leaves 400"),
        ("--accumulate 20", "holds no sequence|leaves 20"),
        ("--smoothing 1", "label_smoothing=1.0"),
        ("--factor 0", "factor=0.0 must be above 0"),
        ("--save-every 0", "save_every=0 must be at least 1"),
        ("--dropout 2", "dropout=2.0"),
    ],
)
def test_bad_options_are_refused(tmp_path, capsys, options, said):
    assert train(tmp_path / "run", *options.split()) == 2
    error = capsys.readouterr().err
    assert any(part in error for part in said.split("|"))
    assert not (tmp_path / "run").exists()


def test_a_broken_checkpoint_is_named(tmp_path, capsys):
    out = tmp_path / "run"
    train(out, steps=2)
    path = out / "checkpoints" / "step-00000002.pt"
    path.write_bytes(path.read_bytes()[:1000])
    assert train(out, "--resume", steps=4) == 2
    assert f"{path}: no checkpoint" in capsys.readouterr().err


def test_a_checkpoint_with_code_in_it_is_not_run(tmp_path, capsys):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "exploded"),))

    path = tmp_path / "step-00000001.pt"
    torch.save({"config": "{}", "model": Bomb()}, path)
    with pytest.raises(ValueError, match="no checkpoint"):
        load_checkpoint(path)
    assert not (tmp_path / "exploded").exists()


def test_a_loss_that_is_no_number_replaces_no_checkpoint(tmp_path, capsys):
    out = tmp_path / "run"
    train(out, "--save-every", 1, "--report-every", 100, steps=3)
    folder = out / "checkpoints"
    broken = torch.load(folder / "step-00000003.pt", weights_only=True)
    broken["model"]["source_embedding.weight"].fill_(float("nan"))
    torch.save(broken, folder / "step-00000003.pt")
    assert train(out, "--resume", "--save-every", 1, steps=9) == 2
    assert "the loss is nan at step 4" in capsys.readouterr().err
    assert not (folder / "step-00000004.pt").exists()


def test_minutes_save_too(tmp_path, monkeypatch):
    out = tmp_path / "run"
    options = [*COPY, "--save-minutes", "1e-9", "--save-every", "1000"]
    train(out, "--keep", 10, data=options)
    assert len(checkpoints(out / "checkpoints")) == 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(tmp_path, monkeypatch, capsys, number):
    step = training_run.Trainer.step

    def interrupted(self, stop=False):
        if self.done == 2:
            os.kill(os.getpid(), number)
        return step(self, stop)

    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    out = tmp_path / "run"
    train(tmp_path / "whole", steps=6)
    with monkeypatch.context() as patch:
        patch.setattr(training_run.Trainer, "step", interrupted)
        assert train(out, steps=6) == 128 + number
    assert handlers == (
        signal.getsignal(signal.SIGINT),
        signal.getsignal(signal.SIGTERM),
    )
    assert "--resume goes on" in capsys.readouterr().err
    # Asked during the third step, it stops after the fourth at the latest.
    assert checkpoints(out / "checkpoints")[-1].name <= "step-00000004.pt"
    assert not (out / "model.safetensors").exists()
    assert train(out, "--resume", steps=6) == 0
    assert equal(final(out), final(tmp_path / "whole"))


def test_the_random_state_outside_is_left_alone(tmp_path):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    train(tmp_path / "run", "--dropout", 0.1, steps=2)
    assert torch.equal(torch.rand(3), expected)


def benchmark(name):
    """A module of benchmarks/, which is no package."""
    path = ROOT / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_killed_run_ends_with_the_very_same_weights(tmp_path):
    outcomes = benchmark("kill_and_resume").survive(tmp_path, times=2, seed=11)
    assert [same for _, same in outcomes] == [True, True]


def torchrun(*arguments, processes=2):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    start = f"-m torch.distributed.run --standalone --nproc-per-node {processes}"
    return subprocess.run(
        [sys.executable, *start.split(), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.slow
def test_two_processes_do_what_one_does(tmp_path, pairs):
    options = [
        *from_files(pairs),
        *"--steps 20 --accumulate 2 --precision float64 --dropout 0.0".split(),
    ]
    assert cli.main(["train", *options, "--out", str(tmp_path / "one")]) == 0
    command = ["-m", "transformer", "train", *options, "--out", tmp_path / "two"]
    done = torchrun(*command)
    assert done.returncode == 0, done.stderr
    one, two = final(tmp_path / "one"), final(tmp_path / "two")
    assert {tensor.dtype for tensor in one.values()} == {torch.float64}
    assert furthest(one, two) < 1e-10
    # Only the first process writes: no line is there twice.
    assert len(metrics(tmp_path / "two")) == len(metrics(tmp_path / "one"))
    for a, b in zip(metrics(tmp_path / "one"), metrics(tmp_path / "two"), strict=True):
        assert a.get("loss") == pytest.approx(b.get("loss"), abs=1e-10)
        assert a.get("bleu") == b.get("bleu")


@pytest.mark.slow
def test_an_error_in_one_process_stops_all_and_is_shown(tmp_path):
    script = tmp_path / "failing.py"
    script.write_text(
        "import os\n"
        "from transformer import cli\n"
        "from transformer.data.streams import TaskBatches\n"
        "take = TaskBatches.take\n"
        "def failing(self, count, share=slice(None)):\n"
        "    if os.environ['RANK'] == '1' and self.done >= 6:\n"
        "        raise RuntimeError('the disk of rank 1 is gone')\n"
        "    return take(self, count, share)\n"
        "TaskBatches.take = failing\n"
        f"cli.main(['train', *{COPY!r}, '--steps', '500', '--accumulate', '2',"
        f" '--out', {str(tmp_path / 'run')!r}])\n"
    )
    started = time.monotonic()
    done = torchrun(script)
    assert done.returncode != 0
    assert "the disk of rank 1 is gone" in done.stderr
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert time.monotonic() - started < 200  # it does not wait for the two hours


def test_average_of_the_last_checkpoints(tmp_path, capsys):
    out = tmp_path / "run"
    train(out, "--save-every", 1, "--keep", 3)
    assert cli.main(["average", str(out), "--last", "2"]) == 0
    states = [load_checkpoint(p)["model"] for p in checkpoints(out / "checkpoints")]
    found = load_weights(out / "averaged.safetensors").state_dict()
    for name, tensor in found.items():
        mean = (states[1][name].double() + states[2][name].double()) / 2
        assert torch.equal(tensor, mean.to(tensor.dtype))
    assert "step-00000005.pt, step-00000006.pt" in capsys.readouterr().out


def test_average_of_named_files(tmp_path):
    out = tmp_path / "run"
    train(out, "--save-every", 3)
    files = [out / "model.safetensors", out / "checkpoints" / "step-00000006.pt"]
    target = tmp_path / "mean.safetensors"
    assert cli.main(["average", *map(str, files), "--out", str(target)]) == 0
    assert equal(load_file(target), final(out))


def test_average_refuses(tmp_path, capsys):
    out = tmp_path / "run"
    train(out, steps=2)
    assert cli.main(["average", str(out), "--last", "9"]) == 2
    assert "holds 1 checkpoints, fewer than" in capsys.readouterr().err
    assert cli.main(["average", str(out / "model.safetensors")]) == 2
    assert "--out is needed" in capsys.readouterr().err
    shutil.copy(out / "config.json", tmp_path / "x.safetensors")
    target = str(tmp_path / "y.safetensors")
    files = [str(tmp_path / "x.safetensors"), "--out", target]
    assert cli.main(["average", *files]) == 2
    assert "x.safetensors: no weights of this book" in capsys.readouterr().err
    assert not Path(target).exists()


def test_bleu_is_that_of_sacrebleu():
    assert bleu(["a b c d e"], ["a b c d e"]).score == pytest.approx(100)
    assert bleu(["x y z w v"], ["a b c d e"]).score < 10
    for wrong in ([], ["a", "b"]):
        with pytest.raises(ValueError, match="one for each"):
            bleu(wrong, ["a"])
