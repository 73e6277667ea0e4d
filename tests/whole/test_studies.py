"""The studies: their own arithmetic, small runs whose limits are those of the full ones, real data.

The full runs are `python -m tests.studies NAME`; README and docs/dev have their results.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import soc_pymc as soc
from tests.oracles import s1_curves
from tests.studies import common, coverage, labels, oracle, published, sbc


def test_coverage_and_averages_by_hand():
    """The 90% interval of the draws 0 to 100 is (5, 95); se of 1, 2, 3 is 1 / sqrt(3)."""
    draws = np.tile(np.arange(101.0)[:, None], 3)
    assert list(common.covered(draws, [4.0, 50.0, 96.0])) == [False, True, False]
    table = common.averages([{"a": 1.0}, {"a": 2.0}, {"a": 3.0}])
    assert list(table.loc["a"]) == pytest.approx([2.0, 1 / np.sqrt(3), 1.0, 3.0])
    row = common.against(2.0 * draws, draws)
    assert list(row.values()) == pytest.approx([2.0, 2.0, 50.0 / draws.std()])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["five", "gamma"])
def test_lognormal_rates(method):
    """On three seeds of 20,000 items means were within 1.5% and variances within 17% in each of
    four bins, regret at most 1.9% in a bin and 1.3 to 1.8% in all, the ratio .99 to 1.014."""
    rng = np.random.default_rng(5)
    keywords = pd.DataFrame({"score": rng.gamma(1.0, 0.03, 20_000) + 1e-4})
    keywords["exposure"] = np.ceil(rng.lognormal(4.5, 1.3, 20_000))
    items = common.counts(oracle.lognormal_items(keywords, 20_000, 0.5, 0.5))
    by_bin, overall = oracle.judged(items, "lognormal", method, bins=4)
    assert overall["converged"].all()
    assert (np.abs(by_bin["mean"] / by_bin["true_mean"] - 1) < 0.03).all()
    assert (np.abs(by_bin["variance"] / by_bin["true_variance"] - 1) < 0.25).all()
    assert (by_bin["regret"] < 0.03).all()
    assert (by_bin["mse_posterior"] < by_bin["mse_mean"]).all()
    assert 0.005 < overall["regret"].iloc[0] < 0.025
    assert 0.97 < overall["expected_ratio"].iloc[0] < 1.04


@pytest.mark.slow
def test_laplace_effects_by_five_steps():
    """In bins of 1,000 items five steps are 1.4 to 1.7% from the oracle, and their posteriors a
    little too narrow: on three seeds squared errors were 1.04 to 1.08 variances."""
    items = common.values(oracle.laplace_items(20_000))
    by_bin, overall = oracle.judged(items, "normal", "five", bins=4)
    assert (by_bin["regret"] < 0.1).all()
    assert 0 < overall["regret"].iloc[0] < 0.03
    assert 1.0 < overall["expected_ratio"].iloc[0] < 1.2
    assert (np.abs(by_bin["mean"] - by_bin["true_mean"]) < 0.1).all()
    assert (np.abs(by_bin["variance"] / 2 - 1) < 0.25).all()


# limits of coverage of items, of fifths of t, and of the error over the oracle's
LIMITS = {
    coverage.of_s1: ((0.885, 0.915), (0.87, 0.93), 1.015),
    coverage.of_successes: ((0.89, 0.91), (0.88, 0.92), 1.01),
}


@pytest.mark.slow
@pytest.mark.parametrize("study", LIMITS)
def test_intervals_and_bands_cover(study):
    """Three seeds. Limits are the study's widened by about 3 standard errors of three seeds: 0.003
    for items of S1 (0.006 a fifth), 0.1 for bands (42 correlated indicators); of trials 0.0017,
    0.006 and 0.05.
    """
    averages = common.averages([study(seed) for seed in range(3)])["average"]
    items, fifth, error = LIMITS[study]
    assert items[0] <= averages["items, overall"] <= items[1]
    for j in range(5):
        assert fifth[0] <= averages[f"items, fifth {j + 1} of t"] <= fifth[1]
    assert averages["RMSE over the oracle's"] <= error
    assert 0.76 <= averages["bands, both curves"] <= 1.0
    assert averages["converged"] == 1


@pytest.mark.slow
def test_wide_bins_tell_the_truth_about_the_ends():
    """20 bins of 10,000 items: without the spread of scores within them, log cv2 at the 98% point
    of t is 7.7 posterior sd too high. Ten z-values, of which one may reach 3.5."""
    frame = soc.simulation.s1(200_000, seed=4)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    fit = soc.fit(soc.summarize(items, bins=20, progress=False), progress=False)
    score = frame["score"].quantile([0.02, 0.25, 0.5, 0.75, 0.98]).to_numpy()
    for draws, truth in zip(fit.curves.at(score), s1_curves(score), strict=True):
        assert np.abs((draws.mean(axis=0) - truth) / draws.std(axis=0)).max() < 3.5


@pytest.mark.slow
def test_curves_of_labels():
    """Three sets of 2,000 labels: less log loss than isotonic and spline-logistic regression, and
    pointwise bands that hold their share (a standard error of about 0.1)."""
    found = labels.row([labels.one_seed("overconfident", seed, 2000) for seed in range(3)])
    for name in ("isotonic", "spline"):
        assert found[f"gain over {name}"] > -found[f"its se, {name}"]
    assert found["pointwise bands"] > 0.7
    assert found["converged"] == 1


@pytest.mark.slow
def test_batting_averages_beat_published_rules(real_data):
    """For nonpitchers the error is 0.317 of the naive one; 0.359 by the best published rule."""
    table = published.players(real_data)
    some = table[table["pitcher"] == 0].reset_index(drop=True)
    found = published.normalised_error(some, published.ours(some, "binomial"))
    assert found == pytest.approx(0.317, abs=0.01)
    assert found < min(published.PUBLISHED["nonpitchers"].values())


CHANGES = {
    "none": lambda draws: draws,
    "narrow": lambda draws: draws.mean() + 0.5 * (draws - draws.mean()),
    "shifted": lambda draws: draws + 0.75 * draws.std(),
}


@pytest.mark.slow
def test_ranks_are_uniform_and_faults_are_found():
    """13 quantities by 14 fits: shares inside 90% have standard errors near 0.03 overall and 0.08
    for one quantity; the tests of uniformity are corrected for their number."""
    ranks, _ = sbc.ranks(14, 1500, seed=7, faults=CHANGES)
    right, narrow = (sbc.uniformity(ranks[fault]) for fault in ("none", "narrow"))
    assert len(right) == 13
    assert right["p corrected"].min() > 0.01
    assert 0.81 <= right["inside central 90%"].mean() <= 0.99
    assert right["inside central 90%"].min() >= 0.64
    curves = [name for name in narrow.index if " at " in name]
    assert narrow.loc[curves, "inside central 90%"].mean() < 0.75
    assert sbc.symmetry(ranks["none"]).loc["all", "p of symmetry"] > 0.05
    assert sbc.symmetry(ranks["shifted"]).loc["all", "p of symmetry"] < 0.05


@pytest.mark.slow
def test_what_the_symmetry_of_ranks_sees():
    """400 normal approximations to N(0, 1). Wrong widths are symmetric: the spread shows them.

    A shift of 0.3 sd moves the distance to 0.24; without one 99 of 100 are below 0.14. The spread
    of draws with a share w of the width is 4 arctan(1 / w) / pi: 1.14 for 0.8.
    """
    z = np.random.default_rng(0).normal(size=400)
    for width in (0.8, 1.0, 1.25):
        row = sbc.symmetry(pd.DataFrame({"z": norm.cdf(z / width)})).loc["z"]
        assert row["p of symmetry"] > 0.01
        assert abs(row["spread"] - 4 * np.arctan(1 / width) / np.pi) < 3 * row["its error"]
    assert sbc.symmetry(pd.DataFrame({"z": norm.cdf(z - 0.3)})).loc["z", "p of symmetry"] < 0.01


def test_players_of_brown_2008(real_data):
    """Counts as published; the error of the overall mean to the published digits (1e-3)."""
    table = published.players(real_data)
    assert (len(table), table["value2"].notna().sum()) == (567, 499)
    fielders = table[table["pitcher"] == 0].reset_index(drop=True)
    for name, players in (("all players", table), ("nonpitchers", fielders)):
        error = published.plain_rules(players)["overall mean"]
        assert error == pytest.approx(published.PUBLISHED[name]["overall mean"], abs=1e-3)


def test_normalised_error_by_hand():
    """First player: error .04 less noise .01; second is not validated; naive: .09 less .01."""
    table = pd.DataFrame({"value": [0.8, 3.0], "value2": [0.5, np.nan], "noise_sd2": [0.1, np.nan]})
    assert published.normalised_error(table, np.array([0.7, 9.0])) == pytest.approx(0.03 / 0.08)


def test_zones_of_chetty(real_data):
    table, dropped = published.zones(real_data)
    assert (len(table), dropped) == (595, 146)
    unshrunk = 1.6448536 * table["noise_sd"].mean()
    assert unshrunk == pytest.approx(published.PUBLISHED_LENGTHS["unshrunk"], abs=5e-5)
