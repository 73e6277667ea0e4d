"""Curves at scores, groups and exposures against SciPy's splines, and their bands."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline

import soc_pymc as soc
from tests.checks.hand_made import KINDS
from tests.examples import SINGLE_FAMILIES, thinned
from tests.family_records import prior_parameters
from tests.posterior.references import kind_of

# kinds of items by family, with their curves and what these mean
LAWS = {"gamma": KINDS["counts"], "normal": KINDS["values"], "beta": KINDS["trials"]}
LAWS["inverse_gamma"] = KINDS["amounts"]
PARAMETERS = {"gamma": ("shape", "rate"), "beta": ("a", "b"), "inverse_gamma": ("shape", "scale")}


def spline_draws(fit, variable, knot, position, **chosen):
    """Natural cubic splines through a variable's draws at knots, straight beyond the knots."""
    knots = fit.curves.knots(knot)
    values = fit.data["posterior"][variable].sel(**chosen).to_numpy().reshape(-1, len(knots))
    spline = CubicSpline(knots, values, axis=1, bc_type="natural")
    inside = np.clip(position, knots[0], knots[-1])
    return spline(inside) + spline(inside, 1) * (position - inside)


def assert_curves(curves, kind, first, second):
    """Checks mean, variance, and the conjugate parameters where there are any."""
    mean, variance = LAWS[kind].moments(first, second)
    shape = mean.shape
    np.testing.assert_allclose(curves["mean"].to_numpy().reshape(shape), mean, rtol=1e-8)
    np.testing.assert_allclose(curves["variance"].to_numpy().reshape(shape), variance, rtol=1e-8)
    np.testing.assert_allclose(np.log(curves["variance"]), curves["log_variance"], rtol=1e-9)
    expected_ones = prior_parameters(LAWS[kind].family, mean, variance)
    for name, expected in zip(PARAMETERS.get(kind, ()), expected_ones, strict=False):
        np.testing.assert_allclose(
            curves[name].to_numpy().reshape(shape), expected, rtol=1e-6, atol=1e-12
        )


@pytest.mark.filterwarnings("ignore::soc_pymc.ItemsWarning")  # scores far outside
@pytest.mark.parametrize("name", [*SINGLE_FAMILIES, "five_steps"])
def test_curves_are_splines_through_the_draws_at_the_knots(example, name):
    """Between the knots and, straight, far beyond them."""
    fit, scores = example(name).fit, example(name).frame["score"]
    law = LAWS[kind_of(name)]
    score = np.quantile(scores, np.linspace(0.0, 1.0, 17))
    outside = (score[[0, -1]] - 20.0) if name == "normal" else score[[0, 0]] / [50.0, 1e6]
    score = np.concatenate([score, outside])
    curves = soc.calibration_curves(fit, score)
    assert curves["mean"].dims == ("chain", "draw", "score")
    at = [
        spline_draws(fit, variable, knot, law.position(score))
        for variable, knot in zip(law.curves, ("mean_knot", "variance_knot"), strict=True)
    ]
    assert_curves(curves, kind_of(name), *at)


def test_curves_of_groups(example):
    """Known groups have draws of their own; a new group is wider than the shared curve."""
    fit, score = example("groups").fit, np.array([0.02, 0.05, 0.2])
    for label in fit.groups:
        at = [
            spline_draws(fit, f"{variable}_of_group", knot, np.log(score), group=label)
            for variable, knot in (("log_mean", "mean_knot"), ("log_cv2", "variance_knot"))
        ]
        assert_curves(soc.calibration_curves(fit, score, group=label), "gamma", *at)
    shared = soc.calibration_curves(fit, score)
    knots = {"log_mean": "mean_knot", "log_cv2": "variance_knot"}
    at = [spline_draws(fit, name, knot, np.log(score)) for name, knot in knots.items()]
    assert_curves(shared, "gamma", *at)
    with pytest.warns(soc.ItemsWarning):
        new = soc.calibration_curves(fit, score, group="never seen")
    over = ("chain", "draw")
    assert (new["log_mean"].std(over) > shared["log_mean"].std(over)).all()


def test_curves_with_a_term_in_exposure(example):
    """The term adds a spline in log exposure, which is constant beyond the fit's exposures."""
    fit = example("exposure").fit
    score, exposure = np.array([0.02, 0.05, 0.2, 0.05]), np.array([1e-9, 30.0, 300.0, 1e9])
    at = []
    for variable, curve in (("log_mean", "mean"), ("log_cv2", "variance")):
        knots = fit.curves.knots(f"{curve}_exposure_knot")
        size = np.clip(np.log(exposure), knots[0], knots[-1])
        at.append(
            spline_draws(fit, variable, f"{curve}_knot", np.log(score))
            + spline_draws(fit, f"{variable}_by_exposure", f"{curve}_exposure_knot", size)
        )
    curves = soc.calibration_curves(fit, score, exposure=exposure)
    assert_curves(curves, "gamma", *at)


def test_curves_without_an_exposure_average_over_the_items(example):
    """Mean and total variance over the exposures of the thousand items of nearest scores: 10%."""
    fit, frame = example("exposure").fit, example("exposure").frame
    score = float(frame["score"].median())
    near = frame.iloc[np.argsort(np.abs(np.log(frame["score"] / score)))[:1000]]
    each = soc.calibration_curves(fit, np.full(1000, score), exposure=near["exposure"])
    mean = each["mean"].mean("score")
    variance = each["variance"].mean("score") + each["mean"].var("score")
    found = soc.calibration_curves(fit, [score]).isel(score=0)
    np.testing.assert_allclose(found["mean"], mean, rtol=0.02)
    np.testing.assert_allclose(found["variance"], variance, rtol=0.1)
    np.testing.assert_allclose(found["shape"] / found["rate"], found["mean"], rtol=1e-9)


@pytest.mark.parametrize("name", thinned(["zeros", "gamma_mixture"], ["gamma_mixture"]))
def test_variables_of_mixtures_agree(example, name):
    """Moments are of all theta; the curves at the knots are those of theta that is not 0."""
    fit, score = example(name).fit, np.array([0.02, 0.05, 0.2])
    curves = soc.calibration_curves(fit, score)
    names = ("log_mean", "mean_knot"), ("log_cv2", "variance_knot")
    draws = (spline_draws(fit, *variable, np.log(score)) for variable in names)
    mean, cv2 = (np.exp(x).reshape(curves["mean"].shape) for x in draws)
    share = curves["p_zero"].to_numpy() if name == "zeros" else np.zeros((1, 1, 1))
    assert ((share >= 0.0) & (share < 1.0)).all()
    square = (1.0 - share) * mean**2 * (1.0 + cv2)
    np.testing.assert_allclose(curves["mean"], (1.0 - share) * mean, rtol=1e-6)
    # the variances of a few draws are those that the components can represent
    assert np.isclose(curves["variance"], square - curves["mean"] ** 2, 1e-6, 0.0).mean() > 0.99
    np.testing.assert_allclose(curves["shape"] / curves["rate"], curves["mean"], rtol=1e-9)
    np.testing.assert_allclose(curves["mean"] / curves["rate"], curves["variance"], rtol=1e-9)


@pytest.mark.slow
def test_model_and_curves_agree_at_the_bins(small_fit, small_statistics):
    """The model's own curves at the bins are those at the bins' centres."""
    import pymc as pm

    draws = small_fit.data["posterior"].to_dataset()
    options = {"progressbar": False, "compile_kwargs": {"mode": "FAST_COMPILE"}}
    with soc.model(small_statistics):
        again = pm.compute_deterministics(draws, var_names=["bin_log_mean"], **options)
    centre = small_fit.data["constant_data"]["score"].to_numpy()
    curves = soc.calibration_curves(small_fit, centre)
    np.testing.assert_allclose(again["bin_log_mean"], curves["log_mean"], atol=1e-8)


def test_default_scores_span_the_bins(small_fit):
    score = soc.calibration_curves(small_fit)["score"].to_numpy()
    centre = small_fit.data["constant_data"]["score"].to_numpy()
    assert len(score) == 200
    np.testing.assert_allclose(score[[0, -1]], centre[[0, -1]])


def _walks(rng, draws=4000, points=30):
    values = np.cumsum(rng.normal(size=(draws, points)), axis=1)
    return xr.Dataset({"log_mean": (("chain", "draw", "score"), values[None])})


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


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.95), st.floats(0.01, 0.04))
def test_bands_are_nested(seed, prob, more):
    """Wider for more probability, simultaneous ones widest, free of the order of draws."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(1, 60, 5)).cumsum(axis=2)
    curves = xr.Dataset({"mean": (("chain", "draw", "score"), values)}, {"score": np.arange(5.0)})
    narrow, wide = (soc.bands(curves, p)["mean"].to_numpy() for p in (prob, prob + more))
    whole = soc.bands(curves, prob, simultaneous=True)["mean"].to_numpy()
    axis = next(i for i, n in enumerate(narrow.shape) if n != 5)
    low, high = (lambda b: b.min(axis=axis)), (lambda b: b.max(axis=axis))
    assert (low(wide) <= low(narrow) + 1e-12).all()
    assert (high(wide) >= high(narrow) - 1e-12).all()
    assert (low(whole) <= low(narrow) + 1e-12).all()
    assert (high(whole) >= high(narrow) - 1e-12).all()
    mixed = curves.isel(draw=rng.permutation(60))
    np.testing.assert_allclose(soc.bands(mixed, prob)["mean"].to_numpy(), narrow, atol=1e-12)


@pytest.mark.parametrize("name", thinned([*SINGLE_FAMILIES, "exposure", "zeros"], SINGLE_FAMILIES))
def test_bands_respect_the_range_of_a_variable(example, name):
    """Bands of scales, shares and variances stay inside their range, however few the draws."""
    curves = soc.calibration_curves(example(name).fit)
    banded = soc.bands(curves, prob=0.99, simultaneous=True)
    assert set(banded) == set(curves)
    positive = {"variance", "shape", "rate", "a", "b", "p_zero"}
    if kind_of(name) != "normal":
        positive |= {"mean"}
    for variable in positive & set(banded):
        assert (banded[variable] > 0.0).all(), variable
    if kind_of(name) == "beta":
        assert (banded["mean"] < 1.0).all()
    for variable in banded.data_vars.values():
        lower, median, upper = variable.transpose("bound", "score").to_numpy()
        assert ((lower <= median) & (median <= upper)).all()
