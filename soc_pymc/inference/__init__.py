"""Inference from model to `Fit`: variational inference and NUTS."""
