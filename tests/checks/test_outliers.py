"""Items that lie far out: which they are, and what a robust prior would make of them."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import soc_pymc as soc
from tests.examples import QUIET

ERRORS = {10: 6.0, 500: -5.0, 900: 3.0}  # of values, about 12, 9 and 7 sds

ROBUST = ("theta_mean", "robust_mean")


@pytest.fixture(scope="module")
def table():
    """Effects of which three have gross errors."""
    rng = np.random.default_rng(1)
    score = rng.normal(size=1500)
    noise = rng.uniform(0.1, 0.4, 1500)
    theta = score + 0.2 * rng.normal(size=1500)
    value = theta + noise * rng.normal(size=1500)
    value[list(ERRORS)] += list(ERRORS.values())
    kind = rng.choice(["a", "b"], 1500)
    columns = {"score": score, "theta": theta, "value": value, "noise": noise, "kind": kind}
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def items(table):
    roles = {"score": "score", "value": "value", "noise_sd": "noise", "group": "kind"}
    return soc.NormalItems(table, **roles)


@pytest.fixture(scope="module")
def checked(items):
    fit = soc.fit(soc.summarize(items, joint=True, **QUIET), soc.Normal(groups=False), **QUIET)
    return soc.check(fit, items, **QUIET)


def test_gross_errors_come_first(checked, table):
    worst = checked.worst(4)
    assert [*worst.index[:3]] == [10, 500, 900]
    assert (worst["by_chance"] < 0.01).tolist() == [True, True, True, False]
    np.testing.assert_array_equal(worst["kind"], table["kind"][worst.index])
    # p is 2 P(Z > |z|); the curves are not exact, which changes |z| by less than 10%
    z = stats.norm.isf(worst["p"][2:] / 2)
    np.testing.assert_allclose(np.abs(worst["sds"][2:]), z, rtol=0.1)
    # a mixture gains 93 nats, with an error of 37, as long as the three are in its fit
    assert "Chance does not explain 3 outcomes" in checked.advice[0]
    (mixture,) = (remedy for remedy in checked.remedies if remedy.nats > 0)
    assert mixture.check == "shape"


def test_a_robust_prior_leaves_errors_alone_and_helps_the_others(checked, table):
    """Errors keep 95% of their distance; the others are pulled harder, nearer to the truth."""
    worst = checked.worst(100)
    gap = (worst["estimate"] - worst["expected"])[:3]
    pulled = {name: (worst["estimate"] - worst[name])[:3] / gap for name in ROBUST}
    assert (pulled["robust_mean"] < 0.05).all()
    assert (pulled["theta_mean"] > 0.1).all()
    # seeds 1 to 6: 4 to 8% less squared error
    gains = checked.outliers.gains
    robust = gains.robust_means(gains.items)
    single = gains.posterior.moments(gains.items.columns)[0].mean(axis=0)
    others = ~table.index.isin(list(ERRORS))
    errors = [np.mean((x - table["theta"])[others] ** 2) for x in (robust, single)]
    assert errors[0] < 0.98 * errors[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["counts", "successes"])
def test_a_planted_item_of_every_kind_is_named(kind, example):
    case = example({"counts": "gamma", "successes": "beta"}[kind]).case
    frame = case.frame().copy()
    outcome = case.items(frame).roles[case.items(frame).outcome.observed]
    size = case.items(frame).roles[case.items(frame).outcome.size]
    row = int(frame[size].to_numpy().argmax())
    frame.loc[frame.index[row], outcome] = frame[size].iloc[row]
    worst = soc.check(case.fit(), case.items(frame), **QUIET).worst(1)
    assert worst.index[0] == row


@pytest.mark.slow
def test_statistics_have_no_items_to_list(items):
    stats_of = soc.summarize(items, joint=True, **QUIET)
    result = soc.check(soc.fit(stats_of, soc.Normal(groups=False), **QUIET), stats_of, **QUIET)
    with pytest.raises(soc.FitError, match="no items"):
        result.worst()
    with pytest.raises(soc.FitError, match="no items"):
        soc.plots.plot_outliers(result)


def test_items_that_sway_a_fit_are_counted():
    """Both planted items have Pareto k above 0.7 and are the farthest; a subset counts its own."""
    frame = soc.simulation.s1(100, seed=1)
    frame.loc[[46, 51], "count"] = 20 + 3 * frame.loc[[46, 51], "exposure"]
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    fit = soc.fit(soc.summarize(items, joint=True, **QUIET), **QUIET)
    result = soc.check(fit, items, **QUIET)
    (advice,) = (remedy.sentence for remedy in result.remedies if remedy.check == "sway")
    assert advice.startswith("The fit is swayed by 2 of 100 items (Pareto k above 0.7, up to 1.")
    swaying = np.flatnonzero(result.loo.pareto_k > 0.7)
    assert {*swaying} == {*result.worst(2).index} == {46, 51}
    half = soc.check(fit, items, subset=50, **QUIET)
    assert any("by 1 of 50 random items (" in sentence for sentence in half.advice)
