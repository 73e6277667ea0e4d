"""The verb `fit`: one prior, or the simplest of four that predicts well."""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from ._lib.arguments import shown
from ._lib.errors import ConvergenceWarning, FitError, SocError, warn_user
from ._lib.progress import phase
from ._lib.reprs import code_of
from ._lib.threads import one_blas_thread
from ._model.pilot import find_pilot
from ._model.rows import sizes_vary
from .checks._check import Checks
from .checks.comparison import elpd_table, left_out, warn_of_clusters
from .checks.findings import FAIL, OK
from .data.statistics import Statistics, refuse_weights
from .families import family_of
from .families.priors import Prior, Spline
from .families.rows import MEAN_ONLY
from .fits.fit import Fit, Method
from .inference import fitting

if TYPE_CHECKING:
    import pymc as pm

# share of cells with a large Pareto k, beyond which leave-one-out is not trusted
_FEW = 0.01
_NEAR = 2.0  # standard errors below the best
# nats that a term must be expected to gain, or it would not be preferred
_WORTH = 1.0
_NOT_OF_SHAPE = {"noise", "clusters"}  # what no shape of theta can mend
_COLUMNS = ["prior", "elpd", "elpd_diff", "dse", "trust", "chosen", "reason"]


@one_blas_thread
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
    prior : Gamma, Normal, Beta, a mixture of them, "auto" or None
        The prior of theta given the score; None is ``soc.Gamma()`` for counts, ``soc.Normal()`` for
        values, ``soc.Beta()`` for successes. Groups of items deviate from shared curves, with
        partial pooling; ``soc.Gamma(groups=False)`` pools them. ``"auto"`` fits the default, one
        with ``exposure=soc.Spline()`` unless that gains next to nothing at the mode, and mixtures
        where `check` asks for them, and takes the simplest within two standard errors of the best
        by `compare`: ``fit.selection`` is the table. It needs joint cells (``joint=True`` of
        `summarize`). Where priors cannot be compared it takes the default and says why.
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
    fit_prior = partial(fitting.fit_prior, stats, method=method, progress=progress)
    if not isinstance(prior, str):
        return fit_prior(prior, model=model)
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
        phase("fit: choosing the prior", enabled=progress) as bar,
        warnings.catch_warnings(),
    ):
        # the table has the words
        warnings.simplefilter("ignore", ConvergenceWarning)
        chosen = _choose(stats, fit_prior, bar.note)
    if not chosen.status.converged:
        warn_user(chosen.status.reason, ConvergenceWarning)
    return chosen


def _choose(
    stats: Statistics,
    fit_prior: Callable[[Prior | None], Fit],
    note: Callable[[str], None],
) -> Fit:
    """Fit the priors that the data ask for; return the simplest of those that predict best."""
    plain = fit_prior(None)
    code = code_of(plain.prior)
    fits: dict[str, Fit] = {code: plain}
    results: dict[str, tuple[Any, str]] = {code: (None, "")}

    def add(prior: Prior) -> None:
        name = code_of(prior)
        note(name)
        fits[name] = plain if name == code else fit_prior(prior)
        results[name] = left_out(
            name, fits[name], stats, subset=0, seed=0, progress=False
        )

    try:
        if plain.one_draw:
            raise FitError(
                "one draw of the curves, as of soc.FiveSteps(), cannot leave items out"
            )
        if plain.mean_only:
            raise FitError(MEAN_ONLY)
        refuse_weights(stats, "a comparison of priors")
        stats.cells("joint")  # says what to do where there are none
        warn_of_clusters({"": plain}, stats, "standard errors of fit.selection")
        add(plain.prior)
        table = _compare(fits, results, stats, add)
    except SocError as error:
        table = _selection_table({code: results[code]}).assign(
            reason=f"not compared: {error}"
        )
    chosen = fits[str(table["chosen"].idxmax())]
    return chosen.selected_by(table.rename_axis("prior").reset_index()[_COLUMNS])


def _compare(
    fits: Mapping[str, Fit],
    results: Mapping[str, tuple[Any, str]],
    stats: Statistics,
    add: Any,
) -> pd.DataFrame:
    """Add the term in exposure, and mixtures if the check asks for them; compare all."""
    [plain] = fits.values()
    family = family_of(plain.prior)
    terms: list[dict[str, Spline]] = [{}]
    unfitted = []
    if sizes_vary(stats, family):
        terms.append({"exposure": Spline()})
        prior = family.prior(exposure=Spline())
        trusted = results[code_of(plain.prior)][1] == OK
        gain = (
            find_pilot(stats, family, prior, False).gain_of("exposure")
            if trusted
            else np.inf
        )
        if gain >= _WORTH:
            add(prior)
        else:
            unfitted.append(
                _not_fitted([code_of(prior)], f"at the mode it gains {gain:.1f} nats")
            )
    table = _selection_table(results)
    simple = str(table["chosen"].idxmax())
    mixtures = {
        code_of(prior): prior for prior in (family.mixture(**term) for term in terms)
    }
    reason = f"the check of {simple} asks for no mixture"
    loo = results[simple][0]
    checks = Checks(fits[simple], stats, subset=1, progress=False, loo=loo)
    result = checks.result()
    failed = (
        set(result.table.loc[result.table["verdict"] == FAIL, "what"]) - _NOT_OF_SHAPE
    )
    if failed or any(isinstance(x.prior, family.mixture) for x in result.remedies):
        reason = f"without a mixture, {simple} is preferred"
        # the term in exposure if it pays
        number = 1 + list(fits).index(simple)
        for code in list(mixtures)[:number]:
            add(mixtures.pop(code))
        table = _selection_table(results)
    if mixtures:
        unfitted.append(_not_fitted(list(mixtures), reason))
    return pd.concat([table, *unfitted])


def _not_fitted(codes: list[str], reason: str) -> pd.DataFrame:
    """Rows of the table for priors that were not tried."""
    columns = {"trust": "", "chosen": False, "reason": f"not fitted: {reason}"}
    return pd.DataFrame(columns, codes)


def _selection_table(results: Mapping[str, tuple[Any, str]]) -> pd.DataFrame:
    """Table of the priors, the simplest first, from what `left_out` says of each."""
    loos = {name: loo for name, (loo, _) in results.items() if loo}
    finite = {name: loo for name, loo in loos.items() if np.isfinite(loo.elpd_i).all()}
    few = {
        name: loo
        for name, loo in finite.items()
        if loo.doubtful <= _FEW * loo.elpd_i.size
    }
    table = elpd_table(few).reindex(list(results))
    table["elpd"] = pd.Series(
        {name: loo.elpd for name, loo in loos.items()}, dtype=float
    )
    table["trust"] = [trust for _, trust in results.values()]
    tied = table["elpd_diff"] >= -_NEAR * table["dse"]
    # the first, which is the plain prior if there is none
    chosen = table.index == tied.idxmax()
    reason = pd.Series("more than 2 dse below the best", table.index)
    reason[tied] = "within 2 dse of the best, but less simple"
    reason[table["elpd_diff"].isna()] = "leave-one-out is not to be trusted"
    reason[chosen & tied] = "the simplest within 2 dse of the best"
    return table.assign(chosen=chosen, reason=reason)
