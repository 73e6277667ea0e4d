"""The likelihood of statistics against that of the items, value and gradient."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import digamma

import soc_pymc as soc
from soc_pymc.families import poisson_gamma
from soc_pymc.families.family import family_of_kind
from soc_pymc.model.rows import rows_of
from tests import exact

GRID = [(m, c) for m in (-6.0, -3.0, -1.0) for c in np.log([1e-3, 0.1, 0.5, 5.0])]


def _both(frame, bins, log_mean, log_cv2):
    """Statistics, and value and gradient by bin from statistics and from items."""
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, bins=bins, on_leakage="ignore", progress=False)
    histograms = rows_of(stats, family_of_kind(stats.kind))[1]
    one = np.ones((1, stats.bins))
    got = histograms.value_and_gradient(log_mean * one, log_cv2 * one, np.arange(stats.bins))[:, 0]
    y, n = (frame[k].to_numpy(dtype=float) for k in ("count", "exposure"))
    alpha, r = np.exp(-log_cv2), n * np.exp(log_mean + log_cv2)
    by_mean = y - (alpha + y) * r / (1 + r)
    by_alpha = digamma(alpha + y) - digamma(alpha) - np.log1p(r) + (r - y / alpha) / (1 + r)
    terms = (poisson_gamma.log_pmf(y, n, log_mean, log_cv2), by_mean, -alpha * by_alpha)
    bin_of = np.searchsorted(stats.edges, frame["score"], side="right")
    want = np.array([np.bincount(bin_of, weights=t, minlength=stats.bins) for t in terms])
    sizes = [np.bincount(bin_of, weights=np.abs(t), minlength=stats.bins) for t in terms]
    information = histograms.information(log_mean * one[0], log_cv2 * one[0])
    return stats, got, want, np.array(sizes), information


@pytest.mark.parametrize(("log_mean", "log_cv2"), GRID)
def test_exact_where_cells_are(log_mean, log_cv2):
    """Whole counts and exposures below 32: only rounding, 1e-6 of the absolute terms."""
    frame = soc.simulation.s1(6000, seed=5)
    frame = frame[(frame["exposure"] < 32) & (frame["count"] < 32)]
    stats, got, want, sizes, _ = _both(frame, 10, log_mean, log_cv2)
    assert (stats.error_bound == 0).all()
    assert (np.abs(got - want) <= 1e-11 * sizes + 1e-9).all()


def _years(items, seed):
    """Real-valued exposures in years and rare counts, like motor claims."""
    rng = np.random.default_rng(seed)
    score = rng.lognormal(np.log(0.1), 0.5, items)
    exposure = np.where(rng.random(items) < 0.3, 1.0, rng.uniform(0.003, 2.0, items))
    count = rng.poisson(rng.gamma(2.0, score / 2.0) * exposure)
    return pd.DataFrame({"score": score, "exposure": exposure, "count": count})


@pytest.mark.parametrize("make", [lambda: _years(200_000, 6), lambda: soc.simulation.s1(50_000, 6)])
@pytest.mark.parametrize("log_cv2", np.log([0.05, 0.5, 3.0]))
def test_wide_cells_stay_within_their_bound(make, log_cv2):
    """Value within `error_bound`; the gradient's error moves a bin's estimate by less than 1e-2 of
    its own posterior sd, at means near the bins' own, where the bound is promised."""
    frame = make()
    log_mean = np.log(frame["count"].sum() / frame["exposure"].sum())
    frame["score"] = np.random.default_rng(0).permutation(frame["score"])  # bins of equal means
    stats, got, want, _, information = _both(frame, 50, log_mean, log_cv2)
    slack = 1e-9 * np.abs(want[0])
    assert (np.abs(got[0] - want[0]) <= stats.error_bound + slack).all()
    for slope, told in ((1, information[0]), (2, information[1])):
        assert (np.abs(got[slope] - want[slope]) / np.sqrt(told) < 1e-2).all()


def test_extreme_exposures_against_fifty_digits():
    """N from 1e-3 to 1e9 and y = 0 everywhere, through the engine's cells."""
    exposure = np.repeat([1e-3, 0.5, 7.0, 1e3, 1e9], 4)
    frame = pd.DataFrame(
        {"score": np.linspace(0.1, 0.2, 20), "exposure": exposure, "count": np.zeros(20, int)}
    )
    for log_mean, log_cv2 in ((-20.0, np.log(1e-12)), (-20.0, 0.0), (-3.0, np.log(1e-12))):
        _, got, *_ = _both(frame, 1, log_mean, log_cv2)
        want = sum(exact.log_pmf(0, n, log_mean, log_cv2) for n in exposure)
        slopes = [exact.gradient(0, n, log_mean, log_cv2) for n in exposure]
        assert got[0][0] == pytest.approx(float(want), rel=1e-12)
        assert got[1][0] == pytest.approx(float(sum(s[0] for s in slopes)), rel=1e-12)
        assert got[2][0] == pytest.approx(float(sum(s[1] for s in slopes)), rel=1e-6)
