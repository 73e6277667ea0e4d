"""Tables of sums whose rows arrive in parts from an engine."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...families.outcomes import Outcome
from ..binning import Columns, Joint, added
from ..formulas import bounded, outside

_WAITING = 1 << 20  # rows that are added up at once


class Pile:
    """Rows of one table, which may repeat their keys until they are added up."""

    def __init__(self, keys: Sequence[str], names: Sequence[str]) -> None:
        self._keys, self._names = keys, names
        self._parts: list[Columns] = []
        self._sizes: list[int] = []

    def add(self, rows: Columns) -> None:
        """Add rows, which may repeat keys."""
        self._parts.append({name: rows[name] for name in (*self._keys, *self._names)})
        self._sizes.append(len(rows[self._keys[0]]))
        first, *others = self._sizes
        if sum(others) > max(first, _WAITING):
            self.total()

    def total(self) -> Columns:
        """The rows, with distinct keys."""
        if self._parts:
            names = self._parts[0]
            rows = {name: np.concatenate([part[name] for part in self._parts]) for name in names}
            self._parts = [added(rows, self._keys, self._names)]
            self._sizes = [len(self._parts[0][self._keys[0]])]
        return self._parts[0] if self._parts else {}

    @property
    def most_rows(self) -> int:
        """A number of rows that they do not exceed."""
        return sum(self._sizes)

    def widen(self, by: int) -> None:
        """Put `by` bins together."""
        rows = self.total()
        self._parts, self._sizes = [], []
        self.add({**rows, "bin": rows["bin"] // by})


class Piles:
    """All tables of one kind of outcome; joint cells are kept within their budget.

    Beyond it their bins are merged in pairs, or none are kept.
    """

    def __init__(self, outcome: Outcome, joint: Joint, bins: int) -> None:
        self._outcome, self._joint, self._bins = outcome, joint, bins
        self.coarse = min(joint.most, 1)
        names = {name: outcome.sums(name) for name in outcome.tables}
        names["part"] = (*names["part"], *map(outside, bounded(outcome)))
        self._piles = {
            name: Pile(table.keys, names[name]) for name, table in outcome.tables.items()
        }

    @property
    def kept(self) -> tuple[str, ...]:
        """Tables that are made."""
        return tuple(name for name in self._piles if name != "joint" or self.coarse)

    def add(self, tables: Mapping[str, Columns]) -> None:
        """Add rows of tables, which may repeat their keys."""
        for name in self.kept:
            rows = tables[name]
            if name == "joint":
                rows = {**rows, "bin": rows["bin"] // self.coarse}
            self._piles[name].add(rows)
        if self.coarse:
            self._keep_budget()

    def _keep_budget(self) -> None:
        pile, most = self._piles["joint"], self._joint.most
        if pile.most_rows <= most or len(pile.total()["n"]) <= most:
            return
        if not self._joint.merges:
            self.drop_joint()
            return
        while len(pile.total()["n"]) > most and self.coarse < self._bins:
            pile.widen(2)
            self.coarse *= 2
        self._outcome.check_joint(len(pile.total()["n"]), most)

    def drop_joint(self) -> None:
        """Keep no joint cells."""
        self.coarse = 0

    def tables(self) -> dict[str, Columns]:
        """The tables, empty if they are not kept; sums are NaN where a score has no position."""
        found = {
            name: self._piles[name].total() if name in self.kept else {} for name in self._piles
        }
        part: dict[str, NDArray[Any]] = dict(found["part"])
        for scale in bounded(self._outcome):
            lacking = part.pop(outside(scale)) > 0
            for name in scale.sums:
                part[name] = np.where(lacking, np.nan, part[name])
        return {**found, "part": part}
