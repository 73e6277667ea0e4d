"""Gains in log-likelihood over t, by bin of the score, with standard errors over items."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from .._lib.arguments import many
from .._lib.errors import ItemsError

__all__ = [
    "gain_rows",
    "normal_log_likelihood",
    "poisson_log_likelihood",
    "score_bins",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LOG_2PI = float(np.log(2.0 * np.pi))


def poisson_log_likelihood(count: ArrayLike, expected: ArrayLike) -> Floats:
    """Log probability of Poisson counts with the given expected counts, item by item.

    Parameters
    ----------
    count, expected
        Counts and what was expected of them (exposure times rate), each of shape (n,).

    Returns
    -------
    numpy.ndarray
        Shape (n,), in nats; -inf where events came of which none, or infinitely many, were
        expected.

    Raises
    ------
    ItemsError
        If a count or what was expected of it is negative or no number.

    Examples
    --------
    >>> poisson_log_likelihood([0, 1], [1.0, 1.0])
    array([-1., -1.])
    """
    y, mu = many({"count": count, "expected": expected}, ItemsError)
    for name, values in (("count", y), ("expected", mu)):
        wrong = ~(values >= 0) | ((name == "count") & (values == np.inf))
        if bad := int(wrong.sum()):
            raise ItemsError(f"{name}: {bad:,} of {values.size:,} are negative or no numbers")
    finite = np.isfinite(mu)
    known = np.where(finite, mu, 1.0)
    found = special.xlogy(y, known) - known - special.gammaln(y + 1.0)
    return np.where(finite, found, -np.inf)


def normal_log_likelihood(value: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> Floats:
    """Log density of Normal values with the given means and sds, item by item.

    Examples
    --------
    >>> normal_log_likelihood([1.0], [1.0], [1.0]).round(3)
    array([-0.919])
    """
    spread = np.asarray(sd, dtype=float)
    z = (np.asarray(value, dtype=float) - np.asarray(mean, dtype=float)) / spread
    return np.asarray(-0.5 * (z * z + _LOG_2PI) - np.log(spread))


def score_bins(score: Floats, bins: int) -> tuple[Ints, Floats]:
    """Bins of scores with equal numbers of items; fewer where scores are tied.

    Parameters
    ----------
    score
        Shape (n,).
    bins
        How many.

    Returns
    -------
    tuple of numpy.ndarray
        The bin of each item, (n,), and the mean score of each bin.

    Examples
    --------
    >>> score_bins(np.array([4.0, 1.0, 2.0, 3.0]), 2)
    (array([1, 0, 0, 1]), array([1.5, 3.5]))
    """
    bins = min(bins, len(score))
    cuts = np.unique(np.quantile(score, np.arange(1, bins) / bins, method="higher"))
    _, bin_of = np.unique(np.searchsorted(cuts, score, side="right"), return_inverse=True)
    return bin_of, np.bincount(bin_of, score) / np.bincount(bin_of)


def gain_rows(
    likelihood: Mapping[str, Floats], base: Floats, bin_of: Ints, known: Mapping[str, Floats]
) -> Iterator[dict[str, float | str]]:
    """Rows of a table of gains: every estimator, over all items (bin -1) and in each bin.

    The standard error of a gain is that of a sum over items that vary independently. The percentage
    is a ratio of two such sums, gain and base, whose standard error is that of its linear part
    (delta method).

    Parameters
    ----------
    likelihood
        Log-likelihoods of the items by estimator; gains are over the first.
    base
        What the gain is a percentage of, each item's share of it, not negative.
    bin_of
        Bin of each item.
    known
        Further sums (``score``: mean) of every slice, from columns of items.
    """
    slices = [(-1, np.arange(len(bin_of)))]
    order = np.argsort(bin_of, kind="stable")
    ends = np.cumsum(np.bincount(bin_of))
    slices += [(k, part) for k, part in enumerate(np.split(order, ends[:-1]))]
    first = next(iter(likelihood.values()))
    for name, own in likelihood.items():
        gain = own - first
        for k, at in slices:
            sums = {column: float(x[at].sum()) for column, x in known.items()}
            sums["score"] /= len(at)
            yield {
                "estimator": name,
                "bin": k,
                "score": sums.pop("score"),
                "items": len(at),
                **sums,
                "log_likelihood": float(own[at].sum()),
                **_gain(gain[at], base[at]),
            }


def _gain(gain: Floats, base: Floats) -> dict[str, float]:
    total, whole = float(gain.sum()), float(base.sum())
    ratio = total / whole if whole > 0 else np.nan
    return {
        "gain": total,
        "standard_error": _error(gain),
        "gain_percent": 100 * ratio,
        "gain_percent_se": 100 * _error(gain - ratio * base) / whole if whole > 0 else np.nan,
    }


def _error(each: Floats) -> float:
    """Standard error of a sum over items."""
    return float(each.std(ddof=1) * np.sqrt(len(each))) if len(each) > 1 else float("nan")
