"""One pass over the items, in batches: a random sample, and the items at the top of each list."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import special

from .._lib.arrays import Floats
from .._lib.progress import phase
from ..data.items import Items
from ..data.roles import Roles
from ..data.sources import batches, kind_of, open_table
from ..fits.fit import Fit
from ..posterior.averages import scorer
from ..posterior.item_columns import Columns, arrays_of, posterior_roles
from ..posterior.predictive import posterior_of
from ..posterior.scores import Extrapolation

# lists of items, by what ranks them; the loss is that of not knowing theta at the threshold
BY_MEAN = "mean"
BY_LOW_QUANTILE = "low quantile"
BY_LOSS = "loss"
_SAMPLE = 20_000
# predictive distributions of mixtures cost more
_SAMPLE_MIXTURE = 10_000
# items of each list, which all draws rank again: more where the loss only bounds their value
_LISTS = {BY_MEAN: 200, BY_LOW_QUANTILE: 200, BY_LOSS: 500}
# the sample, and columns of keys and rows
_RANDOM = "random"
_KEY = "\0key"
_PLACE = "\0place"
_BATCH = 1 << 18
_PROBS = (0.1, 0.5)  # quantiles of theta of every item


@dataclass(frozen=True, eq=False)
class Subset:
    """Some of the items."""

    # an Arrow table with the columns of the roles and those to slice on
    items: Items
    columns: Columns
    names: Sequence[
        Any
    ]  # id, index label or row number; empty where items have no names
    heading: str  # of the column of names

    def __len__(self) -> int:
        return len(self.columns["score"])


@dataclass(frozen=True, eq=False)
class Overview:
    """Results of one pass over the items."""

    n: int
    sample: Subset  # random items in their order, or all items
    lists: Mapping[str, Subset]  # candidates of each list
    above: Mapping[
        float, int
    ]  # number of items above the threshold with more than a probability
    far: str | None  # a sentence on scores far outside those of the fit


def _largest(
    rows: pa.Table | None, key: Floats, batch: pa.Table, most: int
) -> pa.Table:
    """Return the rows with the largest keys, of equal keys the first, of a table and a batch."""
    keyed = batch.append_column(_KEY, pa.array(key))
    if rows is not None:
        keyed = pa.concat_tables([rows, keyed])
    order = [(_KEY, "descending"), (_PLACE, "ascending")]
    return keyed.take(pc.select_k_unstable(keyed, most, order)).combine_chunks()


def _subset(rows: pa.Table, items: Items, roles: Roles) -> Subset:
    """Return rows as items, in the order of the table."""
    rows = rows.sort_by(_PLACE)
    place = rows[_PLACE].to_numpy()
    rows = rows.drop_columns([_KEY, _PLACE])
    kind = kind_of(items.source)
    names = place.tolist()
    heading = "row, from 0"
    if items.id:
        names = rows[items.id].to_pylist()
        heading = items.id
    elif kind == "pandas":
        index = items.source.index
        names = list(index[place])
        heading = str(index.name or "index")
    elif kind == "ibis":  # whose rows have no order
        names = []
    return Subset(replace(items, source=rows), arrays_of(rows, roles), names, heading)


def read_overview(
    fit: Fit, items: Items, names: list[str], threshold: float | None, seed: int, total: int,
    progress: bool | None,
) -> Overview:  # fmt: skip
    """Read all `total` items, which are valid, once, with their columns `names`."""
    roles = posterior_roles(fit.curves, items)
    rng = np.random.default_rng(seed)
    score = scorer(posterior_of(fit), _PROBS)
    sizes = {_RANDOM: _SAMPLE_MIXTURE if fit.prior.gridded else _SAMPLE} | _LISTS
    rows: dict[str, pa.Table] = {}
    above = np.zeros(len(_PROBS), dtype=np.int64)
    n = 0
    far = Extrapolation(fit.curves)
    table = open_table(items.source, names)
    with phase("reading items", total=total, unit="items", enabled=progress) as running:
        for batch in batches(table, names, size=_BATCH, source=items.source):
            columns = arrays_of(batch, roles)
            number = batch.num_rows
            mean, sd, _, *quantiles = score(columns)
            keys = {
                _RANDOM: rng.random(number),
                BY_MEAN: mean,
                BY_LOW_QUANTILE: quantiles[0],
            }
            if threshold is not None:
                # expected loss of choosing by the mean, were theta Normal: no data save more
                z = np.abs(mean - threshold) / np.maximum(sd, np.finfo(float).tiny)
                bell = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
                keys[BY_LOSS] = sd * (bell - z * special.ndtr(-z))
                above += [(q > threshold).sum() for q in quantiles[: len(_PROBS)]]
            placed = pa.Table.from_batches([batch])
            placed = placed.append_column(_PLACE, pa.array(np.arange(n, n + number)))
            for name, key in keys.items():
                rows[name] = _largest(rows.get(name), key, placed, sizes[name])
            far.count(columns["score"])
            n += number
            running.advance(number)
    far.warn()
    lists = {name: _subset(largest, items, roles) for name, largest in rows.items()}
    counts = {
        1 - p: int(k)
        for p, k in zip(_PROBS, above, strict=True)
        if threshold is not None
    }
    return Overview(n, lists.pop(_RANDOM), lists, counts, far.message())
