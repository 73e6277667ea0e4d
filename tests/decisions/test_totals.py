"""Totals of theta: against joint draws, their parts, shared curves, and chosen items' coverage."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import gamma

import soc_pymc as soc
from soc_pymc import decisions as dec
from soc_pymc.checks.observations import thin
from soc_pymc.families.family import NORMAL
from soc_pymc.posterior.curves import with_posterior
from soc_pymc.posterior.predictive import posterior_of
from tests.examples import CASES, QUIET, VALUE_ROLES
from tests.studies.common import counts, gamma_counts
from tests.thinning import thinned

NAMES = ("gamma", "normal", "beta", "gamma_mixture", "groups", "zeros")


def agree_with_draws(fit, items, draws=20_000):
    """Mean, sd, quantiles and P(> threshold) of weighted totals against joint draws of theta."""
    frame = items.source
    theta = dec.thompson_draws(fit, items, draws, seed=7, **QUIET).to_numpy()
    cut = float(theta.mean() * frame.groupby("part")["w"].sum().iloc[0])
    options = {"weights": "w", "by": "part", "threshold": cut, "quantiles": (0.05, 0.5, 0.95)}
    found = dec.total(fit, items, **options, **QUIET)
    for label, row in found.iterrows():
        mine = frame["part"].to_numpy() == label
        drawn = theta[:, mine] @ frame.loc[mine, "w"].to_numpy()
        error = row["sd"] / np.sqrt(draws)
        assert row["items"] == mine.sum()
        assert row["mean"] == pytest.approx(drawn.mean(), abs=4.5 * error)
        # a variance of draws has a relative standard error of sqrt((kurtosis - 1) / draws)
        tails = np.sqrt((((drawn - drawn.mean()) / drawn.std()) ** 4).mean() / draws)
        assert row["sd"] ** 2 == pytest.approx(drawn.var(), rel=5 * tails)
        # a share of 20,000 draws has a standard error of at most 0.0035, at 0.05 of 0.0015; two
        # sets of draws where the items are few; the shape itself is right to 0.005
        for prob, name in ((0.05, "q05"), (0.5, "q50"), (0.95, "q95")):
            # theta may be 0 with some probability
            assert (drawn < row[name]).mean() - 0.018 < prob < (drawn <= row[name]).mean() + 0.018
        assert row["probability_above"] == pytest.approx((drawn > cut).mean(), abs=0.018)


def parts_of(frame, seed=1):
    """Totals of 1, 4 and 40 items, and of the rest, with weights of which some are negative."""
    part = np.repeat(["one", "four", "forty", "rest"], [1, 4, 40, len(frame) - 45])
    weight = np.random.default_rng(seed).uniform(0.5, 3.0, len(frame))
    weight[10:20] *= -1.0
    return frame.assign(part=part, w=weight)


@pytest.mark.parametrize("name", thinned(NAMES, ["gamma"]))
def test_totals_are_those_of_joint_draws(example, name):
    frame = parts_of(example(name).frame.iloc[:80].reset_index(drop=True))
    if name == "groups":  # the curves of a new group are shared by its items too
        frame.loc[::2, "kind"] = "new"
    agree_with_draws(example(name).fit, CASES[name].items(frame))


def test_parts_of_the_sd(small_fit, small_items):
    """Items share the curves: their sds neither add up nor average out."""
    items = soc.PoissonItems(small_items.source.head(500), **small_items.roles)
    columns = {role: items.source[name].to_numpy(float) for role, name in items.roles.items()}
    means, variances, _ = posterior_of(small_fit).moments(columns)
    found = dec.total(small_fit, items, **QUIET).loc["all items"]
    assert found["mean"] == pytest.approx(means.sum(axis=1).mean(), rel=1e-12)
    assert found["sd_curves"] == pytest.approx(means.sum(axis=1).std(), rel=1e-9)
    own = variances.sum(axis=1).mean()
    assert found["sd"] ** 2 == pytest.approx(own + found["sd_curves"] ** 2, rel=1e-12)
    table = soc.item_posteriors(small_fit, items, draws="all", **QUIET)
    assert found["mean"] == pytest.approx(table["theta_mean"].sum(), rel=1e-9)
    apart = np.sqrt((table["theta_sd"] ** 2).sum())
    assert found["sd"] > 1.15 * apart


def one_draw(fit):
    """Returns the fit with its first draw alone."""
    return with_posterior(fit, fit.data["posterior"].to_dataset().isel(chain=[0], draw=[0]))


def test_a_total_of_equal_counts_is_a_gamma_given_the_curves(small_fit):
    """Twelve items of one posterior, in units in which theta is small and large."""
    for score, count, exposure in ((1e-4, 0, 5.0), (0.05, 3, 40.0), (20.0, 7, 0.5)):
        columns = {"score": [score] * 12, "count": count, "exposure": exposure}
        fit, items = one_draw(small_fit), counts(pd.DataFrame(columns))
        curves = soc.calibration_curves(fit, [score])
        shape, rate = (float(curves[name].squeeze()) for name in ("shape", "rate"))
        law = gamma(12 * (shape + count), scale=1.0 / (rate + exposure))
        cut = law.ppf(0.8)
        row = dec.total(fit, items, threshold=cut, **QUIET).loc["all items"]
        names = ["mean", "sd", "q05", "q95", "probability_above"]
        expected = [law.mean(), law.std(), law.ppf(0.05), law.ppf(0.95), 0.2]
        assert row[names].tolist() == pytest.approx(expected, rel=1e-5)


def test_a_total_of_values_is_normal_given_the_curves(example):
    """One draw of the curves, any number of items: the Normal with the sum's moments."""
    fit, items = one_draw(example("normal").fit), example("normal").items
    frame = items.source.head(30).assign(own=np.repeat(np.arange(6), 5))
    some = soc.NormalItems(frame, **VALUE_ROLES)
    scored = soc.item_posteriors(fit, some, quantiles=(0.1, 0.975), draws="all", **QUIET)
    one = dec.total(fit, some, by=np.arange(30), quantiles=(0.1, 0.975), **QUIET)
    assert one["q10"].to_numpy() == pytest.approx(scored["theta_q10"].to_numpy(), abs=1e-5)
    assert one["q97_5"].to_numpy() == pytest.approx(scored["theta_q97_5"].to_numpy(), abs=1e-5)
    five = dec.total(fit, some, by="own", mean=True, threshold=0.0, **QUIET)
    mean = scored["theta_mean"].to_numpy().reshape(6, 5).mean(axis=1)
    sd = np.sqrt((scored["theta_sd"].to_numpy() ** 2).reshape(6, 5).sum(axis=1)) / 5
    assert five["mean"].to_numpy() == pytest.approx(mean, rel=1e-9)
    assert five["q95"].to_numpy() == pytest.approx(mean + 1.6448536 * sd, abs=1e-5)
    above = NORMAL.above(np.zeros(6), mean, sd**2)
    assert five["probability_above"].to_numpy() == pytest.approx(above, abs=1e-5)
    assert (five["sd_curves"] == 0.0).all()
    assert five.index.name == "own"


def test_weights_and_labels(small_fit, small_items):
    small_fit = thin(small_fit, 100)
    frame = small_items.source.head(300)
    items = soc.PoissonItems(frame, **small_items.roles)
    weight, label = np.linspace(1.0, 2.0, 300), np.array(["b", "a", None] * 100, dtype=object)
    found = dec.total(small_fit, items, weights=weight, by=label, threshold=6.0, **QUIET)
    assert list(found.index) == ["a", "b", "missing"]
    # the same in another unit and order, of columns
    mixed = frame.assign(w=1e60 * weight, g=label).sample(frac=1.0, random_state=1)
    items = soc.PoissonItems(mixed, **small_items.roles)
    other = dec.total(small_fit, items, weights="w", by="g", threshold=6e60, **QUIET)
    scaled = ["mean", "sd", "sd_curves", "q05", "q95"]
    other[scaled] /= 1e60
    pd.testing.assert_frame_equal(other, found, check_names=False, rtol=1e-7)
    mean = dec.total(small_fit, items, weights="w", by="g", mean=True, **QUIET)
    sums = [weight[at::3].sum() for at in (1, 0, 2)]
    share = found[scaled].div(sums, axis=0)
    pd.testing.assert_frame_equal(mean[scaled], share, check_names=False, rtol=1e-7)
    named = mixed.rename(columns={"exposure": "N"}).assign(exposure=-1.0)
    of_role = soc.PoissonItems(named, **small_items.roles | {"exposure": "N"})
    clicks = dec.total(small_fit, of_role, weights="exposure", **QUIET)
    pd.testing.assert_frame_equal(clicks, dec.total(small_fit, of_role, weights="N", **QUIET))
    none = dec.total(small_fit, items, weights=np.zeros(300), threshold=0.0, **QUIET)
    assert (none.drop(columns="items") == 0.0).all(axis=None)


def value_programmes(rng, n):
    t = rng.normal(0.0, 0.3, n)
    theta, s = rng.normal(0.5 * t, 0.4), rng.choice([0.3, 0.6, 1.0], n)
    frame = {"score": t, "value": rng.normal(theta, s), "noise_sd": s, "theta": theta}
    return soc.NormalItems(pd.DataFrame(frame), **VALUE_ROLES), frame["value"], s**2


def count_programmes(rng, n):
    t, exposure = np.exp(rng.normal(-3.0, 0.5, n)), np.ceil(np.exp(rng.normal(3.5, 1.0, n)))
    frame = gamma_counts(rng, t, exposure, t, 0.5)
    y = frame["count"].to_numpy()
    return counts(frame), y / exposure, (y + 1) / exposure**2


@pytest.mark.slow
@pytest.mark.parametrize("make", [value_programmes, count_programmes])
def test_totals_of_the_best_are_right(make):
    """The 30 best of 1,000 by their posteriors, 200 times: 90% intervals hold the truth.

    The standard error of a coverage of 0.9 is 0.021, so 0.84 to 0.96 is 2.9 of them. The sum of the
    best outcomes is far too large.
    """
    sets, n, best = 200, 1000, 30
    items, estimate, noise = make(np.random.default_rng(11), sets * n)
    fit = soc.fit(soc.summarize(items, **QUIET), method=soc.FiveSteps(), **QUIET)
    frame = items.source.assign(programme=np.repeat(np.arange(sets), n))
    frame["estimate"], frame["noise"] = estimate, noise
    scored = soc.item_posteriors(fit, like_items(items, frame), **QUIET)
    covered = {}
    for rule in ("theta_mean", "theta_q95"):  # a choice by any function of the posterior
        top = scored.sort_values(rule).groupby("programme").tail(best)
        found = dec.total(fit, like_items(items, top), by="programme", **QUIET)
        truth = top.groupby("programme")["theta"].sum()
        covered[rule] = ((found["q05"] < truth) & (truth < found["q95"])).mean()
        bias = (found["mean"] - truth) / found["sd"]
        assert abs(bias.mean()) < 4 / np.sqrt(sets)
    assert all(0.84 < share < 0.96 for share in covered.values()), covered
    top = frame.sort_values("estimate").groupby("programme").tail(best)
    naive = top.groupby("programme")[["estimate", "theta", "noise"]].sum()
    z = (naive["estimate"] - naive["theta"]) / np.sqrt(naive["noise"])
    assert z.mean() > 3.0
    assert (z.abs() < 1.645).mean() < 0.1


def like_items(items, frame):
    return type(items)(frame, **items.roles)
