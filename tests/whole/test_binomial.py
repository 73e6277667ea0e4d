"""Right answers of successes in trials and of labels: small versions of the studies.

The full ones are `tests.studies.binomial`, `labels` and `batting`; their results are in
docs/dev/reproduction.md.
"""

import pytest

from tests.studies import batting, binomial, labels, s1

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


def test_curves_of_labels():
    """Three sets of 2,000 labels: less log loss than isotonic and spline-logistic regression, and
    pointwise bands that hold their share (a standard error of about 0.1)."""
    found = labels.row([labels.one_seed("overconfident", seed, 2000) for seed in range(3)])
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
