"""Batches and the toy tasks."""

from __future__ import annotations

import itertools

import pytest
import torch

from transformer import BOS, EOS, PAD
from transformer.data.batches import Batch, make_batch, pad, shift
from transformer.data.toy import (
    ENGLISH,
    FIRST_SYMBOL,
    GERMAN,
    NumberWords,
    SymbolTask,
    english,
    german,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# Batches


def test_sources_end_with_eos_and_targets_stand_between_bos_and_eos():
    batch = make_batch([[5, 6, 7], [8]], [[7], [5, 6]])
    assert batch.source.tolist() == [[5, 6, 7, EOS], [8, EOS, PAD, PAD]]
    assert batch.target.tolist() == [[BOS, 7, EOS, PAD], [BOS, 5, 6, EOS]]
    assert batch.source.dtype == batch.target.dtype == torch.long
    assert len(batch) == 2


def test_empty_sequences_are_their_special_ids():
    batch = make_batch([[]], [[]])
    assert batch.source.tolist() == [[EOS]]
    assert batch.target.tolist() == [[BOS, EOS]]


def test_padding_goes_to_the_right_and_no_further_than_needed():
    assert pad([[3], [4, 5, 6], [7, 8]]).tolist() == [[3, 0, 0], [4, 5, 6], [7, 8, 0]]


def test_the_decoder_is_given_what_came_before_what_it_must_say():
    batch = make_batch([[5]], [[5, 6, 7]])
    target_in, target_out = shift(batch.target)
    assert target_in.tolist() == [[BOS, 5, 6, 7]]
    assert target_out.tolist() == [[5, 6, 7, EOS]]


def test_a_batch_moves_to_a_device():
    batch = make_batch([[5]], [[6]]).to("meta")
    assert isinstance(batch, Batch)
    assert batch.source.device.type == batch.target.device.type == "meta"


@pytest.mark.parametrize(
    ("sources", "targets", "message"),
    [
        ([], [], "0 sources and 0 targets: a batch needs pairs, one at least"),
        ([[3]], [[3], [4]], "1 sources and 2 targets: a batch needs pairs"),
        ([[3]], [], "1 sources and 0 targets: a batch needs pairs"),
    ],
)
def test_a_batch_without_pairs_is_refused(sources, targets, message):
    with pytest.raises(ValueError, match=message):
        make_batch(sources, targets)


# Symbols


def symbols(row):
    """A row of ids without special ids."""
    return [i for i in row.tolist() if i not in (PAD, BOS, EOS)]


RULES = {
    "copy": lambda source: source,
    "reverse": lambda source: source[::-1],
    "sort": lambda source: sorted(source),
}


@pytest.mark.parametrize("rule", RULES)
def test_targets_follow_the_rule(rule):
    batch = SymbolTask(rule).batch(200, seeded())
    sources = [symbols(row) for row in batch.source]
    targets = [symbols(row) for row in batch.target]
    assert targets == [RULES[rule](source) for source in sources]
    assert len({tuple(source) for source in sources}) > 190


def test_the_three_rules_differ():
    batches = [SymbolTask(rule).batch(50, seeded()) for rule in RULES]
    for one, other in itertools.combinations(batches, 2):
        assert torch.equal(one.source, other.source)
        assert not torch.equal(one.target, other.target)


def test_special_ids_stand_where_they_must_and_nowhere_else():
    batch = SymbolTask().batch(200, seeded())
    for source, target in zip(
        batch.source.tolist(), batch.target.tolist(), strict=True
    ):
        end = source.index(EOS)
        assert all(i >= FIRST_SYMBOL for i in source[:end])
        assert all(i == PAD for i in source[end + 1 :])
        assert target[0] == BOS
        assert target.index(EOS) == end + 1
        assert all(i >= FIRST_SYMBOL for i in target[1 : end + 1])
        assert all(i == PAD for i in target[end + 2 :])


def test_lengths_are_drawn_evenly_between_both_ends():
    batch = SymbolTask(shortest=3, longest=6).batch(4000, seeded())
    lengths = [len(symbols(row)) for row in batch.source]
    counts = {length: lengths.count(length) for length in set(lengths)}
    assert set(counts) == {3, 4, 5, 6}
    # 1000 each, with a spread of 27.
    assert all(abs(count - 1000) < 140 for count in counts.values())


def test_all_symbols_are_drawn_evenly_and_fill_the_vocabulary():
    task = SymbolTask(symbols=4, shortest=5, longest=5)
    assert task.vocab_size == 3 + 4
    batch = task.batch(800, seeded())
    drawn = [i for row in batch.source for i in symbols(row)]
    counts = {symbol: drawn.count(symbol) for symbol in set(drawn)}
    assert set(counts) == {3, 4, 5, 6}
    assert all(abs(count - 1000) < 140 for count in counts.values())


def test_a_task_of_one_length_is_possible():
    batch = SymbolTask(shortest=4, longest=4).batch(10, seeded())
    assert batch.source.shape == (10, 5)
    assert batch.target.shape == (10, 6)


@pytest.mark.parametrize(
    "task", [SymbolTask(), NumberWords()], ids=["symbols", "words"]
)
def test_batches_come_from_the_generator_alone(task):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = task.batch(20, seeded(3))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    same, other = task.batch(20, seeded(3)), task.batch(20, seeded(4))
    assert torch.equal(one.source, same.source)
    assert torch.equal(one.target, same.target)
    assert one.source.shape != other.source.shape or not torch.equal(
        one.source, other.source
    )
    generator = seeded(3)
    first, second = task.batch(20, generator), task.batch(20, generator)
    assert first.source.tolist() != second.source.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            dict(rule="shuffle"),
            "rule='shuffle' must be one of 'copy', 'reverse', 'sort'",
        ),
        (dict(symbols=0), "symbols=0 must be at least 1"),
        (dict(shortest=0), "shortest=0 and longest=20: they must be at least 1"),
        (dict(shortest=9, longest=8), "shortest=9 and longest=8: .* in this order"),
    ],
)
def test_a_bad_task_is_refused_with_argument_value_and_rule(changes, message):
    with pytest.raises(ValueError, match=message):
        SymbolTask(**changes)


# Number words

NUMBERS = {
    0: ("zero", "null"),
    1: ("one", "eins"),
    10: ("ten", "zehn"),
    11: ("eleven", "elf"),
    12: ("twelve", "zwölf"),
    16: ("sixteen", "sechzehn"),
    17: ("seventeen", "siebzehn"),
    20: ("twenty", "zwanzig"),
    21: ("twenty one", "einundzwanzig"),
    30: ("thirty", "dreißig"),
    36: ("thirty six", "sechsunddreißig"),
    67: ("sixty seven", "siebenundsechzig"),
    71: ("seventy one", "einundsiebzig"),
    99: ("ninety nine", "neunundneunzig"),
    100: ("one hundred", "einhundert"),
    101: ("one hundred one", "einhunderteins"),
    111: ("one hundred eleven", "einhundertelf"),
    121: ("one hundred twenty one", "einhunderteinundzwanzig"),
    201: ("two hundred one", "zweihunderteins"),
    1000: ("one thousand", "eintausend"),
    1001: ("one thousand one", "eintausendeins"),
    1100: ("one thousand one hundred", "eintausendeinhundert"),
    21_000: ("twenty one thousand", "einundzwanzigtausend"),
    100_000: ("one hundred thousand", "einhunderttausend"),
    101_000: ("one hundred one thousand", "einhunderteintausend"),
    101_101: (
        "one hundred one thousand one hundred one",
        "einhunderteintausendeinhunderteins",
    ),
    999_999: (
        "nine hundred ninety nine thousand nine hundred ninety nine",
        "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
    ),
}


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_have_their_names(number):
    found = " ".join(english(number)), "".join(german(number))
    assert found == NUMBERS[number]


def counted(below_20, tens, ten_and_one, hundred):
    """The names of 0 to 999 in counting order, put together as text."""
    below_100 = list(below_20)
    for ten in tens:
        below_100.append(ten)
        below_100 += [ten_and_one(ten, one) for one in below_20[1:10]]
    names = list(below_100)
    for one in below_20[1:10]:
        names.append(hundred(one, ""))
        names += [hundred(one, rest) for rest in below_100[1:]]
    return names


def test_english_counts_from_0_to_999():
    below_20 = (
        "zero one two three four five six seven eight nine ten eleven twelve"
        " thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
    ).split()
    tens = "twenty thirty forty fifty sixty seventy eighty ninety".split()
    names = counted(
        below_20,
        tens,
        lambda ten, one: f"{ten} {one}",
        lambda one, rest: f"{one} hundred {rest}".strip(),
    )
    assert [" ".join(english(number)) for number in range(1000)] == names


def test_german_counts_from_0_to_999_and_in_thousands():
    below_20 = (
        "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn"
        " vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"
    ).split()
    tens = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
    names = counted(
        below_20,
        tens,
        lambda ten, one: f"{one.removesuffix('s') if one == 'eins' else one}und{ten}",
        lambda one, rest: f"{'ein' if one == 'eins' else one}hundert{rest}",
    )
    assert ["".join(german(number)) for number in range(1000)] == names
    for number in range(1, 1000):
        name = names[number]
        before = name.removesuffix("s") if name.endswith("eins") else name
        assert "".join(german(1000 * number)) == f"{before}tausend"
        rest = (number * 37) % 1000
        whole = f"{before}tausend{names[rest] if rest else ''}"
        assert "".join(german(1000 * number + rest)) == whole


VALUES = {
    **{"null": 0, "ein": 1, "eins": 1, "zwei": 2, "drei": 3, "vier": 4, "fünf": 5},
    **{"sechs": 6, "sieben": 7, "acht": 8, "neun": 9, "zehn": 10, "elf": 11},
    **{"zwölf": 12, "dreizehn": 13, "vierzehn": 14, "fünfzehn": 15, "sechzehn": 16},
    **{"siebzehn": 17, "achtzehn": 18, "neunzehn": 19, "zwanzig": 20, "dreißig": 30},
    **{"vierzig": 40, "fünfzig": 50, "sechzig": 60, "siebzig": 70, "achtzig": 80},
    **{"neunzig": 90, "und": 0},
}


def test_german_pieces_add_up_to_their_number():
    for number in itertools.chain(range(1000), range(1000, 1_000_000, 997)):
        total = part = 0
        for piece in german(number):
            if piece == "tausend":
                total, part = 1000 * part, 0
            elif piece == "hundert":
                part *= 100
            else:
                part += VALUES[piece]
        assert total + part == number


@pytest.mark.parametrize("name", [english, german])
@pytest.mark.parametrize("number", [-1, 1_000_000])
def test_numbers_outside_the_range_are_refused(name, number):
    with pytest.raises(ValueError, match=f"number={number} must be 0 to 999,999"):
        name(number)


def words(task, row):
    return [task.vocabulary[i] for i in symbols(row)]


def number_of(text):
    """The number that English words name, read back."""
    ones = dict(zip(ENGLISH[:20], range(20), strict=True))
    tens = dict(zip(ENGLISH[20:28], range(20, 100, 10), strict=True))
    total = part = 0
    for word in text:
        if word == "thousand":
            total, part = 1000 * part, 0
        elif word == "hundred":
            part *= 100
        else:
            part += (ones | tens)[word]
    return total + part


def numbers_in(task, batch):
    return [number_of(words(task, row)) for row in batch.source]


def test_the_vocabulary_names_each_id_once_special_ids_first():
    task = NumberWords()
    assert task.vocabulary[:3] == ["<pad>", "<bos>", "<eos>"]
    assert (PAD, BOS, EOS) == (0, 1, 2)
    assert len(set(task.vocabulary)) == task.vocab_size == 3 + len(ENGLISH + GERMAN)


def test_pairs_are_english_in_and_german_out():
    task = NumberWords()
    batch = task.pairs([21, 101_000])
    assert words(task, batch.source[0]) == ["twenty", "one"]
    assert words(task, batch.target[0]) == ["ein", "und", "zwanzig"]
    assert "".join(words(task, batch.target[1])) == "einhunderteintausend"
    assert batch.target[:, 0].tolist() == [BOS, BOS]


def test_training_batches_never_hold_a_held_out_number():
    task = NumberWords()
    numbers = numbers_in(task, task.batch(5000, seeded()))
    assert not any(task.is_held_out(number) for number in numbers)
    assert {len(str(number)) for number in numbers} == {1, 2, 3, 4, 5, 6}


def test_held_out_numbers_are_distinct_and_kept_from_training():
    task = NumberWords()
    held_out = numbers_in(task, task.held_out(1605, seeded(1)))
    assert len(set(held_out)) == len(held_out) == 1605
    assert all(task.is_held_out(number) for number in held_out)
    trained = numbers_in(task, task.batch(5000, seeded(2)))
    assert not set(trained) & set(held_out)


def test_one_number_of_ten_from_100_on_is_held_out():
    task = NumberWords()
    assert not any(task.is_held_out(number) for number in range(100))
    for low, high in [(100, 1000), (1000, 10_000), (10_000, 100_000)]:
        held_out = sum(task.is_held_out(number) for number in range(low, high))
        assert held_out / (high - low) == pytest.approx(0.1, abs=0.02)


def test_held_out_numbers_end_in_every_digit():
    task = NumberWords()
    held_out = [number for number in range(100, 10_000) if task.is_held_out(number)]
    assert {number % 10 for number in held_out} == set(range(10))
    assert {number // 10 % 10 for number in held_out} == set(range(10))


def test_numbers_of_one_to_six_digits_are_drawn_evenly():
    task = NumberWords()
    numbers = numbers_in(task, task.batch(3000, seeded()))
    counts = [sum(len(str(n)) == digits for n in numbers) for digits in range(1, 7)]
    # 500 each before the held-out ones, at most 10% of some, are left out.
    assert all(400 < count < 620 for count in counts)


def test_held_out_numbers_come_from_the_generator():
    task = NumberWords()
    one, same = task.held_out(50, seeded(5)), task.held_out(50, seeded(5))
    assert torch.equal(one.source, same.source)
    assert numbers_in(task, one) != numbers_in(task, task.held_out(50, seeded(6)))


@pytest.mark.parametrize("size", [0, -1, 10_001])
def test_too_few_or_too_many_held_out_numbers_are_refused(size):
    with pytest.raises(ValueError, match=f"size={size} must be 1 to 10,000"):
        NumberWords().held_out(size, seeded())
