"""Theorem 1 for Poisson counts, with its constants, on worked cases."""

from itertools import product

import numpy as np
import pytest
from scipy import special, stats

import soc_pymc as soc
from soc_pymc import theory
from soc_pymc.families import poisson_gamma


def gamma(mean, cv2):
    return lambda exposure: lambda y: poisson_gamma.log_pmf(y, exposure, np.log(mean), np.log(cv2))


def points(*pairs):
    """Prior of point masses (weight, theta)."""
    return lambda exposure: (
        lambda y: special.logsumexp(
            [np.log(w) + stats.poisson.logpmf(y, exposure * theta) for w, theta in pairs], axis=0
        )
    )


PRIORS = {
    "gamma": gamma(1.0, 0.5),
    "narrow": gamma(1.2, 0.05),
    "wide": gamma(0.8, 2.0),
    "points": points((0.5, 0.5), (0.5, 1.5)),
    "point": points((1.0, 1.0)),
    "rare": points((1.0, 0.02)),
}
PAIRS = [(a, b) for a, b in product(PRIORS, PRIORS)]


def bound(true, estimate, exposure, order, rho, highest=400):
    given = PRIORS[true](exposure), PRIORS[estimate](exposure)
    return theory.poisson_bound(*given, exposure, order, rho=rho, highest=highest)


@pytest.mark.parametrize("exposure", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("order", [1, 2])
def test_bound_holds(order, exposure):
    for (true, estimate), rho in product(PAIRS, (1e-4, 1e-2, 0.1, 0.5)):
        found = bound(true, estimate, exposure, order, rho)
        assert found.error <= found.bound * (1 + 1e-9), (true, estimate, rho)


def test_parts_are_those_of_the_lemma():
    """Norms by sums written out, with N = 2 and k = 2."""
    found = bound("gamma", "wide", 2.0, 2, 0.01)
    y = np.arange(401.0)
    f, g = (np.exp(PRIORS[name](2.0)(np.arange(403.0))) for name in ("gamma", "wide"))
    delta = f[2:] * (y + 2) * (y + 1) - f[:-2] * y * (y - 1)

    def norm(h):
        return np.sqrt(np.sum(h * h * f[:-2]))

    constant = norm(delta**2) ** 0.5 / 0.01**2
    constant += (norm((y * (y - 1)) ** 2) ** 0.5 + norm(((y + 2) * (y + 1)) ** 2) ** 0.5) / 0.01
    distance = norm((f - g)[:-2] ** 2) ** 0.5 + norm((f - g)[2:] ** 2) ** 0.5
    remainder = norm(delta / f[:-2] * np.maximum(1 - f[:-2] / 0.01, 0))
    assert found.constant == pytest.approx(constant, rel=1e-9)
    assert found.distance == pytest.approx(distance, rel=1e-9)
    assert found.remainder == pytest.approx(remainder, rel=1e-9)
    assert found.bound == pytest.approx((constant * distance + remainder) / 4, rel=1e-9)
    estimate = theory.regularised_poisson_moment(y, 2.0, PRIORS["wide"](2.0), 2, rho=0.01)
    exact = f[2:] * (y + 2) * (y + 1) / f[:-2] / 4
    assert found.error == pytest.approx(norm(estimate - exact), rel=1e-9)


def test_true_marginal_leaves_the_remainder_alone():
    """Both sides are equal there: with D smaller by anything the bound would fail."""
    for order, rho in product((1, 2), (1e-4, 1e-2, 0.3)):
        found = bound("gamma", "gamma", 3.0, order, rho)
        assert found.distance == 0
        assert found.error == pytest.approx(found.remainder / 3.0**order, rel=1e-9)
        assert found.error > 0


def test_remainder_vanishes_with_rho():
    """As printed, with f(rho) in place of f(y), it would not: f(rho) = 0 off the whole numbers."""
    for order in (1, 2):
        left = [bound("gamma", "gamma", 3.0, order, rho).remainder for rho in 10.0 ** -np.arange(9)]
        assert (np.diff(left) < 0).all()
        assert left[-1] < 0.01 * left[0]
        y = np.arange(400.0)
        f = PRIORS["gamma"](3.0)
        delta = 3.0**order * (
            theory.poisson_moment(y, 3.0, f, order) - theory.poisson_umvu(y, 3.0, order)
        )
        printed = np.sqrt(np.sum(delta**2 * np.exp(f(y))))  # whatever rho is
        assert printed > 0.3 * left[0]


def test_bound_shrinks_with_the_error_of_the_marginal():
    """Slope 1 of the error and of the bound's first part, where rho leaves D below both."""
    sizes, true = np.geomspace(0.05, 1e-3, 5), PRIORS["gamma"](2.0)
    found = [
        theory.poisson_bound(true, gamma(1.0 + d, 0.5)(2.0), 2.0, 1, rho=1e-12, highest=400)
        for d in sizes
    ]
    assert found[0].remainder < 1e-4
    for values in ([f.error for f in found], [f.constant * f.distance for f in found]):
        slope = np.polyfit(np.log(sizes), np.log(values), 1)[0]
        assert 0.95 < slope < 1.05


def test_bound_is_not_vacuous():
    """Rare events: nearly half of it is reached, and C without its last term is too small."""
    true, other = points((1.0, 1e-4))(1.0), points((1.0, 0.2))(1.0)
    found = theory.poisson_bound(true, other, 1.0, 1, rho=0.8, highest=60)
    assert 0.4 * found.bound < found.error < found.bound
    y = np.arange(61.0)
    last = np.sum((y + 1) ** 4 * np.exp(true(y))) ** 0.25 / 0.8
    without = (found.constant - last) * found.distance + found.remainder
    assert found.error > 3 * without


def test_division_by_rho_is_needed():
    """A marginal that is nearly 0 where counts are: C without its division by rho is too small."""
    true, other = points((1.0, 1e-4))(8.0), points((1.0, 1.0))(8.0)
    found = theory.poisson_bound(true, other, 8.0, 2, rho=1e-3, highest=100)
    assert found.error < found.bound
    assert found.error * 64 > 5 * (1e-3 * found.constant * found.distance + found.remainder)


def test_what_is_refused():
    with pytest.raises(soc.FitError, match="rho=0 must be above 0"):
        bound("gamma", "wide", 1.0, 1, 0)
    with pytest.raises(soc.FitError, match=r"counts to 3 have probability 0\.9"):
        bound("gamma", "wide", 1.0, 1, 0.1, highest=3)
