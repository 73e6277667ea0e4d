"""Grouped passes over items by any engine that Ibis speaks to."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...families.outcomes import OUTCOMES, Outcome
from ...families.validity import LEAST_SD
from ..binning import FIRST_GRID, Grid
from ..cells import Columns, group
from ..items import Items, NormalItems
from .expressions import (
    count_cell,
    exact,
    exposure_cell,
    fold_of,
    noise_cell,
    score_cell,
    value_cell,
    with_bins,
)
from .reading import Folds, NormalTotals, Tables, Totals, Weights, exposure_unit
from .scanning import Scan, check_spread, scan
from .sources import open_table, readable

__all__ = ["Grouped"]

_TINY = 1e-100  # smaller numbers count as 0 in sums of powers, where some engines refuse underflow
_ROWS = 1 << 20  # rows of joint cells held before they are added up
_RULES = {"score_min": np.minimum, "score_max": np.maximum}
_PART_KEYS = ("group", "fold", "bin")
_OUTSIDE = "nonpositive"  # items whose score has no logarithm


def _sums(table: Any, schema: Outcome) -> dict[str, Any]:
    """Every sum by name, as expressions of the item."""
    t = table.score
    small_t = (t.abs() < _TINY).ifelse(0.0, t)
    log_t = (t > 0).ifelse(t, 1.0).ln()
    scores = {"sum_t": t, "sum_t2": small_t * small_t, "sum_log_t": log_t}
    terms = scores | {"sum_log_t2": log_t * log_t} | _TERMS[schema.kind](table)
    return {
        "n": table.count(),
        "score_min": t.min(),
        "score_max": t.max(),
        _OUTSIDE: (~(t > 0)).ifelse(1, 0).sum(),
        **{name: value.sum() for name, value in terms.items()},
    }


def _of_counts(table: Any) -> dict[str, Any]:
    """What is summed of items with counts."""
    y, x = table["count"].cast("float64"), table.exposure
    small_x = (x < _TINY).ifelse(0.0, x)
    return {
        "sum_y": table["count"],
        "above": (y > x).ifelse(1, 0),
        "sum_N": x,
        "sum_N2": small_x * small_x,
        "sum_N3": small_x * small_x * small_x,
        "sum_y2": y * y,
        "sum_y3": y * y * y,
        "sum_yN": y * x,
        "sum_yN2": y * small_x * small_x,
        "sum_yN3": y * small_x * small_x * small_x,
        "sum_y_log_N": y * (table["count"] > 0).ifelse(x, 1.0).ln(),
    }


def _of_values(table: Any) -> dict[str, Any]:
    """What is summed of items with values."""
    y, w = _seen_value(table), table.noise_sd * table.noise_sd
    powers = {"w": w, "w2": w * w, "w3": w * w * w}
    return {
        "sum_y": table.value,
        "sum_y2": y * y,
        "sum_y3": y * y * y,
        "sum_s2": w,
        **{f"sum_{name}": power for name, power in powers.items()},
        **{f"sum_y{name}": y * power for name, power in powers.items()},
        **{f"sum_y2{name}": y * y * power for name, power in powers.items()},
    }


def _seen_value(table: Any) -> Any:
    """Values, and 0 for those so small that powers of them vanish."""
    return (table.value.abs() < LEAST_SD).ifelse(0.0, table.value)


_TERMS: dict[str, Callable[[Any], dict[str, Any]]] = {"poisson": _of_counts, "normal": _of_values}


def _with_cells(table: Any, kind: str) -> Any:
    """The table with a column for each cell that its items are in."""
    if kind == "poisson":
        return table.mutate(
            exposure_cell=exposure_cell(table.exposure), count_cell=count_cell(table["count"])
        )
    table = table.mutate(noise_cell=noise_cell(table.noise_sd))
    return table.mutate(value_cell=value_cell(_seen_value(table), table.noise_cell))


# ---------------------------------------------------------------- passes


class Grouped:
    """Passes over a user's Ibis table in its own engine."""

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        self._folds, self._progress = folds, progress
        open_table(items.source, list(items.roles.values()))  # all that was named is there
        # ids and folds that make no folds are not read, whatever they hold
        self._items = replace(items, id=None, fold=None) if folds.by == "none" else items
        self._schema = OUTCOMES[items.kind]

    @cached_property
    def _scan(self) -> Scan:
        return scan(self._items, self._progress)

    def check(self) -> None:
        """Refuse items that are not valid."""
        _ = self._scan

    def weights(self, grid: Grid, low: float, high: float, weight: str | None) -> Weights:
        """Scores on a grid; a first look validates the items in the same pass."""
        if grid == FIRST_GRID and weight != "exposure" and "_scan" not in self.__dict__:
            self._scan = scan(self._items, self._progress, FIRST_GRID)
            assert self._scan.cells is not None
            cells = self._scan.cells
            return self._weights(cells["cell"], cells[weight or "items"])
        table = self._scan.table
        total = table.count()
        if weight == "count":
            total = table["count"].sum()
        elif weight == "exposure":
            totals = self._scan.totals
            assert isinstance(totals, Totals)
            unit = exact(exposure_unit(totals.n, totals.exposure_max))
            total = (table.exposure / unit).floor().cast("int64").sum()
        cell = score_cell(table.score, grid, low, high)
        found = _columns(
            table.group_by(cell=cell).aggregate(weight=total.cast("int64")), {"cell", "weight"}
        )
        order = np.argsort(found["cell"])
        return self._weights(found["cell"][order], found["weight"][order])

    def _weights(self, cells: NDArray[np.int64], weights: NDArray[np.int64]) -> Weights:
        totals = self._scan.totals
        return Weights(totals.n, totals.score_min, totals.score_max, cells, weights)

    def tables(self, edges: NDArray[np.float64], most_joint: int) -> Tables:
        """Sums of all bins and cells."""
        import ibis

        totals = self._scan.totals
        if isinstance(totals, NormalTotals) and isinstance(self._items, NormalItems):
            check_spread(self._items, totals.farthest, most_joint)
        table = with_bins(self._scan.table, edges)
        keyed = _with_cells(table, self._schema.kind)
        keyed = keyed.mutate(
            fold=fold_of(keyed, self._folds, self._schema.size),
            group=keyed.group if self._items.group else ibis.literal(""),
        )
        if most_joint:
            found, coarse = _all_at_once(keyed, self._schema, most_joint, len(edges) + 1)
        else:
            found, coarse = _narrow(keyed, self._schema), 0
        labels, coded = _coded(found)
        return Tables(coded, labels, coarse, totals)


def _fine(keyed: Any, schema: Outcome, tables: Sequence[str]) -> Any:
    """Rows by part and all cells of some tables, with the sums of ``part`` and of these tables."""
    cells = [cell for name in tables for cell in schema.tables[name].cells.values()]
    sums, names = _sums(keyed, schema), schema.reals(("part", *tables))
    whole = {name: sums[name].cast("int64") for name in (*schema.integers, _OUTSIDE)}
    return keyed.group_by(*_PART_KEYS, *dict.fromkeys(cells)).aggregate(
        **whole, **{name: sums[name] for name in names}
    )


def _whole(schema: Outcome) -> set[str]:
    """Columns that hold whole numbers."""
    keys = {key for name in schema.tables for key in schema.tables[name].keys}
    cells = set(schema.tables["joint"].cells)
    return (keys - {"group"}) | cells | {*schema.integers, _OUTSIDE, "margin"}


def _narrow(keyed: Any, schema: Outcome) -> dict[str, Columns]:
    """Cells of each margin, all from the finest cells of one grouped pass."""
    import ibis

    names = schema.reals(("part", *schema.margins))
    fine = _fine(keyed, schema, schema.margins)
    added = [
        _margin(fine, schema, name, names).mutate(margin=ibis.literal(i, type="int64"))
        for i, name in enumerate(schema.margins)
    ]
    rows = _columns(reduce(lambda one, other: one.union(other), added), _whole(schema))
    which = rows.pop("margin")
    of = [{k: v[which == i] for k, v in rows.items()} for i in range(len(schema.margins))]
    found = {
        name: _added(mine, schema.tables[name].keys, schema.sums(name))
        for name, mine in zip(schema.margins, of, strict=True)
    }
    return {"part": _parts(of[0], schema), **found, "joint": {}}


def _margin(fine: Any, schema: Outcome, table: str, names: Sequence[str]) -> Any:
    """The finest cells added up to those of one table, in the engine."""
    whole = {name: fine[name].sum().cast("int64") for name in (*schema.integers, _OUTSIDE)}
    ends = {"score_min": fine.score_min.min(), "score_max": fine.score_max.max()}
    real = {name: fine[name].sum() for name in names if name not in ends}
    cells = {key: fine[cell] for key, cell in schema.tables[table].cells.items()}
    return fine.group_by(*_PART_KEYS, **cells).aggregate(**whole, **ends, **real)


def _parts(rows: Columns, schema: Outcome) -> dict[str, NDArray[Any]]:
    """The table ``part`` from rows of finer cells; scores at or below 0 have no logarithm."""
    part = _added(rows, _PART_KEYS, (*schema.sums("part"), _OUTSIDE))
    for name in ("sum_log_t", "sum_log_t2"):
        part[name] = np.where(part[_OUTSIDE] > 0, np.nan, part[name])
    del part[_OUTSIDE]
    return part


class _Pile:
    """Rows of sums that come in parts and are added up by their keys."""

    def __init__(self, keys: Sequence[str], names: Sequence[str]) -> None:
        self._keys, self._names = keys, names
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


def _all_at_once(
    keyed: Any, schema: Outcome, most_joint: int, bins: int
) -> tuple[dict[str, Columns], int]:
    """All tables from one grouped pass, its rows added up as they come."""
    piles = {name: _Pile(t.keys, schema.sums(name)) for name, t in schema.tables.items()}
    piles["part"] = _Pile(_PART_KEYS, (*schema.sums("part"), _OUTSIDE))
    joint, coarse = piles["joint"], 1
    for rows in _batches(_fine(keyed, schema, ("joint", *schema.margins)), _whole(schema)):
        for name, table in schema.tables.items():
            named = {key: rows[cell] for key, cell in table.cells.items()}
            bin_of = rows["bin"] // coarse if name == "joint" else rows["bin"]
            piles[name].add({**rows, **named, "bin": bin_of})
        while len(joint.rows["n"]) > most_joint and coarse < bins:
            joint.halve()
            coarse *= 2
        schema.check_joint(len(joint.rows["n"]), most_joint)
    found: dict[str, Columns] = {name: pile.rows for name, pile in piles.items()}
    return {**found, "part": _parts(piles["part"].rows, schema)}, coarse


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


def _plain(table: Any, whole: Collection[str]) -> dict[str, NDArray[Any]]:
    """Columns of an Arrow table or batch; those named by `whole` hold whole numbers."""
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
        for batch in expression.to_pyarrow_batches(chunk_size=_ROWS):
            yield _plain(batch, whole)
