"""Your own parts in place of the book's: `with use(...):`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import transformer
import transformer.cli  # every module, so that none is missed

# The eight parts of a Transformer of one's own, and the names in
# `transformer` that make up each. Any one of the names counts.
PARTS: dict[str, tuple[str, ...]] = {
    "attention": ("scaled_dot_product_attention",),
    "heads": ("MultiHeadAttention",),
    "masks": ("padding_mask", "causal_mask"),
    "feed-forward": ("PositionwiseFeedForward",),
    "embedding": ("TokenEmbedding",),
    "positions": ("PositionalEncoding", "sinusoidal_encoding"),
    "layers": ("EncoderLayer", "DecoderLayer", "AddAndNorm"),
    "loss and schedule": ("LabelSmoothingLoss", "NoamScheduler"),
}

# What `use` took the place of: (module, name, the book's own object).
_replaced: list[tuple[Any, str, Any]] = []
_in_use: dict[str, Any] = {}


@contextmanager
def use(**parts: Any) -> Iterator[str]:
    """Models built and training started inside it use your parts.

        with use(scaled_dot_product_attention=mine):
            model = Transformer(config)
            train(model, batches, training)

    A model keeps the parts with which it was built. A part of yours
    that calls the book's imports it by name (`from transformer
    import ...`): inside, `transformer.NAME` is yours.

    Your part is called as the book's is. A keyword that yours does
    not take is left out while it asks for nothing (dropout=0.0,
    cache=None); asked for more, the call fails and names the keyword.
    Heads or decoder layers without `cache` decode without a cache.

    Args:
        parts: names of `PARTS` and what takes their place.

    Yields:
        How many of the eight parts are yours, in words.

    Raises:
        TypeError: a name that is not in `PARTS`, or a value that
            cannot be called.
    """
    known = [name for names in PARTS.values() for name in names]
    for name, part in parts.items():
        if name not in known:
            raise TypeError(
                f"{name!r} is no part of the model. The parts are {', '.join(known)}"
            )
        if not callable(part):
            raise TypeError(
                f"{name}={part!r} must be a class or a function that"
                f" is called as transformer.{name} is"
            )
    fitted = {
        name: fit(part, getattr(transformer, name), name)
        for name, part in parts.items()
    }
    before = dict(_in_use)
    _in_use.update(parts)
    try:
        with replaced(**fitted):
            yield yours()
    finally:
        _in_use.clear()
        _in_use.update(before)


def yours() -> str:
    """How many of the eight parts are the reader's, in words."""
    mine = [
        part for part, names in PARTS.items() if any(name in _in_use for name in names)
    ]
    listed = f": {', '.join(mine)}" if mine else ""
    return f"your Transformer: {len(mine)} of {len(PARTS)} parts are yours{listed}"


@contextmanager
def replaced(**objects: Any) -> Iterator[None]:
    """Replace names in every module of `transformer` that has them.

    `Class__method=function` replaces a method. Everything is put
    back on exit.

    Raises:
        TypeError: no module of `transformer` has the name.
    """
    undo: list[tuple[Any, str, Any]] = []
    try:
        for name, new in objects.items():
            places = list(_places(name))
            if not places:
                raise TypeError(f"transformer has no {name!r}")
            for owner, attribute in places:
                old = owner.__dict__[attribute]
                undo.append((owner, attribute, old))
                _replaced.append((owner, attribute, old))
                setattr(owner, attribute, new)
        yield
    finally:
        for owner, attribute, old in reversed(undo):
            setattr(owner, attribute, old)
            _replaced.pop()


@contextmanager
def originals() -> Iterator[None]:
    """Within it everything is the book's own again."""
    now = [(o, name, o.__dict__[name]) for o, name, _ in _replaced]
    for owner, name, old in reversed(_replaced):
        setattr(owner, name, old)
    try:
        yield
    finally:
        for owner, name, new in now:
            setattr(owner, name, new)


def _places(name: str) -> Iterator[tuple[Any, str]]:
    """Where a name stands: modules, or a class for Class__method."""
    owner, _, method = name.partition("__")
    if owner and method:
        yield getattr(transformer, owner), method
        return
    for module_name, module in sorted(sys.modules.copy().items()):
        ours = module_name.split(".")[0] == "transformer"
        if ours and name in vars(module):
            yield module, name


def fit(mine: Callable, ours: Callable, name: str) -> Callable:
    """`mine`, able to take and leave out the keywords of `ours`.

    A class becomes a subclass of itself whose constructor and
    `forward` are fitted; a function becomes a wrapper.
    """
    if not inspect.isclass(mine):
        return _lenient(mine, ours, name)
    body: dict[str, Any] = {
        "__init__": _lenient(mine.__init__, ours.__init__, name),
        "__module__": mine.__module__,
        "__doc__": mine.__doc__,
    }
    if hasattr(mine, "forward") and hasattr(ours, "forward"):
        body["forward"] = _lenient(mine.forward, ours.forward, name)
        if "cache" in _keywords(ours.forward):
            body["caches"] = _takes(mine.forward, "cache")
    return type(mine.__name__, (mine,), body)


def _lenient(mine: Callable, ours: Callable, name: str) -> Callable:
    neutral = _keywords(ours)
    unknown = [key for key in neutral if not _takes(mine, key)]
    if not unknown:
        return mine

    @functools.wraps(mine)
    def call(*args: Any, **keywords: Any) -> Any:
        for key in unknown:
            if key not in keywords:
                continue
            value = keywords.pop(key)
            if not _asks_nothing(key, value, neutral[key], args):
                raise TypeError(
                    f"your {name} takes no {key!r}, but here it is"
                    f" called with {key}={value!r}: add the keyword,"
                    " or change the configuration so that it is not"
                    " needed"
                )
        return mine(*args, **keywords)

    return call


def _keywords(function: Callable) -> dict[str, Any]:
    """Keyword-only parameters and their defaults."""
    return {
        p.name: p.default
        for p in inspect.signature(function).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    }


def _takes(function: Callable, keyword: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # written in C, without a signature
        return False
    return any(p.kind is p.VAR_KEYWORD or p.name == keyword for p in parameters)


def _asks_nothing(key: str, value: Any, default: Any, args: tuple):
    if key in ("d_k", "d_v"):  # args: self, d_model, heads
        return value is None or value * args[2] == args[1]
    if key == "dropout":
        return value == 0
    return value is default or value == default
