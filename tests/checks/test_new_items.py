"""Checks of items that had no part in the fit: all of them share the error of its curves."""

import numpy as np
import pytest
from scipy import stats

import soc_pymc as soc
from soc_pymc.checks.observations import Observations, thin
from soc_pymc.checks.pit import (
    cdf_ends,
    distance_p_value,
    pit_tests,
    replicated_distances,
    slice_pits,
)
from soc_pymc.posterior.item_columns import frame_columns
from soc_pymc.posterior.predictive import posterior_of
from tests.examples import QUIET
from tests.studies.common import counts, gamma_counts
from tests.thinning import thinned

ITEMS = 50_000


@pytest.mark.parametrize("name", thinned(["gamma", "normal"], ["normal"]))
def test_items_of_one_draw_of_the_curves_pass(name, example):
    """Of 20 draws as the truth of 50,000 items, at most 4 are rejected at 5% (0.3% by chance).

    The test that takes items as independent rejects more than that.
    """
    case, rng = example(name), np.random.default_rng(0)
    fit, truth = case.fit, posterior_of(thin(case.fit, 20))
    rows = case.frame.iloc[rng.integers(len(case.frame), size=ITEMS)]
    columns = dict(frame_columns(fit, case.case.items(rows)))
    outcomes = truth.simulate(columns, rng)
    ones, p_values = np.ones(ITEMS, dtype=int), []
    for own in outcomes:
        items = Observations(columns | {truth.outcome.observed: own}, ones, {}, {})
        ends = cdf_ends(posterior_of(fit), items.columns)
        masks = {"": ones > 0}
        pits, _ = pit_tests(fit, items, masks, ends, rng)
        independent = slice_pits(ends, ones, masks, rng)
        p_values.append([float(test["p_value"][0]) for test in (pits, independent)])
    allowed, independent = (np.array(p_values) < 0.05).sum(axis=0)
    assert allowed <= 4 < independent


def test_without_error_of_the_curves_the_test_is_kolmogorov_and_smirnovs():
    """P-values of 200 and of 20 items agree to 0.01, four standard errors of 2,000 replicates."""
    rng = np.random.default_rng(1)
    for n in (20, 200):
        strayed = replicated_distances(np.zeros((1, 1, 200)), np.array([[n]]), rng)[:, 0]
        for p_value in (0.5, 0.2, 0.05, 0.01):
            distance = stats.kstwo.isf(p_value, n)
            tolerance = 0.005 + 4 * np.sqrt(p_value / 2000)
            assert distance_p_value(distance, n, strayed) == pytest.approx(p_value, abs=tolerance)
        distance = stats.kstwo.isf(1e-4, n)
        assert 1e-5 < distance_p_value(distance, n, strayed) < 1e-3


def simulated(n, seed, factor=1.0):
    """Returns counts whose theta is Gamma given the score, times a factor."""
    rng = np.random.default_rng(seed)
    t, exposure = rng.lognormal(-2.5, 0.8, n), rng.lognormal(4.0, 1.0, n)
    cv2 = 0.3 * (t / 0.08) ** -0.3
    return counts(gamma_counts(rng, t, exposure, 0.9 * factor * t, cv2))


@pytest.fixture(scope="module")
def fits():
    """Fits to six sets of 2,000 items of one truth."""
    sets = (soc.summarize(simulated(2000, 1000 + seed), bins=50, **QUIET) for seed in range(6))
    return [soc.fit(statistics, soc.Gamma(), soc.VI(draws=300), **QUIET) for statistics in sets]


def checked(fit, seed, factor=1.0):
    """Returns the check of 20,000 new items."""
    return soc.check(fit, simulated(20_000, seed, factor), subset=20, **QUIET).table


@pytest.mark.slow
def test_new_items_of_the_same_truth_pass(fits):
    """Of six fits at most 15% of the slices are rejected at 5%, and one table fails.

    Slices of one fit share its error: the share's standard error is about 4%. At its nominal
    rate a table fails in 1%.
    """
    tables = [checked(fit, 5000 + seed) for seed, fit in enumerate(fits)]
    assert np.mean([(table["p"].dropna() < 0.05).mean() for table in tables]) < 0.15
    assert sum((table["verdict"] == "fail").any() for table in tables) <= 1


@pytest.mark.slow
def test_new_items_with_a_higher_mean_fail(fits):
    """A shift of 10% is found in the new items of each of three fits."""
    for seed, fit in enumerate(fits[:3]):
        assert "fail" in set(checked(fit, seed, factor=1.1)["verdict"])
