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
from .rising import columns, make_rising, rising_sum
from .row_sums import Columns, RowSums, Weak
from .surrogates import polynomial

_LEVEL = (float(np.log(0.3)), 2.0)  # of the second curve: as of log cv2 of a Gamma
_NO_SPREAD = 1e15  # of a + b
_SUMS = {
    "successes": ("n", "sum_y", "sum_y2", "sum_y3"),
    "failures": ("n", "sum_z", "sum_z2", "sum_z3"),
    "trials": ("n", "sum_N", "sum_N2", "sum_N3"),
}

_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def _softplus(x):  # type: ignore[no-untyped-def]
    """log(1 + exp(x))."""
    return max(x, 0.0) + np.log1p(np.exp(-abs(x)))


@_jit
def _level(f, g, b, rows):  # type: ignore[no-untyped-def]
    """Log marginal of row b at one pair of curves, and its slopes."""
    (y_above, y_start, y_excess, y_weight, z_above, z_start, z_excess, z_weight,
     n_above, n_start, n_excess, n_weight, total, failures, constant, _) = rows  # fmt: skip
    up, down = _softplus(f), _softplus(-f)  # -log(1 - mu), -log(mu)
    mu, rest = np.exp(-down), np.exp(-up)
    of_y, by_a = rising_sum(np.exp(g - up), b, y_above, y_start, y_excess, y_weight)
    of_z, by_b = rising_sum(np.exp(g - down), b, z_above, z_start, z_excess, z_weight)
    of_n, by_m = rising_sum(np.exp(g - up - down), b, n_above, n_start, n_excess, n_weight)
    value = constant[b] - total[b] * down - failures[b] * up + (of_y + of_z - of_n)
    # d log a = mu df - dg, d log b = -(1 - mu) df - dg, and of M the sum of both, with dg once
    slope = rest * (total[b] - by_b + by_m) - mu * (failures[b] - by_a + by_m)
    return value, slope, by_m - by_a - by_b


@_jit
def one_row(f, g, b, rows):  # type: ignore[no-untyped-def]
    """Log marginal of row b and its derivatives in both curves.

    Both are moved to those of theta over the row first: see `binomial_beta.widened`.
    """
    spread = rows[-1][b]
    if spread == 0.0:
        return _level(f, g, b, rows)
    mu, rest = np.exp(-_softplus(-f)), np.exp(-_softplus(f))
    tilt, v, e = rest - mu, mu * rest, np.exp(g)
    thin = 1.0 / (1.0 + v * e)
    share = tilt * tilt * e * thin
    whole = e + spread * (1.0 + share)
    value, by_f, by_g = _level(f + 0.5 * spread * tilt, np.log(whole), b, rows)
    by_whole = by_g / whole
    moved = -spread * v * tilt * e * thin * (4.0 + share)
    return (
        value,
        by_f * (1.0 - spread * v) + by_whole * moved,
        by_whole * (e + spread * share * thin),
    )


@_jit
def fill_rows(first, second, at, out, *rows):  # type: ignore[no-untyped-def]
    """Fill `out` as `RowSums.value_and_gradient` returns it; the kernel of all inference."""
    for s in range(first.shape[0]):
        for k in range(at.shape[1]):
            b = at[s % at.shape[0], k]
            out[0, s, k], out[1, s, k], out[2, s, k] = one_row(first[s, k], second[s, k], b, rows)


@_jit
def near_rows(first, second, at, out, centre, reach, coefficients, *rows):  # type: ignore[no-untyped-def]
    """Fill `out` as `fill_rows` does, by polynomials where they serve."""
    for s in range(first.shape[0]):
        for k in range(at.shape[1]):
            b, f, g = at[s % at.shape[0], k], first[s, k], second[s, k]
            if abs(f - centre[0, b]) < reach[0, b] and abs(g - centre[1, b]) < reach[1, b]:
                found = polynomial(f, g, b, centre, reach, coefficients)
            else:
                found = one_row(f, g, b, rows)
            out[0, s, k], out[1, s, k], out[2, s, k] = found


@_jit
def _successes(rng, mean, size, n, items):  # type: ignore[no-untyped-def]
    """Successes of so many items of n trials: one Beta-Binomial with their mean and variance.

    `mean` and `size` are a / (a + b) and a + b of theta's Beta.
    """
    trials = max(np.rint(n * items), 1.0)
    # the correlation of two trials falls from 1/(size + 1) to (n - 1)/(trials - 1) of it
    ratio = (trials - 1.0) / (n - 1.0) if n > 1.0 else np.inf
    whole = max(ratio * size + ratio - 1.0, size)
    theta = mean
    if whole < _NO_SPREAD:
        x, y = rng.gamma(mean * whole, 1.0), rng.gamma((1.0 - mean) * whole, 1.0)
        # both are 0 where the Beta is at its ends
        theta = x / (x + y) if x + y > 0.0 else (1.0 if rng.random() < mean else 0.0)
    return float(rng.binomial(int(trials), theta))


@_jit
def draw_row(rng, f, g, b, rows):  # type: ignore[no-untyped-def]
    """Successes of row b."""
    n_above, n_start, n_excess, n_weight = rows[8:12]
    mu, rest = np.exp(-_softplus(-f)), np.exp(-_softplus(f))
    tilt, e = rest - mu, np.exp(g)
    thin = 1.0 / (1.0 + mu * rest * e)
    f += 0.5 * rows[-1][b] * tilt
    g = np.log(e + rows[-1][b] * (1.0 + tilt * tilt * e * thin))
    up, down = _softplus(f), _softplus(-f)
    mean, size = np.exp(-down), np.exp(up + down - g)
    total = 0.0
    for j in range(n_above.shape[1] - 1):  # with just 1, ..., 31 trials
        items = n_above[b, j] - n_above[b, j + 1]
        if items > 0.0:
            total += _successes(rng, mean, size, j + 1.0, items)
    for i in range(n_start[b], n_start[b + 1]):
        total += _successes(rng, mean, size, n_excess[i] + EXACT_COUNTS, n_weight[i])
    return total


@_jit
def fill_draws(rng, first, second, out, *rows):  # type: ignore[no-untyped-def]
    """Fill `out` (draws, rows) with successes."""
    for s in range(first.shape[0]):
        for b in range(first.shape[1]):
            out[s, b] = draw_row(rng, first[s, b], second[s, b], b, rows)


@dataclass(frozen=True)
class BetaRows(RowSums):
    """The three histograms of all rows: of successes y, failures z and trials n."""

    y_above: Floats  # as of `Rising`
    y_start: Ints
    y_excess: Floats
    y_weight: Floats
    z_above: Floats
    z_start: Ints
    z_excess: Floats
    z_weight: Floats
    n_above: Floats
    n_start: Ints
    n_excess: Floats
    n_weight: Floats
    total: Floats  # (rows,): sum of successes
    failures: Floats  # (rows,): and of failures
    constant: Floats  # (rows,): sum of log (n choose y), which makes a log probability
    spread: Floats  # (rows,): variance of the items' own logits of the mean around the row's

    fill_rows = staticmethod(fill_rows)
    draw_row = staticmethod(draw_row)
    fill_draws = staticmethod(fill_draws)
    fill_near = staticmethod(near_rows)
    kernel: ClassVar[str] = "binomial"
    near: ClassVar[str] = "binomial_near"
    signature: ClassVar[str] = (
        "(b,c),(s),(y),(y),(b,c),(s),(z),(z),(b,c),(s),(n),(n),(b),(b),(b),(b)"
    )
    most = (300.0, 60.0)
    farthest = (3.0, 3.0)
    reach = 1.0  # far from the data the likelihood is flat in the logit
    most_spread = 1.0  # its second-order terms mean nothing beyond
    margins = ("trials", "failures", "successes")
    size_cell = "trials_cell"

    @classmethod
    def smallest(cls) -> "BetaRows":
        """One success in one trial."""
        row, one, none = np.zeros(1, dtype=np.int64), np.ones(1), np.zeros(1)
        return make_beta_rows(1, (row, *[one] * 4), (row, one, *[none] * 3), (row, *[one] * 4))

    @staticmethod
    def check(part: Columns) -> None:
        """Refuse statistics without any trial."""
        if not float(part["sum_N"].sum()) > 0:
            raise FitError("all trials are 0: nothing was observed, so nothing can be fitted")

    @classmethod
    def of(cls, rows: int, cells: Mapping[str, Columns]) -> "BetaRows":
        """From tables of cells with a column ``row``: joint cells, or the three margins."""
        joint = cells.get("joint")
        tables = (joint or cells[name] for name in _SUMS)
        return make_beta_rows(
            rows, *(columns(t, sums) for t, sums in zip(tables, _SUMS.values(), strict=True))
        )

    @staticmethod
    def weak(sums: Mapping[str, float], scale: str, centre: float) -> tuple[Weak, Weak]:
        """Weak priors of both curves on an axis of this scale, at its centre."""
        second = Weak(_LEVEL, (0.0, 1.0))
        if scale in ("logit", "log"):  # scores that are probabilities, or small rates
            return Weak((centre, 5.0), (1.0, 1.0)), second
        return Weak((0.0, 10.0), (0.0, 2.0)), second

    @property
    def tells_second(self) -> NDArray[np.bool_]:
        """Rows with an item of two trials or more: single trials say nothing of the variance."""
        return self.n_above[:, 1] > 0

    def _sizes(self) -> tuple[Ints, Floats, Floats]:
        """Row, trials and number of items of points that stand for the items."""
        of_items = self.n_above[:, :-1] - self.n_above[:, 1:]  # with just 1, ..., 31 trials
        row, less = np.nonzero(of_items)
        wide = np.repeat(np.arange(len(self.total)), np.diff(self.n_start))
        return (
            np.concatenate([row, wide]),
            np.concatenate([less + 1.0, self.n_excess + EXACT_COUNTS]),
            np.concatenate([of_items[row, less], self.n_weight]),
        )

    def information(self, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        """Lower bounds of the Fisher information of both curves, by row.

        That of the best linear function of the successes, and of the second curve that of the best
        quadratic one (Godambe 1985): (d Var(y)/dg)^2 over the product of Var(y) and the second
        coefficient of the recurrence of Hahn's polynomials, orthogonal under the Beta-Binomial.
        """
        row, n, items = self._sizes()
        f, g = (x[row] for x in widened(first, second, self.spread))
        a, b = (np.exp(x) for x in log_parameters(f, g))
        m, v = a + b, special.expit(f) * special.expit(-f)
        of_first = n * v * ((m + 1.0) / (m + n))
        more = (n - 1.0) / (m + 1.0)  # extra variance: Var(y) = n v (1 + more)
        later = 2.0 * (n - 1.0) * ((a + 1.0) / (m + 2.0)) * ((b + 1.0) / (m + 2.0))
        later = later * (m / (m + 1.0)) * ((m + n + 1.0) / (m + 3.0))
        slope = n * v * more * (m / (m + 1.0))
        of_second = slope**2 / np.where(n > 1, n * v * (1.0 + more) * later, 1.0)
        chain = widening_slope(first, second, self.spread)
        rows = len(self.total)
        return (
            np.bincount(row, items * of_first, rows),
            chain**2 * np.bincount(row, items * of_second, rows),
        )

    def level(self) -> tuple[float, float]:
        """Logit of the overall rate, and the prior's own level."""
        successes, failures = self.total.sum() + 0.5, self.failures.sum() + 0.5
        return float(np.log(successes) - np.log(failures)), _LEVEL[0]

    @property
    def can_fit(self) -> NDArray[np.bool_]:
        """Rows with a success and a failure: without either the logit of the mean is infinite."""
        return (self.total > 0) & (self.failures > 0)


def make_beta_rows(
    rows: int,
    successes: tuple[NDArray[Any], ...],
    failures: tuple[NDArray[Any], ...],
    trials: tuple[NDArray[Any], ...],
) -> BetaRows:
    """Rows from columns of cells: row, number of items, and sums of powers 1 to 3."""
    of_y, log_y = make_rising(rows, successes)
    of_z, log_z = make_rising(rows, failures)
    of_n, log_n = make_rising(rows, trials)
    total, other = (np.bincount(c[0], c[2], rows) for c in (successes, failures))
    constant = log_n - log_y - log_z
    return BetaRows(*of_y, *of_z, *of_n, total, other, constant, np.zeros(rows))
