"""Values of curves: the table of `Fit.summary`, and scores at which E(theta | t) has a value."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from .._lib.arguments import PROBABILITY, checked, numbers_of, shown
from .._lib.arrays import Bools, Floats
from .._lib.errors import FitError
from ..checks.results import PROB, Result, estimates, result_table
from ..families.family import family_of
from ..inference.results import FIT, Fit
from ..posterior.calibration import calibration_curves
from ..posterior.predictive import posterior_of
from .variance import SHARES, r_squared, score_quantiles


@checked(fit=FIT, prob=PROBABILITY)
def score_at(
    fit: Fit,
    target: ArrayLike,
    *,
    group: object = None,
    exposure: float | None = None,
    prob: float = PROB,
) -> Result:
    """Find the score at which E(theta | t) reaches a target, draw by draw.

    It is the first score at which a draw of the curve crosses the target; a draw that does not
    cross it has the end of the scores that is nearer to it.

    Parameters
    ----------
    fit, target
        The fit, and a number in the unit of theta, or several.
    group, exposure, prob
        As in `calibration_curves`, with one exposure; and the probability of the intervals.

    Returns
    -------
    Result
        Its ``table`` has a row for each target: the median score and its interval. ``data`` has the
        draws ``score`` (target, draw), and ``reached`` (target), the share of draws that cross.

    Raises
    ------
    FitError
        If no draw reaches a target, or an argument is not valid.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> found = soc.quantities.score_at(fit, [0.02, 0.05])
    >>> bool(found.table["value"].is_monotonic_increasing)
    True
    """
    targets = np.atleast_1d(numbers_of(target, "target"))
    if targets.ndim != 1 or not len(targets) or not np.isfinite(targets).all():
        raise FitError(f"target={shown(target)} must be a finite number, or several")
    curves = calibration_curves(fit, None, group, exposure)
    score, axis = curves["score"].to_numpy(), fit.axis("mean")
    scale = posterior_of(fit).outcome.theta
    mean = curves["mean"].to_numpy().reshape(-1, len(score))
    scores, shares = [], []
    for number in targets:
        crossed = np.zeros(len(mean), dtype=bool)
        if scale.holds(number):
            excess = scale.position(mean) - scale.position(number)
            position, crossed = _first_crossing(axis(score), excess)
        if not crossed.any():
            raise FitError(
                f"no draw of E(theta | t) reaches {number:.4g} at scores from {score.min():.4g} to "
                f"{score.max():.4g}: there it is {mean.min():.4g} to {mean.max():.4g}"
            )
        scores.append(np.clip(axis.inverse(position), score.min(), score.max()))
        shares.append(crossed.mean())
    where = [f"E(theta | t) = {number:.4g}" for number in targets]
    table = result_table(estimates("score", where, np.transpose(scores), prob))
    data = xr.Dataset(
        {"score": (("target", "draw"), scores), "reached": ("target", shares)}, {"target": targets}
    )
    advice = tuple(
        f"{1 - share:.0%} of the draws do not reach {number:.4g} at the fit's scores: there the "
        "interval ends at the last score."
        for number, share in zip(targets, shares, strict=True)
        if share < 1
    )
    return Result(table, data, advice, "scores at which E(theta | t) reaches a target")


def _first_crossing(position: Floats, excess: Floats) -> tuple[Floats, Bools]:
    """Return positions (draws,) at which rows of `excess` (draws, k) first change sign."""
    above = excess >= 0
    change = above != above[:, :1]
    crossed, after = change.any(axis=1), np.maximum(change.argmax(axis=1), 1)
    row = np.arange(len(excess))
    before, behind = excess[row, after - 1], excess[row, after]
    step = np.divide(before, before - behind, out=np.zeros(len(before)), where=before != behind)
    crossing = position[after - 1] + step * (position[after] - position[after - 1])
    rising = excess[:, -1] >= excess[:, 0]
    end = np.where(rising == above[:, 0], position[0], position[-1])
    return np.where(crossed, crossing, end), crossed


def summary(fit: Fit) -> pd.DataFrame:
    """Return the table of `Fit.summary`."""
    curves = calibration_curves(fit, score_quantiles(fit, SHARES))
    values: dict[tuple[str, float], Any] = {
        ("E(theta | t)", float(t)): curves["mean"].sel(score=t) for t in curves["score"]
    }
    if not fit.mean_only:
        sd = curves["variance"] ** 0.5
        values |= {("sd(theta | t)", float(t)): sd.sel(score=t) for t in curves["score"]}
    if not (fit.mean_only or fit.groups):  # with groups it needs statistics
        values["R-squared", np.nan] = r_squared(fit)
    posterior = fit.data["posterior"]
    for name in family_of(fit.prior).curves:
        if f"{name}_wiggle_sd" in posterior:
            values[f"{name}: sd about a line", np.nan] = posterior[f"{name}_wiggle_sd"]
    rows = [(*key, *np.quantile(draws, (0.05, 0.5, 0.95))) for key, draws in values.items()]
    if fit.status.pareto_k is not None:
        rows.append(("Pareto k (at most 0.7)", np.nan, np.nan, fit.status.pareto_k, np.nan))
    return pd.DataFrame(rows, columns=["quantity", "score", "lower", "median", "upper"])
