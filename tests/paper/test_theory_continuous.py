"""Posterior cumulants of continuous families from marginals, and the rate of Theorem 1."""

import numpy as np
import pytest
from scipy import special, stats

import soc_pymc as soc
from soc_pymc import theory


def normal_marginal(y, mean, variance, order):
    """Derivatives of the log density of Normal(mean, variance)."""
    out = np.zeros((order, *np.shape(y)))
    out[0], out[1] = -(y - mean) / variance, -1 / variance
    return out


@pytest.mark.parametrize("noise", [1e-3, 0.7, 30.0])
@pytest.mark.parametrize("ratio", [1e-3, 1.0, 1e4])  # of the prior's variance to the noise's
def test_normal_posterior(noise, ratio):
    """To a relative 1e-10 (of the larger of mean and prior mean, where the mean may vanish)."""
    variance, centre = ratio * noise**2, 3.0 * noise
    y = centre + noise * np.sqrt(1 + ratio) * np.linspace(-6, 6, 25)
    got = theory.tweedie(y, noise, normal_marginal(y, centre, variance + noise**2, 4))
    shrink = variance / (variance + noise**2)
    scale = np.abs(y).max()
    np.testing.assert_allclose(got[0], centre + shrink * (y - centre), rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(got[1], shrink * noise**2, rtol=1e-10)
    np.testing.assert_array_equal(got[2:], 0.0)


def test_gamma_outcomes():
    """Rates Gamma(b, c) of times Gamma(a, rate): posterior Gamma(a + b, y + c), six orders."""
    y, a, b, c = np.geomspace(1e-2, 1e3, 20), 2.5, 3.2, 4.0
    k = np.arange(1, 7)[:, None]
    sign, fact = (-1.0) ** (k - 1), special.gamma(k)
    marginal = sign * fact * ((a - 1) / y**k - (a + b) / (y + c) ** k)
    natural = theory.nef_cumulants(theory.gamma_base(y, a, 6), marginal)
    want = (a + b) * fact / (y + c) ** k
    error = np.abs((-1.0) ** k * natural / want - 1)  # the natural parameter is minus the rate
    # digits go where the base density's own derivative is by far the larger
    assert (error < 1e-14 * (1 + np.abs(fact * (a - 1) / y**k) / want)).all()
    assert error[:, y > 1].max() < 1e-10


def test_two_forms_agree():
    """Logarithms' derivatives, and the polynomials p_k of the densities' ratios."""
    y = np.linspace(0.5, 5, 10)
    k = np.arange(1, 7)[:, None]
    marginal = (-1.0) ** k * special.gamma(k) * 5.2 / (y + 4) ** k
    base = theory.gamma_base(y, 1.0 + 1.5, 6)
    ratios = theory.moments_from_cumulants(marginal)
    by_ratios = theory.cumulants_from_moments(ratios) - theory.cumulants_from_moments(
        theory.moments_from_cumulants(base)
    )
    np.testing.assert_allclose(by_ratios, theory.nef_cumulants(base, marginal), rtol=1e-9)
    # p_k takes derivatives of f itself: for y^1.5 these are y^1.5 1.5 .5 (-.5) ... / y^k
    falling = np.cumprod(1.5 - np.arange(6))[:, None] / y**k
    np.testing.assert_allclose(theory.moments_from_cumulants(base), falling, rtol=1e-9, atol=1e-9)
    other = theory.regularised_nef_cumulants(base, marginal, np.zeros(10), rho=0.0)
    np.testing.assert_allclose(other, theory.nef_cumulants(base, marginal), rtol=1e-9)


def test_sign_of_even_orders_as_printed_is_wrong():
    """Normal data, flat prior: the variance is 1, where the printed formula has p_2 = -1."""
    y = np.array([0.3, 2.0])
    base = theory.normal_base(y, 1.0)
    assert (theory.nef_cumulants(base, np.zeros_like(base))[1] == 1).all()
    ratios = theory.moments_from_cumulants(base) * np.array([[-1.0], [1.0]])  # (-1)^k f0^(k)/f0
    printed = theory.cumulants_from_moments(ratios)
    np.testing.assert_allclose(printed[0], y)
    np.testing.assert_allclose(printed[1], -1)


def mixture(y, noise=1.0):
    """Log marginal of a prior of three Normals, by hand."""
    parts = [(0.5, 0.0, 0.3), (0.3, 2.0, 1.0), (0.2, -1.5, 0.1)]
    return special.logsumexp(
        [np.log(w) + stats.norm.logpdf(y, m, np.sqrt(v + noise**2)) for w, m, v in parts], axis=0
    )


def test_tweedie_on_a_mixture_without_its_prior():
    """Against sums over a fine grid of theta: mean, variance, third and fourth cumulants."""
    y, theta = np.linspace(-4, 6, 21), np.linspace(-12, 14, 20_001)
    prior = sum(
        w * stats.norm.pdf(theta, m, np.sqrt(v))
        for w, m, v in [(0.5, 0.0, 0.3), (0.3, 2.0, 1.0), (0.2, -1.5, 0.1)]
    )
    weight = prior * stats.norm.pdf(y[:, None], theta, 1.0)
    weight /= weight.sum(axis=1, keepdims=True)
    mean = weight @ theta
    moments = [(weight * (theta - mean[:, None]) ** j).sum(axis=1) for j in (2, 3, 4)]
    want = np.stack([mean, moments[0], moments[1], moments[2] - 3 * moments[0] ** 2])
    found = theory.tweedie(y, 1.0, theory.log_derivatives(mixture, y, 1.0, order=4))
    for j, tolerance in enumerate([1e-10, 1e-9, 1e-7, 1e-6]):
        np.testing.assert_allclose(found[j], want[j], rtol=0, atol=tolerance)


def test_scale_of_the_natural_parameter():
    """Ten times the unit: cumulants times 10^k. Natural parameters would go as 10^-k."""
    y = np.array([-1.0, 0.5, 3.0])
    small = theory.tweedie(y, 1.0, theory.log_derivatives(mixture, y, 1.0, order=3))
    large = theory.tweedie(
        10 * y, 10.0, theory.log_derivatives(lambda x: mixture(x / 10), 10 * y, 10.0, order=3)
    )
    power = 10.0 ** np.arange(1, 4)[:, None]
    np.testing.assert_allclose(large, power * small, rtol=1e-6, atol=1e-7)


def test_far_tails_of_regularised_cumulants():
    """As the marginal falls below rho: y itself, with the variance of the noise."""
    y = np.array([0.0, 4.0, 40.0])
    marginal = theory.log_derivatives(mixture, y, 1.0)
    with_rho = theory.tweedie(y, 1.0, marginal, log_density=mixture(y), rho=1e-3)
    plain = theory.tweedie(y, 1.0, marginal)
    np.testing.assert_allclose(with_rho[:, :2], plain[:, :2], rtol=1e-9)
    np.testing.assert_allclose(with_rho[:, 2], [40.0, 1.0], rtol=1e-9)
    assert plain[0, 2] < 25
    with pytest.raises(soc.FitError, match="needs log_density"):
        theory.tweedie(y, 1.0, marginal, rho=0.1)


def test_what_is_refused():
    with pytest.raises(soc.ItemsError, match="noise_sd: 1 rows are not above 0"):
        theory.normal_base([1.0, 2.0], [1.0, 0.0])
    with pytest.raises(soc.ItemsError, match="value: 1 rows are not above 0"):
        theory.gamma_base([1.0, -2.0], 2.0)
    with pytest.raises(soc.FitError, match=r"shape \(2,\), those of the marginal \(3,\)"):
        theory.nef_cumulants([1.0, 2.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize("prior", [soc.Normal, soc.NormalMixture])
@pytest.mark.slow
def test_fitted_marginal_gives_the_posteriors_of_the_fit(prior):
    """Posteriors of values, and Tweedie's formula on fitted marginals: to 1e-8 of the noise."""
    from soc_pymc.posterior.predictive import posterior_of

    frame = soc.simulation.laplace_effects(3000, seed=2).assign(noise_sd=lambda d: 0.5)
    items = soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")
    joint = prior is soc.NormalMixture
    fit = soc.fit(soc.summarize(items, joint=joint, progress=False), prior(), progress=False)
    columns = {c: frame[c].to_numpy()[:60] for c in ("score", "value", "noise_sd")}
    law, value, noise = posterior_of(fit), columns["value"], columns["noise_sd"]
    derivatives = theory.log_derivatives(
        lambda y: law.log_density(columns | {"value": y}), value, noise
    )
    cumulants = theory.tweedie(value, noise, derivatives)
    moments = theory.moments_from_cumulants(cumulants).mean(axis=1)  # over draws
    mean, variance = theory.cumulants_from_moments(moments)
    scored = soc.item_posteriors(fit, items, quantiles=(), draws="all", progress=False).iloc[:60]
    np.testing.assert_allclose(mean, scored["theta_mean"], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(variance, scored["theta_var"], rtol=1e-8)


# --- Theorem 1 for continuous families: the rate ------------------------------------------------

GRID = np.linspace(-14, 16, 6001)
STEP = GRID[1] - GRID[0]


def norm(h):
    """||h|| under the true marginal."""
    return np.sqrt(np.sum(h**2 * np.exp(mixture(GRID))) * STEP)


def disturbed(size):
    """The marginal of the prior with every variance larger by `size`, and its means moved."""
    return lambda y: mixture(y - 0.5 * size, np.sqrt(1 + size))


def test_error_vanishes_at_the_rate_of_the_marginals_error():
    """Slope 1 in log-log, for mean and variance: the theorem, whose constants are not in print."""
    truth = theory.log_derivatives(mixture, GRID, 1.0, order=2)
    rho, sizes = 1e-3, np.geomspace(1e-1, 1e-4, 7)
    exact = theory.tweedie(GRID, 1.0, truth, log_density=mixture(GRID), rho=rho)
    density = np.exp(mixture(GRID)) * theory.moments_from_cumulants(truth)
    errors, distances = [], []
    for size in sizes:
        f = disturbed(size)
        found = theory.log_derivatives(f, GRID, 1.0, order=2)
        got = theory.tweedie(GRID, 1.0, found, log_density=f(GRID), rho=rho)
        errors.append([norm(g) for g in got - exact])
        other = np.exp(f(GRID)) * theory.moments_from_cumulants(found)
        own = np.exp(f(GRID)) - np.exp(mixture(GRID))
        distances.append(norm(np.sqrt(((other - density) ** 2).sum(axis=0) + own**2)))
    for k in range(2):
        slope = np.polyfit(np.log(distances[2:]), np.log([e[k] for e in errors[2:]]), 1)[0]
        assert 0.97 < slope < 1.03


def test_bound_of_the_mean_with_its_constants():
    """For the mean the proof's constants are right: 1/rho and ||(f'/(f v rho))^2||^(1/2) / rho."""
    truth = theory.log_derivatives(mixture, GRID, 1.0, order=1)
    f, first = np.exp(mixture(GRID)), truth[0] * np.exp(mixture(GRID))
    exact = theory.tweedie(GRID, 1.0, truth)[0]
    for rho in (1e-3, 1e-2, 0.1):
        remainder = norm(first / f * (1 - np.minimum(f / rho, 1)))
        for size in (0.0, 0.01, 0.1, 0.5):
            g = disturbed(size)
            found = theory.log_derivatives(g, GRID, 1.0, order=1)
            got = theory.tweedie(GRID, 1.0, found, log_density=g(GRID), rho=rho)[0]
            other = np.exp(g(GRID))
            bend = norm((first / np.maximum(f, rho)) ** 2) ** 0.5
            bound = (norm(found[0] * other - first) + bend * norm((other - f) ** 2) ** 0.5) / rho
            assert norm(got - exact) <= bound + remainder + 1e-9
            if size == 0:
                assert norm(got - exact) == pytest.approx(remainder, rel=1e-6)


def test_remainder_vanishes_with_rho():
    truth = theory.log_derivatives(mixture, GRID, 1.0, order=2)
    plain = theory.tweedie(GRID, 1.0, truth)
    left = []
    for rho in (1e-1, 1e-2, 1e-4, 1e-7):
        cut = theory.tweedie(GRID, 1.0, truth, log_density=mixture(GRID), rho=rho)
        left.append([norm(h) for h in cut - plain])
    assert (np.diff(left, axis=0) < 0).all()
    assert max(left[-1]) < 0.01 * min(left[0])
