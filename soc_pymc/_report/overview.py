"""One pass over the items, in batches: a random sample, and the items at the top of each list."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from .._lib.arrays import Floats, Ints
from .._lib.progress import phase
from ..data.items import Items
from ..data.sources import batches, kind_of, open_table
from ..inference.results import Fit
from ..posterior.curves import Extrapolation
from ..posterior.item_columns import Columns, columns_of, posterior_roles
from ..posterior.predictive import posterior_of

# lists of items, by what ranks them; the loss is that of not knowing theta at the threshold
BY_MEAN, BY_LOW_QUANTILE, BY_LOSS = "mean", "low quantile", "loss"
_SAMPLE = 20_000
_SAMPLE_MIXTURE = 10_000  # predictive distributions of mixtures cost more
_LIST = 200  # items kept for each list: all draws rank them again
_LIST_LOSS = 500  # more, because the loss only bounds the value of exposure
_BATCH = 1 << 18
_PROBS = (0.1, 0.5)  # quantiles of theta of every item


@dataclass(frozen=True)
class Subset:
    """Some of the items."""

    items: Items  # an Arrow table with the columns of the roles and those to slice on
    columns: Columns
    names: Sequence[Any]  # id, index label or row number; empty where items have no names
    heading: str  # of the column of names

    def __len__(self) -> int:
        return len(self.columns["score"])


@dataclass(frozen=True)
class Overview:
    """Results of one pass over the items."""

    n: int
    sample: Subset  # random items in their order, or all items
    lists: Mapping[str, Subset]  # candidates of each list
    above: Mapping[float, int]  # number of items above the threshold with more than a probability
    far: str | None  # a sentence on scores far outside those of the fit


class _Largest:
    """The rows of the items with the largest keys, gathered batch by batch."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._key: Floats = np.empty(0)
        self._place: Ints = np.empty(0, dtype=np.int64)
        self._rows: Any = None

    def add(self, key: Floats, start: int, batch: Any) -> None:
        """Add a batch whose first row is row `start` of the items."""
        import pyarrow as pa

        least = self._key.min() if len(self._key) == self._most else -np.inf
        rows = np.flatnonzero(key > least)  # of equal keys the first rows stay
        table = pa.Table.from_batches([batch.take(pa.array(rows))])
        table = table if self._rows is None else pa.concat_tables([self._rows, table])
        keys = np.concatenate([self._key, key[rows]])
        order = np.argsort(-keys, kind="stable")[: self._most]
        self._key, self._place = keys[order], np.concatenate([self._place, start + rows])[order]
        self._rows = table.take(pa.array(order)).combine_chunks()

    def subset(self, items: Items, roles: Mapping[str, str]) -> Subset:
        """Return the rows as items, in the order of the table."""
        import pyarrow as pa

        order = np.argsort(self._place)
        place, rows = self._place[order], self._rows.take(pa.array(order)).combine_chunks()
        kind, names, heading = kind_of(items.source), place.tolist(), "row, from 0"
        if items.id:
            names, heading = rows[items.id].to_pylist(), items.id
        elif kind == "pandas":
            index = items.source.index
            names, heading = list(index[place]), str(index.name or "index")
        elif kind == "ibis":  # whose rows have no order
            names = []
        return Subset(replace(items, source=rows), columns_of(rows, roles), names, heading)


def read_overview(
    fit: Fit, items: Items, by: Sequence[str], threshold: float | None, seed: int, total: int,
    progress: bool | None,
) -> Overview:  # fmt: skip
    """Read all `total` items, which are valid, once; `by` are further columns to keep."""
    posterior = posterior_of(fit)
    roles = posterior_roles(fit, items)
    names = list(dict.fromkeys([*items.roles.values(), *by]))
    rng = np.random.default_rng(seed)
    sample = _Largest(_SAMPLE_MIXTURE if fit.prior.gridded else _SAMPLE)
    lists = {BY_MEAN: _Largest(_LIST), BY_LOW_QUANTILE: _Largest(_LIST)}
    if threshold is not None:
        lists[BY_LOSS] = _Largest(_LIST_LOSS)
    above, n, far = np.zeros(len(_PROBS), dtype=np.int64), 0, Extrapolation(fit)
    score = posterior.scorer(_PROBS)
    table = open_table(items.source, names)
    with phase("reading items", total=total, unit="items", enabled=progress) as running:
        for batch in batches(table, names, size=_BATCH, source=items.source):
            columns = columns_of(batch, roles)
            mean, sd, _, *quantiles = score(columns)
            sample.add(rng.random(batch.num_rows), n, batch)
            lists[BY_MEAN].add(mean, n, batch)
            lists[BY_LOW_QUANTILE].add(quantiles[0], n, batch)
            if threshold is not None:
                lists[BY_LOSS].add(_loss(mean, sd, threshold), n, batch)
                above += [(q > threshold).sum() for q in quantiles[: len(_PROBS)]]
            far.count(columns["score"])
            n += batch.num_rows
            running.advance(batch.num_rows)
    far.warn()
    subsets = {name: largest.subset(items, roles) for name, largest in lists.items()}
    counts = {1 - p: int(k) for p, k in zip(_PROBS, above, strict=True) if threshold is not None}
    return Overview(n, sample.subset(items, roles), subsets, counts, far.message())


def _loss(mean: Floats, sd: Floats, threshold: float) -> Floats:
    """Expected loss of choosing by the mean were theta Normal: no further data save more."""
    z = np.abs(mean - threshold) / np.maximum(sd, np.finfo(float).tiny)
    return np.asarray(sd * (stats.norm.pdf(z) - z * stats.norm.sf(z)))
