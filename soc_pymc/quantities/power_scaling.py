"""Sensitivity of curves and R-squared to the prior, by power-scaling."""

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from .._lib.errors import FitError
from .._lib.progress import phase
from .._lib.threads import one_blas_thread
from ..checks.results import FAIL, OK, WARN, Result, result_table
from ..data.statistics import STATISTICS, Statistics
from ..inference.results import FIT, PARETO_K, Fit
from ..posterior.calibration import calibration_curves
from .comparisons import check_draws
from .curves import SHARES, r_squared, score_quantiles

THRESHOLD = 0.05  # sensitivity from which a result depends on the prior
_ALPHAS = (0.99, 1.01)  # powers, between which the sensitivity is a difference quotient
_FEWEST = 100  # draws
_NAMES = {"mean": "E(theta | t)", "log_variance": "log Var(theta | t)", "r_squared": "R-squared"}
_MEANINGS = {
    FAIL: "Prior and data disagree on {}: check the prior, or widen it by "
    "soc.Spline(level=, slope=, wiggle=).",
    WARN: "The data say little about {}, so the prior decides: report that, or get more data.",
}


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

    The prior, or the likelihood, is raised to the powers 0.99 and 1.01: the sensitivity is the
    cumulative Jensen-Shannon distance of a quantity's posteriors for each doubling of the power
    (Kallioinen et al., Statistics and Computing 34, 2024). It scales only the priors of the curves'
    (or log weights') levels and slopes, of all terms' scales, and of parameters without a parent.

    Parameters
    ----------
    fit, stats, progress
        The fit, by `soc.VI` or `soc.NUTS`, the statistics that it was made from, and whether to
        show progress.
    score, group, exposure
        As in `calibration_curves`; without scores five, below which 5, 25, 50, 75 and 95% of the
        items lie.

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
    fit, stats = FIT(fit, "fit"), STATISTICS(stats, "stats")
    from arviz_stats import psense

    from ..inference.fit_tree import draw_densities  # which load PyMC
    from ..inference.variational import importance

    check_draws(fit, "the fit")
    sizes = fit.data["posterior"].sizes
    if (number := sizes["chain"] * sizes["draw"]) < _FEWEST:
        raise FitError(f"{number} draws are too few to reweight: fit with soc.VI(draws=1000)")
    scores = score_quantiles(fit, SHARES) if score is None else score
    quantities = calibration_curves(fit, scores, group, exposure)
    quantities = quantities[["mean"] if fit.mean_only else ["mean", "log_variance"]]
    with phase("sensitivity", enabled=progress):
        densities = draw_densities(fit, stats)
        if not fit.mean_only:
            quantities["r_squared"] = r_squared(fit, stats if fit.groups else None)
        draws = quantities[["chain", "draw"]]
        tree = xr.DataTree.from_dict({"posterior": quantities})
        tables = []
        for name, density in zip(("prior", "likelihood"), densities, strict=True):
            tree[f"log_{name}"] = xr.DataTree(draws.assign(total=(("chain", "draw"), density)))
            tables.append(_rows(psense(tree, group=name, alphas=_ALPHAS)).assign(what=name))
    high, conflict = (table["value"] >= THRESHOLD for table in tables)
    tables[0]["verdict"] = np.select([high & conflict, high], [FAIL, WARN], OK)
    k = max(importance((a - 1.0) * x.ravel())[1] for x in densities for a in _ALPHAS)
    title = f"sensitivity: from {THRESHOLD} on, a result depends on the prior"
    return Result(result_table(*tables), tree, _advice(fit, tables[0], k), title)


def _rows(sensitivities: xr.Dataset) -> pd.DataFrame:
    parts = []
    for name, values in sensitivities.data_vars.items():
        title = _NAMES[str(name)]
        places = [f"{title} at {t:.4g}" for t in values["score"].values] if values.ndim else title
        parts.append(pd.DataFrame({"title": title, "where": places, "value": np.ravel(values)}))
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
