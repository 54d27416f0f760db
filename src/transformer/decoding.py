"""Sections 3 and 6.1: one token at a time, greedily or with a beam."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.config import TransformerConfig
from transformer.model import Transformer


@torch.no_grad()
def greedy_decode(
    model: Transformer,
    source: Int[Tensor, "batch source"],
    *,
    max_length: int | None = None,
    use_cache: bool = True,
) -> Int[Tensor, "batch output"]:
    """Take the likeliest token at each step, until EOS.

    Args:
        source: token ids, padded on the right.
        max_length: tokens to give at most, EOS counted; the source's
            length + 50 if None, as in section 6.1. Never more than
            the configuration's max_length.
        use_cache: keep keys and values of earlier steps. The output
            is the same; without, each step computes all of them.

    Returns:
        Token ids without the start token, with EOS, then padding: as
        many columns as the longest output needs. A sequence that met
        the limit has no EOS.

    Raises:
        TypeError, ValueError: as `Transformer.encode` does; or
            max_length is below 1.

    The model decodes in evaluation mode and is left in the mode in
    which it came.
    """
    config = model.config
    if max_length is None:
        max_length = source.size(-1) + 50
    if max_length < 1:
        raise ValueError(f"max_length={max_length} must be at least 1")
    max_length = min(max_length, config.max_length)
    with evaluation_mode(model):
        mask, _, _ = model.build_masks(source, source)
        memory = model.encode(source, mask)
        cache = model.new_cache() if use_cache else None
        output = source.new_full((len(source), 1), config.start_id)
        finished = torch.zeros_like(output, dtype=torch.bool)
        while output.size(1) <= max_length and not finished.all():
            _, target_mask, _ = model.build_masks(source, output)
            hidden = model.decode(
                output, memory, target_mask, mask, cache=cache
            )
            logits = model.output_projection(hidden[:, -1:])
            logits[..., config.banned_ids] = -math.inf
            token = logits.argmax(dim=-1)
            token = token.masked_fill(finished, config.pad_id)
            output = torch.cat([output, token], dim=1)
            finished |= token == config.eos_id
    return output[:, 1:]


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Within it no dropout; after it every module's own mode again."""
    modes = {part: part.training for part in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


@dataclass(frozen=True)
class Hypothesis:
    """An output that beam search has found.

    Args:
        ids: without the start token. The last is EOS, unless the
            limit of length came first.
        log_probability: of all `ids`, the natural logarithm.
        score: log_probability over the length penalty; the higher
            the better.
        finished: it ends with EOS.
    """

    ids: list[int]
    log_probability: float
    score: float
    finished: bool


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6) ** alpha, as GNMT and section 6.1 have it.

    Without it a short output would win, for each token makes the
    probability smaller. `length` counts EOS; alpha 0 does nothing.
    """
    return ((5 + length) / 6) ** alpha


@torch.no_grad()
def beam_search(
    model: Transformer,
    source: Int[Tensor, "batch source"],
    *,
    beam_size: int = 4,
    alpha: float = 0.6,
    max_extra: int = 50,
    max_length: int | None = None,
    n_best: int = 1,
    banned: Sequence[int] = (),
    use_cache: bool = True,
) -> list[list[Hypothesis]]:
    """Section 6.1: follow the likeliest few outputs at once.

    At each step every live hypothesis of a sentence is continued by
    every token, and the likeliest continuations stay. One that says
    EOS is finished: it is left as it is and keeps its place in the
    beam, so that `beam_size` hypotheses, live and finished, are all
    that a sentence ever has. A beam of 1 is greedy decoding.

    Args:
        source: token ids, padded on the right.
        beam_size: hypotheses of a sentence.
        alpha: of the length penalty; 0 for none.
        max_extra: an output may have so many tokens more than its
            own source, EOS counted on both sides, and never more
            than the configuration's max_length.
        max_length: this limit for all sentences instead.
        n_best: hypotheses to return of each sentence.
        banned: ids that are never said, besides the
            configuration's banned_ids. The probabilities of the
            others stay as the model gives them.
        use_cache: as in `greedy_decode`.

    Returns:
        For each sentence its best hypotheses, the best first. Those
        that met the limit without EOS come after all finished ones.
        Fewer than n_best only where there are not as many sequences.

    Raises:
        TypeError, ValueError: as `Transformer.encode` does; or an
            argument is out of range, which is named.
        FloatingPointError: a probability is not a number.

    A sentence is done when no hypothesis of it lives, or when none
    that lives can still become one of the n best: probabilities only
    fall, so the best live one over the penalty at the limit bounds
    all that can come. What is found for a sentence does not depend on
    the others in the batch. Among equal probabilities the choice is
    `torch.topk`'s. The model decodes in evaluation mode and is left
    in the mode in which it came.
    """
    config = model.config
    check_search(config, beam_size, alpha, n_best, banned)
    check_limits(max_extra, max_length)
    with evaluation_mode(model):
        decoder = StepwiseDecoder(model, source, use_cache)
        found = [
            Found(beam_size, n_best, alpha, limit)
            for limit in limits(config, source, max_extra, max_length)
        ]
        beams = Beams(found, config, source)
        while beams.found:
            log_probabilities = decoder.step(beams.output)
            log_probabilities[:, list(banned)] = -math.inf
            decoder.select(beams.advance(log_probabilities))
    return [sentence.best() for sentence in found]


class Found:
    """The hypotheses of one sentence that have ended.

    Args:
        beam_size, n_best, alpha: as in `beam_search`.
        limit: tokens that an output of the sentence may have.
    """

    def __init__(
        self, beam_size: int, n_best: int, alpha: float, limit: int
    ) -> None:
        self.beam_size, self.n_best = beam_size, n_best
        self.alpha, self.limit = alpha, limit
        self.hypotheses: list[Hypothesis] = []

    def add(
        self, ids: list[int], log_probability: float, finished: bool
    ) -> None:
        """Score a hypothesis for good."""
        score = self.score(log_probability, len(ids))
        self.hypotheses.append(
            Hypothesis(ids, log_probability, score, finished)
        )

    def score(self, log_probability: float, length: int) -> float:
        """The log-probability over the length penalty."""
        return log_probability / length_penalty(length, self.alpha)

    @property
    def free(self) -> int:
        """Places of the beam that no ended hypothesis holds."""
        return self.beam_size - len(self.hypotheses)

    def goes_on(self, best_live: float) -> bool:
        """Whether a live hypothesis may become one of the n best.

        Args:
            best_live: the highest log-probability of a live one, or
                -inf if none lives.
        """
        if len(self.hypotheses) < self.n_best:
            return best_live > -math.inf
        worst = self.best()[-1].score
        return self.score(best_live, self.limit) >= worst

    def best(self) -> list[Hypothesis]:
        """The n best so far, finished ones before others."""
        return sorted(
            self.hypotheses, key=lambda h: (not h.finished, -h.score)
        )[: self.n_best]


class Beams:
    """The live hypotheses of the sentences that still go on.

    Args:
        found: takes the hypotheses that end, one for each sentence.
        config: the model's.
        source: the sentences' token ids.

    Every sentence has as many slots, one at first, later up to
    beam_size. `output` has a row for each slot, the start token and
    what was said, the rows of a sentence next to each other; `total`
    holds the log-probabilities, -inf where a slot is empty.
    """

    def __init__(
        self,
        found: list[Found],
        config: TransformerConfig,
        source: Int[Tensor, "sentences source"],
    ) -> None:
        self.found = found
        self.eos_id = config.eos_id
        self.output = source.new_full((len(source), 1), config.start_id)
        self.total = torch.zeros(len(source), 1, device=source.device)

    def advance(
        self, log_probabilities: Float[Tensor, "rows vocab"]
    ) -> Int[Tensor, "new_rows"]:
        """Say one token more; keep those that live on.

        Returns:
            For each row of the new `output` the old row that it
            continues.
        """
        total, parent, token = self.continuations(log_probabilities)
        output = torch.cat([self.output[parent], token[..., None]], -1)
        total = self.end(output, total)
        going = [
            i
            for i, best_live in enumerate(total.amax(1).tolist())
            if self.found[i].goes_on(best_live)
        ]
        self.found = [self.found[i] for i in going]
        self.total = total[going]
        self.output = output[going].flatten(0, 1)
        return parent[going].flatten()

    def continuations(
        self, log_probabilities: Float[Tensor, "rows vocab"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The likeliest, as many as a sentence has places free.

        Returns:
            Their log-probabilities, the rows they continue and the
            tokens they add, each (sentences, slots).
        """
        sentences, slots = self.total.shape
        free = self.total.new_tensor([f.free for f in self.found])
        width = int(free.max())
        each = min(width, log_probabilities.size(1))
        best, tokens = log_probabilities.topk(each)  # of each row
        candidates = self.total.view(-1, 1) + best
        candidates = candidates.view(sentences, slots * each)
        total, place = candidates.topk(min(width, slots * each))
        if total.isnan().any():
            raise FloatingPointError("a log-probability is NaN")
        rank = torch.arange(total.size(1), device=free.device)
        total = total.masked_fill(rank >= free[:, None], -math.inf)
        first = torch.arange(sentences, device=free.device) * slots
        token = tokens.view_as(candidates).gather(1, place)
        return total, first[:, None] + place // each, token

    def end(
        self,
        output: Int[Tensor, "sentences slots length"],
        total: Float[Tensor, "sentences slots"],
    ) -> Float[Tensor, "sentences slots"]:
        """Hand over what has ended; its slots are empty after it."""
        length = output.size(-1) - 1  # without the start token
        finished = output[..., -1] == self.eos_id
        cut = [[f.limit == length] for f in self.found]
        ended = finished | torch.tensor(cut, device=total.device)
        for i, slot in (ended & (total > -math.inf)).nonzero().tolist():
            self.found[i].add(
                output[i, slot, 1:].tolist(),
                total[i, slot].item(),
                finished=bool(finished[i, slot]),
            )
        return total.masked_fill(ended, -math.inf)


class StepwiseDecoder:
    """The decoder, for rows of output that grow, come and go.

    Args:
        source: token ids, a row for each sentence.
        use_cache: as in `greedy_decode`.
    """

    def __init__(
        self, model: Transformer, source: Tensor, use_cache: bool
    ) -> None:
        self.model = model
        self.mask, _, _ = model.build_masks(source, source)
        self.memory = model.encode(source, self.mask)
        self.cache = model.new_cache() if use_cache else None
        self.sentence = torch.arange(len(source), device=source.device)

    def step(
        self, output: Int[Tensor, "rows length"]
    ) -> Float[Tensor, "rows vocab"]:
        """The log-probabilities of what may follow each row."""
        _, causal, _ = self.model.build_masks(output, output)
        hidden = self.model.decode(
            output, self.memory, causal, self.mask, cache=self.cache
        )
        logits = self.model.output_projection(hidden[:, -1])
        # Before the softmax, so that the others share all of 1.
        logits[:, self.model.config.banned_ids] = -math.inf
        # Sums of many need more digits than half precision has.
        dtype = torch.promote_types(logits.dtype, torch.float32)
        return logits.log_softmax(dim=-1, dtype=dtype)

    def select(self, rows: Int[Tensor, "new_rows"]) -> None:
        """Go on with these rows, in this order, some repeatedly.

        Rows of one sentence attend to the same memory, so what was
        computed from it stays where the sentences stay.
        """
        sentence = self.sentence[rows]
        moved = not torch.equal(sentence, self.sentence)
        if moved:
            self.sentence = sentence
            self.memory, self.mask = self.memory[rows], self.mask[rows]
        for own, cross in self.cache or []:
            for stored in (own, cross) if moved else (own,):
                stored.key = stored.key.index_select(0, rows)
                stored.value = stored.value.index_select(0, rows)


def limits(
    config: TransformerConfig,
    source: Int[Tensor, "batch source"],
    max_extra: int,
    max_length: int | None,
) -> list[int]:
    """Tokens that the output of each sentence may have."""
    lengths = (source != config.pad_id).sum(dim=1).tolist()
    return [
        max(1, min(max_length or n + max_extra, config.max_length))
        for n in lengths
    ]


def check_limits(max_extra: int, max_length: int | None) -> None:
    """Raise a ValueError for a limit out of range."""
    if max_extra < 0:
        raise ValueError(f"max_extra={max_extra} must be at least 0")
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length={max_length} must be at least 1")


def check_search(
    config: TransformerConfig,
    beam_size: int,
    alpha: float,
    n_best: int,
    banned: Sequence[int],
) -> None:
    """Raise a ValueError for an argument out of range."""
    if beam_size < 1:
        raise ValueError(f"beam_size={beam_size} must be at least 1")
    if not 0 <= alpha < math.inf:
        raise ValueError(f"alpha={alpha} must be at least 0 and finite")
    if not 1 <= n_best <= beam_size:
        raise ValueError(
            f"n_best={n_best} must be from 1 to beam_size={beam_size}"
        )
    size = config.target_vocab_size
    for token in banned:
        if token not in range(size):
            raise ValueError(
                f"banned holds {token!r}, but the vocabulary has 0 to"
                f" {size - 1}"
            )
