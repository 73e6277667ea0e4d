"""Averages over all draws of the curves: scores of items, cdfs and densities of their outcomes.

They come from the prior table where that is close, and else from all draws.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy import special
from scipy.interpolate import RegularGridInterpolator

from .. import prior_table
from .._lib.arrays import Columns, Floats, Ints, Pair
from .._lib.laws import smoothed
from ..families.scales import Scale
from ..fits import Curves
from .item_columns import (
    Scorer,
    ThetaMixture,
    in_chunks,
    own_outcomes,
    select,
    without,
)
from .predictive import EstimatedNoise, Posterior, posterior_under, widened
from .prior_build import table_of, why_no_table

# points along each axis of a mesh of 1, 2 or 3 axes, and the fewest items that get one
_POINTS = (0, 20, 20, 12)
_LEAST_ITEMS = 80
# least size, and least quantile as a share of the mean
_TINY = 1e-300
_CLOSE = 1e-7  # of the sd of an outcome, to which quantiles are computed
_SMALL = 1e-4
# items on which a mesh is tried, and the error allowed, in widths of their intervals
_SAMPLE = 40
_WITHIN = 0.02
# draws for distributions without an item, which tests compare over thousands of items
_DRAWS_WITHOUT = 250
# largest change of a tail probability, as a share of it, that is to first order, and one too small
# to matter
_MOST_OF_TAIL = 0.25
_NO_CHANGE = 1e-9
# average number of items per group from which the table takes less time than all draws: without
# and with cells of sizes
_FEWEST_PER_GROUP = 100
_FEWEST_BY_SIZE = 500

# weights (members, n), or the weight of each
_Weights = Floats | float
# makes summaries (rows, n) of log densities (members, n) of outcomes, a function that returns the
# ends (2, members, n) of their cdf intervals, weights, and loadings of the covariance of these
_Summary = Callable[[Floats, Callable[[], Any], _Weights, Sequence[Floats]], Floats]


def table_items(curves: Curves, columns: Columns) -> prior_table.Observed:
    """Items as the prior table takes them."""
    outcomes = own_outcomes(curves.outcome, columns)
    size = None
    if curves.prior.exposure is not None:
        size = columns[curves.outcome.size]
    group = columns["group"].astype(object) if curves.groups else None
    return prior_table.Observed(columns["score"], *outcomes, size, group)


# --- scores --------------------------------------------------------------------------------------


def scorer(posterior: Posterior, probs: Sequence[float], draws: str = "auto") -> Scorer:
    """Function that scores items: ``"auto"`` by the prior table, or over ``"all"`` draws."""
    posterior.check_distribution()
    least = prior_table.OUTER_LEVEL
    within = all(least <= prob <= 1.0 - least for prob in probs)
    if within and draws == "auto" and not why_no_table(posterior.curves):
        return partial(_by_table, posterior, probs)
    return _by_draws(posterior, probs, exact=True)


def _by_draws(
    posterior: Posterior, probs: Sequence[float], exact: bool = False
) -> Scorer:
    summaries = posterior.family.summaries

    def rows(columns: Columns) -> Floats:
        theta = posterior.theta(columns)
        return summaries(theta.weight, theta.a, theta.b, probs, theta.zero, exact)

    return partial(in_chunks, rows, posterior.curves.items_at_once)


def _by_table(posterior: Posterior, probs: Sequence[float], columns: Columns) -> Floats:
    """Rows by the table, and of flagged items over all draws; many alike share a mesh."""
    curves = posterior.curves
    nodes = _table_nodes(posterior, columns)
    number = len(columns["score"])
    rows, flagged = prior_table.summaries_of(table_of(curves), nodes, number, probs)
    by_draws = np.flatnonzero(flagged)
    if not len(by_draws):
        return rows
    score = _by_draws(posterior, probs)
    if len(probs) and not curves.prior.gridded:
        for items, on_mesh in _on_meshes(posterior, score, columns, by_draws):
            rows[:, items] = on_mesh
            flagged[items] = False
        by_draws = np.flatnonzero(flagged)
    if len(by_draws):
        rows[:, by_draws] = score(select(columns, by_draws))
        unsolved = by_draws[np.isnan(rows[:, by_draws]).any(axis=0)]
        # where the approximate distribution function has no digits
        if len(unsolved):
            exact = _by_draws(posterior, probs, exact=True)
            rows[:, unsolved] = exact(select(columns, unsolved))
    return rows


# --- quantiles of items that are alike, on a mesh of score, size and outcome ---------------------


def _on_meshes(
    posterior: Posterior, score: Scorer, columns: Columns, items: Ints
) -> Iterator[tuple[Ints, Floats]]:
    """Yield alike items among some, and their rows: of all draws, with quantiles of a mesh.

    Alike are items of one atom, group and whole outcome; of several if these are not close enough.
    """
    curves = posterior.curves
    outcome, _ = own_outcomes(curves.outcome, columns)
    keys = pd.DataFrame({"atom": curves.atom(columns["score"][items])}, items)
    keys["group"] = columns["group"][items] if curves.groups else ""
    keys["df"] = columns["noise_df"][items] if "noise_df" in columns else 0.0
    keys["outcome"] = outcome[items]
    roles = [["atom", "group", "df", "outcome"], ["atom", "group", "df"]]
    # values that are not whole hardly ever agree
    for keyed in roles if curves.outcome.whole else roles[1:]:
        grids: list[Ints] = []
        for alike in keys.groupby(keyed).groups.values():
            part = alike.to_numpy()
            rows = _on_mesh(posterior, score, select(columns, part))
            if rows is not None:
                yield part, rows
                grids.append(part)
        if grids:
            keys = keys.drop(np.concatenate(grids))


def _on_mesh(posterior: Posterior, score: Scorer, columns: Columns) -> Floats | None:
    """Rows with interpolated quantiles; None if items are few or these are not close enough."""
    if len(columns["score"]) < _LEAST_ITEMS:
        return None
    curves = posterior.curves
    positive = curves.outcome.positive
    outcome, size = own_outcomes(curves.outcome, columns)
    centre, unit = _expected_outcome(curves, columns)
    place = np.log1p(outcome) if positive else outcome
    surprise = (place - centre) / unit
    position = curves.position("mean", columns["score"])
    at_items = np.column_stack([position, np.log(size + _TINY), surprise])
    coordinates = columns["score"], size, outcome
    varied = [k for k, values in enumerate(coordinates) if np.ptp(values) > 0.0]
    points = at_items[:, varied]
    number = _POINTS[len(varied)]
    axes = [np.linspace(x.min(), x.max(), number) for x in points.T]
    mesh = np.meshgrid(*axes, indexing="ij")
    if not axes or 2 * mesh[0].size + _SAMPLE > len(points):
        return None
    at_mesh = dict(zip(varied, map(np.ravel, mesh), strict=True))
    mesh_items = _at_places(curves, columns, at_mesh)
    shape = _shape(score(mesh_items), positive)
    if not np.isfinite(shape).all():
        return None
    on_mesh = shape.T.reshape(*mesh[0].shape, -1)
    shape = RegularGridInterpolator(axes, on_mesh, "cubic")(points).T
    sample = np.linspace(0, len(points) - 1, _SAMPLE).astype(int)
    proof = score(select(columns, sample))
    width = np.ptp(proof[3:], axis=0) if len(proof) > 4 else proof[1]
    gap = _quantiles(proof, shape[:, sample], positive) - proof[3:]
    if not (np.abs(gap) <= _WITHIN * width).all():
        return None
    rows = _by_draws(posterior, ())(columns)
    return np.vstack([rows, _quantiles(rows, shape, positive)])


def _at_places(curves: Curves, columns: Columns, places: dict[int, Floats]) -> Columns:
    """Items at places of a mesh, which share all else with these."""
    outcome = curves.outcome
    number = len(next(iter(places.values())))
    items = {name: np.repeat(values[:1], number) for name, values in columns.items()}
    if 0 in places:
        items["score"] = curves.axis("mean").inverse(places[0])
    if 1 in places:
        items[outcome.size] = np.exp(places[1])
    if 2 in places:
        centre, unit = _expected_outcome(curves, items)
        values = centre + unit * places[2]
        if outcome.positive:
            most = items[outcome.size] if curves.family.name == "Beta" else np.inf
            values = np.clip(np.expm1(values), 0.0, most)
        items[outcome.observed] = values
    return items


def _expected_outcome(curves: Curves, columns: Columns) -> Pair:
    """Expected outcome, of counts as log(1 + y), and the unit of departures from it."""
    size = own_outcomes(curves.outcome, columns)[1]
    average = curves.average(columns["score"], columns.get("group"), size)
    theta = curves.family.curve_variables(*average)
    if curves.outcome.positive:
        return np.log1p(size * theta["mean"]), np.ones(len(size))
    return theta["mean"], np.hypot(size, np.sqrt(theta["variance"]))


def _shape(rows: Floats, positive: bool) -> Floats:
    """Quantiles without the scale of the posterior."""
    mean, sd = rows[:2]
    quantiles = rows[3:]
    if positive:
        return np.log(np.maximum(quantiles / mean, _SMALL))
    return (quantiles - mean) / sd


def _quantiles(rows: Floats, shape: Floats, positive: bool) -> Floats:
    """Inverse of `_shape`."""
    mean, sd = rows[:2]
    return mean * np.exp(shape) if positive else mean + sd * shape


# --- outcomes ------------------------------------------------------------------------------------


def cdf_interval(posterior: Posterior, columns: Columns) -> Pair:
    """P(Y < y) and P(Y <= y), each (n,); equal if continuous."""
    outcomes = own_outcomes(posterior.outcome, columns)
    before = without(columns, posterior.outcome.observed)
    return further_cdf_interval(posterior, before, *outcomes)


def further_cdf_interval(
    posterior: Posterior, columns: Columns, outcome: Floats, size: Floats
) -> Pair:
    """`cdf_interval` of further outcomes with sizes, each (n,), given those in `columns`.

    Without these they are the items' own, who are in the table.
    """
    ends = np.empty((2, len(outcome)))
    for items, further in _further(posterior, columns, size):
        ends[:, items] = further.cdf(outcome[items])
    return proper(*ends)


def further_quantiles(
    posterior: Posterior, columns: Columns, size: Floats, probs: Sequence[float]
) -> Pair:
    """Quantiles (probabilities, n) of such outcomes, and P(within the outermost), (n,).

    Of whole numbers a quantile is the least one whose P(Y <= y) reaches the probability.
    """
    quantiles = np.empty((len(probs), len(size)))
    for items, further in _further(posterior, columns, size):
        for row, prob in zip(quantiles, probs, strict=True):
            row[items] = further.quantile(prob)
    low = quantiles.min(axis=0)
    high = quantiles.max(axis=0)
    below, _ = further_cdf_interval(posterior, columns, low, size)
    _, upto = further_cdf_interval(posterior, columns, high, size)
    return quantiles, upto - below


@dataclass(frozen=True, eq=False)
class _Further:
    """Further outcomes of some items."""

    posterior: Posterior
    items: Columns  # with the sizes of the further outcomes
    members: Pair
    theta: ThetaMixture
    # outcomes of 0 are possible, though such items are not in the table
    complete: bool

    def cdf(self, outcome: Floats) -> Pair:
        """P(Y < y) and P(Y <= y), each (n,)."""
        kind = self.posterior.outcome
        if self.complete:
            family = self.posterior.family.complete
            size = self.items[kind.size]
            below, upto = family.cdf_interval(outcome, size, *self.members)
        else:
            further = {**self.items, kind.observed: outcome}
            below, upto = self.posterior.cdf_ends(further, self.members)
        return self.theta.average(below), self.theta.average(upto)

    def quantile(self, prob: float) -> Floats:
        """Quantile of each, (n,), by bisection on the scale of the moments."""
        whole = self.posterior.outcome.whole
        mean, sd = self._moments
        # with known noise sds, Chebyshev's inequality bounds the quantile
        reach = np.ceil((sd + 1.0 * whole) / np.sqrt(min(prob, 1.0 - prob)))
        low = np.maximum(np.floor(mean - reach), -1.0) if whole else mean - reach
        high = np.ceil(mean + reach) if whole else mean + reach
        while (short := self._upto(high) < prob).any():
            high = np.where(short, high + reach, high)
            reach = 2.0 * reach
        # the outcome of size 0 is 0, which may have no position
        sized = self.items[self.posterior.outcome.size] > 0
        while not whole and (beyond := sized & (self._upto(low) >= prob)).any():
            low = np.where(beyond, low - reach, low)
            reach = 2.0 * reach
        close = 1.0 if whole else _CLOSE * sd
        while (high - low > close).any():
            middle = (low + high) / 2.0
            middle = np.floor(middle) if whole else middle
            reached = self._upto(middle) >= prob
            high = np.where(reached, middle, high)
            low = np.where(reached, low, middle)
        return high if whole else np.where(sized, self._scale.score(high), 0.0)

    def _upto(self, position: Floats) -> Floats:
        return proper(*self.cdf(self._scale.score(position)))[1]

    @property
    def _scale(self) -> Scale:
        return self.posterior.family.complete.further_scale

    @property
    def _moments(self) -> Pair:
        family = self.posterior.family.complete
        size = self.posterior.typical_sizes(self.items)
        parameters = family.to_parameters(*self.members)
        mean, sd, _ = family.outcome_moments(*parameters, size)
        centre = self.theta.average(mean)
        variance = self.theta.average(sd**2 + (mean - centre) ** 2)
        return centre, np.sqrt(variance)


def _further(
    posterior: Posterior, columns: Columns, size: Floats
) -> Iterator[tuple[Ints, _Further]]:
    """Further outcomes with sizes, (n,), by part."""
    is_further = posterior.outcome.observed in columns
    complete = is_further and posterior.outcome.truncated
    for items, theta in _thetas(posterior, columns):
        members = posterior.family.to_curves(theta.a, theta.b)
        members = widened(posterior.curves, members, columns, items)
        sizes = size[items]
        if not complete and posterior.reweights and theta.weight is not None:
            listed = posterior.listed_shares(sizes, members)
            weight, _ = given_listed(theta.weight, (), listed)
            theta = replace(theta, weight=weight)
        further = {**select(columns, items), posterior.outcome.size: sizes}
        yield items, _Further(posterior, further, members, theta, complete)


def _thetas(
    posterior: Posterior, columns: Columns
) -> Iterator[tuple[Ints, ThetaMixture]]:
    """Theta of items by the table, part by part; over all draws if flagged, with an outcome.

    Theta = 0, if it may be so, is the last of the components.
    """
    curves = posterior.curves
    closely = posterior.outcome.observed in columns
    has_table = not why_no_table(curves)
    columns = without(columns, "spread")
    flagged = np.full(len(columns["score"]), closely or not has_table)
    if has_table:
        for part, theta in _table_nodes(posterior, columns, for_outcomes=True):
            flagged[part] = theta.flagged & closely
            yield part, ThetaMixture(theta.a, theta.b, _node_weights(theta))
    for chunk in _chunks(posterior, np.flatnonzero(flagged)):
        mixture = posterior.theta(select(columns, chunk))
        yield chunk, mixture.listed(posterior.family)


def _table_nodes(
    posterior: Posterior, columns: Columns, for_outcomes: bool = False
) -> Iterator[tuple[Ints, prior_table.Mixture]]:
    """Nodes of the table given the outcomes, if any, part by part."""
    curves = posterior.curves
    table = table_of(curves)
    observed = posterior.outcome.observed
    if not (isinstance(posterior, EstimatedNoise) and observed in columns):
        items = table_items(curves, columns)
        yield from prior_table.posterior_nodes(table, items, for_outcomes)
        return
    before = table_items(curves, without(columns, observed))
    for part, theta in prior_table.posterior_nodes(table, before):
        yield part, _given_noise(posterior, select(columns, part), theta)


@np.errstate(all="ignore")
def _given_noise(
    posterior: EstimatedNoise, items: Columns, before: prior_table.Mixture
) -> prior_table.Mixture:
    """Nodes given outcomes and each true noise."""
    family = posterior.family
    weight = _node_weights(before)
    members = family.to_curves(before.a, before.b)
    *theta, log_density = posterior.by_noise(items, members)
    log_total = special.logsumexp(log_density, axis=0)
    share = np.exp(log_density - log_total)
    if posterior.prior.gridded:
        weight, shifted = prior_table.reweighted(
            before.loadings, weight, log_total, prior_table.ARRAYS
        )
        close = shifted.sum(axis=0) <= prior_table.MOST_MOVED
    else:
        means = family.mean(*theta)
        of_node = (share * means).sum(axis=0)
        squares = family.variance(*theta) + (means - of_node) ** 2
        of_nodes = (share * squares).sum(axis=0)
        within = (weight * of_nodes).sum(axis=0)
        mean = (weight * of_node).sum(axis=0)
        between = (weight * (of_node - mean) ** 2).sum(axis=0)
        close = between <= prior_table.MOST_APART * within
    weight = weight * share
    zero = None
    if before.zero is not None:
        zero = weight[:, -1].sum(axis=0) / weight.sum(axis=(0, 1))
        weight[:, -1] = 0.0
    weight, a, b = (x.reshape(-1, x.shape[2]) for x in (weight, *theta))
    averages, total = prior_table.moments(family, (weight, a, b), prior_table.ARRAYS)
    flagged = before.flagged | ~close
    return prior_table.Mixture(weight / total, a, b, averages, zero, flagged=flagged)


def _node_weights(theta: prior_table.Mixture) -> Floats:
    """Weights of nodes, (nodes, n), of which theta = 0, if it may be so, is the last."""
    if theta.zero is None:
        return theta.weight
    weight = (1.0 - theta.zero) * theta.weight
    weight[-1] = theta.zero
    return weight


def density_moments(posterior: Posterior, columns: Columns) -> Floats:
    """Log E(p), -log E(1 / p) and Var(log p) of the outcomes' densities p, (3, n), over draws.

    By the prior table, which is close where the densities differ little from draw to draw, unless
    its groups have few items.
    """
    return _over_members(posterior, columns, 3, _density_moments, posterior)


def follows_draws(curves: Curves, items: int) -> bool:
    """Return True if averages over this number of items are taken over all draws."""
    prior = curves.prior
    fewest = _FEWEST_PER_GROUP if prior.exposure is None else _FEWEST_BY_SIZE
    are_few = items < fewest * len(curves.groups)
    return (are_few and not prior.gridded) or bool(why_no_table(curves))


def moments_by_draws(posterior: Posterior, columns: Columns) -> Floats:
    """`density_moments` over all draws, followed by these log densities, (3 + draws, n)."""
    log_density = posterior.log_density(columns)
    moments = _density_moments(log_density, None, 1.0 / len(log_density), ())
    return np.concatenate([moments, log_density])


def cdf_without(posterior: Posterior, columns: Columns) -> Pair:
    """`cdf_interval` of items that are left out of the fit, as draws weighted by 1 / p say."""
    drawn = posterior_under(posterior.curves.thin(_DRAWS_WITHOUT))
    return proper(*_over_members(posterior, columns, 2, _ends_without, drawn))


def draws_without(
    posterior: Posterior, columns: Columns, number: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Numbers of some draws, and places among these, (number, n), as each item is left out.

    Draws are as frequent as weights by 1 / p say; items that hardly matter share those of a row.
    """
    draws = posterior.curves.even_draws(_DRAWS_WITHOUT)
    log_weight, _ = smoothed(-posterior.log_density(columns, draws))
    upto = np.exp(log_weight).cumsum(axis=0)
    item = np.arange(upto.shape[1])[:, None]
    cut = (np.arange(number) + rng.random(number)) / number
    ends = (np.minimum(upto[:-1].T, 1.0) + item).ravel()
    place = np.searchsorted(ends, (cut + item).ravel()).reshape(len(item), -1)
    return draws, (place - item * (len(draws) - 1)).T


def _over_members(
    posterior: Posterior,
    columns: Columns,
    number: int,
    summarized: _Summary,
    drawn: Posterior,
) -> Floats:
    """Summaries (number, n) over the table's nodes; over draws where these are not close."""
    curves = posterior.curves
    family = posterior.family
    summaries = np.full((number, len(columns["score"])), np.nan)
    if not follows_draws(curves, len(columns["score"])):
        table = table_of(curves)
        before = table_items(curves, without(columns, posterior.outcome.observed))
        for part, theta in prior_table.posterior_nodes(table, before, True):
            members = family.to_curves(theta.a, theta.b)
            members = widened(curves, members, columns, part)
            items = select(columns, part)
            log_density = posterior.log_densities(items, members)
            interval = partial(posterior.cdf_ends, items, members)
            weight, loadings = _node_weights(theta), theta.loadings
            if posterior.reweights:
                sizes = items[posterior.outcome.size]
                listed = posterior.listed_shares(sizes, members)
                weight, loadings = given_listed(weight, loadings, listed)
            values = summarized(log_density, interval, weight, loadings)
            summaries[:, part] = np.where(theta.flagged, np.nan, values)
    remaining = np.flatnonzero(np.isnan(summaries).any(axis=0))
    for chunk in _chunks(drawn, remaining):
        items = select(columns, chunk)
        log_density = drawn.log_density(items)
        by_draw = partial(drawn.cdf_by_draw, items)
        equal = 1.0 / len(log_density)
        summaries[:, chunk] = summarized(log_density, by_draw, equal, ())
    return summaries


def given_listed(
    weight: Floats, loadings: Sequence[Floats], listed: Floats
) -> tuple[Floats, Sequence[Floats]]:
    """Weights of members and loadings of their covariance, given that items are in their table."""
    total = (weight * listed).sum(axis=0)
    conditional = weight * listed / total
    listed_loadings = [loading * listed for loading in loadings]
    return conditional, [
        (loading - conditional * loading.sum(axis=0)) / total
        for loading in listed_loadings
    ]


def _chunks(posterior: Posterior, items: Ints) -> Iterator[Ints]:
    """Parts of items whose draws fit in memory."""
    step = posterior.curves.items_at_once
    return (items[start : start + step] for start in range(0, len(items), step))


# weights may be negative
@np.errstate(invalid="ignore", divide="ignore")
def _density_moments(
    log_density: Floats, ends: object, weight: _Weights, loadings: Sequence[Floats]
) -> Floats:
    """Summaries of `density_moments`; where weights vary, as if p were lognormal."""
    low = log_density.min(axis=0)
    high = log_density.max(axis=0)
    density = np.exp(log_density - high)
    mean = (weight * density).sum(axis=0)
    full = high + np.log(mean)
    if loadings:
        changes = ((loading * density).sum(axis=0) / mean for loading in loadings)
        variance = np.log1p(sum(change**2 for change in changes))
        return np.stack([full, full - variance, variance])
    without = low - np.log((weight * np.exp(low - log_density)).sum(axis=0))
    centre = (weight * log_density).sum(axis=0)
    variance = (weight * (log_density - centre) ** 2).sum(axis=0)
    return np.stack([full, without, variance])


def _ends_without(
    log_density: Floats,
    ends: Callable[[], Any],
    weight: _Weights,
    loadings: Sequence[Floats],
) -> Floats:
    """Summaries of `cdf_without`; where weights vary, to first order."""
    below_and_upto = np.stack(ends())
    if loadings:
        density = np.exp(log_density - log_density.max(axis=0))
        mean = (weight * density).sum(axis=0)
        shift = sum(
            (loading * below_and_upto).sum(axis=1) * (loading * density).sum(axis=0)
            for loading in loadings
        )
        full = (weight * below_and_upto).sum(axis=1)
        change = shift / mean
        # a change close to all of the tail would leave an item a probability of 0
        tail = np.minimum(full, 1.0 - full)
        is_close = np.abs(change) <= np.maximum(_MOST_OF_TAIL * tail, _NO_CHANGE)
        return np.where(is_close.all(axis=0), full - change, np.nan)
    inverse = weight * np.exp(log_density.min(axis=0) - log_density)
    inverse /= inverse.sum(axis=0)
    without = (inverse * below_and_upto).sum(axis=1)
    # nodes that hardly matter may have negative weights, which 1 / p must not make large
    without[:, inverse.min(axis=0) < -_SMALL] = np.nan
    return without


def proper(below: Floats, upto: Floats) -> Pair:
    """Ends of a probability interval, clipped to [0, 1] and sorted, because of rounding."""
    upto = np.clip(upto, 0.0, 1.0)
    return np.clip(below, 0.0, upto), upto
