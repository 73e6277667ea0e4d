"""`sensitivity`: how much a fit's results depend on its prior, and on its likelihood.

The prior, or the likelihood, is raised to a power near 1, and the draws are reweighted accordingly.
"""

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from .._lib.arguments import PROGRESS, A, OrNone, checked
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from .._lib.progress import phase
from .._lib.threads import one_blas_thread
from ..checks.results import FAIL, OK, WARN, Result, result_table
from ..data.statistics import Statistics
from ..inference.draw_densities import MODEL, Model, draw_densities
from ..inference.methods import NUTS
from ..inference.results import FIT, PARETO_K, Fit
from ..inference.variational import importance
from ..posterior.calibration import calibration_curves
from ..quantities.support import SHARES, score_quantiles
from ..quantities.variance import r_squared

COMPONENTS = ("prior", "likelihood")
THRESHOLD = 0.05
"""A sensitivity from which a result depends on the prior (Kallioinen et al. 2024)."""
FINE, CONFLICT, DOMINATES, UNSURE = (
    "fine", "prior-data conflict", "prior dominates", "too few draws",
)  # fmt: skip

_ALPHAS = (0.99, 1.01)  # of which the sensitivity is a difference quotient
_FEWEST = 100  # draws
_RESAMPLES, _BLOCK = 50, 20  # of the bootstrap; draws of a chain in a block
_ERRORS = {"prior": 2.0, "likelihood": 1.0}  # the second only tells conflict from dominance
_NAMES = {"mean": "E(theta | t)", "log_variance": "log Var(theta | t)", "r_squared": "R-squared"}
_VERDICTS = {FINE: OK, CONFLICT: FAIL, DOMINATES: WARN, UNSURE: WARN}


@checked(
    fit=FIT,
    stats=A(Statistics, "statistics, from soc.summarize"),
    model=OrNone(MODEL),
    progress=PROGRESS,
)
@one_blas_thread
def sensitivity(
    fit: Fit,
    stats: Statistics,
    score: ArrayLike | None = None,
    *,
    group: object = None,
    exposure: ArrayLike | None = None,
    model: Model | None = None,
    progress: bool | None = None,
) -> Result:
    """Measure how much the curves and R^2 depend on the prior, by power-scaling.

    The prior, or the likelihood, is raised to the powers 0.99 and 1.01. The sensitivity is the
    change of a quantity's posterior: the cumulative Jensen-Shannon distance for each doubling of
    the power. A prior that adds little has a sensitivity near 0. If both prior and likelihood move
    the posterior, they disagree; if the prior alone does, the data say little.

    Parameters
    ----------
    fit, stats
        The fit, by `soc.VI` or `soc.NUTS`, and the statistics that it was made from (for a mixture
        or a term in exposure with joint cells): the model is built from them again.
    score
        Scores of the curves, shape (n,); None takes five: 5, 25, 50, 75 and 95% of the items lie
        below.
    group, exposure
        As of `calibration_curves`.
    model
        The extended model, for a fit with ``model=``.
    progress
        Whether to show progress.

    Returns
    -------
    Result
        Its ``table`` has ArviZ's power-scaling sensitivities to the ``prior`` and the
        ``likelihood``, of E(theta | t) and log Var(theta | t) at each score and of R^2. ``low`` and
        ``high`` are without and with what finite numbers of draws add (twice, for the prior). The
        ``verdict`` on the prior is ``"ok"`` below 0.05, ``"fail"`` where prior and likelihood both
        reach it, a conflict, and ``"warn"`` where the prior alone does, or a sensitivity reaches
        0.05 only by its error. ``data`` is an `xarray.DataTree` for ArviZ's own functions, such as
        ``arviz.psense_summary``: ``posterior``, ``log_prior`` and ``log_likelihood``.

    Raises
    ------
    FitError
        If the fit is by `soc.FiveSteps` or has fewer than 100 draws, the statistics are not those
        that made it, a score, group or exposure is not valid, or `model` is not the fit's.

    Notes
    -----
    Of the hierarchical model only priors of top-level parameters are scaled: the levels and slopes
    of the curves (of a mixture the lines of its log weights), the scales tau of all penalised
    terms, of groups and of bin effects, and what the user added without a parent. To raise the
    coefficients' N(0, tau^2) to a power would change what tau means.

    All kept draws have equal weights: draws by `soc.VI` are resampled by their importance weights
    where the approximation was off. Fits of labels have curves of the mean alone.

    References
    ----------
    Kallioinen, Paananen, Buerkner and Vehtari, "Detecting and diagnosing prior and likelihood
    sensitivity with power-scaling", Statistics and Computing 34, 57 (2024).

    Examples
    --------
    >>> import soc_pymc as soc
    >>> tight = soc.Gamma(mean=soc.Spline(level=(0.0, 0.1)))  # a mean rate of 1, within 10%
    >>> fit = soc.fit(stats, tight)
    >>> soc.sensitivity(fit, stats, [0.014]).table["verdict"][0]
    'fail'
    """
    sizes = fit.data["posterior"].sizes
    if fit.one_draw:
        raise FitError(
            "soc.sensitivity reweights draws, and this fit has only one: fit with soc.VI() or "
            "soc.NUTS()"
        )
    if (number := sizes["chain"] * sizes["draw"]) < _FEWEST:
        raise FitError(f"{number} draws are too few to reweight: fit with soc.VI(draws=1000)")
    scores = score_quantiles(fit, SHARES) if score is None else score
    curves = calibration_curves(fit, scores, group, exposure)
    quantities = curves[["mean", "log_variance"] if not fit.mean_only else ["mean"]]
    with phase("sensitivity: densities of the draws", enabled=progress):
        prior, likelihood = draw_densities(fit, stats, model)
    if not fit.mean_only:
        explained = r_squared(fit, stats if fit.groups else None)
        quantities = quantities.assign(r_squared=explained)
    log_densities = dict(zip(COMPONENTS, (prior, likelihood), strict=True))
    with phase("sensitivity: reweighting", enabled=progress):
        table, diagnoses = _table(fit, quantities, log_densities)
    dims, coords = ("chain", "draw"), {name: quantities[name] for name in ("chain", "draw")}
    groups = {
        f"log_{name}": xr.Dataset({"total": (dims, values)}, coords)
        for name, values in log_densities.items()
    }
    tree = xr.DataTree.from_dict({"posterior": quantities, **groups})
    title = f"sensitivity: from {THRESHOLD} on, a result depends on the prior"
    return Result(table, tree, _advice(fit, diagnoses, log_densities), title)


def scaled_weights(log_density: Floats, alpha: float) -> tuple[Floats, float]:
    """Weights of draws where a density is raised to a power, with their Pareto k."""
    weight, k, _ = importance((alpha - 1.0) * log_density.ravel())
    return weight.reshape(log_density.shape), k


# --- the table -----------------------------------------------------------------------------------


def _rows(quantities: xr.Dataset) -> tuple[list[str], list[str], Floats]:
    """Quantities, where they are, and their draws, (rows, chain, draw)."""
    names: list[str] = []
    where, draws = [], []
    for name, values in quantities.data_vars.items():
        title = _NAMES[str(name)]
        if "score" not in values.dims:
            values = values.expand_dims("score")
        every = values.transpose("score", "chain", "draw").to_numpy()
        of_scores = "score" in values.coords
        where += [f"{title} at {t:.4g}" for t in values["score"].values] if of_scores else [title]
        names += [title] * len(every)
        draws.append(every)
    return names, where, np.concatenate(draws)


def _table(
    fit: Fit, quantities: xr.Dataset, log_densities: dict[str, Floats]
) -> tuple[pd.DataFrame, pd.Series]:
    """Sensitivities of all quantities with their errors, and diagnoses by quantity."""
    names, where, draws = _rows(quantities)
    blocks = _blocks(fit, log_densities["likelihood"])
    parts = []
    for name, densities in log_densities.items():
        value = _sensitivities(draws, densities)
        error = _ERRORS[name] * _errors(draws, densities, value, blocks)
        low = np.sqrt(np.maximum(value**2 - error**2, 0.0))
        ends = {"value": value, "low": low, "high": np.sqrt(value**2 + error**2)}
        parts.append(pd.DataFrame({"what": name, "where": where, **ends}))
    prior, likelihood = parts
    sure = [part["low"] >= THRESHOLD for part in parts]
    high = [part["value"] >= THRESHOLD for part in parts]
    known = sure[0] & (high[1] == sure[1])
    diagnosis = np.select([~high[0], ~known, sure[1]], [FINE, UNSURE, CONFLICT], DOMINATES)
    prior["verdict"] = [_VERDICTS[name] for name in diagnosis]
    table = result_table(pd.concat([prior, likelihood.assign(verdict=None)], ignore_index=True))
    return table, pd.Series(diagnosis, names)


def _sensitivities(draws: Floats, log_density: Floats) -> Floats:
    """ArviZ's sensitivity of draws (quantities, chain, draw) to a density (chain, draw)."""
    from arviz_stats.base import array_stats

    scaled = (array_stats.power_scale_lw(log_density, alpha, [0, 1]) for alpha in _ALPHAS)
    weights = [np.broadcast_to(np.exp(x - x.max()), draws.shape) for x in scaled]
    return np.asarray(array_stats.power_scale_sense(draws, *weights, *_ALPHAS))


def _blocks(fit: Fit, log_density: Floats) -> list[Ints]:
    """Draws that depend on each other: copies of one draw by VI, neighbours in a chain by NUTS."""
    if fit.status.pareto_k is None:
        number = np.arange(log_density.size) // _BLOCK
    else:  # resampled by importance weights
        number = np.unique(log_density, return_inverse=True)[1].ravel()
    order = np.argsort(number, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(number[order])) + 1)


def _errors(draws: Floats, log_density: Floats, value: Floats, blocks: list[Ints]) -> Floats:
    """Errors of sensitivities by the noise of the draws, by a bootstrap of blocks of draws.

    Noise adds to a distance, because squares of both add up; and it makes the distance vary.
    """
    rng = np.random.default_rng(0)
    flat, log_flat = draws.reshape(len(draws), 1, -1), log_density.reshape(1, -1)
    resampled = []
    for _ in range(_RESAMPLES):
        chosen = rng.integers(len(blocks), size=len(blocks))
        rows = np.concatenate([blocks[k] for k in chosen])
        resampled.append(_sensitivities(flat[:, :, rows], log_flat[:, rows]))
    added = np.mean(np.square(resampled), axis=0) - value**2
    return np.sqrt(np.maximum(added, np.mean((resampled - value) ** 2, axis=0)))


_MEANINGS = {
    CONFLICT: "Prior and data disagree on {}: check the prior, or widen it by "
    "soc.Spline(level=, slope=, wiggle=).",
    DOMINATES: "The data say little of {}, where the prior decides: report that, or get more data.",
    UNSURE: "Draws are too few to tell whether {} depends on the prior: fit with {more}.",
}


def _advice(fit: Fit, diagnoses: pd.Series, log_densities: dict[str, Floats]) -> tuple[str, ...]:
    sentences = []
    if not fit.status.converged:
        sentences.append(f"The fit did not converge, so this may be wrong: {fit.status.reason}.")
    k = max(scaled_weights(x, alpha)[1] for x in log_densities.values() for alpha in _ALPHAS)
    if not k <= PARETO_K:
        sentences.append(
            f"Pareto k of the weights is {k:.2f}, above {PARETO_K}: these numbers are not reliable."
        )
    sizes = fit.data["posterior"].sizes
    draws = sizes["draw"] if isinstance(fit.method, NUTS) else sizes["chain"] * sizes["draw"]
    more = f"soc.{type(fit.method).__name__}(draws={4 * draws})"
    for diagnosis, meaning in _MEANINGS.items():
        names = diagnoses.index[diagnoses == diagnosis]
        if len(names):
            sentences.append(meaning.format(", ".join(dict.fromkeys(names)), more=more))
    return tuple(sentences) or ("No result here depends on the prior.",)
