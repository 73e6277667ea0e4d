"""What fits and checks show of themselves: summary, plot, predict, and pages in notebooks."""

import matplotlib as mpl

mpl.use("agg")

import numpy as np
import polars as pl
import pytest

import soc_pymc as soc
from tests.examples import SINGLE_FAMILIES


def test_summary_has_the_fits_numbers(example):
    fit = example("gamma").fit
    table = fit.summary()
    means = table[table["quantity"] == "E(theta | t)"]
    curves = soc.calibration_curves(fit, means["score"].to_numpy())["mean"]
    for column, prob in (("lower", 0.05), ("median", 0.5), ("upper", 0.95)):
        expected = curves.quantile(prob, ("chain", "draw"))
        np.testing.assert_allclose(means[column], expected, rtol=1e-12)
    median = table.set_index("quantity")["median"]
    assert median["R-squared"] == pytest.approx(float(soc.quantities.r_squared(fit).median()))
    assert median["Pareto k (at most 0.7)"] == fit.status.pareto_k
    assert "R-squared" not in set(example("groups").fit.summary()["quantity"])
    single_draw = example("five_steps").fit.summary()
    assert (single_draw["lower"] == single_draw["upper"]).all()


@pytest.mark.parametrize("family", SINGLE_FAMILIES)
def test_predict_uses_what_the_frame_has(family, example):
    """Outcomes and their sizes give the posterior; without outcomes, the curve."""
    known = example(family)
    _, outcome, size = known.items.roles
    frame = known.frame.head(20)
    after = soc.item_posteriors(known.fit, known.case.items(frame), progress=False)
    mean, sd = known.fit.predict(pl.from_pandas(frame), return_std=True)
    np.testing.assert_array_equal(mean, after["theta_mean"])
    np.testing.assert_array_equal(sd, after["theta_sd"])
    score_alone = type(known.items)(frame, score="score")
    before = soc.item_posteriors(known.fit, score_alone, progress=False)["theta_mean"]
    for columns in (["score"], ["score", size]):
        np.testing.assert_array_equal(known.fit.predict(frame[columns]), before)
    if family != "normal":
        with pytest.raises(soc.ItemsError, match=f"{size}="):
            known.fit.predict(frame[["score", outcome]])
    with pytest.raises(soc.ItemsError, match="'score'"):
        known.fit.predict(frame[[size]])


def test_pages_in_notebooks_show_verdicts_and_advice(small_fit, small_items):
    assert "<table" in small_fit._repr_html_()
    assert len(small_fit.plot()) == 2
    result = soc.check(small_fit, small_items, subset=50, progress=False)
    page = result._repr_html_()
    assert '<img src="data:image/' in page
    assert all(verdict in page for verdict in result.table["verdict"].unique())
