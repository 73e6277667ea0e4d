"""What a fitted prior says of theta and of outcomes, whatever its family: one protocol."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...families.mixtures import Summaries
from ...families.outcomes import Outcome
from ...inference.results import Fit
from ..curves import bounded, curve_draws, knot_weights
from ..quadrature import few_nodes, is_plain, representative_nodes
from ._posterior import ThetaMixture, narrowed

__all__ = [
    "Columns",
    "Posterior",
    "Posteriors",
    "Scorer",
    "average_at",
    "average_ends",
    "curves_at",
    "draws_at",
    "draws_given",
    "in_chunks",
    "items_at_once",
    "nodes_at",
    "proper_ends",
    "rows",
    "score_few",
    "select",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Columns = Mapping[str, NDArray[Any]]
"""Columns of items by role, arrays of one length.

``score``, the outcome (``count`` or ``value``), its size (``exposure`` or ``noise_sd``), and
``group`` (labels as str) if the fit has groups. Where an item stands for several whose scores
differ, ``spread`` is the variance of the mean curve (of log E(theta|t) for counts) over them.
"""

Scorer = Callable[[Columns], Floats]
"""From items to posterior mean, sd, variance and quantiles of theta, (3 + probabilities, n)."""

Ends = Callable[[Floats, Floats, Columns], tuple[Floats, Floats]]

_NUMBERS = 2_000_000  # numbers in one array of draws x items
_NODE_ITEMS = 4000  # items whose nodes are held at once
_APART = 0.01  # sd of a probability over nodes from which on all draws are averaged
_WIDE = 0.4  # or sd of the second curve, a logarithm


class Posterior(Protocol):
    """A fitted prior as a distribution of theta and of outcomes, draw by draw of its curves.

    Attributes
    ----------
    outcome
        The kind of outcome that it is of.
    """

    outcome: Outcome

    def log_density(self, columns: Columns) -> Floats:
        """Log density (probability) of the outcomes given score and size, (draws, n)."""

    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        """P(Y < y) and P(Y <= y) averaged over the draws, each (n,); equal if continuous."""

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        """P(Y' < y') and P(Y' <= y') of a further outcome of the same items, given their own.

        Averaged over the draws, to 1e-4. `columns` are the items with their own outcome; `outcome`
        and `size`, each (n,), are those of the further observation.
        """

    def simulate(self, columns: Columns, rng: np.random.Generator) -> Floats:
        """Outcomes of new items of the same score and size, (draws, n)."""

    def moments(self, columns: Columns) -> tuple[Floats, Floats]:
        """E and Var(theta | t, y) of the items draw by draw, each (draws, n)."""

    def theta(self, columns: Columns) -> ThetaMixture:
        """Theta of the items given score and outcome, averaged over all draws of the curves."""

    def theta_given(self, columns: Columns, draws: Ints, uniform: Floats) -> tuple[Floats, Floats]:
        """Theta of the items under some draws of the curves: Gamma or Normal, each (draws, n).

        Shape and rate of Gammas, or mean and variance of Normals. Under a mixture it is one
        component of the posterior, drawn with its probability by `uniform` (draws, n) on (0, 1).
        """

    def scorer(self, probs: tuple[float, ...], draws: str, plug_in: bool) -> Scorer:
        """How items are scored: over ``"all"`` draws, ``"representative"`` ones, or none."""

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        """Variables of `calibration_curves` at scores, each (draws, n).

        Groups and exposures (or noise sds) may be given where the fit has no such terms: they are
        then not used.
        """


def draws_at(fit: Fit, columns: Columns, size: str) -> tuple[Floats, Floats]:
    """Draws of both curves at the items, by group and size where these matter to the fit."""
    return curve_draws(fit, columns["score"], **_terms(fit, columns.get("group"), columns[size]))


def draws_given(fit: Fit, columns: Columns, size: str, draws: Ints) -> tuple[Floats, Floats]:
    """Some draws, by number, of both curves at the items.

    New groups and bins draw their effects for all draws together: there all are made.
    """
    if is_plain(fit):
        return draws_at(narrowed(fit, draws), columns, size)
    first, second = draws_at(fit, columns, size)
    return first[draws], second[draws]


def curves_at(
    fit: Fit, score: Floats, group: NDArray[Any] | None, exposure: Floats | None
) -> tuple[Floats, Floats]:
    """Draws of both curves at scores, groups and exposures, where these matter to the fit."""
    return curve_draws(fit, score, **_terms(fit, group, exposure))


def nodes_at(fit: Fit, columns: Columns, size: str) -> tuple[Floats, Floats, Floats]:
    """Weights and both curves at nodes that stand for all draws at the items."""
    terms = _terms(fit, columns.get("group"), columns[size])
    return representative_nodes(fit, columns["score"], **terms)


def _terms(
    fit: Fit, group: NDArray[Any] | None, exposure: Floats | None
) -> dict[str, NDArray[Any] | None]:
    return {
        "group": group if fit.groups else None,
        "exposure": exposure if fit.prior.exposure is not None else None,
    }


def average_at(fit: Fit, columns: Columns, size: str) -> tuple[Floats, Floats]:
    """Posterior means of both curves at the items, each (n,)."""
    if is_plain(fit):
        pairs = (knot_weights(fit, curve, columns["score"]) for curve in ("mean", "variance"))
        first, second = bounded(fit, *(at @ values.mean(axis=0) for values, at in pairs))
    else:
        first, second = (draws.mean(axis=0) for draws in draws_at(fit, columns, size))
    return first, second


def items_at_once(fit: Fit) -> int:
    """Items of whose curves all draws are held at once."""
    posterior = fit.data["posterior"]
    return max(1, _NUMBERS // (posterior.sizes["chain"] * posterior.sizes["draw"]))


def select(columns: Columns, at: slice | NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Some of the items."""
    return {name: values[at] for name, values in columns.items()}


def in_chunks(one_chunk: Scorer, step: int, columns: Columns) -> Floats:
    """Chunks on all processors: scipy's functions release the lock."""
    parts = [slice(i, i + step) for i in range(0, len(columns["score"]), step)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(lambda part: one_chunk(select(columns, part)), parts))
    return np.concatenate(done, axis=1)


def rows(found: Summaries) -> Floats:
    """Summaries as a `Scorer` returns them."""
    return np.vstack([found.mean, np.sqrt(found.variance), found.variance, found.quantiles])


def average_ends(fit: Fit, columns: Columns, size: str, ends: Ends) -> tuple[Floats, Floats]:
    """Ends of predictive distributions averaged over few nodes, or all draws where these are apart.

    The nodes have the draws' first and second moments. Where probabilities differ between them by
    an sd of v, what the rest of the moments would add is of the order of v^3.

    Parameters
    ----------
    fit, columns, size
        The fit, its items and the role of their size.
    ends
        (first curve, second curve, columns) -> both ends under each of the curves, (curves, n).
    """

    def over_nodes(part: Columns) -> Floats:
        weight, first, second = nodes_at(fit, part, size)
        both = np.stack(ends(first, second, part))
        mean, width = weight @ both, weight @ second
        apart = np.sqrt(np.maximum(weight @ (both - mean[:, None]) ** 2, 0.0)).max(axis=0)
        hardly_known = weight @ (second - width) ** 2 > _WIDE**2
        return np.vstack([mean, np.where(hardly_known, np.inf, apart)])

    def over_draws(part: Columns) -> Floats:
        return np.stack(ends(*draws_at(fit, part, size), part)).mean(axis=1)

    found = in_chunks(over_nodes, _NODE_ITEMS, columns)
    left = np.flatnonzero(found[2] > _APART)
    if len(left):
        found[:2, left] = in_chunks(over_draws, items_at_once(fit), select(columns, left))
    return proper_ends(found[0], found[1])


def proper_ends(below: Floats, upto: Floats) -> tuple[Floats, Floats]:
    """Both ends as probabilities: averages are such only up to rounding."""
    upto = np.clip(upto, 0.0, 1.0)
    return np.clip(below, 0.0, upto), upto


class Posteriors(Protocol):
    """Posteriors of some items as mixtures over given curves, as a family makes them."""

    def summaries(
        self, first: Floats, second: Floats, at: NDArray[np.intp], weight: Floats | None = None
    ) -> Summaries:
        """Summaries of the items `at` over curves (nodes, n); no weights are equal ones."""

    def apart(self, first: Floats, second: Floats, at: NDArray[np.intp], weight: Floats) -> Floats:
        """How far nodes' posteriors are spread out, against the width of each, squared, (n,)."""


def score_few(posteriors: Posteriors, first: Floats, second: Floats, spread: Floats) -> Floats:
    """Score items over few nodes of the draws where these do, over all draws elsewhere.

    Parameters
    ----------
    posteriors
        The items.
    first, second
        Draws of both curves at them, (draws, n).
    spread
        As of `few_nodes`.
    """
    done: list[tuple[NDArray[np.intp], Floats]] = []
    left = np.ones(len(spread), dtype=bool)
    for at, limit, (weight, one, two) in few_nodes(first, second, spread):
        near = posteriors.apart(one, two, at, weight) < limit
        if near.any():
            few = one[:, near], two[:, near], at[near], weight[:, near]
            done.append((few[2], rows(posteriors.summaries(*few))))
            left[few[2]] = False
    rest = np.flatnonzero(left)
    if len(rest) or not done:
        done.append((rest, rows(posteriors.summaries(first[:, rest], second[:, rest], rest))))
    out = np.empty((len(done[0][1]), len(spread)))
    for at, found in done:
        out[:, at] = found
    return out
