"""Tests of assumptions: scores that have not seen outcomes, and priors that do not decide."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from scipy import special, stats

from .._lib.arguments import PROGRESS, A, checked
from .._lib.errors import FitError, ItemsError
from .._lib.progress import phase
from .._lib.threads import one_blas_thread
from ..checks.observations import check_rows
from ..checks.results import FAIL, OK, WARN, Result, finding, result_table
from ..data.binning import added
from ..data.items import Items, check_outcomes
from ..data.statistics import Statistics
from ..data.summaries import summarize
from ..families.outcomes import OUTCOMES, Outcome
from ..families.scales import STEPS
from ..inference.results import FIT, PARETO_K, Fit
from ..posterior.calibration import calibration_curves
from ..quantities.variance import SHARES, check_draws, r_squared, score_quantiles
from ._held_out import read_frame

_MOST_Z = 3.0  # cap on one bin's excess over noise, because its theta may vary
_LEVEL = 0.05  # chance of a false alarm
_TOLERANCE = 0.05  # share of out-of-fold gain that training on more items may bring
_FINDINGS = {
    "outcomes alone": "outcomes vary by {:.2f} of their noise where they vary least",
    "fresh outcomes": "the calibration slope is {:.2f} times as steep on fresh outcomes",
    "out-of-fold scores": "the scores gain {:.0%} more than out-of-fold ones",
}

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


# --- scores --------------------------------------------------------------------------------------


def leakage(
    items: Items | Statistics, *, fresh: Items | None = None, out_of_fold: Items | None = None
) -> Result:
    """Test whether scores were trained on the outcomes that they are to be calibrated with.

    The score's honesty is an assumption of the method (Sections 1 and 2 of Muralidharan and Najmi):
    posteriors would count such outcomes twice.

    Parameters
    ----------
    items
        The items, or statistics of them where nothing else is given: outcomes given an honest score
        vary at least by their noise. This shows heavy leaks only.
    fresh, out_of_fold
        The same rows in the same order, with the same scores and outcomes seen later (not those of
        `split_items`); and with scores of the same model that has not seen them, compared by their
        log-likelihood after a straight-line calibration. Leave the latter out for a model that
        knows items by their earlier outcomes.

    Returns
    -------
    Result
        Its ``table`` has a row for each kind of evidence (``where``); a ``verdict`` is ``"fail"``
        where scores leak, with a chance of at most 5% of any false alarm. The ``value`` is the
        least ratio of outcomes' variance to their noise among octaves of exposure; the calibration
        slope on fresh outcomes over that on the items' own; and the extra log-likelihood as a share
        of the out-of-fold scores' gain, of which up to 5% is not an alarm. ``data`` has ``z``.

    Raises
    ------
    ItemsError, FitError
        If items are not valid, or the others are not the same rows.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> frame["leaky"] = 0.5 * frame["score"] + 0.5 * frame["count"] / frame["exposure"]
    >>> items = soc.PoissonItems(frame, score="leaky", count="count", exposure="exposure")
    >>> list(soc.evaluate.leakage(items).table["verdict"])
    ['fail']
    """
    optional = {"fresh": fresh, "out_of_fold": out_of_fold}
    others = {name: other for name, other in optional.items() if other is not None}
    for name, other in others.items():
        check_outcomes(other, name)
    if isinstance(items, Statistics):
        if others:
            raise FitError("statistics have no rows to compare: give leakage() the items")
        evidence = {"outcomes alone": _from_outcomes(items)}
    else:
        statistics = summarize(items, folds=0, on_leakage="ignore", progress=False)
        evidence = {"outcomes alone": _from_outcomes(statistics)}
        for name, other in others.items():
            if items.kind != other.kind:
                raise ItemsError(
                    f"{name}= has {other.kind} items, not {items.kind} ones: give the same rows in "
                    "the same order"
                )
            where, judge = _WITH_OTHERS[name]
            evidence[where] = judge(OUTCOMES[items.kind], read_frame(items), read_frame(other))
    rows, leaks = [], []
    for where, (value, z, p) in evidence.items():
        tolerated = where == "out-of-fold scores" and value <= _TOLERANCE
        verdict = OK if tolerated or p >= _LEVEL / len(evidence) else FAIL
        rows.append(finding("leakage", where, value, p, verdict))
        if verdict == FAIL:
            leaks.append(f"{_FINDINGS[where].format(value)} (z = {z:.1f})")
    advice = "No sign that scores saw their outcomes."
    if leaks:
        advice = (
            f"Scores saw their outcomes: {'; '.join(leaks)}. Posteriors would count these twice "
            "and intervals be too narrow: score every item by a model trained without it, such as "
            "by scikit-learn's cross_val_predict."
        )
    elif len(rows) == 1:
        advice = (
            "No sign that scores saw their outcomes, but outcomes alone show heavy leaks only: "
            "give fresh= or out_of_fold= to see lighter ones."
        )
    z_values = [z for _, z, _ in evidence.values()]
    data = xr.Dataset({"z": ("evidence", z_values)}, {"evidence": list(evidence)})
    return Result(result_table(rows), data, (advice,), "leakage")


Evidence = tuple[float, float, float]
"""A value, its z, large where scores leak, and p."""


def _from_outcomes(statistics: Statistics) -> Evidence:
    """Return the least variation by octave of exposure or noise sd; z with its sign turned."""
    outcome = OUTCOMES[statistics.kind]
    margin = outcome.margins[0]
    cells = statistics.cells(margin)
    octaves = {**cells, "cell": cells["cell"] >> STEPS}
    groups = added(octaves, ("bin", "cell"), outcome.sums(margin))
    known, excess, variance, noise = outcome.forms.excess(groups, statistics.data)
    if not len(excess):
        return np.nan, 0.0, 1.0
    # one bin whose theta varies must not hide many in which outcomes hardly do
    capped = np.minimum(excess, _MOST_Z * np.sqrt(variance))
    _, octave = np.unique(groups["cell"][known], return_inverse=True)
    total, spread, scale = (np.bincount(octave, x) for x in (capped, variance, noise))
    z = total / np.sqrt(spread)
    least = int(z.argmin())
    p = min(1.0, len(z) * float(stats.norm.cdf(z[least])))
    # single trials that all came out alike have no noise
    effect = 1.0 + float(total[least] / scale[least]) if scale[least] > 0 else 1.0
    return effect, -float(z[least]), p


def _outcomes(frame: pd.DataFrame, outcome: Outcome) -> Any:
    """Return outcomes and their sizes."""
    return (frame[name].to_numpy(dtype=float) for name in (outcome.observed, outcome.size))


def _from_fresh(outcome: Outcome, frame: pd.DataFrame, fresh: pd.DataFrame) -> Evidence:
    """Judge whether scores go with their items' outcomes more closely than with fresh ones."""
    check_rows(frame, fresh, {"score": "score"}, "fresh=")
    score = frame["score"].to_numpy(dtype=float)
    rank = special.ndtri((stats.rankdata(score) - 0.5) / len(score))
    seen_outcomes, later = (tuple(_outcomes(x, outcome)) for x in (frame, fresh))
    contrast, weight = outcome.forms.contrast(*seen_outcomes, *later)
    centred = rank - (weight @ rank) / weight.sum()
    before, after = (outcome.forms.line(score, *pair)[1] for pair in (seen_outcomes, later))
    spread = np.sqrt(((centred * contrast) ** 2).sum())
    z = float(np.sign(before) * (centred @ contrast) / spread) if spread > 0 else 0.0
    return after / before if before else np.nan, z, float(stats.norm.sf(z))


def _from_folds(outcome: Outcome, frame: pd.DataFrame, folds: pd.DataFrame) -> Evidence:
    """Return the extra log-likelihood of scores, as a share of what out-of-fold scores gain."""
    words = {outcome.observed: "outcome", outcome.size: "exposure or noise sd"}
    check_rows(frame, folds, words, "out_of_fold=")
    y, size = _outcomes(frame, outcome)
    scores = *(x["score"].to_numpy(dtype=float) for x in (frame, folds)), np.ones(len(frame))
    density, out_of_fold, none = (outcome.forms.line(x, y, size)[0] for x in scores)
    extra = density - out_of_fold
    gain = float((out_of_fold - none).sum())
    z = float(extra.sum() / max(np.sqrt(len(extra)) * extra.std(), 1e-300))
    effect = float(extra.sum()) / max(gain, 1e-300) if extra.sum() > 0 else 0.0
    return effect, z, float(stats.norm.sf(z))


_WITH_OTHERS = {
    "fresh": ("fresh outcomes", _from_fresh),
    "out_of_fold": ("out-of-fold scores", _from_folds),
}


# --- priors --------------------------------------------------------------------------------------


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
    cumulative Jensen-Shannon distance of a quantity's posteriors for each doubling of the power
    (Kallioinen, Paananen, Buerkner and Vehtari, Statistics and Computing 34, 2024). Only priors of
    top-level parameters are scaled: levels and slopes of the curves (of a mixture the lines of its
    log weights), the scales of all terms, and what the user added without a parent.

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
    from arviz_stats import psense

    from ..inference.fit_tree import draw_densities  # which load PyMC
    from ..inference.variational import importance

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
        groups = {"posterior": quantities}
        for name, values in densities.items():
            groups[name] = xr.Dataset({"total": (tuple(coords), values)}, coords)
        tree = xr.DataTree.from_dict(groups)
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
    """Return a row for each quantity, and for each score of a curve."""
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
