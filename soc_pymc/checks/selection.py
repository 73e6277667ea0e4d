"""The choice of a prior: the simplest that predicts well, of those that the data ask for."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from .._lib.errors import ConvergenceWarning, FitError, SocError, warn_user
from .._lib.progress import phase
from .._model.rows import CLASS
from ..data.statistics import Statistics, refuse_weights
from ..families.family import family_of
from ..families.priors import Prior, Spline
from ..families.row_sums import MEAN_ONLY
from ..inference.results import Fit
from ._check import check
from .advice import as_code
from .comparison import LeaveOneOut, elpd_table, left_out, warn_of_clusters
from .results import FAIL

_FEW = 0.01  # share of cells with a large Pareto k, beyond which leave-one-out is not trusted
_NEAR = 2.0  # standard errors below the best
_NUMBERS = ["elpd", "elpd_diff", "dse"]
_COLUMNS = ["prior", *_NUMBERS, "trust", "chosen", "reason"]

FitPrior = Callable[[Prior | None], Fit]


@dataclass
class _Candidate:
    """A prior that was fitted, with every item left out in turn if that is possible."""

    fit: Fit
    loo: LeaveOneOut | None
    trust: str

    @property
    def is_trusted(self) -> bool:
        """True if leave-one-out is finite, and unsure of a few cells at most."""
        if self.loo is None or not np.isfinite(self.loo.by_row).all():
            return False
        return self.loo.doubtful <= _FEW * len(self.loo.n)


def select(stats: Statistics, fit_prior: FitPrior, progress: bool | None = None) -> Fit:
    """Fit the priors that the data ask for; return the simplest of those that predict best."""
    with phase("fit: choosing the prior", enabled=progress) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the table has the words

        def candidate(prior: Prior) -> _Candidate:
            bar.note(as_code(prior))
            return _left_out(fit_prior(prior), stats)

        plain = fit_prior(None)
        name = as_code(plain.prior)
        candidates = {name: _Candidate(plain, None, "")}
        try:
            _check_comparable(plain, stats)
            candidates[name] = _left_out(plain, stats)
            table = _fit_and_compare(candidates, stats, candidate)
        except SocError as error:
            table = _table({name: candidates[name]}).assign(reason=f"not compared: {error}")
    chosen = candidates[str(table["chosen"].idxmax())].fit
    if not chosen.status.converged:
        warn_user(chosen.status.reason, ConvergenceWarning)
    return replace(chosen, selection=table.rename_axis("prior").reset_index()[_COLUMNS])


def _check_comparable(plain: Fit, stats: Statistics) -> None:
    """Refuse items that cannot be left out in turn."""
    if plain.one_draw:
        raise FitError("one draw of the curves, as from soc.FiveSteps(), cannot leave items out")
    if plain.mean_only:
        raise FitError(MEAN_ONLY)
    refuse_weights(stats, "a comparison of priors")
    stats.cells("joint")  # says what to do where there are none
    warn_of_clusters({"": plain}, stats, "standard errors of fit.selection")


def _left_out(fit: Fit, stats: Statistics) -> _Candidate:
    name = as_code(fit.prior)
    return _Candidate(fit, *left_out(name, fit, stats, subset=0, seed=0, progress=False))


def _fit_and_compare(
    candidates: dict[str, _Candidate], stats: Statistics, candidate: Callable[[Prior], _Candidate]
) -> pd.DataFrame:
    """Add the term in exposure, and mixtures if the check asks for them; compare all."""
    [plain] = candidates.values()
    family = family_of(plain.fit.prior)
    sizes = stats.cells("joint")[family.rows.size_cell] >> CLASS
    terms: list[dict[str, Spline]] = [{}, {"exposure": Spline()}][: 2 if np.ptp(sizes) else 1]
    for prior in (family.prior(**term) for term in terms[1:]):
        candidates[as_code(prior)] = candidate(prior)
    table = _table(candidates)
    simple = str(table["chosen"].idxmax())
    mixtures = {as_code(prior): prior for prior in (family.mixture(**term) for term in terms)}
    reason = f"not fitted: the check of {simple} asks for no mixture"
    if _asks_for_mixture(candidates[simple].fit, stats):
        reason = f"not fitted: without a mixture, {simple} is preferred"
        number = 1 + list(candidates).index(simple)  # the term in exposure if it pays
        candidates |= {code: candidate(mixtures.pop(code)) for code in list(mixtures)[:number]}
        table = _table(candidates)
    unfitted = pd.DataFrame({"trust": "", "chosen": False, "reason": reason}, list(mixtures))
    return pd.concat([table, unfitted]) if mixtures else table


def _asks_for_mixture(fit: Fit, stats: Statistics) -> bool:
    """True if the check fails, or its advice is a mixture."""
    result = check(fit, stats, progress=False)
    code = f"soc.{family_of(fit.prior).mixture.__name__}("
    return FAIL in set(result.table["verdict"]) or any(code in line for line in result.advice)


def _table(candidates: Mapping[str, _Candidate]) -> pd.DataFrame:
    """Leave-one-out of the candidates, the simplest first, and which of them is chosen."""
    trusted = {name: c.loo for name, c in candidates.items() if c.loo and c.is_trusted}
    table = elpd_table(trusted).reindex(list(candidates))
    table["elpd"] = [c.loo.elpd if c.loo else np.nan for c in candidates.values()]
    table["trust"] = [c.trust for c in candidates.values()]
    near = table["elpd_diff"] >= -_NEAR * table["dse"]
    chosen = table.index == near.idxmax()  # the first, which is the plain prior if none is near
    reason = pd.Series("more than 2 dse below the best", table.index)
    reason[near] = "within 2 dse of the best, but less simple"
    reason[table["elpd_diff"].isna()] = "leave-one-out is not to be trusted"
    reason[chosen & near] = "the simplest within 2 dse of the best"
    return table.assign(chosen=chosen, reason=reason)
