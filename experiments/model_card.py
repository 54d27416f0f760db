"""Write the card of the shipped model from what was measured.

    python experiments/model_card.py

Every number comes from a file: the run's configuration and log beside the
weights, book/results/translation.json and translation_peer.json.
"""

from __future__ import annotations

import json
from pathlib import Path

from provenance import RESULTS, read_json
from translation_model import AVERAGED, SHIPPED

from transformer.checkpoints import load_weights

# The text around the numbers; the second part is about the peer.
TEXT = Path(__file__).with_suffix(".txt")


def card() -> str:
    """The whole text."""
    run = json.loads((SHIPPED / "config.json").read_text("utf-8"))
    path = SHIPPED / "model.safetensors"
    model = load_weights(path)
    found = read_json(RESULTS / "translation.json")
    steps = [
        int(n.split("-")[1].split(".")[0]) for n in found["weights"]["checkpoints"]
    ]
    text, about_peer = TEXT.read_text("utf-8").split("=====\n")
    return text.format(
        **{
            name: getattr(model.config, name)
            for name in ("layers", "d_model", "d_ff", "heads", "vocab_size", "dropout")
        },
        parameters=sum(p.numel() for p in model.parameters()),
        megabytes=path.stat().st_size / 1e6,
        steps=steps[-1],
        apart=steps[-1] - steps[-2],
        averaged=AVERAGED,
        batch_tokens=run["batch_tokens"],
        precision=run["precision"],
        smoothing=run["training.label_smoothing"],
        warmup=run["training.warmup_steps"],
        seed=run["training.seed"],
        curve=curve(),
        sentences=found["settings"]["sentences"]["test"],
        scores=scores(found["runs"]),
        signatures="; ".join(
            f"{name}: `{signature}`"
            for name, signature in found["settings"]["signatures"].items()
        )
        + ".",
        valid=next(
            run["bleu"]
            for run in found["runs"]
            if (run["split"], run["averaged"], run["beam"]) == ("valid", 0, 4)
        ),
        peer=peer(about_peer, steps[-1]),
    )


def curve() -> str:
    """The validations on the way, as a table."""
    lines = (SHIPPED / "metrics.jsonl").read_text("utf-8").splitlines()
    judged = [line for line in map(json.loads, lines) if "perplexity" in line]
    rows = [
        f"| {line['step']:,} | {line['perplexity']:.2f} | {line['accuracy']:.3f} |"
        f" {line['bleu']:.1f} |"
        for line in judged
    ]
    head = ["| step | perplexity | accuracy | BLEU |", "|---|---|---|---|"]
    return "\n".join(head + rows)


def scores(runs: list[dict]) -> str:
    """What stands in the table of scores."""
    names = {0: "shipped, averaged", 1: "last checkpoint"}
    return "\n".join(
        f"| {names[run['averaged']]} |"
        f" {'greedy' if run['beam'] == 1 else 'beam ' + str(run['beam'])} |"
        f" {run['bleu']:.1f} | {run['chrf']:.1f} |"
        for run in runs
        if run["split"] == "test"
    )


def peer(text: str, steps: int) -> str:
    """The framework's layers beside ours, where they were measured."""
    result = read_json(RESULTS / "translation_peer.json")
    if not result:
        return ""
    values = {
        f"{who}_{beam}": result["found"][f"{who}, beam {beam}"]
        for who in ("ours", "peer")
        for beam in (1, 4)
    }
    step, averaged = result["step"], result["averaged"]
    told = text.format(step=step, share=step / steps, averaged=averaged, **values)
    return f"\n{told.rstrip()}\n"


if __name__ == "__main__":
    (SHIPPED / "MODEL_CARD.md").write_text(card(), "utf-8")
