"""The Poisson-Gamma family against exact references."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from soc_pymc.families import poisson_gamma as pg
from soc_pymc.families import special_forms
from tests import exact

LIMITS = [
    (count, exposure, mean, cv2)
    for count in (0, 1, 5, 31, 40, 1000)
    for exposure in (1e-3, 1.0, 300.0, 1e9)
    for mean in (1e-12, 1e-2, 3.0)
    for cv2 in (1e-12, 1e-6, 0.3, 10.0, 1e3)
]


@pytest.mark.parametrize(("count", "exposure", "mean", "cv2"), LIMITS)
def test_log_pmf_in_the_limits(count, exposure, mean, cv2):
    got = float(pg.log_pmf(count, exposure, np.log(mean), np.log(cv2)))
    want = exact.log_pmf(count, exposure, np.log(mean), np.log(cv2))
    scale = exact.absolute_terms(count, exposure, np.log(mean), np.log(cv2))
    assert abs(got - float(want)) <= 1e-13 * scale + 1e-13


@pytest.mark.parametrize("x", [0.0, 1e-300, 1e-12, 1e-3, 0.29, 0.31, 5.0, 1e12, -1e-9, -0.2])
def test_log1pmx(x):
    want = float(mp.log1p(mp.mpf(x)) - mp.mpf(x))
    assert float(special_forms.log1pmx(x)) == pytest.approx(want, rel=1e-15, abs=0)


def test_cdf_is_the_sum_of_the_pmf():
    count = np.arange(60)
    for cv2 in (1e-13, 1e-8, 0.3, 5.0):
        log_pmf = pg.log_pmf(count, 20.0, np.log(0.7), np.log(cv2))
        got = pg.cdf(count, 20.0, np.log(0.7), np.log(cv2))
        np.testing.assert_allclose(got, np.cumsum(np.exp(log_pmf)), rtol=1e-9)
    assert pg.cdf(-1, 20.0, 0.0, 0.0) == 0
    assert pg.cdf(0, 0.0, 0.0, 0.0) == 1


@given(
    st.integers(0, 50),
    st.floats(0.01, 1e4),
    st.floats(-10, 2),
    st.floats(-20, 4),
    st.floats(1e-6, 1e6),
)
def test_scale_equivariance(count, exposure, log_mean, log_cv2, factor):
    one = pg.log_pmf(count, exposure, log_mean, log_cv2)
    other = pg.log_pmf(count, exposure * factor, log_mean - np.log(factor), log_cv2)
    scale = exact.absolute_terms(count, exposure, log_mean, log_cv2)
    # log N and log mean are formed apart, so their rounding enters y times
    assert abs(one - other) <= 1e-13 * (scale + count * 40) + 1e-12


def test_update_is_conjugate():
    """Posterior density is prior times likelihood, up to a constant."""
    theta = np.linspace(0.01, 0.4, 7)
    shape, rate = pg.shape_rate(np.log(0.1), np.log(0.5))
    post = pg.update(shape, rate, 3, 20.0)
    log_posterior = stats.gamma.logpdf(theta, post[0], scale=1 / post[1])
    joint = stats.gamma.logpdf(theta, shape, scale=1 / rate) + stats.poisson.logpmf(3, theta * 20)
    assert np.ptp(log_posterior - joint) < 1e-12
    assert pg.mean(*post) == pytest.approx(stats.gamma.mean(post[0], scale=1 / post[1]))
    assert pg.variance(*post) == pytest.approx(stats.gamma.var(post[0], scale=1 / post[1]))


@pytest.mark.parametrize("x", [16.0, 20.0, 75.5, 1e4])
def test_stirling_error_against_long_arithmetic(x):
    """The first term that is left out, 691/360360 x^-11, is 1e-16 at 16."""
    with mp.workdps(50):
        z = mp.mpf(x)
        exact = mp.loggamma(z) - (z - 0.5) * mp.log(z) + z - mp.log(2 * mp.pi) / 2
    assert float(special_forms.stirling_error(x)) == pytest.approx(float(exact), rel=0, abs=3e-16)
