"""Result files say where they come from, and survive being stopped."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


provenance = load(ROOT / "experiments" / "provenance.py")


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A repository with one committed source file and one script."""
    for name in ("src/transformer/code.py", "experiments/script.py", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    script = tmp_path / "experiments" / "script.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--seeds", "2"])
    return tmp_path


def run(root, seeds, measure, **changes):
    arguments = dict(
        settings={"steps": 5, "betas": (0.9, 0.98)},
        summarise=lambda runs: {"best": max(r["match"] for r in runs)},
        say=lambda run: f"seed {run['seed']}",
        root=root,
    )
    path = root / "book" / "results" / "a.json"
    result = provenance.run_seeds(path, seeds, measure, **(arguments | changes))
    assert json.loads(path.read_text()) == result
    return result


def test_provenance_names_command_commit_code_versions_and_machine(root):
    origin = provenance.provenance(root=root)
    assert origin["command"] == "python experiments/script.py --seeds 2"
    assert len(origin["commit"]) == 40
    assert origin["clean"] and not origin["uncommitted"]
    assert len(origin["src_sha256"]) == 64
    assert set(origin["versions"]) == {"python", "torch"}
    assert set(origin["machine"]) == {"cpu", "cores", "threads", "system"}


def test_provenance_holds_no_paths(root):
    assert str(root) not in json.dumps(provenance.provenance(root=root))


@pytest.mark.parametrize(
    "name", ["src/transformer/code.py", "src/new.py", "experiments/n.py"]
)
def test_uncommitted_code_is_refused(root, name):
    (root / name).write_text("x = 2\n")
    with pytest.raises(provenance.DirtyTreeError, match=name):
        provenance.provenance(root=root)


def test_allow_dirty_is_recorded(root):
    (root / "src" / "transformer" / "code.py").write_text("x = 2\n")
    origin = provenance.provenance(allow_dirty=True, root=root)
    assert not origin["clean"] and origin["uncommitted"] == ["src/transformer/code.py"]


def test_changes_outside_the_code_do_not_matter(root):
    (root / "README.md").write_text("y\n")
    assert provenance.provenance(root=root)["clean"]


def test_source_hash_follows_content_and_name_and_skips_caches(root):
    before = provenance.source_hash(root)
    cache = root / "src" / "__pycache__"
    cache.mkdir()
    (cache / "code.pyc").write_bytes(b"1")
    assert provenance.source_hash(root) == before
    (root / "src" / "transformer" / "code.py").rename(
        root / "src" / "transformer" / "moved.py"
    )
    moved = provenance.source_hash(root)
    (root / "src" / "transformer" / "moved.py").write_text("x = 2\n")
    assert len({before, moved, provenance.source_hash(root)}) == 3


def test_a_stopped_run_goes_on_where_it_was(root):
    calls = []

    def measure(seed):
        calls.append(seed)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return {"match": seed / 10}

    with pytest.raises(KeyboardInterrupt):
        run(root, [1, 2, 3], measure)
    half = json.loads((root / "book" / "results" / "a.json").read_text())
    assert half["seeds"] == [1, 2, 3] and len(half["runs"]) == 1
    result = run(root, [1, 2, 3], measure)
    assert calls == [1, 2, 2, 3]
    assert [run["seed"] for run in result["runs"]] == [1, 2, 3]
    assert result["summary"] == {"best": 0.3}


def test_a_run_stopped_again_keeps_what_it_had_not_reached(root):
    run(root, [2, 3], lambda seed: {"match": seed})

    def stop(seed):
        if seed == 9:
            raise KeyboardInterrupt
        return {"match": seed}

    with pytest.raises(KeyboardInterrupt):
        run(root, [1, 9, 2, 3], stop)
    kept = json.loads((root / "book" / "results" / "a.json").read_text())
    assert sorted(run["seed"] for run in kept["runs"]) == [1, 2, 3]


@pytest.mark.parametrize("change", ["settings", "src"])
def test_runs_of_other_settings_or_code_are_dropped(root, change):
    run(root, [1], lambda seed: {"match": 0.1})
    settings = {"steps": 5, "betas": (0.9, 0.98)}
    if change == "settings":
        settings["steps"] = 6
    else:
        (root / "src" / "transformer" / "code.py").write_text("x = 2\n")
        git(root, "commit", "--quiet", "-am", "second")
    result = run(root, [1], lambda seed: {"match": 0.2}, settings=settings)
    assert result["summary"] == {"best": 0.2}


def test_runs_outlive_changes_outside_the_transformer(root):
    run(root, [1], lambda seed: {"match": 0.1})
    (root / "src" / "bookkit.py").write_text("x = 2\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "second")
    result = run(root, [1], lambda seed: {"match": 0.2})
    assert result["summary"] == {"best": 0.1}


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.json"
    provenance.write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        provenance.write_json(path, {"a": object()})
    assert provenance.read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]
