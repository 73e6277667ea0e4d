"""Predictive distributions of a further outcome given an item's own, on fits made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from soc_pymc.families.priors import Gamma, Spline
from soc_pymc.posterior import curves as shared
from soc_pymc.posterior.curves import curve_draws
from soc_pymc.posterior.predictive import posterior_of
from tests.posterior import test_predictive_normal
from tests.posterior import test_quadrature as test_nodes


def counts(sd, n):
    """A fit, items, and further counts drawn from the first draw's posterior."""
    fit, rng = test_nodes.make_fit(sd), np.random.default_rng(1)
    frame = test_nodes.frame_of(n, np.exp(rng.normal(np.log(0.05), 0.8, n)))
    columns = {name: frame[name].to_numpy(dtype=float) for name in frame}
    size = np.ceil(np.exp(rng.normal(2.0, 2.0, n)))
    shape, rate = updated(fit, columns)
    further = rng.poisson(rng.gamma(shape[0]) / rate[0] * size).astype(float)
    return fit, columns, further, size


def updated(fit, columns, curves=curve_draws):
    """Shape and rate of theta's posterior under every draw."""
    log_mean, log_cv2 = curves(fit, columns["score"])
    return np.exp(-log_cv2) + columns["count"], np.exp(-log_cv2 - log_mean) + columns["exposure"]


@pytest.mark.parametrize("sd", [0.01, 0.05, 0.1])
@pytest.mark.slow
def test_counts_against_all_draws(sd):
    """Nodes are used for most items, and all are within 1e-4 of the average over all draws."""
    fit, columns, further, size = counts(sd, 1500)
    shape, rate = updated(fit, columns)
    exact = stats.nbinom(shape, rate / (rate + size))
    below, upto = posterior_of(fit).further_cdf_interval(columns, further, size)
    np.testing.assert_allclose(below, exact.cdf(further - 1).mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(upto, exact.cdf(further).mean(axis=0), atol=1e-4)


def test_counts_with_a_term_in_exposure(monkeypatch):
    """Each item's training exposure changes its prior; that of the further count does not."""
    plain, columns, further, size = counts(0.05, 300)

    def curves(fit, score, *, group=None, exposure=None):
        log_mean, log_cv2 = curve_draws(plain, score)
        return log_mean + 0.3 * np.log1p(exposure), log_cv2 - 0.2 * np.log1p(exposure)

    monkeypatch.setattr(shared, "curve_draws", curves)
    monkeypatch.setattr("soc_pymc.posterior.quadrature.curve_draws", curves)
    fit = replace(plain, prior=Gamma(exposure=Spline()))
    shape, rate = updated(
        fit, columns, lambda fit, score: curves(fit, score, exposure=columns["exposure"])
    )
    exact = stats.nbinom(shape, rate / (rate + size)).cdf(further).mean(axis=0)
    _, upto = posterior_of(fit).further_cdf_interval(columns, further, size)
    np.testing.assert_allclose(upto, exact, atol=1e-4)


def test_counts_against_simulation():
    """One item: theta from its posterior under a random draw, 100,000 times; 4 standard errors."""
    fit, columns, _, _ = counts(0.05, 40)
    at = int(np.argmax(columns["count"]))
    one = {name: values[at : at + 1] for name, values in columns.items()}
    shape, rate = (x[:, 0] for x in updated(fit, one))
    rng, n = np.random.default_rng(0), 100_000
    draw = rng.integers(len(shape), size=n)
    drawn = rng.poisson(rng.gamma(shape[draw]) / rate[draw] * 200.0)
    y = float(np.median(drawn))
    below, upto = posterior_of(fit).further_cdf_interval(one, np.array([y]), np.array([200.0]))
    error = 4 * 0.5 / np.sqrt(n)
    assert below[0] == pytest.approx((drawn < y).mean(), abs=error)
    assert upto[0] == pytest.approx((drawn <= y).mean(), abs=error)


def test_without_an_own_outcome_it_is_the_marginal():
    """Without own events and exposure it is the distribution of a first count."""
    fit, columns, further, size = counts(0.05, 200)
    law, none = posterior_of(fit), np.zeros(200)
    found = law.further_cdf_interval({**columns, "count": none, "exposure": none}, further, size)
    ends = law.cdf_interval({**columns, "count": further, "exposure": size})
    np.testing.assert_allclose(found, ends, atol=2e-4)  # nine nodes on one side at least


@pytest.mark.parametrize("sd", [0.05, 0.2])
def test_values_against_all_draws(sd):
    fit = test_predictive_normal.make_fit(sd)
    frame = test_predictive_normal.simulate(1000, 5, fit)
    columns = test_predictive_normal.columns_of(frame)
    mean, spread = test_predictive_normal.components(fit, columns)
    rng = np.random.default_rng(2)
    size = np.exp(rng.normal(-1.0, 0.7, 1000))
    further = rng.normal(mean[0], np.hypot(spread[0], size))
    exact = stats.norm.cdf(further, mean, np.hypot(spread, size)).mean(axis=0)
    below, upto = posterior_of(fit).further_cdf_interval(columns, further, size)
    np.testing.assert_array_equal(below, upto)
    np.testing.assert_allclose(upto, exact, atol=1e-4)
