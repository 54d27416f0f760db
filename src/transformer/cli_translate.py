"""The commands `transformer translate` and `transformer evaluate`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from transformer import pretrained
from transformer.checkpoints import read_model
from transformer.cli_train import whole_number
from transformer.data.text import (
    decode_lines,
    help_en_de,
    read_lines,
    read_pairs,
    refuse_empty,
)
from transformer.data.tokenizer import UNKNOWN, BytePairEncoding
from transformer.model import Transformer
from transformer.processes import choose_device
from transformer.translation import Encoding, bleu, chrf, translate

LONGEST = 80  # tokens of a training sentence at most, EOS counted
GENERAL = "Helsinki-NLP/opus-mt-en-de"
EXAMPLES = (
    "Select a font from the list.",
    "You can specify a title for your document.",
    "Open an existing or blank presentation.",
    "Image compression can be lossless or lossy.",
    "Format the result as a date.",
    "The current file is kept open for editing.",
    "Enter the number of copies you want to make.",
    "Deletes the selected user-defined dictionary.",
    "Allows a user to change the table structure.",
    "This procedure works for ordered and unordered lists.",
    "Displays the complete path of the database table.",
    "LibreOffice opens your default email program.",
)
FILE_NAME = re.compile(r"\S*[/\\]\S+|\S+\.[A-Za-z]\w{0,4}")
WORD = re.compile(r"[^\W\d_]+")  # letters alone
STANDARD_INPUT = Path("standard input")


def add_translate(commands) -> None:
    """Declare `transformer translate`."""
    command = commands.add_parser(
        "translate",
        help="translate sentences or files, English to German",
        description="One line of output for each sentence. The model"
        " that comes with the book has learned from the help pages of"
        " an office suite and knows nothing else. Without TEXT, twelve"
        " sentences that it can be asked.",
    )
    command.add_argument(
        "text",
        nargs="*",
        metavar="TEXT",
        help="a sentence; a file with a sentence a line; or - for"
        " standard input",
    )
    add_model(command)
    command.set_defaults(run=run_translate)


def add_evaluate(commands) -> None:
    """Declare `transformer evaluate`."""
    command = commands.add_parser(
        "evaluate",
        help="print BLEU and chrF, with sacrebleu's signatures",
        description="Translate a test set and compare. Without files,"
        " the test set that comes with the book.",
    )
    add = command.add_argument
    add("--source", type=Path, metavar="FILE", help="a sentence a line")
    add(
        "--reference",
        type=Path,
        metavar="FILE",
        help="the translation of each line of the source",
    )
    add("--json", action="store_true", help="for programs to read")
    add_model(command)
    command.set_defaults(run=run_evaluate)


def add_model(command) -> None:
    """Declare which model translates, and how it searches."""
    which = command.add_mutually_exclusive_group()
    which.add_argument(
        "--weights",
        type=Path,
        metavar="FILE",
        help="a model that `transformer train` made, instead of the one"
        " that comes with the book",
    )
    which.add_argument(
        "--marian",
        metavar="NAME | FOLDER",
        help=f"a MarianMT model, such as {GENERAL}; by name it is"
        " fetched the first time",
    )
    add = command.add_argument
    add(
        "--tokenizer",
        type=Path,
        metavar="FILE",
        help="of --weights (default: tokenizer.json beside it)",
    )
    add(
        "--beam",
        type=whole_number,
        default=4,
        metavar="SIZE",
        help="1 is greedy decoding (default: %(default)s)",
    )
    add(
        "--alpha",
        type=float,
        default=0.6,
        help="of the length penalty (default: %(default)s)",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")


def run_translate(options: argparse.Namespace) -> int:
    """Print a translation of each sentence."""
    if not options.text:
        offer()
        return 0
    sentences = [s for text in options.text for s in read(text)]
    if not sentences:
        raise ValueError("there are no sentences to translate")
    model, tokenizer = chosen_model(options)
    if not (options.weights or options.marian):
        warn(tokenizer, sentences)
    for line in translate(
        model,
        tokenizer,
        sentences,
        beam_size=options.beam,
        alpha=options.alpha,
    ):
        print(line)
    return 0


def run_evaluate(options: argparse.Namespace) -> int:
    """Print how near translations are to their references."""
    files = (options.source, options.reference)
    if any(files) and not all(files):
        raise ValueError("--source and --reference go together")
    pairs = read_pairs(*files) if all(files) else help_en_de("test")
    model, tokenizer = chosen_model(options)
    sources, references = map(list, zip(*pairs, strict=True))
    said = translate(
        model,
        tokenizer,
        sources,
        beam_size=options.beam,
        alpha=options.alpha,
    )
    scores = [bleu(said, references), chrf(said, references)]
    if options.json:
        found = {
            score.name: dict(
                score=score.score, signature=score.signature
            )
            for score in scores
        }
        found |= dict(
            sentences=len(pairs), beam=options.beam, alpha=options.alpha
        )
        print(json.dumps(found, indent=2))
        return 0
    print(
        f"{len(pairs)} sentences, beam {options.beam}, alpha"
        f" {options.alpha}"
    )
    for score in scores:
        print(score)
    return 0


def chosen_model(
    options: argparse.Namespace,
) -> tuple[Transformer, Encoding]:
    """The model that the options name, and its tokenizer.

    Raises:
        ImportError, OSError, ValueError: it cannot be had.
    """
    if options.tokenizer and not options.weights:
        raise ValueError("--tokenizer is needed with --weights only")
    if options.marian:
        from transformer.pretrained import marian

        model, tokenizer = marian.load(options.marian)
    elif options.weights:
        path = options.weights
        beside = path.parent / "tokenizer.json"
        tokenizer = BytePairEncoding.load(options.tokenizer or beside)
        model = read_model(path)
        if model.config.vocab_size != tokenizer.vocab_size:
            raise ValueError(
                f"{path} has a vocabulary of {model.config.vocab_size},"
                f" its tokenizer one of {tokenizer.vocab_size}"
            )
    else:
        model, tokenizer = pretrained.load()
    return model.to(choose_device(options.device)), tokenizer


def read(text: str) -> Iterator[str]:
    """A sentence as it is; those of a file or of standard input.

    Raises:
        TextError: a line is empty or no UTF-8.
        OSError: the file cannot be read.
        ValueError: the sentence is empty, or what is clearly the
            name of a file names none.
    """
    path = Path(text)
    if text == "-":
        path = STANDARD_INPUT
        lines = decode_lines(sys.stdin.buffer, path)
    elif is_file(path):
        lines = read_lines(path)
    elif FILE_NAME.fullmatch(text):
        raise FileNotFoundError(f"{text}: there is no such file")
    elif not text.strip():
        raise ValueError("a sentence to translate is empty")
    else:
        lines, path = [text], None
    for number, line in enumerate(lines, 1):
        if path:
            refuse_empty(path, number, line=line)
        yield line


def is_file(path: Path) -> bool:
    """Whether there is such a file; a long sentence names none."""
    try:
        return path.is_file()
    except OSError:
        return False


def warn(tokenizer: BytePairEncoding, sentences: Sequence[str]) -> None:
    """Say which sentences the book's model has not learned for."""
    found = [
        f"sentence {number}: {fault}"
        for number, sentence in enumerate(sentences, 1)
        for fault in faults(tokenizer, sentence)
    ]
    for warning in found:
        print(f"transformer: warning: {warning}", file=sys.stderr)
    if found:
        print(f"a general model: {general()}", file=sys.stderr)


def faults(tokenizer: BytePairEncoding, sentence: str) -> Iterator[str]:
    """What lies outside of what the book's model has learned from."""
    (ids,) = tokenizer.encode([sentence])
    unseen: list[str] = []
    if UNKNOWN in ids:
        signs = sorted(set(sentence))
        unseen += [
            sign
            for sign, encoded in zip(
                signs, tokenizer.encode(signs), strict=True
            )
            if UNKNOWN in encoded
        ]
    unseen += [
        word
        for word in dict.fromkeys(WORD.findall(sentence))
        if word.lower() not in seen_words() and word not in unseen
    ]
    if unseen:
        yield f"never seen in training: {' '.join(unseen)}"
    if len(ids) + 1 > LONGEST:
        yield (
            f"{len(ids) + 1} tokens, but the longest in training had"
            f" {LONGEST}"
        )


@cache
def seen_words() -> frozenset[str]:
    """The English words of the training text, in lower case."""
    return frozenset(
        word.lower()
        for source, _ in help_en_de("train")
        for word in WORD.findall(source)
    )


def general() -> str:
    """The command that translates text of any kind."""
    return f'transformer translate --marian {GENERAL} "..."'


def offer() -> None:
    """Print sentences that the book's model can be asked."""
    print("Twelve sentences of the test set, for example:\n")
    for sentence in EXAMPLES:
        print(f'  transformer translate "{sentence}"')
    print(f"\nFor text of any kind, a general model:\n\n  {general()}")
