"""Errors and warnings of the package.

Messages name the column, file or bin, the number of bad rows, and the remedy.
"""

import warnings
from pathlib import Path

__all__ = [
    "ConvergenceWarning",
    "FitError",
    "ItemsError",
    "ItemsWarning",
    "SocError",
    "StatisticsError",
    "warn_user",
]

_PACKAGE = str(Path(__file__).parents[1])


class SocError(Exception):
    """Base class of all errors that soc_pymc raises on purpose.

    Examples
    --------
    >>> try:
    ...     raise StatisticsError("bins=0 must be at least 1")
    ... except SocError as error:
    ...     print(error)
    bins=0 must be at least 1
    """


class ItemsError(SocError, ValueError):
    """A table of items cannot be used.

    Examples
    --------
    >>> import pandas as pd
    >>> import soc_pymc as soc
    >>> frame = pd.DataFrame({"t": [0.1, 0.2], "y": [0, -1], "N": [9, 8]})
    >>> items = soc.PoissonItems(frame, score="t", count="y", exposure="N")
    >>> soc.summarize(items, progress=False)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    soc_pymc.ItemsError: column 'y': ...
    """


class StatisticsError(SocError, ValueError):
    """Statistics cannot be combined, saved or loaded.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.load_statistics("not there.nc")
    Traceback (most recent call last):
    soc_pymc.StatisticsError: not there.nc: there is no such file
    """


class FitError(SocError, ValueError):
    """A model cannot be built, fitted or evaluated.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.Spline(knots=0)
    Traceback (most recent call last):
    soc_pymc.FitError: knots=0 must be a whole number from 1 to 10,000
    """


class ItemsWarning(UserWarning):
    """The items can be used, but need attention.

    Examples
    --------
    >>> import warnings
    >>> import pandas as pd
    >>> import soc_pymc as soc
    >>> frame = pd.DataFrame({"t": [0.1, 0.2], "y": [0, 1], "N": [9, 8]})
    >>> items = soc.PoissonItems(frame, score="t", count="y", exposure="N")
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     stats = soc.summarize(items, progress=False)
    >>> any(issubclass(warning.category, soc.ItemsWarning) for warning in caught)  # 2 bins of 20
    True
    """


class ConvergenceWarning(UserWarning):
    """A fit has not converged, or its approximation cannot be trusted; the text says why.

    Examples
    --------
    Turn the warning into an error to stop at a fit that has not converged:

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", ConvergenceWarning)
    ...     warnings.warn("Pareto k 0.9 is above 0.7", ConvergenceWarning)
    Traceback (most recent call last):
    soc_pymc.ConvergenceWarning: Pareto k 0.9 is above 0.7
    """


def warn_user(text: str, category: type[Warning]) -> None:
    """Warn with the location of the user's call, the first line outside this package."""
    warnings.warn(text, category, skip_file_prefixes=(_PACKAGE,))


for _name in __all__[:-1]:  # tracebacks show the public name, soc_pymc.FitError
    globals()[_name].__module__ = "soc_pymc"
