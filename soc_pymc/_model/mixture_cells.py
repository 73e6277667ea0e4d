"""The log marginal of rows under mixtures, with its slopes and information in the predictors."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .._lib.arrays import Columns, Floats, Ints, Pair, Triple
from ..families.family import Family
from ..families.mixtures import Components, WeightForms, solved, weights_of_draws

_FORMS = 6  # of `MixtureCells.arrays`, those of the forms
# of differences of slopes, which are rounded to single precision
_SLOPE_STEP = 1e-2
# nats: a cell of several values becomes two points if the difference is larger
_SPLIT = 1e-3
# sd of the curves beyond what the components can represent
BEYOND = 2.0
WITHIN_BOUNDS = "within_bounds"  # name of the log density of these
# for a draw far from the data, single precision may underflow
_LEAST_DENSITY = np.float32(1e-37)


def cell_points(
    family: Family, cells: Columns, variance: Floats
) -> tuple[Ints, Pair, Floats]:
    """Cells, outcomes with sizes, and items of points: one for a cell, or two with its moments."""
    power = family.outcome.size_power
    least = family.outcome.validity.outcome.least
    n = cells["n"].astype(float)
    letter = "N" if power == 1 else "w"
    y = cells["sum_y"] / n
    size = cells[f"sum_{letter}"] / n
    vy, vn = (
        np.maximum(cells[f"sum_{x}2"] / n - mean**2, 0.0)
        for x, mean in (("y", y), (letter, size))
    )
    cov = cells["sum_yN"] / n - y * size if "sum_yN" in cells else np.zeros_like(n)
    by_y, by_size, curvature = family.curvature(y, size, variance)
    along_y = vy * by_y + cov * by_size
    along_size = cov * by_y + vn * by_size
    spread = along_y * by_y + along_size * by_size
    split = 0.5 * n * spread * curvature > _SPLIT
    room = y[split] - (-np.inf if least is None else least)
    root = np.sqrt(spread[split])
    dy = np.clip(along_y[split] / root, -room, room)
    dn = np.clip(along_size[split] / root, -size[split], size[split])
    outcomes = np.concatenate([y[~split], y[split] + dy, y[split] - dy])
    sizes = np.concatenate([size[~split], size[split] + dn, size[split] - dn]) ** (
        1.0 / power
    )
    place = np.flatnonzero(split)
    cell = np.concatenate([np.flatnonzero(~split), place, place])
    items = np.concatenate([n[~split], n[split] / 2, n[split] / 2])
    return cell, (outcomes, sizes), items


def with_listings(
    row_of_cell: Ints, cell: Ints, outcomes: Pair, items: Floats
) -> tuple[Ints, Pair, Floats]:
    """Cells of points by row and size, with one more after those of each, of minus their items.

    Its density is the probability to be in the table, by which the others are divided.
    """
    y, size = outcomes
    row = row_of_cell[cell]
    order = np.lexsort((y, size, row))
    keys = np.stack([row, size])[:, order]
    last = np.append((keys[:, 1:] != keys[:, :-1]).any(axis=0), True)
    ends = 1 + np.flatnonzero(last)
    total = np.diff(np.cumsum(items[order])[ends - 1], prepend=0.0)
    listed = order[last]
    return (
        np.insert(cell[order], ends, cell[listed]),
        (np.insert(y[order], ends, 0.0), np.insert(size[order], ends, size[listed])),
        np.insert(items[order], ends, -total),
    )


@dataclass(frozen=True, eq=False)
class MixtureCells:
    """Data of the likelihood of a mixture, row by row."""

    forms: WeightForms  # at the rows
    start: Ints  # (rows + 1,): offsets of each row's cells
    # (cells,): numbers of items; negative for the probability to be in the table
    items: Floats
    # (cells, R): under the components, over the cell's largest
    density: NDArray[np.float32]
    constant: Floats  # (rows,): sum of the logarithms of these divisors
    # (cells,): density where theta is 0, over the same divisors. The last predictor is then the
    # logit of this share. Empty where theta is never 0
    atom: NDArray[np.float32] = field(
        default_factory=lambda: np.empty(0, dtype=np.float32)
    )
    # (4, joint cells): rows, numbers and sizes of items, and sums of their outcomes
    joint: Floats = field(default_factory=lambda: np.empty((4, 0)))

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All arrays, of which `made_of` makes the cells again."""
        cells = self.start, self.items, self.density, self.constant, self.atom
        return (*self.forms.arrays, *cells, self.joint)

    @staticmethod
    def made_of(family: Components, *arrays: NDArray[Any]) -> "MixtureCells":
        """Cells of the family with these `arrays`."""
        return MixtureCells(
            WeightForms.made_of(family, *arrays[:_FORMS]), *arrays[_FORMS:]
        )

    @property
    def totals(self) -> Floats:
        """Sum of the outcomes of each row."""
        row, _, _, outcomes = self.joint
        return np.bincount(row.astype(int), outcomes, len(self.constant))

    def _components(self, family: Family) -> Pair:
        """Parameters (rows, R) of the components, the last of theta = 0 if it may be 0."""
        # which loads Numba
        from ..families.kernels import curves_of_moments

        forms = self.forms
        bounds = forms.bounds
        unit = bounds.unit[:, None]
        moments = forms.mean, forms.variance, bounds.middle[:, None]
        location, dispersion, *_ = curves_of_moments(*moments, family.has_path)
        parameters = family.to_parameters(
            bounds.location[:, None] + unit * location,
            dispersion + 2.0 * np.log(unit),
        )
        return family.with_zero(*parameters) if len(self.atom) else parameters

    def draw(self, predictors: Floats, rng: np.random.Generator) -> Floats:
        """Replicates (draws, rows) of the rows' totals at predictors (draws, rows, P)."""
        family = self.forms.family
        assert isinstance(family, Family)
        parameters = self._components(family)
        number = len(self.constant)
        row, items = self.joint[:2].astype(int)
        size = self.joint[2]
        drawn = np.empty((len(predictors), number))
        for k, predictor in enumerate(predictors):
            (weight,) = weights_of_draws(predictor[None], self.forms)
            if len(self.atom):
                share = self._share_of_zeros(predictor[:, -1])[:, None]
                weight = np.hstack([(1.0 - share) * weight, share])
            weight /= weight.sum(axis=1, keepdims=True)
            counts = rng.multinomial(items, weight[row])
            place = np.repeat(np.arange(counts.size), counts.ravel())
            cell, component = np.divmod(place, counts.shape[1])
            a, b = (x[row[cell], component] for x in parameters)
            outcome = family.simulate(a, b, size[cell], rng)
            drawn[k] = np.bincount(row[cell], outcome, number)
        return drawn

    def log_marginals(self, predictors: Floats) -> Pair:
        """Log marginals (..., rows) at predictors (..., rows, P), and their slopes in these."""
        by_row = np.moveaxis(predictors.reshape(-1, *predictors.shape[-2:]), 0, 2)
        value = np.empty((len(by_row), by_row.shape[2]))
        slope = np.empty(by_row.shape)
        bounded, bend = self.forms.bounded(by_row)
        share = self._share_of_zeros(by_row[:, -1])
        for part, weights in solved(bounded, self.forms):
            value[part], pull, by_share = self._values(
                part, weights.weight, share[part]
            )
            slope[part] = weights.slopes(pull)
            if len(self.atom):
                slope[part, -1] = by_share
        slope[:, :2] *= bend
        value += self.constant[:, None]
        slope = np.moveaxis(slope, 2, 0)
        return value.T.reshape(predictors.shape[:-1]), slope.reshape(predictors.shape)

    def sums(self, predictors: Floats) -> Floats:
        """Sums (draws,) over all rows at predictors (rows P, draws).

        Curves within what the components can represent are likelier than others.
        """
        return self.sums_and_slopes(predictors)[0]

    def sums_and_slopes(self, predictors: Floats) -> Pair:
        """`sums`, and slopes in the predictors (rows P, draws)."""
        by_row = predictors.T.reshape(predictors.shape[1], len(self.constant), -1)
        value, slope = self.log_marginals(by_row)
        excess = self.forms.bounds.excess(by_row[..., 0], by_row[..., 1])
        slope[..., 0] -= excess[0] / BEYOND**2 / self.forms.bounds.unit
        slope[..., 1] -= excess[1] / BEYOND**2
        total = value.sum(axis=1) + self.within_bounds(by_row)
        return total, slope.reshape(predictors.shape[::-1]).T

    def within_bounds(self, predictors: Floats) -> Floats:
        """Log density (draws,) of curves beyond what the components can represent."""
        excess = self.forms.bounds.excess(predictors[..., 0], predictors[..., 1])
        location, dispersion = ((x / BEYOND) ** 2 for x in excess)
        return -0.5 * (location + dispersion).sum(axis=-1)

    def _share_of_zeros(self, predictor: Floats) -> Floats:
        return special.expit(predictor) if len(self.atom) else np.zeros_like(predictor)

    def _values(self, part: slice, weight: Floats, share: Floats) -> Triple:
        """Sums of log densities, and slopes in log weights and the logit of the share of zeros."""
        start = self.start[part.start : part.stop + 1]
        cells = slice(start[0], start[-1])
        edges = start - start[0]
        rows = [slice(*ends) for ends in pairwise(edges)]
        density = self.density[cells]
        items = self.items[cells]
        atom = self.atom[cells]
        single = weight.astype(np.float32)
        mixed = np.empty((len(items), weight.shape[2]), "f4")
        for row, weight_of_row in zip(rows, single, strict=True):
            np.matmul(density[row], weight_of_row, out=mixed[row])
        number = np.add.reduceat(items, edges[:-1])[:, None]
        if len(atom):
            share_of_cell = np.repeat(share, np.diff(edges), axis=0)
            mixed = (
                (1.0 - share_of_cell) * mixed + share_of_cell * atom[:, None]
            ).astype("f4")
        np.maximum(mixed, _LEAST_DENSITY, out=mixed)
        ratio = items[:, None].astype(np.float32) / mixed
        value = np.add.reduceat(np.log(mixed) * items[:, None], edges[:-1])
        pull = np.empty_like(single)
        for row, pull_of_row in zip(rows, pull, strict=True):
            np.matmul(density[row].T, ratio[row], out=pull_of_row)
        zeros = np.zeros_like(share)  # items for which theta is 0
        if len(atom):
            zeros = share * np.add.reduceat(ratio * atom[:, None], edges[:-1])
        by_weight = weight * ((1.0 - share)[:, None] * pull - (number - zeros)[:, None])
        return value, by_weight, zeros - share * number

    def information(self, predictors: Floats) -> Pair:
        """Expected (by the cells' scores) and observed information, each (rows, P, P)."""
        rows, number = predictors.shape
        expected = []
        shares = self._share_of_zeros(predictors[:, -1])
        bounded, bend = self.forms.bounded(predictors[..., None])
        for part, weights in solved(bounded, self.forms):
            components = len(self.forms.functions)
            unit_pulls = np.zeros(
                (len(weights.weight), components, components)
            ) + np.eye(components)
            # derivatives of the log weights
            along = weights.slopes(unit_pulls)
            along[:, :2] *= bend[part]
            weight = weights.weight[..., 0]
            along -= along @ weights.weight
            for k, row in enumerate(range(part.start, part.stop)):
                cells = slice(self.start[row], self.start[row + 1])
                joint = (1.0 - shares[row]) * (self.density[cells] * weight[k])
                of_zero = shares[row] * self.atom[cells] if len(self.atom) else 0.0
                total = np.maximum(joint.sum(axis=1) + of_zero, 1e-300)
                score = (joint / total[:, None]) @ along[k].T
                score, items = _given_listed(score, self.items[cells])
                if len(self.atom):
                    score[:, -1] = of_zero / total - shares[row]
                expected.append((score * items[:, None]).T @ score)
        step = np.full((rows, number), _SLOPE_STEP)
        step[:, 0] *= self.forms.bounds.unit
        shifted = [
            predictors + sign * step * unit
            for sign in (1, -1)
            for unit in np.eye(number)
        ]
        slope = self.log_marginals(np.array(shifted))[1]
        curvature = (slope[number:] - slope[:number]).transpose(1, 2, 0) / (
            2.0 * step[:, None]
        )
        return np.array(expected), 0.5 * (curvature + curvature.mT)


def _given_listed(score: Floats, items: Floats) -> Pair:
    """Scores of cells less those of the probability to be in the table, which follow them."""
    listings = np.flatnonzero(items < 0.0)
    if not len(listings):
        return score, items
    cells = np.flatnonzero(items > 0.0)
    of_cell = listings[np.searchsorted(listings, cells)]
    return score[cells] - score[of_cell], items[cells]
