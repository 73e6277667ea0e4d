"""Every error and warning of the package, in one place.

Texts name the thing (column, file, bin), say how many rows are wrong, and what to do.
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
    """Base of all errors raised on purpose by soc_pymc.

    Examples
    --------
    >>> try:
    ...     raise StatisticsError("bins=0 must be at least 1")
    ... except SocError as error:
    ...     print(error)
    bins=0 must be at least 1
    """


class ItemsError(SocError, ValueError):
    """A table of items cannot be used as it is.

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
    """Statistics cannot be combined, saved or loaded as asked.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.load_statistics("not there.nc")
    Traceback (most recent call last):
    soc_pymc.StatisticsError: not there.nc: there is no such file
    """


class FitError(SocError, ValueError):
    """A model cannot be built, fitted or evaluated as asked.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.Spline(knots=0)
    Traceback (most recent call last):
    soc_pymc.FitError: knots=0 must be a whole number from 1 to 10,000
    """


class ItemsWarning(UserWarning):
    """The items can be used, but not quite as asked.

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
    """A fit has not converged, or its approximation is not to be trusted; the text says why.

    Examples
    --------
    A program that must not go on with a fit that has not converged makes an error of it:

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", ConvergenceWarning)
    ...     warnings.warn("Pareto k 0.9 is above 0.7", ConvergenceWarning)
    Traceback (most recent call last):
    soc_pymc.ConvergenceWarning: Pareto k 0.9 is above 0.7
    """


def warn_user(text: str, category: type[Warning]) -> None:
    """Warn, pointing at the user's own line: the first one outside this package."""
    warnings.warn(text, category, skip_file_prefixes=(_PACKAGE,))


for _name in __all__[:-1]:  # tracebacks show the public name, soc_pymc.FitError
    globals()[_name].__module__ = "soc_pymc"
