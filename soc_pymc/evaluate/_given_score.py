"""What a fit says of theta at items' scores before their outcomes are known."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..inference.results import Fit
from ..posterior.predictive import items_at_once, posterior_of
from ..posterior.quadrature import is_plain

__all__ = ["given_score"]

Floats = NDArray[np.float64]

_GRID = 2000  # scores at which draws of curves are evaluated; they are smooth between them


def given_score(fit: Fit, columns: Mapping[str, NDArray[np.generic]]) -> tuple[Floats, Floats]:
    """Fitted E(theta|t) and Var(theta|t) of items by role, averaged over the draws, each (n,).

    Many draws of curves that depend on the score alone are evaluated on a grid and joined by lines.
    """
    law = posterior_of(fit)
    score = np.asarray(columns["score"], dtype=float)
    step = items_at_once(fit)
    if is_plain(fit) and len(score) > step:
        axis = fit.axis("mean")
        position = axis(score)
        quantiles = np.quantile(position, np.linspace(0, 1, _GRID))
        even = np.linspace(position.min(), position.max(), _GRID // 4)
        grid = np.unique(np.concatenate([quantiles, even]))
        curves = law.curves(axis.inverse(grid))
        mean, variance = (curves[c].mean(axis=0) for c in ("mean", "variance"))
        if law.outcome.whole:
            mean = np.exp(np.interp(position, grid, np.log(mean)))
        else:
            mean = np.interp(position, grid, mean)
        return mean, np.exp(np.interp(position, grid, np.log(variance)))
    size = np.asarray(columns[law.outcome.size], dtype=float)
    group = columns.get("group")
    found = np.empty((2, len(score)))
    for start in range(0, len(score), step):
        at = slice(start, start + step)
        own = None if group is None else np.asarray(group[at], dtype=object)
        curves = law.curves(score[at], own, size[at])
        found[:, at] = [curves[c].mean(axis=0) for c in ("mean", "variance")]
    return found[0], found[1]
