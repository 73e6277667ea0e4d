"""Items to decide on, with the index of the answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from .._lib.arguments import digits, numbers_of
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..checks.observations import in_batches
from ..data.items import Items, check_outcomes
from ..families.validity import LARGEST
from ..inference.results import Fit
from ..posterior.curves import items_at_once
from ..posterior.interface import Columns, ThetaMixture, in_chunks, select
from ..posterior.item_columns import read_items
from ..posterior.predictive import posterior_of
from ..posterior.scoring import Posterior

_AT_ONCE = 5000  # items whose posteriors are held at once by a thread, at most
_BATCH = 50_000  # items between two reports of progress


@dataclass(frozen=True)
class DecisionItems:
    """A fit, and items to decide on."""

    fit: Fit
    posterior: Posterior
    columns: Columns
    index: pd.Index
    labels: Mapping[str, pd.Series]  # further columns of the table

    def __len__(self) -> int:
        return len(self.index)

    @property
    def draws(self) -> int:
        """Number of draws of the curves."""
        sizes = self.fit.data["posterior"].sizes
        return int(sizes["chain"] * sizes["draw"])

    def each(
        self,
        title: str,
        answer: Callable[[Columns, ThetaMixture], Sequence[Floats]],
        progress: bool | None,
        **extra: Floats,
    ) -> Floats:
        """Rows of an answer on every item's posterior, (rows, n), chunk by chunk on all processors.

        The answer gets its part of the `extra` columns too.
        """

        def chunk(part: Columns) -> Floats:
            return np.vstack(answer(part, self.posterior.theta(part)))

        step = max(1, min(_AT_ONCE, items_at_once(self.fit)))
        columns = {**self.columns, **extra}
        return in_batches(
            title, columns, _BATCH, progress, lambda part: in_chunks(chunk, step, part)
        )

    def above(self, threshold: Floats, progress: bool | None) -> Floats:
        """P(theta > threshold) of every item, averaged over the draws of the curves."""

        def answer(columns: Columns, theta: ThetaMixture) -> list[Floats]:
            tail = self.posterior.family.above(columns["threshold"], theta.a, theta.b)
            return [theta.average(tail, np.where(columns["threshold"] < 0.0, 1.0, 0.0))]

        (tail,) = self.each("probabilities", answer, progress, threshold=threshold)
        return np.clip(tail, 0.0, 1.0)

    def rows(self, chosen: Ints) -> "DecisionItems":
        """Some of the items."""
        return replace(self, columns=select(self.columns, chosen), index=self.index[chosen])

    def numbers(
        self, values: ArrayLike, name: str, least: float = -np.inf, per_item: bool = False
    ) -> Floats:
        """A number, or one for `per_item` item, as an array (n,) of numbers > `least`."""
        n = len(self)
        array = numbers_of(values, name, expected="a number or an array of numbers")
        if array.shape != (n,) and (per_item or array.shape != ()):
            scalar = "" if per_item else "one number, or "
            raise FitError(
                f"{name} has the shape {array.shape}: give {scalar}one number for each of {n:,} "
                "items"
            )
        # larger numbers leave none to compare with
        bad = ~((np.abs(array) <= LARGEST) & (array > least))
        if bad.any():
            bound = "" if least == -np.inf else f" and > {least:g}"
            raise FitError(
                f"{name} must be finite{bound}, up to {LARGEST:g} in size, not "
                f"{digits(array[bad].flat[0])}"
            )
        return np.array(np.broadcast_to(array, (n,)))


def read_decision(
    fit: Fit, items: Items, progress: bool | None, also: Sequence[str] = ()
) -> DecisionItems:
    """Read and check the items of a decision, and further columns of their table."""
    posterior = posterior_of(fit)
    check_outcomes(items)
    name = items.roles.get("id")
    names = [*([name] if name else []), *also]
    columns, labels = read_items(fit, posterior, items, names, progress)
    if name:
        index = pd.Index(labels[name], name=name)
    elif isinstance(items.source, pd.DataFrame):
        index = items.source.index
    else:
        index = pd.RangeIndex(len(columns["score"]))
    return DecisionItems(fit, posterior, columns, index, labels)
