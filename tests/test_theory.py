"""Posterior moments from marginals against closed forms; simulations, their oracles and tables."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from numpy.polynomial import chebyshev
from scipy import special, stats

import soc_pymc as soc
from soc_pymc import theory
from soc_pymc.posterior.predictive import posterior_of
from tests.oracles import laplace_oracle, lognormal_oracle, s1_curves


def negative_binomial(exposure, mean, cv2):
    """Returns the log marginal of counts whose rates are Gamma."""
    shape = 1 / cv2
    log_odds = np.log(exposure * mean) - np.log(shape)

    def log_pmf(y):
        ways = special.gammaln(y + shape) - special.gammaln(shape) - special.gammaln(y + 1)
        return ways + y * -np.logaddexp(0, -log_odds) - shape * np.logaddexp(0, log_odds)

    return log_pmf


def points(exposure, *pairs):
    """Returns the log marginal of counts whose rates are point masses (weight, theta)."""
    return lambda y: special.logsumexp(
        [np.log(w) + stats.poisson.logpmf(y, exposure * theta) for w, theta in pairs], axis=0
    )


@pytest.mark.parametrize("exposure", [1e-3, 1.0, 300.0])
@pytest.mark.parametrize("cv2", [1e-3, 0.3, 10.0])
def test_moments_and_cumulants_are_those_of_the_conjugate_posterior(exposure, cv2):
    """The k-th cumulant of Gamma(shape, rate) is (k - 1)! shape / rate^k.

    Errors are those of the marginal's logarithm, of moments relative and of cumulants relative to
    the mean's power.
    """
    y = np.array([0.0, 1, 5, 31, 200])
    for mean in (1e-2, 3.0):
        log_pmf = negative_binomial(exposure, mean, cv2)
        shape, rate = 1 / cv2 + y, 1 / cv2 / mean + exposure
        rounding = 1e-10 + 1e-13 * np.abs(log_pmf(y))
        for k in (1, 2, 5):
            expected = special.poch(shape, k) / rate**k
            moment = theory.poisson_moment(y, exposure, log_pmf, k)
            assert (np.abs(moment / expected - 1) < rounding).all()
        cumulants = theory.poisson_cumulants(y, exposure, log_pmf, 3)
        for k, cumulant in enumerate(cumulants, 1):
            expected = special.gamma(k) * shape / rate**k
            assert (np.abs(cumulant - expected) < 20 * rounding * (shape / rate) ** k).all()


def test_regularised_moments():
    """As defined, everywhere; untouched above rho; unbiased estimates in the far tail."""
    y, exposure, rho = np.arange(400.0), 3.0, 1e-3
    log_pmf = negative_binomial(exposure, 2.0, 0.1)
    f = np.exp(log_pmf(np.arange(410.0)))
    for k in (1, 2, 3):
        rising, falling = special.poch(y + 1, k), np.maximum(special.poch(y - k + 1, k), 0)
        unbiased = falling / exposure**k
        regularised = theory.poisson_moment(y, exposure, log_pmf, k, rho=rho)
        delta = f[k : 400 + k] * rising - f[:400] * falling
        expected = unbiased + delta / np.maximum(f[:400], rho) / exposure**k
        np.testing.assert_allclose(regularised, expected, rtol=1e-9, atol=1e-14)
        above = f[:400] > rho
        plain = theory.poisson_moment(y, exposure, log_pmf, k)
        np.testing.assert_allclose(regularised[above], plain[above], rtol=1e-11)
        np.testing.assert_allclose(regularised[300:], unbiased[300:], rtol=1e-9)
        assert (np.abs(plain[300:] / unbiased[300:] - 1) > 0.3).all()
    unbiased = theory.poisson_moment([2, 3], 2.0, lambda y: np.full(2, -np.inf), rho=0.1)
    np.testing.assert_array_equal(unbiased, [1.0, 1.5])


@pytest.mark.parametrize("order", [1, 2])
def test_the_bound_holds_and_is_not_vacuous(order):
    """Theorem 1 for all pairs of six priors; with the true marginal both sides are equal."""
    for exposure, rho in product((0.3, 8.0), (1e-4, 1e-2, 0.5)):
        marginals = [
            negative_binomial(exposure, 1.0, 0.5),
            negative_binomial(exposure, 1.2, 0.05),
            negative_binomial(exposure, 0.8, 2.0),
            points(exposure, (0.5, 0.5), (0.5, 1.5)),
            points(exposure, (1.0, 1.0)),
            points(exposure, (1.0, 0.02)),
        ]
        for true, estimate in product(marginals, marginals):
            result = theory.poisson_bound(true, estimate, exposure, order, rho=rho, highest=400)
            assert result["error"] <= result["bound"] * (1 + 1e-9)
            if true is estimate:
                assert result["distance"] == 0
                assert result["error"] == pytest.approx(
                    result["remainder"] / exposure**order, rel=1e-6
                )
    rare, other = points(1.0, (1.0, 1e-4)), points(1.0, (1.0, 0.2))
    result = theory.poisson_bound(rare, other, 1.0, 1, rho=0.8, highest=60)
    assert result["error"] > 0.4 * result["bound"]


def test_parts_of_the_bound_are_those_of_the_lemma():
    """Norms by sums written out, with N = 2 and k = 2."""
    y, rho = np.arange(401.0), 0.01
    marginals = negative_binomial(2.0, 1.0, 0.5), negative_binomial(2.0, 0.8, 2.0)
    f, g = (np.exp(marginal(np.arange(403.0))) for marginal in marginals)
    rising, falling = (y + 2) * (y + 1), y * (y - 1)
    delta = f[2:] * rising - f[:-2] * falling

    def norm(h):
        return np.sqrt(np.sum(h * h * f[:-2]))

    constant = norm(delta**2) ** 0.5 / rho**2
    constant += (norm(falling**2) ** 0.5 + norm(rising**2) ** 0.5) / rho
    distance = norm((f - g)[:-2] ** 2) ** 0.5 + norm((f - g)[2:] ** 2) ** 0.5
    remainder = norm(delta / f[:-2] * np.maximum(1 - f[:-2] / rho, 0))
    estimate = theory.poisson_moment(y, 2.0, marginals[1], 2, rho=rho)
    expected = {
        "error": norm(estimate - f[2:] * rising / f[:-2] / 4),
        "bound": (constant * distance + remainder) / 4,
        "constant": constant,
        "remainder": remainder,
        "distance": distance,
    }
    result = theory.poisson_bound(*marginals, 2.0, 2, rho=rho, highest=400)
    assert result == pytest.approx(expected, rel=1e-9)


def test_moments_from_the_marginal_are_posteriors_of_a_fit(small_fit, small_frame, small_items):
    """Robbins' formula on a fitted marginal, draw by draw, gives what conjugate updates give."""
    frame = small_frame.iloc[:300]
    columns = {c: frame[c].to_numpy(dtype=float) for c in ("score", "count", "exposure")}
    posterior = posterior_of(small_fit)

    def log_pmf(y):
        return posterior.log_density(columns | {"count": y})  # (draws, items)

    mean, square = (
        theory.poisson_moment(columns["count"], columns["exposure"], log_pmf, k).mean(axis=0)
        for k in (1, 2)
    )
    options = {"quantiles": (), "draws": "all", "progress": False}
    scored = soc.item_posteriors(small_fit, small_items, **options).iloc[:300]
    np.testing.assert_allclose(mean, scored["theta_mean"], rtol=1e-8)
    np.testing.assert_allclose(square - mean**2, scored["theta_var"], rtol=1e-8)


PARTS = [(0.5, 0.0, 0.3), (0.3, 2.0, 1.0), (0.2, -1.5, 0.1)]  # weight, mean, variance


def mixture(y, noise=1.0):
    """Returns the log marginal of a prior of three Normals."""
    each = [np.log(w) + stats.norm.logpdf(y, m, np.sqrt(v + noise**2)) for w, m, v in PARTS]
    return special.logsumexp(each, axis=0)


def derivatives_of_mixture(y, order=2, reach=1.0):
    """Returns derivatives of its logarithm, by Chebyshev interpolation around every value."""
    nodes = chebyshev.chebpts1(25)
    values = np.stack([mixture(y + reach * node) for node in nodes])
    series = np.linalg.solve(chebyshev.chebvander(nodes, 24), values - values[12])
    each = [chebyshev.chebval(0.0, chebyshev.chebder(series, k)) for k in range(1, order + 1)]
    return np.stack(each)


@pytest.mark.parametrize("noise", [1e-3, 30.0])
@pytest.mark.parametrize("ratio", [1e-3, 1.0, 1e4])  # of the prior's variance to the noise's
def test_normal_posterior(noise, ratio):
    variance, centre = ratio * noise**2, 3.0 * noise
    y = centre + noise * np.sqrt(1 + ratio) * np.linspace(-6, 6, 25)
    marginal = np.zeros((3, len(y)))
    marginal[0] = -(y - centre) / (variance + noise**2)
    marginal[1] = -1 / (variance + noise**2)
    mean, posterior_variance, third = theory.tweedie(y, noise, marginal)
    shrink = ratio / (1 + ratio)
    expected = centre + shrink * (y - centre)
    np.testing.assert_allclose(mean, expected, rtol=0, atol=1e-10 * np.abs(y).max())
    np.testing.assert_allclose(posterior_variance, shrink * noise**2, rtol=1e-10)
    np.testing.assert_array_equal(third, 0.0)


def test_gamma_outcomes():
    """Rates Gamma(b, c) of times Gamma(a, rate): posterior Gamma(a + b, y + c), four orders."""
    y, a, b, c = np.geomspace(1, 1e3, 20), 2.5, 3.2, 4.0
    k = np.arange(1, 5)[:, None]
    factorial = (-1.0) ** (k - 1) * special.gamma(k)
    marginal = factorial * ((a - 1) / y**k - (a + b) / (y + c) ** k)
    base = factorial * (a - 1) / y**k
    # the natural parameter is minus the rate
    expected = (-1.0) ** k * special.gamma(k) * (a + b) / (y + c) ** k
    np.testing.assert_allclose(theory.nef_cumulants(base, marginal), expected, rtol=1e-9)
    without_rho = theory.nef_cumulants(base, marginal, log_density=np.zeros(20), rho=0.0)
    np.testing.assert_allclose(without_rho, expected, rtol=1e-8)


def test_a_mixture_without_its_prior():
    """Against sums over a fine grid of theta; the derivatives are numerical."""
    y, theta = np.linspace(-4, 6, 21), np.linspace(-12, 14, 20_001)
    prior = sum(w * stats.norm.pdf(theta, m, np.sqrt(v)) for w, m, v in PARTS)
    weight = prior * stats.norm.pdf(y[:, None], theta, 1.0)
    weight /= weight.sum(axis=1, keepdims=True)
    mean = weight @ theta
    central = [(weight * (theta - mean[:, None]) ** j).sum(axis=1) for j in (2, 3)]
    cumulants = theory.tweedie(y, 1.0, derivatives_of_mixture(y, 3))
    for cumulant, expected, tolerance in zip(
        cumulants, (mean, *central), (1e-10, 1e-9, 1e-7), strict=True
    ):
        np.testing.assert_allclose(cumulant, expected, rtol=0, atol=tolerance)


def test_regularised_cumulants_in_the_far_tail():
    """As the marginal falls below rho: y itself, with the variance of the noise."""
    y = np.array([0.0, 4.0, 40.0])
    marginal = derivatives_of_mixture(y)
    regularised = theory.tweedie(y, 1.0, marginal, log_density=mixture(y), rho=1e-3)
    plain = theory.tweedie(y, 1.0, marginal)
    np.testing.assert_allclose(regularised[:, :2], plain[:, :2], rtol=1e-9)
    np.testing.assert_allclose(regularised[:, 2], [40.0, 1.0], rtol=1e-9)
    assert plain[0, 2] < 25


def test_s1_has_its_moments():
    """200,000 items: tolerances are 3 standard errors or more, of variances in fifths 6%."""
    frame = soc.simulation.s1(200_000, seed=1)
    ratio = frame["theta"] / frame["true_mean"]
    assert abs(ratio.mean() - 1) < 0.01
    fifth = pd.qcut(frame["score"], 5, labels=False)
    variance, cv2 = ratio.groupby(fifth).var(), frame["true_cv2"].groupby(fifth).mean()
    np.testing.assert_allclose(variance, cv2, rtol=0.06)
    expected = frame["theta"] * frame["exposure"]
    residual = (frame["count"] - expected) / np.sqrt(expected)
    assert abs(residual.mean()) < 0.01
    assert abs(residual.var() - 1) < 0.05
    assert frame["exposure"].min() >= 1
    curves = s1_curves(frame["score"])
    np.testing.assert_allclose(np.exp(curves), [frame["true_mean"], frame["true_cv2"]])


def test_click_rates_are_lognormal_around_the_score():
    frame = soc.simulation.click_rates(200_000, delta=0.2, sigma=0.4, seed=1)
    off = np.log(frame["theta"] / frame["score"])
    assert abs(off.mean() - 0.2) < 0.004
    assert abs(off.std() - 0.4) < 0.003
    assert abs((frame["theta"] / frame["true_mean"]).mean() - 1) < 0.005
    assert abs((frame["theta"] / frame["true_mean"]).var() / frame["true_cv2"].iloc[0] - 1) < 0.05


def test_lognormal_oracle_is_calibrated():
    """Error over variance is 1: 200,000 items, standard error .01; another delta is worse.

    Rates are lognormal around the scores, and without exposure the posterior is the prior.
    """
    rng = np.random.default_rng(0)
    score, size = rng.gamma(2.0, 0.02, 200_000), np.ceil(rng.lognormal(3.0, 1.5, 200_000))
    frame = soc.simulation.lognormal_rates(score, size, 0.5, 0.5, seed=1)
    off = np.log(frame["theta"] / frame["score"])
    assert off.mean() == pytest.approx(0.5, abs=0.004)
    assert off.std() == pytest.approx(0.5, abs=0.003)
    mean, variance = lognormal_oracle(score, frame["count"], size, 0.5, 0.5)
    error = (mean - frame["theta"]) ** 2
    assert (error / variance).mean() == pytest.approx(1.0, abs=0.03)
    wrong, _ = lognormal_oracle(score, frame["count"], size, 0.3, 0.5)
    assert ((wrong - frame["theta"]) ** 2).mean() > 1.02 * error.mean()
    mean, variance = lognormal_oracle([0.1], [0], [0], 0.2, 0.7)
    assert mean[0] == pytest.approx(0.1 * np.exp(0.2 + 0.245), rel=1e-12)
    assert variance[0] == pytest.approx(mean[0] ** 2 * np.expm1(0.49), rel=1e-12)


def test_laplace_effects_and_their_oracle():
    """100,000 items: standardised squared errors average 1 in every fifth of t (se .013)."""
    frame = soc.simulation.laplace_effects(100_000, seed=3)
    noise = frame["value"] - frame["theta"]
    assert noise.var() == pytest.approx(1.0, abs=0.02)
    off = frame["theta"] - frame["score"]
    assert off.mean() == pytest.approx(0.0, abs=0.02)
    assert off.var() == pytest.approx(2.0002, abs=0.06)
    mean, variance = laplace_oracle(frame)
    error = frame["theta"] - mean
    fifth = pd.qcut(frame["score"], 5, labels=False)
    squared = (error**2 / variance).groupby(fifth).mean()
    np.testing.assert_allclose(squared, 1.0, atol=0.05)
    np.testing.assert_allclose((error / np.sqrt(variance)).groupby(fifth).mean(), 0, atol=0.03)


def test_scores_never_saw_their_own_values():
    """With few items a regression that saw them would be closer to y than to new values."""
    frames = [soc.simulation.laplace_effects(40, seed=seed) for seed in range(200)]
    squared = np.mean([((frame["value"] - frame["score"]) ** 2).mean() for frame in frames])
    # 1 + 2.0002 + the coefficients' own variance, 11 * 3 / (32 - 12) by the Wishart's inverse
    assert squared == pytest.approx(3.0 * (1 + 11 / 20), rel=0.06)


def test_seeds():
    for simulate in (soc.simulation.s1, soc.simulation.click_rates, soc.simulation.laplace_effects):
        pd.testing.assert_frame_equal(simulate(50, seed=3), simulate(50, seed=3))
        assert not simulate(50, seed=3).equals(simulate(50, seed=4))


def test_batters_are_those_of_efron_and_morris():
    """Their transformed sums: S = 18.96, shrinkage .791, squared errors 17.56 and 5.01.

    Averages are printed to three digits, so hits may be off by 0.02; later hits are whole numbers.
    """
    frame = soc.datasets.batters()
    assert len(frame) == frame["player"].nunique() == 18
    rates = frame["hits"] / frame["at_bats"], frame["later_average"]
    x, truth = (np.sqrt(45) * np.arcsin(2 * rate - 1) for rate in rates)
    spread = ((x - x.mean()) ** 2).sum()
    assert spread == pytest.approx(18.96, abs=5e-3)
    shrunk = x.mean() + (1 - 15 / spread) * (x - x.mean())
    errors = [((estimate - truth) ** 2).sum() for estimate in (x, shrunk)]
    assert errors == pytest.approx([17.56, 5.01], abs=0.02)
    hits = (frame["later_average"] * frame["later_at_bats"]).round()
    assert ((hits / frame["later_at_bats"] - frame["later_average"]).abs() <= 5e-4).all()
