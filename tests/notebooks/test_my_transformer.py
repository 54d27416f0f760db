"""notebooks/my_transformer.py: the reader's parts, which at first are none."""

import runpy
from pathlib import Path

import pytest

from bookkit import PARTS, check, use

FILE = Path(__file__).resolve().parents[2] / "notebooks" / "my_transformer.py"


def with_a_part(tmp_path: Path, name: str, code: str) -> dict:
    """The file, once a reader has written the part of that name."""
    stub = f"{name} = transformer.{name}\n"
    text = FILE.read_text("utf-8")
    assert text.count(stub) == 1
    mine = tmp_path / FILE.name
    mine.write_text(text.replace(stub, code), "utf-8")
    return runpy.run_path(str(mine))


def test_it_names_every_part_and_starts_with_none():
    shipped = runpy.run_path(str(FILE))
    names = {name for names in PARTS.values() for name in names}
    assert set(shipped["MINE"]) == names
    assert shipped["PARTS"] == shipped["OPTIONS"] == {}
    with use(**shipped["PARTS"]) as said:
        assert said == "your Transformer: 0 of 8 parts are yours"


def test_a_part_that_is_written_counts_and_is_checked(tmp_path):
    right = """
def causal_mask(length, device=None):
    return bookkit.check.torch.ones(length, length, device=device).tril() == 1
"""
    written = with_a_part(tmp_path, "causal_mask", right)
    with use(**written["PARTS"]) as said:
        assert said == "your Transformer: 1 of 8 parts are yours: masks"
        check.in_use(**written["OPTIONS"])
    wrong = with_a_part(tmp_path, "causal_mask", right.replace("tril", "triu"))
    with use(**wrong["PARTS"]), pytest.raises(check.CheckFailed, match="masks"):
        check.in_use()


@pytest.mark.parametrize("number", range(1, 9))
def test_every_part_says_which_check_tests_it(number):
    text = FILE.read_text("utf-8")
    start = text.index(f"\n# {number}. ")
    comment = text[start:].partition("\n\n")[0]
    named = [word.strip(".,") for word in comment.split() if word.startswith("check.")]
    assert named
    for name in named:
        assert callable(getattr(check, name.removeprefix("check.")))
