"""Posterior and predictive distributions, and scores of items by the prior table.

Given a draw of the curves theta is Gamma, Normal or Beta, or a mixture of these, before and after
the outcome; over the draws it is a mixture. The rest of the package uses
`soc_pymc.posterior.predictive.posterior_of`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.interpolate import RegularGridInterpolator

from .. import prior_table
from .._lib.arrays import Floats, Ints
from ..families.family import family_of
from ..families.mixtures import over_draws
from ..inference.results import Fit
from .curves import atom_of, chosen, curve_draws, items_at_once, place_of
from .interface import Columns, Scorer, ThetaMixture, in_chunks, own_outcomes, select
from .prior_build import table_of, why_no_table

_POINTS = 20, 12, 12  # grid of scores, sizes and values on which quantiles are interpolated
_TINY, _SMALL = 1e-300, 1e-4  # least size, and least quantile as a share of the mean
_SAMPLE, _WITHIN = 40, 0.02  # items that prove a grid; error allowed, in widths of the interval


class Posterior:
    """Distributions of theta and outcomes under a fit of a single family, by draw of its curves.

    Fits of mixtures have a class of their own with the same methods. `draws` are indices of draws,
    chains one after the other, and may repeat; None takes each once.
    """

    def __init__(self, fit: Fit) -> None:
        self.fit, self.family = fit, family_of(fit.prior)
        self.outcome = self.family.outcome

    # --- by draw ---------------------------------------------------------------------------------

    def _curves(self, columns: Columns, draws: Ints | None) -> tuple[Floats, Floats]:
        terms = columns.get("group"), columns.get(self.outcome.size)
        return curve_draws(self.fit, columns["score"], *terms, chosen(draws))

    def _widened(self, columns: Columns, draws: Ints | None) -> tuple[Floats, Floats]:
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

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        """Variables of `calibration_curves` at scores, each (draws, n).

        Groups and exposures (or noise sds) are ignored if the fit has no such terms.
        """
        return dict(self.family.curve_variables(*curve_draws(self.fit, score, group, exposure)))

    def theta_given(
        self, columns: Columns, draws: Ints | None, uniform: Floats
    ) -> tuple[Floats, Floats]:
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
        theta = self.theta(columns)
        return over_draws(self.family.name, theta.a, theta.b, probs)

    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        """P(Y < y) and P(Y <= y) averaged over the draws, each (n,); equal if continuous.

        They are those of the prior table, to about 1e-4.
        """
        before = {name: v for name, v in columns.items() if name != self.outcome.observed}
        return self.further_cdf_interval(before, *own_outcomes(self.outcome, columns))

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
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
        if draws == "auto" and not beyond and not why_no_table(self.fit):
            return partial(self._by_table, probs)
        return partial(in_chunks, partial(self.rows, probs=probs), items_at_once(self.fit))

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
        n, closely = len(columns["score"]), self.outcome.observed in columns
        flagged = np.full(n, bool(why_no_table(self.fit)) or closely)
        if not why_no_table(self.fit):
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
        exact = partial(in_chunks, partial(self.rows, probs=probs), items_at_once(self.fit))
        if self.fit.prior.gridded or not len(probs):
            return exact(columns)
        keys = pd.DataFrame({"atom": atom_of(self.fit, columns["score"])})
        keys["group"] = columns.get("group", "")
        if self.outcome.positive:
            keys["outcome"] = own_outcomes(self.outcome, columns)[0]
        out = np.empty((3 + len(probs), len(keys)))
        for items in map(np.asarray, keys.groupby(list(keys)).indices.values()):
            part = select(columns, items)
            out[:, items] = self._on_a_grid(exact, probs, part)
        return out

    def _on_a_grid(self, exact: Scorer, probs: Sequence[float], columns: Columns) -> Floats:
        """Rows with quantiles interpolated in score, size and value; exact if not close enough."""
        value, size = own_outcomes(self.outcome, columns)
        place = place_of(self.fit, "mean", columns["score"])
        places = np.column_stack([place, np.log(np.maximum(size, _TINY)), value])
        low, high = places.min(axis=0), places.max(axis=0)
        varied = np.flatnonzero(high > low)
        axes = [np.linspace(low[k], high[k], _POINTS[k]) for k in varied]
        shape = [len(axis) for axis in axes]
        number = int(np.prod(shape))
        if not axes or 2 * number + _SAMPLE > len(places):
            return exact(columns)
        mesh = dict(zip(varied, np.meshgrid(*axes, indexing="ij"), strict=True))
        grid = {name: np.repeat(v[:1], number) for name, v in columns.items()}
        undo: list[Callable[[Floats], Floats]] = [self.fit.axis("mean").inverse, np.exp, np.asarray]
        names = ["score", self.outcome.size, self.outcome.observed]
        grid |= {names[k]: undo[k](v.ravel()) for k, v in mesh.items()}
        mean, sd, _, *quantiles = exact(grid)
        positive, values = self.outcome.positive, (np.array(quantiles) - mean) / sd
        if positive:
            values = np.log(np.maximum(np.array(quantiles) / mean, _SMALL))
        if not np.isfinite(values).all():
            return exact(columns)
        shaped = values.T.reshape(*shape, -1)
        values = RegularGridInterpolator(axes, shaped, "cubic")(places[:, varied]).T
        rows = in_chunks(partial(self.rows, probs=()), items_at_once(self.fit), columns)
        quantiles = rows[0] * np.exp(values) if positive else rows[0] + rows[1] * values
        sample = np.unique(np.linspace(0, len(place) - 1, _SAMPLE).astype(int))
        proof = exact(select(columns, sample))
        width = np.ptp(proof[3:], axis=0) if len(probs) > 1 else proof[1]
        close = np.abs(quantiles[:, sample] - proof[3:]) <= _WITHIN * width
        return np.vstack([rows, quantiles]) if close.all() else exact(columns)


def proper(below: Floats, upto: Floats) -> tuple[Floats, Floats]:
    """Ends of a probability interval, clipped to [0, 1] and sorted, because of rounding."""
    upto = np.clip(upto, 0.0, 1.0)
    return np.clip(below, 0.0, upto), upto
