"""Results with their origin: what ran, on which code, where, when.

A result file is JSON: `provenance`, `settings`, `seeds`, `runs` (one
entry a seed) and `summary`. It holds no host names, no user names and
no absolute paths. A file with fewer runs than seeds is unfinished.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "book" / "results"
# A result depends on these; book/results/ itself changes as it is written.
CODE = ("src", "experiments", "benchmarks")


class DirtyTreeError(SystemExit):
    """The code that would run is not the code of the commit."""


def provenance(*, allow_dirty: bool = False, root: Path = ROOT) -> dict:
    """Where a result that starts now comes from.

    Raises:
        DirtyTreeError: files under `CODE` have uncommitted changes and
            `allow_dirty` is not set. If it is, they are listed.
    """
    changed = uncommitted(root)
    if changed and not allow_dirty:
        raise DirtyTreeError(
            f"uncommitted changes in {', '.join(changed)}: commit them, or"
            " pass --allow-dirty, which the result file will say"
        )
    return {
        "command": command(root),
        "commit": git("rev-parse", "HEAD", root=root).strip(),
        "clean": not changed,
        "uncommitted": changed,
        "src_sha256": source_hash(root),
        "transformer_sha256": source_hash(root, "src/transformer"),
        "date": now(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "machine": machine(),
    }


def command(root: Path = ROOT) -> str:
    """The command line, its script named as seen from the repository."""
    script = Path(sys.argv[0]).resolve()
    inside = script.is_relative_to(root)
    name = script.relative_to(root).as_posix() if inside else script.name
    return shlex.join(["python", name, *sys.argv[1:]])


def uncommitted(root: Path = ROOT) -> list[str]:
    """Files under `CODE` that differ from the commit, new ones too."""
    status = git(
        "status",
        "--porcelain",
        "--no-renames",
        "--untracked-files=all",
        "--",
        *CODE,
        root=root,
    )
    return sorted(line[3:].strip('"') for line in status.splitlines())


def git(*arguments: str, root: Path = ROOT) -> str:
    """What git prints."""
    done = subprocess.run(
        ["git", *arguments], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout


def source_hash(root: Path = ROOT, folder: str = "src") -> str:
    """SHA-256 over name and content of every file in the folder."""
    total = hashlib.sha256()
    for path in sorted((root / folder).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(root).as_posix()
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{name} {content}\n".encode())
    return total.hexdigest()


def machine() -> dict:
    """What the times depend on, and nothing that names the machine."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def cpu_model() -> str:
    """As the operating system calls it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_json(path: Path) -> dict:
    """What the file holds; nothing where there is none."""
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def write_json(path: Path, data: dict) -> None:
    """Write the whole file or leave the old one as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def run_seeds(
    path: Path,
    seeds: Iterable[int],
    run: Callable[[int], dict],
    *,
    settings: dict,
    summarise: Callable[[list[dict]], dict],
    say: Callable[[dict], str],
    extra: dict | None = None,
    allow_dirty: bool = False,
    root: Path = ROOT,
) -> dict:
    """Run each seed, and write the file after each.

    Args:
        path: the result file. Runs in it that have the same settings,
            src/transformer, versions and machine are kept; the others are
            dropped. What the book adds to the model changes no result.
        run: seed -> its measurements.
        settings: all that the runs have in common.
        summarise: the runs -> what is quoted from them.
        say: a run -> the line printed when it is done.
        extra: what else the file is to hold.

    Returns:
        What the file now holds. `runs` has exactly the seeds asked
        for, in their order.
    """
    origin = provenance(allow_dirty=allow_dirty, root=root)
    seeds = list(seeds)
    settings = json.loads(json.dumps(settings))  # as a file gives it back
    old = read_json(path)
    usable = old.get("settings") == settings and same_code(old, origin)
    kept = {run["seed"]: run for run in old.get("runs", []) if usable}
    result: dict = {}
    runs: list[dict] = []
    for seed in seeds:
        if seed in kept:
            print(f"seed {seed}: kept from {kept[seed]['date']}", flush=True)
            runs.append(kept[seed])
        else:
            done = {"seed": seed, **run(seed), "date": now()}
            done["commit"] = origin["commit"]
            print(say(done), flush=True)
            runs.append(done)
        waiting = [run for run in kept.values() if run not in runs]
        result = {
            "provenance": origin,
            "settings": settings,
            "seeds": seeds,
            "summary": summarise(runs),
            "runs": runs,
            **(extra or {}),
        }
        # A run that is stopped here must not lose what is still to come.
        write_json(path, {**result, "runs": runs + waiting})
    write_json(path, result)
    return result


def same_code(old: dict, origin: dict) -> bool:
    """Whether old measurements stand beside new ones."""
    facts = ("transformer_sha256", "versions", "machine")
    before = old.get("provenance", {})
    return all(before.get(fact) == origin[fact] for fact in facts)
