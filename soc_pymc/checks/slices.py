"""Slices of items: by score, by size, and by the columns of their table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .._lib.arrays import Bools, Floats, Ints
from ..families.outcomes import Outcome
from ..posterior.interface import Columns

Slices = Iterator[tuple[str, Bools]]
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
    for name, values in (("score", score), (outcome.words.size, size)):
        code, names = _fifths(name, pd.Series(values), n)
        if len(names) > 1:
            yield from ((part, code == k) for k, part in enumerate(names))


def large_sizes(outcome: Outcome, size: Floats, least: float = _LARGE) -> Slices:
    """The items whose outcomes say much about their theta, where sizes are amounts."""
    if outcome.sizes_add:
        yield f"{outcome.words.size} >= {least:.0f}", size >= least


def column_slices(labels: Mapping[str, pd.Series], n: Ints) -> Slices:
    """Slices by the levels of columns, the 20 most frequent; missing values are a level.

    Numbers and dates of more than 20 distinct values are cut into fifths instead.
    """
    for column, values in labels.items():
        code, names = level_codes(column, values, n)
        places = np.arange(len(names))
        if not is_cut(values):
            places = np.argsort(-np.bincount(code, n, len(names)), kind="stable")[:LEVELS]
        yield from ((names[k], code == k) for k in places)


def level_codes(column: str, values: pd.Series, n: Ints) -> tuple[Ints, list[str]]:
    """Numbers of the levels of a column, or of its fifths, and their names."""
    if is_cut(values):
        code, names = _fifths(column, values.reset_index(drop=True), n)
        missing = values.isna().to_numpy()
        names += [f"{column} = missing"] * int(missing.any())
        return np.where(missing, len(names) - 1, code), names
    code, levels = pd.factorize(values, use_na_sentinel=False)
    return code, [f"{column} = {'missing' if pd.isna(level) else level}" for level in levels]


def is_cut(values: pd.Series) -> bool:
    """True if a column has an order, and too many values for each to be a level."""
    numbers = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    ordered = numbers or pd.api.types.is_datetime64_any_dtype(values)
    return bool(ordered and values.nunique(dropna=True) > LEVELS)


def cut_columns(labels: Mapping[str, pd.Series]) -> Iterator[str]:
    """Sentences on columns whose rarer levels were not checked."""
    for column, values in labels.items():
        number = values.nunique(dropna=False)
        if number > LEVELS and not is_cut(values):
            yield (
                f"Column {column!r} has {number:,} levels: only the {LEVELS} most frequent were "
                "checked."
            )


def _fifths(name: str, values: pd.Series, n: Ints) -> tuple[Ints, list[str]]:
    """Numbers of the fifths of numbers or dates, -1 for those that are missing, and their names."""
    code = equal_parts(np.asarray(values.rank(), dtype=np.float64), 5, n)
    ends = values.groupby(code).agg(["min", "max"]).drop(index=-1, errors="ignore")
    names = []
    for k, (least, largest) in enumerate(zip(ends["min"], ends["max"], strict=True), 1):
        low, high = _short(least), _short(largest)
        names.append(f"{name} {k}/{len(ends)}: {low}{f' to {high}' * (high != low)}")
    return code, names


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
