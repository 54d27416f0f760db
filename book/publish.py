"""Fill the repository's address in: `python book/publish.py ADDRESS`.

The publish workflow runs it on a fresh checkout, before the site is
built and before the notebooks go to the branch `colab`. It changes
`_config.yml` (repository.url) and the first code cell of each notebook.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from bookkit.colab import stamp

ROOT = Path(__file__).resolve().parent.parent
UNSET = re.compile(r'(?m)^(repository:\n  url: )""$')


def publish(address: str, root: Path = ROOT) -> list[Path]:
    """Write the address into the files; return those that changed.

    Raises:
        ValueError: a file has no place for it, or the address is none.
    """
    address = address.rstrip("/").removesuffix(".git")
    config = root / "_config.yml"
    text, changes = UNSET.subn(
        lambda match: f'{match[1]}"{address}"', config.read_text("utf-8")
    )
    if changes != 1:
        raise ValueError(f'{config.name} must have `url: ""` under `repository:`')
    new = {config: text}
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        try:
            new[path] = stamp(path.read_text("utf-8"), address)
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from error
    for path, text in new.items():
        path.write_text(text, "utf-8")
    return list(new)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="such as https://github.com/OWNER/REPO")
    for path in publish(parser.parse_args().address):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
