"""What is drawn are the numbers of the fit, of the check and of the items."""

import matplotlib as mpl

mpl.use("agg")

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from scipy import stats

import soc_pymc as soc
from soc_pymc import plots
from tests.examples import ROLES, SINGLE_FAMILIES


def bands_in(ax):
    """Returns the lower and upper ends of each shaded band, in the order of drawing."""
    ends = []
    for band in ax.collections:
        if isinstance(band, PolyCollection):
            x, y = band.get_paths()[0].vertices.T
            score = np.unique(x)
            lower = np.array([y[x == t].min() for t in score])
            ends.append(np.array([lower, [y[x == t].max() for t in score]]))
    return ends


def segments_in(ax):
    """Returns the ends of horizontal lines, (collections, lines, 2)."""
    lines = [c for c in ax.collections if isinstance(c, LineCollection)]
    return [np.array(c.get_segments())[:, :, 0] for c in lines]


def longest_line(ax):
    """Returns the line of the most points: a curve."""
    return max(ax.lines, key=lambda line: len(line.get_xdata()))


@pytest.mark.parametrize("family", SINGLE_FAMILIES)
def test_curves_and_bands_are_those_of_the_fit(family, example):
    """The mean above, and below the sd of theta, for counts over the mean."""
    fit = example(family).fit
    curves = soc.calibration_curves(fit)
    spread = np.sqrt(curves["variance"])
    if family == "gamma":
        spread = spread / curves["mean"]
    top, bottom = plots.plot_curves(fit, prob=0.8)
    for ax, draws in ((top, curves["mean"]), (bottom, spread)):
        score = longest_line(ax).get_xdata()
        np.testing.assert_allclose(score, curves["score"])
        pointwise = np.quantile(draws, [0.1, 0.5, 0.9], axis=(0, 1))
        # quantiles are interpolated between draws on a logarithmic scale
        np.testing.assert_allclose(longest_line(ax).get_ydata(), pointwise[1], rtol=1e-3)
        simultaneous, shaded = bands_in(ax)
        np.testing.assert_allclose(shaded, pointwise[[0, 2]], rtol=2e-3)
        # a band of whole curves is wider at every score
        assert (simultaneous[0] < shaded[0]).all()
        assert (simultaneous[1] > shaded[1]).all()
    whole = soc.bands(curves[["mean"]], 0.8, simultaneous=True)["mean"]
    np.testing.assert_allclose(bands_in(top)[0], whole.to_numpy()[[0, 2]], rtol=1e-9)


def test_dots_are_rates_of_bins_with_their_standard_errors(example):
    """With no more than 40 bins every bin is a dot: events over exposure."""
    gamma = example("gamma")
    place = np.searchsorted(gamma.statistics.edges, gamma.frame["score"], side="right")
    bins = gamma.frame.groupby(place)[["count", "exposure"]].sum()
    dots = plots.plot_curves(gamma.fit)[0].containers[0]
    rate = bins["count"] / bins["exposure"]
    np.testing.assert_allclose(dots[0].get_ydata(), rate)
    bars = np.array(dots[2][0].get_segments())[:, :, 1]
    error = np.sqrt(bins["count"]) / bins["exposure"]
    np.testing.assert_allclose(bars, np.transpose([rate - error, rate + error]))


@pytest.mark.slow
def test_dots_and_curve_are_averages_of_one_weighting():
    """With informative exposures dots lie on both sides of the curve, at most 2.5 sd from evenly.

    The average over items instead lies below nearly all of these 40 dots.
    """
    rng = np.random.default_rng(2)
    score, exposure = np.exp(rng.normal(-2, 0.5, 8000)), np.exp(rng.normal(4, 1.0, 8000))
    theta = score * rng.gamma(8, 1 / 8, 8000) * (exposure / np.exp(4)) ** 0.3
    frame = pd.DataFrame({"t": score, "N": exposure, "y": rng.poisson(theta * exposure)})
    items = soc.PoissonItems(frame, score="t", count="y", exposure="N")
    statistics = soc.summarize(items, bins=120, joint=True, progress=False)
    prior = soc.Gamma(exposure=soc.Spline(knots=5))
    fit = soc.fit(statistics, prior, soc.VI(draws=200), progress=False)
    top = plots.plot_curves(fit)[0]
    centre, rate = top.containers[0][0].get_data()
    assert len(centre) == 40
    t, weighted = longest_line(top).get_data()
    above = (rate > np.interp(np.log(centre), np.log(t), weighted)).sum()
    assert abs(above - 20) <= 2.5 * np.sqrt(10)
    over_items = soc.calibration_curves(fit, t)["mean"].median(("chain", "draw"))
    assert (rate > np.interp(np.log(centre), np.log(t), over_items)).sum() > 33


def prior_of(family, curves):
    """Returns the distribution of theta given the score at the draws' mean curves."""
    if family == "gamma":
        log_cv2 = curves["log_variance"] - 2 * curves["log_mean"]
        mean, cv2 = (np.exp(c.mean(("chain", "draw"))) for c in (curves["log_mean"], log_cv2))
        return stats.gamma(1 / cv2, scale=mean * cv2)
    mean, log_variance = (curves[n].mean(("chain", "draw")) for n in ("mean", "log_variance"))
    return stats.norm(mean, np.exp(0.5 * log_variance))


@pytest.mark.parametrize("family", ["gamma", "normal"])
def test_the_prior_has_its_quantiles(family, example):
    fit = example(family).fit
    ax = plots.plot_prior_ribbon(fit, probs=(0.1, 0.5, 0.9))
    curves = soc.calibration_curves(fit, ax.lines[0].get_xdata())
    for line, prob in zip(ax.lines, (0.1, 0.5, 0.9), strict=False):
        np.testing.assert_allclose(line.get_ydata(), prior_of(family, curves).ppf(prob), rtol=1e-5)


def test_the_prior_in_a_bin_has_its_density_and_its_items(example):
    """A density in cells of half a percent, without tails beyond .05%: to 2% of the mean."""
    gamma = example("gamma")
    ax = plots.plot_prior_in_bin(gamma.fit, gamma.items, bin=12, least_exposure=30)
    bins = gamma.fit.data["constant_data"].to_dataset().isel(bin=12)
    theta, density = longest_line(ax).get_data()
    mean = soc.calibration_curves(gamma.fit, [bins["score"].item()])["mean"].mean().item()
    assert np.trapezoid(density, theta) == pytest.approx(1, abs=0.01)
    assert np.trapezoid(theta * density, theta) == pytest.approx(mean, rel=0.02)
    frame = gamma.frame[
        gamma.frame["score"].between(*(bins[f"score_{end}"].item() for end in ("min", "max")))
    ]
    frame = frame[frame["exposure"] >= 30]
    edges, heights = ax.patches[0].get_data().edges, ax.patches[0].get_data().values
    rate = frame["count"] / frame["exposure"]
    numbers = np.histogram(rate, edges)[0]
    np.testing.assert_allclose(heights * np.diff(edges), numbers / len(rate))


def test_smoothing_shows_the_estimates_of_bins(example):
    fit = example("five_steps").fit
    bins = fit.data["per_bin"].to_dataset()
    for ax, name in zip(plots.plot_smoothing(fit), ("mean", "variance"), strict=True):
        drawn = np.concatenate([line.get_ydata() for line in ax.lines])
        assert np.isin(drawn, bins[name]).sum() > 15
        curve = soc.calibration_curves(fit)[name].to_numpy()[0, 0]
        np.testing.assert_allclose(longest_line(ax).get_ydata(), curve)


def test_pit_shows_every_slice_with_its_band(example):
    """Each line is the ECDF of the check's PIT minus the uniform cdf: it is 0 at both ends."""
    gamma = example("gamma")
    result = soc.check(gamma.fit, gamma.items, by="kind", subset=100, progress=False)
    axes = plots.plot_pit(result)
    pit = result.data["pit"].to_dataset()
    assert len(axes) == (result.table["check"] == "PIT").sum() == pit.sizes["slice"]
    for k, ax in enumerate(axes):
        averaged, randomised = (line.get_ydata() for line in ax.lines[-2:])
        np.testing.assert_array_equal(averaged, pit["averaged"][k])
        np.testing.assert_array_equal(randomised, pit["randomised"][k])
        assert abs(randomised[[0, -1]]).max() < 1e-12
        row = result.table[result.table["check"] == "PIT"].iloc[k]
        assert abs(randomised).max() == pytest.approx(row["statistic"], rel=0.2)  # on a grid
        band = ax.patches[0].get_extents().transformed(ax.transData.inverted())
        assert band.y1 == pytest.approx(stats.kstwo(int(pit["n_items"][k])).ppf(0.95))


@pytest.mark.parametrize("kind", ["polars", "arrow"])
def test_shrinkage_and_intervals_draw_every_kind_of_table(kind, example):
    """Own rates across, posterior means up; intervals of the items with the most exposure."""
    gamma = example("gamma")
    frame = soc.item_posteriors(gamma.fit, gamma.items, progress=False)
    table = {"polars": pl.from_pandas(frame), "arrow": pa.table(frame)}[kind]
    ax = plots.plot_shrinkage(table, **ROLES[soc.PoissonItems])
    points = ax.collections[0].get_offsets()
    assert len(points) == 2000
    rate, mean = frame["count"] / frame["exposure"], frame["theta_mean"]
    pairs = {(round(a, 12), round(b, 12)) for a, b in zip(rate, mean, strict=True)}
    with_events = [p for p in points if p[0] > 0.999 * rate[rate > 0].min()]
    assert len(with_events) > 500
    assert all((round(a, 12), round(b, 12)) in pairs for a, b in with_events)

    ax = plots.plot_forest(table, **ROLES[soc.PoissonItems], items=7)
    largest = frame.nlargest(7, "exposure").sort_values("theta_mean")
    np.testing.assert_array_equal(segments_in(ax)[0], largest[["theta_q05", "theta_q95"]])
    drawn = [line.get_xdata() for line in ax.lines]
    for values in (largest["theta_mean"], largest["score"], rate[largest.index]):
        assert any(np.allclose(line, values) for line in drawn if len(line) == 7)


def test_intervals_of_the_items_that_are_asked_for(example):
    normal = example("normal")
    frame = soc.item_posteriors(normal.fit, normal.items, progress=False)
    ax = plots.plot_forest(frame, value="value", noise_sd="noise_sd", items=[30, 4, 11])
    chosen = frame.loc[[30, 4, 11]].sort_values("theta_mean")
    np.testing.assert_array_equal(segments_in(ax)[0], chosen[["theta_q05", "theta_q95"]])
    assert [text.get_text() for text in ax.get_yticklabels()] == list(map(str, chosen.index))
    with pytest.raises(soc.ItemsError, match="not in the table"):
        plots.plot_forest(frame, items=["nobody"])


def test_items_without_events_are_drawn(example):
    frame = soc.item_posteriors(example("gamma").fit, example("gamma").items, progress=False)
    ax = plots.plot_shrinkage(frame.assign(count=0), **ROLES[soc.PoissonItems])
    ax.figure.draw_without_rendering()
    assert len(ax.collections[0].get_offsets()) == 2000
    ax = plots.plot_forest(frame.assign(count=0), **ROLES[soc.PoissonItems])
    ax.figure.draw_without_rendering()
    assert ax.get_xlim()[0] > 0


@pytest.mark.slow
def test_rootogram_hangs_roots_of_numbers_from_those_expected(example):
    """The bars' lengths, squared, are the numbers of items that were replicated."""
    gamma = example("gamma")
    result = soc.check(gamma.fit, gamma.items, subset=500, progress=False)
    ax = plots.plot_rootogram(result)
    observed = result.data["observed_data"]["count"].to_numpy()
    replicates = result.data["posterior_predictive"]["count"].to_numpy()
    expected = longest_line(ax).get_ydata() ** 2
    assert expected.sum() == pytest.approx(len(observed))
    assert expected[0] == pytest.approx((replicates == 0).mean() * len(observed))
    bars = sorted((bar.get_x(), bar.get_height()) for c in ax.containers for bar in c)
    lengths = np.array([height for _, height in bars]) ** 2
    np.testing.assert_allclose(lengths[:16], np.bincount(observed, minlength=16)[:16], atol=1e-6)


def test_prior_predictive_draws_curves_and_outcomes(example):
    """Thin lines are draws, the thick one their median; outcomes end at those of the draw."""
    gamma = example("gamma")
    result = soc.prior_predictive(gamma.fit.prior, gamma.statistics, draws=30, items=200)
    left, right = plots.plot_prior_predictive(result, lines=10)
    mean, count = result["prior"]["mean"][0].to_numpy(), result["prior_predictive"]["count"][0]
    assert len(left.lines) == len(right.lines) == 11
    np.testing.assert_array_equal(left.lines[1].get_ydata(), mean[3])
    np.testing.assert_array_equal(left.lines[-1].get_ydata(), np.median(mean, axis=0))
    np.testing.assert_allclose(bands_in(left)[0], np.quantile(mean, [0.05, 0.95], axis=0))
    ends = right.lines[1].get_xdata()[[0, -1]]
    np.testing.assert_array_equal(ends, [count[3].min(), count[3].max()])
    with pytest.raises(soc.FitError, match="prior_predictive"):
        plots.plot_prior_predictive(gamma.fit.data)
