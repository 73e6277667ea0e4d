"""Calibration curves of probabilities from labels alone."""

import matplotlib as mpl

mpl.use("agg")

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
    drawn = [line.get_ydata() for line in display.ax_.lines]
    assert any(np.array_equal(line, display.mean) for line in drawn)
    assert sum(bar.get_height() for bar in display.histogram_.patches) == 4000
    axes = display.figure_.axes
    assert display.plot(axes) is display
    assert [display.ax_, display.histogram_] == axes


@pytest.mark.slow
def test_a_calibrated_estimator_stays_within_the_band():
    """A band that holds the whole curve with probability 0.99, at a fixed seed."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 2))
    y = np.where(rng.random(3000) < 1 / (1 + np.exp(-x[:, 0])), "yes", "no")
    model = LogisticRegression().fit(x[:1500], y[:1500])
    display = CalibrationDisplay.from_estimator(model, x[1500:], y[1500:], prob=0.99)
    np.testing.assert_array_equal(display.scores, model.predict_proba(x[1500:])[:, 1])
    assert ((display.lower < display.score) & (display.score < display.upper)).all()
    with pytest.raises(soc.ItemsError, match="predict_proba"):
        CalibrationDisplay.from_estimator(object(), x, y)
    with pytest.raises(soc.ItemsError, match="1 of 2 labels"):
        CalibrationDisplay.from_estimator(model, x[:2], ["no", "Yes"])


@pytest.mark.parametrize(
    ("y", "p", "text"),
    [
        ([0, 2], [0.2, 0.3], "1 of 2 labels y"),
        ([0, 1], [0.0, 0.3], "1 of 2 probabilities p"),
        ([0, 1, 1], [0.2, 0.3], "one length"),
        (["a", "b"], [0.2, 0.3], "labels y"),
    ],
)
def test_bad_labels_and_probabilities_are_refused(y, p, text):
    with pytest.raises(soc.ItemsError, match=text):
        plot_calibration(y, p)
