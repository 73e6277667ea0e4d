"""Pictures of fits, checks and tables of results; every function takes axes and returns axes.

An argument that is not as its function says raises `soc.FitError`.
"""

from .calibration import CalibrationDisplay, plot_calibration
from .curves import plot_curves, plot_prior, plot_prior_predictive
from .intervals import plot_intervals
from .pit import plot_pit
from .shrinkage import plot_shrinkage

__all__ = [
    "CalibrationDisplay",
    "plot_calibration",
    "plot_curves",
    "plot_intervals",
    "plot_pit",
    "plot_prior",
    "plot_prior_predictive",
    "plot_shrinkage",
]
