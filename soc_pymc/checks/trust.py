"""Error that a fit's draws leave in a sum over items left out, and what speaks against the draws.

The sum is a smooth function of the empirical distribution of the draws. Its derivative by the
weight of a draw, the draw's influence, gives the variance of the sum (the infinitesimal jackknife):
of all items together, because they share the draws.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from ..inference.results import PARETO_K, Fit, Status
from .leave_one_out import LeaveOneOut
from .results import OK

_FEW, _FEWEST = 100, 10  # effective draws: of which fewer are named, and say nothing of their error
_NEAR = 0.95  # effective share of VI's draws from which they are kept as they are
_FOUR = 4  # draws made for each one kept, where VI resamples them
_SAME = 1e-9  # difference of influences, in their sds, of copies of a draw
_REMEDIES = {
    "fit": "fit.status.reason says what to do, and soc.NUTS() on the same statistics is the "
    "reference",
    "draws": "fit with more draws, soc.VI(draws=4000) or soc.NUTS(draws=)",
    "weights": "look at the items that sway the fit, or compare by soc.evaluate.held_out",
}


@dataclass(frozen=True)
class Trust:
    """Error of a sum over items left out, and what speaks against it."""

    mcse: float  # nats; NaN where it is unknown
    reasons: Mapping[str, str]  # words by kind of remedy

    @property
    def words(self) -> str:
        """The words of the table."""
        return "; ".join(self.reasons.values()) or OK


def judge(loo: LeaveOneOut, fit: Fit, unit: str) -> Trust:
    """Monte Carlo standard error of a sum over items left out, and whether it can be trusted.

    The log weights of draws that VI did not resample add what the weights would change in the sum.
    The error of draws that did not converge is unknown, unless several chains show it.
    """
    doubted, n_effective = loo.k > loo.good_k, _effective(loo.influence, fit.status)
    bias = 0.5 * loo.p_loo / n_effective + float(loo.p[doubted].sum()) + _weights_change(loo, fit)
    mcse = float(np.hypot(np.sqrt(float(loo.influence.var()) / n_effective), bias))
    reasons = status_reasons(fit.status)
    unknown = n_effective < _FEWEST or (bool(reasons) and loo.influence.sizes["chain"] == 1)
    if n_effective < _FEW:
        reasons["draws"] = f"{int(n_effective)} effective draws"
    if number := int(doubted.sum()):
        rows = f"{number:,} {unit if number > 1 else unit.removesuffix('s')}"
        reasons["weights"] = f"{rows} with Pareto k above {loo.good_k:.2f}"
    if unknown:
        return Trust(np.nan, dict([next(iter(reasons.items()))]))  # the others follow
    return Trust(mcse, reasons)


def status_reasons(status: Status) -> dict[str, str]:
    """Words of a fit's status against its draws, by kind of remedy."""
    k = status.pareto_k
    if k is not None and not k <= PARETO_K:
        return {"fit": f"Pareto k {k:.2f} of the fit"}
    return {} if status.converged else {"fit": "not converged"}


def warning_of(trusts: Mapping[str, Trust]) -> str:
    """One warning on all fits that are not ok; empty if all are."""
    doubted = {repr(name): trust for name, trust in trusts.items() if trust.reasons}
    if not doubted:
        return ""
    lost = [name for name, trust in doubted.items() if np.isnan(trust.mcse)]
    unknown = f", and is NaN where that is unknown ({', '.join(lost)})" if lost else ""
    kinds = dict.fromkeys(kind for trust in doubted.values() for kind in trust.reasons)
    return (
        "draws support leave-one-out less than they should: "
        f"{', '.join(f'{name} ({trust.words})' for name, trust in doubted.items())}; elpd has the "
        f"Monte Carlo error mcse{unknown}: {'; '.join(_REMEDIES[kind] for kind in kinds)}"
    )


def _effective(influence: xr.DataArray, status: Status) -> float:
    """Effective number of draws for the sum: copies, chains and importance weights reduce it."""
    from arviz_stats.base import array_stats

    values = influence.transpose("chain", "draw").to_numpy()
    unit = _SAME * (values.std() or 1.0)
    copies = np.unique(np.round(values / unit), return_counts=True)[1].astype(float)
    numbers = [values.size, values.size**2 / float((copies**2).sum())]
    if values.shape[1] >= 4 and np.ptp(values) > 0:
        numbers.append(float(array_stats.ess(values, method="mean")))
    if status.ess_fraction is not None and status.ess_fraction < _NEAR:
        numbers.append(_FOUR * status.ess_fraction * values.size)
    return float(np.nanmin(numbers))


def _weights_change(loo: LeaveOneOut, fit: Fit) -> float:
    """Change of the sum by importance weights, if draws were kept as VI made them."""
    k, share = fit.status.pareto_k, fit.status.ess_fraction
    resampled = k is None or share is None or (share < _NEAR and k <= PARETO_K)
    if resampled or "sample_stats" not in fit.data.children:
        return 0.0
    log_weight = fit.data["sample_stats"].to_dataset().get("log_weight")
    posterior = fit.data["posterior"].to_dataset()
    if log_weight is None or any(posterior.sizes[d] != k for d, k in log_weight.sizes.items()):
        return 0.0
    labelled = log_weight.assign_coords({dim: posterior[dim] for dim in log_weight.dims})
    log_weight, values = xr.align(labelled, loo.influence, join="inner")
    if not values.size or not np.isfinite(log_weight).all():
        return np.inf
    weight = np.exp(log_weight - log_weight.max())
    return float(abs((weight * values).sum() / weight.sum() - values.mean()))
