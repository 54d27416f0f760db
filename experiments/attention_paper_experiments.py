"""Two small tables for a terminal: score variance, and the encoding.

    python experiments/attention_paper_experiments.py

Section 3.2.1's footnote says that the dot product of independent
vectors with unit variance has variance d_k. Section 3.5 gives each
position a vector of width d_model. Takes a second.
"""

from __future__ import annotations

import argparse

from bookkit.proofs import variance_dk
from transformer import sinusoidal_encoding


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print("d_k   variance of q.k       of q.k / sqrt(d_k)")
    for width in (4, 16, 64):
        found = variance_dk(width)
        plain = f"{found.measured:7.2f} ± {found.spread:.2f}"
        scaled = f"{found.measured / width:8.3f} ± {found.spread / width:.3f}"
        print(f"{width:3d}  {plain}      {scaled}")
    print("variance ± its standard error, 20,000 pairs of vectors")
    print()
    print("encoding of 5 positions, d_model 8: shape", end=" ")
    print(tuple(sinusoidal_encoding(5, 8).shape))


if __name__ == "__main__":
    main()
