"""ArviZ's own pictures of results of checks: they run, and what they draw is right."""

from pathlib import Path

import arviz as az
import matplotlib as mpl
import numpy as np
import pytest

import soc_pymc as soc
from tests.checks.hand_made import KINDS, as_items, hand_made_fit, simulate, true_moments

mpl.use("agg")


@pytest.fixture(scope="module", params=["counts", "values"])
def case(request):
    """Calibrated items, their kind, and the check of the fit that made them."""
    frame = simulate(1000, 21, request.param)
    fit = hand_made_fit(request.param, sd=0.02)
    items = as_items(frame, request.param)
    # by this seed no PIT of ArviZ is above 1 by rounding, where its curve of all goes astray
    return request.param, frame, soc.check(fit, items, subset=300, seed=2, progress=False).data


def artist(pictures, visual):
    """Returns the one artist of a visual."""
    return next(iter(pictures.viz[visual].data_vars.values())).item()


def curve(pictures, visual):
    line = artist(pictures, visual)
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


@pytest.mark.slow
@pytest.mark.parametrize("group", ["pit_values", "loo_pit"])
def test_pit_is_drawn_and_calibrated(case, group):
    """Its test of uniformity has a p-value above .01 on PIT values that are exact."""
    kind, _, data = case
    pictures = az.plot_ecdf_pit(data, group=group, sample_dims="item")
    u = np.sort(data[group][KINDS[kind].roles[1]].to_numpy())
    x, y = curve(pictures, "ecdf_lines")
    ecdf = np.searchsorted(u, x, side="right") / len(u)
    assert np.abs(y - (ecdf - x)).max() < 2 / len(u)  # steps are drawn at points of a grid
    dataset = data[group].to_dataset()
    p, _, _ = dataset.azstats.uniformity_test(dim=["item"], method="pot_c")
    assert float(next(iter(p.data_vars.values()))) > 0.01


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Variables count")
def test_outcomes_and_replicates_are_drawn(case):
    """The predicted number of zeros is the exact one, within a tenth: three sds of its estimate."""
    kind, frame, data = case
    name = KINDS[kind].roles[1]
    outcome = np.sort(data["observed_data"][name].to_numpy())
    pictures = az.plot_ppc_dist(data, kind="ecdf", num_samples=20)
    x, y = curve(pictures, "observed_dist")
    assert np.abs(y - np.searchsorted(outcome, x, side="right") / len(outcome)).max() < 0.02
    if kind == "counts":
        pictures = az.plot_ppc_rootogram(data)
        some = frame.iloc[data["observed_data"]["item"].to_numpy()]
        zeros = KINDS[kind].marginal(*true_moments(some), some["exposure"]).pmf(0).sum()
        points = np.ma.getdata(artist(pictures, "predictive_markers").get_offsets())
        assert points[points[:, 0] == 0, 1].item() == pytest.approx(zeros, rel=0.1)


@pytest.mark.slow
def test_leave_one_out_is_drawn(case):
    kind, _, data = case
    pictures = az.plot_loo_pit(data, **({"method": "prit_c"} if kind == "counts" else {}))
    u = np.sort(data["loo_pit"][KINDS[kind].roles[1]].to_numpy())
    x, y = curve(pictures, "ecdf_lines")
    assert np.abs(np.searchsorted(u, x, side="right") / len(u) - x - y).max() < 0.1
    loo = az.loo(data, pointwise=True)
    points = np.ma.getdata(az.plot_khat(loo).viz["khat"]["pareto_k"].item().get_offsets())
    np.testing.assert_allclose(points[:, 1], loo.pareto_k)


@pytest.mark.slow
def test_mixtures_are_taken_too(example):
    case = example("gamma_mixture")
    result = soc.check(case.fit, case.items, subset=200, progress=False)
    assert {"LOO-PIT", "leave-one-out"} <= set(result.table["what"])
    assert np.isfinite(float(az.loo(result.data).elpd))
    assert len(az.compare({"a": result.data, "b": result.data})) == 2


@pytest.mark.slow
def test_the_page_on_checks_runs():
    """Every block of docs/dev/checks.md, in order; each call does what the page says."""
    page = (Path(__file__).parents[2] / "docs" / "dev" / "checks.md").read_text()
    names = {}
    for block in page.split("```python\n")[1:]:
        exec(compile(block.split("```")[0], "docs/dev/checks.md", "exec"), names)
    result = names["result"]
    assert result.data["pit_values"].sizes["item"] == 1000
    assert {"device = phone", "device = desk"} <= set(result.table["where"])
