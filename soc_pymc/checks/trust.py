"""Whether a fit's draws support leave-one-out, and the error that they leave in its sum.

The sum over items is a smooth function of the empirical distribution of the draws. Its derivative
by the weight of a draw, the draw's influence, gives the variance of the sum (the infinitesimal
jackknife): of all items together, because they share the draws.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from .._lib.arrays import Floats
from ..inference.results import PARETO_K, Status

OK = "ok"
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
class Influence:
    """What draws and single items do to a sum over items left out."""

    draws: xr.DataArray  # of each draw on the sum, in nats, (chain, draw)
    p: float  # effective number of parameters
    doubted: float  # that of items whose weights cannot be trusted
    n_doubted: int  # such items, or cells
    good_k: float  # Pareto k up to which weights can be
    unit: str  # "items" or "cells"


@dataclass(frozen=True)
class Trust:
    """Error of a sum over items left out, and what speaks against it."""

    mcse: float  # nats; NaN where it is unknown
    reasons: tuple[tuple[str, str], ...]  # remedy and words

    @property
    def words(self) -> str:
        """The words of the table."""
        return "; ".join(reason for _, reason in self.reasons) or OK


def judge(found: Influence, status: Status, log_weight: xr.DataArray | None = None) -> Trust:
    """Monte Carlo standard error of a sum over items left out, and whether it can be trusted.

    The `log_weight` of draws that VI did not resample adds what the weights would change in the
    sum. The error of draws that did not converge is unknown, unless several chains show it.
    """
    effective = _effective(found.draws, status)
    variance = float(found.draws.var())
    bias = 0.5 * found.p / effective + found.doubted
    if log_weight is not None and _as_made(status):
        bias += _moved(found.draws, log_weight)
    mcse = float(np.hypot(np.sqrt(variance / effective), bias))
    reasons = [*words_of(status), *_words(found, effective)]
    vouched = found.draws.sizes["chain"] > 1 or not words_of(status)
    if effective < _FEWEST or not vouched:
        mcse = np.nan
        reasons = [each for each in reasons if each[0] == reasons[0][0]]  # the others follow
    return Trust(mcse, tuple(reasons))


def words_of(status: Status) -> list[tuple[str, str]]:
    """What the fit's own status says against its draws."""
    k = status.pareto_k
    if k is not None and not k <= PARETO_K:
        return [("fit", f"Pareto k {k:.2f} of the fit")]
    return [] if status.converged else [("fit", "not converged")]


def _words(found: Influence, effective: float) -> Iterator[tuple[str, str]]:
    if effective < _FEW:
        yield "draws", f"{int(effective)} effective draws"
    if found.n_doubted:
        number = f"{found.n_doubted:,} {found.unit[:-1] if found.n_doubted == 1 else found.unit}"
        yield "weights", f"{number} with Pareto k above {found.good_k:.2f}"


def warning_of(trusts: Mapping[str, Trust]) -> str:
    """One warning on all fits that are not ok; empty if all are."""
    named = {repr(name): own for name, own in trusts.items() if own.reasons}
    if not named:
        return ""
    lost = [name for name, own in named.items() if np.isnan(own.mcse)]
    unknown = f", and is NaN where that is unknown ({', '.join(lost)})" if lost else ""
    kinds = dict.fromkeys(kind for own in named.values() for kind, _ in own.reasons)
    return (
        "draws support leave-one-out less than they should: "
        f"{', '.join(f'{name} ({own.words})' for name, own in named.items())}; elpd has the Monte "
        f"Carlo error mcse{unknown}: {'; '.join(_REMEDIES[kind] for kind in kinds)}"
    )


# --- effective draws -----------------------------------------------------------------------------


def _effective(draws: xr.DataArray, status: Status) -> float:
    """Effective number of draws for the sum: copies, chains and importance weights reduce it."""
    from arviz_stats.base import array_stats

    values = draws.transpose("chain", "draw").to_numpy()
    number = values.size
    found = [*_without_copies(values.ravel())]
    if values.shape[1] >= 4 and np.ptp(values) > 0:
        found.append(float(array_stats.ess(values, method="mean")))
    if status.ess_fraction is not None and status.ess_fraction < _NEAR:
        found.append(_FOUR * status.ess_fraction * number)
    return float(np.nanmin([number, *found]))


def _without_copies(values: Floats) -> Iterator[float]:
    """Effective numbers of draws of which some are copies, in general and for these values."""
    away = np.sort(values - values.mean())
    first = np.concatenate([[True], np.diff(away) > _SAME * values.std()])
    copies = np.diff(np.append(np.flatnonzero(first), len(away))).astype(float)
    yield float(len(away) ** 2 / (copies**2).sum())
    error = float(((copies * away[first]) ** 2).sum()) / len(away) ** 2
    if error > 0:
        yield float(values.var()) / error


def _as_made(status: Status) -> bool:
    """Whether draws were kept as the approximation made them, without resampling."""
    k, share = status.pareto_k, status.ess_fraction
    return k is not None and share is not None and (share >= _NEAR or not k <= PARETO_K)


def _moved(draws: xr.DataArray, log_weight: xr.DataArray) -> float:
    """What importance weights would change in the sum."""
    own, values = xr.align(log_weight, draws, join="inner")
    if not values.size or not np.isfinite(own).all():
        return np.inf
    weight = np.exp(own - own.max())
    return float(abs((weight * values).sum() / weight.sum() - values.mean()))
