"""The first cell, run as a notebook would, with pip mocked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bookkit.colab import FIRST_CELL, stamp

URL = "https://github.com/owner/repo"

# Stands in for pip: notes how it is called, and "installs" bookkit.
PIP = """
import json, pathlib, sys
here = pathlib.Path(__file__).parent
calls = here / "calls.json"
seen = json.loads(calls.read_text()) if calls.exists() else []
calls.write_text(json.dumps([*seen, sys.argv[1:]]))
if (here / "broken").exists():
    sys.exit("no such repository")
(here / "bookkit.py").write_text("here = True")
"""


def run(cell, folder: Path):
    """Run a cell where `folder` is all there is besides Python."""
    (folder / "pip.py").write_text(PIP)
    (folder / "cell.py").write_text(cell)
    return subprocess.run(
        [sys.executable, "-S", "cell.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )


def test_does_nothing_and_says_nothing_where_the_code_is_installed(tmp_path):
    (tmp_path / "bookkit.py").write_text("raise SystemExit('imported')")
    for cell in (FIRST_CELL, stamp(FIRST_CELL, URL)):
        done = run(cell, tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "calls.json").exists()


def test_installs_once_and_the_code_can_be_imported_at_once(tmp_path):
    cell = stamp(FIRST_CELL, URL)
    again = cell + "\nimport bookkit\nassert bookkit.here\n"
    for _ in range(2):
        done = run(again, tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    calls = json.loads((tmp_path / "calls.json").read_text())
    assert calls == [["install", "--quiet", f"git+{URL}"]]


def test_says_what_to_set_where_no_address_is_known(tmp_path):
    done = run(FIRST_CELL, tmp_path)
    assert done.returncode
    assert "set repository.url in _config.yml" in done.stderr
    assert not (tmp_path / "calls.json").exists()


def test_a_failed_install_shows_what_pip_said(tmp_path):
    (tmp_path / "broken").touch()
    done = run(stamp(FIRST_CELL, URL), tmp_path)
    assert done.returncode
    assert "RuntimeError" in done.stderr and "no such repository" in done.stderr


def test_stamps_a_notebook_file_as_it_does_a_cell():
    lines = FIRST_CELL.splitlines(keepends=True)
    text = json.dumps({"cells": [{"source": lines}]}, indent=1)
    stamped = json.loads(stamp(text, URL))
    assert "".join(stamped["cells"][0]["source"]) == stamp(FIRST_CELL, URL)


@pytest.mark.parametrize("url", ["", "http://a.b/c", 'https://a.b/c"; evil()', "a/b"])
def test_refuses_what_is_no_address(url):
    with pytest.raises(ValueError, match="https://HOST"):
        stamp(FIRST_CELL, url)


def test_refuses_to_stamp_twice():
    with pytest.raises(ValueError, match="exactly once"):
        stamp(stamp(FIRST_CELL, URL), URL)
