"""Theta that is a mixture, and exactly 0 with some probability: moments, quantiles, averages."""

import numpy as np
import pytest
from scipy import optimize

from soc_pymc.families.mixtures import summaries
from soc_pymc.posterior.item_columns import ThetaMixture
from tests.family_records import RECORDS

# conjugate parameters of three components of two items
PARAMETERS = {
    "Gamma": (np.array([[2.5], [0.7]]), np.array([[3.0, 5.0, 9.0], [0.1, 1.0, 40.0]])),
    "Normal": (np.array([[-1.0, 0.2, 2.0], [0.5, 0.6, 0.7]]), np.array([[0.3], [1.1]])),
    "Beta": (
        np.array([[2.0, 4.0, 1.0], [0.5, 8.0, 3.0]]),
        np.array([[9.0, 2.0, 5.0], [6.0, 6.0, 0.8]]),
    ),
}
WEIGHT = np.array([[0.2, 0.3, 0.1, 0.4], [0.25, 0.35, 0.38, 0.02]])
WEIGHTS = {  # of the components, and of theta = 0
    "zeros": WEIGHT,
    "no zeros": np.array([[0.2, 0.3, 0.5, 0.0], [0.9, 0.001, 0.099, 0.0]]),
    "one component": np.array([[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]),
}
PROBS = (0.003, 0.05, 0.3, 0.51, 0.7, 0.95, 0.999)


@pytest.fixture(params=RECORDS)
def record(request):
    return RECORDS[request.param]


@pytest.mark.parametrize("shares", WEIGHTS)
def test_summaries_by_the_cdf(record, shares):
    """Moments by sums; a quantile is where the cdf, with its step at 0, reaches it."""
    family, weight, (a, b) = record.family, WEIGHTS[shares], PARAMETERS[record.family.name]
    rest = weight[:, :3] / weight[:, :3].sum(axis=1, keepdims=True)
    *result, zero = summaries(family.name, rest.T, a.T, b.T, PROBS, weight[:, 3])
    np.testing.assert_array_equal(zero, weight[:, 3])
    result = np.array(result)
    law = record.theta(*np.broadcast_arrays(a, b))
    means, variances = law.stats("mv")
    mean = (weight[:, :3] * means).sum(axis=1)
    variance = (weight[:, :3] * (variances + means**2)).sum(axis=1) - mean**2
    np.testing.assert_allclose(result[:3], [mean, np.sqrt(variance), variance], rtol=1e-10)
    if not weight[:, 3].any():
        plain = summaries(family.name, rest.T, a.T, b.T, PROBS)
        sd = np.sqrt(variance)
        np.testing.assert_allclose(plain[:3], result[:3], rtol=1e-10)
        np.testing.assert_allclose(plain[3:] / sd, result[3:] / sd, atol=5e-4)
    for i in range(2):

        def cdf(theta, i=i):
            return weight[i, :3] @ law.cdf(theta)[i] + weight[i, 3] * (theta >= 0.0)

        ends = law.ppf(1e-9)[i].min(), law.ppf(1.0 - 1e-12)[i].max()
        for prob, theta in zip(PROBS, result[3:, i], strict=True):
            if cdf(-1e-12) <= prob <= cdf(0.0) and weight[i, 3]:
                assert theta == 0.0
                continue
            exact = optimize.brentq(lambda x, p=prob: cdf(x) - p, *ends, xtol=1e-13)
            assert theta == pytest.approx(exact, abs=5e-4 * result[1, i])


def test_averages_with_zero(record):
    family = record.family
    a, b = np.broadcast_arrays(*PARAMETERS[family.name])
    share = WEIGHT[:, :3] / WEIGHT[:, :3].sum(axis=1, keepdims=True)
    theta = ThetaMixture(a.T, b.T, share.T, WEIGHT[:, 3])
    mean = (WEIGHT[:, :3] * record.theta(a, b).mean()).sum(axis=1)
    assert theta.average(family.mean(a.T, b.T)) == pytest.approx(mean)
    listed = theta.listed(family)
    assert listed.weight == pytest.approx(WEIGHT.T)
    assert listed.average(family.mean(listed.a, listed.b)) == pytest.approx(mean)
    cut = np.array([0.1, 0.4])
    over = theta.average(family.excess(cut, a.T, b.T), 0.0)
    short = theta.average(family.shortfall(cut, a.T, b.T), cut)
    assert over - short == pytest.approx(mean - cut)
