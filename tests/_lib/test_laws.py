"""Laws, tests and Pareto-smoothed weights: SciPy's and ArviZ's results."""

import warnings

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy import special, stats

from soc_pymc._lib import laws
from soc_pymc._lib.laws import smoothed
from tests.examples import thinned

SKEWS = (-9.0, -1.3, -0.01, -1e-4, -1e-5, 0.0, 1e-5, 1e-4, 0.3, 2.0, 40.0)


@pytest.mark.parametrize("skew", SKEWS)
def test_pearsons_law(skew):
    z, prob = np.linspace(-6.0, 9.0, 61), np.linspace(1e-6, 1.0 - 1e-6, 41)
    law = stats.pearson3(skew)
    np.testing.assert_allclose(laws.pearson3_cdf(z, skew), law.cdf(z), rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(laws.pearson3_cdf(-z, -skew), law.sf(z), rtol=1e-11, atol=1e-300)
    quantiles = laws.pearson3_quantile(prob, skew)
    np.testing.assert_allclose(quantiles, law.ppf(prob), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("n", [1, 2, 30, 1000])
@pytest.mark.parametrize("power", [1.0, 1.2, 4.0])
def test_tests_of_uniformity(n, power):
    """The distance is SciPy's, the p-value symmetrical, also with ties and at the ends."""
    values = np.random.default_rng(n).random(n) ** power
    for tied in (values, np.round(values, 1), np.append(values, [0.0, 1.0])):
        statistic = stats.kstest(tied, "uniform").statistic
        assert laws.uniform_distance(tied) == pytest.approx(statistic, rel=1e-12)
        mirrored = laws.uniform_p_value(1.0 - tied)
        assert laws.uniform_p_value(tied) == pytest.approx(mirrored, rel=1e-9)


@pytest.mark.parametrize(("n", "far"), [(50, 1e-11), (700, 1e-10), (2000, 1e-12)])
def test_one_far_value_counts_at_either_end(n, far):
    """Among even values, about n^2 times its distance twice; ArviZ's p-value of the upper is .5."""
    even = (np.arange(n) + 0.5) / n
    low = laws.uniform_p_value(np.append(far, even[1:]))
    high = laws.uniform_p_value(np.append(even[:-1], 1.0 - far))
    assert low == pytest.approx(2.0 * n**2 * far, rel=0.02)
    assert high == pytest.approx(low, rel=1e-4)


@pytest.mark.parametrize("n", thinned([7, 60, 500], [7, 60]))
def test_the_test_of_uniformity_is_at_its_level(n):
    """Of 3,000 sets 1.1 to 1.6% have p < .01; 0.2% is the standard error."""
    rng = np.random.default_rng(n)
    p = [laws.uniform_p_value(rng.random(n)) for _ in range(3000)]
    assert 0.005 < np.mean(np.array(p) < 0.01) < 0.02


def from_arviz(log_ratio):
    """Returns sorted log weights and k of each column; plain weights where there is no fit."""
    log_weight, k = special.log_softmax(log_ratio, axis=0), np.full(log_ratio.shape[1], np.inf)
    for column, ratio in enumerate(log_ratio.T):
        if np.ptp(ratio) <= 1e-9:
            k[column] = 0.0
            continue
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                weight, shape = array_stats.psislw(-ratio)
            except (ValueError, IndexError):  # the tail is one number, or too short
                continue
        if np.isfinite(shape) and np.isfinite(weight).all():
            log_weight[:, column], k[column] = weight, shape
    return log_weight, k


def ratios(draws):
    """Returns log ratios of all kinds, (draws, kinds)."""
    rng = np.random.default_rng(draws)
    normal = rng.standard_normal(draws)
    far = np.where(np.arange(draws) == draws // 2, 900.0, normal)
    kinds = {
        "narrow": 1e-6 * normal,
        "Normal": normal,
        "wide": 30.0 * normal,
        "of one draw": far,
        "bounded": -rng.exponential(size=draws),
        "heavy": rng.exponential(size=draws) / 0.9,
        "far below 0": normal - 1e5,
        "with ties": np.round(normal),
        "of two values": np.where(normal > 1.5, 1.0, 0.0),
        "with an equal tail": np.minimum(normal, -1.0),
        "equal": np.full(draws, 3.0),
        "nearly equal": 3.0 + 1e-12 * normal,
        "linear": np.linspace(-3.0, 0.0, draws),
    }
    return np.column_stack([*kinds.values(), *rng.standard_t(3.0, (300, draws))])


@pytest.mark.parametrize("draws", [1, 4, 24, 25, 100, 225, 226, 400, 1000, 4001])
def test_weights_are_those_of_arviz(draws):
    """Also where there is no tail to fit, and where draws are too few."""
    log_ratio = ratios(draws)
    (log_weight, k), (expected, expected_k) = smoothed(log_ratio), from_arviz(log_ratio)
    np.testing.assert_allclose(k, expected_k, rtol=1e-10, atol=1e-10)
    weight, expected = np.exp(log_weight), np.exp(expected)
    distinct = [len(np.unique(ratio)) == draws for ratio in log_ratio.T]
    np.testing.assert_allclose(weight[:, distinct], expected[:, distinct], rtol=1e-9, atol=1e-13)
    # of draws with equal ratios, either may have the larger weight
    weight, expected = (np.sort(values, axis=0) for values in (weight, expected))
    np.testing.assert_allclose(weight, expected, rtol=1e-9, atol=1e-13)


def test_sets_do_not_depend_on_their_neighbours():
    log_ratio = ratios(1000)
    log_weight, k = smoothed(log_ratio)
    for column in (0, 2, 7, 150):
        alone, its_k = smoothed(log_ratio[:, [column]])
        np.testing.assert_allclose(alone[:, 0], log_weight[:, column], rtol=1e-13)
        assert its_k[0] == pytest.approx(k[column], rel=1e-13)


def test_an_infinite_ratio_leaves_no_weights():
    log_ratio = ratios(100)
    log_ratio[3, 5] = np.inf
    log_weight, k = smoothed(log_ratio)
    assert np.isinf(k[5])
    assert np.isfinite(log_weight).all(axis=0).sum() == log_ratio.shape[1] - 1
