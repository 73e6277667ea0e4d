"""What fits and checks show of themselves."""

from html import escape

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest

import soc_pymc as soc
from soc_pymc._lib.errors import FitError, ItemsError
from soc_pymc._lib.reprs import html_table


def test_summary_is_of_the_fit_s_own_numbers(small_fit):
    table = small_fit.summary()
    assert len(table) == 14
    means = table[table["quantity"] == "E(theta | t)"]
    curves = soc.calibration_curves(small_fit, means["score"].to_numpy())["mean"]
    for column, share in (("lower", 0.05), ("median", 0.5), ("upper", 0.95)):
        expected = curves.quantile(share, ("chain", "draw"))
        np.testing.assert_allclose(means[column], expected, rtol=1e-12)
    own = table.set_index("quantity")["median"]
    assert own["R-squared"] == pytest.approx(float(soc.quantities.r_squared(small_fit).median()))
    assert own["Pareto k (at most 0.7)"] == small_fit.status.pareto_k
    wiggle = small_fit.data["posterior"]["log_cv2_wiggle_sd"]
    assert own["log_cv2: sd about a line"] == pytest.approx(float(wiggle.median()))


def test_summary_of_groups_and_single_draws(grouped_fit, small_statistics):
    assert "R-squared" not in set(grouped_fit.summary()["quantity"])
    five = soc.fit(small_statistics, method=soc.FiveSteps(), progress=False).summary()
    assert (five["lower"] == five["upper"]).all()
    assert "Pareto k (at most 0.7)" not in set(five["quantity"])


def test_plot_draws_the_curves(small_fit):
    top, bottom = small_fit.plot()
    assert top.get_title(loc="left").startswith("Calibration curves")
    assert bottom.get_ylabel()
    plt.close("all")


def test_predict_uses_what_the_frame_has(small_fit, small_frame):
    frame = small_frame.head(20)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    after = soc.item_posteriors(small_fit, items, progress=False)
    mean, sd = small_fit.predict(pl.from_pandas(frame), return_std=True)
    np.testing.assert_array_equal(mean, after["theta_mean"])
    np.testing.assert_array_equal(sd, after["theta_sd"])
    before = soc.item_posteriors(small_fit, soc.PoissonItems(frame, score="score"), progress=False)
    for columns in (["score"], ["score", "exposure"]):
        np.testing.assert_array_equal(small_fit.predict(frame[columns]), before["theta_mean"])
    with pytest.raises(ItemsError, match="count= needs exposure="):
        small_fit.predict(frame[["score", "count"]])
    with pytest.raises(ItemsError, match="'score' is missing"):
        small_fit.predict(frame[["exposure"]])
    with pytest.raises(FitError, match="return_std='yes' must be True or False"):
        small_fit.predict(frame, return_std="yes")


def test_predict_of_labels_knows_the_mean():
    rng = np.random.default_rng(1)
    p = rng.uniform(0.1, 0.9, 600)
    frame = pl.DataFrame({"p": p, "n": 1, "y": (rng.random(600) < p).astype(int)})
    items = soc.BinomialItems(frame, score="p", successes="y", trials="n")
    fit = soc.fit(soc.summarize(items, bins=20, progress=False), method=soc.VI(draws=50),
                  progress=False)  # fmt: skip
    found = fit.predict(frame[["p"]])
    assert np.abs(found - p).max() < 0.15
    assert set(fit.summary()["quantity"]) >= {"E(theta | t)"}
    with pytest.raises(FitError, match="one trial per item"):
        fit.predict(frame[["p"]], return_std=True)


def test_pages_have_verdicts_and_the_next_step(small_fit, small_items):
    page = small_fit._repr_html_()
    assert "Next: fit.plot() and fit.summary()" in page
    assert '<td style="color: #1b7837; font-weight: bold">ok</td>' in page
    result = soc.check(small_fit, small_items, subset=50, progress=False)
    page = result._repr_html_()
    assert '<img src="data:image/' in page
    assert escape(result.advice[0]) in page
    assert 'style="color: #b2182b; font-weight: bold">fail' in html_table("", [("fail",)])
