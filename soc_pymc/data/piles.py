"""Tables of sums whose rows arrive in parts, from an engine or from blocks of items."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .._lib.arrays import Floats
from ..families.outcomes import Outcome
from ..families.scales import LINEAR, SCALES, Scale
from .binning import Columns, Joint, added

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

    def __len__(self) -> int:
        return sum(len(part[self._keys[0]]) for part in self._parts)

    def add(self, rows: Columns) -> None:
        """Add rows, which may repeat keys."""
        self._parts.append({name: rows[name] for name in (*self._keys, *self._names)})
        total = len(self._parts[0][self._keys[0]])
        if len(self) - total > max(total, _WAITING):
            self.total()

    def total(self) -> Columns:
        """The rows, with distinct keys."""
        if not self._parts:
            return {}
        rows = {n: np.concatenate([part[n] for part in self._parts]) for n in self._parts[0]}
        self._parts = [added(rows, self._keys, self._names)]
        return self._parts[0]

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
        self._piles = {
            name: Pile(table.keys, outcome.sums(name)) for name, table in outcome.tables.items()
        }

    def add(self, name: str, rows: Columns) -> None:
        """Add rows of a table in bins, which may repeat their keys."""
        if name != "joint":
            self._piles[name].add(rows)
        elif self.coarse:
            self._piles[name].add({**rows, "bin": rows["bin"] // self.coarse})
            self._keep_budget()

    def _keep_budget(self) -> None:
        pile, most = self._piles["joint"], self._joint.most
        if len(pile) <= most or len(pile.total()["n"]) <= most:
            return
        if not self._joint.merges:
            self.coarse = 0
            return
        while len(pile.total()["n"]) > most and self.coarse < self._bins:
            pile.widen()
            self.coarse *= 2
        self._outcome.check_joint(len(pile.total()["n"]), most)

    def tables(self, labels: Sequence[str], n: int) -> Tables:
        """The tables with groups in the order of their labels."""
        order = np.argsort(np.argsort(np.array(labels, dtype=object))).astype(np.int64)
        totals = {name: dict(pile.total()) for name, pile in self._piles.items()}
        if not self.coarse:
            totals["joint"] = {}
        for table in filter(None, totals.values()):
            table["group"] = order[table["group"]]
        part = totals["part"]
        for scale in SCALES.values():
            if scale is not LINEAR and scale.sums[0] in part:
                end = _nearest_position(scale, part["score_min"], part["score_max"])
                for name, position in zip(scale.sums, (end, end**2), strict=True):
                    unknown = np.isnan(part[name])
                    part[name] = np.where(unknown, part["n"] * position, part[name])
        return Tables(totals, tuple(sorted(labels)), self.coarse, n)


def _nearest_position(scale: Scale, low: Floats, high: Floats) -> Floats:
    """Nearest position to bins of one score at an end of the scale, such as 0; else NaN."""
    inside = scale.holds(low) & scale.holds(high)
    position = np.full(len(low), np.nan)
    if inside.any():
        ends = scale.position(np.array([low[inside].min(), high[inside].max()]))
        single = low == high
        position[single & (low == scale.low)], position[single & (low == scale.high)] = ends
    return position
