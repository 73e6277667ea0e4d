"""Rows of Normal items: their log marginal from cells over their noise.

With theta ~ Normal(m, v) and y ~ Normal(theta, w), w the known variance of the noise, y is
Normal(m, v + w): a row's log marginal needs, for every cell of nearly equal w, the sums of 1, y and
y^2. Within a cell w varies by a few percent; the cell's moments up to the third of w - mean(w),
plain and with y and y^2, leave an error of fourth order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numba
import numpy as np

from .._lib.arrays import Floats, Ints
from .row_sums import Columns, RowSums, Weak, row_of, weak_dispersion

_VARIANCE_SHARE = (
    0.3  # the prior's centre of Var(theta | t), as a share of the values' scale squared
)
_LEVEL_SD = 3.0
_NOISE_SUMS = (
    ("n", "sum_w", "sum_w2", "sum_w3"),
    ("sum_y", "sum_yw", "sum_yw2", "sum_yw3"),
    ("sum_y2", "sum_y2w", "sum_y2w2", "sum_y2w3"),
)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def draw_row(rng, location, dispersion, noise, moments, centre, spread):  # type: ignore[no-untyped-def]
    """Mean value of a row."""
    n = moments[:, 0, 0]
    variance = (n * (np.exp(dispersion) + spread + noise)).sum()
    return location + rng.normal() * np.sqrt(variance) / n.sum()


@dataclass(frozen=True)
class NormalCells(RowSums):
    """Cells over the noise of all rows, rows one after the other."""

    start: Ints  # (rows + 1,): offsets of the rows' cells
    noise: Floats  # mean noise variance of each cell
    # (cells, 3, 4): sums over the items of (w - noise)^k times 1, r and r^2, with r the value minus
    # the row's centre, for k = 0 to 3
    moments: Floats
    centre: Floats  # (rows,): mean value of the row's items, subtracted for accuracy
    spread: Floats  # (rows,): variance of the items' means around that of the row's position

    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"start": ("noise", "moments")}
    draw_row = staticmethod(draw_row)
    most = (np.inf, 600.0)
    farthest = (np.inf, 3.0)
    reach = float(np.inf)  # in the mean the log marginal is a parabola
    margins = ("noise",)
    size_cell = "noise_cell"

    @staticmethod
    def log_marginal(
        xp: Any, location: Any, dispersion: Any, noise: Any, moments: Any, centre: Any, spread: Any
    ) -> Any:
        """Log marginal as in `RowSums`."""
        inverse = 1.0 / ((xp.exp(dispersion) + spread)[..., None] + noise)
        gap = (location - centre)[..., None]
        n, plain, square = (moments[..., k, :] for k in range(3))
        value = n[..., 0] * xp.log(2.0 * np.pi / inverse)
        value = value - inverse * inverse * (0.5 * n[..., 2] - inverse * n[..., 3] / 3.0)
        for k in range(4):
            scatter = square[..., k] - gap * (2.0 * plain[..., k] - gap * n[..., k])
            value = value + (-1.0) ** k * inverse ** (k + 1) * scatter
        return -0.5 * value.sum(axis=-1)

    @classmethod
    def of(cls, rows: int, cells: Mapping[str, Columns]) -> "NormalCells":
        """Build from tables of cells with a column ``row``: joint cells, or those of the noise."""
        joint = cells.get("joint")
        if joint is not None:
            return make_normal_cells(rows, joint["row"], _joint_sums(joint))
        noise = cells["noise"]
        sums = [np.stack([noise[c].astype(float) for c in names], axis=1) for names in _NOISE_SUMS]
        return make_normal_cells(rows, noise["row"], np.stack(sums, axis=1))

    @staticmethod
    def weak(sums: Mapping[str, float], scale: str, centre: float) -> tuple[Weak, Weak]:
        """Weak priors of both curves, from sums over all items."""
        n = sums["n"]
        mean = sums["sum_t"] / n
        scatter = max(sums["sum_t2"] / n - mean**2, 0.0)
        unit2 = scatter + sums["sum_s2"] / n
        unit = float(np.sqrt(unit2))
        return (
            Weak((mean, 10.0 * unit + abs(mean)), (0.0, 3.0 * unit), unit),
            weak_dispersion(float(np.log(_VARIANCE_SHARE * unit2)), _LEVEL_SD),
        )

    @property
    def total(self) -> Floats:
        """(rows,): mean value of the row's items."""
        return self.centre

    @property
    def items(self) -> Floats:
        """(rows,): number of items."""
        return np.add.reduceat(self.moments[:, 0, 0], self.start[:-1])

    def unit(self, dispersion: Floats, rows: Ints | None = None) -> Floats:
        """Sd of an item's value."""
        items = self.moments[:, 0, 0]
        noise = np.add.reduceat(items * self.noise, self.start[:-1]) / self.items
        return np.sqrt(np.exp(dispersion) + (noise if rows is None else noise[rows]))

    def information(self, location: Floats, dispersion: Floats) -> tuple[Floats, Floats]:
        """Fisher information of mean and of log variance by row; the two are orthogonal."""
        row = row_of(self.start)
        variance = np.exp(dispersion)[row]
        total = variance + self.spread[row] + self.noise
        n = self.moments[:, 0, 0]
        of_mean, of_variance = n / total, 0.5 * n * (variance / total) ** 2
        rows = len(self.centre)
        return np.bincount(row, of_mean, rows), np.bincount(row, of_variance, rows)

    def level(self) -> tuple[float, float]:
        """Overall mean, and the log of the variance less the noise."""
        n = self.items
        level = float(np.average(self.centre, weights=n))
        squares = float(self.moments[:, 2, 0].sum() + n @ (self.centre - level) ** 2)
        noise = float(np.average(self.noise, weights=self.moments[:, 0, 0]))
        return level, float(np.log(max(squares / n.sum() - noise, 0.1 * noise)))


def _joint_sums(table: Columns) -> Floats:
    """Sums of joint cells, in which values and noise hardly vary."""
    n = table["n"].astype(float)
    w1, w2 = table["sum_w"] / n, table["sum_w2"] / n
    # the third moment of a narrow cell about its mean is negligible
    powers = np.stack([np.ones(len(n)), w1, w2, w1 * (3.0 * w2 - 2.0 * w1**2)], axis=1)
    names = np.stack([n, table["sum_y"], table["sum_y2"]], axis=1)
    return np.asarray(names[:, :, None] * powers[:, None, :])


def make_normal_cells(rows: int, row: Ints, sums: Floats) -> NormalCells:
    """Cells from their rows and sums, (cells, 3, 4): of w^k times 1, y and y^2, k = 0 to 3.

    Every row has at least one cell.
    """
    order = np.argsort(row, kind="stable")
    row, sums = row[order], sums[order]
    start = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))]).astype(np.int64)
    n = np.add.reduceat(sums[:, 0, 0], start[:-1])
    centre = np.add.reduceat(sums[:, 1, 0], start[:-1]) / n
    noise = sums[:, 0, 1] / sums[:, 0, 0]
    gap = _shifted(sums, noise)
    # with equal noise the moments are only rounding
    equal = gap[:, 0, 2] <= 1e-13 * noise**2 * sums[:, 0, 0]
    gap[equal, :, 1:] = 0.0
    a = centre[row][:, None]
    gap[:, 2] += a * (a * gap[:, 0] - 2.0 * gap[:, 1])
    gap[:, 1] -= a * gap[:, 0]
    return NormalCells(start, noise, np.ascontiguousarray(gap), centre, np.zeros(rows))


def _shifted(sums: Floats, noise: Floats) -> Floats:
    """Sums of powers of w - noise from sums of powers of w."""
    s0, s1, s2, s3 = (sums[:, :, k] for k in range(4))
    a = noise[:, None]
    shifted = [
        s0,
        s1 - a * s0,
        s2 - a * (2 * s1 - a * s0),
        s3 - a * (3 * s2 - a * (3 * s1 - a * s0)),
    ]
    return np.stack(shifted, axis=2)
