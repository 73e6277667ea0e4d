"""Outcomes divided at random into a training and a test part that are independent given theta.

A Poisson count is divided event by event; a Normal value by noise of its own size (Neufeld,
Dharamshi, Gao and Witten 2024, Data thinning for convolution-closed distributions, Journal of
Machine Learning Research 25(57)).
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .._lib.arguments import PROBABILITY, SEED, checked, many
from .._lib.arrays import Floats
from .._lib.errors import ItemsError
from ..data.groups import arguments_of, is_group
from ..data.items import Items, check_outcomes
from ..data.tables import batches, scan
from ..families.normal import NORMAL_FORMS
from ..families.outcomes import OUTCOMES
from ..families.poisson import POISSON_FORMS
from ..families.validity import LARGEST_COUNT


@dataclass(frozen=True)
class Split:
    """Items whose outcomes were divided in two; the same rows, in the same order.

    Attributes
    ----------
    train, test
        Items over pandas tables with columns score, count and exposure (or value and noise_sd, or
        successes and trials), and group and cluster where they have them.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> split = soc.evaluate.split_items(items, 0.5)
    >>> len(split.train.source) == len(split.test.source)
    True
    """

    train: Items
    test: Items


@checked(fraction=PROBABILITY, seed=SEED)
def thin(
    count: ArrayLike, exposure: ArrayLike, fraction: float = 0.1, seed: int = 0
) -> tuple[Floats, Floats]:
    """Divide Poisson counts and their exposures at random; return the part held out.

    Each event is held out with probability `fraction`, and so is that share of the exposure: given
    theta the two parts of a Poisson count are independent. Successes in trials are not Poisson
    counts: `split_items` deals out the trials of `BinomialItems`.

    Parameters
    ----------
    count, exposure
        Shape (n,).
    fraction, seed
        Share held out, between 0 and 1, and seed of the random numbers.

    Returns
    -------
    tuple of numpy.ndarray
        Counts and exposures held out.

    Raises
    ------
    FitError
        If `fraction` is not between 0 and 1.

    Examples
    --------
    >>> count, exposure = thin([3, 0], [100, 10], seed=1)
    >>> bool((count <= [3, 0]).all() and (exposure <= [100, 10]).all())
    True
    """
    y, n = _columns({"count": count, "exposure": exposure})
    refuse_any("count", ~((y >= 0) & (y == np.floor(y)) & (y <= LARGEST_COUNT)), "not whole, >= 0")
    refuse_any("exposure", ~((n >= 0) & np.isfinite(n)), "not finite, >= 0")
    return POISSON_FORMS.thinned(y, n, fraction, stream(seed, "thinning"))


@checked(fraction=PROBABILITY, seed=SEED)
def thin_values(
    value: ArrayLike, noise_sd: ArrayLike, fraction: float = 0.1, seed: int = 0
) -> tuple[Floats, Floats]:
    """Divide values with Normal noise at random; return the part held out.

    The part held out is y + sqrt((1 - f) / f) s e with e standard Normal: a value of the same theta
    with noise sd s / sqrt(f). The rest, (y - f part) / (1 - f), has noise sd s / sqrt(1 - f), and
    given theta the two are independent.

    Parameters
    ----------
    value, noise_sd
        Shape (n,), in one unit.
    fraction, seed
        As of `thin`; a share f of the information, 1 / s^2, is held out.

    Returns
    -------
    tuple of numpy.ndarray
        Values and noise sds held out.

    Raises
    ------
    FitError
        If `fraction` is not between 0 and 1.

    Examples
    --------
    >>> value, noise_sd = thin_values([1.0, -2.0], [0.5, 1.0], fraction=0.25)
    >>> noise_sd
    array([1., 2.])
    """
    y, sd = _columns({"value": value, "noise_sd": noise_sd})
    refuse_any("value", ~np.isfinite(y), "not finite")
    refuse_any("noise_sd", ~((sd > 0) & np.isfinite(sd)), "not finite, > 0")
    return NORMAL_FORMS.thinned(y, sd, fraction, stream(seed, "thinning"))


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Random numbers of their own for each purpose.

    The same seed serves to simulate items, to thin them and to randomise their PIT: were these the
    same numbers, held-out outcomes would not be independent of what is done with them.
    """
    return np.random.default_rng([SEED(seed, "seed"), zlib.crc32(purpose.encode())])


def _columns(given: Mapping[str, ArrayLike]) -> tuple[Floats, Floats]:
    """Two columns of one length; a number stands for all of the second."""
    first, second = many(given, ItemsError)
    if first.ndim != 1:
        names = " and ".join(given)
        raise ItemsError(f"{names} have the shape {first.shape}: give one of each for every item")
    if second.shape not in ((), first.shape):
        raise ItemsError(
            f"{list(given)[1]} has the shape {second.shape}: give a number, or one for each of "
            f"{len(first):,} items"
        )
    return first, np.array(np.broadcast_to(second, first.shape))


def refuse_any(name: str, bad: NDArray[np.bool_], what: str) -> None:
    """Refuse an argument some of whose numbers are bad; `what` says how."""
    if bad.any():
        raise ItemsError(f"{name}: {int(bad.sum()):,} of {bad.size:,} are {what}")


@checked(fraction=PROBABILITY, seed=SEED)
def split_items(items: Items, fraction: float = 0.1, seed: int = 0) -> Split:
    """Hold out part of every item's outcome, so that both parts are independent given theta.

    Counts are divided by `thin` and values by `thin_values`; trials are dealt out with the
    successes that they carry. Columns of groups and of clusters are kept.

    Parameters
    ----------
    items
        Items; all of them are read into memory.
    fraction, seed
        Of `thin` or `thin_values`.

    Returns
    -------
    Split
        Training and test items.

    Raises
    ------
    ItemsError
        If the items are not valid.
    FitError
        If `fraction` is not between 0 and 1.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> parts = split_items(items, fraction=0.5)
    >>> both = parts.train.source["count"] + parts.test.source["count"]
    >>> bool((both == items.source["count"]).all())
    True
    """
    frame = read_frame(items)
    outcome = OUTCOMES[items.kind]
    names = outcome.observed, outcome.size
    y, size = (frame[name].to_numpy(dtype=float) for name in names)
    held = outcome.forms.thinned(y, size, fraction, stream(seed, "thinning"))
    rest = outcome.forms.remainder(y, size, held, fraction)
    kept = ("score", "cluster", *names)
    roles = arguments_of({r: r for r in items.roles if r in kept or is_group(r)})
    parts = (frame.assign(**dict(zip(names, part, strict=True))) for part in (rest, held))
    return Split(*(type(items)(part, **roles) for part in parts))


def read_frame(items: Items) -> pd.DataFrame:
    """All items as a pandas table with the names of their roles (no ids, dates), validated."""
    check_outcomes(items)
    scanned = scan(replace(items, id=None, fold=None, date=None), progress=False, folds=True)
    return pd.concat([b.to_pandas() for b in batches(scanned.table)], ignore_index=True)
