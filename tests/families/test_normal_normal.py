"""The Normal-Normal family against exact references."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from soc_pymc.families import normal_normal as nn
from soc_pymc.families.mixtures import normal_summaries

mp.mp.dps = 50

LIMITS = [
    (value, noise_sd, mean, variance)
    for value in (-3.0, 0.0, 1e-8, 40.0)
    for noise_sd in (1e-35, 1e-6, 1.0, 1e6, 1e35)
    for mean in (-2.0, 0.0, 1e5)
    for variance in (1e-300, 1e-12, 0.3, 1e12)
]


def exact(value, noise_sd, mean, variance):
    """Log density and cdf of the marginal, in 50 digits, from the log variance as it is rounded."""
    v = mp.exp(mp.mpf(float(np.log(variance)))) + mp.mpf(noise_sd) ** 2
    z = (mp.mpf(value) - mp.mpf(mean)) / mp.sqrt(v)
    return -z * z / 2 - mp.log(2 * mp.pi * v) / 2, mp.ncdf(z)


@pytest.mark.parametrize("case", LIMITS)
def test_marginal_in_the_limits(case):
    """Relative 1e-12: a log variance of up to 700 in size is rounded at 1e-13."""
    value, noise_sd, mean, variance = case
    log_density, cdf = exact(*case)
    got = float(nn.log_density(value, noise_sd, mean, np.log(variance)))
    assert got == pytest.approx(float(log_density), rel=1e-12, abs=1e-12)
    assert float(nn.cdf(value, noise_sd, mean, np.log(variance))) == pytest.approx(
        float(cdf), rel=1e-9, abs=1e-300
    )


@pytest.mark.parametrize("case", LIMITS)
def test_update_in_the_limits(case):
    value, noise_sd, mean, variance = case
    v, w = mp.mpf(variance), mp.mpf(noise_sd**2)
    got_mean, got_variance = nn.update(mean, variance, value, noise_sd**2)
    exact_mean = (mp.mpf(value) * v + mp.mpf(mean) * w) / (v + w)
    assert got_mean == pytest.approx(float(exact_mean), rel=1e-13, abs=1e-13 * abs(value))
    assert got_variance == pytest.approx(float(v * w / (v + w)), rel=1e-13, abs=0)


def test_update_is_conjugate():
    """Posterior density is prior times likelihood, up to a constant."""
    theta = np.linspace(-1.0, 2.0, 9)
    mean, variance = nn.update(0.3, 0.5, 1.4, 0.2)
    joint = stats.norm.logpdf(theta, 0.3, np.sqrt(0.5)) + stats.norm.logpdf(
        1.4, theta, np.sqrt(0.2)
    )
    assert np.ptp(stats.norm.logpdf(theta, mean, np.sqrt(variance)) - joint) < 1e-12


def test_marginal_is_the_integral_over_theta():
    def density(theta):
        return stats.norm.pdf(theta, 0.3, 0.7) * stats.norm.pdf(1.4, theta, 0.4)

    whole = integrate.quad(density, -10, 10, epsabs=1e-13)[0]
    assert float(nn.log_density(1.4, 0.4, 0.3, 2 * np.log(0.7))) == pytest.approx(np.log(whole))
    assert nn.moments(0.3, 0.49, 0.16) == (0.3, pytest.approx(0.65))


@given(st.floats(0.001, 0.999), st.floats(-5, 5), st.floats(1e-3, 1e3))
def test_quantile_is_the_inverse_of_the_cdf(prob, mean, variance):
    value = nn.quantile(prob, mean, variance)
    assert float(nn.cdf(value, 0.0, mean, np.log(variance))) == pytest.approx(prob, abs=1e-12)


@given(st.floats(-5, 5), st.floats(0.01, 10), st.floats(-5, 5), st.floats(-8, 4), st.floats(-9, 9))
def test_shift_and_scale(value, noise_sd, mean, log_variance, shift):
    one = nn.log_density(value, noise_sd, mean, log_variance)
    moved = nn.log_density(value + shift, noise_sd, mean + shift, log_variance)
    scaled = nn.log_density(2 * value, 2 * noise_sd, 2 * mean, log_variance + np.log(4.0))
    z = abs(float(nn.standardised(value, noise_sd, mean, log_variance)))
    # the shift rounds values at 1e-15 of their size, which counts z / sd times over
    assert moved == pytest.approx(float(one), abs=1e-11 * (1 + z) * (1 + 1 / noise_sd))
    assert scaled + np.log(2.0) == pytest.approx(float(one), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.7, 20.0])
def test_quantiles_of_mixtures(spread):
    """Against brute force on the cdf: 1e-5 of the narrowest component's sd."""
    rng = np.random.default_rng(0)
    mean = spread * rng.standard_normal((200, 12))
    variance = np.exp(0.3 * spread * rng.standard_normal((200, 12)).clip(-2, 2))
    probs = (0.001, 0.05, 0.5, 0.9)
    found = normal_summaries(mean, variance, probs)
    np.testing.assert_allclose(found.mean, mean.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.variance, variance.mean(0) + mean.var(0), rtol=1e-12)
    sd = np.sqrt(variance)
    for prob, row in zip(probs, found.quantiles, strict=True):
        for i in range(12):
            brute = optimize.brentq(
                lambda x, i=i, p=prob: stats.norm.cdf(x, mean[:, i], sd[:, i]).mean() - p,
                -1e4, 1e4, xtol=1e-13,
            )  # fmt: skip
            assert abs(row[i] - brute) < 1e-5 * sd[:, i].min()
