"""What pictures ask of their arguments, before any figure is made: rules, and tables' columns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from .._lib.arguments import A, OrNone, Refusal, Rule, numbers_of, shown
from .._lib.arrays import Floats
from .._lib.errors import FitError, ItemsError
from ..checks._check import CheckResult
from ..data.tables.item_files import chosen
from ..inference.results import Fit

FIT = A(Fit, "a fit, from soc.fit or soc.load_fit")
RESULT = A(CheckResult, "what soc.check(fit, items) returned")
AX = A(Axes | None, "matplotlib axes to draw in, or None", FitError)


@dataclass(frozen=True)
class AxesOf:
    """None, or so many axes in a list, tuple or array of any shape: returned in one row."""

    number: int | None = None

    def __call__(self, value: Any, name: str, error: Refusal = FitError, /) -> Any:
        """The axes in one row, or None."""
        if value is None:
            return None
        given = axes_in(value, name, error)
        if self.number is not None and len(given) != self.number:
            raise error(f"{name} holds {len(given)} axes, the picture needs {self.number}")
        return given


def axes_in(axes: Any, name: str = "axes", error: Refusal = FitError) -> NDArray[Any]:
    """Axes of a list, tuple or array of any shape, in one row; of single axes, these.

    >>> axes_in(["left", "right"])
    Traceback (most recent call last):
    ...
    soc_pymc.FitError: axes=['left', 'right'] must be matplotlib axes in a list, or None
    """
    given = _flat(axes)
    if not all(isinstance(ax, Axes) for ax in given):
        raise error(f"{name}={shown(axes)} must be matplotlib axes in a list, or None")
    return np.array(given, dtype=object)


def _flat(axes: Any) -> list[Any]:
    if isinstance(axes, np.ndarray):
        return list(axes.ravel())
    return [ax for each in axes for ax in _flat(each)] if isinstance(axes, list | tuple) else [axes]


def levels_of(probs: Any, name: str = "probs", error: Refusal = FitError) -> Floats:
    """Probabilities of quantiles, which increase and lie between 0 and 1."""
    levels = numbers_of(probs, name, error, wanted="numbers between 0 and 1, in a list")
    inside = levels.ndim == 1 and levels.size and np.all((levels > 0) & (levels < 1))
    if not (inside and np.all(np.diff(levels) > 0)):
        raise error(
            f"{name}={shown(probs)} must increase and lie between 0 and 1, as (0.05, 0.5, 0.95)"
        )
    return levels


def column_name(value: Any, name: str, _: Refusal = ItemsError) -> str:
    """The name of a column of items."""
    if isinstance(value, str) and value:
        return value
    raise ItemsError(f"{name}={shown(value)} must be the name of a column")


NAME: Rule = column_name
COLUMN: Rule = OrNone(column_name)


# --- tables of evaluations -----------------------------------------------------------------------


def need_columns(
    table: Any,
    maker: str,
    numbers: Sequence[str],
    words: Sequence[str] = (),
    others: Sequence[str] = (),
    name: str = "table",
) -> None:
    """Refuse what is no pandas table by `maker`, a function, with columns of words and of numbers.

    It may also have the `others`, of numbers.
    """
    A(pd.DataFrame, f"a table from {maker}")(table, name)
    missing = [column for column in (*words, *numbers) if column not in table]
    if missing:
        raise FitError(
            f"the table misses {len(missing)} columns ({', '.join(missing)}): take one from {maker}"
        )
    for column in (*words, *numbers, *(column for column in others if column in table)):
        if table[column].ndim > 1:
            raise FitError(f"the table has several columns {column!r}: take one from {maker}")
        if column not in words:
            numbers_in(table, column, maker)


def numbers_in(table: pd.DataFrame, column: str, maker: str, error: Refusal = FitError) -> Floats:
    """A column as float64, NaN where values are missing; words are refused.

    >>> numbers_in(pd.DataFrame({"t": ["high"]}), "t", "soc.item_posteriors")
    Traceback (most recent call last):
    ...
    soc_pymc.FitError: column 't' must hold numbers: take a table from soc.item_posteriors
    """
    try:
        return table[column].to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError, OverflowError):
        raise error(f"column {column!r} must hold numbers: take a table from {maker}") from None


def holds(data: Any, **dims: str) -> bool:
    """Whether this is a Dataset with variables of these dims, in any order, none of them empty.

    >>> holds(xr.Dataset({"r": (("draw", "chain"), [[0.5]])}), r="chain draw")
    True
    """
    return isinstance(data, xr.Dataset) and all(
        name in data.variables and data[name].size and set(data[name].dims) == set(own.split())
        for name, own in dims.items()
    )


# --- tables of items, of pandas, Polars, Arrow or Ibis -------------------------------------------


def names_in(table: Any) -> list[str]:
    """Names of the columns of a table that `soc.item_posteriors` returned."""
    converts = hasattr(table, "select") and hasattr(table, "to_pandas")
    if isinstance(table, type) or not converts:
        wanted = "a table from soc.item_posteriors: of pandas, Polars, Arrow or Ibis"
        A(pd.DataFrame, wanted, ItemsError)(table, "table")
    names = getattr(table, "column_names", None) or table.columns
    return [name for name in names if isinstance(name, str)]


def some_columns(table: Any, names: Iterable[str]) -> pd.DataFrame:
    """Some columns, each there once, as pandas. An Ibis table is run."""
    wanted, available = list(dict.fromkeys(names)), names_in(table)
    for name in wanted:
        chosen(available, [name])
    if isinstance(table, pd.DataFrame):
        return table[wanted]
    frame: pd.DataFrame = table.select(wanted).to_pandas()
    return frame.reset_index(drop=True)


def item_numbers(frame: pd.DataFrame, name: str) -> Floats:
    """A column of such a table as float64; missing values are NaN, and words are refused."""
    return numbers_in(frame, name, "soc.item_posteriors", ItemsError)
