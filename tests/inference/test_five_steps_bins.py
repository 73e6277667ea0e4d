"""Step 2: each bin's maximum likelihood against a direct search on the items, and at its limits."""

import mpmath as mp
import numpy as np
import pandas as pd
import pytest
from scipy import optimize, special

import soc_pymc as soc
from soc_pymc.families.family import family_of_kind
from soc_pymc.families.rising import _wide_bend
from soc_pymc.inference.five_steps.curves import maximise
from soc_pymc.model.rows import rows_of


def _statistics(frame, edges=(), **given):
    items = soc.PoissonItems(frame, score="t", count="y", exposure="N")
    return soc.summarize(items, edges=list(edges), progress=False, **given)


def _frame(log_mean, log_cv2, exposure, rng, score=0.5):
    n = len(exposure)
    theta = rng.gamma(np.exp(-log_cv2), np.exp(log_mean + log_cv2), n)
    return pd.DataFrame({"t": np.full(n, score), "y": rng.poisson(theta * exposure), "N": exposure})


def _per_bin(stats, **given):
    fit = soc.fit(stats, method=soc.FiveSteps(smooth=False, **given), progress=False)
    return fit, fit.data["per_bin"].to_dataset()


def _direct(frame):
    """Maximum of the exact negative binomial likelihood of the items, free parameters m and c."""
    y, n = frame["y"].to_numpy(dtype=float), frame["N"].to_numpy(dtype=float)

    def minus(x):
        a, r = np.exp(-x[1]), n * np.exp(x[0] + x[1])
        rising = special.gammaln(a + y) - special.gammaln(a) + y * x[1]
        return -(
            rising + y * (x[0] + np.log(n)) - (a + y) * np.log1p(r) - special.gammaln(y + 1)
        ).sum()

    def slope(x):
        h = 1e-5
        return np.array([(minus(x + e) - minus(x - e)) / (2 * h) for e in h * np.eye(2)])

    start = np.array([np.log(y.sum() / n.sum()), -1.0])
    best = optimize.minimize(minus, start, method="Nelder-Mead", options={"xatol": 1e-5})
    found = optimize.root(slope, best.x, tol=1e-12)
    return found.x, -minus(found.x)


def test_exact_cells_agree_with_the_items_to_1e_6():
    """Small whole exposures and counts have cells of their own; finite differences leave 1e-7."""
    rng = np.random.default_rng(0)
    parts = [
        _frame(m, c, rng.integers(1, 17, 800).astype(float), rng, score=s)
        for s, m, c in ((0.2, -1.5, -1.0), (0.6, -0.5, -2.0), (0.9, -3.0, 0.5))
    ]
    stats = _statistics(pd.concat(parts), edges=(0.4, 0.8))
    _, found = _per_bin(stats)
    for k, frame in enumerate(parts):
        (m, c), value = _direct(frame)
        cv2 = float(found["variance"][k] / found["mean"][k] ** 2)
        assert abs(np.log(float(found["mean"][k])) - m) < 1e-6
        assert abs(np.log(cv2) - c) < 1e-6
        assert abs(float(found["log_likelihood"][k]) - value) < 1e-6
        a = np.exp(-c)
        assert float(found["mean_log"][k]) == pytest.approx(
            m + special.psi(a) - np.log(a), abs=1e-6
        )
        assert float(found["variance_log"][k]) == pytest.approx(special.polygamma(1, a), rel=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e7])
def test_wide_cells_agree_to_their_error(scale):
    """Exposures from 1e-3 to 1e9, counts to 1e5: cells of 1/16 octave leave 1e-5."""
    rng = np.random.default_rng(1)
    exposure = scale * np.exp(rng.uniform(0, 4.6, 500))
    frame = _frame(np.log(30.0 / scale), -1.5, exposure, rng)
    _, found = _per_bin(_statistics(frame))
    (m, c), _ = _direct(frame)
    assert abs(np.log(float(found["mean"][0])) - m) < 1e-5
    assert abs(np.log(float(found["variance"][0] / found["mean"][0] ** 2)) - c) < 1e-4


def test_second_derivatives_are_those_of_the_slopes():
    """By central differences of slopes, at cv2 from 1e-9 to 100, wide counts included."""
    rng = np.random.default_rng(2)
    exposure = np.exp(rng.uniform(0, 8, 300))
    stats = _statistics(_frame(-1.0, -1.0, exposure, rng))
    _, data = rows_of(stats, family_of_kind(stats.kind))
    bins, at, h = data, np.zeros(1, dtype=np.int64), 1e-4
    for c in (-20.0, -8.0, -1.0, 4.6):
        m = np.array([-1.2])
        own = bins.curvature(m, np.array([c]), at)
        exact = data.value_and_gradient(m[None], np.array([[c]]), at)
        np.testing.assert_allclose(own[:3, 0], exact[:, 0, 0], rtol=1e-12)
        sides = [
            bins.curvature(m + a, np.array([c + b]), at)
            for a, b in ((h, 0), (-h, 0), (0, h), (0, -h))
        ]
        by_m, by_c = ((sides[k][1:3] - sides[k + 1][1:3]) / (2 * h) for k in (0, 2))
        scale = np.exp(c) * 1e5  # of the terms in c
        np.testing.assert_allclose(own[3, 0], by_m[0, 0], rtol=1e-5)
        np.testing.assert_allclose(own[4, 0], by_m[1, 0], rtol=1e-4, atol=1e-6 * scale)
        np.testing.assert_allclose(own[5, 0], by_c[1, 0], rtol=1e-4, atol=1e-6 * scale)


@pytest.mark.parametrize("alpha", [0.01, 3.0, 40.0, 1e3, 1e6])
def test_second_derivative_of_wide_counts_at_50_digits(alpha):
    """The series, whose terms are far below the resolution of differences of slopes."""
    for d in (0.5, 40.0, 1e4, 1e7):
        with mp.workdps(50):
            a = mp.mpf(alpha) + 32
            want = mp.mpf(d) + mp.mpf(alpha) ** 2 * (mp.psi(1, a + mp.mpf(d)) - mp.psi(1, a))
        assert float(_wide_bend(alpha, d, 0.0)) == pytest.approx(float(want), rel=1e-10)


def test_variance_zero_is_detected_by_the_slope():
    """Counts that vary less than Poisson: variance 0, the Poisson likelihood; else inside."""
    n = np.full(50, 10.0)
    even = pd.DataFrame({"t": 0.5, "y": np.full(50, 3), "N": n})
    fit, found = _per_bin(_statistics(even))
    assert fit.status.converged
    assert "1 at variance 0" in fit.status.reason
    assert float(found["mean"][0]) == pytest.approx(0.3, rel=1e-12)
    assert float(found["variance"][0]) == 0.0
    assert float(found["variance_log"][0]) == 0.0
    poisson = (3 * np.log(3.0) - 3.0 - special.gammaln(4.0)) * 50
    assert float(found["log_likelihood"][0]) == pytest.approx(poisson, rel=1e-12)
    cv2 = 1.0 / float(fit.data["posterior"]["shape"].squeeze())
    assert cv2 == pytest.approx(1e-8)  # what stands for 0
    # the slope is half the sum of (y - 3)^2 - y: 10 counts 9 from the mean turn it, 5 of 6 do not
    for high, zero, positive in ((6, 5, False), (9, 20, True)):
        number = 5 if high == 6 else 10
        y = np.r_[np.full(50 - number - zero, 3), np.zeros(zero, dtype=int), np.full(number, high)]
        assert y.mean() == 3.0
        stats = _statistics(even.assign(y=y))
        _, data = rows_of(stats, family_of_kind(stats.kind))
        assert data.at_zero()[2][0] == pytest.approx(0.5 * ((y - 3) ** 2 - y).sum())
        assert bool(_per_bin(stats)[1]["variance"][0] > 0) is positive


def test_bins_of_any_size_are_fitted():
    """One item, no event, one event, and counts of 1e6: no failure and no NaN."""
    parts = [
        pd.DataFrame({"t": [0.1], "y": [2], "N": [5.0]}),
        pd.DataFrame({"t": [0.3, 0.3], "y": [0, 0], "N": [1.0, 4.0]}),
        pd.DataFrame({"t": [0.5, 0.5], "y": [0, 1], "N": [1.0, 4.0]}),
        pd.DataFrame({"t": [0.7] * 3, "y": [1_000_000, 2_000_000, 900_000], "N": [1e9] * 3}),
        pd.DataFrame({"t": [0.9] * 3, "y": [40, 0, 100], "N": [1e-3, 1e-3, 2e-3]}),
    ]
    stats = _statistics(pd.concat(parts), edges=(0.2, 0.4, 0.6, 0.8))
    fit, found = _per_bin(stats)
    assert fit.status.converged
    assert "1 more without an event" in fit.status.reason
    missing = np.isnan(found["mean"].to_numpy())
    assert missing.tolist() == [False, True, False, False, False]
    assert (found["variance"].to_numpy()[[3, 4]] > 0).all()
    assert np.isfinite(fit.data["posterior"]["rate"].to_numpy()).all()
    one = _statistics(parts[3])
    for smooth in (True, False):
        alone = soc.fit(one, method=soc.FiveSteps(smooth=smooth), progress=False)
        mean = soc.calibration_curves(alone, [0.1, 0.7, 0.9])["mean"].to_numpy().ravel()
        np.testing.assert_allclose(mean, mean[0], rtol=1e-12)
        assert mean[0] == pytest.approx(1.3e-3, rel=1e-4)


def test_estimates_follow_units_and_ignore_order():
    """Exposures times 1,000: E / 1,000, Var / 1e6; items in another order: the same."""
    frame = soc.simulation.s1(3000, seed=3).rename(
        columns={"score": "t", "count": "y", "exposure": "N"}
    )
    edges = np.quantile(frame["t"], [0.25, 0.5, 0.75])
    _, found = _per_bin(_statistics(frame, edges=edges))
    _, scaled = _per_bin(_statistics(frame.assign(N=1024.0 * frame["N"]), edges=edges))
    np.testing.assert_allclose(scaled["mean"], found["mean"] / 1024, rtol=1e-6)
    np.testing.assert_allclose(scaled["variance"], found["variance"] / 1024**2, rtol=1e-5)
    mixed = frame.sample(frac=1, random_state=0)
    _, again = _per_bin(_statistics(mixed, edges=edges))
    np.testing.assert_allclose(again["mean"], found["mean"], rtol=1e-12)
    np.testing.assert_allclose(again["variance"], found["variance"], rtol=1e-9)


def test_every_n_fits_every_nth_bin():
    """Section 5.2: the others are NaN and take their nearest neighbour's."""
    frame = soc.simulation.s1(6000, seed=4)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, bins=20, progress=False)
    fit, found = _per_bin(stats, every=5)
    fitted = ~np.isnan(found["mean"].to_numpy())
    assert np.flatnonzero(fitted).tolist() == [0, 5, 10, 15]
    assert "one in 5 of 20" in fit.status.reason
    shape = fit.data["posterior"]["shape"].to_numpy().ravel()
    assert set(shape) == set(shape[[0, 5, 10, 15]])
    _, whole = _per_bin(stats)
    np.testing.assert_array_equal(found["mean"][fitted], whole["mean"][fitted])


def test_normal_bins_agree_with_the_items():
    """Mean and variance with known varying noise, against Nelder-Mead on the items.

    Cells of noise 1/16 octave wide shift the likelihood of 600 items by 6e-5 nats.
    """
    rng = np.random.default_rng(5)
    n = 600
    noise = np.exp(rng.normal(0, 0.5, n))
    theta = rng.normal(2.0, 0.8, n)
    frame = pd.DataFrame({"t": rng.random(n), "y": rng.normal(theta, noise), "s": noise})
    items = soc.NormalItems(frame, score="t", value="y", noise_sd="s")
    stats = soc.summarize(items, edges=[], progress=False)
    _, found = _per_bin(stats)

    def minus(x):
        total = np.exp(x[1]) + noise**2
        return 0.5 * (np.log(2 * np.pi * total) + (frame["y"] - x[0]) ** 2 / total).sum()

    best = optimize.minimize(
        minus, [2.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}
    )
    assert float(found["mean"][0]) == pytest.approx(best.x[0], abs=1e-6)
    assert np.log(float(found["variance"][0])) == pytest.approx(best.x[1], abs=1e-5)
    assert float(found["log_likelihood"][0]) == pytest.approx(-best.fun, abs=1e-3)


def test_normal_variance_zero():
    """Values closer to their mean than the noise: variance 0, precision-weighted mean."""
    frame = pd.DataFrame({"t": 0.0, "y": [1.0, 1.1, 0.9, 1.3], "s": [1.0, 1.0, 2.0, 0.5]})
    stats = soc.summarize(
        soc.NormalItems(frame, score="t", value="y", noise_sd="s"), edges=[], progress=False
    )
    fit, found = _per_bin(stats)
    assert float(found["variance"][0]) == 0.0
    assert float(found["mean"][0]) == pytest.approx(
        np.average(frame["y"], weights=frame["s"] ** -2.0), rel=1e-9
    )
    assert "1 at variance 0" in fit.status.reason


def test_normal_second_derivatives():
    """By central differences."""
    rng = np.random.default_rng(6)
    frame = pd.DataFrame(
        {"t": 0.0, "y": rng.normal(0, 2, 200), "s": np.exp(rng.normal(0, 0.3, 200))}
    )
    stats = soc.summarize(
        soc.NormalItems(frame, score="t", value="y", noise_sd="s"), edges=[], progress=False
    )
    _, data = rows_of(stats, family_of_kind(stats.kind))
    bins, at, h = data, np.zeros(1, dtype=np.int64), 1e-5
    m, c = np.array([0.1]), np.array([0.3])
    own = bins.curvature(m, c, at)
    exact = data.value_and_gradient(m[None], c[None], at)
    np.testing.assert_allclose(own[:3, 0], exact[:, 0, 0], rtol=1e-12)
    by_m = (bins.curvature(m + h, c, at) - bins.curvature(m - h, c, at))[1:3, 0] / (2 * h)
    by_c = (bins.curvature(m, c + h, at) - bins.curvature(m, c - h, at))[1:3, 0] / (2 * h)
    np.testing.assert_allclose(own[3:, 0], [by_m[0], by_m[1], by_c[1]], rtol=1e-6)


def test_the_search_finds_the_higher_of_two_maxima():
    """Many small items without overdispersion and one huge one: no grid is higher."""
    frame = pd.DataFrame(
        {"t": 0.5, "y": [0] * 30 + [400] + [1] * 5, "N": [1.0] * 30 + [50.0] + [9.0] * 5}
    )
    stats = _statistics(frame)
    _, data = rows_of(stats, family_of_kind(stats.kind))
    bins = data
    found = maximise(bins, np.ones(1, dtype=bool))
    at = np.zeros(1, dtype=np.int64)
    grid = [
        bins.curvature(np.array([m]), np.array([c]), at)[0, 0]
        for m in np.linspace(-3, 4, 60)
        for c in np.linspace(-6, 6, 60)
    ]
    assert found.log_likelihood[0] >= max(grid)


@pytest.mark.parametrize(("size", "cv2"), [(1e9, 0.3), (1e8, 1e-6)])
def test_huge_counts_converge_though_their_sums_round(size, cv2):
    """Counts of 1e8, whose sums cancel to 1e-4 nats: every bin ends near the truth.

    2,000 items in 20 bins know cv2 of a bin to 15% (2 / sqrt(200)): 5 such sds are allowed.
    """
    rng = np.random.default_rng(8)
    exposure = np.exp(rng.normal(np.log(size), 1.0, 2000))
    frame = _frame(np.log(0.05), np.log(cv2), exposure, rng, score=0.0)
    frame["t"] = rng.random(2000)
    fit, found = _per_bin(_statistics(frame, edges=np.linspace(0.05, 0.95, 19)))
    assert fit.status.converged, fit.status.reason
    np.testing.assert_allclose(found["variance"] / found["mean"] ** 2, cv2, rtol=0.75)


def test_each_bin_of_values_is_fitted_to_its_own():
    """Four bins together equal each bin alone."""
    rng = np.random.default_rng(8)
    n = 800
    noise = np.exp(rng.normal(0, 0.3, n))
    score = rng.uniform(0, 4, n)
    value = rng.normal(np.floor(score), np.hypot(0.5 + 0.2 * np.floor(score), noise))
    frame = pd.DataFrame({"t": score, "y": value, "s": noise})

    def fitted(part, edges):
        items = soc.NormalItems(part, score="t", value="y", noise_sd="s")
        stats = soc.summarize(items, edges=edges, progress=False, on_leakage="ignore")
        return _per_bin(stats)[1]

    together = fitted(frame, [1.0, 2.0, 3.0])
    for k in range(4):
        alone = fitted(frame[np.floor(score) == k], [])
        for name in ("mean", "variance", "log_likelihood"):
            assert float(together[name][k]) == pytest.approx(float(alone[name][0]), rel=1e-6)
