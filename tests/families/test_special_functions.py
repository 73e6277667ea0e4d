"""Special functions of the package against mpmath."""

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from soc_pymc.families import kernels
from soc_pymc.families import special_functions as functions

SHAPES = (1e-3, 0.5, 7.3, 100.0, 1e4, 3e5, 1e8, 1e12)


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(40):
        yield


POINTS = {  # with relative errors of 1e-12, or absolute ones where they pass through 0
    "stirling": ((1e-6, 0.3, 2.0, 7.99, 8.0, 33.0, 1e4, 1e12), 1e-12),
    "polygammas": ((1e-8, 0.03, 1.0, 9.99, 10.0, 300.0, 1e12), 0.0),
}
REFERENCES = {
    "stirling": lambda x: mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - mp.log(2 * mp.pi) / 2,
    "polygammas": lambda x: [mp.psi(order, x) for order in range(3)],
}


@pytest.mark.parametrize("function", POINTS)
def test_functions_of_one_number(function):
    points, absolute = POINTS[function]
    for x in points:
        reference = np.array(REFERENCES[function](mp.mpf(x)), dtype=float)
        result = (
            functions.stirling(np.array([x])) if function == "stirling" else kernels.polygammas(x)
        )
        assert np.ravel(result) == pytest.approx(reference.ravel(), rel=1e-12, abs=absolute), x


def test_divergence():
    """As accurate as its arguments: a last digit of x changes it by 1e-16 of the gap."""
    gaps = (-0.9, -0.3, -1e-3, 1e-9, 0.1, 0.3, 5.0, 1e9)
    for x, y in ((3.0, 40.0), (1e6, 7.0), (1e-3, 1e-5), (1e12, 1e20)):
        for gap in [0.99 * y, *(x * share for share in gaps)]:
            if gap < y:
                mean_x, mean_y = mp.mpf(x) + mp.mpf(gap), mp.mpf(y) - mp.mpf(gap)
                of_x, of_y = x * mp.log(x / mean_x), y * mp.log(y / mean_y)
                result = functions.divergence(x, y, gap, float(mean_x), float(mean_y))
                allowed = 5e-16 * float(abs(of_x) + abs(of_y))  # both about the gap
                assert float(result - of_x - of_y) == pytest.approx(0.0, abs=allowed)
    assert functions.divergence(0.0, 4.0, 1.0, 1.0, 3.0) == pytest.approx(4.0 * np.log(4 / 3))


def random_laws(seed, number):
    """Numbers of successes and trials, and parameters of Betas, of all sizes."""
    rng = np.random.default_rng(seed)
    trials = np.floor(10.0 ** rng.uniform(0.0, 9.0, number))
    successes = np.floor(rng.beta(0.3, 0.3, number) * (trials + 1.0))
    a, b = 10.0 ** rng.uniform(-3.0, 8.0, (2, number))
    return np.minimum(successes, trials), trials, a, b


def test_log_probabilities_of_all_sizes():
    """Absolute errors are those of rounding the numbers that they are made of."""
    y, n, a, b = random_laws(0, 300)
    expected = y * np.random.default_rng(1).gamma(3.0, 0.3, len(y))
    of_counts = functions.log_negative_binomial(y, a, expected)
    of_successes = functions.log_beta_binomial(y, n, a, b)
    for k, numbers in enumerate(zip(y, n, a, b, expected, strict=True)):
        of_count, trials, shape, other, mean = map(mp.mpf, numbers)
        rise = mp.loggamma(shape + of_count) - mp.loggamma(shape) - mp.loggamma(of_count + 1)
        log = rise - shape * mp.log1p(mean / shape)
        log += of_count * mp.log(mean / (shape + mean)) if mean else 0
        away = float(abs(mean - of_count) / (1 + mean / shape) + abs(log))
        assert float(of_counts[k] - log) == pytest.approx(0.0, abs=1e-14 + 3e-15 * away)
        rest = trials - of_count
        log = mp.loggamma(trials + 1) - mp.loggamma(of_count + 1) - mp.loggamma(rest + 1)
        log += mp.log(mp.beta(shape + of_count, other + rest)) - mp.log(mp.beta(shape, other))
        away = float(abs(of_count * other - rest * shape) / (shape + other) + abs(log))
        assert float(of_successes[k] - log) == pytest.approx(0.0, abs=1e-14 + 3e-15 * away)


def test_log_probabilities_of_nothing():
    of_counts = functions.log_negative_binomial([0.0, 0.0, 3.0], 2.0, [0.0, 4.0, 0.0])
    assert of_counts == pytest.approx([0.0, -2.0 * np.log(3.0), -np.inf])
    of_successes = functions.log_beta_binomial(0.0, [0.0, 1.0], 1.0, 3.0)
    assert of_successes == pytest.approx([0.0, np.log(0.75)])


def test_compiled_loops_give_the_same_bits():
    """Results do not depend on whether there was so much work that loops were compiled."""
    y, n, a, b = random_laws(2, 3000)
    a, b = np.minimum(a, 1e5), np.minimum(b, 1e5)
    theta = np.clip(np.random.default_rng(3).beta(a, b), 1e-300, 1.0 - 1e-16)
    low = np.maximum(y - 700.0, 0.0)
    density = functions.log_beta_binomial(y, n, a, b)
    for loop, arrays in (
        (functions._beta_fraction, (theta, 1.0 - theta, a, b)),
        (functions._stirling_sums, (a,)),
        (functions._tail_sums, (y, low, np.exp(density - density.max()), n, a, b)),
    ):
        with np.errstate(all="ignore"):
            plain, compiled = (f(*map(np.copy, arrays)) for f in (loop.function, loop.kernel))
        np.testing.assert_array_equal(plain, compiled)


@pytest.mark.parametrize("shape", SHAPES)
def test_kernels(shape):
    """Densities of log theta and logit theta, to the rounding of their arguments: 8 sds."""
    for z in (-6.0, -0.5, 0.3, 8.0):
        x = shape * np.exp(z / np.sqrt(max(shape, 4.0)))
        reference = mp.exp(shape * mp.log(x) - mp.mpf(x) - mp.loggamma(mp.mpf(shape) + 1))
        slack = 1e-11 + 1e-15 * abs(shape - x)
        result = np.exp(functions.log_negative_binomial(shape, 1e100, x))
        assert result == pytest.approx(float(reference), rel=slack)
        for other in (0.5, 40.0, 1e9):
            a, b = mp.mpf(shape), mp.mpf(other)
            theta = special.expit(
                np.log(shape / other) + z * min(np.sqrt(1 / shape + 1 / other), 2)
            )
            rest = float(1 - mp.mpf(theta))
            log = a * mp.log(theta) + b * mp.log1p(-mp.mpf(theta))
            reference = mp.exp(log + mp.loggamma(a + b) - mp.loggamma(a) - mp.loggamma(b))
            if reference > 1e-290:
                result = float(functions.beta_kernel(theta, rest, shape, other))
                assert result == pytest.approx(float(reference), rel=1e-9)


@pytest.mark.parametrize(("end", "tolerance"), [(200.0, 1e-12), (700.0, 1e-7)])
def test_the_exponential_of_weights(end, tolerance):
    x = -np.linspace(0.0, end, 1001)
    values = [kernels._exponential(number) for number in x]
    assert values == pytest.approx(np.exp(x), rel=tolerance, abs=0.0)
