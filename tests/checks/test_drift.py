"""Drift: the walk against exact algebra, sites against brute force, and what is found in items."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import soc_pymc as soc
from soc_pymc._model.splines import knots_in
from soc_pymc.checks import _drift as walk_module
from soc_pymc.checks._drift import SDS, _scale, _site, walk
from soc_pymc.checks.observations import curve_rows
from soc_pymc.posterior.curves import place_of
from tests.examples import QUIET

COUNTS = {"score": "t", "count": "y", "exposure": "N"}
VALUES = {"score": "t", "value": "v", "noise_sd": "s"}
TRIALS = {"score": "p", "successes": "z", "trials": "n"}
KINDS = {
    "counts": (soc.PoissonItems, COUNTS),
    "values": (soc.NormalItems, VALUES),
    "successes": (soc.BinomialItems, TRIALS),
}


def frame_of(days, n, change=0.0, since=0, seed=0):
    """Items of every kind; from a day on, log means, values and logits are higher by `change`."""
    rng = np.random.default_rng(seed)
    day = np.repeat(np.arange(days), n)
    later = np.where(day >= since, change, 0.0)
    t = np.exp(rng.normal(-2.0, 0.7, len(day)))
    size = rng.integers(5, 40, len(day)).astype(float)
    theta = rng.gamma(1 / 0.3, 0.3 * t * np.exp(later))
    p = 1 / (1 + np.exp(-(np.log(t) + 2.0)))
    mean = 1 / (1 + np.exp(-(np.log(t) + 2.0 + later)))
    s = rng.choice([0.3, 0.6], len(day))
    return pd.DataFrame(
        {
            "t": t,
            "N": size,
            "y": rng.poisson(theta * size),
            "s": s,
            "v": rng.normal(rng.normal(t + later, 0.3), s),
            "p": p,
            "n": size.astype(int),
            "z": rng.binomial(size.astype(int), rng.beta(8 * mean, 8 * (1 - mean))),
            "day": (np.datetime64("2026-03-01") + day.astype("timedelta64[D]")).astype("M8[us]"),
        }
    )


def statistics(frame, kind="counts", bins=12, **options):
    make, roles = KINDS[kind]
    return soc.summarize(make(frame, **roles), bins=bins, date="day", **QUIET, **options)


# --- the walk ------------------------------------------------------------------------------------


def dense(precision, pull, day, sds):
    """The joint Gaussian of all days: log evidence, means and covariances by plain algebra."""
    days, k = pull.shape
    gap = np.diff(day, prepend=day[0] - 1)
    root = np.tril(np.ones((days, days)))
    # state = start + steps; the first column of `root` is the start
    prior = np.zeros((days * k, days * k))
    for i in range(k):
        variance = gap * sds[i] ** 2
        variance[0] = walk_module._START**2
        prior[i::k, i::k] = root @ np.diag(variance) @ root.T
    noise = np.zeros_like(prior)
    for t in range(days):
        noise[t * k : t * k + k, t * k : t * k + k] = np.linalg.inv(precision[t])
    seen = np.concatenate([np.linalg.solve(p, h) for p, h in zip(precision, pull, strict=True)])
    gain = np.linalg.solve(prior + noise, prior).T
    evidence = stats.multivariate_normal(np.zeros(days * k), prior + noise).logpdf(seen)
    return evidence, gain @ seen, prior - gain @ prior


def random_days(seed, days=5, k=2):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(days, k, k)) * 8.0
    precision = root @ root.transpose(0, 2, 1) + 20.0 * np.eye(k)
    pull = np.einsum("tij,tj->ti", precision, rng.normal(0, 0.2, (days, k)))
    return precision, pull, np.cumsum(rng.integers(1, 4, days)).astype(float)


@given(st.integers(0, 1000))
@settings(max_examples=10)
def test_the_smoother_is_the_dense_gaussian_averaged_over_sds(seed):
    """Means, covariances and weights by multivariate normals of all days at once, to 1e-7."""
    grid = np.array([0.0, 0.01, 0.1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk_module, "SDS", grid)
        patch.setattr(walk_module, "_LIGHT", 0.0)
        precision, pull, day = random_days(seed)
        found = walk(precision, pull, day)
        mass = walk_module._prior()
    points = [(a, b) for a in range(3) for b in range(3)]
    each = [dense(precision, pull, day, grid[list(at)]) for at in points]
    log_weight = np.array(
        [e[0] + np.log(mass[list(at)]).sum() for at, e in zip(points, each, strict=True)]
    )
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = sum(w * e[1] for w, e in zip(weight, each, strict=True))
    second = sum(w * (e[2] + np.outer(e[1], e[1])) for w, e in zip(weight, each, strict=True))
    covariance = second - np.outer(mean, mean)
    np.testing.assert_allclose(found["smoothed"].to_numpy().ravel(), mean, atol=1e-7)
    for t in range(len(day)):
        at = slice(2 * t, 2 * t + 2)
        np.testing.assert_allclose(found["smoothed_covariance"][t], covariance[at, at], atol=1e-7)
    np.testing.assert_allclose(found["step"], weight @ grid[np.array(points)], atol=1e-7)
    last = walk_of_days(precision, pull, day, 3, grid)
    np.testing.assert_allclose(found["filtered"][2], last["smoothed"][2], atol=1e-7)


def walk_of_days(precision, pull, day, number, grid):
    """The walk of the first days alone, whose last state is the filtered one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk_module, "SDS", grid)
        patch.setattr(walk_module, "_LIGHT", 0.0)
        return walk(precision[:number], pull[:number], day[:number])


def test_p_values_are_those_of_a_day_given_the_days_before():
    """Of 500 series from the prior itself the last day's p-values are uniform (KS at 0.001).

    Predictions that forgot the walk's steps, or half of them, are off by far more.
    """
    rng = np.random.default_rng(0)
    noise, days, number = 0.02, 6, 500
    precision = np.full((days, 1, 1), noise**-2)
    found = []
    for sd in rng.choice(SDS, number, p=walk_module._prior()):
        state = np.cumsum(np.append(rng.normal(), sd * rng.normal(size=days - 1)))
        seen = (state + noise * rng.normal(size=days))[:, None]
        found.append(walk(precision, seen / noise**2, np.arange(float(days)))["p_value"][-1, 0])
    assert stats.kstest(found, "uniform").pvalue > 0.001


def test_a_day_that_says_nothing_changes_nothing():
    precision, pull, day = random_days(3)
    with_gap = walk(
        np.insert(precision, 2, 0.0, axis=0),
        np.insert(pull, 2, 0.0, axis=0),
        np.insert(day, 2, day[1] + 0.5),
    )
    without = walk(precision, pull, day)
    kept = [0, 1, 3, 4, 5]
    np.testing.assert_allclose(with_gap["smoothed"][kept], without["smoothed"], atol=1e-9)
    assert with_gap["p_value"][2].min() > 0.999


# --- a day's log likelihood ----------------------------------------------------------------------


@pytest.fixture(scope="module", params=KINDS)
def fitted(request):
    stats_ = statistics(frame_of(3, 600), request.param)
    return soc.fit(stats_, **QUIET), stats_


@pytest.mark.slow
def test_sites_are_the_posterior_by_brute_force(fitted):
    """Mean and sd of each part by integrals over a grid, from the sum over single bins' kernels.

    A third of an sd in the mean and 8% in the sd: skewness at 600 items is what remains. Steps of
    0.7 sd integrate what is nearly normal to many digits.
    """
    fit, all_days = fitted
    _, own = next(all_days.by_day())
    scale, rows = _scale(fit, curve_rows(fit, all_days)), curve_rows(fit, own)
    centre, width, unit = scale
    position = (place_of(fit, "mean", rows.score) - centre) / width
    precision, pull = _site(fit, rows, scale)
    covariance = np.linalg.inv(precision)
    mean = covariance @ pull
    sd = np.sqrt(np.diag(covariance))
    axes = [np.linspace(m - 5 * s, m + 5 * s, 15) for m, s in zip(mean, sd, strict=True)]
    at = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    log_density = np.array(
        [
            rows.sums.values(
                (rows.location + unit * (a + b * position))[None], (rows.dispersion + c)[None]
            ).sum()
            for a, b, c in at
        ]
    )
    weight = np.exp(log_density - log_density.max()).reshape(15, 15, 15)
    for k in range(3):
        marginal = weight.sum(axis=tuple(j for j in range(3) if j != k))
        marginal /= integrate.trapezoid(marginal, axes[k])
        exact = integrate.trapezoid(marginal * axes[k], axes[k])
        variance = integrate.trapezoid(marginal * (axes[k] - exact) ** 2, axes[k])
        assert abs(mean[k] - exact) < sd[k] / 3
        assert sd[k] == pytest.approx(np.sqrt(variance), rel=0.08)


# --- items ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_step_is_found_on_its_day_and_measured():
    """3,000 values a day; the level moves by what it was moved, to 4 sds."""
    found = soc.drift(statistics(frame_of(12, 3000, 0.4, 8), "values", joint=True), **QUIET)
    assert found.alarms[0] == "2026-03-09"
    level = found.table[found.table["what"] == "level"].set_index("where")
    assert level.loc["2026-03-09", "verdict"] == "fail"
    unit = found.data.attrs["unit"]
    before, after = level.iloc[6], level.iloc[11]
    widths = [row["high"] - row["low"] for row in (before, after)]
    sd = np.hypot(*widths) / (2 * stats.norm.ppf(0.95))
    assert abs(unit * (after["value"] - before["value"]) - 0.4) < 4 * unit * sd


@pytest.mark.slow
def test_another_shape_is_found_by_the_pit():
    """From day 9 theta is 0 or larger, with the same mean and variance: level and spread hold."""
    frame = frame_of(12, 12_000)
    rng = np.random.default_rng(1)
    late = (frame["day"] >= "2026-03-09").to_numpy()
    share = 0.3 / 1.3  # of zeros: with a fixed theta else, cv2 is 0.3
    theta = frame["t"] * np.where(rng.random(len(frame)) < share, 0.0, 1 / (1 - share))
    frame.loc[late, "y"] = rng.poisson(theta * frame["N"])[late]
    found = soc.drift(statistics(frame, joint=True), **QUIET)
    pit = found.table[found.table["what"] == "PIT"].set_index("where")
    assert found.alarms[0] == "2026-03-09"
    assert pit.loc["2026-03-09", "verdict"] == "fail"
    assert (pit["p"].iloc[:8] > 1e-3).all()


@pytest.fixture(scope="module")
def drifted():
    return soc.drift(statistics(frame_of(6, 400), joint=False), **QUIET)


@pytest.mark.slow
def test_verdicts_allow_for_the_tests_of_a_day(drifted):
    """A day has three tests where there are no joint cells: its p-values count three times."""
    table = drifted.table
    assert (table["n"] == 400).all()
    assert list(table["what"]) == ["level", "slope", "spread"] * 6
    assert table["where"].is_monotonic_increasing
    wanted = np.where(3 * table["p"] < 0.05, "warn", "ok")
    wanted = np.where(3 * table["p"] < 0.05 / 60, "fail", wanted)
    np.testing.assert_array_equal(table["verdict"], wanted)
    with pytest.raises(soc.StatisticsError, match="2027"):
        drifted.fit_of("2027-01-01")


@pytest.mark.slow
def test_fits_of_days_have_their_departures(drifted):
    """Curves are moved by level, slope and spread at every knot; draws vary as the day does."""
    base, scale = drifted.fit.data["posterior"], drifted.data.attrs
    position = (knots_in(drifted.fit.data, "mean_knot") - scale["centre"]) / scale["sd"]
    for fit, at in ((drifted.fit_of(), -1), (drifted.fit_of("2026-03-01"), 0)):
        moved = {c: fit.data["posterior"][c] - base[c] for c in ("log_mean", "log_cv2")}
        level, slope, spread = drifted.data["filtered"].to_numpy()[at]
        mean = {c: values.mean(("chain", "draw")) for c, values in moved.items()}
        np.testing.assert_allclose(mean["log_mean"], level + slope * position, atol=1e-9)
        np.testing.assert_allclose(mean["log_cv2"], spread, atol=1e-9)
        covariance = drifted.data["filtered_covariance"].to_numpy()[at]
        design = np.stack([np.ones(len(position)), position])
        variance = np.diag(design.T @ covariance[:2, :2] @ design)
        added = moved["log_mean"].var(("chain", "draw"))
        np.testing.assert_allclose(added, variance, rtol=0.25)  # of 1,000 draws
        np.testing.assert_allclose(
            moved["log_cv2"].var(("chain", "draw")), covariance[2, 2], rtol=0.25
        )


@pytest.mark.slow
def test_labels_show_level_and_slope_alone():
    frame = frame_of(4, 800)
    frame["n"], frame["z"] = 1, (np.random.default_rng(0).random(len(frame)) < frame["p"]) * 1
    found = soc.drift(statistics(frame, "successes", joint=True), **QUIET)
    assert set(found.table["what"]) == {"level", "slope"}
    level = found.table[found.table["what"] == "level"]
    assert (level["high"] - level["low"]).max() < 0.3 * 2 * stats.norm.ppf(0.95)
    assert np.isfinite(soc.calibration_curves(found.fit_of(), [0.5])["mean"]).all()
