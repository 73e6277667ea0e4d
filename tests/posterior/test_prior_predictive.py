"""Curves and outcomes of items under a prior."""

import numpy as np
import pymc as pm
import pytest
from scipy.stats import kstest

import soc_pymc as soc
from tests.examples import CASES, FAMILIES, TERMS, thinned
from tests.posterior.references import kind_of

LEVEL = np.log(0.05)
TIGHT = {
    "mean": soc.Spline(level=(LEVEL, 0.1), slope=(1.0, 0.01), wiggle=0.01),
    "variance": soc.Spline(level=(np.log(0.3), 0.1), slope=(0.0, 0.01), wiggle=0.01),
}
NAMES = [*FAMILIES, *(name for name in TERMS if name != "five_steps")]


def test_draws_are_those_of_the_documented_prior(example):
    """E(theta | t) at the average score is exp(N(level, 0.1)): mean and sd of its log to 4 errors.

    The mean count is that of the items' exposures.
    """
    frame, statistics = example("gamma").frame, example("gamma").statistics
    found = soc.prior_predictive(soc.Gamma(**TIGHT), statistics, draws=400, items=3000, seed=1)
    centre = np.exp(np.log(frame["score"]).mean())
    curve = np.log(found["prior"]["mean"]).interp(score=centre).to_numpy().ravel()
    assert curve.mean() == pytest.approx(LEVEL, abs=4 * 0.1 / np.sqrt(400))
    assert curve.std() == pytest.approx(0.1, rel=4 / np.sqrt(800))
    items = found["constant_data"]
    expected = 0.05 * float((items["exposure"] * items["score"]).mean()) / centre
    assert float(found["prior_predictive"]["count"].mean()) == pytest.approx(expected, rel=0.05)
    # items are drawn from the bins and sizes of all
    assert float(items["exposure"].mean()) == pytest.approx(frame["exposure"].mean(), rel=0.15)
    assert float(np.log(items["score"]).mean()) == pytest.approx(np.log(centre), abs=0.05)


@pytest.mark.slow
def test_smoothing_scales_are_half_normal(example):
    """Drawn as by PyMC from the model; 300 draws of each scale."""
    with soc.model(example("gamma").statistics, soc.Gamma(**TIGHT)):
        names = ["log_mean_wiggle_sd", "log_cv2_wiggle_sd"]
        drawn = pm.sample_prior_predictive(300, var_names=names, random_seed=1)["prior"]
    for name in names:
        assert kstest(drawn[name].to_numpy().ravel() / 0.01, "halfnorm").pvalue > 1e-3


def test_the_default_is_sane_before_any_outcome(example):
    """At the average score cv2 is between 0.02 and 5 with probability 0.95, and over the middle 98%
    of the items it changes by a median factor of at most 8 (7.2 where log scores are Normal)."""
    frame, statistics = example("gamma").frame, example("gamma").statistics
    curves = soc.prior_predictive(soc.Gamma(), statistics, draws=2000, items=10)["prior"]
    low, centre, high = np.exp(np.log(frame["score"]).quantile([0.01, 0.5, 0.99]))
    cv2 = 1.0 / curves["shape"].sel(score=slice(low, high))
    middle = cv2.sel(score=centre, method="nearest")
    assert float(((middle > 0.02) & (middle < 5.0)).mean()) == pytest.approx(0.95, abs=0.02)
    assert float((cv2.max("score") / cv2.min("score")).median()) < 8.0


@pytest.mark.slow
def test_outcomes_do_not_matter(example):
    """Statistics of other counts in the same exposures give the same draws."""
    frame, statistics = example("gamma").frame.copy(), example("gamma").statistics
    frame["count"] = np.random.default_rng(1).poisson(0.2 * frame["exposure"])
    items = example("gamma").case.items(frame)
    other = soc.summarize(items, edges=statistics.edges, progress=False)
    drawn, again = (soc.prior_predictive(None, s, draws=20, seed=3) for s in (statistics, other))
    for group in ("prior", "prior_predictive"):
        for name, values in drawn[group].data_vars.items():
            np.testing.assert_allclose(values, again[group][name], rtol=1e-9)


@pytest.mark.parametrize("name", thinned(NAMES, ["gamma", "normal", "beta"]))
def test_every_prior(example, name):
    """Outcomes are possible, and curves finite."""
    found = soc.prior_predictive(CASES[name].prior, example(name).statistics, draws=20, items=200)
    kind = example(name).items.outcome
    outcome = found["prior_predictive"][kind.observed]
    assert outcome.shape == (1, 20, 200)
    assert np.isfinite(found["prior"]["mean"]).all()
    assert (found["prior"]["variance"] > 0).all()
    if kind_of(name) != "normal":
        assert (outcome.dtype.kind == "i") == kind.whole
        assert (outcome >= 0).all()
    if kind_of(name) == "beta":
        assert (outcome <= found["constant_data"]["trials"]).all()
    if name == "groups":
        assert set(found["constant_data"]["group"].to_numpy()) == {"a", "b"}
