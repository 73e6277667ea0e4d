"""Pictures of fits: what is drawn is what the fit says, by either method, of counts and values."""

import dataclasses

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection

import soc_pymc as soc
from soc_pymc import plots
from soc_pymc._lib import errors
from soc_pymc.plots.fitted import merged_outcomes, scores_estimate_theta
from soc_pymc.plots.prior import prior_quantiles
from soc_pymc.posterior.calibration import bands, calibration_curves
from tests.picture_records import BINS, counts, drawn, labels, line, values

METHODS, KINDS = ("VI", "five steps"), {"counts": counts, "values": values}


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


def shades(ax):
    return [c for c in ax.collections if isinstance(c, PolyCollection)]


def medians(fit):
    return bands(calibration_curves(fit)).sel(bound="median")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_curves_of_one_draw_have_no_bands(kind, method):
    fit = KINDS[kind]()[3][method]
    for ax, number in zip(drawn(plots.plot_curves(fit)), (2, 2), strict=True):
        assert len(shades(ax)) == (number if method == "VI" else 0)
        assert ("posterior median" in labels(ax)) == (method == "VI")
        assert any("%" in label for label in labels(ax)) == (method == "VI")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_illustration_shows_the_curve_and_the_strip_of_theta(kind, method):
    fit = KINDS[kind]()[3][method]
    left, right = drawn(plots.plot_calibration_illustration(fit))
    middle = medians(fit)
    for ax in (left, right):
        curve = line(ax, "E(theta | t): ")
        np.testing.assert_allclose(curve.get_ydata(), middle["mean"])
        identity = line(ax, "theta = t")
        np.testing.assert_array_equal(identity.get_xdata(), identity.get_ydata())
    assert len(shades(left)) == (1 if method == "VI" else 0)
    widest = shades(right)[0].get_paths()[0].vertices[:, 1]
    _, ends = prior_quantiles(fit, middle["score"].to_numpy(), np.array([0.01, 0.99]))
    assert len(shades(right)) == 25
    assert widest.min() == pytest.approx(ends[0].min())
    assert widest.max() == pytest.approx(ends[1].max())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_adjusted_prior_has_dots_line_and_percentiles(kind, method):
    _, _, stats, fits = KINDS[kind]()
    fit = fits[method]
    ax = drawn(plots.plot_adjusted_prior(fit))
    over = "sum_N" if kind == "counts" else "n"
    own = (stats.data["sum_y"] / stats.data[over]).to_numpy()
    # bins without events stand at the foot of the axes
    shown = own[own > 0] if kind == "counts" else own
    np.testing.assert_allclose(np.sort(line(ax, "bins: ").get_ydata()), np.sort(shown))
    np.testing.assert_allclose(line(ax, "E(theta | t): ").get_ydata(), medians(fit)["mean"])
    strip = shades(ax)[0].get_paths()[0].vertices
    score = medians(fit)["score"].to_numpy()
    _, ends = prior_quantiles(fit, score, np.array([0.1, 0.95]))
    at_end = strip[np.isclose(strip[:, 0], score[-1]), 1]
    np.testing.assert_allclose([at_end.min(), at_end.max()], ends[:, -1])
    assert len(shades(ax)) == (2 if method == "VI" else 1)
    assert f"{BINS} bins" in ax.get_title(loc="left")
    assert ax.get_yscale() == ("log" if kind == "counts" else "linear")


def test_adjusted_prior_refuses_other_probabilities():
    fit = counts()[3]["VI"]
    with pytest.raises(errors.FitError, match="must be two"):
        plots.plot_adjusted_prior(fit, probs=(0.1, 0.5, 0.9))
    with pytest.raises(errors.FitError, match="must increase"):
        plots.plot_adjusted_prior(fit, probs=(0.9, 0.1))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_smoothing_shows_bins_and_curves(kind, method):
    _, _, _, fits = KINDS[kind]()
    fit, alone = fits[method], fits["five steps"]
    axes = drawn(plots.plot_smoothing(fit, per_bin=None if method == "five steps" else alone))
    score = alone.data["constant_data"]["score"].to_numpy()
    for ax, name in zip(axes, ("mean", "variance"), strict=True):
        own = alone.data["per_bin"][name].to_numpy()
        curve = medians(fit)[name].to_numpy()
        np.testing.assert_allclose(line(ax, "smooth: ").get_ydata(), curve)
        dots = line(ax, "each bin alone")
        logarithmic = kind == "counts" or name == "variance"
        shown = own > 0.01 * curve.min() if logarithmic else np.isfinite(own)
        np.testing.assert_allclose(dots.get_xdata(), score[shown])
        np.testing.assert_allclose(dots.get_ydata(), own[shown])
        crosses = [x for x in ax.lines if "near 0" in x.get_label()]
        assert sum(len(x.get_xdata()) for x in crosses) == np.isfinite(own).sum() - shown.sum()
        assert len(shades(ax)) == (1 if method == "VI" else 0)


def test_smoothing_says_what_it_misses():
    _, items, stats, fits = counts()
    with pytest.raises(errors.FitError, match=r"soc\.VI has no estimates by bin"):
        plots.plot_smoothing(fits["VI"])
    rough = soc.fit(stats, method=soc.FiveSteps(smooth=False), progress=False)
    with pytest.raises(errors.FitError, match="nothing is smoothed"):
        plots.plot_smoothing(rough)
    drawn(plots.plot_smoothing(fits["VI"], per_bin=rough))
    coarse = soc.summarize(items, bins=10, progress=False)
    other = soc.fit(coarse, method=soc.FiveSteps(), progress=False)
    with pytest.raises(errors.FitError, match=r"of other bins \(10\)"):
        plots.plot_smoothing(fits["VI"], per_bin=other)


@pytest.mark.parametrize("method", METHODS)
def test_prior_in_bin_has_the_density_and_the_items(method):
    frame, items, _, fits = counts()
    fit = fits[method]
    ax = drawn(plots.plot_prior_in_bin(fit, items, bin=20, least_exposure=30))
    own = fit.data["constant_data"].to_dataset().isel(bin=20)
    inside = frame[frame["score"].between(own["score_min"].item(), own["score_max"].item())]
    inside = inside[inside["exposure"] >= 30]
    (label,) = [text for text in labels(ax) if "items" in text]
    assert f"of {len(inside)} items" in label
    theta, density = line(ax, "prior density").get_data()
    curves = calibration_curves(fit, [own["score"].item()]).mean(["chain", "draw"])
    mean = np.trapezoid(theta * density, theta)
    # the tails beyond .05% and cells of half a percent: 2% of the mean
    assert np.trapezoid(density, theta) == pytest.approx(1, abs=0.01)
    assert mean == pytest.approx(curves["mean"].item(), rel=0.02)
    edges, heights = ax.patches[0].get_data().edges, ax.patches[0].get_data().values
    rate = (inside["count"] / inside["exposure"]).to_numpy()
    share = np.mean((rate >= edges[0]) & (rate <= edges[-1]))
    assert (heights * np.diff(edges)).sum() == pytest.approx(share)
    spike = np.mean(rate < edges[1])
    assert heights[0] * (edges[1] - edges[0]) == pytest.approx(spike)


@pytest.mark.parametrize("method", METHODS)
def test_prior_in_bin_of_values(method):
    _, items, _, fits = values()
    ax = drawn(plots.plot_prior_in_bin(fits[method], items))
    assert f"bin {BINS // 2} of {BINS}" in ax.get_title(loc="left")
    density = line(ax, "prior density").get_ydata()
    variance = calibration_curves(fits[method])["variance"].mean(["chain", "draw"]).to_numpy()
    # of a Normal; its variance hardly changes with the score here
    assert density.max() == pytest.approx((2 * np.pi * np.median(variance)) ** -0.5, rel=0.15)
    with pytest.raises(errors.FitError, match="no exposure"):
        plots.plot_prior_in_bin(fits[method], items, least_exposure=50)


def test_prior_in_bin_refuses_what_is_not_there():
    _, items, _, fits = counts()
    with pytest.raises(errors.FitError, match="no bin 30: the fit has 30"):
        plots.plot_prior_in_bin(fits["VI"], items, bin=BINS)
    with pytest.raises(errors.ItemsError, match="no item with exposure >= 1e9"):
        plots.plot_prior_in_bin(fits["VI"], items, least_exposure=1e9)
    with pytest.raises(errors.ItemsError, match="these items have value"):
        plots.plot_prior_in_bin(fits["VI"], values()[1])


def test_prior_of_no_width_is_a_line():
    frame, items, _, _ = counts()
    even = frame.assign(count=(frame["score"] * frame["exposure"]).round())
    rows = soc.PoissonItems(even, score="score", count="count", exposure="exposure")
    stats = soc.summarize(rows, bins=5, on_leakage="ignore", progress=False)
    rough = soc.fit(stats, method=soc.FiveSteps(smooth=False), progress=False)
    ax = drawn(plots.plot_prior_in_bin(rough, items, least_exposure=5))
    point = line(ax, "prior of theta given t, all but a point").get_xdata()[0]
    assert point == pytest.approx(rough.data["per_bin"]["mean"].to_numpy()[2], rel=0.02)
    assert ax.get_ylim()[1] == pytest.approx(1.15 * ax.patches[0].get_data().values.max())


def test_curves_by_bin_are_drawn_as_steps():
    stats = counts()[2]
    rough = soc.fit(stats, method=soc.FiveSteps(smooth=False), progress=False)
    own = rough.data["per_bin"]["mean"].to_numpy()
    for ax in (
        plots.plot_curves(rough)[0],
        plots.plot_calibration_illustration(rough)[1],
        plots.plot_adjusted_prior(rough),
    ):
        curve = next(x for x in drawn(ax).lines if x.get_label().endswith("estimate"))
        assert curve.get_drawstyle() == "steps-mid"
        np.testing.assert_allclose(np.sort(curve.get_ydata()), np.sort(own))
    drawn(plots.plot_prior_ribbon(rough))


@pytest.mark.parametrize(("method", "bins"), [("VI", 1), ("five steps", 1), ("five steps", 3)])
@pytest.mark.slow
def test_few_bins(method, bins):
    frame, items, _, _ = counts()
    edges = list(frame["score"].quantile(np.arange(1, bins) / bins))
    stats = soc.summarize(items, edges=edges, progress=False)
    chosen = soc.VI(draws=50) if method == "VI" else soc.FiveSteps()
    fit = soc.fit(stats, method=chosen, progress=False)
    drawn(plots.plot_calibration_illustration(fit))
    drawn(plots.plot_adjusted_prior(fit))
    drawn(plots.plot_prior_ribbon(fit))
    drawn(plots.plot_bin_spread(stats))
    drawn(plots.plot_curves(fit))
    if "per_bin" in fit.data.children:
        drawn(plots.plot_smoothing(fit))
    drawn(plots.plot_prior_in_bin(fit, items))


PRIORS = (
    plots.plot_calibration_illustration,
    plots.plot_adjusted_prior,
    plots.plot_prior_ribbon,
    lambda fit, **given: plots.plot_prior_in_bin(fit, counts()[1], least_exposure=20, **given),
)


@pytest.mark.parametrize("picture", PRIORS)
def test_priors_that_depend_on_the_exposure_need_one(picture):
    plain = counts()[3]["VI"]
    other = dataclasses.replace(plain, prior=soc.Gamma(exposure=soc.Spline()))
    with pytest.raises(errors.FitError, match="give exposure="):
        picture(other)
    with pytest.raises(errors.FitError, match="must be a finite number > 0"):
        picture(other, exposure=-1.0)
    with pytest.raises(errors.FitError, match="same at every exposure"):
        picture(plain, exposure=5.0)
    # without any effect of the exposure it is the prior of the score alone
    drawn(picture(other, exposure=5.0))


@pytest.mark.parametrize("kind", KINDS)
def test_quantiles_at_an_exposure_are_those_of_the_family(kind):
    fit = KINDS[kind]()[3]["VI"]
    score, levels = medians(fit)["score"].to_numpy()[::20], np.array([0.1, 0.5, 0.95])
    for alone, given in zip(
        prior_quantiles(fit, score, levels), prior_quantiles(fit, score, levels, 5.0), strict=True
    ):
        np.testing.assert_allclose(given, alone, rtol=1e-6)


def test_identity_only_where_scores_estimate_theta():
    frame, _, _, fits = values()
    assert scores_estimate_theta(fits["VI"])
    moved = soc.NormalItems(
        frame.assign(score=10 * frame["score"]), score="score", value="value", noise_sd="noise_sd"
    )
    stats = soc.summarize(moved, bins=10, progress=False)
    other = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    assert not scores_estimate_theta(other)
    assert "theta = t" not in labels(plots.plot_adjusted_prior(other))


def test_wrong_numbers_of_axes():
    fits = counts()[3]
    _, axes = plt.subplots(1, 3)
    for picture in (plots.plot_calibration_illustration, plots.plot_smoothing):
        with pytest.raises(errors.FitError, match="needs 2"):
            picture(fits["five steps"], axes=axes)


@pytest.mark.slow
def test_dots_and_curve_are_averages_of_one_weighting():
    """With informative exposures dots lie on both sides of the curve, at most 2.5 sd from evenly.

    The average over items instead lies below nearly all of these 40 dots.
    """
    rng = np.random.default_rng(2)
    n = 8000
    score, exposure = np.exp(rng.normal(-2, 0.5, n)), np.exp(rng.normal(4, 1.0, n))
    theta = score * rng.gamma(8, 1 / 8, n) * (exposure / np.exp(4)) ** 0.3
    table = {"t": score, "N": exposure, "y": rng.poisson(theta * exposure)}
    items = soc.PoissonItems(pd.DataFrame(table), score="t", count="y", exposure="N")
    stats = soc.summarize(items, bins=120, joint=True, progress=False)
    prior = soc.Gamma(exposure=soc.Spline(knots=5))
    fit = soc.fit(stats, prior, soc.VI(draws=200), progress=False)
    top = drawn(plots.plot_curves(fit))[0]
    curve = next(own for own in top.lines if "median" in str(own.get_label()))
    assert curve.get_label() == "posterior median, items weighted by their exposure"
    centre, own, _ = merged_outcomes(fit)
    position = np.log(curve.get_xdata())
    above = (own > np.interp(np.log(centre), position, curve.get_ydata())).sum()
    assert abs(above - 20) <= 2.5 * np.sqrt(10)
    over_items = medians(fit)["mean"]
    assert (own > np.interp(np.log(centre), position, over_items)).sum() > 33
