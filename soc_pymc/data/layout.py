"""Tables of sums: rows that arrive in parts, and all tables as one xarray Dataset."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._lib.arguments import shown
from .._lib.arrays import Floats
from .._lib.errors import StatisticsError
from ..families.outcomes import OUTCOMES, Outcome
from ..families.scales import LINEAR, SCALES
from .binning import EXTREMES, Columns, Joint, added
from .groups import roles_of

FORMAT = "soc_pymc-statistics-2"
_SHARED = ("kind", "roles", "cells", "folds_by", "weights", "folds")  # by statistics that are added
_WAITING = 1 << 20  # rows that are added up at once


class Sums(NamedTuple):
    """Sums over parts (group, fold and bin), their cells, and joint cells of groups and bins."""

    tables: Mapping[str, Columns]  # columns of keys and sums by table; "joint" may be empty
    labels: tuple[str, ...]  # of the groups, by code
    coarse: int  # bins per bin of the joint cells; 0 without joint cells
    n: int  # items, counted independently of the sums


class Pile:
    """Rows of one table, which may repeat their keys until they are added up."""

    def __init__(self, keys: Sequence[str], names: Sequence[str]) -> None:
        self._keys, self._names = keys, names
        self._parts: list[Columns] = []

    def __len__(self) -> int:
        return sum(len(part[self._keys[0]]) for part in self._parts)

    def add(self, rows: Columns) -> None:
        """Add rows, which may repeat keys."""
        self._parts.append({name: rows[name] for name in (*self._keys, *self._names)})
        total = len(self._parts[0][self._keys[0]])
        if len(self) - total > max(total, _WAITING):
            self.total()

    def total(self, bins: int = 1) -> Columns:
        """The rows with distinct keys, after putting so many `bins` together."""
        if not self._parts:
            return {}
        rows = {n: np.concatenate([part[n] for part in self._parts]) for n in self._parts[0]}
        if bins > 1:
            rows["bin"] //= bins
        self._parts = [added(rows, self._keys, self._names)]
        return self._parts[0]


class Piles:
    """All tables of one kind of outcome; joint cells are kept within their budget."""

    def __init__(self, outcome: Outcome, joint: Joint, bins: int) -> None:
        self._outcome, self._joint, self._bins = outcome, joint, bins
        self.coarse = min(joint.most, 1)
        """Bins per bin of the joint cells, 0 if none are kept."""
        self._piles = {
            name: Pile(table.keys, outcome.sums(name)) for name, table in outcome.tables.items()
        }

    def add(self, name: str, rows: Columns) -> None:
        """Add rows of a table in bins, which may repeat their keys."""
        if name != "joint":
            self._piles[name].add(rows)
        elif self.coarse:
            self._piles[name].add({**rows, "bin": rows["bin"] // self.coarse})
            self._keep_budget(self._piles[name], self._joint.most)

    def _keep_budget(self, pile: Pile, most: int) -> None:
        """Merge bins of joint cells in pairs, or drop joint cells, beyond their number."""
        if len(pile) <= most or len(pile.total()["n"]) <= most:
            return
        if not self._joint.merges:
            self.coarse = 0
            return
        while len(pile) > most and self.coarse < self._bins:
            pile.total(bins=2)
            self.coarse *= 2
        self._outcome.check_joint(len(pile), most)

    def sums(self, labels: Sequence[str], n: int) -> Sums:
        """The tables of all `n` items, with groups in the order of their labels."""
        order = np.argsort(np.argsort(np.array(labels, dtype=object))).astype(np.int64)
        tables = {name: dict(pile.total()) for name, pile in self._piles.items()}
        if not self.coarse:
            tables["joint"] = {}
        for table in filter(None, tables.values()):
            table["group"] = order[table["group"]]
        _fill_positions(tables["part"])
        return Sums(tables, tuple(sorted(labels)), self.coarse, n)


def _fill_positions(part: dict[str, NDArray[Any]]) -> None:
    """Give bins of one score at an end of a scale, such as 0, the nearest position of others."""
    low, high = part["score_min"], part["score_max"]
    for scale in SCALES.values():
        inside = scale.holds(low) & scale.holds(high)
        if scale is LINEAR or scale.sums[0] not in part or not inside.any():
            continue
        nearest = scale.position(np.array([low[inside].min(), high[inside].max()]))
        for end, position in zip((scale.low, scale.high), nearest, strict=True):
            bins = (low == end) & (high == end)
            for power, name in enumerate(scale.sums, 1):
                part[name] = np.where(bins, part["n"] * position**power, part[name])


def dataset_of(
    tables: Mapping[str, Columns], labels: NDArray[Any], edges: Floats, attrs: Mapping[str, Any]
) -> xr.Dataset:
    """Read-only Dataset of tables of sums, whose rows may repeat their keys."""
    outcome = OUTCOMES[attrs["kind"]]
    variables: dict[str, tuple[str, NDArray[Any]]] = {"edges": ("edge", np.array(edges))}
    for name, layout in outcome.tables.items():
        integers = (*layout.keys, *outcome.integers)
        empty = dict.fromkeys(integers, np.empty(0, np.int64)) | dict.fromkeys(
            layout.reals, np.empty(0)
        )
        rows = added(tables[name] or empty, layout.keys, outcome.sums(name))
        variables |= {f"{name}_{column}": (name, values) for column, values in rows.items()}
    part = {name: variables[f"part_{name}"][1] for name in outcome.columns("part")}
    totals = added(part, ("bin",), outcome.sums("part"))
    for name in outcome.sums("part"):
        no_items = np.nan if name in EXTREMES else 0
        values = np.full(len(edges) + 1, no_items, dtype=totals[name].dtype)
        values[totals["bin"]] = totals[name]
        variables[name] = ("bin", values)
    for _, values in variables.values():
        values.flags.writeable = False
    coords = {"label": ("label", np.asarray(labels, dtype=object))}
    return xr.Dataset(variables, coords, attrs=dict(attrs))


def table_of(data: xr.Dataset, name: str) -> dict[str, NDArray[Any]]:
    """Columns of a table as they are stored; with dates, groups are those of a day."""
    columns = OUTCOMES[data.attrs["kind"]].columns(name)
    return {column: data[f"{name}_{column}"].to_numpy() for column in columns}


def sum_of(data: xr.Dataset, other: xr.Dataset) -> xr.Dataset:
    """Dataset of the items of two; joint cells of only some items are dropped."""
    pair = data, other
    for name in (*_SHARED, "edges"):
        mine, its = (
            d["edges"].to_numpy().tolist() if name == "edges" else d.attrs.get(name, "none")
            for d in pair
        )
        if mine != its and (name != "folds" or data.attrs["folds_by"] != "column"):
            raise StatisticsError(
                f"statistics of different {name} cannot be added ({shown(mine)} and {shown(its)}): "
                "summarize both with the same options, the second with edges=first.edges"
            )
    widths = [int(d.attrs["coarse"]) for d in pair]
    coarse = max(widths) if all(widths) else 0
    folds = max(int(d.attrs["folds"]) for d in pair)
    labels = np.unique(np.concatenate([d["label"].to_numpy() for d in pair]))
    tables: dict[str, Columns] = {}
    for name in OUTCOMES[data.attrs["kind"]].tables:
        if name == "joint" and not coarse:
            tables[name] = {}
            continue
        parts = [table_of(d, name) for d in pair]
        for part, d, width in zip(parts, pair, widths, strict=True):
            part["group"] = np.searchsorted(labels, d["label"].to_numpy())[part["group"]]
            if name == "joint":
                part["bin"] = part["bin"] // (coarse // width)
        tables[name] = {c: np.concatenate([part[c] for part in parts]) for c in parts[0]}
    attrs = {**data.attrs, "coarse": coarse, "folds": folds}
    return dataset_of(tables, labels, data["edges"].to_numpy(), attrs)


def undated(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """The attributes of statistics without a column of dates."""
    roles = {role: name for role, name in roles_of(attrs).items() if role != "date"}
    return {**attrs, "roles": json.dumps(roles)}
