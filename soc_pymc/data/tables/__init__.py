"""Tables of all kinds: opened, validated and grouped; the part that uses Ibis."""

from .grouped import Grouped
from .local import Local
from .sources import batches, column_names, kind_of, open_table, to_ibis
from .validation import Scan, Tables, Totals, check_ids, scan

__all__ = [
    "Grouped",
    "Local",
    "Scan",
    "Tables",
    "Totals",
    "batches",
    "check_ids",
    "column_names",
    "kind_of",
    "open_table",
    "scan",
    "to_ibis",
]
