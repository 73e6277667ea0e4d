"""Totals of theta: against joint draws, their parts, shared curves, and chosen items' coverage."""

import numpy as np
import pandas as pd
import pytest
from scipy import integrate

import soc_pymc as soc
from soc_pymc import decisions as dec
from soc_pymc.evaluate.decisions import totals
from soc_pymc.families.family import BETA, GAMMA, NORMAL
from soc_pymc.posterior.predictive import posterior_of

QUIET = {"progress": False}
VALUES = {"score": "t", "value": "y", "noise_sd": "s"}
COUNTS = {"score": "t", "count": "y", "exposure": "N"}
TRIALS = {"score": "t", "successes": "y", "trials": "N"}


@pytest.mark.parametrize(
    ("family", "parameters", "inside"),
    [(GAMMA, (1.7, 4.0), (0.0, 20.0)), (BETA, (1.5, 4.0), (0.0, 1.0)), (NORMAL, (0.3, 2.0), None)],
    ids=lambda x: getattr(x, "name", ""),
)
def test_third_moments_are_integrals(family, parameters, inside):
    """E[(theta - E theta)^3] is -3 times integrals of tails; the Normal has none."""
    first, second = (np.array([[p]]) for p in parameters)
    if inside is None:
        assert family.third(first, second) == 0.0
        return
    mean = family.mean(*parameters)

    def slope(theta):
        tail = family.above(np.array([theta]), first, second).item()
        return 3.0 * (theta - mean) ** 2 * tail

    wanted = integrate.quad(slope, *inside, epsabs=1e-12)[0] + (inside[0] - mean) ** 3
    assert family.third(*parameters) == pytest.approx(wanted, rel=1e-7)


# --- against joint draws -------------------------------------------------------------------------


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


def test_totals_are_those_of_joint_draws(small_fit, small_frame):
    frame = parts_of(small_frame.iloc[:80].reset_index(drop=True))
    roles = {"score": "score", "count": "count", "exposure": "exposure"}
    agree_with_draws(small_fit, soc.PoissonItems(frame, **roles))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zero", "mixed values", "trials", "groups", "exposure"])
def test_other_totals_are_those_of_joint_draws(kind, request):
    rng, n = np.random.default_rng(2), 1500
    t = rng.uniform(0.05, 0.9, n)
    size = rng.integers(1, 30, n).astype(float)
    if kind in ("groups", "exposure"):
        items = request.getfixturevalue("grouped_items" if kind == "groups" else "small_items")
        fit = request.getfixturevalue(f"{'grouped' if kind == 'groups' else kind}_fit")
        frame, roles, make = items.source, items.roles, soc.PoissonItems
        if kind == "groups":  # a new group's curves are shared by its items too
            frame = frame.assign(kind=np.where(np.arange(len(frame)) % 2, "new", frame["kind"]))
    else:
        if kind == "zero":
            theta = t * rng.gamma(2.0, 0.5, n) * (rng.random(n) < 0.6)
            y, make, roles, prior = rng.poisson(theta * size), soc.PoissonItems, COUNTS, "Gamma"
        elif kind == "trials":
            y = rng.binomial(size.astype(int), rng.beta(3 * t, 3 * (1 - t)))
            make, roles, prior = soc.BinomialItems, TRIALS, "Beta"
        else:
            y = rng.normal(t + rng.laplace(size=n), 0.5)
            make, roles, prior = soc.NormalItems, VALUES, "Normal"
        frame = pd.DataFrame({"t": t, "y": y, "N": size, "s": 0.5})
        mixed = {"zero": soc.GammaMixture(zero=True), "mixed values": soc.NormalMixture()}
        own = mixed.get(kind, getattr(soc, prior)())
        fit = soc.fit(soc.summarize(make(frame, **roles), joint=True, **QUIET), own, **QUIET)
    agree_with_draws(fit, make(parts_of(frame.iloc[:80].reset_index(drop=True)), **roles))


# --- what they are made of -----------------------------------------------------------------------


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


def value_fit(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    t, s = rng.normal(size=n), rng.uniform(0.3, 1.0, n)
    frame = pd.DataFrame({"t": t, "y": rng.normal(rng.normal(t, 0.5), s), "s": s})
    items = soc.NormalItems(frame, **VALUES)
    return soc.fit(soc.summarize(items, **QUIET), method=soc.FiveSteps(), **QUIET), items


def test_a_total_of_values_is_normal_given_the_curves():
    """One draw of the curves, any number of items: the Normal with the sum's moments."""
    fit, items = value_fit()
    frame = items.source.head(30).assign(own=np.repeat(np.arange(6), 5))
    some = soc.NormalItems(frame, **VALUES)
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
    none = dec.total(small_fit, items, weights=np.zeros(300), threshold=0.0, **QUIET)
    assert (none.drop(columns="items") == 0.0).all(axis=None)


def test_totals_do_not_depend_on_how_work_is_cut(small_fit, small_items, monkeypatch):
    frame = small_items.source.head(400).assign(g=np.arange(400) % 37 // 2)
    items = soc.PoissonItems(frame, **small_items.roles)
    whole = dec.total(small_fit, items, by="g", **QUIET)
    monkeypatch.setattr(totals, "_HELD", 3 * totals._DRAWS)  # three totals at a time
    monkeypatch.setattr(totals, "items_at_once", lambda fit: 7)
    parts = dec.total(small_fit, items, by="g", **QUIET)
    assert list(whole["items"]) == list(frame["g"].value_counts().sort_index())
    pd.testing.assert_frame_equal(parts, whole, rtol=1e-9)


# --- the best of many ----------------------------------------------------------------------------


def value_programmes(rng, n):
    t = rng.normal(0.0, 0.3, n)
    theta, s = rng.normal(0.5 * t, 0.4), rng.choice([0.3, 0.6, 1.0], n)
    frame = pd.DataFrame({"t": t, "y": rng.normal(theta, s), "s": s, "theta": theta})
    return soc.NormalItems(frame, **VALUES), frame["y"], frame["s"] ** 2


def count_programmes(rng, n):
    t, exposure = np.exp(rng.normal(-3.0, 0.5, n)), np.ceil(np.exp(rng.normal(3.5, 1.0, n)))
    theta = rng.gamma(2.0, t / 2.0)
    y = rng.poisson(theta * exposure)
    frame = pd.DataFrame({"t": t, "y": y, "N": exposure, "theta": theta})
    return soc.PoissonItems(frame, **COUNTS), y / exposure, (y + 1) / exposure**2


@pytest.mark.slow
@pytest.mark.parametrize("make", [value_programmes, count_programmes])
def test_totals_of_the_best_are_right(make):
    """The 50 best of 2,000 by their posteriors, 300 times: 90% intervals hold the truth.

    The standard error of a coverage of 0.9 is 0.017, so 0.85 to 0.95 is 2.9 of them. The sum of the
    best outcomes is far too large.
    """
    sets, n, best = 300, 2000, 50
    items, estimate, noise = make(np.random.default_rng(11), sets * n)
    fit = soc.fit(soc.summarize(items, **QUIET), method=soc.FiveSteps(), **QUIET)
    frame = items.source.assign(programme=np.repeat(np.arange(sets), n))
    frame["estimate"], frame["noise"] = estimate, noise
    scored = soc.item_posteriors(fit, soc_items(items, frame), **QUIET)
    covered = {}
    for rule in ("theta_mean", "theta_q95"):  # a choice by any function of the posterior
        top = scored.sort_values(rule).groupby("programme").tail(best)
        found = dec.total(fit, soc_items(items, top), by="programme", **QUIET)
        truth = top.groupby("programme")["theta"].sum()
        covered[rule] = ((found["q05"] < truth) & (truth < found["q95"])).mean()
        bias = (found["mean"] - truth) / found["sd"]
        assert abs(bias.mean()) < 4 / np.sqrt(sets)
    assert all(0.85 < share < 0.95 for share in covered.values()), covered
    top = frame.sort_values("estimate").groupby("programme").tail(best)
    naive = top.groupby("programme")[["estimate", "theta", "noise"]].sum()
    z = (naive["estimate"] - naive["theta"]) / np.sqrt(naive["noise"])
    assert z.mean() > 3.0
    assert (z.abs() < 1.645).mean() < 0.1


def soc_items(like, frame):
    return type(like)(frame, **like.roles)
