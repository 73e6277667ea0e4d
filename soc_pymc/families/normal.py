"""Values y ~ Normal(theta, w), w known, with theta ~ Normal(m, v), by mean and log variance.

A row's log marginal needs, for every cell of nearly equal w, the sums of 1, y and y^2: plain, and
times powers of w - mean(w) up to the third, which leave an error of fourth order.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arguments import FitError
from .._lib.arrays import Columns, Floats, Ints, Pair, Tables, Triple
from ..prior_table import NormalFormulas
from .family import (
    Excess,
    Family,
    Generators,
    Outcome,
    Table,
    Validity,
    Words,
    typical_precision,
    uniform_range,
)
from .mixtures import WIDTH, ComponentGrid, Frame, LogLaw, Relative
from .noise import NodeLine, moderated_cells, node_line
from .priors import Normal, NormalMixture
from .rows import (
    Cells,
    Ragged,
    RowSums,
    Tensor,
    Weak,
    by_row,
    value_moments,
    weak_dispersion,
)
from .scales import LARGEST_VALUE, LEAST_SD, LINEAR, STEPS, Bounds, Cell

# centre and sd of the prior of log Var(theta | t) less the log noise variance: sds of theta have
# about a half-normal distribution of scale three times the noise's sd
_VARIANCE_SHARE = 4.0
_LEVEL_SD = 2.5
_NOISE_SUMS = [
    [f"sum_{y}{w}" if y + w else "n" for w in ("", "w", "w2", "w3")]
    for y in ("", "y", "y2")
]
_LOG_2PI = float(np.log(2.0 * np.pi))
# correlation from which noise sds seem to be computed from the values
_ALIKE = 0.5
_RELATED = 0.2  # the same, given the mean
_LEAST_WRONG = 0.8  # quantile of the factors from which on they count
# cells that are added up where noise sds are estimates: steps an octave of noise variances and
# degrees of freedom, and width in noise sds
_NOISE_STEPS = 16
_VALUE_WIDTH = 0.25
_NOISE_CELLS = Cell("noise_cell", "size", "noise", 12, -(1 << 11))
_VALUE_CELLS = Cell("value_cell", "outcome", "value", 26, -(1 << 25))
_NOISE = (
    "sum_y",
    "sum_y2",
    *(f"sum_{y}{w}" for y in ("", "y", "y2") for w in ("w", "w2", "w3")),
)


# --- the outcome ---------------------------------------------------------------------------------


class NormalOutcome(Outcome):
    """Values y ~ Normal(theta, s^2) with known noise sd s; w = s^2."""

    kind = "normal"
    observed = "value"
    size = "noise_sd"
    whole = False
    theta = LINEAR
    positive = False
    direct = True
    sizes_add = False
    size_power = 2
    integers = ("n",)
    grid = (
        f"{1 << STEPS} cells an octave of noise, values in cells of 1/16 to 1/8 of it"
    )
    usual_size = None
    no_information = LARGEST_VALUE
    words = Words(
        items="values with known noise",
        outcome="value",
        outcomes="values",
        size="noise sd",
        sizes="noise sds",
        theta="value",
        estimate="own value",
        unit="in the unit of {outcome}",
        text="a value, which is its true theta seen with noise of known size",
        further="one further value with a noise sd of {amount}",
        worth="Items worth another look",
        events="the values",
        noise="noise",
        overstated="noise sds are of single observations",
        doubt="The noise sds seem to be computed from the values themselves, as those of shares "
        "or rates often are: a value that is too low by chance then counts for too much, and a "
        "tenth of the item intervals are off by a factor of {width:.2f} or more. Use "
        "soc.BinomialItems or soc.PoissonItems, or values on a scale on which the noise does not "
        "depend on theta, such as arcsin(sqrt(share)) with noise sd 0.5 / sqrt(trials).",
    )
    validity = Validity(
        Bounds("values must be finite numbers", LARGEST_VALUE, negligible=LEAST_SD),
        Bounds(
            "noise sds must be numbers > 0, infinite where a value says nothing",
            LARGEST_VALUE,
            LEAST_SD,
            zeros="standard errors of 0 mean k of n where k is 0 or n, or one event repeated, and "
            "no certainty: give soc.BinomialItems(..., successes=, trials=), or fix or drop these "
            "rows",
            infinite=True,
        ),
    )
    tables: ClassVar[Mapping[str, Table]] = {
        "part": Table.part("sum_y", "sum_y2", "sum_s2"),
        "noise": Table.margin(_NOISE_CELLS, *_NOISE),
        "joint": Table.joint(
            _NOISE_CELLS,
            _VALUE_CELLS,
            reals=("sum_y", "sum_y2", "sum_y3", "sum_w", "sum_w2"),
        ),
    }

    def describe(self, n: int, sums: Mapping[str, Any]) -> str:
        mean = float(sums["sum_y"]) / max(n, 1)
        noise_sd = (float(sums["sum_s2"]) / max(n, 1)) ** 0.5
        return f"values of mean {mean:,.6g} with noise sd {noise_sd:,.6g}"

    def of_bins(self, sums: Mapping[str, Any]) -> Pair:
        return np.sqrt(sums["sum_s2"] / sums["n"]), sums["sum_y"] / sums["n"]

    def estimate(self, y: Floats, size: Floats) -> Floats:
        return y

    def pooled_estimates(
        self, y: Floats, size: Floats, items: Floats, group: Ints
    ) -> Pair:
        n = np.bincount(group, items)
        noise = np.sqrt(np.bincount(group, items * size**2))
        return np.bincount(group, items * y) / n, noise / n

    def mean_size(self, sums: Columns) -> Floats:
        return np.sqrt(sums["sum_w"] / sums["n"])

    def information(self, size: Floats, sums: Columns) -> Floats:
        precision = size**-2.0
        return precision / typical_precision(precision, sums["n"])

    def exposure_means(self, sums: Columns) -> Triple:
        problem = "values have no exposure: noise sds do not add up, so weigh by items"
        raise FitError(problem)

    def cell_range(self, cells: Columns) -> Pair:
        return uniform_range(cells)

    def excess_squares(self, groups: Columns, part: Mapping[Hashable, Any]) -> Excess:
        # in units of the squared noise sd
        known = groups["n"] > 1
        names = ("n", "sum_w", "sum_w2", "sum_y", "sum_y2")
        n, w1, w2, y1, y2 = (groups[name][known] for name in names)
        noise = w1 / n
        share = 1 - 1 / n
        excess = (y2 - y1 * (y1 / n) - share * w1) / noise
        return known, excess, 2 * share * w2 / noise**2, share * n

    def doubtful(self, y: Floats, size: Floats, tight: bool) -> bool:
        variance = _variance_as(y, y)
        varies = np.ptp(size) > 0 and np.ptp(variance) > 0
        if not (varies and y.min() >= 0 and variance.min() > 0):
            return False
        return bool(np.corrcoef(np.log(size), np.log(variance))[0, 1] > _ALIKE)

    def other_width(
        self, y: Floats, size: Floats, mean: Floats, variance: Floats
    ) -> Floats:
        # noise with the variance that it has at the mean, in place of that at the value
        at_mean = np.maximum(_variance_as(y, mean), np.finfo(float).tiny)
        error = _variance_as(y, y) / at_mean
        if np.corrcoef(np.log(error), np.log(size**2 / at_mean))[0, 1] < _RELATED:
            return np.ones(1)  # noise that depends on the score alone
        noise = size**2 / error
        share = noise / (noise + variance)
        ratio = np.log(share) - np.log(size**2 / (size**2 + variance))
        factor = np.exp(0.5 * np.abs(ratio))
        return factor[factor >= np.quantile(factor, _LEAST_WRONG)]

    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        z = (y - theta) / size
        return -0.5 * (z * z + _LOG_2PI) - np.log(size)

    def loss(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        return 0.5 * ((y - theta) / size) ** 2

    def thinned(self, y: Floats, size: Floats, fraction: float, rng: Generator) -> Pair:
        noise = np.sqrt((1 - fraction) / fraction) * size * rng.standard_normal(len(y))
        return y + noise, size / np.sqrt(fraction)

    def remainder(
        self, y: Floats, size: Floats, thinned: Pair, fraction: float
    ) -> Pair:
        return (y - fraction * thinned[0]) / (1 - fraction), size / np.sqrt(
            1 - fraction
        )

    def noise(self, mean: Floats, variance: Floats | float = 0.0) -> Floats:
        return np.ones_like(mean)

    def scatter(
        self, y: Floats, size: Floats, mean: Floats, variance: Floats
    ) -> Floats:
        return ((y - mean) ** 2 / (variance + size**2)).sum(axis=-1)

    def response(self, size: Floats, mean: Floats, variance: Floats) -> Floats:
        return variance / size**2

    def weighted(self, y: Floats, size: Floats) -> Pair:
        weight = size**-2.0
        return weight, weight * y

    def contrast(
        self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats
    ) -> Pair:
        # remove a common shift of all fresh values
        weight = 1.0 / (size**2 + fresh_size**2)
        residual = weight * (y - fresh_y)
        return residual - weight * residual.sum() / weight.sum(), weight


def _variance_as(y: Floats, estimate: Floats) -> Floats:
    """Variance of an estimate, up to its size: of a share if all y are below 1, else of a rate."""
    return estimate * (1.0 - estimate) if y.max() < 1 else estimate


# --- rows ----------------------------------------------------------------------------------------


class _ValueRows(RowSums):
    """Rows of values whose noise is known or estimated."""

    if TYPE_CHECKING:
        by_noise: Ragged
        centre: Floats

    most = (np.inf, 600.0)
    farthest = (np.inf, 3.0)
    most_spread = float(np.inf)

    @staticmethod
    def widened(
        xp: ModuleType, location: Tensor, dispersion: Tensor, spread: Tensor
    ) -> Pair:
        """Curves of theta over a row."""
        return location, xp.log(xp.exp(dispersion) + spread)

    def weak(
        self, sums: Mapping[str, float], scale: str, centre: float
    ) -> tuple[Weak, Weak]:
        """Weak priors of both curves, in units of the values."""
        mean, scatter = map(float, LINEAR.moments(sums))
        unit2 = scatter + self._typical_noise
        unit = float(np.sqrt(unit2))
        location = Weak((mean, 10.0 * unit + abs(mean)), (0.0, 3.0 * unit), unit)
        level = float(np.log(_VARIANCE_SHARE * self._typical_noise))
        return location, weak_dispersion(level, _LEVEL_SD)

    @cached_property
    def _typical_noise(self) -> float:
        """Noise variance of the items that tell the variance of theta."""
        noise, moments = self.by_noise.columns
        return 1.0 / typical_precision(1.0 / noise, moments[:, 0, 0])

    @cached_property
    def _noise(self) -> Floats:
        """Harmonic mean by row of the noise variances, which imprecise items hardly change."""
        noise, moments = self.by_noise.columns
        items = moments[:, 0, 0]
        starts = self.by_noise.start[:-1]
        return np.add.reduceat(items, starts) / np.add.reduceat(items / noise, starts)

    def unit(self, dispersion: Floats, rows: Ints | None = None) -> Floats:
        """Sd of a value of a precise item."""
        noise = self._noise if rows is None else self._noise[rows]
        return np.sqrt(np.exp(dispersion) + noise)

    def information(self, location: Floats, dispersion: Floats) -> Pair:
        """Fisher information of mean and of log variance by row; the two are orthogonal."""
        row = self.by_noise.row
        noise, moments = self.by_noise.columns
        variance = np.exp(dispersion)[row]
        n = moments[:, 0, 0]
        total = variance + self.spread[row] + noise
        of_variance = 0.5 * n * (variance / total) ** 2
        rows = len(self.total)
        return np.bincount(row, n / total, rows), np.bincount(row, of_variance, rows)

    def level(self) -> tuple[float, float]:
        """Overall mean, and the log of the variance less the noise."""
        noise, moments = self.by_noise.columns
        n, plain, square = moments[:, :, 0].T
        weight = (self._typical_noise + noise) ** -2.0
        weight = weight / (weight @ n)
        centre = self.centre[self.by_noise.row]
        level = float(weight @ (plain + n * centre))
        gap = centre - level
        squares = weight @ (square + gap * (2.0 * plain + gap * n))
        expected = weight @ (n * noise)
        return level, float(np.log(np.maximum(squares - expected, 0.1 * expected)))


@dataclass(frozen=True, eq=False)
class NormalRows(_ValueRows):
    """Cells over the noise of all rows, rows one after the other."""

    # mean noise variance of each cell; and (cells, 3, 4) sums over the items of (w - noise)^k times
    # 1, r and r^2, with r the value minus the row's centre, for k = 0 to 3
    by_noise: Ragged
    centre: Floats  # (rows,): value subtracted for accuracy
    total: Floats  # (rows,): mean value of the row's items
    # (rows,): variance of the items' means around that of the row's position
    spread: Floats

    reach = float(np.inf)  # in the mean the log marginal is a parabola

    @staticmethod
    def log_probability(xp: ModuleType, curves: Pair, cells: Cells) -> Tensor:
        """Log marginal of rows without spread."""
        location, dispersion = curves
        noise, moments, centre, _ = cells
        inverse = 1.0 / (xp.exp(dispersion)[..., None] + noise)
        gap = (location - centre)[..., None]
        n, plain, square = (moments[..., k, :] for k in range(3))
        value = n[..., 0] * xp.log(2.0 * np.pi / inverse)
        skew = inverse * n[..., 3] / 3.0
        value = value - inverse * inverse * (0.5 * n[..., 2] - skew)
        for k in range(4):
            scatter = square[..., k] - gap * (2.0 * plain[..., k] - gap * n[..., k])
            value = value + (-1.0) ** k * inverse ** (k + 1) * scatter
        return -0.5 * value.sum(axis=-1)

    @staticmethod
    def draw_totals(rng: Generator, curves: Pair, cells: Cells) -> Floats:
        """Random mean values of rows."""
        location, dispersion = curves
        noise, moments, *_ = cells
        n = moments[..., 0, 0]
        variance = (n * (np.exp(dispersion)[..., None] + noise)).sum(axis=-1)
        sd = np.sqrt(variance) / n.sum(axis=-1)
        return location + sd * rng.standard_normal(sd.shape)

    @classmethod
    def of(cls, rows: int, cells: Tables) -> RowSums:
        """Build from tables of cells with a column ``row``: joint cells, or those of the noise."""
        table = cells["joint"] if "joint" in cells else cells["noise"]
        if "sum_moderated" in table:
            return StudentRows.of(rows, cells)
        return cls.of_noise(rows, table)

    @classmethod
    def made_of(cls, parts: Mapping[str, Any]) -> RowSums:
        kind = StudentRows if "by_value" in parts else cls
        return kind(**parts)

    @classmethod
    def of_noise(cls, rows: int, table: Columns) -> "NormalRows":
        """Build from one table of cells of noise."""
        start, (sums,) = by_row(rows, table["row"], _noise_sums(table))
        noise = sums[:, 0, 1] / sums[:, 0, 0]
        # sums of powers of w - noise from those of powers of w
        moments = np.zeros_like(sums)
        for k in range(4):
            for j in range(k + 1):
                power = math.comb(k, j) * (-noise[:, None]) ** (k - j)
                moments[:, :, k] += power * sums[:, :, j]
        # with equal noise the moments are only rounding
        equal = moments[:, 0, 2] <= 1e-13 * noise**2 * sums[:, 0, 0]
        moments[equal, :, 1:] = 0.0
        n, total = (np.add.reduceat(sums[:, k, 0], start[:-1]) for k in (0, 1))
        by_noise = Ragged(start, (noise, moments))
        # at the weighted mean imprecise values cost precise ones no digits
        precise, values = (
            np.add.reduceat(sums[:, k, 0] / noise, start[:-1]) for k in (0, 1)
        )
        centre = (values / precise)[by_noise.row][:, None]
        moments[:, 2] += centre * (centre * moments[:, 0] - 2.0 * moments[:, 1])
        moments[:, 1] -= centre * moments[:, 0]
        return cls(by_noise, values / precise, total / n, np.zeros(rows))


@dataclass(frozen=True, eq=False)
class StudentRows(_ValueRows):
    """Values with estimated noise sds, in cells of value and noise, rows one after the other."""

    # as in `NormalRows`, at moderated noise variances
    by_noise: Ragged
    # values less the row's centre, items, moderated noise variances, and columns of `NodeLine`
    by_value: Ragged
    place: Floats  # (rows, nodes): of the true noise
    centre: Floats
    total: Floats
    spread: Floats

    shared_by = 8  # draws for which the true noise is computed once

    @property
    def nodes(self) -> int:
        """Nodes of the true noise."""
        return self.place.shape[1]

    @staticmethod
    def log_probability(xp: ModuleType, curves: Pair, cells: Cells) -> Tensor:
        """Log marginal of rows without spread: Normals, averaged over the true noise."""
        location, dispersion = curves
        _, _, value, n, moderated, *line, place, centre, _ = cells
        columns = (column[:, :, None] for column in line)
        ratio, log_weight = NodeLine(*columns).nodes(place[:, None], xp)
        total = xp.exp(dispersion)[..., None, None] + moderated[:, :, None] * ratio
        gap = (value - (location - centre)[..., None])[..., None]
        log = log_weight - 0.5 * (gap * gap / total + xp.log(total))
        top = log.max(axis=-1)
        log_density = top + xp.log(xp.exp(log - top[..., None]).sum(axis=-1))
        return (n * (log_density - 0.5 * _LOG_2PI)).sum(axis=-1)

    @staticmethod
    def draw_totals(rng: Generator, curves: Pair, cells: Cells) -> Floats:
        """Random mean values of rows."""
        location, dispersion = curves
        _, _, _, n, moderated, df, *_ = cells
        df = np.where(n > 0, df, 1.0)
        drawn = df / rng.chisquare(df, (*location.shape, df.shape[-1]))
        noise = np.exp(dispersion)[..., None] + moderated * drawn
        sd = np.sqrt((n * noise).sum(axis=-1)) / n.sum(axis=-1)
        return location + sd * rng.standard_normal(sd.shape)

    @classmethod
    def of(cls, rows: int, cells: Tables) -> "StudentRows":
        """Build from joint cells with a column ``row``."""
        table = _alike(cells["joint"])
        n = table["n"].astype(float)
        moderated = table["sum_moderated"] / n
        plain = NormalRows.of_noise(rows, moderated_cells(table))
        mean, variance = value_moments(table)
        sd = np.sqrt(variance)
        value = np.stack([mean - sd, mean + sd]) - plain.centre[table["row"]]
        split = np.stack([np.ones(len(n), dtype=bool), sd > 0])
        items = np.stack([n, n]) / split.sum(axis=0)
        line, place = node_line(table["sum_total_df"] / n)
        row, *columns = (
            np.broadcast_to(column, split.shape)[split]
            for column in (table["row"], value, items, moderated, *line)
        )
        return cls(
            by_noise=plain.by_noise,
            by_value=by_row(rows, row, *columns),
            place=np.tile(place, (rows, 1)),
            centre=plain.centre,
            total=plain.total,
            spread=plain.spread,
        )


def _alike(table: Columns) -> Columns:
    """Joint cells, with those of a row whose values and moderated noise are alike added up."""
    sums = ("n", "sum_y", "sum_y2", "sum_moderated", "sum_total_df")
    n = table["n"]
    noise = np.rint(_NOISE_STEPS * np.log2(table["sum_moderated"] / n))
    width = _VALUE_WIDTH * np.exp2(0.5 * noise / _NOISE_STEPS)
    classes = {
        "row": table["row"],
        "noise": noise,
        "value": np.floor(table["sum_y"] / n / width),
        "df": np.rint(_NOISE_STEPS * np.log2(table["sum_total_df"] / n)),
    }
    lines = pd.DataFrame(classes | {name: table[name] for name in sums})
    added = lines.groupby([*classes], as_index=False).sum()
    return {name: added[name].to_numpy() for name in ("row", *sums)}


def _noise_sums(table: Columns) -> Floats:
    """Sums of cells, (cells, 3, 4): of w^k times 1, y and y^2, k = 0 to 3."""
    if "sum_yw" in table:
        sums = [[table[name] for name in names] for names in _NOISE_SUMS]
        return np.moveaxis(np.array(sums, dtype=float), -1, 0)
    # values and noise hardly vary in joint cells
    n = table["n"].astype(float)
    w1 = table["sum_w"] / n
    w2 = table["sum_w2"] / n
    # the third moment of a narrow cell about its mean is negligible
    powers = np.stack([np.ones(len(n)), w1, w2, w1 * (3.0 * w2 - 2.0 * w1**2)], axis=1)
    names = np.stack([n, table["sum_y"], table["sum_y2"]], axis=1)
    return names[:, :, None] * powers[:, None, :]


# --- the family ----------------------------------------------------------------------------------


class NormalNormal(NormalFormulas, Family):
    """Normal priors of values: `a` is the mean, `b` the variance."""

    name = "Normal"
    outcome = NormalOutcome()
    prior = Normal
    mixture = NormalMixture
    rows = NormalRows
    parameter_names = "mean", "variance"

    def to_curves(self, a: Floats, b: Floats) -> Pair:
        return a, np.log(b)

    def natural_moments(self, location: Floats, exponential: Floats) -> Pair:
        return location, exponential

    def unit(self, dispersion: Floats) -> Floats:
        return np.exp(0.5 * dispersion)

    def third_moment(self, a: Floats, b: Floats) -> Floats:
        return np.zeros_like(b)

    def above(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        return special.ndtr((a - cut) / np.sqrt(b))

    def cdf(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        return special.ndtr((cut - a) / np.sqrt(b))

    def kernel(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        return np.sqrt(b / (2.0 * np.pi)) * np.exp(-0.5 * (cut - a) ** 2 / b)

    def draw(self, a: Floats, b: Floats, rngs: Generators) -> Floats:
        return a + np.sqrt(b) * rngs[0].standard_normal(np.shape(a))

    def log_marginal(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        total = b + np.square(size)
        return -0.5 * ((y - a) ** 2 / total + np.log(2.0 * np.pi * total))

    def below(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        return self.cdf(y, a, b + size**2)

    def simulate(self, a: Floats, b: Floats, size: Floats, rng: Generator) -> Floats:
        return a + np.sqrt(b + size**2) * rng.standard_normal(a.shape)

    def outcome_moments(self, a: Floats, b: Floats, size: Floats) -> Triple:
        return a, np.sqrt(b + size**2), np.zeros_like(a)

    def gained(
        self, least: Floats, size: Floats, a: Floats, b: Floats, cut: Floats
    ) -> Pair:
        # integral over the further values that change the choice
        total = b + size**2
        bell = self.kernel(least, a, total) * (b / total)
        gap = a - cut
        upto = self.cdf(least, a, total)
        return bell - gap * upto, bell + gap * (1.0 - upto)

    # --- components of mixtures

    has_path = False
    component_ends = (-7.7, 7.7)

    def frame(self, location: ArrayLike, dispersion: ArrayLike) -> Frame:
        centre = np.array(location, dtype=float)
        log_variance = np.clip(np.asarray(dispersion, dtype=float), -230.0, 230.0)
        return Frame(centre, centre, np.exp(0.5 * log_variance))

    def component_parameters(self, centre: Floats, variance: Floats) -> Pair:
        return centre, variance

    def relative(self, frame: Frame, parameters: Pair) -> Relative:
        middle = (frame.centre - frame.location) / frame.spread
        mean = middle[:, None] + self.component_grid
        variance = np.full(mean.shape, WIDTH**2)
        reach = np.ones(len(mean))
        return Relative(mean[None], mean, variance, reach, unit=frame.spread)

    def log_weights(self, curves: Triple, grid: ComponentGrid, slopes: bool) -> LogLaw:
        location, dispersion, _ = curves
        total = np.exp(dispersion)
        variance = total - grid.inner
        y = (grid.base[0] - location) / variance
        square = y * y
        log_weights = square * (-0.5 * variance)
        return log_weights, [y, square * (0.5 * total)] if slopes else []

    def zero(self, a: Floats) -> Pair:
        return np.zeros(len(a)), np.full(len(a), 1e-200)

    def curvature(self, y: Floats, size: Floats, variance: Floats) -> Triple:
        return np.ones_like(size), np.zeros_like(size), 1.0 / (size + variance)
