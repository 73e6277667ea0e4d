"""The room that knows Ibis: every kind of table opened, validated and grouped by one engine."""

from .grouping import Grouped, count_cell, exposure_cell, fold_of, score_cell, with_bins
from .reading import MOST_FOLDS, Folds, Reader, Tables, Totals
from .scanning import Scan, scan
from .scoring import Curves, Ladder, scored, scoring_sql
from .sources import batches, kind_of, open_table, to_ibis
from .streaming import Streamed

__all__ = [
    "MOST_FOLDS",
    "Curves",
    "Folds",
    "Grouped",
    "Ladder",
    "Reader",
    "Scan",
    "Streamed",
    "Tables",
    "Totals",
    "batches",
    "count_cell",
    "exposure_cell",
    "fold_of",
    "kind_of",
    "open_table",
    "scan",
    "score_cell",
    "scored",
    "scoring_sql",
    "to_ibis",
    "with_bins",
]
