"""What holds of successes whatever the prior: thinning, residuals, calibration, contrasts."""

import numpy as np
import pytest
from scipy import special, stats

from soc_pymc.families.binomial import BINOMIAL_FORMS
from soc_pymc.families.outcomes import OUTCOMES

BINOMIAL = OUTCOMES["binomial"]


def _items(n=20_000, seed=0, most=60, spread=0.0):
    rng = np.random.default_rng(seed)
    score = rng.uniform(0.1, 0.9, n)
    theta = special.expit(special.logit(score) + spread * rng.standard_normal(n))
    trials = rng.integers(1, most, n)
    return rng, score, theta, rng.binomial(trials, theta).astype(float), trials.astype(float)


def test_thinning_leaves_independent_parts():
    rng, _, theta, y, n = _items()
    held = BINOMIAL_FORMS.thinned(y, n, 0.3, rng)
    rest = BINOMIAL_FORMS.remainder(y, n, held, 0.3)
    np.testing.assert_array_equal(held[0] + rest[0], y)
    np.testing.assert_array_equal(held[1] + rest[1], n)
    assert (held[0] <= held[1]).all()
    assert (rest[0] <= rest[1]).all()
    away = [part[0] - part[1] * theta for part in (held, rest)]
    assert abs(np.corrcoef(*away)[0, 1]) < 4 / np.sqrt(len(y))
    chi2 = (away[0] ** 2).sum() / (held[1] * theta * (1 - theta)).sum()
    assert chi2 == pytest.approx(1.0, abs=0.05)


def test_log_likelihood():
    _, _, theta, y, n = _items(500)
    want = stats.binom.logpmf(y, n, theta)
    np.testing.assert_allclose(BINOMIAL_FORMS.log_likelihood(y, n, theta), want, atol=1e-9)
    ends = BINOMIAL_FORMS.log_likelihood(
        np.array([0.0, 2.0, 1.0]), np.full(3, 2.0), np.array([0, 1, 1.5])
    )
    np.testing.assert_array_equal(ends, [0.0, 0.0, -np.inf])


@pytest.mark.parametrize("spread", [0.0, 0.6])
def test_excess_is_what_noise_does_not_make(spread):
    """Without spread the excess is noise of the stated variance; with it far more."""
    rng = np.random.default_rng(1)
    z = []
    for seed in range(300):
        theta = special.expit(-0.5 + spread * rng.standard_normal(40))
        n = rng.integers(1, 30, 40).astype(float)
        y = rng.binomial(n.astype(int), theta).astype(float)
        sums = {"n": 40, "sum_N": n.sum(), "sum_N2": n @ n, "sum_y": y.sum()}
        sums |= {"sum_yN": y @ n, "sum_y2": y @ y, "seed": seed}
        groups = {k: np.array([float(v)]) for k, v in sums.items()}
        _, excess, variance, noise = BINOMIAL_FORMS.excess(groups, None)
        assert noise[0] > 0
        z.append(excess[0] / np.sqrt(variance[0]))
    if spread:
        assert np.mean(z) > 2
    else:
        assert abs(np.mean(z)) < 0.25
        assert 0.75 < np.std(z) < 1.25


def test_line_is_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    _, score, _, y, n = _items(3000, spread=0.3)
    value, slope = BINOMIAL_FORMS.line(score, y, n)
    x = special.logit(score)[:, None]
    model = LogisticRegression(C=1e12, tol=1e-10, max_iter=1000)
    model.fit(np.vstack([x, x]), np.repeat([1, 0], 3000), sample_weight=np.append(y, n - y))
    assert slope == pytest.approx(model.coef_[0, 0], rel=1e-4)
    mean = model.predict_proba(x)[:, 1]
    want = special.xlogy(y, mean) + special.xlog1py(n - y, -mean)
    assert value.sum() == pytest.approx(want.sum(), rel=1e-8)


def test_regressor_predicts_weighted_rates():
    _, score, _, y, n = _items(3000)
    model = BINOMIAL_FORMS.regressor(1e-9)
    model.fit(special.logit(score)[:, None], y / n, n)
    np.testing.assert_allclose(model.predict(special.logit(score)[:, None]), score, atol=0.02)


def test_contrast_is_even_where_nothing_leaked():
    rng, _, theta, y, n = _items(spread=0.5)
    fresh = rng.integers(1, 40, len(n)).astype(float)
    fresh_y = rng.binomial(fresh.astype(int), theta).astype(float)
    away, weight = BINOMIAL_FORMS.contrast(y, n, fresh_y, fresh)
    known = weight > 0
    assert abs(away.sum()) < 1e-6
    assert (away[known] ** 2).sum() / weight[known].sum() == pytest.approx(1.0, abs=0.05)


def test_scores_that_are_probabilities():
    _, score, _, y, n = _items(2000)
    ones = np.ones(len(n))
    assert BINOMIAL.reads_theta(score, y, n, ones)
    assert not BINOMIAL.reads_theta(score + 1, y, n, ones)
    assert not BINOMIAL.reads_theta(score / 10, y, n, ones)
    rate, error = BINOMIAL.pooled(y, n, ones, np.zeros(len(n), int))
    assert rate[0] == pytest.approx(y.sum() / n.sum())
    assert error[0] == pytest.approx(np.sqrt(rate[0] * (1 - rate[0]) / n.sum()))
