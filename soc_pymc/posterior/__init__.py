"""What a fit says: curves, posteriors of items, SQL."""
