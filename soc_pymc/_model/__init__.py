"""Steps from statistics to the `pymc.Model`: splines, terms, rows, Laplace start, coordinates."""
