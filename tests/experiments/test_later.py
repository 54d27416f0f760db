"""Chapter 20's results are whole, and the chapter says what they say."""

import json
import re
import statistics

import pytest
import torch
from tests.experiments.test_results import ROOT, load, script, summaries_agree

from bookkit import later as switches
from bookkit import ledger
from bookkit.evidence import Measurement
from transformer import TransformerConfig

later, lstm = script("later"), script("lstm")
CHAPTER = ROOT / "notebooks" / "20_conclusion.ipynb"
POSITIONS = ("as printed", "rotary", "ALiBi", "no positions")


TUNED = {
    "later": ["later_tuning_low", "later_tuning"],
    "lstm": [name for name, *_ in lstm.TUNING.values()],
}


@pytest.mark.parametrize("name", [*TUNED, *TUNED["later"], *TUNED["lstm"]])
def test_it_was_measured_on_committed_code_and_one_thread(name):
    result = load(name)
    assert result["provenance"]["clean"]
    assert result["provenance"]["machine"]["threads"] == 1
    assert [run["seed"] for run in result["runs"]] == result["seeds"]


@pytest.mark.parametrize("name", ["later", "lstm"])
def test_no_reported_seed_was_used_for_tuning(name):
    reported = load(name)["seeds"]
    assert len(reported) == {"later": 5, "lstm": 3}[name]
    for file in TUNED[name]:
        tuned = load(file)["seeds"]
        assert tuned and not set(tuned) & set(reported)


def test_each_switch_has_the_peak_that_did_best_in_the_tuning():
    losses = [load(name)["runs"][0]["loss"] for name in TUNED["later"]]
    peaks = load("later")["settings"]["peak"]
    assert set(peaks) == set(switches.SWITCHES)
    for name, peak in peaks.items():
        found = {**losses[0][name], **losses[1][name]}
        assert float(min(found, key=found.get)) == peak


def test_both_models_have_the_peak_that_did_best_in_the_tuning():
    tunings = [load(name) for name in TUNED["lstm"]]
    assert lstm.best(*tunings) == load("lstm")["settings"]["peak"]
    tried = [set(run["runs"][0]["curve"]["lstm"]) for run in tunings]
    assert set().union(*tried) == {"0.001", "0.002", "0.004", "0.008", "0.016"}


def test_the_time_of_a_target_is_read_off_between_two_looks():
    curve = [(1.0, 100.0), (2.0, 50.0), (4.0, 25.0)]
    assert lstm.reached(curve, 50.0) == pytest.approx(2.0)
    assert lstm.reached(curve, 50 / 2**0.5) == pytest.approx(3.0)
    assert lstm.reached(curve, 200.0) == 1.0
    assert lstm.reached(curve, 20.0) is None


@pytest.mark.parametrize(("name", "module"), [("later", later), ("lstm", lstm)])
def test_summaries_are_those_of_the_runs(name, module):
    result = load(name)
    computed = module.summarise(result["runs"])
    for part, found in computed.items():
        assert summaries_agree(result["summary"][part], found)


def test_every_switch_was_measured_from_every_seed():
    result = load("later")
    assert result["settings"]["declared"] == {
        "gain": later.GAIN,
        "beyond": later.BEYOND,
    }
    for run in result["runs"]:
        assert set(run["loss"]) == set(run["weights"]) == set(switches.SWITCHES)
        assert set(run["within"]) == set(run["beyond"]) == set(POSITIONS)
        assert {len(curve) for curve in run["curve"].values()} == {512 // 16}
        for name, curve in run["curve"].items():
            assert statistics.fmean(curve[4:]) == pytest.approx(
                run["beyond"][name], abs=1e-3
            )


# --- the LSTM beside the Transformer


def test_the_two_have_equally_many_weights_to_one_in_a_hundred():
    for run in load("lstm")["runs"]:
        assert run["weights"]["lstm"] == pytest.approx(
            run["weights"]["transformer"], rel=0.01
        )


def test_times_and_perplexities_are_those_of_the_curves():
    result = load("lstm")
    target, seconds = result["settings"]["target"], result["settings"]["seconds"]
    assert target == lstm.TARGET
    for run in result["runs"]:
        for kind, curve in run["curve"].items():
            used = [point[0] for point in curve]
            assert used == sorted(used) and used[-1] >= seconds
            assert run["steps"][kind] == lstm.TURN * len(curve)
            first = run["seconds_to_target"][kind]
            assert first == pytest.approx(lstm.reached(curve, target))
            assert all(p > target for t, p in curve if t < first)
            assert min(p for t, p in curve if t <= first + 10) <= target
            within = [p for t, p in curve if t <= seconds]
            assert run["perplexity"][kind] == within[-1]


def test_the_verdict_is_what_the_rule_gives():
    claim = ledger.claim("conclusion-faster")
    result = load("lstm")
    ratios = {
        run["seed"]: run["seconds_to_target"]["lstm"]
        / run["seconds_to_target"]["transformer"]
        for run in result["runs"]
    }
    assert list(claim.seeds) == result["seeds"]
    assert f"{result['settings']['target']:g}" in claim.effect
    assert Measurement(ratios).decided_by(claim.rule) == claim.verdict


@pytest.fixture
def recurrent():
    config = TransformerConfig.tiny(13)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return lstm.Recurrent(config, hidden=6).eval()


def test_the_lstm_sees_no_later_target_and_all_of_the_source(recurrent):
    source, target = torch.tensor([[4, 5, 6, 2]]), torch.tensor([[1, 7, 8, 9]])
    before = recurrent(source, target)
    changed = target.clone()
    changed[0, 2] = 10
    after = recurrent(source, changed)
    assert torch.equal(before[:, :2], after[:, :2])
    assert not torch.equal(before[:, 2:], after[:, 2:])
    for place in range(4):
        other = source.clone()
        other[0, place] = 11
        assert not torch.allclose(before, recurrent(other, target), atol=1e-7)


def test_the_lstm_gives_padding_no_attention(recurrent):
    seen = []
    padded = torch.tensor([[4, 5, 2, 0, 0]])

    def record(function, query, key, value, attn_mask, scale):
        seen.append((query @ key.mT).masked_fill(~attn_mask, -torch.inf).softmax(-1))
        return function(query, key, value, attn_mask=attn_mask, scale=scale)

    real = lstm.F.scaled_dot_product_attention
    try:
        lstm.F.scaled_dot_product_attention = lambda *a, **k: record(real, *a, **k)
        recurrent(padded, torch.tensor([[1, 7]]))
    finally:
        lstm.F.scaled_dot_product_attention = real
    (weights,) = seen
    assert (weights[..., 3:] == 0).all() and (weights[..., :3] > 0).all()


def test_the_bridge_hands_over_the_last_states_of_both_directions(recurrent):
    ids = torch.tensor([[4, 5, 2]])
    memory, (hidden, _) = recurrent.encoder(recurrent.embedding(ids))
    started = {}
    recurrent.decoder.register_forward_pre_hook(
        lambda _, args: started.update(state=args[1])
    )
    recurrent(ids, torch.tensor([[1]]))
    top = started["state"][0][-1, 0]
    assert torch.equal(top[:6], memory[0, -1, :6])  # forwards, at the end
    assert torch.equal(top[6:], memory[0, 0, 6:])  # backwards, at the start
    assert torch.equal(started["state"][0][0, 0], hidden[:2, 0].flatten())


# --- what the chapter's table says


def table() -> dict[str, list[str]]:
    """The rows of the table of changes: switch -> its cells."""
    cells = json.loads(CHAPTER.read_text("utf-8"))["cells"]
    text = "".join(
        line
        for cell in cells
        if cell["cell_type"] == "markdown"
        for line in [*cell["source"], "\n"]
    )
    rows = re.findall(r"(?m)^\|(.+)\|$", text[text.index("## The table") :])
    split = [[cell.strip() for cell in row.split(" | ")] for row in rows]
    return {row[0]: row for row in split[2:]}


NAMES = {  # as the table has it
    "Pre-norm": "pre-norm",
    "RMSNorm": "RMSNorm",
    "GELU": "GELU",
    "SwiGLU": "SwiGLU",
    "Rotary": "rotary",
    "ALiBi": "ALiBi",
    "Grouped queries": "2 of 4 key heads",
    "Five together": "five together",
}


@pytest.mark.parametrize(("row", "name"), NAMES.items())
def test_the_table_gives_the_gain_its_interval_and_its_outcome(row, name):
    runs = load("later")["runs"]
    found = Measurement(
        {run["seed"]: run["loss"]["as printed"] - run["loss"][name] for run in runs}
    )
    said = table()[row][2]
    outcome = switches.outcome(found, later.GAIN)
    mean = f"{found.mean:+.3f}".replace("-", "−")
    assert f"{outcome}: {mean} ± {found.half_width:.3f}" in said
