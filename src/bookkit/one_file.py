"""The whole Transformer on one page, assembled from `src/transformer`.

    python -m bookkit.one_file              print it
    python -m bookkit.one_file -o FILE      write it

Nothing of it is written a second time. `PARTS` says what is taken from
which module, in which order. `CHANGES` says what of it is left out, so
that only the paper's way through the code remains: input checks,
variants, caches. What then has only one outcome is folded away. An
entry of either table that no longer fits the source is an error.

The result depends on no version of Python or of a formatter: the same
source gives the same file, byte for byte. One empty line between
definitions keeps it short, so the file tells ruff to leave it as it is.
"""

from __future__ import annotations

import argparse
import ast
import copy
import itertools
import json
import linecache
import re
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

from bookkit.source import AnnotatedSource, Line

NAME = "transformer_one_file.py"
WIDTH = 88
MOST_LINES = 400

HEAD = '''\
"""The Transformer of "Attention Is All You Need" (2017), on one page.

`python {name}` learns to copy and says how often it is right. Beside
the definitions: shapes in -> shapes out. Made by `python -m bookkit.one_file`.
"""
# fmt: off
'''
FOOT = """\
if __name__ == "__main__":
    demo()
"""


class StalePart(LookupError):
    """`PARTS` or `CHANGES` names what the sources no longer have."""


@dataclass(frozen=True)
class Part:
    """What is taken from a module, and the chapters that explain it."""

    module: str
    names: str
    title: str = ""
    chapters: str = ""


PARTS = (
    Part("config", "PAD TransformerConfig TrainingConfig", "Settings", "02, 17"),
    Part(
        "masks",
        "padding_mask causal_mask",
        "Section 3.2.3: who may attend to whom",
        "06",
    ),
    Part("linear", "Linear", "Section 3.2: attention", "04, 05"),
    Part("attention", "scaled_dot_product_attention MultiHeadAttention"),
    Part("feed_forward", "PositionwiseFeedForward", "Section 3.3: feed-forward", "07"),
    Part("embeddings", "TokenEmbedding", "Section 3.4: embeddings", "08"),
    Part(
        "positional_encoding",
        "sinusoidal_encoding PositionalEncoding",
        "Section 3.5: positions",
        "09",
    ),
    Part(
        "encoder_decoder",
        "AddAndNorm EncoderLayer DecoderLayer Stack Encoder Decoder",
        "Section 3.1: layers and stacks",
        "03",
    ),
    Part("model", "Transformer Parts", "Section 3: the model", "02"),
    Part("data.batches", "shift", "Section 5: loss, schedule, loop", "13, 14, 15"),
    Part(
        "training",
        "LabelSmoothingLoss noam_rate NoamScheduler train make_optimizer"
        " accumulate report snapshot",
    ),
    Part("checkpoints", "average mean"),
    Part("decoding", "greedy_decode evaluation_mode", "Section 3: decoding", "16"),
    Part("data.batches", "Batch make_batch pad", "The copy task", "11, 15"),
    Part("data.toy", "FIRST_SYMBOL SymbolTask"),
    Part("evaluation", "exact_match greedy_exact_match"),
    Part("recipes", "toy_model train_toy"),
    Part("cli", "demo symbols"),
)

# Written out where they are called.
INLINE = ("make_optimizer", "MultiHeadAttention.keys_and_values")


@dataclass(frozen=True)
class Change:
    """What is left out of a definition.

    Args:
        arguments: gone from the signature; "mask=" loses its default.
        signature: in place of the old one.
        keywords: gone from calls, "cache" or "**cache" alike; with
            "eps@AddAndNorm" from the calls of that function only.
        gone: statements that define or assign one of these names or
            call one of these functions; methods and fields as well. "#":
            comments.
        becomes: expressions, as `ast.unparse` writes them, and what
            stands in their place. Nothing in the place of a statement
            or an argument takes it away.
        says: in place of the docstring's first line.
    """

    arguments: str = ""
    signature: str = ""
    keywords: str = ""
    gone: str = ""
    becomes: dict[str, str] = field(default_factory=dict)
    says: str = ""


# By the name of the definition; methods inherit from their class.
CHANGES: dict[str, Change] = {
    "TransformerConfig": Change(
        says="The shape of a model",
        gone="d_k d_v norm layer_norm_eps attention_bias attention_dropout"
        " activation activation_dropout positions sinusoid_layout sinusoid_spacing"
        " target_vocab_size tied output_bias start_id __post_init__ _defaults _check"
        " to_dict base big small table3",
    ),
    "TrainingConfig": Change(
        says="One training run, section 5",
        gone="__post_init__ table3 accumulate",
    ),
    "scaled_dot_product_attention": Change(
        # The model then takes the printed equation, step by step.
        arguments="mask= dropout return_weights",
        gone="check_mask",
        becomes={
            "mask = torch.atleast_2d(mask)": "",
            "mask is not None": "True",
            "return_weights": "True",
            "F.dropout(weights, dropout)": "weights",
        },
    ),
    "MultiHeadAttention": Change(
        says="h attentions side by side",
        arguments="d_k d_v bias mask= dropout cache",
        keywords="dropout@attend return_weights",
        gone="dropout attend record",
        becomes={
            "d_k or d_model // heads": "d_model // heads",
            "d_v = d_v or d_model // heads": "",
            "d_v": "d_k",
            "bias": "False",
            "cache": "None",
            "self.attend": "scaled_dot_product_attention",
            "self.record": "True",
            "self.weights: Tensor | None = None": "",
            "self.keys_and_values(key, value, cache)": (
                "self.keys_and_values(key, value)"
            ),
        },
    ),
    "PositionwiseFeedForward": Change(
        arguments="activation dropout",
        gone="activation dropout",
        becomes={
            "self.activation(self.widen(x))": "F.relu(self.widen(x))",
            "self.dropout(hidden)": "hidden",
        },
    ),
    "TokenEmbedding": Change(
        gone="__init__", says="A vector for each id, times sqrt(d_model)"
    ),
    "PositionalEncoding": Change(says="Adds row p of a table at position p"),
    "AddAndNorm": Change(arguments="eps", becomes={"eps": "1e-6"}),
    "DecoderLayer": Change(
        arguments="cache",
        keywords="cache",
        gone="own",
        says="Two attentions, then feed-forward",
    ),
    "Stack": Change(arguments="final_norm", gone="final_norm"),
    "Encoder": Change(becomes={"self.final_norm(x)": "x"}),
    "Decoder": Change(
        arguments="cache",
        gone="caches",
        becomes={
            "self.final_norm(x)": "x",
            "for (layer, pair) in zip(self.layers, caches, strict=True)": (
                "for layer in self.layers"
            ),
            "context = (memory, target_mask, memory_mask)": "",
            "layer(x, *context, cache=pair)": (
                "layer(x, memory, target_mask, memory_mask)"
            ),
        },
    ),
    "Transformer": Change(
        arguments="return_attention cache",
        gone="padding_mask causal_mask check_target_ids check_batch check_source"
        " check_target new_cache with_attention",
        becomes={
            "config.tied": "True",
            "parts.final_norm()": "",
            "masks = (target_mask, memory_mask)": "",
            "self.decoder(x, memory, *masks, cache=cache)": (
                "self.decoder(x, memory, target_mask, memory_mask)"
            ),
            "return_attention": "False",
            "cache": "None",
            "weight": "self.target_embedding.weight",
            "weight = self.target_embedding.weight": "",
            "self.padding_mask": "padding_mask",
            "self.causal_mask": "causal_mask",
        },
    ),
    "Batch": Change(gone="__len__ to"),
    "Parts": Change(
        says="Makes a model's parts",
        keywords="dropout@MultiHeadAttention dropout@PositionwiseFeedForward"
        " activation eps widths",
        gone="kind widths between dropout post final_norm network",
        becomes={
            "connection = AddAndNorm if post else variants.NormAndAdd": "",
            "kind == ('sinusoidal', 'interleaved', 'printed')": "True",
            "connection": "AddAndNorm",
            "attention": "self.attention()",
            "network": "self.feed_forward()",
            "c = self.config": "",
            "c": "self.config",
            "classes = c.target_vocab_size": "",
            "classes": "self.config.vocab_size",
            "c.output_bias": "False",
        },
    ),
    "shift": Change(says="What the decoder is given, what it must say"),
    "SymbolTask": Change(
        says="Random symbols in, the same symbols out",
        gone="# rule __post_init__",
        becomes={"[RULES[self.rule](s) for s in sources]": "sources"},
    ),
    "LabelSmoothingLoss": Change(says="Cross-entropy, a little unsure"),
    "train": Change(
        says="One batch a step",
        arguments="watch",
        gone="device history.rate.append",
        becomes={
            "watch": "None",
            "stream = (batch.to(device) for batch in batches)": "",
            "config.average_last > 1": "True",
            "if snapshots:\n    model.load_state_dict(average(list(snapshots)))": (
                "model.load_state_dict(average(list(snapshots)))"
            ),
            "group = take(stream, config.accumulate, step)": "",
            "group": "next(batches)",
            "History()": "[]",
            "history.loss": "history",
        },
    ),
    "accumulate": Change(  # one batch a step
        signature="model, criterion, batch",
        gone="pad_id real total",
        becomes={
            "pairs = [(batch.source, *shift(batch.target)) for batch in batches]": (
                "source, target_in, gold = batch.source, *shift(batch.target)"
            ),
            "zip(pairs, real, strict=True)": "[None]",
            "share = loss * (tokens / max(sum(real), 1))": "",
            "share.backward()": "loss.backward()",
            "return total": "return loss.item()",
        },
        says="Teacher forcing",
    ),
    "average": Change(
        becomes={
            "last = states[-1]": "",
            "last": "states[-1]",
            "tensor.is_floating_point()": "True",
        }
    ),
    "report": Change(
        says="Count the steps, and say how it goes",
        gone="terminal",
        becomes={
            "terminal": "False",
            "bar": "range(1, steps + 1)",
            "history.loss": "history",
            "bar = tqdm(range(1, steps + 1), unit='step', disable=not terminal)": "",
        },
    ),
    "greedy_decode": Change(
        arguments="use_cache",
        keywords="cache",
        gone="cache",
        becomes={
            "config = model.config": "",
            "config.start_id": "model.config.bos_id",
            "config": "model.config",
        },
    ),
    "evaluation_mode": Change(says="Within it no dropout"),
    "exact_match": Change(says="Share of them right"),
    "greedy_exact_match": Change(says="Share that is right, whole"),
    "train_toy": Change(arguments="watch", keywords="watch", says="On fresh batches"),
    "demo": Change(
        signature="steps=500, seed=0",
        gone="started seconds",
        becomes={
            "options.steps": "steps",
            "options.seed": "seed",
            "SymbolTask('copy')": "SymbolTask()",
            'f"greedy exact match on {len(test)} fresh sequences: {share:.3f}'
            "  (seed {options.seed}, {options.steps} steps,"
            ' {seconds:.0f} s)"': (
                'f"greedy exact match on 1000 fresh sequences: {share:.3f}"'
            ),
            "options.steps >= DEMO_STEPS and share < DEMO_GOAL": "False",
            "return 0": "",
        },
    ),
}


# --- assembling ----------------------------------------------------------


@cache
def assemble() -> str:
    """The file's text, always the same within a process.

    Raises:
        StalePart: an entry of `PARTS` or `CHANGES` fits nothing.
    """
    used: set[str] = set()
    imports: list[ast.stmt] = []
    taken: list[tuple[str, ast.stmt, dict[int, list[str]]]] = []
    for part in PARTS:
        module = _module(part.module)
        imports += [n for n in module.tree.body if _is_import(n)]
        wanted = set(part.names.split())
        head = _heading(part)
        for node in module.tree.body:
            names = _defined(node)
            if not wanted & names:
                continue
            wanted -= names
            name = min(names)
            node = _changed(node, CHANGES.get(name, Change()), name, used)
            quiet = "#" in CHANGES.get(name, Change()).gone.split()
            taken.append((head, node, {} if quiet else module.comments))
            head = ""
        if wanted:
            raise StalePart(f"transformer.{part.module} has no {min(wanted)}")
    if stale := set(_entries()) - used:
        raise StalePart(f"CHANGES: {min(stale)} fits nothing in the source")
    page = ast.Module([node for _, node, _ in taken], [])
    gone = [_inline(page, name) for name in INLINE]
    _Returns().visit(page)
    blocks = [
        head + "\n".join(_emit(node, 0, comments))
        for head, node, comments in taken
        if node not in gone
    ]
    body = "\n\n".join([*blocks, FOOT])
    return "\n".join([HEAD.format(name=NAME), _imports(imports, body), body])


def _heading(part: Part) -> str:
    if not part.title:
        return ""
    several = "s" if "," in part.chapters else ""
    title = f"# --- {part.title} (chapter{several} {part.chapters}) "
    return title.ljust(72, "-") + "\n"


@dataclass(frozen=True)
class _Module:
    tree: ast.Module
    comments: dict[int, list[str]]  # lines of comment above a row


@cache
def _text(module: str) -> str:
    path = files("transformer").joinpath(*module.split("."))
    return Path(f"{path}.py").read_text("utf-8")


def _module(name: str) -> _Module:
    text = _text(name)
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if _is_number(node):
            node.written = ast.get_source_segment(text, node)
    rows, comments = text.splitlines(), {}
    above: list[str] = []
    for number, row in enumerate(rows, 1):
        if row.strip().startswith("#"):
            above.append(row.strip())
        else:
            if above:
                comments[number] = above
            above = []
    return _Module(tree, comments)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _defined(node: ast.stmt) -> set[str]:
    """Names, also of attributes, that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = {ast.Assign: "targets", ast.AnnAssign: "target", ast.AugAssign: "target"}
    found = getattr(node, targets.get(type(node), ""), [])
    found = found if isinstance(found, list) else [found]
    each = [e for t in found for e in getattr(t, "elts", [t])]
    return {n for e in each if (n := getattr(e, "attr", getattr(e, "id", "")))}


def _entries() -> Iterator[str]:
    for name, change in CHANGES.items():
        listed = (change.arguments, change.keywords, change.gone)
        for entry in [*" ".join(listed).split(), *change.becomes]:
            if entry != "#":
                yield f"{name}: {entry}"


# --- leaving out -----------------------------------------------------------


def _changed(node: ast.stmt, change: Change, name: str, used: set[str]) -> ast.stmt:
    node = _Apply(change, name, used).visit(node)
    node = _Plain().visit(_Fold().visit(node))
    if change.says:
        node.says = change.says
    return ast.fix_missing_locations(node)


class _Apply(ast.NodeTransformer):
    """One entry of `CHANGES` on one definition."""

    def __init__(self, change: Change, name: str, used: set[str]) -> None:
        self.change, self.name, self.used = change, name, used

    def noted(self, entry: str) -> None:
        self.used.add(f"{self.name}: {entry}")

    def visit(self, node: ast.AST):
        if isinstance(node, ast.stmt):
            for name in self.change.gone.split():
                if name in _defined(node) or name == _called(node):
                    self.noted(name)
                    return None
        if isinstance(node, ast.stmt | ast.expr):
            text = _read(node)
            if text in self.change.becomes and _is_read(node):
                self.noted(text)
                return self.instead(self.change.becomes[text], node)
        return super().visit(node)

    def instead(self, text: str, old: ast.AST):
        if not text:
            return None
        new = ast.parse(text).body[0]
        for part in ast.walk(new):
            if _is_number(part):
                part.written = ast.get_source_segment(text, part)
        if isinstance(old, ast.stmt):
            return new
        return new.value

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        if self.change.signature:
            return ast.parse(f"def f({self.change.signature}): ...").body[0].args
        required = len(node.args) - len(node.defaults)
        pairs = [
            *zip(node.args, [None] * required + node.defaults, strict=True),
            *zip(node.kwonlyargs, node.kw_defaults, strict=True),
        ]
        positional = {argument.arg for argument in node.args}
        kept: list[tuple[ast.arg, ast.expr | None]] = []
        for argument, default in pairs:
            for entry in self.change.arguments.split():
                if entry.rstrip("=") == argument.arg:
                    self.noted(entry)
                    default = None
            if argument.arg not in self.change.arguments.split():
                kept.append((argument, default))
        plain = [pair for pair in kept if pair[0].arg in positional]
        named = [pair for pair in kept if pair[0].arg not in positional]
        node.args = [argument for argument, _ in plain]
        node.defaults = [default for _, default in plain if default is not None]
        node.kwonlyargs = [argument for argument, _ in named]
        node.kw_defaults = [default for _, default in named]
        return self.generic_visit(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        header = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
        if header in self.change.becomes:
            self.noted(header)
            new = ast.parse(f"{self.change.becomes[header]}: ...").body[0]
            node.target, node.iter = new.target, new.iter
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        callee = ast.unparse(node.func).rpartition(".")[2]
        for entry in self.change.keywords.split():
            name, _, only = entry.partition("@")
            named = [k for k in node.keywords if name == (k.arg or _read(k.value))]
            if named and only in ("", callee):
                self.noted(entry)
                node.keywords = [k for k in node.keywords if k not in named]
        return self.generic_visit(node)


def _read(node: ast.AST) -> str:
    """As `becomes` has it; an f-string in one piece, in every Python."""
    if isinstance(node, ast.JoinedStr):
        return f'f"{_inside(node)}"'
    return ast.unparse(node)


def _is_read(node: ast.AST) -> bool:
    """Names are replaced where they are read, not where they are set."""
    return not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)


def _called(node: ast.stmt) -> str:
    """Name of the function that a statement calls, and does nothing else."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func)
    return ""


class _Fold(ast.NodeTransformer):
    """What has one outcome becomes that outcome; what refuses input goes."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and _is_constant(node.operand):
            return ast.Constant(not node.operand.value)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        decides = isinstance(node.op, ast.Or)
        while len(node.values) > 1 and _is_constant(node.values[0]):
            if bool(node.values[0].value) is decides:
                return node.values[0]
            node.values.pop(0)
        return node if len(node.values) > 1 else node.values[0]

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        sides = (node.left, node.comparators[0])
        if all(map(_is_constant, sides)) and isinstance(
            node.ops[0], ast.Is | ast.IsNot
        ):
            same = sides[0].value is sides[1].value
            return ast.Constant(same is isinstance(node.ops[0], ast.Is))
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if _is_constant(node.test):
            return node.body if node.test.value else node.orelse
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt] | None:
        self.generic_visit(node)
        if _is_constant(node.test):
            return node.body if node.test.value else node.orelse
        refuses = node.body and isinstance(node.body[-1], ast.Raise)
        if (refuses or not node.body) and not node.orelse:
            return None
        return node

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt] | None:
        self.generic_visit(node)
        if ast.unparse(node.iter) == "[None]":  # once
            return node.body
        return node if node.body else None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        for index, statement in enumerate(node.body):
            if isinstance(statement, ast.Return):  # nothing comes after it
                del node.body[index + 1 :]
        for first, second in itertools.pairwise(node.body):
            if _only_unpacks(first, second):
                first.targets = second.targets
                node.body.remove(second)
                break
        return node


def _is_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and (
        node.value is None or isinstance(node.value, bool)
    )


class _Returns(ast.NodeTransformer):
    """A variable that is made for the last line stands in it."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if len(node.body) > 1 and (whole := _returned(*node.body[-2:])):
            node.body[-2:] = [whole]
        return node


def _returned(first: ast.stmt, last: ast.stmt) -> ast.Return | None:
    """`x = f(); return g(x)` as `return g(f())`, where it stays short."""
    if not (isinstance(first, ast.Assign) and isinstance(last, ast.Return)):
        return None
    name = ast.unparse(first.targets[0])
    uses = [n for n in ast.walk(last) if isinstance(n, ast.Name) and n.id == name]
    repeated = [
        use
        for part in ast.walk(last)
        if isinstance(part, ast.ListComp | ast.DictComp | ast.GeneratorExp)
        for use in ast.walk(part)
        if use in uses and use not in ast.walk(part.generators[0].iter)
    ]
    whole = _Names({name: first.value}).visit(copy.deepcopy(last))
    short = len(_written(whole)) <= WIDTH - 12
    return whole if len(uses) == 1 and not repeated and short else None


def _only_unpacks(first: ast.stmt, second: ast.stmt) -> bool:
    """`x = f(); x, y = x`."""
    if not (isinstance(first, ast.Assign) and isinstance(second, ast.Assign)):
        return False
    name = ast.unparse(first.targets[0])
    elements = getattr(second.targets[0], "elts", [])
    return ast.unparse(second.value) == name in map(ast.unparse, elements)


def _inline(page: ast.Module, name: str) -> ast.FunctionDef:
    """Write a function out where it is called; take it off the page.

    Either it has one line, `return ...`; or it is called with variables
    of the names that it gives its own, for results of the same names.
    """
    owner, _, last = name.rpartition(".")
    nodes = page.body
    if owner:
        nodes = next(n for n in nodes if owner in _defined(n)).body
    function = next(n for n in nodes if last in _defined(n))
    nodes.remove(function)
    *before, result = function.body
    arguments = [a.arg for a in function.args.args if a.arg != "self"]

    def called(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).rpartition(".")[2] == last
            and len(node.args) == len(arguments)
        )

    class Write(ast.NodeTransformer):
        def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
            if not (before and called(node.value)):
                return self.generic_visit(node)
            given = [ast.unparse(argument) for argument in node.value.args]
            same = ast.unparse(node.targets[0]) == ast.unparse(result.value)
            if not same or given != arguments:
                raise StalePart(f"{name} has other names than its call")
            return before

        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            if before or not called(node):
                return node
            meant = dict(zip(arguments, node.args, strict=True))
            if owner:
                meant["self"] = node.func.value
            return _Names(meant).visit(copy.deepcopy(result.value))

    Write().visit(page)
    if re.search(rf"\b{last}\(", ast.unparse(page)):
        raise StalePart(f"{name} is called where it cannot be written out")
    return function


class _Names(ast.NodeTransformer):
    """Expressions in the place of names."""

    def __init__(self, meant: dict[str, ast.expr]) -> None:
        self.meant = meant

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.meant.get(node.id, node)


class _Plain(ast.NodeTransformer):
    """Annotations become shapes beside the definition, or go."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.says = _summary(node)
        node.shapes = _shapes(node)
        for argument in [*node.args.args, *node.args.kwonlyargs]:
            argument.annotation = None
        for argument in (node.args.vararg, node.args.kwarg):
            if argument:
                argument.annotation = None
        node.returns = None
        for index, inner in enumerate(node.body):
            if isinstance(inner, ast.AnnAssign):
                plain = ast.Assign([inner.target], inner.value)
                node.body[index] = ast.copy_location(plain, inner)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.says = _summary(node)
        for inner in node.body:
            if isinstance(inner, ast.AnnAssign) and (shape := _shape(inner.annotation)):
                inner.shapes = shape
                inner.annotation = ast.Name("Tensor", ast.Load())
        return self.generic_visit(node)


def _summary(node: ast.FunctionDef | ast.ClassDef) -> str:
    """A docstring's first line; the docstring goes."""
    text = ast.get_docstring(node)
    if not text:
        return ""
    del node.body[0]
    return text.splitlines()[0].removesuffix(".")


def _shapes(node: ast.FunctionDef) -> str:
    """(batch, query, d_k), (batch, key, d_k) -> (batch, query, d_k)."""
    arguments = [*node.args.args, *node.args.kwonlyargs]
    given = [_shape(a.annotation) for a in arguments if a.annotation]
    given = list(dict.fromkeys(filter(None, given)))
    returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
    several = any(isinstance(value, ast.Tuple) for value in returned)
    made = _shape(node.returns, several) if node.returns else ""
    given = f"{', '.join(given)} " if given else ""
    return f"{given}-> {made}" if made else ""


def _shape(annotation: ast.expr, several: bool = False) -> str:
    """The axes that an annotation names; "" if it names none."""
    if isinstance(annotation, ast.BinOp):  # X | None, X | tuple[X, Y]
        sides = (annotation.left, annotation.right)
        found = [_shape(side, several) for side in sides]
        return found[several] or found[0]
    if isinstance(annotation, ast.Name):
        return _shape(alias) if (alias := _aliases().get(annotation.id)) else ""
    if not isinstance(annotation, ast.Subscript):
        return ""
    inside = annotation.slice
    if ast.unparse(annotation.value) == "tuple":
        each = [_shape(e) for e in getattr(inside, "elts", [])]
        return ", ".join(each) if all(each) else ""
    if ast.unparse(annotation.value) not in ("Bool", "Float", "Int"):
        return ""
    axes = inside.elts[1].value
    if axes == "...":
        return ""
    names = ["..." if axis.startswith("*") else axis for axis in axes.split()]
    if not names:
        return "a number"
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


@cache
def _aliases() -> dict[str, ast.expr]:
    """Annotations that have a name: Source, Target, ..."""
    return {
        node.targets[0].id: node.value
        for node in ast.parse(_text("shapes")).body
        if isinstance(node, ast.Assign)
    }


# --- writing it down -------------------------------------------------------


def _emit(node: ast.stmt, depth: int, comments: dict[int, list[str]]) -> list[str]:
    """A statement as lines of `WIDTH` columns at most."""
    indent = "    " * depth
    above = comments.get(getattr(node, "lineno", 0), [])
    lines = [indent + line for line in above]
    if not hasattr(node, "body"):
        written = _wrapped(_written(node), depth)
        shape = getattr(node, "shapes", "")
        return [*lines, *written[:-1], written[-1] + (f"  # {shape}" if shape else "")]
    if isinstance(node, ast.Try):
        lines += [f"{indent}try:", *_block(node.body, depth + 1, comments)]
        return [
            *lines,
            f"{indent}finally:",
            *_block(node.finalbody, depth + 1, comments),
        ]
    head = _head(node)
    first = []
    for line in head:
        first += _wrapped(line, depth)
    body = _block(node.body, depth + 1, comments)
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        first += _beside(first.pop(), node, depth)
    lines += first + body
    if orelse := getattr(node, "orelse", []):
        lines += [f"{indent}else:", *_block(orelse, depth + 1, comments)]
    return lines


def _beside(line: str, node: ast.FunctionDef | ast.ClassDef, depth: int) -> list[str]:
    """What a definition does, or its shapes, after its line.

    What fits; shapes first, but at the top level what it does.
    """
    shapes, says = getattr(node, "shapes", ""), node.says
    out = "-> " + shapes.rpartition("-> ")[2] if shapes else ""
    tried = (shapes, out, says) if depth else (says, shapes, out)
    for text in filter(None, tried):
        if len(f"{line}  # {text}") <= WIDTH:
            return [f"{line}  # {text}"]
    return [line] if depth or not says else [line, f"    # {says}"]


def _head(node: ast.stmt) -> list[str]:
    """Decorators, and the line that ends with a colon."""
    alone = copy.copy(node)
    alone.body, alone.orelse = [ast.Pass()], []
    return _written(alone).splitlines()[:-1]


def _block(
    body: list[ast.stmt], depth: int, comments: dict[int, list[str]]
) -> list[str]:
    lines: list[str] = []
    before = None
    for node in body:
        defines = isinstance(node, ast.FunctionDef)
        apart = defines or isinstance(before, ast.FunctionDef)
        if before is not None and apart:
            lines.append("")
        lines += _emit(node, depth, comments)
        before = node
    return lines or ["    " * depth + "pass"]


# x ** -0.5, which is to be x**-0.5, but not x ** (a / b).
_POWER = r"([\w.]+) \*\* (?:\((-[\w.]+)\)|(-?[\w.]+)(?![\w.(\[]))"


def _written(node: ast.stmt) -> str:
    """A statement on one line, in the book's style."""
    node, texts = copy.deepcopy(node), []

    class Replace(ast.NodeTransformer):
        """Strings and numbers are written here, not by `ast.unparse`."""

        def visit_Constant(self, part: ast.Constant) -> ast.AST:
            if isinstance(part.value, str):
                return self.named(json.dumps(part.value, ensure_ascii=False))
            if getattr(part, "written", None):
                return self.named(part.written)
            return part

        def visit_JoinedStr(self, part: ast.JoinedStr) -> ast.AST:
            return self.named(f'f"{_inside(part)}"')

        def named(self, text: str) -> ast.Name:
            texts.append(text)
            return ast.Name(f"_TEXT{len(texts) - 1}_", ast.Load())

    text = ast.unparse(ast.fix_missing_locations(Replace().visit(node)))
    text = re.sub(_POWER, lambda m: f"{m[1]}**{m[2] or m[3]}", text)
    text = re.sub(r"^(return|[\w., ]+ =) \((.*)\)$", _without_parentheses, text)
    text = re.sub(r"\[:([\w.]+\()", r"[: \1", text)  # a call as a bound
    text = re.sub(r" and \((not [\w. %]+(?:\(\))?)\)", r" and \1", text)
    text = re.sub(r"\(\((.* for .*)\)\)$", r"(\1)", text)
    return re.sub(r"_TEXT(\d+)_", lambda m: texts[int(m[1])], text)


def _inside(node: ast.JoinedStr) -> str:
    """What stands between an f-string's quotes."""
    text = ""
    for part in node.values:
        if isinstance(part, ast.Constant):
            escaped = json.dumps(part.value, ensure_ascii=False)[1:-1]
            text += escaped.replace("{", "{{").replace("}", "}}")
        else:
            spec = f":{_inside(part.format_spec)}" if part.format_spec else ""
            kind = f"!{chr(part.conversion)}" if part.conversion > 0 else ""
            text += f"{{{ast.unparse(part.value)}{kind}{spec}}}"
    return text


def _without_parentheses(match: re.Match) -> str:
    """`return (a, b)` without them, where they hold a tuple."""
    try:
        inside = ast.parse(match[2]).body[0].value
    except (SyntaxError, AttributeError):
        return match[0]
    return f"{match[1]} {match[2]}" if isinstance(inside, ast.Tuple) else match[0]


def _wrapped(text: str, depth: int) -> list[str]:
    """One line, or as many as it takes, broken at the last bracket."""
    indent = "    " * depth
    if len(indent + text) <= WIDTH:
        return [indent + text]
    start, end = _last_bracket(text)
    if start < 0:
        return [indent + text]
    head, inside, tail = text[: start + 1], text[start + 1 : end], text[end:]
    if len(indent) + 4 + len(inside) <= WIDTH:
        body = [f"{indent}    {inside}"]
    else:
        body = []
        for piece in _pieces(inside):
            body += _wrapped(piece, depth + 1)
    return [indent + head, *body, indent + tail]


def _last_bracket(text: str) -> tuple[int, int]:
    """Where the last outermost bracket opens and closes; (-1, -1)."""
    found = [m.span() for m in re.finditer(r"[(\[{]\.+[)\]}]", _outside_brackets(text))]
    return (found[-1][0], found[-1][1] - 1) if found else (-1, -1)


def _pieces(inside: str) -> list[str]:
    """At the outermost commas, or before `for` and `if` of a comprehension."""
    outer = _outside_brackets(inside)
    comprehension = " for " in outer
    between = r"(?= (?:for|if) )" if comprehension else r"(?<=,)"
    cuts = [0, *(m.start() for m in re.finditer(between, outer)), len(inside)]
    pieces = [inside[a:b].strip() for a, b in itertools.pairwise(cuts)]
    return [p if comprehension else p.rstrip(",") + "," for p in pieces if p]


def _outside_brackets(text: str) -> str:
    """The text, with dots where an outermost bracket or a string is open."""
    outer, depth, quoted = "", 0, False
    for i, letter in enumerate(text):
        quoted ^= letter == '"' and text[i - 1 : i] != "\\"
        depth -= not quoted and letter in ")]}"
        outer += "." if depth or quoted else letter
        depth += not quoted and letter in "([{"
    return outer


def _imports(nodes: list[ast.stmt], body: str) -> str:
    """The imports that the page needs, sorted as ruff sorts them."""
    names = {n.id for n in ast.walk(ast.parse(body)) if isinstance(n, ast.Name)}
    plain: set[str] = set()
    members: dict[str, set[str]] = {}
    for node in nodes:
        for alias in node.names:
            if (alias.asname or alias.name) not in names:
                continue
            text = alias.name + (f" as {alias.asname}" if alias.asname else "")
            if isinstance(node, ast.Import):
                plain.add(text)
            elif node.module.partition(".")[0] not in ("transformer", "jaxtyping"):
                members.setdefault(node.module, set()).add(text)
    groups: dict[bool, list[str]] = {True: [], False: []}
    for name in sorted(plain):
        groups[name in sys.stdlib_module_names].append(f"import {name}")
    for name in sorted(members):
        listed = ", ".join(sorted(members[name], key=lambda n: (n.islower(), n)))
        standard = name.partition(".")[0] in sys.stdlib_module_names
        groups[standard].append(f"from {name} import {listed}")
    return "\n\n".join("\n".join(lines) for lines in groups.values() if lines) + "\n"


# --- using it ----------------------------------------------------------------


def load() -> types.ModuleType:
    """The page as a module, run from its text."""
    text = assemble()
    module = types.ModuleType(NAME.removesuffix(".py"))
    linecache.cache[NAME] = (len(text), None, text.splitlines(True), NAME)
    exec(compile(text, NAME, "exec", dont_inherit=True), module.__dict__)
    return module


def show(*names: str) -> AnnotatedSource:
    """Some definitions of the page, as they stand there.

    Args:
        names: such as "Linear" or "MultiHeadAttention.split_heads".

    Raises:
        StalePart: the page has no such definition.
    """
    text = assemble().splitlines()
    lines: list[Line] = []
    for name in names:
        owner, _, method = name.partition(".")
        body = ast.parse("\n".join(text)).body
        for part in filter(None, (owner, method)):
            found = [n for n in body if part in _defined(n)]
            if not found:
                raise StalePart(f"the page has no {name}")
            body = getattr(found[0], "body", [])
        node = found[0]
        first = min(
            [node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]
        )
        if lines:
            lines += [Line(""), Line("")][: 1 if method else 2]
        lines += [Line(text[row - 1], row) for row in range(first, node.end_lineno + 1)]
    return AnnotatedSource(", ".join(names), lines, id="page-" + "-".join(names))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(
        prog="python -m bookkit.one_file", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    text = assemble()
    if options.output is None:
        print(text, end="")
    else:
        options.output.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
