"""Pictures of fits and checks; every function takes optional axes and returns axes.

>>> import soc_pymc as soc
>>> soc.plots.plot_curves.__name__
'plot_curves'
"""

from .curves import plot_curves, plot_prior_ribbon
from .pit import plot_pit
from .shrinkage import plot_shrinkage

__all__ = ["plot_curves", "plot_pit", "plot_prior_ribbon", "plot_shrinkage"]
