"""Columns of the tables that `soc.item_posteriors` returns, whatever their kind."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import ItemsError

__all__ = ["frame_of", "names_of", "numbers_of"]


def names_of(table: Any) -> list[str]:
    """Names of the columns of a pandas, Polars, Arrow or Ibis table."""
    return list(getattr(table, "column_names", None) or table.columns)


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
        If a column is missing.
    """
    wanted, available = list(dict.fromkeys(names)), names_of(table)
    for name in wanted:
        if name not in available:
            raise ItemsError(
                f"column {name!r} is missing; the table has {', '.join(map(repr, available))}"
            )
    if isinstance(table, pd.DataFrame):
        return table[wanted]
    frame: pd.DataFrame = table.select(wanted).to_pandas()
    return frame.reset_index(drop=True)


def numbers_of(frame: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """A column as float64; missing values are NaN."""
    return frame[name].to_numpy(dtype=float, na_value=np.nan)
