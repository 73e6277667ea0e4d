"""Scores that cannot be estimates of theta: points of credit, log odds, ranks from the top."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import soc_pymc as soc
from tests.examples import QUIET, thinned

ROLES = {"score": "points", "successes": "y", "trials": "N"}
FAST = {"method": soc.VI(draws=400, seed=1), **QUIET}
LINEAR = soc.Spline(scale="linear")


def mean_of(points):
    return expit(-2.0 - (points - 600.0) / 80.0)


def credit(seed, trials=60, n=3000):
    """Successes that become rarer with points from 300 to 850, and their theta."""
    rng = np.random.default_rng(seed)
    points = np.clip(rng.normal(600.0, 80.0, n).round(), 300.0, 850.0)
    mean = mean_of(points)
    theta = rng.beta(20.0 * mean, 20.0 * (1.0 - mean))
    size = rng.integers(1, trials + 1, n)
    frame = pd.DataFrame({"points": points, "y": rng.binomial(size, theta), "N": size})
    return frame, theta


def test_points_that_fall_as_theta_rises_are_taken_as_they_are():
    """Nothing doubts the trials; 0.9 of 3,000 covered has a standard error of 0.0055."""
    frame, theta = credit(7)
    items = soc.BinomialItems(frame, **ROLES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stats = soc.summarize(items, **QUIET)
    with pytest.warns(soc.ItemsWarning, match=r"from \d+ to 850, have no logit") as caught:
        fit = soc.fit(stats, **FAST)
    assert len(caught) == 1
    assert fit.prior == soc.Beta(mean=LINEAR, variance=LINEAR)
    scored = soc.item_posteriors(fit, items, **QUIET)
    inside = (scored["theta_q05"] < theta) & (theta < scored["theta_q95"])
    assert abs(inside.mean() - 0.9) < 0.02
    found = soc.quantities.score_at(fit, mean_of(np.array([550.0, 650.0]))).table
    assert (found["low"] < [550.0, 650.0]).all()
    assert (found["high"] > [550.0, 650.0]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert soc.fit(stats, fit.prior, **FAST).prior == fit.prior


def test_labels_are_drawn_over_points_and_predicted_from_them():
    """The curve is within 0.02 on average, four times the error of such a band's middle."""
    frame, _ = credit(8, trials=1)
    points = frame["points"].to_numpy()
    labels = frame["y"] == 1
    with pytest.warns(soc.ItemsWarning, match="have no logit"):
        display = soc.plots.plot_calibration(labels, points)
    assert np.abs(display.mean - mean_of(display.score)).mean() < 0.02
    assert display.ax_.get_xlabel() == "score"
    assert display.ax_.get_xlim()[1] > 700
    with pytest.warns(soc.ItemsWarning, match="have no logit"):
        calibrator = soc.SecondOrderCalibrator(method=FAST["method"]).fit(points, labels)
    assert np.abs(calibrator.predict(points) - mean_of(points)).mean() < 0.02


@pytest.mark.parametrize(
    ("tail", "scale"), thinned([("normal", "linear"), ("cauchy", "rank")], [("cauchy", "rank")])
)
def test_counts_with_scores_of_either_sign(tail, scale):
    """Log rates; ranks where single scores lie far from all others."""
    rng = np.random.default_rng(3)
    t = rng.normal(size=800) if tail == "normal" else rng.standard_cauchy(800)
    size = rng.uniform(1.0, 50.0, 800)
    y = rng.poisson(np.exp(np.tanh(t) - 1.0) * rng.gamma(4.0, 0.25, 800) * size)
    frame = pd.DataFrame({"t": t, "y": y, "N": size})
    stats = soc.summarize(soc.PoissonItems(frame, score="t", count="y", exposure="N"), **QUIET)
    with pytest.warns(soc.ItemsWarning, match=f"on the {scale} scale"):
        fit = soc.fit(stats, **FAST)
    places = np.array([-1.0, 0.0, 1.0])
    mean = soc.calibration_curves(fit, places)["log_mean"].mean(["chain", "draw"])
    np.testing.assert_allclose(mean, np.tanh(places) - 1.0, atol=0.25)  # errors are 0.05 to 0.1


def test_log_odds_of_0_and_1_are_scores_like_others():
    """Unlike probabilities of exactly 0 and 1, which are populations of their own."""
    rng = np.random.default_rng(6)
    t = rng.normal(0.0, 2.0, 2000).round(1)
    frame = pd.DataFrame({"points": t, "y": rng.random(2000) < expit(t), "N": 1})
    stats = soc.summarize(soc.BinomialItems(frame, **ROLES), **QUIET)
    assert {0.0, 1.0} < set(t.tolist())
    assert stats.atoms == {}


def test_a_few_scores_outside_are_faults_of_their_rows():
    frame, _ = credit(9)
    shares = frame.assign(points=frame["points"] / 700.0)  # a tenth are above 1
    stats = soc.summarize(soc.BinomialItems(shares, **ROLES), **QUIET)
    with pytest.raises(soc.FitError, match="drop or clip"):
        soc.fit(stats, **FAST)
    with pytest.raises(soc.ItemsError, match="probabilities p are not from 0 to 1"):
        soc.plots.plot_calibration(shares["y"] > 0, shares["points"])


@pytest.mark.parametrize("method", thinned([FAST["method"], soc.FiveSteps()], [FAST["method"]]))
def test_a_falling_mean_that_may_not_fall_is_named(method):
    frame, _ = credit(10)
    options = {"method": method, **QUIET}
    prior = soc.Beta(mean=LINEAR, variance=LINEAR, monotone=True)
    stats = soc.summarize(soc.BinomialItems(frame, **ROLES), **QUIET)
    with pytest.warns(soc.ItemsWarning, match="reverse the score"):
        soc.fit(stats, prior, **options)
    reversed_score = frame.assign(points=-frame["points"])
    stats = soc.summarize(soc.BinomialItems(reversed_score, **ROLES), **QUIET)
    with warnings.catch_warnings():
        warnings.simplefilter("error", soc.ItemsWarning)
        soc.fit(stats, prior, **options)
