"""Section 6.3's experiment: its parts, and what it has written."""

import lzma
import re

import pytest
import torch
from tests.experiments.test_results import load, script

from transformer import Transformer, TransformerConfig
from transformer.data.trees import ParserVocabulary, linearised, read_tree, words
from transformer.evaluation import branching

parsing = script("parsing")
CAT = "(S (NP (DT the) (NN cat)) (VP (VBD sat) (ADVP (RB there))) (. .))"
COLD = "(S (NP (PRP it)) (VP (VBD was) (ADJP (JJ cold))) (. .))"
TREES = [read_tree(CAT), read_tree(COLD)]


# --- parsing --------------------------------------------------------------


def oracle(vocabulary, trees):
    """What a model would say that has learned all."""
    answers = {tuple(words(t)): vocabulary.target(t) for t in trees}
    by_source = {tuple(vocabulary.source(w)): ids for w, ids in answers.items()}

    def decode(source):
        rows = [[i for i in row if i > 2] for row in source.tolist()]
        return [[*by_source[tuple(row)], 2] for row in rows]

    return decode


def test_parsing_is_transduction_to_a_linearised_tree():
    # Section 6.3's model, without its weights: two vocabularies, 16K words.
    vocabulary = ParserVocabulary.fit(TREES, 1)
    with torch.device("meta"):
        paper = Transformer(
            TransformerConfig(
                vocab_size=16_000,
                target_vocab_size=len(vocabulary.tokens),
                tied=False,
                layers=4,
                d_model=1024,
            )
        )
    assert len(paper.encoder.layers) == len(paper.decoder.layers) == 4
    assert paper.output_projection.weight.shape == (len(vocabulary.tokens), 1024)
    # Ours: as many layers; the search is the paper's.
    assert parsing.SHAPE["layers"] == 4
    assert parsing.BEAM == {"beam_size": 21, "alpha": 0.3, "max_extra": 300}
    # Words go in, and the tokens that come out are the tree.
    decode = oracle(vocabulary, TREES)
    found = parsing.parsed(vocabulary, decode, 1, TREES)
    assert found == [(tree, True) for tree in TREES]
    assert vocabulary.said(decode(vocabulary.sentences([words(TREES[1])]))[0]) == (
        "(S (NP XX )NP (VP XX (ADJP XX )ADJP )VP XX )S".split()
    )


def test_trees_come_back_in_their_order():
    trees = [TREES[0], TREES[1], read_tree("(NP (NN x))"), TREES[1], TREES[0]]
    vocabulary = ParserVocabulary.fit(trees, 1)
    found = parsing.parsed(vocabulary, oracle(vocabulary, trees), 2, trees)
    assert [tree for tree, _ in found] == trees


def test_an_untrained_model_parses_badly_but_parses():
    vocabulary = ParserVocabulary.fit(TREES, 1)
    model = parsing.new_model(vocabulary, 0).eval()
    found = parsing.greedy(model, vocabulary)(TREES)
    score = parsing.scored(TREES, found)
    assert score["f1"] < 0.9 and score["malformed"] == 1
    assert [words(tree) for tree, _ in found] == [words(tree) for tree in TREES]


# --- measuring ------------------------------------------------------------


def test_scores_by_length_and_by_label_add_up(monkeypatch):
    monkeypatch.setattr(parsing, "BINS", ((1, 5), (6, 10)))
    found = [(TREES[0], True), (branching(TREES[1], "S", "NP"), False)]
    whole = parsing.scored(TREES, found)
    assert whole["malformed"] == whole["exact"] == 0.5
    assert whole["brackets"] == {"right": 5, "found": 6, "gold": 8}
    short = parsing.by_length([*TREES, *TREES], [*found, *found])[0]
    assert short["words"] == [1, 5] and short["f1"] == whole["f1"]
    labels = {row["label"]: row for row in parsing.by_label(TREES, found)}
    assert sum(row["gold"] for row in labels.values()) == 8
    assert labels["S"]["f1"] == 1 and labels["ADJP"]["f1"] == 0


def test_the_interval_holds_the_score():
    found = [(TREES[0], True), (branching(TREES[1], "S", "NP"), False)] * 20
    gold = TREES * 20
    low, high = parsing.interval(gold, found, draws=200)
    assert low < parsing.scored(gold, found)["f1"] < high


def test_lengths():
    said = parsing.lengths(TREES * 10)
    ratios = [len(linearised(tree)) / len(words(tree)) for tree in TREES]
    assert said["median"] == pytest.approx(sum(ratios) / 2)
    assert said["longest_output"] == 13


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(tmp_path, monkeypatch):
    monkeypatch.setattr(parsing, "EVERY", 2)
    monkeypatch.setattr(parsing, "APART", 1)
    monkeypatch.setattr(
        parsing, "SHAPE", dict(layers=1, d_model=16, d_ff=16, heads=2, max_length=64)
    )
    vocabulary = ParserVocabulary.fit(TREES, 1)
    given = vocabulary, TREES * 4, TREES

    def run(steps, work):
        return parsing.trained(*given, steps, 0, work)

    through, curve = run(4, tmp_path / "through")
    run(2, tmp_path / "stopped")
    resumed, other = run(4, tmp_path / "stopped")
    for name, weight in through.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name
    keys = ("step", "loss", "dev_f1")
    assert [[p[k] for k in keys] for p in curve] == [
        [p[k] for k in keys] for p in other
    ]


def test_data_are_read_cleaned_and_chosen_by_length(tmp_path):
    path = tmp_path / "x.ptb.xz"
    with lzma.open(path, "wt") as file:
        file.write(f"( {CAT} )\n(TOP (NP-SBJ (NN a) (-NONE- *T*)))\n")
    trees = parsing.load(path)
    assert [str(tree) for tree in trees] == [CAT, "(NP (NN a))"]
    assert parsing.between(trees, 1, 4) == trees[1:]


def test_a_clone_of_the_corpus_is_split_by_article(tmp_path, capsys):
    penn = tmp_path / "structural-annotation" / "treebank" / "penn"
    penn.mkdir(parents=True)
    for number in range(40):
        (penn / f"{number:02}.tree").write_text(f"( (NP (NN a{number})) )\n")
    parts = parsing.corpus(tmp_path)
    found = {name: [words(tree)[0] for tree in some] for name, some in parts.items()}
    assert found["dev"] == ["a7", "a27"] and found["test"] == ["a13", "a33"]
    assert len(found["train"]) == 36
    assert "another split than ours" in capsys.readouterr().out


# --- what is committed -----------------------------------------------------


def test_the_committed_result_is_of_this_script_and_adds_up():
    result = load("parsing")
    (run,) = result["runs"]
    assert result["provenance"]["clean"] and result["seeds"] == [parsing.SEED]
    assert parsing.summarise(result["runs"]) == result["summary"]
    settings = result["settings"]
    assert settings["longest"] == parsing.LONGEST and settings["beam"] == parsing.BEAM
    assert settings["shape"] == parsing.SHAPE | parsing.DROPOUT
    assert settings["training"] == parsing.RUN
    assert run["curve"][-1]["step"] == settings["steps"]
    brackets, errors = run["test"]["greedy"]["brackets"], run["test"]["errors"]
    wrong = errors["relabelled"] + errors["crossing"] + errors["extra"]
    lost = errors["relabelled"] + errors["crossed"] + errors["missed"]
    assert brackets["found"] - brackets["right"] == wrong
    assert brackets["gold"] - brackets["right"] == lost
    low, high = run["test"]["greedy"]["interval"]
    assert low < run["test"]["greedy"]["f1"] < high
    inside = [row for row in run["test"]["by_length"] if row["words"][1] <= 10]
    right = sum(row["brackets"]["right"] for row in inside)
    assert right == brackets["right"]


def test_no_tree_is_committed():
    text = (parsing.RESULTS / "parsing.json").read_text("utf-8")
    assert not re.search(r"\([A-Z]+ |XX", text)
