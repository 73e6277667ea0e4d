"""Comparison of fits by leave-one-out: ArviZ's table on items, and the same numbers from cells."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy.special import logsumexp

import soc_pymc as soc
from soc_pymc._lib import errors
from soc_pymc.checks import leave_one_out
from soc_pymc.families import poisson_gamma
from soc_pymc.posterior import item_columns
from soc_pymc.posterior.curves import curve_draws
from soc_pymc.posterior.predictive import posterior_of
from tests.posterior.test_predictive_normal import ROLES, make_fit, simulate, values_of

ITEMS = 6000


def items_of(frame):
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure")


@pytest.fixture(scope="module")
def frame():
    return soc.simulation.s1(ITEMS, seed=4)


@pytest.fixture(scope="module")
def stats(frame):
    return soc.summarize(items_of(frame), bins=150, joint=True, progress=False)


@pytest.fixture(scope="module")
def fits(stats):
    """The model, and one whose cv is held far from the data's."""
    narrow = soc.Gamma(variance=soc.Spline(knots=1, level=(-4.0, 0.01)))
    return {
        "good": soc.fit(stats, progress=False),
        "narrow": soc.fit(stats, narrow, progress=False),
    }


@pytest.fixture(scope="module")
def exact(fits, frame):
    """Leave-one-out of every item by plain importance weights."""
    t, y, n = (frame[c].to_numpy(dtype=float) for c in ("score", "count", "exposure"))
    found = {}
    for name, fit in fits.items():
        each = poisson_gamma.log_pmf(y, n, *curve_draws(fit, t))
        found[name] = np.log(len(each)) - logsumexp(-each, axis=0)
    return found


@pytest.mark.slow
def test_statistics_give_arvizs_table_of_all_items(fits, stats, exact):
    """Against plain weights item by item: cells of 150 bins blur a sum by 1e-3 of itself, and the
    difference, its error and the effective number of parameters by a few percent."""
    table = soc.compare(fits, stats, progress=False)
    assert list(table.index) == ["good", "narrow"]
    assert {"elpd", "se", "elpd_diff", "dse", "p", "weight", "diag_elpd"} <= set(table.columns)
    for name, each in exact.items():
        assert table.loc[name, "elpd"] == pytest.approx(each.sum(), rel=1e-3)
        assert table.loc[name, "se"] == pytest.approx(each.std() * np.sqrt(ITEMS), rel=0.02)
    away = exact["narrow"] - exact["good"]
    row = table.loc["narrow"]
    assert row["elpd_diff"] == pytest.approx(away.sum(), rel=0.05)
    assert row["dse"] == pytest.approx(away.std() * np.sqrt(ITEMS), rel=0.05)
    assert row["elpd_diff"] < -5 * row["dse"]
    assert table.loc["good", "weight"] > 0.9
    assert 2 < table.loc["good", "p"] < 30


@pytest.mark.slow
def test_many_items_are_compared_by_shares(fits, stats, monkeypatch):
    """Weights from a share of every cell, half of 6,000 items; sums from all, as without shares."""
    whole = soc.compare(fits, stats, progress=False)
    monkeypatch.setattr(leave_one_out, "_MOST_POINTS", 3000)
    shares = soc.compare(fits, stats, progress=False)
    for column in ("elpd", "se", "elpd_diff", "dse", "p", "p_worse"):
        np.testing.assert_allclose(
            shares[column].astype(float), whole[column].astype(float), rtol=1e-9, atol=1e-12
        )
    np.testing.assert_allclose(shares["weight"], whole["weight"], atol=0.15)


@pytest.mark.slow
def test_items_and_results_of_checks_give_the_same(fits, frame, exact):
    items = items_of(frame)
    table = soc.compare(fits, items, subset=ITEMS, progress=False)
    for name, each in exact.items():  # Pareto smoothing moves a sum by next to nothing
        assert table.loc[name, "elpd"] == pytest.approx(each.sum(), abs=0.5)
    few = soc.compare(fits, items, subset=500, seed=3, progress=False)
    results = {n: soc.check(f, items, subset=500, seed=3, progress=False) for n, f in fits.items()}
    again = soc.compare(results)
    assert list(few.index) == list(again.index)
    assert np.isfinite(few["elpd"]).all()
    other = soc.check(fits["good"], items, subset=500, seed=4, progress=False)
    with pytest.raises(errors.FitError, match="different items, or with different seeds"):
        soc.compare(results | {"good": other})


def test_values(monkeypatch):
    """Normal fits on values, on items: better where the variance is the data's."""

    monkeypatch.setattr(item_columns, "scan", lambda items, progress: None)
    fit = make_fit(sd=0.02)
    posterior = fit.data["posterior"].to_dataset()
    tree = fit.data.copy()
    tree["posterior"] = xr.DataTree(posterior.assign(log_variance=posterior["log_variance"] + 1.5))
    items = values_of(simulate(800, 3, fit))
    fits = {"good": fit, "wide": replace(fit, data=tree)}
    table = soc.compare(fits, items, progress=False)
    assert list(table.index) == ["good", "wide"]
    each = posterior_of(fit).log_density(
        {role: items.source[name].to_numpy(dtype=float) for role, name in ROLES.items()}
    )
    direct = (np.log(len(each)) - logsumexp(-each, axis=0)).sum()
    assert table.loc["good", "elpd"] == pytest.approx(direct, abs=0.5)


@pytest.mark.slow
def test_fits_that_cannot_be_compared(fits, stats, frame):
    good = fits["good"]
    half = soc.summarize(items_of(frame[: ITEMS // 2]), bins=50, joint=True, progress=False)
    other = soc.fit(half, progress=False)
    with pytest.raises(errors.FitError, match="'a' and 'b' are fits of different items"):
        soc.compare({"a": good, "b": other}, stats, progress=False)
    with pytest.raises(errors.FitError, match="the statistics and 'good' are of different items"):
        soc.compare(fits, half, progress=False)
    with pytest.raises(errors.FitError, match="the items and 'good' are of different items"):
        soc.compare(fits, items_of(frame[:100]), progress=False)
    tree = good.data.copy()
    tree.attrs = dict(good.data.attrs, roles=json.dumps({"score": "s", "count": "c"}))
    with pytest.raises(errors.FitError, match="fits of other columns"):
        soc.compare({"a": good, "b": replace(good, data=tree)}, stats, progress=False)
    with pytest.raises(errors.FitError, match="two fits or more"):
        soc.compare({"a": good}, stats)
    with pytest.raises(errors.FitError, match="compared on their items"):
        soc.compare(fits)
    on_cells = soc.check(good, stats, progress=False)
    with pytest.raises(errors.FitError, match="check on statistics"):
        soc.compare({"a": on_cells, "b": on_cells})
    with pytest.raises(errors.FitError, match="not a fit"):
        soc.compare({"a": good, "b": on_cells}, stats)


def test_cross_validation_says_what_it_cannot_do(frame):
    stats = soc.summarize(items_of(frame), bins=20, folds=2, progress=False)
    with pytest.raises(errors.FitError, match=r"joint cells, which have no folds.*soc\.compare"):
        soc.evaluate.cross_validate(stats, soc.Gamma(exposure=soc.Spline()), progress=False)
