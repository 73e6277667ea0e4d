"""Outcomes under any prior of theta: thinning, residuals, calibration, contrasts."""

import numpy as np
import pytest
from scipy import optimize, special

from soc_pymc.evaluate import calibration_line
from soc_pymc.families import OUTCOMES


@pytest.fixture(params=OUTCOMES)
def kind(request):
    return request.param


def made_items(kind, n, spread=0.5):
    """Scores, outcomes and sizes of items."""
    rng = np.random.default_rng(0)
    deviation = spread * rng.standard_normal(n)
    if kind == "normal":
        score, size = rng.normal(0.0, 1.5, n), np.exp(rng.normal(-0.5, 0.5, n))
        return score, rng.normal(score + deviation, size), size
    if kind == "poisson":
        score, size = rng.lognormal(-2.0, 0.5, n), rng.lognormal(3.0, 1.0, n)
        theta = score * np.exp(deviation - spread**2 / 2)
        return score, rng.poisson(theta * size).astype(float), size
    if kind == "amount":
        score, size = rng.lognormal(1.0, 0.5, n), np.ceil(rng.lognormal(1.0, 1.0, n))
        theta = score * np.exp(deviation - spread**2 / 2)
        return score, theta * rng.standard_gamma(size), size
    score, trials = rng.uniform(0.1, 0.9, n), rng.integers(1, 60, n)
    theta = special.expit(special.logit(score) + deviation)
    return score, rng.binomial(trials, theta).astype(float), trials.astype(float)


def test_log_likelihood_at_the_ends():
    """Theta that cannot be, or makes the outcome certain."""
    y, n = np.array([0.0, 2.0, 1.0]), np.full(3, 2.0)
    binomial = OUTCOMES["binomial"].log_likelihood(y, n, np.array([0.0, 1.0, 1.5]))
    np.testing.assert_array_equal(binomial, [0.0, 0.0, -np.inf])
    poisson = OUTCOMES["poisson"].log_likelihood(y[:2], n[:2], np.array([0.0, 0.0]))
    np.testing.assert_array_equal(poisson, [0.0, -np.inf])


def test_line_has_the_highest_likelihood(kind):
    """In the logarithm, the logit, or the score itself."""
    score, y, size = made_items(kind, 3000, spread=0.3)
    value, slope = calibration_line(OUTCOMES[kind], score, y, size)
    scale = OUTCOMES[kind].theta
    x = scale.position(score)

    def loss(line):
        theta = scale.score(line[0] + line[1] * (x - x.mean()))
        return -OUTCOMES[kind].log_likelihood(y, size, theta).sum()

    best = optimize.minimize(loss, [-1.0, 1.0], method="Nelder-Mead", options={"fatol": 1e-9})
    assert value.sum() == pytest.approx(-best.fun, abs=1e-3)
    assert slope == pytest.approx(best.x[1], abs=1e-3)


def test_scores_that_read_as_theta_and_pooled_estimates(kind):
    score, y, size = made_items(kind, 2000)
    outcome, ones = OUTCOMES[kind], np.ones(2000)
    assert outcome.reads_theta(score, y, size) == outcome.positive
    assert not outcome.reads_theta(score + 10.0, y, size)
    assert not outcome.reads_theta(score / 100.0, y, size)
    estimate, error = outcome.pooled_estimates(y, size, ones, np.zeros(2000, int))
    if kind == "normal":
        assert estimate[0] == pytest.approx(y.mean())
        assert error[0] == pytest.approx(np.sqrt((size**2).sum()) / 2000)
    else:
        rate = y.sum() / size.sum()
        share = {"binomial": 1.0 - rate, "amount": rate}.get(kind, 1.0)
        assert estimate[0] == pytest.approx(rate)
        assert error[0] == pytest.approx(np.sqrt(rate * share / size.sum()))
