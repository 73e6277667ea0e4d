"""The table of `Fit.summary`."""

import numpy as np
import pytest

import soc_pymc as soc


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
