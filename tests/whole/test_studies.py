"""The studies' own arithmetic, on small data with known answers, and small runs of two studies."""

import numpy as np
import pandas as pd
import pytest

from tests.studies import common, lognormal, normal


def test_coverage_and_averages_by_hand():
    """The 90% interval of the draws 0 to 100 is (5, 95); se of 1, 2, 3 is 1 / sqrt(3)."""
    draws = np.tile(np.arange(101.0)[:, None], 3)
    assert list(common.covered(draws, [4.0, 50.0, 96.0])) == [False, True, False]
    table = common.averages([{"a": 1.0}, {"a": 2.0}, {"a": 3.0}])
    assert list(table.loc["a"]) == pytest.approx([2.0, 1 / np.sqrt(3), 1.0, 3.0])
    row = common.against(2.0 * draws, draws)
    assert list(row.values()) == pytest.approx([2.0, 2.0, 50.0 / draws.std()])


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv"])
def test_rows_are_saved_and_resumed(tmp_path, name):
    rows = common.Rows(tmp_path / name, seed=0)
    assert not rows.has(method="five steps", delta=0.5)
    rows.add([{"regret": 0.1}, {"regret": 0.2}], method="five steps", delta=0.5)
    again = common.Rows(tmp_path / name, seed=0)
    assert again.has(method="five steps", delta=0.5)
    assert not again.has(method="five steps", delta=0.0)
    again.add([{"regret": 0.3}], method="five steps", delta=0.0)
    assert list(common.Rows(tmp_path / name, seed=0).table["regret"]) == [0.1, 0.2, 0.3]
    with pytest.raises(SystemExit, match="seed"):
        common.Rows(tmp_path / name, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["five", "gamma"])
def test_lognormal_rates(method):
    """On three seeds of 20,000 items means were within 1.5% and variances within 17% in each of
    four bins, regret at most 1.9% in a bin and 1.3 to 1.8% in all, the ratio .99 to 1.014."""
    rng = np.random.default_rng(5)
    keywords = pd.DataFrame({"score": rng.gamma(1.0, 0.03, 20_000) + 1e-4})
    keywords["exposure"] = np.ceil(rng.lognormal(4.5, 1.3, 20_000))
    by_bin, overall = lognormal.one_cell(keywords, 20_000, "delta=0.5,sigma=0.5", method, bins=4)
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
    by_bin, overall, _ = normal.run(20_000, "five", bins=4)
    assert (by_bin["regret"] < 0.1).all()
    assert 0 < overall["regret"].iloc[0] < 0.03
    assert 1.0 < overall["expected_ratio"].iloc[0] < 1.2
    assert (np.abs(by_bin["mean"] - by_bin["true_mean"]) < 0.1).all()
    assert (np.abs(by_bin["variance"] / 2 - 1) < 0.25).all()
