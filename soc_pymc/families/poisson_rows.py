"""Rows of Poisson-Gamma items: their log marginal from two small histograms a row.

With alpha = 1/cv2 and mu the mean of the Gamma prior in a row, the items' log marginal is

    sum_j C_j log1p(j/alpha) + S log(mu) - sum_i (alpha + y_i) log1p(N_i mu/alpha) + constant,

C_j the number of items with y > j and S the sum of y: it needs one histogram over counts and one
over exposures. Wide cells stand as two points that keep the cell's mean and variance, so that the
error is of third order in the cell's width. It is exact as alpha -> infinity.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numba
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from .rising import columns, make_rising, rising, two_points
from .row_sums import Columns, RowSums, Weak, by_row, row_of, weak_dispersion

CV2_LEVEL = (float(np.log(0.3)), 1.4)
"""Mean and sd of the level of log cv2: between 0.02 and 5 with probability 0.95."""
_NO_SPREAD, _NO_NOISE = 1e15, 1e15  # shapes of a Gamma and means of a Poisson without visible noise
_COUNT_SUMS = ("n", "sum_y", "sum_y2", "sum_y3")
_EXPOSURE_SUMS = ("n", "sum_N", "sum_N2", "sum_N3", "sum_y", "sum_yN", "sum_yN2", "sum_yN3")


@numba.njit(cache=True, nogil=True, error_model="numpy")
def draw_row(  # type: ignore[no-untyped-def]
    rng, location, dispersion, step, over, wide_excess, wide_weight, exposure, items, counts, total,
    constant, spread,
):  # fmt: skip
    """Total count of a row: items of one exposure have a negative binomial sum."""
    cv2 = np.exp(dispersion) + spread * (1.0 + np.exp(dispersion))
    if not cv2 < np.inf:  # theta is 0 with probability 1
        return 0.0
    expected = 0.0
    for i in range(len(items)):
        shape = items[i] / cv2
        share = rng.gamma(shape, 1.0) / shape if 0.0 < shape < _NO_SPREAD else 1.0
        expected += exposure[i] * items[i] * share
    expected *= np.exp(location + 0.5 * spread)
    return float(rng.poisson(expected)) if expected < _NO_NOISE else expected


@dataclass(frozen=True)
class Histograms(RowSums):
    """The two histograms of all rows as weighted points, rows one after the other."""

    step_start: Ints  # as in `Rising`, of counts
    step: Floats
    over: Floats
    wide_start: Ints
    wide_excess: Floats
    wide_weight: Floats
    start: Ints  # (rows + 1,): offsets of points of exposure
    exposure: Floats
    items: Floats
    counts: Floats  # sum of the items' counts
    total: Floats  # (rows,): sum of counts
    constant: Floats  # (rows,): sum of y log N - log y!, which makes a log probability
    # (rows,): variance of the items' own log means around that of the row's centre. Theta's mean
    # and cv2 over the row are m exp(spread/2) and cv2 + spread (1 + cv2), to second order
    spread: Floats

    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "step_start": ("step", "over"),
        "wide_start": ("wide_excess", "wide_weight"),
        "start": ("exposure", "items", "counts"),
    }
    draw_row = staticmethod(draw_row)
    most = (300.0, 60.0)
    farthest = (3.0, 3.0)
    reach = 1.0  # far above the data the likelihood is flat in log mean
    most_spread = 1.0  # its second-order terms mean nothing beyond
    margins = ("count", "exposure")
    size_cell = "exposure_cell"

    @staticmethod
    def log_marginal(
        xp: Any, location: Any, dispersion: Any, step: Any, over: Any, wide_excess: Any,
        wide_weight: Any, exposure: Any, items: Any, counts: Any, total: Any, constant: Any,
        spread: Any,
    ) -> Any:  # fmt: skip
        """Log marginal as in `RowSums`."""
        cv2 = xp.exp(dispersion) + spread * (1.0 + xp.exp(dispersion))
        mean = location + 0.5 * spread
        ratio = exposure * (xp.exp(mean) * cv2)[..., None]
        known = (items * (1.0 / cv2)[..., None] + counts) * xp.log1p(ratio)
        of_counts = rising(xp, cv2, step, over, wide_excess, wide_weight)
        return of_counts + total * mean - known.sum(axis=-1) + constant

    @staticmethod
    def check(part: Columns) -> None:
        """Refuse statistics without any exposure."""
        if not float(part["sum_N"].sum()) > 0:
            raise FitError("every exposure is 0: nothing was observed, so nothing can be fitted")

    @classmethod
    def of(cls, rows: int, cells: Mapping[str, Columns]) -> "Histograms":
        """Build from tables of cells with a column ``row``: joint cells, or both margins."""
        joint = cells.get("joint")
        if joint is not None:
            counts = exposures = joint
            log_size = np.log(joint["sum_N"] / joint["n"])
            y_log_n = np.bincount(joint["row"], joint["sum_y"] * log_size, rows)
        else:
            counts, exposures, part = cells["count"], cells["exposure"], cells["part"]
            y_log_n = np.bincount(part["row"], part["sum_y_log_N"], rows)
        counts_above, log_factorials = make_rising(rows, columns(counts, _COUNT_SUMS))
        points = _exposure_points(rows, exposures)
        total = np.bincount(exposures["row"], exposures["sum_y"], rows)
        constant = y_log_n - log_factorials
        return cls(*counts_above, *points, total, constant, np.zeros(rows))

    @staticmethod
    def weak(sums: Mapping[str, float], scale: str, centre: float) -> tuple[Weak, Weak]:
        """Weak priors of both curves on an axis of this scale, at its centre."""
        dispersion = weak_dispersion(*CV2_LEVEL)
        if scale == "log":  # scores that are rates
            return Weak((centre, 5.0), (1.0, 1.0)), dispersion
        return Weak((0.0, 10.0), (0.0, 2.0)), dispersion

    @staticmethod
    def events(sums: Mapping[str, float]) -> float:
        """Sum of all counts."""
        return sums["sum_y"]

    def _sums(self, *columns: Floats) -> list[Floats]:
        row = row_of(self.start)
        return [np.bincount(row, column, len(self.total)) for column in columns]

    def information(self, location: Floats, dispersion: Floats) -> tuple[Floats, Floats]:
        """Fisher information of log mean, and a lower bound of that of log cv2, by row.

        The bound is the information of the best quadratic function of the count (Godambe 1985),
        from the negative binomial's first four cumulants; it is sharp where expected counts are
        small.
        """
        row = row_of(self.start)
        within = np.exp(dispersion)
        total = within + self.spread * (1.0 + within)
        chain = within / total * (1.0 + self.spread)
        cv2 = total[row]
        expected = self.exposure * np.exp(location + 0.5 * self.spread)[row]
        r = expected * cv2
        # r^2 expected / (k4 + 2 expected k2^2 - k3^2 / k2) where the cumulants over the expected
        # count are k2 = 1 + r, k3 = k2 (1 + 2r), k4 = k2 (1 + 6r + 6r^2)
        quadratic = 0.5 * (r / (1.0 + r)) ** 2 / (1.0 + cv2)
        mean, bound = self._sums(self.items * expected / (1.0 + r), self.items * quadratic)
        return mean, chain**2 * bound

    def level(self) -> tuple[float, float]:
        """Log of the overall rate, and the prior's own level."""
        exposure = float(self.exposure @ self.items)
        return float(np.log((self.total.sum() + 0.5) / exposure)), CV2_LEVEL[0]

    @property
    def can_fit(self) -> NDArray[np.bool_]:
        """Rows with an event: without one the mean is 0 and its logarithm nowhere."""
        return self.total > 0


def _exposure_points(rows: int, cells: Columns) -> tuple[Ints, Floats, Floats, Floats]:
    """Offsets of rows, distinct exposures, and the items and counts of each."""
    row, n, n1, n2, n3, y, y1, y2, y3 = columns(cells, _EXPOSURE_SUMS)
    occupied = y > 0
    weights = (
        pd.Series(weight).groupby([point_row, exposure]).sum()
        for point_row, exposure, weight in (
            two_points(row, n, n1, n2, n3),
            two_points(row[occupied], y[occupied], y1[occupied], y2[occupied], y3[occupied]),
        )
    )
    points = pd.concat(weights, axis=1, sort=True).fillna(0.0)  # exact cells share their points
    place, size = (points.index.get_level_values(k).to_numpy() for k in (0, 1))
    start, (exposure, items, counts) = by_row(rows, place, size, *points.to_numpy().T)
    return start, exposure, items, counts
