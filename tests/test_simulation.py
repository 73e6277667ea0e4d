"""Simulations are as documented, their oracles are right, and tables are as published."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from tests.oracles import laplace_oracle, lognormal_oracle, s1_curves


def test_s1_has_its_moments():
    """200,000 items: tolerances are 3 standard errors or more, of variances in fifths 6%."""
    frame = soc.simulation.s1(200_000, seed=1)
    ratio = frame["theta"] / frame["true_mean"]
    assert abs(ratio.mean() - 1) < 0.01
    fifth = pd.qcut(frame["score"], 5, labels=False)
    variance, cv2 = ratio.groupby(fifth).var(), frame["true_cv2"].groupby(fifth).mean()
    np.testing.assert_allclose(variance, cv2, rtol=0.06)
    expected = frame["theta"] * frame["exposure"]
    residual = (frame["count"] - expected) / np.sqrt(expected)
    assert abs(residual.mean()) < 0.01
    assert abs(residual.var() - 1) < 0.05
    assert frame["exposure"].min() >= 1
    curves = s1_curves(frame["score"])
    np.testing.assert_allclose(np.exp(curves), [frame["true_mean"], frame["true_cv2"]])


def test_click_rates_are_lognormal_around_the_score():
    frame = soc.simulation.click_rates(200_000, delta=0.2, sigma=0.4, seed=1)
    off = np.log(frame["theta"] / frame["score"])
    assert abs(off.mean() - 0.2) < 0.004
    assert abs(off.std() - 0.4) < 0.003
    assert abs((frame["theta"] / frame["true_mean"]).mean() - 1) < 0.005
    assert abs((frame["theta"] / frame["true_mean"]).var() / frame["true_cv2"].iloc[0] - 1) < 0.05


def test_lognormal_oracle_is_calibrated():
    """Error over variance is 1: 200,000 items, standard error .01; another delta is worse.

    Rates are lognormal around the scores, and without exposure the posterior is the prior.
    """
    rng = np.random.default_rng(0)
    score, size = rng.gamma(2.0, 0.02, 200_000), np.ceil(rng.lognormal(3.0, 1.5, 200_000))
    frame = soc.simulation.lognormal_rates(score, size, 0.5, 0.5, seed=1)
    off = np.log(frame["theta"] / frame["score"])
    assert off.mean() == pytest.approx(0.5, abs=0.004)
    assert off.std() == pytest.approx(0.5, abs=0.003)
    mean, variance = lognormal_oracle(score, frame["count"], size, 0.5, 0.5)
    error = (mean - frame["theta"]) ** 2
    assert (error / variance).mean() == pytest.approx(1.0, abs=0.03)
    wrong, _ = lognormal_oracle(score, frame["count"], size, 0.3, 0.5)
    assert ((wrong - frame["theta"]) ** 2).mean() > 1.02 * error.mean()
    mean, variance = lognormal_oracle([0.1], [0], [0], 0.2, 0.7)
    assert mean[0] == pytest.approx(0.1 * np.exp(0.2 + 0.245), rel=1e-12)
    assert variance[0] == pytest.approx(mean[0] ** 2 * np.expm1(0.49), rel=1e-12)


def test_laplace_effects_and_their_oracle():
    """100,000 items: standardised squared errors average 1 in every fifth of t (se .013)."""
    frame = soc.simulation.laplace_effects(100_000, seed=3)
    noise = frame["value"] - frame["theta"]
    assert noise.var() == pytest.approx(1.0, abs=0.02)
    off = frame["theta"] - frame["score"]
    assert off.mean() == pytest.approx(0.0, abs=0.02)
    assert off.var() == pytest.approx(2.0002, abs=0.06)
    mean, variance = laplace_oracle(frame)
    error = frame["theta"] - mean
    fifth = pd.qcut(frame["score"], 5, labels=False)
    squared = (error**2 / variance).groupby(fifth).mean()
    np.testing.assert_allclose(squared, 1.0, atol=0.05)
    np.testing.assert_allclose((error / np.sqrt(variance)).groupby(fifth).mean(), 0, atol=0.03)


def test_scores_never_saw_their_own_values():
    """With few items a regression that saw them would be closer to y than to new values."""
    frames = [soc.simulation.laplace_effects(40, seed=seed) for seed in range(200)]
    squared = np.mean([((frame["value"] - frame["score"]) ** 2).mean() for frame in frames])
    # 1 + 2.0002 + the coefficients' own variance, 11 * 3 / (32 - 12) by the Wishart's inverse
    assert squared == pytest.approx(3.0 * (1 + 11 / 20), rel=0.06)


def test_seeds():
    for simulate in (soc.simulation.s1, soc.simulation.click_rates, soc.simulation.laplace_effects):
        pd.testing.assert_frame_equal(simulate(50, seed=3), simulate(50, seed=3))
        assert not simulate(50, seed=3).equals(simulate(50, seed=4))


def test_batters_are_those_of_efron_and_morris():
    """Their transformed sums: S = 18.96, shrinkage .791, squared errors 17.56 and 5.01.

    Averages are printed to three digits, so hits may be off by 0.02; later hits are whole numbers.
    """
    frame = soc.datasets.batters()
    assert len(frame) == frame["player"].nunique() == 18
    rates = frame["hits"] / frame["at_bats"], frame["later_average"]
    x, truth = (np.sqrt(45) * np.arcsin(2 * rate - 1) for rate in rates)
    spread = ((x - x.mean()) ** 2).sum()
    assert spread == pytest.approx(18.96, abs=5e-3)
    shrunk = x.mean() + (1 - 15 / spread) * (x - x.mean())
    errors = [((estimate - truth) ** 2).sum() for estimate in (x, shrunk)]
    assert errors == pytest.approx([17.56, 5.01], abs=0.02)
    hits = (frame["later_average"] * frame["later_at_bats"]).round()
    assert ((hits / frame["later_at_bats"] - frame["later_average"]).abs() <= 5e-4).all()
