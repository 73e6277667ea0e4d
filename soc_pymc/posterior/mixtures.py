"""Posteriors under mixtures: components at every score, with weights by draw."""

from collections.abc import Iterator, Sequence
from typing import Any, override

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from ..families.family import with_zero
from ..families.mixtures import summaries
from ..families.priors import COMPONENTS
from ..inference.results import Fit
from .curves import own_terms
from .interface import Columns, Scorer, ThetaMixture, in_chunks, own_outcomes, select
from .scoring import Posterior
from .weights import BinWeights, SmoothWeights

_TINY = 1e-300
_ITEMS = 5000  # items whose components are in memory at once
_AT_ONCE = 4_000_000  # numbers in one array of draws x items x components

_Pair = tuple[Floats, Floats]


class MixturePosterior(Posterior):
    """Posterior of a fit of a mixture."""

    def __init__(self, fit: Fit) -> None:
        super().__init__(fit)
        by_bin = COMPONENTS[0] in fit.data["posterior"]
        self._weights = BinWeights(fit) if by_bin else SmoothWeights(fit)

    def _listed(self, theta: _Pair) -> _Pair:
        """Parameters of all components, with theta = 0 as the last."""
        return with_zero(self.family, *theta) if self.fit.prior.zero else theta

    def _prior(self, columns: Columns) -> _Pair:
        """Conjugate parameters of theta, for each component."""
        return self.family.components.parameters(*self._weights.components(columns))

    def _updated(self, columns: Columns) -> _Pair:
        """Conjugate parameters of theta given the outcome, for each component."""
        outcomes = (x[:, None] for x in own_outcomes(self.outcome, columns))
        return self.family.update(*self._prior(columns), *outcomes)

    def _densities(self, columns: Columns) -> _Pair:
        """Densities under the components (n, R) relative to the largest, and its logarithm (n,)."""
        outcomes, components = (
            own_outcomes(self.outcome, columns),
            self._weights.components(columns),
        )
        log_density = self.family.components.log_density(*outcomes, *components)
        if self.fit.prior.zero:
            at_zero = self.outcome.forms.log_likelihood(*outcomes, np.zeros(len(log_density)))
            log_density = np.column_stack([log_density, at_zero])
        top = log_density.max(axis=1)
        return np.exp(log_density - top[:, None]), top

    def _blocks(self, columns: Columns, draws: Ints | None) -> Iterator[tuple[Ints, Floats]]:
        """Indices of items, with the components' weights under draws, (draws, items, R)."""
        draws = np.arange(self._weights.draws) if draws is None else draws
        group, size = own_terms(self.fit, columns.get("group"), columns.get(self.outcome.size))
        roles = {"group": group, self.outcome.size: size, "score": columns["score"]}
        keys = pd.DataFrame({role: v for role, v in roles.items() if v is not None})
        place = keys.groupby(list(keys)).ngroup().to_numpy()
        order = np.argsort(place, kind="stable")
        components = self._weights.components(select(columns, slice(0, 1)))[0].shape[1]
        step = max(1, _AT_ONCE // (len(draws) * (components + self.fit.prior.zero)))
        for start in range(0, len(order), step):
            items = order[start : start + step]
            _, index, back = np.unique(place[items], return_index=True, return_inverse=True)
            distinct = {str(role): keys[role].to_numpy()[items[index]] for role in keys}
            weights = self._weights.by_draw(distinct, draws)
            yield items, weights if len(index) == len(items) else weights[:, back]

    def _posterior_weights(self, columns: Columns) -> Floats:
        """Weights given the outcomes (n, R), averaged over draws, that add up to 1."""
        density, _ = self._densities(columns)
        weight = np.empty_like(density)
        for items, weights in self._blocks(columns, None):
            by_item, p = weights.transpose(1, 2, 0), density[items]
            inverse = 1.0 / np.maximum(p[:, None] @ by_item, _TINY)
            weight[items] = p * (by_item @ inverse.transpose(0, 2, 1))[..., 0]
        return np.asarray(weight / weight.sum(axis=1, keepdims=True))

    def _averaged(self, columns: Columns, draws: Ints | None, values: Floats) -> Floats:
        """Sums over the components of values (m, n, R) with their weights, (m, draws, n)."""
        number = self._weights.draws if draws is None else len(draws)
        out = np.empty((len(values), number, values.shape[1]))
        for items, weights in self._blocks(columns, draws):
            sums = weights.transpose(1, 0, 2) @ values[:, items].transpose(1, 2, 0)
            out[..., items] = sums.transpose(2, 1, 0)
        return out

    def _in_chunks(self, one_chunk: Scorer, columns: Columns) -> Floats:
        return in_chunks(one_chunk, _ITEMS, columns)

    # --- outcomes --------------------------------------------------------------------------------

    @override
    def log_density(self, columns: Columns, draws: Ints | None = None) -> Floats:
        def chunk(part: Columns) -> Floats:
            density, top = self._densities(part)
            (density,) = self._averaged(part, draws, density[None])
            return top + np.log(np.maximum(density, _TINY))

        return self._in_chunks(chunk, columns)

    @override
    def cdf_by_draw(self, columns: Columns, draws: Ints | None) -> Floats:
        def chunk(part: Columns) -> Floats:
            a, b = self._listed(self._prior(part))
            curves = np.broadcast_arrays(*self.family.to_curves(a.T, b.T))
            ends = self.family.cdf_interval(*own_outcomes(self.outcome, part), *curves)
            return self._averaged(part, draws, np.stack(ends).swapaxes(1, 2))

        return self._in_chunks(chunk, columns)

    @override
    def simulate(
        self, columns: Columns, rng: np.random.Generator, draws: Ints | None = None
    ) -> Floats:
        number = self._weights.draws if draws is None else len(draws)
        component = np.empty((number, len(columns["score"])), dtype=np.int64)
        for items, weights in self._blocks(columns, draws):
            component[:, items] = _drawn(weights, rng.random(weights.shape[:2]))
        curves = self.family.to_curves(*_picked(self._listed(self._prior(columns)), component))
        size = own_outcomes(self.outcome, columns)[1]
        return np.asarray(self.family.simulate(*curves, size, rng))

    # --- theta -----------------------------------------------------------------------------------

    @override
    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        columns = {"score": score, "group": group, self.outcome.size: exposure}
        return self._weights.curves({k: np.asarray(v) for k, v in columns.items() if v is not None})

    @override
    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        after, (density, _) = self._listed(self._updated(columns)), self._densities(columns)
        means, variances, thirds = (
            np.broadcast_to(f(*after), density.shape)
            for f in (self.family.mean, self.family.variance, self.family.third)
        )
        # squares are taken about a centre, so that little is lost where means are large
        centre = (density * means).sum(axis=1) / density.sum(axis=1)
        off = means - centre[:, None]
        powers = [np.ones_like(off), off, variances + off**2]
        powers.append(thirds + (3.0 * variances + off**2) * off)
        total, shift, square, cube = self._averaged(columns, None, density * np.stack(powers))
        shift, square, cube = (x / np.maximum(total, _TINY) for x in (shift, square, cube))
        third = cube - (3.0 * square - 2.0 * shift**2) * shift
        return centre + shift, square - shift**2, third

    @override
    def theta(self, columns: Columns) -> ThetaMixture:
        """Mixture of the posterior components, with weights averaged over the draws."""
        a, b = np.broadcast_arrays(*self._updated(columns))
        weight = self._posterior_weights(columns).T
        if not self.fit.prior.zero:
            return ThetaMixture(a.T, b.T, weight)
        share = weight[:-1] / np.maximum(weight[:-1].sum(axis=0), _TINY)
        return ThetaMixture(a.T, b.T, share, weight[-1])

    @override
    def theta_given(self, columns: Columns, draws: Ints | None, uniform: Floats) -> _Pair:
        (density, _), component = self._densities(columns), np.empty(uniform.shape, int)
        for items, weights in self._blocks(columns, draws):
            component[:, items] = _drawn(weights * density[items], uniform[:, items])
        return _picked(self._listed(self._updated(columns)), component)

    @override
    def rows(self, columns: Columns, probs: Sequence[float]) -> Floats:
        theta = self.theta(columns)
        weight = np.asarray(theta.weight)
        return summaries(self.family.name, weight, theta.a, theta.b, probs, theta.zero)


def _drawn(weight: Floats, uniform: Floats) -> Ints:
    """Indices (draws, n) of components drawn in proportion to weights (draws, n, R)."""
    upto = weight.cumsum(axis=2)
    return np.asarray((upto[..., :-1] < uniform[..., None] * upto[..., -1:]).sum(axis=2))


def _picked(theta: _Pair, component: Ints) -> _Pair:
    """Parameters (draws, n) of one component each, from those of all (n, R)."""
    item = np.arange(component.shape[1])
    a, b = np.broadcast_arrays(*theta)
    return a[item, component], b[item, component]
