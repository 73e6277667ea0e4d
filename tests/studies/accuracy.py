"""How near fits come to the truth of a simulation, by bin of the score (Sections 5.2 and 5.3)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

import soc_pymc as soc
from soc_pymc.checks.pit import equal_parts
from soc_pymc.families.outcomes import OUTCOMES, Outcome

TRUTH = ("theta", "true_mean", "true_variance", "oracle_mean", "oracle_variance")
"""Columns of simulated truth."""


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
    for role in ("score", OUTCOMES[items.kind].observed):
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
    columns = {str(c): table[c].to_numpy(dtype=float) for c in table}
    rows = [
        {"bin": k, **_one_bin({c: v[number == k] for c, v in columns.items()}, outcome)}
        for k in range(int(number.max()) + 1)
    ]
    return pd.DataFrame(rows)


def _one_bin(own: Mapping[str, np.ndarray], outcome: Outcome) -> dict[str, float]:
    """One row: averages, ratios to the oracle, and their standard errors."""
    theta, best, spread = own["theta"], own["oracle_mean"], own["oracle_variance"]
    mean, variance = own["theta_mean"], own["theta_var"]
    level, of_theta = own["true_mean"], own["true_variance"]
    units = {"poisson": level**2, "normal": of_theta, "binomial": (level * (1.0 - level)) ** 2}
    unit = units[outcome.kind]  # of squared errors
    row: dict[str, float] = {"score": float(own["score"].mean()), "items": len(theta)}
    for name in ("true_mean", "mean", "true_variance", "variance"):
        row[name] = float(own[name].mean())
    away = (mean - best) ** 2
    averages = {
        "mean_error": away / unit,
        "variance_error": (variance - spread) ** 2 / unit**2,
        "error_ratio": (mean - theta) ** 2 / variance,
        "expected_ratio": (spread + away) / variance,
    }
    for name, values in averages.items():
        row |= _ratio(name, values, np.ones(len(values)))
    estimates = {"t": "score", "true_mean": "true_mean", "mean": "mean", "posterior": "theta_mean"}
    estimates |= {"y": outcome.observed} if outcome.direct else {}
    for name, column in estimates.items():
        row |= _ratio(f"mse_{name}", (own[column] - theta) ** 2, (best - theta) ** 2)
    return row | _ratio("regret", away, spread)


def _ratio(name: str, over: np.ndarray, under: np.ndarray) -> dict[str, float]:
    """Ratio of averages over items, with its standard error (delta method)."""
    ratio = over.mean() / under.mean()
    error = (over - ratio * under).std() / under.mean() / np.sqrt(len(over))
    return {name: float(ratio), f"{name}_se": float(error)}
