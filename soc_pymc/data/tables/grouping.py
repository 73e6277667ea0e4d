"""Grouped passes over items on any engine of Ibis."""

import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...families.outcomes import OUTCOMES, Outcome, Sum
from ...families.scales import LINEAR, MIDDLE, SCALES, Scale
from ..binning import FIRST_GRID, Columns, Folds, Grid, Joint, Weights, added, whole_unit
from ..items import Items
from .expressions import (
    exact,
    fold_of,
    score_cell,
    seen_outcome,
    with_bins,
    with_blocks,
    with_cells,
)
from .sources import open_table, readable, record_batches
from .validation import Scan, Tables, check_clusters, fits_joint, scan

_TINY = 1e-100  # smaller numbers count as 0 in sums of powers: some engines refuse underflow
_ROWS = 1 << 20  # rows of joint cells kept before they are added up
_PART_KEYS = ("group", "fold", "bin")


def _sums(table: Any, outcome: Outcome) -> dict[str, Any]:
    """All sums by name, as expressions of an item."""
    t = table.score
    terms = {name: _term(table, outcome, of) for name, of in outcome.sums_of.items() if name != "n"}
    small_t = (t.abs() < _TINY).ifelse(0.0, t)
    terms |= dict(zip(LINEAR.sums, (t, small_t * small_t), strict=True))
    for scale in _bounded(outcome):
        u = scale.column(_inside(t, scale).ifelse(t, MIDDLE))
        terms |= dict(zip(scale.sums, (u, u * u), strict=True))
        terms[_outside(scale)] = (~_inside(t, scale)).ifelse(1, 0)
    return {
        **{name: value.sum() for name, value in terms.items()},
        "n": table.count(),
        "score_min": t.min(),
        "score_max": t.max(),
    }


def _bounded(outcome: Outcome) -> list[Scale]:
    """Scales whose sums are kept, and on which some scores have no position."""
    kept = outcome.sums("part")
    return [s for s in SCALES.values() if s is not LINEAR and s.sums[0] in kept]


def _outside(scale: Scale) -> str:
    """Column that counts items whose score has no position."""
    return f"outside_{scale.name}"


def _counted(outcome: Outcome) -> tuple[str, ...]:
    """Columns of whole numbers to add up."""
    return (*outcome.integers, *map(_outside, _bounded(outcome)))


def _inside(t: Any, scale: Scale) -> Any:
    """Whether scores have a position."""
    above = t > scale.low
    return above & (t < scale.high) if scale.high < np.inf else above


def _term(table: Any, outcome: Outcome, of: Sum) -> Any:
    """What one column sums, as an expression of the item."""
    y, x = table[outcome.observed], table[outcome.size].cast("float64")
    if of.of == "log":
        return y.cast("float64") * (y > 0).ifelse(x, 1.0).ln()
    if of.of == "above":
        return (y.cast("float64") > x).ifelse(1, 0)
    if (of.outcome, of.size) == (1, 0):
        return y  # a sum of outcomes includes even the smallest
    if of.size > 1 and (outcome.validity.size.least or 0.0) < _TINY:
        x = (x < _TINY).ifelse(0.0, x)
    seen = seen_outcome(table, outcome).cast("float64")
    sized = reduce(operator.mul, [x] * outcome.size_power)
    left = (table[outcome.size] - y).cast("float64")
    return reduce(operator.mul, [seen] * of.outcome + [sized] * of.size + [left] * of.rest)


# ---------------------------------------------------------------- passes


class Grouped:
    """Passes over a user's Ibis table in its own engine."""

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        self._folds, self._progress = folds, progress
        open_table(items.source, list(items.roles.values()))  # checks that all named columns exist
        # ids and folds that are not used are not read, whatever their type
        unused = folds.by in ("none", "cluster")
        self._items = replace(items, id=None, fold=None) if unused else items
        self._outcome = OUTCOMES[items.kind]

    @cached_property
    def _scan(self) -> Scan:
        return scan(self._items, self._progress, folds=True)

    def check(self) -> None:
        """Refuse items that are not valid."""
        _ = self._scan

    def weights(self, grid: Grid, low: float, high: float, weight: str | None) -> Weights:
        """Scores on a grid; a first look validates the items in the same pass."""
        whole = weight in (None, self._outcome.observed)
        if grid == FIRST_GRID and whole and "_scan" not in self.__dict__:
            self._scan = scan(self._items, self._progress, FIRST_GRID, folds=True)
            assert self._scan.cells is not None
            cells = self._scan.cells
            return self._weights(cells["cell"], cells[weight or "items"])
        table = self._scan.table
        total = table.count() if weight is None else table[weight].sum()
        if not whole:
            with readable():
                most = float(table[weight].max().to_pyarrow().as_py())
            unit = exact(whole_unit(self._scan.totals.n, most))
            total = (table[weight] / unit).floor().cast("int64").sum()
        cell = score_cell(table.score, grid, low, high)
        found = _columns(
            table.group_by(cell=cell).aggregate(weight=total.cast("int64")), {"cell", "weight"}
        )
        order = np.argsort(found["cell"])
        return self._weights(found["cell"][order], found["weight"][order])

    def _weights(self, cells: NDArray[np.int64], weights: NDArray[np.int64]) -> Weights:
        totals = self._scan.totals
        return Weights(totals.n, totals.score_min, totals.score_max, cells, weights)

    def repeated(self, grid: Grid, cells: NDArray[np.int64], least: int) -> dict[float, int]:
        """Scores in some cells that at least so many items share, with their numbers of items."""
        table = self._scan.table.mutate(cell=score_cell(self._scan.table.score, grid))
        inside = table.filter(table.cell.isin(cells.tolist()))
        found = inside.group_by("score").aggregate(n=inside.count())
        rows = _columns(found.filter(found.n >= least).order_by("score"), {"n"})
        return dict(zip(rows["score"].tolist(), rows["n"].tolist(), strict=True))

    def tables(self, edges: NDArray[np.float64], joint: Joint) -> Tables:
        """Sums of all bins and cells."""
        import ibis

        totals = self._scan.totals
        near = fits_joint(self._items, totals.farthest, joint)
        table = self._scan.table
        if self._folds.by == "cluster":
            with readable():
                labels = table.select("cluster").distinct().to_pyarrow()["cluster"].to_pylist()
            check_clusters(self._items, totals.n / len(labels), totals.n)
            table = with_blocks(table, labels)
        keyed = with_cells(with_bins(table, edges), self._outcome)
        keyed = keyed.mutate(
            fold=fold_of(keyed, self._folds, self._outcome.size),
            group=keyed.group if "group" in keyed.columns else ibis.literal(""),
        )
        if joint.most and near:
            found, coarse = _all_at_once(keyed, self._outcome, joint, len(edges) + 1)
        else:
            found, coarse = _narrow(keyed, self._outcome), 0
        labels, coded = _coded(found)
        return Tables(coded, labels, coarse, totals)


def _fine(keyed: Any, outcome: Outcome, tables: Sequence[str]) -> Any:
    """Rows by part and the cells of some tables, with the sums of ``part`` and these tables."""
    cells = [cell for name in tables for cell in outcome.tables[name].cells.values()]
    sums, names = _sums(keyed, outcome), outcome.reals(("part", *tables))
    whole = {name: sums[name].cast("int64") for name in _counted(outcome)}
    return keyed.group_by(*_PART_KEYS, *dict.fromkeys(cells)).aggregate(
        **whole, **{name: sums[name] for name in names}
    )


def _whole(outcome: Outcome) -> set[str]:
    """Columns with whole numbers."""
    keys = {key for name in outcome.tables for key in outcome.tables[name].keys}
    cells = {cell for table in outcome.tables.values() for cell in table.cells.values()}
    return (keys - {"group"}) | cells | {*_counted(outcome), "margin"}


def _narrow(keyed: Any, outcome: Outcome) -> dict[str, Columns]:
    """Cells of each margin, from the finest cells of one grouped pass."""
    import ibis

    names = outcome.reals(("part", *outcome.margins))
    fine = _fine(keyed, outcome, outcome.margins)
    margins = [
        _margin(fine, outcome, name, names).mutate(margin=ibis.literal(i, type="int64"))
        for i, name in enumerate(outcome.margins)
    ]
    rows = _columns(reduce(lambda one, other: one.union(other), margins), _whole(outcome))
    which = rows.pop("margin")
    of = [{k: v[which == i] for k, v in rows.items()} for i in range(len(outcome.margins))]
    found = {
        name: added(mine, outcome.tables[name].keys, outcome.sums(name))
        for name, mine in zip(outcome.margins, of, strict=True)
    }
    return {"part": _parts(of[0], outcome), **found, "joint": {}}


def _margin(fine: Any, outcome: Outcome, table: str, names: Sequence[str]) -> Any:
    """The finest cells added up to those of one table, on the engine."""
    whole = {name: fine[name].sum().cast("int64") for name in _counted(outcome)}
    ends = {"score_min": fine.score_min.min(), "score_max": fine.score_max.max()}
    real = {name: fine[name].sum() for name in names if name not in ends}
    cells = {key: fine[cell] for key, cell in outcome.tables[table].cells.items()}
    return fine.group_by(*_PART_KEYS, **cells).aggregate(**whole, **ends, **real)


def _parts(rows: Columns, outcome: Outcome) -> dict[str, NDArray[Any]]:
    """The table ``part`` from rows of finer cells; NaN where a score has no position."""
    part = added(rows, _PART_KEYS, _of_parts(outcome))
    for scale in _bounded(outcome):
        lacking = part.pop(_outside(scale)) > 0
        for name in scale.sums:
            part[name] = np.where(lacking, np.nan, part[name])
    return part


def _of_parts(outcome: Outcome) -> tuple[str, ...]:
    """Columns needed for the table ``part``, without its keys."""
    return (*outcome.sums("part"), *map(_outside, _bounded(outcome)))


class _Accumulator:
    """Rows of sums that arrive in parts and are added up by their keys."""

    def __init__(self, keys: Sequence[str], names: Sequence[str]) -> None:
        self._keys, self._names = keys, names
        self.rows: dict[str, NDArray[Any]] = {}

    def add(self, rows: Columns) -> None:
        """Add rows, which may repeat keys."""
        wanted = {name: rows[name] for name in (*self._keys, *self._names)}
        if self.rows:
            wanted = {k: np.concatenate([self.rows[k], v]) for k, v in wanted.items()}
        self.rows = added(wanted, self._keys, self._names)

    def halve(self) -> None:
        """Merge bins in pairs."""
        self.rows = added({**self.rows, "bin": self.rows["bin"] // 2}, self._keys, self._names)


def _all_at_once(
    keyed: Any, outcome: Outcome, budget: Joint, bins: int
) -> tuple[dict[str, Columns], int]:
    """All tables from one grouped pass, adding its rows as they arrive; bins of joint cells.

    Once there are more joint cells than the budget, and bins are not to be merged, none are kept.
    """
    piles = {name: _Accumulator(t.keys, outcome.sums(name)) for name, t in outcome.tables.items()}
    piles["part"] = _Accumulator(_PART_KEYS, _of_parts(outcome))
    joint, coarse = piles["joint"], 1
    for rows in _batches(_fine(keyed, outcome, ("joint", *outcome.margins)), _whole(outcome)):
        for name, pile in piles.items():
            table = outcome.tables[name]
            named = {key: rows[cell] for key, cell in table.cells.items()}
            bin_of = rows["bin"] // coarse if name == "joint" else rows["bin"]
            pile.add({**rows, **named, "bin": bin_of})
        if coarse and not budget.merges and len(joint.rows["n"]) > budget.most:
            del piles["joint"]
            coarse = 0
        while coarse and len(joint.rows["n"]) > budget.most and coarse < bins:
            joint.halve()
            coarse *= 2
        if coarse:
            outcome.check_joint(len(joint.rows["n"]), budget.most)
    found: dict[str, Columns] = {"joint": {}} | {name: pile.rows for name, pile in piles.items()}
    return {**found, "part": _parts(piles["part"].rows, outcome)}, coarse


def _coded(found: dict[str, Columns]) -> tuple[tuple[str, ...], dict[str, Columns]]:
    """Sorted labels of the groups, and the tables with their codes."""
    labels = np.unique(found["part"]["group"].astype(object))
    code = {label: i for i, label in enumerate(labels)}
    coded = {
        name: {**table, "group": np.array([code[g] for g in table["group"]], dtype=np.int64)}
        if table
        else table
        for name, table in found.items()
    }
    return tuple(str(label) for label in labels), coded


def _plain(table: Any, whole: Collection[str]) -> dict[str, NDArray[Any]]:
    """Columns of an Arrow table or batch; those in `whole` have whole numbers."""
    columns = {}
    for name in table.schema.names:
        values = table.column(name)
        if name == "group":
            columns[name] = np.asarray(values.to_pylist(), dtype=object)
        else:
            kind = np.int64 if name in whole else np.float64
            columns[name] = np.asarray(values.to_numpy(zero_copy_only=False), dtype=kind)
    return columns


def _columns(expression: Any, whole: Collection[str]) -> dict[str, NDArray[Any]]:
    with readable():
        return _plain(expression.to_pyarrow().combine_chunks(), whole)


def _batches(expression: Any, whole: Collection[str]) -> Iterator[dict[str, NDArray[Any]]]:
    with readable():
        for batch in record_batches(expression, _ROWS):
            yield _plain(batch, whole)
