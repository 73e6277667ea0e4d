"""Quick fits of remedies, which say how many nats these gain."""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import special

from .._lib.arrays import Columns, Floats
from .._lib.errors import SocError
from .._lib.laws import smoothed
from ..data.items import Items
from ..data.statistics import Statistics
from ..families.priors import Prior
from ..posterior.predictive import Posterior, posterior_under
from .advice import Gain, Outliers
from .findings import Remedy
from .observations import Observations, observe, totals_without_folds

_DRAWS = 100  # of the present fit
_MOST_ROWS = 5_000  # most rows whose densities are compared, a random subset
# levels up to which a grid of theta in each, or any fit, takes reasonable time
_MOST_LEVELS = 12
_MOST_FITTED = 1_000


@dataclass(frozen=True, eq=False)
class QuickFits:
    """Fits to `data`, with rows `items`, against the present one, which they may have made.

    `data` may be some of `all_items`, which are fitted.
    """

    present: Posterior
    data: Items | Statistics
    all_items: Items | Statistics
    items: Observations
    outliers: Outliers
    made_fit: bool

    @cached_property
    def _place(self) -> Any:
        rng = np.random.default_rng(0)
        return self.items.sample(_MOST_ROWS, rng)[0]

    @cached_property
    def _rows(self) -> Any:
        """Places of rows whose densities are compared, then of outliers."""
        return np.append(self._place, self.outliers.place)

    @cached_property
    def _present(self) -> Floats:
        """Log densities (rows,) under the present fit."""
        columns = self.items.at(self._rows).columns
        if not self.made_fit:
            return self.present.log_mean_density(columns)
        return _left_out(posterior_under(self.present.curves.thin(_DRAWS)), columns)

    @cached_property
    def _again(self) -> Floats:
        """Log densities (rows,) under a fit of the present prior to these items."""
        return self._present if self.made_fit else self._fitted(self.present.prior, {})

    def gain(self, remedy: Remedy) -> Gain:
        """Gain of a fit of a remedy over one of the present prior, all items left out.

        A fit of the present prior gains over the present fit. NaN if the remedy is no fit, or it
        takes long.
        """
        prior = remedy.prior or self.present.prior
        roles = remedy.roles
        by_roles = isinstance(self.data, Items) and "cluster" not in roles
        if not (remedy.prior or roles) or (roles and not by_roles):
            return Gain()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if prior == self.present.prior and not roles:
                    fits = self._again, self._present
                else:
                    fits = self._fitted(prior, roles), self._again
        except (SocError, np.linalg.LinAlgError):
            return Gain()
        rows = len(self._place)
        gain = (fits[0] - fits[1])[:rows]
        n = self.items.n[self._place]
        mean = n @ gain / n.sum()
        error = np.sqrt(n @ (gain - mean) ** 2) / n.sum()
        scale = self.items.n.sum()
        explains = self.outliers.explained(fits[0][rows:])
        return Gain(float(scale * mean), float(scale * error), explains)

    def _fitted(self, prior: Prior, roles: Any) -> Floats:
        """Log densities (rows,) of items left out of a fit; NaN if it takes long."""
        # which loads PyMC
        from ..inference.fitting import rough_curves

        if "group" in roles:
            prior = replace(prior, groups=True)
        data = _with_roles(self.data, roles)
        stats = _with_roles(self.all_items, roles)
        if isinstance(stats, Items):
            stats = totals_without_folds(stats)
        if takes_long(prior, stats) or len(stats.groups) > _MOST_FITTED:
            return np.full(len(self._rows), np.nan)
        curves = rough_curves(stats, prior)
        rows = observe(curves, data).at(self._rows)
        return _left_out(posterior_under(curves), rows.columns)


def takes_long(prior: Prior, stats: Statistics) -> bool:
    """Return True if a grid of theta in each of the groups would take too long."""
    return prior.gridded and prior.groups and len(stats.groups) > _MOST_LEVELS


def _with_roles(data: Any, roles: Any) -> Items | Statistics:
    return replace(data, **roles) if roles else data


def _left_out(posterior: Posterior, columns: Columns) -> Floats:
    """Log densities (rows,) of items that are left out, by smoothed weights of all draws."""
    density = posterior.log_density(columns)
    log_weight, _ = smoothed(-density)
    return np.asarray(special.logsumexp(log_weight + density, axis=0))
