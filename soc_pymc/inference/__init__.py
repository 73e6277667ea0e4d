"""Inference from model to `Fit`: variational inference, NUTS and five steps."""
