"""What the book adds to the model: your parts, checks, mistakes."""

from bookkit import checks as check
from bookkit import mutations
from bookkit.report import CheckFailed, Report
from bookkit.using import PARTS, use, yours

__all__ = [
    "PARTS",
    "CheckFailed",
    "Report",
    "check",
    "mutations",
    "use",
    "yours",
]
