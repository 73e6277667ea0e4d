"""The posterior and predictive distributions of a fit: `posterior_of(fit)`, for all priors."""

from typing import Any, override

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..families.row_sums import MEAN_ONLY
from ..inference.results import FIT, Fit
from .curves import items_at_once
from .interface import Columns, in_chunks
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
    return MixturePosterior(fit) if fit.prior.gridded else Posterior(fit)


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
    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        def chunk(part: Columns) -> Floats:
            return np.mean(self.cdf_by_draw(part, None), axis=1)

        return proper(*in_chunks(chunk, items_at_once(self.fit), columns))

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise FitError(f"the distribution of theta, and so posteriors, are not known: {MEAN_ONLY}")

    moments = theta = theta_given = further_cdf_interval = scorer = _refuse
