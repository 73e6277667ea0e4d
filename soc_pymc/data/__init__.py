"""Steps from items to statistics: sources of items, validity, bins, cells, sums on any engine."""
