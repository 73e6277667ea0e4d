"""soc_pymc: honest posteriors from any model's point scores.

A model gives every item a score t, and we saw a noisy outcome: a count y ~ Poisson(theta N) with
known exposure N, a value y ~ Normal(theta, s^2) with known noise sd s, or successes
y ~ Binomial(n, theta) in n trials. Calibration estimates E(theta | t); *second order calibration*
(Muralidharan and Najmi) estimates the distribution of theta given t, and so E and Var(theta | t)
and the posterior of every item's theta given t and y. Here one hierarchical model does this for all
scores together, so that the curves and all posteriors include their uncertainty.

    items -> statistics -> model -> fit -> curves -> posteriors -> checks -> plots

>>> import soc_pymc as soc
>>> table = soc.simulation.s1(2000, seed=0)                       # a pandas table of items
>>> items = soc.PoissonItems(table, score="score", count="count", exposure="exposure")
>>> stats = soc.summarize(items)                                  # one pass over the items
>>> fit = soc.fit(stats, progress=False)                          # the fit never sees an item
>>> curves = soc.calibration_curves(fit)                          # draws of E and Var(theta | t)
>>> posteriors = soc.item_posteriors(fit, items, progress=False)  # the table, with columns added
>>> result = soc.check(fit, items, progress=False)                # does the model fit the counts?

If the check fails, try a richer prior, and compare by leave-one-out:

>>> fits = {"Gamma": fit, "mixture": soc.fit(stats, soc.GammaMixture(), progress=False)}
>>> soc.compare(fits, stats, progress=False)["elpd"].shape
(2,)

Public names:

- errors: `SocError`, `ItemsError`, `StatisticsError`, `FitError`, `ItemsWarning`,
  `ConvergenceWarning`
- what to fit and how: `Gamma`, `GammaMixture`, `Normal`, `NormalMixture`, `Beta`, `BetaMixture`,
  `Spline`; `VI`, `NUTS`, `FiveSteps`
- items and statistics: `PoissonItems`, `NormalItems`, `BinomialItems`; `summarize`, `Statistics`,
  `load_statistics`
- the fit: `model`, `prior_predictive`, `fit`, `Fit`, `Status`, `load_fit`
- results: `calibration_curves`, `bands`; `item_posteriors`, `export_prior`,
  `posterior_expression`, `posterior_sql`; `check`, `CheckResult`, `compare`; `drift`, `Drift`;
  `sensitivity`, `Sensitivity`
- for scikit-learn: `SecondOrderCalibrator`, with `fit`, `predict`, `predict_interval`
- one page for a colleague: `report`
- modules: `decisions` (thresholds, ranking, exploration, value of more exposure, totals),
  `evaluate` (held-out exposure, cross-validation), `quantities` (R-squared of the score, what
  outcomes add to it, two scores compared), `simulation` (items whose truth is known), `datasets`
  (published tables), `theory` (posterior moments from a marginal),
  `prior_table` (posteriors from an exported prior, with NumPy alone), `plots`
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from logging import NullHandler, getLogger
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import evaluate, plots, prior_table
    from ._lib.errors import (
        ConvergenceWarning,
        FitError,
        ItemsError,
        ItemsWarning,
        SocError,
        StatisticsError,
    )
    from .checks._check import CheckResult, check
    from .checks._drift import Drift, drift
    from .checks.comparison import compare
    from .data.items import BinomialItems, NormalItems, PoissonItems
    from .data.statistics import Statistics, load_statistics
    from .data.summaries import summarize
    from .evaluate import decisions, quantities
    from .evaluate.power_scaling import Sensitivity, sensitivity
    from .families.priors import (
        Beta,
        BetaMixture,
        Gamma,
        GammaMixture,
        Normal,
        NormalMixture,
        Spline,
    )
    from .front.estimator import SecondOrderCalibrator
    from .inference.fitting import fit
    from .inference.methods import NUTS, VI, FiveSteps
    from .inference.results import Fit, Status, load_fit
    from .model.problem import model
    from .paper import datasets, simulation, theory
    from .posterior.calibration import bands, calibration_curves
    from .posterior.items import item_posteriors
    from .posterior.prior_export import export_prior
    from .posterior.prior_predictive import prior_predictive
    from .posterior.sql import posterior_expression, posterior_sql
    from .report import report

__version__ = "0.1.0"

getLogger(__name__).addHandler(NullHandler())  # silent until the user configures logging

# Loaded when first used, because PyMC, DuckDB and matplotlib take seconds to import.
_HOMES = {
    "_lib.errors": "SocError ItemsError StatisticsError FitError ItemsWarning ConvergenceWarning",
    "families.priors": "Beta BetaMixture Gamma GammaMixture Normal NormalMixture Spline",
    "data.items": "BinomialItems NormalItems PoissonItems",
    "data.statistics": "Statistics load_statistics",
    "data.summaries": "summarize",
    "model.problem": "model",
    "inference.methods": "VI NUTS FiveSteps",
    "inference.fitting": "fit",
    "inference.results": "Fit Status load_fit",
    "posterior.calibration": "calibration_curves bands",
    "posterior.items": "item_posteriors",
    "posterior.prior_export": "export_prior",
    "posterior.prior_predictive": "prior_predictive",
    "posterior.sql": "posterior_expression posterior_sql",
    "checks._check": "check CheckResult",
    "checks._drift": "drift Drift",
    "checks.comparison": "compare",
    "evaluate.power_scaling": "Sensitivity sensitivity",
    "report": "report",
    "front.estimator": "SecondOrderCalibrator",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}
_DOORS = {
    "datasets": "paper.datasets",
    "decisions": "evaluate.decisions",
    "evaluate": "evaluate",
    "plots": "plots",
    "quantities": "evaluate.quantities",
    "simulation": "paper.simulation",
    "theory": "paper.theory",
}
"""Public modules and the rooms behind them."""

__all__ = [
    "NUTS", "VI", "Beta", "BetaMixture", "BinomialItems", "CheckResult", "ConvergenceWarning",
    "Drift", "Fit", "FitError", "FiveSteps", "Gamma", "GammaMixture", "ItemsError", "ItemsWarning",
    "Normal", "NormalItems", "NormalMixture",
    "PoissonItems", "SecondOrderCalibrator", "Sensitivity", "SocError", "Spline", "Statistics",
    "StatisticsError", "Status", "bands", "calibration_curves", "check", "compare", "datasets",
    "decisions", "drift", "evaluate", "export_prior", "fit", "item_posteriors", "load_fit",
    "load_statistics", "model", "plots", "posterior_expression", "posterior_sql",
    "prior_predictive", "prior_table", "quantities", "report", "sensitivity", "simulation",
    "summarize", "theory",
]  # fmt: skip


class _Door:
    """Makes ``import soc_pymc.quantities`` return the module in its room, the same object.

    `importlib.abc`, which has classes for this, would double the time of ``import soc_pymc``.
    """

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package != __name__ or _DOORS.get(name, name) == name:
            return None
        return ModuleSpec(fullname, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(f".{_DOORS[spec.name.rpartition('.')[2]]}", __name__)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state  # it keeps the name of its room


sys.meta_path.append(_Door())


class _Package(ModuleType):
    """The package: a room's module never hides the function of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """By name, as any module: workers are sent functions that refer to the package."""
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package

if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        if name not in _HOME and name not in _DOORS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _DOORS:
            value = import_module(f".{_DOORS[name]}", __name__)
        else:
            value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    special = (name for name in globals() if name.startswith("__"))
    return sorted({*special, *__all__})
