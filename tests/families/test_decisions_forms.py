"""Tails, partial expectations and draws behind decisions, against mpmath and direct sums."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from soc_pymc.families.family import GAMMA, NORMAL
from soc_pymc.families.further import expected_variance
from soc_pymc.posterior.predictive import ThetaMixture

mp.mp.dps = 50
SHAPES = [1e-3, 0.3, 2.0, 30.0, 1e4, 1e9]


def gamma_moments(shape, x):
    """P(X > x), E(X - x)+ and E(x - X)+ of Gamma(shape, 1), by quadrature where mpmath is slow."""
    a, x = mp.mpf(shape), mp.mpf(x)
    if shape <= 100:
        upper = mp.gammainc(a, x, mp.inf, regularized=True)
        lower = mp.gammainc(a, 0, x, regularized=True)
        more = mp.gammainc(a + 1, x, mp.inf, regularized=True)
        less = mp.gammainc(a + 1, 0, x, regularized=True)
        return upper, a * more - x * upper, x * lower - a * less
    root = mp.sqrt(a)
    at = (x - a) / root
    log_norm = mp.loggamma(a) - (a * mp.log(a) - a)

    def density(t):
        return mp.exp(a * mp.log1p(t / root) - t * root - log_norm) / (1 + t / root) / root

    step = [at + s for s in (0, 0.05, 0.2, 0.5, 1, 2, 4, 8, 16, 40)]
    low = [at - s for s in (40, 16, 8, 4, 2, 1, 0.5, 0.2, 0.05, 0)]
    low = [t for t in low if t > -root]
    return (
        mp.quad(density, step),
        root * mp.quad(lambda t: (t - at) * density(t), step),
        root * mp.quad(lambda t: (at - t) * density(t), low),
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("z", [-6.0, -2.0, -0.3, 0.0, 0.4, 3.0, 10.0])
@pytest.mark.slow
def test_gamma_forms_are_sound_in_the_limits(shape, z):
    """Relative error 1e-9: what is left is how the tails depend on rounding of shape and x."""
    x = shape + z * np.sqrt(shape)
    if x <= 0:
        x = shape * 10.0 ** (2.0 * z)  # far below the mean of small shapes
    rate = 250.0
    expected = gamma_moments(shape, x)
    cut = x / rate
    found = (
        GAMMA.above(cut, np.array([shape]), rate)[0],
        GAMMA.excess(cut, np.array([shape]), rate)[0] * rate,
        GAMMA.shortfall(cut, np.array([shape]), rate)[0] * rate,
    )
    for number, exact in zip(found, expected, strict=True):
        if exact > 1e-290:
            assert abs(number / float(exact) - 1.0) < 1e-9


@pytest.mark.parametrize("z", [-30.0, -8.0, -1.0, 0.0, 0.5, 6.0, 30.0])
def test_normal_forms_are_sound_in_the_limits(z):
    mean, sd = 3.0, 0.25
    above = mp.ncdf(-mp.mpf(z))
    excess = sd * (mp.npdf(z) - z * above)
    cut = np.array([mean + z * sd])
    assert NORMAL.above(cut, mean, sd**2)[0] == pytest.approx(float(above), rel=1e-12)
    # phi(z) and z Phi(-z) agree in all but 1/z^2 of their digits
    assert NORMAL.excess(cut, mean, sd**2)[0] == pytest.approx(float(excess), rel=1e-11)
    other = NORMAL.shortfall(np.array([mean - z * sd]), mean, sd**2)[0]
    assert other == pytest.approx(float(excess), rel=1e-11)


SHAPE = st.floats(1e-2, 1e6)
CUT = st.floats(1e-3, 1e3)


@given(SHAPE, CUT, CUT, st.floats(1e-3, 1e3))
def test_laws_of_gamma_forms(shape, mean, cut, unit):
    """Both losses differ by the distance to the mean; only the ratio of cut and mean matters."""
    a, rate = np.array([shape]), shape / mean
    over, short = (f(cut, a, rate)[0] for f in (GAMMA.excess, GAMMA.shortfall))
    assert over - short == pytest.approx(mean - cut, rel=1e-9, abs=1e-9 * (mean + cut))
    assert GAMMA.above(cut, a, rate)[0] >= GAMMA.above(1.01 * cut, a, rate)[0]
    scaled = GAMMA.above(cut * unit, a, rate / unit)[0]
    # rounding of x is magnified by its density, at most sqrt(shape)
    assert scaled == pytest.approx(GAMMA.above(cut, a, rate)[0], abs=1e-12)
    assert GAMMA.above(-cut, a, rate)[0] == 1.0
    assert GAMMA.excess(-cut, a, rate)[0] == pytest.approx(mean + cut)
    assert GAMMA.shortfall(-cut, a, rate)[0] == 0.0


@pytest.mark.parametrize("shape", [1e-3, 0.5, 40.0])
def test_draws_of_gamma_do_not_underflow(shape):
    """Of Gamma(0.001) half are below 1e-300: their logarithms still follow the distribution."""
    rngs = tuple(np.random.default_rng(s) for s in (1, 2))
    first, rate = np.full((20, 1000), shape), np.full((20, 1000), 7.0)
    drawn = GAMMA.draw(first, rate, rngs)
    assert np.isfinite(drawn).all()
    upto = 1.0 - GAMMA.above_drawn(drawn, first, rate)
    assert stats.kstest(upto.ravel(), "uniform").pvalue > 1e-3
    ordinary = drawn[GAMMA.natural(drawn) > 1e-290]
    same = GAMMA.above(GAMMA.natural(ordinary), np.full(len(ordinary), shape), 7.0)
    assert same == pytest.approx(1.0 - upto[GAMMA.natural(drawn) > 1e-290], abs=1e-9)


def preposterior(theta, more, cut, family):
    """Expected posterior variance and value of the choice of the first item, by direct sums."""
    a, b = theta.first[:, :1], theta.second[:, :1]
    w = np.full(a.shape, 1.0 / len(a)) if theta.weight is None else theta.weight[:, :1]
    if family is GAMMA:
        y, step = np.arange(4000.0), 1.0
        p = stats.nbinom.pmf(y, a, b / (b + more))
        means, variances, now = (a + y) / (b + more), (a + y) / (b + more) ** 2, w.T @ (a / b)
    else:
        total = b + more**2
        y = np.linspace((a - 12 * total**0.5).min(), (a + 12 * total**0.5).max(), 40001)
        step = y[1] - y[0]
        p = stats.norm.pdf(y, a, np.sqrt(total))
        means = (a * more**2 + b * y) / total
        variances, now = np.broadcast_to(b * more**2 / total, means.shape), w.T @ a
    all_p = (w * p).sum(axis=0)
    mean = (w * p * means).sum(axis=0) / np.maximum(all_p, 1e-300)
    variance = (w * p * (variances + (means - mean) ** 2)).sum() * step
    value = (all_p * np.maximum(mean - cut, 0.0)).sum() * step - max(now.item() - cut, 0.0)
    return variance, value


@pytest.mark.parametrize("more", [3.0, 80.0, 2000.0])
@pytest.mark.parametrize("cut", [0.02, 0.05, 0.09, 0.3])
@pytest.mark.parametrize("weighted", [True, False])
def test_value_of_counts_against_sums(more, cut, weighted):
    shape = np.full((4, 1), 5.0)
    rate = np.array([[40.0], [90.0], [160.0], [400.0]])
    weight = np.array([[0.2], [0.5], [0.0], [0.3]]) if weighted else None
    theta = ThetaMixture(shape, rate, weight)
    variance, value = preposterior(theta, more, cut, GAMMA)
    found = GAMMA.further.value(theta, theta, np.array([more]), np.array([cut]))[0]
    assert found == pytest.approx(value, rel=1e-8, abs=1e-14)
    if weighted:
        after = expected_variance(GAMMA.further, theta, np.array([more]))[0]
        assert after == pytest.approx(variance, rel=1e-4)  # the grid of up to 256 counts


@pytest.mark.parametrize("more", [0.05, 0.7, 20.0])
@pytest.mark.parametrize("cut", [-1.0, 0.4, 0.6, 3.0])
@pytest.mark.parametrize("weighted", [True, False])
def test_value_of_values_against_sums(more, cut, weighted):
    mean = np.array([[-0.5], [0.3], [0.9], [2.0]])
    variance = np.full((4, 1), 0.09)
    weight = np.array([[0.2], [0.5], [0.0], [0.3]]) if weighted else None
    theta = ThetaMixture(mean, variance, weight)
    expected, value = preposterior(theta, more, cut, NORMAL)
    found = NORMAL.further.value(theta, theta, np.array([more]), np.array([cut]))[0]
    assert found == pytest.approx(value, abs=1e-6)  # the sum's step at the kink
    if weighted:
        after = expected_variance(NORMAL.further, theta, np.array([more]))[0]
        assert after == pytest.approx(expected, rel=1e-4)


def test_large_counts_have_a_grid_that_holds_them():
    """One component, of which the expected variance is a / (b (b + m)), at counts up to 1e6."""
    theta = ThetaMixture(np.array([[9.0, 900.0]]), np.array([[0.3, 0.03]]), np.ones((1, 2)))
    more = np.array([3000.0, 30.0])
    found = expected_variance(GAMMA.further, theta, more)
    a, b = theta.first[0], theta.second[0]
    assert found == pytest.approx(a / (b * (b + more)), rel=1e-4)


def test_value_of_one_gamma_is_the_textbook_sum():
    a, b, m, c = 3.0, 50.0, 40.0, 0.07
    y = np.arange(500)
    p = stats.nbinom.pmf(y, a, b / (b + m))
    expected = (p * np.maximum((a + y) / (b + m) - c, 0)).sum() - max(a / b - c, 0.0)
    theta = ThetaMixture(np.array([[a]]), np.array([[b]]))
    found = GAMMA.further.value(theta, theta, np.array([m]), np.array([c]))
    assert found == pytest.approx([expected], rel=1e-10)
