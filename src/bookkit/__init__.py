"""What the book adds to the model: your parts, checks, mistakes."""

from bookkit import checks as check
from bookkit import mutations
from bookkit.evidence import EvidenceFailed, Measurement, evidence, results
from bookkit.explorers import attention as attention_explorer
from bookkit.report import CheckFailed, Report
from bookkit.source import show_source
from bookkit.using import PARTS, use, yours

__all__ = [
    "PARTS",
    "CheckFailed",
    "EvidenceFailed",
    "Measurement",
    "Report",
    "attention_explorer",
    "check",
    "evidence",
    "mutations",
    "results",
    "show_source",
    "use",
    "yours",
]
