"""Posterior of weighted sums and means of theta over chosen items.

Given a draw of the curves the items are independent, so the cumulants of a sum are sums of the
items' cumulants: w E(theta), w^2 Var(theta) and w^3 E[(theta - E(theta))^3]. Given the draw the
total has the Pearson type III distribution (a shifted Gamma) with these; over the draws, which all
items share, it is their equal mixture.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from .._lib.arguments import OrNone, Real, checked, shown, switch
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..checks.observations import parts, summed
from ..checks.pit import ALL
from ..data.items import Items, check_outcomes
from ..families.outcomes import OUTCOMES
from ..inference.results import Fit
from ..posterior.item_columns import select
from ..posterior.items import probabilities
from ..prior_table import quantile_name
from .items import DecisionItems, curve_numbers, joint_draws, read_decision

_HELD = 1_000_000  # numbers in one array of draws x totals
_DRAWS = 20_000  # joint draws for totals of few items
_FEW = 10  # items from which on the cumulants give the shape
_MISSING = "missing"  # label of the total of items without a label
_CLOSE = 1e-7  # error of quantiles, as a share of the range that they lie in


@checked(items=check_outcomes, mean=switch, threshold=OrNone(Real()))
def total(
    fit: Fit,
    items: Items,
    *,
    weights: str | ArrayLike | None = None,
    by: str | ArrayLike | None = None,
    mean: bool = False,
    quantiles: Sequence[float] = (0.05, 0.95),
    threshold: float | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Posterior of the sum of theta over items, weighted and by group if wanted.

    All items share the uncertainty of the curves, so it does not average out as that of the single
    items does. A total of the best items by their posteriors needs no correction for the choice;
    the sum of the best *outcomes* is too large (the winner's curse).

    Parameters
    ----------
    fit, items, progress
        As in `probability_above`.
    weights
        ``"exposure"`` (the column with that role; of successes ``"trials"`` too), the name of
        another column of numbers, or one number for each item: the total is the sum of weight times
        theta. With exposures as weights of rates, it is the expected number of events. None counts
        items once.
    by
        Name of a column of labels, or one label for each item: one total for each label.
    mean
        Whether to divide by the sum of the weights, which then must be >= 0 and not all 0.
    quantiles, threshold
        Probabilities of the quantile columns; and a number in the unit of the total for
        ``probability_above``, or None.

    Returns
    -------
    pandas.DataFrame
        One row for each label, sorted, or the row ``"all items"``: the number of ``items``;
        ``mean`` and ``sd`` of the total; ``sd_curves``, the part of the sd that comes from the
        curves; quantiles such as ``q05`` and ``q97_5``; with `threshold` also
        ``probability_above``. Mean and sd are exact; quantiles at 0.05 and 0.95 are within about
        0.02 sd.

    Raises
    ------
    ItemsError, FitError
        If the items are not valid or not of the fit's kind, or have no such column; if weights or
        labels are not as many as items, or an argument is out of its range.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> clicks = soc.decisions.total(fit, items, weights="exposure")
    >>> list(clicks.columns)
    ['items', 'mean', 'sd', 'sd_curves', 'q05', 'q95']
    """
    probs, outcome = probabilities(quantiles), OUTCOMES[items.kind]
    if isinstance(weights, str) and weights in ("exposure", outcome.size) and outcome.sizes_add:
        weights = items.roles[outcome.size]
    names = [column for column in (weights, by) if isinstance(column, str)]
    decision = read_decision(fit, items, progress, names)
    weight = _weights(decision, weights)
    code, labels = _labels(decision, by)
    sizes, order = np.bincount(code, minlength=len(labels)), np.argsort(code, kind="stable")
    # powers of weights near 1 neither overflow nor vanish
    largest = np.zeros(len(labels))
    np.maximum.at(largest, code, np.abs(weight))
    unit = np.where(largest > 0.0, largest, 1.0)
    share = weight / unit[code]
    if mean:
        unit = 1.0 / _positive_sums(share, code, labels)
    at_once, rows = max(1, _HELD // max(decision.draws, _DRAWS)), []
    ends = np.append(0, np.cumsum(sizes))
    for totals in parts("totals", len(sizes), at_once, progress, "totals"):
        part = order[ends[totals.start] : ends[totals.stop]]
        block = _distributions(decision.rows(part), share[part], sizes[totals])
        rows.append(_rows(*block, probs, threshold, unit[totals]))
    columns = ["mean", "sd", "sd_curves"]
    columns += [quantile_name(p).removeprefix("theta_") for p in probs]
    columns += ["probability_above"] * (threshold is not None)
    table = pd.DataFrame(dict(zip(columns, np.concatenate(rows, axis=1), strict=True)), labels)
    table.insert(0, "items", sizes)
    return table


def _weights(decision: DecisionItems, weights: str | ArrayLike | None) -> Floats:
    """Weights of all items, finite."""
    if weights is None:
        return np.ones(len(decision))
    if not isinstance(weights, str):
        return decision.numbers(weights, "weights", per_item=True)
    column, name = decision.labels[weights], f"weights={weights!r}"
    if column.dtype.kind not in "iuf":
        raise FitError(f"{name} must be the name of a column of numbers")
    return decision.numbers(column, name, per_item=True)


def _labels(decision: DecisionItems, by: str | ArrayLike | None) -> tuple[Ints, pd.Index]:
    """Number of each item's total, and the labels of the totals."""
    n = len(decision)
    if by is None:
        return np.zeros(n, dtype=np.int64), pd.Index([ALL])
    values = decision.labels[by] if isinstance(by, str) else by
    try:
        shape = np.shape(values)
    except (TypeError, ValueError):  # of lists of unequal lengths, and of tables of tables
        shape = ()
    if shape != (n,):
        raise FitError(
            f"by={shown(by)} must be the name of a column, or one label for each of {n:,} items"
        )
    code, labels = pd.factorize(pd.Series(values), sort=True, use_na_sentinel=False)
    name = by if isinstance(by, str) else getattr(by, "name", None)
    if labels.hasnans:
        labels = labels.astype(object).fillna(_MISSING)
    return code.astype(np.int64), pd.Index(labels, name=name)


def _positive_sums(share: Floats, code: Ints, labels: pd.Index) -> Floats:
    """Sums of the weights by total, which means divide by."""
    sums, negative = np.bincount(code, share, len(labels)), (share < 0.0).sum()
    if negative:
        raise FitError(f"a mean needs weights >= 0, and {negative:,} of {len(share):,} are below 0")
    if not (sums > 0.0).all():
        label = labels[int(np.argmin(sums))]
        raise FitError(f"a mean needs a weight > 0, and all weights of {label!r} are 0")
    return sums


# --- distributions of totals ---------------------------------------------------------------------


def _distributions(
    items: DecisionItems, weight: Floats, sizes: Ints
) -> tuple[Floats, dict[int, Floats]]:
    """Cumulants of totals given each draw of the curves, (3, draws, totals), and draws of some.

    Items are sorted by total, `sizes` of each. The totals of so few items that their shape comes
    from draws have draws, by their place.
    """
    code = np.repeat(np.arange(len(sizes)), sizes)

    def moments(rows: slice) -> list[Floats]:
        by_item = items.posterior.moments(select(items.columns, rows))
        return [m * weight[rows] ** r for r, m in enumerate(by_item)]

    cumulants = np.stack(summed(items.fit, weight, code, len(sizes), moments))
    small = sizes < _FEW
    if not items.fit.prior.mixture:
        small &= cumulants[2].any(axis=0)  # else they are Normal
    if not small.any():
        return cumulants, {}
    rows = np.flatnonzero(small[code])
    theta = joint_draws(items.rows(rows), curve_numbers(items.draws, _DRAWS, 0), 0)
    starts = np.flatnonzero(np.diff(code[rows], prepend=-1))
    sums = np.add.reduceat(theta * weight[rows], starts, axis=1)
    return cumulants, dict(zip(np.flatnonzero(small).tolist(), sums.T, strict=True))


def _rows(
    cumulants: Floats,
    drawn: dict[int, Floats],
    probs: Sequence[float],
    cut: float | None,
    unit: Floats,
) -> Floats:
    """Mean, sd, sd from the curves, quantiles, P(total > cut); totals are in `unit`."""
    mean, variance, _ = cumulants
    shared = mean.var(axis=0)
    rows = [mean.mean(axis=0), np.sqrt(shared + variance.mean(axis=0)), np.sqrt(shared)]
    for prob in probs:
        rows.append(_quantile(cumulants, prob))
        for place, draws in drawn.items():
            rows[-1][place] = np.quantile(draws, prob)
    rows = [row * unit for row in rows]
    if cut is not None:
        rows.append(1.0 - _below(cumulants, cut / unit))
        for place, draws in drawn.items():
            rows[-1][place] = (draws > (cut / unit)[place]).mean()
    return np.vstack(rows)


def _below(cumulants: Floats, cut: Floats) -> Floats:
    """P(total <= cut) of each total, averaged over the draws."""
    from scipy.stats import pearson3

    mean, variance, third = cumulants
    certain = variance <= 0.0  # all weights are 0
    scale = np.sqrt(np.where(certain, 1.0, variance))
    share = np.where(certain, mean <= cut, pearson3.cdf((cut - mean) / scale, third / scale**3))
    return np.asarray(share.mean(axis=0))


def _quantile(cumulants: Floats, prob: float) -> Floats:
    """Quantile of each total."""
    from scipy.optimize.elementwise import find_root

    # Bernstein's bounds: in both tails a shifted Gamma's quantile lies between these
    mean, variance, third = cumulants
    scale = np.abs(third) / np.where(variance > 0.0, 2.0 * variance, 1.0)
    tails = -np.log(prob), -np.log1p(-prob)
    below, over = (np.sqrt(2.0 * variance * tail) + scale * tail for tail in tails)
    low = (mean - below).min(axis=0)
    width = (mean + over).max(axis=0) - low

    def excess(place: Floats, total: Ints) -> Floats:
        return _below(cumulants[:, :, total], low[total] + place * width[total]) - prob

    ends = np.zeros(len(low)), np.ones(len(low))
    root = find_root(excess, ends, args=(np.arange(len(low)),), tolerances={"xatol": _CLOSE})
    return np.where(width > 0.0, low + root.x * width, low)
