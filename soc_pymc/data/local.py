"""Passes over items in files or in memory: blocks of Arrow batches, summed in threads."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import ItemsError
from .._lib.progress import phase
from .._lib.threads import ordered_map
from ..families.outcomes import OUTCOMES
from .binning import Columns, Grid, Joint, Weights, added, make_lookup
from .columns import NUMBERS, crossed, numbers
from .days import is_day
from .folds import Folds, block_of_labels, fold_of
from .group_sum import TableSums, nearly_sorted
from .grouped import repeated
from .groups import CROSS, MARK, key_roles
from .items import Items
from .piles import Pile, Tables
from .sources import open_table, readable, record_batches
from .validation import check_total, check_types, scan

_BLOCK = 1 << 20  # items of a block


class Local:
    """Passes over items in files or in memory."""

    def __init__(self, items: Items, folds: Folds, progress: bool) -> None:
        self._items, self._folds, self._progress = items, folds, progress
        self._outcome = OUTCOMES[items.kind]
        self._n: int | None = None
        self._codes: dict[str, int] = {}
        self._lock = threading.Lock()  # of the codes
        table = open_table(items.source, list(items.roles.values()))
        with readable():
            check_types(items, table)
        columns = {role: table[name] for role, name in items.roles.items()}
        self._table = table.select(**crossed(numbers(columns)))

    def check(self) -> None:
        """Refuse items that are not valid."""
        scan(self._items, self._progress, folds=True)

    def _refuse(self) -> None:
        """Raise the full error about the items."""
        self.check()
        raise ItemsError("the items changed while they were read: try again")

    # --- passes ----------------------------------------------------------------------------------

    def weights(self, grid: Grid, low: float, high: float, weight: str | None) -> Weights:
        """Items, and sums of the role `weight`, on a grid; only the needed columns are read."""
        bounds = self._outcome.bounds
        roles = ("score",) if weight is None else ("score", weight)

        def count(block: Mapping[str, Any]) -> tuple[float, float, Columns]:
            if not all(bounds[role].hold(block[role]) for role in roles):
                raise _NotValidError
            score = block["score"]
            cell = grid.cell(score if low == -math.inf else np.clip(score, low, high))
            if weight is None:
                cell, n = np.unique(cell, return_counts=True)
                rows: Columns = {"cell": cell, "n": n, "total": n}
            else:
                total = block[weight].astype(np.int64)
                rows = {"cell": cell, "n": np.ones_like(total), "total": total}
                rows = added(rows, ("cell",), ("n", "total"))
            return float(score.min()), float(score.max()), rows

        pile, ends = Pile(("cell",), ("n", "total")), []
        for *own, rows in self._mapped("choosing bins", roles, count):
            ends.append(own)
            pile.add(rows)
        if not ends:
            self._refuse()
        found = pile.total()
        check_total(self._items, float(found["total"].sum(dtype=float)))
        self._n = int(found["n"].sum())
        score_min, score_max = min(low for low, _ in ends), max(high for _, high in ends)
        return Weights(self._n, score_min, score_max, *(found[k] for k in ("cell", "n", "total")))

    def repeated(self, grid: Grid, cells: Ints, least: int) -> dict[float, int]:
        """Scores in some cells that at least so many items share, with their numbers of items."""
        with readable(self._items.source):
            return repeated(self._table, grid, cells, least)

    def tables(self, edges: Floats, joint: Joint) -> Tables:
        """Sums of all bins and cells of items, validated in the same pass.

        Every sum is over its items in order, whatever the number of threads.
        """
        outcome, lookup, bins = self._outcome, make_lookup(edges), len(edges) + 1
        sums = TableSums(outcome, joint, bins, self._folds.number)

        def prepare(block: Mapping[str, Any]) -> tuple[float, Ints, dict[str, Floats]]:
            items = {role: block[role] for role in outcome.bounds}
            if not outcome.validity.are_valid(*items.values()):
                raise _NotValidError
            number = self._parts(block) * bins + lookup.bin_of(items["score"])
            order = nearly_sorted(number)
            items = {role: values.take(order) for role, values in items.items()}
            return float(items[outcome.observed].sum()), number.take(order), items

        n, total = 0, 0.0
        blocks = self._mapped("summarizing items", tuple(self._items.roles), prepare)
        for y, number, items in blocks:
            n, total = n + len(number), total + y
            check_total(self._items, total)
            sums.add(number, items)
        if not n or self._n not in (None, n):
            self._refuse()
        return sums.total().tables(list(self._codes) or [""], n)

    def _parts(self, block: Mapping[str, Any]) -> Ints:
        """Code of each item's group times the number of folds, plus its fold."""
        group = block.get("group", np.zeros(len(block["score"]), dtype=np.int64))
        if self._folds.by == "none":
            return group
        if self._folds.by == "column" and not NUMBERS["fold"].hold(block["fold"]):
            raise _NotValidError
        fold = fold_of(self._folds, block, self._outcome.size)
        return group * self._folds.number + np.asarray(fold).astype(np.int64)

    # --- blocks ----------------------------------------------------------------------------------

    def _mapped[Result](
        self, title: str, roles: Sequence[str], work: Callable[[Mapping[str, Any]], Result]
    ) -> Iterator[Result]:
        """Results of work on blocks of items, in order, made in threads."""
        read = [role for role in roles if not key_roles({role: ""})]
        read += ["group"] * (len(read) < len(roles))

        def run(batch: Any) -> tuple[int, Result]:
            return batch.num_rows, work({role: self._values(role, batch[role]) for role in read})

        with (
            phase(title, unit="items", enabled=self._progress) as running,
            readable(self._items.source),
        ):
            try:
                for rows, result in ordered_map(
                    run, record_batches(self._table.select(*read), _BLOCK)
                ):
                    yield result
                    running.advance(rows)
            except _NotValidError:
                self._refuse()

    def _values(self, role: str, values: Any) -> NDArray[Any]:
        """Numbers of an Arrow array, NaN where missing; codes of groups, blocks of clusters."""
        if role in NUMBERS:
            return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)
        if values.null_count:
            raise _NotValidError
        if role == "id":
            return np.asarray(values)
        encoded = values.dictionary_encode()
        words = encoded.dictionary.to_pylist()
        if role == "cluster":
            numbers = block_of_labels(words)
        else:
            self._check_labels(words)
            with self._lock:
                codes = [self._codes.setdefault(word, len(self._codes)) for word in words]
            numbers = np.array(codes, dtype=np.int64)
        return np.asarray(numbers[encoded.indices.to_numpy()])

    def _check_labels(self, words: Sequence[str]) -> None:
        crossings = len(key_roles(self._items.roles)) - 1
        if crossings and any(word.count(MARK) != crossings for word in words):
            raise _NotValidError
        if self._items.date and not all(is_day(word.partition(CROSS)[0]) for word in words):
            raise _NotValidError


class _NotValidError(Exception):
    """A block of items is not valid; a scan of all items says why."""
