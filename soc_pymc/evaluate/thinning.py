"""Outcomes divided at random into a training and a test part that are independent given theta."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ..errors import FitError, ItemsError
from ..items import PoissonItems
from ..tables import batches, scan

__all__ = ["Split", "split_items", "thin"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """Items whose exposure was divided in two; the same rows, in the same order.

    Attributes
    ----------
    train, test
        Items over pandas tables with columns score, count and exposure, and group where they have
        one.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> items = soc.PoissonItems(
    ...     soc.simulation.s1(100), score="score", count="count", exposure="exposure")
    >>> split = soc.evaluate.split_items(items, 0.5)
    >>> len(split.train.source) == len(split.test.source)
    True
    """

    train: PoissonItems
    test: PoissonItems


def thin(
    count: ArrayLike, exposure: ArrayLike, fraction: float = 0.1, seed: int = 0
) -> tuple[Floats, Floats]:
    """Divide counts and exposures at random; return the part held out.

    Where exposures are whole numbers and no count exceeds its exposure, trials are dealt out: each
    goes to the held-out part with probability `fraction`, and carries its event with it (binomial
    exposure, hypergeometric count). Elsewhere the exposure is divided in proportion and each event
    goes with probability `fraction`: the parts of a Poisson count are then independent Poisson.

    Parameters
    ----------
    count, exposure
        Shape (n,).
    fraction
        Share held out, between 0 and 1.
    seed
        Seed of the random numbers.

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
    if not 0 < fraction < 1:
        raise FitError(f"fraction={fraction} must be between 0 and 1")
    y, n = np.asarray(count, dtype=float), np.asarray(exposure, dtype=float)
    rng = np.random.default_rng(seed)
    trials = (n == np.floor(n)).all() and (y <= n).all() and n.max(initial=0) < 1e9
    if trials:
        whole, events = n.astype(np.int64), y.astype(np.int64)
        held = rng.binomial(whole, fraction)
        return rng.hypergeometric(events, whole - events, held).astype(float), held.astype(float)
    return rng.binomial(y.astype(np.int64), fraction).astype(float), fraction * n


def split_items(items: PoissonItems, fraction: float = 0.1, seed: int = 0) -> Split:
    """Hold out part of every item's exposure, by `thin`.

    Parameters
    ----------
    items
        Items; all of them are read into memory.
    fraction, seed
        Of `thin`.

    Returns
    -------
    Split
        Training and test items.

    Raises
    ------
    ItemsError
        If the items are not valid, or have no exposure to divide.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(100)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> parts = split_items(items, fraction=0.5)
    >>> both = parts.train.source["count"] + parts.test.source["count"]
    >>> bool((both == frame["count"]).all())
    True
    """
    if "exposure" not in items.roles:
        raise ItemsError(
            "only counts have an exposure that can be divided: evaluate fits to values on other "
            "items (soc.check), by soc.evaluate.cross_validate, or by soc.compare"
        )
    scanned = scan(items, progress=False)
    frame = pd.concat([b.to_pandas() for b in batches(scanned.table)], ignore_index=True)
    count, exposure = thin(frame["count"], frame["exposure"], fraction, seed)
    parts = {
        "train": frame.assign(count=frame["count"] - count, exposure=frame["exposure"] - exposure),
        "test": frame.assign(count=count, exposure=exposure),
    }
    roles = {role: role for role in ("score", "count", "exposure", "group") if role in items.roles}
    return Split(**{name: PoissonItems(part, **roles) for name, part in parts.items()})
