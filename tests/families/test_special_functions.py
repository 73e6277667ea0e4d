"""Compiled special functions, and those of SciPy that families use, against mpmath."""

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from soc_pymc.families import special_functions as functions
from tests import exact
from tests.examples import thinned

SHAPES = (1e-3, 0.5, 7.3, 100.0, 1e4, 3e5, 1e8, 1e12)
FEW = thinned(SHAPES, (1e-3, 7.3, 1e12))


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(40):
        yield


POINTS = {  # with relative errors of 1e-12, or absolute ones where they pass through 0
    "log1pmx": ((-0.9, -0.3, -0.2999, -1e-3, 1e-9, 0.1, 0.2999, 0.3, 5.0, 1e9), 0.0),
    "stirling": ((1e-6, 0.3, 2.0, 15.9, 16.0, 33.0, 1e4, 1e12), 1e-12),
    "polygammas": ((1e-8, 0.03, 1.0, 9.99, 10.0, 300.0, 1e12), 0.0),
}
REFERENCES = {
    "log1pmx": lambda x: mp.log1p(x) - x,
    "stirling": lambda x: mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - mp.log(2 * mp.pi) / 2,
    "polygammas": lambda x: [mp.psi(order, x) for order in range(3)],
}


@pytest.mark.parametrize("function", POINTS)
def test_functions_of_one_number(function):
    points, absolute = POINTS[function]
    for x in points:
        reference = np.array(REFERENCES[function](mp.mpf(x)), dtype=float)
        result = np.array(getattr(functions, function)(x))
        assert result == pytest.approx(reference, rel=1e-12, abs=absolute), x


def test_deviance():
    for x, mean in ((3.0, 3.1), (1e6, 1e6 + 1.0), (5.0, 1e-8), (1e-3, 40.0)):
        reference = mp.mpf(x) * mp.log(mp.mpf(x) / mp.mpf(mean)) + mp.mpf(mean) - mp.mpf(x)
        assert functions.deviance(x, mean - x, mean) == pytest.approx(float(reference), rel=1e-12)


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


@pytest.mark.parametrize("shape", FEW)
def test_scipys_incomplete_gamma(shape):
    """Relative 1e-13 within 4.4 sds; farther out large shapes are to 2e-9 of 1.

    SciPy's expansion for large shapes ends at 4.5 sds, and its series beyond do not converge.
    """
    for z in (-6.0, -4.4, -0.5, 0.3, 4.4, 8.0):
        far = shape + z * np.sqrt(shape)
        x = far if shape >= 100.0 else shape * np.exp(z / np.sqrt(max(shape, 4.0)))
        tails = exact.theta_tails("Gamma", x, shape, 1.0)
        below, above = float(tails["below"]), float(tails["above"])
        results = float(special.gammainc(shape, x)), float(special.gammaincc(shape, x))
        if abs(z) < 4.5 or shape <= 1e4:
            assert results == pytest.approx((below, above), rel=1e-13)
            inverse = (
                special.gammaincinv(shape, below)
                if below < 0.5
                else special.gammainccinv(shape, above)
            )
            assert below < 1e-290 or inverse == pytest.approx(x, rel=1e-12)
        assert results == pytest.approx((below, above), rel=1e-13, abs=2e-9)


@pytest.mark.parametrize("a", FEW)
def test_scipys_incomplete_beta(a):
    """Relative 2e-8; inverses to 1e-3 sd at shapes of 1e12, 2e-6 up to 1e9."""
    for b in (0.5, 100.0, 1e9, 1e12):
        sd = np.sqrt(1.0 / a + 1.0 / b)
        for z in (-4.4, 0.3, 3.0):
            theta = special.expit(np.log(a / b) + z * min(sd, 1.0))
            if not 1e-280 < theta < 1.0 - 1e-9:
                continue
            tails = exact.theta_tails("Beta", theta, a, b)
            below, above = float(tails["below"]), float(tails["above"])
            results = float(special.betainc(a, b, theta)), float(special.betaincc(a, b, theta))
            assert results == pytest.approx((below, above), rel=2e-8)
            if 1e-12 < below < 1.0 - 1e-6:
                away = special.logit(special.betaincinv(a, b, below)) - special.logit(theta)
                assert abs(away) < (1e-3 if min(a, b) > 1e9 else 2e-6) * sd
