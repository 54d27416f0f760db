"""Section 5.1, as a command: from a name or files to batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from transformer.config import TrainingConfig, TransformerConfig
from transformer.data.streams import (
    EncodedPairs,
    Stream,
    TaskBatches,
    TokenBatches,
    cut_by_length,
    encode_pairs,
    mix,
)
from transformer.data.text import (
    Pair,
    help_en_de,
    read_pairs,
    wmt14_en_de,
)
from transformer.data.tokenizer import BytePairEncoding
from transformer.data.toy import SymbolTask
from transformer.evaluation import greedy_exact_match, teacher_forced
from transformer.model import Transformer
from transformer.processes import Processes
from transformer.translation import bleu, translate

CORPORA = {"help-en-de": help_en_de, "wmt14-ende": wmt14_en_de}
PRESETS = ("tiny", "small", "base", "big")


@dataclass(frozen=True, kw_only=True)
class Run:
    """All that the weights of a run depend on.

    Args:
        data: "copy", "help-en-de", "wmt14-ende", or one or two files
            as `read_pairs` takes them.
        valid: one or two files; a corpus with a name has its own.
        preset: "tiny", "small", "base" or "big".
        dropout: the preset's if None.
        training: section 5 as data; `accumulate` is the number of
            batches that a step is cut into.
        vocab_size: pieces that the shared vocabulary has at most.
        batch_tokens: tokens a step, on each side, padding counted.
        longest: pairs with more tokens on a side are left out.
        precision: as `Trainer` takes it.

    Raises:
        ValueError: naming the field, its value and the rule.
    """

    data: tuple[str, ...]
    valid: tuple[str, ...] = ()
    preset: str = "base"
    dropout: float | None = None
    training: TrainingConfig
    vocab_size: int = 37000
    batch_tokens: int = 25_000
    longest: int = 256
    precision: str = "float32"

    def __post_init__(self) -> None:
        for name in ("data", "valid"):
            if len(getattr(self, name)) > 2:
                raise ValueError(f"{name} must be one or two files")
        if not self.data:
            raise ValueError("data must be a name or files")
        if self.preset not in PRESETS:
            raise ValueError(
                f"preset={self.preset!r} must be one of"
                f" {', '.join(map(repr, PRESETS))}"
            )
        if not 2 <= self.longest <= self.budget:
            raise ValueError(
                f"longest={self.longest} must be at least 2 and fit"
                f" into a batch: batch_tokens={self.batch_tokens} over"
                f" accumulate={self.training.accumulate} leaves"
                f" {self.budget}"
            )
        self.model(self.vocab_size)

    @property
    def budget(self) -> int:
        """Tokens that one of a step's batches may have on a side."""
        return self.batch_tokens // self.training.accumulate

    def model(self, vocab_size: int) -> TransformerConfig:
        """The model's shape, once the vocabulary is known."""
        make = getattr(TransformerConfig, self.preset)
        changes = (
            {} if self.dropout is None else {"dropout": self.dropout}
        )
        config = make(vocab_size, **changes)
        if self.longest > config.max_length:
            raise ValueError(
                f"longest={self.longest} is above the max_length of"
                f" {self.preset}, {config.max_length}"
            )
        return config

    def to_dict(self) -> dict:
        """One level deep, as JSON can hold it.

        Without the number of steps: a run may be made longer.
        """
        fields = asdict(self)
        training = fields.pop("training")
        del training["steps"]
        return fields | {
            f"training.{k}": v for k, v in training.items()
        }


@dataclass(frozen=True)
class Material:
    """What a run trains on, and how it is judged.

    Args:
        stream: of training batches.
        vocab_size: of the model.
        fingerprint: of the training data.
        validate: gives metrics of a model; None where there is
            nothing to validate on.
        facts: about the data, to be printed.
    """

    stream: Stream
    vocab_size: int
    fingerprint: str
    validate: Callable[[Transformer], dict[str, float]] | None
    facts: str


def gather(
    run: Run, out: Path, processes: Processes, bleu_sentences: int
) -> Material:
    """Read, check and encode the data of a run.

    The first process does the work, and leaves it in `out` for the
    others and for a resume.

    Raises:
        OSError, ValueError: as reading and encoding do.
    """
    if run.data == ("copy",):
        return copying(run)
    encoded, pieces = out / "train.safetensors", out / "tokenizer.json"
    judged = []
    if run.valid or run.data[0] in CORPORA:
        judged = read(run.valid or run.data, "valid")
    if processes.is_first and not encoded.exists():
        pairs = read(run.data, "train")
        sides = (side for pair in pairs for side in pair)
        tokenizer = BytePairEncoding.fit(sides, run.vocab_size)
        tokenizer.save(pieces)
        encode_pairs(pairs, tokenizer, run.longest)[0].save(encoded)
    processes.wait()
    tokenizer = BytePairEncoding.load(pieces)
    pairs = EncodedPairs.load(encoded)
    facts = (
        f"{len(pairs)} pairs of at most {run.longest} tokens a side,"
        f" {tokenizer.vocab_size} pieces"
    )
    return Material(
        TokenBatches(pairs, run.budget, run.training.seed),
        tokenizer.vocab_size,
        pairs.fingerprint(),
        judging(judged, tokenizer, run, bleu_sentences),
        facts,
    )


def read(names: tuple[str, ...], split: str) -> list[Pair]:
    """The pairs of a corpus by its name, or of files."""
    if names[0] in CORPORA:
        return CORPORA[names[0]](split)
    return read_pairs(*names)


def judging(
    pairs: list[Pair],
    tokenizer: BytePairEncoding,
    run: Run,
    bleu_sentences: int,
) -> Callable[[Transformer], dict[str, float]] | None:
    """Perplexity and accuracy on all pairs, BLEU on the first few."""
    if not pairs:
        return None
    encoded, _ = encode_pairs(pairs, tokenizer, run.longest)
    order = torch.Generator().manual_seed(0)
    cuts = cut_by_length(encoded.lengths, max(run.longest, 2048), order)
    sources = [source for source, _ in pairs[:bleu_sentences]]
    references = [target for _, target in pairs[:bleu_sentences]]

    def validate(model: Transformer) -> dict[str, float]:
        batches = (encoded.batch(indices) for indices in cuts)
        perplexity, accuracy = teacher_forced(model, batches)
        found = {"perplexity": perplexity, "accuracy": accuracy}
        if sources:
            said = translate(model, tokenizer, sources, beam_size=1)
            found["bleu"] = bleu(said, references).score
        return found

    return validate


def copying(run: Run) -> Material:
    """The copy task, judged by greedy exact match."""
    task = SymbolTask("copy")
    longest = task.longest + 2  # BOS and EOS
    size = run.budget // longest
    if not size:
        raise ValueError(
            f"batch_tokens={run.batch_tokens} over accumulate="
            f"{run.training.accumulate} holds no sequence of {longest}"
        )
    seed = run.training.seed
    fresh = torch.Generator().manual_seed(mix(seed, "judged"))
    test = task.batch(200, fresh)

    def validate(model: Transformer) -> dict[str, float]:
        device = next(model.parameters()).device
        return {
            "exact_match": greedy_exact_match(model, test.to(device))
        }

    return Material(
        TaskBatches(task, size, seed),
        task.vocab_size,
        "copy",
        validate,
        f"copying {task.shortest} to {task.longest} symbols",
    )
