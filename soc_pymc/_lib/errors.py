"""Errors and warnings of the package."""

import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])


class SocError(Exception):
    """Base class of all errors that soc_pymc raises on purpose."""


class ItemsError(SocError, ValueError):
    """A table of items cannot be used."""


class StatisticsError(SocError, ValueError):
    """Statistics cannot be combined, saved or loaded."""


class FitError(SocError, ValueError):
    """A model cannot be built, fitted or evaluated."""


class ItemsWarning(UserWarning):
    """The items can be used, but need attention."""


class ConvergenceWarning(UserWarning):
    """A fit has not converged, or its approximation cannot be trusted; the text says why."""


def warn_user(text: str, category: type[Warning]) -> None:
    """Warn with the location of the user's call, the first line outside this package."""
    warnings.warn(text, category, skip_file_prefixes=(_PACKAGE,))


for _class in (
    SocError,
    ItemsError,
    StatisticsError,
    FitError,
    ItemsWarning,
    ConvergenceWarning,
):
    _class.__module__ = "soc_pymc"  # in tracebacks
