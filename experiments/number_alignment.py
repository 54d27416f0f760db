"""Chapter 19: do heads find the word that is being translated?

    python experiments/number_alignment.py

Writes book/results/number_alignment.json. Five seeds train what
`experiments/copy_task.py --task number_words` trains. In German the ones
come before the tens, so for these two the right English word is known
and stands elsewhere. A head is chosen on 500 numbers and measured on
1,000 others that no training sees; the same is done before training.
Then each head of the decoder over the encoder is removed in turn. The
weights of a few numbers are kept, in thousandths. About a CPU minute a
seed; a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from copy_task import settings
from provenance import RESULTS, run_seeds

from bookkit import heads
from transformer import Transformer
from transformer.data.toy import NumberWords
from transformer.evaluation import greedy_exact_match
from transformer.recipes import toy_model, train_toy

SEEDS = range(1900, 1905)
CHOSEN_ON, TESTED_ON = 500, 1000
SHOWN = (21, 748, 362_195)  # their maps are kept, of the first seed
KINDS = ("encoder", "decoder", "cross")
TASK = NumberWords()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--steps", type=int, help="fewer, to try the script")
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    changes = {"steps": options.steps} if options.steps else {}
    result = run_seeds(
        RESULTS / "number_alignment.json",
        SEEDS[: options.seeds],
        lambda seed: measure(seed, changes),
        settings={
            **settings("number_words", changes),
            "chosen_on": CHOSEN_ON,
            "tested_on": TESTED_ON,
            "shown": SHOWN,
        },
        summarise=summarise,
        say=say,
        allow_dirty=options.allow_dirty,
    )
    for name, value in result["summary"].items():
        print(f"{name:32} {value:.4f}")


def measure(seed: int, changes: dict) -> dict:
    """Everything that one seed says."""
    seen = draw_numbers(CHOSEN_ON, seed, held_out=False)
    fresh = draw_numbers(TESTED_ON, seed, held_out=True)
    untrained = toy_model(TASK, seed)
    trained, _ = train_toy(TASK, seed, progress=False, **changes)
    found = {}
    for name, model in (("untrained", untrained), ("trained", trained)):
        scores = score(model, seen)["written"]
        chosen = heads.best(scores)
        random = heads.drawn(scores, seed)
        tested = score(model, fresh)
        found[name] = {
            "chosen_on": scores.tolist(),
            "heads": tested["written"].tolist(),
            "heads_by_token_given": tested["given"].tolist(),
            "chosen": heads.label(chosen),
            "accuracy": tested["written"][chosen].item(),
            "accuracy_by_token_given": tested["given"][chosen].item(),
            "random": heads.label(random),
            "random_accuracy": tested["written"][random].item(),
        }
    test = TASK.pairs(fresh)
    removed = {}
    for layer in range(trained.config.layers):
        for head in range(trained.config.heads):
            with heads.removed(trained, "cross", (layer, head)):
                match = greedy_exact_match(trained, test)
            removed[heads.label((layer, head))] = match
    return {
        **found,
        "same_place": same_place(fresh),
        "exact_match": greedy_exact_match(trained, test),
        "exact_match_without": removed,
        **({"maps": kept_maps(trained)} if seed == SEEDS[0] else {}),
    }


def draw_numbers(count: int, seed: int, *, held_out: bool) -> list[int]:
    """Different numbers with ones and tens to swap, 2 to 6 digits evenly."""
    draw = torch.Generator().manual_seed(2**31 + seed)
    found: dict[int, None] = {}
    while len(found) < count:
        digits = torch.randint(2, 7, (1,), generator=draw).item()
        low, high = 10 ** (digits - 1), 10**digits
        number = torch.randint(low, high, (1,), generator=draw).item()
        if TASK.is_held_out(number) == held_out and heads.swapped(number).any():
            found[number] = None
    return list(found)


def score(model: Transformer, numbers: list[int]) -> dict[str, torch.Tensor]:
    """Alignment accuracy over ones and tens that change places.

    Returns:
        "written": (layer, head), the row that writes a piece counts;
        "given": the row that is given the piece, one further down.
    """
    hits = {"written": [], "given": []}
    for number, weights in zip(numbers, all_maps(model, numbers), strict=True):
        wanted = heads.swapped(number)
        hits["written"].append(heads.hits(weights["cross"], wanted))
        given = wanted.roll(1, 0)
        hits["given"].append(heads.hits(weights["cross"], given))
    return {name: torch.cat(found, -1).mean(-1) for name, found in hits.items()}


def all_maps(model: Transformer, numbers: list[int]):
    batch = TASK.pairs(numbers)
    ids = [
        ([i for i in source if i > 2], [i for i in target if i > 2])
        for source, target in zip(
            batch.source.tolist(), batch.target.tolist(), strict=True
        )
    ]
    return heads.maps(model, ids, batch_size=100)


def same_place(numbers: list[int]) -> float:
    """Accuracy of a head that looks at its own place, whatever stands there."""
    right = [
        float(row == word)
        for number in numbers
        for row, word in heads.swapped(number).nonzero().tolist()
    ]
    return statistics.fmean(right)


def kept_maps(model: Transformer) -> dict[str, list]:
    """Weights of all heads over the encoder, in thousandths."""
    return {
        str(number): (weights["cross"] * 1000).round().int().tolist()
        for number, weights in zip(SHOWN, all_maps(model, list(SHOWN)), strict=True)
    }


def summarise(runs: list[dict]) -> dict:
    """What the book quotes: means over seeds."""

    def mean(pick) -> float:
        return statistics.fmean(pick(run) for run in runs)

    return {
        "trained_accuracy": mean(lambda run: run["trained"]["accuracy"]),
        "untrained_accuracy": mean(lambda run: run["untrained"]["accuracy"]),
        "random_accuracy": mean(lambda run: run["trained"]["random_accuracy"]),
        "same_place": mean(lambda run: run["same_place"]),
        "exact_match": mean(lambda run: run["exact_match"]),
        "exact_match_without_chosen": mean(
            lambda run: run["exact_match_without"][run["trained"]["chosen"]]
        ),
    }


def say(run: dict) -> str:
    """One line for one seed."""
    trained, untrained = run["trained"], run["untrained"]
    return (
        f"seed {run['seed']}: head {trained['chosen']} {trained['accuracy']:.3f},"
        f" untrained {untrained['chosen']} {untrained['accuracy']:.3f},"
        f" same place {run['same_place']:.3f}, match {run['exact_match']:.3f},"
        f" without {run['exact_match_without']}"
    )


if __name__ == "__main__":
    main()
