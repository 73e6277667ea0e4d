"""Right answers of successes in trials and of labels: small versions of the studies.

The full ones are `tests.studies.binomial`, `labels`, `sbc --kind binomial` and `agreement`; their
results are in docs/dev/simulations.md.
"""

import pytest

import soc_pymc as soc
from tests.studies import agreement, batting, binomial, labels, s1, sbc

pytestmark = pytest.mark.slow


def test_intervals_and_bands_cover():
    """Three seeds. The study's standard deviations over seeds are 0.003 of items, 0.01 of the last
    fifth and 0.08 of bands: limits are at least 3 standard errors of three seeds away."""
    averages = s1.table([binomial.one_seed(seed) for seed in range(3)])["average"]
    assert 0.89 <= averages["items, overall"] <= 0.91
    for j in range(5):
        assert 0.88 <= averages[f"items, fifth {j + 1} of t"] <= 0.92
    assert 0.76 <= averages["bands, both curves"] <= 1.0
    assert averages["RMSE over the oracle's"] <= 1.01
    assert averages["converged"] == 1


def test_counts_in_exposures_do_not():
    """The same items under Poisson noise: in the last fifth, with rates above .8, 34% are inside
    90% intervals."""
    found = binomial.one_seed(0, kind="poisson")
    assert found.quintiles[4] < 0.5
    assert found.error > 1.04 * found.oracle_error


def test_ranks_are_uniform():
    """12 data sets from the prior; the limits of counts in `test_sbc`, at 2.5 standard errors."""
    found = sbc.ranks(12, 5000, seed=7, kind="binomial")
    result = sbc.table(found)
    assert len(result) == 13
    assert result["p corrected"].min() > 0.01
    assert 0.81 <= result["inside central 90%"].mean() <= 0.99
    assert result["inside central 90%"].min() >= 0.65


def test_agrees_with_nuts():
    """4,000 items in 40 bins. NUTS has a bulk effective sample of 1,000 or more: its sds have
    errors of 2 to 3%, its means of 0.03 sd."""
    items = binomial.ITEMS["binomial"](binomial.simulated(4000, seed=1))
    stats = soc.summarize(items, bins=40, progress=False)
    chains = agreement.quiet_fit(stats, soc.NUTS(draws=1500, chains=2, seed=1))
    default = soc.fit(stats, method=soc.VI(draws=4000), progress=False)
    names = list(default.prior.curve_names)
    found, right = (f.data["posterior"].to_dataset()[names] for f in (default, chains))
    table = agreement.compared(found, right)
    assert table["lowest sd ratio"].min() > 0.88
    assert table["highest sd ratio"].max() < 1.12
    assert table["largest difference of means"].max() < 0.15


@pytest.mark.parametrize("truth", ["well calibrated", "overconfident", "kinks"])
def test_curves_of_labels(truth):
    """Three sets of 2,000 labels: less log loss than isotonic and spline-logistic regression, and
    pointwise bands that hold their share (a standard error of about 0.1)."""
    found = labels.row([labels.one_seed(truth, seed, 2000) for seed in range(3)])
    for name in ("isotonic", "spline"):
        assert found[f"gain over {name}"] > -found[f"its se, {name}"]
    assert found["pointwise bands"] > 0.7
    assert found["converged"] == 1


def test_batting_averages_beat_published_rules(real_data):
    """For nonpitchers the error is 0.317 of the naive one; 0.359 by the best published rule."""
    table = batting.players(real_data)
    some = table[table["pitcher"] == 0].reset_index(drop=True)
    best = min(batting.PUBLISHED["nonpitchers"].values())
    found = batting.normalised_error(some, batting.ours(some, "binomial"))
    assert found == pytest.approx(0.317, abs=0.01)
    assert found < best
