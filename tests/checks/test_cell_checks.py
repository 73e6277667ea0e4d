"""PIT, leave-one-out and cross-validation from statistics against those from the items."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy.special import logsumexp

import soc_pymc as soc
from soc_pymc._lib.errors import FitError, StatisticsError
from soc_pymc.checks.cells import make_cells
from soc_pymc.checks.leave_one_out import loo_cells
from soc_pymc.families import poisson_gamma
from soc_pymc.posterior.curves import curve_draws


def items_of(frame):
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure")


@pytest.fixture(scope="module")
def frame():
    return soc.simulation.s1(30_000, seed=4)


@pytest.fixture(scope="module")
def stats(frame):
    return soc.summarize(items_of(frame), bins=200, joint=True, progress=False)


@pytest.fixture(scope="module")
def fit(stats):
    return soc.fit(stats, progress=False)


@pytest.mark.slow
def test_pit_of_cells_is_that_of_the_items(fit, stats, frame):
    """Averaged ECDFs within .003: cells of 200 bins blur them by far less than chance does."""
    of_cells, of_items = (
        soc.check(fit, x, progress=False).data["pit"] for x in (stats, items_of(frame))
    )
    for name in ("all items", "exposure >= 50"):
        gap = of_cells["averaged"].sel(slice=name) - of_items["averaged"].sel(slice=name)
        assert np.abs(gap.to_numpy()).max() < 0.003
    n = of_cells["n_items"].to_numpy()
    assert n[0] == len(frame)
    assert n[1] == pytest.approx((frame["exposure"] >= 50).sum(), abs=0)
    for of in ("score", "exposure"):
        at = [
            i
            for i, name in enumerate(of_cells["slice"].to_numpy())
            if name.startswith(f"{of} ") and "/" in name
        ]
        assert n[at].sum() == len(frame)


@pytest.mark.slow
def test_checks_of_cells_see_what_is_wrong(fit, stats):
    result = soc.check(fit, stats, progress=False)
    assert "fail" not in set(result.table["verdict"])
    posterior = fit.data["posterior"].to_dataset()
    tree = fit.data.copy()
    tree["posterior"] = xr.DataTree(posterior.assign(log_cv2=posterior["log_cv2"] + 1.0))
    wrong = soc.check(replace(fit, data=tree), stats, progress=False).table
    at = (wrong["check"] == "PIT") & wrong["slice"].isin(["all items", "exposure >= 50"])
    assert (wrong.loc[at, "verdict"] == "fail").all()


@pytest.mark.slow
def test_leave_one_out_of_cells_is_that_of_the_items(fit, stats, frame):
    """Importance-weighted densities item by item: what leaving out costs within half a nat, the
    sum within 5e-4 of itself, as 200 scores stand for 30,000."""
    found = loo_cells(fit, make_cells(fit, stats), progress=False)
    left_out, whole = 0.0, 0.0
    for part in np.array_split(np.arange(len(frame)), 12):
        t, y, n = (frame[c].to_numpy(dtype=float)[part] for c in ("score", "count", "exposure"))
        each = poisson_gamma.log_pmf(y, n, *curve_draws(fit, t))
        left_out -= (logsumexp(-each, axis=0) - np.log(len(each))).sum()
        whole += (logsumexp(each, axis=0) - np.log(len(each))).sum()
    assert found.elpd == pytest.approx(left_out, rel=5e-4)
    assert found.p_loo == pytest.approx(whole - left_out, abs=0.5)
    assert found.pareto_k < 0.7
    assert 0 < found.standard_error < 0.01 * abs(left_out)


@pytest.mark.slow
def test_cells_of_merged_bins_do_too(fit, stats, frame):
    few = soc.summarize(items_of(frame), edges=stats.edges, joint=9000, progress=False)
    assert few.coarse > 1
    assert "fail" not in set(soc.check(fit, few, progress=False).table["verdict"])


@pytest.mark.slow
def test_folds_and_groups_may_differ_from_the_fits(fit, frame):
    some = frame[:2000].assign(number=np.arange(2000))
    items = soc.PoissonItems(some, score="score", count="count", exposure="exposure", id="number")
    stats = soc.summarize(items, bins=30, joint=True, progress=False)
    assert "fail" not in set(soc.check(fit, stats, progress=False).table["verdict"])
    assert soc.fit(stats, start=fit, progress=False).status.converged


def test_what_statistics_cannot_say_is_refused(small_fit, stats, frame):
    few = soc.summarize(items_of(frame), bins=20, joint=False, progress=False)
    with pytest.raises(StatisticsError, match="joint=True"):
        soc.check(small_fit, few, progress=False)
    with pytest.raises(FitError, match="by= slices items"):
        soc.check(small_fit, stats, by="country", progress=False)
    other = stats.data.assign_attrs(roles='{"score": "a", "count": "b", "exposure": "c"}')
    with pytest.raises(StatisticsError, match="with the roles"):
        soc.check(small_fit, soc.Statistics(other), progress=False)


@pytest.mark.slow
def test_cross_validation_is_that_of_the_items(frame):
    """Fold by fold: fit to the others' items, density of its own items at the mean curves."""
    small = frame[:12_000].assign(half=np.arange(12_000) % 2)
    items = soc.PoissonItems(small, score="score", count="count", exposure="exposure", fold="half")
    stats = soc.summarize(items, bins=200, progress=False)
    table = soc.evaluate.cross_validate(stats, progress=False)
    assert list(table["items"]) == [6000, 6000]
    for fold in (0, 1):
        train, test = small[small["half"] != fold], small[small["half"] == fold]
        fit = soc.fit(
            soc.summarize(items_of(train), edges=stats.edges, progress=False), progress=False
        )
        t, y, n = (test[c].to_numpy(dtype=float) for c in ("score", "count", "exposure"))
        m, c = (values.mean(axis=0) for values in curve_draws(fit, t))
        direct = poisson_gamma.log_pmf(y, n, m, c).sum()
        assert table.loc[fold, "elpd"] == pytest.approx(direct, abs=5.0)
    better = table["elpd"].sum()
    stiff = soc.Gamma(mean=soc.Spline(level=(-1.0, 0.001)), variance=soc.Spline())
    assert better > soc.evaluate.cross_validate(stats, stiff, progress=False)["elpd"].sum() + 10
    with pytest.raises(StatisticsError, match="folds=10"):
        soc.evaluate.cross_validate(soc.summarize(items_of(small), progress=False))
