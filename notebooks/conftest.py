"""What `pytest --nbval notebooks/` checks beyond the text of outputs.

nbval compares text and ignores metadata, where evidence lines have
their numbers. Here these are compared, within the tolerance that
stands with them. A cell that was never executed fails, as does one
that takes too long; nbval alone lets both pass.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SECONDS_A_CELL = 300  # the whole notebook should take less than 60
SECONDS_FOR_OUTPUT = 60  # nbval's own 5 are too few on a busy machine
FOLDER = Path(__file__).parent

# The kernels inherit it: one thread is faster here, and the same everywhere.
os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")


def pytest_configure(config):
    """Strict, in this environment, whatever the command line leaves out."""
    option = config.option
    if not getattr(option, "nbval", False):
        return
    option.nbval_current_env = True
    if option.nbval_cell_timeout == 2000:  # nbval's default
        option.nbval_cell_timeout = SECONDS_A_CELL
    if option.nbval_sanitize_with is None:
        option.nbval_sanitize_with = str(
            FOLDER.parent / "nbval_sanitize.cfg"
        )


def pytest_runtest_setup(item):
    """More patience for outputs than nbval has."""
    if hasattr(item, "output_timeout"):
        item.output_timeout = SECONDS_FOR_OUTPUT


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """After nbval's own comparison: is the evidence the same?"""
    is_cell = hasattr(item, "cell_num")
    if (
        is_cell
        and item.cell.source.strip()
        and item.cell.execution_count is None
    ):
        item.raise_cell_error(
            "The cell was never executed: refresh the notebook"
        )
    had_timed_out = is_cell and item.parent.timed_out
    result = yield
    if not is_cell or item.config.option.nbval_lax:
        return result
    if item.parent.timed_out and not had_timed_out:
        item.parent.timed_out = False  # the kernel lives: test the rest
        item.raise_cell_error(
            "The cell took too long and went on when interrupted"
        )
    from bookkit.evidence import differences

    found = differences(
        evidence(item.test_outputs), evidence(item.cell.outputs)
    )
    if found:
        item.raise_cell_error("The evidence differs", "\n".join(found))
    return result


def evidence(outputs) -> list[dict]:
    """The evidence that a cell's outputs have in their metadata."""
    found = (
        output.get("metadata", {}).get("evidence")
        for output in outputs or []
    )
    return [facts for facts in found if isinstance(facts, dict)]
