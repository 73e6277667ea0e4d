"""The paper's Sections 5.2 and 5.3: mixtures beside exact oracles; docs/dev/simulations.md."""

import pytest

from tests.studies import common, lognormal, normal

pytestmark = pytest.mark.slow


def test_lognormal_rates(real_data):
    """Errors over claimed variances are within 1.5% of the oracle's own, regret is small."""
    keywords = common.real_counts("adwords")
    _, overall = lognormal.one_cell(keywords, 200_000, "delta=0.5,sigma=0.5", "mixture")
    row = overall.iloc[0]
    assert row["converged"]
    assert 0.985 < row["ratio"] < 1.015
    assert row["regret"] < 0.005
    assert row["mse_posterior"] < row["mse_t"]


def test_laplace_effects():
    """Squared error is within .5% of the oracle's, and no slice's PIT differs beyond chance."""
    _, overall, pit = normal.run(300_000, "mixture")
    row = overall.iloc[0]
    assert row["converged"]
    assert row["mse_posterior"] < 1.005
    assert 0.98 < row["expected_ratio"] < 1.02
    assert pit["p_value"].min() > 0.001
