"""Checks and pictures of Normal fits: items, and the cells of statistics of values."""

import json
from dataclasses import replace

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats as sps
from scipy.special import logsumexp

import soc_pymc as soc
from soc_pymc.checks import predictive
from soc_pymc.checks.cells import cell_pit, make_cells
from soc_pymc.checks.leave_one_out import loo_cells
from soc_pymc.evaluate.model_choice import _log_density
from soc_pymc.plots.fitted import merged_outcomes
from soc_pymc.posterior import item_columns
from soc_pymc.posterior.curves import curve_draws
from soc_pymc.posterior.predictive import posterior_of
from tests.posterior.test_predictive_normal import ROLES, columns_of, make_fit, simulate, values_of

BINS = 80


@pytest.fixture(autouse=True)
def _no_scan(monkeypatch):
    monkeypatch.setattr(item_columns, "scan", lambda items, progress: None)


def summarized(frame):
    """Statistics with joint cells in even bins."""
    items = soc.NormalItems(frame, score="t", value="y", noise_sd="s")
    edges = np.linspace(-2.0, 2.0, BINS + 1)[1:-1]
    return soc.summarize(items, edges=edges, joint=True, on_leakage="ignore", progress=False)


@pytest.fixture(scope="module")
def case():
    fit = make_fit(sd=0.02)
    frame = simulate(8000, 1, fit)
    return fit, frame, summarized(frame)


def wrong(fit, **changes):
    posterior = fit.data["posterior"].to_dataset()
    tree = fit.data.copy()
    shifted = {name: posterior[name] + by for name, by in changes.items()}
    tree["posterior"] = xr.DataTree(posterior.assign(shifted))
    return replace(fit, data=tree)


def test_a_good_fit_passes(case):
    fit, frame, _ = case
    labelled = frame.assign(country=np.arange(len(frame)) % 3)
    result = soc.check(fit, values_of(labelled), by="country", progress=False)
    assert "fail" not in set(result.table["verdict"])
    checks = set(result.table["check"])
    assert "dispersion" in checks
    assert "zero counts" not in checks
    slices = result.table["slice"]
    assert slices.str.startswith("noise sd ").sum() == 6  # and all
    assert slices.str.startswith("score ").sum() == 6
    assert slices.str.startswith("country = ").sum() == 4  # and any
    assert not slices.str.contains(">= 50").any()
    data = result.data
    assert data["observed_data"]["value"].sizes == {"item": 5000}
    assert data["constant_data"]["noise_sd"].dims == ("item",)
    pit_of_check = data["pit"].sel(slice="all items")
    np.testing.assert_allclose(  # the same but for a PIT that lies on a point of the grid
        pit_of_check["randomised"], pit_of_check["averaged"], atol=1e-3
    )


def test_arviz_takes_values(case):
    import arviz

    fit, frame, _ = case
    result = soc.check(fit, values_of(frame[:600]), progress=False)
    each = posterior_of(fit).log_density(columns_of(frame[:600]))
    direct = (np.log(len(each)) - logsumexp(-each, axis=0)).sum()
    assert float(arviz.loo(result.data).elpd) == pytest.approx(direct, abs=0.5)


@pytest.mark.slow
def test_advice(case):
    """Where the PIT fails the next thing to try is named, and not what the fit already has."""
    fit, frame, _ = case
    result = soc.check(wrong(fit, log_variance=1.0), values_of(frame), progress=False)
    assert any("Values scatter less" in a for a in result.advice)
    assert any("soc.NormalMixture()" in a and "joint=True" in a for a in result.advice)
    noisy = frame.assign(y=frame["y"] + np.log(frame["s"]))
    result = soc.check(fit, values_of(noisy), progress=False)
    assert any("soc.Normal(exposure=soc.Spline())" in a for a in result.advice)
    named = frame.assign(g=np.where(np.arange(len(frame)) % 2, "a", "b"))
    named.loc[named["g"] == "a", "y"] += 0.4
    result = soc.check(fit, values_of(named), by="g", progress=False)
    assert any("group='g'" in a for a in result.advice)
    own = soc.check(fit, values_of(named, "g"), progress=False)  # the items' group without asking
    assert set(own.table["slice"]) == set(result.table["slice"])


def test_advice_knows_the_terms_that_a_fit_has():
    from soc_pymc.checks.findings import advise
    from soc_pymc.families.priors import Gamma, Spline

    rows = [("PIT", "exposure 1/5: 1 to 2", 0.2, 1e-9, "fail")]
    table = pd.DataFrame(rows, columns=["check", "slice", "statistic", "p_value", "verdict"])
    fit = replace(make_fit(), prior=Gamma())
    outcome = posterior_of(fit).outcome
    assert any(
        "soc.Gamma(exposure=soc.Spline())" in a for a in advise(table, fit, outcome, 100, [])
    )
    has = replace(fit, prior=Gamma(exposure=Spline()))
    said = list(advise(table, has, outcome, 100, []))
    assert not any("exposure=soc.Spline())" in a for a in said)
    assert any("though it has a term in exposure" in a for a in said)
    rows = [("PIT", "score 1/5: 1 to 2", 0.2, 1e-9, "fail")]
    table = pd.DataFrame(rows, columns=table.columns)
    assert any("soc.GammaMixture()" in a for a in advise(table, fit, outcome, 100, []))


def test_advice_on_groups_that_a_fit_pools():
    from soc_pymc.checks.findings import advise

    rows = [("PIT", "g = a", 0.2, 1e-9, "fail")]
    table = pd.DataFrame(rows, columns=["check", "slice", "statistic", "p_value", "verdict"])
    fit = make_fit()
    fit.data.attrs["roles"] = json.dumps(ROLES | {"group": "g"})
    said = list(advise(table, fit, posterior_of(fit).outcome, 100, ["g"]))
    assert any("which it pools" in a and "soc.Normal(groups=True)" in a for a in said)


# --- cells ---------------------------------------------------------------------------------------


def test_pit_of_cells_is_that_of_the_items(case):
    """ECDFs within .005: cells an eighth of the noise sd wide blur them less than chance does."""
    fit, frame, statistics = case
    found = cell_pit(fit, make_cells(fit, statistics), np.random.default_rng(0), progress=False)
    _, averaged, n, test = found["all items"]
    _, upto = predictive.predictive_cdf(posterior_of(fit), columns_of(frame), progress=False)
    assert n == len(frame)
    assert np.abs(averaged - predictive.pit_ecdf(upto)).max() < 0.005
    assert test.p_value > 1e-3
    assert sum(name.startswith("noise sd ") for name in found) == 5
    bad = wrong(fit, mean=0.2)
    cells = make_cells(bad, statistics)
    bad_pit = cell_pit(bad, cells, np.random.default_rng(0), progress=False)
    assert bad_pit["all items"][3].p_value < 1e-6


@pytest.mark.slow
def test_leave_one_out_of_cells_is_that_of_the_items(case):
    """At the cells' means a density is at most 1/1536 nat too large; scores of 80 bins blur too."""
    fit, frame, statistics = case
    found = loo_cells(fit, make_cells(fit, statistics), progress=False)
    each = posterior_of(fit).log_density(columns_of(frame))
    direct = np.log(len(each)) - logsumexp(-each, axis=0)
    assert found.elpd == pytest.approx(direct.sum(), abs=0.002 * len(frame))
    whole = logsumexp(each, axis=0) - np.log(len(each))
    assert found.p_loo == pytest.approx((whole - direct).sum(), abs=0.3)
    assert found.standard_error == pytest.approx(direct.std() * np.sqrt(len(frame)), rel=0.02)


def test_density_of_a_fold(case):
    """From cells of noise, at the mean curves: within a thousandth of a nat an item."""
    fit, frame, statistics = case
    mean, log_variance = (c.mean(axis=0) for c in curve_draws(fit, frame["t"]))
    sd = np.sqrt(np.exp(log_variance) + frame["s"] ** 2)
    direct = sps.norm.logpdf(frame["y"], mean, sd).sum()
    assert _log_density(fit, statistics) == pytest.approx(direct, abs=1e-3 * len(frame))


# --- pictures ------------------------------------------------------------------------------------


def with_bins(fit, frame):
    by = frame.assign(w=frame["s"] ** 2).groupby(np.floor((frame["t"] + 2) / 4 * BINS))
    bins = xr.Dataset(
        {
            "score": ("bin", by["t"].mean().to_numpy()),
            "n_items": ("bin", by.size().to_numpy()),
            "noise_sd": ("bin", np.sqrt(by["w"].mean().to_numpy())),
        }
    )
    seen = xr.Dataset({"value": ("bin", by["y"].mean().to_numpy())})
    posterior = fit.data["posterior"].to_dataset()
    tree = {"posterior": posterior, "constant_data": bins, "observed_data": seen}
    return replace(fit, data=xr.DataTree.from_dict(tree))


def test_pictures_of_values(case):
    fit, frame, _ = case
    whole = with_bins(fit, frame)
    axes = soc.plots.plot_curves(whole)
    axes[0].figure.canvas.draw()
    assert axes[0].get_xscale() == axes[0].get_yscale() == axes[1].get_yscale() == "linear"
    assert axes[0].get_xlim()[0] < 0
    assert "unit of the values" in axes[0].get_ylabel()
    assert axes[1].get_ylabel() == "sd(theta | score)"
    assert "8,000 items" in axes[0].get_title(loc="left")
    middle = soc.bands(soc.calibration_curves(whole)).sel(bound="median")
    np.testing.assert_allclose(axes[0].lines[0].get_ydata(), middle["mean"])
    np.testing.assert_allclose(axes[1].lines[0].get_ydata(), middle["variance"] ** 0.5, rtol=1e-6)
    ax = soc.plots.plot_prior_ribbon(whole, probs=(0.1, 0.5, 0.9))
    ax.figure.canvas.draw()
    score = ax.lines[0].get_xdata()
    mean, log_variance = (c.mean(axis=0) for c in curve_draws(fit, score))
    exact = sps.norm(mean, np.exp(0.5 * log_variance)).ppf(0.1)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), exact, rtol=1e-6, atol=1e-6)
    plt.close("all")


def test_binned_values_add_up(case):
    fit, frame, _ = case
    whole = with_bins(fit, frame)
    score, value, error = merged_outcomes(whole)
    assert len(score) == 40
    one = merged_outcomes(whole, points=1)
    assert one[1][0] == pytest.approx(frame["y"].mean())
    assert one[2][0] == pytest.approx(np.sqrt((frame["s"] ** 2).sum()) / len(frame))
    assert np.isfinite(value).all()
    assert (error > 0).all()


def test_shrinkage_of_values(case):
    from soc_pymc.plots import plot_shrinkage

    fit, frame, _ = case
    scored = soc.item_posteriors(fit, values_of(frame), progress=False)
    ax = plot_shrinkage(scored, score="t", value="y", noise_sd="s")
    ax.figure.canvas.draw()
    assert ax.get_xscale() == "linear"
    points = ax.collections[0].get_offsets()
    assert len(points) == 2000
    known = set(zip(scored["y"].round(9), scored["theta_mean"].round(9), strict=True))
    assert {(round(float(a), 9), round(float(b), 9)) for a, b in points} <= known
    for wrong_roles in (
        {"count": "y"},
        {"value": "y"},
        {"value": "y", "noise_sd": "s", "count": "y"},
    ):
        with pytest.raises(soc.ItemsError, match="value= and noise_sd="):
            plot_shrinkage(scored, score="t", **wrong_roles)
    plt.close("all")
