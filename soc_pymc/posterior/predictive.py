"""The posterior and predictive distributions of a fit: `posterior_of(fit)`, for all priors.

Given a draw of the curves theta is Gamma, Normal or Beta, or a mixture of these, before and after
the outcome; over the draws it is a mixture. `draws` are indices of draws, chains one after the
other, and may repeat; None takes each once.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, override

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.interpolate import RegularGridInterpolator

from .. import prior_table
from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..families.family import family_of
from ..families.mixtures import over_draws, summaries
from ..families.priors import COMPONENTS
from ..families.row_sums import MEAN_ONLY
from ..inference.results import FIT, Fit
from .curves import atom_of, chosen, curve_draws, items_at_once, place_of
from .item_columns import Columns, Scorer, ThetaMixture, in_chunks, own_outcomes, select
from .prior_build import table_of, why_no_table
from .weights import BinWeights, SmoothWeights

_POINTS = 20, 12, 12  # grid of scores, sizes and values on which quantiles are interpolated
_TINY, _SMALL = 1e-300, 1e-4  # least size, and least quantile as a share of the mean
_SAMPLE, _WITHIN = 40, 0.02  # items that prove a grid; error allowed, in widths of the interval
_AT_ONCE = 4_000_000  # numbers in one array of draws x items x components

_Pair = tuple[Floats, Floats]


class Posterior:
    """Distributions of theta and outcomes under a fit of a single family."""

    def __init__(self, fit: Fit) -> None:
        self.fit, self.family = fit, family_of(fit.prior)
        self.outcome = self.family.outcome

    # --- by draw ---------------------------------------------------------------------------------

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        """Variables of `calibration_curves` at scores, each (draws, n).

        Groups and exposures (or noise sds) are ignored if the fit has no such terms.
        """
        return dict(self.family.curve_variables(*curve_draws(self.fit, score, group, exposure)))

    def _curves(self, columns: Columns, draws: Ints | None) -> _Pair:
        terms = columns.get("group"), columns.get(self.outcome.size)
        return curve_draws(self.fit, columns["score"], *terms, chosen(draws))

    def _widened(self, columns: Columns, draws: Ints | None) -> _Pair:
        """Curves of theta, including the spread of an item."""
        curves = self._curves(columns, draws)
        return self.family.widened(*curves, columns["spread"]) if "spread" in columns else curves

    def log_density(self, columns: Columns, draws: Ints | None = None) -> Floats:
        """Log density (probability) of the outcomes given score and size, (draws, n)."""
        outcomes = own_outcomes(self.outcome, columns)
        return np.asarray(self.family.log_density(*outcomes, *self._widened(columns, draws)))

    def cdf_by_draw(self, columns: Columns, draws: Ints | None) -> Floats:
        """P(Y < y) and P(Y <= y) under some draws of the curves, (2, draws, n)."""
        outcomes = own_outcomes(self.outcome, columns)
        return np.stack(self.family.cdf_interval(*outcomes, *self._widened(columns, draws)))

    def simulate(
        self, columns: Columns, rng: np.random.Generator, draws: Ints | None = None
    ) -> Floats:
        """Outcomes of new items of the same score and size, (draws, n)."""
        curves = self._widened(columns, draws)
        return np.asarray(self.family.simulate(*curves, columns[self.outcome.size], rng))

    def theta_given(self, columns: Columns, draws: Ints | None, uniform: Floats) -> _Pair:
        """Conjugate parameters of theta under some draws of the curves, each (draws, n).

        Under a mixture they are those of one component of the posterior, drawn with its probability
        by means of `uniform` (draws, n) on (0, 1).
        """
        prior = self.family.to_parameters(*self._curves(columns, draws))
        return self.family.update(*prior, *own_outcomes(self.outcome, columns))

    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        """E and Var(theta | t, y) and the third central moment of the items, each (draws, n)."""
        theta, family = self.theta(columns), self.family
        moments = family.mean, family.variance, family.third
        return tuple(moment(theta.a, theta.b) for moment in moments)

    # --- over all draws --------------------------------------------------------------------------

    def theta(self, columns: Columns) -> ThetaMixture:
        """Theta of the items given score and outcome, averaged over all draws of the curves."""
        return ThetaMixture(*self.theta_given(columns, None, np.empty(0)))

    def rows(self, columns: Columns, probs: Sequence[float]) -> Floats:
        """Rows of a `Scorer` over all draws of the curves."""
        theta, name = self.theta(columns), self.family.name
        if theta.weight is None:
            return over_draws(name, theta.a, theta.b, probs)
        return summaries(name, theta.weight, theta.a, theta.b, probs, theta.zero)

    def cdf_interval(self, columns: Columns) -> _Pair:
        """P(Y < y) and P(Y <= y) averaged over the draws, each (n,); equal if continuous.

        They are those of the prior table, to about 1e-4.
        """
        before = {name: v for name, v in columns.items() if name != self.outcome.observed}
        return self.further_cdf_interval(before, *own_outcomes(self.outcome, columns))

    def further_cdf_interval(self, columns: Columns, outcome: Floats, size: Floats) -> _Pair:
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

    def scorer(self, probs: Sequence[float], draws: str = "auto") -> Scorer:
        """Function that scores items: ``"auto"`` by the prior table, or over ``"all"`` draws."""
        outer = prior_table.OUTER_LEVEL
        beyond = any(not outer <= prob <= 1.0 - outer for prob in probs)
        if draws == "all" or beyond or why_no_table(self.fit):
            return partial(in_chunks, partial(self.rows, probs=probs), items_at_once(self.fit))
        return partial(self._by_table, probs)

    # --- by the prior table ----------------------------------------------------------------------

    def items(self, columns: Columns) -> prior_table.Items:
        """Items as the prior table takes them."""
        size = None if self.fit.prior.exposure is None else columns[self.outcome.size]
        group = columns["group"].astype(object) if self.fit.groups else None
        outcomes = own_outcomes(self.outcome, columns)
        return prior_table.Items(columns["score"], *outcomes, size, group)

    def _thetas(self, columns: Columns) -> Iterator[tuple[Ints, ThetaMixture]]:
        """Theta of items given their outcomes, part by part, by the table.

        Items without a table are averaged over all draws, and so are those that the table serves
        less well, unless their outcome is not seen yet: then it hardly matters.
        """
        closely, has_table = self.outcome.observed in columns, not why_no_table(self.fit)
        flagged = np.full(len(columns["score"]), closely or not has_table)
        if has_table:
            items = self.items(columns)
            for part in prior_table.posterior_nodes(table_of(self.fit), items, skip=closely):
                flagged[part.items] = part.flagged & closely
                yield part.items, ThetaMixture(part.a, part.b, part.weight, part.zero)
        by_draws, step = np.flatnonzero(flagged), items_at_once(self.fit)
        for start in range(0, len(by_draws), step):
            chunk = by_draws[start : start + step]
            yield chunk, self.theta(select(columns, chunk))

    def _by_table(self, probs: Sequence[float], columns: Columns) -> Floats:
        items = self.items(columns)
        rows, flagged = prior_table.posterior_rows(table_of(self.fit), items, probs, skip=True)
        by_draws = np.flatnonzero(flagged)
        if len(by_draws):
            rows[:, by_draws] = self._by_draws(probs, select(columns, by_draws))
        return np.asarray(rows)

    def _by_draws(self, probs: Sequence[float], columns: Columns) -> Floats:
        """Rows of flagged items over all draws.

        Where many share a group, an atom and an outcome, only moments are sums over the draws for
        each item: quantiles are smooth in score and size.
        """
        exact = self.scorer(probs, "all")
        if self.fit.prior.gridded or not len(probs):
            return exact(columns)
        keys = pd.DataFrame({"atom": atom_of(self.fit, columns["score"])})
        keys["group"] = columns.get("group", "")
        if self.outcome.positive:
            keys["outcome"] = own_outcomes(self.outcome, columns)[0]
        out = np.empty((3 + len(probs), len(keys)))
        for items in map(np.asarray, keys.groupby(list(keys)).indices.values()):
            out[:, items] = self._on_a_grid(exact, probs, select(columns, items))
        return out

    def _on_a_grid(self, exact: Scorer, probs: Sequence[float], columns: Columns) -> Floats:
        """Rows with quantiles interpolated in score, size and value; exact if not close enough."""
        value, size = own_outcomes(self.outcome, columns)
        place = place_of(self.fit, "mean", columns["score"])
        places = np.column_stack([place, np.log(np.maximum(size, _TINY)), value])
        varied = np.flatnonzero(np.ptp(places, axis=0) > 0.0)
        axes = [np.linspace(places[:, k].min(), places[:, k].max(), _POINTS[k]) for k in varied]
        mesh = np.meshgrid(*axes, indexing="ij")
        number = mesh[0].size if axes else 0
        if not axes or 2 * number + _SAMPLE > len(places):
            return exact(columns)
        grid = {name: np.repeat(values[:1], number) for name, values in columns.items()}
        undo: list[Callable[[Floats], Floats]] = [self.fit.axis("mean").inverse, np.exp, np.asarray]
        names = ["score", self.outcome.size, self.outcome.observed]
        grid |= {names[k]: undo[k](x.ravel()) for k, x in zip(varied, mesh, strict=True)}
        mean, sd, _, *quantiles = exact(grid)
        positive, values = self.outcome.positive, (np.array(quantiles) - mean) / sd
        if positive:
            values = np.log(np.maximum(np.array(quantiles) / mean, _SMALL))
        if not np.isfinite(values).all():
            return exact(columns)
        shaped = values.T.reshape(*mesh[0].shape, -1)
        values = RegularGridInterpolator(axes, shaped, "cubic")(places[:, varied]).T
        rows = self.scorer((), "all")(columns)
        quantiles = rows[0] * np.exp(values) if positive else rows[0] + rows[1] * values
        sample = np.unique(np.linspace(0, len(place) - 1, _SAMPLE).astype(int))
        proof = exact(select(columns, sample))
        width = np.ptp(proof[3:], axis=0) if len(probs) > 1 else proof[1]
        close = np.abs(quantiles[:, sample] - proof[3:]) <= _WITHIN * width
        return np.vstack([rows, quantiles]) if close.all() else exact(columns)


class _MixturePosterior(Posterior):
    """Posterior of a fit of a mixture: components (n, R) at scores, with weights by draw."""

    def __init__(self, fit: Fit) -> None:
        super().__init__(fit)
        by_bin = COMPONENTS[0] in fit.data["posterior"]
        self._weights = BinWeights(fit) if by_bin else SmoothWeights(fit)
        term = [self.outcome.size] * (fit.prior.exposure is not None)
        self._roles = ["score", *["group"] * bool(fit.groups), *term]  # on which weights depend

    def _updated(self, columns: Columns) -> _Pair:
        """Conjugate parameters (n, R) of the components given the outcome."""
        outcomes = (x[:, None] for x in own_outcomes(self.outcome, columns))
        a, b = np.broadcast_arrays(
            *self.family.update(*self._weights.parameters(columns), *outcomes)
        )
        return a, b

    def _densities(self, columns: Columns) -> _Pair:
        """Densities under the components (n, R) relative to the largest, and its logarithm (n,)."""
        outcomes = own_outcomes(self.outcome, columns)
        components = self._weights.components(columns)
        log_density = self.family.components.log_density(*outcomes, *components)
        if self.fit.prior.zero:
            at_zero = self.outcome.forms.log_likelihood(*outcomes, np.zeros(len(log_density)))
            log_density = np.column_stack([log_density, at_zero])
        top = log_density.max(axis=1)
        return np.exp(log_density - top[:, None]), top

    def _blocks(self, columns: Columns, draws: Ints | None) -> Iterator[tuple[Ints, Floats]]:
        """Indices of items, with the components' weights under draws, (draws, items, R)."""
        draws = np.arange(self._weights.draws) if draws is None else draws
        keys = pd.DataFrame({role: columns[role] for role in self._roles if role in columns})
        place = keys.groupby(list(keys)).ngroup().to_numpy()
        order = np.argsort(place, kind="stable")
        step = max(1, _AT_ONCE // (len(draws) * self._weights.number))
        for start in range(0, len(order), step):
            items = order[start : start + step]
            _, index, back = np.unique(place[items], return_index=True, return_inverse=True)
            distinct = {str(role): keys[role].to_numpy()[items[index]] for role in keys}
            weights = self._weights.by_draw(distinct, draws)
            yield items, weights if len(index) == len(items) else weights[:, back]

    def _averaged(self, columns: Columns, draws: Ints | None, values: Floats) -> Floats:
        """Sums over the components of values (m, n, R) with their weights, (m, draws, n)."""
        number = self._weights.draws if draws is None else len(draws)
        out = np.empty((len(values), number, values.shape[1]))
        for items, weights in self._blocks(columns, draws):
            sums = weights.transpose(1, 0, 2) @ values[:, items].transpose(1, 2, 0)
            out[..., items] = sums.transpose(2, 1, 0)
        return out

    def _picked(
        self, columns: Columns, draws: Ints | None, uniform: Floats, theta: _Pair, density: Floats
    ) -> _Pair:
        """Parameters (draws, n) of a component each, drawn by weight times `density` (n, R)."""
        component = np.empty(uniform.shape, dtype=np.int64)
        for items, weights in self._blocks(columns, draws):
            upto = (weights * density[items]).cumsum(axis=2)
            cut = uniform[:, items, None] * upto[..., -1:]
            component[:, items] = (upto[..., :-1] < cut).sum(axis=2)
        item = np.arange(component.shape[1])
        return theta[0][item, component], theta[1][item, component]

    @override
    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        columns = {"score": score, "group": group, self.outcome.size: exposure}
        return self._weights.curves({k: np.asarray(v) for k, v in columns.items() if v is not None})

    @override
    def log_density(self, columns: Columns, draws: Ints | None = None) -> Floats:
        density, top = self._densities(columns)
        (density,) = self._averaged(columns, draws, density[None])
        return np.asarray(top + np.log(np.maximum(density, _TINY)))

    @override
    def cdf_by_draw(self, columns: Columns, draws: Ints | None) -> Floats:
        a, b = self._weights.parameters(columns)
        curves = np.broadcast_arrays(*self.family.to_curves(a.T, b.T))
        ends = self.family.cdf_interval(*own_outcomes(self.outcome, columns), *curves)
        return self._averaged(columns, draws, np.stack(ends).swapaxes(1, 2))

    @override
    def simulate(
        self, columns: Columns, rng: np.random.Generator, draws: Ints | None = None
    ) -> Floats:
        a, b = np.broadcast_arrays(*self._weights.parameters(columns))
        number = self._weights.draws if draws is None else len(draws)
        uniform = rng.random((number, len(columns["score"])))
        theta = self._picked(columns, draws, uniform, (a, b), np.ones_like(a))
        curves = self.family.to_curves(*theta)
        return np.asarray(self.family.simulate(*curves, columns[self.outcome.size], rng))

    @override
    def theta_given(self, columns: Columns, draws: Ints | None, uniform: Floats) -> _Pair:
        density, _ = self._densities(columns)
        return self._picked(columns, draws, uniform, self._updated(columns), density)

    @override
    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        theta, (density, _) = self._updated(columns), self._densities(columns)
        moments = self.family.mean, self.family.variance, self.family.third
        means, variances, thirds = (moment(*theta) for moment in moments)
        # squares are taken about a centre, so that little is lost where means are large
        centre = (density * means).sum(axis=1) / density.sum(axis=1)
        off = means - centre[:, None]
        powers = [np.ones_like(off), off, variances + off**2]
        powers.append(thirds + (3.0 * variances + off**2) * off)
        total, *powers = self._averaged(columns, None, density * np.stack(powers))
        shift, square, cube = (power / np.maximum(total, _TINY) for power in powers)
        third = cube - (3.0 * square - 2.0 * shift**2) * shift
        return centre + shift, square - shift**2, third

    @override
    def theta(self, columns: Columns) -> ThetaMixture:
        (a, b), (density, _) = self._updated(columns), self._densities(columns)
        weight = np.empty_like(density)  # given the outcomes, averaged over draws
        for items, weights in self._blocks(columns, None):
            by_item, p = weights.transpose(1, 2, 0), density[items]
            inverse = 1.0 / np.maximum(p[:, None] @ by_item, _TINY)
            weight[items] = p * (by_item @ inverse.transpose(0, 2, 1))[..., 0]
        weight = (weight / weight.sum(axis=1, keepdims=True)).T
        if not self.fit.prior.zero:
            return ThetaMixture(a.T, b.T, weight)
        share = weight[:-1] / np.maximum(weight[:-1].sum(axis=0), _TINY)
        return ThetaMixture(a[:, :-1].T, b[:, :-1].T, share, weight[-1])


class _MeanCurves(dict[str, Floats]):
    """Variables of curves without those of the variance."""

    def __missing__(self, name: str) -> Floats:
        raise FitError(f"{name} of theta given the score is not known: {MEAN_ONLY}")


class _MeanOnly(Posterior):
    """Posterior of a fit to single trials, whose outcomes depend on the mean of theta alone.

    What needs the variance of theta is refused: it would be the prior's.
    """

    @override
    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        variables = super().curves(score, group, exposure)
        return _MeanCurves({name: variables[name] for name in ("mean", self.family.curves[0])})

    @override
    def cdf_interval(self, columns: Columns) -> _Pair:
        def chunk(part: Columns) -> Floats:
            return np.mean(self.cdf_by_draw(part, None), axis=1)

        return proper(*in_chunks(chunk, items_at_once(self.fit), columns))

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise FitError(f"the distribution of theta, and so posteriors, are not known: {MEAN_ONLY}")

    moments = theta = theta_given = further_cdf_interval = scorer = _refuse


def proper(below: Floats, upto: Floats) -> _Pair:
    """Ends of a probability interval, clipped to [0, 1] and sorted, because of rounding."""
    upto = np.clip(upto, 0.0, 1.0)
    return np.clip(below, 0.0, upto), upto


def posterior_of(fit: Fit) -> Posterior:
    """The posterior of a fit.

    Examples
    --------
    >>> posterior_of(fit).outcome.observed
    'count'
    """
    FIT(fit, "fit")
    if fit.mean_only:
        return _MeanOnly(fit)
    return _MixturePosterior(fit) if fit.prior.gridded else Posterior(fit)
