"""Pictures of items, of R-squared and of predictive frequencies: what is drawn is what is given."""

import functools

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.collections import LineCollection

import soc_pymc as soc
from soc_pymc import plots
from soc_pymc._lib import errors
from soc_pymc.checks._check import CheckResult
from tests.picture_records import counts, drawn, labels, line, values

HOSTILE = ["$x$", "50% of $", "_hidden", r"\frac{a}{$", "a_b^c", "line\nbreak", "$$"]


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


def scored(n=50, **more):
    """Records in the layout of `soc.item_posteriors` of counts."""
    rng = np.random.default_rng(0)
    mean = np.exp(rng.normal(-3, 0.8, n))
    frame = pd.DataFrame({"name": [f"item {k}" for k in range(n)], "t": mean * 1.2})
    frame["clicks"], frame["shown"] = rng.poisson(mean * 200), rng.permutation(np.arange(n)) + 150.0
    frame["theta_mean"] = mean
    for name, factor in {"q05": 0.6, "q25": 0.9, "q75": 1.1, "q97_5": 1.5}.items():
        frame[f"theta_{name}"] = factor * mean
    return frame.assign(**more)


ROLES = {"count": "clicks", "exposure": "shown"}


def spans(ax):
    """Ends of horizontal lines, (collections, items, 2)."""
    parts = [c for c in ax.collections if isinstance(c, LineCollection)]
    return [np.array(c.get_segments())[:, :, 0] for c in parts]


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_forest_draws_the_items_of_largest_exposure_in_order(kind):
    import polars as pl
    import pyarrow as pa

    frame = scored()
    table = {"pandas": frame, "polars": pl.from_pandas(frame), "arrow": pa.table(frame)}[kind]
    ax = drawn(plots.plot_forest(table, id="name", score="t", items=7, **ROLES))
    own = frame.nlargest(7, "shown").sort_values("theta_mean")
    np.testing.assert_array_equal(line(ax, "posterior mean").get_xdata(), own["theta_mean"])
    np.testing.assert_array_equal(line(ax, "score (t)").get_xdata(), own["t"])
    rates = line(ax, "own rate: clicks / shown")
    np.testing.assert_allclose(rates.get_xdata(), own["clicks"] / own["shown"])
    assert [text.get_text() for text in ax.get_yticklabels()] == list(own["name"])
    outer, inner = spans(ax)
    np.testing.assert_array_equal(outer, own[["theta_q05", "theta_q97_5"]])
    np.testing.assert_array_equal(inner, own[["theta_q25", "theta_q75"]])
    assert {"posterior: 5% to 97.5%", "posterior: 25% to 75%"} <= set(labels(ax))
    assert "7 of 50 items: those with the most exposure" in ax.get_title(loc="left")
    assert ax.get_xscale() == "log"
    assert ax.get_xlabel() == "theta, clicks per unit of shown"
    y, size = (int(own[c].iloc[0]) for c in ("clicks", "shown"))
    assert f"{y:,} / {size:,}" in [text.get_text() for text in ax.texts]


def test_forest_draws_the_items_that_are_asked_for():
    frame = scored()
    ax = drawn(plots.plot_forest(frame, id="name", items=["item 30", "item 4", "item 11"]))
    own = frame.iloc[[30, 4, 11]].sort_values("theta_mean")
    assert [text.get_text() for text in ax.get_yticklabels()] == list(own["name"])
    assert len(ax.lines) == 1  # no outcomes without their columns
    by_label = frame.set_index("name")
    ax = plots.plot_forest(by_label, items="item 4", **ROLES)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["item 4"]
    ax = plots.plot_forest(frame, items=[4, 5])
    np.testing.assert_array_equal(
        line(ax, "posterior mean").get_xdata(), np.sort(frame["theta_mean"][[4, 5]])
    )
    for wrong in (["nobody"], [], 0):
        with pytest.raises(errors.ItemsError, match=r"not in the table|nothing to draw"):
            plots.plot_forest(frame, id="name", items=wrong)


def test_forest_keeps_own_rates_of_0_in_sight():
    frame = scored()
    frame.loc[:9, "clicks"] = 0
    none = (frame["clicks"] == 0).sum()
    ax = drawn(plots.plot_forest(frame, items=50, **ROLES))
    found = line(ax, f"own rate 0, off the axis: {none}")
    order = frame.sort_values("theta_mean").reset_index(drop=True)
    np.testing.assert_array_equal(found.get_ydata(), np.flatnonzero(order["clicks"] == 0))
    assert ax.get_xlim()[0] > 0
    assert "50 items)" in ax.get_title(loc="left")


def test_forest_of_values_is_linear():
    _, items, _, fits = values()
    table = soc.item_posteriors(fits["VI"], items, progress=False)
    ax = drawn(plots.plot_forest(table, score="score", value="value", noise_sd="noise_sd", items=5))
    assert ax.get_xscale() == "linear"
    # all have one noise sd, so that no five are the most precise
    own = table[:5].sort_values("theta_mean")
    np.testing.assert_array_equal(line(ax, "own value: value").get_xdata(), own["value"])
    np.testing.assert_array_equal(spans(ax)[0], own[["theta_q05", "theta_q95"]])
    assert "the first rows" in ax.get_title(loc="left")
    assert "in the unit of the values" in ax.get_xlabel()


def test_forest_says_what_it_misses():
    frame = scored()
    for wrong, match in (
        ({"count": "clicks"}, "both columns"),
        ({"noise_sd": "t"}, "both columns"),
        ({**ROLES, "value": "t"}, "or value="),
        ({"id": "nobody"}, "'nobody' is missing"),
    ):
        with pytest.raises(errors.ItemsError, match=match):
            plots.plot_forest(frame, **wrong)
    bare = frame.drop(columns=[c for c in frame if c.startswith("theta_q")])
    with pytest.raises(errors.ItemsError, match="0 columns of quantiles"):
        plots.plot_forest(bare)
    with pytest.raises(errors.ItemsError, match="'theta_mean' is missing"):
        plots.plot_forest(frame.drop(columns="theta_mean"))


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.slow
def test_names_of_items_and_columns_are_text(name):
    frame = scored(name=[f"{name} {k}" for k in range(50)])
    frame = frame.rename(columns={"t": name, "clicks": f"{name}1", "shown": f"{name}2"})
    roles = {"score": name, "count": f"{name}1", "exposure": f"{name}2"}
    ax = drawn(plots.plot_forest(frame, id="name", **roles))
    words = [*labels(ax), ax.get_xlabel(), *(t.get_text() for t in ax.get_yticklabels())]
    assert sum(" ".join(name.split()) in word.replace(r"\$", "$") for word in words) == 23
    for word in words:
        assert word.count("$") == word.count(r"\$")  # else it is read as mathematics
    drawn(plots.plot_shrinkage(frame, **roles))
    rows = {name: squares(0.5), f"{name}'s": squares(0.6)}
    ax = drawn(plots.plot_r_squared(rows))
    assert len(ax.get_yticklabels()) == 2


def squares(middle, sd=0.02, draws=400):
    """Draws in the layout of `soc.quantities.r_squared`."""
    own = middle + sd * np.random.default_rng(0).normal(size=(2, draws // 2))
    return xr.DataArray(own, dims=("chain", "draw"))


def test_r_squared_shows_median_interval_and_density():
    own = squares(0.5)
    ax = drawn(plots.plot_r_squared(own, prob=0.8))
    low, middle, high = np.quantile(own, [0.1, 0.5, 0.9])
    np.testing.assert_allclose(spans(ax)[0], [[low, high]])
    np.testing.assert_allclose(ax.lines[0].get_xdata(), middle)
    assert f"{middle:.3f} ({low:.3f} to {high:.3f})" in ax.texts[0].get_text()
    assert "400 draws" in ax.get_title(loc="left")
    assert "80% interval" in ax.get_title(loc="left")
    shape = ax.collections[0].get_paths()[0].vertices
    assert shape[np.argmax(shape[:, 1]), 0] == pytest.approx(0.5, abs=0.01)


def test_r_squared_of_several_fits_side_by_side():
    _, _, _, fits = counts()
    rows = {name: soc.quantities.r_squared(fit) for name, fit in fits.items()}
    ax = drawn(plots.plot_r_squared(rows))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["VI", "five steps"]
    assert len(spans(ax)) == 1  # five steps have one draw
    dots = [x.get_xdata()[0] for x in ax.lines]
    np.testing.assert_allclose(dots, [float(own.median()) for own in rows.values()])
    assert "1 to 100 draws" in ax.get_title(loc="left")
    parts = soc.quantities.variance_parts(fits["VI"])
    (again,) = plots.plot_r_squared(parts).lines
    assert again.get_xdata()[0] == dots[0]
    for wrong in ({}, 3, xr.Dataset(), {"a": np.zeros(3)}, squares(0.5).rename(chain="score")):
        with pytest.raises(errors.FitError, match="r_squared"):
            plots.plot_r_squared(wrong)
    with pytest.raises(errors.FitError, match="prob=1"):
        plots.plot_r_squared(squares(0.5), prob=1)


def test_score_comparison_shows_differences_and_chances():
    rng = np.random.default_rng(0)
    more = np.array([[0.05], [-0.01]]) + 0.01 * rng.normal(size=(2, 1000))
    compared = xr.Dataset(
        {"r_squared": (("score", "draw"), more), "unexplained": (("score", "draw"), -3 * more)},
        {"score": ["new", "a $ score"]},
        {"reference": "old $"},
    )
    ax = drawn(plots.plot_score_comparison(compared))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["new", r"a \$ score"]
    np.testing.assert_allclose(np.concatenate(spans(ax)), np.quantile(more, [0.05, 0.95], axis=1).T)
    assert line(ax, "old").get_xdata()[0] == 0
    assert r"R²(old \$)" in ax.get_xlabel()
    texts = [text.get_text() for text in ax.texts]
    assert "P(better) > 99.9%" in texts[0]
    share = np.mean(more[1] > 0)
    assert f"P(better) = {share:.1%}" in texts[1]
    other = drawn(plots.plot_score_comparison(compared, "unexplained"))
    assert f"P(better) = {share:.1%}" in other.texts[1].get_text()  # less is better here
    np.testing.assert_allclose(other.lines[0].get_xdata()[0], -3 * np.median(more[0]))
    with pytest.raises(errors.FitError, match="must be 'r_squared' or"):
        plots.plot_score_comparison(compared, "total")
    with pytest.raises(errors.FitError, match="compare_scores"):
        plots.plot_score_comparison(compared.drop_vars("r_squared"))


def checked(observed, new, name="count"):
    """A check's record with these outcomes."""
    groups = {
        "posterior_predictive": xr.Dataset({name: (("chain", "draw", "item"), new[None])}),
        "observed_data": xr.Dataset({name: ("item", observed)}),
    }
    return CheckResult(pd.DataFrame(), xr.DataTree.from_dict(groups), (), *_NO_ELPD)


# the record may have further fields behind these three
_NO_ELPD = (None,) * (len(CheckResult.__dataclass_fields__) - 3)


@functools.cache
def outcomes(observed_mean):
    rng = np.random.default_rng(0)
    return rng.poisson(observed_mean, 2000), rng.poisson(2.0, (200, 2000))


def test_rootogram_hangs_roots_of_numbers_from_those_expected():
    observed, new = outcomes(2.0)
    ax = drawn(plots.plot_rootogram(checked(observed, new)))
    top = line(ax, "expected items").get_ydata() ** 2
    exact = np.bincount(new.ravel(), minlength=len(top))[: len(top) - 1] / 200
    np.testing.assert_allclose(top[:-1], exact)
    assert top.sum() == pytest.approx(2000)
    bars = {round(bar.get_x() + 0.43): -bar.get_height() for c in ax.containers for bar in c}
    seen = np.bincount(observed)
    for k in range(len(top) - 1):
        assert bars[k] ** 2 == pytest.approx(seen[k], abs=1e-6)
    outside = sum("outside" in label for label in labels(ax))
    band = ax.collections[0].get_paths()[0].get_extents()
    assert band.y0 < 0 < band.y1
    assert outside <= 1
    assert "2,000 items, 200 replicates" in ax.get_title(loc="left")


def test_rootogram_colours_what_the_model_does_not_make():
    observed, new = outcomes(2.0)
    zeros = np.where(np.arange(2000) < 300, 0, observed)  # many more zeros than predicted
    ax = plots.plot_rootogram(checked(zeros, new))
    (outside,) = [c for c in ax.containers if "outside" in c.get_label()]
    feet = {round(b.get_x() + 0.43): b.get_y() + b.get_height() for b in outside}
    assert feet[0] < -3  # sqrt(270) - sqrt(530), but for chance
    assert "90% band" in " ".join(labels(ax))


def test_rootogram_of_large_counts_merges_bars():
    rng = np.random.default_rng(1)
    new = rng.negative_binomial(0.3, 0.002, (50, 1000))
    ax = drawn(plots.plot_rootogram(checked(rng.negative_binomial(0.3, 0.002, 1000), new)))
    names = [text.get_text() for text in ax.get_xticklabels()]
    assert names[:3] == ["0", "1", "2"]
    assert names[16] == "16-19"
    assert len(names) < 45
    assert line(ax, "expected items").get_ydata() @ line(ax, "expected items").get_ydata() == (
        pytest.approx(1000)
    )


def test_rootogram_of_values_and_of_one_replicate():
    rng = np.random.default_rng(2)
    for replicates in (100, 1):
        result = checked(rng.normal(size=1000), rng.normal(size=(replicates, 1000)), "value")
        ax = drawn(plots.plot_rootogram(result))
        assert "value" in ax.get_xlabel()
        top = line(ax, "expected items").get_ydata()
        assert len(top) == 30
        assert (top**2).sum() == pytest.approx(1000)
        outside = sum(len(c) for c in ax.containers if "outside" in c.get_label())
        # 3 of 30 are expected; more than 9 have a chance of .0005
        assert outside <= 9
    observed = result.data["observed_data"]
    bare = CheckResult(
        pd.DataFrame(), xr.DataTree.from_dict({"observed_data": observed}), (), *_NO_ELPD
    )
    with pytest.raises(errors.FitError, match="was made on statistics"):
        plots.plot_rootogram(bare)
    with pytest.raises(errors.FitError, match="prob=0"):
        plots.plot_rootogram(result, prob=0)


def test_rootogram_of_checks_as_they_are_made():
    for case, method in ((counts, "VI"), (values, "five steps")):
        _, items, _, fits = case()
        result = soc.check(fits[method], items, subset=500, progress=False)
        ax = plots.plot_rootogram(result)
        assert "500 items" in ax.get_title(loc="left")
    joint = soc.check(fits["VI"], soc.summarize(items, joint=True, progress=False), progress=False)
    with pytest.raises(errors.FitError, match="was made on statistics"):
        plots.plot_rootogram(joint)
