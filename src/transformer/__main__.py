"""`python -m transformer`, and what torchrun starts."""

import sys

from transformer.cli import main

if __name__ == "__main__":
    sys.exit(main())
