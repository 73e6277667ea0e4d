"""Grouped passes over valid items by any engine that Ibis speaks to.

The cells are those of `binning`, written as Ibis expressions that are exact on every engine.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accumulate import COUNT, EXPOSURE, JOINT, PART
from ..binning import (
    EXACT_COUNTS,
    FIRST_GRID,
    FOLD_MIX,
    FOLD_PRIME,
    FOLD_STEPS,
    SCRAMBLE,
    STEPS,
    ZERO_EXPOSURE,
    Grid,
    make_lookup,
)
from ..cells import Columns, group
from ..items import PoissonItems
from .reading import Folds, Tables, Totals, exposure_unit
from .scanning import Scan, scan
from .sources import readable

__all__ = ["Grouped", "count_cell", "exposure_cell", "fold_of", "score_cell", "with_bins"]

_WIDE_COUNTS = 48  # 16 * 5 - 32: cells of counts >= 32 go on where the exact ones end
_LOG2_E = 1.4426950408889634
_TINY = 1e-100  # smaller numbers count as 0 in sums of powers, where some engines refuse underflow
_COMPARED = 8  # edges in one cell of a lookup; where there are more, all edges are compared
_ROWS = 1 << 20  # rows of joint cells held before they are added up
_RULES = {"score_min": np.minimum, "score_max": np.maximum}
_KEYS = {
    "part": ("group", "fold", "bin"),
    "exposure": ("group", "fold", "bin", "cell"),
    "count": ("group", "fold", "bin", "cell"),
    "joint": ("group", "bin", "exposure_cell", "count_cell"),
}


# ---------------------------------------------------------------- cells as expressions


def _log_linear(size: Any, steps: int) -> Any:
    """2^steps times the octave of positive numbers, plus the whole step inside it.

    A logarithm that rounds to the wrong side of a power of two does no harm: the last step of one
    octave meets the first of the next, as long as a step is wider than the logarithm's error.
    """
    import ibis

    # log2 itself is in decimal arithmetic on some engines, and so are powers to whole numbers
    octave = (size.ln() * _LOG2_E).floor().cast("int64")
    unit = 1 << steps
    power = ibis.literal(2.0) ** octave.cast("float64")
    return octave * unit + ((size / power - 1.0) * float(unit)).floor().cast("int64")


def _exact(number: float) -> Any:
    """A literal that no engine rounds, as it may when it reads decimals: odd integer times 2^e."""
    import ibis

    whole, below = float(number).as_integer_ratio()
    shift = (whole & -whole).bit_length() - 1 if whole else 0
    exponent = shift - (below.bit_length() - 1)
    odd = ibis.literal(whole >> shift, type="int64").cast("float64")
    return odd * ibis.literal(2.0) ** ibis.literal(exponent, type="int64").cast("float64")


def _clipped(score: Any, low: float, high: float) -> Any:
    import ibis

    if low > -np.inf:
        score = ibis.greatest(score, _exact(low))
    return ibis.least(score, _exact(high)) if high < np.inf else score


def score_cell(score: Any, grid: Grid, low: float = -np.inf, high: float = np.inf) -> Any:
    """`Grid.cell` of scores clipped to [low, high], as an Ibis expression."""
    import ibis

    clipped = _clipped(score, low, high)
    least, first = _exact(2.0**grid.floor), (grid.floor << grid.steps) - 1
    if low >= 2.0**grid.floor:
        return _log_linear(clipped, grid.steps) - first
    size = clipped.abs()
    cell = _log_linear(ibis.greatest(size, least), grid.steps) - first
    return (size >= least).ifelse((clipped > 0).ifelse(1, -1) * cell, 0)


def exposure_cell(exposure: Any) -> Any:
    """`binning.exposure_cell` as an Ibis expression."""
    positive = exposure > 0
    return positive.ifelse(_log_linear(positive.ifelse(exposure, 1.0), STEPS), ZERO_EXPOSURE)


def count_cell(count: Any) -> Any:
    """`binning.count_cell` as an Ibis expression."""
    import ibis

    wide = _log_linear(ibis.greatest(count, EXACT_COUNTS).cast("float64"), STEPS)
    return (count < EXACT_COUNTS).ifelse(count, wide - _WIDE_COUNTS)


def _modulo(number: Any, by: int) -> Any:
    """The remainder from 0 to `by` - 1: engines disagree on that of negative numbers."""
    return (number % by + by) % by


def fold_of(table: Any, folds: Folds) -> Any:
    """Fold of each item as an Ibis expression: `binning.fold_of_id` and `fold_of_item`."""
    import ibis

    if folds.by == "none":
        return ibis.literal(0, type="int64")
    if folds.by == "column":
        return table.fold
    fine = Grid(FIRST_GRID.floor, FOLD_STEPS)
    identity = table.id if folds.by == "id" else (
        score_cell(table.score, fine) * FOLD_MIX + score_cell(table.exposure, fine)
    )  # fmt: skip
    shift, factor = SCRAMBLE
    x = _modulo(identity, FOLD_PRIME)
    x = x * ((x + shift) % FOLD_PRIME) % FOLD_PRIME
    return x * factor % FOLD_PRIME % folds.number


def with_bins(table: Any, edges: NDArray[np.float64]) -> Any:
    """The table with the column ``bin``: [e_k, e_k+1) is bin k + 1, outer bins are open.

    Parameters
    ----------
    table
        A table with the column ``score``.
    edges
        Interior edges, strictly rising.
    """
    import ibis
    import pyarrow as pa

    if len(edges) == 0:
        return table.mutate(bin=ibis.literal(0, type="int64"))
    lookup = make_lookup(edges)
    if lookup.most > _COMPARED:
        return table.mutate(bin=_tree([table.score >= _exact(edge) for edge in edges]))
    cell = lookup.first + np.arange(len(lookup.below))
    cuts = {f"cut{k}": lookup.edges[lookup.below + k] for k in range(lookup.most)}
    rows = ibis.memtable(pa.table({"cell": cell, "below": lookup.below, **cuts}))
    of_score = score_cell(table.score, lookup.grid, lookup.low, lookup.high)
    joined = table.mutate(cell=of_score).inner_join(rows, "cell")
    return joined.mutate(bin=joined.below + _tree([joined.score >= joined[cut] for cut in cuts]))


def _tree(conditions: Sequence[Any]) -> Any:
    """How many conditions hold, added up as a tree: some engines limit an expression's depth."""
    passed = [condition.ifelse(1, 0).cast("int64") for condition in conditions]
    while len(passed) > 1:
        passed = [sum(passed[i + 1 : i + 2], passed[i]) for i in range(0, len(passed), 2)]
    return passed[0]


def _sums(table: Any) -> dict[str, Any]:
    """Every sum by name, as expressions of the item."""
    t, y, x = table.score, table["count"].cast("float64"), table.exposure
    small_t = (t.abs() < _TINY).ifelse(0.0, t)
    small_x = (x < _TINY).ifelse(0.0, x)
    log_t = (t > 0).ifelse(t, 1.0).ln()
    positive = t > 0
    return {
        "n": table.count(),
        "sum_y": table["count"].sum().cast("int64"),
        "score_min": t.min(),
        "score_max": t.max(),
        "nonpositive": (~positive).ifelse(1, 0).sum(),
        "above": (y > x).ifelse(1, 0).sum(),
        **{
            name: value.sum()
            for name, value in {
                "sum_N": x,
                "sum_N2": small_x * small_x,
                "sum_N3": small_x * small_x * small_x,
                "sum_y2": y * y,
                "sum_y3": y * y * y,
                "sum_yN": y * x,
                "sum_yN2": y * small_x * small_x,
                "sum_yN3": y * small_x * small_x * small_x,
                "sum_t": t,
                "sum_t2": small_t * small_t,
                "sum_log_t": log_t,
                "sum_log_t2": log_t * log_t,
                "sum_y_log_N": y * (table["count"] > 0).ifelse(x, 1.0).ln(),
            }.items()
        },
    }


# ---------------------------------------------------------------- passes


class Grouped:
    """Passes over a user's Ibis table in its own engine."""

    def __init__(self, items: PoissonItems, folds: Folds, progress: bool) -> None:
        self._items, self._folds, self._progress = items, folds, progress

    @cached_property
    def _scan(self) -> Scan:
        return scan(self._items, self._progress)

    def look(self) -> Totals:
        """Validated totals of the items."""
        return self._scan.totals

    def weights(
        self, grid: Grid, low: float, high: float, weight: str | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Occupied cells and their weights."""
        table = self._scan.table
        total = table.count()
        if weight == "count":
            total = table["count"].sum()
        elif weight == "exposure":
            unit = _exact(exposure_unit(self.look()))
            total = (table.exposure / unit).floor().cast("int64").sum()
        cell = score_cell(table.score, grid, low, high)
        found = _columns(table.group_by(cell=cell).aggregate(weight=total.cast("int64")))
        order = np.argsort(found["cell"])
        return found["cell"][order], found["weight"][order]

    def tables(self, edges: NDArray[np.float64], most_joint: int) -> Tables:
        """Sums of all bins and cells."""
        import ibis

        table = with_bins(self._scan.table, edges)
        keyed = table.mutate(
            fold=fold_of(table, self._folds),
            group=table.group if self._items.group else ibis.literal(""),
            exposure_cell=exposure_cell(table.exposure),
            count_cell=count_cell(table["count"]),
        )
        if most_joint:
            found, coarse = _all_at_once(keyed, most_joint, len(edges) + 1)
        else:
            found, coarse = _one_by_one(keyed), 0
        labels, coded = _coded(found)
        return Tables(**coded, labels=labels, coarse=coarse, totals=self.look())


def _query(keyed: Any, keys: Sequence[str], names: Sequence[str]) -> Any:
    sums = _sums(keyed)
    return keyed.group_by(*keys).aggregate(**{name: sums[name] for name in names})


def _one_by_one(keyed: Any) -> dict[str, Columns]:
    """Exposure cells, and count cells with what else is summed, by a grouped pass each."""
    keys = ("group", "fold", "bin")
    exposure = _columns(_query(keyed, (*keys, "exposure_cell"), ("n", "sum_y", *EXPOSURE)))
    names = ("n", "sum_y", "nonpositive", *PART, *COUNT)
    fine = _columns(_query(keyed, (*keys, "count_cell"), names))
    exposure["cell"], fine["cell"] = exposure.pop("exposure_cell"), fine.pop("count_cell")
    return {"exposure": exposure, **_of_counts(fine), "joint": {}}


def _of_counts(fine: Columns) -> dict[str, Columns]:
    """Tables ``part`` and ``count`` from rows by part and count cell."""
    part = _added(fine, _KEYS["part"], ("n", "sum_y", "nonpositive", *PART))
    for name in ("sum_log_t", "sum_log_t2"):
        part[name] = np.where(part["nonpositive"] > 0, np.nan, part[name])
    del part["nonpositive"]
    return {"part": part, "count": _added(fine, _KEYS["count"], ("n", "sum_y", *COUNT))}


class _Pile:
    """Rows of sums that come in parts and are added up by their keys."""

    def __init__(self, table: str, names: Sequence[str]) -> None:
        self._keys, self._names = _KEYS[table], ("n", "sum_y", *names)
        self.rows: dict[str, NDArray[Any]] = {}

    def add(self, rows: Columns) -> None:
        """Add rows, which may repeat keys."""
        wanted = {name: rows[name] for name in (*self._keys, *self._names)}
        if self.rows:
            wanted = {k: np.concatenate([self.rows[k], v]) for k, v in wanted.items()}
        self.rows = _added(wanted, self._keys, self._names)

    def halve(self) -> None:
        """Make one bin of every two."""
        self.rows = _added({**self.rows, "bin": self.rows["bin"] // 2}, self._keys, self._names)


def _all_at_once(keyed: Any, most_joint: int, bins: int) -> tuple[dict[str, Columns], int]:
    """All tables from one grouped pass, its rows added up as they come."""
    keys = ("group", "fold", "bin", "exposure_cell", "count_cell")
    names = ("n", "sum_y", "nonpositive", *PART, *JOINT[1:])
    exposure, joint = _Pile("exposure", EXPOSURE), _Pile("joint", JOINT)
    count = _Pile("count", ("nonpositive", *PART, *COUNT))
    coarse = 1
    for rows in _batches(_query(keyed, keys, names)):
        exposure.add({**rows, "cell": rows["exposure_cell"]})
        count.add({**rows, "cell": rows["count_cell"]})
        joint.add({**rows, "bin": rows["bin"] // coarse})
        while len(joint.rows["n"]) > most_joint and coarse < bins:
            joint.halve()
            coarse *= 2
    return {"exposure": exposure.rows, "joint": joint.rows, **_of_counts(count.rows)}, coarse


def _added(rows: Columns, keys: Sequence[str], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    return group(rows, keys, {name: _RULES.get(name, np.add) for name in names})


def _coded(found: dict[str, Columns]) -> tuple[tuple[str, ...], dict[str, Columns]]:
    """Labels of the groups, sorted, and the tables with their codes."""
    labels = np.unique(found["part"]["group"].astype(object))
    code = {label: i for i, label in enumerate(labels)}
    coded = {
        name: {**table, "group": np.array([code[g] for g in table["group"]], dtype=np.int64)}
        if table
        else table
        for name, table in found.items()
    }
    return tuple(str(label) for label in labels), coded


_WHOLE = {"fold", "bin", "cell", "exposure_cell", "count_cell", "n", "sum_y", "nonpositive",
          "weight"}  # fmt: skip


def _plain(table: Any) -> dict[str, NDArray[Any]]:
    """Columns of an Arrow table or batch."""
    columns = {}
    for name in table.schema.names:
        values = table.column(name)
        if name == "group":
            columns[name] = np.asarray(values.to_pylist(), dtype=object)
        else:
            kind = np.int64 if name in _WHOLE else np.float64
            columns[name] = np.asarray(values.to_numpy(zero_copy_only=False), dtype=kind)
    return columns


def _columns(expression: Any) -> dict[str, NDArray[Any]]:
    with readable():
        return _plain(expression.to_pyarrow().combine_chunks())


def _batches(expression: Any) -> Iterator[dict[str, NDArray[Any]]]:
    with readable():
        for batch in expression.to_pyarrow_batches(chunk_size=_ROWS):
            yield _plain(batch)
