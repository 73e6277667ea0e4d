"""Posteriors under mixtures: components at every score, with weights by draw.

Components and weights come from one of two sources: a fit with weights that are smooth in the score
(components on a fixed base distribution, weights by draw), or five steps (the components of the
score's bin, shifted along the curve of the mean; one draw).
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy import interpolate, special

from .._lib.arrays import Floats, Ints
from .._lib.threads import ordered_map
from ..families.components import Frame
from ..families.family import Family, family_of
from ..families.gamma_quantiles import quantile_tables
from ..families.mixture_items import (
    average_by_cells,
    average_by_table,
    average_in_cells,
    average_weights,
    interpolated,
    score_by_table,
    weights_by_table,
)
from ..families.mixture_rows import LOWEST, WeightForms, bent_curves, solved
from ..families.mixtures import draw_moments
from ..families.priors import COMPONENTS
from ..families.scales import RANK
from ..families.zeros import summaries as summaries_with_zero
from ..families.zeros import whole_moments, with_zero
from ..inference.results import Fit
from ..model.splines import knots_in, spline_matrix
from .curves import (
    P_ZERO,
    atom_of,
    average_curves,
    bin_of,
    curve_draws,
    curves_at,
    is_plain,
    moment_variables,
    own_terms,
    place_of,
    some_curves,
)
from .predictive import Columns, Scorer, ThetaMixture, in_chunks, own_outcomes, proper, select
from .quadrature import even_cells

Blocks = Iterator[tuple[Ints, Floats]]
"""Indices of scores with the components' weights there, (draws, scores, R), block by block."""

_AT_ONCE = 4_000_000  # numbers in one array of draws x scores x components
_GRID = 1000  # points of the table between the outer knots of the weights
_SOLVED = 150  # points at which weights are solved for; others are interpolated
_MOST_GROUPS = 24  # of more groups, each score's weights are solved for
_MOST = 0.01  # relative variance of marginal densities over draws, above which all draws are used
_TINY = 1e-300
_CELLS, _SIZES = 24, 8  # least number of cells along the score and the size
_NEAR = 20_000  # items scored at once where no draws are in memory
_MOST_KEPT = 25_000_000  # numbers in covariances at points that stay in memory
_BLOCK = 32  # cells in which all draws are solved for at once


class _Weights(Protocol):
    """Components at scores and their weights, by draw."""

    draws: int
    items: int  # scores whose components are in memory at once

    def components(self, columns: Columns) -> tuple[Floats, Floats]:
        """Locations (n, R) and variances (n, 1) or (n, R), with the items' ``spread``."""

    def blocks(self, columns: Columns, draws: Ints | None = None) -> Blocks:
        """Weights of items, for all draws or some."""

    def mean(self, columns: Columns) -> Floats:
        """Weights averaged over the draws, (n, R)."""

    def curves(self, columns: Columns) -> dict[str, Floats]:
        """Variables of `calibration_curves`, each (draws, n)."""

    def updated(self, columns: Columns, density: Floats, plug_in: bool = False) -> Floats:
        """Posterior weights averaged over the draws (n, R), up to a factor per item.

        `density` (n, R) is that of the outcomes, up to such a factor; a plug-in uses the mean draw.
        """

    @property
    def table(self) -> "_Table | _CellTable | None":
        """A table for scoring most items, if there is one."""


class _MixturePosterior:
    """Posterior of a fit of a mixture."""

    def __init__(self, fit: Fit, weights: _Weights) -> None:
        self._fit, self._weights, self._zero = fit, weights, fit.prior.zero
        self.family = family_of(fit.prior)
        self.outcome = self.family.outcome

    def _own(self, columns: Columns) -> tuple[Floats, Floats]:
        outcome, size = own_outcomes(self.outcome, columns)
        return np.asarray(outcome, dtype=float), np.asarray(size, dtype=float)

    def _components(self, columns: Columns) -> tuple[Floats, Floats]:
        """Locations and variances, including the spread of an item."""
        return self._weights.components(columns)

    def _prior(self, columns: Columns) -> tuple[Floats, Floats]:
        return self.family.mixtures.parameters(*self._components(columns))

    def _listed(self, theta: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """Parameters of all components, with theta = 0 as the last."""
        return with_zero(self.family, *theta) if self._zero else theta

    def _summaries(
        self, weight: Floats, theta: tuple[Floats, Floats], probs: tuple[float, ...]
    ) -> Floats:
        if self._zero:
            return summaries_with_zero(self.family, weight, *theta, probs)
        return self.family.mixtures.summaries(weight, *theta, probs)

    def _updated_parameters(
        self, columns: Columns, components: tuple[Floats, Floats]
    ) -> tuple[Floats, Floats]:
        """Conjugate parameters of theta given the outcome, for each component."""
        outcome, size = (x[:, None] for x in self._own(columns))
        return self.family.update(*self.family.mixtures.parameters(*components), outcome, size)

    def _densities(
        self, columns: Columns, components: tuple[Floats, Floats]
    ) -> tuple[Floats, Floats]:
        """Densities under the components (n, R) relative to the largest, and its logarithm (n,)."""
        own = self._own(columns)
        each = self.family.mixtures.log_density(*own, *components)
        if self._zero:
            at_zero = self.outcome.forms.log_likelihood(*own, np.zeros(len(each)))
            each = np.column_stack([each, at_zero])
        top = each.max(axis=1)
        return np.exp(each - top[:, None]), top

    def _updated(
        self, columns: Columns, components: tuple[Floats, Floats], plug_in: bool = False
    ) -> Floats:
        """Posterior weights (n, R) that add up to 1."""
        weight = self._weights.updated(columns, self._densities(columns, components)[0], plug_in)
        weight /= weight.sum(axis=1, keepdims=True)
        return weight

    def _in_chunks(self, one_chunk: Scorer, columns: Columns) -> Floats:
        return in_chunks(one_chunk, self._weights.items, columns)

    def prior_nodes(
        self, columns: Columns, every: int
    ) -> tuple[Floats, Floats, tuple[Floats, Floats]]:
        """Mean of the weights (n, R), weights by draw, and the parameters of the components.

        The weights by draw, (n / every, draws, R), are those of the middle of `every` points.
        """
        mean = self._weights.mean(columns)
        middle = select(columns, np.arange(every // 2, len(mean), every))
        draws = np.empty((len(middle["score"]), self._weights.draws, mean.shape[1]))
        for at, weights in self._weights.blocks(middle):
            draws[at] = weights.transpose(1, 0, 2)
        return mean, draws, self._listed(self._prior(columns))

    # --- outcomes --------------------------------------------------------------------------------

    def log_density(self, columns: Columns) -> Floats:
        def some(part: Columns) -> Floats:
            density, top = self._densities(part, self._components(part))
            out = np.empty((self._weights.draws, len(top)))
            for at, weights in self._weights.blocks(part):
                inside = np.einsum("dnr,nr->dn", weights, density[at])
                out[:, at] = top[at] + np.log(np.maximum(inside, _TINY))
            return out

        return self._in_chunks(some, columns)

    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        def some(part: Columns) -> Floats:
            weight = self._weights.mean(part)
            return self._interval(weight, self._listed(self._prior(part)), *self._own(part))

        return proper(*self._in_chunks(some, columns))

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        def some(part: Columns) -> Floats:
            components = self._components(part)
            weight = self._near_weights(part, components)
            further = part["further"], part["further_size"]
            after = self._listed(self._updated_parameters(part, components))
            return self._interval(weight, after, *further)

        both = {"further": outcome, "further_size": size}
        given = {name: np.asarray(values, dtype=float) for name, values in both.items()}
        return proper(*self._in_chunks(some, {**columns, **given}))

    def _interval(
        self, weight: Floats, theta: tuple[Floats, Floats], outcome: Floats, size: Floats
    ) -> Floats:
        """P(Y < y) and P(Y <= y), (2, n), for weights and components (n, R) of theta."""
        curves = np.broadcast_arrays(*self.family.to_curves(theta[0].T, theta[1].T))
        both = self.family.cdf_interval(outcome, size, *curves)
        return np.array([np.einsum("nr,rn->n", weight, end) for end in both])

    def _near_weights(self, columns: Columns, components: tuple[Floats, Floats]) -> Floats:
        """Posterior weights from the table, or over all draws where it is not accurate."""
        table = self._weights.table
        if not isinstance(table, _Table) or "spread" in columns:  # the table is for single scores
            return self._updated(columns, components)
        if table.compiled:
            weight, left = table.weights(columns, *self._own(columns))
        else:
            weight, left = table.averaged(0, columns, self._densities(columns, components)[0])
        if left.any():
            location, variance = (x[left] for x in components)
            weight[left] = self._updated(select(columns, left), (location, variance))
        return np.asarray(weight / weight.sum(axis=1, keepdims=True))

    def simulate(self, columns: Columns, rng: np.random.Generator) -> Floats:
        chosen = np.empty((self._weights.draws, len(columns["score"])), dtype=np.int64)
        for at, weights in self._weights.blocks(columns):
            u = rng.random(weights.shape[:2])[..., None]
            below = (np.cumsum(weights, axis=-1) < u).sum(axis=-1)
            chosen[:, at] = np.minimum(below, weights.shape[-1] - 1)
        curves = self.family.to_curves(*_picked(self._listed(self._prior(columns)), chosen))
        return np.asarray(self.family.simulate(*curves, self._own(columns)[1], rng))

    # --- theta -----------------------------------------------------------------------------------

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        given = {"score": np.asarray(score, dtype=float), "group": group}
        given[self.outcome.size] = exposure
        return self._weights.curves({k: np.asarray(v) for k, v in given.items() if v is not None})

    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        components = self._components(columns)
        after = self._listed(self._updated_parameters(columns, components))
        family, density = self.family, self._densities(columns, components)[0]
        each = family.mean(*after), family.variance(*after), family.third(*after)
        blocks, every = self._weights.blocks(columns), np.arange(len(density))
        return draw_moments(density, *each, every, blocks, self._weights.draws)

    def theta(self, columns: Columns) -> ThetaMixture:
        """Mixture of the posterior components, with weights averaged over the draws."""
        components = self._components(columns)
        first, second = np.broadcast_arrays(*self._updated_parameters(columns, components))
        weight = self._updated(columns, components).T
        if not self._zero:
            return ThetaMixture(first.T, second.T, weight)
        rest = weight[:-1] / np.maximum(weight[:-1].sum(axis=0), _TINY)
        return ThetaMixture(first.T, second.T, rest, weight[-1])

    def theta_given(self, columns: Columns, draws: Ints, uniform: Floats) -> tuple[Floats, Floats]:
        components, at = self._components(columns), np.empty(uniform.shape, dtype=np.int64)
        density = self._densities(columns, components)[0]
        for own, weights in self._weights.blocks(columns, draws):
            upto = np.cumsum(weights * density[own], axis=-1)
            below = (upto < (uniform[:, own] * upto[..., -1])[..., None]).sum(axis=-1)
            at[:, own] = np.minimum(below, weights.shape[-1] - 1)
        return _picked(self._listed(self._updated_parameters(columns, components)), at)

    def scorer(
        self, probs: tuple[float, ...], draws: str, plug_in: bool, zero: bool = False
    ) -> Scorer:
        def summarized(part: Columns, components: tuple[Floats, Floats], weight: Floats) -> Floats:
            found = self._summaries(weight, self._updated_parameters(part, components), probs)
            return np.vstack([found, weight[:, -1]]) if zero else found

        def exact(part: Columns) -> Floats:
            components = self._components(part)
            return summarized(part, components, self._updated(part, components, plug_in))

        def near(table: _Table | _CellTable, level: int, columns: Columns, own: Ints) -> Floats:
            part = select(columns, own)
            if isinstance(table, _Table) and table.compiled:
                found, left = table.score(part, *self._own(part), probs)
            else:
                components = self._components(part)
                density = self._densities(part, components)[0]
                weight, left = table.averaged(level, part, density)
                weight[left] = 1.0
                weight /= weight.sum(axis=1, keepdims=True)
                found = summarized(part, components, weight)
            found[:, left] = np.nan
            return found

        if plug_in or draws == "all":
            return partial(self._in_chunks, exact)
        return partial(self._by_table, near, exact, 3 + len(probs) + zero)

    def _by_table(
        self, near: Callable[..., Floats], exact: Scorer, rows: int, columns: Columns
    ) -> Floats:
        """Score items by the levels of the table, and what none of these scores over all draws."""
        table = self._weights.table
        if table is None or "spread" in columns:  # the table is for single scores
            return self._in_chunks(exact, columns)
        found = np.full((rows, len(columns["score"])), np.nan)
        left = np.arange(found.shape[1])
        for level in range(table.levels):
            some = select(columns, left)
            blocks = table.blocks(level, some)
            parts = ordered_map(partial(near, table, level, some), blocks)
            for own, part in zip(blocks, parts, strict=True):
                found[:, left[own]] = part
            left = left[np.isnan(found[0, left])]
            if not len(left):
                return found
        found[:, left] = self._in_chunks(exact, select(columns, left))
        return found


def _picked(theta: tuple[Floats, Floats], at: Ints) -> tuple[Floats, Floats]:
    """Parameters (n, R) of the components with indices `at` (draws, n)."""
    item = np.arange(at.shape[1])
    first, second = np.broadcast_arrays(*theta)
    return first[item, at], second[item, at]


def mixture_of(fit: Fit) -> _MixturePosterior:
    """The posterior of a fit of a mixture."""
    by_bin = COMPONENTS[0] in fit.data["posterior"]
    return _MixturePosterior(fit, _BinWeights(fit) if by_bin else _SmoothWeights(fit))


# --- the components of bins ----------------------------------------------------------------------


class _BinWeights:
    """One draw: components of a score's bin, shifted along the curve of the mean."""

    draws, items = 1, 5000
    table: "_Table | None" = None

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        posterior = fit.data["posterior"]
        self._weight, self._place, sd = (posterior[k].to_numpy()[0, 0] for k in COMPONENTS)
        self._variance = sd**2

    def components(self, columns: Columns) -> tuple[Floats, Floats]:
        score = np.asarray(columns["score"], dtype=float)
        at = bin_of(self._fit, score)
        middle = curve_draws(self._fit, score)[0][0]
        extra = np.broadcast_to(columns.get("spread", 0.0), len(score))[:, None]
        return middle[:, None] + self._place[at], self._variance[at] + extra

    def curves(self, columns: Columns) -> dict[str, Floats]:
        family = family_of(self._fit.prior)
        theta = family.mixtures.parameters(*self.components(columns))
        means, own, weight = family.mean(*theta), family.variance(*theta), self.mean(columns)
        mean = np.einsum("nr,nr->n", weight, means)
        variance = np.einsum("nr,nr->n", weight, (means - mean[:, None]) ** 2 + own)
        found = {"mean": mean, "variance": variance, "log_variance": np.log(variance)}
        if family.outcome.positive:
            found["log_mean"] = np.log(mean)
        return {name: values[None] for name, values in found.items()}

    def blocks(self, columns: Columns, draws: Ints | None = None) -> Blocks:
        weight, number = self.mean(columns)[None], 1 if draws is None else len(draws)
        yield np.arange(weight.shape[1]), np.broadcast_to(weight, (number, *weight.shape[1:]))

    def mean(self, columns: Columns) -> Floats:
        return np.asarray(self._weight[bin_of(self._fit, columns["score"])])

    def updated(self, columns: Columns, density: Floats, plug_in: bool = False) -> Floats:
        return self.mean(columns) * density


# --- weights that are smooth in the score --------------------------------------------------------


def _pilot(fit: Fit) -> Fit:
    """The pilot's curves, which place the components, as a fit with one draw."""
    data = fit.data["constant_data"].to_dataset()
    names = {name: name.removeprefix("pilot_") for name in map(str, data) if "pilot_" in name}
    posterior = data[list(names)].rename(names).expand_dims(("chain", "draw"))
    # a group that the fit does not know gets the shared curve
    scales = [name for name in fit.data["posterior"] if str(name).endswith("_sd")]
    posterior = posterior.assign({name: (("chain", "draw"), np.zeros((1, 1))) for name in scales})
    if fit.groups:
        posterior = posterior.assign_coords(group=list(fit.groups))
    tree = xr.DataTree.from_dict({"posterior": posterior, "constant_data": data})
    tree.attrs = dict(fit.data.attrs)
    return replace(fit, data=tree)


class _Solved:
    """Logarithms of weights at even positions on the axis of the mean, solved when needed."""

    def __init__(
        self, position: Floats, shape: tuple[int, int], solve: Callable[[Ints], Floats]
    ) -> None:
        self.position, self._solve = position, solve
        self._log_weight = np.empty((len(position), *shape), dtype=np.float32)
        self._mean = np.empty((len(position), shape[1]))
        self._known, self._lock = np.zeros(len(position), dtype=bool), threading.Lock()

    def log_weight(self, points: Ints | None = None) -> NDArray[np.float32]:
        """Those at all points, (points, draws, R), of which only some, or all, are known."""
        with self._lock:
            known = self._known if points is None else self._known[points]
            new = np.flatnonzero(~known) if points is None else points[~known]
            step = max(1, _AT_ONCE // self._log_weight[0].size)
            parts = np.split(new, range(step, len(new), step)) if len(new) else []
            for part, weight in zip(parts, ordered_map(self._solve, parts), strict=True):
                own = np.log(np.maximum(weight, np.exp(LOWEST))).transpose(1, 0, 2)
                self._log_weight[part], self._mean[part] = own, weight.mean(axis=0)
            self._known[new] = True
        return self._log_weight

    def _near(self, position: Floats) -> Ints:
        """First of the four points around each position, all of which become known."""
        first, second = self.position[:2]
        place = ((position - first) / (second - first)).astype(np.int64) - 1
        begin = np.clip(place, 0, len(self.position) - 4)
        self.log_weight(np.unique(begin[:, None] + np.arange(4)))
        return begin

    def at(self, position: Floats, draws: Ints) -> Floats:
        """Weights of some draws at positions, (draws, n, R), by cubic interpolation."""
        self._near(position)
        out = np.empty((len(draws), len(position), self._log_weight.shape[2]))
        interpolated(position, *self.position[:2], self._log_weight, draws, out)
        return out

    def mean_at(self, position: Floats) -> Floats:
        """Weights averaged over the draws at positions, (n, R), by cubic interpolation."""
        begin = self._near(position)
        x = (position - self.position[begin]) / (self.position[1] - self.position[0])
        shares = (
            -(x - 1.0) * (x - 2.0) * (x - 3.0) / 6.0,
            x * (x - 2.0) * (x - 3.0) / 2.0,
            -x * (x - 1.0) * (x - 3.0) / 2.0,
            x * (x - 1.0) * (x - 2.0) / 6.0,
        )
        mean = sum(share[:, None] * self._mean[begin + k] for k, share in enumerate(shares))
        mean = np.maximum(mean, 0.0)  # cubics may be below 0 where weights are next to nothing
        return np.asarray(mean / mean.sum(axis=1, keepdims=True))


_SOLVED_OF: dict[int, dict[str, _Solved]] = {}  # by id of a fit's data, while these exist


class _SmoothWeights:
    """Components on a fixed grid, with weights by draw."""

    items = 5_000

    def __init__(self, fit: Fit) -> None:
        self._fit, self._pilot = fit, _pilot(fit)
        self._family = family_of(fit.prior)
        data, values = fit.data["constant_data"], fit.data["posterior"]["weight_coefficient"]
        values = values.transpose("chain", "draw", "weight_knot", "weight_function")
        self._z = data["component_z"].to_numpy()
        self._functions = data["component_function"].to_numpy()
        self._raise = data["grid_raise"]
        self._zero = fit.prior.zero
        self._number = len(self._z) + self._zero  # of components, theta = 0 the last
        self._knots = knots_in(fit.data, "weight_knot")
        self._coefficients = values.to_numpy().reshape(-1, *values.shape[2:])
        self.draws = len(self._coefficients)

    def _at(self, columns: Columns) -> tuple[Floats, NDArray[Any] | None, Floats]:
        size = columns.get(self._family.outcome.size, np.ones(len(columns["score"])))
        return np.asarray(columns["score"], dtype=float), columns.get("group"), size

    def _base(self, columns: Columns) -> tuple[Frame, Floats]:
        """Base distributions that place components at items, and the pilot's curves, (n, 2)."""
        first, second = (x[0] for x in curves_at(self._pilot, *self._at(columns)))
        position = place_of(self._fit, "variance", self._at(columns)[0])
        knots, values = knots_in(self._fit.data, "variance_knot"), self._raise.to_numpy()
        raised = spline_matrix(position, knots) @ values
        base = self._family.components.base(first, second + raised)
        return base, np.column_stack([first, second])

    def _forms(self, columns: Columns) -> WeightForms:
        base, start = self._base(columns)
        return self._family.components.forms(base, self._functions, start, self._fit.prior.mixture)

    def components(self, columns: Columns) -> tuple[Floats, Floats]:
        base = self._base(columns)[0]
        spread = np.asarray(columns.get("spread", 0.0), dtype=float)
        if np.any(spread):  # that of the first curve
            spread = spread * self._family.components.rise(base) ** 2
        return base.places(self._z), base.width(spread)[:, None]

    def curves(self, columns: Columns) -> dict[str, Floats]:
        first, second = (np.array(x) for x in curves_at(self._fit, *self._at(columns)))
        bent_curves(first, second, self._forms(columns).handle)
        found = dict(self._family.curve_variables(first, second))
        if not self._zero:
            return found
        share = special.expit(self._further(columns, self._coefficients)[..., -1])
        mean, variance = whole_moments(share, found["mean"], found["variance"])
        return {**moment_variables(mean, variance, found), P_ZERO: share}

    def _along(self, columns: Columns) -> tuple[list[str], Ints, Floats]:
        """Labels of groups, the number of each item's label, and positions on the mean's axis.

        The number is -1 where weights are not interpolated along the score: it is beyond the grid
        or an atom, size or bin matter too, or there are more groups than memory for them.
        """
        score, group, _ = self._at(columns)
        position, prior = self._fit.axis("mean")(score), self._fit.prior
        many = len(self._fit.groups) > _MOST_GROUPS
        solve = many or prior.exposure is not None or prior.bin_effects
        solve |= (position < self._grid[0]) | (position > self._grid[-1])
        solve |= atom_of(self._fit, score) > 0
        if many or not self._fit.groups or group is None:
            return [""], np.where(solve, -1, 0), position
        code, labels = pd.factorize(np.asarray(group))
        return [str(label) for label in labels], np.where(solve, -1, code), position

    def _solve(self, columns: Columns, draws: Ints | None, plug_in: bool) -> Floats:
        """Weights at items, (draws, n, R), by the solver."""
        at, given = self._at(columns), self._coefficients
        if plug_in:
            both = tuple(curve[None] for curve in average_curves(self._fit, *at))
            given = given.mean(axis=0, keepdims=True)
        elif draws is None:
            both = curves_at(self._fit, *at)
        else:
            both, given = some_curves(self._fit, draws, *at), given[draws]
        rest, forms = self._further(columns, given), self._forms(columns)
        predictors = np.concatenate([np.stack(both, axis=-1), rest], axis=-1)
        weight = np.asarray(solved(predictors, *forms.arrays)[0])
        if not self._zero:
            return weight
        share = special.expit(rest[..., -1:])
        return np.concatenate([(1.0 - share) * weight, share], axis=-1)

    def _further(self, columns: Columns, given: Floats) -> Floats:
        """Further predictors at items (draws, n, F) from coefficients at the knots."""
        # beyond the outer knots they stay constant, because straight lines of logs would explode
        position = place_of(self._fit, "mean", self._at(columns)[0])
        inside = np.clip(position, self._knots[0], self._knots[-1])
        return np.einsum("nk,dkj->dnj", spline_matrix(inside, self._knots), given)

    def _places(self, columns: Columns) -> tuple[dict[str, NDArray[Any]], Ints]:
        """Scores, with groups and sizes where the fit has such terms, each once; place of items."""
        score, group, size = self._at(columns)
        terms = own_terms(self._fit, group, size)
        column = {"group": "group", "exposure": self._family.outcome.size}
        given = {column[name]: np.asarray(x) for name, x in terms.items() if x is not None}
        own: dict[str, NDArray[Any]] = {"score": score, **given}
        codes = [np.unique(values, return_inverse=True)[1] for values in own.values()]
        _, first, place = np.unique(codes, axis=1, return_index=True, return_inverse=True)
        return select(own, first), place.reshape(-1)

    def blocks(self, columns: Columns, draws: Ints | None = None) -> Blocks:
        return self._blocks(columns, draws, False)

    def _blocks(self, columns: Columns, draws: Ints | None, plug_in: bool) -> Blocks:
        number = 1 if plug_in else self.draws if draws is None else len(draws)
        which = np.arange(self.draws) if draws is None else draws
        distinct, place = self._places(columns)
        labels, code, position = self._along(distinct)
        if plug_in:
            code[:] = -1
        order = np.lexsort((place, code[place]))
        ends = np.searchsorted(code[place[order]], np.arange(len(labels)))
        step = max(1, _AT_ONCE // (number * self._number))
        for label, items in zip([None, *labels], np.split(order, ends), strict=True):
            for begin in range(0, len(items), step):
                at = items[begin : begin + step]
                these, own = np.unique(place[at], return_inverse=True)
                if label is None:
                    weights = self._solve(select(distinct, these), draws, plug_in)
                else:
                    weights = self._solved(label).at(position[these], which)
                yield at, weights if len(these) == len(at) else weights[:, own]

    def updated(self, columns: Columns, density: Floats, plug_in: bool = False) -> Floats:
        distinct, place = self._places(columns)
        order = np.argsort(place, kind="stable")
        start = np.searchsorted(place[order], np.arange(len(distinct["score"]) + 1))
        weight = np.empty_like(density)
        for at, weights in self._blocks(distinct, None, plug_in):
            for k, own in zip(at, weights.transpose(1, 0, 2), strict=True):
                of = order[start[k] : start[k + 1]]
                weight[of] = average_weights(np.ascontiguousarray(own), density[of])
        return weight

    def mean(self, columns: Columns) -> Floats:
        """Weights averaged over the draws."""
        mean = np.empty((len(columns["score"]), self._number))
        labels, code, position = self._along(columns)
        for number, label in enumerate(labels):
            at = code == number
            mean[at] = self._solved(label).mean_at(position[at])
        rest = np.flatnonzero(code < 0)
        for at, weights in self.blocks(select(columns, rest)):
            mean[rest[at]] = weights.mean(axis=0)
        return mean

    @cached_property
    def _grid(self) -> Floats:
        """Positions on the mean's axis, reaching beyond the outer knots on both sides."""
        low, high = self._knots[0], self._knots[-1]
        reach = max(0.25 * (high - low), 1e-9)
        ranks = self._fit.axis("mean").scale == RANK
        ends = (0.0, 1.0) if ranks else (float(low - reach), float(high + reach))
        return np.linspace(ends[0], ends[1], 2 * _GRID)

    def _solved(self, label: str) -> _Solved:
        """Weights of all draws at a grid of scores, of one group if the fit has groups."""
        if id(self._fit.data) not in _SOLVED_OF:
            _SOLVED_OF[id(self._fit.data)] = {}
            weakref.finalize(self._fit.data, _SOLVED_OF.pop, id(self._fit.data), None)
        by_label = _SOLVED_OF[id(self._fit.data)]
        if label not in by_label:
            position = np.linspace(self._grid[0], self._grid[-1], _SOLVED)
            columns = {"score": self._fit.axis("mean").inverse(position)}
            if self._fit.groups and label:
                columns["group"] = np.full(_SOLVED, label, dtype=object)

            def solve(points: Ints) -> Floats:
                return self._solve(select(columns, points), None, False)

            by_label[label] = _Solved(position, (self.draws, self._number), solve)
        return by_label[label]

    @cached_property
    def table(self) -> "_Table | _CellTable":
        """Moments of the weights over scores, with the base distribution, or over cells."""
        if not is_plain(self._fit):
            return _CellTable(self._fit, self._number, self._solve)
        few, logs = self._solved("").position, self._solved("").log_weight()
        moments = np.empty((len(few), self._number, 1 + self._number))
        for k, own in enumerate(map(np.exp, logs.astype(float))):
            mean = own.mean(axis=0)
            away = own - mean
            moments[k] = np.column_stack([mean, away.T @ away / len(away)])
        moments = interpolate.CubicSpline(few, moments)(self._grid)
        mean, cov = moments[:, :, 0].copy(), moments[:, :, 1:].copy()
        frame, _ = self._base({"score": self._fit.axis("mean").inverse(self._grid)})
        forms = self._family.mixtures.table
        columns = forms.columns(frame) if forms else ()
        kept = np.column_stack([frame.location, np.log(frame.spread), *columns])
        return _Table(self._fit, self._family, self._z, self._grid, kept, mean, cov)


@dataclass(frozen=True)
class _Table:
    """Means and covariances of weights over draws, and the base, at sorted positions."""

    fit: Fit
    family: Family
    z: Floats
    position: Floats
    frame: Floats
    mean: Floats
    cov: Floats

    @property
    def compiled(self) -> bool:
        """Whether compiled loops know the family's densities and summaries."""
        return self.family.mixtures.table is not None and not self.fit.prior.zero

    @property
    def _gamma(self) -> bool:
        forms = self.family.mixtures.table
        assert forms is not None
        return forms.gamma

    levels = 1

    def blocks(self, _: int, columns: Columns) -> list[Ints]:
        """Items to score at once."""
        n = len(columns["score"])
        return np.split(np.arange(n), range(_NEAR, n, _NEAR))

    def averaged(
        self, _: int, columns: Columns, density: Floats
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """`weights` from the outcomes' densities under the components."""
        weight, left = np.empty_like(density), np.empty(len(density), dtype=bool)
        position = self.fit.axis("mean")(columns["score"])
        moments = self.position, self.mean, self.cov
        average_by_table(position, density, *moments, _MOST, weight, left)
        return weight, left

    def _given(self, columns: Columns, outcome: Floats, size: Floats) -> tuple[Any, ...]:
        """First arguments of the compiled loops over items."""
        position = self.fit.axis("mean")(columns["score"])
        moments = self.position, self.frame, self.mean, self.cov
        return position, outcome, size, self.z, *moments, _MOST

    def weights(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Posterior weights (n, R), up to a factor, and a mask of items that need all draws."""
        weight, left = np.empty((len(outcome), len(self.z))), np.empty(len(outcome), dtype=bool)
        given = self._given(columns, outcome, size)
        weights_by_table(*given, self._gamma, weight, left)
        return weight, left

    def score(
        self, columns: Columns, outcome: Floats, size: Floats, probs: tuple[float, ...]
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Rows of a `Scorer`, and a mask of items that need all draws."""
        found, left = np.empty((3 + len(probs), len(outcome))), np.empty(len(outcome), dtype=bool)
        share, tables = np.array(probs, dtype=float), quantile_tables(probs)
        given = self._given(columns, outcome, size)
        score_by_table(*given, share, tables, self._gamma, found, left)
        return found, left


class _CellTable:
    """Means and covariances of weights over draws at points of cells of score, group and size.

    Cells come in levels, each finer than the one before.
    """

    levels = 4

    def __init__(
        self, fit: Fit, number: int, solve: Callable[[Columns, None, bool], Floats]
    ) -> None:
        self._cells = [
            even_cells(fit, _CELLS << k, _SIZES << k, 1 << k) for k in range(self.levels)
        ]
        posterior = fit.data["posterior"]
        draws = posterior.sizes["chain"] * posterior.sizes["draw"]
        self._solve, self._step = solve, max(1, _AT_ONCE // (draws * number))
        # moments at points, by level
        self._kept: list[dict[int, tuple[Floats, Floats]]] = [{} for _ in self._cells]

    def blocks(self, level: int, columns: Columns) -> list[Ints]:
        """Items of neighbouring cells, which share points, where they are more than new points."""
        cells = self._cells[level]
        cell, place, count = np.unique(cells.find(columns), return_inverse=True, return_counts=True)
        crowded = (cell >= 0) & (count >= cells.points // 2)
        order = np.argsort(place, kind="stable")
        order = order[crowded[place[order]]]
        number = np.cumsum(crowded)[place[order]] // _BLOCK + np.arange(len(order)) // _NEAR
        return np.split(order, np.flatnonzero(np.diff(number)) + 1) if len(order) else []

    def _logs(self, level: int, point: Ints) -> NDArray[np.float32]:
        """Logarithms of weights at points, (points, draws, R)."""
        parts = np.split(point, range(self._step, len(point), self._step))
        weights = (self._solve(self._cells[level].columns(own), None, False) for own in parts)
        logs = (np.log(np.maximum(w, np.exp(LOWEST))).astype(np.float32) for w in weights)
        return np.concatenate([own.transpose(1, 0, 2) for own in logs])

    def _moments(
        self, level: int, point: Ints
    ) -> tuple[Floats, Floats, dict[int, NDArray[np.float32]]]:
        """Means and covariances at points, and the logarithms at those that are new."""
        kept = self._kept[level]
        own = {p: kept[p] for p in point.tolist() if p in kept}
        logs = self._logs_of(level, [p for p in point.tolist() if p not in own])
        for p, log in logs.items():
            weight = np.exp(log)
            mean = weight.mean(axis=0, dtype=float)
            away = weight - mean.astype(np.float32)
            own[p] = mean, away.T @ away / np.float32(len(away))
        number = len(next(iter(own.values()))[0])
        if sum(map(len, self._kept)) * number**2 < _MOST_KEPT:
            kept.update(own)
        mean, cov = (np.array(x) for x in zip(*(own[p] for p in point.tolist()), strict=True))
        return mean, cov, logs

    def _logs_of(self, level: int, points: list[int]) -> dict[int, NDArray[np.float32]]:
        return dict(zip(points, self._logs(level, np.array(points)), strict=True)) if points else {}

    def averaged(
        self, level: int, columns: Columns, density: Floats
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Posterior weights (n, R), up to a factor, and a mask of items that need finer cells."""
        cells = self._cells[level]
        cell, place = np.unique(cells.find(columns), return_inverse=True)
        points, rows = np.unique(cells.points_of(cell), return_inverse=True)
        rows, shares = rows.reshape(len(cell), -1), cells.shares(columns, cell[place])
        mean, cov, logs = self._moments(level, points)
        weight, left, apart = np.empty_like(density), *np.empty((2, len(density)), dtype=bool)
        average_by_cells(place, *shares, rows, mean, cov, density, _MOST, weight, left, apart)
        apart &= ~left
        if apart.any():
            known, place = np.unique(place[apart], return_inverse=True)
            wanted, rows = np.unique(rows[known], return_inverse=True)
            wanted = points[wanted].tolist()
            logs |= self._logs_of(level, [p for p in wanted if p not in logs])
            every, own, again = np.stack([logs[p] for p in wanted]), weight[apart], left[apart]
            rows, (u, v) = rows.reshape(len(known), -1), (x[apart] for x in shares)
            average_in_cells(place, u, v, rows, every, density[apart], own, again)
            weight[apart], left[apart] = own, again
        return weight, left
