"""Sections 5.1 and 6: the book's translation corpus, English to German.

    apt-get download libreoffice-help-en-us libreoffice-help-de
    python experiments/help_en_de.py libreoffice-help-en-us_*.deb \\
        libreoffice-help-de_*.deb

Reads the two packages itself and writes train, valid, test and pages to
src/transformer/data/help_en_de/. The same packages give the same bytes.
The README.md there says what every rule here is for. Half a
minute on one core. `--sample 200`
prints that many random pairs of each source, to be judged by reading.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import math
import random
import re
import statistics
import tarfile
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np

OUT = Path(__file__).resolve().parent.parent / "src/transformer/data/help_en_de"
SPLITS = ("train", "valid", "test")

# Of 1,000 pages, by a hash of the path: the first to valid, the next to test.
VALID_PAGES, TEST_PAGES = 28, 32
SHORTEST, LONGEST = 3, 30  # words on either side
RATIO = (0.6, 2.0)  # characters, German to English, 8 added to both
LOWEST_SCORE = -2.4  # mean log probability of a word, both directions
NEAR_TRAIN = 0.8  # overlap of word pairs on either side, inside train
NEAR_HELD_OUT = 0.6  # of a held-out pair and any other, on either side


@dataclass(frozen=True)
class Pair:
    page: str
    source: str  # what kind of text it comes from, see `kind`
    english: str
    german: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("english", type=Path, help="libreoffice-help-en-us .deb")
    parser.add_argument("german", type=Path, help="libreoffice-help-de .deb")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--sample", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=17)
    options = parser.parse_args()

    packages = [read_package(options.english), read_package(options.german)]
    report: dict = {"packages": [name for name, _ in packages]}
    places = candidates(packages[0][1], packages[1][1])
    report["candidates"] = len(places)
    pairs, report["dropped"] = clean_pairs(places)
    splits, dropped = split_pages(pairs, places)
    report["dropped"] |= dropped
    options.out.mkdir(parents=True, exist_ok=True)
    for name in SPLITS:
        write(options.out / f"{name}.tsv.xz", map(columns, splits[name]))
        report[name] = describe(splits[name])
    write(options.out / "pages.tsv.xz", page_lines(splits))
    print(json.dumps(report, indent=2))
    if options.sample:
        show(splits, options.sample, options.seed)


# Packages: an `ar` archive of a few members, data.tar.* among them


def read_package(path: Path) -> tuple[str, dict[str, str]]:
    """Name and version, and the help pages by path."""
    members = dict(ar_members(path.read_bytes(), path))
    control = text_files(members, "control", "/control")["./control"]
    fields = dict(line.split(": ", 1) for line in control.splitlines() if ": " in line)
    pages = {
        name.partition("/text/")[2]: text
        for name, text in text_files(members, "data", ".html").items()
        if "/text/" in name
    }
    return f"{fields['Package']} {fields['Version']}", pages


def ar_members(data: bytes, path: Path) -> Iterator[tuple[str, bytes]]:
    if not data.startswith(b"!<arch>\n"):
        raise SystemExit(f"{path}: not a Debian package (no ar archive)")
    at = 8
    while at < len(data):
        header = data[at : at + 60]
        size = int(header[48:58])
        yield header[:16].decode().strip(" /"), data[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def text_files(members: dict[str, bytes], tar: str, ending: str) -> dict[str, str]:
    [content] = [m for name, m in members.items() if name.startswith(f"{tar}.tar")]
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {
            item.name: archive.extractfile(item).read().decode("utf-8")
            for item in archive
            if item.isfile() and item.name.endswith(ending)
        }


# Pages: paragraphs and headings with their inline text in reading order

HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
EMPTY = ("br", "img", "meta", "hr", "input", "link")
LABELS = ("emph", "menuitem", "widget", "keycode", "input", "literal", "productname")
EDGE = "\x01"  # where a label begins and ends
RAISED = "\x02"  # a superscript or subscript: the text alone would be wrong
DIALOG_DOTS = re.compile(r'(?<=[\w)"])\s?(?:…|\.\.\.)(?=\s*(?:[-–—]\s|$))')


@dataclass(frozen=True)
class Block:
    tag: str
    id: str
    css: str
    text: str


@dataclass
class Span:
    kind: str
    parts: list[str]
    cases: list[tuple[str, str]]


class Page(HTMLParser):
    """Collects the blocks of a page; program listings are left out."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self.head: tuple[str, str, str] | None = None
        self.spans: list[Span] = []
        self.listing = 0
        begin, end = html.find('id="DisplayArea"'), html.find('<div id="SearchFrame"')
        self.feed(html[begin:end])
        self.close()
        self.finish()

    def handle_starttag(self, tag: str, attrs: list) -> None:
        attributes = {name: value or "" for name, value in attrs}
        css, id = attributes.get("class", ""), attributes.get("id", "")
        if tag in ("pre", "code"):
            self.listing += 1
        elif tag == "p" or tag in HEADINGS:
            self.finish()
            if not self.listing and "code" not in css:
                self.head, self.spans = (tag, id, css), [Span("block", [], [])]
        elif self.head and tag == "br":
            self.spans[-1].parts.append("\n")
        elif self.head and tag not in EMPTY:
            if css in ("switchinline", "switch"):
                kind = "switch"
            elif self.spans[-1].kind == "switch":
                kind = "default" if id.startswith("default") else "case"
            else:
                kind = "label" if css in LABELS or tag == "a" else tag
            self.spans.append(Span(kind, [], []))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("pre", "code"):
            self.listing -= 1
        elif self.head and tag == self.head[0]:
            self.finish()
        elif self.head and tag not in EMPTY and len(self.spans) > 1:
            self.close_span()

    def handle_data(self, data: str) -> None:
        if self.head:
            self.spans[-1].parts.append(re.sub(r"\s+", " ", data))

    def close_span(self) -> None:
        span, outer = self.spans.pop(), self.spans[-1]
        text = "".join(span.parts)
        if span.kind in ("default", "case"):
            outer.cases.append((span.kind, text))
        elif span.kind == "switch":
            # One text for each system or module: the general one, else the first.
            general = [text for kind, text in span.cases if kind == "default"]
            outer.parts.extend((general + [text for _, text in span.cases])[:1])
        elif span.kind == "label":
            # "Save As..." is the label of a menu, where dots mean a dialog.
            outer.parts.append(EDGE + DIALOG_DOTS.sub("", text) + EDGE)
        else:
            outer.parts.append(RAISED if span.kind in ("sup", "sub") else text)

    def finish(self) -> None:
        if self.head:
            while len(self.spans) > 1:
                self.close_span()
            self.blocks.append(Block(*self.head, "".join(self.spans[0].parts)))
        self.head = None


def match_blocks(english: list[Block], german: list[Block]) -> Iterator:
    """Blocks that translate each other: the same tag and id at the same place.

    Pages sorted by the alphabet of their language have another order;
    there, ids that occur once.
    """
    if [(b.tag, b.id) for b in english] == [(b.tag, b.id) for b in german]:
        yield from zip(english, german, strict=True)
        return
    there = once(german)
    for id, block in once(english).items():
        if id in there:
            yield block, there[id]


def once(blocks: list[Block]) -> dict[str, Block]:
    count = Counter(block.id for block in blocks)
    return {b.id: b for b in blocks if b.id and count[b.id] == 1}


def kind(block: Block) -> str:
    """The kind of text, for the data card's quality by source."""
    if block.tag in HEADINGS:
        return "heading"
    if "list" in block.css or "_item" in block.css:
        return "list item"
    if "table" in block.css:
        return "table cell"
    return "paragraph" if block.id else "no id"


# Text: what is mapped to what

MAPPED = {
    **dict.fromkeys("\u00a0\u2007\u2009\u202f", " "),
    **dict.fromkeys("\u00ad\u200b\u200e\u200f\u2060\ufeff" + EDGE, ""),
    **dict.fromkeys("\u2010\u2011\u2013\u2014\u2212", "-"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb", '"'),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2039\u203a\u00b4", "'"),
    "\u2026": "...",
}
MAP = str.maketrans(MAPPED)
GLUED = re.compile(rf"(?<=[^\W\d_]){EDGE}+(?=[^\W\d_]{{2}})")


def clean(text: str) -> str:
    """One line, NFC, with plain spaces, hyphens and quotes."""
    text = GLUED.sub(" ", text)  # "Symbol<span>Endnote" has lost its space
    text = unicodedata.normalize("NFC", text).translate(MAP)
    text = re.sub(r"(?<=\w)\s?\.\.\.(?=\s+-\s)", "", text)  # dots inside a menu path
    text = re.sub(r" ([,;.!?])(?=\s|$)", r"\1", " ".join(text.split()))
    return re.sub(r"(?<!')''(?!')", '"', text)


def level_ends(english: str, german: str) -> tuple[str, str]:
    """Give the German end mark to a German side that has none, or take it.

    The English side decides: "To Remove Highlighting" and "So entfernen
    Sie Hervorhebungen:" lose the colon of a list that does not follow.
    """
    ends, others = english[-1:], german[-1:]
    if ends in (".", ":") and (others.isalnum() or others in (')"')):
        if not english.endswith("etc."):
            german += ends
    elif ends.isalnum() and re.search(r"[^\W\d_]{4}[.:]$", german):
        german = german[:-1]
    return english, german


# Sentences

ABBREVIATIONS = {
    "english": "e.g i.e vs No Nos Fig Mr Mrs Dr Inc Ltd Corp approx resp cf incl"
    " max min ext Ext Sect Vol pp p ca",
    "german": "z.B bzw d.h u.a usw ca evtl ggf ggfs inkl exkl max min Nr Abb vgl Vgl"
    " o.ä u.ä u.U s.u s.o sog Std Min Sek z.T Art einschl entspr bspw mind Abs Bsp"
    " etc Kap Tab engl dt Dr Hr Fr jew allg gem lt zzgl od bez zw Aufl v.Chr n.Chr",
}
NO_END = {language: set(words.split()) for language, words in ABBREVIATIONS.items()}
END = re.compile(r"[.!?][)\"']*\s+(?=[\"'(]*[A-ZÄÖÜ0-9])")


def sentences(text: str, language: str) -> list[str]:
    found, start = [], 0
    for end in END.finditer(text):
        word = re.search(r"[^\s(\"'/]*$", text[: end.start()])[0]
        if text[end.start()] == "." and (
            word in NO_END[language]
            or re.fullmatch(r"[^\W\d_]?", word)  # an initial, or nothing
            or (language == "german" and re.fullmatch(r"\d{1,2}", word))  # 1. Januar
            or word.endswith("..")
        ):
            continue
        found.append(text[start : end.end()].strip())
        start = end.end()
    found.append(text[start:].strip())
    return [sentence for sentence in found if sentence]


# Alignment of unequal counts, by length (Gale and Church 1993)

BEADS = {  # sentences taken from either side: how often that happens
    (1, 1): 0.89,
    (2, 1): 0.0445,
    (1, 2): 0.0445,
    (1, 0): 0.005,
    (0, 1): 0.005,
    (2, 2): 0.011,
}
GROWTH, VARIANCE = 1.15, 6.8  # German characters for an English one


def align(english: list[str], german: list[str]) -> Iterator[tuple[str, str]]:
    """The pairs of one sentence and one sentence on the best path."""
    best: dict[tuple[int, int], tuple[float, tuple[int, int]]] = {(0, 0): (0.0, (0, 0))}
    for i in range(len(english) + 1):
        for j in range(len(german) + 1):
            ways = [
                (
                    best[i - a, j - b][0]
                    - math.log(share)
                    + mismatch(english[i - a : i], german[j - b : j]),
                    (a, b),
                )
                for (a, b), share in BEADS.items()
                if (i - a, j - b) in best
            ]
            if ways:
                best[i, j] = min(ways)
    i, j = len(english), len(german)
    pairs = []
    while i or j:
        a, b = best[i, j][1]
        i, j = i - a, j - b
        if (a, b) == (1, 1):
            pairs.append((english[i], german[j]))
    return reversed(pairs)


def mismatch(english: list[str], german: list[str]) -> float:
    """Minus the log of how likely such lengths are in a translation."""
    a, b = sum(map(len, english)), sum(map(len, german))
    z = (GROWTH * a - b) / math.sqrt(VARIANCE * (a + b / GROWTH) / 2)
    return -math.log(max(math.erfc(abs(z) / math.sqrt(2)), 1e-30))


def candidates(english: dict[str, str], german: dict[str, str]) -> dict[Pair, set]:
    """Every different pair of sentences, and the pages it is found on."""
    first: dict[tuple[str, str], Pair] = {}
    places: dict[Pair, set] = defaultdict(set)
    for page in sorted(english.keys() & german.keys()):
        blocks = match_blocks(Page(english[page]).blocks, Page(german[page]).blocks)
        for source, a, b in (found for two in blocks for found in block_pairs(*two)):
            a, b = level_ends(a, b)
            pair = first.setdefault((a, b), Pair(page, source, a, b))
            places[pair].add(page)
    return places


def block_pairs(english: Block, german: Block) -> Iterator[tuple[str, str, str]]:
    if RAISED in english.text + german.text:
        return
    a, b = (
        [s for line in block.text.split("\n") for s in sentences(clean(line), language)]
        for block, language in ((english, "english"), (german, "german"))
    )
    if len(a) == len(b):
        yield from ((kind(english), *two) for two in zip(a, b, strict=True))
    else:
        yield from (("aligned", *two) for two in align(a, b))


# Which pairs stay

ALPHABET = re.compile(r"[A-Za-zÀ-ÖØ-öø-ÿŒœŠšŽž0-9 .,:;!?()\"'+/%-]+")
CODE = re.compile(
    r";\S|--|\(\)|\(\w+;|\w\((?!s\)|n\)|en\)|e\)|r\))\S|%[A-Z]|www\.|\.(?:html?|xml|com|org)\b"
    r"|(?<![\w.])\.\w|[a-z]:[a-z]|\w\.\w+\(|(?:^|\s)/|/\w+/|//"
)
CAMEL = re.compile(r"\w*[a-z][A-Z]\w*")
NAMES = set(
    "LibreOffice OpenOffice StarOffice LibreLogo OpenDocument OpenPGP PostScript"
    " PowerPoint JavaScript MathML MySQL MariaDB WebDAV macOS dBASE ScriptForge"
    " AutoCorrect AutoText AutoFormat AutoFilter AutoFilters AutoInput AutoFill"
    " AutoComplete AutoCalculate AutoPlay ImageMap ImageMaps WebCast OpenCL ActiveX"
    " MathType OpenFormula BeanShell".split()
)
ENGLISH = set(
    "the of and to is in a an that this you for with or are be by on as can it from if"
    " not which at when then has your".split()
)
GERMAN = set(
    "der die das und in den von zu mit sich des auf für ist im dem nicht ein eine als"
    " auch es an werden aus er hat dass sie nach wird bei einer um am sind noch wie"
    " einem über einen so zum oder wenn ihr ihre diese dieser beim ob zur".split()
)


def words(text: str) -> list[str]:
    """What is counted as words: between spaces, with a letter or digit."""
    return [word for word in text.split() if any(map(str.isalnum, word))]


def plain(text: str) -> list[str]:
    """The letters of each word, in lower case: digits and marks masked."""
    return re.findall(r"[^\W\d_]+", text.lower())


def fault(english: str, german: str) -> str | None:
    """The rule that a pair breaks, or None."""
    both = (english, german)
    a, b = plain(english), plain(german)
    if not all(SHORTEST <= len(words(side)) <= LONGEST for side in both):
        return "length"
    if not all(map(ALPHABET.fullmatch, both)) or any(map(CODE.search, both)):
        return "symbols or code"
    if any(s.count("(") != s.count(")") or s.count('"') % 2 for s in both):
        return "unbalanced"
    if set(CAMEL.findall(english)) - NAMES:
        return "identifiers"
    fewest = min(sum(len(word) > 1 for word in side) for side in (a, b))
    if fewest < 2 or sum(map(str.isdigit, english)) > 0.3 * len(english):
        return "mostly numbers"
    if len(set(a) & set(b)) > 0.7 * len(set(b)):
        return "same on both sides"
    foreign, own = sum(w in ENGLISH - GERMAN for w in b), sum(w in GERMAN for w in b)
    if (foreign > 1 and foreign > own) or (foreign and not own):
        return "German side is English"
    if not RATIO[0] <= (len(german) + 8) / (len(english) + 8) <= RATIO[1]:
        return "length ratio"
    if sorted(re.findall(r"\d+", english)) != sorted(re.findall(r"\d+", german)):
        return "other numbers"
    return None


def clean_pairs(pairs: Iterable[Pair]) -> tuple[list[Pair], Counter]:
    """Pairs that break no rule and whose words translate each other."""
    faults = {pair: fault(pair.english, pair.german) for pair in pairs}
    dropped = Counter(filter(None, faults.values()))
    sound = [pair for pair, broken in faults.items() if not broken]
    scores = translation_scores(sound)
    kept = [p for p, s in zip(sound, scores, strict=True) if s >= LOWEST_SCORE]
    dropped["low translation score"] = len(sound) - len(kept)
    return kept, dropped


# Translation score: IBM model 1, learnt on the pairs of equal counts


def translation_scores(pairs: list[Pair]) -> np.ndarray:
    """How well the words of each pair explain each other, in both directions."""
    sides = [(stems(pair.english), stems(pair.german)) for pair in pairs]
    taught = np.array([pair.source != "aligned" for pair in pairs])
    there = mean_log_chance(sides, taught)
    back = mean_log_chance([(german, english) for english, german in sides], taught)
    return (there + back) / 2


def stems(text: str) -> list[str]:
    """Different words, cut to six characters: German has many endings."""
    return list(dict.fromkeys(w[:6] for w in re.findall(r"\w+", text.lower())))


def mean_log_chance(sides: list, taught: np.ndarray, rounds: int = 3) -> np.ndarray:
    """For each pair the mean, over its target words, of log P(word | source word).

    The source word is the likeliest of the sentence. P is learnt by
    expectation maximisation on the pairs of `taught`.
    """
    sources: dict[str, int] = {"": 0}  # a word may come from none
    targets: dict[str, int] = {}
    # One link for each target word and each source word of its sentence.
    link_source, link_target, starts, pair_of_word = [], [], [], []
    for number, (source, target) in enumerate(sides):
        row = [0, *(sources.setdefault(word, len(sources)) for word in source)]
        for word in target:
            starts.append(len(link_source))
            pair_of_word.append(number)
            link_source += row
            link_target += [targets.setdefault(word, len(targets))] * len(row)
    source = np.array(link_source)
    cells, cell = np.unique(
        source * len(targets) + np.array(link_target), return_inverse=True
    )
    cell_source = cells // len(targets)
    word = np.repeat(np.arange(len(starts)), np.diff([*starts, len(source)]))
    learnt = taught[np.array(pair_of_word)][word]
    chance = np.ones(len(cells))
    for _ in range(rounds):
        share = chance[cell] + 1e-9
        share /= np.bincount(word, share)[word]
        count = np.bincount(cell[learnt], share[learnt], minlength=len(cells))
        total = np.bincount(cell_source, count)
        chance = count / np.maximum(total[cell_source], 1e-9)
    likeliest = np.maximum.reduceat(np.where(source > 0, chance[cell], 0), starts)
    logs = np.bincount(pair_of_word, np.log(np.maximum(likeliest, 1e-4)))
    return logs / np.bincount(pair_of_word)


# Splits: whole pages, then no near-duplicates


def split_of(page: str) -> str:
    """Where a page belongs, by its path alone."""
    place = int(hashlib.sha256(page.encode()).hexdigest(), 16) % 1000
    if place < VALID_PAGES:
        return "valid"
    return "test" if place < VALID_PAGES + TEST_PAGES else "train"


def split_pages(pairs: list[Pair], places: dict[Pair, set]) -> tuple[dict, Counter]:
    """Train, valid and test in order of page; a pair of two splits is train's.

    A pair whose pages are all held out, but in different splits, goes.
    """
    splits: dict[str, list[Pair]] = {name: [] for name in SPLITS}
    dropped: Counter = Counter()
    for pair in pairs:
        homes: dict[str, str] = {}
        for page in sorted(places[pair]):
            homes.setdefault(split_of(page), page)
        if "train" in homes or len(homes) == 1:
            name = "train" if "train" in homes else next(iter(homes))
            splits[name].append(replace(pair, page=homes[name]))
        else:
            dropped["in valid and test"] += 1
    for name in SPLITS:
        splits[name].sort(key=lambda pair: pair.page)
    others: list[Pair] = []
    for name, limit in zip(
        SPLITS, (NEAR_TRAIN, NEAR_HELD_OUT, NEAR_HELD_OUT), strict=True
    ):
        kept = drop_near(splits[name], others, limit)
        dropped[f"near-duplicate in {name}"] = len(splits[name]) - len(kept)
        splits[name], others = kept, others + kept
    return splits, dropped


def drop_near(pairs: list[Pair], others: list[Pair], limit: float) -> list[Pair]:
    """The pairs that are near no other pair and no earlier one of their own.

    Two pairs are near when on either side the sets of neighbouring words
    have a Jaccard overlap of `limit` or more.
    """
    everything = [*others, *pairs]
    english = overlaps([pair.english for pair in everything], limit)
    german = overlaps([pair.german for pair in everything], limit)
    gone: set[int] = set()
    for n in range(len(others), len(everything)):
        if (english[n] | german[n]) - gone:
            gone.add(n)
    return [p for n, p in enumerate(everything) if n >= len(others) and n not in gone]


def overlaps(texts: list[str], limit: float) -> list[set[int]]:
    """For each text the earlier ones that overlap it by `limit` or more."""
    sets = [word_pairs(text) for text in texts]
    frequency = Counter(item for items in sets for item in items)
    index: dict[tuple, list[int]] = defaultdict(list)
    found: list[set[int]] = []
    for n, items in enumerate(sets):
        # Two sets that overlap so much share one of these rarest items.
        rare = sorted(items, key=lambda item: (frequency[item], item))
        rare = rare[: len(rare) - math.ceil(limit * len(rare)) + 1]
        near = {m for item in rare for m in index[item]}
        found.append({m for m in near if jaccard(items, sets[m]) >= limit})
        for item in rare:
            index[item].append(n)
    return found


def word_pairs(text: str) -> frozenset[tuple[str, str]]:
    line = ["", *plain(text), ""]
    return frozenset(pairwise(line))


def jaccard(a: frozenset, b: frozenset) -> float:
    return len(a & b) / len(a | b)


# What is written


def columns(pair: Pair) -> str:
    return f"{pair.english}\t{pair.german}"


def page_lines(splits: dict[str, list[Pair]]) -> Iterator[str]:
    """Split, page and number of pairs, in the order of the corpus files."""
    for name in SPLITS:
        for page, count in Counter(pair.page for pair in splits[name]).items():
            yield f"{name}\t{page}\t{count}"


def write(path: Path, lines: Iterable[str]) -> None:
    """Compressed by xz, which keeps no name and no time: equal text, equal bytes."""
    data = "".join(f"{line}\n" for line in lines).encode("utf-8")
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    temporary.replace(path)


def describe(pairs: list[Pair]) -> dict:
    sides = {
        "english": [words(pair.english) for pair in pairs],
        "german": [words(pair.german) for pair in pairs],
    }
    return {
        "pairs": len(pairs),
        "pages": len({pair.page for pair in pairs}),
        "sources": dict(sorted(Counter(pair.source for pair in pairs).items())),
        **{
            side: {
                "words": sum(map(len, texts)),
                "mean": round(statistics.mean(map(len, texts)), 1),
                "quartiles": statistics.quantiles(map(len, texts), n=4),
                "longest": max(map(len, texts)),
            }
            for side, texts in sides.items()
        },
        "distinct_english": distinct(pair.english for pair in pairs),
        "distinct_german": distinct(pair.german for pair in pairs),
    }


def distinct(texts: Iterable[str]) -> int:
    return len({word for text in texts for word in plain(text)})


def show(splits: dict[str, list[Pair]], sample: int, seed: int) -> None:
    by_source: dict[str, list[Pair]] = defaultdict(list)
    for name in SPLITS:
        for pair in splits[name]:
            by_source[pair.source].append(pair)
    for source, pairs in sorted(by_source.items()):
        print(f"\n{source}: {len(pairs)}")
        chosen = random.Random(seed).sample(pairs, min(sample, len(pairs)))
        for n, pair in enumerate(chosen):
            print(f"{n}\t{columns(pair)}")


if __name__ == "__main__":
    main()
