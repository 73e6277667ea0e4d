"""The room that knows Ibis: every kind of table opened, validated and grouped by one engine."""

from .grouping import cell_sums, count_cell, exposure_cell, grid_weights, score_cell, with_bins
from .scanning import Scan, scan
from .sources import batches, kind_of, open_table, to_ibis

__all__ = [
    "Scan",
    "batches",
    "cell_sums",
    "count_cell",
    "exposure_cell",
    "grid_weights",
    "kind_of",
    "open_table",
    "scan",
    "score_cell",
    "to_ibis",
    "with_bins",
]
