"""The likelihood of bins from histograms: value and gradient against the items, exactly."""

from dataclasses import replace

import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc.families import poisson_rows as hist
from soc_pymc.model import problem
from tests import exact


def _at(histograms, log_mean, log_cv2):
    bins = len(histograms.total)
    m, c = np.full((1, bins), log_mean), np.full((1, bins), log_cv2)
    return histograms.value_and_gradient(m, c, np.arange(bins))[:, 0]


CASES = {
    "small": ([0, 1, 2, 5, 31, 0, 3], [1, 2, 5, 30, 31, 7, 4]),
    "all zero": ([0, 0, 0, 0], [1, 3, 20, 31]),
    "no exposure": ([0, 0, 2], [0, 0, 9]),
    "tiny and huge": ([0, 2, 0, 7], [1e-3, 1e9, 1e-3, 50.0]),
    "wide counts": ([32, 33, 60, 1000, 1_000_000], [40.0, 1e3, 1e3, 1e4, 1e6]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("log_cv2", np.log([1e-12, 1e-10, 1e-6, 1e-3, 0.3, 10.0, 1e3]))
@pytest.mark.parametrize("mean", [1e-9, 1e-3, 0.5, 20.0])
def test_value_and_gradient_in_the_limits(case, log_cv2, mean):
    count, exposure = (np.array(x, dtype=float) for x in CASES[case])
    bin_of = np.zeros(len(count), dtype=int)
    value, by_mean, by_cv2 = _at(
        exact.exact_histograms(bin_of, count, exposure, 1), np.log(mean), log_cv2
    )
    items = list(zip(count, exposure, strict=True))
    want = sum(exact.log_pmf(y, n, np.log(mean), log_cv2) for y, n in items)
    terms = sum(exact.absolute_terms(y, n, np.log(mean), log_cv2) for y, n in items)
    assert abs(value[0] - float(want)) <= 1e-12 * terms + 1e-12
    gradients = [exact.gradient(y, n, np.log(mean), log_cv2) for y, n in items]
    for got, column in ((by_mean, 0), (by_cv2, 1)):
        parts = [g[column] for g in gradients]
        size = float(sum(abs(p) for p in parts))
        assert abs(got[0] - float(sum(parts))) <= 1e-6 * size + 1e-12 * min(terms, 1.0)


def test_constant_prior_limit_is_poisson():
    """As the variance goes to 0 the gradient in log cv2 goes to cv2 [sum (y - Nm)^2 - y] / 2."""
    count, exposure = np.array([3.0, 0.0, 12.0]), np.array([20.0, 5.0, 31.0])
    histograms = exact.exact_histograms(np.zeros(3, int), count, exposure, 1)
    cv2 = 1e-11
    slope = _at(histograms, np.log(0.2), np.log(cv2))[2][0]
    expected = 0.2 * exposure
    assert slope == pytest.approx(cv2 * ((count - expected) ** 2 - count).sum() / 2, rel=1e-6)


def _wide_cells(rng, width, items=2000):
    """Items whose exposures and counts share cells of a relative width, and the same exactly."""
    exposure = np.sort(rng.uniform(100.0, 100.0 * (1 + width), items))
    count = rng.integers(1024, 1024 * (1 + width), items).astype(float)
    zeros = np.zeros(1, dtype=int)
    sums = [np.array([s], dtype=float) for s in (items, *((count**k).sum() for k in (1, 2, 3)))]
    moments = [np.array([(count * exposure**k).sum()]) for k in range(4)]
    cells = (zeros, *(np.array([(exposure**k).sum()]) for k in range(4)), *moments)
    log_n = np.array([(count * np.log(exposure)).sum()])
    wide = hist.make_histograms(1, (zeros, *sums), cells, log_n)
    return wide, exact.exact_histograms(np.zeros(items, int), count, exposure, 1)


@pytest.mark.parametrize("cv2", [1e-3, 0.02, 0.5, 5.0])
def test_wide_cells_are_of_fourth_order(cv2):
    """Three moments kept: half the width leaves a sixteenth of the error, of log y! and the rest;
    a cell of 6% width stands for 2 million counts within 0.1 nats."""
    errors = []
    for width in (1 / 8, 1 / 16):
        both = _wide_cells(np.random.default_rng(1), width)
        here, there = (_at(h, np.log(10.24), np.log(cv2)) for h in both)
        errors.append(abs((here - there)[0, 0]))
    assert errors[1] < 0.1
    assert 8 < errors[0] / errors[1] < 30


def test_draws_and_bins_are_independent():
    rng = np.random.default_rng(2)
    bin_of = rng.integers(0, 4, 60)
    count, exposure = rng.poisson(2.0, 60).astype(float), rng.integers(1, 30, 60).astype(float)
    histograms = exact.exact_histograms(bin_of, count, exposure, 4)
    m, c = rng.normal(-2, 0.3, (6, 2)), rng.normal(-1, 0.3, (6, 2))
    rows = np.array([[0, 2], [3, 1]])
    together = histograms.value_and_gradient(m, c, rows)
    for s in range(6):
        alone = histograms.value_and_gradient(m[s : s + 1], c[s : s + 1], rows[s % 2])
        np.testing.assert_array_equal(together[:, s], alone[:, 0])


def test_information_matches_the_variance_of_the_score():
    """E[score^2] by simulation: equal for log mean, bounded from below for log cv2."""
    rng = np.random.default_rng(3)
    log_mean, log_cv2, items = np.log(0.05), np.log(0.4), 400_000
    exposure = np.full(items, 20.0)
    theta = rng.gamma(1 / 0.4, 0.05 * 0.4, items)
    count = rng.poisson(theta * exposure).astype(float)
    scores = np.array([
        [float(g) for g in exact.gradient(y, 20.0, log_mean, log_cv2)] for y in range(60)
    ])  # fmt: skip
    squares = (scores[count.astype(int).clip(0, 59)] ** 2).mean(axis=0)
    one = exact.exact_histograms(np.zeros(1, int), np.zeros(1), np.array([20.0]), 1)
    mean, cv2 = one.information(np.array([log_mean]), np.array([log_cv2]))
    assert mean[0] == pytest.approx(squares[0], rel=0.02)
    assert 0.8 * squares[1] < cv2[0] < 1.03 * squares[1]
    assert exposure.shape == count.shape


def test_spread_within_a_bin_moves_both_moments(small_statistics):
    """With spread k: the log marginal at log mean + k/2 and cv2 + k (1 + cv2), and its slopes."""
    plain = problem.build(small_statistics, soc.Gamma()).data
    bins = np.arange(len(plain.total))
    spread = np.linspace(0.0, 0.5, len(bins))
    h = replace(plain, spread=spread)
    m, c = np.full((1, len(bins)), -3.0), np.full((1, len(bins)), -1.2)
    cv2 = np.exp(c) + spread * (1 + np.exp(c))
    level = replace(plain, spread=np.zeros(len(bins)))
    want = level.value_and_gradient(m + spread / 2, np.log(cv2), bins)
    got = h.value_and_gradient(m, c, bins)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-12)
    step = 1e-5
    for number, (dm, dc) in enumerate(((step, 0.0), (0.0, step)), start=1):
        ahead, behind = (h.value_and_gradient(m + s * dm, c + s * dc, bins)[0] for s in (1, -1))
        np.testing.assert_allclose(got[number], (ahead - behind) / (2 * step), atol=1e-3)
