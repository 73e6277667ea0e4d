"""First-order baselines against closed forms."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import soc_pymc as soc
from soc_pymc.evaluate.baselines import BASELINES, fit_baselines
from soc_pymc.families.outcomes import OUTCOMES


def counts(score, count, exposure):
    return pd.DataFrame({"score": score, "count": count, "exposure": exposure}, dtype=float)


def fit_one(name, frame):
    return fit_baselines([name], frame, OUTCOMES["poisson" if "count" in frame else "normal"])[name]


def slope_and_intercept(fitted, low=0.1, high=0.2):
    ends = np.log(fitted([low, high]))
    slope = (ends[1] - ends[0]) / np.log(high / low)
    return slope, ends[0] - slope * np.log(low)


def test_isotonic_keeps_monotone_rates():
    """Rates that rise are their own regression; in the stretch without events, half an event."""
    frame = counts([1, 2, 3, 4], [0, 2, 9, 8], [100, 20, 30, 16])
    fitted = fit_one("isotonic", frame)
    np.testing.assert_allclose(fitted([1, 2, 3, 4]), [0.005, 0.1, 0.3, 0.5])
    np.testing.assert_allclose(fitted([0.5, 9]), [0.005, 0.5])  # constant beyond
    np.testing.assert_allclose(fitted([np.sqrt(6)]), [0.2])  # between, on the log axis


def test_isotonic_pools_by_exposure():
    """Violators get the rate of their pooled exposure, and rows of one score are one."""
    frame = counts([1, 2, 2, 3], [3, 1, 0, 1], [10, 20, 30, 40])
    np.testing.assert_allclose(fit_one("isotonic", frame)([1, 2, 3]), [0.05, 0.05, 0.05])


def test_half_an_event_is_not_above_the_next_stretch():
    frame = counts([1, 2], [0, 1], [1, 10])
    np.testing.assert_allclose(fit_one("isotonic", frame)([1, 2]), [0.1, 0.1])


def test_constant_is_events_per_exposure():
    frame = counts([1, 2, 3], [1, 0, 4], [10, 30, 60])
    np.testing.assert_allclose(fit_one("constant", frame)([5.0, 6.0]), 0.05)


@pytest.mark.parametrize(("slope", "shift"), [(1.0, 0.0), (0.7, 0.4), (1.3, -0.5)])
def test_platt_recovers_a_bias_without_noise(slope, shift):
    """Counts at their expectations: the maximum is the truth, to the solver's tolerance."""
    score = np.geomspace(0.001, 0.5, 40)
    exposure = np.linspace(50, 5000, 40)
    frame = counts(score, exposure * np.exp(shift) * score**slope, exposure)
    assert slope_and_intercept(fit_one("platt", frame)) == pytest.approx((slope, shift), abs=1e-6)
    # and so does the spline, which contains it, but for its ridge
    more = frame * [1, 1e5, 1e5]
    fitted = fit_one("spline", more)(score)
    np.testing.assert_allclose(fitted, np.exp(shift) * score**slope, rtol=1e-3)


def test_platt_leaves_calibrated_scores():
    """Slope 1 and intercept 0 within 4 standard errors from the Poisson information."""
    rng = np.random.default_rng(0)
    score, exposure = rng.lognormal(-3, 1, 20_000), rng.uniform(0, 200, 20_000)
    frame = counts(score, rng.poisson(score * exposure), exposure)
    slope, shift = slope_and_intercept(fit_one("platt", frame))
    x = np.column_stack([np.log(score), np.ones(20_000)])
    error = np.sqrt(np.diag(np.linalg.inv((x * (score * exposure)[:, None]).T @ x)))
    assert abs(slope - 1) < 4 * error[0]
    assert abs(shift) < 4 * error[1]


def test_spline_follows_what_platt_cannot():
    """A bend in log E(theta | t): within 3% of the truth where items are, which a line misses."""
    score = np.geomspace(0.01, 1.0, 400)
    truth = score * np.exp(0.4 * np.tanh(3 * np.log(score / 0.1)))
    exposure = np.full(400, 1e5)
    frame = counts(score, truth * exposure, exposure)
    errors = [np.abs(np.log(fit_one(n, frame)(score) / truth)).max() for n in ("spline", "platt")]
    assert errors[0] < 0.1 < 0.2 < errors[1]


@pytest.mark.parametrize("name", BASELINES)
def test_units_of_exposure_do_not_matter(name):
    rng = np.random.default_rng(1)
    score, exposure = rng.lognormal(-3, 1, 2000), rng.uniform(0, 50, 2000)
    frame = counts(score, rng.poisson(0.8 * score * exposure), exposure)
    own, other = (
        fit_one(name, frame.assign(exposure=frame["exposure"] * unit))(score) * unit
        for unit in (1.0, 1e6)
    )
    np.testing.assert_allclose(own, other, rtol=1e-5)


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("case", ["no events", "one score", "three scores", "events at one end"])
def test_rates_are_positive_whatever_was_seen(name, case):
    """So that a held-out event has a finite log-likelihood."""
    score = {"one score": [0.1] * 6, "three scores": [1, 1, 2, 2, 3, 3]}.get(case, np.arange(1, 7))
    events = {"no events": [0] * 6, "events at one end": [0, 0, 0, 0, 3, 5]}.get(case, [1] * 6)
    frame = counts(score, events, [5, 0 if case == "no events" else 5, 5, 5, 5, 5])
    found = fit_one(name, frame)(frame["score"])
    assert ((found > 0) & np.isfinite(found)).all()
    if case == "no events":
        np.testing.assert_allclose(found, 0.02)


def test_scores_of_any_sign():
    """Poisson regressions on the score itself; baselines on logarithms say where they fail."""
    score = np.linspace(-2, 2, 50)
    frame = counts(score, 100 * np.exp(0.3 + 0.5 * score), np.full(50, 100))
    np.testing.assert_allclose(fit_one("platt", frame)(score), np.exp(0.3 + 0.5 * score), rtol=1e-6)
    positive = fit_one("platt", frame.assign(score=np.exp(score)))
    with pytest.raises(soc.ItemsError, match="1 of 2 scores are 0 or below and have no logarithm"):
        positive([-1.0, 1.0])


def test_values_by_weighted_least_squares():
    rng = np.random.default_rng(2)
    score, sd = rng.normal(size=300), rng.uniform(0.2, 2.0, 300)
    frame = pd.DataFrame({"score": score, "value": rng.normal(0.5 + 2 * score, sd), "noise_sd": sd})
    weight = sd**-2.0
    at = np.array([-1.0, 0.3])
    line = np.polyfit(score, frame["value"], 1, w=1 / sd)
    np.testing.assert_allclose(fit_one("platt", frame)(at), np.polyval(line, at))
    mean = np.average(frame["value"], weights=weight)
    np.testing.assert_allclose(fit_one("constant", frame)(at), mean)
    steps = fit_one("isotonic", frame)(np.sort(score))
    assert (np.diff(steps) >= 0).all()
    # the isotonic regression has the data's weighted mean
    own = fit_one("isotonic", frame)(score)
    assert np.average(own, weights=weight) == pytest.approx(mean)
    spline = fit_one("spline", frame)(score)
    slopes = stats.linregress(score, spline).slope
    assert slopes == pytest.approx(2.0, abs=0.3)


def test_items_of_any_source(tmp_path):
    frame = counts([0.1, 0.2, 0.3], [1, 2, 6], [10, 10, 10]).astype({"count": int})
    frame.columns = ["t", "clicks", "views"]
    frame.to_parquet(tmp_path / "ads.parquet")
    items = soc.PoissonItems(tmp_path / "ads.parquet", score="t", count="clicks", exposure="views")
    np.testing.assert_allclose(soc.evaluate.baseline("isotonic", items)([0.1, 0.3]), [0.1, 0.6])
    with pytest.raises(soc.FitError, match="no baseline 'beta'"):
        soc.evaluate.baseline("beta", items)
    with pytest.raises(soc.ItemsError, match="all 3 exposures are 0"):
        soc.evaluate.baseline(
            "platt",
            soc.PoissonItems(
                frame.assign(clicks=0, views=0), score="t", count="clicks", exposure="views"
            ),
        )


def test_platt_errs_as_its_information_says():
    """Errors over their standard errors have variance 1, over 10 sets of 500 items: 20 squares,
    within 4 standard deviations of their mean. Weights that are not the exposures make it 4."""
    z = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        score, exposure = rng.lognormal(-3, 1, 500), rng.uniform(0, 200, 500)
        frame = counts(score, rng.poisson(score * exposure), exposure)
        x = np.column_stack([np.log(score), np.ones(500)])
        information = (x * (score * exposure)[:, None]).T @ x
        away = np.array(slope_and_intercept(fit_one("platt", frame))) - [1.0, 0.0]
        z.append(np.linalg.cholesky(information).T @ away)
    assert np.mean(np.square(z)) == pytest.approx(1.0, abs=4 * np.sqrt(2 / 20))


@pytest.mark.parametrize("name", BASELINES)
def test_no_probability_is_0_or_1(name):
    """Half a success in 10 trials below, half a failure in 5 trials above, as by symmetry."""
    frame = pd.DataFrame({"t": [0.1, 0.5, 0.9], "y": [0, 3, 5], "n": [10, 6, 5]})
    items = soc.BinomialItems(frame, score="t", successes="y", trials="n")
    found = soc.evaluate.baseline(name, items)([0.1, 0.5, 0.9])
    assert ((found > 0) & (found < 1)).all()
    if name == "isotonic":
        np.testing.assert_allclose(found, [0.05, 0.5, 0.9])
    alike = soc.BinomialItems(frame.assign(y=frame["n"]), score="t", successes="y", trials="n")
    np.testing.assert_allclose(soc.evaluate.baseline(name, alike)([0.1, 0.9]), 1 - 0.5 / 21)
