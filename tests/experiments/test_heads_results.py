"""What chapter 19 loads is whole, clean, and what the ledger declares."""

import pytest
import torch
from tests.experiments.test_results import RESULTS, load, script, summaries_agree

from bookkit import heads, ledger
from transformer.data.text import help_en_de
from transformer.data.toy import english, german


def test_alignments_are_of_the_declared_seeds_and_summed_up_rightly():
    result = load("number_alignment")
    assert result["provenance"]["clean"]
    seeds = [run["seed"] for run in result["runs"]]
    assert seeds == result["seeds"] == list(ledger.claim("interpretable").seeds)
    computed = script("number_alignment").summarise(result["runs"])
    assert summaries_agree(result["summary"], computed)


def test_chosen_heads_were_the_best_on_the_numbers_for_choosing():
    for run in load("number_alignment")["runs"]:
        for name in ("trained", "untrained"):
            found = run[name]
            chosen = heads.best(torch.tensor(found["chosen_on"]))
            assert found["chosen"] == heads.label(chosen)
            assert found["accuracy"] == found["heads"][chosen[0]][chosen[1]]


def test_kept_maps_are_rows_of_shares():
    result = load("number_alignment")
    for number, table in result["runs"][0]["maps"].items():
        table = torch.tensor(table) / 1000
        sizes = len(german(int(number))) + 1, len(english(int(number))) + 1
        assert table.shape == (2, 2, *sizes)
        torch.testing.assert_close(
            table.sum(-1), torch.ones(2, 2, sizes[0]), atol=0.007, rtol=0
        )


def test_heads_over_time_begin_untrained_and_end_with_removals():
    result = load("heads_over_time")
    assert result["provenance"]["clean"]
    assert (RESULTS / "heads_over_time.json").stat().st_size < 300_000
    steps = [run["seed"] for run in result["runs"]]
    assert steps == result["seeds"] == sorted(steps)
    assert steps[0] == 0 and len(steps) >= 6
    config = result["settings"]["model"]
    shape = config["layers"], config["heads"]
    last = result["runs"][-1]
    assert last["perplexity"] > 1
    for table in last["perplexity_without"].values():
        assert torch.tensor(table).shape == shape
    for run in result["runs"]:
        for split in ("valid", "test"):
            for table in run[split].values():
                assert torch.tensor(table).shape == shape


@pytest.mark.parametrize("pair", [0, 1])
def test_maps_over_time_are_rows_of_shares(pair):
    result = load("heads_over_time")
    source, target = map(len, result["settings"]["shown"][pair])
    config = result["settings"]["model"]
    sizes = {
        "encoder": (source, source),
        "decoder": (target, target),
        "cross": (target, source),
    }
    for run in result["runs"]:
        for kind, (rows, columns) in sizes.items():
            shape = config["layers"], config["heads"], rows, columns
            table = heads.unpack(run["maps"][pair][kind], *shape)
            off = (table.sum(-1) - 1).abs().max()
            assert off < 0.0005 * columns + 1e-6


def test_its_stands_in_as_many_test_sentences_as_the_chapter_says():
    words = [source.lower().split() for source, _ in help_en_de("test")]
    assert sum("its" in sentence for sentence in words) == 5
    assert len(words) == 590
