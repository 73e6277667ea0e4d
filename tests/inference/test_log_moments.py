"""Smoothing E(log theta|t) and Var(log theta|t), and matching Gammas to them."""

from dataclasses import replace

import mpmath
import numpy as np
import pandas as pd
import pytest
from scipy import special

import soc_pymc as soc
from soc_pymc.families.poisson_gamma import match_gammas, moments_of_log
from soc_pymc.families.priors import COMPONENTS
from soc_pymc.inference.five_steps.curves import MOMENTS
from soc_pymc.posterior.curves import curve_draws as frame_curves


@pytest.fixture(scope="module")
def fits():
    frame = soc.simulation.s1(100_000, seed=3)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, bins=100, equal="count", progress=False)
    return {
        name: soc.fit(stats, method=soc.FiveSteps(moments=name), progress=False)
        for name in ("log", "plain")
    }


@pytest.mark.parametrize("shape", [1e-6, 0.03, 1.0, 40.0, 1e5, 1e9])
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


def test_precisions_of_log_moments_are_those_of_the_delta_method():
    """Against differences of the moments in both parameters; 1e-6 is the error of these."""
    curves = np.array([-2.0, 0.3, 1.0]), np.array([-6.0, -0.5, 2.0])
    information = np.array([3.0, 40.0, 0.5]), np.array([7.0, 0.2, 90.0])
    step = 1e-5
    by = [
        (np.stack(moments_of_log(*above)) - np.stack(moments_of_log(*below))) / (2 * step)
        for above, below in (
            [(curves[0] + s, curves[1]) for s in (step, -step)],
            [(curves[0], curves[1] + s) for s in (step, -step)],
        )
    ]
    variance = by[0] ** 2 / information[0] + by[1] ** 2 / information[1]
    found = MOMENTS["log"].precision(curves, information)
    np.testing.assert_allclose(np.stack(found) * variance, 1.0, rtol=1e-6)


def test_the_curves_follow_the_bins_moments_of_log_theta(fits):
    """The bins' estimates less the curve average to nothing, within their own scatter."""
    fit = fits["log"]
    at = fit.data["constant_data"]["score"].to_numpy()
    shape = soc.calibration_curves(fit, at)["shape"].to_numpy()[0, 0]
    log_mean = soc.calibration_curves(fit, at)["log_mean"].to_numpy()[0, 0]
    known = fit.data["per_bin"]
    smooth = {
        "mean_log": log_mean + special.psi(shape) - np.log(shape),
        "variance_log": special.polygamma(1, shape),
    }
    for name, curve in smooth.items():
        away = known[name].to_numpy() - curve
        middle = away[5:-5]
        # the mean of 90 errors, four of its standard errors
        assert abs(middle.mean()) < 4 * middle.std() / np.sqrt(len(middle)), name
        # and smoother than the estimates
        assert np.abs(np.diff(curve, 2)).mean() < 0.2 * np.abs(np.diff(known[name], 2)).mean()


def test_both_kinds_of_moments_find_the_truth(fits):
    """Within 5% of E(theta|t) and 25% of the squared cv, about four standard errors of a curve."""
    at = np.array([0.02, 0.05, 0.12])
    log_mean, log_cv2 = soc.simulation.s1_curves(at)
    for name, fit in fits.items():
        curves = soc.calibration_curves(fit, at)
        assert np.abs(curves["log_mean"].to_numpy()[0, 0] - log_mean).max() < 0.05, name
        assert np.abs(-np.log(curves["shape"].to_numpy()[0, 0]) - log_cv2).max() < 0.25, name


def test_mixtures_are_shifted_and_scaled_to_the_smooth_moments():
    """E and Var(log theta) of each bin's components are those of the matched Gamma, to rounding."""
    frame = soc.simulation.click_rates(20_000, sigma=0.5, seed=1)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, bins=12, equal="count", joint=True, progress=False)
    method = soc.FiveSteps(moments="log")
    fit = soc.fit(stats, soc.GammaMixture(), method, progress=False)
    centre = fit.data["constant_data"]["score"].to_numpy()
    log_mean, log_cv2 = (draws[0] for draws in frame_curves(fit, centre))
    weight, place, sd = (fit.data["posterior"][k].to_numpy()[0, 0] for k in COMPONENTS)
    middle = (weight * place).sum(axis=1)
    within = (weight * (sd**2 + (place - middle[:, None]) ** 2)).sum(axis=1)
    shape = np.exp(-log_cv2)
    np.testing.assert_allclose(within, special.polygamma(1, shape), rtol=1e-8)
    np.testing.assert_allclose(middle, special.psi(shape) - np.log(shape), atol=1e-8)
    mean = soc.calibration_curves(fit, centre)["mean"].to_numpy()[0, 0]
    # a mixture with a Gamma's two moments of log theta has nearly its mean
    assert np.abs(np.log(mean) - log_mean).max() < 0.1
    with pytest.raises(soc.FitError, match="made monotone"):
        soc.fit(stats, soc.GammaMixture(), replace(method, monotone=True), progress=False)


def test_moments_that_a_prior_does_not_have_are_refused():
    frame = soc.simulation.laplace_effects(500, 0)
    items = soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")
    stats = soc.summarize(items, progress=False)
    with pytest.raises(soc.FitError, match=r"soc.Normal\(\) has no moments"):
        soc.fit(stats, method=soc.FiveSteps(moments="log"), progress=False)
    with pytest.raises(soc.FitError, match="smooths no moments"):
        soc.FiveSteps(smooth=False, moments="log")
    with pytest.raises(soc.FitError, match="moments='both'"):
        soc.FiveSteps(moments="both")


def test_the_default_copes_with_bins_of_few_events():
    """880 events in 60 bins: E(theta|t) within .25 in log, about three of its standard errors.

    Log moments, dominated by the lower tail of bins of hardly known variance, are off by 2.4.
    """
    rng = np.random.default_rng(0)
    score, exposure = np.exp(rng.normal(-2.6, 0.5, 20_000)), rng.uniform(0.05, 1, 20_000)
    count = rng.poisson(score * rng.gamma(2, 0.5, 20_000) * exposure)
    frame = pd.DataFrame({"score": score, "count": count, "exposure": exposure})
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    fit = soc.fit(
        soc.summarize(items, bins=60, progress=False), method=soc.FiveSteps(), progress=False
    )
    at = np.quantile(score, np.linspace(0.05, 0.95, 19))
    log_mean = soc.calibration_curves(fit, at)["log_mean"].to_numpy()[0, 0]
    assert np.abs(log_mean - np.log(at)).max() < 0.25
