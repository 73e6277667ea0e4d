"""The verb `fit`: one prior, or that which predicts best."""

import warnings
from functools import partial
from typing import TYPE_CHECKING, Literal

from ._lib.arguments import ConvergenceWarning, FitError, shown, warn_user
from ._lib.work import long_work, phase
from .checks.selection import choose
from .data.statistics import Statistics
from .families.priors import Prior
from .fits import Fit, Method
from .inference import fitting

if TYPE_CHECKING:
    import pymc as pm


@long_work
def fit(
    stats: Statistics,
    prior: Prior | Literal["auto"] | None = None,
    method: Method | None = None,
    *,
    model: "pm.Model | None" = None,
    progress: bool | None = None,
) -> Fit:
    """Fit the hierarchical model to statistics.

    Parameters
    ----------
    stats : Statistics
        Sufficient statistics, from `summarize`.
    prior : Gamma, Normal, Beta, InverseGamma, a mixture of them, "auto" or None
        The prior of theta given the score; None is ``soc.Gamma()`` for counts, ``soc.Normal()`` for
        values, ``soc.Beta()`` for successes, ``soc.InverseGamma()`` for amounts. Groups deviate
        from shared curves, with partial pooling; ``soc.Gamma(groups=False)`` pools them. ``"auto"``
        begins with the default, pooled, and adds a term in exposure, a share of zeros, groups that
        the items name, the shape of a mixture, and for at most 100 items constant curves, one after
        another: it fits what a quick estimate gives a chance to gain a nat, and keeps what gains
        one in items left out. ``fit.selection`` is the table. It needs joint cells (``joint=True``
        of `summarize`). Where priors cannot be compared it takes the default and says why.
    method : VI, NUTS, FiveSteps or None
        The method of inference: ``soc.VI()`` (default), ``soc.NUTS()``, or ``soc.FiveSteps()``,
        which fits each bin separately and takes neither groups nor `model`.
    model : pymc.Model or None
        ``soc.model(stats, prior)`` with added parameters, observations or potentials, which the
        fit's ``posterior`` includes; not with ``"auto"``.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    Fit
        Draws of the curves, with a status that shows whether to trust them.

    Raises
    ------
    FitError
        If there are no items, no model can be built of them, or arguments exclude each other.

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
    if not isinstance(stats, Statistics):
        raise FitError(
            f"soc.fit takes statistics, not {type(stats).__name__}: call soc.summarize(items) first"
        )
    fit_prior = partial(fitting.fit_prior, method=method)
    if not isinstance(prior, str):
        return fit_prior(stats, prior, model=model)
    if prior != "auto":
        raise FitError(
            f"prior={shown(prior)} must be 'auto', or soc.Gamma(...), soc.Normal(...), "
            "soc.Beta(...) or a mixture of one of them"
        )
    if model is not None:
        raise FitError(
            "model= was built with one prior: give that prior, not prior='auto'"
        )
    with (
        phase("fit: choosing the prior") as bar,
        warnings.catch_warnings(),
    ):
        # the table has the words
        warnings.simplefilter("ignore", ConvergenceWarning)
        chosen = choose(stats, fit_prior, bar.note)
    if not chosen.status.converged:
        warn_user(chosen.status.reason, ConvergenceWarning)
    return chosen
