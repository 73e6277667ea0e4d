"""Simulated items whose truth is known, with the oracles who know it: for tests and studies."""

from .clicks import click_rates, s1, s1_curves
from .laplace import laplace_effects, laplace_oracle
from .lognormal import lognormal_oracle, lognormal_rates

__all__ = [
    "click_rates",
    "laplace_effects",
    "laplace_oracle",
    "lognormal_oracle",
    "lognormal_rates",
    "s1",
    "s1_curves",
]


def __dir__() -> list[str]:
    return sorted(__all__)
