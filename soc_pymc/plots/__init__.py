"""Pictures of fits, checks and evaluations; every function takes optional axes and returns axes.

An argument that is not as its function says raises `soc.FitError`, before any figure is made.

>>> import soc_pymc as soc
>>> soc.plots.plot_curves.__name__
'plot_curves'
"""

from .accuracy import plot_accuracy, plot_error_ratio, plot_regret
from .bins import plot_bin_choice, plot_bin_spread
from .calibration_display import CalibrationDisplay, plot_calibration
from .checks import plot_pit, plot_pit_histograms, plot_rootogram
from .curves import plot_calibration_illustration, plot_curves, plot_smoothing
from .drift import plot_drift
from .group_effects import plot_group_effects
from .items import plot_forest, plot_shrinkage
from .prior import plot_adjusted_prior, plot_prior_in_bin, plot_prior_ribbon
from .prior_predictive import plot_prior_predictive
from .scores import plot_gain_by_bin, plot_r_squared, plot_score_comparison, plot_variance_gain
from .sensitivity import plot_sensitivity

__all__ = [
    "CalibrationDisplay",
    "plot_accuracy",
    "plot_adjusted_prior",
    "plot_bin_choice",
    "plot_bin_spread",
    "plot_calibration",
    "plot_calibration_illustration",
    "plot_curves",
    "plot_drift",
    "plot_error_ratio",
    "plot_forest",
    "plot_gain_by_bin",
    "plot_group_effects",
    "plot_pit",
    "plot_pit_histograms",
    "plot_prior_in_bin",
    "plot_prior_predictive",
    "plot_prior_ribbon",
    "plot_r_squared",
    "plot_regret",
    "plot_rootogram",
    "plot_score_comparison",
    "plot_sensitivity",
    "plot_shrinkage",
    "plot_smoothing",
    "plot_variance_gain",
]


def __dir__() -> list[str]:
    return sorted(__all__)
