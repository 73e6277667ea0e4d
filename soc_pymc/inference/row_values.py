"""Log marginals of rows near a fit: by polynomials where they serve, by the cells elsewhere."""

from dataclasses import dataclass

import numpy as np

from .._lib.arrays import Floats, Ints
from ..families.row_sums import RowSums
from ..families.surrogates import Surrogates, polynomial_sums

_NO_SLOPES = np.empty((2, 0, 0))


@dataclass(frozen=True, eq=False)
class NearRows:
    """Rows with their polynomials."""

    data: RowSums
    made: Surrogates

    def sums(
        self, first: Floats, second: Floats, rows: Ints, slopes: Floats = _NO_SLOPES
    ) -> Floats:
        """Sums (draws,) over some rows at both parameters (k, draws).

        Fills `slopes` (2, k, draws), unless they are empty.
        """
        made = self.made
        value, outside = np.empty(first.shape[1]), np.empty(first.shape, dtype=np.bool_)
        polynomials = made.centre, made.reach, made.coefficients, made.degree
        if not polynomial_sums(first, second, rows, value, slopes, outside, *polynomials):
            return value
        bare = np.flatnonzero((made.reach[:, rows] <= 0.0).any(axis=0))
        if len(bare):
            exact = self._exact(first[bare].T, second[bare].T, rows[bare], slopes)
            value += exact[0].sum(axis=1)
            if slopes.size:
                slopes[:, bare] = exact[1:].transpose(0, 2, 1)
            outside[bare] = False
        row, draw = np.nonzero(outside)
        if len(row):
            pairs = first[row, draw][None], second[row, draw][None], rows[row]
            exact = self._exact(*pairs, slopes)[:, 0]
            value += np.bincount(draw, exact[0], len(value))
            if slopes.size:
                slopes[:, row, draw] = exact[1:]
        return value

    def _exact(self, first: Floats, second: Floats, rows: Ints, slopes: Floats) -> Floats:
        """Values, and slopes if they are wanted: (1 or 3, draws, k)."""
        if slopes.size:
            return self.data.value_and_gradient(first, second, rows)
        return self.data.values(first, second, rows)[None]

    def by_draw(self, first: Floats, second: Floats) -> tuple[Floats, Floats, Floats]:
        """Sums (draws,) over all rows at both parameters (draws, rows), and their slopes."""
        slopes = np.empty((2, *first.T.shape))
        first, second = np.ascontiguousarray(first.T), np.ascontiguousarray(second.T)
        value = self.sums(first, second, np.arange(len(first)), slopes)
        by_first, by_second = np.ascontiguousarray(slopes.transpose(0, 2, 1))
        return value, by_first, by_second
