"""Section 6.3 on gold trees: sentences of CRAFT of at most 10 words.

    git clone https://github.com/UCDenver-ccp/CRAFT
    python experiments/parsing.py CRAFT [--gum FILE]

CRAFT has 97 biomedical articles with gold trees (annotations CC BY 3.0; we
used commit 2abe82b). In the order of their names, every 20th article from
number 8 on is for dev and every 20th from number 14 on for test: 27,842
trees, 1,470 and 1,518. Instead, the folder may hold train.ptb.xz, dev.ptb.xz
and test.ptb.xz, one tree a line. FILE holds trees of GUM, another domain,
whose parses are not gold. Nothing of any of them is written.

Writes book/results/parsing.json. Training states go to runs/parsing/, from
which a run that was stopped goes on. Schedule and width are those of the toy
tasks, dropout is base's, --steps is what the time allowed. Two settings were
tried before and given up, by dev: sentences of at most 20 words with width 128
after 500 steps, and of at most 15 words, with dropout of 0.2 in attention too,
after 1,250. Neither had begun to look at the words.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from provenance import RESULTS, ROOT, run_seeds

from transformer import TrainingConfig, Transformer, TransformerConfig
from transformer.checkpoints import (
    average,
    checkpoints,
    load_checkpoint,
    save_checkpoint,
)
from transformer.data.streams import EncodedPairs, Ragged, TokenBatches
from transformer.data.trees import (
    ParserVocabulary,
    Tree,
    cleaned,
    linearised,
    read_trees,
    restored,
    words,
)
from transformer.decoding import beam_search, greedy_decode
from transformer.evaluation import (
    bracket_errors,
    bracket_scores,
    brackets,
    branching,
    usual_labels,
)
from transformer.processes import joined
from transformer.trainer import Trainer

SEED = 1800
SIZES = {"train": 27842, "dev": 1470, "test": 1518}
LONGEST = 10  # words of a sentence
LONGER = 20  # parsed too, though none so long was trained on
LEAST = 3  # times that a word of the vocabulary is seen in training
BUDGET = 1024  # tokens of a batch and side, padding counted
SHAPE = dict(layers=4, d_model=64, d_ff=256, heads=4, max_length=512)
DROPOUT = dict(dropout=0.1, attention_dropout=0.0)
RUN = dict(warmup_steps=100, factor=0.24, label_smoothing=0.1)
STEPS = 10_000
EVERY = 250  # steps between two points of the learning curve
WATCHED = 200  # dev sentences of a point
SEARCHED = 50  # test sentences that are parsed with a beam too: it is slow
AVERAGED = 5  # snapshots, the last ones
APART = 50  # steps between them
BEAM = dict(beam_size=21, alpha=0.3, max_extra=300)
BINS = ((1, 4), (5, 6), (7, 8), (9, 10), (11, 15), (16, 20))

Parser = Callable[[Sequence[Tree]], list[tuple[Tree, bool]]]


def main() -> None:
    """Train, and measure once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gum", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run_seeds(
        RESULTS / "parsing.json",
        [SEED],
        lambda seed: one(seed, options.folder, options.gum, options.steps),
        settings={
            "corpus": {
                "name": "CRAFT",
                "source": "https://github.com/UCDenver-ccp/CRAFT",
                "commit": "2abe82b",
                "licence": "CC BY 3.0",
                "trees": "gold",
                "split": "by article: every 20th to dev, every 20th to test",
                "trees_of": SIZES,
            },
            "longest": LONGEST,
            "least": LEAST,
            "budget": BUDGET,
            "shape": SHAPE | DROPOUT,
            "training": RUN,
            "steps": options.steps,
            "averaged": [AVERAGED, APART],
            "beam": BEAM,
            "precision": "float32",
        },
        summarise=summarise,
        say=lambda run: f"seed {run['seed']}: F1 {run['test']['greedy']['f1']:.3f}",
        allow_dirty=options.allow_dirty,
    )


# --- data ------------------------------------------------------------------


def load(path: Path) -> list[Tree]:
    """Trees as they are learned: no traces, no function tags."""
    return [tree for raw in read_trees(path) if (tree := cleaned(raw))]


def corpus(folder: Path) -> dict[str, list[Tree]]:
    """Trees for train, dev and test."""
    articles = sorted((folder / "structural-annotation/treebank/penn").glob("*.tree"))
    if not articles:
        return {name: load(folder / f"{name}.ptb.xz") for name in SIZES}
    parts = {name: [] for name in SIZES}
    for place, article in enumerate(articles):
        name = {7: "dev", 13: "test"}.get(place % 20, "train")
        parts[name] += load(article)
    sizes = {name: len(trees) for name, trees in parts.items()}
    if sizes != SIZES:
        print(f"{sizes}: this is another split than ours, {SIZES}", flush=True)
    return parts


def between(trees: Iterable[Tree], low: int, high: int) -> list[Tree]:
    """Those with so many words."""
    return [tree for tree in trees if low <= len(words(tree)) <= high]


def encoded(vocabulary: ParserVocabulary, trees: Sequence[Tree]) -> EncodedPairs:
    """Sentences and linearised trees as ids."""
    return EncodedPairs(
        Ragged.of(vocabulary.source(words(tree)) for tree in trees),
        Ragged.of(map(vocabulary.target, trees)),
    )


# --- training --------------------------------------------------------------


def new_model(vocabulary: ParserVocabulary, seed: int) -> Transformer:
    """Untied: words and brackets have nothing in common."""
    torch.manual_seed(seed)
    return Transformer(
        TransformerConfig(
            vocab_size=len(vocabulary.words),
            target_vocab_size=len(vocabulary.tokens),
            tied=False,
            **SHAPE,
            **DROPOUT,
        )
    )


def trained(
    vocabulary: ParserVocabulary,
    train: Sequence[Tree],
    watched: Sequence[Tree],
    steps: int,
    seed: int,
    work: Path,
) -> tuple[Transformer, list[dict]]:
    """A model after so many steps, and its learning curve.

    Goes on from the newest state in `work`, if there is one. The model is
    the average of the last snapshots.
    """
    model = new_model(vocabulary, seed)
    settings = {**SHAPE, **DROPOUT, **RUN, "seed": seed, "budget": BUDGET}
    with joined("cpu") as alone:
        trainer = Trainer(
            model,
            TokenBatches(encoded(vocabulary, train), BUDGET, seed),
            TrainingConfig(**RUN, seed=seed),
            alone,
            precision="float32",
        )
        snapshots: list[dict] = []
        curve: list[dict] = []
        spent = 0.0
        if old := checkpoints(work):
            state = load_checkpoint(old[-1], settings)
            trainer.load(state)
            snapshots, curve = state["snapshots"], state["curve"]
            spent = state["spent"]
        start = time.process_time() - spent
        loss = tokens = 0.0
        while trainer.done < steps:
            step = trainer.step()
            loss, tokens = loss + step.loss.item(), tokens + step.tokens
            if trainer.done % APART == 0 or trainer.done == steps:
                copy = {k: v.clone() for k, v in model.state_dict().items()}
                snapshots = [*snapshots, copy][-AVERAGED:]
            if trainer.done % EVERY and trainer.done < steps:
                continue
            spent = time.process_time() - start
            found = scored(watched, greedy(model, vocabulary)(watched))
            start = time.process_time() - spent  # measuring is not training
            point = {
                "step": trainer.done,
                "training_cpu_seconds": spent,
                "loss": loss / tokens,
                "dev_f1": found["f1"],
                "dev_malformed": found["malformed"],
            }
            print(point, flush=True)
            curve.append(point)
            loss = tokens = 0.0
            more = {"snapshots": snapshots, "curve": curve, "spent": spent}
            save_checkpoint(work, trainer.state() | more, settings, keep=2)
        model.load_state_dict(average(snapshots))
    return model.eval(), curve


# --- parsing ---------------------------------------------------------------


def batches(trees: Sequence[Tree], size: int) -> list[list[int]]:
    """Places of the trees, those of similar length together."""
    order = sorted(range(len(trees)), key=lambda i: len(words(trees[i])))
    return [order[i : i + size] for i in range(0, len(order), size)]


def greedy(model: Transformer, vocabulary: ParserVocabulary) -> Parser:
    """Parse with the likeliest token at each step.

    An output has 5 tokens a word at most; no gold tree has more.
    """

    def decode(source: torch.Tensor) -> list[list[int]]:
        most = 5 * source.size(1)
        return greedy_decode(model, source, max_length=most).tolist()

    return partial(parsed, vocabulary, decode, 64)


def beam(model: Transformer, vocabulary: ParserVocabulary) -> Parser:
    """Parse with the paper's beam."""

    def decode(source: torch.Tensor) -> list[list[int]]:
        return [best[0].ids for best in beam_search(model, source, **BEAM)]

    return partial(parsed, vocabulary, decode, 16)


def parsed(
    vocabulary: ParserVocabulary,
    decode: Callable[[torch.Tensor], list[list[int]]],
    size: int,
    trees: Sequence[Tree],
) -> list[tuple[Tree, bool]]:
    """A tree over each sentence, and whether nothing was mended.

    Of the trees given, a parser sees the words; the tags are put back under
    them afterwards and score nothing.
    """
    found: dict[int, tuple[Tree, bool]] = {}
    for places in batches(trees, size):
        some = [trees[i] for i in places]
        source = vocabulary.sentences(map(words, some))
        for i, tree, ids in zip(places, some, decode(source), strict=True):
            found[i] = restored(vocabulary.said(ids), list(tree.leaves()))
    return [found[i] for i in range(len(trees))]


# --- measuring -------------------------------------------------------------


def scored(gold: Sequence[Tree], found: Sequence[tuple[Tree, bool]]) -> dict:
    """Brackets, whole trees, and outputs that had to be mended."""
    trees = [tree for tree, _ in found]
    score = bracket_scores(trees, gold)
    bare = bracket_scores(trees, gold, labelled=False)
    return {
        "sentences": len(gold),
        "precision": score.precision,
        "recall": score.recall,
        "f1": score.f1,
        "unlabelled_f1": bare.f1,
        "exact": score.exact / score.trees,
        "malformed": sum(not sound for _, sound in found) / len(found),
        "brackets": {"right": score.right, "found": score.found, "gold": score.gold},
    }


def by_length(gold: Sequence[Tree], found: Sequence[tuple[Tree, bool]]) -> list:
    """The scores of short and long sentences."""
    rows = []
    for low, high in BINS:
        places = [i for i, t in enumerate(gold) if low <= len(words(t)) <= high]
        if places:
            some = scored([gold[i] for i in places], [found[i] for i in places])
            rows.append({"words": [low, high], **some})
    return rows


def by_label(
    gold: Sequence[Tree], found: Sequence[tuple[Tree, bool]], most: int = 8
) -> list:
    """The scores of the labels that are most frequent in the gold trees."""
    right: Counter[str] = Counter()
    ours: Counter[str] = Counter()
    theirs: Counter[str] = Counter()
    for other, (tree, _) in zip(gold, found, strict=True):
        one, two = brackets(tree), brackets(other)
        for counter, some in ((right, one & two), (ours, one), (theirs, two)):
            for (label, *_), times in some.items():
                counter[label] += times
    return [
        {
            "label": label,
            "gold": theirs[label],
            "f1": 2 * right[label] / (ours[label] + theirs[label]),
        }
        for label, _ in theirs.most_common(most)
    ]


def interval(
    gold: Sequence[Tree], found: Sequence[tuple[Tree, bool]], draws: int = 2000
) -> list[float]:
    """95% of F1 where the sentences are drawn again, with replacement."""
    each = [bracket_scores([f], [g]) for (f, _), g in zip(found, gold, strict=True)]
    sums = [(s.right, s.found + s.gold) for s in each]
    draw = random.Random(0)
    f1 = []
    for _ in range(draws):
        some = draw.choices(sums, k=len(sums))
        f1.append(2 * sum(r for r, _ in some) / sum(b for _, b in some))
    cuts = statistics.quantiles(f1, n=40)
    return [cuts[0], cuts[-1]]


def lengths(trees: Sequence[Tree]) -> dict:
    """How much longer a linearised tree is than its sentence."""
    ratios = [len(linearised(tree)) / len(words(tree)) for tree in trees]
    cuts = statistics.quantiles(ratios, n=20)
    return {
        "sentences": len(ratios),
        "median": statistics.median(ratios),
        "low": cuts[0],
        "high": cuts[-1],
        "longest_output": max(len(linearised(tree)) for tree in trees),
    }


def one(seed: int, folder: Path, gum: Path | None, steps: int) -> dict:
    """Train, parse, score."""
    parts = corpus(folder)
    everything = parts["test"]
    train, dev, test = (between(trees, 1, LONGEST) for trees in parts.values())
    vocabulary = ParserVocabulary.fit(train, LEAST)
    watched = random.Random(0).sample(dev, min(WATCHED, len(dev)))
    start = time.process_time()
    model, curve = trained(
        vocabulary, train, watched, steps, seed, ROOT / "runs" / "parsing"
    )
    parse, search = greedy(model, vocabulary), beam(model, vocabulary)
    top, inner = usual_labels(train)
    wide = between(everything, 1, LONGER)
    all_found = parse(wide)
    plain = [
        one_found
        for tree, one_found in zip(wide, all_found, strict=True)
        if len(words(tree)) <= LONGEST
    ]
    few = random.Random(1).sample(range(len(test)), min(SEARCHED, len(test)))
    some = [test[i] for i in few]
    right, left = (
        [(branching(tree, top, inner, right=side), True) for tree in test]
        for side in (True, False)
    )
    seen = {tuple(words(tree)) for tree in train}
    new = [i for i, tree in enumerate(test) if tuple(words(tree)) not in seen]
    flat = [(branching(tree, top, inner), True) for tree in wide]
    known = set(vocabulary.words)
    unknown = [word not in known for tree in test for word in words(tree)]
    found = {
        "data": {
            "train_sentences": len(train),
            "train_target_tokens": sum(len(linearised(tree)) for tree in train),
            "dev_sentences": len(dev),
            "source_vocabulary": len(vocabulary.words),
            "target_vocabulary": len(vocabulary.tokens),
            "test_words_unknown": sum(unknown) / len(unknown),
        },
        "parameters": sum(p.numel() for p in model.parameters()),
        "curve": curve,
        "test": {
            "greedy": scored(test, plain) | {"interval": interval(test, plain)},
            "searched": {
                "greedy": scored(some, [plain[i] for i in few]),
                "beam": scored(some, search(some)),
            },
            "by_length": by_length(wide, all_found),
            "by_label": by_label(test, plain),
            "errors": asdict(bracket_errors([tree for tree, _ in plain], test)),
            "never_in_training": scored(
                [test[i] for i in new], [plain[i] for i in new]
            ),
        },
        "baselines": {
            "labels": [top, inner],
            "right": scored(test, right) | {"by_length": by_length(wide, flat)},
            "left": scored(test, left),
        },
        "lengths": lengths(everything),
    }
    if gum:
        other = between(load(gum), 1, LONGEST)
        here = [(branching(tree, top, inner), True) for tree in other]
        found["gum"] = {
            "model": scored(other, parse(other)),
            "right": scored(other, here),
        }
    found["cpu_seconds_now"] = time.process_time() - start
    return found


def summarise(runs: list[dict]) -> dict:
    """What is quoted."""
    run = runs[0]
    return {
        "f1": run["test"]["greedy"]["f1"],
        "right_branching_f1": run["baselines"]["right"]["f1"],
        "malformed": run["test"]["greedy"]["malformed"],
    }


if __name__ == "__main__":
    main()
