import functools

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from scipy import stats

from soc_pymc import plots
from soc_pymc._lib import errors
from soc_pymc.checks._check import check
from soc_pymc.inference.results import Fit
from soc_pymc.plots.fitted import merged_outcomes
from tests.checks.test_checks import KNOTS, arrays, as_items, hand_made_fit, simulate
from tests.thinning import thinned

POINTWISE = "90% band at each score (pointwise)"
WHOLE = "90% band of whole curves (simultaneous)"


def with_bins(fit, frame, bins=100):
    """The fit with the totals of equal bins of a table."""
    frame = frame.sort_values("score")
    group = np.arange(len(frame)) * bins // len(frame)
    by = frame.groupby(group)
    data = xr.Dataset(
        {
            "score": ("bin", np.exp(np.log(frame["score"]).groupby(group).mean().to_numpy())),
            "score_min": ("bin", by["score"].min().to_numpy()),
            "score_max": ("bin", by["score"].max().to_numpy()),
            "n_items": ("bin", by.size().to_numpy()),
            "exposure": ("bin", by["exposure"].sum().to_numpy()),
        }
    )
    count = xr.Dataset({"count": ("bin", by["count"].sum().to_numpy())})
    posterior = fit.data["posterior"].to_dataset()
    tree = {"posterior": posterior, "constant_data": data, "observed_data": count}
    return Fit(xr.DataTree.from_dict(tree), fit.prior, fit.method, fit.status)


@functools.cache
def case():
    frame = simulate(5000, 0)
    fit = with_bins(hand_made_fit(sd=0.08, draws=200), frame)
    return fit, frame, check(fit, as_items(frame), progress=False)


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


def drawn(ax):
    """Draws for real: labels and limits that cannot be drawn raise here."""
    np.ravel(ax)[0].figure.canvas.draw()
    return ax


def scored(frame):
    score, count, exposure = arrays(frame)
    return frame.assign(theta_mean=(4 + count) / (4 / score + exposure))


def test_curves_show_data_bands_and_identity():
    fit, frame, _ = case()
    axes = drawn(plots.plot_curves(fit))
    assert axes.shape == (2,)
    labels = axes[0].get_legend_handles_labels()[1]
    assert {POINTWISE, WHOLE, "theta = score"} <= set(labels)
    assert len(axes[1].collections) == 2
    assert f"{len(frame):,} items" in axes[0].get_title(loc="left")
    assert f"{frame['count'].sum():,} events" in axes[0].get_title(loc="left")
    from soc_pymc.posterior.calibration import bands, calibration_curves

    middle = bands(calibration_curves(fit)).sel(bound="median")
    np.testing.assert_allclose(axes[0].lines[0].get_ydata(), middle["mean"])
    np.testing.assert_allclose(axes[1].lines[0].get_ydata(), middle["shape"] ** -0.5)
    low, high = axes[1].collections[1].get_paths()[0].get_extents().get_points()[:, 1]
    assert low < middle["shape"].max() ** -0.5 < high


def test_curves_draw_in_given_axes_without_whole_curves():
    fit, _, _ = case()
    figure, given = plt.subplots(1, 2)
    axes = drawn(plots.plot_curves(fit, prob=0.5, simultaneous=False, axes=given))
    assert axes[0] is given[0]
    assert len(given[1].collections) == 1
    assert "50% band at each score (pointwise)" in given[0].get_legend_handles_labels()[1]
    assert given[1].get_xscale() == "log"
    assert len(figure.axes) == 2
    with pytest.raises(errors.FitError, match="needs 2"):
        plots.plot_curves(fit, axes=given[:1])


def test_no_identity_where_scores_are_not_rates():
    fit, frame, _ = case()
    other = with_bins(fit, frame.assign(exposure=frame["exposure"] * 1000))
    labels = plots.plot_curves(other)[0].get_legend_handles_labels()[1]
    assert "theta = score" not in labels


def test_merged_outcomes_add_up():
    fit, frame, _ = case()
    score, rate, error = merged_outcomes(fit)
    assert len(score) == 40
    assert np.all(np.diff(score) > 0)
    one = merged_outcomes(fit, points=1)
    total = frame["count"].sum() / frame["exposure"].sum()
    assert one[1][0] == pytest.approx(total)
    assert one[2][0] == pytest.approx(np.sqrt(frame["count"].sum()) / frame["exposure"].sum())
    assert np.all(np.isfinite(rate) & np.isfinite(error))


def test_ribbon_shows_gamma_quantiles_at_the_plug_in_curves():
    fit, _, _ = case()
    ax = drawn(plots.plot_prior_ribbon(fit, probs=(0.1, 0.5, 0.9)))
    from soc_pymc.posterior.curves import curve_draws

    score = ax.lines[0].get_xdata()
    log_mean, log_cv2 = (c.mean(axis=0) for c in curve_draws(fit, score))
    for line, prob in zip(ax.lines, (0.1, 0.5, 0.9), strict=False):
        exact = stats.gamma(np.exp(-log_cv2), scale=np.exp(log_mean + log_cv2)).ppf(prob)
        np.testing.assert_allclose(line.get_ydata(), exact, rtol=1e-6)
    for bad in ((), (0.5, 0.1), (0.0, 0.5)):
        with pytest.raises(errors.FitError, match="probs"):
            plots.plot_prior_ribbon(fit, probs=bad)


def test_pit_has_a_panel_for_each_slice_with_its_band():
    _, _, result = case()
    axes = drawn(plots.plot_pit(result))
    assert len(axes) == (result.table["check"] == "PIT").sum()
    n = int(result.data["pit"]["n_items"][0])
    band = axes[0].patches[0].get_extents().transformed(axes[0].transData.inverted())
    assert band.y1 == pytest.approx(stats.kstwo(n).ppf(0.95))
    _, ax = plt.subplots()
    one = drawn(plots.plot_pit(result, ax=ax))
    assert one[0] is ax
    assert "all items" in ax.get_title()


@pytest.mark.parametrize("kind", thinned(["pandas", "polars", "arrow"], ["polars"]))
def test_shrinkage_draws_every_kind_of_table(kind):
    import polars as pl
    import pyarrow as pa

    frame = scored(simulate(3000, 1))
    table = {"pandas": frame, "polars": pl.from_pandas(frame), "arrow": pa.table(frame)}[kind]
    ax = drawn(plots.plot_shrinkage(table, score="score", count="count", exposure="exposure"))
    points = ax.collections[0].get_offsets()
    assert len(points) == 2000
    assert "2,000 of 3,000" in ax.get_title(loc="left")
    own = frame["count"] / frame["exposure"]
    known = {(round(a, 12), round(b, 12)) for a, b in zip(own, frame["theta_mean"], strict=True)}
    seen = [p for p in points if p[0] > own[own > 0].min() * 0.999]
    assert seen
    assert all((round(a, 12), round(b, 12)) in known for a, b in seen)


def test_shrinkage_of_odd_tables():
    roles = {"score": "score", "count": "count", "exposure": "exposure"}
    frame = scored(simulate(60, 2))
    drawn(plots.plot_shrinkage(frame.assign(count=0), **roles))
    drawn(plots.plot_shrinkage(frame.assign(score=-1.0), **roles))
    drawn(plots.plot_shrinkage(frame[frame["count"] > 0].assign(exposure=3.0), **roles))
    with pytest.raises(errors.ItemsError, match="'theta_mean' is missing"):
        plots.plot_shrinkage(frame.drop(columns="theta_mean"), **roles)
    with pytest.raises(errors.ItemsError, match="nothing to draw"):
        plots.plot_shrinkage(frame.assign(exposure=0.0, count=0), **roles)


def test_linear_scale_takes_scores_of_any_sign():
    from soc_pymc.families.priors import Gamma, Spline

    fit, _, _ = case()
    bins = fit.data["constant_data"].to_dataset()
    bins["score"] = ("bin", np.linspace(KNOTS[0], KNOTS[-1], bins.sizes["bin"]))
    tree = fit.data.copy()
    tree["constant_data"] = xr.DataTree(bins)
    linear = Fit(
        tree,
        Gamma(mean=Spline(scale="linear"), variance=Spline(scale="linear")),
        fit.method,
        fit.status,
    )
    axes = drawn(plots.plot_curves(linear))
    assert axes[0].get_xscale() == "linear"
    assert axes[0].get_xlim()[0] < 0
    drawn(plots.plot_prior_ribbon(linear))


def test_items_without_events_can_be_drawn():
    fit, frame, _ = case()
    drawn(plots.plot_curves(with_bins(fit, frame.assign(count=0))))
