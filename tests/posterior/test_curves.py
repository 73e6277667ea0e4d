"""Curves at scores and their bands."""

import numpy as np
import pytest
import xarray as xr

import soc_pymc as soc
from soc_pymc.model.splines import knots_in
from soc_pymc.posterior.curves import curve_draws


def test_curves_are_the_fit_at_the_knots(small_fit):
    posterior = small_fit.data["posterior"]
    knots = np.exp(knots_in(small_fit.data, "mean_knot"))
    log_mean, _ = curve_draws(small_fit, knots)
    drawn = posterior["log_mean"].to_numpy().reshape(log_mean.shape)
    np.testing.assert_allclose(log_mean, drawn, atol=1e-10)


def test_variables_agree(small_fit):
    curves = soc.calibration_curves(small_fit, [0.01, 0.05, 0.3])
    assert curves["mean"].dims == ("chain", "draw", "score")
    np.testing.assert_allclose(curves["mean"], curves["shape"] / curves["rate"], rtol=1e-12)
    np.testing.assert_allclose(
        curves["variance"], curves["shape"] / curves["rate"] ** 2, rtol=1e-12
    )
    np.testing.assert_allclose(np.log(curves["mean"]), curves["log_mean"])
    np.testing.assert_allclose(np.log(curves["variance"]), curves["log_variance"])


def test_model_and_curves_agree_at_the_bins(small_fit, small_statistics):
    """The model's curves at the bins are the knots' spline at the bins' centres."""
    import pymc as pm

    draws = small_fit.data["posterior"].to_dataset()
    options = {"progressbar": False, "compile_kwargs": {"mode": "FAST_COMPILE"}}
    with soc.model(small_statistics):
        again = pm.compute_deterministics(draws, var_names=["bin_log_mean"], **options)
    centre = small_fit.data["constant_data"]["score"].to_numpy()
    here = curve_draws(small_fit, centre)[0]
    drawn = again["bin_log_mean"].to_numpy().reshape(here.shape)
    np.testing.assert_allclose(drawn, here, atol=1e-8)


def test_beyond_the_data_curves_are_straight(small_fit):
    top = float(small_fit.data["constant_data"]["score"].max())
    log_mean, log_cv2 = curve_draws(small_fit, top * np.exp([1.0, 2.0, 3.0]))
    for curve in (log_mean, log_cv2):
        np.testing.assert_allclose(np.diff(curve, 2, axis=1), 0, atol=1e-8)


def test_default_scores_span_the_bins(small_fit):
    score = soc.calibration_curves(small_fit)["score"].to_numpy()
    centre = small_fit.data["constant_data"]["score"].to_numpy()
    assert len(score) == 200
    np.testing.assert_allclose(score[[0, -1]], centre[[0, -1]])


@pytest.mark.parametrize("score", [[[0.1]], [np.nan], [], [-0.1]])
def test_bad_scores(small_fit, score):
    with pytest.raises(soc.FitError):
        soc.calibration_curves(small_fit, score)


def _walks(rng, draws=4000, points=30):
    values = np.cumsum(rng.normal(size=(draws, points)), axis=1)
    return xr.Dataset({"log_mean": (("chain", "draw", "score"), values[None])})


def test_pointwise_bands_have_their_coverage():
    curves = _walks(np.random.default_rng(0))
    banded = soc.bands(curves, prob=0.8)["log_mean"]
    inside = (curves["log_mean"] >= banded.sel(bound="lower")) & (
        curves["log_mean"] <= banded.sel(bound="upper")
    )
    assert abs(float(inside.mean()) - 0.8) < 0.01


def test_simultaneous_bands_contain_whole_curves():
    """Also on other draws than those of the band: 4,000 draws, so 3 standard errors are 0.014."""
    curves, fresh = (_walks(np.random.default_rng(seed)) for seed in (1, 2))
    banded = soc.bands(curves, prob=0.9, simultaneous=True)["log_mean"]
    wide = soc.bands(curves, prob=0.9)["log_mean"]
    for draws, slack in ((curves, 0.002), (fresh, 0.025)):
        inside = (draws["log_mean"] >= banded.sel(bound="lower")) & (
            draws["log_mean"] <= banded.sel(bound="upper")
        )
        assert abs(float(inside.all("score").mean()) - 0.9) < slack
    assert (banded.sel(bound="upper") > wide.sel(bound="upper")).all()


def test_bands_of_positive_variables_are_positive(small_fit):
    curves = soc.calibration_curves(small_fit)
    both = soc.bands(curves, simultaneous=True)
    for name in ("mean", "variance", "shape", "rate"):
        assert (both[name] > 0).all()
    np.testing.assert_allclose(
        np.log(both["mean"].sel(bound="upper")), both["log_mean"].sel(bound="upper"), rtol=1e-6
    )
    with pytest.raises(soc.FitError, match="prob"):
        soc.bands(curves, prob=90)
