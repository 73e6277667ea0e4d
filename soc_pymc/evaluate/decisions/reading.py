"""Items of a decision: their columns, the index of the answer, and work in chunks."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ..._lib.arguments import numbers_of
from ..._lib.errors import FitError
from ..._lib.progress import phase
from ...data.items import Items, check_items
from ...families.family import Family, family_of
from ...families.validity import LARGEST
from ...inference.results import Fit
from ...posterior.item_columns import read_items
from ...posterior.predictive import (
    Columns,
    Posterior,
    ThetaMixture,
    in_chunks,
    items_at_once,
    posterior_of,
    select,
)

__all__ = ["Job", "per_item", "read"]

Floats = NDArray[np.float64]

_AT_ONCE = 5000  # items whose posteriors are held at once by a thread, at most
_BATCH = 50_000  # items between two reports of progress


@dataclass(frozen=True)
class Job:
    """A fit, and items to decide on.

    Attributes
    ----------
    fit, law
        The fit and its law.
    columns
        The items.
    index
        What the answer is indexed by.
    family
        Whether posteriors are mixtures of Gammas or of Normals.
    """

    fit: Fit
    law: Posterior
    columns: Columns
    index: pd.Index
    family: Family

    def __len__(self) -> int:
        return len(self.index)

    @property
    def draws(self) -> int:
        """Draws of the curves."""
        sizes = self.fit.data["posterior"].sizes
        return int(sizes["chain"] * sizes["draw"])

    def each(
        self,
        title: str,
        answer: Callable[[Columns, ThetaMixture], list[Floats]],
        progress: bool,
        **extra: Floats,
    ) -> Floats:
        """Rows of an answer on every item's posterior, (rows, n), chunk by chunk on all processors.

        `extra` are further columns of the items, of which the answer gets its part.
        """

        def some(part: Columns) -> Floats:
            return np.vstack(answer(part, self.law.theta(part)))

        whole, done = {**self.columns, **extra}, []
        step = max(1, min(_AT_ONCE, items_at_once(self.fit)))
        with phase(title, total=len(self), unit="items", enabled=progress) as shown:
            for start in range(0, len(self), _BATCH):
                part = select(whole, slice(start, start + _BATCH))
                done.append(in_chunks(some, step, part))
                shown.advance(len(part["score"]))
        return np.concatenate(done, axis=1)


def read(fit: Fit, items: Items, progress: bool) -> Job:
    """Read and check the items of a decision.

    Raises
    ------
    ItemsError
        If the items are not valid or not of the fit's kind.
    FitError
        If the fit has no law.
    """
    law = posterior_of(fit)
    check_items(items)
    name = items.roles.get("id")
    # ids only name the answers, so that text will do, of which no folds can be made
    unnamed = replace(items, id=None)
    columns, named = read_items(fit, law, unnamed, [name] if name else [], progress)
    n = len(columns["score"])
    if name:
        index = pd.Index(named[name], name=name)
    elif isinstance(items.source, pd.DataFrame):
        index = items.source.index
    else:
        index = pd.RangeIndex(n)
    return Job(fit, law, columns, index, family_of(fit.prior))


def per_item(values: ArrayLike, n: int, name: str, least: float = -np.inf) -> Floats:
    """A number, or one for each item, as an array (n,) of numbers > `least`, up to 1e90 in size.

    Raises
    ------
    FitError
        If it is not.
    """
    array = numbers_of(values, name, wanted="a number or an array of numbers")
    if array.shape not in ((), (n,)):
        raise FitError(
            f"{name} has the shape {array.shape}: give one number, or one for each of {n:,} items"
        )
    # what is as large as no score or exposure leaves no numbers to compare with
    bad = ~((np.abs(array) <= LARGEST) & (array > least))
    if bad.any():
        what = "finite" if least == -np.inf else f"finite and > {least:g}"
        what += f", up to {LARGEST:g} in size"
        raise FitError(f"{name} must be {what}, not {array[bad].flat[0]:g}")
    return np.array(np.broadcast_to(array, (n,)))
