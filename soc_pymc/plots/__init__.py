"""Pictures of fits, checks and evaluations; every function takes optional axes and returns axes.

>>> import soc_pymc as soc
>>> soc.plots.plot_curves.__name__
'plot_curves'
"""

from .accuracy import plot_accuracy, plot_error_ratio, plot_regret
from .bins import plot_bin_choice, plot_bin_spread
from .curves import plot_curves
from .explained import plot_r_squared, plot_score_comparison
from .forest import plot_forest
from .gains import plot_gain_by_bin, plot_variance_gain
from .illustration import plot_calibration_illustration
from .pit import plot_pit
from .pit_histograms import plot_pit_histograms
from .prior import plot_adjusted_prior, plot_prior_ribbon
from .prior_in_bin import plot_prior_in_bin
from .rootogram import plot_rootogram
from .shrinkage import plot_shrinkage
from .smoothing import plot_smoothing

__all__ = [
    "plot_accuracy",
    "plot_adjusted_prior",
    "plot_bin_choice",
    "plot_bin_spread",
    "plot_calibration_illustration",
    "plot_curves",
    "plot_error_ratio",
    "plot_forest",
    "plot_gain_by_bin",
    "plot_pit",
    "plot_pit_histograms",
    "plot_prior_in_bin",
    "plot_prior_ribbon",
    "plot_r_squared",
    "plot_regret",
    "plot_rootogram",
    "plot_score_comparison",
    "plot_shrinkage",
    "plot_smoothing",
    "plot_variance_gain",
]


def __dir__() -> list[str]:
    return sorted(__all__)
