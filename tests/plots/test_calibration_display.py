"""Calibration curves of probabilities from labels alone."""

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import soc_pymc as soc
from soc_pymc.plots import CalibrationDisplay, plot_calibration


def test_a_score_that_is_too_high_is_seen():
    """The truth, the score's square, is within 90% bands at 9 of 10 scores or more."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, 4000)
    display = plot_calibration(rng.random(4000) < p**2, p, name="_ $x^{ forest")
    truth = display.score**2
    middle = (display.score > 0.3) & (display.score < 0.8)
    assert (display.upper[middle] < display.score[middle]).all()
    assert ((display.lower < truth) & (truth < display.upper)).mean() > 0.9
    assert ((display.lower < display.mean) & (display.mean < display.upper)).all()
    display.figure_.draw_without_rendering()
    np.testing.assert_array_equal(display.line_.get_ydata(), display.mean)
    assert len(repr(display)) < 100
    axes = plt.subplots()[1]
    assert display.plot(axes) is display
    assert display.ax_ is axes


def test_observed_points_are_those_of_bins():
    """Exact 0 and 1 are points of their own; intervals hold the share of each bin."""
    rng = np.random.default_rng(3)
    p = np.clip(rng.uniform(-0.1, 1.1, 3000), 0, 1)
    y = np.where(rng.random(3000) < p, "yes", "no")
    display = plot_calibration(y, p, n_bins=5, pos_label="yes")
    bins, positive = display.bins, y == "yes"
    assert bins["p"].iloc[[0, -1]].tolist() == [0.0, 1.0]
    assert bins["n"].iloc[[0, -1]].tolist() == [(p == 0).sum(), (p == 1).sum()]
    inner = np.array_split(np.sort(p[(p > 0) & (p < 1)]), 5)
    assert np.abs(bins["n"].to_numpy()[1:-1] - [len(part) for part in inner]).max() <= 1
    assert (bins["n"] * bins["share"]).sum() == pytest.approx(positive.sum())
    assert ((bins["low"] <= bins["share"]) & (bins["share"] <= bins["high"])).all()
    assert bins["share"].iloc[[0, -1]].tolist() == [0.0, 1.0]
    # nothing runs upright along the ends of the axis
    assert display.score[0] > 0.005
    assert display.score[-1] < 0.995


@pytest.mark.slow
def test_a_calibrated_estimator_stays_within_the_band():
    """A band that holds the whole curve with probability 0.99, at a fixed seed."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 2))
    y = np.where(rng.random(3000) < 1 / (1 + np.exp(-x[:, 0])), "yes", "no")
    p = LogisticRegression().fit(x[:1500], y[:1500]).predict_proba(x[1500:])[:, 1]
    display = CalibrationDisplay.from_predictions(y[1500:], p, pos_label="yes", prob=0.99)
    assert display.bins["n"].sum() == 1500
    assert ((display.lower < display.score) & (display.score < display.upper)).all()


@pytest.mark.parametrize(
    ("y", "p", "text"),
    [
        ([0, 2], [0.2, 0.3], "neither 0 nor 1"),
        ([0, 1], [-0.1, 0.3], "1 of 2 probabilities p"),
        ([0, 1], [0.0, 1.0], "exactly 0 or 1"),
        ([0, 1, 1], [0.2, 0.3], "one length"),
        (["a", "b"], [0.2, 0.3], "pos_label"),
    ],
)
def test_bad_labels_and_probabilities_are_refused(y, p, text):
    with pytest.raises(soc.ItemsError, match=text):
        plot_calibration(y, p)
