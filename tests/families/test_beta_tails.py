"""Tails of Beta(a, b) and expectations beyond a cut against mpmath, and how fast they are."""

import time
from itertools import product

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from soc_pymc.families import beta_tails, binomial_beta
from soc_pymc.families.family import BETA, GAMMA
from tests.thinning import thinned

LARGE = 700.0  # smaller parameter from which on the reference is an integral
EVERY = [1e-3, 0.05, 0.7, 1.0, 3.5, 40.0, 700.0, 1999.0, 2001.0, 3e4, 1e6, 1e8]
FEW = [1e-3, 1.0, 40.0, 2001.0, 1e8]
SCORES = (-30.0, -9.0, -4.0, -1.3, 0.0, 0.4, 1.3, 4.0, 9.0, 30.0)


def _bell(a, b, x, y):
    return mp.exp(a * mp.log(x) + b * mp.log(y) - mp.loggamma(a) - mp.loggamma(b)) * mp.exp(
        mp.loggamma(a + b)
    )


def _below(a, b, x, y):
    """P(theta <= x) by a series of positive terms; None where it is too long."""
    term, total = mp.mpf(1), mp.mpf(0)
    for k in range(20_000):
        total += term
        ratio = x * (a + b + k) / (a + 1 + k)
        if ratio < 1 and term * ratio < total * mp.mpf(10) ** -45 * (1 - ratio):
            return _bell(a, b, x, y) / a * total
        term *= ratio
    return None


def _above(a, b, x, y):
    """P(theta > x) by the integral over the logit, for x above the mean."""
    sd = 1 / mp.sqrt((a + b) * x * y)
    width = sd / max(1, ((a + b) * x - a) * sd)
    with mp.workdps(30):
        ends = [k * width for k in (0, 1, 3, 8, 16, 40, 100)]
        ratio = mp.quad(lambda s: mp.exp(a * s - (a + b) * mp.log1p(x * mp.expm1(s))), ends)
    return _bell(a, b, x, y) * ratio


def _exact(a, b, x):
    """Both tails, exactly; None where no reference is short."""
    a, b, x = mp.mpf(a), mp.mpf(b), mp.mpf(x)
    if min(a, b) >= LARGE:
        if x < a / (a + b):
            below = _above(b, a, 1 - x, x)
            return below, 1 - below
        above = _above(a, b, x, 1 - x)
        return 1 - above, above
    if x < 0.5:
        below = _below(a, b, x, 1 - x)
        return None if below is None else (below, 1 - below)
    above = _below(b, a, 1 - x, x)
    return None if above is None else (1 - above, above)


@pytest.mark.parametrize(("a", "b"), thinned(list(product(EVERY, EVERY)), list(product(FEW, FEW))))
def test_tails(a, b):
    """Relative errors of both tails, down to 1e-290."""
    for z in SCORES:
        x = float(special.expit(np.log(a / b) + z * np.sqrt(1 / a + 1 / b)))
        if not 1e-280 < x < 1:
            continue
        with mp.workdps(50):
            exact = _exact(a, b, x)
        found = beta_tails.beta_lower(x, a, b), beta_tails.beta_upper(x, a, b)
        # a series less 1 has no more digits than mpmath
        for one, want in zip(found, exact or (), strict=bool(exact)):
            if want > 1e-30 or (want > 1e-290 and min(a, b) >= LARGE):
                assert abs(float(float(one) / want - 1)) < 1e-10, z


def test_ends():
    for a, b in ((1e-3, 1e-3), (0.5, 3.0), (1e8, 1e5)):
        assert beta_tails.beta_lower(0.0, a, b) == beta_tails.beta_upper(1.0, a, b) == 0
        assert beta_tails.beta_lower(1.0, a, b) == beta_tails.beta_upper(0.0, a, b) == 1
        assert binomial_beta.excess(1.0, a, b) == binomial_beta.shortfall(0.0, a, b) == 0
        assert binomial_beta.excess(0.0, a, b) == pytest.approx(a / (a + b))


@pytest.mark.parametrize(("a", "b"), [(0.3, 2.0), (40.0, 700.0), (3e4, 2500.0)])
def test_expectations_beyond_a_cut(a, b):
    """E[(theta - c)+] = mean P(theta' > c) - c P(theta > c), theta' ~ Beta(a + 1, b)."""
    mean = a / (a + b)
    with mp.workdps(50):
        for z in (-6.0, -1.0, 0.0, 1.0, 6.0, 20.0):
            cut = float(special.expit(np.log(a / b) + z * np.sqrt(1 / a + 1 / b)))
            if not cut < 1.0:
                continue
            (below, above), (tilted_below, tilted_above) = (_exact(k, b, cut) for k in (a, a + 1))
            share = mp.mpf(a) / (mp.mpf(a) + b)
            over = float(share * tilted_above - cut * above)
            short = float(cut * below - share * tilted_below)
            assert binomial_beta.excess(cut, a, b) == pytest.approx(over, rel=1e-9)
            assert binomial_beta.shortfall(cut, a, b) == pytest.approx(short, rel=1e-9)
            assert over - short == pytest.approx(mean - cut)


def test_speed():
    """Not far from a Gamma's: with SciPy's functions a tail took 42 times as long."""
    rng = np.random.default_rng(0)
    y, n = rng.integers(0, 100, 200) * 1.0, rng.integers(100, 2000, 200) * 1.0
    first, second = rng.normal(-2.5, 0.1, (400, 200)), rng.normal(-1.0, 0.1, (400, 200))

    def seconds(family):
        a, b = family.update(*family.to_parameters(first, second), y, n)
        best = []
        for work in (
            lambda: family.above(0.1, a, b),
            lambda: family.excess(0.1, a, b),
            lambda: family.log_density(y, n, first, second),
        ):
            work()  # compiles
            spent = []
            for _ in range(3):
                began = time.process_time()
                work()
                spent.append(time.process_time() - began)
            best.append(min(spent))
        return np.array(best)

    assert (seconds(BETA) < 6.0 * seconds(GAMMA)).all()  # 2, 1 and 3 times on an idle machine
