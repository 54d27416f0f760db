"""How the recipe of the toy tasks was chosen.

    python experiments/tune_toy.py --peak 4e-3 --warmup 60 --seeds 100 101

trains one recipe, averages its last five snapshots at several spacings
and adds what came out to book/results/tune_toy.json. All recipes keep
equation 3's shape and 500 steps; `peak` is the learning rate at the end
of the warm-up. The seeds, of weights, data and test, are none that a
result is reported for.
"""

from __future__ import annotations

import argparse
import time

import torch
from provenance import RESULTS, now, provenance, read_json, write_json

from transformer import TrainingConfig, Transformer, TransformerConfig, train
from transformer.checkpoints import average
from transformer.data.toy import NumberWords, SymbolTask
from transformer.evaluation import greedy_exact_match
from transformer.training import snapshot

FILE = RESULTS / "tune_toy.json"
STEPS = 500
SPACINGS = (5, 10, 15, 20, 25, 30, 40, 50)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="copy")
    parser.add_argument("--peak", type=float, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--d-k", type=int, help="and d_v; 64 / heads")
    parser.add_argument("--d-ff", type=int, default=256)
    parser.add_argument("--smoothing", type=float, default=0.0)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--allow-dirty", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    origin = provenance(allow_dirty=options.allow_dirty)
    names = ("task", "peak", "warmup", "batch", "heads", "d_k", "d_ff", "smoothing")
    recipe = {name: getattr(options, name) for name in names}
    recipe["d_k"] = recipe["d_k"] or 64 // recipe["heads"]
    for seed in options.seeds:
        tried = read_json(FILE).get("tried", [])
        done = [(entry["recipe"], entry["seed"]) for entry in tried]
        if (recipe, seed) in done:
            print(f"seed {seed}: kept")
            continue
        entry = {"recipe": recipe, "seed": seed, **measure(recipe, seed)}
        entry |= {"date": now(), "src_sha256": origin["src_sha256"]}
        print(entry, flush=True)
        # Another recipe may have been added since.
        tried = [*read_json(FILE).get("tried", []), entry]
        write_json(FILE, {"provenance": origin, "tried": tried})


def measure(recipe: dict, seed: int) -> dict:
    """Greedy exact match of the last weights and of each average."""
    named = recipe["task"] == "number_words"
    task = NumberWords() if named else SymbolTask(recipe["task"])
    torch.manual_seed(seed)
    model = Transformer(
        TransformerConfig.tiny(
            task.vocab_size,
            heads=recipe["heads"],
            d_k=recipe["d_k"],
            d_v=recipe["d_k"],
            d_ff=recipe["d_ff"],
        )
    )
    width, warmup = model.config.d_model, recipe["warmup"]
    config = TrainingConfig.copy_task(
        seed=seed,
        steps=STEPS,
        average_last=0,
        label_smoothing=recipe["smoothing"],
        warmup_steps=warmup,
        factor=recipe["peak"] * (width * warmup) ** 0.5,
    )
    generator = torch.Generator().manual_seed(seed)
    batches = iter(lambda: task.batch(recipe["batch"], generator), None)
    states = {}

    def keep(step: int, model: Transformer) -> None:
        if step > STEPS - 5 * max(SPACINGS) and step % 5 == 0:
            states[step] = snapshot(model)

    started = time.process_time()
    history = train(model, batches, config, watch=keep, progress=False)
    seconds = time.process_time() - started
    fresh = torch.Generator().manual_seed(2**40 + seed)
    test = task.held_out(1605, fresh) if named else task.batch(1000, fresh)
    averaged = {}
    last = greedy_exact_match(model, test)
    for spacing in SPACINGS:
        steps = [STEPS - spacing * i for i in reversed(range(5))]
        model.load_state_dict(average([states[step] for step in steps]))
        averaged[spacing] = round(greedy_exact_match(model, test), 4)
    return {
        "exact_match": {"last": round(last, 4), "averaged": averaged},
        "loss": round(sum(history.loss[-20:]) / 20, 5),
        "cpu_seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    main()
