"""Columns of the tables that `soc.item_posteriors` returns, whatever their kind."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._lib.arguments import shown
from .._lib.errors import ItemsError
from ..data.tables.item_files import chosen
from .arguments import column_of

__all__ = ["frame_of", "names_of", "need_column", "numbers_of"]


def names_of(table: Any) -> list[str]:
    """Names of the columns of a pandas, Polars, Arrow or Ibis table; others are refused."""
    known = isinstance(table, pd.DataFrame) or (
        not isinstance(table, type) and hasattr(table, "select") and hasattr(table, "to_pandas")
    )
    if not known:
        wanted = "a table from soc.item_posteriors: of pandas, Polars, Arrow or Ibis"
        what = table.__name__ + " itself" if isinstance(table, type) else type(table).__name__
        raise ItemsError(f"table must be {wanted}, not {what}")
    names = getattr(table, "column_names", None) or table.columns
    return [name for name in names if isinstance(name, str)]


def need_column(value: Any, name: str) -> None:
    """Refuse what is no name of a column; None is fine."""
    if value is not None and (not isinstance(value, str) or not value):
        raise ItemsError(f"{name}={shown(value)} must be the name of a column")


def frame_of(table: Any, names: Iterable[str]) -> pd.DataFrame:
    """Some columns of a pandas, Polars, Arrow or Ibis table, as pandas.

    Parameters
    ----------
    table
        The table. An Ibis table is run.
    names
        Columns that it must have.

    Raises
    ------
    ItemsError
        If a column is missing, or there twice.
    """
    wanted, available = list(dict.fromkeys(names)), names_of(table)
    for name in wanted:
        chosen(available, [name])
    if isinstance(table, pd.DataFrame):
        return table[wanted]
    frame: pd.DataFrame = table.select(wanted).to_pandas()
    return frame.reset_index(drop=True)


def numbers_of(frame: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """A column as float64; missing values are NaN, and words are refused."""
    return column_of(frame, name, "soc.item_posteriors", ItemsError)
