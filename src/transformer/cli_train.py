"""The commands `transformer train` and `transformer average`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from transformer.checkpoints import average_files, checkpoints
from transformer.config import TrainingConfig
from transformer.material import PRESETS, Run
from transformer.processes import joined
from transformer.trainer import PRECISIONS
from transformer.training_run import Schedule, train_to


def whole_number(text: str) -> int:
    """A number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be a whole number of at least 1"
        )
    return int(text)


def add_train(commands) -> None:
    """Declare `transformer train`."""
    command = commands.add_parser(
        "train",
        help="train a model of any size; stop and resume at will",
        description="Train as section 5 of the paper says. The folder"
        " OUT gets config.json, tokenizer.json, metrics.jsonl,"
        " checkpoints/ and, at the end, model.safetensors. Ctrl-C and"
        " SIGTERM save and stop. To share the work among processes:"
        " torchrun --nproc-per-node 8 -m transformer train ...",
    )
    add_what(command.add_argument_group("what to train"))
    add_how(command.add_argument_group("how to run it"))
    command.set_defaults(run=train)


def add_what(group) -> None:
    """What the weights depend on."""
    add = group.add_argument
    add(
        "--data",
        nargs="+",
        required=True,
        metavar="DATA",
        help="copy, help-en-de, wmt14-ende; or a file of lines 'source"
        " TAB target', or two files of equal length",
    )
    add(
        "--valid",
        nargs="+",
        default=[],
        metavar="FILE",
        help="one or two files to validate on",
    )
    add("--config", choices=PRESETS, default="base")
    add("--steps", type=whole_number, required=True)
    add("--seed", type=int, default=0)
    add(
        "--warmup",
        type=whole_number,
        metavar="STEPS",
        help="default: 4000; 100 for copy",
    )
    add(
        "--factor",
        type=float,
        help="of equation 3's learning rate (default: 1; 0.24 for"
        " copy)",
    )
    add("--dropout", type=float, help="default: the configuration's")
    add("--smoothing", type=float, default=0.1, help="default: 0.1")
    add(
        "--vocab-size",
        type=whole_number,
        default=Run.vocab_size,
        help="pieces of the shared vocabulary (default: %(default)s)",
    )
    add(
        "--batch-tokens",
        type=whole_number,
        default=Run.batch_tokens,
        help="tokens a step, on each side, padding counted (default:"
        " %(default)s)",
    )
    add(
        "--accumulate",
        type=whole_number,
        metavar="BATCHES",
        help="batches that a step is cut into, which the processes"
        " share evenly (default: one a process)",
    )
    add(
        "--longest",
        type=whole_number,
        default=Run.longest,
        metavar="TOKENS",
        help="pairs with more on a side are left out (default:"
        " %(default)s)",
    )
    add("--precision", choices=PRECISIONS, default="float32")


def add_how(group) -> None:
    """What the weights do not depend on."""
    plan = Schedule()
    add = group.add_argument
    add(
        "--out",
        type=Path,
        required=True,
        help="a folder: new, or with --resume that of the run",
    )
    add(
        "--resume",
        action="store_true",
        help="go on from the newest checkpoint, where there is one",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--compile", action="store_true", help="use torch.compile")
    for name, what in (
        ("report", "lines of metrics"),
        ("validate", "validations; 0 for none"),
        ("save", "checkpoints"),
    ):
        add(
            f"--{name}-every",
            type=int,
            default=getattr(plan, f"{name}_every"),
            metavar="STEPS",
            help=f"between {what} (default: %(default)s)",
        )
    add(
        "--save-minutes",
        type=float,
        default=plan.save_minutes,
        metavar="MINUTES",
        help="save also when so long has passed; 0 for never (default:"
        " %(default)s)",
    )
    add(
        "--keep",
        type=whole_number,
        default=plan.keep,
        help="checkpoints that stay (default: %(default)s)",
    )
    add(
        "--bleu-sentences",
        type=int,
        default=plan.bleu_sentences,
        help="translated in each validation; 0 for no BLEU (default:"
        " %(default)s)",
    )


def train(options: argparse.Namespace) -> int:
    """Train, alone or as one of torchrun's processes."""
    with joined(options.device) as processes:
        stopped_by = train_to(
            options.out,
            chosen_run(options, processes.count),
            chosen_schedule(options),
            processes,
            resume=options.resume,
            compiled=options.compile,
        )
    if stopped_by:
        print("stopped and saved; --resume goes on", file=sys.stderr)
        return 128 + stopped_by
    return 0


def chosen_run(options: argparse.Namespace, processes: int) -> Run:
    """What the options say about the weights."""
    copying = options.data == ["copy"]
    preset = TrainingConfig.copy_task if copying else TrainingConfig
    changes = dict(warmup_steps=options.warmup, factor=options.factor)
    training = preset(
        steps=options.steps,
        seed=options.seed,
        label_smoothing=options.smoothing,
        accumulate=options.accumulate or processes,
        **{k: v for k, v in changes.items() if v is not None},
    )
    return Run(
        data=tuple(options.data),
        valid=tuple(options.valid),
        preset=options.config,
        dropout=options.dropout,
        training=training,
        vocab_size=options.vocab_size,
        batch_tokens=options.batch_tokens,
        longest=options.longest,
        precision=options.precision,
    )


def chosen_schedule(options: argparse.Namespace) -> Schedule:
    """What the options say about reports and checkpoints."""
    return Schedule(
        report_every=options.report_every,
        validate_every=options.validate_every,
        save_every=options.save_every,
        save_minutes=options.save_minutes,
        keep=options.keep,
        bleu_sentences=options.bleu_sentences,
    )


def add_average(commands) -> None:
    """Declare `transformer average`."""
    command = commands.add_parser(
        "average",
        help="average the weights of several checkpoints",
        description="Section 6.1: the mean of the last checkpoints of"
        " a run, or of the files named.",
    )
    command.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FOLDER | FILE",
        help="the folder of a run; or checkpoints or safetensors files"
        " of one model",
    )
    command.add_argument(
        "--last",
        type=whole_number,
        default=5,
        help="of a run's checkpoints (default: %(default)s)",
    )
    command.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="default: averaged.safetensors in the folder",
    )
    command.set_defaults(run=average)


def average(options: argparse.Namespace) -> int:
    """Average files, or the last checkpoints of a run."""
    files, out = options.files, options.out
    if len(files) == 1 and files[0].is_dir():
        out = out or files[0] / "averaged.safetensors"
        kept = checkpoints(files[0] / "checkpoints")
        if len(kept) < options.last:
            raise ValueError(
                f"{files[0]} holds {len(kept)} checkpoints, fewer than"
                f" --last {options.last}"
            )
        files = kept[-options.last :]
    if out is None:
        raise ValueError("--out is needed where files are named")
    average_files(files, out)
    print(f"{out}: the mean of {', '.join(f.name for f in files)}")
    return 0
