"""Items, fits and what is asked of each fit, for `tests.studies.goldens`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import ibis
import numpy as np
import pandas as pd
import polars as pl

import soc_pymc as soc
from soc_pymc import decisions, quantities

QUIET = {"progress": False}
COUNTS = {"count": "y", "exposure": "N"}
VALUES = {"value": "y", "noise_sd": "s"}
LOG_SCORES = [0.002, 0.01, 0.03, 0.05, 0.1, 0.4, 3.0]  # the last is beyond the data


@cache
def counts(n: int = 2000) -> pd.DataFrame:
    """Counts in three groups; theta depends on score, exposure and group."""
    rng = np.random.default_rng(11)
    x, size = rng.normal(0, 0.8, n), np.ceil(np.exp(rng.normal(2.0, 1.6, n)))
    group = rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    shift = pd.Series({"a": 0.0, "b": 0.2, "c": -0.3})[group].to_numpy()
    mean = 0.05 * np.exp(x + 0.1 * np.sin(2 * x) + 0.1 * (np.log(size) - 2) + shift)
    cv2 = 0.4 * np.exp(-0.4 * np.tanh(x))
    y = rng.poisson(size * rng.gamma(1 / cv2, mean * cv2))
    table = {"id": np.arange(n) * 7 + 3, "t": 0.05 * np.exp(x), "r": x, "y": y, "N": size}
    return pd.DataFrame({**table, "group": group})


@cache
def values(n: int = 1500) -> pd.DataFrame:
    """Values with noise in three groups; theta depends on score, noise and group."""
    rng = np.random.default_rng(12)
    t, s = rng.normal(0, 1.5, n), np.exp(rng.normal(-0.5, 0.5, n))
    group = rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    shift = pd.Series({"a": 0.0, "b": 0.2, "c": -0.4})[group].to_numpy()
    theta = rng.normal(0.9 * t + 0.2 * np.sin(t) + 0.2 * np.log(s) + shift, np.exp(0.2 * t - 0.4))
    y = rng.normal(theta, s)
    return pd.DataFrame({"id": np.arange(n) * 5 + 1, "t": t, "y": y, "s": s, "group": group})


def chosen(kind: str) -> pd.DataFrame:
    """The first items, and others with nothing seen, much seen, and scores far out."""
    if kind == "counts":
        far = {"t": [0.05, 0.05, 0.05, 0.02, 0.3, 0.1, 0.03, 1e-5, 1e-3, 2.0, 30.0]}
        far |= {"y": [0, 0, 0, 900, 5000, 40, 1, 3, 0, 2, 50]}
        far |= {"N": [0.0, 1e-3, 1e5, 4e4, 12_345.0, 3.0, 2.5, 10.0, 1e3, 1.0, 4.0]}
        frame = pd.DataFrame(far).assign(r=lambda d: np.log(d["t"] / 0.05))
    else:
        far = {"t": [0.0, 0.0, 0.0, 1.0, -1.0, 2.0, 8.0, -9.0, 30.0, -40.0, 0.5]}
        far |= {"y": [0.0, 50.0, -50.0, 1.0, 3.0, 2.0, 7.0, 0.0, 30.0, 10.0, 0.0]}
        far |= {"s": [1e-4, 1.0, 0.1, 1e4, 0.3, 1e-2, 2.0, 1.0, 0.5, 5.0, 0.05]}
        frame = pd.DataFrame(far)
    frame = frame.assign(id=np.arange(11) + 100_000, group=[*"abczzabcz", "a", "b"])
    return pd.concat([FRAMES[kind]().head(14), frame], ignore_index=True)


FRAMES: dict[str, Callable[[], pd.DataFrame]] = {"counts": counts, "values": values}


def items_of(kind: str, table: Any, score: str = "t", **roles: str) -> Any:
    if kind == "counts":
        return soc.PoissonItems(table, score=score, **COUNTS, **roles)
    return soc.NormalItems(table, score=score, **VALUES, **roles)


def duckdb(frame: pd.DataFrame) -> Any:
    connection = ibis.duckdb.connect()
    connection.con.register("ads", frame)
    return connection


def on_engines(frame: pd.DataFrame) -> dict[str, Any]:
    """The same rows as Ibis tables."""
    polars = ibis.polars.connect(tables={"ads": pl.from_pandas(frame)})
    return {"duckdb": duckdb(frame).table("ads"), "polars": polars.table("ads")}


@dataclass(frozen=True)
class Case:
    """One fit and what is asked of it."""

    kind: str
    prior: Any
    method: Any = soc.VI(draws=400)  # noqa: RUF009
    score: str = "t"
    group: bool = False
    audit: bool = False  # a term of one's own is added to the model
    sql: bool = False
    curves: tuple[dict[str, Any], ...] = ({},)

    def items(self, frame: pd.DataFrame) -> Any:
        return items_of(self.kind, frame, self.score, **({"group": "group"} if self.group else {}))

    def scores(self) -> list[float]:
        if self.kind == "values":
            return [-4.0, -2.0, -0.5, 0.0, 1.0, 3.0, 12.0]
        return LOG_SCORES if self.score == "t" else np.log(np.divide(LOG_SCORES, 0.05)).tolist()


GROUPS = ({}, {"group": "a"}, {"group": "c"}, {"group": "z"})
SIZES = ({}, {"exposure": 2.0}, {"exposure": 50.0})
RANK = soc.Spline(scale="rank")
SMALL = {"functions": 5, "knots": 2}
CASES = {
    "gamma": Case("counts", soc.Gamma(), sql=True),
    "gamma_exposure": Case("counts", soc.Gamma(exposure=soc.Spline()), curves=SIZES),
    "gamma_groups": Case("counts", soc.Gamma(), group=True, curves=GROUPS),
    "gamma_monotone": Case("counts", soc.Gamma(monotone=True), sql=True),
    "gamma_bins": Case("counts", soc.Gamma(bin_effects=True, groups=False)),
    "gamma_rank": Case("counts", soc.Gamma(mean=RANK, variance=RANK), score="r", sql=True),
    "gamma_batch": Case("counts", soc.Gamma(), soc.VI(batch=16, draws=400)),
    "gamma_audit": Case("counts", soc.Gamma(), audit=True),
    "normal": Case("values", soc.Normal()),
    "normal_exposure": Case("values", soc.Normal(exposure=soc.Spline()), curves=SIZES),
    "normal_groups": Case("values", soc.Normal(), group=True, curves=GROUPS),
    "gamma_mixture": Case("counts", soc.GammaMixture(**SMALL)),
    "normal_mixture": Case("values", soc.NormalMixture(**SMALL)),
    "nuts": Case("counts", soc.Gamma(), soc.NUTS(draws=60, tune=120, chains=2, seed=3)),
    "five_gamma": Case("counts", soc.Gamma(), soc.FiveSteps(), sql=True),
    "five_groups": Case("counts", soc.Gamma(monotone=True), soc.FiveSteps(), group=True),
    "five_mixture": Case("counts", soc.GammaMixture(), soc.FiveSteps(components=30)),
    "five_normal": Case("values", soc.Normal(), soc.FiveSteps()),
    "five_steps": Case("values", soc.Normal(), soc.FiveSteps(smooth=False)),
}


@cache
def statistics_of(kind: str, score: str = "t", group: bool = False) -> soc.Statistics:
    case = Case(kind, None, score=score, group=group)
    return soc.summarize(case.items(FRAMES[kind]()), bins=40, folds=0, joint=True, **QUIET)


@cache
def fit_of(name: str) -> soc.Fit:
    case = CASES[name]
    stats, model = statistics_of(case.kind, case.score, case.group), None
    if case.audit:
        import pymc as pm

        with soc.model(stats, case.prior) as model:
            bias = pm.Normal("audit_bias", 0.0, 0.1)
            middle = model["bin_log_mean"][stats.bins // 2] + bias
            pm.Normal("audit", middle, 0.05, observed=np.log(0.06))
    return soc.fit(stats, case.prior, case.method, model=model, **QUIET)


def of_fit(case: Case, fit: soc.Fit) -> Iterator[tuple[str, Any]]:
    yield "fit", fit.data
    yield "status", fit.status
    for at in case.curves:
        curves = soc.calibration_curves(fit, case.scores(), **at)
        name = "curves" + "".join(f" {key} {value}" for key, value in at.items())
        yield name, curves
        yield f"{name} band", soc.bands(curves, 0.9)
        yield f"{name} wide", soc.bands(curves, 0.8, simultaneous=True)
    yield "all scores", soc.bands(soc.calibration_curves(fit))


def of_items(case: Case, fit: soc.Fit) -> Iterator[tuple[str, Any]]:
    items, probs = case.items(chosen(case.kind)), (0.05, 0.5, 0.975)
    for name, options in {
        "all": {"draws": "all"},
        "representative": {"draws": "representative"},
        "plug in": {"plug_in": True},
    }.items():
        scored = soc.item_posteriors(fit, items, quantiles=probs, **options, **QUIET)
        yield f"items {name}", scored.filter(like="theta_")
    if case.sql:
        frame = chosen(case.kind)[["id", case.score, *COUNTS.values()]]
        text = soc.posterior_sql(fit, "ads", columns=["id"])
        found = {"text": duckdb(frame).con.execute(text).df()}
        for engine, table in on_engines(frame).items():
            expression = soc.posterior_expression(fit, case.items(table))
            found[engine] = expression.to_polars().to_pandas()
        for name, table in found.items():
            yield f"sql {name}", table.sort_values("id", ignore_index=True).filter(like="theta_")


def of_checks(case: Case, fit: soc.Fit) -> Iterator[tuple[str, Any]]:
    frame, stats = FRAMES[case.kind](), statistics_of(case.kind, case.score, case.group)
    for name, data in {"items": case.items(frame.head(800)), "cells": stats}.items():
        found = soc.check(fit, data, subset=200, **QUIET)
        yield f"check {name}", found.table.drop(columns="verdict" if fit.one_draw else [])
        yield f"check {name} advice", list(found.advice)
        groups = {key: found.data[key] for key in found.data.children if key != "posterior"}
        yield f"check {name}", {key: group.to_dataset() for key, group in groups.items()}
        if found.elpd is not None:
            yield f"check {name} elpd", [found.elpd.elpd, found.elpd.se, found.elpd.p]


def of_uses(case: Case, fit: soc.Fit) -> Iterator[tuple[str, Any]]:
    """Decisions and quantities."""
    items, line = case.items(chosen(case.kind)), 0.05 if case.kind == "counts" else 0.3
    yield "above", decisions.probability_above(fit, items, line, **QUIET)
    yield "loss", decisions.expected_loss(fit, items, line, cost_below=3.0, **QUIET)
    yield "best", decisions.probability_best(fit, items, 3, draws=100, seed=1, **QUIET)
    yield "cautious", decisions.risk_adjusted(fit, items, 0.2, **QUIET)
    yield "thompson", decisions.thompson_draws(fit, items, 3, seed=1, **QUIET)
    yield "value", decisions.value_of_exposure(fit, items, 2.0, threshold=line, **QUIET)
    stats = statistics_of(case.kind, case.score, case.group)
    yield "parts", quantities.variance_parts(fit, stats)
    yield "r squared", quantities.r_squared(fit, stats)
    for function in (quantities.variance_reduction, quantities.shrinkage):
        yield function.__name__, function(fit, stats, weight="items", bins=5, **QUIET)


ASKED = (of_fit, of_items, of_checks, of_uses)
