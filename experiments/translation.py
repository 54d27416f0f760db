"""How well the shipped model translates, and what the search adds.

    python experiments/translation.py [--run runs/help-en-de]

writes book/results/translation.json. On the test set: BLEU and chrF, greedy
and with a beam of 4, of the shipped weights and of the run's last checkpoint
alone; the translations themselves; and what comes out where each token is
given the reference up to there. On every second sentence of the validation
set: beam, alpha and the number of averaged checkpoints, one after another.
Nothing is chosen by the test set.

Stopped, it goes on where it was: what stands in the file stays if code and
weights are the same.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import sacrebleu
import torch
from provenance import (
    RESULTS,
    now,
    provenance,
    read_json,
    same_code,
    write_json,
)
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from translation_model import SHIPPED

from transformer import Transformer, pretrained
from transformer.checkpoints import average_files, checkpoints, load_weights
from transformer.data.batches import make_batch
from transformer.data.text import Pair, help_en_de
from transformer.data.tokenizer import BytePairEncoding
from transformer.decoding import evaluation_mode
from transformer.translation import bleu, chrf, search

BEAMS, ALPHAS, AVERAGED = (1, 2, 4, 8, 16), (0.0, 0.3, 1.0, 1.5), (1, 2, 5, 10, 20)
RESAMPLES = 1000
FIRST = "averaged, beam 4"  # what the others are compared with


@dataclass(frozen=True)
class Setting:
    """One translation of one set.

    Args:
        split: "test" or "valid".
        averaged: 0 for the shipped weights; otherwise so many of the
            run's last checkpoints, averaged; 1 is the last alone.
        beam, alpha: of the search.
    """

    split: str
    averaged: int
    beam: int
    alpha: float


def settings(kept: int) -> list[Setting]:
    """All that is measured, where so many checkpoints are there."""
    last = [1] if kept else []
    found = [Setting("test", n, beam, 0.6) for n in (0, *last) for beam in (1, 4)]
    # Without a choice there is nothing that alpha could do.
    found += [Setting("valid", 0, beam, 0.6) for beam in BEAMS]
    found += [Setting("valid", 0, beam, 0.0) for beam in BEAMS if beam > 1]
    found += [Setting("valid", 0, 4, alpha) for alpha in ALPHAS]
    found += [Setting("valid", n, 4, 0.6) for n in AVERAGED if n <= kept]
    return list(dict.fromkeys(found))


class Models:
    """The shipped model, and averages of a run's checkpoints."""

    def __init__(self, run: Path | None) -> None:
        self.tokenizer = BytePairEncoding.load(SHIPPED / "tokenizer.json")
        self.files = checkpoints(run / "checkpoints") if run else []
        self.made: dict[int, Transformer] = {}

    def get(self, averaged: int) -> Transformer:
        """The model of a setting."""
        if averaged not in self.made:
            self.made = {averaged: self.load(averaged)}  # one at a time
        return self.made[averaged]

    def load(self, averaged: int) -> Transformer:
        if not averaged:
            return pretrained.load()[0]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            average_files(self.files[-averaged:], path)
            return load_weights(path)


def measure(setting: Setting, models: Models, pairs: list[Pair]) -> dict:
    """Translate a set, and say how near it comes to its references."""
    started = time.process_time()
    found = search(
        models.get(setting.averaged),
        models.tokenizer,
        [source for source, _ in pairs],
        beam_size=setting.beam,
        alpha=setting.alpha,
    )
    seconds = time.process_time() - started
    best = [hypotheses[0] for hypotheses in found]
    said = [models.tokenizer.decode(hypothesis.ids) for hypothesis in best]
    references = [reference for _, reference in pairs]
    detail = sacrebleu.corpus_bleu(said, [references])
    return {
        **asdict(setting),
        "bleu": bleu(said, references).score,
        "chrf": chrf(said, references).score,
        "precisions": detail.precisions,
        "brevity_penalty": detail.bp,
        "length_ratio": detail.sys_len / detail.ref_len,
        "log_probability": statistics.mean(h.log_probability for h in best),
        "unfinished": sum(not h.finished for h in best),
        "cpu_seconds": round(seconds, 1),
        "said": said,
        "date": now(),
    }


@torch.no_grad()
def teacher_forced(models: Models, pairs: list[Pair]) -> list[str]:
    """The likeliest token at each place, after the reference up to there."""
    model, tokenizer = models.get(0), models.tokenizer
    said = []
    sides = [tokenizer.encode(list(side)) for side in zip(*pairs, strict=True)]
    with evaluation_mode(model):
        for source, target in zip(*sides, strict=True):
            batch = make_batch([source], [target])
            logits = model(batch.source, batch.target[:, :-1])
            # As many tokens as the reference has, EOS left out.
            said.append(tokenizer.decode(logits[0, :-1].argmax(-1).tolist()))
    return said


def compare(runs: dict[str, list[str]], references: list[str]) -> list[dict]:
    """Each against the first: sacrebleu's paired bootstrap."""
    metric = BLEU(references=[references])
    # The signature and the scores; the first system is the baseline.
    _, scores = PairedTest(
        [*runs.items()],
        {"BLEU": metric},
        references=None,
        test_type="bs",
        n_samples=RESAMPLES,
    )()
    return [
        {
            "name": name,
            "bleu": found.score,
            "mean": found.mean,
            "half_interval": found.ci,
            "p": found.p_value,
        }
        for name, found in zip(scores["System"], scores["BLEU"], strict=True)
    ]


def about_weights(run: Path | None, models: Models) -> dict:
    """What was measured: the shipped file, and the run's checkpoints."""
    path = SHIPPED / "model.safetensors"
    model = models.get(0)
    return {
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bytes": path.stat().st_size,
        "parameters": sum(p.numel() for p in model.parameters()),
        "config": model.config.to_dict(),
        "checkpoints": [file.name for file in models.files],
        "newest_checkpoint_sha256": hashlib.sha256(
            models.files[-1].read_bytes()
        ).hexdigest()
        if models.files
        else None,
    }


def kept_runs(old: dict, origin: dict, weights: dict) -> Iterator[dict]:
    """What an earlier, stopped call has measured on the same."""
    if same_code(old, origin) and old.get("weights") == weights:
        yield from old.get("runs", [])


def main() -> None:
    """Measure each setting; write the file after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="folder with checkpoints/")
    parser.add_argument("--sentences", type=int, help="of each set, to try it out")
    parser.add_argument("--out", type=Path, default=RESULTS / "translation.json")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    origin = provenance(allow_dirty=options.allow_dirty)
    models = Models(options.run)
    pairs = {"test": help_en_de("test"), "valid": help_en_de("valid")[::2]}
    pairs = {name: some[: options.sentences] for name, some in pairs.items()}
    weights = about_weights(options.run, models)
    done = {
        Setting(**{name: run[name] for name in Setting.__dataclass_fields__}): run
        for run in kept_runs(read_json(options.out), origin, weights)
    }
    result = {
        "provenance": origin,
        "settings": {
            "sentences": {name: len(some) for name, some in pairs.items()},
            "signatures": {
                score.name: score.signature
                for score in (bleu("a", "a"), chrf("a", "a"))
            },
            "resamples": RESAMPLES,
        },
        "weights": weights,
        "runs": [],
    }
    for setting in settings(len(models.files)):
        run = done.get(setting) or measure(setting, models, pairs[setting.split])
        if setting.split == "valid":
            run.pop("said", None)
        print(
            f"{setting}: BLEU {run['bleu']:.2f}, chrF {run['chrf']:.2f},"
            f" length {run['length_ratio']:.3f}, {run['cpu_seconds']} s",
            flush=True,
        )
        result["runs"].append(run)
        write_json(options.out, result)
    finish(result, models, pairs["test"])
    write_json(options.out, result)


def finish(result: dict, models: Models, pairs: list[Pair]) -> None:
    """Add what is computed from the translations of the test set."""
    references = [reference for _, reference in pairs]
    weights = {0: "averaged", 1: "last checkpoint"}
    search = {1: "greedy", 4: "beam 4"}
    said = {
        f"{weights[run['averaged']]}, {search[run['beam']]}": run["said"]
        for run in result["runs"]
        if run["split"] == "test"
    }
    best_first = dict(sorted(said.items(), key=lambda entry: entry[0] != FIRST))
    result["comparisons"] = compare(best_first, references)
    result["teacher_forced"] = teacher_forced(models, pairs)


if __name__ == "__main__":
    main()
