"""The page is made from the sources, is the same model, and learns."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys

import pytest
import torch

import transformer
from bookkit import ledger, one_file
from bookkit.one_file import StalePart, assemble
from transformer import TransformerConfig, recipes
from transformer.data.toy import SymbolTask

FILE = ledger.project_root() / "book/_static" / one_file.NAME
REMAKE = f"python -m bookkit.one_file -o book/_static/{one_file.NAME}"


@pytest.fixture(scope="module")
def page():
    return one_file.load()


@pytest.fixture
def fresh():
    """The text, made anew before and after."""
    assemble.cache_clear()
    yield assemble.__wrapped__
    assemble.cache_clear()


def pair(page, **shape):
    """A model of ours and the page's, with the same weights."""
    torch.manual_seed(0)
    ours = transformer.Transformer(TransformerConfig.tiny(13, **shape)).eval()
    theirs = page.Transformer(page.TransformerConfig.tiny(13, **shape)).eval()
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


SOURCE = torch.tensor([[3, 7, 5, 12, 2], [6, 4, 2, 0, 0]])
TARGET = torch.tensor([[1, 3, 7, 5], [1, 6, 4, 2]])


def test_the_committed_page_is_the_one_that_the_sources_give():
    assert FILE.read_text("utf-8") == assemble(), f"make it anew: {REMAKE}"


def test_model_loss_loop_and_decoding_take_400_lines_at_most():
    model, _, task = assemble().partition("# --- The copy task")
    assert task
    assert len(model.rstrip().splitlines()) <= one_file.MOST_LINES


def test_the_whole_page_has_400_lines_of_code_at_most():
    lines = [line.strip() for line in assemble().splitlines()]
    code = [line for line in lines if line and not line.startswith("#")]
    assert len(code) <= one_file.MOST_LINES
    assert max(map(len, assemble().splitlines())) <= one_file.WIDTH


def test_it_needs_nothing_but_torch_and_refuses_no_input():
    tree = ast.parse(assemble())
    roots = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([getattr(node, "module", "")] if hasattr(node, "module") else [])
        + [alias.name for alias in node.names if isinstance(node, ast.Import)]
    }
    assert roots - set(sys.stdlib_module_names) == {"torch"}
    assert not any(isinstance(node, ast.Raise) for node in ast.walk(tree))


@pytest.mark.parametrize(
    "shape",
    [{}, dict(heads=1, layers=1), dict(heads=4, layers=3, d_model=32, d_ff=48)],
    ids=["tiny", "one of each", "deeper"],
)
def test_equal_weights_give_equal_logits(page, shape):
    ours, theirs = pair(page, **shape)
    ours, theirs = ours.double(), theirs.double()
    assert torch.allclose(
        ours(SOURCE, TARGET), theirs(SOURCE, TARGET), rtol=0, atol=1e-12
    )


def test_equal_weights_decode_to_equal_tokens(page):
    ours, theirs = pair(page)
    ours = transformer.greedy_decode(ours, SOURCE, max_length=8)
    assert torch.equal(ours, page.greedy_decode(theirs, SOURCE, max_length=8))


def test_the_weights_that_it_keeps_are_those_of_return_attention(page):
    ours, theirs = pair(page)
    _, weights = ours(SOURCE, TARGET, return_attention=True)
    theirs(SOURCE, TARGET)
    kept = torch.stack(
        [layer.cross_attention.weights for layer in theirs.decoder.layers]
    )
    assert torch.allclose(weights["cross"], kept, atol=1e-6)


def test_it_starts_and_trains_as_ours_does(page):
    settings = dict(steps=4, snapshot_every=2, average_last=2, progress=False)
    ours, history = recipes.train_toy(SymbolTask(), 3, **settings)
    theirs, losses = page.train_toy(page.SymbolTask(), 3, **settings)
    assert losses == pytest.approx(history.loss, rel=1e-5)
    for name, tensor in ours.state_dict().items():
        assert torch.allclose(tensor, theirs.state_dict()[name], atol=1e-4), name


def test_the_losses_are_the_same_with_smoothing_and_padding(page, generator):
    logits = torch.randn(2, 5, 13, generator=generator, dtype=torch.double)
    ours = transformer.LabelSmoothingLoss(0.1, 0)(logits, SOURCE)
    assert torch.equal(ours, page.LabelSmoothingLoss(0.1, 0)(logits, SOURCE))


@pytest.mark.slow
def test_it_learns_to_copy(page):
    task = page.SymbolTask(shortest=1, longest=5)
    model, _ = page.train_toy(task, 0, steps=300, progress=False)
    test = task.batch(200, torch.Generator().manual_seed(1))
    assert page.greedy_exact_match(model, test) > 0.9


def test_the_file_runs_by_itself():
    """Isolated: without this project, its folder or the user's packages."""
    run = (
        "import runpy, sys; page = runpy.run_path(sys.argv[1]);"
        " page['torch'].set_num_threads(1); page['demo'](steps=2);"
        " assert not {'transformer', 'bookkit'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", run, FILE], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "greedy exact match on 1000 fresh sequences: 0." in done.stdout


def test_what_changes_in_the_source_changes_on_the_page(monkeypatch, fresh):
    """It is no second copy."""
    text = one_file._text

    def changed(module):
        return text(module).replace("softmax(dim=-1)", "softmax(dim=-2)")

    monkeypatch.setattr(one_file, "_text", changed)
    assert "weights = scores.softmax(dim=-2)" in fresh()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("    @ linear.Linear.forward", "transformer.linear has no Linear.forward"),
        ("    @ masks.future_mask", "transformer.masks has no future_mask"),
        ("    - gone_long_ago = ", "gone_long_ago ="),
        ("    - scores = | gone = ", "gone ="),
        ("    + gone_long_ago = ", "gone_long_ago ="),
        ("    < if training:", "if training:"),
        ("    ^ gone", "gone"),
        ("    x + 1 => x", "x + 1 => x: no statement has that"),
        ("    x + 1 =>", "x + 1 =>"),
    ],
)
def test_a_line_of_the_outline_that_fits_nothing_is_an_error(
    monkeypatch, fresh, line, says
):
    """After the lines under the attention's `@`."""
    outline = one_file._outline()
    before = "    F.dropout(weights, dropout) => weights\n"
    assert outline.count(before) == 1
    changed = outline.replace(before, f"{before}{line}\n")
    monkeypatch.setattr(one_file, "_outline", lambda: changed)
    with pytest.raises(StalePart) as failed:
        fresh()
    assert says in str(failed.value)


def test_the_outline_holds_no_statement_of_its_own():
    """Under each function stands where its statements come from."""
    rows = [line for line in one_file._outline().splitlines() if line.strip()]
    for above, line in itertools.pairwise(rows):
        if above.lstrip().startswith("def "):
            assert line.lstrip().startswith(("@ ", "# ")), above


def test_show_gives_the_lines_of_the_page():
    shown = one_file.show("causal_mask", "MultiHeadAttention.split_heads")
    text = [line.text for line in shown.lines if line.text]
    assert text[0].startswith("def causal_mask(")
    assert text[-1] in assemble()
    assert "def split_heads" in repr(shown)
    with pytest.raises(StalePart, match="the page has no Attention"):
        one_file.show("Attention")


def test_the_command_writes_the_page(tmp_path, capsys):
    assert one_file.main(["-o", str(tmp_path / "page.py")]) == 0
    assert one_file.main([]) == 0
    assert capsys.readouterr().out == (tmp_path / "page.py").read_text("utf-8")


def test_every_part_names_chapters_that_the_book_has():
    planned = {claim.chapter[:2] for claim in ledger.load().values()}
    named = re.findall(r"# --- .*\(chapters? ([\d, ]+)\)", one_file._outline())
    assert len(named) >= 10
    assert set(", ".join(named).split(", ")) <= planned
