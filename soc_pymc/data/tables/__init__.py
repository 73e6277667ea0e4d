"""The room that knows Ibis: every kind of table opened, validated and grouped by one engine."""

from .grouping import Grouped
from .reading import MOST_FOLDS, AnyTotals, Folds, NormalTotals, Reader, Tables, Totals, Weights
from .scanning import Scan, scan
from .sources import batches, kind_of, open_table, to_ibis
from .streaming import Streamed

__all__ = [
    "MOST_FOLDS",
    "AnyTotals",
    "Folds",
    "Grouped",
    "NormalTotals",
    "Reader",
    "Scan",
    "Streamed",
    "Tables",
    "Totals",
    "Weights",
    "batches",
    "kind_of",
    "open_table",
    "scan",
    "to_ibis",
]
