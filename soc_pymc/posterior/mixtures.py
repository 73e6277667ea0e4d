"""Posteriors under mixtures: components at every score, with weights by draw."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from ..families.family import family_of
from ..families.mixture_items import drawn_components
from ..families.mixtures import draw_moments, summaries
from ..families.priors import COMPONENTS
from ..families.zeros import with_zero
from ..inference.results import Fit
from .interface import Columns, Scorer, ThetaMixture, in_chunks, own_outcomes, without_outcomes
from .scoring import outcome_interval, scorer_of
from .weights import BinWeights, SmoothWeights, Weights

_TINY = 1e-300


class _MixturePosterior:
    """Posterior of a fit of a mixture."""

    def __init__(self, fit: Fit, weights: Weights) -> None:
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
        outcomes = self._own(columns)
        log_density = self.family.mixtures.log_density(*outcomes, *components)
        if self._zero:
            at_zero = self.outcome.forms.log_likelihood(*outcomes, np.zeros(len(log_density)))
            log_density = np.column_stack([log_density, at_zero])
        top = log_density.max(axis=1)
        return np.exp(log_density - top[:, None]), top

    def _updated(
        self, columns: Columns, components: tuple[Floats, Floats], plug_in: bool = False
    ) -> Floats:
        """Posterior weights (n, R) that add up to 1."""
        weight = self._weights.updated(columns, self._densities(columns, components)[0], plug_in)
        weight /= weight.sum(axis=1, keepdims=True)
        return weight

    def _number(self, draws: Ints | None) -> int:
        return self._weights.draws if draws is None else len(draws)

    def _in_chunks(self, one_chunk: Scorer, columns: Columns) -> Floats:
        return in_chunks(one_chunk, self._weights.items, columns)

    # --- outcomes --------------------------------------------------------------------------------

    def log_density(self, columns: Columns, draws: Ints | None = None) -> Floats:
        def some(part: Columns) -> Floats:
            density, top = self._densities(part, self._components(part))
            out = np.empty((self._number(draws), len(top)))
            for at, weights in self._weights.blocks(part, draws):
                inside = np.einsum("dnr,nr->dn", weights, density[at])
                out[:, at] = top[at] + np.log(np.maximum(inside, _TINY))
            return out

        return self._in_chunks(some, columns)

    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        given = without_outcomes(self.outcome, columns)
        return outcome_interval(self, self._fit, given, *self._own(columns))

    def cdf_by_draw(self, columns: Columns, draws: Ints) -> Floats:
        def some(part: Columns) -> Floats:
            ends, out = self._ends(part), np.empty((2, len(draws), len(part["score"])))
            for at, weights in self._weights.blocks(part, draws):
                out[..., at] = np.einsum("dnr,ern->edn", weights, ends[..., at])
            return out

        return self._in_chunks(some, columns)

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        return outcome_interval(self, self._fit, columns, outcome, size)

    def _ends(self, columns: Columns) -> Floats:
        """P(Y < y) and P(Y <= y) under each component, (2, R, n)."""
        first, second = self._listed(self._prior(columns))
        curves = np.broadcast_arrays(*self.family.to_curves(first.T, second.T))
        return np.stack(self.family.cdf_interval(*self._own(columns), *curves))

    def simulate(
        self, columns: Columns, rng: np.random.Generator, draws: Ints | None = None
    ) -> Floats:
        chosen = np.empty((self._number(draws), len(columns["score"])), dtype=np.int64)
        for at, weights in self._weights.blocks(columns, draws):
            chosen[:, at] = drawn_components(weights, rng.random(weights.shape[:2]))
        curves = self.family.to_curves(*_picked(self._listed(self._prior(columns)), chosen))
        return np.asarray(self.family.simulate(*curves, self._own(columns)[1], rng))

    # --- theta -----------------------------------------------------------------------------------

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        columns = {"score": np.asarray(score, dtype=float), "group": group}
        columns[self.outcome.size] = exposure
        return self._weights.curves({k: np.asarray(v) for k, v in columns.items() if v is not None})

    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        components = self._components(columns)
        after = self._listed(self._updated_parameters(columns, components))
        family, density = self.family, self._densities(columns, components)[0]
        moments = family.mean(*after), family.variance(*after), family.third(*after)
        blocks, items = self._weights.blocks(columns), np.arange(len(density))
        return draw_moments(density, *moments, items, blocks, self._weights.draws)

    def theta(self, columns: Columns) -> ThetaMixture:
        """Mixture of the posterior components, with weights averaged over the draws."""
        components = self._components(columns)
        first, second = np.broadcast_arrays(*self._updated_parameters(columns, components))
        weight = self._updated(columns, components).T
        if not self._zero:
            return ThetaMixture(first.T, second.T, weight)
        share = weight[:-1] / np.maximum(weight[:-1].sum(axis=0), _TINY)
        return ThetaMixture(first.T, second.T, share, weight[-1])

    def theta_given(self, columns: Columns, draws: Ints, uniform: Floats) -> tuple[Floats, Floats]:
        components, chosen = self._components(columns), np.empty(uniform.shape, dtype=np.int64)
        density = self._densities(columns, components)[0]
        for items, weights in self._weights.blocks(columns, draws):
            chosen[:, items] = drawn_components(weights * density[items], uniform[:, items])
        return _picked(self._listed(self._updated_parameters(columns, components)), chosen)

    def rows(self, columns: Columns, probs: Sequence[float], *, plug_in: bool = False) -> Floats:
        components = self._components(columns)
        first, second = self._updated_parameters(columns, components)
        weight, zero = self._updated(columns, components, plug_in).T, None
        if self._zero:
            weight, zero = weight[:-1] / np.maximum(1.0 - weight[-1], _TINY), weight[-1]
        return summaries(self.family.name, weight, first.T, second.T, probs, zero)

    def scorer(self, probs: Sequence[float], draws: str = "auto", plug_in: bool = False) -> Scorer:
        return scorer_of(self, self._fit, probs, draws, plug_in)


def _picked(theta: tuple[Floats, Floats], chosen: Ints) -> tuple[Floats, Floats]:
    """Parameters (n, R) of the components with indices `at` (draws, n)."""
    item = np.arange(chosen.shape[1])
    first, second = np.broadcast_arrays(*theta)
    return first[item, chosen], second[item, chosen]


def mixture_of(fit: Fit) -> _MixturePosterior:
    """The posterior of a fit of a mixture."""
    by_bin = COMPONENTS[0] in fit.data["posterior"]
    return _MixturePosterior(fit, BinWeights(fit) if by_bin else SmoothWeights(fit))
