"""Small seeded items, statistics and fits, each made once a run and shared by all tests.

`FAMILIES` has one case for each prior; `TERMS` has Gamma priors with further terms. A law that
holds of every family is parametrised over the names in `FAMILIES` and asks the fixture `example`
for the case. Adding a family means adding one entry.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from tests.family_records import SHAPE

QUIET = {"progress": False}
OVER = ("chain", "draw")  # of draws
COUNT_ROLES = {"score": "score", "count": "count", "exposure": "exposure"}
VALUE_ROLES = {"score": "score", "value": "value", "noise_sd": "noise_sd"}
TRIAL_ROLES = {"score": "score", "successes": "successes", "trials": "trials"}
AMOUNT_ROLES = {"score": "score", "amount": "amount", "events": "events"}
ROLES = {
    soc.AmountItems: AMOUNT_ROLES,
    soc.PoissonItems: COUNT_ROLES,
    soc.NormalItems: VALUE_ROLES,
    soc.BinomialItems: TRIAL_ROLES,
}


def kinds(n: int) -> Any:
    """Returns labels of n items, of which every third is "a"."""
    return np.where(np.arange(n) % 3 == 0, "a", "b")


def count_frame(n: int = 4000, seed: int = 3) -> pd.DataFrame:
    """Returns simulated counts; every third item is of kind "a", the others are of kind "b"."""
    frame = soc.simulation.s1(n, seed=seed)
    frame["kind"] = kinds(n)
    return frame


def value_frame(n: int = 1500, seed: int = 4) -> pd.DataFrame:
    """Returns simulated values whose noise and spread of theta vary from item to item."""
    rng = np.random.default_rng(seed)
    score = rng.normal(0.0, 1.5, n)
    theta = rng.normal(0.9 * score + 0.2 * np.sin(score), np.exp(0.2 * score - 0.4))
    noise_sd = np.exp(rng.normal(-0.5, 0.5, n))
    columns = {"score": score, "value": rng.normal(theta, noise_sd), "noise_sd": noise_sd}
    return pd.DataFrame(columns | {"kind": kinds(n), "theta": theta})


def trial_frame(n: int = 2000, seed: int = 5) -> pd.DataFrame:
    """Returns simulated successes in 1 to a few hundred trials."""
    rng = np.random.default_rng(seed)
    score = rng.beta(2.0, 4.0, n)
    mean = 0.05 + 0.8 * score
    theta = rng.beta(12 * mean, 12 * (1 - mean))
    trials = np.ceil(rng.lognormal(2.5, 1.2, n)).astype(int)
    columns = {"score": score, "successes": rng.binomial(trials, theta), "trials": trials}
    return pd.DataFrame(columns | {"kind": kinds(n), "theta": theta})


def amount_frame(n: int = 2000, seed: int = 6) -> pd.DataFrame:
    """Returns simulated amounts of 1 to a few dozen events."""
    rng = np.random.default_rng(seed)
    score = rng.lognormal(0.0, 0.6, n)
    theta = 1.1 * score**0.9 * 5.0 / rng.standard_gamma(6.0, n)
    events = np.ceil(rng.lognormal(1.0, 1.0, n)).astype(int)
    amount = theta / SHAPE * rng.standard_gamma(SHAPE * events)
    columns = {"score": score, "amount": amount, "events": events}
    return pd.DataFrame(columns | {"kind": kinds(n), "theta": theta})


@dataclass(frozen=True)
class Case:
    """The constructors of one example: how its items, statistics and fit are made."""

    frame: Callable[[], pd.DataFrame]
    kind: type[Any]
    prior: Any
    roles: dict[str, Any] = field(default_factory=dict)
    summarize: dict[str, Any] = field(default_factory=lambda: {"bins": 20})
    method: Any = field(default_factory=lambda: soc.VI(draws=400, seed=1))

    def items(self, table: Any) -> Any:
        """Returns items of this kind and these roles over any table with the same columns."""
        return self.kind(table, **ROLES[self.kind], **self.roles)

    def statistics(self) -> soc.Statistics:
        return soc.summarize(self.items(self.frame()), progress=False, **self.summarize)

    def fit(self) -> soc.Fit:
        return soc.fit(self.statistics(), self.prior, self.method, progress=False)


SMALL_MIXTURE = {"functions": 5, "knots": 2}
FAMILIES = {
    "gamma": Case(count_frame, soc.PoissonItems, soc.Gamma(), method=soc.VI(seed=1)),
    "normal": Case(value_frame, soc.NormalItems, soc.Normal()),
    "beta": Case(trial_frame, soc.BinomialItems, soc.Beta()),
    "inverse_gamma": Case(
        amount_frame, soc.AmountItems, soc.InverseGamma(), roles={"shape": SHAPE}
    ),
    "gamma_mixture": Case(count_frame, soc.PoissonItems, soc.GammaMixture(**SMALL_MIXTURE)),
    "normal_mixture": Case(value_frame, soc.NormalItems, soc.NormalMixture(**SMALL_MIXTURE)),
    "beta_mixture": Case(trial_frame, soc.BinomialItems, soc.BetaMixture(**SMALL_MIXTURE)),
    "inverse_gamma_mixture": Case(
        amount_frame,
        soc.AmountItems,
        soc.InverseGammaMixture(**SMALL_MIXTURE),
        roles={"shape": SHAPE},
    ),
}
SINGLE_FAMILIES = ("gamma", "normal", "beta", "inverse_gamma")
_FEW = {"mean": soc.Spline(knots=6), "variance": soc.Spline(knots=4)}
TERMS = {
    "groups": Case(
        partial(count_frame, 3000, 5),
        soc.PoissonItems,
        soc.Gamma(**_FEW),
        roles={"group": "kind"},
        summarize={"bins": 15},
        method=soc.VI(draws=200),
    ),
    "exposure": Case(
        count_frame,
        soc.PoissonItems,
        soc.Gamma(**_FEW, exposure=soc.Spline(knots=4)),
        summarize={"bins": 20, "joint": True},
        method=soc.VI(draws=200),
    ),
    "zeros": Case(count_frame, soc.PoissonItems, soc.Gamma(zero=True)),
    "five_steps": Case(count_frame, soc.PoissonItems, soc.Gamma(), method=soc.FiveSteps()),
}
CASES = FAMILIES | TERMS


def crossed_frame() -> pd.DataFrame:
    """Returns 420 items of four countries and two devices, without the last combination."""
    from tests.studies import coverage  # which needs this module

    table = coverage.in_cells(1, items=60, sizes=(4, 2))[0]
    missing = (table["country"] == "c03") & (table["device"] == "d01")
    return table[~missing].reset_index(drop=True)


# for the tests of several columns of groups alone: its fit is dear
CROSSED = Case(
    crossed_frame,
    soc.PoissonItems,
    soc.Gamma(mean=soc.Spline(knots=4), variance=soc.Spline(knots=2)),
    roles={"group": ("country", "device")},
    summarize={"bins": 12, "on_leakage": "ignore"},
    method=soc.VI(draws=200),
)


class Example:
    """A case with its frame, items, statistics and fit, each made when first asked for."""

    def __init__(self, case: Case, fit: Callable[[], soc.Fit]) -> None:
        self.case = case
        self._fit = fit

    @cached_property
    def frame(self) -> pd.DataFrame:
        return self.case.frame()

    @cached_property
    def items(self) -> Any:
        return self.case.items(self.frame)

    @cached_property
    def statistics(self) -> soc.Statistics:
        return self.case.statistics()

    @cached_property
    def fit(self) -> soc.Fit:
        """The fit, read from the run's shared folder where another worker has made it."""
        return self._fit()


def thinned(cases, quick):
    """Cases for `pytest.mark.parametrize`; those that `quick` does not choose are slow.

    `quick` is a function of a case, or the cases themselves.
    """
    chosen = quick if callable(quick) else quick.__contains__
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if chosen(case) else pytest.mark.slow,
        )
        for case in cases
    ]


def part_of(name, part):
    """Makes a fixture of one part of an example: its frame, items, statistics or fit."""

    @pytest.fixture(scope="session")
    def fixture(example):
        return getattr(example(name), part)

    return fixture
