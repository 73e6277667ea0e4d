"""Tails, partial expectations, quantiles and the Beta-Binomial's cdf against exact values."""

import mpmath as mp
import numpy as np
import pytest
from scipy import special, stats

from soc_pymc.families import beta_forms, beta_tails, binomial_beta
from tests import exact_beta

PRIORS = [(0.01, 0.02), (0.5, 0.5), (2.0, 30.0), (700.0, 20.0), (3.0, 4e4), (1e5, 1e5)]


@pytest.mark.parametrize(("a", "b"), [*PRIORS, (1e9, 5.0), (1e12, 1e12), (1e-3, 1e12)])
def test_kernel(a, b):
    mean, sd = stats.beta.mean(a, b), stats.beta.std(a, b)
    for x in np.clip([mean - 2 * sd, mean, mean + 3 * sd], 1e-12, 1 - 1e-12):
        at = mp.mpf(float(x))
        want = at**a * (1 - at) ** b / mp.beta(a, b)
        assert float(beta_tails.beta_kernel(x, a, b) / want) == pytest.approx(1.0, rel=1e-10)


@pytest.mark.parametrize(("a", "b"), PRIORS)
def test_partial_expectations(a, b):
    """Against integrals of the tails, far ones too."""
    mean, sd = stats.beta.mean(a, b), stats.beta.std(a, b)
    for z in (-20.0, -6.0, -1.0, 0.0, 2.0, 9.0):
        cut = mean + z * sd
        if not 1e-6 < cut < 1 - 1e-6:
            continue
        node, weight = np.polynomial.legendre.leggauss(400)

        def integral(tail, low, high, node=node, weight=weight):
            at = low + 0.5 * (high - low) * (1 + node)
            return 0.5 * (high - low) * weight @ tail(at, a, b)

        far = min(1.0, max(cut, mean) + 14 * sd), max(0.0, min(cut, mean) - 14 * sd)
        over = integral(beta_tails.beta_upper, cut, far[0])
        short = integral(beta_tails.beta_lower, far[1], cut)
        rel = 1e-6 if min(a, b) > 1 else 1e-2  # tails without a slope at the ends
        if over > 1e-290:
            assert binomial_beta.excess(cut, a, b) == pytest.approx(over, rel=rel)
        if short > 1e-290:
            assert binomial_beta.shortfall(cut, a, b) == pytest.approx(short, rel=rel)
    assert binomial_beta.excess(-0.5, a, b) == pytest.approx(mean + 0.5)
    assert binomial_beta.excess(1.5, a, b) == 0
    assert binomial_beta.shortfall(1.5, a, b) == pytest.approx(1.5 - mean)


@pytest.mark.parametrize(
    ("a", "b"), [*PRIORS, (1e3, 1e10), (0.2, 1e9), (1e10, 3e10), (1e13, 1e13), (1e16, 1e3)]
)
def test_quantiles_invert_the_cdf(a, b):
    prob = np.array([1e-9, 0.05, 0.5, 0.95, 1 - 1e-9])
    x = beta_forms.beta_quantile(prob, a, b)
    inside = (x > 1e-300) & (x < 1 - 1e-9)
    back = beta_tails.beta_lower(x, a, b)[inside]
    np.testing.assert_allclose(back, prob[inside], rtol=1e-8 if max(a, b) < 1e12 else 2e-3)
    other = 1 - beta_forms.beta_quantile(1 - prob, b, a)
    sd = stats.beta.std(a, b)
    np.testing.assert_allclose(other, x, rtol=1e-9, atol=1e-6 * sd + 1e-15)


@pytest.mark.parametrize(("a", "b"), [*PRIORS, (1e12, 1e12), (1e-3, 1e12), (1e8, 0.3)])
@pytest.mark.parametrize("n", [1, 2, 40, 5000, 1_000_000])
def test_log_pmf(a, b, n):
    f, g = binomial_beta.to_curves(np.float64(a), np.float64(b))
    for y in {0, 1, n // 3, n - 1, n}:
        want = float(exact_beta.log_pmf(y, n, f, g))
        found = float(binomial_beta.log_pmf(y, n, f, g))
        assert found == pytest.approx(want, rel=1e-11, abs=3e-9 if n > 1e5 else 1e-11)


@pytest.mark.parametrize(("a", "b"), PRIORS)
@pytest.mark.parametrize("n", [1, 40, 3000, 40_000])
def test_cdf_is_the_sum_of_probabilities(a, b, n):
    f, g = binomial_beta.to_curves(np.float64(a), np.float64(b))
    every = np.arange(n + 1.0)
    p = np.exp(binomial_beta.log_pmf(every, float(n), f, g))
    assert p.sum() == pytest.approx(1.0, abs=1e-9)
    upto = np.cumsum(p)
    y = np.unique(np.searchsorted(upto, [0, 0.001, 0.1, 0.5, 0.9, 0.999, 1]).clip(0, n))
    shape = (1, len(y))
    ends = binomial_beta.cdf_interval(
        y.astype(float), np.full(len(y), float(n)), np.full(shape, f), np.full(shape, g)
    )
    np.testing.assert_allclose(ends[1][0], upto[y], atol=1e-9)
    np.testing.assert_allclose(ends[0][0], np.where(y > 0, upto[y - 1], 0.0), atol=1e-9)


@pytest.mark.parametrize(
    "prior",
    [
        (1e3, 1e3),
        (2.0, 7.0),
        (0.4, 0.6),
        (30.0, 1e5),
        pytest.param((1e8, 1e8), marks=pytest.mark.slow),
    ],
)
def test_cdf_of_a_million_trials(prior):
    """Against the integral of the Binomial's cdf over theta."""
    a, b = prior
    n = 1_000_000
    f, g = binomial_beta.to_curves(np.float64(a), np.float64(b))
    theta = stats.beta.ppf((np.arange(200_000) + 0.5) / 200_000, a, b)
    y = np.rint(n * stats.beta.ppf([0.01, 0.3, 0.5, 0.8, 0.999], a, b))
    want = [special.bdtr(k, n, theta).mean() for k in y]
    curves = (np.full((1, len(y)), x) for x in (f, g))
    found = binomial_beta.cdf_interval(y, np.full(len(y), float(n)), *curves)[1][0]
    np.testing.assert_allclose(found, want, atol=2e-6)


def test_draws_have_their_tails():
    """P(theta > draw) is uniform, for parameters whose draws are below all numbers too."""
    rng = np.random.default_rng(0)
    for a, b in ((3.0, 40.0), (0.02, 5.0), (4.0, 1e-3), (1e9, 2.0)):
        shape = np.full(20_000, a), np.full(20_000, b)
        logit = binomial_beta.draw_theta(*shape, tuple(rng.spawn(2)))
        share = binomial_beta.above_drawn(logit, *shape)
        assert stats.kstest(share, "uniform").pvalue > 1e-3
