"""Batches by a budget of tokens: nothing lost, nothing twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from transformer.config import BOS, EOS, PAD
from transformer.data.streams import (
    EncodedPairs,
    Ragged,
    TaskBatches,
    TokenBatches,
    cut_by_length,
    encode_pairs,
    mix,
)
from transformer.data.tokenizer import BytePairEncoding
from transformer.data.toy import SymbolTask


def some_pairs(count=200, longest=30, seed=0):
    random = np.random.default_rng(seed)

    def side():
        lengths = random.integers(1, longest + 1, count)
        return Ragged.of([random.integers(4, 99, n) for n in lengths])

    return EncodedPairs(side(), side())


@pytest.fixture(scope="module")
def pairs():
    return some_pairs()


def rows(batch):
    """A batch's pairs without padding, as they would be written."""
    for source, target in zip(batch.source, batch.target, strict=True):
        yield (
            tuple(source[source != PAD].tolist()),
            tuple(target[target != PAD].tolist()),
        )


def expected(pairs):
    return sorted(
        ((*pairs.source[i], EOS), (BOS, *pairs.target[i], EOS))
        for i in range(len(pairs))
    )


@pytest.mark.parametrize("budget", [31, 64, 200, 10_000])
def test_an_epoch_holds_each_pair_once(pairs, budget):
    stream = TokenBatches(pairs, budget, seed=3)
    for _ in range(2):
        batches = stream.take(len(stream.batches))
        assert sorted(row for b in batches for row in rows(b)) == expected(pairs)


@pytest.mark.parametrize("budget", [31, 64, 200])
def test_no_batch_is_over_the_budget(pairs, budget):
    for batch in TokenBatches(pairs, budget, seed=0).take(100):
        assert batch.source.numel() <= budget
        # BOS is given to the decoder in place of EOS.
        assert batch.target[:, 1:].numel() <= budget


def test_every_sequence_ends_in_eos(pairs):
    for batch in TokenBatches(pairs, 100, seed=0).take(20):
        for source, target in rows(batch):
            assert source[-1] == EOS and target[-1] == EOS and target[0] == BOS


def test_similar_lengths_go_together():
    random = np.random.default_rng(0)
    lengths = random.integers(1, 31, 200)
    source = Ragged.of([[5] * n for n in lengths])
    target = Ragged.of([[5] * (n + n % 3) for n in lengths])
    pairs = EncodedPairs(source, target)
    stream = TokenBatches(pairs, 200, seed=0)
    batches = stream.take(len(stream.batches))
    padding = sum((b.source == PAD).sum().item() for b in batches)
    cells = sum(b.source.numel() for b in batches)
    in_order = [pairs.batch(range(i, i + 8)) for i in range(0, 200, 8)]
    plain = sum((b.source == PAD).sum().item() for b in in_order)
    assert padding / cells < 0.2 * plain / sum(b.source.numel() for b in in_order)


def test_seed_and_epoch_decide_the_order(pairs):
    def order(seed, epochs=1):
        stream = TokenBatches(pairs, 64, seed)
        count = len(stream.batches)
        return [[list(rows(b)) for b in stream.take(count)] for _ in range(epochs)]

    assert order(1) == order(1)
    assert order(1) != order(2)
    first, second = order(1, epochs=2)
    assert first != second


@pytest.mark.parametrize("before", [0, 1, 7, 40])
def test_a_stream_goes_on_from_its_position(pairs, before):
    whole = TokenBatches(pairs, 64, seed=5)
    whole.take(before)
    position = whole.position()
    rest = [list(rows(b)) for b in whole.take(60)]
    resumed = TokenBatches(pairs, 64, seed=5)
    resumed.go_to(position)
    assert [list(rows(b)) for b in resumed.take(60)] == rest


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_share_without_overlap_or_loss(pairs, processes):
    alone = TokenBatches(pairs, 64, seed=0)
    together = [TokenBatches(pairs, 64, seed=0) for _ in range(processes)]
    for _ in range(20):
        whole = [list(rows(b)) for b in alone.take(6)]
        parts = [
            stream.take(6, slice(rank, None, processes))
            for rank, stream in enumerate(together)
        ]
        for rank, part in enumerate(parts):
            assert [list(rows(b)) for b in part] == whole[rank::processes]


def test_a_pair_longer_than_the_budget(pairs):
    with pytest.raises(ValueError, match="a pair of 31 tokens"):
        TokenBatches(pairs, 30, seed=0)


def test_one_pair_is_a_stream():
    stream = TokenBatches(some_pairs(count=1), 64, seed=0)
    assert len({tuple(rows(b)) for b in stream.take(5)}) == 1


def test_the_cut_is_what_a_slow_count_says(pairs, generator):
    lengths = pairs.lengths
    batches = cut_by_length(lengths, 100, generator)
    assert sorted(np.concatenate(batches)) == list(range(len(pairs)))
    for batch in batches:
        assert len(batch) * lengths[:, batch].max() <= 100


def test_encoding_leaves_out_what_is_too_long():
    tokenizer = BytePairEncoding.fit(["a b c d"] * 3, 20)
    texts = [("a b", "c"), ("a b c d", "a"), ("a", "a b c d")]
    limit = 1 + len(tokenizer.encode(["a b"])[0])
    kept, dropped = encode_pairs(iter(texts), tokenizer, limit)
    assert (len(kept), dropped) == (1, 2)
    assert tokenizer.decode(kept.source[0]) == "a b"
    assert kept.lengths.max() == limit
    with pytest.raises(ValueError, match="none of 3 pairs"):
        encode_pairs(texts, tokenizer, 1)


def test_saved_pairs_are_the_same(pairs, tmp_path):
    path = tmp_path / "pairs.safetensors"
    pairs.save(path)
    loaded = EncodedPairs.load(path)
    assert loaded.fingerprint() == pairs.fingerprint()
    assert expected(loaded) == expected(pairs)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_the_fingerprint_tells_pairs_apart(pairs):
    assert pairs.fingerprint() != some_pairs(seed=1).fingerprint()
    # The same ids, cut elsewhere.
    one = EncodedPairs(Ragged.of([[5, 6], [7]]), Ragged.of([[5], [6]]))
    two = EncodedPairs(Ragged.of([[5], [6, 7]]), Ragged.of([[5], [6]]))
    assert one.fingerprint() != two.fingerprint()


def test_a_file_that_holds_no_pairs(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="no encoded pairs"):
        EncodedPairs.load(path)


def test_a_task_goes_on_from_its_position():
    whole = TaskBatches(SymbolTask("copy"), 4, seed=1)
    whole.take(3)
    resumed = TaskBatches(SymbolTask("copy"), 4, seed=1)
    resumed.go_to(whole.position())
    for one, other in zip(whole.take(4), resumed.take(4), strict=True):
        assert torch.equal(one.source, other.source)
    (last,) = resumed.take(1)
    assert last.source.shape != one.source.shape or not torch.equal(
        last.source, one.source
    )


def test_seeds_do_not_meet():
    seeds = {mix(a, b) for a in range(50) for b in range(50)}
    assert len(seeds) == 2500
    assert mix(1, 11) != mix(11, 1)
    assert mix(0, "weights") != mix(0, "judged")
