"""Log-likelihood of exposure held out from every item, as in the paper's Section 5.1."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from ..errors import ItemsError
from ..items import PoissonItems
from ..laws import items_at_once, law_of
from ..nodes import is_plain
from ..posteriors import item_posteriors
from ..results import Fit
from .thinning import Split

__all__ = ["held_out", "poisson_log_likelihood"]

Floats = NDArray[np.float64]

_GRID = 2000  # scores at which E(theta|t) is evaluated; it is smooth between them


def poisson_log_likelihood(count: ArrayLike, expected: ArrayLike) -> Floats:
    """Log probability of Poisson counts with the given expected counts, item by item.

    Examples
    --------
    >>> poisson_log_likelihood([0, 1], [1.0, 1.0])
    array([-1., -1.])
    """
    y, mu = np.asarray(count, dtype=float), np.asarray(expected, dtype=float)
    return np.asarray(special.xlogy(y, mu) - mu - special.gammaln(y + 1.0))


def held_out(fit: Fit, split: Split) -> pd.DataFrame:
    """Log-likelihood of held-out counts under t, E(theta|t) and E(theta|t,y), as in Section 5.1.

    Parameters
    ----------
    fit
        A fit to statistics of ``split.train``.
    split
        From `split_items`.

    Returns
    -------
    pandas.DataFrame
        Rows ``score`` (t itself, which must be a rate), ``E(theta|t)`` and ``E(theta|t,y)``;
        columns ``log_likelihood`` in nats, ``gain`` over the score, its ``standard_error`` over
        items, and ``gain_percent`` of the score's log-likelihood.

    Raises
    ------
    ItemsError
        If scores are negative or the two parts do not have the same rows.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> items = soc.PoissonItems(
    ...     soc.simulation.s1(2000), score="score", count="count", exposure="exposure")
    >>> split = soc.evaluate.split_items(items)
    >>> fit = soc.fit(soc.summarize(split.train, progress=False), progress=False)
    >>> list(soc.evaluate.held_out(fit, split).columns)
    ['log_likelihood', 'gain', 'standard_error', 'gain_percent']
    """
    train, test = split.train.source, split.test.source
    score = train["score"].to_numpy(dtype=float)
    if len(train) != len(test) or not np.array_equal(score, test["score"].to_numpy(dtype=float)):
        raise ItemsError("the two parts of the split do not have the same rows: use split_items")
    if (score < 0).any():
        raise ItemsError(
            f"column 'score': {int((score < 0).sum())} of {len(score):,} rows are negative, so "
            "that the score is no rate to compare with"
        )
    scored = item_posteriors(fit, split.train, quantiles=(), draws="representative", progress=False)
    rates = {
        "score": score,
        "E(theta|t)": _mean_curve(fit, split.train),
        "E(theta|t,y)": scored["theta_mean"].to_numpy(),
    }
    count, exposure = test["count"].to_numpy(), test["exposure"].to_numpy()
    likelihood = {k: poisson_log_likelihood(count, exposure * r) for k, r in rates.items()}
    base = likelihood["score"]
    gains = {k: v - base for k, v in likelihood.items()}
    table = pd.DataFrame(
        {
            "log_likelihood": {k: v.sum() for k, v in likelihood.items()},
            "gain": {k: v.sum() for k, v in gains.items()},
            "standard_error": {k: v.std() * np.sqrt(len(v)) for k, v in gains.items()},
        }
    )
    table["gain_percent"] = 100 * table["gain"] / abs(base.sum())
    return table


def _mean_curve(fit: Fit, items: PoissonItems) -> Floats:
    """Posterior mean of E(theta|t) at items of a pandas table."""
    law, source = law_of(fit), items.source
    score = source[items.score].to_numpy(dtype=float)
    if is_plain(fit):  # from a fine grid on the mean's axis
        axis = fit.axis("mean")
        position = axis(score)
        grid = np.unique(np.quantile(position, np.linspace(0, 1, _GRID)))
        mean = law.curves(axis.inverse(grid))["mean"].mean(axis=0)
        return np.asarray(np.exp(np.interp(position, grid, np.log(mean))))
    exposure = source[items.exposure].to_numpy(dtype=float)
    group = source[items.group].to_numpy(dtype=object) if items.group else None
    step, found = items_at_once(fit), np.empty(len(score))
    for start in range(0, len(score), step):
        part = slice(start, start + step)
        own = None if group is None else group[part]
        found[part] = law.curves(score[part], own, exposure[part])["mean"].mean(axis=0)
    return found
