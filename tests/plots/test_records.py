"""Pictures of bins and of evaluations: what is drawn is what the records hold."""

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import soc_pymc as soc
from soc_pymc import plots
from soc_pymc._lib import errors
from tests.picture_records import (
    CELLS,
    accuracy_table,
    bin_table,
    counts,
    drawn,
    held_table,
    histograms,
    labels,
    line,
    reduction,
    values,
)


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


@pytest.mark.parametrize("source", ["statistics", "VI", "five steps"])
def test_bin_spread_is_that_of_the_items(source):
    frame, _, stats, fits = counts()
    ax = drawn(plots.plot_bin_spread(stats if source == "statistics" else fits[source]))
    bins = np.searchsorted(stats.edges, frame["score"], side="right")
    spread = np.log(frame["score"]).groupby(bins).std(ddof=0)
    np.testing.assert_allclose(line(ax, "bins (").get_ydata(), spread, rtol=1e-6)
    assert ax.get_yscale() == ax.get_xscale() == "log"
    assert "4,000 items" in ax.get_title(loc="left")


def test_bin_spread_of_scores_of_any_sign_and_of_single_scores():
    _, _, stats, _ = values()
    ax = drawn(plots.plot_bin_spread(stats))
    assert ax.get_ylabel() == "Sd(t) inside the bin"
    assert ax.get_xscale() == "linear"
    frame = pd.DataFrame({"t": [0.1] * 3 + [0.2, 0.3], "y": 1, "n": 2})
    items = soc.PoissonItems(frame, score="t", count="y", exposure="n")
    ax = drawn(plots.plot_bin_spread(soc.summarize(items, edges=[0.15], progress=False)))
    assert "bins with one score only: 1" in labels(ax)
    assert line(ax, "bins (").get_ydata()[0] == pytest.approx(0.5 * np.log(1.5))


@pytest.mark.parametrize("bayes", [True, False])
def test_bin_choice_draws_the_table(bayes):
    table = bin_table(bayes)
    spread, shares, noise, change = drawn(plots.plot_bin_choice(table))
    np.testing.assert_allclose(line(spread, "widest bin").get_ydata(), table["most_spread"])
    np.testing.assert_allclose(line(spread, "widest bin").get_xdata(), table.index)
    np.testing.assert_allclose(line(shares, "share of bins").get_ydata(), table["no_variance"])
    np.testing.assert_allclose(line(shares, "Var E").get_ydata(), table["hidden"])
    np.testing.assert_allclose(line(noise, "log Var").get_ydata(), table["variance_noise"])
    # the most bins are what the others are compared with
    np.testing.assert_allclose(line(change, "five steps: log").get_ydata(), [0.2, 0.1])
    assert any("Bayes" in text for text in labels(change)) == bayes
    assert [text.get_text() for text in change.get_xticklabels()] == ["20", "50", "200"]


def test_bin_choice_refuses_other_tables():
    table = bin_table()
    with pytest.raises(errors.FitError, match=r"misses 1 columns \(hidden\)"):
        plots.plot_bin_choice(table.drop(columns="hidden"))
    with pytest.raises(errors.FitError, match="compare two"):
        plots.plot_bin_choice(table[:1])
    _, axes = plt.subplots(1, 2)
    with pytest.raises(errors.FitError, match="needs 4"):
        plots.plot_bin_choice(table, axes=axes)


def test_pit_histograms_draw_every_bin_and_all_together():
    found = histograms(bins=6, items=400)
    shuffled = found.isel(bin=[3, 1, 5, 0, 2, 4])
    axes = drawn(plots.plot_pit_histograms(shuffled))
    assert axes.shape == (1, 1)
    ax = axes[0, 0]
    rows, every = (mesh.get_array() for mesh in ax.collections)
    sd = np.sqrt((CELLS - 1) / found["n_items"].to_numpy())[:, None]
    np.testing.assert_allclose(rows, (found["density"] - 1) / sd)
    together = (found["density"] * found["n_items"]).sum("bin") / found["n_items"].sum()
    n = int(found["n_items"].sum())
    np.testing.assert_allclose(every[0], (together - 1) * np.sqrt(n / (CELLS - 1)))
    assert f"all together: {together.min():.2f} to {together.max():.2f}" in ax.get_title()
    assert [text.get_text() for text in ax.get_yticklabels()][-1] == "all"


def test_pit_histograms_of_thousands_of_bins_stay_quick():
    ax = drawn(plots.plot_pit_histograms(histograms(bins=3000, items=20)))[0, 0]
    assert len(ax.collections) + len(ax.lines) + len(ax.patches) == 2
    assert len(ax.get_yticks()) == 6


def test_pit_histograms_in_panels():
    parts = [[histograms(seed=2 * i + j) for j in range(3)] for i in range(2)]
    slices = xr.IndexVariable("slice", ["all items", "exposure >= 25", "others"])
    fits = xr.IndexVariable("fit", ["VI", "five steps"])
    both = xr.concat([xr.concat(row, slices) for row in parts], fits)
    for record in (both, xr.DataTree(both)):
        axes = plots.plot_pit_histograms(record)
        assert axes.shape == (2, 3)
        assert axes[1, 1].get_title().startswith("five steps, exposure >= 25")
    one = plots.plot_pit_histograms(both.isel(fit=[0]))
    assert one.shape == (1, 3)
    assert one[0, 0].get_title().startswith("all items")
    grid = {(d, s): histograms() for d in (0.0, 0.1) for s in (0.1, 0.5)}
    axes = drawn(plots.plot_pit_histograms(grid))
    assert axes.shape == (2, 2)
    assert axes[1, 0].get_title().startswith("delta = 0, sigma = 0.5")
    named = plots.plot_pit_histograms({"VI": histograms(), "five steps": histograms()})
    assert named.shape == (1, 2)


def test_pit_histograms_leave_empty_bins_out():
    found = histograms()
    found["n_items"][2] = 0
    found["density"][2] = np.nan
    ax = drawn(plots.plot_pit_histograms(found))[0, 0]
    assert "in 5 bins" in ax.get_title()
    with pytest.raises(errors.FitError, match="no bin"):
        plots.plot_pit_histograms(found.assign(n_items=0 * found["n_items"]))
    for wrong in (found.drop_vars("density"), {}, 3, {"a": 1}):
        with pytest.raises(errors.FitError, match="histograms"):
            plots.plot_pit_histograms(wrong)
    _, ax = plt.subplots()
    with pytest.raises(errors.FitError, match="2 histograms for one ax"):
        plots.plot_pit_histograms({"a": found, "b": found}, ax=ax)


def test_gain_by_bin_draws_the_table():
    table = held_table()
    ax = drawn(plots.plot_gain_by_bin(table))
    assert len(ax.containers) == 2
    for container, name in zip(ax.containers, ("E(theta | t)", "E(theta | t, y)"), strict=True):
        own = table[(table["estimator"] == name) & (table["bin"] >= 0)]
        data, _, bars = container
        np.testing.assert_allclose(data.get_ydata(), own["gain_percent"])
        # estimators stand beside each other, less than half the way to the next bin
        np.testing.assert_allclose(np.log(data.get_xdata()), np.log(own["score"]), atol=0.4)
        ends = np.array(bars[0].get_segments())[:, :, 1]
        np.testing.assert_allclose(np.diff(ends).ravel(), 2 * own["gain_percent_se"])
    assert "E(theta | t, y): +0.63 ± 0.10% overall" in labels(ax)
    assert "1,000 items, 250 events" in ax.get_title(loc="left")
    assert ax.get_xscale() == "log"


def test_gain_by_bin_of_chosen_estimators():
    table = held_table()
    ax = drawn(plots.plot_gain_by_bin(table, ["constant", "E(theta | t)"]))
    assert [text.split(":")[0] for text in labels(ax)[1:]] == ["constant", "E(theta | t)"]
    with pytest.raises(errors.FitError, match="not in the table: platt"):
        plots.plot_gain_by_bin(table, ["platt"])
    with pytest.raises(errors.FitError, match="no rows by bin"):
        plots.plot_gain_by_bin(table[table["bin"] < 0])
    drawn(plots.plot_gain_by_bin(table[table["bin"] < 1]))


@pytest.mark.parametrize("draws", [1, 200])
def test_variance_gain_has_intervals_where_there_are_draws(draws):
    found = reduction(draws)
    ax = drawn(plots.plot_variance_gain(found, prob=0.8))
    middle = found["ratio_by_bin"].median(["chain", "draw"])
    data = ax.containers[0][0] if draws > 1 else ax.lines[0]
    np.testing.assert_allclose(data.get_ydata(), middle)
    overall = float(found["ratio"].median())
    assert f"overall {overall:.1%}" in labels(ax)[0]
    assert ("80%" in labels(ax)[0]) == (draws > 1)
    assert len(ax.containers) == (draws > 1)
    if draws > 1:
        ends = np.array(ax.containers[0][2][0].get_segments())[:, :, 1]
        exact = np.quantile(found["ratio_by_bin"][0], [0.1, 0.9], axis=0)
        np.testing.assert_allclose(ends.T, exact)


def test_variance_gain_of_two_fits():
    ax = drawn(plots.plot_variance_gain({"VI": reduction(50), "five steps": reduction(1)}))
    assert {text.split(";")[0] for text in labels(ax)} == {"VI", "five steps"}
    with pytest.raises(errors.FitError, match="variance_reduction"):
        plots.plot_variance_gain(xr.Dataset())


@pytest.mark.parametrize("quantity", ["mean", "variance", "mean_error", "variance_error"])
def test_accuracy_grid_holds_every_bin_of_every_method(quantity):
    table = accuracy_table()
    grid = plots.plot_accuracy(table, quantity)
    if quantity == "mean":
        drawn(grid)
    assert grid.shape == (2, 2)
    for i, sigma in enumerate((0.1, 0.5)):
        for j, delta in enumerate((0.0, 0.2)):
            part = table[(table["sigma"] == sigma) & (table["delta"] == delta)]
            assert grid[i, j].get_title() == f"delta = {delta:g}, sigma = {sigma:g}"
            for method, own in part.groupby("method"):
                dots = line(grid[i, j], method)
                np.testing.assert_allclose(dots.get_ydata(), own[quantity])
                np.testing.assert_allclose(dots.get_xdata(), own["score"])
    truth = [x for x in grid[0, 0].lines if x.get_label().startswith("true")]
    assert len(truth) == (1 if quantity in ("mean", "variance") else 0)


def test_accuracy_of_values_is_one_panel():
    table = accuracy_table(grid=False)
    (ax,) = drawn(plots.plot_accuracy(table, "mean"))[0]
    assert ax.get_xscale() == ax.get_yscale() == "linear"
    drawn(plots.plot_accuracy(table.drop(columns=["delta", "sigma"]), "mean_error"))
    with pytest.raises(errors.FitError, match="must be 'mean'"):
        plots.plot_accuracy(table, "median")
    with pytest.raises(errors.FitError, match=r"misses 1 columns \(true_mean\)"):
        plots.plot_accuracy(table.drop(columns="true_mean"))
    _, axes = plt.subplots(2, 2)
    with pytest.raises(errors.FitError, match="4 axes, the grid has 1"):
        plots.plot_accuracy(table, axes=axes)
    with pytest.raises(errors.FitError, match="no rows"):
        plots.plot_accuracy(table[:0])


@pytest.mark.parametrize("grid", [True, False])
def test_regret_draws_shared_estimators_once_and_those_of_methods_each(grid):
    table = accuracy_table(grid)
    axes = drawn(plots.plot_regret(table))
    first = table[table["method"] == "VI"]
    assert axes.shape == ((2, 2) if grid else (1, 1))
    dots = [x for x in axes[0, 0].lines if x.get_linestyle() == "None"]
    assert len(dots) == 2 + 2 * 2
    np.testing.assert_allclose(line(axes[0, 0], "t").get_ydata(), first["mse_t"][:8])
    five = table[table["method"] == "five steps"]
    shown = line(axes[0, 0], "five steps: fitted E(theta | t, y)").get_ydata()
    np.testing.assert_allclose(shown, five["mse_posterior"][:8])
    with pytest.raises(errors.FitError, match="mse_posterior"):
        plots.plot_regret(table.drop(columns="mse_posterior"))


def test_error_ratio_takes_roots_of_values_alone():
    for grid in (True, False):
        table = accuracy_table(grid)
        axes = drawn(plots.plot_error_ratio(table))
        ax = axes[0, 0]
        own = table[table["method"] == "VI"]["error_ratio"][:8]
        shown = line(ax, "VI").get_ydata()
        np.testing.assert_allclose(shown, own if grid else np.sqrt(own))
        bars = np.array(ax.containers[0][2][0].get_segments())[:, :, 1]
        # d sqrt(r) = dr / (2 sqrt(r))
        width = 0.1 if grid else 0.05 / np.sqrt(own)
        np.testing.assert_allclose(0.5 * np.diff(bars).ravel(), width)
    plain = drawn(plots.plot_error_ratio(table, root=False))[0, 0]
    np.testing.assert_allclose(line(plain, "VI").get_ydata(), own)


def test_tables_are_drawn_in_given_axes():
    table = accuracy_table()
    figure, axes = plt.subplots(2, 2)
    assert plots.plot_regret(table, axes=axes)[1, 1] is axes[1, 1]
    assert len(figure.axes) == 4


def test_records_as_they_are_made():
    _, items, _, fits = counts()
    for fit in fits.values():
        found = soc.evaluate.pit_histograms(fit, items, bins=4, least_size=20, progress=False)
        ax = plots.plot_pit_histograms(found)[0, 0]
        assert ax.get_title().startswith(f"{int(found['n_items'].sum()):,} items in 4 bins")
        gain = soc.quantities.variance_reduction(fit, items, bins=4, progress=False)
        ax = plots.plot_variance_gain(gain)
        draws = gain.sizes["chain"] * gain.sizes["draw"]
        assert len(ax.containers) == (draws > 1)
    split = soc.evaluate.split_items(items)
    stats = soc.summarize(split.train, bins=10, progress=False)
    fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    held = soc.evaluate.held_out(fit, split, baselines=("constant",), bins=4, progress=False)
    ax = drawn(plots.plot_gain_by_bin(held))
    own = held.table[(held.table["estimator"] == "E(theta | t, y)") & (held.table["bin"] >= 0)]
    np.testing.assert_allclose(ax.containers[1][0].get_ydata(), own["gain_percent"])
    axes = plots.plot_pit_histograms(held.data["pit"])
    assert axes.shape == (1, 2)
    assert axes[0, 1].get_title().startswith("exposure >= 25")


def test_words_in_columns_of_numbers_leave_no_figure():
    numbers, held, bins = accuracy_table(), held_table(), bin_table()
    for call, match in (
        (lambda: plots.plot_accuracy(numbers.assign(score="high")), "'score' must hold numbers"),
        (lambda: plots.plot_regret(numbers.assign(delta="none")), "'delta' must hold numbers"),
        (lambda: plots.plot_gain_by_bin(held.assign(bin="x")), "'bin' must hold numbers"),
        (lambda: plots.plot_bin_choice(bins.assign(hidden="x")), "'hidden' must hold numbers"),
        (lambda: plots.plot_bin_choice(bins.set_axis(list("abc"))), "must be numbers of bins"),
        (lambda: plots.plot_accuracy(pd.concat([numbers, numbers], axis=1)), "several columns"),
    ):
        with pytest.raises(errors.FitError, match=match):
            call()
    assert not plt.get_fignums()


def test_axes_of_any_shape_are_taken_in_order():
    _, grid = plt.subplots(2, 2)
    for given in (grid, grid.tolist(), tuple(grid.ravel())):
        assert list(plots.plot_bin_choice(bin_table(), axes=given)) == list(grid.ravel())
    with pytest.raises(errors.FitError, match="axes holds 1 axes, the picture needs 4"):
        plots.plot_bin_choice(bin_table(), axes=grid[0, 0])
    with pytest.raises(errors.FitError, match="must be matplotlib axes in a list"):
        plots.plot_bin_choice(bin_table(), axes=[*grid.ravel()[:3], None])


def test_held_out_values():
    _, items, _, _ = values()
    split = soc.evaluate.split_items(items)
    stats = soc.summarize(split.train, bins=10, progress=False)
    fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    held = soc.evaluate.held_out(fit, split, baselines=(), bins=4, progress=False)
    ax = drawn(plots.plot_gain_by_bin(held.table))
    assert "squared error in noise sds" in ax.get_ylabel()
    assert "4,000 items;" in ax.get_title(loc="left")
    assert plots.plot_pit_histograms(held.data["pit"]).shape == (1, 1)
