"""The corpus that ships with the book keeps what its data card promises."""

from __future__ import annotations

import hashlib
import lzma
import math
import re
import unicodedata
from collections import Counter, defaultdict
from importlib import resources
from itertools import pairwise

import pytest

FOLDER = resources.files("transformer") / "data" / "help_en_de"
SPLITS = ("train", "valid", "test")
LICENCES = ("LICENSE-MPL-2.0", "LICENSE-Apache-2.0", "NOTICE", "README.md")


def text(name):
    return lzma.decompress((FOLDER / name).read_bytes()).decode("utf-8")


@pytest.fixture(scope="module")
def corpus():
    return {
        split: [
            tuple(line.split("\t")) for line in text(f"{split}.tsv.xz").splitlines()
        ]
        for split in SPLITS
    }


@pytest.fixture(scope="module")
def pages():
    return [line.split("\t") for line in text("pages.tsv.xz").splitlines()]


def everything(corpus):
    return [pair for split in SPLITS for pair in corpus[split]]


def test_every_line_is_an_english_and_a_german_text(corpus):
    assert all(len(pair) == 2 and all(pair) for pair in everything(corpus))
    assert all(side == side.strip() for pair in everything(corpus) for side in pair)


def test_the_corpus_is_as_large_as_the_card_says(corpus):
    card = (FOLDER / "README.md").read_text("utf-8")
    for split in SPLITS:
        english, german = (
            sum(len(words(side)) for side in sides)
            for sides in zip(*corpus[split], strict=True)
        )
        row = rf"\| {split} \| {len(corpus[split]):,} \| [\d,]+ \| {english:,} \|"
        assert re.search(rf"{row} {german:,} \|", card), split
    assert len(corpus["train"]) > 23_700
    assert min(len(corpus["valid"]), len(corpus["test"])) >= 400


def test_it_is_under_a_megabyte():
    size = sum(len((FOLDER / f"{s}.tsv.xz").read_bytes()) for s in (*SPLITS, "pages"))
    assert size < 1_000_000


def test_texts_are_composed_unicode_without_control_characters(corpus):
    for side in (side for pair in everything(corpus) for side in pair):
        assert unicodedata.is_normalized("NFC", side)
        assert not any(unicodedata.category(letter).startswith("C") for letter in side)
        assert side == " ".join(side.split())


def test_no_markup_code_or_placeholder_is_left(corpus):
    marks = re.compile(r"[<>{}\[\]|\\^~`=_@#$*&]|\w\(\w+;|%[A-Z]|www\.|://")
    found = [pair for pair in everything(corpus) if any(map(marks.search, pair))]
    assert not found


def words(side):
    return [word for word in side.split() if any(map(str.isalnum, word))]


def test_texts_have_3_to_30_words_and_comparable_lengths(corpus):
    for english, german in everything(corpus):
        assert 3 <= len(words(english)) <= 30
        assert 3 <= len(words(german)) <= 30
        assert 0.5 < (len(german) + 8) / (len(english) + 8) < 2.1


def test_the_two_sides_differ(corpus):
    assert all(a.lower() != b.lower() for a, b in everything(corpus))


def test_no_pair_comes_twice(corpus):
    pairs = Counter(everything(corpus))
    assert max(pairs.values()) == 1


def masked(side):
    """Lower case, digits and marks taken out."""
    return re.findall(r"[^\W\d_]+", side.lower())


def neighbours(side):
    return frozenset(pairwise(["", *masked(side), ""]))


@pytest.mark.parametrize("side", [0, 1], ids=["English", "German"])
def test_no_held_out_text_is_near_another_text(corpus, side):
    """Near: the sets of neighbouring words overlap by 0.6 (Jaccard)."""
    sets = [neighbours(pair[side]) for pair in everything(corpus)]
    index = defaultdict(list)
    for number, items in enumerate(sets):
        for item in items:
            index[item].append(number)
    for number in range(len(corpus["train"]), len(sets)):
        items = sets[number]
        # A set that overlaps so much holds one of these rarest items.
        rare = sorted(items, key=lambda item: len(index[item]))
        rare = rare[: len(rare) - math.ceil(0.6 * len(rare)) + 1]
        for other in {other for item in rare for other in index[item]} - {number}:
            overlap = len(items & sets[other]) / len(items | sets[other])
            assert overlap < 0.6, (
                everything(corpus)[number],
                everything(corpus)[other],
            )


def test_the_list_of_pages_covers_every_line_in_order(corpus, pages):
    total = Counter()
    for split, _, count in pages:
        total[split] += int(count)
    assert total == {split: len(corpus[split]) for split in SPLITS}
    assert [split for split, *_ in pages] == sorted(
        (split for split, *_ in pages), key=SPLITS.index
    )


def test_whole_pages_are_held_out_by_the_hash_of_their_path(pages):
    names = [page for _, page, _ in pages]
    assert len(set(names)) == len(names)
    for split, page, _ in pages:
        place = int(hashlib.sha256(page.encode()).hexdigest(), 16) % 1000
        expected = "valid" if place < 28 else "test" if place < 60 else "train"
        assert split == expected, page


@pytest.mark.parametrize("name", LICENCES)
def test_licence_and_card_are_there(name):
    assert (FOLDER / name).read_text("utf-8").strip()


def test_the_notice_names_both_licences_and_the_copyright_lines():
    notice = (FOLDER / "NOTICE").read_text("utf-8")
    for part in (
        "MPL-2.0",
        "http://www.apache.org/licenses/LICENSE-2.0",
        "Copyright 2000, 2010 Oracle and/or its affiliates.",
        "Copyright (c) 2000, 2010 LibreOffice contributors and/or their affiliates.",
    ):
        assert part in notice
    assert "Mozilla Public License Version 2.0" in (
        FOLDER / "LICENSE-MPL-2.0"
    ).read_text("utf-8")
