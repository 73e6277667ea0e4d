"""Rows of Binomial-Beta items: their log marginal from three small histograms a row.

With mean mu = expit(f), a = exp(-g)/(1 - mu), b = exp(-g)/mu and M = a + b, the log marginal of an
item with y successes and z failures in n = y + z trials is

    y log mu + z log(1 - mu) + R(a, y) + R(b, z) - R(M, n) + log n! - log y! - log z!,

R(alpha, y) the sum of log1p(j/alpha) over j < y (`rising`): it needs one histogram each over
successes, failures and trials. With mu^y (1 - mu)^z divided out, every term is exact as g ->
-infinity, where the marginal is Binomial. log a = log(1 + exp(f)) - g and log b = log(1 + exp(-f))
- g lose no digits at either end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numba
import numpy as np
from numpy.typing import NDArray
from scipy import special

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from .binomial_beta import log_parameters, widened, widening_slope
from .cells import EXACT_COUNTS
from .poisson_rows import CV2_LEVEL
from .rising import columns, make_rising, rising
from .row_sums import Columns, RowSums, Weak, row_of, weak_dispersion

_NO_SPREAD = 1e15  # a + b beyond which theta does not vary
_SUMS = {
    "successes": ("n", "sum_y", "sum_y2", "sum_y3"),
    "failures": ("n", "sum_z", "sum_z2", "sum_z3"),
    "trials": ("n", "sum_N", "sum_N2", "sum_N3"),
}


def _softplus(xp: Any, x: Any) -> Any:
    """log(1 + exp(x)), with correct derivatives at 0 too."""
    return 0.5 * (x + abs(x)) + xp.log1p(xp.exp(-abs(x)))


def _over_row(xp: Any, location: Any, dispersion: Any, spread: Any) -> tuple[Any, Any]:
    """Both curves of theta over rows whose items' logits vary: see `binomial_beta.widened`."""
    mu, complement = xp.exp(-_softplus(xp, -location)), xp.exp(-_softplus(xp, location))
    tilt, within = complement - mu, xp.exp(dispersion)
    bent = tilt * tilt * within / (1.0 + mu * complement * within)
    return location + 0.5 * spread * tilt, xp.log(within + spread * (1.0 + bent))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _successes(rng, mean, size, n, items):  # type: ignore[no-untyped-def]
    """Successes of so many items of n trials: one Beta-Binomial with their mean and variance.

    `mean` and `size` are a / (a + b) and a + b of theta's Beta.
    """
    trials = max(np.rint(n * items), 1.0)
    # the correlation of two trials falls from 1/(size + 1) to (n - 1)/(trials - 1) of it
    ratio = (trials - 1.0) / (n - 1.0) if n > 1.0 else np.inf
    total_size = max(ratio * size + ratio - 1.0, size)
    theta = mean
    if total_size < _NO_SPREAD:
        x, y = rng.gamma(mean * total_size, 1.0), rng.gamma((1.0 - mean) * total_size, 1.0)
        # both are 0 where the Beta is at its ends
        theta = x / (x + y) if x + y > 0.0 else (1.0 if rng.random() < mean else 0.0)
    return float(rng.binomial(int(trials), theta))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def draw_row(  # type: ignore[no-untyped-def]
    rng, location, dispersion, y_step, y_over, y_excess, y_weight, z_step, z_over, z_excess,
    z_weight, n_step, n_over, n_excess, n_weight, total, failures, constant, spread,
):  # fmt: skip
    """Successes of a row, from the items of each number of trials."""
    mu, complement = 1.0 / (1.0 + np.exp(-location)), 1.0 / (1.0 + np.exp(location))
    tilt, within = complement - mu, np.exp(dispersion)
    f = location + 0.5 * spread * tilt
    within += spread * (1.0 + tilt * tilt * within / (1.0 + mu * complement * within))
    mean, size = 1.0 / (1.0 + np.exp(-f)), (1.0 + np.exp(f)) * (1.0 + np.exp(-f)) / within
    successes = 0.0
    for j in range(min(len(n_over), EXACT_COUNTS - 1)):  # with just 1, ..., 31 trials
        items = n_over[j] - (n_over[j + 1] if j + 1 < len(n_over) else 0.0)
        if items > 0.0:
            successes += _successes(rng, mean, size, j + 1.0, items)
    for i in range(len(n_excess)):
        if n_weight[i] > 0.0:
            successes += _successes(rng, mean, size, n_excess[i] + EXACT_COUNTS, n_weight[i])
    return successes


@dataclass(frozen=True)
class BetaRows(RowSums):
    """The three histograms of all rows: of successes y, failures z and trials n."""

    y_step_start: Ints  # as in `Rising`
    y_step: Floats
    y_over: Floats
    y_start: Ints
    y_excess: Floats
    y_weight: Floats
    z_step_start: Ints
    z_step: Floats
    z_over: Floats
    z_start: Ints
    z_excess: Floats
    z_weight: Floats
    n_step_start: Ints
    n_step: Floats
    n_over: Floats
    n_start: Ints
    n_excess: Floats
    n_weight: Floats
    total: Floats  # (rows,): sum of successes
    failures: Floats  # (rows,): and of failures
    constant: Floats  # (rows,): sum of log (n choose y), which makes a log probability
    spread: Floats  # (rows,): variance of the items' own logits of the mean around the row's

    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "y_step_start": ("y_step", "y_over"),
        "y_start": ("y_excess", "y_weight"),
        "z_step_start": ("z_step", "z_over"),
        "z_start": ("z_excess", "z_weight"),
        "n_step_start": ("n_step", "n_over"),
        "n_start": ("n_excess", "n_weight"),
    }
    draw_row = staticmethod(draw_row)
    most = (300.0, 60.0)
    farthest = (3.0, 3.0)
    reach = 1.0  # far from the data the likelihood is flat in the logit
    most_spread = 1.0  # its second-order terms mean nothing beyond
    margins = ("trials", "failures", "successes")
    size_cell = "trials_cell"

    @staticmethod
    def log_marginal(xp: Any, location: Any, dispersion: Any, *cells: Any) -> Any:
        """Log marginal as in `RowSums`, at the curves of theta over the row."""
        total, failures, constant, spread = cells[12:]
        mean, size = _over_row(xp, location, dispersion, spread)
        up, down = _softplus(xp, mean), _softplus(xp, -mean)  # -log(1 - mu), -log(mu)
        value = constant - total * down - failures * up
        value = value + rising(xp, xp.exp(size - up), *cells[:4])
        value = value + rising(xp, xp.exp(size - down), *cells[4:8])
        return value - rising(xp, xp.exp(size - up - down), *cells[8:12])

    @staticmethod
    def check(part: Columns) -> None:
        """Refuse statistics without any trial."""
        if not float(part["sum_N"].sum()) > 0:
            raise FitError("all trials are 0: nothing was observed, so nothing can be fitted")

    @classmethod
    def of(cls, rows: int, cells: Mapping[str, Columns]) -> "BetaRows":
        """Build from tables of cells with a column ``row``: joint cells, or the three margins."""
        joint = cells.get("joint")
        sums = {name: columns(joint or cells[name], names) for name, names in _SUMS.items()}
        (of_y, log_y), (of_z, log_z), (of_n, log_n) = (
            make_rising(rows, table) for table in sums.values()
        )
        total, failures = (
            np.bincount(sums[name][0], sums[name][2], rows) for name in ("successes", "failures")
        )
        constant = log_n - log_y - log_z
        return cls(*of_y, *of_z, *of_n, total, failures, constant, np.zeros(rows))

    @staticmethod
    def weak(sums: Mapping[str, float], scale: str, centre: float) -> tuple[Weak, Weak]:
        """Weak priors of both curves on an axis of this scale, at its centre."""
        dispersion = weak_dispersion(*CV2_LEVEL)
        if scale in ("logit", "log"):  # scores that are probabilities, or small rates
            return Weak((centre, 5.0), (1.0, 1.0)), dispersion
        return Weak((0.0, 10.0), (0.0, 2.0)), dispersion

    @staticmethod
    def events(sums: Mapping[str, float]) -> float:
        """Successes or failures, whichever are fewer."""
        return min(sums["sum_y"], sums["sum_N"] - sums["sum_y"])

    @property
    def tells_dispersion(self) -> NDArray[np.bool_]:
        """Rows with an item of two trials or more: single trials say nothing of the variance."""
        return (
            np.bincount(row_of(self.n_step_start)[self.n_step == 1.0], minlength=len(self.total))
            > 0
        )

    def _sizes(self) -> tuple[Ints, Floats, Floats]:
        """Row, trials and number of items of points that stand for the items."""
        row = row_of(self.n_step_start)
        later = np.append(self.n_over[1:], 0.0)
        later[np.append(row[1:], -1) != row] = 0.0
        fewer = self.n_step < EXACT_COUNTS - 1  # those with more are in the other table
        return (
            np.concatenate([row[fewer], row_of(self.n_start)]),
            np.concatenate([self.n_step[fewer] + 1.0, self.n_excess + EXACT_COUNTS]),
            np.concatenate([(self.n_over - later)[fewer], self.n_weight]),
        )

    def information(self, location: Floats, dispersion: Floats) -> tuple[Floats, Floats]:
        """Lower bounds of the Fisher information of both curves, by row.

        That of the best linear function of the successes, and of the second curve that of the best
        quadratic one (Godambe 1985): (d Var(y)/dg)^2 over the product of Var(y) and the second
        coefficient of the recurrence of Hahn's polynomials, orthogonal under the Beta-Binomial.
        """
        row, n, items = self._sizes()
        f, g = (x[row] for x in widened(location, dispersion, self.spread))
        a, b = (np.exp(x) for x in log_parameters(f, g))
        m, v = a + b, special.expit(f) * special.expit(-f)
        of_location = n * v * ((m + 1.0) / (m + n))
        extra = (n - 1.0) / (m + 1.0)  # extra variance: Var(y) = n v (1 + extra)
        later = 2.0 * (n - 1.0) * ((a + 1.0) / (m + 2.0)) * ((b + 1.0) / (m + 2.0))
        later = later * (m / (m + 1.0)) * ((m + n + 1.0) / (m + 3.0))
        slope = n * v * extra * (m / (m + 1.0))
        of_dispersion = slope**2 / np.where(n > 1, n * v * (1.0 + extra) * later, 1.0)
        chain = widening_slope(location, dispersion, self.spread)
        rows = len(self.total)
        return (
            np.bincount(row, items * of_location, rows),
            chain**2 * np.bincount(row, items * of_dispersion, rows),
        )

    def level(self) -> tuple[float, float]:
        """Logit of the overall rate, and the prior's own level."""
        successes, failures = self.total.sum() + 0.5, self.failures.sum() + 0.5
        return float(np.log(successes) - np.log(failures)), CV2_LEVEL[0]

    @property
    def can_fit(self) -> NDArray[np.bool_]:
        """Rows with a success and a failure: without either the logit of the mean is infinite."""
        return (self.total > 0) & (self.failures > 0)
