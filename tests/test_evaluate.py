"""Evaluation on held-out exposure."""

import numpy as np
import pytest
from scipy import stats as sps

import soc_pymc as soc
from soc_pymc.evaluate import held_out, poisson_log_likelihood, split_items, thin


def test_trials_are_dealt_out():
    """Whole exposures: exposure binomial, count hypergeometric; parts are consistent."""
    exposure, count = np.full(20_000, 30), np.full(20_000, 6)
    held_count, held_exposure = thin(count, exposure, 0.25, seed=1)
    assert ((held_count <= held_exposure) & (count - held_count <= exposure - held_exposure)).all()
    # 4 standard errors of the mean of a binomial
    assert abs(held_exposure.mean() - 7.5) < 4 * np.sqrt(30 * 0.25 * 0.75 / 20_000)
    assert abs(held_count.mean() - 1.5) < 4 * np.sqrt(6 * 0.25 * 0.75 / 20_000)


def test_real_exposures_are_divided_in_proportion():
    rng = np.random.default_rng(2)
    exposure = rng.uniform(0, 50, 20_000)
    count = rng.poisson(0.3 * exposure)
    held_count, held_exposure = thin(count, exposure, 0.1, seed=2)
    np.testing.assert_allclose(held_exposure, 0.1 * exposure)
    z = (held_count - 0.1 * 0.3 * exposure) / np.sqrt(0.1 * 0.3 * exposure)
    assert abs(z.mean()) < 0.03
    assert abs(z.var() - 1) < 0.05
    # the parts of a Poisson count are independent
    assert (
        abs(np.corrcoef(held_count - 0.03 * exposure, count - held_count - 0.27 * exposure)[0, 1])
        < 0.03
    )


def test_parts_add_up(small_items):
    """Training and test parts are disjoint: together they are the items, row by row."""
    split = split_items(small_items, 0.3, seed=1)
    for name in ("count", "exposure"):
        both = split.train.source[name] + split.test.source[name]
        np.testing.assert_array_equal(both, small_items.source[name])
    np.testing.assert_array_equal(split.test.source["score"], small_items.source["score"])


def test_log_likelihood():
    mu = np.array([0.0, 0.5, 3.0])
    np.testing.assert_allclose(
        poisson_log_likelihood([0, 2, 1], mu), sps.poisson.logpmf([0, 2, 1], mu)
    )


def test_posterior_beats_curve_beats_score():
    """On S1 the score is biased and theta varies given it: both gains are many standard errors."""
    items = soc.PoissonItems(
        soc.simulation.s1(20_000, seed=4), score="score", count="count", exposure="exposure"
    )
    split = split_items(items, 0.2, seed=1)
    fit = soc.fit(soc.summarize(split.train, progress=False), progress=False)
    table = held_out(fit, split)
    assert list(table.index) == ["score", "E(theta|t)", "E(theta|t,y)"]
    assert table["gain"].is_monotonic_increasing
    step = table["gain"].diff().iloc[1:]
    assert (step > 2 * table["standard_error"].iloc[1:]).all()


def test_fraction_and_rows_are_checked(small_items, small_fit):
    with pytest.raises(soc.FitError, match="fraction"):
        thin([1], [2], 1.0)
    split = split_items(small_items, seed=0)
    fewer = soc.PoissonItems(split.test.source.iloc[1:], **split.test.roles)
    with pytest.raises(soc.ItemsError, match="same rows"):
        held_out(small_fit, soc.evaluate.Split(split.train, fewer))
