"""Items with successes in trials over draws of the curves: summaries against direct integration."""

import numpy as np
import pytest
from scipy import optimize, special, stats

from soc_pymc.families import binomial_beta
from soc_pymc.families.family import BETA, GAMMA

PROBS = (0.05, 0.5, 0.95)
Y = np.array([0.0, 1.0, 40.0, 7.0, 0.0, 999_000.0, 12.0])
N = np.array([0.0, 1.0, 40.0, 30.0, 5000.0, 1_000_000.0, 100.0])


def _draws(seed=0, draws=60, mean=-0.8, sd=0.2):
    rng = np.random.default_rng(seed)
    return rng.normal(mean, sd, (draws, len(Y))), rng.normal(-2.0, 2 * sd, (draws, len(Y)))


def _posterior(first, second):
    return binomial_beta.update(*binomial_beta.a_b(first, second), Y, N)


@pytest.mark.parametrize("draws", [4, 60])
def test_summaries(draws):
    first, second = _draws(draws=draws)
    a, b = _posterior(first, second)
    found = BETA.summaries(first, second, Y, N, PROBS)
    mean, variance = stats.beta.stats(a, b)
    np.testing.assert_allclose(found.mean, mean.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.variance, variance.mean(axis=0) + mean.var(axis=0), rtol=1e-9)
    for row, prob in zip(found.quantiles, PROBS, strict=True):
        for i in range(len(Y)):

            def gap(x, i=i, prob=prob):
                return stats.beta.cdf(special.expit(x), a[:, i], b[:, i]).mean() - prob

            exact = special.expit(optimize.brentq(gap, -30, 30, xtol=1e-13))
            assert abs(row[i] - exact) < 1e-4 * np.sqrt(found.variance[i])


def test_exchange_of_successes_and_failures():
    first, second = _draws(1)
    here = BETA.summaries(first, second, Y, N, PROBS)
    there = BETA.summaries(-first, second, N - Y, N, PROBS)
    np.testing.assert_allclose(there.mean, 1 - here.mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(there.variance, here.variance, rtol=1e-9)
    sd = np.sqrt(here.variance)
    np.testing.assert_allclose(there.quantiles[::-1] / sd, (1 - here.quantiles) / sd, atol=1e-5)
    density = BETA.log_density(Y, N, first, second)
    np.testing.assert_allclose(BETA.log_density(N - Y, N, -first, second), density, rtol=1e-10)


def test_small_rates_are_those_of_counts():
    rng = np.random.default_rng(2)
    first, second = rng.normal(np.log(1e-6), 0.2, (40, 5)), rng.normal(-1.0, 0.2, (40, 5))
    n = np.array([1e5, 1e6, 2e6, 3e6, 5e5])
    y = np.array([0.0, 1.0, 5.0, 0.0, 2.0])
    here, there = (f.summaries(first, second, y, n, PROBS) for f in (BETA, GAMMA))
    np.testing.assert_allclose(here.rows, there.rows, rtol=2e-5)
    for x in ("log_density", "cdf_interval"):
        one, two = (np.array(getattr(f, x)(y, n, first, second)) for f in (BETA, GAMMA))
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=2e-5)
    one, two = (np.array(f.widened(first, second, 0.3)) for f in (BETA, GAMMA))
    np.testing.assert_allclose(one, two, atol=1e-5)


def test_curves_and_parameters_invert_each_other():
    a, b = np.geomspace(1e-3, 1e12, 31), np.geomspace(1e12, 1e-3, 31)[::3][:, None]
    again = BETA.to_parameters(*BETA.to_curves(a, b))
    np.testing.assert_allclose(again[0], np.broadcast_to(a, again[0].shape), rtol=1e-12)
    np.testing.assert_allclose(again[1], np.broadcast_to(b, again[1].shape), rtol=1e-12)
    first, second = np.array([-1.0, 0.0, 3.0]), np.array([-3.0, 0.5, 2.0])
    a, b = BETA.to_parameters(first, second)
    mean, variance = BETA.natural_moments(first, np.exp(second))
    np.testing.assert_allclose(mean, BETA.mean(a, b), rtol=1e-12)
    np.testing.assert_allclose(variance, BETA.variance(a, b), rtol=1e-12)
    assert BETA.natural_moments(0.3, 0.0)[1] == 0
    variables = BETA.curve_variables(first, second)
    np.testing.assert_allclose(np.exp(variables["log_variance"]), variance, rtol=1e-12)


@pytest.mark.parametrize("more", [1.0, 20.0, 3000.0])
def test_further_trials(more):
    """Expected variance and value of further trials, by summation over all outcomes."""
    rng = np.random.default_rng(3)
    a, b = rng.gamma(3.0, 2.0, (3, 4)), rng.gamma(5.0, 2.0, (3, 4))
    weight = np.array([[0.2], [0.5], [0.3]]) * np.ones((3, 4))
    further = BETA.further

    class Theta:
        first, second = a, b

        def __init__(self):
            self.weight = weight

        def average(self, values):
            return (weight * values).sum(axis=0)

    cut = np.array([0.2, 0.35, 0.5, 0.4])
    size = np.full(4, more)
    expected, value = np.zeros(4), np.zeros(4)
    for y in np.arange(more + 1):
        p = weight * stats.betabinom.pmf(y, more, a, b)
        after = stats.beta.stats(a + y, b + more - y)
        share = p / np.maximum(p.sum(axis=0), 1e-300)
        mean = (share * after[0]).sum(axis=0)
        expected += (p.sum(axis=0)) * (share * (after[1] + (after[0] - mean) ** 2)).sum(axis=0)
        value += p.sum(axis=0) * np.maximum(mean - cut, 0.0)
    value -= np.maximum((weight * a / (a + b)).sum(axis=0) - cut, 0.0)
    np.testing.assert_allclose(further.mean_variance(weight, a, b, size), expected, rtol=1e-5)
    np.testing.assert_allclose(further.value(Theta(), Theta(), size, cut), value, atol=1e-9)


def test_simulated_outcomes_are_beta_binomial():
    rng = np.random.default_rng(4)
    f, g, n = np.full(30_000, 0.4), np.full(30_000, -0.3), np.full(30_000, 12.0)
    y = BETA.simulate(f, g, n, rng)
    seen = np.bincount(y.astype(int), minlength=13)
    p = np.exp(BETA.log_density(np.arange(13.0), 12.0, 0.4, -0.3))
    assert stats.chisquare(seen, p / p.sum() * len(y)).pvalue > 1e-3


@pytest.mark.parametrize("g", [-20.0, -29.0, -35.0, -60.0, -200.0])
def test_quantiles_of_priors_without_variance(g):
    """They are those of a Normal logit, and at last the mean."""
    f = np.array([[-3.0, 0.0, 2.5]])
    none = np.zeros(3)
    found = BETA.summaries(f, np.full((1, 3), g), none, none, PROBS)
    np.testing.assert_allclose(found.mean, special.expit(f[0]), rtol=1e-14)
    a, b = binomial_beta.a_b(f[0], g)
    sd = np.sqrt(1 / a + 1 / b)
    want = special.expit(f[0] + sd * stats.norm.ppf(PROBS)[:, None])
    np.testing.assert_allclose(found.quantiles, want, rtol=1e-12 + 2 * np.exp(g / 2) * 1e-3)
