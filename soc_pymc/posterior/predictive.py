"""Distributions of theta and outcomes by draw of the curves: `posterior_of(fit)`, for all priors.

Given a draw of the curves theta is Gamma, Normal or Beta, or a mixture of these, before and after
the outcome; over the draws it is a mixture. `draws` are numbers of draws, chains one after the
other, and may repeat; None takes each once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from .._lib.arguments import FitError
from .._lib.arrays import Columns, Floats, Ints, Pair
from ..families.rows import MEAN_ONLY
from ..fits import FIT, Curves, Fit
from .item_columns import ThetaMixture, own_outcomes, places, without
from .weights import weights_of

# least size
_TINY = 1e-300
# numbers in one array of draws x items x components
_AT_ONCE = 4_000_000


class Posterior(ABC):
    """Distributions of theta and outcomes under curves.

    Theta is a mixture of members of the family, whose parameters are (members, n): of the draws,
    each with one member, or of the components of a mixture, with weights by draw.
    """

    def __init__(self, curves: Curves) -> None:
        self.curves = curves
        self.prior = curves.prior
        self.family = curves.family
        self.outcome = curves.outcome

    @abstractmethod
    def curve_variables(
        self, columns: Columns, draws: Ints | None = None
    ) -> dict[str, Floats]:
        """Return variables of `calibration_curves` at scores, groups and sizes, (draws, n)."""

    @abstractmethod
    def log_density(self, columns: Columns, draws: Ints | None = None) -> Floats:
        """Return log densities (probabilities) of outcomes given score and size, (draws, n)."""

    def log_mean_density(self, columns: Columns, draws: Ints | None = None) -> Floats:
        """Return logarithms of the densities' means over draws, (n,)."""
        by_draw = self.log_density(columns, draws)
        return special.logsumexp(by_draw, axis=0) - np.log(len(by_draw))

    @abstractmethod
    def theta_given(
        self, columns: Columns, draws: Ints | None, uniform: Floats
    ) -> Pair:
        """Return conjugate parameters of theta under some draws of the curves, each (draws, n).

        Under a mixture `uniform` (draws, n) draws one component of the posterior for each.
        """

    @abstractmethod
    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        """Return E and Var(theta | t, y) and the third central moment of items, each (draws, n)."""

    @abstractmethod
    def theta(self, columns: Columns) -> ThetaMixture:
        """Return theta of items given score and outcome, averaged over all draws."""

    @abstractmethod
    def _members(self, columns: Columns, draws: Ints | None) -> Pair:
        """Location and dispersion of the members, each (members, n), widened by items' spread."""

    @abstractmethod
    def _by_draw(self, columns: Columns, draws: Ints | None, values: Floats) -> Floats:
        """Averages by draw (m, draws, n) of values of the members, (m, members, n)."""

    @property
    def reweights(self) -> bool:
        """True if being in the table changes the weights of members given a draw of the curves."""
        return self.prior.gridded and self.outcome.truncated

    def listed_shares(self, size: Floats, members: Pair) -> Floats:
        """Relative probabilities (members, n) that the table has items of these members."""
        theta = self.family.to_parameters(*members)
        log_listed = self.family.log_listed(size, *theta)
        return np.exp(log_listed - log_listed.max(axis=0))

    def cdf_by_draw(self, columns: Columns, draws: Ints | None = None) -> Floats:
        """Return P(Y < y) and P(Y <= y) under some draws of the curves, (2, draws, n)."""
        members = self._members(columns, draws)
        ends = self.cdf_ends(columns, members)
        return self._of_listed(columns, draws, members, ends)

    def cdf_ends(self, columns: Columns, members: Pair) -> Floats:
        """Return P(Y < y) and P(Y <= y) by member, (2, members, n), of cells at their ends."""
        if "low" not in columns:
            return self._cdf_ends(columns, members)
        observed = self.outcome.observed
        (lower, _), (_, upper) = (
            self._cdf_ends({**columns, observed: columns[end]}, members)
            for end in ("low", "high")
        )
        return np.stack([lower, np.maximum(upper, lower)])

    def _cdf_ends(self, columns: Columns, members: Pair) -> Floats:
        """`cdf_ends` of items."""
        outcomes = own_outcomes(self.outcome, columns)
        return np.stack(self.family.cdf_interval(*outcomes, *members))

    def log_densities(self, columns: Columns, members: Pair) -> Floats:
        """Return log densities of the outcomes under each member, (members, n)."""
        outcomes = own_outcomes(self.outcome, columns)
        return self.family.log_density(*outcomes, *members)

    def _of_listed(
        self, columns: Columns, draws: Ints | None, members: Pair, values: Floats
    ) -> Floats:
        """Averages of `_by_draw` over the items that the table has."""
        if not self.reweights:
            return self._by_draw(columns, draws, values)
        shares = self.listed_shares(columns[self.outcome.size], members)
        products = np.concatenate([shares[None], shares * values])
        total, *averages = self._by_draw(columns, draws, products)
        return np.stack(averages) / np.maximum(total, _TINY)

    def simulate(
        self,
        columns: Columns,
        rng: np.random.Generator,
        draws: Ints | None = None,
        drawn_by: Ints | None = None,
    ) -> Floats:
        """Return outcomes of new items of the same score and size, (draws, n).

        Given places among the draws, `drawn_by` (n,), each item has an outcome of one draw, (n,).
        """
        before = without(columns, self.outcome.observed)
        shape = (self._number(draws), len(columns["score"]))
        uniform = rng.random(shape) if self.prior.gridded else np.empty(0)
        a, b = self._listed_theta(before, draws, uniform)
        if drawn_by is not None:
            item = np.arange(shape[1])
            a = a[drawn_by, item]
            b = b[drawn_by, item]
        size = columns[self.outcome.size]
        if law := self.curves.noise_law:
            df = columns.get("noise_df", law.df)
            moderated = law.moderated(columns["score"], size, df)
            size = law.draw(moderated, df, a.shape, rng)
        return self.family.simulate(a, b, size, rng)

    def _listed_theta(
        self, columns: Columns, draws: Ints | None, uniform: Floats
    ) -> Pair:
        """`theta_given` that items without outcomes are in the table."""
        return self.theta_given(columns, draws, uniform)

    def typical_sizes(self, columns: Columns) -> Floats:
        """Return sizes of the outcomes; noise sds that are estimates are moderated."""
        size = columns[self.outcome.size]
        law = self.curves.noise_law
        if law is None:
            return size
        df = columns.get("noise_df", law.df)
        return np.sqrt(law.moderated(columns["score"], size, df))

    def check_distribution(self) -> None:
        """Refuse what needs the variance of theta under curves of single trials: the prior's."""
        if self.curves.mean_only:
            raise FitError(
                f"the distribution of theta, and so posteriors, are not known: {MEAN_ONLY}"
            )

    def _number(self, draws: Ints | None) -> int:
        return self.curves.number if draws is None else len(draws)

    def _updated(self, columns: Columns, members: Pair) -> Pair:
        """Conjugate parameters of the members given the outcomes."""
        if self.outcome.observed in columns:
            self.check_distribution()
        theta = self.family.to_parameters(*members)
        return self.family.update(*theta, *own_outcomes(self.outcome, columns))


class SinglePosterior(Posterior):
    """Posterior under a single family: each draw of the curves is a member."""

    def curve_variables(
        self, columns: Columns, draws: Ints | None = None
    ) -> dict[str, Floats]:
        """Return variables of `calibration_curves`, (draws, n); of single trials the mean alone."""
        curves = self.curves.at(*places(self.outcome, columns), draws)
        variables = self.family.curve_variables(*curves)
        if self.curves.mean_only:
            names = ("mean", self.family.curve_names[0])
            return {name: variables[name] for name in names}
        return variables

    def log_density(self, columns: Columns, draws: Ints | None = None) -> Floats:
        """See `Posterior`."""
        return self.log_densities(columns, self._members(columns, draws))

    def theta_given(
        self, columns: Columns, draws: Ints | None, uniform: Floats
    ) -> Pair:
        """See `Posterior`."""
        return self._updated(columns, self._members(columns, draws))

    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        """See `Posterior`."""
        theta = self._updated(columns, self._members(columns, None))
        mean = self.family.mean(*theta)
        variance = self.family.variance(*theta)
        return mean, variance, self.family.third_moment(*theta)

    def theta(self, columns: Columns) -> ThetaMixture:
        """See `Posterior`."""
        return ThetaMixture(*self._updated(columns, self._members(columns, None)))

    def _members(self, columns: Columns, draws: Ints | None) -> Pair:
        members = self.curves.at(*places(self.outcome, columns), draws)
        return widened(self.curves, members, columns)

    def _by_draw(self, columns: Columns, draws: Ints | None, values: Floats) -> Floats:
        return values


class MixturePosterior(Posterior):
    """Posterior under a mixture: members are its components, with weights by draw."""

    def __init__(self, curves: Curves) -> None:
        super().__init__(curves)
        self._weights = weights_of(curves)

    def curve_variables(
        self, columns: Columns, draws: Ints | None = None
    ) -> dict[str, Floats]:
        """See `Posterior`."""
        return self._weights.curve_variables(without(columns, "spread"), draws)

    def log_density(self, columns: Columns, draws: Ints | None = None) -> Floats:
        """See `Posterior`."""
        return self.shifted_log_densities(columns, draws, [lambda *members: members])[0]

    def shifted_log_densities(
        self,
        columns: Columns,
        draws: Ints | None,
        shifts: Sequence[Callable[..., Pair]],
    ) -> Floats:
        """Return log densities (shifts, draws, n) under components that each of `shifts` changes.

        A shift takes and gives location and dispersion. The weights stay as they are.
        """
        members = self._members(columns, draws)
        pairs = [shift(*members) for shift in shifts]
        log_density = np.stack([self.log_densities(columns, pair) for pair in pairs])
        top = log_density.max(axis=1, keepdims=True)
        density = np.exp(log_density - top)
        if not self.reweights:
            average = self._by_draw(columns, draws, density)
        else:
            size = columns[self.outcome.size]
            listed = np.stack([self.listed_shares(size, pair) for pair in pairs])
            products = np.concatenate([listed * density, listed])
            average, total = np.split(self._by_draw(columns, draws, products), 2)
            average /= np.maximum(total, _TINY)
        return top + np.log(np.maximum(average, _TINY))

    def theta_given(
        self, columns: Columns, draws: Ints | None, uniform: Floats
    ) -> Pair:
        """See `Posterior`."""
        theta, density = self._updated_with_densities(columns)
        return self._drawn(columns, draws, uniform, theta, density)

    def _listed_theta(
        self, columns: Columns, draws: Ints | None, uniform: Floats
    ) -> Pair:
        if not self.reweights:
            return self.theta_given(columns, draws, uniform)
        members = self._members(columns, draws)
        theta = self.family.to_parameters(*members)
        shares = self.listed_shares(columns[self.outcome.size], members)
        return self._drawn(columns, draws, uniform, theta, shares)

    def _drawn(
        self,
        columns: Columns,
        draws: Ints | None,
        uniform: Floats,
        theta: Pair,
        density: Floats,
    ) -> Pair:
        """Parameters of a component for each draw, by weights times relative densities."""
        a, b = theta
        component = np.empty(uniform.shape, dtype=np.int64)
        triangle = np.triu(np.ones((len(a), len(a)), dtype=np.float32))
        for items, weights in self._blocks(columns, draws, len(a)):
            p = density[:, items].T.astype(weights.dtype)
            # a product with a triangle is faster than a cumulative sum
            upto = weights * p @ triangle
            cut = (uniform[:, items] * upto[..., -1]).astype(weights.dtype)
            below = upto[..., :-1] < cut[..., None]
            component[:, items] = np.count_nonzero(below, axis=2)
        item = np.arange(component.shape[1])
        return a[component, item], b[component, item]

    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        """See `Posterior`."""
        theta, density = self._updated_with_densities(columns)
        means = self.family.mean(*theta)
        variances = self.family.variance(*theta)
        # squares about a centre lose few digits where means are large
        centre = (density * means).sum(axis=0) / density.sum(axis=0)
        off = means - centre
        squares = variances + off**2
        cubes = self.family.third_moment(*theta) + (3.0 * variances + off**2) * off
        powers = density * np.stack([np.ones_like(off), off, squares, cubes])
        total, *powers = self._by_draw(columns, None, powers)
        total = np.maximum(total, _TINY)
        shift, square, cube = (power / total for power in powers)
        third = cube - (3.0 * square - 2.0 * shift**2) * shift
        return centre + shift, square - shift**2, third

    def theta(self, columns: Columns) -> ThetaMixture:
        """See `Posterior`."""
        (a, b), density = self._updated_with_densities(columns)
        # weights given the outcomes, averaged over draws
        weight = np.empty_like(density)
        for items, weights in self._blocks(columns, None, len(a)):
            by_item = weights.transpose(1, 0, 2)
            p = density[:, items].T.astype(weights.dtype)
            tiny = np.finfo(weights.dtype).tiny
            inverse = 1.0 / np.maximum(by_item @ p[..., None], tiny)
            inverse /= len(weights)
            factor = (inverse.transpose(0, 2, 1) @ by_item)[:, 0]
            weight[:, items] = (p * factor).T
        weight /= weight.sum(axis=0)
        if not self.prior.zero:
            return ThetaMixture(a, b, weight)
        # the last component, of each true noise
        number = self._weights.number
        is_zero = np.arange(len(a)) % number == number - 1
        zero = weight[is_zero].sum(axis=0)
        nonzero = weight[~is_zero]
        share = nonzero / np.maximum(nonzero.sum(axis=0), _TINY)
        return ThetaMixture(a[~is_zero], b[~is_zero], share, zero)

    def _members(self, columns: Columns, draws: Ints | None) -> Pair:
        a, b = np.broadcast_arrays(*self._weights.parameters(columns))
        return self.family.to_curves(a.T, b.T)

    def _by_draw(self, columns: Columns, draws: Ints | None, values: Floats) -> Floats:
        averages = np.empty((len(values), self._number(draws), values.shape[2]))
        for items, weights in self._blocks(columns, draws, values.shape[1]):
            by_item = values[..., items].transpose(2, 1, 0)
            sums = weights.transpose(1, 0, 2) @ by_item
            averages[..., items] = sums.transpose(2, 1, 0)
        return averages

    def _updated_with_densities(self, columns: Columns) -> tuple[Pair, Floats]:
        """Members given the outcomes, and their relative densities of these."""
        members = self._members(columns, None)
        theta = self._updated(columns, members)
        # weights of components are those of all items, listed or not
        if self.outcome.truncated:
            outcomes = own_outcomes(self.outcome, columns)
            log_density = self.family.complete.log_density(*outcomes, *members)
        else:
            log_density = self.log_densities(columns, members)
        return theta, np.exp(log_density - log_density.max(axis=0))

    def _blocks(
        self, columns: Columns, draws: Ints | None, members: int
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Items, with the components' weights under draws, (draws, items, members).

        With several members a component, as of estimated noise, each has its weight.
        """
        repeats = members // self._weights.number
        draws = np.arange(self.curves.number) if draws is None else draws
        roles = ["score"]
        if self.curves.groups and "group" in columns:
            roles.append("group")
        if self.prior.exposure is not None and self.outcome.size in columns:
            roles.append(self.outcome.size)
        keys = pd.DataFrame({role: columns[role] for role in roles})
        step = max(1, _AT_ONCE // (len(draws) * members))
        for start in range(0, len(keys), step):
            items = slice(start, start + step)
            code = keys[items].groupby(roles).ngroup()
            index: Any = slice(None)
            back: Any = slice(None)
            if code.duplicated().any():
                _, index, back = np.unique(code, return_index=True, return_inverse=True)
            distinct = {role: columns[role][items][index] for role in roles}
            weights = self._weights.by_draw(distinct, draws)[:, back]
            if repeats > 1:
                weights = np.tile(weights, repeats)
            yield items, weights


class EstimatedNoise(Posterior):
    """Posterior where noise sds are estimates: each member has one for each true noise."""

    def _cdf_ends(self, columns: Columns, members: Pair) -> Floats:
        """See `Posterior`."""
        y, sizes, log_weights = self._nodes(columns)
        below = 0.0
        for size, weight in zip(sizes, np.exp(log_weights), strict=True):
            below = below + weight * self.family.cdf_interval(y, size, *members)[0]
        return np.stack([below, below])

    def log_densities(self, columns: Columns, members: Pair) -> Floats:
        """See `Posterior`."""
        y, sizes, log_weights = self._nodes(columns)
        by_node = (
            log_weight + self.family.log_density(y, size, *members)
            for size, log_weight in zip(sizes, log_weights, strict=True)
        )
        return reduce(np.logaddexp, by_node)

    def by_noise(
        self, columns: Columns, members: Pair
    ) -> tuple[Floats, Floats, Floats]:
        """Return parameters given each true noise, and log densities of noise and outcomes.

        All are (nodes, members, n).
        """
        y, sizes, log_weights = self._nodes(columns)
        outcomes = y, sizes[:, None]
        theta = self.family.to_parameters(*members)
        updated = self.family.update(*theta, *outcomes)
        log_density = self.family.log_density(*outcomes, *members)
        log_density = log_density + log_weights[:, None]
        a, b = (np.broadcast_to(x, log_density.shape) for x in updated)
        return a, b, log_density

    def _nodes(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        """Outcomes, true noise sds (nodes, n) and their log weights (nodes, n or 1)."""
        y, size = own_outcomes(self.outcome, columns)
        law = self.curves.noise_law
        if law is None or self.outcome.observed not in columns:
            return y, size[None], np.zeros((1, 1))
        df = columns.get("noise_df", law.df)
        return y, *law.nodes(columns["score"], size, df)


class NoisySinglePosterior(EstimatedNoise, SinglePosterior):
    """`SinglePosterior` where noise sds are estimates."""

    def theta_given(
        self, columns: Columns, draws: Ints | None, uniform: Floats
    ) -> Pair:
        """See `Posterior`; `uniform` draws the true noise too."""
        a, b, log_density = self.by_noise(columns, self._members(columns, draws))
        if len(a) == 1:
            return a[0], b[0]
        below = special.softmax(log_density, axis=0).cumsum(axis=0)
        node = (below[:-1] < uniform).sum(axis=0)[None]
        a, b = (np.take_along_axis(x, node, axis=0)[0] for x in (a, b))
        return a, b

    def moments(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        """See `Posterior`."""
        a, b, log_density = self.by_noise(columns, self._members(columns, None))
        weight = special.softmax(log_density, axis=0)
        means = self.family.mean(a, b)
        variances = self.family.variance(a, b)
        mean = (weight * means).sum(axis=0)
        off = means - mean
        third = self.family.third_moment(a, b) + (3.0 * variances + off**2) * off
        variance = (weight * (variances + off**2)).sum(axis=0)
        return mean, variance, (weight * third).sum(axis=0)

    def theta(self, columns: Columns) -> ThetaMixture:
        """See `Posterior`."""
        a, b, log_density = self.by_noise(columns, self._members(columns, None))
        weight = special.softmax(log_density, axis=0) / log_density.shape[1]
        return ThetaMixture(*(x.reshape(-1, x.shape[2]) for x in (a, b, weight)))


class NoisyMixturePosterior(EstimatedNoise, MixturePosterior):
    """`MixturePosterior` where noise sds are estimates."""

    def _updated_with_densities(self, columns: Columns) -> tuple[Pair, Floats]:
        by_noise = self.by_noise(columns, self._members(columns, None))
        a, b, log_density = (x.reshape(-1, x.shape[2]) for x in by_noise)
        return (a, b), np.exp(log_density - log_density.max(axis=0))


def widened(
    curves: Curves, members: Pair, columns: Columns, items: slice | Ints = slice(None)
) -> Pair:
    """Return location and dispersion (members, n), widened by the spread that items may have."""
    if "spread" not in columns:
        return members
    return curves.family.widened(*members, columns["spread"][items])


def posterior_under(curves: Curves) -> Posterior:
    """Return the posterior under curves, made once."""
    if curves.noise_law:
        mixed = curves.prior.gridded
        return curves.once(NoisyMixturePosterior if mixed else NoisySinglePosterior)
    if curves.prior.gridded:
        return curves.once(MixturePosterior)
    return curves.once(SinglePosterior)


def posterior_of(fit: Fit) -> Posterior:
    """Return the posterior under the curves of a checked fit, made once."""
    return posterior_under(FIT(fit, "fit").curves)
