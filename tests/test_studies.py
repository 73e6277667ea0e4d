"""The studies' own arithmetic, on small data with known answers."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc

from .studies import blocks, lognormal, normal


def test_ratio_and_its_standard_error():
    """Delta method: sd of a/b is sqrt(2)/sqrt(n) for independent exponentials of mean 1; the
    bootstrap of 1,000 draws over 200 blocks has a standard error of its own of 5.5%."""
    rng = np.random.default_rng(0)
    a, b = rng.exponential(size=(2, 50_000))
    value, error = blocks.ratio_with_error({"a": a, "b": b}, lambda a, b: a / b)
    assert value == pytest.approx(a.mean() / b.mean(), rel=1e-12)
    assert error == pytest.approx(np.sqrt(2 / 50_000), rel=0.2)


def keywords():
    rng = np.random.default_rng(5)
    return rng.gamma(1.0, 0.03, 20_000) + 1e-4, np.ceil(rng.lognormal(4.5, 1.3, 20_000))


def test_oracle_has_a_ratio_of_one_and_no_regret():
    score, exposure = keywords()
    table = soc.simulation.lognormal_rates(score, exposure, 0.5, 1.0)
    mean, variance = soc.simulation.lognormal_oracle(score, table["count"], exposure, 0.5, 1.0)
    row = lognormal.figures(table.assign(theta_mean=mean, theta_var=variance), 0.5, 1.0)
    assert row["ratio"] == row["expected_ratio"] == pytest.approx(1.0, abs=1e-12)
    assert row["regret_percent"] == pytest.approx(0.0, abs=1e-9)
    assert row["mse_ours"] == row["mse_oracle"] < row["mse_score"]
    narrow = table.assign(theta_mean=mean, theta_var=variance / 1.1)
    assert lognormal.figures(narrow, 0.5, 1.0)["ratio"] == pytest.approx(1.1, rel=1e-9)


def test_a_cell_from_files_to_figures():
    """A Gamma prior of 20,000 lognormal items: 1 to 3% too sure and at most 4% from the oracle."""
    row = lognormal.one_cell(*keywords(), "delta=0.5,sigma=0.25", "gamma")
    assert row["converged"]
    assert 0.98 < row["expected_ratio"] < 1.06
    assert 0 < row["regret_percent"] < 4
    assert row["mse_ours"] < 0.5 * row["mse_score"]


def test_figures_of_the_normal_study():
    table = soc.simulation.laplace_effects(30_000, seed=1)
    mean, variance = soc.simulation.laplace_oracle(table)
    perfect = table.assign(theta_mean=mean, theta_var=variance)
    row = normal.figures(normal.squared_errors(perfect))
    assert row["mse_over_oracle"] == 1.0
    assert row["regret_percent"] == pytest.approx(0.0, abs=1e-9)
    assert row["standardised_rmse"] == pytest.approx(1.0, abs=0.02)
    # Normal theory in place of the Laplace prior: y less a third of the way to t
    linear = table["score"] + (table["value"] - table["score"]) * 2 / 3
    plain = normal.figures(normal.squared_errors(table.assign(theta_mean=linear, theta_var=2 / 3)))
    assert 1.02 < plain["mse_over_oracle"] < 1.2
    assert plain["regret_percent"] == pytest.approx(100 * (plain["mse_over_oracle"] - 1), abs=2)
    assert row["mse_oracle"] < row["mse_value"] < row["mse_score"]


def test_pit_by_bin_finds_the_bin_that_is_off():
    rng = np.random.default_rng(2)
    score, pit = rng.normal(size=20_000), rng.uniform(size=20_000)
    assert normal.pit_by_bin(score, pit)["p_holm"].min() > 0.01
    last = score > np.quantile(score, 0.95)
    table = normal.pit_by_bin(score, np.where(last, pit**1.3, pit))
    assert list(np.flatnonzero(table["p_holm"] < 0.01)) == [19]
    assert (table["items"] == 1000).all()


def test_items_of_the_normal_study_are_written_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(normal, "_FILE", 400)
    paths = normal.write_items(tmp_path / "items", 1000, seed=4)
    assert len(paths) == 3
    together = pd.concat([pd.read_parquet(p) for p in paths], ignore_index=True)
    pd.testing.assert_frame_equal(together, soc.simulation.laplace_effects(1000, seed=4))
