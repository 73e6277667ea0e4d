"""ArviZ's own functions on results of checks: they run, and what they draw is right."""

import matplotlib as mpl

mpl.use("agg")

from dataclasses import replace
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from scipy import stats as sps

import soc_pymc as soc
from soc_pymc.checks import findings, leave_one_out, predictive
from soc_pymc.checks.cells import make_cells
from soc_pymc.checks.predictive import thin
from soc_pymc.posterior.curves import curve_draws
from soc_pymc.posterior.predictive import posterior_of
from tests.checks.test_checks import as_items, hand_made_fit, simulate
from tests.posterior import test_predictive_normal as normal

N, SUBSET = 1500, 300


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def counts():
    """Calibrated counts, the fit that made them, and its check."""
    frame = simulate(N, 21)
    fit = hand_made_fit(sd=0.02)
    return fit, frame, soc.check(fit, as_items(frame), subset=SUBSET, progress=False)


@pytest.fixture(scope="module")
def values():
    """The same of values."""
    fit = normal.make_fit(sd=0.02)
    frame = normal.simulate(N, 22, fit)
    items = soc.NormalItems(frame, score="t", value="y", noise_sd="s")
    return fit, frame, soc.check(fit, items, subset=SUBSET, progress=False)


@pytest.fixture(params=["counts", "values"])
def case(request):
    return request.getfixturevalue(request.param)


def drawn(pc, visual):
    """The one artist of a visual."""
    return next(iter(pc.viz[visual].data_vars.values())).item()


def delta(u):
    """ECDF of PIT values less the uniform cdf, at the values."""
    u = np.sort(u)
    return u, np.arange(1, len(u) + 1) / len(u) - u


# --- PIT -----------------------------------------------------------------------------------------


def test_pit_values_of_the_tree_are_exact(counts, values):
    """Counts: between the two ends of scipy's negative binomial; values: scipy's Normal cdf. The
    fits' curves are known to an sd of .02, which moves a cdf's mean by less than .002."""
    fit, frame, result = counts
    at = result.data["pit_values"]["item"].to_numpy()
    t, y, n = (frame[c].to_numpy(dtype=float)[at] for c in ("score", "count", "exposure"))
    log_mean, log_cv2 = (c.mean(axis=0) for c in curve_draws(fit, t))
    law = sps.nbinom(np.exp(-log_cv2), 1 / (1 + n * np.exp(log_mean + log_cv2)))
    u = result.data["pit_values"]["count"].to_numpy()
    assert np.all(u >= law.cdf(y - 1) - 0.002)
    assert np.all(u <= law.cdf(y) + 0.002)
    fit, frame, result = values
    at = result.data["pit_values"]["item"].to_numpy()
    part = frame.iloc[at]
    mean, log_variance = (c.mean(axis=0) for c in curve_draws(fit, part["t"]))
    exact = sps.norm(mean, np.sqrt(np.exp(log_variance) + part["s"] ** 2)).cdf(part["y"])
    np.testing.assert_allclose(result.data["pit_values"]["value"], exact, atol=0.002)


@pytest.mark.parametrize("group", ["pit_values", "loo_pit"])
def test_plot_ecdf_pit_draws_them(case, group):
    _, _, result = case
    pc = az.plot_ecdf_pit(result.data, group=group, sample_dims="item")
    u = next(iter(result.data[group].data_vars.values())).to_numpy()
    line = drawn(pc, "ecdf_lines")
    x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    ecdf = np.searchsorted(np.sort(u), x, side="right") / len(u) - x
    assert np.abs(y - ecdf).max() < 2 / len(u)  # steps are drawn at points of a grid
    assert np.abs(y).max() == pytest.approx(np.abs(delta(u)[1]).max(), abs=3 / len(u))
    away = az.plot_ecdf_pit(result.data, group=group, sample_dims="item", coverage=True)
    assert drawn(away, "ecdf_lines") is not None


def test_arvizs_test_finds_nothing_in_calibrated_outcomes(case):
    """Its uniformity test has a p-value above .01 on PIT values that are exact, and none below 1e-3
    at eight other seeds of the randomisation."""
    fit, frame, result = case
    for group in ("pit_values", "loo_pit"):
        p, _, _ = (
            result.data[group].to_dataset().azstats.uniformity_test(dim=["item"], method="pot_c")
        )
        assert float(next(iter(p.data_vars.values()))) > 0.01
    if "count" in frame:
        names = {"score": "score", "count": "count", "exposure": "exposure"}
        columns = {role: frame[name].to_numpy(dtype=float) for role, name in names.items()}
        ends = predictive.predictive_cdf(posterior_of(fit), columns, progress=False)
        for seed in range(8):
            u = predictive.randomised_pit(*ends, np.random.default_rng(seed))
            assert predictive.uniformity(u).p_value > 1e-3


def test_plot_loo_pit_agrees_with_ours(values, counts):
    """ArviZ's weights 1,000 predictive draws: .06 is four sds of a share of so many. It breaks ties
    of counts by random numbers of its own, so that their ECDFs are compared: two of the same
    300 intervals differ by less than .1."""
    _, _, result = values
    theirs = az.loo_pit(result.data)["value"].to_numpy()
    ours = result.data["loo_pit"]["value"].to_numpy()
    assert np.abs(theirs - ours).max() < 0.065
    pc = az.plot_loo_pit(result.data)
    assert np.abs(np.asarray(drawn(pc, "ecdf_lines").get_ydata())).max() == pytest.approx(
        np.abs(delta(ours)[1]).max(), abs=0.02
    )
    _, _, result = counts
    pc = az.plot_loo_pit(result.data, method="prit_c")  # the default smooths tails, as of values
    line = drawn(pc, "ecdf_lines")
    x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    u = np.sort(result.data["loo_pit"]["count"].to_numpy())
    assert np.abs(np.searchsorted(u, x, side="right") / len(u) - x - y).max() < 0.1


# --- predictive draws ----------------------------------------------------------------------------


def test_plot_ppc_rootogram_counts_items(counts):
    """Observed frequencies are the subset's; the predicted number of zeros is the exact one within
    a tenth of it, more than three sds of its estimate."""
    fit, frame, result = counts
    pc = az.plot_ppc_rootogram(result.data)
    seen = result.data["observed_data"]["count"].to_numpy()
    level, number = np.unique(seen, return_counts=True)
    points = np.ma.getdata(drawn(pc, "observed_markers").get_offsets())
    np.testing.assert_allclose(points[np.argsort(points[:, 0])], np.c_[level, number])
    at = result.data["observed_data"]["item"].to_numpy()
    t, n = (frame[c].to_numpy(dtype=float)[at] for c in ("score", "exposure"))
    log_mean, log_cv2 = (c.mean(axis=0) for c in curve_draws(fit, t))
    zeros = sps.nbinom(np.exp(-log_cv2), 1 / (1 + n * np.exp(log_mean + log_cv2))).pmf(0).sum()
    predicted = np.ma.getdata(drawn(pc, "predictive_markers").get_offsets())
    assert predicted[predicted[:, 0] == 0, 1].item() == pytest.approx(zeros, rel=0.1)


@pytest.mark.filterwarnings("ignore:Variables count")
def test_plot_ppc_dist_draws_outcomes_and_replicates(case):
    _, _, result = case
    pc = az.plot_ppc_dist(result.data, kind="ecdf", num_samples=20)
    name = next(iter(result.data["observed_data"].data_vars))
    seen = np.sort(result.data["observed_data"][name].to_numpy())
    line = drawn(pc, "observed_dist")
    x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    ecdf = np.searchsorted(seen, x, side="right") / len(seen)
    assert np.abs(y - ecdf).max() < 0.02
    replicates = pc.viz["predictive_dist"][name].to_numpy().ravel()
    assert len(replicates) == 20
    middle = np.mean([np.interp(0.5, r.get_ydata(), r.get_xdata()) for r in replicates])
    assert abs(middle - np.median(seen)) < 0.5 * (np.quantile(seen, 0.75) - np.quantile(seen, 0.25))


# --- leave-one-out -------------------------------------------------------------------------------


@pytest.mark.slow
def test_loo_plot_khat_and_compare(case):
    fit, _, result = case
    loo = az.loo(result.data, pointwise=True)
    law = posterior_of(fit)
    name = law.outcome.observed
    assert loo.n_data_points == SUBSET
    row = result.table.set_index("check").loc["leave-one-out"]
    assert row["slice"] == f"{SUBSET} random items"
    assert row["statistic"] == pytest.approx(float(loo.pareto_k.max()), abs=0.1)
    pc = az.plot_khat(loo)
    points = np.ma.getdata(pc.viz["khat"]["pareto_k"].item().get_offsets())
    np.testing.assert_allclose(points[:, 1], loo.pareto_k)
    wrong = result.data.copy()
    wrong["log_likelihood"] = wrong["log_likelihood"] - 0.01
    table = az.compare({"right": result.data, "wrong": wrong}, round_to="none")
    assert list(table.index) == ["right", "wrong"]
    assert table.loc["wrong", "elpd_diff"] == pytest.approx(-0.01 * SUBSET, abs=1e-6)
    assert result.data["log_likelihood"][name].dims == ("chain", "draw", "item")


@pytest.fixture(scope="module")
def on_cells():
    """A fit and a worse one, 500 draws of each, and their leave-one-out of 3,000 items' cells."""
    frame = soc.simulation.s1(3000, seed=4)
    stats = soc.summarize(as_items(frame), bins=60, joint=True, progress=False)
    fit = soc.fit(stats, progress=False)
    posterior = fit.data["posterior"].to_dataset()
    tree = fit.data.copy()
    tree["posterior"] = xr.DataTree(posterior.assign(log_cv2=posterior["log_cv2"] - 1.0))
    fits = {"good": thin(fit, 500), "narrow": thin(replace(fit, data=tree), 500)}
    cells = make_cells(fits["good"], stats)
    left_out = {name: leave_one_out.loo_cells(f, cells, progress=False) for name, f in fits.items()}
    return stats, cells, left_out, fits


def direct(cells, left_out):
    """Difference of the two fits and its standard error, over all items."""
    away = np.repeat(left_out["narrow"].each - left_out["good"].each, cells.n)
    return away.sum(), away.std() * np.sqrt(len(away))


@pytest.mark.slow
def test_records_of_all_items_compare(on_cells):
    stats, cells, left_out, fits = on_cells
    results = {name: soc.check(f, stats, progress=False) for name, f in fits.items()}
    table = az.compare({name: result.elpd for name, result in results.items()}, round_to="none")
    assert list(table.index) == ["good", "narrow"]
    for name, loo in left_out.items():
        assert table.loc[name, "elpd"] == pytest.approx(loo.elpd, rel=1e-12)
        assert table.loc[name, "se"] == pytest.approx(loo.standard_error, rel=1e-12)
    found = table.loc["narrow", ["elpd_diff", "dse"]].astype(float)
    np.testing.assert_allclose(found, direct(cells, left_out), rtol=1e-9)
    assert results["good"].elpd.n_data_points == 3000
    khat = az.plot_khat(results["good"].elpd)
    points = np.ma.getdata(khat.viz["khat"]["pareto_k"].item().get_offsets())
    largest = float(results["good"].data["loo"]["pareto_k"])
    assert points[:, 1].max() == pytest.approx(largest, abs=1e-12)


@pytest.mark.slow
def test_records_of_too_many_items_have_the_sums_of_all(on_cells, monkeypatch):
    """Points for half of 3,000 items: sums are exact. The error of a difference, which few items
    make, is within a quarter; at 200,000 points within a few percent."""
    _, cells, left_out, _ = on_cells
    monkeypatch.setattr(leave_one_out, "_MOST_POINTS", 1500)
    records = {n: leave_one_out.elpd_record(loo, cells.n) for n, loo in left_out.items()}
    assert records["good"].n_data_points == 3000
    assert records["good"].elpd_i.sizes == {"item": 1500}
    assert "1500" in repr(records["good"])
    table = az.compare(records, round_to="none")
    for name, loo in left_out.items():
        assert table.loc[name, "elpd"] == pytest.approx(loo.elpd, rel=1e-12)
        assert table.loc[name, "se"] == pytest.approx(loo.standard_error, rel=1e-12)
    diff, error = direct(cells, left_out)
    assert table.loc["narrow", "elpd_diff"] == pytest.approx(diff, rel=1e-9)
    assert table.loc["narrow", "dse"] == pytest.approx(error, rel=0.25)
    assert table.loc["good", "weight"] > 0.9
    assert az.plot_khat(records["good"]) is not None


def test_items_and_fits_of_one_draw_have_no_record(counts, on_cells):
    assert counts[2].elpd is None
    stats = on_cells[0]
    steps = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    result = soc.check(steps, stats, progress=False)
    assert result.elpd is None
    assert "leave-one-out" not in set(result.table["check"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Variables")
@pytest.mark.parametrize("kind", ["counts", "values"])
def test_mixtures(kind):
    if kind == "counts":
        frame = soc.simulation.s1(3000, seed=5)
        items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
        prior = soc.GammaMixture()
    else:
        frame = normal.simulate(3000, 5, normal.make_fit())
        items = soc.NormalItems(frame, score="t", value="y", noise_sd="s")
        prior = soc.NormalMixture()
    fit = soc.fit(soc.summarize(items, bins=60, joint=True, progress=False), prior, progress=False)
    result = soc.check(fit, items, subset=300, progress=False)
    assert {"LOO-PIT", "leave-one-out"} <= set(result.table["check"])
    az.plot_ecdf_pit(result.data, group="pit_values", sample_dims="item")
    az.plot_ecdf_pit(result.data, group="loo_pit", sample_dims="item")
    az.plot_ppc_dist(result.data)
    az.plot_loo_pit(result.data, method="prit_c")
    az.plot_khat(az.loo(result.data, pointwise=True))
    if kind == "counts":
        az.plot_ppc_rootogram(result.data)
    assert result.data["loo_pit"].sizes["item"] == 300
    table = az.compare({"a": result.data, "b": result.data})
    assert len(table) == 2


@pytest.mark.slow
def test_the_page_on_checks_runs():
    """Every block of docs/dev/checks.md, in order; each call does what the page says."""
    page = (Path(__file__).parents[2] / "docs" / "dev" / "checks.md").read_text()
    names = {}
    for block in page.split("```python\n")[1:]:
        exec(compile(block.split("```")[0], "docs/dev/checks.md", "exec"), names)
    result = names["result"]
    assert len(repr(result).splitlines()) <= 12
    assert result.data["pit_values"].sizes["item"] == 1000
    assert {"device = phone", "device = desk"} <= set(result.table["slice"])
    named = set(findings._LABELS) - {"noise", "clusters"} | {"zero counts"}  # nothing is in doubt
    assert set(result.table["check"]) == named
    assert len(plt.get_fignums()) == 8
