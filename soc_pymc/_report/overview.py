"""One pass over the items: a random sample, ranges, and the items at the top of every list.

However many the items are, only a batch, the sample and the lists are held in memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from .._lib.arrays import Floats, Ints
from .._lib.progress import phase
from ..data.items import Items
from ..data.tables import batches, kind_of, open_table
from ..inference.results import Fit
from ..posterior.extrapolation import Extrapolation
from ..posterior.interface import Columns, Posterior
from ..posterior.item_columns import columns_of, posterior_roles

BY_MEAN, BY_LOW_QUANTILE, BY_LOSS = "mean", "low quantile", "loss"
"""Lists of items, by what ranks them; the loss is that of not knowing theta at the threshold."""

_SAMPLE = 20_000
_SAMPLE_MIXTURE = 10_000  # predictive distributions of mixtures cost more
_LIST = 200  # items kept for each list: all draws rank them again
_LIST_LOSS = 500  # more, as only a bound of the value of exposure is known here
_BATCH = 1 << 18
_PROBS = (0.1, 0.5)  # quantiles of theta that every item gets


@dataclass(frozen=True)
class Subset:
    """Some of the items."""

    items: Items  # in a table in memory, with the columns of the roles and those to slice on
    columns: Columns
    names: tuple[str, ...]  # id, label in the user's index or number of the row; "" without a name
    named_by: str  # head of the column of names; "" where items have no names

    def __len__(self) -> int:
        return len(self.columns["score"])

    def thinned(self, most: int, seed: int) -> "Subset":
        """A random part of the items, or all of them where they are few."""
        if len(self) <= most:
            return self
        at = np.sort(np.random.default_rng(seed).choice(len(self), most, replace=False))
        return Subset(
            replace(self.items, source=self.items.source.take(at)),
            {name: values[at] for name, values in self.columns.items()},
            tuple(self.names[k] for k in at),
            self.named_by,
        )


@dataclass(frozen=True)
class Overview:
    """What one pass over the items found."""

    n: int
    ranges: Mapping[str, tuple[float, float]]  # smallest and largest number of each role
    zeros: int  # items with an outcome of 0
    sample: Subset  # random items in their order; all items where they are few
    lists: Mapping[str, Subset]  # candidates of each list
    above: Mapping[float, int]  # items above the threshold with more than this probability
    far: str | None  # a sentence on scores far outside those of the fit

    @property
    def whole(self) -> bool:
        """Whether the sample holds all items."""
        return len(self.sample) == self.n


class _Largest:
    """The rows of the items with the largest keys, gathered batch by batch."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._key: Floats = np.empty(0)
        self.place: Ints = np.empty(0, dtype=np.int64)
        self.rows: Any = None

    def add(self, key: Floats, first: int, batch: Any) -> None:
        """See the rows of a batch, the first of which is row `first` of the items."""
        import pyarrow as pa

        least = self._key.min() if len(self._key) == self._most else -np.inf
        at = np.flatnonzero(key > least)
        if len(at) > self._most:
            at = at[np.argpartition(-key[at], self._most - 1)[: self._most]]
        if not len(at):
            return
        new = pa.Table.from_batches([batch.take(pa.array(at))])
        rows = new if self.rows is None else pa.concat_tables([self.rows, new])
        keys = np.concatenate([self._key, key[at]])
        places = np.concatenate([self.place, first + at])
        # of equal keys the first rows stay, whatever the size of the batches
        order = np.lexsort((places, -keys))[: self._most]
        self._key, self.place = keys[order], places[order]
        self.rows = rows.take(pa.array(order)).combine_chunks()

    def subset(self, items: Items, roles: Mapping[str, str], in_order: bool = False) -> Subset:
        """The rows as items with names, by falling key or in the order of the items."""
        import pyarrow as pa

        order = np.argsort(self.place) if in_order else np.arange(len(self.place))
        place, rows = self.place[order], self.rows.take(pa.array(order)).combine_chunks()
        names, named_by = _names(items, rows, place)
        own = replace(items, source=rows)
        return Subset(own, columns_of(rows, roles), tuple(map(str, names)), named_by)


def _names(items: Items, rows: Any, place: Ints) -> tuple[list[Any], str]:
    """What each row is called, and the head of the column that says so."""
    kind, id_column = kind_of(items.source), items.roles.get("id")
    if id_column:
        return rows[id_column].to_pylist(), id_column
    if kind == "pandas":
        index = items.source.index
        return list(index[place]), "index" if index.name is None else str(index.name)
    if kind == "ibis":  # whose rows have no order
        return [""] * len(place), ""
    return place.tolist(), "row, from 0"


def read_overview(
    fit: Fit,
    posterior: Posterior,
    items: Items,
    by: Sequence[str],
    threshold: float | None,
    seed: int,
    total: int,
    progress: bool | None,
) -> Overview:
    """Read all `total` items, which are valid, once; `by` are further columns to keep."""
    roles = posterior_roles(fit, posterior, items)
    names = list(dict.fromkeys([*items.roles.values(), *by]))
    rng = np.random.default_rng(seed)
    sample = _Largest(_SAMPLE_MIXTURE if fit.prior.gridded else _SAMPLE)
    lists = {BY_MEAN: _Largest(_LIST), BY_LOW_QUANTILE: _Largest(_LIST)}
    if threshold is not None:
        lists[BY_LOSS] = _Largest(_LIST_LOSS)
    above = np.zeros(len(_PROBS), dtype=np.int64)
    ranges: dict[str, tuple[float, float]] = {}
    n = zeros = 0
    far = Extrapolation(fit)
    score = posterior.scorer(_PROBS)
    for batch in _batches(items, names, total, progress):
        columns = columns_of(batch, roles)
        mean, sd, _, *quantiles = found = score(columns)
        sample.add(rng.random(batch.num_rows), n, batch)
        lists[BY_MEAN].add(mean, n, batch)
        lists[BY_LOW_QUANTILE].add(quantiles[0], n, batch)
        if threshold is not None:
            lists[BY_LOSS].add(_loss(mean, sd, threshold), n, batch)
            above += (found[3 : 3 + len(_PROBS)] > threshold).sum(axis=1)
        for role in columns.keys() - {"group"}:
            low, high = ranges.get(role, (np.inf, -np.inf))
            values = columns[role]
            ranges[role] = min(low, float(values.min())), max(high, float(values.max()))
        far.count(columns["score"])
        zeros += int((columns[posterior.outcome.observed] == 0).sum())
        n += batch.num_rows
    far.warn()
    return Overview(
        n,
        ranges,
        zeros,
        sample.subset(items, roles, in_order=True),
        {name: kept.subset(items, roles) for name, kept in lists.items()},
        {} if threshold is None else {1 - p: int(k) for p, k in zip(_PROBS, above, strict=True)},
        far.message(),
    )


def _batches(items: Items, names: list[str], total: int, progress: bool | None) -> Iterator[Any]:
    """Batches of the items, with progress."""
    with phase("reading items", total=total, unit="items", enabled=progress) as running:
        table = open_table(items.source, names)
        for batch in batches(table, names, size=_BATCH, source=items.source):
            yield batch
            running.advance(batch.num_rows)


def _loss(mean: Floats, sd: Floats, threshold: float) -> Floats:
    """Expected loss of choosing by the mean were theta Normal: no further data save more."""
    z = np.abs(mean - threshold) / np.maximum(sd, np.finfo(float).tiny)
    return np.asarray(sd * (stats.norm.pdf(z) - z * stats.norm.sf(z)))
