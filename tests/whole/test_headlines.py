"""The paper's Sections 5.2 and 5.3 with 1 million items: mixtures beside exact oracles."""

import pytest

from tests.studies import lognormal, normal

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "cell", ["delta=-0.5,sigma=0.25", "delta=0,sigma=1", "delta=0.5,sigma=0.5"]
)
def test_lognormal_rates(cell, real_data):
    """Errors are what the posteriors claim within 1.5% of the oracle's own, regret at most .5%."""
    score, exposure = lognormal.keywords(real_data, 1_000_000)
    row = lognormal.one_cell(score, exposure, cell, "mixture")
    print(row)
    assert row["converged"]
    assert 0.985 < row["ratio"] < 1.015
    assert row["regret_percent"] < 0.5
    assert row["mse_ours"] < row["mse_score"]


def test_laplace_effects():
    """Squared error within .5% of the oracle's, standardised errors within 1%, PIT flat by bin."""
    row, pit = normal.run(1_000_000, "mixture", 0)
    print(row)
    assert row["converged"]
    assert row["mse_over_oracle"] < 1.005
    assert 0.99 < row["standardised_rmse"] < 1.01
    assert (pit["p_holm"] > 0.01).all()
