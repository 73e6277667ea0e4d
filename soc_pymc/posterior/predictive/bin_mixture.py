"""The law of a five-step mixture: each bin's components, placed by the curve of the mean."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ...families import components as parts
from ...families import poisson_gamma
from ...families.gamma_quantiles import quantile_tables
from ...families.mixture_items import summarize_mixtures
from ...families.normal_mixtures import normal_summaries
from ...families.outcomes import OUTCOMES
from ...families.priors import COMPONENTS
from ...inference.results import Fit
from ..curves import bin_places, curve_draws
from ._law import Columns, Scorer, in_chunks, rows
from ._posterior import ThetaMixture, picked

__all__ = ["BinMixtureLaw"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK = 5000  # items whose components are held at once


@dataclass(frozen=True)
class _Components:
    """The prior's components at n items: weights, places and variances, each (n, R).

    Places are of log theta for counts, of theta for values.
    """

    weight: Floats
    place: Floats
    variance: Floats

    @property
    def shape(self) -> Floats:
        """Shape of an item's Gammas, one for all its components, (n,)."""
        return parts.inverse_trigamma(self.variance[:, 0])


class BinMixtureLaw:
    """Posterior of a fit of a mixture by ``soc.FiveSteps()``.

    A score's components are those of its bin, moved along the curve of E(theta|t).

    Parameters
    ----------
    fit
        The fit: one draw.
    """

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._gamma = type(fit.prior).__name__ == "GammaMixture"
        self.outcome = OUTCOMES["poisson" if self._gamma else "normal"]
        posterior = fit.data["posterior"]
        self._weight, self._place, sd = (posterior[k].to_numpy()[0, 0] for k in COMPONENTS)
        self._variance = sd**2

    def _components(self, columns: Columns) -> _Components:
        """The prior at items; of items that stand for several, over all that they stand for."""
        score = np.asarray(columns["score"], dtype=float)
        at = bin_places(self._fit, score)
        middle = curve_draws(self._fit, score)[0][0]
        spread = np.asarray(columns.get("spread", np.zeros(len(score))), dtype=float)
        return _Components(
            self._weight[at],
            middle[:, None] + self._place[at],
            self._variance[at] + spread[:, None],
        )

    def _outcomes(self, columns: Columns) -> tuple[Floats, Floats]:
        outcome, size = (
            np.asarray(columns[k], dtype=float) for k in (self.outcome.observed, self.outcome.size)
        )
        return outcome, size

    def _log_densities(self, columns: Columns, own: _Components) -> Floats:
        """Log density of each item's outcome under each of its components, (n, R)."""
        outcome, size = self._outcomes(columns)
        if self._gamma:
            return parts.count_log_density(outcome, size, own.place, own.variance[:, 0])
        total = own.variance + size[:, None] ** 2
        away = outcome[:, None] - own.place
        return np.asarray(-0.5 * (away**2 / total + np.log(2.0 * np.pi * total)))

    def _after(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        """Posterior weights (n, R), then shape (n,) and rate, or mean and variance, (n, R)."""
        own = self._components(columns)
        outcome, size = self._outcomes(columns)
        density = self._log_densities(columns, own)
        weight = own.weight * np.exp(density - density.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        if self._gamma:
            shape = own.shape
            rate = np.exp(special.psi(shape)[:, None] - own.place) + size[:, None]
            return weight, shape + outcome, rate
        noise = size[:, None] ** 2
        total = own.variance + noise
        mean = (own.place * noise + own.variance * outcome[:, None]) / total
        return weight, mean, own.variance * noise / total

    # --- outcomes --------------------------------------------------------------------------------

    def log_density(self, columns: Columns) -> Floats:
        """Log density (probability) of the outcomes given score and size, (1, n)."""

        def some(part: Columns) -> Floats:
            own = self._components(part)
            each = self._log_densities(part, own)
            top = each.max(axis=1)
            inside = (own.weight * np.exp(each - top[:, None])).sum(axis=1)
            return (top + np.log(np.maximum(inside, 1e-300)))[None]

        return in_chunks(some, _CHUNK, columns)

    def cdf_interval(self, columns: Columns) -> tuple[Floats, Floats]:
        """P(Y < y) and P(Y <= y), each (n,); equal if continuous."""

        def some(part: Columns) -> Floats:
            own = self._components(part)
            outcome, size = self._outcomes(part)
            if not self._gamma:
                sd = np.sqrt(own.variance + size[:, None] ** 2)
                below = special.ndtr((outcome[:, None] - own.place) / sd)
                return np.tile((own.weight * below).sum(axis=1), (2, 1))
            shape = own.shape
            log_mean = own.place.T + np.log(shape) - special.psi(shape)
            return _count_ends(own.weight, outcome, size, log_mean, shape)

        below, upto = np.clip(in_chunks(some, _CHUNK, columns), 0.0, 1.0)
        return below, upto

    def further_cdf_interval(
        self, columns: Columns, outcome: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        """P(Y' < y') and P(Y' <= y') of a further outcome of the same items, given their own.

        Parameters
        ----------
        columns
            The items with their own outcome.
        outcome, size
            Of the further observation, each (n,).
        """

        def some(part: Columns) -> Floats:
            weight, *own = self._after(part)
            further, its = part["further_outcome"], part["further_size"]
            if not self._gamma:
                sd = np.sqrt(own[1] + its[:, None] ** 2)
                below = special.ndtr((further[:, None] - own[0]) / sd)
                return np.tile((weight * below).sum(axis=1), (2, 1))
            log_mean = np.log(own[0]) - np.log(own[1]).T
            return _count_ends(weight, further, its, log_mean, own[0])

        both = {"further_outcome": outcome, "further_size": size}
        given = {k: np.asarray(v, dtype=float) for k, v in both.items()}
        below, upto = np.clip(in_chunks(some, _CHUNK, {**columns, **given}), 0.0, 1.0)
        return below, upto

    def simulate(self, columns: Columns, rng: np.random.Generator) -> Floats:
        """Outcomes of new items of the same score and size, (1, n)."""
        n = len(columns["score"])
        place, variance = np.empty(n), np.empty(n)
        for begin in range(0, n, _CHUNK):
            at = slice(begin, begin + _CHUNK)
            own = self._components({k: v[at] for k, v in columns.items()})
            u = rng.random(len(own.place))[:, None]
            chosen = np.minimum(
                (np.cumsum(own.weight, axis=1) < u).sum(axis=1), own.place.shape[1] - 1
            )
            item = np.arange(len(chosen))
            place[at], variance[at] = own.place[item, chosen], own.variance[item, chosen]
        _, size = self._outcomes(columns)
        if not self._gamma:
            return rng.normal(place, np.sqrt(variance + size**2))[None]
        shape = parts.inverse_trigamma(variance)
        theta = rng.gamma(shape) * np.exp(place - special.psi(shape))
        return rng.poisson(theta * size).astype(float)[None]

    # --- theta -----------------------------------------------------------------------------------

    def curves(
        self, score: Floats, group: NDArray[Any] | None = None, exposure: Floats | None = None
    ) -> dict[str, Floats]:
        """Variables of `calibration_curves` at scores, each (1, n); groups are pooled.

        Beside the mean, which is smooth, they are those of the scores' bins.
        """

        def some(part: Columns) -> Floats:
            own = self._components(part)
            if not self._gamma:
                mean = (own.weight * own.place).sum(axis=1)
                away = (own.place - mean[:, None]) ** 2
                return np.array([mean, (own.weight * (away + own.variance)).sum(axis=1)])
            shape = own.shape[:, None]
            means = np.exp(own.place + np.log(shape) - special.psi(shape))
            mean = (own.weight * means).sum(axis=1)
            away = (means - mean[:, None]) ** 2 + means**2 / shape
            return np.array([mean, (own.weight * away).sum(axis=1)])

        mean, variance = in_chunks(some, _CHUNK, {"score": np.asarray(score, dtype=float)})
        found = {"mean": mean, "variance": variance, "log_variance": np.log(variance)}
        found |= {"log_mean": np.log(mean)} if self._gamma else {}
        return {name: values[None] for name, values in found.items()}

    def moments(self, columns: Columns) -> tuple[Floats, Floats]:
        """E and Var(theta | t, y) of the items, (1, n)."""
        found = self.scorer((), "all", False)(columns)
        return found[:1], found[2:3]

    def theta(self, columns: Columns) -> ThetaMixture:
        """The components of each item's posterior."""
        weight, first, second = self._after(columns)
        if self._gamma:
            first = np.broadcast_to(first[:, None], second.shape)
        return ThetaMixture(first.T, second.T, weight.T)

    def theta_given(self, columns: Columns, draws: Ints, uniform: Floats) -> tuple[Floats, Floats]:
        """One component of each item's posterior, (draws, n)."""
        weight, first, second = self._after(columns)
        at = picked(np.broadcast_to(weight, (*uniform.shape, weight.shape[1])), uniform)
        item = np.arange(len(weight))
        own = np.broadcast_to(first, at.shape) if self._gamma else first[item, at]
        return own, second[item, at]

    def scorer(self, probs: tuple[float, ...], draws: str, plug_in: bool) -> Scorer:
        """How items are scored; with one draw all ways are the same."""
        share, tables = np.asarray(probs, dtype=float), quantile_tables(probs)

        def some(columns: Columns) -> Floats:
            weight, first, second = self._after(columns)
            if not self._gamma:
                return rows(normal_summaries(first.T, second.T, probs, weight.T))
            found = np.empty((3 + len(share), len(weight)))
            summarize_mixtures(weight, first, second, share, tables, True, found)
            return found

        return lambda columns: in_chunks(some, _CHUNK, columns)


def _count_ends(
    weight: Floats, count: Floats, exposure: Floats, log_mean: Floats, shape: Floats
) -> Floats:
    """P(Y < y) and P(Y <= y), (2, n), of counts under Gammas: log means (R, n), shapes (n,)."""
    log_cv2 = np.broadcast_to(-np.log(shape), log_mean.shape)
    both = poisson_gamma.cdf_interval(count, exposure, log_mean, log_cv2)
    return np.array([np.einsum("nr,rn->n", weight, end) for end in both])
