"""The likelihood of bins of successes in trials: value and slopes against the items, exactly."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from soc_pymc.families.binomial_beta import a_b, log_pmf, to_curves, widened
from soc_pymc.families.binomial_rows import BetaRows, make_beta_rows
from soc_pymc.families.surrogates import make_surrogates
from tests import exact, exact_beta

CASES = {
    "small": ([0, 1, 2, 5, 31, 0, 3], [1, 2, 5, 30, 31, 7, 4]),
    "no successes": ([0, 0, 0, 0], [1, 3, 20, 1_000_000]),
    "no failures": ([1, 3, 20, 1_000_000], [1, 3, 20, 1_000_000]),
    "no trials": ([0, 0, 2], [0, 0, 9]),
    "labels": ([0, 1, 1, 0, 1], [1] * 5),
    "wide": ([32, 33, 60, 1000, 999_000, 12], [40, 1000, 64, 10_000, 1_000_000, 1_000_000]),
}
SIDES = [1e-3, 0.3, 40.0, 1e4, 1e8, 1e12]
PRIORS = [(a, b) for a in SIDES for b in SIDES]


def _at(rows, f, g):
    n = len(rows.total)
    return rows.value_and_gradient(np.full((1, n), f), np.full((1, n), g), np.arange(n))[:, 0]


def _one_row(case):
    y, n = (np.array(x, dtype=float) for x in CASES[case])
    return exact_beta.exact_rows(np.zeros(len(y)), y, n, 1), list(zip(y, n, strict=True))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("prior", PRIORS)
def test_value_and_gradient_in_the_limits(case, prior):
    rows, items = _one_row(case)
    f, g = to_curves(*np.array(prior))
    value, by_f, by_g = _at(rows, f, g)
    want = sum(exact_beta.log_pmf(y, n, f, g) for y, n in items)
    terms = sum(exact_beta.absolute_terms(y, n, f, g) for y, n in items)
    assert abs(value[0] - float(want)) <= 1e-12 * terms
    gradients = [exact_beta.gradient(y, n, f, g) for y, n in items]
    parts = sum(exact_beta.gradient_terms(y, n, f, g) for y, n in items)
    for got, column in ((by_f, 0), (by_g, 1)):
        of_items = [x[column] for x in gradients]
        size = float(sum(abs(x) for x in of_items))
        assert abs(got[0] - float(sum(of_items))) <= 1e-6 * size + 1e-14 * parts + 1e-12


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("f", "g"), [(-2.0, -40.0), (0.0, 4.0), (3.0, -1.0), (-9.0, -25.0)])
def test_curvature_is_the_slope_of_the_gradient(case, f, g):
    rows, _ = _one_row(case)
    found = rows.curvature(np.array([f]), np.array([g]), np.arange(1))[:, 0]
    np.testing.assert_allclose(found[:3], _at(rows, f, g)[:, 0], rtol=1e-12, atol=1e-9)
    step = 1e-4
    ahead, behind = (_at(rows, f + s * step, g)[:, 0] for s in (1, -1))
    scale = 1e-6 * rows.total.sum() + 1e-6 * rows.failures.sum()
    np.testing.assert_allclose(found[3:5], (ahead - behind)[1:] / (2 * step), 1e-5, scale)
    ahead, behind = (_at(rows, f, g + s * step)[:, 0] for s in (1, -1))
    np.testing.assert_allclose(found[4:], (ahead - behind)[1:] / (2 * step), 1e-5, scale)


@pytest.mark.parametrize("case", CASES)
def test_without_dispersion_it_is_binomial(case):
    rows, items = _one_row(case)
    y, n = np.array(items).T
    value = _at(rows, -0.7, -60.0)[0, 0]
    want = stats.binom.logpmf(y, n, special.expit(-0.7)).sum()
    assert value == pytest.approx(want, rel=1e-9)


def test_exchanging_successes_and_failures_mirrors_it():
    rng = np.random.default_rng(0)
    n = rng.integers(0, 3000, 500).astype(float)
    y = rng.binomial(n.astype(int), rng.beta(0.5, 0.8, 500)).astype(float)
    row = np.arange(500) % 5
    one, other = (exact_beta.exact_rows(row, x, n, 5) for x in (y, n - y))
    f, g = rng.normal(0, 2, (4, 5)), rng.normal(-1, 2, (4, 5))
    for spread in (np.zeros(5), rng.uniform(0.01, 0.8, 5)):
        here = one.with_spread(spread).value_and_gradient(f, g, np.arange(5))
        there = other.with_spread(spread).value_and_gradient(-f, g, np.arange(5))
        sign = np.array([1, -1, 1])[:, None, None]
        np.testing.assert_allclose(there, sign * here, rtol=1e-10, atol=1e-8)


def test_small_rates_are_counts_in_exposures():
    """At rates of 1e-7 the log marginal and its slopes are those of a Gamma."""
    rng = np.random.default_rng(1)
    n = rng.integers(100_000, 10_000_000, 300).astype(float)
    y = rng.poisson(n * 1e-7 * rng.gamma(2.0, 0.5, 300)).astype(float)
    rows = exact_beta.exact_rows(np.zeros(300), y, n, 1)
    counts = exact.exact_histograms(np.zeros(300, int), y, n, 1)
    for g in (-9.0, -0.7, 1.0):
        here, there = _at(rows, np.log(1e-7), g), _at(counts, np.log(1e-7), g)
        np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-4)


def _wide_cells(rng, width, items=2000):
    """Items whose successes, failures and trials share cells, and the same exactly."""
    y = rng.integers(1024, 1024 * (1 + width), items).astype(float)
    z = rng.integers(4096, 4096 * (1 + width), items).astype(float)
    zero = np.zeros(1, dtype=np.int64)
    cells = [(zero, *(np.array([(x**k).sum()]) for k in range(4))) for x in (y, z, y + z)]
    return make_beta_rows(1, *cells), exact_beta.exact_rows(np.zeros(items), y, y + z, 1)


@pytest.mark.parametrize("g", [-6.0, -3.0, 0.0, 2.0])
def test_wide_cells_are_of_fourth_order(g):
    errors = []
    for width in (1 / 8, 1 / 16):
        both = _wide_cells(np.random.default_rng(1), width)
        here, there = (_at(rows, np.log(0.25), g) for rows in both)
        errors.append(abs((here - there)[0, 0]))
    assert errors[1] < 0.2
    assert 8 < errors[0] / errors[1] < 30


def test_information_is_that_of_the_score():
    """E[score^2] over all outcomes: bounded from below, and nearly reached."""
    for f, g, n in ((-1.0, -2.0, 20), (0.5, 0.0, 7), (2.0, -4.0, 60), (-3.0, 1.0, 15)):
        y = np.arange(n + 1.0)
        p = np.exp(log_pmf(y, float(n), f, g))
        scores = np.array([[float(x) for x in exact_beta.gradient(k, n, f, g)] for k in y])
        true = p @ scores**2
        one = exact_beta.exact_rows(np.zeros(1), np.zeros(1), np.array([n]), 1)
        found = [x[0] for x in one.information(np.array([f]), np.array([g]))]
        assert 0.85 * true[0] < found[0] < 1.0001 * true[0]
        assert 0.6 * true[1] < found[1] < 1.0001 * true[1]


def test_single_trials_say_nothing_of_the_variance():
    rows, _ = _one_row("labels")
    assert not rows.tells_second.any()
    assert rows.information(np.array([0.3]), np.array([-1.0]))[1] == 0
    assert _at(rows, 0.3, -1.0)[2, 0] == pytest.approx(0.0, abs=1e-15)
    assert _one_row("small")[0].tells_second.all()


def test_at_zero_and_moments():
    """The best Binomial, and the slope in exp(second) there; moments near the truth."""
    rng = np.random.default_rng(2)
    n = rng.integers(5, 200, 20_000).astype(float)
    y = rng.binomial(n.astype(int), rng.beta(*a_b(-0.4, np.log(0.3)), 20_000)).astype(float)
    rows = exact_beta.exact_rows(np.zeros(len(y)), y, n, 1)
    f, value, slope, floor = (x[0] for x in rows.at_zero())
    assert f == pytest.approx(special.logit(y.sum() / n.sum()))
    assert _at(rows, f, -60.0)[0, 0] == pytest.approx(value, rel=1e-12)
    assert _at(rows, f, -20.0)[2, 0] == pytest.approx(slope * np.exp(-20.0), rel=1e-3)
    assert floor < np.log(1.01e-8)
    assert rows.second_by_moments()[0] == pytest.approx(np.log(0.3), abs=0.1)


def test_draws_have_the_mean_and_variance_of_sums():
    rng = np.random.default_rng(3)
    n = np.repeat([1.0, 9.0, 40.0], [50, 30, 4])
    rows = exact_beta.exact_rows(np.zeros(len(n)), np.zeros(len(n)), n, 1)
    f, g = 0.4, -0.5
    found = np.array([rows.draw(np.array([f]), np.array([g]), rng)[0] for _ in range(20_000)])
    a, b = a_b(f, g)
    mean, variance = stats.betabinom.stats(n, a, b)
    assert found.mean() == pytest.approx(mean.sum(), abs=4 * np.sqrt(variance.sum() / 20_000))
    assert found.var() == pytest.approx(variance.sum(), rel=0.05)


def test_spread_within_a_bin_moves_both_curves():
    """Mean and variance over a small spread are those by simulation; slopes are derivatives."""
    for f, g in ((-1.0, -2.0), (0.7, 0.5), (-4.0, -1.0)):
        spread = 0.02
        other = f + np.sqrt(spread) * np.polynomial.hermite_e.hermegauss(9)[0]
        weight = np.polynomial.hermite_e.hermegauss(9)[1]
        weight /= weight.sum()
        mean, variance = stats.beta.stats(*a_b(other, g))
        want = weight @ mean
        whole = weight @ variance + weight @ (mean - want) ** 2
        found = stats.beta.stats(*a_b(*widened(f, g, spread)))
        assert found[0] == pytest.approx(want, rel=2e-4)
        assert found[1] == pytest.approx(whole, rel=2e-3)
    rows, _ = _one_row("small")
    moved = replace(rows, spread=np.array([0.3]))
    f, g, step = -0.6, -0.9, 1e-5
    assert _at(moved, f, g)[0] == pytest.approx(_at(rows, *widened(f, g, 0.3))[0], rel=1e-12)
    for number, (df, dg) in enumerate(((step, 0.0), (0.0, step)), start=1):
        ahead, behind = (_at(moved, f + s * df, g + s * dg)[0, 0] for s in (1, -1))
        assert _at(moved, f, g)[number, 0] == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)


def test_polynomials_stand_for_rows():
    rng = np.random.default_rng(5)
    n = rng.integers(1, 500, 4000).astype(float)
    y = rng.binomial(n.astype(int), rng.beta(3.0, 5.0, 4000)).astype(float)
    rows = exact_beta.exact_rows(np.arange(4000) % 20, y, n, 20)
    made = make_surrogates(rows, (np.full(20, -0.7), np.full(20, -0.9)), (np.full(20, -0.3),) * 2)
    assert (made.reach > 0).all()
    f, g = rng.uniform(-0.7, -0.3, (9, 20)), rng.uniform(-0.9, -0.3, (9, 20))
    out = np.empty((3, 9, 20))
    BetaRows.fill_near(f, g, np.arange(20)[None], out, *made.arrays, *rows.arrays)
    want = rows.value_and_gradient(f, g, np.arange(20))
    assert 0 < np.abs(out[0] - want[0]).max() < 1e-3
    outside = np.full((1, 20), 0.5)
    out = np.empty((3, 1, 20))
    BetaRows.fill_near(outside, outside, np.arange(20)[None], out, *made.arrays, *rows.arrays)
    np.testing.assert_array_equal(out, rows.value_and_gradient(outside, outside, np.arange(20)))
