"""The posterior and predictive distributions of a fit: one interface for all priors.

Given a draw of the curves theta is Gamma or Normal, or a mixture of these, before and after the
outcome; over the draws it is a mixture. The rest of the package uses `posterior_of(fit)`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .._lib.arrays import Floats, Ints
from .._lib.errors import FitError
from .._lib.threads import ordered_map
from ..families.family import Family, family_of
from ..families.outcomes import Outcome
from ..families.row_sums import MEAN_ONLY
from ..families.zeros import with_zero
from ..inference.results import FIT, Fit
from .curves import (
    average_curves,
    curves_at,
    items_at_once,
    own_terms,
    some_curves,
)
from .quadrature import (
    MOST_APART,
    WIDEST,
    NodeTable,
    curve_spread,
    many_nodes,
    representative_nodes,
)

Columns = Mapping[str, NDArray[Any]]
"""Columns of items by role, arrays of one length.

``score``, the outcome (``count`` or ``value``), its size (``exposure`` or ``noise_sd``), and
``group`` (labels as str) if the fit has groups. Without the outcome, theta is as given the score,
the group and, for a prior that depends on it, the size. Where an item stands for several whose
scores differ, ``spread`` is the variance of the mean curve (of log E(theta | t) for counts) over
them.
"""

Scorer = Callable[[Columns], Floats]
"""From items to posterior mean, sd, variance and quantiles of theta, (3 + probabilities, n)."""

_MANY = 1 << 15  # items per chunk without draws, or with few nodes, as fits a processor's cache
_APART = 0.01  # sd of a probability over nodes above which all draws are averaged
_WIDE = 0.4  # or sd of the second curve, a logarithm


@dataclass(frozen=True)
class ThetaMixture:
    """Theta of n items given score and outcome, as mixtures of K members of a family."""

    first: Floats  # (K, n): conjugate parameters, shape and rate or mean and variance
    second: Floats
    weight: Floats | None = None  # (K, n), with sum 1 over the components; None for equal weights
    zero: Floats | None = None  # (n,): share of theta that is 0 and none of the members; None: 0

    def average(self, values: Floats, at_zero: Floats | float = 0.0) -> Floats:
        """Mean of `values` (K, n) of the components and of those where theta is 0, shape (n,)."""
        if self.weight is None:
            return np.asarray(values.mean(axis=0))
        found = np.asarray(np.einsum("kn,kn->n", self.weight, values))
        if self.zero is None:
            return found
        return np.asarray((1.0 - self.zero) * found + self.zero * at_zero)

    def listed(self, family: Family) -> "ThetaMixture":
        """The same with theta = 0 as a last component, so near 0 that no outcome shows it."""
        if self.zero is None or self.weight is None:
            return self
        first, second = with_zero(family, self.first.T, self.second.T)
        weight = np.vstack([(1.0 - self.zero) * self.weight, self.zero])
        return ThetaMixture(first.T, second.T, weight)


class Posterior(Protocol):
    """Distributions of theta and outcomes under a fit, by draw of its curves."""

    @property
    def family(self) -> Family:
        """Family of theta given a draw, or of the components of its mixtures."""

    @property
    def outcome(self) -> Outcome:
        """The kind of outcome."""

    def log_density(self, columns: Columns) -> Floats:
        """Log density (probability) of the outcomes given score and size, (draws, n)."""

    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        """P(Y < y) and P(Y <= y) averaged over the draws, each (n,); equal if continuous."""

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        """The same for a further outcome of the items, given the one in `columns`, to 1e-4.

        `outcome` and `size`, each (n,), are those of the further observation.
        """

    def simulate(self, columns: Columns, rng: np.random.Generator) -> Floats:
        """Outcomes of new items of the same score and size, (draws, n)."""

    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        """E and Var(theta | t, y) and the third central moment of the items, each (draws, n)."""

    def theta(self, columns: Columns) -> ThetaMixture:
        """Theta of the items given score and outcome, averaged over all draws of the curves."""

    def theta_given(self, columns: Columns, draws: Ints, uniform: Floats) -> tuple[Floats, Floats]:
        """Conjugate parameters of theta under some draws of the curves, each (draws, n).

        Under a mixture they are those of one component of the posterior, drawn with its probability
        by means of `uniform` (draws, n) on (0, 1).
        """

    def scorer(
        self, probs: tuple[float, ...], draws: str, plug_in: bool, zero: bool = False
    ) -> Scorer:
        """Function that scores items: ``"auto"`` over few nodes where accurate, or ``"all"`` draws.

        With `zero` a last row is P(theta = 0 | t, y).
        """

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        """Variables of `calibration_curves` at scores, each (draws, n).

        Groups and exposures (or noise sds) are ignored if the fit has no such terms.
        """


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


def select(columns: Columns, at: slice | NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Some of the items."""
    return {name: values[at] for name, values in columns.items()}


def own_outcomes(outcome: Outcome, columns: Columns) -> tuple[Floats, Floats]:
    """Outcomes and their sizes, uninformative ones for items without outcomes."""
    if outcome.observed in columns:
        return columns[outcome.observed], columns[outcome.size]
    n = len(columns["score"])
    return np.zeros(n), np.full(n, outcome.no_information)


def in_chunks(one_chunk: Scorer, step: int, columns: Columns) -> Floats:
    """Process chunks in threads, because scipy's functions release the lock."""
    parts = _slices(len(columns["score"]), step)
    done = list(ordered_map(lambda part: one_chunk(select(columns, part)), parts))
    return np.concatenate(done, axis=1)


def _slices(n: int, step: int) -> list[slice]:
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]


def proper(below: Floats, upto: Floats) -> tuple[Floats, Floats]:
    """Ends of a probability interval, clipped to [0, 1] and sorted, because of rounding."""
    upto = np.clip(upto, 0.0, 1.0)
    return np.clip(below, 0.0, upto), upto


class _FamilyPosterior:
    """Posterior of a fit of a single family."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self.family = family_of(fit.prior)
        self.outcome = self.family.outcome

    # --- draws of the curves, and of theta -------------------------------------------------------

    def _at(self, columns: Columns) -> tuple[Floats, NDArray[Any] | None, Floats | None]:
        return columns["score"], columns.get("group"), columns.get(self.outcome.size)

    def _draws(self, columns: Columns) -> tuple[Floats, Floats]:
        return curves_at(self._fit, *self._at(columns))

    def _nodes(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        score, group, size = self._at(columns)
        return representative_nodes(self._fit, score, **own_terms(self._fit, group, size))

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

    def log_density(self, columns: Columns) -> Floats:
        curves = self._widened(columns, *self._draws(columns))
        return np.asarray(self.family.log_density(*self._own(columns), *curves))

    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        """As in `Posterior`, over quadrature points."""
        weight, first, second = self._nodes(columns)
        nodes = self._widened(columns, first, second)
        below, upto = self.family.cdf_interval(*self._own(columns), *nodes)
        return proper(weight @ below, weight @ upto)

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        """As in `Posterior`, over quadrature points, or over all draws where these differ much.

        The nodes have the draws' first and second moments. If probabilities have an sd of v over
        the nodes, the error from higher moments is of order v^3.
        """
        family = self.family

        def interval(part: Columns, first: Floats, second: Floats) -> Floats:
            after = self._updated(part, *self._widened(part, first, second))
            further = part["further"], part["further_size"]
            return np.stack(family.cdf_interval(*further, *family.to_curves(*after)))

        def over_nodes(part: Columns) -> Floats:
            weight, first, second = self._nodes(part)
            both = interval(part, first, second)
            mean, width = weight @ both, weight @ second
            apart = np.sqrt(np.maximum(weight @ (both - mean[:, None]) ** 2, 0.0)).max(axis=0)
            hardly_known = weight @ (second - width) ** 2 > _WIDE**2
            return np.vstack([mean, np.where(hardly_known, np.inf, apart)])

        def over_draws(part: Columns) -> Floats:
            return interval(part, *self._draws(part)).mean(axis=1)

        given = {**columns, "further": outcome, "further_size": size}
        found = in_chunks(over_nodes, _MANY, given)
        left = np.flatnonzero(found[2] > _APART)
        if len(left):
            found[:2, left] = in_chunks(over_draws, items_at_once(self._fit), select(given, left))
        return proper(found[0], found[1])

    def simulate(self, columns: Columns, rng: np.random.Generator) -> Floats:
        curves = self._widened(columns, *self._draws(columns))
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
        return self._updated(columns, *some_curves(self._fit, draws, *self._at(columns)))

    def scorer(
        self, probs: tuple[float, ...], draws: str, plug_in: bool, zero: bool = False
    ) -> Scorer:
        fit, family, step = self._fit, self.family, items_at_once(self._fit)

        def plugged_in(columns: Columns) -> Floats:
            curves = (curve[None] for curve in average_curves(fit, *self._at(columns)))
            return np.asarray(family.summaries(*curves, *self._own(columns), probs).rows)

        def every_draw(columns: Columns) -> Floats:
            draws = self._draws(columns)
            return np.asarray(family.summaries(*draws, *self._own(columns), probs).rows)

        if plug_in:
            return lambda columns: in_chunks(plugged_in, _MANY, columns)
        if draws == "all" or fit.one_draw:
            return partial(in_chunks, every_draw, step)
        return self._over_nodes(probs)

    def _over_nodes(self, probs: tuple[float, ...]) -> Scorer:
        """Score items over as few nodes as are accurate, or over all draws."""
        table, step = NodeTable(self._fit), items_at_once(self._fit)

        def score_items(columns: Columns) -> Floats:
            out = np.full((3 + len(probs), len(columns["score"])), np.nan)

            def find(part: slice) -> _Chunk:
                own = select(columns, part)
                distinct, place = np.unique(table.cells.find(own), return_inverse=True)
                return _Chunk(own, out[:, part], distinct, place)

            def score(level: int, chunk: _Chunk) -> Ints:
                """Score items, and return the cells of those that need a higher level."""
                at = chunk.left
                row = table.rows(level, chunk.distinct)[chunk.place[at]]
                at, known = at[row >= 0], row[row >= 0]
                if len(at):
                    cell = chunk.distinct[chunk.place[at]]
                    given = {**select(chunk.columns, at), "cell": cell, "row": known}
                    chunk.out[:, at] = self._score_level(
                        table, level, table.limits[level], probs, given
                    )
                number = np.bincount(chunk.place[chunk.left], minlength=len(chunk.distinct))
                return np.asarray(chunk.distinct[number > 0])

            chunks = list(ordered_map(find, _slices(out.shape[1], _MANY)))
            cells = [chunk.distinct for chunk in chunks]
            for level in range(len(table.limits)):
                table.prepare(level, cells)
                cells = list(ordered_map(partial(score, level), chunks))
            left = np.flatnonzero(np.isnan(out[0]))
            if len(left):
                rest = partial(self._score_by_draws, probs)
                out[:, left] = in_chunks(rest, step, select(columns, left))
            return out

        return score_items

    def _score_by_draws(self, probs: tuple[float, ...], columns: Columns) -> Floats:
        """Score items over many nodes of their own draws, or over all of these."""
        family, own = self.family, self._own(columns)
        first, second = self._draws(columns)
        out = np.full((3 + len(probs), len(own[0])), np.nan)
        known = curve_spread(family, first, second) < WIDEST
        if known.any():
            weight, *curves = many_nodes(first[:, known], second[:, known])
            given = (*family.to_parameters(*curves), *(x[known] for x in own))
            out[:, known] = family.score_nodes(weight, *given, MOST_APART, probs)
        left = np.flatnonzero(np.isnan(out[0]))
        if len(left):
            every = [np.ascontiguousarray(x[:, left].T) for x in (first, second)]
            weight = np.full(every[0].shape, 1.0 / len(first))
            given = (*family.to_parameters(*every), *(x[left] for x in own))
            out[:, left] = family.score_nodes(weight, *given, np.inf, probs)
        left = np.flatnonzero(np.isnan(out[0]))
        if len(left):
            every = [first[:, left], second[:, left], *(x[left] for x in own)]
            out[:, left] = family.summaries(*every, probs).rows
        return out

    def _score_level(
        self, table: NodeTable, level: int, limit: float, probs: tuple[float, ...], columns: Columns
    ) -> Floats:
        weight, first, second = table.nodes(level, columns)
        prior = self.family.to_parameters(first, second)
        own = self._own(columns)
        return np.asarray(self.family.score_nodes(weight, *prior, *own, limit, probs))


@dataclass(frozen=True)
class _Chunk:
    """Items that fit a processor's cache, and their cells; results become numbers in `out`."""

    columns: Columns
    out: Floats
    distinct: Ints  # cells, -1 for items without one
    place: Ints  # of the items' cells among these

    @property
    def left(self) -> Ints:
        """Items that have no results yet."""
        return np.flatnonzero(np.isnan(self.out[0]))


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

    def scorer(
        self, probs: tuple[float, ...], draws: str, plug_in: bool, zero: bool = False
    ) -> Scorer:
        raise FitError(f"posteriors of items are not known: {MEAN_ONLY}")
