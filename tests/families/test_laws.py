"""Laws of conjugate families, each against SciPy, quadrature or direct sums.

Limits, where SciPy has no digits, are in test_limits.py.
"""

import numpy as np
import pytest
from scipy import optimize, special, stats

from tests.family_records import RECORDS

PROBS = np.array([0.001, 0.05, 0.3, 0.5, 0.9, 0.999])
CASES = [
    pytest.param(record, prior, id=f"{name}{prior}")
    for name, record in RECORDS.items()
    for prior in record.priors
]


def by_normal_scores(law):
    """Values of theta and weights: the trapezoid rule over Normal scores of its probability."""
    z = np.linspace(-9.0, 9.0, 2001)
    theta = np.where(z > 0, law.isf(special.ndtr(-z)), law.ppf(special.ndtr(z)))
    return theta, stats.norm.pdf(z) * (z[1] - z[0])


# --- theta ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("record", "prior"), CASES)
def test_moments_and_quantiles_are_those_of_the_law(record, prior):
    family, law = record.family, record.theta(*prior)
    mean, variance, skewness = law.stats("mvs")
    assert family.mean(*prior) == pytest.approx(mean, rel=1e-12)
    assert family.variance(*prior) == pytest.approx(variance, rel=1e-12)
    third = skewness * variance**1.5
    assert family.third_moment(*prior) == pytest.approx(third, rel=1e-10, abs=1e-14)
    quantiles = family.summaries(None, *np.reshape(prior, (2, 1, 1)), PROBS)[3:, 0]
    # the search ends where its error is about 1e-6 of a logit
    np.testing.assert_allclose(quantiles, law.ppf(PROBS), atol=1e-5 * np.sqrt(variance))


@pytest.mark.parametrize(("record", "prior"), CASES)
def test_tails_and_partial_expectations_are_integrals(record, prior):
    """At cuts within the law, to the step of a sum; and beyond what theta can be."""
    family, law = record.family, record.theta(*prior)
    cuts = law.ppf(PROBS)
    a, b = (np.full(len(cuts), x) for x in prior)
    np.testing.assert_allclose(family.above(cuts, a, b), law.sf(cuts), rtol=1e-9)
    excess, shortfall = family.excess(cuts, a, b), family.shortfall(cuts, a, b)
    theta, weight = by_normal_scores(law)
    distance = theta - cuts[:, None]
    np.testing.assert_allclose(excess, np.maximum(distance, 0.0) @ weight, rtol=1e-4)
    np.testing.assert_allclose(shortfall, np.maximum(-distance, 0.0) @ weight, rtol=1e-4)
    np.testing.assert_allclose(excess - shortfall, law.mean() - cuts, rtol=1e-9, atol=1e-12)
    outside = [end for end in (-0.5, 1.5) if not 0.0 < law.cdf(end) < 1.0]
    for cut in outside:
        beyond = np.array([cut]), a[:1], b[:1]
        assert family.above(*beyond)[0] == pytest.approx(law.sf(cut), abs=1e-12)
        assert family.excess(*beyond)[0] == pytest.approx(max(law.mean() - cut, 0.0), abs=1e-12)
        assert family.shortfall(*beyond)[0] == pytest.approx(max(cut - law.mean(), 0.0), abs=1e-12)


DRAWN = [
    *((name, prior) for name, record in RECORDS.items() for prior in record.priors[:1]),
    ("Gamma", (1e-3, 7.0)),  # half of the draws are below 1e-300
    ("Beta", (0.02, 5.0)),
    ("Beta", (4.0, 1e-3)),
    ("Beta", (1e9, 2.0)),
]


@pytest.mark.parametrize(("name", "prior"), DRAWN)
def test_draws_follow_the_law(name, prior):
    """P(theta > draw) is uniform, also where draws are below all numbers; and it is the tail."""
    family = RECORDS[name].family
    a, b = (np.full((20, 1000), x) for x in prior)
    drawn = family.draw(a, b, tuple(np.random.default_rng(0).spawn(2)))
    assert np.isfinite(drawn).all()
    share = np.asarray(family.above_place(drawn, a, b))
    assert stats.kstest(share.ravel(), "uniform").pvalue > 1e-3
    theta = family.natural(drawn)
    inside = (np.abs(theta) > 1e-290) & (np.abs(1.0 - theta) > 1e-6)
    np.testing.assert_allclose(
        share[inside], family.above(theta[inside], a[inside], b[inside]), atol=1e-8
    )


def test_curves_and_parameters_invert_each_other(record):
    """Over all magnitudes; and both describe the mean and the variance of theta."""
    family = record.family
    a, b = record.least + np.geomspace(1e-3, 1e12, 31), np.geomspace(1e12, 1e-3, 11)[:, None]
    for parameter, again in zip((a, b), family.to_parameters(*family.to_curves(a, b)), strict=True):
        np.testing.assert_allclose(again, np.broadcast_to(parameter, again.shape), rtol=1e-11)
    for prior in record.priors:
        curves = family.to_curves(*(np.array([x]) for x in prior))
        moments = family.natural_moments(curves[0], np.exp(curves[1]))
        variables = family.curve_variables(*curves)
        for result, exact, name in zip(
            moments, record.theta(*prior).stats("mv"), ("mean", "variance"), strict=True
        ):
            assert result == pytest.approx(exact, rel=1e-10)
            assert variables[name] == pytest.approx(exact, rel=1e-10)
        assert np.exp(variables["log_variance"]) == pytest.approx(moments[1], rel=1e-10)
    assert family.natural_moments(0.3, 0.0)[1] == 0


WIDENED = [
    (name, curves) for name in RECORDS for curves in ((-1.0, -2.0), (0.7, 0.5), (-4.0, -1.0))
]


@pytest.mark.parametrize(("name", "curves"), WIDENED)
def test_a_spread_of_the_mean_is_averaged(name, curves):
    """Moments over a Normal spread of the first curve, to second order in its variance 0.01."""
    family, spread = RECORDS[name].family, 0.01
    node, weight = np.polynomial.hermite_e.hermegauss(15)
    weight = weight / weight.sum()
    means, variances = family.natural_moments(
        curves[0] + np.sqrt(spread) * node, np.full(15, np.exp(curves[1]))
    )
    mean = weight @ means
    variance = weight @ (variances + (means - mean) ** 2)
    first, second = family.widened(*curves, spread)
    result = family.natural_moments(first, np.exp(second))
    assert result[0] == pytest.approx(mean, rel=2e-4)
    assert result[1] == pytest.approx(variance, rel=2e-3)
    assert np.ravel(family.widened(*map(np.array, curves), 0.0)) == pytest.approx(curves)


# --- outcomes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("record", "prior"), CASES)
def test_updates_are_conjugate(record, prior):
    """Log posterior less log prior less log likelihood does not depend on theta."""
    theta = record.theta(*prior).ppf(np.linspace(0.05, 0.95, 9))
    for size in record.sizes:
        for y in np.unique(record.marginal(*prior, size).ppf([0.02, 0.5, 0.98])):
            posterior = record.theta(*record.family.update(*prior, y, size))
            likelihood = record.family.outcome.log_likelihood(y, size, theta)
            outcomes = record.outcome(theta, size)
            known = outcomes.logpmf(y) if record.family.outcome.whole else outcomes.logpdf(y)
            np.testing.assert_allclose(likelihood, known, rtol=1e-9, atol=1e-9)
            constant = posterior.logpdf(theta) - record.theta(*prior).logpdf(theta) - likelihood
            assert np.ptp(constant) < 1e-9 * (1.0 + np.abs(likelihood).max())


def test_an_outcome_without_noise_determines_theta(record):
    for prior in record.priors:
        law = record.theta(*prior)
        for theta in law.ppf([0.05, 0.5, 0.95]):
            after = record.family.update(*prior, *record.certain(theta))
            assert record.family.mean(*after) == pytest.approx(theta, abs=1e-5 * law.std())
            assert record.family.variance(*after) < 1e-8 * law.var()


@pytest.mark.parametrize(("record", "prior"), CASES)
def test_marginals_have_their_density_and_their_ends(record, prior):
    """SciPy's, and the average of the likelihood over theta; P(Y < y) and P(Y <= y)."""
    family, law = record.family, record.theta(*prior)
    curves, (theta, weight) = family.to_curves(*prior), by_normal_scores(law)
    for size in record.sizes:
        marginal = record.marginal(*prior, size)
        y = np.unique(marginal.ppf([1e-3, 0.1, 0.5, 0.9, 0.999]))
        log = family.log_density(y, size, *curves)
        known = marginal.logpmf(y) if family.outcome.whole else marginal.logpdf(y)
        np.testing.assert_allclose(log, known, rtol=1e-9, atol=1e-9)
        below, upto = family.cdf_interval(
            y, np.full(len(y), size), *(np.full((1, len(y)), curve) for curve in curves)
        )
        np.testing.assert_allclose(upto[0], marginal.cdf(y), rtol=1e-8, atol=1e-12)
        before = marginal.cdf(y - 1.0) if family.outcome.whole else marginal.cdf(y)
        np.testing.assert_allclose(below[0], before, rtol=1e-8, atol=1e-12)
        likelihood = np.exp([family.outcome.log_likelihood(value, size, theta) for value in y])
        np.testing.assert_allclose(likelihood @ weight, np.exp(log), rtol=1e-5)


@pytest.mark.parametrize(("record", "prior"), CASES)
def test_posterior_moments_average_to_the_prior(record, prior):
    """E E(theta | y) is the prior's mean; E Var + Var E its variance, over all outcomes."""
    family, law = record.family, record.theta(*prior)
    for size in record.sizes:
        y, weight = record.outcomes(*prior, size)
        probability = weight * np.exp(family.log_density(y, size, *family.to_curves(*prior)))
        assert probability.sum() == pytest.approx(1.0, abs=1e-9)
        after = family.update(*prior, y, size)
        means = family.mean(*after)
        assert probability @ means == pytest.approx(law.mean(), abs=1e-8 * law.std())
        total_variance = probability @ (family.variance(*after) + (means - law.mean()) ** 2)
        assert total_variance == pytest.approx(law.var(), rel=1e-7)


def test_units_and_sides_change_only_the_units(record):
    family = record.family
    for prior in record.priors:
        for size in record.sizes:
            for y in np.unique(record.marginal(*prior, size).ppf([0.05, 0.5, 0.95])):
                *moved, other_y, other_size = record.moved(*prior, y, size)
                log = family.log_density(y, size, *family.to_curves(*prior))
                moved_log = family.log_density(other_y, other_size, *family.to_curves(*moved))
                assert moved_log + np.log(record.unit) == pytest.approx(log, abs=1e-8)
                after = family.update(*prior, y, size)
                moved_after = family.update(*moved, other_y, other_size)
                mean = record.shift + record.factor * family.mean(*after)
                assert family.mean(*moved_after) == pytest.approx(mean, rel=1e-10, abs=1e-12)
                variance = record.factor**2 * family.variance(*after)
                assert family.variance(*moved_after) == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize("at", [0, 1])
def test_simulated_outcomes_follow_the_marginal(record, at):
    prior, size = record.priors[0], record.sizes[at]
    parameters = [np.full(20_000, x) for x in prior]
    sizes = np.full(20_000, size)
    y = record.family.simulate(*parameters, sizes, np.random.default_rng(4))
    marginal = record.marginal(*prior, size)
    if not record.family.outcome.whole:
        assert stats.kstest(y, marginal.cdf).pvalue > 1e-3
        return
    assert (y == np.floor(y)).all()
    most = int(marginal.ppf(0.999))
    seen = np.bincount(np.minimum(y, most).astype(int), minlength=most + 1)
    expected = np.append(marginal.pmf(np.arange(most)), marginal.sf(most - 1)) * len(y)
    assert stats.chisquare(seen, expected).pvalue > 1e-3


def test_small_rates_of_trials_are_those_of_counts():
    """At rates of 1e-7 a Beta is a Gamma with the same log mean and log cv2."""
    gamma, beta = (RECORDS[name].family for name in ("Gamma", "Beta"))
    rng = np.random.default_rng(2)
    n = np.array([1e6, 1e7, 2e7, 3e7, 5e6])
    y = np.array([0.0, 1.0, 5.0, 0.0, 2.0])
    curves = rng.normal(np.log(1e-7), 0.2, (40, 5)), rng.normal(-1.0, 0.2, (40, 5))
    counts, trials = (
        f.summaries(None, *f.update(*f.to_parameters(*curves), y, n), (0.05, 0.5, 0.95))
        for f in (gamma, beta)
    )
    np.testing.assert_allclose(trials, counts, rtol=2e-5)
    for name in ("log_density", "cdf_interval"):
        counts, trials = (np.array(getattr(f, name)(y, n, *curves)) for f in (gamma, beta))
        np.testing.assert_allclose(trials, counts, rtol=1e-4, atol=2e-5)
    counts, trials = (np.array(f.widened(*curves, 0.3)) for f in (gamma, beta))
    np.testing.assert_allclose(trials, counts, atol=1e-5)


# --- items over draws of the curves --------------------------------------------------------------


ITEMS = {  # outcomes and sizes
    "Gamma": ([0.0, 1.0, 40.0, 7.0], [0.5, 2.0, 40.0, 30.0]),
    "Normal": ([0.2, -3.0, 5.0, 0.0], [0.7, 5.0, 60.0, 3000.0]),
    "Beta": ([0.0, 1.0, 40.0, 7.0], [0.0, 1.0, 40.0, 5000.0]),
    "InverseGamma": ([0.0, 1.0, 40.0, 7.0], [0.0, 1.0, 40.0, 30.0]),
}


@pytest.mark.parametrize("draws", [1, 4, 60])
@pytest.mark.parametrize("sd", [0.05, 0.7, 3.0])
def test_summaries_are_those_of_the_mixture_over_draws(record, draws, sd):
    """Moments by sums, quantiles to 1e-4 sd by the cdf, also where draws and data disagree."""
    family, rng = record.family, np.random.default_rng(0)
    y, size = (np.array(column) for column in ITEMS[family.name])
    first = rng.normal(-0.8, sd, (draws, len(y)))
    second = rng.normal(-1.5, 0.3 * sd, (draws, len(y)))
    weight = rng.dirichlet(np.full(draws, 5.0))
    a, b = family.update(*family.to_parameters(first, second), y, size)
    law = record.theta(a, b)
    means, variances = law.stats("mv")
    result = family.summaries(weight[:, None], a, b, PROBS)
    mean = weight @ means
    np.testing.assert_allclose(result[0], mean, rtol=1e-10)
    variance = weight @ (variances + (means - mean) ** 2)
    np.testing.assert_allclose(result[2], variance, rtol=1e-8)
    for prob, quantiles in zip(PROBS, result[3:], strict=True):
        low, high = law.ppf(prob).min(axis=0), law.ppf(prob).max(axis=0)
        for i, quantile in enumerate(quantiles):
            mixed = record.theta(a[:, i], b[:, i])
            exact = low[i]
            if high[i] > low[i]:
                exact = optimize.brentq(
                    lambda x, mixed=mixed, prob=prob: weight @ mixed.cdf(x) - prob, low[i], high[i]
                )
            assert abs(quantile - exact) < 1e-4 * np.sqrt(variance[i])
