"""Results of checks as ArviZ takes them."""

import arviz as az
import matplotlib as mpl
import numpy as np
import pytest

import soc_pymc as soc

mpl.use("agg")


@pytest.mark.slow
def test_mixtures_are_taken_too(example):
    case = example("gamma_mixture")
    result = soc.check(case.fit, case.items, subset=200, progress=False)
    assert {"LOO-PIT", "leave-one-out"} <= set(result.table["what"])
    assert np.isfinite(float(az.loo(result.data).elpd))
    assert len(az.compare({"a": result.data, "b": result.data})) == 2


@pytest.mark.slow
def test_slices_and_records_of_leave_one_out(example):
    """Slices by a column are there, and checks of statistics compare as ArviZ's records."""
    case = example("gamma")
    frame = case.frame.assign(device=np.where(np.arange(len(case.frame)) % 3 > 0, "desk", "phone"))
    result = soc.check(case.fit, case.case.items(frame), by="device", subset=500, progress=False)
    assert result.data["pit_values"].sizes["item"] == 500
    assert {"device = phone", "device = desk"} <= set(result.table["where"])
    stats = soc.summarize(case.items, joint=True, progress=False)
    stiff = soc.fit(stats, soc.Gamma(variance=soc.Spline(knots=1)), progress=False)
    fits = {"curve": soc.fit(stats, progress=False), "constant cv": stiff}
    records = {name: soc.check(fit, stats, progress=False).elpd for name, fit in fits.items()}
    expected = soc.compare(fits, stats)
    assert list(az.compare(records).index) == list(expected.index)
    elpd = [float(records[name].elpd) for name in expected.index]
    np.testing.assert_allclose(elpd, expected["elpd"], atol=0.6)
