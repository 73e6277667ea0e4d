"""Outcomes under any prior of theta: thinning, residuals, calibration, contrasts."""

import numpy as np
import pytest
from scipy import optimize, special

from soc_pymc.families.outcomes import OUTCOMES


@pytest.fixture(params=OUTCOMES)
def kind(request):
    return request.param


def drawn(rng, kind, theta, size):
    """Outcomes given theta."""
    if kind == "normal":
        return rng.normal(theta, size)
    if kind == "poisson":
        return rng.poisson(theta * size).astype(float)
    return rng.binomial(size.astype(int), theta).astype(float)


def made_items(kind, n=20_000, spread=0.5):
    """A generator, and scores, theta, outcomes and sizes of items."""
    rng = np.random.default_rng(0)
    deviation = spread * rng.standard_normal(n)
    if kind == "normal":
        score, size = rng.normal(0.0, 1.5, n), np.exp(rng.normal(-0.5, 0.5, n))
        theta = score + deviation
    elif kind == "poisson":
        score, size = rng.lognormal(-2.0, 0.5, n), rng.lognormal(3.0, 1.0, n)
        theta = score * np.exp(deviation - spread**2 / 2)
    else:
        score, size = rng.uniform(0.1, 0.9, n), rng.integers(1, 60, n).astype(float)
        theta = special.expit(special.logit(score) + deviation)
    return rng, score, theta, drawn(rng, kind, theta, size), size


def residuals(kind, y, size, theta):
    """Outcomes less their means given theta, and the variances of their noise."""
    if kind == "normal":
        return y - theta, size**2
    noise = size * theta * (1.0 - theta if kind == "binomial" else 1.0)
    return y - size * theta, noise


def test_thinning_leaves_independent_parts(kind):
    """The parts make the whole, each has its own noise, and given theta they are uncorrelated."""
    rng, _, theta, y, size = made_items(kind)
    forms = OUTCOMES[kind].forms
    held = forms.thinned(y, size, 0.3, rng)
    training = forms.remainder(y, size, held, 0.3)
    if kind == "normal":
        precision = [part[1] ** -2.0 for part in (held, training)]
        np.testing.assert_allclose(sum(precision), size**-2.0)
        combined = sum(w * part[0] for w, part in zip(precision, (held, training), strict=True))
        np.testing.assert_allclose(combined * size**2, y, atol=1e-12 * np.abs(y).max())
    else:
        np.testing.assert_allclose(held[0] + training[0], y)
        np.testing.assert_allclose(held[1] + training[1], size)
        assert (training[0] >= 0).all()
    residual_parts = []
    for part, share in ((held, 0.3), (training, 0.7)):
        residual, noise = residuals(kind, *part, theta)
        residual_parts.append(residual)
        assert (residual**2).sum() / noise.sum() == pytest.approx(1.0, abs=0.05)
        if kind == "normal":
            np.testing.assert_allclose(part[1] ** -2.0, share * size**-2.0)
        else:
            assert part[1].sum() / size.sum() == pytest.approx(share, abs=0.01)
    assert abs(np.corrcoef(*residual_parts)[0, 1]) < 4 / np.sqrt(len(y))


def test_log_likelihood_at_the_ends():
    """Theta that cannot be, or makes the outcome certain."""
    y, n = np.array([0.0, 2.0, 1.0]), np.full(3, 2.0)
    binomial = OUTCOMES["binomial"].forms.log_likelihood(y, n, np.array([0.0, 1.0, 1.5]))
    np.testing.assert_array_equal(binomial, [0.0, 0.0, -np.inf])
    poisson = OUTCOMES["poisson"].forms.log_likelihood(y[:2], n[:2], np.array([0.0, 0.0]))
    np.testing.assert_array_equal(poisson, [0.0, -np.inf])


@pytest.mark.parametrize("spread", [0.0, 0.6])
def test_excess_is_what_noise_does_not_make(kind, spread):
    """Of groups with one mean: without spread the excess is noise of the stated variance."""
    rng, *_, sizes = made_items(kind, 300 * 40)
    z = []
    for size in sizes.reshape(300, 40):
        deviation = spread * rng.standard_normal(40)
        means = {"poisson": 0.1 * np.exp(deviation), "normal": 3.0 + deviation}
        y = drawn(rng, kind, means.get(kind, special.expit(deviation - 0.5)), size)
        w = size**2
        sums = {"n": 40, "sum_N": size.sum(), "sum_N2": size @ size, "sum_y": y.sum()}
        sums |= {"sum_yN": y @ size, "sum_y2": y @ y, "sum_w": w.sum(), "sum_w2": w @ w}
        groups = {name: np.array([float(value)]) for name, value in sums.items()}
        part = {"above": np.array([1.0])}
        known, excess, variance, noise = OUTCOMES[kind].forms.excess(groups, part)
        assert known.all()
        assert noise[0] > 0
        z.append(excess[0] / np.sqrt(variance[0]))
    if spread:
        assert np.mean(z) > 1.5
    else:
        assert abs(np.mean(z)) < 0.25
        assert 0.75 < np.std(z) < 1.25


def test_line_has_the_highest_likelihood(kind):
    """In the logarithm, the logit, or the score itself."""
    _, score, _, y, size = made_items(kind, 3000, spread=0.3)
    value, slope = OUTCOMES[kind].forms.line(score, y, size)
    x = {"poisson": np.log, "normal": np.asarray, "binomial": special.logit}[kind](score)

    def loss(line):
        location = line[0] + line[1] * (x - x.mean())
        if kind == "normal":
            return 0.5 * ((y - location) / size) @ ((y - location) / size)
        if kind == "poisson":
            return -(special.xlogy(y, size) + y * location - size * np.exp(location)).sum()
        return -(y * location - size * np.logaddexp(0.0, location)).sum()

    best = optimize.minimize(loss, [-1.0, 1.0], method="Nelder-Mead", options={"fatol": 1e-9})
    assert value.sum() == pytest.approx(-best.fun, abs=1e-3)
    assert slope == pytest.approx(best.x[1], abs=1e-3)


def test_regressor_predicts_weighted_rates(kind):
    """Where theta is the score."""
    _, score, _, y, size = made_items(kind, spread=0.0)
    forms = OUTCOMES[kind].forms
    x = {"poisson": np.log, "normal": np.asarray, "binomial": special.logit}[kind](score)[:, None]
    weight, total = forms.weighted(y, size)
    model = forms.regressor(1e-9)
    model.fit(x, total / weight, sample_weight=weight)
    assert np.quantile(np.abs(model.predict(x) - score), 0.99) < 0.15 * score.std()


def test_contrast_is_even_where_nothing_leaked(kind):
    rng, _, theta, y, size = made_items(kind)
    fresh_size = rng.permutation(size)
    fresh = drawn(rng, kind, theta, fresh_size)
    residual, weight = OUTCOMES[kind].forms.contrast(y, size, fresh, fresh_size)
    known = weight > 0
    assert abs(residual.sum()) < 1e-6
    assert (residual[known] ** 2).sum() / weight[known].sum() == pytest.approx(1.0, abs=0.05)


def test_scores_that_read_as_theta_and_pooled_estimates(kind):
    _, score, _, y, size = made_items(kind, 2000)
    outcome, ones = OUTCOMES[kind], np.ones(2000)
    assert outcome.reads_theta(score, y, size, ones)
    assert not outcome.reads_theta(score + 10.0, y, size, ones)
    assert not outcome.reads_theta(score / 100.0, y, size, ones)
    estimate, error = outcome.pooled(y, size, ones, np.zeros(2000, int))
    if kind == "normal":
        assert estimate[0] == pytest.approx(y.mean())
        assert error[0] == pytest.approx(np.sqrt((size**2).sum()) / 2000)
    else:
        rate = y.sum() / size.sum()
        share = 1.0 - rate if kind == "binomial" else 1.0
        assert estimate[0] == pytest.approx(rate)
        assert error[0] == pytest.approx(np.sqrt(rate * share / size.sum()))
