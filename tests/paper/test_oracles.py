"""Oracles of the simulations against long arithmetic and brute force."""

import time

import mpmath
import numpy as np
import pytest

from soc_pymc._lib.errors import SocError
from soc_pymc.paper.simulation import (
    laplace_effects,
    laplace_oracle,
    lognormal_oracle,
    lognormal_rates,
)


@mpmath.workdps(30)
def exact_lognormal(t, y, size, delta, sigma):
    """Mean and variance by adaptive quadrature in 30 digits, between points found by bisection."""
    mu = mpmath.log(mpmath.mpf(t)) + mpmath.mpf(delta)
    s, n = mpmath.mpf(sigma), mpmath.mpf(size)

    def log_density(x, power=0):
        return -(((x - mu) / s) ** 2) / 2 + (y + power) * x - n * mpmath.exp(x)

    parts = []
    for power in (0, 1, 2):
        low, high = mu - 400 * s, mu + (y + power) * s**2 + 400 * s
        for _ in range(200):  # the mode, where the slope changes its sign
            x = (low + high) / 2
            slope = -(x - mu) / s**2 + y + power - n * mpmath.exp(x)
            low, high = (x, high) if slope > 0 else (low, x)
        peak = log_density(x, power)
        width = 1 / mpmath.sqrt(1 / s**2 + n * mpmath.exp(x))
        cuts = [
            x + k * width for k in (-24, -16, -12, -8, -6, -4, -2, -1, 0, 1, 2, 4, 6, 8, 12, 16, 24)
        ]

        def integrand(z, power=power, peak=peak):
            return mpmath.exp(log_density(z, power) - peak)

        parts.append((peak, mpmath.quad(integrand, cuts)))
    first = mpmath.exp(parts[1][0] - parts[0][0]) * parts[1][1] / parts[0][1]
    second = mpmath.exp(parts[2][0] - parts[0][0]) * parts[2][1] / parts[0][1]
    return float(first), float(second - first**2)


HARD = [(0.02, 0, 0.0), (0.02, 0, 1e7), (0.02, 0, 3.0), (0.02, 1, 1.0), (0.02, 7, 40.0),
        (0.02, 100_000, 1e7), (0.02, 100_000, 1e3), (3.0, 100_000, 1.0), (1e-6, 2, 1e-3),
        (0.5, 0, 1e-9), (0.3, 20, 1e4)]  # fmt: skip


@pytest.mark.parametrize("sigma", [0.01, 0.25, 1.0, 2.0, 3.0])
@pytest.mark.slow
def test_lognormal_oracle_to_1e_8(sigma):
    """No and much exposure, counts of 0 and 1e5, data that agree with the prior and do not."""
    t, y, size = np.array(HARD).T
    mean, variance = lognormal_oracle(t, y, size, -0.3, sigma)
    exact = np.array([exact_lognormal(*case, -0.3, sigma) for case in HARD])
    np.testing.assert_allclose(mean, exact[:, 0], rtol=1e-8)
    np.testing.assert_allclose(variance, exact[:, 1], rtol=1e-8)


def test_without_exposure_the_posterior_is_the_prior():
    mean, variance = lognormal_oracle([0.1], [0], [0], 0.2, 0.7)
    assert mean[0] == pytest.approx(0.1 * np.exp(0.2 + 0.245), rel=1e-12)
    assert variance[0] == pytest.approx(mean[0] ** 2 * np.expm1(0.49), rel=1e-12)
    with pytest.raises(SocError, match="sigma=0"):
        lognormal_oracle([0.1], [0], [0], 0.0, 0.0)


def test_lognormal_oracle_is_calibrated():
    """Error over variance is 1: 200,000 items, standard error .01 (heavy tails measured)."""
    rng = np.random.default_rng(0)
    score, size = rng.gamma(2.0, 0.02, 200_000), np.ceil(rng.lognormal(3.0, 1.5, 200_000))
    frame = lognormal_rates(score, size, 0.5, 0.5, seed=1)
    mean, variance = lognormal_oracle(score, frame["count"], size, 0.5, 0.5)
    error = (mean - frame["theta"]) ** 2
    assert (error / variance).mean() == pytest.approx(1.0, abs=0.03)
    wrong, _ = lognormal_oracle(score, frame["count"], size, 0.3, 0.5)
    assert ((wrong - frame["theta"]) ** 2).mean() > 1.02 * error.mean()


def test_rates_are_lognormal_around_given_scores():
    score = np.resize([0.01, 0.1, 1.0], 90_000)
    frame = lognormal_rates(score, np.resize([0, 10, 1e5], 90_000), -0.5, 0.25, seed=2)
    assert list(frame) == ["score", "exposure", "count", "theta"]
    off = np.log(frame["theta"] / frame["score"])
    assert off.mean() == pytest.approx(-0.5, abs=0.004)
    assert off.std() == pytest.approx(0.25, abs=0.003)
    assert (frame["count"][frame["exposure"] == 0] == 0).all()
    large = frame[frame["exposure"] == 1e5]
    z = (large["count"] - 1e5 * large["theta"]) / np.sqrt(1e5 * large["theta"])
    assert z.std() == pytest.approx(1.0, abs=0.02)


@pytest.mark.slow
def test_million_items_within_half_a_minute():
    rng = np.random.default_rng(0)
    score, size = np.full(1_000_000, 0.05), np.ceil(rng.lognormal(3.0, 2.0, 1_000_000))
    start = time.perf_counter()
    lognormal_oracle(score, rng.poisson(0.05 * size), size, 0.0, 1.0)
    assert time.perf_counter() - start < 30


def brute_laplace(away):
    """Moments of c + e given c + e + noise, by sums over a grid of x'g and of the effect e."""
    q = np.linspace(-9, 9, 1201)
    bend = 0.01 * q**2
    # steps end at 0, where the Laplace density has its kink
    e = np.linspace(-60, 60, 240_001)[:, None]
    total = np.zeros(3)
    weight_e = np.exp(-np.abs(e[:, 0]))
    for c, w in zip(bend, np.exp(-0.5 * q**2), strict=True):
        density = w * weight_e * np.exp(-0.5 * (away - c - e[:, 0]) ** 2)
        effect = c + e[:, 0]
        total += [density.sum(), density @ effect, density @ effect**2]
    mean = total[1] / total[0]
    return mean, total[2] / total[0] - mean**2


@pytest.mark.parametrize("away", [0.0, 0.7, -2.5, 9.0, -20.0])
@pytest.mark.slow
def test_laplace_oracle_by_brute_force(away):
    """The grid's steps of 5e-4 leave 1e-8 at the kink."""
    table = laplace_effects(20).iloc[:2].copy()
    # the first item fixes the grid, on which the second must not lie
    table["score"], table["value"] = 0.01, [away - 0.5037, away]
    mean, variance = laplace_oracle(table)
    exact = brute_laplace(away)
    assert mean[1] == pytest.approx(exact[0], abs=1e-7)
    assert variance[1] == pytest.approx(exact[1], abs=1e-7)


def test_laplace_oracle_is_calibrated_at_all_scores():
    """Standardised squared errors average 1 in every fifth of t (standard error .013), errors 0,
    and the score is unbiased for theta: 100,000 items."""
    table = laplace_effects(100_000, seed=3)
    mean, variance = laplace_oracle(table)
    error = table["theta"] - mean
    fifth = np.argsort(np.argsort(table["score"].to_numpy())) // 20_000
    assert (error**2 / variance).groupby(fifth).mean().to_numpy() == pytest.approx(1.0, abs=0.05)
    assert (error / np.sqrt(variance)).groupby(fifth).mean().to_numpy() == pytest.approx(
        0, abs=0.03
    )
    off = table["theta"] - table["score"]
    assert off.mean() == pytest.approx(0.0, abs=0.02)
    assert off.var() == pytest.approx(2.0002, abs=0.06)


def test_scores_never_saw_their_own_values():
    """With few items a regression that saw them would be closer to y than to new values."""
    tables = [laplace_effects(40, seed=s) for s in range(200)]
    seen = np.mean([((t["value"] - t["score"]) ** 2).mean() for t in tables])
    # 1 + 2.0002 + the coefficients' own variance, 11 * 3 / (32 - 12) by the Wishart's inverse
    assert seen == pytest.approx(3.0 * (1 + 11 / 20), rel=0.06)
