"""The first code cell of every notebook.

It does nothing where the book's code is installed. In Colab it
installs it from the repository whose address the publish workflow has
stamped into the notebooks of the branch `colab`.
"""

from __future__ import annotations

import re

UNSET = 'REPOSITORY_URL = ""'

FIRST_CELL = """\
# Does nothing where the book's code is installed; installs it in Colab.
import importlib.util

if importlib.util.find_spec("bookkit") is None:
    import subprocess
    import sys

    REPOSITORY_URL = ""
    if not REPOSITORY_URL:
        raise ModuleNotFoundError(
            "The book's code is not installed. On your own machine, run"
            " `pip install -r requirements.txt` in the book's folder. For"
            " Colab, set repository.url in _config.yml and publish the book:"
            " that fills in REPOSITORY_URL here."
        )
    command = [sys.executable, "-m", "pip", "install", "--quiet"]
    done = subprocess.run(
        [*command, f"git+{REPOSITORY_URL}"], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"pip could not install the book's code:\\n{done.stderr}")
    importlib.invalidate_caches()
"""


def stamp(text: str, url: str) -> str:
    """Fill the repository's address into a cell or a whole notebook.

    Args:
        text: `FIRST_CELL`, or the text of an .ipynb file.
        url: such as https://github.com/OWNER/REPO.

    Raises:
        ValueError: the text has no place for it, or more than one, or
            the address is not https.
    """
    if not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", url):
        raise ValueError(f"url={url!r} must be an address such as https://HOST/A/B")
    for quote in ('"', '\\"'):  # as Python has it, and as JSON has
        unset = UNSET.replace('"', quote)
        if text.count(unset) == 1:
            return text.replace(unset, f"REPOSITORY_URL = {quote}{url}{quote}")
    raise ValueError(f"{UNSET} must stand in the text exactly once")
