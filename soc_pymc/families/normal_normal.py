"""Values y ~ Normal(theta, w), w known, with theta ~ Normal(m, v), by mean and log variance.

A row's log marginal needs, for every cell of nearly equal w, the sums of 1, y and y^2: plain, and
times powers of w - mean(w) up to the third, which leave an error of fourth order.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy import special

from .._lib.arrays import Bools, Floats, Ints
from ..prior_table import FAMILIES as FORMULAS
from .conjugate import Family, Generators, Pair
from .outcomes import OUTCOMES
from .priors import Normal, NormalMixture
from .row_sums import Columns, Ragged, RowSums, Weak, by_row, weak_dispersion

_VARIANCE_SHARE = (
    0.3  # prior's centre of Var(theta | t), as a share of the values' squared scale
)
_LEVEL_SD = 3.0
_NOISE_SUMS = [
    [f"sum_{y}{w}" if y + w else "n" for w in ("", "w", "w2", "w3")]
    for y in ("", "y", "y2")
]


# --- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NormalRows(RowSums):
    """Cells over the noise of all rows, rows one after the other."""

    # mean noise variance of each cell; and (cells, 3, 4) sums over the items of (w - noise)^k times
    # 1, r and r^2, with r the value minus the row's centre, for k = 0 to 3
    by_noise: Ragged
    total: Floats  # (rows,): mean value of the row's items, subtracted for accuracy
    spread: Floats  # (rows,): variance of the items' means around that of the row's position

    most = (np.inf, 600.0)
    farthest = (np.inf, 3.0)
    reach = float(np.inf)  # in the mean the log marginal is a parabola
    most_spread = float(np.inf)
    margins = ("noise",)
    size_cell = "noise_cell"

    @staticmethod
    def widened(xp: Any, location: Any, dispersion: Any, spread: Any) -> Pair:
        """Curves of theta over a row."""
        return location, xp.log(xp.exp(dispersion) + spread)

    @staticmethod
    def log_probability(
        xp: Any, location: Any, dispersion: Any, noise: Any, moments: Any, centre: Any
    ) -> Any:
        """Log marginal of rows without spread."""
        inverse = 1.0 / (xp.exp(dispersion)[..., None] + noise)
        gap = (location - centre)[..., None]
        n, plain, square = (moments[..., k, :] for k in range(3))
        value = n[..., 0] * xp.log(2.0 * np.pi / inverse)
        value = value - inverse * inverse * (
            0.5 * n[..., 2] - inverse * n[..., 3] / 3.0
        )
        for k in range(4):
            scatter = square[..., k] - gap * (2.0 * plain[..., k] - gap * n[..., k])
            value = value + (-1.0) ** k * inverse ** (k + 1) * scatter
        return -0.5 * value.sum(axis=-1)

    @staticmethod
    def draw_totals(
        rng: Generator,
        location: Any,
        dispersion: Any,
        noise: Any,
        moments: Any,
        centre: Any,
    ) -> Any:
        """Random mean values of rows."""
        n = moments[..., 0, 0]
        variance = (n * (np.exp(dispersion)[..., None] + noise)).sum(axis=-1)
        sd = np.sqrt(variance) / n.sum(axis=-1)
        return location + sd * rng.standard_normal(sd.shape)

    @classmethod
    def of(cls, rows: int, cells: Mapping[str, Columns]) -> "NormalRows":
        """Build from tables of cells with a column ``row``: joint cells, or those of the noise."""
        table = cells["joint"] if "joint" in cells else cells["noise"]
        start, (sums,) = by_row(rows, table["row"], _noise_sums(table))
        noise = sums[:, 0, 1] / sums[:, 0, 0]
        # sums of powers of w - noise from those of powers of w
        shifted = (
            sum(
                math.comb(k, j) * (-noise[:, None]) ** (k - j) * sums[:, :, j]
                for j in range(k + 1)
            )
            for k in range(4)
        )
        moments = np.stack([*shifted], axis=2)
        # with equal noise the moments are only rounding
        equal = moments[:, 0, 2] <= 1e-13 * noise**2 * sums[:, 0, 0]
        moments[equal, :, 1:] = 0.0
        n, total = (np.add.reduceat(sums[:, k, 0], start[:-1]) for k in (0, 1))
        by_noise = Ragged(start, (noise, moments))
        centre = (total / n)[by_noise.row][:, None]
        moments[:, 2] += centre * (centre * moments[:, 0] - 2.0 * moments[:, 1])
        moments[:, 1] -= centre * moments[:, 0]
        return cls(by_noise, total / n, np.zeros(rows))

    @classmethod
    def weak(
        cls, sums: Mapping[str, float], scale: str, centre: float
    ) -> tuple[Weak, Weak]:
        """Weak priors of both curves, in units of the values."""
        n = sums["n"]
        mean = sums["sum_t"] / n
        scatter = max(sums["sum_t2"] / n - mean**2, 0.0)
        unit2 = scatter + sums["sum_s2"] / n
        unit = float(np.sqrt(unit2))
        return (
            Weak((mean, 10.0 * unit + abs(mean)), (0.0, 3.0 * unit), unit),
            weak_dispersion(float(np.log(_VARIANCE_SHARE * unit2)), _LEVEL_SD),
        )

    def _sums(self) -> tuple[Floats, Floats]:
        """Number of items by row, and sum of their noise variances."""
        noise, moments = self.by_noise.columns
        items = moments[:, 0, 0]
        starts = self.by_noise.start[:-1]
        return np.add.reduceat(items, starts), np.add.reduceat(items * noise, starts)

    def unit(self, dispersion: Floats, rows: Ints | None = None) -> Floats:
        """Sd of an item's value."""
        items, noises = self._sums()
        noise = noises / items
        return np.sqrt(np.exp(dispersion) + (noise if rows is None else noise[rows]))

    def information(
        self, location: Floats, dispersion: Floats
    ) -> tuple[Floats, Floats]:
        """Fisher information of mean and of log variance by row; the two are orthogonal."""
        row, number, (noise, moments) = (
            self.by_noise.row,
            len(self.total),
            self.by_noise.columns,
        )
        variance = np.exp(dispersion)[row]
        n = moments[:, 0, 0]
        total = variance + self.spread[row] + noise
        of_variance = 0.5 * n * (variance / total) ** 2
        return np.bincount(row, n / total, number), np.bincount(
            row, of_variance, number
        )

    def level(self) -> tuple[float, float]:
        """Overall mean, and the log of the variance less the noise."""
        n, noises = self._sums()
        level = float(np.average(self.total, weights=n))
        squares = (
            self.by_noise.columns[1][:, 2, 0].sum() + n @ (self.total - level) ** 2
        )
        noise = noises.sum() / n.sum()
        return level, float(np.log(np.maximum(squares / n.sum() - noise, 0.1 * noise)))


def _noise_sums(table: Columns) -> Floats:
    """Sums of cells, (cells, 3, 4): of w^k times 1, y and y^2, k = 0 to 3."""
    if "sum_yw" in table:
        sums = np.array(
            [[table[name] for name in names] for names in _NOISE_SUMS], dtype=float
        )
        return np.moveaxis(sums, -1, 0)
    # values and noise hardly vary in joint cells
    n = table["n"].astype(float)
    w1 = table["sum_w"] / n
    w2 = table["sum_w2"] / n
    # the third moment of a narrow cell about its mean is negligible
    powers = np.stack([np.ones(len(n)), w1, w2, w1 * (3.0 * w2 - 2.0 * w1**2)], axis=1)
    names = np.stack([n, table["sum_y"], table["sum_y2"]], axis=1)
    return np.asarray(names[:, :, None] * powers[:, None, :])


# --- the family ----------------------------------------------------------------------------------


class NormalNormal(Family):
    """Normal priors of values: `a` is the mean, `b` the variance."""

    name = "Normal"
    formulas = FORMULAS["Normal"]
    outcome = OUTCOMES["normal"]
    prior = Normal
    mixture = NormalMixture
    rows = NormalRows
    parameters = "mean", "variance"

    def to_curves(self, a: Any, b: Any) -> Pair:
        return a, np.log(b)

    def natural_moments(self, location: Any, dispersion: Any) -> Pair:
        return location, dispersion

    def unit(self, dispersion: Floats) -> Floats:
        return np.exp(0.5 * dispersion)

    def third(self, a: Any, b: Any) -> Any:
        return np.zeros_like(b)

    def above(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        return np.asarray(special.ndtr((a - cut) / np.sqrt(b)))

    def cdf(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        return np.asarray(special.ndtr((cut - a) / np.sqrt(b)))

    def kernel(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        return np.sqrt(b / (2.0 * np.pi)) * np.exp(-0.5 * (cut - a) ** 2 / b)

    def draw(self, a: Floats, b: Floats, rngs: Generators) -> Floats:
        return a + np.sqrt(b) * rngs[0].standard_normal(np.shape(a))

    def log_marginal(self, y: Any, size: Any, a: Any, b: Any) -> Floats:
        total = b + np.square(size)
        return np.asarray(-0.5 * ((y - a) ** 2 / total + np.log(2.0 * np.pi * total)))

    def below(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        return self.cdf(y, a, b + size**2)

    def simulate(
        self, location: Any, dispersion: Any, size: Any, rng: Generator
    ) -> Floats:
        sd = np.sqrt(np.exp(dispersion) + size**2)
        return location + sd * rng.standard_normal(location.shape)

    def outcome_moments(
        self, a: Floats, b: Floats, size: Floats
    ) -> tuple[Floats, Floats, Floats]:
        return a, np.sqrt(b + size**2), np.zeros_like(a)

    def gained(
        self,
        least: Floats,
        above: Bools,
        a: Floats,
        b: Floats,
        size: Floats,
        cut: Floats,
    ) -> Floats:
        # integral over the further values that change the choice
        total = b + size**2
        bell = self.kernel(least, a, total) * (b / total)
        gap = a - cut
        upto = self.cdf(least, a, total)
        return np.where(above, bell - gap * upto, bell + gap * (1.0 - upto))
