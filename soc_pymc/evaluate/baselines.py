"""First-order calibration: E(theta | t) by well-known methods, without a distribution of theta.

Counts are fitted by the Poisson likelihood of count | rate x exposure, values by least squares with
weights 1 / noise_sd^2. Items of one score are one observation, with no loss.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from .._lib.arrays import Floats
from .._lib.errors import ItemsError
from ..families.outcomes import Outcome
from ..families.scales import LINEAR, LOG

Predict = Callable[[Floats], Floats]

_KNOTS = 6  # knots of the spline, at weighted quantiles of the scores
_RIDGE = 0.01  # precision of the spline's coefficients, so that they exist without events too


class _Cells(NamedTuple):
    """Items of one score added up, by rising score: its position, their weight and mean outcome.

    The weight of counts is their exposure, that of values 1 / noise_sd^2.
    """

    position: Floats
    weight: Floats
    mean: Floats
    outcome: Outcome

    def average(self, start: int = 0, end: int | None = None) -> float:
        """Weighted mean of outcomes, kept from rates of 0, and of 1 for successes in trials."""
        weight, mean = self.weight[start:end], self.mean[start:end]
        return self.outcome.forms.pooled_rate(float(weight @ mean), float(weight.sum()))


def fit_baselines(frame: pd.DataFrame, outcome: Outcome) -> dict[str, Predict]:
    """Maps from scores to E(theta | t), of a table with the columns score, outcome and size."""
    columns = ("score", outcome.observed, outcome.size)
    score, y, size = (frame[name].to_numpy(dtype=float) for name in columns)
    weight, total = outcome.forms.weighted(y, size)
    if not (weight > 0).any():
        raise ItemsError(f"all {len(frame):,} exposures are 0: nothing can be calibrated")
    scale = outcome.theta if outcome.theta.holds(score).all() else LINEAR
    distinct, place = np.unique(score[weight > 0], return_inverse=True)
    weight, total = (np.bincount(place, x[weight > 0]) for x in (weight, total))
    cells = _Cells(scale.position(distinct), weight, total / weight, outcome)

    def of_scores(predict: Predict) -> Predict:
        return lambda score: predict(scale.position(score))

    return {name: of_scores(fit(cells)) for name, fit in _FITS.items()}


def _constant(cells: _Cells) -> Predict:
    average = cells.average()
    return lambda position: np.full(len(position), average)


def _isotonic(cells: _Cells) -> Predict:
    fitted = isotonic_regression(cells.mean, weights=cells.weight)
    rate, low_end, high_end = fitted.x.copy(), int(fitted.blocks[1]), int(fitted.blocks[-2])
    # only the lowest stretch can be without events, and the highest without failures
    low, high = cells.average(0, low_end), cells.average(high_end)
    rate[:low_end] = np.min([low, *rate[low_end : low_end + 1]])
    rate[high_end:] = np.max([high, *rate[max(high_end - 1, 0) : high_end]])
    return lambda position: np.interp(position, cells.position, rate)


def _platt(cells: _Cells) -> Predict:
    return _regression(cells, np.unique(cells.position[[0, -1]]), 1, 0.0)


def _spline(cells: _Cells) -> Predict:
    """A cubic on 6 knots; on fewer scores than it has coefficients, straight between all scores."""
    share = np.cumsum(cells.weight) / cells.weight.sum()
    knots, degree = np.unique(np.interp(np.linspace(0, 1, _KNOTS), share, cells.position)), 3
    if len(cells.position) < len(knots) + degree:
        knots, degree = cells.position, 1
    return _regression(cells, knots, degree, _RIDGE)


def _regression(cells: _Cells, knots: Floats, degree: int, ridge: float) -> Predict:
    """Poisson regression of counts, least squares of values, on a spline of the position."""
    from sklearn.preprocessing import SplineTransformer

    average = cells.average()
    if len(knots) < 2 or average != float(cells.weight @ cells.mean) / float(cells.weight.sum()):
        return _constant(cells)  # no regression ends at a rate of 0, or at a probability of 1
    # outcomes in units of their mean and weights in events, for any unit of exposure
    unit = average if cells.outcome.theta is LOG else 1.0
    weight = cells.weight * unit
    options = {"extrapolation": "linear", "include_bias": False}
    features = SplineTransformer(degree=degree, knots=knots[:, None], **options)
    design = features.fit_transform(cells.position[:, None])
    model = cells.outcome.forms.regressor(ridge / weight.sum())
    model.fit(design, cells.mean / unit, sample_weight=weight)
    return lambda position: unit * np.asarray(model.predict(features.transform(position[:, None])))


_FITS: dict[str, Callable[[_Cells], Predict]] = {
    "constant": _constant,
    "isotonic": _isotonic,
    "platt": _platt,
    "spline": _spline,
}
