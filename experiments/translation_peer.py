"""Train `torch.nn.Transformer` as the shipped model was trained, and compare.

    python experiments/translation_peer.py train RUN PEER --steps N
    python experiments/translation_peer.py compare RUN PEER

RUN is the folder of the shipped model's run, PEER that of this one.

The same data, batches, order, schedule, loss and precision as the run in
RUN; the same sizes, embeddings and positions. The framework's own are its
layers: biases in the attention, dropout also on attention weights and inside
the feed-forward networks, layer-norm epsilon 1e-5, its Xavier start. Its two
final norms are left out, as post-norm does not have them, so that
`transformer.translation` decodes both. Stopped, it goes on where it was.

`compare` writes book/results/translation_peer.json: BLEU of both on the test
set where the peer stands, the last checkpoints averaged.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from provenance import RESULTS, provenance, write_json
from torch import Tensor, nn
from translation_model import AVERAGED

from transformer import (
    PositionalEncoding,
    TokenEmbedding,
    TrainingConfig,
    Transformer,
    TransformerConfig,
    causal_mask,
)
from transformer.checkpoints import (
    average,
    checkpoints,
    fill,
    load_checkpoint,
    save_checkpoint,
    without_aliases,
)
from transformer.data.streams import mix
from transformer.data.text import help_en_de
from transformer.data.tokenizer import BytePairEncoding
from transformer.linear import Linear
from transformer.material import Run, gather
from transformer.pretrained.framework import part_names, parted
from transformer.processes import joined
from transformer.trainer import Trainer
from transformer.translation import bleu, translate


class Peer(nn.Module):
    """`nn.Transformer` and what it leaves out, with our model's methods."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config.vocab_size, config.d_model)
        self.positions = PositionalEncoding(config.d_model, config.max_length)
        self.dropout = nn.Dropout(config.dropout)
        self.core = nn.Transformer(
            config.d_model,
            config.heads,
            config.layers,
            config.layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
        )
        self.core.encoder.norm = self.core.decoder.norm = None
        for parameter in self.core.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        self.output_projection = Linear(config.d_model, config.vocab_size, bias=False)
        self.output_projection.weight = self.embedding.weight

    def build_masks(self, source: Tensor, target_in: Tensor) -> tuple[Tensor, ...]:
        """As the framework wants them: True = may not attend."""
        padding = source == self.config.pad_id
        ahead = ~causal_mask(target_in.size(1), target_in.device)
        return padding, ahead, padding

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.positions(self.embedding(ids)))

    def encode(self, source: Tensor, padding: Tensor) -> Tensor:
        return self.core.encoder(self.embed(source), src_key_padding_mask=padding)

    def decode(self, target_in, memory, ahead, padding) -> Tensor:
        return self.core.decoder(
            self.embed(target_in),
            memory,
            tgt_mask=ahead,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )


def the_run(folder: Path, steps: int) -> Run:
    """What config.json of a run says."""
    fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    training = {
        name.removeprefix("training."): fields.pop(name)
        for name in list(fields)
        if name.startswith("training.")
    }
    training["betas"] = tuple(training["betas"])
    run = Run(**fields, training=TrainingConfig(steps=steps, **training))
    return replace(run, data=tuple(run.data), valid=tuple(run.valid))


def train(like: Path, steps: int, out: Path, save_every: int = 250) -> None:
    """Train to `steps`, from the newest checkpoint in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    run = the_run(like, steps)
    with joined("cpu") as processes:
        data = gather(run, out, processes, 0)
        config = replace(
            run.model(data.vocab_size), attention_bias=True, layer_norm_eps=1e-5
        )
        torch.manual_seed(mix(run.training.seed, "weights"))
        trainer = Trainer(
            Peer(config), data.stream, run.training, processes, precision=run.precision
        )
        about = {"model": config.to_dict(), "layers": "torch.nn.Transformer"}
        if found := checkpoints(out / "checkpoints"):
            trainer.load(load_checkpoint(found[-1], about))
        loss = tokens = 0.0
        seconds = time.process_time()
        while trainer.done < steps:
            step = trainer.step()
            loss, tokens = loss + step.loss.item(), tokens + step.tokens
            if trainer.done % save_every and trainer.done != steps:
                continue
            spent = time.process_time() - seconds
            line = {"step": trainer.done, "loss": loss / tokens, "cpu_s": spent}
            print(json.dumps(line), file=sys.stderr)
            with (out / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            save_checkpoint(out / "checkpoints", trainer.state(), about, keep=100)
            loss = tokens = 0.0
            seconds = time.process_time()


def averaged(files: list[Path]) -> Transformer:
    """The mean of checkpoints, as our model, whoever's layers they hold."""
    found = [load_checkpoint(file) for file in files]
    config = TransformerConfig(**found[0]["config"]["model"])
    state = average([without_aliases(one["model"]) for one in found])
    model = Transformer(config).eval()
    if "layers" in found[0]["config"]:
        core = {
            name.removeprefix("core."): tensor
            for name, tensor in state.items()
            if name.startswith("core.")
        }
        embedding = next(state[n] for n in TIED if n in state)
        state = parted(core, part_names(config.layers, "post"))
        state["output_projection.weight"] = embedding
    fill(model, state)
    return model


TIED = ("embedding.weight", "output_projection.weight")  # the peer's names


def compare(like: Path, out: Path) -> dict:
    """Both models where the peer stands."""
    tokenizer = BytePairEncoding.load(out / "tokenizer.json")
    last = checkpoints(out / "checkpoints")[-1].name
    sources, references = zip(*help_en_de("test"), strict=True)
    found = {}
    for name, folder in (("ours", like), ("peer", out)):
        files = [f for f in checkpoints(folder / "checkpoints") if f.name <= last]
        model = averaged(files[-AVERAGED:])
        for beam in (1, 4):
            said = translate(model, tokenizer, sources, beam_size=beam)
            score = bleu(said, references)
            found[f"{name}, beam {beam}"] = score.score
            print(name, beam, score, flush=True)
        found[f"{name}, parameters"] = sum(p.numel() for p in model.parameters())
    return {
        "provenance": provenance(),
        "step": int(last.removeprefix("step-").removesuffix(".pt")),
        "averaged": AVERAGED,
        "signature": score.signature,
        "found": found,
    }


def main() -> None:
    """Train the peer, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("train", "compare"))
    parser.add_argument("run", type=Path)
    parser.add_argument("peer", type=Path)
    parser.add_argument("--steps", type=int, default=5000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "train":
        train(options.run, options.steps, options.peer)
    else:
        result = compare(options.run, options.peer)
        write_json(RESULTS / "translation_peer.json", result)


if __name__ == "__main__":
    main()
