"""`compare_scores`: the variance of theta that several scores of the same items explain."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import ndtri

from .._lib.arguments import PROBABILITY, SEED, A, checked, shown
from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..checks.observations import check_rows, in_batches
from ..checks.results import PROB, Result, estimates, result_table, two_sided
from ..data.items import Items
from ..inference.results import Fit
from ..posterior.curves import extrapolation_reported, items_at_once
from ..posterior.item_columns import Columns, read_items, select
from ..posterior.predictive import posterior_of
from .variance import check_draws, statistics_of, variance_parts

_WHAT = "R-squared", "E Var(theta | t)"
_ITEMS = A(Items, "items")
_SAMPLE = 20_000  # random items that correlations are computed from


@checked(
    scores=A(Mapping, 'a dict, {"name": (fit, items), ...}'),
    prob=PROBABILITY,
    seed=SEED,
)
def compare_scores(
    scores: Mapping[str, tuple[Fit, Items]],
    *,
    prob: float = PROB,
    seed: int = 0,
    progress: bool | None = None,
) -> Result:
    """Difference in R^2 and in E Var(theta | t) of scores of the same items, draw by draw.

    Var(theta) = Var E(theta | t) + E Var(theta | t) is the same for all scores, so the difference
    in E Var(theta | t) is minus that in Var E(theta | t), which is known far better. All fits see
    the same outcomes, so that their errors are as correlated as the items' influences on the
    posterior means (the Bayesian infinitesimal jackknife, Giordano and Broderick 2023). Draws are
    paired so that they have that correlation (Iman and Conover 1982).

    Parameters
    ----------
    scores
        By name, a fit and its items: the same rows in the same order, of which only the score (and
        the groups) differ. The first is the one that others are compared with.
    prob, seed, progress
        Probability of the intervals, seed of the random items that the correlations come from and
        of the pairing, and whether to show progress.

    Returns
    -------
    Result
        Its ``table`` has two rows for each score but the first: by how much its R^2 is larger, and
        its E Var(theta | t), in squared units of theta: negative for a better score; ``p`` is twice
        the posterior probability on the other side of 0. ``data`` has the draws ``r_squared`` and
        ``unexplained`` (score, draw) and the ``correlation`` (score) of errors with the first
        score's.

    Raises
    ------
    FitError, ItemsError
        If there are fewer than two scores, a fit has a single draw or is of another kind of items,
        or the items are not the same rows in the same order.

    Examples
    --------
    >>> import numpy as np
    >>> import soc_pymc as soc
    >>> frame, pairs = soc.simulation.s1(1000, seed=0), {}
    >>> frame["worse"] = frame["score"] * np.exp(np.random.default_rng(1).normal(0, 1, 1000))
    >>> for name in ("score", "worse"):
    ...     items = soc.PoissonItems(frame, score=name, count="count", exposure="exposure")
    ...     pairs[name] = soc.fit(soc.summarize(items)), items
    >>> found = soc.quantities.compare_scores(pairs)
    >>> bool(found.data["r_squared"].sel(score="worse").mean() < 0)
    True
    """
    _check(scores)
    rng = np.random.default_rng(seed)
    variances = {}
    for name, (fit, items) in scores.items():
        # the bins that a fit keeps are those of all groups together
        stats = statistics_of(fit, items) if fit.groups else None
        with extrapolation_reported():  # by the pass over the items
            draws = variance_parts(fit, stats)
        variances[name] = np.stack([draws[c].to_numpy().ravel() for c in ("explained", "total")])
    influence = _influences(scores, variances, seed, progress)
    number = min(part.shape[1] for part in variances.values())
    for name, part in variances.items():  # draws that are evenly spaced
        variances[name] = part[:, np.linspace(0, part.shape[1] - 1, number).astype(int)]
    reference, *further = scores
    base = variances[reference][0]
    correlation = [_correlation(influence[reference], influence[name]) for name in further]
    for name, value in zip(further, correlation, strict=True):
        variances[name] = variances[name][:, _pairing(base, variances[name][0], value, rng)]
    total = np.mean([part[1] for part in variances.values()], axis=0)
    gains = np.array([variances[name][0] - base for name in further])
    differences = {"r_squared": gains / total, "unexplained": -gains}
    where = [f"{name} - {reference}" for name in further]
    rows = [
        estimates(what, where, draws.T, prob, p=two_sided(draws.T))
        for what, draws in zip(_WHAT, differences.values(), strict=True)
    ]
    data = xr.Dataset(
        {name: (("score", "draw"), x) for name, x in differences.items()},
        {"score": np.array(further, dtype=object), "draw": np.arange(number)},
        {"reference": reference},
    ).assign(correlation=("score", correlation))
    return Result(result_table(*rows), data, (), f"scores against {reference}")


def _check(scores: Mapping[str, tuple[Fit, Items]]) -> None:
    for name, pair in scores.items():
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Fit)):
            raise FitError(f"scores[{shown(name)}] must be a pair (fit, items)")
        _ITEMS(pair[1], f"scores[{shown(name)}][1]")
        check_draws(pair[0], f"the fit of {name!r}")
    if len(scores) < 2:
        raise FitError(f"{len(scores)} score: there is nothing to compare it with, give two")
    kinds = {posterior_of(fit).outcome.words.outcomes for fit, _ in scores.values()}
    if len(kinds) > 1:
        which = " and ".join(sorted(kinds))
        raise FitError(f"the fits describe {which}: compare scores of the same items")


def _influences(
    scores: Mapping[str, tuple[Fit, Items]],
    draws: Mapping[str, Floats],
    seed: int,
    progress: bool | None,
) -> dict[str, tuple[Floats, float]]:
    """Influence of some items on the explained variance, and its squares' sum that is noise."""
    influences: dict[str, tuple[Floats, float]] = {}
    reference: Columns = {}
    for name, (fit, items) in scores.items():
        posterior = posterior_of(fit)
        all_items, _ = read_items(fit, items, (), progress)
        total = len(all_items["score"])  # the same rows of all tables of as many rows
        rows = np.random.default_rng(seed).choice(total, min(_SAMPLE, total), replace=False)
        columns = select(all_items, np.sort(rows))
        reference = reference or columns
        roles = (posterior.outcome.observed, posterior.outcome.size)
        check_rows(reference, columns, dict(zip(roles, roles, strict=True)), f"score {name!r}")
        influences[name] = _influence(fit, columns, draws[name][0], progress)
    return influences


def _influence(
    fit: Fit, columns: Columns, explained: Floats, progress: bool | None
) -> tuple[Floats, float]:
    """Influence of items on the mean of draws, and the part of its squares' sum that is noise."""
    posterior, centred = posterior_of(fit), explained - explained.mean()

    def values(part: Columns) -> Floats:
        log_density = posterior.log_density(part)
        shifts = centred @ (log_density - log_density.mean(axis=0)) / len(centred)
        return np.stack([shifts, log_density.var(axis=0)])

    step = items_at_once(fit)
    influence, variance = in_batches("influence of items", columns, step, progress, values)
    return influence, float(variance.sum() * explained.var() / len(explained))


def _correlation(a: tuple[Floats, float], b: tuple[Floats, float]) -> float:
    """Correlation of two sums of the influences, without the noise of finitely many draws."""
    squares = [max(float(x @ x) - noise, 0.1 * float(x @ x)) for x, noise in (a, b)]
    return float(np.clip(a[0] @ b[0] / np.sqrt(squares[0] * squares[1]), -1.0, 1.0))


def _pairing(reference: Floats, draws: Floats, correlation: float, rng: np.random.Generator) -> Any:
    """Order of draws in which they have a rank correlation with those of the reference."""
    n = len(reference)
    normal = ndtri((np.argsort(np.argsort(reference)) + 0.5) / n)
    fresh = rng.permutation(ndtri((np.arange(n) + 0.5) / n))
    target = correlation * normal + np.sqrt(1.0 - correlation**2) * fresh
    order = np.empty(n, dtype=np.intp)
    order[np.argsort(target)] = np.argsort(draws)
    return order
