"""Outcomes divided at random into a training and a test part that are independent given theta.

A Poisson count is divided event by event; a Normal value by noise of its own size (Neufeld,
Dharamshi, Gao and Witten 2024, Data thinning for convolution-closed distributions, Journal of
Machine Learning Research 25(57)).
"""

import zlib
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from .._lib.arguments import PROBABILITY, SEED, checked
from ..data.groups import arguments_of, is_group
from ..data.items import Items, check_outcomes
from ..data.sources import batches
from ..data.validation import scan
from ..families.outcomes import OUTCOMES


@dataclass(frozen=True)
class Split:
    """Items whose outcomes were divided in two; the same rows, in the same order.

    Tables have columns score, count and exposure (or value and noise_sd, or successes and trials),
    and group and cluster where they have them.
    """

    train: Items
    test: Items


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Independent random numbers for each purpose, from one seed."""
    return np.random.default_rng([SEED(seed, "seed"), zlib.crc32(purpose.encode())])


@checked(fraction=PROBABILITY, seed=SEED)
def split_items(items: Items, fraction: float = 0.1, seed: int = 0) -> Split:
    """Hold out part of every item's outcome, so that both parts are independent given theta.

    Each event of a Poisson count is held out with probability `fraction`, and so is that share of
    the exposure. Of a value y the part held out is y + sqrt((1 - f) / f) s e with e standard
    Normal, of noise sd s / sqrt(f); the rest, (y - f part) / (1 - f), has noise sd s / sqrt(1 - f).
    Trials are dealt out with the successes that they carry.

    Parameters
    ----------
    items
        Items; all of them are read into memory.
    fraction, seed
        Share of every outcome's information that is held out, between 0 and 1; and seed of the
        draws.

    Returns
    -------
    Split
        ``train`` and ``test``: items over pandas tables with the same rows in the same order.

    Raises
    ------
    ItemsError, FitError
        If the items are not valid, or `fraction` is not between 0 and 1.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> parts = soc.evaluate.split_items(items, fraction=0.5)
    >>> both = parts.train.source["count"] + parts.test.source["count"]
    >>> bool((both == items.source["count"]).all())
    True
    """
    frame = read_frame(items)
    outcome = OUTCOMES[items.kind]
    names = outcome.observed, outcome.size
    y, size = (frame[name].to_numpy(dtype=float) for name in names)
    held_out = outcome.forms.thinned(y, size, fraction, stream(seed, "thinning"))
    remaining = outcome.forms.remainder(y, size, held_out, fraction)
    columns = ("score", "cluster", *names)
    roles = arguments_of({r: r for r in items.roles if r in columns or is_group(r)})
    parts = (frame.assign(**dict(zip(names, part, strict=True))) for part in (remaining, held_out))
    return Split(*(type(items)(part, **roles) for part in parts))


def read_frame(items: Items) -> pd.DataFrame:
    """All items as a pandas table with the names of their roles (no ids, dates), validated."""
    check_outcomes(items)
    _, table = scan(replace(items, id=None, fold=None, date=None), progress=False)
    return pd.concat([batch.to_pandas() for batch in batches(table)], ignore_index=True)
