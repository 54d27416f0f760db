"""Chapter 19: what each head of the shipped model looks at, over training.

    python experiments/heads_over_time.py RUN

RUN is the folder in which the shipped model was trained, with its
checkpoints kept (see its model card). Writes
book/results/heads_over_time.json: an entry for each of about eight
steps, from the untrained model (0) to the last checkpoint; "seed" is
the step. Each holds scores of every head on 100 sentences for choosing
("valid") and 100 others ("test"), and the weights of two sentences, in
thousandths to base 32. The last also holds the perplexity on the test
sentences with each head removed in turn. Two minutes on one core; a
run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from provenance import RESULTS, run_seeds

from bookkit import example, heads
from bookkit.explorers import two_digits
from transformer import Transformer, TransformerConfig
from transformer.checkpoints import checkpoints, load_checkpoint, read_model
from transformer.data.batches import make_batch
from transformer.data.text import help_en_de
from transformer.data.tokenizer import BytePairEncoding
from transformer.evaluation import teacher_forced

STEPS = (250, 500, 1000, 2000, 3000, 4000, 6000, 8000, 16_000)
SENTENCES = 100
LONGEST = 60  # tokens on either side
Pairs = list[tuple[list[int], list[int]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--sentences", type=int, default=SENTENCES)
    parser.add_argument("--not-yet-last", action="store_true", help="it still trains")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    files = {
        int(path.stem.removeprefix("step-")): path
        for path in checkpoints(options.run / "checkpoints")
    }
    last = max(files)
    steps = [0, *(step for step in STEPS if step in files and step < last)]
    if not options.not_yet_last:
        steps.append(last)
    tokenizer = BytePairEncoding.load(options.run / "tokenizer.json")
    config = load_checkpoint(files[last])["config"]
    seed = config["training.seed"]
    shown = shown_pairs(tokenizer)

    def measure(step: int) -> dict:
        if step:
            model = read_model(files[step]).float()
        else:
            model = heads.untrained(TransformerConfig(**config["model"]), seed)
        found = {
            split: scores(model, tokenizer, pairs(split, tokenizer, options.sentences))
            for split in ("valid", "test")
        }
        found["maps"] = [kept(weights) for weights in heads.maps(model, shown)]
        if step == last:
            test = pairs("test", tokenizer, options.sentences)
            found["perplexity"], found["perplexity_without"] = removals(model, test)
        return found

    run_seeds(
        RESULTS / "heads_over_time.json",
        steps,
        measure,
        settings={
            "model": config["model"],
            "sentences": options.sentences,
            "longest": LONGEST,
            "shown": [
                [heads.pieces(tokenizer, side) for side in pair] for pair in shown
            ],
        },
        summarise=lambda runs: {"steps": [run["seed"] for run in runs]},
        say=lambda run: f"step {run['seed']}: copied {run['test']['copied']}",
        allow_dirty=options.allow_dirty,
    )


def pairs(split: str, tokenizer: BytePairEncoding, most: int) -> Pairs:
    """The first pairs of a split that are not too long, shortest first."""
    source, target = zip(*help_en_de(split), strict=True)
    encoded = zip(tokenizer.encode(source), tokenizer.encode(target), strict=True)
    fit = [pair for pair in encoded if max(map(len, pair)) <= LONGEST][:most]
    return sorted(fit, key=lambda pair: sum(map(len, pair)))


def shown_pairs(tokenizer: BytePairEncoding) -> Pairs:
    """The book's pair, and the shortest of the test set that has all of it.

    10 to 14 tokens on either side, a comma inside the source, and a
    name or figure that stands once on either side.
    """
    own = (" ".join(example.SOURCE[:3]), " ".join(example.TARGET_IN[1:]))
    ours = tuple(ids for (ids,) in (tokenizer.encode([text]) for text in own))
    for source, target in pairs("test", tokenizer, 10_000):
        words = [heads.pieces(tokenizer, side)[:-1] for side in (source, target)]
        fits = all(10 <= len(side) <= 14 for side in words)
        if fits and "," in words[0] and heads.copied(*words).any():
            return [ours, (source, target)]
    raise LookupError("no test sentence fits")


def scores(model: Transformer, tokenizer: BytePairEncoding, given: Pairs) -> dict:
    """A number for each head, (layer, head), by what is looked for."""
    found: dict[str, list] = {}
    read, written = [], []
    kept = {"encoder": [], "decoder": []}
    for (source, target), weights in zip(given, heads.maps(model, given), strict=True):
        read.append(heads.pieces(tokenizer, source))
        written.append(heads.pieces(tokenizer, target))
        for kind, table in weights.items():
            many = found.setdefault(f"{kind}, entropy", [])
            many.append(heads.entropy(table))
            if kind in kept:
                kept[kind].append(table)
        wanted = heads.copied(read[-1], written[-1])
        found.setdefault("copied", []).append(heads.hits(weights["cross"], wanted))
    means = {name: torch.cat(many, -1).mean(-1) for name, many in found.items()}
    fed = [["<s>", *tokens[:-1]] for tokens in written]
    for kind, sentences in (("encoder", read), ("decoder", fed)):
        for place, mean in heads.place_scores(kept[kind], sentences).items():
            if not mean.isnan().any():  # the decoder is fed no end mark
                means[f"{kind}, {place}"] = mean
    means["clause_ratio"] = heads.clause_ratio(kept["encoder"], read)
    return {name: rounded(mean) for name, mean in means.items()}


def rounded(scores: torch.Tensor) -> list[list[float]]:
    return [[round(value, 4) for value in row] for row in scores.tolist()]


def kept(weights: heads.Maps) -> dict[str, str]:
    """Thousandths, two digits to base 32 each."""
    return {
        kind: two_digits((table * 1000).round().int().numpy())
        for kind, table in weights.items()
    }


def removals(model: Transformer, given: Pairs) -> tuple[float, dict]:
    """Perplexity as it is, and with each head removed in turn."""
    batches = [
        make_batch(*zip(*given[start : start + 32], strict=True))
        for start in range(0, len(given), 32)
    ]
    without = {
        kind: [
            [
                without_head(model, kind, (layer, head), batches)
                for head in range(model.config.heads)
            ]
            for layer in range(model.config.layers)
        ]
        for kind in ("encoder", "decoder", "cross")
    }
    return round(teacher_forced(model, batches)[0], 4), without


def without_head(model: Transformer, kind: str, head: heads.Head, batches) -> float:
    with heads.removed(model, kind, head):
        return round(teacher_forced(model, batches)[0], 4)


if __name__ == "__main__":
    main()
