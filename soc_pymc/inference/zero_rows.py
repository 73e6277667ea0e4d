"""The likelihood of a single family with a share of zeros, without its grid of theta.

An item with events is not one of theta = 0, so that a row has the family's log marginal of these. A
cell of items without any is a mixture of two probabilities. Polynomials stand for both.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import sparse, special

from .._lib.arrays import Floats, Ints, Pair
from .._model.problem import Problem
from ..families.mixtures import CurveBounds
from .polynomials import NearRows

# cells of items without events, beyond which the grid takes no longer
_MOST_CELLS = 10_000


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
