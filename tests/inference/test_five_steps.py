"""Five steps with conjugate priors: smoothing, and moments of log theta."""

import mpmath
import numpy as np
import pandas as pd
import pytest
from scipy import special
from scipy.interpolate import make_smoothing_spline

import soc_pymc as soc
from soc_pymc._model.splines import spline_matrix
from soc_pymc.families.poisson_gamma import match_gammas
from soc_pymc.inference import five_steps
from soc_pymc.inference.five_steps import smoothing_spline
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
    return {
        moments: soc.fit(statistics, method=soc.FiveSteps(moments), **QUIET)
        for moments in ("plain", "log")
    }


def curve(fit, score, name="mean", **options):
    """The only draw of a curve at scores."""
    return soc.calibration_curves(fit, score, **options)[name].to_numpy().ravel()


def test_the_smoother_is_the_smoothing_spline(monkeypatch):
    """With a knot at each point and the same penalty, as SciPy's, to 1e-6."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(60))
    y, w = np.sin(4 * x) + 0.2 * rng.normal(size=60), rng.uniform(0.5, 2.0, 60)
    monkeypatch.setattr(five_steps, "_best_multiple", lambda *_: 1e-3)
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
    bins = fits["plain"].data["constant_data"]["score"].to_numpy()
    estimates = np.log(fits["plain"].data["per_bin"]["mean"].to_numpy())
    rough = np.sqrt(np.mean((estimates - s1_curves(bins)[0]) ** 2))
    for moments, most in (("plain", 0.15), ("log", 0.2)):
        log_mean_error = np.log(curve(fits[moments], score)) - log_mean
        log_cv2_error = -np.log(curve(fits[moments], score, "shape")) - log_cv2
        assert np.sqrt(np.mean(log_mean_error**2)) < min(0.03, 0.5 * rough)
        assert np.sqrt(np.mean(log_cv2_error**2)) < most


@pytest.mark.slow
def test_posteriors_are_near_those_of_the_hierarchical_model(frame, statistics, fits):
    """On average means are within .03 posterior sd, and sds within 4%."""
    items = count_items(frame.head(2000))
    whole, steps = (
        soc.item_posteriors(fit, items, quantiles=(), **QUIET)
        for fit in (soc.fit(statistics, **QUIET), fits["plain"])
    )
    difference = (steps["theta_mean"] - whole["theta_mean"]).abs() / whole["theta_sd"]
    assert difference.mean() < 0.03
    assert np.log(steps["theta_sd"] / whole["theta_sd"]).abs().mean() < 0.04


def test_monotone_means_never_decrease():
    """A truly decreasing mean becomes flat."""
    rng = np.random.default_rng(2)
    t = rng.uniform(0.1, 1.0, 4000)
    frame = pd.DataFrame({"score": t, "count": rng.poisson(5 * (1.0 - 0.6 * t)), "exposure": 5.0})
    stats = soc.summarize(count_items(frame), bins=20, **QUIET)
    free, monotone = (
        curve(soc.fit(stats, prior, soc.FiveSteps(), **QUIET), np.linspace(0.1, 1.0, 200))
        for prior in (soc.Gamma(), soc.Gamma(monotone=True))
    )
    assert np.diff(free).min() < 0
    assert np.diff(monotone).min() >= -1e-12


def test_values_are_near_the_truth_and_pass_their_check():
    frame = value_frame(20_000, 0)
    stats = soc.summarize(CASES["normal"].items(frame), bins=50, joint=True, **QUIET)
    fit = soc.fit(stats, method=soc.FiveSteps(), **QUIET)
    score = np.linspace(-2.0, 2.0, 61)
    error = curve(fit, score) - (0.9 * score + 0.2 * np.sin(score))
    assert np.abs(error).mean() < 0.05
    error = curve(fit, score, "log_variance") - (0.4 * score - 0.8)
    assert np.abs(error).mean() < 0.1
    assert "fail" not in set(soc.check(fit, stats, **QUIET).table["verdict"])


def test_a_fit_is_used_as_any_other(fits):
    """Bands have no width; curves have SQL; one draw has no importance weights."""
    for fit in fits.values():
        assert fit.status.pareto_k is None
        banded = soc.bands(soc.calibration_curves(fit), simultaneous=True)["mean"]
        np.testing.assert_allclose(banded.sel(bound="lower"), banded.sel(bound="upper"))
        assert "SELECT" in soc.posterior_sql(fit, "ads")


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
