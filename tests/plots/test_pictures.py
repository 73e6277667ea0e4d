"""Every picture can be drawn, whatever names say, and shows the numbers of fit, check and items."""

import dataclasses
import functools
import inspect
import itertools
import warnings

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from scipy import stats
from sklearn.linear_model import LogisticRegression

import soc_pymc as soc
from soc_pymc import plots
from soc_pymc.plots import CalibrationDisplay, plot_calibration
from tests.examples import ROLES, SINGLE_FAMILIES, thinned

HOSTILE = r"_ $x^{ per $ \frac _"


class Material:
    """Items whose columns have hostile names, their statistics and fits, and what is drawn."""

    def __init__(self, example):
        roles = ROLES[type(example.items)]
        self.columns = {role: f"{HOSTILE}{role}" for role in roles}
        frame = example.frame.rename(columns=self.columns)
        self.items = dataclasses.replace(example.items, source=frame, **self.columns)
        self.stats = soc.summarize(self.items, bins=20, progress=False)
        # the example's fit, as if it had been made from these columns
        data = example.fit.data.copy()
        data.attrs["roles"] = self.stats.data.attrs["roles"]
        self.fit = dataclasses.replace(example.fit, data=data)

    @functools.cached_property
    def check(self):
        return soc.check(self.fit, self.items, subset=100, progress=False)


@pytest.fixture(scope="module")
def material(example):
    return functools.cache(lambda family: Material(example(family)))


PICTURES = {
    "plot_curves": lambda m: m.fit,
    "plot_prior": lambda m: m.fit,
    "plot_pit": lambda m: m.check,
    "plot_outliers": lambda m: m.check,
    "plot_shrinkage": lambda m: soc.item_posteriors(m.fit, m.items, progress=False),
    "plot_prior_predictive": lambda m: soc.prior_predictive(m.fit.prior, m.stats, 30, items=100),
}
CASES = [(name, family) for name in PICTURES for family in SINGLE_FAMILIES]
ELSEWHERE = {"plot_intervals", "plot_calibration", "CalibrationDisplay"}


def draw(name, *arguments, given=False, **options):
    """Draws a picture, in given axes or in its own figure, and returns the words in it."""
    picture = getattr(plots, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # of other libraries
        if given:
            places, role = places_of(picture, arguments, options)
            options |= {role: places}
        axes = list(np.ravel(picture(*arguments, **options)))
        assert all(isinstance(ax, Axes) for ax in axes)
        assert not given or axes == list(np.ravel(places))
        axes[0].figure.draw_without_rendering()  # raises where text cannot be laid out
    texts = axes[0].figure.findobj(mpl.text.Text)
    words = [text.get_text() for text in texts if r"\mathdefault" not in text.get_text()]
    assert any(words)
    for word in words:
        assert word.count("$") == word.count(r"\$")  # else it is read as mathematics
    return words


def places_of(picture, arguments, options):
    """Returns new axes for a picture, and the argument that takes them; refuses too many."""
    if "ax" in inspect.signature(picture).parameters:
        return plt.subplots()[1], "ax"
    with pytest.raises(soc.FitError, match="axes"):
        picture(*arguments, **options, axes=plt.subplots(1, 7)[1])
    return plt.subplots(1, 2, figsize=(12, 5))[1], "axes"


def test_every_picture_is_tested():
    assert {*PICTURES, *ELSEWHERE} == set(plots.__all__)


@pytest.mark.parametrize(("name", "family"), thinned(CASES, lambda case: case[1] == "gamma"))
def test_pictures_of_fits(name, family, material):
    names = material(family).columns if name == "plot_shrinkage" else {}
    draw(name, PICTURES[name](material(family)), **names, given=family != "gamma")


def test_intervals_of_hostile_names():
    names = [f"{HOSTILE}{k}" for k in range(3)]
    table = pd.DataFrame({"what": names, "where": names, "value": [0.1, 1.0, 3.0]})
    words = draw("plot_intervals", table)
    assert any(HOSTILE in word.replace(r"\$", "$") for word in words)


OTHERS = ("groups", "exposure", "gamma_mixture", "zeros")


@pytest.mark.parametrize("case", thinned(OTHERS, ["groups"]))
def test_other_fits(case, example):
    """Mixtures, groups, terms in exposure and spikes at zero."""
    fit = example(case).fit
    options = {"exposure": 5.0} if fit.prior.exposure is not None else {}
    draw("plot_curves", fit)
    draw("plot_prior", fit, **options)
    if options:
        with pytest.raises(soc.FitError, match="exposure="):
            plots.plot_prior(fit)


def test_a_single_bin(example):
    """Its curves are flat, and drawn over all its scores."""
    stats = soc.summarize(example("gamma").items, edges=[], progress=False)
    fit = soc.fit(stats, method=soc.VI(draws=50), progress=False)
    for name in ("plot_curves", "plot_prior"):
        draw(name, fit)
    curve = plots.plot_curves(fit)[0].lines[0]
    score = example("gamma").frame["score"]
    np.testing.assert_allclose(curve.get_xdata()[[0, -1]], [score.min(), score.max()])
    assert np.ptp(curve.get_ydata()) == 0.0


def test_a_score_that_is_too_high_is_seen():
    """The truth, the score's square, is within 90% bands at 9 of 10 scores or more."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, 4000)
    display = plot_calibration(rng.random(4000) < p**2, p, name="_ $x^{ forest")
    truth = display.score**2
    middle = (display.score > 0.3) & (display.score < 0.8)
    assert (display.upper[middle] < display.score[middle]).all()
    assert ((display.lower < truth) & (truth < display.upper)).mean() > 0.9
    assert ((display.lower < display.mean) & (display.mean < display.upper)).all()
    display.figure_.draw_without_rendering()
    np.testing.assert_array_equal(display.line_.get_ydata(), display.mean)
    assert len(repr(display)) < 100
    axes = plt.subplots()[1]
    assert display.plot(axes) is display
    assert display.ax_ is axes


def test_models_on_one_axes_have_an_entry_and_a_colour_each():
    """And a legend that covers nothing."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, 500)
    y, ax = rng.random(500) < p, plt.subplots(layout="constrained")[1]
    lines = [plot_calibration(y, x, name=name, ax=ax).line_ for name, x in (("a", p), ("b", p**2))]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["perfectly calibrated", "a, 500 items", "b, 500 items"]
    assert lines[0].get_color() != lines[1].get_color()
    assert legend_bottom(ax) >= ax.bbox.y1


@pytest.mark.parametrize("n", [21, 60])
def test_labels_of_rows_do_not_overlap(n):
    """A figure grows with its rows; in a user's axes labels shrink, then some are left out."""
    rows = pd.DataFrame({"where": [f"level {k}" for k in range(n)], "value": 1.0})
    for axes in (None, plt.subplots()[1]):
        [ax] = plots.plot_intervals(rows, n, axes=axes)
        ax.figure.draw_without_rendering()
        boxes = [label.get_window_extent() for label in ax.get_yticklabels()]
        assert all(low.y1 <= high.y0 for high, low in itertools.pairwise(boxes))
        assert len(boxes) == n if axes is None else len(boxes) > n / 3


def test_observed_points_are_those_of_bins():
    """Exact 0 and 1 are points of their own; intervals hold the share of each bin."""
    rng = np.random.default_rng(3)
    p = np.clip(rng.uniform(-0.1, 1.1, 3000), 0, 1)
    y = np.where(rng.random(3000) < p, "yes", "no")
    display = plot_calibration(y, p, n_bins=5, pos_label="yes")
    bins, positive = display.bins, y == "yes"
    assert bins["p"].iloc[[0, -1]].tolist() == [0.0, 1.0]
    assert bins["n"].iloc[[0, -1]].tolist() == [(p == 0).sum(), (p == 1).sum()]
    inner = np.array_split(np.sort(p[(p > 0) & (p < 1)]), 5)
    assert np.abs(bins["n"].to_numpy()[1:-1] - [len(part) for part in inner]).max() <= 1
    assert (bins["n"] * bins["share"]).sum() == pytest.approx(positive.sum())
    assert ((bins["low"] <= bins["share"]) & (bins["share"] <= bins["high"])).all()
    assert bins["share"].iloc[[0, -1]].tolist() == [0.0, 1.0]
    # nothing runs upright along the ends of the axis
    assert display.score[0] > 0.005
    assert display.score[-1] < 0.995


@pytest.mark.slow
def test_a_calibrated_estimator_stays_within_the_band():
    """A band that holds the whole curve with probability 0.99, at a fixed seed."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 2))
    y = np.where(rng.random(3000) < 1 / (1 + np.exp(-x[:, 0])), "yes", "no")
    p = LogisticRegression().fit(x[:1500], y[:1500]).predict_proba(x[1500:])[:, 1]
    display = CalibrationDisplay.from_predictions(y[1500:], p, pos_label="yes", prob=0.99)
    assert display.bins["n"].sum() == 1500
    assert ((display.lower < display.score) & (display.score < display.upper)).all()


@pytest.mark.parametrize(
    ("y", "p", "text"),
    [
        ([0, 2], [0.2, 0.3], "neither 0 nor 1"),
        ([0, 1, 1, 0], [-0.1, 0.3, 0.4, 0.5], "1 of 4 probabilities p"),
        ([0, 1], [0.0, 1.0], "exactly 0 or 1"),
        ([0, 1, 1], [0.2, 0.3], "one length"),
        (["a", "b"], [0.2, 0.3], "pos_label"),
    ],
)
def test_bad_labels_and_probabilities_are_refused(y, p, text):
    with pytest.raises(soc.ItemsError, match=text):
        plot_calibration(y, p)


# --- the numbers that are drawn -------------------------------------------------------------------


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
    lines = [c for c in ax.collections if isinstance(c, LineCollection)]
    return [np.array(c.get_segments())[:, :, 0] for c in lines if len(c.get_segments())]


def legend_bottom(ax):
    """Returns the lower end of the legend, in the pixels of ``ax.bbox``."""
    ax.figure.draw_without_rendering()
    return ax.get_legend().get_window_extent().y0


def longest_line(ax):
    return max(ax.lines, key=lambda line: len(line.get_xdata()))


@pytest.mark.parametrize("family", thinned(SINGLE_FAMILIES, ["gamma"]))
def test_curves_and_bands_are_those_of_the_fit(family, example):
    """The mean above, and below the sd of theta, for counts over the mean."""
    fit = example(family).fit
    curves = soc.calibration_curves(fit)
    spread = np.sqrt(curves["variance"])
    if fit.curves.outcome.relative:
        spread = spread / curves["mean"]
    top, bottom = plots.plot_curves(fit, prob=0.8)
    assert legend_bottom(top) >= top.bbox.y1
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


@pytest.mark.parametrize("family", thinned(SINGLE_FAMILIES, ["beta"]))
def test_the_prior_has_the_moments_of_the_curves(family, example):
    """The density over the scale of theta adds up to 1; moments are those over all draws."""
    fit = example(family).fit
    scale = fit.curves.outcome.theta
    score = fit.data["constant_data"]["score"].to_numpy()[[5, 12]]
    ax = plots.plot_prior(fit, score)
    curves = soc.calibration_curves(fit, score)
    mean = curves["mean"].mean(("chain", "draw"))
    variance = curves["variance"].mean(("chain", "draw")) + curves["mean"].var(("chain", "draw"))
    for k, line in enumerate(ax.lines[::2]):
        theta, density = line.get_data()
        weight = density * np.gradient(scale.position(theta))
        assert weight.sum() == pytest.approx(1, abs=0.01)
        assert weight @ theta == pytest.approx(float(mean[k]), rel=0.03, abs=0.02)
        second = weight @ (theta - float(mean[k])) ** 2
        assert second == pytest.approx(float(variance[k]), rel=0.05)
        np.testing.assert_allclose(ax.lines[2 * k + 1].get_xdata(), mean[k], rtol=1e-6)


def test_each_group_has_the_line_of_its_curve(example):
    fit = example("groups").fit
    groups = list(fit.groups[:2])
    top, _ = plots.plot_curves(fit, group=groups)
    for line, label in zip(top.lines, groups, strict=False):
        middle = soc.calibration_curves(fit, group=label)["mean"].median(("chain", "draw"))
        np.testing.assert_allclose(line.get_ydata(), middle, rtol=1e-3)
        assert line.get_label().startswith(label)
    pooled, _ = plots.plot_curves(fit)
    words = [text.get_text() for text in pooled.get_legend().get_texts()]
    assert any(f"the curve that {len(fit.groups)} groups share" in text for text in words)
    with pytest.raises(soc.FitError, match="1 to 7 labels"):
        plots.plot_curves(fit, group=["a"] * 8)


def test_pit_shows_every_slice_with_its_band(example):
    """Each line is the ECDF of the check's PIT minus the uniform cdf: it is 0 at both ends."""
    gamma = example("gamma")
    result = soc.check(gamma.fit, gamma.items, by="kind", subset=100, progress=False)
    axes = plots.plot_pit(result)
    pit = result.data["pit"].to_dataset()
    assert len(axes) == (result.table["what"] == "PIT").sum() == pit.sizes["slice"]
    for k, ax in enumerate(axes):
        averaged, randomised = (line.get_ydata() for line in ax.lines[-2:])
        np.testing.assert_array_equal(averaged, pit["averaged"][k])
        np.testing.assert_array_equal(randomised, pit["randomised"][k])
        assert abs(randomised[[0, -1]]).max() < 1e-12
        row = result.table[result.table["what"] == "PIT"].iloc[k]
        assert abs(randomised).max() == pytest.approx(row["value"], rel=0.2)  # on a grid
        band = ax.patches[0].get_extents().transformed(ax.transData.inverted())
        assert band.y1 == pytest.approx(stats.kstwo(int(pit["n_items"][k])).ppf(0.95))
    by_kind = [ax.get_title("left") for ax in plots.plot_pit(result, by="kind")]
    assert len(by_kind) == gamma.frame["kind"].nunique()
    assert all(title.startswith("kind = ") for title in by_kind)
    with pytest.raises(soc.FitError, match="not a column"):
        plots.plot_pit(result, by="nobody")


@pytest.mark.parametrize("of_items", [True, False])
def test_histograms_of_the_pit_by_bin_of_the_score(of_items, example):
    """Bins hold equally many items; the densities of all bins together are those of all items."""
    gamma = example("gamma")
    data = gamma.items if of_items else gamma.statistics
    result = soc.check(gamma.fit, data, progress=False)
    [ax] = plots.plot_pit(result, by="score")
    bins = result.data["pit_by_score"].to_dataset()
    assert bins["n_items"].sum() == len(gamma.frame)
    density = np.array([line.get_ydata() for line in ax.lines])
    assert density.shape == (bins.sizes["bin"], 10)
    np.testing.assert_allclose(density.mean(axis=1), 1.0, rtol=1e-9)
    together = np.average(density, axis=0, weights=bins["n_items"])
    pit = result.data["pit"].to_dataset().sel(slice="all items")
    ecdf = pit["randomised"] + pit["u"]
    wanted = 10 * np.diff(np.interp(np.linspace(0, 1, 11), pit["u"], ecdf))
    np.testing.assert_allclose(together, wanted, atol=1e-9)


@pytest.fixture(scope="module")
def scored(small_fit, small_items):
    return soc.item_posteriors(small_fit, small_items, progress=False)


@pytest.mark.parametrize("kind", ["polars", "arrow"])
def test_shrinkage_draws_every_kind_of_table(kind, scored):
    """Own rates across, posterior means up."""
    table = {"polars": pl.from_pandas(scored), "arrow": pa.table(scored)}[kind]
    ax = plots.plot_shrinkage(table, **ROLES[soc.PoissonItems])
    points = ax.collections[0].get_offsets()
    assert len(points) == 2000
    rate, mean = scored["count"] / scored["exposure"], scored["theta_mean"]
    pairs = {(round(a, 12), round(b, 12)) for a, b in zip(rate, mean, strict=True)}
    with_events = [p for p in points if p[0] > 0.999 * rate[rate > 0].min()]
    assert len(with_events) > 500
    assert all((round(a, 12), round(b, 12)) in pairs for a, b in with_events)


def test_intervals_are_those_of_the_table():
    """A panel for each thing, a row for each place; of many rows the worst, in their order."""
    table = pd.DataFrame({"what": ["a"] * 4 + ["b"], "where": [*"uvwx", 2.0]})
    table["value"], table["p"] = [1.0, 2.0, 3.0, np.nan, -1.0], [0.5, 0.001, 0.04, 0.0, np.nan]
    table["low"], table["high"] = table["value"] - 0.5, table["value"] + 0.25
    table["verdict"] = ["ok", "fail", "warn", "ok", None]
    first, second = plots.plot_intervals(table, rows=2, reference=1.5)
    assert [text.get_text() for text in first.get_yticklabels()] == ["v", "w"]
    assert [text.get_text() for text in second.get_yticklabels()] == ["2"]
    ends = np.concatenate(segments_in(first))
    np.testing.assert_array_equal(np.sort(ends, axis=0), [[1.5, 2.25], [2.5, 3.25]])
    drawn = [line.get_xdata().tolist() for line in first.lines if line.get_marker() == "o"]
    assert drawn == [[], [3.0], [2.0]]  # ok, warn, fail
    for wrong, text in (
        (table.drop(columns="value"), "misses"),
        (table.assign(low="x"), "numbers"),
        (table.assign(value=np.nan), "nothing to draw"),
    ):
        with pytest.raises(soc.FitError, match=text):
            plots.plot_intervals(wrong)
    with pytest.raises(soc.FitError, match="needs 2"):
        plots.plot_intervals(table, axes=first)


def test_items_without_events_are_drawn(scored):
    ax = plots.plot_shrinkage(scored.assign(count=0), **ROLES[soc.PoissonItems])
    ax.figure.draw_without_rendering()
    assert len(ax.collections[0].get_offsets()) == 2000


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
