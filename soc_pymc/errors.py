"""Every error and warning of the package, in one place.

Texts name the thing (column, file, bin), say how many rows are wrong, and what to do.
"""

__all__ = [
    "ConvergenceWarning",
    "FitError",
    "ItemsError",
    "ItemsWarning",
    "SocError",
    "StatisticsError",
]


class SocError(Exception):
    """Base of all errors raised on purpose by soc_pymc."""


class ItemsError(SocError, ValueError):
    """A table of items cannot be used as it is."""


class StatisticsError(SocError, ValueError):
    """Statistics cannot be combined, saved or loaded as asked."""


class FitError(SocError, ValueError):
    """A model cannot be built, fitted or evaluated as asked."""


class ItemsWarning(UserWarning):
    """The items can be used, but not quite as asked."""


class ConvergenceWarning(UserWarning):
    """A fit has not converged, or its approximation is not to be trusted; the text says why."""
