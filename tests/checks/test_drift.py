"""Drift: the walk against exact algebra, sites against brute force, and what is found in items."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, linalg, special, stats

import soc_pymc as soc
from soc_pymc.checks import _drift as walk_module
from soc_pymc.checks._drift import SDS, _scale_of_walk, _site, walk
from soc_pymc.checks.observations import curve_rows
from tests.checks.hand_made import KINDS, as_items, simulate
from tests.examples import QUIET


def items_by_day(days, n, change=0.0, since=0, kind="counts", theta=None):
    """Returns items; from a day on, log means, values and logits are higher by `change`."""
    case, day = KINDS[kind], np.repeat(np.arange(days), n)
    later = np.where(day >= since, change, 0.0)

    def moved(rng, mean, variance):
        if kind == "values":
            return case.theta(rng, mean + later, variance)
        if kind == "counts":
            return case.theta(rng, mean * np.exp(later), variance * np.exp(2 * later))
        return case.theta(rng, special.expit(special.logit(mean) + later), variance)

    frame = simulate(days * n, 0, kind, theta or moved)
    return frame.assign(day=pd.Timestamp("2026-03-01") + pd.to_timedelta(day, "D"))


def statistics(frame, kind="counts", bins=12, **options):
    items = replace(as_items(frame, kind), date="day")
    return soc.summarize(items, bins=bins, **QUIET, **options)


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
    noise = linalg.block_diag(*np.linalg.inv(precision))
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


def walk_on(grid, *days):
    """Returns the walk on a grid of sds, and their prior probabilities."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk_module, "SDS", grid)
        return walk(*days), walk_module._prior()


@given(st.integers(0, 1000))
@settings(max_examples=10)
def test_the_smoother_is_the_dense_gaussian_averaged_over_sds(seed):
    """Means, covariances and weights by multivariate normals of all days at once, to 1e-7."""
    grid, days = np.array([0.0, 0.01, 0.1]), random_days(seed)
    states, mass = walk_on(grid, *days)
    points = np.array(list(product(range(3), repeat=2)))
    evidence, means, covariances = zip(*(dense(*days, grid[k]) for k in points), strict=True)
    weight = special.softmax(evidence + np.log(mass[points]).sum(axis=1))
    mean = weight @ np.array(means)
    second = [c + np.outer(m, m) for m, c in zip(means, covariances, strict=True)]
    covariance = np.tensordot(weight, second, 1) - np.outer(mean, mean)
    blocks = [covariance[t : t + 2, t : t + 2] for t in range(0, len(mean), 2)]
    np.testing.assert_allclose(np.ravel(states["smoothed"]), mean, atol=1e-7)
    np.testing.assert_allclose(states["smoothed_covariance"], blocks, atol=1e-7)
    np.testing.assert_allclose(states["step"], weight @ grid[points], atol=1e-7)
    # the last state of the first days alone is the filtered one
    first_days, _ = walk_on(grid, *(values[:3] for values in days))
    np.testing.assert_allclose(states["filtered"][2], first_days["smoothed"][2], atol=1e-7)


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


@pytest.fixture(scope="module", params=KINDS)
def fitted(request):
    stats_ = statistics(items_by_day(3, 600, kind=request.param), request.param)
    return soc.fit(stats_, **QUIET), stats_


@pytest.mark.slow
def test_sites_are_the_posterior_by_brute_force(fitted):
    """Mean and sd of each part by integrals over a grid, from the sum over single bins' kernels.

    A third of an sd in the mean and 8% in the sd: skewness at 600 items is what remains. Steps of
    0.7 sd integrate what is nearly normal to many digits.
    """
    fit, all_days = fitted
    own = all_days.window("1d", all_days.days[0])
    scale, rows = (
        _scale_of_walk(fit.curves, curve_rows(fit.curves, all_days)),
        curve_rows(fit.curves, own),
    )
    centre, width, unit = scale
    position = (fit.curves.position("mean", rows.score) - centre) / width
    precision, pull = _site(fit.curves, rows, scale)
    covariance = np.linalg.inv(precision)
    mean = covariance @ pull
    sd = np.sqrt(np.diag(covariance))
    axes = [np.linspace(m - 5 * s, m + 5 * s, 15) for m, s in zip(mean, sd, strict=True)]
    at = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    design = unit * np.stack([np.ones(len(position)), position])
    curves = rows.location + at[:, :2] @ design, rows.dispersion + at[:, 2:]
    log_density = rows.sums.values(*curves).sum(axis=1)
    weight = np.exp(log_density - log_density.max()).reshape(15, 15, 15)
    for k in range(3):
        marginal = weight.sum(axis=tuple(j for j in range(3) if j != k))
        marginal /= integrate.trapezoid(marginal, axes[k])
        exact = integrate.trapezoid(marginal * axes[k], axes[k])
        variance = integrate.trapezoid(marginal * (axes[k] - exact) ** 2, axes[k])
        assert abs(mean[k] - exact) < sd[k] / 3
        assert sd[k] == pytest.approx(np.sqrt(variance), rel=0.08)


@pytest.mark.slow
def test_a_step_is_found_on_its_day_and_measured():
    """3,000 values a day; the level moves by what it was moved, to 4 sds."""
    frame = items_by_day(12, 3000, 0.4, 8, "values")
    found = soc.drift(statistics(frame, "values", joint=True), **QUIET)
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
    days = np.repeat(np.arange(12), 12_000)

    def two_points(rng, mean, variance):
        cv2 = variance / mean**2  # theta is 0 with probability cv2 / (1 + cv2), else this
        theta = mean * np.where(rng.random(len(mean)) * (1 + cv2) < cv2, 0.0, 1 + cv2)
        return np.where(days < 8, KINDS["counts"].theta(rng, mean, variance), theta)

    frame = items_by_day(12, 12_000, theta=two_points)
    found = soc.drift(statistics(frame, joint=True), **QUIET)
    pit = found.table[found.table["what"] == "PIT"].set_index("where")
    assert found.alarms[0] == "2026-03-09"
    assert pit.loc["2026-03-09", "verdict"] == "fail"
    assert (pit["p"].iloc[:8] > 1e-3).all()


@pytest.fixture(scope="module")
def drifted():
    return soc.drift(statistics(items_by_day(6, 400), joint=False), **QUIET)


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
    position = (drifted.fit.curves.knots("mean_knot") - scale["centre"]) / scale["sd"]
    design = np.stack([np.ones(len(position)), position])
    for fit, day in ((drifted.fit_of(), -1), (drifted.fit_of("2026-03-01"), 0)):
        state = drifted.data.isel(day=day)
        departure, covariance = (state[f"filtered{x}"].to_numpy() for x in ("", "_covariance"))
        variance = np.diag(design.T @ covariance[:2, :2] @ design)
        for curve, mean, of_draws in (
            ("log_mean", departure[:2] @ design, variance),
            ("log_cv2", departure[2], covariance[2, 2]),
        ):
            moved = fit.data["posterior"][curve] - base[curve]
            np.testing.assert_allclose(moved.mean(("chain", "draw")), mean, atol=1e-9)
            # of 1,000 draws
            np.testing.assert_allclose(moved.var(("chain", "draw")), of_draws, rtol=0.25)


@pytest.mark.slow
def test_labels_show_level_and_slope_alone():
    frame = items_by_day(4, 800, kind="trials")
    frame["trials"] = 1
    frame["successes"] = (np.random.default_rng(0).random(len(frame)) < frame["score"]) * 1
    found = soc.drift(statistics(frame, "trials", joint=True), **QUIET)
    assert set(found.table["what"]) == {"level", "slope"}
    level = found.table[found.table["what"] == "level"]
    assert (level["high"] - level["low"]).max() < 0.3 * 2 * stats.norm.ppf(0.95)
    assert np.isfinite(soc.calibration_curves(found.fit_of(), [0.5])["mean"]).all()
