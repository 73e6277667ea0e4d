"""All tables of sums of items in memory, block by block, in bounded memory."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import StatisticsError
from .._lib.threads import ordered_map
from ..families.outcomes import Outcome
from .binning import Joint, make_lookup
from .formulas import bounded, outside
from .group_sum import GroupSum, in_order

_BITS = 62  # of packed keys


class Sums:
    """Sums over bins, their cells and, within a budget, joint cells.

    Blocks of items are put in order in threads and added in their order, to several tables at once,
    so that every sum is over its items in order, whatever the number of threads.
    """

    def __init__(self, outcome: Outcome, edges: Floats, folds: int, joint: Joint) -> None:
        self._outcome, self._joint, self._folds = outcome, joint, folds
        self._lookup, self._bins = make_lookup(edges), len(edges) + 1
        self._tables = {name: GroupSum(outcome, name) for name in outcome.tables}
        self.coarse = min(joint.most, 1)
        """Bins per bin of the joint cells, 0 if none are kept."""

    def ordered(self, score: Floats, y: Floats, size: Floats, part: Ints) -> tuple[Ints, Floats]:
        """Valid items of a block in order, for `add`; a part is the group times folds plus fold."""
        return in_order(score, y, size, part, self._lookup, self._bins)

    def add(self, number: Ints, items: Floats) -> None:
        """Add items in order."""
        parts = int(number.max()) // self._bins + 1

        def add(name: str) -> None:
            wide = number
            if name == "joint":
                wide = number // (self._folds * self._bins) * self._bins
                wide += number % self._bins // self.coarse
            self._check_key(name, parts)
            self._tables[name].add(wide, items)

        for _ in ordered_map(add, (name for name in self._tables if self._is_kept(name))):
            pass
        if self.coarse and len(self._tables["joint"]) > self._joint.most:
            self._merge_bins() if self._joint.merges else self.drop_joint()

    def _is_kept(self, name: str) -> bool:
        return name != "joint" or self.coarse > 0

    def _check_key(self, name: str, parts: int) -> None:
        """Refuse more bins of groups and folds than packed keys allow."""
        number = (parts // self._folds if name == "joint" else parts) * self._bins
        if number > 1 << (_BITS - self._tables[name].bits):
            raise StatisticsError(
                f"there are too many groups, folds and bins ({number:,} together) for the "
                f"{name} cells: ask for fewer bins, or summarize the groups one by one"
            )

    def drop_joint(self) -> None:
        """Keep no joint cells."""
        self.coarse = 0

    def _merge_bins(self) -> None:
        """Merge bins of joint cells in pairs until the cells are few enough."""
        table, bins = self._tables["joint"], self._bins
        while len(table) > self._joint.most and self.coarse < bins:
            table.renumbered(lambda number: number // bins * bins + number % bins // 2)
            self.coarse *= 2
        self._outcome.check_joint(len(table), self._joint.most)

    def tables(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Columns of all tables, empty if they are not kept."""
        found: dict[str, dict[str, NDArray[Any]]] = {}
        for name, table in self._tables.items():
            found[name] = columns = table.columns() if self._is_kept(name) else {}
            if columns:
                part, columns["bin"] = np.divmod(columns.pop("number"), self._bins)
                folds = 1 if name == "joint" else self._folds
                columns["group"], columns["fold"] = np.divmod(part, folds)
        for scale in bounded(self._outcome):
            lacking = found["part"].pop(outside(scale)) > 0
            for name in scale.sums:
                found["part"][name] = np.where(lacking, np.nan, found["part"][name])
        return found
