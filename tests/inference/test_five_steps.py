"""Five steps with conjugate priors: smoothing, steps, moments of log theta, and groups."""

import mpmath
import numpy as np
import pandas as pd
import pytest
from scipy import special
from scipy.interpolate import make_smoothing_spline

import soc_pymc as soc
from soc_pymc._model.splines import spline_matrix
from soc_pymc.families.poisson_gamma import match_gammas
from soc_pymc.inference.five_steps import curves as step_curves
from soc_pymc.inference.five_steps.curves import smoothing_spline
from tests.examples import CASES, QUIET, value_frame
from tests.oracles import s1_curves

count_items = CASES["gamma"].items


@pytest.fixture(scope="module")
def frame():
    return soc.simulation.s1(40_000, seed=1)


@pytest.fixture(scope="module")
def statistics(frame):
    return soc.summarize(count_items(frame), bins=100, folds=2, **QUIET)


@pytest.fixture(scope="module")
def fits(statistics):
    methods = {
        "smooth": soc.FiveSteps(),
        "log": soc.FiveSteps(moments="log"),
        "steps": soc.FiveSteps(smooth=False),
    }
    return {name: soc.fit(statistics, method=m, **QUIET) for name, m in methods.items()}


def curve(fit, score, name="mean", **options):
    """The only draw of a curve at scores."""
    return soc.calibration_curves(fit, score, **options)[name].to_numpy().ravel()


def test_the_smoother_is_the_smoothing_spline(monkeypatch):
    """With a knot at each point and the same penalty, as SciPy's, to 1e-6."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(60))
    y, w = np.sin(4 * x) + 0.2 * rng.normal(size=60), rng.uniform(0.5, 2.0, 60)
    monkeypatch.setattr(step_curves, "_best_multiple", lambda *_: 1e-3)
    knots, values = smoothing_spline(x, y, w)
    # ours counts weights by their mean, and lengths in the range of the points
    scipys = make_smoothing_spline(x, y, w / w.mean(), lam=1e-3 * (x[-1] - x[0]) ** 3)
    np.testing.assert_allclose(spline_matrix(x, knots) @ values, scipys(x), atol=1e-6)


def test_the_smoother_finds_the_noise():
    """A sine in noise: mean squared error a tenth of the points'; straight lines stay straight."""
    rng = np.random.default_rng(1)
    x = np.linspace(0, 1, 300)
    truth = np.sin(5 * x)
    knots, values = smoothing_spline(x, truth + 0.3 * rng.normal(size=300), np.ones(300))
    assert np.mean((spline_matrix(x, knots) @ values - truth) ** 2) < 0.1 * 0.09
    bends = [
        np.ptp(np.diff(smoothing_spline(x, 0.3 * rng.normal(size=300), np.ones(300))[1]))
        for _ in range(20)
    ]
    assert np.median(bends) < 0.01  # restricted likelihood rarely follows noise
    for n in (1, 2, 3, 5):
        knots, values = smoothing_spline(x[:n], 1.0 + 2.0 * x[:n], np.ones(n))
        np.testing.assert_allclose(
            spline_matrix(x[:n], knots) @ values, 1.0 + 2.0 * x[:n], atol=1e-6
        )


def test_smooth_curves_recover_s1(frame, fits):
    """40,000 items in 100 bins: mean within 3%, log cv2 within .15, root mean squares.

    Sampling alone leaves about 1.5% and .07; bins that are not smoothed are twice as far or more.
    """
    score = np.quantile(frame["score"], np.linspace(0.01, 0.99, 99))
    log_mean, log_cv2 = s1_curves(score)
    errors = {
        name: [
            np.sqrt(np.mean((np.log(curve(fit, score)) - log_mean) ** 2)),
            np.sqrt(np.mean((-np.log(curve(fit, score, "shape")) - log_cv2) ** 2)),
        ]
        for name, fit in fits.items()
    }
    for name in ("smooth", "log"):
        assert errors[name][0] < 0.03
        assert errors[name][1] < (0.15 if name == "smooth" else 0.2)
    assert errors["steps"][0] > 2.0 * errors["smooth"][0]


@pytest.mark.slow
def test_posteriors_are_near_those_of_the_hierarchical_model(frame, statistics, fits):
    """On average means are within .03 posterior sd, and sds within 4%."""
    items = count_items(frame.head(2000))
    whole, steps = (
        soc.item_posteriors(fit, items, quantiles=(), **QUIET)
        for fit in (soc.fit(statistics, **QUIET), fits["smooth"])
    )
    difference = (steps["theta_mean"] - whole["theta_mean"]).abs() / whole["theta_sd"]
    assert difference.mean() < 0.03
    assert np.log(steps["theta_sd"] / whole["theta_sd"]).abs().mean() < 0.04


def test_steps_are_the_bins_own_estimates(frame, statistics, fits):
    """Curves are constant within a bin, jump at its edges, and take the outer bins beyond."""
    estimates = fits["steps"].data["per_bin"]["mean"].to_numpy()
    edges = statistics.edges
    np.testing.assert_allclose(curve(fits["steps"], edges), estimates[1:], rtol=1e-12)
    before = curve(fits["steps"], np.nextafter(edges, 0))
    np.testing.assert_allclose(before, estimates[:-1], rtol=1e-12)
    outer = curve(fits["steps"], [1e-6, float(frame["score"].max()) * 10])
    np.testing.assert_allclose(outer, estimates[[0, -1]], rtol=1e-12)


def test_empty_bins_take_a_neighbour():
    """An empty bin takes the nearer occupied bin, by number of bins."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"score": np.resize([0.1, 0.9], 100), "count": rng.poisson(2.0, 100), "exposure": 5.0}
    )
    stats = soc.summarize(count_items(frame), edges=[0.2, 0.3, 0.4, 0.5, 0.6], **QUIET)
    fit = soc.fit(stats, method=soc.FiveSteps(smooth=False), **QUIET)
    low, high = fit.data["per_bin"]["mean"].to_numpy()
    np.testing.assert_allclose(curve(fit, [0.1, 0.39, 0.41, 0.9]), [low, low, high, high])


@pytest.mark.parametrize("smooth", [True, False])
def test_monotone_means_never_decrease(smooth):
    """A truly decreasing mean becomes flat, by the option of the method or of the prior."""
    rng = np.random.default_rng(2)
    t = rng.uniform(0.1, 1.0, 4000)
    frame = pd.DataFrame({"score": t, "count": rng.poisson(5 * (1.0 - 0.6 * t)), "exposure": 5.0})
    stats = soc.summarize(count_items(frame), bins=20, **QUIET)
    free, by_method, by_prior = (
        curve(soc.fit(stats, prior, method, **QUIET), np.linspace(0.1, 1.0, 200))
        for prior, method in (
            (soc.Gamma(), soc.FiveSteps(smooth=smooth)),
            (soc.Gamma(), soc.FiveSteps(smooth=smooth, monotone=True)),
            (soc.Gamma(monotone=True), soc.FiveSteps(smooth=smooth)),
        )
    )
    assert np.diff(free).min() < 0
    assert np.diff(by_method).min() >= -1e-12
    np.testing.assert_array_equal(by_method, by_prior)


@pytest.mark.parametrize("smooth", [True, False])
def test_values_are_near_the_truth_and_pass_their_check(smooth):
    frame = value_frame(20_000, 0)
    stats = soc.summarize(CASES["normal"].items(frame), bins=50, joint=True, **QUIET)
    fit = soc.fit(stats, method=soc.FiveSteps(smooth=smooth), **QUIET)
    score = np.linspace(-2.0, 2.0, 61)
    away = np.abs(curve(fit, score) - (0.9 * score + 0.2 * np.sin(score)))
    assert away.mean() < (0.05 if smooth else 0.15)
    away = np.abs(curve(fit, score, "log_variance") - (0.4 * score - 0.8))
    assert away.mean() < (0.1 if smooth else 0.3)
    assert "fail" not in set(soc.check(fit, stats, **QUIET).table["verdict"])


def test_a_fit_is_used_as_any_other(statistics, fits):
    """Bands have no width; smoothing predicts better; steps have no SQL; one draw no weights."""
    for fit in fits.values():
        assert fit.status.pareto_k is None
        banded = soc.bands(soc.calibration_curves(fit), simultaneous=True)["mean"]
        np.testing.assert_allclose(banded.sel(bound="lower"), banded.sel(bound="upper"))
    assert "SELECT" in soc.posterior_sql(fits["smooth"], "ads")
    with pytest.raises(soc.FitError, match="steps"):
        soc.posterior_sql(fits["steps"], "ads")
    smooth, steps = (
        soc.evaluate.cross_validate(statistics, method=m, **QUIET)["elpd"].sum()
        for m in (soc.FiveSteps(), soc.FiveSteps(smooth=False))
    )
    assert smooth > steps


def test_groups_are_fitted_separately():
    """A group's curves are those of a fit to its items; few items and new groups are pooled."""
    frame = soc.simulation.s1(12_000, seed=5).assign(kind=np.resize(["a", "b", "b"], 12_000))
    frame.loc[frame.index[:3], "kind"] = "few"
    stats = soc.summarize(CASES["groups"].items(frame), bins=12, **QUIET)
    fit = soc.fit(stats, method=soc.FiveSteps(), **QUIET)
    assert fit.groups == ("a", "b", "few")
    score = np.quantile(frame["score"], np.linspace(0.02, 0.98, 30))
    b_items = CASES["groups"].items(frame[frame["kind"] == "b"])
    pooled, alone = (
        soc.fit(s, soc.Gamma(groups=False), soc.FiveSteps(), **QUIET)
        for s in (stats, soc.summarize(b_items, edges=stats.edges, **QUIET))
    )
    np.testing.assert_allclose(  # other knots
        curve(fit, score, group="b"), curve(alone, score), rtol=2e-3
    )
    for label in ("few", "new"):
        np.testing.assert_allclose(curve(fit, score, group=label), curve(pooled, score), rtol=1e-12)


# --- moments of log theta ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [1e-6, 0.03, 1.0, 1e5, 1e9])
def test_a_matched_gamma_has_the_moments(shape):
    """To 1e-10 of the sd of log theta, against mpmath."""
    with mpmath.workdps(40):
        middle, width = -3.0, float(mpmath.psi(1, shape))
        log_mean, log_cv2 = match_gammas(np.array([middle]), np.array([width]))
        a = mpmath.exp(-mpmath.mpf(float(log_cv2[0])))
        again = mpmath.psi(0, a) - mpmath.log(a) + mpmath.mpf(float(log_mean[0]))
        scale = 1 + abs(mpmath.psi(0, a)) + abs(mpmath.log(a))
        assert abs(float((again - middle) / scale)) < 1e-10
        assert float(mpmath.psi(1, a)) == pytest.approx(width, rel=1e-9)


def test_curves_follow_the_bins_moments_of_log_theta(fits):
    """The bins' estimates less the curve average to nothing, within their own scatter."""
    fit = fits["log"]
    score = fit.data["constant_data"]["score"].to_numpy()
    shape, log_mean = curve(fit, score, "shape"), curve(fit, score, "log_mean")
    smooth = {
        "mean_log": log_mean + special.psi(shape) - np.log(shape),
        "variance_log": special.polygamma(1, shape),
    }
    for name, values in smooth.items():
        estimates = fit.data["per_bin"][name].to_numpy()
        middle = (estimates - values)[5:-5]
        # the mean of 90 errors, four of its standard errors
        assert abs(middle.mean()) < 4 * middle.std() / np.sqrt(len(middle)), name
        # and smoother than the estimates
        assert np.abs(np.diff(values, 2)).mean() < 0.2 * np.abs(np.diff(estimates, 2)).mean()


def test_bins_of_few_events():
    """880 events in 60 bins: E(theta|t) within .25 in log, about three of its standard errors."""
    rng = np.random.default_rng(0)
    score, exposure = np.exp(rng.normal(-2.6, 0.5, 20_000)), rng.uniform(0.05, 1, 20_000)
    count = rng.poisson(score * rng.gamma(2, 0.5, 20_000) * exposure)
    frame = pd.DataFrame({"score": score, "count": count, "exposure": exposure})
    stats = soc.summarize(count_items(frame), bins=60, **QUIET)
    fit = soc.fit(stats, method=soc.FiveSteps(), **QUIET)
    inner = np.quantile(score, np.linspace(0.05, 0.95, 19))
    assert np.abs(np.log(curve(fit, inner) / inner)).max() < 0.25
    none = soc.summarize(count_items(frame.assign(count=0)), bins=2, **QUIET)
    with pytest.raises(soc.FitError, match="event"):
        soc.fit(none, method=soc.FiveSteps(), **QUIET)
