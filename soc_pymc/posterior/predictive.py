"""The posterior and predictive distributions of a fit: `posterior_of(fit)`, for all priors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from ..families.family import family_of
from ..families.mixtures import over_draws
from ..families.row_sums import MEAN_ONLY
from ..inference.results import FIT, Fit
from .curves import average_curves, curves_at, items_at_once, some_curves
from .interface import (
    Columns,
    Posterior,
    Scorer,
    ThetaMixture,
    in_chunks,
    own_outcomes,
    proper,
    without_outcomes,
)
from .scoring import outcome_interval, scorer_of


def posterior_of(fit: Fit) -> Posterior:
    """The posterior of a fit.

    Examples
    --------
    >>> posterior_of(fit).outcome.observed
    'count'
    """
    from .mixtures import mixture_of

    FIT(fit, "fit")
    if fit.mean_only:
        return _MeanOnly(fit)
    return mixture_of(fit) if fit.prior.gridded else _FamilyPosterior(fit)


class _FamilyPosterior:
    """Posterior of a fit of a single family."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self.family = family_of(fit.prior)
        self.outcome = self.family.outcome

    # --- draws of the curves, and of theta -------------------------------------------------------

    def _at(self, columns: Columns) -> tuple[Floats, NDArray[Any] | None, Floats | None]:
        return columns["score"], columns.get("group"), columns.get(self.outcome.size)

    def _draws(self, columns: Columns, draws: Ints | None = None) -> tuple[Floats, Floats]:
        at = self._at(columns)
        return curves_at(self._fit, *at) if draws is None else some_curves(self._fit, draws, *at)

    def _widened(self, columns: Columns, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        """Curves of theta, including the spread of an item."""
        if "spread" not in columns:
            return first, second
        return self.family.widened(first, second, columns["spread"])

    def _own(self, columns: Columns) -> tuple[Floats, Floats]:
        return own_outcomes(self.outcome, columns)

    def _updated(self, columns: Columns, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        prior = self.family.to_parameters(first, second)
        return self.family.update(*prior, *self._own(columns))

    # --- outcomes --------------------------------------------------------------------------------

    def log_density(self, columns: Columns, draws: Ints | None = None) -> Floats:
        curves = self._widened(columns, *self._draws(columns, draws))
        return np.asarray(self.family.log_density(*self._own(columns), *curves))

    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        given = without_outcomes(self.outcome, columns)
        return outcome_interval(self, self._fit, given, *self._own(columns))

    def cdf_by_draw(self, columns: Columns, draws: Ints) -> Floats:
        curves = self._widened(columns, *self._draws(columns, draws))
        return np.stack(self.family.cdf_interval(*self._own(columns), *curves))

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        return outcome_interval(self, self._fit, columns, outcome, size)

    def simulate(
        self, columns: Columns, rng: np.random.Generator, draws: Ints | None = None
    ) -> Floats:
        curves = self._widened(columns, *self._draws(columns, draws))
        return np.asarray(self.family.simulate(*curves, columns[self.outcome.size], rng))

    # --- theta -----------------------------------------------------------------------------------

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        return dict(self.family.curve_variables(*curves_at(self._fit, score, group, exposure)))

    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        after, family = self._updated(columns, *self._draws(columns)), self.family
        return family.mean(*after), family.variance(*after), family.third(*after)

    def theta(self, columns: Columns) -> ThetaMixture:
        """One component of each draw."""
        return ThetaMixture(*self._updated(columns, *self._draws(columns)))

    def theta_given(self, columns: Columns, draws: Ints, uniform: Floats) -> tuple[Floats, Floats]:
        return self._updated(columns, *self._draws(columns, draws))

    def rows(self, columns: Columns, probs: Sequence[float], *, plug_in: bool = False) -> Floats:
        if plug_in:
            first, second = average_curves(self._fit, *self._at(columns))
            curves = first[None], second[None]
        else:
            curves = self._draws(columns)
        return over_draws(self.family.name, *self._updated(columns, *curves), probs)

    def scorer(self, probs: Sequence[float], draws: str = "auto", plug_in: bool = False) -> Scorer:
        return scorer_of(self, self._fit, probs, draws, plug_in)


class _MeanCurves(dict[str, Floats]):
    """Variables of curves without those of the variance."""

    def __missing__(self, name: str) -> Floats:
        raise FitError(f"{name} of theta given the score is not known: {MEAN_ONLY}")


class _MeanOnly(_FamilyPosterior):
    """Posterior of a fit to single trials, whose outcomes depend on the mean of theta alone.

    What needs the variance of theta is refused: it would be the prior's.
    """

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        found = super().curves(score, group, exposure)
        return _MeanCurves({name: found[name] for name in ("mean", self.family.curves[0])})

    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        def over_all(part: Columns) -> Floats:
            curves = self._widened(part, *self._draws(part))
            ends = self.family.cdf_interval(*self._own(part), *curves)
            return np.mean(ends, axis=1)

        return proper(*in_chunks(over_all, items_at_once(self._fit), columns))

    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        raise FitError(f"Var(theta | t, y) is not known: {MEAN_ONLY}")

    def theta(self, columns: Columns) -> ThetaMixture:
        raise FitError(f"the distribution of theta is not known: {MEAN_ONLY}")

    def theta_given(self, columns: Columns, draws: Ints, uniform: Floats) -> tuple[Floats, Floats]:
        raise FitError(f"the distribution of theta is not known: {MEAN_ONLY}")

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        raise FitError(f"a further outcome of the same item cannot be predicted: {MEAN_ONLY}")

    def scorer(self, probs: Sequence[float], draws: str = "auto", plug_in: bool = False) -> Scorer:
        raise FitError(f"posteriors of items are not known: {MEAN_ONLY}")
