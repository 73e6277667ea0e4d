"""Fits: draws of the curves, configuration and status; what later packages read."""
