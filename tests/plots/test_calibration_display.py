"""Calibration curves of probabilities from labels alone."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import soc_pymc as soc


def drawn(n=4000, power=1.0, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.02, 0.98, n)
    return rng.random(n) < p**power, p


def test_a_calibrated_score_stays_within_the_band():
    """A band that holds the whole curve with probability 0.99, at a fixed seed."""
    display = soc.plots.plot_calibration(*drawn(), prob=0.99)
    assert ((display.lower < display.score) & (display.score < display.upper)).all()
    assert (display.lower < display.mean).all()
    assert (display.mean < display.upper).all()


def test_a_score_that_is_too_high_is_seen():
    display = soc.plots.plot_calibration(*drawn(power=2.0))
    truth = display.score**2
    middle = (display.score > 0.3) & (display.score < 0.8)
    assert (display.upper[middle] < display.score[middle]).all()
    assert ((display.lower < truth) & (truth < display.upper)).mean() > 0.9


def test_the_picture_has_what_users_of_scikit_learn_expect():
    y, p = drawn(1000)
    display = soc.plots.CalibrationDisplay.from_predictions(y, p, name="forest")
    words = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert words == ["90% band of the whole curve", "forest", "perfectly calibrated"]
    assert display.figure_ is display.ax_.figure
    heights = [bar.get_height() for bar in display.histogram_.patches]
    assert sum(heights) == 1000
    again = display.plot(display.figure_.axes)
    assert again is display


def test_from_an_estimator():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 2))
    y = np.where(rng.random(3000) < 1 / (1 + np.exp(-x[:, 0])), "yes", "no")
    model = LogisticRegression().fit(x[:1500], y[:1500])
    display = soc.plots.CalibrationDisplay.from_estimator(model, x[1500:], y[1500:], prob=0.99)
    assert ((display.lower < display.score) & (display.score < display.upper)).all()
    assert display.name == "LogisticRegression"
    with pytest.raises(soc.ItemsError, match="has no predict_proba"):
        soc.plots.CalibrationDisplay.from_estimator(object(), x, y)


@pytest.mark.parametrize(
    ("y", "p", "text"),
    [
        ([0, 2], [0.2, 0.3], "1 of 2 labels y are neither 0 nor 1"),
        ([0, 1], [0.0, 0.3], "1 of 2 probabilities p are not between 0 and 1: clip them"),
        ([0, 1, 1], [0.2, 0.3], "must be vectors of one length"),
        (["a", "b"], [0.2, 0.3], "labels y are text"),
    ],
)
def test_bad_labels_and_probabilities_are_refused(y, p, text):
    with pytest.raises(soc.ItemsError, match=text):
        soc.plots.plot_calibration(y, p)


def test_labels_of_other_classes_are_refused():
    class Model:
        classes_ = np.array(["no", "yes"])

        def predict_proba(self, x):
            return np.column_stack([1 - x, x])

    with pytest.raises(soc.ItemsError, match="1 of 2 labels y are none of the estimator's classes"):
        soc.plots.CalibrationDisplay.from_estimator(Model(), np.array([0.2, 0.7]), ["no", "Yes"])
