"""Components of a mixture at scores, and their weights by draw.

They come from one of two sources: a fit with weights that are smooth in the score (components on a
fixed base distribution, weights by draw), or five steps (the components of the score's bin, shifted
along the curve of the mean; one draw).
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, override

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy import special

from .._lib.arrays import Floats, Ints
from .._lib.threads import ordered_map
from .._model.splines import knots_in, spline_matrix
from ..families.components import Frame
from ..families.family import family_of
from ..families.mixture_items import average_weights, interpolated
from ..families.mixture_rows import LOWEST, WeightForms, bent_curves, solved
from ..families.priors import COMPONENTS
from ..families.scales import RANK
from ..families.zeros import whole_moments, with_zero
from ..inference.results import Fit
from .curves import (
    P_ZERO,
    atom_of,
    average_curves,
    bin_of,
    curve_draws,
    curves_at,
    moment_variables,
    own_terms,
    place_of,
    some_curves,
)
from .interface import Columns, select

Blocks = Iterator[tuple[Ints, Floats]]
"""Indices of scores with the components' weights there, (draws, scores, R), block by block."""

_AT_ONCE = 4_000_000  # numbers in one array of draws x scores x components
_GRID = 1000  # points of the table between the outer knots of the weights
_SOLVED = 150  # points at which weights are solved for; others are interpolated
_MOST_GROUPS = 24  # of more groups, each score's weights are solved for


class Weights(Protocol):
    """Components at scores and their weights, by draw."""

    draws: int
    items: int  # scores whose components are in memory at once

    def components(self, columns: Columns) -> tuple[Floats, Floats]:
        """Locations (n, R) and variances (n, 1) or (n, R), with the items' ``spread``."""

    def blocks(self, columns: Columns, draws: Ints | None = None) -> Blocks:
        """Weights of items, for all draws or some."""

    def curves(self, columns: Columns) -> dict[str, Floats]:
        """Variables of `calibration_curves`, each (draws, n)."""

    def updated(self, columns: Columns, density: Floats, plug_in: bool = False) -> Floats:
        """Posterior weights averaged over the draws (n, R), up to a factor per item.

        `density` (n, R) is that of the outcomes, up to such a factor; a plug-in uses the mean draw.
        """


# --- the components of bins ----------------------------------------------------------------------


class BinWeights(Weights):
    """One draw: components of a score's bin, shifted along the curve of the mean."""

    draws, items = 1, 5000

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        posterior = fit.data["posterior"]
        self._weight, self._place, sd = (posterior[k].to_numpy()[0, 0] for k in COMPONENTS)
        self._variance = sd**2

    @override
    def components(self, columns: Columns) -> tuple[Floats, Floats]:
        score = np.asarray(columns["score"], dtype=float)
        bins = bin_of(self._fit, score)
        middle = curve_draws(self._fit, score)[0][0]
        extra = np.broadcast_to(columns.get("spread", 0.0), len(score))[:, None]
        return middle[:, None] + self._place[bins], self._variance[bins] + extra

    @override
    def curves(self, columns: Columns) -> dict[str, Floats]:
        family = family_of(self._fit.prior)
        theta = family.mixtures.parameters(*self.components(columns))
        means, variances, weight = family.mean(*theta), family.variance(*theta), self._of(columns)
        mean = np.einsum("nr,nr->n", weight, means)
        variance = np.einsum("nr,nr->n", weight, (means - mean[:, None]) ** 2 + variances)
        curves = {"mean": mean, "variance": variance, "log_variance": np.log(variance)}
        if family.outcome.positive:
            curves["log_mean"] = np.log(mean)
        return {name: values[None] for name, values in curves.items()}

    @override
    def blocks(self, columns: Columns, draws: Ints | None = None) -> Blocks:
        weight, number = self._of(columns)[None], 1 if draws is None else len(draws)
        yield np.arange(weight.shape[1]), np.broadcast_to(weight, (number, *weight.shape[1:]))

    def _of(self, columns: Columns) -> Floats:
        return np.asarray(self._weight[bin_of(self._fit, columns["score"])])

    @override
    def updated(self, columns: Columns, density: Floats, plug_in: bool = False) -> Floats:
        return self._of(columns) * density


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


def _with_moments(few: Floats, draws: Floats) -> Floats:
    """Draws (n, few, P) moved to have the means and covariances of others (n, draws, P)."""
    roots = []
    for sample in (few, draws):
        away = sample - sample.mean(axis=1, keepdims=True)
        square = away.transpose(0, 2, 1) @ away / sample.shape[1]
        size, directions = np.linalg.eigh(square)
        roots.append((away, size, directions))
    away, size, directions = roots[0]
    least = 1e-12 * size[:, -1:] + 1e-300
    inverse = (directions / np.sqrt(np.maximum(size, least))[:, None]) @ directions.transpose(
        0, 2, 1
    )
    _, size, directions = roots[1]
    root = (directions * np.sqrt(np.maximum(size, 0.0))[:, None]) @ directions.transpose(0, 2, 1)
    return draws.mean(axis=1, keepdims=True) + away @ inverse @ root


class _Solved:
    """Logarithms of weights at even positions on the axis of the mean, solved when needed."""

    def __init__(
        self, position: Floats, shape: tuple[int, int], solve: Callable[[Ints], Floats]
    ) -> None:
        self.position, self._solve = position, solve
        self._log_weight = np.empty((len(position), *shape), dtype=np.float32)
        self._known, self._lock = np.zeros(len(position), dtype=bool), threading.Lock()

    def log_weight(self, points: Ints | None = None) -> NDArray[np.float32]:
        """Those at all points, (points, draws, R), of which only some, or all, are known."""
        with self._lock:
            known = self._known if points is None else self._known[points]
            new = np.flatnonzero(~known) if points is None else points[~known]
            step = max(1, _AT_ONCE // self._log_weight[0].size)
            parts = np.split(new, range(step, len(new), step)) if len(new) else []
            for part, weight in zip(parts, ordered_map(self._solve, parts), strict=True):
                floor = np.exp(LOWEST)
                self._log_weight[part] = np.log(np.maximum(weight, floor)).transpose(1, 0, 2)
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


_SOLVED_OF: dict[int, dict[str, _Solved]] = {}  # by id of a fit's data, while these exist


class SmoothWeights(Weights):
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

    @override
    def components(self, columns: Columns) -> tuple[Floats, Floats]:
        base = self._base(columns)[0]
        spread = np.asarray(columns.get("spread", 0.0), dtype=float)
        if np.any(spread):  # that of the first curve
            spread = spread * self._family.components.rise(base) ** 2
        return base.places(self._z), base.width(spread)[:, None]

    @override
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
        position, prior = place_of(self._fit, "mean", score), self._fit.prior
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
        place, coefficients = self._at(columns), self._coefficients
        if plug_in:
            curves = tuple(curve[None] for curve in average_curves(self._fit, *place))
            coefficients = coefficients.mean(axis=0, keepdims=True)
        elif draws is None:
            curves = curves_at(self._fit, *place)
        else:
            curves, coefficients = some_curves(self._fit, draws, *place), coefficients[draws]
        further, forms = self._further(columns, coefficients), self._forms(columns)
        predictors = np.concatenate([np.stack(curves, axis=-1), further], axis=-1)
        weight = np.asarray(solved(predictors, *forms.arrays)[0])
        if not self._zero:
            return weight
        share = special.expit(further[..., -1:])
        return np.concatenate([(1.0 - share) * weight, share], axis=-1)

    def parameters(self, columns: Columns) -> tuple[Floats, Floats]:
        """Conjugate parameters (n, R) of the components, theta = 0 the last."""
        theta = self._family.mixtures.parameters(*self.components(columns))
        return with_zero(self._family, *theta) if self._zero else theta

    def few(self, columns: Columns, number: int) -> Floats:
        """Weights (number, n, R) of few draws, moved to have the mean and covariance of all."""
        curves = np.stack(curves_at(self._fit, *self._at(columns)), axis=-1)
        further = self._further(columns, self._coefficients)
        predictors = np.concatenate([curves, further], axis=-1).transpose(1, 0, 2)
        few = predictors[:, np.linspace(0, self.draws - 1, min(number, self.draws)).astype(int)]
        if few.shape[1] < self.draws:
            few = _with_moments(few, predictors)
        few = few.transpose(1, 0, 2)
        weight = np.asarray(solved(few, *self._forms(columns).arrays)[0])
        if not self._zero:
            return weight
        share = special.expit(few[..., -1:])
        return np.concatenate([(1.0 - share) * weight, share], axis=-1)

    def _further(self, columns: Columns, coefficients: Floats) -> Floats:
        """Further predictors at items (draws, n, F) from coefficients at the knots."""
        # beyond the outer knots they stay constant, because straight lines of logs would explode
        position = place_of(self._fit, "mean", self._at(columns)[0])
        inside = np.clip(position, self._knots[0], self._knots[-1])
        return np.einsum("nk,dkj->dnj", spline_matrix(inside, self._knots), coefficients)

    def _places(self, columns: Columns) -> tuple[dict[str, NDArray[Any]], Ints]:
        """Scores, with groups and sizes where the fit has such terms, each once; place of items."""
        score, group, size = self._at(columns)
        terms = own_terms(self._fit, group, size)
        column = {"group": "group", "exposure": self._family.outcome.size}
        named = {column[name]: np.asarray(x) for name, x in terms.items() if x is not None}
        columns_of_terms: dict[str, NDArray[Any]] = {"score": score, **named}
        codes = [np.unique(values, return_inverse=True)[1] for values in columns_of_terms.values()]
        _, first, place = np.unique(codes, axis=1, return_index=True, return_inverse=True)
        return select(columns_of_terms, first), place.reshape(-1)

    @override
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
                chosen = items[begin : begin + step]
                scores, back = np.unique(place[chosen], return_inverse=True)
                if label is None:
                    weights = self._solve(select(distinct, scores), draws, plug_in)
                else:
                    weights = self._solved(label).at(position[scores], which)
                yield chosen, weights if len(scores) == len(chosen) else weights[:, back]

    @override
    def updated(self, columns: Columns, density: Floats, plug_in: bool = False) -> Floats:
        distinct, place = self._places(columns)
        order = np.argsort(place, kind="stable")
        start = np.searchsorted(place[order], np.arange(len(distinct["score"]) + 1))
        weight = np.empty_like(density)
        for scores, weights in self._blocks(distinct, None, plug_in):
            for k, weight_of_score in zip(scores, weights.transpose(1, 0, 2), strict=True):
                items = order[start[k] : start[k + 1]]
                weight[items] = average_weights(
                    np.ascontiguousarray(weight_of_score), density[items]
                )
        return weight

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
