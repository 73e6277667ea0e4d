"""Results of a fit: curves, posteriors of items, SQL."""
