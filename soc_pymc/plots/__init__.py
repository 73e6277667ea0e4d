"""Pictures of fits, checks and tables of results; every function takes axes and returns axes.

An argument that is not as its function says raises `soc.FitError`.
"""

from .curves import plot_curves, plot_prior, plot_prior_predictive
from .items import (
    CalibrationDisplay,
    plot_calibration,
    plot_intervals,
    plot_outliers,
    plot_pit,
    plot_shrinkage,
)

__all__ = [
    "CalibrationDisplay",
    "plot_calibration",
    "plot_curves",
    "plot_intervals",
    "plot_outliers",
    "plot_pit",
    "plot_prior",
    "plot_prior_predictive",
    "plot_shrinkage",
]
