"""Slices of items by the columns of their own table."""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .pit import fifths

__all__ = ["column_slices", "cut_columns"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_LEVELS = 20  # levels of a column that get a slice of their own; numbers of more are cut in fifths


def column_slices(labels: Mapping[str, pd.Series]) -> Iterator[tuple[str, Mask]]:
    """Slices by the levels of columns; missing values are a level.

    Numbers and dates of more than 20 distinct values are cut into fifths instead; of other columns
    the 20 most frequent levels are slices.

    Parameters
    ----------
    labels
        Columns by name, all of one length.

    Examples
    --------
    >>> column = pd.Series(["a", "b", "a", None])
    >>> [(name, int(mask.sum())) for name, mask in column_slices({"g": column})]
    [('g = a', 2), ('g = b', 1), ('g = missing', 1)]
    >>> number = pd.Series(range(100))
    >>> next(column_slices({"age": number}))[0]
    'age 1/5: 0 to 19'
    """
    for column, values in labels.items():
        if _is_cut(values):
            yield from _by_value(column, values)
        else:
            yield from _by_level(column, values)


def cut_columns(labels: Mapping[str, pd.Series]) -> Iterator[str]:
    """What was left out: levels beyond the most frequent of a column that has no order.

    Parameters
    ----------
    labels
        As in `column_slices`.
    """
    for column, values in labels.items():
        number = values.nunique(dropna=False)
        if number > _LEVELS and not _is_cut(values):
            yield (
                f"Column {column!r} has {number:,} levels: only the {_LEVELS} most frequent were "
                "checked."
            )


def _is_cut(values: pd.Series) -> bool:
    """Whether a column has an order and so many values that fifths of it say more than levels."""
    ordered = pd.api.types.is_numeric_dtype(values) or pd.api.types.is_datetime64_any_dtype(values)
    return bool(
        ordered and not pd.api.types.is_bool_dtype(values) and values.nunique(dropna=True) > _LEVELS
    )


def _by_level(column: str, values: pd.Series) -> Iterator[tuple[str, Mask]]:
    codes, levels = pd.factorize(values, use_na_sentinel=False)
    frequency = np.bincount(codes, minlength=len(levels))
    for code in np.argsort(-frequency, kind="stable")[:_LEVELS]:
        level = levels[code]
        yield f"{column} = {'missing' if pd.isna(level) else level}", codes == code


def _by_value(column: str, values: pd.Series) -> Iterator[tuple[str, Mask]]:
    missing = values.isna().to_numpy()
    number = np.full(len(values), np.nan)
    if pd.api.types.is_datetime64_any_dtype(values):
        first = values.min()
        number[~missing] = (values[~missing] - first) / pd.Timedelta(days=1)
        yield from fifths(column, number, lambda days: _dates(first, days))
    else:
        number[~missing] = values[~missing].to_numpy(dtype=float)
        yield from fifths(column, number)
    if missing.any():
        yield f"{column} = missing", missing


def _dates(first: pd.Timestamp, days: Floats) -> str:
    low, high = (first + pd.Timedelta(days=float(d)) for d in (days.min(), days.max()))
    return f"{low:%Y-%m-%d} to {high:%Y-%m-%d}"
