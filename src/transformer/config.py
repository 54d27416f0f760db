"""What a model and a training run are made of: Table 3, validated."""

from __future__ import annotations

from dataclasses import asdict, dataclass

# The ids that mean something to training and decoding alike.
# Ordinary tokens start at 3.
PAD, BOS, EOS = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """The shape of a model, and where it departs from the paper.

    The fields up to `max_length` are Table 3's columns and the
    special ids. Every field below them is a variant: its default is
    the paper as printed.

    Raises:
        ValueError: naming the field, its value and the rule.
    """

    vocab_size: int
    layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    heads: int = 8
    d_k: int | None = None  # d_model / heads
    d_v: int | None = None  # d_model / heads
    dropout: float = 0.1
    pad_id: int = PAD
    bos_id: int = BOS
    eos_id: int = EOS
    max_length: int = 2048

    norm: str = "post"  # or "pre", with a final norm
    layer_norm_eps: float = 1e-6
    attention_bias: bool = False
    attention_dropout: float = 0.0
    activation: str = "relu"  # or "gelu", "swish"
    activation_dropout: float = 0.0
    positions: str = "sinusoidal"  # or "learned"
    sinusoid_layout: str = "interleaved"  # or "concatenated"
    sinusoid_spacing: str = "printed"  # or "published"
    target_vocab_size: int | None = None  # the source's
    tied: bool = True  # one matrix in three places
    output_bias: bool = False
    start_id: int | None = None  # bos_id

    def __post_init__(self) -> None:
        for name, default in self._defaults().items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        self._check()

    def _defaults(self) -> dict[str, int]:
        _at_least(1, self, "d_model", "heads")
        free = self.d_k is not None and self.d_v is not None
        if self.d_model % self.heads and not free:
            raise ValueError(
                f"d_model={self.d_model} is not divisible by heads="
                f"{self.heads}: choose a multiple, or give d_k and d_v"
                " yourself"
            )
        return {
            "d_k": self.d_model // self.heads,
            "d_v": self.d_model // self.heads,
            "target_vocab_size": self.vocab_size,
            "start_id": self.bos_id,
        }

    def _check(self) -> None:
        _at_least(1, self, "vocab_size", "target_vocab_size")
        _at_least(1, self, "layers", "d_model", "d_ff", "heads")
        _at_least(1, self, "d_k", "d_v", "max_length")
        _share(self, "dropout", "attention_dropout")
        _share(self, "activation_dropout")
        _one_of(self, "norm", "post", "pre")
        _one_of(self, "activation", "relu", "gelu", "swish")
        _one_of(self, "positions", "sinusoidal", "learned")
        _one_of(self, "sinusoid_layout", "interleaved", "concatenated")
        _one_of(self, "sinusoid_spacing", "printed", "published")
        if not self.layer_norm_eps > 0:
            raise ValueError(
                f"layer_norm_eps={self.layer_norm_eps} must be above 0"
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(
                f"d_model={self.d_model} must be even: sinusoidal"
                " positions come in pairs of a sine and a cosine"
            )
        if self.tied and self.target_vocab_size != self.vocab_size:
            raise ValueError(
                f"tied=True needs one vocabulary, but vocab_size="
                f"{self.vocab_size} and target_vocab_size="
                f"{self.target_vocab_size}: pass tied=False"
            )
        smallest = min(self.vocab_size, self.target_vocab_size)
        for name in ("pad_id", "bos_id", "eos_id", "start_id"):
            value = getattr(self, name)
            if value not in range(smallest):
                raise ValueError(
                    f"{name}={value!r} is not an id of a vocabulary of"
                    f" {smallest}"
                )
        if self.eos_id in (self.pad_id, self.bos_id, self.start_id):
            raise ValueError(
                f"eos_id={self.eos_id} must differ from pad_id="
                f"{self.pad_id}, bos_id={self.bos_id} and start_id="
                f"{self.start_id}: decoding could not tell them apart"
            )
        if self.pad_id == self.bos_id:
            raise ValueError(
                f"pad_id and bos_id are both {self.pad_id}: padding"
                " must be an id of its own (start_id may be pad_id)"
            )

    @property
    def banned_ids(self) -> list[int]:
        """What decoding never says.

        That is PAD where it is the start token, as in MarianMT: then
        it is no stranger to the decoder.
        """
        return [self.pad_id] if self.start_id == self.pad_id else []

    def to_dict(self) -> dict:
        """Every field as JSON can hold it."""
        return asdict(self)

    @classmethod
    def base(cls, vocab_size: int = 37000, **changes):
        """Table 3's base model."""
        return cls(vocab_size=vocab_size, **changes)

    @classmethod
    def big(cls, vocab_size: int = 37000, **changes):
        """Table 3's big model."""
        shape = dict(d_model=1024, d_ff=4096, heads=16, dropout=0.3)
        return cls(vocab_size=vocab_size, **(shape | changes))

    @classmethod
    def small(cls, vocab_size: int = 8000, **changes):
        """Ours: trains on real text on a laptop."""
        shape = dict(layers=3, d_model=256, d_ff=1024, heads=4)
        return cls(vocab_size=vocab_size, **(shape | changes))

    @classmethod
    def tiny(cls, vocab_size: int = 13, **changes):
        """Ours: learns the toy tasks in seconds, without dropout."""
        shape = dict(layers=2, d_model=64, d_ff=256, heads=2)
        shape |= dict(dropout=0.0, max_length=256)
        return cls(vocab_size=vocab_size, **(shape | changes))

    @classmethod
    def table3(cls, row: str, vocab_size: int = 37000, **changes):
        """A row of Table 3, such as "A-h1", "B-dk16" or "C-N2"."""
        shape = _table3_row(row)[0]
        return cls(vocab_size=vocab_size, **(shape | changes))


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """One training run: section 5, with section 6.1's averaging.

    `steps` counts updates of the weights. `accumulate` batches make
    one update. The last `average_last` snapshots, taken every
    `snapshot_every` steps, are averaged at the end; 0 or 1 keeps the
    last weights as they are.

    Raises:
        ValueError: naming the field, its value and the rule.
    """

    steps: int = 100_000
    warmup_steps: int = 4000
    factor: float = 1.0
    betas: tuple[float, float] = (0.9, 0.98)
    adam_eps: float = 1e-9
    label_smoothing: float = 0.1
    accumulate: int = 1
    average_last: int = 5
    snapshot_every: int = 1500  # 10 minutes of 0.4 s steps
    seed: int = 0

    def __post_init__(self) -> None:
        _at_least(1, self, "steps", "warmup_steps", "accumulate")
        _at_least(1, self, "snapshot_every")
        _at_least(0, self, "average_last")
        _share(self, "label_smoothing")
        if not self.factor > 0:
            raise ValueError(f"factor={self.factor} must be above 0")
        if not self.adam_eps > 0:
            raise ValueError(
                f"adam_eps={self.adam_eps} must be above 0"
            )
        if len(self.betas) != 2 or not all(
            0 <= beta < 1 for beta in self.betas
        ):
            raise ValueError(
                f"betas={self.betas} must be two numbers of at least"
                " 0 and below 1"
            )

    @classmethod
    def copy_task(cls, **changes):
        """Ours, for the toy tasks: equation 3's shape, made short.

        Factor and warm-up are chosen so that the rate peaks at 3e-3
        for d_model=64; a snapshot every 25 steps.
        """
        run = dict(steps=500, warmup_steps=100, factor=0.24)
        run |= dict(snapshot_every=25)
        return cls(**(run | changes))

    @classmethod
    def table3(cls, row: str, **changes):
        """The run of a row of Table 3: no averaging, as 6.2 says."""
        run = _table3_row(row)[1]
        return cls(**(dict(average_last=0) | run | changes))


def table3_rows() -> list[str]:
    """The names that `table3` takes, in the order of the table."""
    return list(_TABLE3)


def _table3_row(row: str) -> tuple[dict, dict]:
    if row not in _TABLE3:
        raise ValueError(
            f"row={row!r} is not in Table 3: choose one of"
            f" {', '.join(_TABLE3)}"
        )
    return _TABLE3[row]


_BIG = dict(d_model=1024, d_ff=4096, heads=16, dropout=0.3)
# Each row: what changes in the model, what changes in training.
_TABLE3: dict[str, tuple[dict, dict]] = {
    "base": ({}, {}),
    "A-h1": (dict(heads=1, d_k=512, d_v=512), {}),
    "A-h4": (dict(heads=4, d_k=128, d_v=128), {}),
    "A-h16": (dict(heads=16, d_k=32, d_v=32), {}),
    "A-h32": (dict(heads=32, d_k=16, d_v=16), {}),
    "B-dk16": (dict(d_k=16), {}),
    "B-dk32": (dict(d_k=32), {}),
    "C-N2": (dict(layers=2), {}),
    "C-N4": (dict(layers=4), {}),
    "C-N8": (dict(layers=8), {}),
    "C-d256": (dict(d_model=256, d_k=32, d_v=32), {}),
    "C-d1024": (dict(d_model=1024, d_k=128, d_v=128), {}),
    "C-ff1024": (dict(d_ff=1024), {}),
    "C-ff4096": (dict(d_ff=4096), {}),
    "D-drop0.0": (dict(dropout=0.0), {}),
    "D-drop0.2": (dict(dropout=0.2), {}),
    "D-ls0.0": ({}, dict(label_smoothing=0.0)),
    "D-ls0.2": ({}, dict(label_smoothing=0.2)),
    "E-learned": (dict(positions="learned"), {}),
    "big": (_BIG, dict(steps=300_000)),
}


def _at_least(smallest: int, config, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < smallest:
            raise ValueError(
                f"{name}={value!r} must be a whole number of at least"
                f" {smallest}"
            )


def _share(config, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int | float) or not 0 <= value < 1:
            raise ValueError(
                f"{name}={value!r} must be at least 0 and below 1"
            )


def _one_of(config, name: str, *choices: str) -> None:
    if getattr(config, name) not in choices:
        raise ValueError(
            f"{name}={getattr(config, name)!r} must be one of"
            f" {', '.join(map(repr, choices))}"
        )
