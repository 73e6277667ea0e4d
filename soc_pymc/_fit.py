"""The verb `fit`: one prior, or the simplest of four that predicts well."""

from functools import partial
from typing import Literal

import pymc as pm

from ._lib.arguments import shown
from ._lib.errors import FitError
from .checks.selection import select
from .data.statistics import Statistics
from .families.priors import Prior
from .inference import fitting
from .inference.methods import Method
from .inference.results import Fit

__all__ = ["fit"]


def fit(
    stats: Statistics,
    prior: Prior | Literal["auto"] | None = None,
    method: Method | None = None,
    *,
    start: Fit | None = None,
    model: pm.Model | None = None,
    progress: bool | None = None,
) -> Fit:
    """Fit the hierarchical model to statistics.

    Parameters
    ----------
    stats
        Sufficient statistics, from `summarize`.
    prior
        The prior's configuration; None is ``soc.Gamma()`` for counts, ``soc.Normal()`` for values,
        ``soc.Beta()`` for successes. If the items have groups, one model fits all, with partial
        pooling of each group's deviations from shared curves; ``soc.Gamma(groups=False)`` pools
        them. ``"auto"`` fits the default and one with ``exposure=soc.Spline()``, also as mixtures
        where `check` asks for it, and takes the simplest within two standard errors of the best by
        `compare`: ``fit.selection`` is the table. It needs joint cells (``joint=True`` of
        `summarize`); where priors cannot be compared it takes the default and says why.
    method
        ``soc.VI()`` (default), ``soc.NUTS()``, or ``soc.FiveSteps()``, which fits each bin
        separately and takes neither `start` nor `model`.
    start
        An earlier fit of the same kind of items, at whose curves the search for the mode begins. It
        changes the result only within the tolerance of the search.
    model, progress
        ``soc.model(stats, prior)`` with added parameters, observations or potentials, which the
        fit's ``posterior`` includes; not with ``"auto"`` or `start`. And whether to show progress.

    Returns
    -------
    Fit
        Draws of the curves, with a status that shows whether to trust them.

    Raises
    ------
    FitError
        If the statistics have no items, the model cannot be built from them, `start` is not a fit
        of such items, or arguments exclude each other.

    Warns
    -----
    ConvergenceWarning
        If the fit did not converge; the text gives the evidence and the next step.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.fit(stats, method=soc.VI(seed=1)).status.converged
    True
    """
    fit_prior = partial(fitting.fit, stats, method=method, start=start, progress=progress)
    if not isinstance(prior, str):
        return fit_prior(prior, model=model)
    if prior != "auto":
        raise FitError(
            f"prior={shown(prior)} must be 'auto', or soc.Gamma(...), soc.Normal(...), "
            "soc.Beta(...) or a mixture of one of them"
        )
    if model is not None:
        raise FitError("model= was built with one prior: give that prior, not prior='auto'")
    return select(stats, fit_prior, progress)
