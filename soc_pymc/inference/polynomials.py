"""Polynomials that stand for the log marginals of rows in the region that draws visit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from .._lib.arrays import Bools, Floats, Ints, Pair, Triple
from ..families.rows import RowSums

# in each curve, the lowest first: (degree + 1)^2 values at Chebyshev nodes give all coefficients
_DEGREES = 4, 6, 9, 13
# nats, allowed for all rows together as independent errors
_ERROR = 1e-3
# rows are bent where the last unit of their dispersion is felt by less than this, and up to so much
# beyond
_BENT = 0.2
_BEYOND = 2.0
_TESTS = 12  # random points of a row where the error is measured
_POWERS_AT_ONCE = 4  # of the compiled evaluation
_POWERS_IN_MEMORY = 1 << 16  # powers of one variable at once: half a MB
# from here on compiled code, which is three times as fast, makes up for its loading
_COMPILED_ROWS = 5_000
_COMPILED_VALUES = 1_000_000


@dataclass(frozen=True, eq=False)
class Surrogates:
    """One polynomial for each row, in units of reach from the centre of its region."""

    # (2, rows): middle of the regions in both parameters
    centre: Floats
    # (2, rows): half-widths; 0 means that the row has no polynomial
    reach: Floats
    # (rows, i, j): of u^i v^j, 0 beyond the degree, up to a multiple of `_POWERS_AT_ONCE`
    coefficients: Floats
    degree: Ints  # (rows,): in each curve

    @property
    def arrays(self) -> tuple[Floats, Floats, Floats, Ints]:
        """Returns the fields, for compiled loops."""
        return self.centre, self.reach, self.coefficients, self.degree

    def values(self, location: Floats, dispersion: Floats) -> tuple[Floats, Bools]:
        """Values at both parameters, all (rows, draws), and where these are outside a region."""
        (value,), outside = self._evaluated(location, dispersion, 1)
        return value, outside

    def values_and_slopes(
        self, location: Floats, dispersion: Floats
    ) -> tuple[Floats, Bools]:
        """Values, and slopes in both parameters, (3, rows, draws); and where these are outside."""
        return self._evaluated(location, dispersion, 3)

    def _evaluated(
        self, location: Floats, dispersion: Floats, number: int
    ) -> tuple[Floats, Bools]:
        results = np.empty((number, *location.shape))
        outside = np.empty(location.shape, dtype=np.bool_)
        if len(location) >= _COMPILED_ROWS or location.size >= _COMPILED_VALUES:
            from .row_kernels import fill

            fill(location, dispersion, results[0], results[1:], outside, self.arrays)
            return results, outside
        for degree in np.unique(self.degree):
            members = np.flatnonzero(self.degree == degree)
            step = max(1, _POWERS_IN_MEMORY // ((int(degree) + 1) * location.shape[1]))
            for start in range(0, len(members), step):
                rows = members[start : start + step]
                part = location[rows], dispersion[rows]
                results[:, rows], outside[rows] = self._of_rows(
                    rows, *part, int(degree), number
                )
        return results, outside

    def _of_rows(
        self, rows: Ints, location: Floats, dispersion: Floats, degree: int, number: int
    ) -> tuple[Floats, Bools]:
        """Results for some rows of one degree."""
        # rows without a polynomial
        with np.errstate(divide="ignore", invalid="ignore"):
            per_unit = 1.0 / self.reach[:, rows, None]
            u = (location - self.centre[0, rows, None]) * per_unit[0]
            v = (dispersion - self.centre[1, rows, None]) * per_unit[1]
            outside = ~((np.abs(u) < 1.0) & (np.abs(v) < 1.0))
            of_u = _powers(u, degree)
            of_v = _powers(v, degree)
            terms = self.coefficients[rows, : degree + 1, : degree + 1]
            by_u = terms @ of_v  # coefficients of the powers of u
            results = np.empty((number, *location.shape))
            np.einsum("rkd,rkd->rd", of_u, by_u, out=results[0])
            if number > 1:
                rising = np.arange(1, degree + 1)
                slope_by_u = by_u[:, 1:] * rising[:, None]
                slope_by_v = (terms[:, :, 1:] * rising) @ of_v[:, :-1]
                np.einsum("rkd,rkd->rd", of_u[:, :-1], slope_by_u, out=results[1])
                np.einsum("rkd,rkd->rd", of_u, slope_by_v, out=results[2])
                results[1:] *= per_unit
        return results, outside


def _powers(x: Floats, degree: int) -> Floats:
    """Powers of x (rows, draws) up to a degree, (rows, degree + 1, draws)."""
    powers = np.empty((len(x), degree + 1, x.shape[1]))
    powers[:, 0] = 1.0
    for k in range(degree):
        np.multiply(powers[:, k], x, out=powers[:, k + 1])
    return powers


def make_surrogates(
    exact: Callable[..., Floats],
    low: Floats,
    high: Floats,
    allowed: float = _ERROR,
    degrees: tuple[int, ...] = _DEGREES,
) -> Surrogates:
    """Polynomials over boxes (2, rows) of the first of `degrees` whose error is allowed.

    They stand for a function of both parameters (draws, k) and of the numbers of k rows.
    """
    centre = 0.5 * (low + high)
    reach = 0.5 * (high - low)
    number = reach.shape[1]
    most = (degrees[-1] // _POWERS_AT_ONCE + 1) * _POWERS_AT_ONCE
    coefficients = np.zeros((number, most, most))
    degree = np.zeros(number, dtype=np.int64)
    rows = np.arange(number)
    for tried in degrees:
        terms, error = _fit_polynomials(
            exact, centre[:, rows], reach[:, rows], rows, tried
        )
        # false where it is not a number
        accurate = error <= allowed / np.sqrt(number)
        coefficients[rows, : tried + 1, : tried + 1] = terms
        degree[rows] = tried
        rows = rows[~accurate]
        if not len(rows):
            break
    reach[:, rows] = 0.0
    return Surrogates(centre, reach, coefficients, degree)


def _fit_polynomials(
    exact: Callable[..., Floats],
    centre: Floats,
    reach: Floats,
    rows: Ints,
    degree: int,
) -> Pair:
    """Coefficients (rows, i, j) of polynomials, and their largest errors at random points."""

    def in_box(u: Floats, v: Floats) -> Floats:
        m = centre[0] + u[:, None] * reach[0]
        c = centre[1] + v[:, None] * reach[1]
        return exact(m, c, rows)

    node = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    to_powers = np.linalg.inv(np.vander(node, increasing=True))
    u, v = (x.ravel() for x in np.meshgrid(node, node, indexing="ij"))
    values = in_box(u, v).reshape(len(node), len(node), -1)
    # where values are not finite, the error is NaN
    with np.errstate(invalid="ignore"):
        terms = np.einsum("iu,jv,uvb->bij", to_powers, to_powers, values, optimize=True)
    u, v = np.random.default_rng(0).uniform(-1.0, 1.0, (2, _TESTS))
    powers = (x[:, None] ** np.arange(degree + 1) for x in (u, v))
    near = np.einsum("ti,tj,bij->tb", *powers, terms, optimize=True)
    return terms, np.abs(near - in_box(u, v)).max(axis=0)


@dataclass(frozen=True, eq=False)
class NearRows:
    """Rows with their polynomials."""

    data: RowSums
    surrogates: Surrogates
    # rows whose polynomials follow the dispersion as it is felt
    bent: Ints

    @classmethod
    def of(cls, data: RowSums, low: Floats, high: Floats) -> Self:
        """Build for boxes (2, rows)."""
        rise = data.felt(high[1])[0] - data.felt(high[1] - 1.0)[0]
        bent = np.flatnonzero(rise < _BENT)
        low, high = low.copy(), high.copy()
        low[1, bent] = data.felt(low[1, bent])[0]
        high[1, bent] = data.felt(high[1, bent] + _BEYOND)[0]

        def exact(location: Floats, dispersion: Floats, rows: Ints) -> Floats:
            is_bent = np.isin(rows, bent)
            dispersion[:, is_bent] = data.unfelt(dispersion[:, is_bent])
            return data.values(location, dispersion, rows)

        return cls(data, make_surrogates(exact, low, high), bent)

    def _felt(self, dispersion: Floats) -> Pair:
        """Dispersions (rows, draws) as they are felt, and slopes of the rows that are bent."""
        felt, slope = self.data.felt(dispersion[self.bent])
        if len(self.bent):
            dispersion = dispersion.copy()
            dispersion[self.bent] = felt
        return dispersion, slope

    def values(self, location: Floats, dispersion: Floats) -> Floats:
        """Log marginals at both parameters, all (rows, draws)."""
        felt, _ = self._felt(dispersion)
        value, outside = self.surrogates.values(location, felt)
        self._exact(self.data.values, location, dispersion, outside, value[None])
        return value

    def values_and_slopes(self, location: Floats, dispersion: Floats) -> Pair:
        """Log marginals (rows, draws), and their slopes in both parameters (2, rows, draws)."""
        felt, slope = self._felt(dispersion)
        results, outside = self.surrogates.values_and_slopes(location, felt)
        results[2, self.bent] *= slope
        self._exact(
            self.data.value_and_gradient, location, dispersion, outside, results
        )
        return results[0], results[1:]

    def _exact(
        self,
        function: Callable[[Floats, Floats, Ints], Floats],
        location: Floats,
        dispersion: Floats,
        outside: Bools,
        results: Floats,
    ) -> None:
        """Replace results (k, rows, draws) where a polynomial does not hold by a function's."""
        bare = np.flatnonzero(outside.all(axis=1))
        if len(bare):
            exact = function(location[bare].T, dispersion[bare].T, bare)
            results[:, bare] = np.reshape(exact, (len(results), -1, len(bare))).mT
        outside[bare] = False
        rows, draws = np.nonzero(outside)
        if len(rows):
            pair = location[rows, draws][None], dispersion[rows, draws][None]
            results[:, rows, draws] = np.reshape(
                function(*pair, rows), (len(results), -1)
            )

    def sums(self, location: Floats, dispersion: Floats) -> Floats:
        """Sums (draws,) over all rows at both parameters (rows, draws)."""
        return self.values(location, dispersion).sum(axis=0)

    def sums_and_slopes(self, location: Floats, dispersion: Floats) -> Triple:
        """Sums (draws,) over all rows at both parameters (rows, draws), and slopes in these."""
        value, slopes = self.values_and_slopes(location, dispersion)
        return value.sum(axis=0), slopes[0], slopes[1]
