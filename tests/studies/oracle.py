"""Sections 5.2 and 5.3 of the paper: fits by bin of the score, against exact oracles.

    SOC_PYMC_DATA=... python -m tests.studies oracle lognormal --items 200000
    python -m tests.studies oracle normal --items 300000

``lognormal``: click rates lognormal around the scores of search-ad keywords, whose exposures are
repeated; a cell is a bias delta of log t and a standard deviation sigma of log theta given t. The
paper's squared error over estimated variance is 5 to 10% too high wherever sigma is large, because
a Gamma has no lognormal tail. ``normal``: Normal outcomes of Laplace effects, given t, where the
paper's mixture of seven Normals had a mean squared error 11% above the oracle's.

All items are held in memory.
"""

from typing import Any

import numpy as np
import pandas as pd

import soc_pymc as soc
from soc_pymc._lib.arrays import equal_parts
from soc_pymc.families.family import Outcome
from tests.oracles import laplace_oracle, lognormal_oracle
from tests.studies.common import counts, fit, options, quality, real_counts, show, summarize, values

METHODS = {  # name in tables, prior, items in a bin of five steps
    "lognormal": {
        "five": ("five steps", soc.Gamma(), 500),
        "gamma": ("Bayes, Gamma", soc.Gamma(), None),
        "mixture": ("Bayes, mixture", soc.GammaMixture(), None),
        "five-mixture": ("five steps, mixture", soc.GammaMixture(), 2000),
    },
    "normal": {
        "five": ("five steps", soc.NormalMixture(), 15_000),  # fewer give variances too small
        "mixture": ("Bayes, mixture", soc.NormalMixture(), None),
        "normal": ("Bayes, Normal", soc.Normal(), None),
    },
}
"""Wide bins take their range of t for variance of theta; weights of few items are too narrow."""
CELLS = {
    f"delta={delta:g},sigma={sigma:g}": (delta, sigma)
    for delta in (-0.5, 0.0, 0.5)
    for sigma in (0.1, 0.25, 0.5, 1.0)
}
SUMMARY = ["regret", "regret_se", "expected_ratio", "expected_ratio_se", "error_ratio"]
SUMMARY += ["ratio", "mse_t", "mse_mean", "mse_posterior", "converged", "Pareto k", "fit_seconds"]
TRUTH = ("theta", "true_mean", "true_variance", "oracle_mean", "oracle_variance")
"""Columns of simulated truth."""


def lognormal_items(
    keywords: pd.DataFrame, n_items: int, delta: float, sigma: float, seed: int = 0
) -> pd.DataFrame:
    """Items at the keywords' scores and exposures, with the truth."""
    score, exposure = (np.resize(keywords[c].to_numpy(), n_items) for c in ("score", "exposure"))
    table = soc.simulation.lognormal_rates(score, exposure, delta, sigma, seed)
    mean, variance = lognormal_oracle(score, table["count"], exposure, delta, sigma)
    true_mean = score * np.exp(delta + sigma**2 / 2)
    table = table.assign(true_mean=true_mean, true_variance=true_mean**2 * np.expm1(sigma**2))
    return table.assign(oracle_mean=mean, oracle_variance=variance)


def laplace_items(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Items with the truth: E(theta | t) is t, and theta less it a Laplace and a chi2."""
    table = soc.simulation.laplace_effects(n_items, seed)
    mean, variance = laplace_oracle(table)
    table = table.assign(true_mean=table["score"], true_variance=2.0 + 2.0 * 0.01**2)
    return table.assign(oracle_mean=mean, oracle_variance=variance)


def fitted(items: Any, prior: Any, items_in_bin: int | None) -> soc.Fit:
    """One method's fit: the five steps in up to 1,000 bins, the others variational."""
    if not items_in_bin:
        return fit(summarize(items, joint=True), prior)
    bins = min(max(20, len(items.source) // items_in_bin), 1000)
    moments = "log" if isinstance(prior, soc.Gamma) else "plain"  # as the paper smoothed
    stats = summarize(items, bins=bins, joint=True)
    return fit(stats, prior, soc.FiveSteps(moments=moments))


def scored(fit: soc.Fit, items: Any) -> pd.DataFrame:
    """Scores items with and without their outcomes, which have columns by their role."""
    columns = {r: c for r, c in items.roles.items() if r in ("score", "group")}
    scores = type(items)(items.source[list(columns.values())], **columns)
    options = {"quantiles": (), "progress": False}
    given_t, after = (soc.item_posteriors(fit, each, **options) for each in (scores, items))
    table = items.source[list(TRUTH)].assign(
        mean=given_t["theta_mean"].to_numpy(), variance=given_t["theta_var"].to_numpy()
    )
    table[["theta_mean", "theta_var"]] = after[["theta_mean", "theta_var"]].to_numpy()
    for role in ("score", items.outcome.observed):
        table[role] = items.source[items.roles[role]].to_numpy(dtype=float)
    return table


def accuracy(table: pd.DataFrame, bins: int, outcome: Outcome) -> pd.DataFrame:
    """One row for each bin: averages of theta given t, true and fitted, and ratios.

    Errors of the mean and the variance given t and y are over E(theta | t)^2 and its square (of
    values over Var(theta | t)); `mse_` are mean squared errors over the oracle's; `error_ratio` is
    the squared error over the fitted variance; `regret` and `expected_ratio` are the same without
    the luck of the draw. Standard errors over items are under the names' `_se`.
    """
    number = equal_parts(table["score"].to_numpy(dtype=float), bins)
    parts = table.astype(float).groupby(number)
    return pd.DataFrame([{"bin": k, **_one_bin(part, outcome)} for k, part in parts])


def _one_bin(part: pd.DataFrame, outcome: Outcome) -> dict[str, float]:
    columns = {str(name): part[name].to_numpy() for name in part}
    theta, best, spread = columns["theta"], columns["oracle_mean"], columns["oracle_variance"]
    mean, variance = columns["theta_mean"], columns["theta_var"]
    level, of_theta = columns["true_mean"], columns["true_variance"]
    units = {"poisson": level**2, "normal": of_theta, "binomial": (level * (1.0 - level)) ** 2}
    unit = units[outcome.kind]  # of squared errors
    row: dict[str, float] = {"score": float(columns["score"].mean()), "items": len(theta)}
    for name in ("true_mean", "mean", "true_variance", "variance"):
        row[name] = float(columns[name].mean())
    away = (mean - best) ** 2
    averages = {
        "mean_error": away / unit,
        "variance_error": (variance - spread) ** 2 / unit**2,
        "error_ratio": (mean - theta) ** 2 / variance,
        "expected_ratio": (spread + away) / variance,
    }
    for name, of_items in averages.items():
        row |= _ratio(name, of_items, np.ones(len(theta)))
    estimates = {"t": "score", "true_mean": "true_mean", "mean": "mean", "posterior": "theta_mean"}
    estimates |= {"y": outcome.observed} if outcome.direct else {}
    for name, column in estimates.items():
        row |= _ratio(f"mse_{name}", (columns[column] - theta) ** 2, (best - theta) ** 2)
    return row | _ratio("regret", away, spread)


def _ratio(name: str, over: np.ndarray, under: np.ndarray) -> dict[str, float]:
    """Ratio of averages over items, with its standard error (delta method)."""
    ratio = over.mean() / under.mean()
    error = (over - ratio * under).std() / under.mean() / np.sqrt(len(over))
    return {name: float(ratio), f"{name}_se": float(error)}


def judged(
    items: Any, study: str, method: str, bins: int, **cell: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of `accuracy` by bin of score and over all items, of one method's fit.

    ``ratio`` is ``error_ratio`` over that of the oracle on the same items.
    """
    name, prior, items_in_bin = METHODS[study][method]
    model = fitted(items, prior, items_in_bin)
    if study == "normal":
        checked = soc.check(model, items, subset=1000, progress=False).table.set_index("where")
        show(checked.loc[checked["what"] == "PIT", ["value", "p"]], f"PIT, {name}")
    frame, table = items.source, scored(model, items)
    by_bin, overall = (
        accuracy(table, number, items.outcome).assign(method=name, **cell) for number in (bins, 1)
    )
    oracle = ((frame["oracle_mean"] - frame["theta"]) ** 2 / frame["oracle_variance"]).mean()
    ratio = overall["error_ratio"] / oracle
    return by_bin, overall.assign(ratio=ratio, fit_seconds=model.status.seconds, **quality(model))


def main() -> None:
    small = {"items": 20_000, "cells": ["delta=0,sigma=0.5"], "prior": ["five"]}
    numbers = {"items": 1_000_000, "bins": 20, "seed": 0}
    lists = {"prior": ("all",), "cells": ("all",)}
    chosen = options(__doc__, small, part=METHODS, **lists, **numbers)
    study, tables = chosen.part, []
    cells = CELLS if study == "lognormal" else {"": ()}
    for cell in cells if "all" in chosen.cells or study == "normal" else chosen.cells:
        labels = dict(zip(("delta", "sigma"), cells[cell], strict=False))
        if study == "lognormal":
            made = chosen.items, *labels.values(), chosen.seed
            items = counts(lognormal_items(real_counts("adwords"), *made))
        else:
            items = values(laplace_items(chosen.items, chosen.seed))
        for method in METHODS[study] if "all" in chosen.prior else chosen.prior:
            by_bin, overall = judged(items, study, method, chosen.bins, **labels)
            show(by_bin, f"{method}, {cell}, by bin of the score")
            tables.append(overall)
    table = pd.concat(tables).set_index([*labels, "method"]).sort_index()
    show(table[[*SUMMARY, *({"mse_y"} & set(table))]])
