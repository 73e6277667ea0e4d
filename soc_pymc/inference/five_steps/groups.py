"""The same steps "separately for each category": every group's own curves."""

from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ...data.statistics import Statistics
from ...families.monotone import project_monotone
from ...families.priors import CURVES
from ...model.outcomes import outcome_of
from ...model.pilot import Target
from ...model.rows import positions
from ..methods import FiveSteps
from .conjugate import BinFits, Prior, likelihood_of, smoother
from .curves import SmoothCurves
from .newton import maximise

__all__ = ["GroupFits", "fit_groups"]

Floats = NDArray[np.float64]

_FEWEST = 4  # bins that make curves; a group with fewer takes those of all items


@dataclass(frozen=True)
class GroupFits:
    """Curves of groups.

    Attributes
    ----------
    posterior
        Both curves of every group at the knots of the pooled ones.
    own, failed
        Groups that have curves of their own, and bins whose search did not end.
    """

    posterior: xr.Dataset
    own: int
    failed: int


def fit_groups(stats: Statistics, prior: Prior, method: FiveSteps, pooled: BinFits) -> GroupFits:
    """Steps 2 and 3 for every group by itself; one with less than 4 fitted bins is as all items."""
    assert isinstance(pooled.curves, SmoothCurves)
    outcome, knots = outcome_of(stats), pooled.curves.knots
    rows, data = outcome.rows(stats, True, False)
    found = maximise(likelihood_of(stats, data), rows.bin % method.every == 0)
    place = positions(pooled.axes[0], rows), positions(pooled.axes[1], rows)
    monotone = method.monotone or prior.monotone
    target, values, number = outcome.target(data), [], 0
    smooth = smoother(prior, method, pooled.axes)
    for code in range(len(stats.groups)):
        at = np.flatnonzero(rows.group == code)
        own = pooled.curves.values
        if found.fitted[at].sum() >= _FEWEST:
            information = _Part(target, at, found.first, found.second)
            at_own = place[0][at], place[1][at]
            curves = smooth(found.part(at), at_own, rows.n[at], information)
            own, number = curves.at(knots), number + 1
            if monotone:  # between the pooled knots it is another spline
                own = project_monotone(own[0][None], knots[0])[0], own[1]
        values.append(own)
    dims = "mean_knot", "variance_knot"
    kept = {
        f"{name}_of_group": (("chain", "draw", "group", dim), np.array(of)[None, None])
        for name, dim, of in zip(
            CURVES[type(prior).__name__], dims, zip(*values, strict=True), strict=True
        )
    }
    posterior = xr.Dataset(kept, {"group": list(stats.groups)})
    return GroupFits(posterior, number, int(found.failed.sum()))


@dataclass(frozen=True)
class _Part:
    """Expected information of some rows, whose curves are given; the others' do not matter."""

    target: Target
    at: NDArray[np.intp]
    first: Floats
    second: Floats

    def __call__(self, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        # other rows than these may have found no curve: any number will do for them
        whole = np.nan_to_num(self.first), np.nan_to_num(self.second)
        for full, own in zip(whole, (first, second), strict=True):
            full[self.at] = own
        both = self.target.information(*whole)
        return both[0][self.at], both[1][self.at]
