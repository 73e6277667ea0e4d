"""One pass over the items: a random sample, ranges, and the items at the top of every list.

However many the items are, no more than a batch, the sample and the lists are held.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from .._lib.progress import phase
from ..data.items import Items
from ..data.tables import batches, kind_of, open_table
from ..inference.results import Fit
from ..posterior.extrapolation import FarScores
from ..posterior.item_columns import columns_of, posterior_roles
from ..posterior.predictive import Columns, Posterior

__all__ = ["MEAN", "PROMISE", "SURE", "Glance", "Rows", "glance"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MEAN, SURE, PROMISE = "mean", "sure", "promise"
"""Lists: by posterior mean, by its 10% quantile, by what is lost for not knowing theta."""

_SAMPLE = 20_000
_SAMPLE_MIXED = 10_000  # of mixtures, whose predictive distributions cost more
_LIST = 200  # items kept for each list: ranked anew by all draws
_PROMISING = 500  # for the value of exposure, of which only a bound is known before
_BATCH = 1 << 18
_PROBS = (0.1, 0.5)


@dataclass(frozen=True)
class Rows:
    """Some of the items.

    Attributes
    ----------
    items
        They, in a table in memory with the columns of the roles and those to slice on.
    columns
        Their columns by role.
    name
        What each is called: its id, its label in the user's index or its row's number, or nothing.
    named_by
        What that is: the head of a column; empty where items have no names.
    """

    items: Items
    columns: Columns
    name: tuple[str, ...]
    named_by: str

    def __len__(self) -> int:
        return len(self.columns["score"])


@dataclass(frozen=True)
class Glance:
    """What one pass over the items found.

    Attributes
    ----------
    n
        Number of items.
    ranges
        Least and largest number of each role.
    zeros
        Items with an outcome of 0.
    sample
        Random items, in their order; all of them where they are few enough.
    lists
        Candidates of each list, the first ones first.
    above
        Items whose probability to lie above the threshold is more than 0.5 and more than 0.9, by
        that probability; empty without a threshold.
    far
        What there is to say of scores far outside those of the fit; None if there are none.
    """

    n: int
    ranges: Mapping[str, tuple[float, float]]
    zeros: int
    sample: Rows
    lists: Mapping[str, Rows]
    above: Mapping[float, int]
    far: str | None

    @property
    def whole(self) -> bool:
        """Whether the sample is all items."""
        return len(self.sample) == self.n


class _Kept:
    """Rows with the largest keys of all that were shown."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._key: Floats = np.empty(0)
        self.place: Ints = np.empty(0, dtype=np.int64)
        self.rows: Any = None

    def show(self, key: Floats, first: int, batch: Any) -> None:
        """Rows of a batch, of which `first` is the place of the first."""
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

    def in_order(self) -> "_Kept":
        """The same rows in the order of the items."""
        import pyarrow as pa

        order = np.argsort(self.place)
        self._key, self.place = self._key[order], self.place[order]
        self.rows = self.rows.take(pa.array(order)).combine_chunks()
        return self


def glance(
    fit: Fit,
    law: Posterior,
    items: Items,
    by: Sequence[str],
    threshold: float | None,
    seed: int,
    total: int,
    progress: bool,
) -> Glance:
    """Read all items once; they are valid.

    Parameters
    ----------
    fit, law
        The fit and its law.
    items
        The items.
    by
        Further columns to keep.
    threshold
        Of theta; None where there is none.
    seed
        Of the sample.
    total
        Number of items.
    progress
        Whether to show progress on standard error.
    """
    roles = posterior_roles(fit, law, items)
    names = list(dict.fromkeys([*items.roles.values(), *by]))
    mixed = type(fit.prior).__name__.endswith("Mixture")
    rng = np.random.default_rng(seed)
    sample = _Kept(_SAMPLE_MIXED if mixed else _SAMPLE)
    lists = {MEAN: _Kept(_LIST), SURE: _Kept(_LIST)}
    if threshold is not None:
        lists[PROMISE] = _Kept(_PROMISING)
    above = np.zeros(len(_PROBS), dtype=np.int64)
    ends: dict[str, list[float]] = {}
    n = zeros = 0
    far = FarScores(fit)
    score = law.scorer(_PROBS, "representative", False)
    for batch in _shown(items, names, total, progress):
        columns = columns_of(batch, roles)
        found = score(columns)
        sample.show(rng.random(batch.num_rows), n, batch)
        lists[MEAN].show(found[0], n, batch)
        lists[SURE].show(found[3], n, batch)
        if threshold is not None:
            lists[PROMISE].show(_regret(found[0], found[1], threshold), n, batch)
            above += (found[3:] > threshold).sum(axis=1)
        _widen(ends, columns)
        far.see(columns["score"])
        zeros += int((columns[law.outcome.observed] == 0).sum())
        n += batch.num_rows
    far.tell()
    make = _maker(items, roles)
    return Glance(
        n,
        {role: (low, high) for role, (low, high) in ends.items()},
        zeros,
        make(sample.in_order()),
        {name: make(kept) for name, kept in lists.items()},
        {} if threshold is None else {1 - p: int(k) for p, k in zip(_PROBS, above, strict=True)},
        far.words(),
    )


def _shown(items: Items, names: list[str], total: int, progress: bool) -> Iterator[Any]:
    """Batches of the items, with progress."""
    with phase("reading items", total=total, unit="items", enabled=progress) as running:
        table = open_table(items.source, names)
        for batch in batches(table, names, size=_BATCH, source=items.source):
            yield batch
            running.advance(batch.num_rows)


def _regret(mean: Floats, sd: Floats, threshold: float) -> Floats:
    """What is lost on average for choosing by the mean, were theta Normal: no data save more."""
    z = np.abs(mean - threshold) / np.maximum(sd, np.finfo(float).tiny)
    return np.asarray(sd * (stats.norm.pdf(z) - z * stats.norm.sf(z)))


def _widen(ends: dict[str, list[float]], columns: Columns) -> None:
    for role, values in columns.items():
        if role != "group":
            both = ends.setdefault(role, [np.inf, -np.inf])
            both[0] = min(both[0], float(values.min()))
            both[1] = max(both[1], float(values.max()))


def _maker(items: Items, roles: Mapping[str, str]) -> Callable[[_Kept], Rows]:
    """How kept rows become items with names."""
    kind, id_column = kind_of(items.source), items.roles.get("id")

    def make(kept: _Kept) -> Rows:
        names, named_by = kept.place.tolist(), "row, from 0"
        if id_column:
            names, named_by = kept.rows[id_column].to_pylist(), id_column
        elif kind == "pandas":
            index = items.source.index
            names = list(index[kept.place])
            named_by = "index" if index.name is None else str(index.name)
        elif kind == "ibis":  # whose rows have no order
            names, named_by = [""] * len(names), ""
        own = replace(items, source=kept.rows)
        return Rows(own, columns_of(kept.rows, roles), tuple(map(str, names)), named_by)

    return make
