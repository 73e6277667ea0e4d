"""Nats of log likelihood that each remedy would gain, by which the advice is ordered.

A grouping gains what the best shifts of both curves add to the log density of each of its levels,
about the average curves of the fit. A richer shape gains what a mixture of shifted curves adds to
the density of the fit. Both approximate what `soc.compare` finds after the fit.
"""

from itertools import product

import numpy as np

from .._lib.arrays import Floats, Ints
from ..families.family import family_of
from ..families.scales import LINEAR
from ..inference.results import Fit
from ..posterior.curves import average_curves
from ..posterior.predictive import posterior_of
from .batches import thin
from .observations import Observations

_ROWS = 20_000  # of more, a random subset is looked at
_SIZES = 0.02 * 1.5 ** np.arange(14)  # of shifts, in sds of theta and of the second curve
_DRAWS = 8  # of a fit on a grid, whose density is no closed form of the average curves
_PLACES = (-2.0, -1.0, 0.0, 1.0, 2.0)  # of components, in sds of theta
_SPREADS = (-3.0, -1.0, -0.5, 0.0, 1.0)  # logarithms of their variances over that of theta
_RISES = (0.0, 0.3)  # of theta that is not 0, in sds
_ROUNDS = 30  # of the EM algorithm
_SURE = 3.0  # sds of a gain by chance, which gains have to exceed


class Gains:
    """Gains of remedies in nats, of all items; 0 where chance explains them.

    Attributes
    ----------
    items
        The rows that were looked at.
    overall
        Gain from one shift of both curves for all items.
    """

    def __init__(self, fit: Fit, items: Observations, rng: np.random.Generator) -> None:
        self.items = items.rows(items.sample(_ROWS, rng))
        self._scale = float(items.n.sum() / self.items.n.sum())
        posterior, family, columns = posterior_of(fit), family_of(fit.prior), self.items.columns
        y, size = (columns[name] for name in (posterior.outcome.observed, posterior.outcome.size))
        groups = columns.get("group") if fit.groups else None
        sizes = size if fit.prior.exposure is not None else None
        curves = average_curves(fit, columns["score"], groups, sizes)
        first, second = (np.reshape(curve, (1, -1)) for curve in curves)
        if "spread" in columns:
            first, second = family.widened(first, second, columns["spread"])
        linear = posterior.outcome.theta is LINEAR
        self._sd = np.exp(second / 2) if linear else np.sqrt(np.log1p(np.exp(second)))

        def density(place: float, spread: float) -> Floats:
            shifted = first + place * self._sd, second + spread
            return np.asarray(family.log_density(y, size, *shifted))[0]

        self._density, self._base = density, density(0.0, 0.0)
        # log densities at shifts of one curve over those without: the least ones come first
        shifts = np.outer(_SIZES, [1.0, -1.0]).ravel()
        self._shifted = [
            np.stack([density(*pair) - self._base for pair in pairs])
            for pairs in ([(shift, 0.0) for shift in shifts], [(0.0, shift) for shift in shifts])
        ]
        if fit.prior.gridded:
            self._base = posterior_of(thin(fit, _DRAWS)).log_density(columns).mean(axis=0)
        self._zero = posterior.outcome.forms.log_likelihood(y, size, np.zeros(len(y)))
        self._all = self._best(np.zeros(len(y), dtype=np.int64))
        self.overall = self._certain(self._all, 2)

    def by(self, code: Ints) -> float:
        """Gain from shifts for each level of a grouping, beyond those that all items share."""
        freedom = 2 * (len(np.unique(code)) - 1)
        return self._certain(self._best(code) - self._all, freedom)

    def mixture(self) -> float:
        """Gain from a free shape of theta."""
        shifted = [self._density(*pair) for pair in product(_PLACES, _SPREADS)]
        return self._certain(self._mixed(shifted), 4)

    def zero(self) -> float:
        """Gain from a share of theta that is 0, beside one shift of both curves."""
        rest = (self._density(*pair) for pair in product(_RISES, _SPREADS))
        return self._certain(max(self._mixed([self._zero], base) for base in rest), 3)

    def _best(self, code: Ints) -> float:
        """Gain from the best shift of each curve for each level."""
        n, total = self.items.n, 0.0
        items = np.maximum(np.bincount(code, n), 1)
        for shifted in self._shifted:
            by_level = np.stack([np.bincount(code, n * gain) for gain in shifted])
            slope = (shifted[0] - shifted[1]) / (2 * _SIZES[0])
            bend = -float(n @ (shifted[0] + shifted[1])) / _SIZES[0] ** 2
            # under a wrong shape scores vary by more than their curvature says
            square = float(n @ slope**2 - np.bincount(code, n * slope) ** 2 @ (1 / items))
            excess = max(1.0, square / bend) if bend > 0 else 1.0
            total += float(np.maximum(by_level.max(axis=0), 0.0).sum()) / excess
        return total

    def _mixed(self, components: list[Floats], base: Floats | None = None) -> float:
        """Gain from the best mixture of densities with a base, of the fit, by the EM algorithm."""
        every = np.stack([self._base if base is None else base, *components])
        n, ratio = self.items.n, np.exp(np.clip(every - self._base, -700.0, 50.0))
        weight = np.full(len(ratio), 0.1 / len(ratio))
        weight[0] += 0.9
        for _ in range(_ROUNDS):
            weight *= ratio @ (n / (weight @ ratio)) / n.sum()
        return float(n @ np.log(weight @ ratio))

    def _certain(self, gain: float, freedom: int) -> float:
        beyond = gain - freedom / 2
        return self._scale * beyond if beyond > _SURE * np.sqrt(freedom / 2) + 1 else 0.0
