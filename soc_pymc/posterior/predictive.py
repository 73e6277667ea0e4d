"""The posterior and predictive distributions of a fit: `posterior_of(fit)`, for all priors.

Given a draw of the curves theta is Gamma, Normal or Beta, or a mixture of these, before and after
the outcome; over the draws it is a mixture. `draws` are indices of draws, chains one after the
other, and may repeat; None takes each once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.interpolate import RegularGridInterpolator

from .. import prior_table
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..families import family_of
from ..families.priors import COMPONENTS
from ..families.rows import MEAN_ONLY
from ..fits.fit import FIT, Fit
from .curves import (
    atom_of,
    average_curves,
    chosen,
    curve_draws,
    items_at_once,
    place_of,
)
from .item_columns import Columns, Scorer, ThetaMixture, in_chunks, own_outcomes, select
from .prior_build import table_of, why_no_table
from .weights import BinWeights, SmoothWeights, smooth_weights

# points along each axis of a mesh of 1, 2 or 3 (score, size, outcome), and least number of items
_POINTS = (0, 20, 20, 12)
_LEAST_ITEMS = 80
# least size, and least quantile as a share of the mean
_TINY = 1e-300
_SMALL = 1e-4
# items that prove a mesh; error allowed, in widths of the interval
_SAMPLE = 40
_WITHIN = 0.02
_AT_ONCE = 4_000_000  # numbers in one array of draws x items x components

_Pair = tuple[Floats, Floats]


class Posterior:
    """Distributions of theta and outcomes under a fit.

    Theta is a mixture of members of the family, whose parameters are (members, n). Under a mixture
    they are its components, with weights by draw; else the draws, each with one member.
    """

    def __init__(self, fit: Fit) -> None:
        self.fit = fit
        self.family = family_of(fit.prior)
        self.outcome = self.family.outcome
        self._weights: BinWeights | SmoothWeights | None = None
        if fit.prior.gridded:
            by_bin = COMPONENTS[0] in fit.data["posterior"]
            self._weights = BinWeights(fit) if by_bin else smooth_weights(fit)

    # --- by draw ---------------------------------------------------------------------------------

    def curves(
        self,
        score: Floats,
        group: NDArray[Any] | None = None,
        exposure: Floats | None = None,
        draws: Ints | None = None,
    ) -> dict[str, Floats]:
        """Variables of `calibration_curves`, (draws, n); of single trials the mean alone."""
        if self._weights:
            columns = {"score": score, "group": group, self.outcome.size: exposure}
            known = {
                role: np.asarray(v) for role, v in columns.items() if v is not None
            }
            return self._weights.curves(known, draws)
        curves = curve_draws(self.fit, score, group, exposure, chosen(draws))
        variables = self.family.curve_variables(*curves)
        names = ("mean", self.family.curves[0]) if self.fit.mean_only else variables
        return {name: variables[name] for name in names}

    def log_density(self, columns: Columns, draws: Ints | None = None) -> Floats:
        """Log density (probability) of the outcomes given score and size, (draws, n)."""
        outcomes = own_outcomes(self.outcome, columns)
        log_density = np.asarray(
            self.family.log_density(*outcomes, *self._prior(columns, draws))
        )
        if self._weights is None:
            return log_density
        top = log_density.max(axis=0)
        (density,) = self._by_draw(columns, draws, np.exp(log_density - top)[None])
        return np.asarray(top + np.log(np.maximum(density, _TINY)))

    def cdf_by_draw(self, columns: Columns, draws: Ints | None) -> Floats:
        """P(Y < y) and P(Y <= y) under some draws of the curves, (2, draws, n)."""
        outcomes = own_outcomes(self.outcome, columns)
        ends = np.stack(
            self.family.cdf_interval(*outcomes, *self._prior(columns, draws))
        )
        return self._by_draw(columns, draws, ends)

    def simulate(
        self,
        columns: Columns,
        rng: np.random.Generator,
        draws: Ints | None = None,
        drawn_by: Ints | None = None,
    ) -> Floats:
        """Outcomes of new items of the same score and size, (draws, n).

        Given places among the draws, `drawn_by` (n,), each item has an outcome of one draw, (n,).
        """
        before = self._before(columns)
        shape = (self._number(draws), len(columns["score"]))
        uniform = rng.random(shape) if self._weights else np.empty(0)
        curves = self.family.to_curves(*self.theta_given(before, draws, uniform))
        if drawn_by is not None:
            curves = tuple(curve[drawn_by, np.arange(shape[1])] for curve in curves)
        return np.asarray(
            self.family.simulate(*curves, columns[self.outcome.size], rng)
        )

    def theta_given(
        self, columns: Columns, draws: Ints | None, uniform: Floats
    ) -> _Pair:
        """Conjugate parameters of theta under some draws of the curves, each (draws, n).

        Under a mixture `uniform` (draws, n) draws one component of the posterior for each.
        """
        theta, density = self._updated(columns, draws)
        if self._weights is None:
            return theta
        component = np.empty(uniform.shape, dtype=np.int64)
        for items, weights in self._blocks(columns, draws):
            upto = np.multiply(weights, density[:, items].T, order="C").cumsum(axis=2)
            cut = uniform[:, items, None] * upto[..., -1:]
            component[:, items] = (upto[..., :-1] < cut).sum(axis=2)
        item = np.arange(component.shape[1])
        return theta[0][component, item], theta[1][component, item]

    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        """E and Var(theta | t, y) and the third central moment of the items, each (draws, n)."""
        theta, density = self._updated(columns)
        moments = self.family.mean, self.family.variance, self.family.third
        means, variances, thirds = (moment(*theta) for moment in moments)
        if self._weights is None:
            return means, variances, thirds
        # squares are taken about a centre, so that little is lost where means are large
        centre = (density * means).sum(axis=0) / density.sum(axis=0)
        off = means - centre
        cubes = thirds + (3.0 * variances + off**2) * off
        powers = density * np.stack([np.ones_like(off), off, variances + off**2, cubes])
        total, *powers = self._by_draw(columns, None, powers)
        shift, square, cube = (power / np.maximum(total, _TINY) for power in powers)
        third = cube - (3.0 * square - 2.0 * shift**2) * shift
        return centre + shift, square - shift**2, third

    def _prior(self, columns: Columns, draws: Ints | None) -> _Pair:
        """Curves of the members, each (members, n), widened by the spread of an item."""
        if self._weights:
            a, b = np.broadcast_arrays(*self._weights.parameters(columns))
            return self.family.to_curves(a.T, b.T)
        terms = columns.get("group"), columns.get(self.outcome.size)
        curves = curve_draws(self.fit, columns["score"], *terms, chosen(draws))
        return (
            self.family.widened(*curves, columns["spread"])
            if "spread" in columns
            else curves
        )

    def _updated(
        self, columns: Columns, draws: Ints | None = None
    ) -> tuple[_Pair, Floats]:
        """Conjugate parameters of the members given the outcome; their relative densities of it."""
        if self.outcome.observed in columns:
            self._refuse_mean_only()
        curves = self._prior(columns, draws)
        outcomes = own_outcomes(self.outcome, columns)
        theta = self.family.update(*self.family.to_parameters(*curves), *outcomes)
        if self._weights is None:
            return theta, np.empty(0)
        log_density = self.family.log_density(*outcomes, *curves)
        return theta, np.exp(log_density - log_density.max(axis=0))

    def _number(self, draws: Ints | None) -> int:
        """Number of draws."""
        sizes = self.fit.data["posterior"].sizes
        return int(sizes["chain"] * sizes["draw"]) if draws is None else len(draws)

    def _before(self, columns: Columns) -> Columns:
        """Columns of items whose outcomes are not seen yet."""
        return {name: x for name, x in columns.items() if name != self.outcome.observed}

    def _by_draw(self, columns: Columns, draws: Ints | None, values: Floats) -> Floats:
        """Averages over the components of values (m, members, n), by draw, (m, draws, n)."""
        if self._weights is None:
            return values
        out = np.empty((len(values), self._number(draws), values.shape[2]))
        for items, weights in self._blocks(columns, draws):
            sums = weights.transpose(1, 0, 2) @ values[..., items].transpose(2, 1, 0)
            out[..., items] = sums.transpose(2, 1, 0)
        return out

    def _blocks(
        self, columns: Columns, draws: Ints | None
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Items, with the components' weights under draws, (draws, items, R)."""
        assert self._weights is not None
        draws = np.arange(self._number(None)) if draws is None else draws
        roles = ["score"] + ["group"] * bool(self.fit.groups)
        roles += [self.outcome.size] * (self.fit.prior.exposure is not None)
        roles = [role for role in roles if role in columns]
        keys = pd.DataFrame({role: columns[role] for role in roles})
        step = max(1, _AT_ONCE // (len(draws) * self._weights.number))
        for start in range(0, len(keys), step):
            items = slice(start, start + step)
            code = keys[items].groupby(roles).ngroup()
            index: Any = slice(None)
            back: Any = slice(None)
            if code.duplicated().any():
                _, index, back = np.unique(code, return_index=True, return_inverse=True)
            distinct = {role: columns[role][items][index] for role in roles}
            yield items, self._weights.by_draw(distinct, draws)[:, back]

    # --- over all draws --------------------------------------------------------------------------

    def theta(self, columns: Columns) -> ThetaMixture:
        """Theta of the items given score and outcome, averaged over all draws of the curves."""
        (a, b), density = self._updated(columns)
        if self._weights is None:
            return ThetaMixture(a, b)
        weight = np.empty_like(density)  # given the outcomes, averaged over draws
        for items, weights in self._blocks(columns, None):
            by_item = weights.transpose(1, 0, 2)
            p = density[:, items].T.astype(weights.dtype)
            inverse = 1.0 / np.maximum(
                by_item @ p[..., None], np.finfo(weights.dtype).tiny
            )
            inverse /= len(weights)
            weight[:, items] = (p * (inverse.transpose(0, 2, 1) @ by_item)[:, 0]).T
        weight /= weight.sum(axis=0)
        if not self.fit.prior.zero:
            return ThetaMixture(a, b, weight)
        share = weight[:-1] / np.maximum(weight[:-1].sum(axis=0), _TINY)
        return ThetaMixture(a[:-1], b[:-1], share, weight[-1])

    def cdf_interval(self, columns: Columns) -> _Pair:
        """P(Y < y) and P(Y <= y) by the prior table, each (n,); equal if continuous."""
        outcomes = own_outcomes(self.outcome, columns)
        return self.further_cdf_interval(self._before(columns), *outcomes)

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> _Pair:
        """`cdf_interval` of further outcomes with sizes, each (n,), given those in `columns`."""
        ends = np.empty((2, len(outcome)))
        for items, mixture in self._thetas(columns):
            theta = mixture.listed(self.family)
            curves = self.family.to_curves(theta.a, theta.b)
            if "spread" in columns:
                curves = self.family.widened(*curves, columns["spread"][items])
            below, upto = self.family.cdf_interval(outcome[items], size[items], *curves)
            ends[:, items] = theta.average(below), theta.average(upto)
        return proper(*ends)

    def density_moments(self, columns: Columns) -> Floats:
        """Log E(p), -log E(1 / p) and Var(log p) of the outcomes' densities p, (3, n), over draws.

        By the prior table, which is close where the densities differ little from draw to draw.
        """
        return self._over_members(columns, 3, _density_moments)

    def cdf_without(self, columns: Columns) -> _Pair:
        """`cdf_interval` of items that are left out of the fit, as draws weighted by 1 / p say."""
        return proper(*self._over_members(columns, 2, _ends_without))

    def _over_members(
        self, columns: Columns, number: int, summarized: Callable[..., Floats]
    ) -> Floats:
        """Summaries (number, n) over the table's nodes; over all draws where these are not close.

        They are functions of log densities (members, n) of the outcomes, ends (2, members, n) of
        their `cdf_interval`, made when called, weights of the members and ways in which these vary.
        """
        y, size = own_outcomes(self.outcome, columns)
        out = np.full((number, len(y)), np.nan)
        if not why_no_table(self.fit):
            before = self.items(self._before(columns))
            for part, theta in prior_table.posterior_nodes(table_of(self.fit), before):
                weight = theta.weight
                curves = self.family.to_curves(theta.a, theta.b)
                if theta.zero is not None:  # the last component
                    weight = (1.0 - theta.zero) * weight
                    weight[-1] = theta.zero
                if "spread" in columns:
                    curves = self.family.widened(*curves, columns["spread"][part])
                known = y[part], size[part], *curves
                log_density = self.family.log_density(*known)
                ends = partial(self.family.cdf_interval, *known)
                values = summarized(log_density, ends, weight, theta.ways)
                out[:, part] = np.where(theta.flagged, np.nan, values)
        by_draws = np.flatnonzero(np.isnan(out).any(axis=0))
        step = items_at_once(self.fit)
        for start in range(0, len(by_draws), step):
            chunk = by_draws[start : start + step]
            items = select(columns, chunk)
            log_density = self.log_density(items)
            equal = np.full(log_density.shape, 1.0 / len(log_density))
            out[:, chunk] = summarized(
                log_density, partial(self.cdf_by_draw, items, None), equal, ()
            )
        return out

    def _thetas(self, columns: Columns) -> Iterator[tuple[Ints, ThetaMixture]]:
        """Theta of items by the table, part by part; over all draws if flagged, with an outcome."""
        closely = self.outcome.observed in columns
        has_table = not why_no_table(self.fit)
        columns = {name: values for name, values in columns.items() if name != "spread"}
        flagged = np.full(len(columns["score"]), closely or not has_table)
        if has_table:
            items = self.items(columns)
            for part, theta in prior_table.posterior_nodes(table_of(self.fit), items):
                flagged[part] = theta.flagged & closely
                yield part, ThetaMixture(theta.a, theta.b, theta.weight, theta.zero)
        by_draws = np.flatnonzero(flagged)
        step = items_at_once(self.fit)
        for start in range(0, len(by_draws), step):
            chunk = by_draws[start : start + step]
            yield chunk, self.theta(select(columns, chunk))

    def _refuse_mean_only(self) -> None:
        """Refuse what needs the variance of theta under a fit to single trials: the prior's."""
        if self.fit.mean_only:
            raise FitError(
                f"the distribution of theta, and so posteriors, are not known: {MEAN_ONLY}"
            )

    # --- scores ----------------------------------------------------------------------------------

    def scorer(self, probs: Sequence[float], draws: str = "auto") -> Scorer:
        """Function that scores items: ``"auto"`` by the prior table, or over ``"all"`` draws."""
        self._refuse_mean_only()
        outer = prior_table.OUTER_LEVEL
        beyond = any(not outer <= prob <= 1.0 - outer for prob in probs)
        if draws == "all" or beyond or why_no_table(self.fit):
            return self._by_draws(probs, exact=True)
        return partial(self._by_table, probs)

    def _by_draws(self, probs: Sequence[float], exact: bool = False) -> Scorer:
        return partial(
            in_chunks, partial(self._rows, probs, exact), items_at_once(self.fit)
        )

    def items(self, columns: Columns) -> prior_table.Items:
        """Items as the prior table takes them."""
        size = None if self.fit.prior.exposure is None else columns[self.outcome.size]
        group = columns["group"].astype(object) if self.fit.groups else None
        outcomes = own_outcomes(self.outcome, columns)
        return prior_table.Items(columns["score"], *outcomes, size, group)

    def _rows(self, probs: Sequence[float], exact: bool, columns: Columns) -> Floats:
        theta = self.theta(columns)
        return self.family.summaries(
            theta.weight, theta.a, theta.b, probs, theta.zero, exact
        )

    def _by_table(self, probs: Sequence[float], columns: Columns) -> Floats:
        """Rows by the table, and of flagged items over all draws; many alike share a mesh."""
        rows, flagged = prior_table.posterior_rows(
            table_of(self.fit), self.items(columns), probs
        )
        score = self._by_draws(probs)
        by_draws = np.flatnonzero(flagged)
        if not len(by_draws):
            return np.asarray(rows)
        keys = pd.DataFrame({"atom": atom_of(self.fit, columns["score"])})
        keys["group"] = columns["group"] if self.fit.groups else ""
        roles = [["atom", "group"]]
        if self.outcome.positive:
            keys["outcome"] = own_outcomes(self.outcome, columns)[0]
            roles = [[*roles[0], "outcome"], *roles]
        for by in roles if len(probs) and self._weights is None else []:
            for alike in keys.loc[by_draws].groupby(by).groups.values():
                part = alike.to_numpy()
                on_mesh = self._on_a_mesh(score, select(columns, part))
                if on_mesh is not None:
                    rows[:, part] = on_mesh
                    flagged[part] = False
            by_draws = np.flatnonzero(flagged)
        if len(by_draws):
            rows[:, by_draws] = score(select(columns, by_draws))
            unsolved = by_draws[np.isnan(rows[:, by_draws]).any(axis=0)]
            if len(unsolved):  # the approximation has no digits there
                rows[:, unsolved] = self._by_draws(probs, exact=True)(
                    select(columns, unsolved)
                )
        return np.asarray(rows)

    def _on_a_mesh(self, score: Scorer, columns: Columns) -> Floats | None:
        """Rows with interpolated quantiles; None if items are few or these are not close enough."""
        if len(columns["score"]) < _LEAST_ITEMS:
            return None
        outcome, size = own_outcomes(self.outcome, columns)
        centre, unit = self._expected(columns)
        surprise = (
            (np.log1p(outcome) if self.outcome.positive else outcome) - centre
        ) / unit
        places = [
            place_of(self.fit, "mean", columns["score"]),
            np.log(size + _TINY),
            surprise,
        ]
        varied = [
            k
            for k, x in enumerate((columns["score"], size, outcome))
            if np.ptp(x) > 0.0
        ]
        points = np.column_stack(places)[:, varied]
        axes = [np.linspace(x.min(), x.max(), _POINTS[len(varied)]) for x in points.T]
        mesh = np.meshgrid(*axes, indexing="ij")
        if not axes or 2 * mesh[0].size + _SAMPLE > len(points):
            return None
        values = score(
            self._at_places(
                columns, dict(zip(varied, map(np.ravel, mesh), strict=True))
            )
        )
        shape = self._shape(values)
        if not np.isfinite(shape).all():
            return None
        shape = shape.T.reshape(*mesh[0].shape, -1)
        shape = RegularGridInterpolator(axes, shape, "cubic")(points).T
        sample = np.linspace(0, len(points) - 1, _SAMPLE).astype(int)
        proof = score(select(columns, sample))
        width = np.ptp(proof[3:], axis=0) if len(proof) > 4 else proof[1]
        gap = self._quantiles(proof, shape[:, sample]) - proof[3:]
        if not (np.abs(gap) <= _WITHIN * width).all():
            return None
        rows = self._by_draws(())(columns)
        return np.vstack([rows, self._quantiles(rows, shape)])

    def _at_places(self, columns: Columns, places: Mapping[int, Floats]) -> Columns:
        """Items at places of a mesh, which share all else with these."""
        number = len(next(iter(places.values())))
        items = {
            name: np.repeat(values[:1], number) for name, values in columns.items()
        }
        if 0 in places:
            items["score"] = self.fit.axis("mean").inverse(places[0])
        if 1 in places:
            items[self.outcome.size] = np.exp(places[1])
        if 2 in places:
            centre, unit = self._expected(items)
            outcome = centre + unit * places[2]
            if self.outcome.positive:
                most = (
                    items[self.outcome.size] if self.family.name == "Beta" else np.inf
                )
                outcome = np.clip(np.expm1(outcome), 0.0, most)
            items[self.outcome.observed] = outcome
        return items

    def _expected(self, columns: Columns) -> _Pair:
        """Expected outcome, of counts as log(1 + y), and the unit of departures from it."""
        size = own_outcomes(self.outcome, columns)[1]
        curves = average_curves(self.fit, columns["score"], columns.get("group"), size)
        theta = self.family.curve_variables(*curves)
        if self.outcome.positive:
            return np.log1p(size * theta["mean"]), np.ones(len(size))
        return theta["mean"], np.hypot(size, np.sqrt(theta["variance"]))

    def _shape(self, rows: Floats) -> Floats:
        """Quantiles without the scale of the posterior."""
        mean, sd, _, *quantiles = rows
        if self.outcome.positive:
            return np.log(np.maximum(np.array(quantiles) / mean, _SMALL))
        return (np.array(quantiles) - mean) / sd

    def _quantiles(self, rows: Floats, shape: Floats) -> Floats:
        """Inverse of `_shape`."""
        return (
            rows[0] * np.exp(shape)
            if self.outcome.positive
            else rows[0] + rows[1] * shape
        )


@np.errstate(invalid="ignore", divide="ignore")  # of negative weights
def _density_moments(
    log_density: Floats, ends: Any, weight: Floats, ways: Sequence[Floats]
) -> Floats:
    """Summaries of `Posterior.density_moments`; where weights vary, as if p were lognormal."""
    low = log_density.min(axis=0)
    high = log_density.max(axis=0)
    density = np.exp(log_density - high)
    mean = (weight * density).sum(axis=0)
    full = high + np.log(mean)
    if ways:
        variance = np.log1p(
            sum(((way * density).sum(axis=0) / mean) ** 2 for way in ways)
        )
        return np.stack([full, full - variance, variance])
    without = low - np.log((weight * np.exp(low - log_density)).sum(axis=0))
    centre = (weight * log_density).sum(axis=0)
    variance = (weight * (log_density - centre) ** 2).sum(axis=0)
    return np.stack([full, without, variance])


def _ends_without(
    log_density: Floats, ends: Any, weight: Floats, ways: Sequence[Floats]
) -> Floats:
    """Summaries of `Posterior.cdf_without`; where weights vary, to first order."""
    below_and_upto = np.stack(ends())
    if ways:
        density = np.exp(log_density - log_density.max(axis=0))
        mean = (weight * density).sum(axis=0)
        moved = sum(
            (way * below_and_upto).sum(axis=1) * (way * density).sum(axis=0)
            for way in ways
        )
        return np.asarray((weight * below_and_upto).sum(axis=1) - moved / mean)
    inverse = weight * np.exp(log_density.min(axis=0) - log_density)
    return np.asarray((inverse * below_and_upto).sum(axis=1) / inverse.sum(axis=0))


def proper(below: Floats, upto: Floats) -> _Pair:
    """Ends of a probability interval, clipped to [0, 1] and sorted, because of rounding."""
    upto = np.clip(upto, 0.0, 1.0)
    return np.clip(below, 0.0, upto), upto


def posterior_of(fit: Fit) -> Posterior:
    """The posterior of a checked fit, made once."""
    return FIT(fit, "fit")._once(Posterior, lambda: Posterior(fit))
