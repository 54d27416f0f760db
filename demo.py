"""Train a small Transformer to copy, in half a minute.

The same as the command `transformer demo`; see --help.
"""

import sys

from transformer.cli import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
