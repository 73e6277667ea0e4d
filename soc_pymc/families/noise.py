"""Noise sds that are estimates: the true variance given one, from the sds of all items.

As in limma (Smyth 2004, *SAGMB* 3, 3), s^2 of d degrees of freedom about a true variance w is w
chi2(d) / d, and the w of the items are scaled inverse chi-squared, with d0 degrees of freedom at
s0^2. Given s, w is scaled inverse chi-squared with D = d0 + d degrees of freedom at (d0 s0^2 + d
s^2) / D, the moderated variance, so a value has a t distribution about its theta. Integrals over w
are sums over nodes at equal distances in log w, whose error falls exponentially in their number.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy import special

from .._lib.arrays import Columns, Floats, Pair
from .rows import Tensor

# attribute of a fit with the law of its noise
NOISE_LAW = "noise_law"
_MOST_DF = 1e12  # from which a variance is known
# log densities below the mode where nodes end: the larger variances explain outliers
_REACH = np.array([[-8.0], [26.0]])
_STEPS = 40  # Newton steps
# logits of d0 / (d0 + d), and sds around the more likely ones
_LOGIT_SHARES = np.linspace(-6.0, 10.0, 65)
_SDS = np.linspace(-5.0, 5.0, 65)
_CLASS_WIDTH = 1 / 64  # in log variance
_TREND_DEGREE = 3
_TREND_POINTS = 33


@dataclass(frozen=True)
class NoiseLaw:
    """Law of the true noise variances of items whose noise sds are estimates."""

    df: float  # degrees of freedom of a noise sd, d; their mean where they differ
    # d0 at the posterior mean of d0 / (d0 + d), in which moderated variances are linear, so that
    # they average over its uncertainty
    prior_df: float
    interval: tuple[float, float]  # 90% of d0
    # log s0^2 at scores: straight in between, constant beyond
    score: tuple[float, ...]
    log_variance: tuple[float, ...]

    @staticmethod
    def of(score: Floats, variance: Floats, n: Floats, df: ArrayLike) -> "NoiseLaw":
        """Estimate the law from variances with `df` degrees of freedom, of n items at scores."""
        dfs, code = np.unique(np.broadcast_to(df, variance.shape), return_inverse=True)
        # the mean of the logarithm of chi2(d) / d
        bias = special.digamma(0.5 * dfs) - np.log(0.5 * dfs)
        log_variance = np.log(variance) - bias[code]
        points, trend = _trend(score, log_variance, n)
        residual = log_variance - np.interp(score, points, trend)
        place = np.rint((residual - residual.min()) / _CLASS_WIDTH).astype(np.int64)
        _, place = np.unique(place * len(dfs) + code, return_inverse=True)
        items = np.bincount(place, n)
        value = np.bincount(place, n * (residual + bias[code])) / items
        of_class = np.bincount(place, n * dfs[code]) / items
        df = float(items @ of_class / items.sum())
        logit = _LOGIT_SHARES
        for _ in range(2):  # the second time where the first has found some weight
            share = special.expit(logit)
            _, log_density = _levels(value, items, of_class, df * np.exp(logit))
            # a uniform prior of the share, per logit
            weight = special.softmax(log_density + np.log(share * (1.0 - share)))
            centre = weight @ logit
            step = logit[1] - logit[0]
            sd = np.sqrt(weight @ (logit - centre) ** 2 + step**2)
            mean = float(weight @ share)
            below = np.cumsum(weight) - 0.5 * weight
            low, high = np.exp(np.interp([0.05, 0.95], below, logit))
            logit = centre + _SDS * sd
        prior_df = df * mean / (1.0 - mean)
        levels, _ = _levels(value, items, of_class, np.array([prior_df]))
        return NoiseLaw(
            df=df,
            prior_df=prior_df,
            interval=(float(df * low), float(df * high)),
            score=tuple(points.tolist()),
            log_variance=tuple((trend + levels[0]).tolist()),
        )

    @staticmethod
    def of_attrs(attrs: Mapping[Any, Any]) -> "NoiseLaw | None":
        """Read the law from the attributes of a fit; None if noise sds are known."""
        if NOISE_LAW not in attrs:
            return None
        content = json.loads(attrs[NOISE_LAW])
        lists = {k: tuple(v) for k, v in content.items() if isinstance(v, list)}
        return NoiseLaw(**(content | lists))

    @property
    def attrs(self) -> dict[str, str]:
        """Attributes of a fit with this law."""
        return {NOISE_LAW: json.dumps(asdict(self))}

    def moderated(self, score: Floats, size: Floats, df: ArrayLike) -> Floats:
        """Moderated noise variances of items at scores with these noise sds."""
        prior = np.exp(np.interp(score, self.score, self.log_variance))
        share = self.prior_df / (self.prior_df + np.asarray(df))
        return share * prior + (1.0 - share) * size**2

    def sums(self, score: Floats, size: Floats, n: Floats, df: Floats) -> Columns:
        """Columns of joint cells, from which rows make their likelihood."""
        return {
            "sum_moderated": n * self.moderated(score, size, df),
            "sum_df": n * df,
            "sum_total_df": n * (self.prior_df + df),
        }

    def nodes(self, score: Floats, size: Floats, df: ArrayLike) -> Pair:
        """True noise sds of items, (nodes, n), and their log weights, (nodes, n or 1)."""
        ratio, log_weight = noise_nodes(self.prior_df + np.atleast_1d(df))
        return np.sqrt(ratio * self.moderated(score, size, df)), log_weight

    def draw(
        self, moderated: Floats, df: ArrayLike, shape: tuple[int, ...], rng: Generator
    ) -> Floats:
        """Random true noise sds of items with these variances, of a shape (..., n)."""
        total = self.prior_df + np.asarray(df)
        return np.sqrt(moderated * total / rng.chisquare(total, shape))


def moderated_cells(table: Columns) -> Columns:
    """Joint cells at moderated noise variances."""
    moderated = table["sum_moderated"]
    return {**table, "sum_w": moderated, "sum_w2": moderated**2 / table["n"]}


class NodeLine(NamedTuple):
    """Nodes of log true variances over moderated ones: equally spaced from `low` on, by item."""

    df: Floats  # (n,): degrees of freedom of the true variance
    low: Floats
    width: Floats
    log_total: Floats  # log sum of unnormalised weights

    def nodes(self, place: Tensor, xp: ModuleType = np) -> tuple[Tensor, Tensor]:
        """Ratios of variances and log weights at places from 0 to 1; all broadcast."""
        x = self.low + self.width * place
        return xp.exp(x), -0.5 * self.df * (x + xp.expm1(-x)) - self.log_total


def node_line(total_df: Floats) -> tuple[NodeLine, Floats]:
    """Nodes for total degrees of freedom (n,), and their places (nodes,)."""
    df = np.minimum(total_df, _MOST_DF)
    # the log density falls by df (x - 1 + exp(-x)) / 2 from its mode
    drop = 2.0 * np.abs(_REACH) / df
    ends = np.sign(_REACH) * (np.sqrt(2.0 * drop) + np.where(_REACH > 0, drop, 0.0))
    for _ in range(_STEPS):
        ends -= (ends + np.expm1(-ends) - drop) / -np.expm1(-ends)
    width = np.ptp(ends, axis=0)
    place = np.linspace(0.0, 1.0, int(np.ceil((width / np.sqrt(2.0 / df)).max())) + 1)
    line = NodeLine(df, ends[0], width, np.zeros_like(df))
    _, log_weight = line.nodes(place[:, None])
    return line._replace(log_total=special.logsumexp(log_weight, axis=0)), place


def noise_nodes(total_df: Floats) -> Pair:
    """Nodes of true variances over moderated ones, and their log weights, each (nodes, n)."""
    line, place = node_line(total_df)
    return line.nodes(place[:, None])


def df_of_spread(variance: float) -> float:
    """Degrees of freedom of estimates of equal variances whose logarithms vary so much."""
    # to whole or half numbers
    df = np.arange(1.0, 200.5, 0.5)
    return float(
        df[np.argmin(np.abs(np.log(special.polygamma(1, 0.5 * df) / variance)))]
    )


def _trend(score: Floats, values: Floats, n: Floats) -> Pair:
    """Scores and a polynomial of their ranks there, of the degree with the least BIC."""
    scores, place = np.unique(score, return_inverse=True)
    items = np.bincount(place, n)
    total = items.sum()
    means = np.bincount(place, n * values) / items
    within = float(n @ (values - means[place]) ** 2)
    rank = 2.0 * (np.cumsum(items) - 0.5 * items) / total - 1.0
    best = np.inf
    fitted = means
    for degree in range(min(_TREND_DEGREE + 1, len(scores))):
        tried = np.polynomial.legendre.Legendre.fit(
            rank, means, degree, w=np.sqrt(items), domain=[-1.0, 1.0]
        )(rank)
        squares = within + float(items @ (means - tried) ** 2)
        criterion = total * np.log(max(squares, 1e-300)) + 2 * degree * np.log(total)
        if criterion < best:
            best = criterion
            fitted = tried
    if np.ptp(fitted) <= 1e-12:
        return scores[:1], fitted[:1]
    points = np.interp(np.linspace(-1.0, 1.0, _TREND_POINTS), rank, scores)
    points = np.unique(points)
    return points, np.interp(points, scores, fitted)


def _levels(value: Floats, n: Floats, df: Floats, prior_df: Floats) -> Pair:
    """Log s0^2 of log variances, by degrees of freedom d0, and their integrated log density.

    Over s0^2, a variance has an F distribution with d and d0 degrees of freedom.
    """
    prior_df = prior_df[:, None]
    total = 0.5 * (prior_df + df)
    ratio = np.log(df / prior_df)
    level = np.full((len(prior_df), 1), n @ value / n.sum())
    for _ in range(_STEPS):
        share = special.expit(value - level + ratio)
        slope = (total * share - 0.5 * df) @ n
        bend = (total * share * (1.0 - share)) @ n
        level += np.clip(slope / bend, -1.0, 1.0)[:, None]
    odds = value - level + ratio
    constant = special.gammaln(total) - special.gammaln(0.5 * prior_df)
    constant = constant - special.gammaln(0.5 * df)
    log_density = (constant + 0.5 * df * odds - total * np.logaddexp(0.0, odds)) @ n
    return level[:, 0], log_density - 0.5 * np.log(bend)
