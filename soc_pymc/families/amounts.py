"""Amounts: sums y ~ Gamma(k n, k / theta) over n events, with theta ~ InverseGamma(a, b).

The mean of one amount is theta, and its known shape k is 1 over its squared cv. The curves are the
log mean and log cv2 of theta: a = 2 + 1 / cv2 is above 2 and b = mean (a - 1), so the prior is
proper with a finite variance at any cv2, and cv2 -> 0 is a regular limit. (A third moment needs
cv2 < 1, a fourth cv2 < 1/2: nothing here takes them for finite.) In units of one amount over k,
Y = k y and N = k n, the log marginal of a row needs one histogram over events and one over amounts:

    log Gamma(a + N) / Gamma(a) - (a + N) log(1 + Y / b) + N log(Y / b) - log Gamma(N) - log y.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy import optimize, special

from .._lib.arguments import ItemsError
from .._lib.arrays import Bools, Columns, Floats, Pair, Tables, Triple
from ..prior_table import InverseGammaFormulas
from .family import (
    Excess,
    Family,
    Generators,
    Outcome,
    Table,
    Validity,
    Words,
    residual_squares,
    uniform_range,
)
from .mixtures import ComponentGrid, Frame, LogLaw, Relative, along_path, reciprocal
from .poisson import EXPOSURE_CELLS, PoissonGamma, PoissonRows, inverse_trigamma
from .priors import InverseGamma, InverseGammaMixture
from .rows import Cells, Ragged, RowSums, Tensor, weighted_points
from .scales import LARGEST_COUNT, LOG, Bounds
from .special_functions import beta_tail, log_beta_kernel, log_rise, stirling, trigamma

_GAMMA = PoissonGamma()  # the law of 1 / theta
_EXACT_CV2 = 1e-3  # from which on the information of cv2 has digits in closed form
_LEAST_CV2 = 1e-15  # which can be seen
# thinned amounts stay positive
_LEAST_SHARE = 1e-12
# a third moment that is infinite is taken at this distance of the shape from 3
_LEAST_ROOM = 0.25
# 1 / cv2 that is hardly felt, as a share of what one event adds
_FELT = 0.1
_UPPER = -0.05  # log share, from which a log density is a line
_LOG_SHAPES = (-35.0, 35.0)  # log(a - 2) of base distributions
_EVENT_CELLS = EXPOSURE_CELLS._replace(name="events_cell")
_AMOUNT_CELLS = EXPOSURE_CELLS._replace(name="amount_cell", role="outcome")
_EVENT_SUMS = "sum_N", "sum_N2", "sum_N3"
_AMOUNT_SUMS = "sum_y", "sum_y2", "sum_y3"
_WEIGHTED_SUMS = "sum_N", "sum_yN", "sum_y2N", "sum_y3N"


# --- the outcome ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class AmountOutcome(Outcome):
    """Sums of amounts over events, each amount with one known shape."""

    shape: float = 1.0

    kind = "amount"
    observed = "amount"
    size = "events"
    theta = LOG
    ends = (0.0,)  # where the log is infinite
    whole = False
    relative = True
    five_steps = False
    never_zero = (
        "amounts, which are above 0 where there are events: leave it out, and fit whether there "
        "is one by soc.PoissonItems or soc.BinomialItems"
    )
    integers = ("n",)
    grid = "events exact below 32, 16 cells an octave of events and amounts"
    words = Words(
        items="amounts over events",
        outcome="amount",
        outcomes="amounts",
        size="events",
        sizes="events",
        theta="mean amount",
        estimate="own mean",
        unit="{outcome} per event ({size})",
        text="the sum of the amounts of known events, whose mean is its true theta seen with noise",
        further="{amount} more events ({size})",
        worth="Items that deserve more events",
        events="the amounts",
        noise="Gamma noise",
        overstated="shape= is too small",
    )
    validity = Validity(
        Bounds("amounts must be finite numbers >= 0, 0 only without events", least=0.0),
        Bounds("events must be whole numbers >= 0", LARGEST_COUNT, 0.0, whole=True),
        # negative numbers are wrong by themselves
        lambda y, size: ((y > 0) != (size > 0)) & (y >= 0) & (size >= 0),
        "positive without events (column {size!r}), or 0 with some",
    )
    tables: ClassVar[Mapping[str, Table]] = {
        "part": Table.part("sum_N", "sum_y"),
        "events": Table.margin(_EVENT_CELLS, *_EVENT_SUMS, "sum_y", "sum_y2", "sum_yN"),
        "amounts": Table.margin(_AMOUNT_CELLS, *_AMOUNT_SUMS, *_WEIGHTED_SUMS),
        "joint": Table.joint(
            _EVENT_CELLS,
            _AMOUNT_CELLS,
            reals=(*_EVENT_SUMS, *_AMOUNT_SUMS, *_WEIGHTED_SUMS),
        ),
    }

    def describe(self, n: int, sums: Mapping[str, Any]) -> str:
        total = float(sums["sum_y"])
        return f"amounts of {total:,.6g} in {float(sums['sum_N']):,.15g} events"

    def information(self, size: Floats, sums: Columns) -> Floats:
        return self.shape * size

    def cell_range(self, cells: Columns) -> Pair:
        low, high = uniform_range(cells)
        return np.maximum(low, 0.0), high

    def excess_squares(self, groups: Columns, part: Mapping[Hashable, Any]) -> Excess:
        # given their sum the amounts of n items are shares of a Dirichlet law; units are the
        # variance of an item of typical size
        known = (groups["n"] > 1) & (groups["sum_y"] > 0)
        squares, (n, x1, x2, _, rate) = residual_squares(groups, known)
        events = self.shape * x1
        typical = self.shape * x2 / x1
        excess = (1.0 + 1.0 / events) * squares * (self.shape / rate) ** 2
        noise = events - typical
        variance = 2.0 * events * (typical + 1.0) * (1.0 - 1.0 / n)
        variance = variance * (events / (events + 2.0)) * (events / (events + 3.0))
        return known, (excess - noise) / typical, variance / typical**2, noise / typical

    def log_likelihood(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        known, n, y = self.observed_items(y, size)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            scaled = self.shape * y / theta
            value = 0.5 * np.log(n / (2.0 * np.pi)) - np.log(y)
            value = (
                value - stirling(np.ravel(n)).reshape(n.shape) - _deviance(scaled, n)
            )
        return np.where(known, np.where(theta > 0, value, -np.inf), 0.0)

    def loss(self, y: Floats, size: Floats, theta: Floats) -> Floats:
        known, n, y = self.observed_items(y, size)
        return np.where(known, _deviance(self.shape * y / theta, n), 0.0)

    def observed_items(self, y: Floats, size: Floats) -> tuple[Bools, Floats, Floats]:
        """Mask of items with events, their shapes and amounts, which are 1 for others."""
        y, size = np.broadcast_arrays(y, size)
        known = (size > 0) & (y > 0)
        shape = np.where(known, self.shape * size, 1.0)
        return known, shape, np.where(known, y, 1.0)

    def thinned(self, y: Floats, size: Floats, fraction: float, rng: Generator) -> Pair:
        # some of the events, whose share of the sum is a Beta
        chosen = rng.binomial(size.astype(np.int64), fraction).astype(float)
        divided = (chosen > 0) & (chosen < size)
        shapes = (
            self.shape * np.where(divided, x, 1.0) for x in (chosen, size - chosen)
        )
        share = np.clip(rng.beta(*shapes), _LEAST_SHARE, 1.0 - _LEAST_SHARE)
        return y * np.where(divided, share, chosen > 0), chosen

    def noise(self, mean: Floats, variance: Floats | float = 0.0) -> Floats:
        return (mean**2 + variance) / self.shape

    def scatter(
        self, y: Floats, size: Floats, mean: Floats, variance: Floats
    ) -> Floats:
        # residuals of logarithms, as fourth moments of the sums may be infinite
        n = self.shape * np.where(size > 0, size, 1.0)
        a = 2.0 + mean**2 / variance
        centre = special.psi(n) + np.log(mean * (a - 1.0) / self.shape) - special.psi(a)
        known, _, y = self.observed_items(y, size)
        residual = np.where(known, np.log(y) - centre, 0.0)
        return (residual**2 / (trigamma(n) + trigamma(a))).sum(axis=-1)

    def contrast(
        self, y: Floats, size: Floats, fresh_y: Floats, fresh_size: Floats
    ) -> Pair:
        # given both, the share of the first is a Beta; a common factor of fresh amounts is found
        known = (size > 0) & (fresh_size > 0)
        if not known.any():
            raise ItemsError(
                "fresh=: no item has events in both outcomes of items seen twice"
            )
        n, later = (self.shape * np.where(known, x, 1.0) for x in (size, fresh_size))
        log_odds = np.where(
            known, np.log(reciprocal(fresh_y)) - np.log(reciprocal(y)), 0.0
        )
        total = n + later

        def residuals(factor: float) -> Floats:
            share = special.expit(log_odds + factor)
            return np.where(known, total * share - n, 0.0)

        most = 40.0 + np.abs(log_odds).max()
        root = optimize.brentq(lambda x: residuals(x).sum(), -most, most)
        return residuals(root), np.where(known, n * later / (total + 1.0), 0.0)

    def residual_factor(self, theta: Floats) -> Floats:
        return self.shape / theta


def _deviance(scaled: Floats, n: Floats) -> Floats:
    """Half the deviance n (r - 1 - log r) of amounts that are r times what is expected."""
    apart = scaled / n - 1.0
    return n * (apart - np.log1p(apart))


def _unfelt(felt: Floats, addend: float) -> Floats:
    """Log cv2 from -log(1 / cv2 + addend)."""
    return -np.log(np.maximum(np.exp(-felt) - addend, _LEAST_CV2))


# --- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AmountRows(RowSums):
    """The two histograms of all rows as weighted points, of amounts and events times the shape."""

    sizes: Ragged  # distinct events, and the items of each
    points: Ragged  # distinct amounts, and the items and events of each
    total: Floats  # (rows,): sum of the amounts themselves
    number: Floats  # (rows,): sum of the events
    multiple: Floats  # (rows,): the shape
    # (rows,): sum of N log Y - log Gamma(N) - log y, which makes a log density
    constant: Floats
    # (rows,): variance of the items' log means around that of the row's centre
    spread: Floats

    nothing = "there are no events"
    coupled = True
    widened = staticmethod(PoissonRows.widened)

    @staticmethod
    def log_probability(xp: ModuleType, curves: Pair, cells: Cells) -> Tensor:
        """Log marginal of rows without spread."""
        location, dispersion = curves
        size, items, amount, number, weight, _, events, _, constant = cells
        cv2 = xp.exp(dispersion)
        shape = (2.0 + 1.0 / cv2)[..., None]
        share = cv2 / (1.0 + cv2)  # of the mean in 1 / b, and a / (a - 1) - 1
        rises = (items * log_rise(xp, shape, size)).sum(axis=-1)
        ratio = amount * (xp.exp(-location) * share)[..., None]
        tails = ((number * shape + weight) * xp.log1p(ratio)).sum(axis=-1)
        return constant + rises - tails + events * (xp.log1p(share) - location)

    @staticmethod
    def draw_totals(rng: Generator, curves: Pair, cells: Cells) -> Floats:
        """Random amounts of rows: of one item with the mean and variance of their sum."""
        location, dispersion = curves
        size, items, *_, events, multiple, _ = cells
        known = np.maximum(events, 1e-300)
        cv2 = np.exp(dispersion)
        pairs = (items * size**2).sum(axis=-1) / known
        of_sum = (cv2 * (pairs + 1.0)) / (known + 1.0)
        room = 1.0 / np.maximum(of_sum, _LEAST_CV2)
        theta = np.exp(location) * (1.0 + room) / rng.standard_gamma(2.0 + room)
        amount = rng.standard_gamma(np.broadcast_to(events, theta.shape))
        return amount * theta / multiple

    @classmethod
    def of(cls, rows: int, cells: Tables, shape: float = 1.0) -> "AmountRows":
        """Build from tables of cells with a column ``row``: joint cells, or both margins."""
        by_events = cells.get("joint") or cells["events"]
        by_amount = cells.get("joint") or cells["amounts"]
        by_events, by_amount = (
            {name: values[cells["sum_N"] > 0] for name, values in cells.items()}
            for cells in (by_events, by_amount)
        )
        sizes = weighted_points(rows, by_events, ("n", *_EVENT_SUMS), smooth=True)
        names = "n", *_AMOUNT_SUMS
        points = weighted_points(rows, by_amount, names, _WEIGHTED_SUMS, smooth=True)
        events, items = sizes.columns
        size = shape * events
        amount, number, weight = points.columns
        scaled = shape * amount
        weight = shape * weight
        log_amounts = weight * np.log(scaled) - number * np.log(amount)
        gamma = special.gammaln(size)
        constant = np.bincount(points.row, log_amounts, rows)
        return cls(
            sizes=Ragged(sizes.start, (size, items)),
            points=Ragged(points.start, (scaled, number, weight)),
            total=np.bincount(by_amount["row"], by_amount["sum_y"], rows),
            number=shape * np.bincount(by_amount["row"], by_amount["sum_N"], rows),
            multiple=np.full(rows, shape),
            constant=constant - np.bincount(sizes.row, items * gamma, rows),
            spread=np.zeros(rows),
        )

    @staticmethod
    def felt(dispersion: Floats) -> Pair:
        """Minus log a, and slopes: any large dispersion is alike."""
        inverse = np.exp(-dispersion)
        return -np.log(2.0 + inverse), inverse / (2.0 + inverse)

    @staticmethod
    def unfelt(felt: Floats) -> Floats:
        """Dispersions of -log a."""
        return _unfelt(felt, 2.0)

    @staticmethod
    def events(sums: Mapping[str, float]) -> float:
        """Number of events."""
        return sums["sum_N"]

    def information(self, location: Floats, dispersion: Floats) -> Pair:
        """Fisher information of both curves, by row."""
        return self.joint_information(location, dispersion)[:2]

    def joint_information(self, location: Floats, dispersion: Floats) -> Triple:
        """`information`, and that between both curves, by row."""
        _, log_cv2 = self.widened(np, location, dispersion, self.spread)
        chain = np.exp(dispersion - log_cv2) * (1.0 + self.spread)
        row = self.sizes.row
        n, items = self.sizes.columns
        cv2 = np.exp(log_cv2)[row]
        # in terms of 1 / a, which may be 0
        r = n * cv2
        inverse = cv2 / (1.0 + 2.0 * cv2)
        whole = 1.0 + n * inverse
        of_mean = n / (whole + inverse)
        step = inverse * inverse / (1.0 + cv2)  # (a - 2) / (a - 1) / a^2
        between_both = -n * (n + 1.0) * step / (whole * (whole + inverse))
        a = 1.0 / np.maximum(inverse, _EXACT_CV2 / 2.0)
        exact = trigamma(a) - trigamma(a + n)
        exact = exact + n / (a - 1.0) * (a / (a + n + 1.0) / (a - 1.0) - 2.0 / (a + n))
        limit = 0.5 * r * (r + cv2) / (1.0 + r) ** 2
        of_cv2 = np.where(cv2 > _EXACT_CV2, exact / cv2**2, limit)
        sums = (
            np.bincount(row, items * values, len(self.total))
            for values in (of_mean, of_cv2, between_both)
        )
        by_mean, by_dispersion, mixed = sums
        return by_mean, chain**2 * by_dispersion, chain * mixed

    def level(self) -> tuple[float, float]:
        """Log of the overall mean, and the prior's own level."""
        mean = (self.total * self.multiple).sum() / self.number.sum()
        return float(np.log(mean)), self.dispersion_level[0]


# --- the family ----------------------------------------------------------------------------------


class GammaInverseGamma(InverseGammaFormulas, Family):
    """Inverse Gamma priors of mean amounts: `a` is the shape, `b` the scale."""

    name = "InverseGamma"
    prior = InverseGamma
    mixture = InverseGammaMixture
    rows = AmountRows
    parameter_names = "shape", "scale"
    theta_power = -1.0
    natural_moments = PoissonGamma.natural_moments

    outcome: AmountOutcome

    def __init__(self, shape: float = 1.0) -> None:
        super().__init__(shape)
        self.outcome = AmountOutcome(self.shape)

    def given(self, attrs: Mapping[Any, Any]) -> "GammaInverseGamma":
        return type(self)(attrs.get("shape", 1.0))

    @property
    def attrs(self) -> dict[str, Any]:
        return {"shape": self.shape}

    def rows_of(self, rows: int, cells: Tables) -> RowSums:
        return AmountRows.of(rows, cells, self.shape)

    def to_curves(self, a: Floats, b: Floats) -> Pair:
        return np.log(b) - np.log(a - 1.0), -np.log(a - 2.0)

    saturates = True

    @property
    def _least_felt(self) -> float:
        # one event adds its shape to a - 2, which shrinks to the mean by a - 1
        return _FELT * min(self.shape, 1.0)

    def felt(self, dispersion: Floats) -> Floats:
        return -np.logaddexp(np.log(self._least_felt), -dispersion)

    def unfelt(self, felt: Floats) -> Floats:
        return _unfelt(felt, self._least_felt)

    def third_moment(self, a: Floats, b: Floats) -> Floats:
        mean = self.mean(a, b)
        room = np.maximum(a - 3.0, _LEAST_ROOM)
        return 4.0 * mean * mean * mean / (a - 2.0) / room

    def above(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        return special.gammainc(a, b / np.maximum(cut, 1e-300))

    def cdf(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        return special.gammaincc(a, b / np.maximum(cut, 1e-300))

    def kernel(self, cut: Floats, a: Floats, b: Floats) -> Floats:
        # weighted by theta, the law is that of a shape a - 1, and tails differ by one term
        inverse = 1.0 / np.maximum(cut, 1e-300)
        return _GAMMA.kernel(inverse, a - 1.0, b) * self.mean(a, b) ** 2

    def draw(self, a: Floats, b: Floats, rngs: Generators) -> Floats:
        return -_GAMMA.draw(a, b, rngs)

    def above_place(self, place: Floats, a: Floats, b: Floats) -> Floats:
        return 1.0 - _GAMMA.above_place(-place, a, b)

    def log_marginal(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        known, n, y = self.outcome.observed_items(y, size)
        total = b + self.shape * y
        kernel = log_beta_kernel(self.shape * y / total, b / total, n, a)
        return np.where(known, kernel - np.log(y), 0.0)

    def below(self, y: Floats, size: Floats, a: Floats, b: Floats) -> Floats:
        known, n, y = self.outcome.observed_items(y, size)
        total = b + self.shape * y
        tail = beta_tail(b / total, self.shape * y / total, a, n)
        return np.where(known, tail, 0.0)

    def cdf_interval(
        self, y: Floats, size: Floats, location: Floats, dispersion: Floats
    ) -> Pair:
        below, upto = super().cdf_interval(y, size, location, dispersion)
        return below, np.where(np.asarray(size) > 0, upto, 1.0)

    def simulate(self, a: Floats, b: Floats, size: Floats, rng: Generator) -> Floats:
        amount = rng.standard_gamma(self.shape * size, np.shape(a)) / self.shape
        return amount * (b / rng.standard_gamma(a))

    further_scale = LOG

    def outcome_moments(self, a: Floats, b: Floats, size: Floats) -> Triple:
        n = self.shape * np.maximum(size, 1.0)
        mean = special.psi(n) - np.log(self.shape) + np.log(b) - special.psi(a)
        variance = trigamma(n) + trigamma(a)
        return mean, np.sqrt(variance), np.zeros_like(mean)

    # --- components of mixtures: those of Gammas, mirrored

    component_ends = (-6.3, 8.05)

    def frame(self, location: ArrayLike, dispersion: ArrayLike) -> Frame:
        location = np.array(location, dtype=float)
        log_room = np.clip(-np.asarray(dispersion, dtype=float), *_LOG_SHAPES)
        a = 2.0 + np.exp(log_room)
        centre = location + np.log(a - 1.0) - special.psi(a)
        return Frame(location, centre, np.sqrt(trigamma(a)))

    def component_parameters(self, centre: Floats, variance: Floats) -> Pair:
        # shared by the components
        shape = inverse_trigamma(variance[:, :1])
        return shape, np.exp(centre + special.psi(shape))

    def relative(self, frame: Frame, parameters: Pair) -> Relative:
        shape, scale = parameters
        log_mean = np.log(scale) - np.log(shape - 1.0) - frame.location[:, None]
        mean = np.expm1(log_mean)
        variance = (1.0 + mean) ** 2 / (shape - 2.0)
        return Relative(log_mean[None], mean, variance, frame.spread)

    def log_weights(self, curves: Triple, grid: ComponentGrid, slopes: bool) -> LogLaw:
        location, dispersion, _ = curves
        # log-normals, and 1 / Gamma(a) as a component over Beta(a, A - a), A its shape
        place = grid.base[0]
        inner = grid.inner
        room = np.exp(-dispersion)
        a = 2.0 + room
        log_share = location - place + np.log1p(room) - np.log1p(1.0 / inner)
        share = np.exp(np.minimum(log_share, _UPPER))
        slope = share / (1.0 - share)
        # beyond, a straight line, so that no weight is 0
        beyond = np.maximum(log_share - _UPPER, 0.0)
        log_complement = np.log1p(-share) - slope * beyond
        power = 1.0 / inner - room - 1.0
        gamma: tuple[Floats, ...] = (a * log_share + power * log_complement,)
        if slopes:
            rise = a - power * slope
            bend = log_share - log_complement + rise / (1.0 + room)
            gamma += rise, -room * bend
        return along_path(curves, grid, gamma, slopes)

    def zero(self, a: Floats) -> Pair:
        return a, np.full(len(a), 1e-100)

    def curvature(self, y: Floats, size: Floats, variance: Floats) -> Triple:
        sharpness = 1.0 / (variance + reciprocal(self.shape * size))
        return reciprocal(y), -reciprocal(size), sharpness
