"""What all pictures ask of their arguments, before any figure is made."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from .._lib.arguments import Refusal, instance, real, shown
from .._lib.errors import FitError
from ..inference.results import Fit

__all__ = [
    "axes_in",
    "column_of",
    "need_ax",
    "need_axes",
    "need_columns",
    "need_fit",
    "need_prob",
    "one_of",
]


def need_ax(ax: Any) -> None:
    """Refuse what is neither axes to draw in nor None.

    Examples
    --------
    >>> need_ax("left")
    Traceback (most recent call last):
    ...
    soc_pymc.FitError: ax must be matplotlib axes to draw in, or None, not str
    """
    instance(ax, "ax", Axes | None, "matplotlib axes to draw in, or None")


def axes_in(axes: Any) -> NDArray[Any]:
    """Axes of a list, tuple or array of any shape, in one row; of single axes, these.

    Examples
    --------
    >>> axes_in(["left", "right"])
    Traceback (most recent call last):
    ...
    soc_pymc.FitError: axes=['left', 'right'] must be matplotlib axes in a list, or None
    """
    given = _flat(axes)
    if not all(isinstance(ax, Axes) for ax in given):
        raise FitError(f"axes={shown(axes)} must be matplotlib axes in a list, or None")
    return np.array(given, dtype=object)


def _flat(axes: Any) -> list[Any]:
    if isinstance(axes, np.ndarray):
        return list(axes.ravel())
    return [ax for each in axes for ax in _flat(each)] if isinstance(axes, list | tuple) else [axes]


def need_axes(axes: Any, number: int, picture: str) -> None:
    """Refuse what is not so many axes; None is fine.

    Parameters
    ----------
    axes
        What the user gave.
    number, picture
        How many axes are needed, and the function that needs them.
    """
    if axes is None:
        return
    given = axes_in(axes)
    if len(given) != number:
        raise FitError(f"axes holds {len(given)} axes, {picture} needs {number}")


def need_prob(prob: Any) -> None:
    """Refuse probabilities that are not between 0 and 1."""
    real(prob, "prob", above=0, below=1)


def need_fit(fit: Any, name: str = "fit") -> None:
    """Refuse what is no fit."""
    instance(fit, name, Fit, "a fit, from soc.fit or soc.load_fit")


def one_of(value: Any, name: str, options: Sequence[str]) -> str:
    """One of several words.

    Examples
    --------
    >>> one_of("median", "quantity", ("mean", "variance"))
    Traceback (most recent call last):
    ...
    soc_pymc.FitError: quantity='median' must be one of mean, variance
    """
    if isinstance(value, str) and value in options:
        return value
    raise FitError(f"{name}={shown(value)} must be one of {', '.join(options)}")


def need_columns(
    table: Any,
    maker: str,
    numbers: Sequence[str],
    words: Sequence[str] = (),
    others: Sequence[str] = (),
    name: str = "table",
) -> None:
    """Refuse what is no pandas table with these columns.

    Parameters
    ----------
    table
        What the user gave.
    maker
        The function that makes such tables.
    numbers, words
        Columns that the table must have: of numbers, and of anything.
    others
        Columns of numbers that it may have.
    name
        Name of the argument.
    """
    instance(table, name, pd.DataFrame, f"a table from {maker}")
    missing = [column for column in (*words, *numbers) if column not in table]
    if missing:
        raise FitError(
            f"the table misses {len(missing)} columns ({', '.join(missing)}): take one from {maker}"
        )
    for column in (*words, *numbers, *(column for column in others if column in table)):
        if table[column].ndim > 1:
            raise FitError(f"the table has several columns {column!r}: take one from {maker}")
        if column not in words:
            column_of(table, column, maker)


def column_of(
    table: pd.DataFrame, column: str, maker: str, error: Refusal = FitError
) -> NDArray[np.float64]:
    """A column as float64, NaN where values are missing; words are refused.

    Examples
    --------
    >>> column_of(pd.DataFrame({"t": ["high"]}), "t", "soc.item_posteriors")
    Traceback (most recent call last):
    ...
    soc_pymc.FitError: column 't' must hold numbers: take a table from soc.item_posteriors
    """
    try:
        return table[column].to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError, OverflowError):
        raise error(f"column {column!r} must hold numbers: take a table from {maker}") from None
