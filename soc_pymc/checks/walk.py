"""A random walk over days, seen through each day's quadratic log likelihood.

Day t has a state x_t and the log likelihood h_t' x_t - x_t' L_t x_t / 2. Given the sds of its steps
everything is Gaussian, and a Kalman filter and smoother are exact. The sds have half-normal priors,
and results are averages over a grid of them: what is said of a day in advance uses the days before
it alone, sds included.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from .._lib.arrays import Floats

SDS = np.array([0.0, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3])
"""Grid of the sd of a step from one day to the next."""

_TYPICAL = 0.03  # sd of their half-normal prior
_START = 1.0  # sd of the first day's state
_VAGUE = 1e-6  # precision added where a day does not inform a part
_LIGHT = 1e-6  # share of the weight below which grid points are left out of the smoother


@dataclass(frozen=True)
class Gaussians:
    """Normal distributions of states: means (..., days, k) and covariances (..., days, k, k)."""

    mean: Floats
    covariance: Floats

    def averaged(self, weight: Floats) -> "Gaussians":
        """Moments of the mixtures over the first axis, with weights (points, days)."""
        mean = np.einsum("gt,gti->ti", weight, self.mean)
        centred = self.mean - mean
        covariance = np.einsum("gt,gtij->tij", weight, self.covariance)
        return Gaussians(mean, covariance + np.einsum("gt,gti,gtj->tij", weight, centred, centred))


@dataclass(frozen=True)
class Walk:
    """States of days."""

    smoothed: Gaussians  # given all days
    filtered: Gaussians  # given the days up to each
    p_value: Floats  # (days, k): of each part of a day's state, given the days before
    step: Floats  # (k,): posterior mean of the sds of steps


def walk(precision: Floats, pull: Floats, day: Floats) -> Walk:
    """States of days from their log likelihoods: L (days, k, k) and h (days, k).

    `day` is the number of each day; steps over n days have n times the variance.
    """
    k = pull.shape[1]
    sds = np.stack(np.meshgrid(*[SDS] * k, indexing="ij"), axis=-1).reshape(-1, k)
    log_prior = np.log(_prior())[np.searchsorted(SDS, sds)].sum(axis=1)
    gap = np.diff(day, prepend=day[0])
    ahead, filtered, evidence = _forward(precision, pull, gap, sds)
    before = log_prior[:, None] + np.cumsum(evidence, axis=1) - evidence
    known, upto = (special.softmax(w, axis=0) for w in (before, before + evidence))
    p_value = np.einsum("gt,gti->ti", known, _p_values(precision, pull, ahead))
    last = upto[:, -1]
    heavy = last > _LIGHT * last.max()
    states = Gaussians(filtered.mean[heavy], filtered.covariance[heavy])
    weight = np.repeat((last[heavy] / last[heavy].sum())[:, None], len(pull), axis=1)
    smoothed = _backward(states, gap, sds[heavy]).averaged(weight)
    return Walk(smoothed, filtered.averaged(upto), p_value, last @ sds)


def _prior() -> Floats:
    """Probabilities of the grid under the half-normal prior."""
    cuts = np.concatenate([[0.0], SDS[1:2] / 2, np.sqrt(SDS[1:-1] * SDS[2:]), [np.inf]])
    return np.asarray(np.diff(stats.halfnorm.cdf(cuts, scale=_TYPICAL)))


def _forward(
    precision: Floats, pull: Floats, gap: Floats, sds: Floats
) -> tuple[Gaussians, Gaussians, Floats]:
    """States in advance and after each day, and each day's log evidence (points, days)."""
    days, k = pull.shape
    shape = len(sds), days, k
    ahead, after = (Gaussians(np.empty(shape), np.empty((*shape, k))) for _ in range(2))
    evidence, variance = np.empty(shape[:2]), sds[:, :, None] ** 2 * np.eye(k)
    mean, covariance = np.zeros(shape[::2]), np.tile(_START**2 * np.eye(k), (len(sds), 1, 1))
    for t in range(days):
        covariance = covariance + gap[t] * variance
        ahead.mean[:, t], ahead.covariance[:, t] = mean, covariance
        # with B = I + P L: covariance B^-1 P, mean m + B^-1 P (h - L m), and |B| in the evidence
        spread = np.eye(k) + covariance @ precision[t]
        covariance = np.linalg.solve(spread, covariance)
        covariance = (covariance + covariance.transpose(0, 2, 1)) / 2
        surprise = pull[t] - mean @ precision[t]
        step = np.einsum("gij,gj->gi", covariance, surprise)
        known = mean @ pull[t] - np.einsum("gi,ij,gj->g", mean, precision[t], mean) / 2
        gained = np.einsum("gi,gi->g", surprise, step) - np.linalg.slogdet(spread)[1]
        evidence[:, t] = known + gained / 2
        mean = mean + step
        after.mean[:, t], after.covariance[:, t] = mean, covariance
    return ahead, after, evidence


def _p_values(precision: Floats, pull: Floats, ahead: Gaussians) -> Floats:
    """Two-sided p-values of the days' own estimates (points, days, k) of each part of the state."""
    covariance = np.linalg.inv(precision + _VAGUE * np.eye(pull.shape[1]))
    estimate = np.einsum("tij,tj->ti", covariance, pull)
    variance = np.diagonal(covariance + ahead.covariance, axis1=-2, axis2=-1)
    return np.asarray(2 * special.ndtr(-np.abs(estimate - ahead.mean) / np.sqrt(variance)))


def _backward(filtered: Gaussians, gap: Floats, sds: Floats) -> Gaussians:
    """States given all days, by the smoother of Rauch, Tung and Striebel."""
    mean, covariance = filtered.mean.copy(), filtered.covariance.copy()
    variance = sds[:, :, None] ** 2 * np.eye(sds.shape[1])
    for t in range(mean.shape[1] - 2, -1, -1):
        ahead = covariance[:, t] + gap[t + 1] * variance
        gain = np.linalg.solve(ahead, covariance[:, t]).transpose(0, 2, 1)
        change = covariance[:, t + 1] - ahead
        covariance[:, t] += gain @ change @ gain.transpose(0, 2, 1)
        mean[:, t] += np.einsum("gij,gj->gi", gain, mean[:, t + 1] - mean[:, t])
    return Gaussians(mean, covariance)
