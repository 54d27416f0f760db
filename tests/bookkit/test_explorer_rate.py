"""The learning-rate explorer shows the numbers of `noam_rate`."""

import re
import shutil
import subprocess

import pytest

from bookkit import explorers
from transformer import noam_rate

CASES = [(512, 4000), (1024, 4000), (64, 100), (2048, 16000)]
# Enough of a drawing for the script: `draw` only puts and says.
RUN = """
const put = (tag, attributes) => {{
  if ("data-value" in attributes) console.log(attributes["data-value"]);
}};
for (const [d_model, warmup] of {cases})
  console.log(draw({{ d_model, warmup }}, put, 640).says);
"""


def written(number: float) -> str:
    """As the explorer writes a rate: 6.99e−4."""
    digits, exponent = f"{number:.2e}".split("e")
    return f"{digits}e−{-int(exponent)}"


def test_the_table_holds_equation_3():
    shown = explorers.learning_rate(1024, 8000)
    rows = dict(re.findall(r"^ *(\d+) +(\S+)$", repr(shown), re.MULTILINE))
    assert rows == {
        str(step): written(noam_rate(step, 1024, 8000))
        for step in (1, 100, 1000, 8000, 10_000, 20_000, 100_000)
    }
    for rate in rows.values():
        assert f"<td>{rate}</td>" in shown.html


def test_the_sliders_start_where_they_are_told_and_refuse_the_rest():
    html = explorers.learning_rate(1024, 8000).html
    assert 'min="64" max="2048" step="64" value="1024"' in html
    assert 'min="100" max="16000" step="100" value="8000"' in html
    for wrong in ((100, 4000), (4096, 4000), (512, 50)):
        with pytest.raises(ValueError, match=r"d_model=|warmup="):
            explorers.learning_rate(*wrong)


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_the_script_draws_and_says_equation_3():
    html = explorers.learning_rate().html
    script = html[html.index("const name") : html.index("const box")]
    cases = [list(case) for case in CASES]
    done = subprocess.run(
        ["node", "-e", script + RUN.format(cases=cases)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = iter(done.stdout.splitlines())
    for width, warmup in CASES:
        peak = noam_rate(warmup, width, warmup)
        assert float(next(lines)) == pytest.approx(peak, rel=1e-12)
        says = next(lines)
        for step in (1, warmup, 100_000):
            assert written(noam_rate(step, width, warmup)) in says
        assert f"d_model {width} with {warmup} steps" in says
