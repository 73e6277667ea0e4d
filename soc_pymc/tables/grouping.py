"""Grouped passes over items by any engine that Ibis speaks to."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accumulate import COUNT, EXPOSURE, JOINT, PART
from ..binning import FIRST_GRID, Grid
from ..cells import Columns, group
from ..items import PoissonItems
from .expressions import count_cell, exact, exposure_cell, fold_of, score_cell, with_bins
from .reading import Folds, Tables, Weights, exposure_unit
from .scanning import Scan, scan
from .sources import readable

__all__ = ["Grouped"]

_TINY = 1e-100  # smaller numbers count as 0 in sums of powers, where some engines refuse underflow
_ROWS = 1 << 20  # rows of joint cells held before they are added up
_RULES = {"score_min": np.minimum, "score_max": np.maximum}
_KEYS = {
    "part": ("group", "fold", "bin"),
    "exposure": ("group", "fold", "bin", "cell"),
    "count": ("group", "fold", "bin", "cell"),
    "joint": ("group", "bin", "exposure_cell", "count_cell"),
}


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

    def check(self) -> None:
        """Refuse items that are not valid."""
        _ = self._scan

    def weights(self, grid: Grid, low: float, high: float, weight: str | None) -> Weights:
        """Scores on a grid; a first look validates the items in the same pass."""
        if grid == FIRST_GRID and weight != "exposure" and "_scan" not in self.__dict__:
            self._scan = scan(self._items, self._progress, FIRST_GRID)
            assert self._scan.cells is not None
            cells, items, counts = self._scan.cells
            return self._weights(cells, items if weight is None else counts)
        table = self._scan.table
        total = table.count()
        if weight == "count":
            total = table["count"].sum()
        elif weight == "exposure":
            unit = exact(exposure_unit(self._scan.totals.n, self._scan.totals.exposure_max))
            total = (table.exposure / unit).floor().cast("int64").sum()
        cell = score_cell(table.score, grid, low, high)
        found = _columns(table.group_by(cell=cell).aggregate(weight=total.cast("int64")))
        order = np.argsort(found["cell"])
        return self._weights(found["cell"][order], found["weight"][order])

    def _weights(self, cells: NDArray[np.int64], weights: NDArray[np.int64]) -> Weights:
        totals = self._scan.totals
        return Weights(totals.n, totals.score_min, totals.score_max, cells, weights)

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
            found, coarse = _narrow(keyed), 0
        labels, coded = _coded(found)
        return Tables(**coded, labels=labels, coarse=coarse, totals=self._scan.totals)


def _query(keyed: Any, keys: Sequence[str], names: Sequence[str]) -> Any:
    sums = _sums(keyed)
    return keyed.group_by(*keys).aggregate(**{name: sums[name] for name in ("n", "sum_y", *names)})


def _narrow(keyed: Any) -> dict[str, Columns]:
    """Exposure cells and count cells, both from the joint cells of one grouped pass."""
    names = ("nonpositive", *PART, *JOINT[1:])
    fine = _query(keyed, ("group", "fold", "bin", "exposure_cell", "count_cell"), names)
    both = [_margin(fine, over, names) for over in ("exposure_cell", "count_cell")]
    rows = _columns(both[0].union(both[1]))
    of_count = rows.pop("margin") == 1
    exposure, count = ({k: v[kept] for k, v in rows.items()} for kept in (~of_count, of_count))
    exposure = _added(exposure, _KEYS["exposure"], ("n", "sum_y", *EXPOSURE))
    return {"exposure": exposure, **_of_counts(count), "joint": {}}


def _margin(fine: Any, over: str, names: Sequence[str]) -> Any:
    """Joint cells added up over one of their two sides, in the engine."""
    import ibis

    whole = {name: fine[name].sum().cast("int64") for name in ("n", "sum_y", "nonpositive")}
    ends = {"score_min": fine.score_min.min(), "score_max": fine.score_max.max()}
    real = {name: fine[name].sum() for name in names if name not in whole | ends}
    added = fine.group_by("group", "fold", "bin", cell=fine[over]).aggregate(
        **whole, **ends, **real
    )
    which = ibis.literal(int(over == "count_cell"), type="int64")
    return added.mutate(margin=which)


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
    names = ("nonpositive", *PART, *JOINT[1:])
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
          "weight", "margin"}  # fmt: skip


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
