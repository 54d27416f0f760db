"""Every known mistake, trained: book/results/bug_gallery.json.

    python experiments/bug_gallery.py [--seeds 2] [--sort-seeds 2]
                                      [--around-seeds 2]

Each mistake of the model and of its training that `bookkit.mutations` has
learns to copy short sequences, and learns to sort them if its first seed
copies at least 0.97 of them; mistakes of decoding are planted after training.
Beside them stands the right code. Set before the run, on seeds that no recipe
was tuned on and with recipes under which the right code, from each of the seeds
9901 to 9905, wrote at least 0.998 of 1,000 fresh sequences when copying and
0.995 when sorting:

- a mistake passes a task if the median over its seeds of greedy exact match on
  1,000 fresh sequences is at least 0.99;
- the loss of the last 20 steps, or the teacher-forced accuracy, shows a
  mistake if its median lies outside the range of the right code's five seeds,
  and by more than 0.02 or 0.005;
- it is better than the right code where it is outside on the better side.

The file is written after each run. Seeds come one after another over all
mistakes, so that a run that is cut short leaves fewer seeds for all alike.
It also keeps, for each mistake, which checks of `bookkit.check` fail and the
CPU seconds that its own check takes. One thread, about a quarter of an hour a
seed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict

import torch
from provenance import (
    RESULTS,
    now,
    provenance,
    read_json,
    same_code,
    write_json,
)

from bookkit import CheckFailed, check, mutations
from bookkit.checks import every_check
from transformer import TrainingConfig, Transformer
from transformer.data.batches import Batch
from transformer.data.toy import SymbolTask
from transformer.evaluation import greedy_exact_match, teacher_forced_accuracy
from transformer.recipes import toy_model, train_toy

RIGHT = "as_printed"
MODEL = (
    "attention heads masks feed_forward embedding positions connection layers"
    " stack model"
).split()
TRAINING = "loss schedule optimizer Adam shift".split()
DECODING = "greedy_decode"
SEEDS = range(2200, 2205)  # none that a recipe was tuned on; the right code
TASKS = ("copy", "sort")
SIZE = dict(symbols=8, shortest=3, longest=6)
RECIPES = {  # shorter than the book's, on shorter sequences
    "copy": dict(steps=220, warmup_steps=60, factor=0.24, snapshot_every=15),
    "sort": dict(steps=260, warmup_steps=70, factor=0.24, snapshot_every=10),
}
FRESH = 1000
RULE = dict(
    passes=0.99, sorts_from=0.97, loss_margin=0.02, accuracy_margin=0.005, last_steps=20
)
GROUP = 20  # steps whose mean loss is kept, of the first seed
REPEATS = 3  # of a check, for its time
PATH = RESULTS / "bug_gallery.json"


def of(*parts: str) -> list[str]:
    """Names of the mistakes of these parts."""
    return [m.name for part in parts for m in mutations.of(part)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2, help="of each mistake")
    parser.add_argument("--sort-seeds", type=int, default=2, help="of sorting")
    parser.add_argument("--around-seeds", type=int, default=2, help="of training's")
    parser.add_argument("--trial", type=int, help="so many steps, to try it out")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    short = dict(steps=options.trial) if options.trial else {}
    recipes = {task: recipe | short for task, recipe in RECIPES.items()}
    origin = provenance(allow_dirty=options.allow_dirty)
    settings = {
        "tasks": list(TASKS),
        "data": asdict(SymbolTask(**SIZE)),
        "model": toy_model(SymbolTask(**SIZE), seed=0).config.to_dict(),
        "training": {task: settings_of(recipe) for task, recipe in recipes.items()},
        "batch": SymbolTask.batch_size,
        "test_size": FRESH,
        "rule": RULE,
        "mistakes": {part: of(part) for part in (*MODEL, *TRAINING, DECODING)},
        "loss_every": GROUP,
        "check_repeats": REPEATS,
    }
    settings = json.loads(json.dumps(settings))  # as a file gives it back
    old = read_json(PATH)
    usable = old.get("settings") == settings and same_code(old, origin)
    kept = old.get("runs", []) if usable else []
    done = {(run["task"], run["seed"], run["kind"]): run for run in kept}
    checks = old.get("checks") if usable else None
    result = {
        "provenance": origin,
        "settings": settings,
        "seeds": {
            "copy": list(SEEDS)[: options.seeds],
            "sort": list(SEEDS)[: options.sort_seeds],
            "around": list(SEEDS)[: options.around_seeds],
            RIGHT: list(SEEDS),
        },
        "checks": checks or examine_all(settings["mistakes"]),
    }
    runs: list[dict] = []
    for task, seed, kinds in plan(result["seeds"], runs):
        if not all((task, seed, kind) in done for kind in kinds):
            for run in measure(task, seed, kinds, recipes[task]):
                run |= {"date": now(), "commit": origin["commit"]}
                done[run["task"], run["seed"], run["kind"]] = run
                print(say(run), flush=True)
        runs += [done[task, seed, kind] for kind in kinds]
        waiting = [run for run in done.values() if run not in runs]
        # A run that is stopped here must not lose what is still to come.
        write_json(PATH, {**result, "runs": runs + waiting})
    write_json(PATH, {**result, "runs": runs})


def settings_of(recipe: dict) -> dict:
    """All of a run but its seed."""
    training = asdict(TrainingConfig.copy_task(**recipe))
    return {key: training[key] for key in training if key != "seed"}


def plan(seeds: dict, runs: list[dict]) -> Iterator[tuple[str, int, list[str]]]:
    """Task, seed and the kinds that one training gives.

    Args:
        seeds: of each mistake on copying and on sorting, and of those
            around the model, which only copy.
        runs: what is done so far; it grows while this goes on.
    """
    for seed in SEEDS:
        yield "copy", seed, [RIGHT, *of(DECODING)]
        yield "sort", seed, [RIGHT]
    for seed in seeds["copy"]:
        for name in of(*MODEL):
            yield "copy", seed, [name]
        first = {
            run["kind"]: run["greedy_exact_match"] or 0.0
            for run in runs
            if (run["task"], run["seed"]) == ("copy", SEEDS[0])
        }
        for name in of(*MODEL) if seed in seeds["sort"] else ():
            if first[name] >= RULE["sorts_from"]:
                yield "sort", seed, [name]
        for name in of(*TRAINING) if seed in seeds["around"] else ():
            yield "copy", seed, [name]


def measure(task: str, seed: int, kinds: list[str], recipe: dict) -> Iterator[dict]:
    """Train with the first kind planted; decode with each of them."""
    first, *others = kinds
    rule = SymbolTask(task, **SIZE)
    fresh = rule.batch(FRESH, torch.Generator().manual_seed(2**31 + seed))
    start = time.process_time()
    with planted(first):
        model, history = train_toy(rule, seed, progress=False, **recipe)
        seconds = time.process_time() - start
        found = decode(model, fresh)
    last = history.loss[-RULE["last_steps"] :]
    groups = zip(*[iter(history.loss)] * GROUP, strict=False)
    curve = [number(statistics.fmean(group)) for group in groups]
    same = {"first_loss": number(history.loss[0]), "last_loss": number(average(last))}
    yield {
        **dict(task=task, seed=seed, kind=first),
        **same,
        **found,
        **({"loss": curve} if seed == SEEDS[0] else {}),
        "cpu_seconds": round(seconds, 1),
    }
    for kind in others:
        with planted(kind):
            yield dict(task=task, seed=seed, kind=kind) | same | decode(model, fresh)


def planted(kind: str):
    """The mistake in place, or nothing for the right code."""
    return nullcontext() if kind == RIGHT else mutations.applied(kind)


def decode(model: Transformer, fresh: Batch) -> dict:
    """What the model can do; an error where it cannot be run."""
    found: dict = {}
    asked: dict[str, Callable[[], float]] = {
        "teacher_forced": lambda: teacher_forced_accuracy(model, fresh),
        "greedy_exact_match": lambda: greedy_exact_match(model, fresh),
    }
    for name, ask in asked.items():
        try:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                found[name] = ask()
        except (ValueError, RuntimeError) as error:
            found[name] = None
            found["error"] = f"{type(error).__name__}: {error}"
    return found


def average(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def number(value: float) -> float | None:
    """To four places; None for what JSON has no word for."""
    return round(value, 4) if math.isfinite(value) else None


def examine_all(mistakes: dict[str, list[str]]) -> dict:
    """Of each mistake: which checks fail, and what its own check takes."""
    every = every_check({})
    check.in_use()  # nothing is planted, and all is warm
    return {
        name: examine(part.lower(), name, every)
        for part, names in mistakes.items()
        for name in names
    }


def examine(own: str, name: str, every: dict[str, Callable]) -> dict:
    """One mistake."""
    failed: dict[str, list[str]] = {}
    named: list[str] = []
    seconds = []
    with mutations.applied(name):
        for part, run in every.items():
            try:
                run()
            except CheckFailed as caught:
                failed[part] = caught.failed
                named += caught.mistakes
            except Exception as error:
                failed[part] = [f"{type(error).__name__}: {error}"]
        for _ in range(REPEATS):
            start = time.process_time()
            with suppress(CheckFailed):
                every[own]()
            seconds.append(time.process_time() - start)
    return {
        "own": own,
        "failed": failed,
        "named": named,
        "cpu_seconds": round(statistics.median(seconds), 3),
    }


def say(run: dict) -> str:
    """One line a run."""
    whole, loss = run["greedy_exact_match"], run["last_loss"]
    return (
        f"{run['date'][11:19]} {run['seed']} {run['task']} {run['kind']}:"
        f" loss {loss}, greedy exact match {whole} {run.get('error', '')}"
    )


if __name__ == "__main__":
    main()
