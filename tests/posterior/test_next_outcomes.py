"""`soc.predictive_intervals`: SciPy's quantiles of conjugate laws and mixtures, and refusals."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from tests.checks.hand_made import KINDS, as_items, hand_made_fit, moments_by_draw, simulate
from tests.examples import QUIET
from tests.family_records import RECORDS, prior_parameters, updated_parameters

FURTHER = {"counts": 30.0, "values": 0.7, "trials": 40.0, "amounts": 6.0}


@cache
def case(kind, sd, with_outcomes):
    fit, frame = hand_made_fit(kind, sd=sd, draws=60), simulate(60, 9, kind)
    family = KINDS[kind].family
    moments = moments_by_draw(fit, frame, kind)
    if sd < 1e-3:
        moments = (draws[:1] for draws in moments)  # all draws are alike
    theta = prior_parameters(family, *moments)
    items = as_items(frame, kind)
    if with_outcomes:
        outcome, size = (frame[role].to_numpy(float) for role in KINDS[kind].roles[1:])
        theta = updated_parameters(family, *theta, outcome, size)
    else:
        items = KINDS[kind].items(frame, score="score")
    return fit, items, RECORDS[family].marginal(*theta, FURTHER[kind])


@pytest.mark.parametrize("with_outcomes", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_quantiles_under_known_curves_are_scipys(kind, with_outcomes):
    """Of counts exactly the same, unless a cumulative probability is the one asked for to 1e-4."""
    fit, items, law = case(kind, 1e-6, with_outcomes)
    probs = (0.02, 0.5, 0.9)
    table = soc.predictive_intervals(fit, items, exposure=FURTHER[kind], quantiles=probs, **QUIET)
    for prob, values in zip(probs, table.iloc[:, :3].to_numpy().T, strict=True):
        if not hasattr(law, "pmf"):
            np.testing.assert_allclose(law.cdf(values)[0], prob, atol=1e-3)
        else:
            assert (law.cdf(values)[0] > prob - 1e-4).all()
            assert (law.cdf(values - 1)[0] < prob + 1e-4).all()
    low, high = table.iloc[:, 0].to_numpy(), table.iloc[:, 2].to_numpy()
    inside = law.cdf(high) - law.cdf(low - hasattr(law, "pmf"))
    np.testing.assert_allclose(table["p_inside"], inside[0], atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_quantiles_average_over_the_draws(kind):
    """To 5e-3 of probability; the law at the mean curves is off by more than .02."""
    fit, items, law = case(kind, 0.5, True)
    table = soc.predictive_intervals(fit, items, exposure=FURTHER[kind], **QUIET)
    high = table.iloc[:, 1].to_numpy()
    upto = law.cdf(high)
    assert np.min(upto.mean(axis=0)) > 0.95 - 5e-3
    step = float(hasattr(law, "pmf"))
    assert np.max(law.cdf(high - step).mean(axis=0)) < 0.95 + 5e-3
    assert np.ptp(upto, axis=0).max() > 0.02


def test_next_outcomes_are_inside_as_often_as_the_table_says():
    """Of 4,000 next counts, to three standard errors; ends of counts hold more than 0.8."""
    fit, frame = hand_made_fit(), simulate(4000, 3)
    rng = np.random.default_rng(0)
    further = rng.integers(1, 60, len(frame)).astype(float)
    table = soc.predictive_intervals(
        fit, as_items(frame), exposure=further, quantiles=(0.1, 0.9), **QUIET
    )
    ahead = rng.poisson(frame["theta"] * further)
    inside = (ahead >= table["count_q10"]) & (ahead <= table["count_q90"])
    assert (table["p_inside"] >= 0.8).all()
    error = np.sqrt(0.2 * 0.8 / len(frame))
    assert abs(inside.mean() - table["p_inside"].mean()) < 3 * error


@pytest.mark.parametrize("name", ["gamma_mixture", "normal", "exposure"])
def test_own_exposures_and_all_priors(name, example):
    fit, items = example(name).fit, example(name).items
    table = soc.predictive_intervals(fit, items, **QUIET)
    assert len(table) == len(example(name).frame)
    assert (table["p_inside"] > 0.9 - 1e-3).all()
    assert (table.iloc[:, 0] <= table.iloc[:, 1]).all()


def test_refusals_and_ends():
    fit, frame = hand_made_fit(), simulate(5, 3)
    table = soc.predictive_intervals(fit, as_items(frame), exposure=0.0, **QUIET)
    np.testing.assert_allclose(table, np.tile([0.0, 0.0, 1.0], (5, 1)), atol=1e-12)
    scores = soc.PoissonItems(frame, score="score")
    with pytest.raises(soc.FitError, match="exposure of the next outcome is missing"):
        soc.predictive_intervals(fit, scores, **QUIET)
    with pytest.raises(soc.FitError, match="exposure= of next outcomes"):
        soc.predictive_intervals(fit, scores, exposure=-1.0, **QUIET)


@pytest.mark.parametrize("unit", [1e-6, 1e9])
def test_amounts_of_any_unit_and_of_no_events(unit):
    """Without events the next sum is 0 for sure; bisection ends where amounts are far from 1."""
    rng = np.random.default_rng(0)
    events = rng.poisson(3.0, 300)
    paid = unit * rng.gamma(np.maximum(events, 1), rng.lognormal(0.0, 0.4, 300)) * (events > 0)
    frame = pd.DataFrame({"paid": paid, "events": events})
    items = soc.AmountItems(frame, score=None, amount="paid", events="events")
    fit = soc.fit(soc.summarize(items, **QUIET), **QUIET)
    table = soc.predictive_intervals(fit, items, **QUIET)
    expected = np.where(events > 0, 0.9, 1.0)
    np.testing.assert_allclose(table["p_inside"], expected, atol=1e-6)
    assert (table.loc[events == 0, ["amount_q05", "amount_q95"]] == 0.0).all(axis=None)


def test_the_estimator_has_the_same():
    frame = pd.DataFrame(simulate(500, 5))
    columns = (frame[role].to_numpy() for role in ("score", "count", "exposure"))
    score, count, exposure = columns
    calibrator = soc.SecondOrderCalibrator().fit(score, count, exposure=exposure)
    ends = calibrator.predict_outcome_interval(score, count, exposure=exposure, further=9.0)
    items = as_items(frame)
    table = soc.predictive_intervals(calibrator.fit_, items, exposure=9.0, **QUIET)
    np.testing.assert_array_equal(ends, table.iloc[:, :2])
    before = calibrator.predict_outcome_interval(score, exposure=9.0)
    assert np.mean(before[:, 1] - before[:, 0]) > np.mean(ends[:, 1] - ends[:, 0])
