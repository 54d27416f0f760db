"""Kill a training run at random moments, resume it, compare the weights.

    python benchmarks/kill_and_resume.py [--times 20] [--seed 0]

writes book/results/kill_and_resume.json.
Each run is killed once with SIGKILL, at a moment between its start and the
time that the first, undisturbed run took, and then resumed. The final weights
must be those of the undisturbed run, bit for bit. So a kill can fall into
reading the data, fitting the vocabulary, a step, or the writing of a file.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))

from provenance import RESULTS, provenance, write_json

OPTIONS = """--config tiny --steps 40 --dropout 0.1 --batch-tokens 400
--accumulate 2 --longest 40 --vocab-size 120 --warmup 20 --device cpu
--report-every 5 --validate-every 20 --save-every 3 --save-minutes 0
--keep 2 --bleu-sentences 4""".split()


def write_pairs(path: Path, count: int = 400) -> Path:
    """Numbers and their digits in words, as a file of sentence pairs."""
    words = "null eins zwei drei vier fünf sechs sieben acht neun".split()
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            digits = [draw.randrange(10) for _ in range(draw.randint(1, 8))]
            source = " ".join(map(str, digits))
            file.write(f"{source}\t{' '.join(words[d] for d in digits)}\n")
    return path


def command(pairs: Path, out: Path) -> list[str]:
    """The run, started afresh or resumed."""
    start = [sys.executable, "-m", "transformer", "train"]
    files = ["--data", str(pairs), "--valid", str(pairs), "--out", str(out)]
    return [*start, *files, *OPTIONS, "--resume"]


def fingerprint(out: Path) -> str:
    """Of the final weights."""
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


def survive(folder: Path, times: int, seed: int) -> list[tuple[float, bool]]:
    """Kill `times` runs; the moment of each, and whether it came out equal.

    Raises:
        subprocess.CalledProcessError: a resumed run failed.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    quiet = dict(env=environment, capture_output=True, text=True)
    pairs = write_pairs(folder / "pairs.tsv")
    started = time.monotonic()
    subprocess.run(command(pairs, folder / "whole"), check=True, **quiet)
    duration = time.monotonic() - started
    expected = fingerprint(folder / "whole")
    draw, outcomes = random.Random(seed), []
    for number in range(times):
        out = folder / f"killed-{number}"
        moment = draw.uniform(0.0, duration)
        run = subprocess.Popen(
            command(pairs, out),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(moment)
        run.send_signal(signal.SIGKILL)
        run.wait()
        subprocess.run(command(pairs, out), check=True, **quiet)
        outcomes.append((moment / duration, fingerprint(out) == expected))
    return outcomes


def main() -> int:
    """Report each kill; fail if one changed the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    origin = provenance(allow_dirty=options.allow_dirty)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = survive(Path(folder), options.times, options.seed)
    for moment, equal in outcomes:
        print(f"killed at {moment:4.0%} of the run: {'equal' if equal else 'OTHER'}")
    right = sum(equal for _, equal in outcomes)
    result = {
        "provenance": origin,
        "settings": {"times": options.times, "options": " ".join(OPTIONS)},
        "seeds": [options.seed],
        "moments": [moment for moment, _ in outcomes],
        "equal": [equal for _, equal in outcomes],
    }
    write_json(RESULTS / "kill_and_resume.json", result)
    print(f"{right} of {len(outcomes)} ended with the very same weights")
    return 0 if right == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
