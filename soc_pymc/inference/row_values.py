"""Log marginals of rows near a fit: by polynomials where they serve, by the cells elsewhere."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .._lib.arrays import Floats, Ints
from ..families.row_sums import RowSums
from ..families.surrogates import Surrogates, polynomial_sums

NO_SLOPES = np.empty((2, 0, 0))


@dataclass(frozen=True, eq=False)
class NearRows:
    """Rows with their polynomials."""

    data: RowSums
    made: Surrogates

    def sums(
        self,
        first: Floats,
        second: Floats,
        rows: Ints,
        starts: Ints,
        slopes: Floats = NO_SLOPES,
    ) -> Floats:
        """Sums (parts, draws) of rows from each start to the next, at both parameters (k, draws).

        Fills `slopes` (2, k, draws), unless they are empty.
        """
        made = self.made
        value = np.empty((len(starts) - 1, first.shape[1]))
        outside = np.empty(first.shape, dtype=np.bool_)
        polynomials = made.centre, made.reach, made.coefficients, made.degree
        missing = 0
        for k, part in enumerate(map(slice, *zip(*pairwise(starts), strict=True))):
            curves = first[part], second[part], rows[part]
            by_row = np.empty((2, *curves[0].shape)) if slopes.size else slopes
            missing += polynomial_sums(*curves, value[k], by_row, outside[part], *polynomials)
            slopes[:, part] = by_row
        if not missing:
            return value
        part_of = np.repeat(np.arange(len(value)), np.diff(starts))
        bare = np.flatnonzero((made.reach[:, rows] <= 0.0).any(axis=0))
        if len(bare):
            exact = self._exact(first[bare].T, second[bare].T, rows[bare], slopes)
            np.add.at(value, part_of[bare], exact[0].T)
            if slopes.size:
                slopes[:, bare] = exact[1:].transpose(0, 2, 1)
            outside[bare] = False
        row, draw = np.nonzero(outside)
        if len(row):
            pairs = first[row, draw][None], second[row, draw][None], rows[row]
            exact = self._exact(*pairs, slopes)[:, 0]
            np.add.at(value, (part_of[row], draw), exact[0])
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
        everything = np.array([0, len(first)])
        (value,) = self.sums(first, second, np.arange(len(first)), everything, slopes)
        by_first, by_second = np.ascontiguousarray(slopes.transpose(0, 2, 1))
        return value, by_first, by_second
