"""`sensitivity`: how much a fit's results depend on its prior, and on its likelihood."""

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from .._lib.arguments import PROGRESS, A, checked
from .._lib.errors import FitError
from .._lib.progress import phase
from .._lib.threads import one_blas_thread
from ..checks.results import FAIL, OK, WARN, Result, result_table
from ..data.statistics import Statistics
from ..inference.fit_tree import draw_densities
from ..inference.results import FIT, PARETO_K, Fit
from ..inference.variational import importance
from ..posterior.calibration import calibration_curves
from ..quantities.variance import SHARES, check_draws, r_squared, score_quantiles

THRESHOLD = 0.05
"""A sensitivity from which a result depends on the prior (Kallioinen et al. 2024)."""

_ALPHAS = (0.99, 1.01)  # powers, between which the sensitivity is a difference quotient
_FEWEST = 100  # draws
_DENSITIES = "log_prior", "log_likelihood"
_NAMES = {"mean": "E(theta | t)", "log_variance": "log Var(theta | t)", "r_squared": "R-squared"}
_MEANINGS = {
    FAIL: "Prior and data disagree on {}: check the prior, or widen it by "
    "soc.Spline(level=, slope=, wiggle=).",
    WARN: "The data say little of {}, where the prior decides: report that, or get more data.",
}


@checked(fit=FIT, stats=A(Statistics, "statistics, from soc.summarize"), progress=PROGRESS)
@one_blas_thread
def sensitivity(
    fit: Fit,
    stats: Statistics,
    score: ArrayLike | None = None,
    *,
    group: object = None,
    exposure: ArrayLike | None = None,
    progress: bool | None = None,
) -> Result:
    """Measure how much the curves and R^2 depend on the prior, by power-scaling.

    The prior, or the likelihood, is raised to the powers 0.99 and 1.01. The sensitivity is the
    change of a quantity's posterior: the cumulative Jensen-Shannon distance for each doubling of
    the power (Kallioinen, Paananen, Buerkner and Vehtari, Statistics and Computing 34, 2024). Only
    priors of top-level parameters are scaled: levels and slopes of the curves (of a mixture the
    lines of its log weights), the scales of all terms, and what the user added without a parent.

    Parameters
    ----------
    fit, stats
        The fit, by `soc.VI` or `soc.NUTS`, and the statistics that it was made from.
    score, group, exposure, progress
        As in `calibration_curves`; without scores five, below which 5, 25, 50, 75 and 95% of the
        items lie. And whether to show progress.

    Returns
    -------
    Result
        Its ``table`` has ArviZ's sensitivities to the ``prior`` and the ``likelihood``, of E(theta
        | t) and log Var(theta | t) at each score and of R^2. The ``verdict`` on the prior is
        ``"ok"`` below 0.05, ``"fail"`` where prior and likelihood both reach it, a conflict, and
        ``"warn"`` where the prior alone does: the data say little. ``data`` is an
        `xarray.DataTree`: ``posterior``, ``log_prior`` and ``log_likelihood``.

    Raises
    ------
    FitError
        If the fit has fewer than 100 draws, the statistics are not those that made it, or a score,
        group or exposure is not valid.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> tight = soc.Gamma(mean=soc.Spline(level=(0.0, 0.1)))  # a mean rate of 1, within 10%
    >>> soc.sensitivity(soc.fit(stats, tight), stats, [0.014]).table["verdict"][0]
    'fail'
    """
    from arviz_stats import psense

    sizes = fit.data["posterior"].sizes
    check_draws(fit, "the fit")
    if (number := sizes["chain"] * sizes["draw"]) < _FEWEST:
        raise FitError(f"{number} draws are too few to reweight: fit with soc.VI(draws=1000)")
    scores = score_quantiles(fit, SHARES) if score is None else score
    curves = calibration_curves(fit, scores, group, exposure)
    with phase("sensitivity", enabled=progress):
        densities = dict(zip(_DENSITIES, draw_densities(fit, stats), strict=True))
        if fit.mean_only:
            quantities = curves[["mean"]]
        else:
            explained = r_squared(fit, stats if fit.groups else None)
            quantities = curves[["mean", "log_variance"]].assign(r_squared=explained)
        coords = {name: quantities[name] for name in ("chain", "draw")}
        groups = {
            name: xr.Dataset({"total": (tuple(coords), values)}, coords)
            for name, values in densities.items()
        }
        tree = xr.DataTree.from_dict({"posterior": quantities, **groups})
        of_prior, of_likelihood = (
            _rows(psense(tree, group=name, alphas=_ALPHAS)).assign(what=name)
            for name in ("prior", "likelihood")
        )
    high, conflict = (part["value"] >= THRESHOLD for part in (of_prior, of_likelihood))
    of_prior["verdict"] = np.select([high & conflict, high], [FAIL, WARN], OK)
    k = max(importance((a - 1.0) * x.ravel())[1] for x in densities.values() for a in _ALPHAS)
    title = f"sensitivity: from {THRESHOLD} on, a result depends on the prior"
    return Result(result_table(of_prior, of_likelihood), tree, _advice(fit, of_prior, k), title)


def _rows(sensitivities: xr.Dataset) -> pd.DataFrame:
    """A row for each quantity, and for each score of a curve."""
    parts = []
    for name, values in sensitivities.data_vars.items():
        title = _NAMES[str(name)]
        places = [f"{title} at {t:.4g}" for t in values["score"].values] if values.ndim else title
        value = np.atleast_1d(values)
        parts.append(pd.DataFrame({"title": title, "where": places, "value": value}))
    return pd.concat(parts)


def _advice(fit: Fit, of_prior: pd.DataFrame, k: float) -> tuple[str, ...]:
    sentences = []
    if not fit.status.converged:
        sentences.append(f"The fit did not converge, so this may be wrong: {fit.status.reason}.")
    if not k <= PARETO_K:
        sentences.append(
            f"Pareto k of the weights is {k:.2f}, above {PARETO_K}: these numbers are not reliable."
        )
    for verdict, meaning in _MEANINGS.items():
        titles = of_prior.loc[of_prior["verdict"] == verdict, "title"].unique()
        if len(titles):
            sentences.append(meaning.format(", ".join(titles)))
    return tuple(sentences) or ("No result here depends on the prior.",)
