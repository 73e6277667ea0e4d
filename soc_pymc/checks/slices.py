"""Slices of items: by score, by size, and by the columns of their table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from ..families.outcomes import Outcome
from ..posterior.interface import Columns

Mask = NDArray[np.bool_]
Slices = Iterator[tuple[str, Mask]]
"""Names and masks of slices. In all functions `n` is the number of items of each row."""

ALL = "all items"
LEAST = 20  # items of a slice: no test on fewer says anything
LEVELS = 20  # levels of a column that are slices; numbers of more values are cut into fifths
_LARGE = 50  # exposure from which a count says much about its item's theta


def slices(outcome: Outcome, columns: Columns, atoms: Sequence[float], n: Ints) -> Slices:
    """Slices of any items: all, each atom, large sizes, fifths of score and of size."""
    score, size = columns["score"], columns[outcome.size]
    yield ALL, np.ones(len(score), dtype=bool)
    for atom in atoms:
        if (mask := score == atom).any():
            yield f"score = {atom:.6g}", mask
    yield from large_sizes(outcome, size)
    yield from _fifths("score", score, n)
    yield from _fifths(outcome.words.size, size, n)


def large_sizes(outcome: Outcome, size: Floats, least: float = _LARGE) -> Slices:
    """The items whose outcomes say much about their theta, where sizes are amounts."""
    if outcome.sizes_add:
        yield f"{outcome.words.size} >= {least:.0f}", size >= least


def column_slices(labels: Mapping[str, pd.Series], n: Ints) -> Slices:
    """Slices by the levels of columns, the 20 most frequent; missing values are a level.

    Numbers and dates of more than 20 distinct values are cut into fifths instead.
    """
    for column, values in labels.items():
        if _is_cut(values):
            yield from _fifths(column, values, n)
            if (missing := values.isna().to_numpy()).any():
                yield f"{column} = missing", missing
            continue
        code, levels = pd.factorize(values, use_na_sentinel=False)
        frequency = np.bincount(code, n, len(levels))
        for place in np.argsort(-frequency, kind="stable")[:LEVELS]:
            level = levels[place]
            yield f"{column} = {'missing' if pd.isna(level) else level}", code == place


def codes(values: pd.Series) -> tuple[Ints, bool]:
    """Numbers of a column's levels, or of its fifths, from 0 on; and whether it is cut."""
    if not _is_cut(values):
        return pd.factorize(values, use_na_sentinel=False)[0], False
    return equal_parts(_as_numbers(values), 5) + 1, True


def cut_columns(labels: Mapping[str, pd.Series]) -> Iterator[str]:
    """Sentences on columns of which only the most frequent levels are slices."""
    for column, values in labels.items():
        number = values.nunique(dropna=False)
        if number > LEVELS and not _is_cut(values):
            yield (
                f"Column {column!r} has {number:,} levels: only the {LEVELS} most frequent were "
                "checked."
            )


def _is_cut(values: pd.Series) -> bool:
    """True if a column has an order, and too many values for each to be a level."""
    ordered = pd.api.types.is_numeric_dtype(values) or pd.api.types.is_datetime64_any_dtype(values)
    return bool(
        ordered and not pd.api.types.is_bool_dtype(values) and values.nunique(dropna=True) > LEVELS
    )


def _fifths(name: str, values: pd.Series | Floats, n: Ints) -> Slices:
    """Fifths of the items by numbers or dates, without missing ones."""
    column = pd.Series(values).reset_index(drop=True)
    part = equal_parts(_as_numbers(column), 5, n)
    for k in range(parts := int(part.max()) + 1):
        low, high = (_short(end) for end in column[part == k].agg(["min", "max"]))
        if parts > 1:
            yield f"{name} {k + 1}/{parts}: {low}{f' to {high}' * (high != low)}", part == k


def _as_numbers(column: pd.Series) -> Floats:
    number = column.astype("int64").where(column.notna()) if column.dtype.kind == "M" else column
    return np.asarray(number.to_numpy(dtype=float, na_value=np.nan), dtype=np.float64)


def equal_parts(value: Floats, number: int, n: Ints | Floats | None = None) -> Ints:
    """Numbers of parts of about equally many items by value, from 0 on; that of NaN is -1.

    No part is empty, and tied values are in the part of their middle.
    """
    part, known = np.full(len(value), -1), ~np.isnan(value)
    tied = np.unique(value[known], return_inverse=True)[1]
    items = np.bincount(tied, None if n is None else n[known])
    middle = (np.cumsum(items) - 0.5 * items) / max(items.sum(), 1)
    of_item = np.minimum((number * middle[tied]).astype(int), number - 1)
    part[known] = np.unique(of_item, return_inverse=True)[1]
    return part


def _short(value: Any) -> str:
    """A number in a few digits, or a date."""
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"
