"""What fits and checks show of themselves: methods of `Fit`, and pictures in notebooks."""

from html import escape
from typing import Any

import numpy as np
import pandas as pd

from .. import plots
from .._lib.arguments import switch
from .._lib.arrays import Floats
from .._lib.errors import FitError
from .._report.pictures import picture_of
from ..checks._check import CheckResult
from ..data.groups import arguments_of, group_roles, roles_of
from ..data.items import ITEMS
from ..data.tables import column_names, open_table
from ..families.family import family_of
from ..families.row_sums import MEAN_ONLY
from ..inference.results import Fit
from ..posterior.calibration import calibration_curves
from ..posterior.items import item_posteriors
from ..posterior.prior_export import export_prior as export_prior
from ..quantities.variance import r_squared

_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the items, at whose scores curves are shown
_BAND = (0.05, 0.5, 0.95)
_COLUMNS = ("quantity", "score", "lower", "median", "upper")


def summary(fit: Fit) -> pd.DataFrame:
    """`Fit.summary`."""
    bins = fit.data["constant_data"]
    order = np.argsort(bins["score"].to_numpy())
    score, items = (bins[name].to_numpy()[order] for name in ("score", "n_items"))
    share = (np.cumsum(items) - 0.5 * items) / items.sum()
    at = np.unique(score[np.searchsorted(share, _SHARES).clip(max=len(score) - 1)])
    curves = calibration_curves(fit, at)
    shown = {"E(theta | t)": curves["mean"]}
    if not fit.mean_only:
        shown["sd(theta | t)"] = curves["variance"] ** 0.5
    rows: list[tuple[Any, ...]] = [
        (name, t, *np.quantile(values.sel(score=t), _BAND))
        for name, values in shown.items()
        for t in at
    ]
    single: dict[str, Any] = {}
    if not (fit.mean_only or fit.groups):  # with groups it needs statistics
        single["R-squared"] = r_squared(fit)
    posterior = fit.data["posterior"]
    for name in family_of(fit.prior).curves:
        if f"{name}_wiggle_sd" in posterior:
            single[f"{name}: sd about a line"] = posterior[f"{name}_wiggle_sd"]
    rows += [(name, np.nan, *np.quantile(own, _BAND)) for name, own in single.items()]
    if fit.status.pareto_k is not None:
        rows.append(("Pareto k (at most 0.7)", np.nan, np.nan, fit.status.pareto_k, np.nan))
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def plot(fit: Fit) -> Any:
    """`Fit.plot`."""
    return plots.plot_curves(fit)


def predict(fit: Fit, frame: Any, return_std: bool) -> Floats | tuple[Floats, Floats]:
    """`Fit.predict`."""
    switch(return_std, "return_std")
    outcome, roles = family_of(fit.prior).outcome, roles_of(fit.data.attrs)
    has = column_names(frame)
    seen = {r for r in (outcome.observed, outcome.size) if roles[r] in has}
    wanted = {"score", *(group_roles(roles) if fit.groups else ())}
    if outcome.observed in seen:
        wanted |= seen  # the items ask for sizes that are not there
    elif fit.prior.exposure is not None:
        wanted.add(outcome.size)
    if fit.mean_only and outcome.observed not in seen and not return_std:
        return _mean(fit, open_table(frame, [roles["score"]])[roles["score"]])
    if fit.mean_only:
        raise FitError(f"predict knows E(theta | t) alone of this fit: {MEAN_ONLY}")
    given = arguments_of({role: name for role, name in roles.items() if role in wanted})
    items = ITEMS[outcome.kind](frame, **given)
    scored = item_posteriors(fit, items, quantiles=(), progress=False)
    scored = scored.to_pyarrow() if hasattr(scored, "to_pyarrow") else scored
    mean, sd = (np.asarray(scored[name].to_numpy()) for name in ("theta_mean", "theta_sd"))
    return (mean, sd) if return_std else mean


def _mean(fit: Fit, score: Any) -> Floats:
    """E(theta | t) averaged over the draws."""
    curves = calibration_curves(fit, np.asarray(score.to_pyarrow().to_numpy(), dtype=float))
    return np.asarray(curves["mean"].mean(("chain", "draw")))


def picture_of_check(result: CheckResult) -> str:
    """The PIT of all items, as an image for a notebook."""
    found = picture_of(plots.plot_pit, result, height=3.2)
    return f'<img src="{escape(found.source)}" width="{found.width}" alt="PIT of all items">'
