"""Quantities and checks of fits with groups or a term in exposure."""

import warnings

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc

QUIET = {"progress": False}
COLUMNS = {"score": "score", "count": "count", "exposure": "exposure"}


def _summarized(frame, **roles):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ItemsWarning)  # few bins
        return soc.summarize(
            soc.PoissonItems(frame, **COLUMNS, **roles), bins=15, joint=True, **QUIET
        )


@pytest.fixture(scope="module")
def by_size():
    """Items whose rate halves from small exposures to large ones, and a fit that knows."""
    rng = np.random.default_rng(3)
    n = 6000
    frame = pd.DataFrame({"score": rng.uniform(0.02, 0.2, n)})
    large = rng.random(n) < 0.5
    frame["exposure"] = np.where(large, 2000.0, 100.0)
    theta = frame["score"] * np.where(large, 2 / 3, 4 / 3) * rng.gamma(20.0, 1 / 20, n)
    frame["count"] = rng.poisson(theta * frame["exposure"])
    frame["theta"] = theta
    stats = _summarized(frame)
    prior = soc.Gamma(exposure=soc.Spline())
    return frame, stats, soc.fit(stats, prior, soc.VI(draws=40), **QUIET)


def _between_and_within(frame, weight):
    """Explained and unexplained variance of theta by score, by regression on fine bins."""
    cell = np.digitize(frame["score"], np.linspace(0.02, 0.2, 60))
    w = np.ones(len(frame)) if weight == "items" else frame["exposure"].to_numpy()
    theta = frame["theta"].to_numpy()
    cell = np.unique(cell, return_inverse=True)[1]
    mean = (np.bincount(cell, w * theta) / np.bincount(cell, w))[cell]
    within = np.average((theta - mean) ** 2, weights=w)
    between = np.average((mean - np.average(theta, weights=w)) ** 2, weights=w)
    return between, within


@pytest.mark.parametrize("weight", ["items", "exposure"])
@pytest.mark.slow
def test_what_exposure_explains_at_equal_scores_is_unexplained(by_size, weight):
    """Of 6,000 rates the variances are known to some 3%; the draws' mean is asked to 10%."""
    frame, stats, fit = by_size
    between, within = _between_and_within(frame, weight)
    # the fit itself keeps the sizes of a bin together: alone, each would seem to have one size
    for given in (None, stats):
        found = soc.quantities.variance_parts(fit, given, weight=weight).mean()
        assert float(found["explained"]) == pytest.approx(between, rel=0.1)
        assert float(found["unexplained"]) == pytest.approx(within, rel=0.1)


def test_outcomes_add_to_score_and_exposure_both(by_size):
    frame, stats, fit = by_size
    found = soc.quantities.variance_reduction(fit, stats, weight="items", bins=3, **QUIET)
    ratio = float(found["ratio"].mean())
    # the oracle's: shape 20 and rate 20 / E(theta | t, N), which outcomes of exposure N add to
    large = frame["exposure"] > 1000
    mean = frame["score"] * np.where(large, 2 / 3, 4 / 3)
    before = mean**2 / 20
    after = (20 + frame["count"]) / (20 / mean + frame["exposure"]) ** 2
    assert ratio == pytest.approx(after.sum() / before.sum(), rel=0.1)
    assert found["ratio_by_bin"].sizes["bin"] == 3


@pytest.fixture(scope="module")
def grouped(grouped_items, grouped_fit):
    frame = grouped_items.source
    return frame, _summarized(frame, group="kind"), grouped_fit


@pytest.mark.slow
def test_checks_of_statistics_with_groups_look_at_each(grouped):
    _, stats, fit = grouped
    table = soc.check(fit, stats, **QUIET).table
    slices = set(table.loc[table["check"] == "PIT", "slice"])
    assert {"kind = a", "kind = b"} <= slices
    assert (table["verdict"] != "fail").all()


@pytest.mark.slow
def test_quantities_of_groups_want_statistics_with_groups(grouped):
    frame, stats, fit = grouped
    with pytest.raises(soc.FitError, match="what scores each group has"):
        soc.quantities.r_squared(fit)
    with pytest.raises(soc.StatisticsError, match="group"):
        soc.quantities.r_squared(fit, _summarized(frame))
    explained = float(soc.quantities.r_squared(fit, stats).mean())
    pooled = soc.fit(stats, soc.Gamma(groups=False), soc.FiveSteps(), **QUIET)
    # groups are alike here, so that knowing them explains next to nothing more
    assert explained == pytest.approx(float(soc.quantities.r_squared(pooled).mean()), abs=0.1)


def test_scores_of_grouped_fits_are_compared(grouped):
    frame, _, fit = grouped
    items = soc.PoissonItems(frame, **COLUMNS, group="kind")
    pairs = {"one": (fit, items), "same": (fit, items)}
    found = soc.quantities.compare_scores(pairs, sample=500, **QUIET)
    assert float(abs(found["r_squared"]).max()) < 1e-9  # draws of one posterior are paired in order
    assert float(found["correlation"][0]) == pytest.approx(1.0)


@pytest.mark.slow
def test_scores_of_counts_and_of_values_are_not_compared(grouped):
    frame, _, fit = grouped
    values = frame.assign(value=frame["theta"], noise_sd=0.1)
    items = soc.NormalItems(values, score="score", value="value", noise_sd="noise_sd")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stats = soc.summarize(items, bins=8, on_leakage="ignore", **QUIET)
        other = soc.fit(stats, method=soc.VI(draws=5), **QUIET)
    own = soc.PoissonItems(frame, **COLUMNS, group="kind")
    with pytest.raises(soc.FitError, match="of counts and of values"):
        soc.quantities.compare_scores({"a": (fit, own), "b": (other, items)}, **QUIET)


@pytest.mark.slow
def test_bins_compared_by_bayes_too():
    frame = soc.simulation.s1(2000, seed=0)
    items = soc.PoissonItems(frame, **COLUMNS)
    table = soc.evaluate.compare_bins(items, (5, 10), method=soc.VI(draws=40), **QUIET)
    assert list(table.index) == [5, 10]
    for curve in ("mean", "variance"):
        assert table.loc[10, f"bayes_{curve}_sds"] == 0.0  # the finest is what others are held to
        assert 0.0 < table.loc[5, f"bayes_{curve}_sds"] < 5.0
