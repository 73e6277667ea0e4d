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
        location: Floats,
        dispersion: Floats,
        rows: Ints,
        starts: Ints,
        slopes: Floats = NO_SLOPES,
    ) -> Floats:
        """Sums (parts, draws) of rows from each start to the next, at both parameters (k, draws).

        Fills `slopes` (2, k, draws), unless they are empty.
        """
        made = self.made
        value = np.empty((len(starts) - 1, location.shape[1]))
        outside = np.empty(location.shape, dtype=np.bool_)
        polynomials = made.centre, made.reach, made.coefficients, made.degree
        missing = 0
        for k, part in enumerate(map(slice, *zip(*pairwise(starts), strict=True))):
            curves = location[part], dispersion[part], rows[part]
            by_row = np.empty((2, *curves[0].shape)) if slopes.size else slopes
            missing += polynomial_sums(*curves, value[k], by_row, outside[part], *polynomials)
            slopes[:, part] = by_row
        if not missing:
            return value
        part_of = np.repeat(np.arange(len(value)), np.diff(starts))
        bare = np.flatnonzero((made.reach[:, rows] <= 0.0).any(axis=0))
        if len(bare):
            exact = self._exact(location[bare].T, dispersion[bare].T, rows[bare], slopes)
            np.add.at(value, part_of[bare], exact[0].T)
            if slopes.size:
                slopes[:, bare] = exact[1:].transpose(0, 2, 1)
            outside[bare] = False
        row, draw = np.nonzero(outside)
        if len(row):
            pairs = location[row, draw][None], dispersion[row, draw][None], rows[row]
            exact = self._exact(*pairs, slopes)[:, 0]
            np.add.at(value, (part_of[row], draw), exact[0])
            if slopes.size:
                slopes[:, row, draw] = exact[1:]
        return value

    def _exact(self, location: Floats, dispersion: Floats, rows: Ints, slopes: Floats) -> Floats:
        """Values, and slopes if they are wanted: (1 or 3, draws, k)."""
        if slopes.size:
            return self.data.value_and_gradient(location, dispersion, rows)
        return self.data.values(location, dispersion, rows)[None]

    def by_draw(self, location: Floats, dispersion: Floats) -> tuple[Floats, Floats, Floats]:
        """Sums (draws,) over all rows at both parameters (draws, rows), and their slopes."""
        slopes = np.empty((2, *location.T.shape))
        location, dispersion = np.ascontiguousarray(location.T), np.ascontiguousarray(dispersion.T)
        ends = np.array([0, len(location)])
        (value,) = self.sums(location, dispersion, np.arange(len(location)), ends, slopes)
        by_first, by_second = np.ascontiguousarray(slopes.transpose(0, 2, 1))
        return value, by_first, by_second
