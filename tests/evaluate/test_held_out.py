"""Outcomes divided at random or by folds, and estimates judged by what is held out."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import soc_pymc as soc
from soc_pymc.evaluate import baselines, held_out, leakage, split_items
from soc_pymc.families import OUTCOMES
from soc_pymc.posterior.predictive import posterior_of
from tests.checks.hand_made import (
    KINDS,
    as_items,
    hand_made_fit,
    moments_by_draw,
    simulate,
    true_moments,
)
from tests.examples import COUNT_ROLES, QUIET, count_frame, thinned
from tests.posterior.references import log_probability
from tests.studies.leakage import fresh_of, items_of, one, world


def known_items(case, n=20_000):
    """Returns items of the same theta with different sizes; outcomes use the first random numbers.

    Whole exposures are such that no count exceeds its exposure.
    """
    rng, theta = np.random.default_rng(0), 0.5
    if case == "values":
        noise, sd = rng.normal(size=n), rng.uniform(0.5, 2.0, n)
        frame = pd.DataFrame({"score": 0.0, "value": theta + sd * noise, "noise_sd": sd})
        return theta, as_items(frame, "values")
    size = np.random.default_rng(1).integers(40, 80, n)
    if case == "trials":
        frame = pd.DataFrame({"successes": rng.binomial(size, theta), "trials": size})
        return theta, as_items(frame.assign(score=theta), "trials")
    size = size + 0.25 * (case == "counts")
    frame = pd.DataFrame({"count": rng.poisson(theta * size), "exposure": size})
    assert (frame["count"] <= frame["exposure"]).all()
    return theta, as_items(frame.assign(score=theta))


@pytest.mark.parametrize("fraction", [0.1, 0.5])
@pytest.mark.parametrize("case", ["counts", "values", "trials", "counts in whole exposures"])
def test_halves_are_independent_given_theta(case, fraction):
    """Standardised residuals of 20,000 items: means 0, variances 1 and correlation 0, each within 4
    standard errors. The seed is that of the data, whose random numbers must not be used again.
    """
    theta, items = known_items(case)
    split, residuals = split_items(items, fraction, seed=0), []
    kind = "counts" if case.startswith("counts") else case
    outcome, size = KINDS[kind].roles[1:]
    for part in (split.train, split.test):
        frame = part.source
        law = KINDS[kind].likelihood(theta, frame[size].to_numpy())
        with np.errstate(invalid="ignore"):  # parts without any trial
            z = (frame[outcome].to_numpy() - law.mean()) / law.std()
        residuals.append(z)
    both = np.array(residuals)
    both = both[:, np.isfinite(both).all(axis=0)]
    n = both.shape[1]
    assert (np.abs(both.mean(axis=1)) < 4 / np.sqrt(n)).all()
    square = both**2
    assert (np.abs(square.mean(axis=1) - 1) < 4 * square.std(axis=1) / np.sqrt(n)).all()
    assert abs(np.corrcoef(both)[0, 1]) < 4 / np.sqrt(n)


@pytest.mark.parametrize("kind", KINDS)
def test_halves_add_up_row_by_row(kind):
    frame = simulate(500, 1, kind).fillna({"country": "none"})
    split = split_items(as_items(frame, kind, group="country"), 0.3, seed=1)
    train, test = split.train.source, split.test.source
    outcome, size = KINDS[kind].roles[1:]
    if kind == "values":
        both = 0.3 * test[outcome] + 0.7 * train[outcome]
        np.testing.assert_allclose(both, frame[outcome], rtol=1e-9, atol=1e-9)
        both = (test[size] ** -2.0 + train[size] ** -2.0) ** -0.5
        np.testing.assert_allclose(both, frame[size])
    else:
        for name in (outcome, size):
            np.testing.assert_allclose(train[name] + test[name], frame[name])
    assert train["score"].equals(test["score"])
    np.testing.assert_array_equal(test["group"], frame["country"])


def test_clusters_are_kept_and_warned_of():
    frame = simulate(300, 1).assign(campaign=np.arange(300) % 30)
    split = split_items(as_items(frame, cluster="campaign"), 0.3)
    for part in (split.train, split.test):
        np.testing.assert_array_equal(part.source[part.cluster], frame["campaign"].astype(str))
    with pytest.warns(soc.ItemsWarning, match="standard errors take items as independent"):
        held_out(hand_made_fit("counts"), split, bins=2, **QUIET)


def overall(result):
    return result.data["gain"].to_dataset().sel(bin=-1).to_dataframe()


@pytest.fixture(scope="module", params=thinned(KINDS, ["counts"]))
def judged(request):
    """Fits with the true curves and with a far too narrow prior, judged on a split; the kind."""
    kind = request.param
    fits = {"true": hand_made_fit(kind), "narrow": hand_made_fit(kind, second=-2.5)}
    split = split_items(as_items(simulate(6000, 7, kind), kind), 0.3, seed=2)
    return kind, fits, split, held_out(fits, split, bins=8, **QUIET)


def test_estimates_have_their_log_likelihoods(judged):
    """By SciPy, of the true prior's means and of posterior means in closed form."""
    kind, _, split, result = judged
    case, table = KINDS[kind], overall(result)
    y, size = (split.train.source[name].to_numpy() for name in case.roles[1:])
    new, new_size = (split.test.source[name].to_numpy() for name in case.roles[1:])
    mean, variance = true_moments(split.train.source, kind)
    narrow = moments_by_draw(hand_made_fit(kind, sd=0.0, second=-2.5), split.train.source, kind)
    estimates = {
        "t": split.train.source["score"].to_numpy(),
        "true: E(theta | t)": mean,
        "true: E(theta | t, y)": case.update(mean, variance, y, size),
        "narrow: E(theta | t, y)": case.update(narrow[0][0], narrow[1][0], y, size),
    }
    for name, estimate in estimates.items():
        law = case.likelihood(estimate, new_size)
        each = log_probability(law, new)
        assert table.loc[name, "log_likelihood"] == pytest.approx(each.sum(), rel=1e-5)


def test_the_truth_gains_most(judged):
    """Its posterior mean, by more than 20 nats over all that does not use the item's outcome."""
    table = overall(judged[3])
    assert table["gain"].idxmax() == "true: E(theta | t, y)"
    best = table.loc["true: E(theta | t, y)"]
    others = table.drop(index=["true: E(theta | t, y)", "narrow: E(theta | t, y)"])
    assert (best["gain"] - others["gain"] > 20).all()
    assert table.loc["t", ["gain", "standard_error", "gain_percent"]].tolist() == [0, 0, 0]
    # baselines have room for most of what E(theta | t) has, and a constant has not
    assert table.loc["spline", "gain"] > 0.9 * table.loc["true: E(theta | t)", "gain"]
    assert table.loc["constant", "gain"] < table.loc["platt", "gain"]


def test_predictive_pit_is_uniform_under_the_true_prior_alone(judged):
    kind, _, split, result = judged
    pit = result.table[result.table["what"].str.startswith("PIT")]
    true, narrow = (pit[pit["what"] == f"PIT of {name}"] for name in ("true", "narrow"))
    assert (true["p"] > 0.01).all()
    assert narrow["p"].min() < 2e-3
    assert "fail" in set(narrow["verdict"])
    assert set(true["verdict"]) <= {"ok", "warn"}
    if kind == "counts":
        assert true["n"].tolist() == [6000, (split.test.source["exposure"] >= 25).sum()]
    ecdf = result.data["pit"]["randomised"].sel(fit="true", slice="all items")
    assert float(abs(ecdf).max()) == pytest.approx(true["value"].iloc[0], rel=0.2)  # on a grid


def test_gains_by_hand(judged):
    """Gains of the last bin with their errors; percentages are of t's likelihood by the delta
    method, and for values of its squared error.
    """
    kind, _, split, result = judged
    case, gains = KINDS[kind], result.data["gain"].to_dataset()
    test = split.test.source
    new, size = (test[name].to_numpy() for name in case.roles[1:])
    last = np.argsort(np.argsort(test["score"].to_numpy(), kind="stable")) >= 7 * len(test) / 8
    mean, _ = true_moments(test, kind)
    laws = [case.likelihood(estimate, size) for estimate in (mean, test["score"].to_numpy())]
    each = [log_probability(law, new) for law in laws]
    gain = (each[0] - each[1])[last]
    base = -each[1]
    if kind in ("values", "amounts"):  # less what theta at the outcome itself has
        own = new if kind == "values" else new / np.maximum(size, 1.0)
        base = base + log_probability(case.likelihood(own, size), new)
    base = np.asarray(base)[last]
    row = {name: x.item() for name, x in gains.sel(estimator="true: E(theta | t)", bin=7).items()}
    root = np.sqrt(last.sum())
    assert row["items"] == last.sum()
    assert row["gain"] == pytest.approx(gain.sum(), rel=1e-3)
    assert row["standard_error"] == pytest.approx(gain.std(ddof=1) * root, rel=1e-3)
    percent = 100 * gain.sum() / base.sum()
    assert row["gain_percent"] == pytest.approx(percent, rel=1e-3)
    error = 100 * (gain - percent / 100 * base).std(ddof=1) * root / base.sum()
    assert row["gain_percent_se"] == pytest.approx(error, rel=1e-3)
    np.testing.assert_allclose(gains["gain"][:, 1:].sum("bin"), gains["gain"].sel(bin=-1))
    assert gains["items"][1:].sum() == gains["items"].sel(bin=-1)
    table = result.table[result.table["what"] == "% gain of true: E(theta | t)"]
    shown = table.iloc[-1]
    assert table["where"].iloc[0] == "all items"
    assert shown["value"] == row["gain_percent"]
    assert shown["high"] - shown["value"] == pytest.approx(1.645 * row["gain_percent_se"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["groups", "exposure"])
def test_estimates_are_at_each_items_own_group_and_exposure(example, name):
    fit, items = example(name).fit, example(name).items
    split = split_items(items, 0.3, seed=1)
    table = overall(held_out(fit, split, bins=2, **QUIET))
    mean = soc.item_posteriors(fit, split.train, draws="all", **QUIET)["theta_mean"]
    test = split.test.source
    direct = stats.poisson.logpmf(test["count"], mean * test["exposure"]).sum()
    # posteriors at a grid of curves are within 1e-3 sd
    assert table.loc["E(theta | t, y)", "log_likelihood"] == pytest.approx(direct, rel=1e-5)


def test_gains_are_over_the_constant_where_scores_are_no_rates():
    frame = simulate(1500, 1)
    split = split_items(as_items(frame.assign(score=frame["score"] - 0.03)), seed=0)
    line = soc.Spline(scale="linear")
    fit = soc.fit(soc.summarize(split.train, **QUIET), soc.Gamma(line, line), **QUIET)
    table = overall(held_out(fit, split, **QUIET))
    assert table.index[0] == "constant"
    assert "t" not in table.index
    direct = table["log_likelihood"] - table.loc["constant", "log_likelihood"]
    np.testing.assert_allclose(table["gain"], direct, atol=1e-9)


def test_one_item_has_no_standard_error():
    split = split_items(as_items(simulate(1, 1)), seed=0)
    (advice,) = held_out(hand_made_fit(), split, **QUIET).advice
    assert advice.endswith("nats, of one item, which has no standard error.")


def test_baselines_are_regressions():
    """Isotonic rates pooled by exposure; a Poisson regression of rates without noise is exact."""
    frame = pd.DataFrame({"score": [1, 2, 3, 4], "count": [0, 3, 1, 8], "exposure": [9, 10, 30, 9]})
    rates = baselines(frame, OUTCOMES["poisson"], np.arange(1.0, 5.0))["isotonic"]
    np.testing.assert_allclose(rates, [0.5 / 9, 0.1, 0.1, 8 / 9])
    falling = frame.assign(score=5 - frame["score"])
    again = baselines(falling, OUTCOMES["poisson"], np.arange(1.0, 5.0))["isotonic"]
    np.testing.assert_allclose(again, rates[::-1])
    score = np.geomspace(0.001, 0.5, 40)
    count = np.round(1e9 * 1.5 * score**0.7)
    frame = pd.DataFrame({"score": score, "count": count, "exposure": 1e9})
    rates = baselines(frame, OUTCOMES["poisson"], score)["platt"]
    np.testing.assert_allclose(rates, 1.5 * score**0.7, rtol=1e-5)


@pytest.mark.slow
def test_cross_validation_is_that_of_the_items():
    """Fold by fold: the density of its items at the mean curves of a fit to the others."""
    frame = count_frame(6000, 4).assign(half=np.arange(6000) % 2)
    items = soc.PoissonItems(frame, **COUNT_ROLES, fold="half")
    stats = soc.summarize(items, bins=100, **QUIET)
    table = soc.evaluate.cross_validate(stats, method=soc.FiveSteps(), **QUIET)
    assert list(table["items"]) == [3000, 3000]
    for fold in (0, 1):
        train, test = frame[frame["half"] != fold], frame[frame["half"] == fold]
        others = soc.summarize(soc.PoissonItems(train, **COUNT_ROLES), edges=stats.edges, **QUIET)
        fit = soc.fit(others, method=soc.FiveSteps(), **QUIET)
        columns = {name: test[name].to_numpy(dtype=float) for name in COUNT_ROLES}
        direct = posterior_of(fit).log_density(columns).sum()
        assert table.loc[fold, "elpd"] == pytest.approx(direct, abs=5.0)
    few, vi = soc.Spline(knots=4), soc.VI(draws=100)
    priors = soc.Gamma(few, few), soc.Gamma(few, soc.Spline(knots=1, level=(-4.0, 0.01)))
    sums = [soc.evaluate.cross_validate(stats, p, vi, **QUIET)["elpd"].sum() for p in priors]
    assert sums[0] > sums[1] + 10


def leaky(frame, share, rows=slice(None)):
    """Returns items whose score is in part their outcome's own estimate of theta."""
    rate = frame["value"] if "value" in frame else frame["count"] / frame["exposure"]
    mixed = frame["score"].copy()
    mixed[rows] = share * rate[rows] + (1 - share) * frame["score"][rows]
    return frame.assign(score=mixed)


def leaks(result):
    return "fail" in set(result.table["verdict"])


def evidence(result):
    return result.table.set_index("where").assign(z=result.data["z"].to_numpy())


WORLDS = ["s1", "informative", "coarse", "sure", "trials", "values"]


@pytest.mark.parametrize("kind", thinned(WORLDS, ["informative"]))
def test_honest_scores_raise_no_alarm(kind):
    """Tests of 5% on two pieces of evidence: none of three fixed seeds raises an alarm."""
    for seed in (3, 4, 5):
        frame = world(2000, seed, kind)
        result = leakage(items_of(frame), fresh=items_of(fresh_of(frame)))
        assert not leaks(result), result


@pytest.mark.slow
def test_false_alarms_have_their_level():
    """Of 40 honest sets at most 6 alarms on tests of 5% (P = .01), on outcomes alone."""
    found = [
        leaks(leakage(items_of(world(2000, seed, kind))))
        for kind in ("s1", "values")
        for seed in range(10, 30)
    ]
    assert sum(found) <= 6


def test_heavy_leaks_show_in_outcomes_alone():
    """Half of the score is the outcome: of all items, of values, of small exposures alone."""
    frame = world(2000, 0)
    result = evidence(leakage(items_of(leaky(frame, 0.5)))).loc["outcomes alone"]
    assert result["z"] > 4
    assert result["value"] < 0.8
    assert leaks(leakage(items_of(leaky(world(2000, 0, "values"), 0.5))))
    frame = world(3000, 0)
    few = items_of(leaky(frame, 0.5, frame["exposure"] <= 8))
    assert leaks(leakage(few))
    assert soc.summarize(few, on_leakage="ignore", progress=False).leakage_z > -4
    assert not leaks(leakage(soc.summarize(items_of(frame), progress=False)))


def test_light_leaks_show_in_fresh_outcomes():
    """A tenth of the score is the outcome: nothing alone, much against fresh outcomes."""
    frame = leaky(world(3000, 1), 0.1)
    table = evidence(leakage(items_of(frame), fresh=items_of(fresh_of(frame))))
    assert table["verdict"].to_list() == ["ok", "fail"]
    assert table.loc["fresh outcomes", "value"] < 0.97


@pytest.mark.parametrize(("share", "factor"), [(0.0, 2.0), (0.1, 20.0)])
def test_a_common_factor_is_no_leak_and_hides_none(share, factor):
    """Fresh rates that are all higher by a factor, at exposures that grow or shrink with t."""
    frame, rng = leaky(world(3000, 0), share), np.random.default_rng(0)
    moved = frame["exposure"] * np.where((frame["score"] > 0.05) == (share == 0), 1.0, 0.2)
    later = frame.assign(count=rng.poisson(factor * frame["theta"] * moved), exposure=moved)
    table = evidence(leakage(items_of(frame), fresh=items_of(later)))
    assert (table.loc["fresh outcomes", "verdict"] == "fail") == bool(share)


def test_in_sample_scores_differ_from_out_of_fold_ones():
    """Leaves of 20 items against five folds, each scored by a model of the others."""
    alarms = one("leaves of 20", 3000, 0)
    assert alarms["out-of-fold scores"]
    assert alarms["any of them"]
    frame = world(300, 0)
    with pytest.raises(soc.ItemsError, match="another score"):
        leakage(items_of(frame), fresh=items_of(frame.iloc[::-1]))
