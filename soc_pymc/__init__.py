"""soc_pymc: honest posteriors from any model's point scores.

A model gives every item a score t, and we saw a noisy outcome: a count y ~ Poisson(theta N) with
known exposure N, or a value y ~ Normal(theta, s^2) with known noise sd s. Calibration estimates
E(theta | t); *second order calibration* (Muralidharan and Najmi) estimates the distribution of
theta given t, and so E and Var(theta | t) and the posterior of every item's theta given t and y.
Here one hierarchical model does it for all scores at once, so that the curves and every posterior
carry their own uncertainty.

    items -> statistics -> model -> fit -> curves -> posteriors -> checks -> plots

>>> import soc_pymc as soc
>>> table = soc.simulation.s1(2000, seed=0)                       # a pandas table of items
>>> items = soc.PoissonItems(table, score="score", count="count", exposure="exposure")
>>> stats = soc.summarize(items)                                  # one pass over the items
>>> fit = soc.fit(stats, progress=False)                          # the fit never sees an item
>>> curves = soc.calibration_curves(fit)                          # draws of E and Var(theta | t)
>>> posteriors = soc.item_posteriors(fit, items, progress=False)  # the table, with columns added
>>> result = soc.check(fit, items, progress=False)                # does the model fit the counts?

Where the check finds fault, the prior has more to give, and leave-one-out says what it gains:

>>> stats = soc.summarize(items, joint=True)                      # cells of count and exposure
>>> fits = {"Gamma": fit, "mixture": soc.fit(stats, soc.GammaMixture(), progress=False)}
>>> soc.compare(fits, stats, progress=False)["elpd"].shape
(2,)

Names by floor (each uses only those above it):

- errors: `SocError`, `ItemsError`, `StatisticsError`, `FitError`, `ItemsWarning`,
  `ConvergenceWarning`
- what to fit and how: `Gamma`, `GammaMixture`, `Normal`, `NormalMixture`, `Spline`; `VI`, `NUTS`,
  `FiveSteps`
- items and statistics: `PoissonItems`, `NormalItems`; `summarize`, `Statistics`, `load_statistics`
- the fit: `model`, `fit`, `Fit`, `Status`, `load_fit`
- what it says: `calibration_curves`, `bands`; `item_posteriors`,
  `posterior_expression`, `posterior_sql`; `check`, `CheckResult`, `compare`
- for scikit-learn: `SecondOrderCalibrator`, with `fit`, `predict`, `predict_interval`
- one page for a colleague: `report`
- modules: `decisions` (thresholds, ranking, exploration, value of more exposure), `evaluate`
  (held-out exposure, cross-validation), `quantities` (R-squared of the score, what outcomes add to
  it, two scores compared), `simulation` (items whose truth is known), `datasets` (items of
  examples, real where they are found), `theory` (posterior moments from a marginal alone), `plots`
"""

from importlib import import_module
from logging import NullHandler, getLogger
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import datasets, decisions, evaluate, plots, quantities, simulation, theory
    from .calibration import bands, calibration_curves
    from .checks._check import CheckResult, check
    from .comparison import compare
    from .errors import (
        ConvergenceWarning,
        FitError,
        ItemsError,
        ItemsWarning,
        SocError,
        StatisticsError,
    )
    from .estimator import SecondOrderCalibrator
    from .inference import fit
    from .items import NormalItems, PoissonItems
    from .methods import NUTS, VI, FiveSteps
    from .models import model
    from .posteriors import item_posteriors
    from .priors import Gamma, GammaMixture, Normal, NormalMixture, Spline
    from .reports import report
    from .results import Fit, Status, load_fit
    from .statistics import Statistics, load_statistics
    from .summaries import summarize
    from .warehouse import posterior_expression, posterior_sql

__version__ = "0.1.0"

getLogger(__name__).addHandler(NullHandler())  # silent until the user's program listens

# Loaded when first used: PyMC, DuckDB and matplotlib cost seconds that scoring need not pay.
_HOME = {
    **dict.fromkeys(
        [
            "SocError",
            "ItemsError",
            "StatisticsError",
            "FitError",
            "ItemsWarning",
            "ConvergenceWarning",
        ],
        "errors",
    ),
    **dict.fromkeys(["Gamma", "GammaMixture", "Normal", "NormalMixture", "Spline"], "priors"),
    **dict.fromkeys(["VI", "NUTS", "FiveSteps"], "methods"),
    **dict.fromkeys(["NormalItems", "PoissonItems"], "items"),
    **dict.fromkeys(["Statistics", "load_statistics"], "statistics"),
    "summarize": "summaries",
    "model": "models",
    "fit": "inference",
    **dict.fromkeys(["Fit", "Status", "load_fit"], "results"),
    **dict.fromkeys(["calibration_curves", "bands"], "calibration"),
    "item_posteriors": "posteriors",
    **dict.fromkeys(["posterior_expression", "posterior_sql"], "warehouse"),
    **dict.fromkeys(["check", "CheckResult"], "checks._check"),
    "compare": "comparison",
    "SecondOrderCalibrator": "estimator",
    "report": "reports",
}
_MODULES = (
    "datasets",
    "decisions",
    "evaluate",
    "plots",
    "quantities",
    "simulation",
    "theory",
)

__all__ = [
    "NUTS",
    "VI",
    "CheckResult",
    "ConvergenceWarning",
    "Fit",
    "FitError",
    "FiveSteps",
    "Gamma",
    "GammaMixture",
    "ItemsError",
    "ItemsWarning",
    "Normal",
    "NormalItems",
    "NormalMixture",
    "PoissonItems",
    "SecondOrderCalibrator",
    "SocError",
    "Spline",
    "Statistics",
    "StatisticsError",
    "Status",
    "bands",
    "calibration_curves",
    "check",
    "compare",
    "datasets",
    "decisions",
    "evaluate",
    "fit",
    "item_posteriors",
    "load_fit",
    "load_statistics",
    "model",
    "plots",
    "posterior_expression",
    "posterior_sql",
    "quantities",
    "report",
    "simulation",
    "summarize",
    "theory",
]


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f".{name}", __name__)
        if name in _HOME:
            value = getattr(import_module(f".{_HOME[name]}", __name__), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    special = (name for name in globals() if name.startswith("__"))
    return sorted({*special, *__all__})
