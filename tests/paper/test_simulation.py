"""Simulations do what their docstrings say."""

import numpy as np
import pandas as pd

import soc_pymc as soc


def test_s1_has_its_moments():
    frame = soc.simulation.s1(200_000, seed=1)
    ratio = frame["theta"] / frame["true_mean"]
    assert abs(ratio.mean() - 1) < 0.01
    fifth = pd.qcut(frame["score"], 5, labels=False)
    np.testing.assert_allclose(
        ratio.groupby(fifth).var(), frame["true_cv2"].groupby(fifth).mean(), rtol=0.06
    )
    residual = (frame["count"] - frame["theta"] * frame["exposure"]) / np.sqrt(
        frame["theta"] * frame["exposure"]
    )
    assert abs(residual.mean()) < 0.01
    assert frame["exposure"].min() >= 1
    log_mean, log_cv2 = soc.simulation.s1_curves(frame["score"])
    np.testing.assert_allclose(np.exp(log_mean), frame["true_mean"])
    np.testing.assert_allclose(np.exp(log_cv2), frame["true_cv2"])


def test_click_rates_are_lognormal_around_the_score():
    frame = soc.simulation.click_rates(200_000, delta=0.2, sigma=0.4, seed=1)
    off = np.log(frame["theta"] / frame["score"])
    assert abs(off.mean() - 0.2) < 0.004
    assert abs(off.std() - 0.4) < 0.003
    assert abs((frame["theta"] / frame["true_mean"]).mean() - 1) < 0.005
    assert abs((frame["theta"] / frame["true_mean"]).var() / frame["true_cv2"].iloc[0] - 1) < 0.05


def test_seeds():
    pd.testing.assert_frame_equal(soc.simulation.s1(50, seed=3), soc.simulation.s1(50, seed=3))
    assert not soc.simulation.s1(50, seed=3).equals(soc.simulation.s1(50, seed=4))
