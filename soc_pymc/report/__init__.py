"""Reports: what a fit says of items, as one self-contained HTML page."""

from ._report import report

__all__ = ["report"]
