"""Polynomials that stand for the log marginals of rows in the region that draws visit.

They also stand for those of a single family with a share of zeros, without its grid of theta: an
item with events is not one of theta = 0, so that a row has the family's log marginal of these. A
cell of items without any is a mixture of two probabilities.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import sparse, special

from .._lib.arrays import Bools, Floats, Ints, Pair, Triple
from .._model.problem import Problem
from ..families.mixtures import CurveBounds
from ..families.rows import RowSums

# in each curve, the lowest first: (degree + 1)^2 values at Chebyshev nodes give all coefficients
_DEGREES = 4, 6, 9, 13, 19
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

# cells of items without events, beyond which the grid takes no longer
_MOST_CELLS = 10_000


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
    parts = []
    degree = np.zeros(number, dtype=np.int64)
    rows = np.arange(number)
    for tried in degrees:
        terms, error = _fit_polynomials(
            exact, centre[:, rows], reach[:, rows], rows, tried
        )
        # false where it is not a number
        accurate = error <= allowed / np.sqrt(number)
        parts.append((rows, terms))
        degree[rows] = tried
        rows = rows[~accurate]
        if not len(rows):
            break
    reach[:, rows] = 0.0
    most = (degree.max(initial=0) // _POWERS_AT_ONCE + 1) * _POWERS_AT_ONCE
    coefficients = np.zeros((number, most, most))
    for some, terms in parts:
        coefficients[some, : terms.shape[1], : terms.shape[2]] = terms
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


@dataclass(frozen=True, eq=False)
class ZeroRows:
    """Log marginals of rows in which a share of theta is 0."""

    # of the items with events of every row, then of every cell without events
    near: NearRows
    row: Ints  # (pieces,): row of each of these pieces
    members: sparse.csr_array  # (rows, pieces): 1 for the pieces of each row
    positive: Floats  # (rows, 1): items with events
    items: Floats  # (cells without events, 1)
    bounds: CurveBounds  # at the rows

    @classmethod
    def of(cls, built: Problem, low: Floats, high: Floats) -> Self | None:
        """Build where predictors (rows P,) are between these; None if only the grid will do."""
        mixture = built.mixture
        outcome = built.family.outcome
        assert mixture
        joint = mixture.joint
        row_of_cell = joint["row"]
        has_events = joint["sum_y"] > 0
        zeros = np.flatnonzero(~has_events)
        is_single = not mixture.functions.any()
        if (
            not is_single
            or not outcome.whole
            or outcome.truncated
            or len(zeros) > _MOST_CELLS
        ):
            return None
        rows = len(mixture.rows.items)
        row = np.concatenate([np.arange(rows), row_of_cell[zeros]])
        piece = row_of_cell.copy()
        piece[zeros] = rows + np.arange(len(zeros))
        rise = built.family.rise(mixture.rows.base)
        data = built.family.rows_of(len(row), {"joint": {**joint, "row": piece}})
        data = data.with_spread((mixture.rows.spread / rise**2)[row])
        bounds = mixture.cells.forms.bounds
        low, high = (
            np.stack(bounds.represented(*ends.reshape(rows, -1)[:, :2].T))[:, row]
            for ends in (low, high)
        )
        pieces = np.arange(len(row))
        events = row_of_cell[has_events]
        positive = np.bincount(events, joint["n"][has_events], rows)
        return cls(
            near=NearRows.of(data, low, high),
            row=row,
            members=sparse.csr_array((np.ones(len(row)), (row, pieces))),
            positive=positive[:, None],
            items=joint["n"][zeros].astype(float)[:, None],
            bounds=bounds,
        )

    def log_marginals(self, predictors: Floats) -> Pair:
        """Log marginals (draws, rows) at predictors (draws, rows, P), and their slopes in these."""
        rows = len(self.positive)
        location, dispersion = predictors[..., 0], predictors[..., 1]
        logit = predictors[..., -1].T
        row = self.row
        curves = self.bounds.represented(location, dispersion)
        value, slopes = self.near.values_and_slopes(*(curve.T[row] for curve in curves))
        log_family = special.log_expit(-logit)
        cell = row[rows:]
        family = log_family[cell] + value[rows:] / self.items
        either = np.logaddexp(family, special.log_expit(logit)[cell])
        share = np.exp(family - either)
        value[rows:] = self.items * either
        value[:rows] += self.positive * log_family
        slopes[:, rows:] *= share
        # a share of zeros less the items that are zeros for sure, and those that may be
        by_logit = np.concatenate([np.zeros_like(logit), self.items * (1.0 - share)])
        number = self.positive + self.members[:, rows:] @ self.items
        by_row = [self.members @ x for x in (value, *slopes, by_logit)]
        slope = np.zeros(predictors.shape)
        _, bend = self.bounds.bent(location, dispersion)
        slope[..., 0] = by_row[1].T * bend[0] * self.bounds.unit
        slope[..., 1] = by_row[2].T * bend[1]
        slope[..., -1] = (by_row[3] - special.expit(logit) * number).T
        return by_row[0].T, slope
