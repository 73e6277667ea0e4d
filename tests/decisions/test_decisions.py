"""Decisions from fits: agreement with posteriors, shared curves, laws, and simulated truth."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import integrate, stats

import soc_pymc as soc
from soc_pymc import decisions as dec
from soc_pymc.families import NORMAL
from soc_pymc.fits import with_draws
from soc_pymc.posterior.predictive import posterior_of
from tests.examples import CASES, COUNT_ROLES, QUIET, VALUE_ROLES, thinned
from tests.posterior.references import thinned_fit
from tests.studies.common import counts as count_items
from tests.studies.common import gamma_counts

NAMES = ("gamma", "normal", "beta", "normal_mixture", "groups", "zeros")


def with_curves(fit, log_mean, log_cv2):
    """The fit with given draws of curves that do not depend on the score, one a number."""
    posterior = fit.data["posterior"].to_dataset().isel(chain=[0], draw=np.arange(len(log_mean)))
    for name, values in (("log_mean", log_mean), ("log_cv2", log_cv2)):
        posterior[name] = xr.zeros_like(posterior[name]) + xr.DataArray(values, dims="draw")
    return with_draws(fit, posterior)


def counts(count, exposure):
    n = len(count)
    columns = {"score": np.full(n, 0.05), "count": count, "exposure": np.broadcast_to(exposure, n)}
    return soc.PoissonItems(pd.DataFrame(columns), **COUNT_ROLES)


@pytest.fixture(scope="module")
def some_items(small_frame):
    return soc.PoissonItems(small_frame.head(200), **COUNT_ROLES)


# further exposure, trials, or the noise sd of a further value; and more of that
MORE = {soc.PoissonItems: (100.0, 400.0), soc.BinomialItems: (30, 120), soc.NormalItems: (0.5, 0.2)}


@pytest.mark.parametrize("name", thinned(NAMES, ["gamma"]))
def test_decisions_agree_with_posteriors(example, name):
    """Every decision against mean, sd and quantiles of the same posteriors of 80 items."""
    case, frame = CASES[name], example(name).frame.head(80).copy()
    if name == "groups":
        frame.loc[::2, "kind"] = "new"  # a level that the fit has not seen
    fit, items = thinned_fit(example(name).fit, 40), case.items(frame)
    table = soc.item_posteriors(fit, items, quantiles=(0.1, 0.9), draws="all", **QUIET)
    mean, sd = table["theta_mean"].to_numpy(), table["theta_sd"].to_numpy()
    for p, quantile in ((0.1, "theta_q10"), (0.9, "theta_q90")):
        above = dec.probability_above(fit, items, table[quantile], **QUIET)
        known = table[quantile] > 0  # theta may be 0 with some probability
        # quantiles are to 1e-3 sd
        assert above[known].to_numpy() == pytest.approx(1.0 - p, abs=2e-3)
    cut = float(np.median(mean))
    loss = dec.expected_loss(fit, items, cut, cost_above=2.0, cost_below=4.0, **QUIET)
    over, short = loss["loss_if_not"] / 2.0, loss["loss_if_chosen"] / 4.0
    assert (over - short).to_numpy() == pytest.approx(mean - cut, abs=1e-7 * np.abs(mean).max())
    np.testing.assert_array_equal(loss["choose"], loss["loss_if_chosen"] < loss["loss_if_not"])
    theta = dec.thompson_draws(fit, items, 400, **QUIET).to_numpy()
    # of 400 draws: 5 standard errors for 80 items
    assert np.abs((theta.mean(axis=0) - mean) / (sd / 20.0)).max() < 5.0
    direct = np.maximum(theta - cut, 0.0)
    # an excess that is rare has no variance among 400 draws
    error = (direct.std(axis=0) + np.sqrt(over * sd)) / 20
    assert (np.abs(direct.mean(axis=0) - over) < 5 * error + 1e-9).all()
    more, much = MORE[case.kind]
    gain = dec.value_of_exposure(fit, items, more, threshold=cut, **QUIET)
    assert gain["sd_now"].to_numpy() == pytest.approx(sd, rel=1e-6)
    larger = dec.value_of_exposure(fit, items, much, **QUIET)
    assert (larger["sd_after"] < gain["sd_after"]).all()
    assert (gain["sd_after"] < gain["sd_now"]).all()
    assert (gain["value"] >= 0).all()
    best = dec.probability_best(fit, items, 5, draws=400, **QUIET)
    assert best["probability"].sum() == pytest.approx(5.0, abs=1e-3)
    hits = (theta.argsort(axis=1).argsort(axis=1) >= len(mean) - 5).mean(axis=0)
    error = np.sqrt(hits * (1 - hits) / 400 + best["error"] ** 2 + 1e-4)
    assert (np.abs(best["probability"] - hits) < 5 * error).all()


def test_shared_curves_matter_for_the_best(small_fit):
    """Two items whose scores agree: which is better hangs on their own theta alone."""
    shift = np.repeat([-2.0, 2.0], 50)
    fit = with_curves(small_fit, np.log(0.05) + shift, np.full(100, -9.0))
    items = counts([0, 0, 0], [0.0, 0.0, 0.0])
    found = dec.probability_best(fit, items, draws=800, **QUIET)
    assert found["probability"].to_numpy() == pytest.approx(1 / 3, abs=4 * found["error"].max())
    above = dec.probability_above(fit, items, 0.05, **QUIET)
    assert above.to_numpy() == pytest.approx(0.5)
    theta = dec.thompson_draws(fit, items, 100, **QUIET).to_numpy()
    assert ((theta > 0.05).sum(axis=1) % 3 == 0).all()  # all of them or none


@pytest.mark.slow
def test_answers_do_not_depend_on_how_work_is_cut(small_fit, some_items, monkeypatch):
    fit = thinned_fit(small_fit, 100)
    draws = dec.thompson_draws(fit, some_items, 70, seed=2, **QUIET)
    best = dec.probability_best(fit, some_items, 3, draws=200, **QUIET)
    monkeypatch.setattr(dec, "_MOST", 64)
    monkeypatch.setattr(dec, "_HELD", 1)
    monkeypatch.setenv("SOC_PYMC_THREADS", "1")
    many = dec.thompson_draws(fit, some_items, 150, seed=2, **QUIET)
    xr.testing.assert_identical(draws, many[:70])
    again = dec.probability_best(fit, some_items, 3, draws=200, **QUIET)
    pd.testing.assert_frame_equal(best, again, rtol=1e-9)
    assert (draws != dec.thompson_draws(fit, some_items, 70, seed=3, **QUIET)).all()


def exact_top(shape, rate, k):
    """Probabilities of three Gammas to be first, or not last, by quadrature."""
    laws = [stats.gamma(a, scale=1 / b) for a, b in zip(shape, rate, strict=True)]

    def density(x, i):
        one, two = (law.cdf(x) for j, law in enumerate(laws) if j != i)
        return laws[i].pdf(x) * (one * two if k == 1 else one + two - one * two)

    ends = [law.ppf(1 - 1e-12) for law in laws]
    return np.array([integrate.quad(density, 0, ends[i], (i,), limit=300)[0] for i in range(3)])


@pytest.mark.parametrize("k", thinned([1, 2], [2]))
def test_probability_best_against_quadrature(small_fit, k):
    fit = with_curves(small_fit, [np.log(0.05)], [np.log(0.25)])
    y, exposure = np.array([3.0, 9.0, 0.0]), np.array([50.0, 100.0, 5.0])
    found = dec.probability_best(fit, counts(y, exposure), k, draws=8000, **QUIET)
    exact = exact_top(4.0 + y, 80.0 + exposure, k)
    error = found["error"].to_numpy()
    assert (np.abs(found["probability"] - exact) < 4.5 * error).all()
    assert (error < 0.3 / np.sqrt(8000)).all()  # counting hits would have up to 0.5
    assert found["probability"].sum() == pytest.approx(k, abs=1e-9)


@pytest.mark.slow
def test_ties_and_order(small_fit):
    """Equal items share, whoever comes first; all items are the best n of n."""
    fit = with_curves(small_fit, [np.log(0.05)], [0.0])
    found = dec.probability_best(fit, counts([0] * 6 + [40], 100.0), 3, draws=4000, **QUIET)
    assert found["probability"].iloc[:6].to_numpy() == pytest.approx(2 / 6, abs=0.02)
    assert found["probability"].iloc[6] == pytest.approx(1.0, abs=1e-6)
    back = dec.probability_best(fit, counts([40] + [0] * 6, 100.0), 3, draws=4000, **QUIET)[::-1]
    spread = 5 * (found["error"] + back["error"].to_numpy()) + 1e-12
    assert (np.abs(found["probability"] - back["probability"].to_numpy()) < spread).all()
    everyone = dec.probability_best(fit, counts([0, 1], 10.0), 2, **QUIET)
    assert (everyone["probability"] == 1).all()
    assert (everyone["error"] == 0).all()


def test_probability_falls_with_the_threshold(small_fit, some_items):
    cuts = [-1.0, 0.0, 0.01, 0.03, 0.1, 50.0]
    found = [dec.probability_above(thinned_fit(small_fit, 9), some_items, c, **QUIET) for c in cuts]
    assert (np.diff(found, axis=0) <= 0).all()
    assert (np.array(found[:2]) == 1).all()
    assert (found[-1] < 1e-6).all()


def test_unit_of_exposure_is_of_no_matter(small_fit):
    """Exposure in thousands: curves, thresholds and values a thousand times larger."""
    log_mean, cv2 = np.log([0.03, 0.05, 0.06]), [-1.0, -0.5, -2.0]
    y, exposure = np.array([0, 2, 9]), np.array([10.0, 30.0, 100.0])
    answers = []
    for unit in (1.0, 1000.0):
        fit = with_curves(small_fit, log_mean + np.log(unit), cv2)
        items = counts(y, exposure / unit)
        gain = dec.value_of_exposure(fit, items, 50.0 / unit, threshold=0.06 * unit, **QUIET)
        above = dec.probability_above(fit, items, 0.06 * unit, **QUIET)
        answers.append(np.column_stack([gain / unit, above]))
    np.testing.assert_allclose(*answers, rtol=1e-9)


@pytest.mark.slow
def test_value_grows_with_exposure_and_stays_below_knowing_theta(small_fit, some_items):
    fit = thinned_fit(small_fit, 200)
    gains = [
        dec.value_of_exposure(fit, some_items, m, threshold=0.02, **QUIET)["value"]
        for m in (1.0, 30.0, 1000.0, 1e6)
    ]
    assert all((two >= one - 1e-15).all() for one, two in pairwise(gains))
    loss = dec.expected_loss(fit, some_items, 0.02, **QUIET)
    least = loss[["loss_if_chosen", "loss_if_not"]].min(axis=1)
    assert (gains[-1] <= least + 1e-12).all()
    assert gains[-1].sum() == pytest.approx(least.sum(), rel=0.01)  # of perfect information


def test_sd_after_against_simulation(small_fit):
    """Theta, a further count, and the posterior over all three curves given both."""
    log_mean, log_cv2 = np.log([0.03, 0.05, 0.08]), np.array([-1.0, -0.5, -2.0])
    fit = with_curves(small_fit, log_mean, log_cv2)
    y, exposure, more = 4.0, 60.0, 90.0
    found = dec.value_of_exposure(fit, counts([y], [exposure]), more, **QUIET).iloc[0]
    rng = np.random.default_rng(0)
    shape, rate = np.exp(-log_cv2) + y, np.exp(-log_cv2 - log_mean) + exposure
    curve = rng.integers(3, size=200_000)
    theta = rng.gamma(shape[curve], 1 / rate[curve])
    further = rng.poisson(theta * more)
    weight = stats.nbinom.pmf(further, shape[:, None], (rate / (rate + more))[:, None])
    means = (shape[:, None] + further) / (rate + more)[:, None]
    estimate = (weight * means).sum(axis=0) / weight.sum(axis=0)
    least = np.sqrt(np.mean((theta - estimate) ** 2))
    # the best linear estimate is no better, and within 2% here; 200,000 draws know it to 0.3%
    assert 0.994 < found["sd_after"] / least < 1.02
    assert found["sd_now"] == pytest.approx(theta.std(), rel=0.01)


def test_answers_are_indexed_like_the_items(small_fit, small_frame):
    """By the index of the frame, or by ids: numbers in another order, or text."""
    frame = small_frame.head(20).set_index(pd.Index(range(100, 120)))
    ids = [f"ad {k}" for k in range(19, -1, -1)]
    plain = soc.PoissonItems(frame, **COUNT_ROLES)
    named = soc.PoissonItems(frame.assign(ad=ids), **COUNT_ROLES, id="ad")
    by_row = dec.probability_above(small_fit, plain, 0.02, **QUIET)
    by_name = dec.probability_above(small_fit, named, 0.02, **QUIET)
    assert list(by_row.index) == list(frame.index)
    assert by_name.index.name == "ad"
    assert list(by_name.index) == ids
    np.testing.assert_array_equal(by_row, by_name)
    assert list(dec.probability_best(small_fit, named, 2, draws=64, **QUIET).index) == ids
    assert list(dec.thompson_draws(small_fit, named, **QUIET)["item"].to_numpy()) == ids


TOTAL_NAMES = ("gamma", "normal", "beta", "gamma_mixture", "groups", "zeros")


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


@pytest.mark.parametrize("name", thinned(TOTAL_NAMES, ["gamma"]))
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


def test_a_total_of_equal_counts_is_a_gamma_given_the_curves(small_fit):
    """Twelve items of one posterior, in units in which theta is small and large."""
    for score, count, exposure in ((1e-4, 0, 5.0), (0.05, 3, 40.0), (20.0, 7, 0.5)):
        columns = {"score": [score] * 12, "count": count, "exposure": exposure}
        fit, items = thinned_fit(small_fit, 1), count_items(pd.DataFrame(columns))
        curves = soc.calibration_curves(fit, [score])
        shape, rate = (float(curves[name].squeeze()) for name in ("shape", "rate"))
        law = stats.gamma(12 * (shape + count), scale=1.0 / (rate + exposure))
        cut = law.ppf(0.8)
        row = dec.total(fit, items, threshold=cut, **QUIET).loc["all items"]
        names = ["mean", "sd", "q05", "q95", "probability_above"]
        expected = [law.mean(), law.std(), law.ppf(0.05), law.ppf(0.95), 0.2]
        assert row[names].tolist() == pytest.approx(expected, rel=1e-5)


def test_a_total_of_values_is_normal_given_the_curves(example):
    """One draw of the curves, any number of items: the Normal with the sum's moments."""
    fit, items = thinned_fit(example("normal").fit, 1), example("normal").items
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
    small_fit = thinned_fit(small_fit, 100)
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
    return count_items(frame), y / exposure, (y + 1) / exposure**2


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
    scored = soc.item_posteriors(fit, replace(items, source=frame), **QUIET)
    covered = {}
    for rule in ("theta_mean", "theta_q95"):  # a choice by any function of the posterior
        top = scored.sort_values(rule).groupby("programme").tail(best)
        found = dec.total(fit, replace(items, source=top), by="programme", **QUIET)
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
