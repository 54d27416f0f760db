"""The command `transformer demo`."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

from transformer import cli, recipes
from transformer.data.toy import SymbolTask
from transformer.training import History

ROOT = Path(__file__).parents[2]


@pytest.fixture
def untrained(monkeypatch):
    """The demo without its training; what was asked for is kept."""
    asked = []

    def no_training(model, batches, config, **options):
        asked.append(config)
        return History(loss=[0.0] * config.steps, rate=[0.0] * config.steps)

    monkeypatch.setattr(recipes, "train", no_training)
    return asked


@pytest.fixture
def share(monkeypatch):
    """Sets what the evaluation finds; the goal stays as it is."""
    measured = []

    def set_share(value):
        def evaluation(model, batch):
            measured.append(batch)
            return value

        monkeypatch.setattr(cli, "greedy_exact_match", evaluation)
        return measured

    return set_share


def test_three_steps_train_decode_print_and_return_0(capsys):
    assert cli.main(["demo", "--steps", "3", "--seed", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["step"] * 3 + [
        "source",
        "output",
    ] * 3 + ["greedy"]
    assert re.fullmatch(
        r"greedy exact match on 1000 fresh sequences: \d\.\d{3}"
        r"  \(seed 4, 3 steps, \d+ s\)",
        lines[-1],
    )


def test_sources_are_printed_as_symbols_without_special_ids(capsys, untrained, share):
    share(1.0)
    cli.main(["demo"])
    lines = capsys.readouterr().out.splitlines()
    for line in lines[0:6:2]:
        shown = line.removeprefix("  source  ").split()
        assert 5 <= len(shown) <= 20
        assert all(symbol in "0123456789" for symbol in shown)


def test_symbols_are_ids_without_the_special_ones():
    assert cli.symbols(torch.tensor([1, 3, 12, 4, 2, 0, 0])) == "0 9 1"


@pytest.mark.parametrize(
    ("steps", "found", "status"),
    [
        (500, 0.989, 1),
        (500, 0.99, 0),
        (500, 1.0, 0),
        (700, 0.5, 1),
        (499, 0.0, 0),
        (1, 0.0, 0),
    ],
)
def test_below_the_goal_the_status_is_1_from_500_steps_on(
    steps, found, status, capsys, untrained, share
):
    measured = share(found)
    assert cli.main(["demo", "--steps", str(steps)]) == status
    assert [len(batch) for batch in measured] == [1000]
    out = capsys.readouterr().out
    assert f"fresh sequences: {found:.3f}" in out
    assert ("less than 0.99: something is wrong" in out) == (status == 1)


def test_500_steps_and_seed_0_are_the_defaults(capsys, untrained, share):
    share(1.0)
    cli.main(["demo"])
    (config,) = untrained
    assert (config.steps, config.seed) == (500, 0)
    assert "(seed 0, 500 steps" in capsys.readouterr().out


def test_the_test_sequences_are_not_those_of_the_training(untrained, share, capsys):
    measured = share(1.0)
    cli.main(["demo"])
    trained = SymbolTask("copy").batch(1000, torch.Generator().manual_seed(0))
    seen = set(map(tuple, trained.source.tolist()))
    fresh = set(map(tuple, measured[0].source.tolist()))
    assert len(fresh) > 990
    assert len(seen & fresh) < 5


def test_a_seed_decides_weights_and_data_and_leaves_the_world_alone():
    task = SymbolTask("copy", shortest=1, longest=3)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, history = recipes.train_toy(task, 3, steps=2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    same, again = recipes.train_toy(task, 3, steps=2)
    other, _ = recipes.train_toy(task, 4, steps=2)
    assert history == again
    for mine, yours in zip(one.parameters(), same.parameters(), strict=True):
        assert torch.equal(mine, yours)
    assert not torch.equal(one.source_embedding.weight, other.source_embedding.weight)


@pytest.mark.parametrize("steps", ["0", "-1", "1.5", "many", "", "²"])
def test_bad_steps_end_with_status_2_and_say_why(steps, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["demo", f"--steps={steps}"])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert "argument --steps" in error
    assert f"{steps!r} must be a whole number of at least 1" in error


@pytest.mark.parametrize(
    "arguments", [[], ["fly"], ["demo", "--seed", "x"], ["demo", "y"]]
)
def test_bad_commands_end_with_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    assert "usage: transformer" in capsys.readouterr().err


def test_help_names_the_command_and_its_options(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["demo", "--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "--steps" in out
    assert "--seed" in out
    assert "99%" in out


@pytest.mark.parametrize("status", [0, 1])
def test_demo_py_is_the_same_command(status, capsys, untrained, share, monkeypatch):
    share(1.0 - status)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--steps", "500"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "demo.py"), run_name="__main__")
    assert end.value.code == status
    assert "greedy exact match on 1000" in capsys.readouterr().out
