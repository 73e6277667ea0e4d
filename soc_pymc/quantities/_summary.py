"""The table of `Fit.summary`."""

from typing import Any

import numpy as np
import pandas as pd

from ..families.family import family_of
from ..inference.results import Fit
from ..posterior.calibration import calibration_curves
from .variance import SHARES, r_squared, score_quantiles

_BAND = (0.05, 0.5, 0.95)
_COLUMNS = ("quantity", "score", "lower", "median", "upper")


def summary(fit: Fit) -> pd.DataFrame:
    """`Fit.summary`."""
    curves = calibration_curves(fit, score_quantiles(fit, SHARES))
    shown = {"E(theta | t)": curves["mean"]}
    if not fit.mean_only:
        shown["sd(theta | t)"] = curves["variance"] ** 0.5
    rows: list[tuple[Any, ...]] = [
        (name, float(t), *np.quantile(values.sel(score=t), _BAND))
        for name, values in shown.items()
        for t in curves["score"]
    ]
    single: dict[str, Any] = {}
    if not (fit.mean_only or fit.groups):  # with groups it needs statistics
        single["R-squared"] = r_squared(fit)
    posterior = fit.data["posterior"]
    for name in family_of(fit.prior).curves:
        if f"{name}_wiggle_sd" in posterior:
            single[f"{name}: sd about a line"] = posterior[f"{name}_wiggle_sd"]
    rows += [(name, np.nan, *np.quantile(draws, _BAND)) for name, draws in single.items()]
    if fit.status.pareto_k is not None:
        rows.append(("Pareto k (at most 0.7)", np.nan, np.nan, fit.status.pareto_k, np.nan))
    return pd.DataFrame(rows, columns=list(_COLUMNS))
