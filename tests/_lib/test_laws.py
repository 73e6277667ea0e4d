"""Laws and tests in special functions, against SciPy's and ArviZ's."""

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy import stats

from soc_pymc._lib import laws

SKEWS = (-9.0, -1.3, -0.01, -1e-4, -1e-5, 0.0, 1e-5, 1e-4, 0.3, 2.0, 40.0)


@pytest.mark.parametrize("skew", SKEWS)
def test_pearsons_law(skew):
    z, prob = np.linspace(-6.0, 9.0, 61), np.linspace(1e-6, 1.0 - 1e-6, 41)
    law = stats.pearson3(skew)
    np.testing.assert_allclose(laws.pearson3_cdf(z, skew), law.cdf(z), rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(laws.pearson3_cdf(-z, -skew), law.sf(z), rtol=1e-11, atol=1e-300)
    quantiles = laws.pearson3_quantile(prob, skew)
    np.testing.assert_allclose(quantiles, law.ppf(prob), rtol=1e-9, atol=1e-11)


def test_skewness():
    values = np.random.default_rng(0).gamma(1.0, size=50)
    assert laws.skewness(values) == pytest.approx(stats.skew(values), rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 30, 1000])
@pytest.mark.parametrize("power", [1.0, 1.2, 4.0])
def test_tests_of_uniformity(n, power):
    """Those of SciPy and ArviZ, also with ties and at the ends."""
    values = np.random.default_rng(n).random(n) ** power
    for tied in (values, np.round(values, 1), np.append(values, [0.0, 1.0])):
        statistic = stats.kstest(tied, "uniform").statistic
        assert laws.uniform_distance(tied) == pytest.approx(statistic, rel=1e-12)
        p = float(array_stats.uniformity_test(tied, method="prit_c")[0])
        assert laws.uniform_p_value(tied) == pytest.approx(p, rel=1e-9)
