"""The posterior and predictive distributions of a fit: `posterior_of(fit)`, for all priors."""

from collections.abc import Sequence
from typing import Any, override

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..families.mixtures import over_draws
from ..families.row_sums import MEAN_ONLY
from ..inference.results import FIT, Fit
from .curves import chosen, curve_draws, items_at_once
from .interface import Columns, ThetaMixture, in_chunks, own_outcomes
from .mixtures import MixturePosterior
from .scoring import Posterior, proper


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
    return MixturePosterior(fit) if fit.prior.gridded else _FamilyPosterior(fit)


class _FamilyPosterior(Posterior):
    """Posterior of a fit of a single family."""

    def _curves(self, columns: Columns, draws: Ints | None) -> tuple[Floats, Floats]:
        terms = columns.get("group"), columns.get(self.outcome.size)
        return curve_draws(self.fit, columns["score"], *terms, chosen(draws))

    def _widened(self, columns: Columns, draws: Ints | None) -> tuple[Floats, Floats]:
        """Curves of theta, including the spread of an item."""
        curves = self._curves(columns, draws)
        return self.family.widened(*curves, columns["spread"]) if "spread" in columns else curves

    def _updated(self, columns: Columns, draws: Ints | None = None) -> tuple[Floats, Floats]:
        prior = self.family.to_parameters(*self._curves(columns, draws))
        return self.family.update(*prior, *own_outcomes(self.outcome, columns))

    @override
    def log_density(self, columns: Columns, draws: Ints | None = None) -> Floats:
        outcomes = own_outcomes(self.outcome, columns)
        return np.asarray(self.family.log_density(*outcomes, *self._widened(columns, draws)))

    @override
    def cdf_by_draw(self, columns: Columns, draws: Ints | None) -> Floats:
        outcomes = own_outcomes(self.outcome, columns)
        return np.stack(self.family.cdf_interval(*outcomes, *self._widened(columns, draws)))

    @override
    def simulate(
        self, columns: Columns, rng: np.random.Generator, draws: Ints | None = None
    ) -> Floats:
        curves = self._widened(columns, draws)
        return np.asarray(self.family.simulate(*curves, columns[self.outcome.size], rng))

    @override
    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        return dict(self.family.curve_variables(*curve_draws(self.fit, score, group, exposure)))

    @override
    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        after, family = self._updated(columns), self.family
        return family.mean(*after), family.variance(*after), family.third(*after)

    @override
    def theta(self, columns: Columns) -> ThetaMixture:
        """One component of each draw."""
        return ThetaMixture(*self._updated(columns))

    @override
    def theta_given(self, columns: Columns, draws: Ints, uniform: Floats) -> tuple[Floats, Floats]:
        return self._updated(columns, draws)

    @override
    def rows(self, columns: Columns, probs: Sequence[float]) -> Floats:
        return over_draws(self.family.name, *self._updated(columns), probs)


class _MeanCurves(dict[str, Floats]):
    """Variables of curves without those of the variance."""

    def __missing__(self, name: str) -> Floats:
        raise FitError(f"{name} of theta given the score is not known: {MEAN_ONLY}")


class _MeanOnly(_FamilyPosterior):
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
    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        def chunk(part: Columns) -> Floats:
            return np.mean(self.cdf_by_draw(part, None), axis=1)

        return proper(*in_chunks(chunk, items_at_once(self.fit), columns))

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise FitError(f"the distribution of theta, and so posteriors, are not known: {MEAN_ONLY}")

    moments = theta = theta_given = further_cdf_interval = scorer = _refuse
