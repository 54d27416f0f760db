"""Where heads look, in numbers, and by which rule one of them is shown.

Chapter 19. Attention weights are those of one pair of sentences:
(layer, head, query, key), as `maps` gives them. What a head may look
for is a table of (query, key), True where a key is what is looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bookkit.report import Exam, Report
from transformer import Transformer, TransformerConfig, padding_mask
from transformer.attention import recording
from transformer.config import EOS
from transformer.data.batches import make_batch, pad, shift
from transformer.data.tokenizer import SPECIAL, BytePairEncoding
from transformer.data.toy import english

END = SPECIAL[EOS]
MARKS = set(",;:.()")
APART = [d for d in range(-6, 7) if abs(d) > 1]  # tokens, for `clause_ratio`

Maps = dict[str, Tensor]
Head = tuple[int, int]  # layer and head, from 0


@torch.no_grad()
def maps(
    model: Transformer,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    batch_size: int = 32,
) -> Iterator[Maps]:
    """The weights of each pair, one pair after another.

    Args:
        pairs: ids of source and target, without special ids.

    Yields:
        "encoder", "decoder" and "cross", each (layer, head, query,
        key), without padding. A query of the decoder is the row that
        writes a token: row 0 is given <s> and writes the first.
    """
    model.eval()
    for start in range(0, len(pairs), batch_size):
        some = pairs[start : start + batch_size]
        batch = make_batch(*zip(*some, strict=True))
        given, _ = shift(batch.target)
        _, weights = model(batch.source, given, return_attention=True)
        for i, (source, target) in enumerate(some):
            n, m = len(source) + 1, len(target) + 1
            sizes = {"encoder": (n, n), "decoder": (m, m), "cross": (m, n)}
            yield {
                kind: weights[kind][:, i, :, :rows, :columns]
                for kind, (rows, columns) in sizes.items()
            }


@torch.no_grad()
def encoder_maps(
    model: Transformer, sources: Sequence[Sequence[int]], *, batch_size: int = 32
) -> list[Tensor]:
    """The encoder's weights alone: (layer, head, query, key) of each source.

    Args:
        sources: ids without special ids.
    """
    model.eval()
    parts = [layer.self_attention for layer in model.encoder.layers]
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    found: dict[int, Tensor] = {}
    for start in range(0, len(order), batch_size):
        some = order[start : start + batch_size]
        ids = pad([[*sources[i], EOS] for i in some])
        with recording(parts):
            model.encode(ids, padding_mask(ids, model.config.pad_id))
            weights = torch.stack([part.weights for part in parts])
        for row, i in enumerate(some):
            n = len(sources[i]) + 1
            found[i] = weights[:, row, :, :n, :n]
    return [found[i] for i in range(len(sources))]


def encoded(
    tokenizer: BytePairEncoding, texts: Sequence[str]
) -> tuple[list[list[int]], list[list[str]]]:
    """The ids of each text, and its pieces with the end mark."""
    ids = tokenizer.encode(texts)
    return ids, [pieces(tokenizer, one) for one in ids]


def untrained(config: TransformerConfig, seed: int) -> Transformer:
    """A model of that shape; the random state outside is left."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Transformer(config).eval()


def pieces(tokenizer: BytePairEncoding, ids: Iterable[int]) -> list[str]:
    """As they are written, with the end mark."""
    return [*map(tokenizer.tokenizer.id_to_token, ids), END]


def unpack(digits: str, *shape: int) -> Tensor:
    """Weights that were kept as thousandths, two digits to base 32 each."""
    found = [int(digits[i : i + 2], 32) for i in range(0, len(digits), 2)]
    return torch.tensor(found).view(shape) / 1000


# --- what is looked for ------------------------------------------------------


def places(tokens: Sequence[str]) -> dict[str, Tensor]:
    """What a head of self-attention may look for, by the place alone."""
    place = torch.arange(len(tokens))
    offset = place[None, :] - place[:, None]
    end = torch.tensor([token == END for token in tokens])
    return {
        "token before": offset == -1,
        "itself": offset == 0,
        "token after": offset == 1,
        "end mark": end[None, :] & (offset != 0),
    }


def copied(source: Sequence[str], written: Sequence[str]) -> Tensor:
    """Names and figures that stand once on either side: (row, source).

    Pieces with a capital or a digit, such as "▁Writer" or "2". That
    the one comes from the other is as good as certain.
    """
    once = [
        token
        for token in set(source) & set(written)
        if source.count(token) == written.count(token) == 1
        and any(letter.isupper() or letter.isdigit() for letter in token)
    ]
    wanted = torch.zeros(len(written), len(source), dtype=torch.bool)
    for token in once:
        wanted[written.index(token), source.index(token)] = True
    return wanted


def aligned(number: int) -> list[int | None]:
    """For each piece of `german(number)` its word in `english(number)`.

    21 -> [1, None, 0]: "ein" is "one", "zwanzig" is "twenty", and
    "und" has no counterpart.
    """
    for unit in (1000, 100):
        if number >= unit:
            before = aligned(number // unit)
            mark = len(english(number // unit))
            rest = aligned(number % unit) if number % unit else []
            after = [None if i is None else i + mark + 1 for i in rest]
            return [*before, mark, *after]
    return [1, None, 0] if number > 20 and number % 10 else [0]


def swapped(number: int) -> Tensor:
    """Ones and tens that change places: (row, English word and <eos>)."""
    right = aligned(number)
    wanted = torch.zeros(len(right) + 1, len(english(number)) + 1, dtype=torch.bool)
    for und, word in enumerate(right):
        if word is None:
            for row in (und - 1, und + 1):
                wanted[row, right[row]] = True
    return wanted


# --- scores ------------------------------------------------------------------


def shares(weights: Tensor, wanted: Tensor) -> Tensor:
    """How much of its weight each head gives to the wanted keys.

    Returns:
        (layer, head, row), rows without a wanted key left out.
    """
    return (weights * wanted).sum(-1)[..., wanted.any(-1)]


def hits(weights: Tensor, wanted: Tensor) -> Tensor:
    """Whether a row's largest weight lies on a wanted key, as 0 or 1.

    Returns:
        (layer, head, row), rows without a wanted key left out.
    """
    first = weights.argmax(-1, keepdim=True)
    found = wanted.expand(weights.shape).gather(-1, first)[..., 0]
    return found[..., wanted.any(-1)].float()


def entropy(weights: Tensor) -> Tensor:
    """How widely each row looks, in bits: (layer, head, row)."""
    return torch.special.entr(weights).sum(-1) / torch.log(torch.tensor(2.0))


def place_scores(
    maps: Iterable[Tensor], sentences: Iterable[Sequence[str]]
) -> dict[str, Tensor]:
    """Mean share of each head's weight on each of the `places`.

    Args:
        maps: weights of self-attention, (layer, head, query, key).
        sentences: the tokens of each.

    Returns:
        From what is looked for to (layer, head).
    """
    found: dict[str, list[Tensor]] = {}
    for weights, tokens in zip(maps, sentences, strict=True):
        for name, wanted in places(tokens).items():
            found.setdefault(name, []).append(shares(weights, wanted))
    return {name: torch.cat(many, -1).mean(-1) for name, many in found.items()}


def clause_weights(
    maps: Iterable[Tensor], sentences: Iterable[Sequence[str]]
) -> tuple[Tensor, Tensor]:
    """Weights between words of a clause, and between those of two.

    Words 2 to 6 tokens apart are compared: those with no mark between
    them, and those of the same sentence, distance and direction with
    one. Pieces of one word count as words.

    Args:
        maps: weights of self-attention, (layer, head, query, key).
        sentences: the tokens of each.

    Returns:
        Mean weight without a mark between and with one, each
        (comparison, layer, head).

    Raises:
        ValueError: no sentence has both.
    """
    within, across = [], []
    for weights, tokens in zip(maps, sentences, strict=True):
        bare = [token.strip("▁") for token in tokens]
        mark = torch.tensor([token in MARKS for token in bare])
        word = ~mark & torch.tensor([token not in ("", END) for token in bare])
        clause = mark.cumsum(0)
        both = word[:, None] & word[None, :]
        same = both & (clause[:, None] == clause[None, :])
        for apart in APART:
            inside = same.diagonal(apart)
            outside = (both & ~same).diagonal(apart)
            if inside.any() and outside.any():
                along = weights.diagonal(apart, -2, -1)
                within.append(along[..., inside].mean(-1))
                across.append(along[..., outside].mean(-1))
    if not within:
        raise ValueError("sentences: none has words with a mark between and without")
    return torch.stack(within), torch.stack(across)


def clause_ratio(maps: Iterable[Tensor], sentences: Iterable[Sequence[str]]) -> Tensor:
    """Weight within a clause over weight across a mark, (layer, head).

    One mean of `clause_weights` over the other. A head that looks by
    distance alone has a ratio of 1.
    """
    within, across = clause_weights(maps, sentences)
    return within.mean(0) / across.mean(0)


@dataclass(frozen=True)
class Looks:
    """Where the heads of an encoder look, over a set of sentences.

    Args:
        maps: weights of each sentence, (layer, head, query, key).
        sentences: the tokens of each.
    """

    maps: list[Tensor]
    sentences: list[list[str]]

    @classmethod
    def of(
        cls, model: Transformer, tokenizer: BytePairEncoding, texts: Sequence[str]
    ) -> Looks:
        """What a model does with some texts."""
        ids, sentences = encoded(tokenizer, texts)
        return cls(encoder_maps(model, ids), sentences)

    @cached_property
    def places(self) -> dict[str, Tensor]:
        """`place_scores` on these sentences."""
        return place_scores(self.maps, self.sentences)

    @property
    def table(self) -> Tensor:
        """The same, heads one after another: (head, place)."""
        return torch.stack([*self.places.values()], -1).flatten(0, 1)

    def clauses(self, part: slice = slice(None)) -> Tensor:
        """`clause_ratio` on these sentences, or on a part of them."""
        return clause_ratio(self.maps[part], self.sentences[part])

    def clause_weights(self) -> tuple[Tensor, Tensor]:
        """`clause_weights` on these sentences."""
        return clause_weights(self.maps, self.sentences)


def check_before(mine: Callable[[Tensor], Tensor]) -> Report:
    """The mean share of the token before, as a reader computes it.

    Args:
        mine: (layer, head, query, key) -> (layer, head).

    Raises:
        CheckFailed: with the failing examples.
    """
    exam = Exam("token before", mine)
    hand = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.2, 0.8, 0.0]])
    draw = torch.Generator().manual_seed(19)
    some = torch.randn(2, 3, 5, 5, generator=draw).softmax(-1)
    for statement, weights in (
        ("rows b and c count, row a does not", hand[None, None]),
        ("each layer and head has its own number", some),
    ):
        before = places("x" * weights.size(-1))["token before"]
        expected = shares(weights, before).mean(-1)
        exam.equal(statement, dict(weights=weights), expected)
    return exam.close()


# --- which head --------------------------------------------------------------


def best(scores: Tensor) -> Head:
    """Layer and head of the highest score, of (layer, head)."""
    return divmod(scores.argmax().item(), scores.size(1))


def drawn(scores: Tensor, seed: int) -> Head:
    """Layer and head drawn at random, whatever their score."""
    generator = torch.Generator().manual_seed(seed)
    pick = torch.randint(scores.numel(), (1,), generator=generator).item()
    return divmod(pick, scores.size(1))


def label(head: Head) -> str:
    """(1, 2) -> "2.3": layer 2, head 3, counted from 1."""
    return f"{head[0] + 1}.{head[1] + 1}"


def names(scores: Tensor) -> list[str]:
    """The label of each head of (layer, head), in order."""
    layers, heads = scores.shape[:2]
    return [label((i, j)) for i in range(layers) for j in range(heads)]


@contextmanager
def removed(model: Transformer, kind: str, head: Head) -> Iterator[None]:
    """Within it, what one head puts out is not read.

    Args:
        kind: "encoder", "decoder" or "cross".
    """
    stack = model.encoder if kind == "encoder" else model.decoder
    layer = stack.layers[head[0]]
    part = layer.cross_attention if kind == "cross" else layer.self_attention
    weight = part.project_output.weight
    width = weight.size(1) // part.heads
    own = slice(head[1] * width, (head[1] + 1) * width)
    before = weight[:, own].detach().clone()
    with torch.no_grad():
        weight[:, own] = 0
    try:
        yield
    finally:
        with torch.no_grad():
            weight[:, own] = before
