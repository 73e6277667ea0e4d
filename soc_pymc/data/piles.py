"""Tables of sums whose rows arrive in parts, from an engine or from blocks of items."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..families.outcomes import Outcome
from .binning import Columns, Joint, added
from .formulas import bounded, outside

_WAITING = 1 << 20  # rows that are added up at once


class Tables(NamedTuple):
    """Sums over parts (group, fold and bin), their cells, and joint cells of groups and bins."""

    sums: Mapping[str, Columns]  # columns of keys and sums by table; "joint" may be empty
    labels: tuple[str, ...]  # of the groups, by code
    coarse: int  # bins per bin of the joint cells; 0 without joint cells
    n: int  # items, counted independently of the sums


class Pile:
    """Rows of one table, which may repeat their keys until they are added up."""

    def __init__(self, keys: Sequence[str], names: Sequence[str]) -> None:
        self._keys, self._names = keys, names
        self._parts: list[Columns] = []

    def add(self, rows: Columns) -> None:
        """Add rows, which may repeat keys."""
        self._parts.append({name: rows[name] for name in (*self._keys, *self._names)})
        first, *others = [len(part[self._keys[0]]) for part in self._parts]
        if sum(others) > max(first, _WAITING):
            self.total()

    def total(self) -> Columns:
        """The rows, with distinct keys."""
        if len(self._parts) > 0:
            names = self._parts[0]
            rows = {name: np.concatenate([part[name] for part in self._parts]) for name in names}
            self._parts = [added(rows, self._keys, self._names)]
        return self._parts[0] if self._parts else {}

    @property
    def most_rows(self) -> int:
        """A number of rows that they do not exceed."""
        return sum(len(part[self._keys[0]]) for part in self._parts)

    def widen(self) -> None:
        """Put two bins together."""
        rows = self.total()
        self._parts = [{**rows, "bin": rows["bin"] // 2}]


class Piles:
    """All tables of one kind of outcome; joint cells are kept within their budget.

    Beyond it their bins are merged in pairs, or none are kept.
    """

    def __init__(self, outcome: Outcome, joint: Joint, bins: int) -> None:
        self._outcome, self._joint, self._bins = outcome, joint, bins
        self.coarse = min(joint.most, 1)
        """Bins per bin of the joint cells, 0 if none are kept."""
        names = {name: outcome.sums(name) for name in outcome.tables}
        names["part"] = (*names["part"], *map(outside, bounded(outcome)))
        self._piles = {
            name: Pile(table.keys, names[name]) for name, table in outcome.tables.items()
        }

    def add(self, tables: Mapping[str, Columns]) -> None:
        """Add rows of tables in bins, which may repeat their keys."""
        for name, rows in tables.items():
            if name != "joint":
                self._piles[name].add(rows)
            elif self.coarse:
                self._piles[name].add({**rows, "bin": rows["bin"] // self.coarse})
                self._keep_budget()

    def _keep_budget(self) -> None:
        pile, most = self._piles["joint"], self._joint.most
        if pile.most_rows <= most or len(pile.total()["n"]) <= most:
            return
        if not self._joint.merges:
            self.coarse = 0
            return
        while len(pile.total()["n"]) > most and self.coarse < self._bins:
            pile.widen()
            self.coarse *= 2
        self._outcome.check_joint(len(pile.total()["n"]), most)

    def tables(self, labels: Sequence[str], n: int) -> Tables:
        """The tables with groups in the order of their labels.

        Sums of positions are NaN where a score has none. A score at an end of the scale, such as 0,
        that is alone in its bin counts as the nearest score with a position.
        """
        order = np.argsort(np.argsort(np.array(labels, dtype=object))).astype(np.int64)
        totals = {name: dict(pile.total()) for name, pile in self._piles.items()}
        if not self.coarse:
            totals["joint"] = {}
        for table in filter(None, totals.values()):
            table["group"] = order[table["group"]]
        part: dict[str, NDArray[Any]] = totals["part"]
        for scale in bounded(self._outcome):
            lacking = part.pop(outside(scale)) > 0
            low, high = part["score_min"], part["score_max"]
            inside = scale.holds(low) & scale.holds(high)
            nearest = np.full(len(low), np.nan)
            if inside.any():
                first, last = scale.position(np.array([low[inside].min(), high[inside].max()]))
                nearest = np.where(low <= scale.low, first, last)
            nearest[(low != high) | ((low != scale.low) & (low != scale.high))] = np.nan
            for name, position in zip(scale.sums, (nearest, nearest**2), strict=True):
                part[name] = np.where(lacking, part["n"] * position, part[name])
        return Tables(totals, tuple(sorted(labels)), self.coarse, n)
