"""Weights of a mixture's components by draw of the curves.

Components are on a fixed base distribution, with weights smooth in the score.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .._lib.arrays import Bools, Columns, Floats, Ints, Pair, Triple
from .._model.splines import spline_matrix
from ..families.mixtures import Frame, WeightForms, weights_of_draws
from ..families.scales import RANK
from ..fits import Curves
from ..prior_table import with_zeros
from .item_columns import places, select

# share of theta that is exactly 0, given the score, and of an item
P_ZERO = "p_zero"
# least log weight: single precision holds its inverse
_LEAST_LOG = -80.0
# between the outer knots, weights are interpolated from points of this many panels
_PANELS = 8
_POINTS = 5
_BEYOND = 2  # panels beyond each end
_CHEBYSHEV = np.cos(np.pi * (np.arange(_POINTS) + 0.5) / _POINTS)
# with more groups, weights are solved for at each score
_MOST_GROUPS = 24


class ComponentWeights(ABC):
    """Weights of a mixture's components by draw of the curves."""

    # number of components
    number: int
    # reason why there is no prior table of them
    no_table: ClassVar[str] = ""

    @abstractmethod
    def parameters(self, columns: Columns) -> Pair:
        """Conjugate parameters (n, R) of the components, with the items' ``spread``."""

    @abstractmethod
    def by_draw(self, columns: Columns, draws: Ints) -> NDArray[np.floating[Any]]:
        """Weights of items under some draws, (draws, n, R)."""

    @abstractmethod
    def curve_variables(
        self, columns: Columns, draws: Ints | None = None
    ) -> dict[str, Floats]:
        """Variables of `calibration_curves`, each (draws, n)."""


class SmoothWeights(ComponentWeights):
    """Components on a fixed grid, with weights by draw; theta = 0, if it may be, is the last."""

    def __init__(self, curves: Curves) -> None:
        self._curves = curves
        self._pilot = _pilot(curves)
        self._family = curves.family
        self._prior = curves.prior
        values = curves.posterior["weight_coefficient"]
        values = values.transpose("chain", "draw", "weight_knot", "weight_function")
        self._z = curves.bins["component_z"].to_numpy()
        self._functions = curves.bins["component_function"].to_numpy()
        self._raise = curves.bins["grid_raise"].to_numpy()
        self._knots = curves.knots("weight_knot")
        self._coefficients = values.to_numpy().reshape(-1, *values.shape[2:])
        self._tables: dict[tuple[str, int], NDArray[np.float32]] = {}
        self.number = len(self._z) + curves.prior.zero
        # edges of panels on the mean's axis
        low = float(self._knots[0])
        high = float(self._knots[-1])
        beyond = _BEYOND
        if curves.axis("mean").scale == RANK:
            low = 0.0
            high = 1.0
            beyond = 0
        # with one score
        width = (high - low) / _PANELS or 1e-9
        panels = _PANELS if high > low else 0
        self._edges = low + width * np.arange(-beyond, panels + beyond + 1.0)

    def _base(self, columns: Columns) -> tuple[Frame, Floats]:
        """Base distributions that place components at items, and the pilot's curves, (n, 2)."""
        items = places(self._family.outcome, columns)
        location, dispersion = self._pilot.average(*items)
        position = self._curves.position("variance", columns["score"])
        basis = spline_matrix(position, self._curves.knots("variance_knot"))
        raised = dispersion + basis @ self._raise
        start = np.column_stack([location, dispersion])
        return self._family.frame(location, raised), start

    def _forms(self, columns: Columns) -> WeightForms:
        base, start = self._base(columns)
        return self._family.weight_forms(
            base, self._functions, start, self._prior.mixture
        )

    def parameters(self, columns: Columns) -> Pair:
        """Conjugate parameters (n, R) of the components, with the items' ``spread``."""
        base = self._base(columns)[0]
        spread = np.asarray(columns.get("spread", 0.0), dtype=float)
        # `spread` is the variance of the first curve
        if np.any(spread):
            spread = spread * self._family.rise(base) ** 2
        width = base.variance(spread)[:, None]
        theta = self._family.component_parameters(base.places(self._z), width)
        if self._prior.zero:
            theta = self._family.with_zero(*theta)
        return theta

    def curve_variables(
        self, columns: Columns, draws: Ints | None = None
    ) -> dict[str, Floats]:
        """Variables of `calibration_curves`, each (draws, n)."""
        items = places(self._family.outcome, columns)
        curves = self._curves.at(*items, draws)
        bounds = self._forms(columns).bounds
        variables = self._family.curve_variables(*bounds.represented(*curves))
        if not self._prior.zero:
            return variables
        share = special.expit(self._further(columns, draws)[..., -1])
        mean, variance = with_zeros(variables["mean"], variables["variance"], share)
        return {**moment_variables(mean, variance, variables), P_ZERO: share}

    def _further(self, columns: Columns, draws: Ints | None = None) -> Floats:
        """Further predictors at items, (draws, n, F)."""
        # constant beyond the outer knots, because straight lines of logarithms would explode
        position = self._curves.position("mean", columns["score"])
        inside = np.clip(position, self._knots[0], self._knots[-1])
        coefficients = self._coefficients
        if draws is not None:
            coefficients = coefficients[draws]
        return spline_matrix(inside, self._knots) @ coefficients

    def _predictors(self, columns: Columns, draws: Ints | None = None) -> Floats:
        """Both curves and the further predictors at items, (draws, n, 2 + F)."""
        items = places(self._family.outcome, columns)
        curves = np.stack(self._curves.at(*items, draws), axis=-1)
        return np.concatenate([curves, self._further(columns, draws)], axis=-1)

    def _solve(self, columns: Columns, predictors: Floats) -> Floats:
        """Weights (draws, n, R) of items with these predictors."""
        weight = weights_of_draws(predictors, self._forms(columns))
        if not self._prior.zero:
            return weight
        share = special.expit(predictors[..., -1:])
        return np.concatenate([(1.0 - share) * weight, share], axis=-1)

    def sample(self, columns: Columns, number: int) -> Floats:
        """Weights (draws, n, R) of all draws, or of `number` draws that stand for them.

        The predictors of these are moved to have the mean and covariance of all.
        """
        draws = self._coefficients.shape[0]
        if self.are_interpolated(columns).all() or draws <= number:
            return self.by_draw(columns, np.arange(draws), least=0).astype(float)
        predictors = self._predictors(columns)
        even = np.linspace(0, draws - 1, number).astype(int)
        return self._solve(columns, _with_moments(predictors[even], predictors))

    def are_interpolated(self, columns: Columns) -> Bools:
        """Return the items, (n,), whose weights are interpolated along the score."""
        position = self._curves.position("mean", columns["score"])
        # bins and sizes matter too, or there are too many groups for tables in memory
        by_size = self._prior.exposure is not None
        has_many = len(self._curves.groups) > _MOST_GROUPS
        if by_size or self._prior.bin_effects or has_many:
            return np.zeros(len(position), dtype=bool)
        inside = (position >= self._edges[0]) & (position <= self._edges[-1])
        return inside & (self._curves.atom(columns["score"]) == 0)

    def by_draw(
        self, columns: Columns, draws: Ints, least: int = _POINTS
    ) -> NDArray[Any]:
        """Weights of items under some draws, (draws, n, R), interpolated where that pays.

        It pays in panels with at least `least` different scores.
        """
        position = self._curves.position("mean", columns["score"])
        out = np.empty((len(position), len(draws), self.number), dtype=np.float32)
        to_solve = ~self.are_interpolated(columns)
        panel = np.searchsorted(self._edges[1:-1], position)
        labels = columns.get("group", np.full(len(position), ""))
        for label in set(labels[~to_solve].tolist()):
            of_label = ~to_solve & (labels == label)
            for k in np.unique(panel[of_label]).tolist():
                items = np.flatnonzero(of_label & (panel == k))
                # results must not depend on the tables that are there
                if len(np.unique(position[items])) < least:
                    to_solve[items] = True
                    continue
                if (label, k) not in self._tables:
                    self._tables[label, k] = self._table(label, k)
                low, high = self._edges[k : k + 2]
                share = (position[items] - low) / (high - low)
                out[items] = _interpolated(share, self._tables[label, k], draws)
        if to_solve.any():
            part = select(columns, to_solve)
            weight = self._solve(part, self._predictors(part, draws))
            out[to_solve] = np.maximum(weight, np.exp(_LEAST_LOG)).transpose(1, 0, 2)
        return out.transpose(1, 0, 2)

    def _table(self, label: str, panel: int) -> NDArray[np.float32]:
        """Log weights at a panel's points, (points, draws, R), of one group or all."""
        low, high = self._edges[panel : panel + 2]
        position = low + (high - low) * (0.5 + 0.5 * _CHEBYSHEV)
        columns = {"score": self._curves.axis("mean").inverse(position)}
        if label:
            columns["group"] = np.full(_POINTS, label, dtype=object)
        weight = self._solve(columns, self._predictors(columns))
        log_weight = np.log(np.maximum(weight, np.exp(_LEAST_LOG)))
        return np.ascontiguousarray(log_weight.transpose(1, 0, 2), dtype=np.float32)


def weights_of(curves: Curves) -> ComponentWeights:
    """Return the weights of the components of a mixture's curves, made once."""
    return curves.once(curves.weights or SmoothWeights)


def _interpolated(
    share: Floats, log_weight: NDArray[np.float32], draws: Ints
) -> NDArray[np.float32]:
    """Weights (n, draws, R) at places from 0 to 1 of a panel, from logarithms at its points."""
    apart = (2.0 * share - 1.0)[:, None] - _CHEBYSHEV
    apart = np.where(apart == 0.0, 1e-30, apart)
    # barycentric interpolation
    signs = (-1.0) ** np.arange(_POINTS)
    basis = signs * np.sqrt(1.0 - _CHEBYSHEV**2) / apart
    basis /= basis.sum(axis=1, keepdims=True)
    number = log_weight.shape[2]
    out = basis.astype(np.float32) @ log_weight[:, draws].reshape(_POINTS, -1)
    np.clip(out, _LEAST_LOG, 0.0, out=out)
    weight = np.exp(out, out=out).reshape(-1, number)
    weight /= (weight @ np.ones(number, dtype=np.float32))[:, None]
    return weight.reshape(len(share), -1, number)


def _pilot(curves: Curves) -> Curves:
    """The pilot's curves, which place the components, as one draw."""
    pilots = [name for name in map(str, curves.bins) if "pilot_" in name]
    names = {name: name.removeprefix("pilot_") for name in pilots}
    dims = ("chain", "draw")
    draw = curves.bins[list(names)].rename(names).expand_dims(dims)
    # an unknown group gets the shared curve
    scales = [name for name in curves.posterior if str(name).endswith("_sd")]
    draw = draw.assign({name: (dims, np.zeros((1, 1))) for name in scales})
    return curves.with_draws(draw.assign_coords(group=list(curves.groups)))


def moment_variables(
    mean: Floats, variance: Floats, like: Mapping[str, Floats]
) -> dict[str, Floats]:
    """Variables of `calibration_curves` from two moments; `like` are those of the family."""
    variables = {"mean": mean, "variance": variance, "log_variance": np.log(variance)}
    # for the Gamma with these moments
    if "shape" in like:
        shape = mean**2 / variance
        rate = mean / variance
        variables |= {"log_mean": np.log(mean), "shape": shape, "rate": rate}
    return variables


def _with_moments(thinned: Floats, draws: Floats) -> Floats:
    """Draws (k, n, P) moved to have the means and covariances of others (draws, n, P)."""
    centred, _, root = _moments(thinned)
    _, goal, goal_root = _moments(draws)
    standard = np.linalg.solve(root, centred.swapaxes(1, 2))
    return (goal + (goal_root @ standard).swapaxes(1, 2)).swapaxes(0, 1)


def _moments(draws: Floats) -> Triple:
    """Centred draws (n, k, P) of draws (k, n, P), their means, and roots of their covariances."""
    by_item = np.ascontiguousarray(draws.swapaxes(0, 1))
    mean = by_item.mean(axis=1, keepdims=True)
    centred = by_item - mean
    square = centred.swapaxes(1, 2) @ centred / len(draws)
    # some predictors may not vary
    size = np.einsum("naa->na", square)[..., None]
    ridge = (1e-12 * size + 1e-300) * np.eye(size.shape[1])
    return centred, mean, np.linalg.cholesky(square + ridge)
