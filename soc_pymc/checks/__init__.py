"""Checks of a fit against items: numbers alone, pictures are in `soc_pymc.plots`."""
