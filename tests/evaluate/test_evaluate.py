"""Outcomes divided at random, and the gains and predictive PIT of what is held out."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
from scipy import stats as sps

import soc_pymc as soc
from soc_pymc.evaluate import (
    held_out,
    pit_histograms,
    poisson_log_likelihood,
    split_items,
    thin,
    thin_values,
)
from soc_pymc.evaluate._held_out import gain_rows
from soc_pymc.evaluate.by_bin import score_bins
from soc_pymc.posterior.curves import curve_draws
from soc_pymc.posterior.predictive import posterior_of
from tests.posterior import test_predictive_normal
from tests.posterior import test_quadrature as test_nodes

COUNTS = {"score": "score", "count": "count", "exposure": "exposure"}


def test_trials_are_dealt_out():
    """Whole exposures: exposure binomial, count hypergeometric; parts are consistent."""
    exposure, count = np.full(20_000, 30), np.full(20_000, 6)
    held_count, held_exposure = thin(count, exposure, 0.25, seed=1)
    assert ((held_count <= held_exposure) & (count - held_count <= exposure - held_exposure)).all()
    # 4 standard errors of the mean of a binomial
    assert abs(held_exposure.mean() - 7.5) < 4 * np.sqrt(30 * 0.25 * 0.75 / 20_000)
    assert abs(held_count.mean() - 1.5) < 4 * np.sqrt(6 * 0.25 * 0.75 / 20_000)


def test_real_exposures_are_divided_in_proportion():
    rng = np.random.default_rng(2)
    exposure = rng.uniform(0, 50, 20_000)
    count = rng.poisson(0.3 * exposure)
    held_count, held_exposure = thin(count, exposure, 0.1, seed=2)
    np.testing.assert_allclose(held_exposure, 0.1 * exposure)
    z = (held_count - 0.1 * 0.3 * exposure) / np.sqrt(0.1 * 0.3 * exposure)
    assert abs(z.mean()) < 0.03
    assert abs(z.var() - 1) < 0.05
    # the parts of a Poisson count are independent
    assert (
        abs(np.corrcoef(held_count - 0.03 * exposure, count - held_count - 0.27 * exposure)[0, 1])
        < 0.03
    )


def test_parts_add_up(small_items):
    """Training and test parts are disjoint: together they are the items, row by row."""
    split = split_items(small_items, 0.3, seed=1)
    for name in ("count", "exposure"):
        both = split.train.source[name] + split.test.source[name]
        np.testing.assert_array_equal(both, small_items.source[name])
    np.testing.assert_array_equal(split.test.source["score"], small_items.source["score"])


def test_log_likelihood():
    mu = np.array([0.0, 0.5, 3.0])
    np.testing.assert_allclose(
        poisson_log_likelihood([0, 2, 1], mu), sps.poisson.logpmf([0, 2, 1], mu)
    )


def test_values_are_divided_by_noise():
    """Given theta both parts are unbiased, of the noise said, and independent; 4 errors each."""
    n, f = 40_000, 0.2
    rng = np.random.default_rng(1)
    sd = rng.uniform(0.5, 2.0, n)
    items = soc.NormalItems(
        pd.DataFrame({"t": np.zeros(n), "y": 3.0 + sd * rng.normal(size=n), "s": sd}),
        score="t",
        value="y",
        noise_sd="s",
    )
    split = split_items(items, f, seed=1)
    train, test = (p.source for p in (split.train, split.test))
    whole = f * test["value"] + (1 - f) * train["value"]
    np.testing.assert_allclose(whole, items.source["y"], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(test["noise_sd"] ** -2.0 + train["noise_sd"] ** -2.0, sd**-2.0)
    z = [(p["value"] - 3.0) / p["noise_sd"] for p in (train, test)]
    for part in z:
        assert abs(part.mean()) < 4 / np.sqrt(n)
        assert abs(part.var() - 1) < 4 * np.sqrt(2 / n)
    assert abs(np.mean(z[0] * z[1])) < 4 / np.sqrt(n)


@pytest.mark.parametrize("kind", ["counts", "values"])
def test_thinning_does_not_repeat_the_numbers_of_a_simulation(kind):
    """Data made with a seed, divided with the same: the part knows nothing of the data's noise."""
    n = 20_000
    rng = np.random.default_rng(0)
    if kind == "values":
        noise = rng.normal(size=n)
        part = thin_values(np.zeros(n), np.ones(n), 0.5, seed=0)[0]
    else:
        noise = rng.binomial(40, 0.25, n)
        part = thin(np.zeros(n), np.full(n, 40), 0.25, seed=0)[1]
    assert abs(np.corrcoef(noise, part)[0, 1]) < 4 / np.sqrt(n)


# --- gains ---------------------------------------------------------------------------------------


def overall(found):
    return found.table[found.table["bin"] == -1].set_index("estimator")


def test_bins_have_equal_numbers_of_items():
    score = np.random.default_rng(0).permutation(np.repeat(np.arange(50.0), 4))
    bin_of, centre = score_bins(score, 10)
    assert (np.bincount(bin_of) == 20).all()
    np.testing.assert_allclose(centre, np.arange(2.0, 50.0, 5.0))
    tied, _ = score_bins(np.array([1.0, 1.0, 1.0, 2.0]), 4)
    assert tied.tolist() == [0, 0, 0, 1]


def test_standard_errors_cover():
    """400 samples of skewed gains and bases: errors over their estimates have variance 1."""
    rng, n = np.random.default_rng(0), 300
    away = []
    for _ in range(400):
        base = rng.gamma(0.5, 2.0, n)
        other = -base + 0.7 * base + rng.gamma(0.3, 0.5, n) * rng.choice([-1.0, 1.0], n)
        rows = gain_rows(
            {"t": -base, "other": other}, base, np.zeros(n, dtype=int), {"score": base}
        )
        row = next(r for r in rows if r["estimator"] == "other")
        away.append(
            (
                (row["gain"] - 0.7 * n) / row["standard_error"],
                (row["gain_percent"] - 70.0) / row["gain_percent_se"],
            )
        )
    # the mean gain is 0.7 an item (bases have mean 1); 4 standard errors of a variance and a mean
    assert np.var(away, axis=0) == pytest.approx([1, 1], abs=4 * np.sqrt(2 / 400))
    assert np.mean(away, axis=0) == pytest.approx([0, 0], abs=4 / np.sqrt(400))


@pytest.fixture(scope="module")
def truth():
    """Items of a known law, as a fit with no uncertainty; two fits with other variances."""
    fit, rng, n = test_nodes.make_fit(1e-6), np.random.default_rng(0), 12_000
    score = np.exp(rng.normal(np.log(0.05), 0.7, n))
    curves = posterior_of(fit).curves(score)
    exposure = np.exp(rng.normal(3.5, 1.5, n))
    theta = rng.gamma(curves["shape"][0]) / curves["rate"][0]
    frame = pd.DataFrame(
        {"score": score, "count": rng.poisson(theta * exposure), "exposure": exposure}
    )
    fits = {"true": fit, "narrow": with_variance(fit, 0.1), "wide": with_variance(fit, 4.0)}
    return fits, split_items(soc.PoissonItems(frame, **COUNTS), 0.3, seed=1)


def with_variance(fit, factor):
    tree = fit.data.copy()
    posterior = tree["posterior"].to_dataset()
    posterior["log_cv2"] = posterior["log_cv2"] + np.log(factor)
    tree["posterior"] = posterior
    return replace(fit, data=tree)


@pytest.fixture(scope="module")
def judged(truth):
    return held_out(truth[0], truth[1], bins=8, progress=False)


@pytest.mark.slow
def test_oracle_gains_most(judged):
    """The posterior mean under the true prior, by more than two standard errors over the rest."""
    table = overall(judged)
    assert table["gain"].idxmax() == "true: E(theta | t, y)"
    assert table.loc["t", ["gain", "standard_error", "gain_percent"]].tolist() == [0, 0, 0]
    best = table.loc["true: E(theta | t, y)"]
    rest = table.drop(index=[f"{name}: E(theta | t, y)" for name in ("true", "narrow", "wide")])
    assert (best["gain"] - rest["gain"] > 2 * best["standard_error"]).all()
    assert best["gain"] > table.loc["narrow: E(theta | t, y)", "gain"] + 5
    # all fits have the same E(theta | t)
    curves = table.loc[[f"{name}: E(theta | t)" for name in ("true", "narrow", "wide")], "gain"]
    assert curves.max() - curves.min() < 1e-3


def test_predictive_pit_is_uniform_under_the_true_prior_alone(judged):
    p_value = judged.data["pit"]["p_value"]
    assert (p_value.sel(fit="true") > 0.01).all()
    assert (p_value.sel(fit="narrow") < 1e-4).all()
    # exposures are short: of posteriors too wide the PIT has less to say
    assert (p_value.sel(fit="wide") < 0.01).all()
    by_bin = judged.data["pit"]["p_value_by_bin"].sel(fit="true", slice="all items")
    assert float(by_bin.min()) > 0.01 / 8  # Bonferroni


def test_numbers_by_hand(truth, judged):
    """Gains of the last bin and overall from the likelihood, and those of the tree."""
    split, table = truth[1], judged.table
    test = split.test.source
    at = np.argsort(np.argsort(test["score"].to_numpy(), kind="stable")) >= 7 * len(test) / 8
    constant = split.train.source["count"].sum() / split.train.source["exposure"].sum()
    y, n = test["count"], test["exposure"]
    gain = sps.poisson.logpmf(y, n * constant) - sps.poisson.logpmf(y, n * test["score"])
    row = table[(table["estimator"] == "constant") & (table["bin"] == 7)].iloc[0]
    assert row["gain"] == pytest.approx(gain[at].sum(), rel=1e-9)
    assert row["standard_error"] == pytest.approx(gain[at].std(ddof=1) * np.sqrt(at.sum()))
    base = -sps.poisson.logpmf(y, n * test["score"])[at].sum()
    assert row["gain_percent"] == pytest.approx(100 * gain[at].sum() / base)
    assert row[["items", "exposure", "events"]].tolist() == pytest.approx(
        [at.sum(), n[at].sum(), y[at].sum()]
    )
    parts = table[table["bin"] >= 0].groupby("estimator")[["gain", "items"]].sum()
    whole = overall(judged).loc[parts.index, ["gain", "items"]]
    np.testing.assert_allclose(parts, whole)


def test_tree_is_the_table(truth, judged):
    tree = judged.data["gain"].to_dataset()
    for row in judged.table.to_dict("records"):
        one = tree.sel(estimator=row.pop("estimator"), bin=row.pop("bin"))
        assert {k: float(one[k]) for k in row} == pytest.approx(row, nan_ok=True)
    pit = judged.data["pit"].to_dataset()
    assert pit["density"].dims == ("fit", "slice", "bin", "p")
    weight = pit["n_items"] / pit["n_items"].sum("bin")
    np.testing.assert_allclose((pit["density"].mean("p") * weight).sum("bin"), 1.0)
    exposed = (truth[1].test.source["exposure"] >= 25).sum()
    assert pit["n_items"].sum("bin").to_numpy().tolist() == [12_000, exposed]
    assert "predictive PIT, narrow, exposure >= 25" in repr(judged)


def values(variance=1.0):
    """A fit of values without uncertainty, with another variance of theta if asked."""
    fit = test_predictive_normal.make_fit(sd=1e-6)
    tree = fit.data.copy()
    posterior = tree["posterior"].to_dataset()
    posterior["log_variance"] = posterior["log_variance"] + np.log(variance)
    tree["posterior"] = posterior
    return replace(fit, data=tree)


def test_values():
    """Gains by hand; the truth's posterior mean is best and its predictive PIT uniform."""
    frame = test_predictive_normal.simulate(6000, 7, values())
    items = soc.NormalItems(frame, score="t", value="y", noise_sd="s")
    split = split_items(items, 0.3, seed=2)
    found = held_out({"true": values(), "narrow": values(0.1)}, split, bins=5, progress=False)
    table, test = overall(found), split.test.source
    z = [(test["value"] - m) / test["noise_sd"] for m in (test["score"], np.zeros(6000))]
    assert table["gain"].idxmax() == "true: E(theta | t, y)"
    squares = [float((part**2).sum()) for part in z]
    assert table.loc["t", "log_likelihood"] == pytest.approx(
        sps.norm.logpdf(test["value"], test["score"], test["noise_sd"]).sum()
    )
    true = table.loc["true: E(theta | t, y)"]
    assert true["gain_percent"] == pytest.approx(100 * 2 * true["gain"] / squares[0])
    assert true["precision"] == pytest.approx((test["noise_sd"] ** -2.0).sum())
    # both straight lines and the spline have room for most of what E(theta | t) has
    assert table.loc["spline", "gain"] > 0.95 * table.loc["true: E(theta | t)", "gain"]
    assert table.loc["platt", "gain"] > table.loc["constant", "gain"]
    pit = found.data["pit"]
    assert pit["slice"].to_numpy().tolist() == ["all items"]
    assert float(pit["p_value"].sel(fit="true")[0]) > 0.01
    assert float(pit["p_value"].sel(fit="narrow")[0]) < 1e-4


def test_groups_and_exposure_are_each_items_own(truth):
    """All estimates and the PIT as of items whose curves are known, at their own group and size."""
    fits, split = truth
    plain, shift = fits["true"], {"a": 0.4, "b": -0.4}

    def curves(score, group, exposure):
        log_mean, log_cv2 = curve_draws(plain, score)
        moved = np.array([shift[label] for label in group]) + 0.1 * np.log(np.asarray(exposure))
        return log_mean + moved, log_cv2

    tree, posterior = plain.data.copy(), plain.data["posterior"].to_dataset()
    log_size = np.log(split.train.source["exposure"].to_numpy())
    knots = np.array([log_size.min(), log_size.max()])
    posterior = posterior.assign_coords(group=["a", "b"], mean_exposure_knot=knots)
    moved = xr.DataArray(list(shift.values()), dims="group")
    both = posterior["log_mean"] + moved, posterior["log_cv2"] + 0.0 * moved
    order = "chain", "draw", "group", ...
    names = "log_mean_of_group", "log_cv2_of_group"
    groups = {name: own.transpose(*order) for name, own in zip(names, both, strict=True)}
    along = xr.DataArray(0.1 * knots, dims="mean_exposure_knot")
    by_size = along + 0.0 * posterior["log_mean"].isel(mean_knot=0, drop=True)
    by_size = by_size.transpose("chain", "draw", ...)
    tree["posterior"] = xr.DataTree(posterior.assign(groups | {"log_mean_by_exposure": by_size}))
    fit = replace(plain, data=tree, prior=soc.Gamma(exposure=soc.Spline()))
    parts = [p.source.iloc[:600].assign(g=["a", "b"] * 300) for p in (split.train, split.test)]
    few = soc.evaluate.Split(*(soc.PoissonItems(p, **COUNTS, group="g") for p in parts))
    found = held_out(fit, few, baselines=(), bins=1, progress=False)
    train, test = parts
    assert found.table["items"].eq(600).all()
    log_mean, log_cv2 = (
        c.mean(axis=0) for c in curves(train["score"], train["g"], train["exposure"])
    )
    shape, rate = np.exp(-log_cv2), np.exp(-log_cv2 - log_mean)
    after = (shape + train["count"]) / (rate + train["exposure"])
    for name, mean in (("E(theta | t)", np.exp(log_mean)), ("E(theta | t, y)", after)):
        direct = sps.poisson.logpmf(test["count"], test["exposure"] * mean).sum()
        assert overall(found).loc[name, "log_likelihood"] == pytest.approx(direct, abs=1e-3)
    columns = {role: train[role].to_numpy(dtype=float) for role in COUNTS}
    _, upto = posterior_of(fit).further_cdf_interval(
        {**columns, "group": train["g"].to_numpy(dtype=object)},
        test["count"].to_numpy(dtype=float),
        test["exposure"].to_numpy(),
    )
    share = (rate + train["exposure"]) / (rate + train["exposure"] + test["exposure"])
    direct = sps.nbinom.cdf(test["count"], shape + train["count"], share)
    np.testing.assert_allclose(upto, direct, atol=1e-4)


@pytest.mark.slow
def test_page_on_evaluation():
    """Its example as written: S1, whose score is biased and whose theta varies given it.

    Both gains are many standard errors, first-order baselines gain about what E(theta | t) does, a
    constant loses, and what is printed is what the page shows, but for rounding elsewhere.
    """
    page = (Path(__file__).parents[2] / "docs/dev/evaluation.md").read_text()
    code, shown = re.findall(r"```(?:python)?\n(.*?)```", page, re.DOTALL)[:2]
    names = {}
    exec(code, names)
    table = overall(names["found"])
    gain, error = table["gain"], table["standard_error"]
    assert gain["E(theta | t)"] > 2 * error["E(theta | t)"]
    assert gain["E(theta | t, y)"] - gain["E(theta | t)"] > 2 * error["E(theta | t, y)"]
    for name in ("isotonic", "platt", "spline"):
        assert abs(gain[name] - gain["E(theta | t)"]) < 2 * error[name]
    assert gain["constant"] < -10 * error["constant"]
    for name, nats in re.findall(r"^  (\S+) +([-,.\d]+) \(", shown, re.MULTILINE):
        assert float(nats.replace(",", "")) == pytest.approx(gain[name], abs=0.5)


def test_bad_requests_are_refused(small_items, small_fit):
    with pytest.raises(soc.FitError, match="fraction"):
        thin([1], [2], 1.0)
    with pytest.raises(soc.FitError, match="fraction"):
        thin_values([1.0], [2.0], 0.0)
    split = split_items(small_items, seed=0)
    fewer = soc.PoissonItems(split.test.source.iloc[1:], **split.test.roles)
    with pytest.raises(soc.ItemsError, match="same rows"):
        held_out(small_fit, soc.evaluate.Split(split.train, fewer))
    arrow = soc.PoissonItems(pa.Table.from_pandas(split.test.source), **split.test.roles)
    with pytest.raises(soc.ItemsError, match="pandas tables"):
        held_out(small_fit, soc.evaluate.Split(split.train, arrow))
    with pytest.raises(soc.FitError, match="no fit"):
        held_out({}, split)
    with pytest.raises(soc.FitError, match="no baseline 'beta'"):
        held_out(small_fit, split, baselines=("beta",))
    with pytest.raises(soc.FitError, match="bins=0"):
        held_out(small_fit, split, bins=0)
    value = pd.DataFrame({"t": [0.1], "y": [0.2], "s": [1.0]})
    others = split_items(soc.NormalItems(value, score="t", value="y", noise_sd="s"))
    with pytest.raises(soc.ItemsError, match="fit is of items with count="):
        held_out(small_fit, others)


@pytest.mark.parametrize(("shift", "word"), [(-1.0, "negative"), (0.0, "0 where there are")])
def test_scores_that_are_no_rates_are_refused(small_items, small_fit, shift, word):
    split = split_items(small_items, seed=0)
    parts = []
    for part in (split.train, split.test):
        score = np.full(len(part.source), shift)
        parts.append(soc.PoissonItems(part.source.assign(score=score), **COUNTS))
    split = soc.evaluate.Split(*parts)
    with pytest.raises(soc.ItemsError, match=f"{word}.*over='constant'"):
        held_out(small_fit, split)


def test_gains_over_a_baseline_where_the_score_is_no_estimate(truth, judged):
    """Gains over the constant are those over t less the constant's; percents are of its own."""
    fits, split = truth
    found = held_out(fits["true"], split, over="constant", bins=8, progress=False)
    table, before = overall(found), overall(judged)
    assert table.index[0] == "constant"
    assert "t" not in table.index
    gain = before.loc["true: E(theta | t, y)", "gain"] - before.loc["constant", "gain"]
    row = table.loc["E(theta | t, y)"]
    assert row["gain"] == pytest.approx(gain)
    base = -before.loc["constant", "log_likelihood"]
    assert row["gain_percent"] == pytest.approx(100 * gain / base)
    assert "gain over constant" in repr(found)
    with pytest.raises(soc.FitError, match="over='beta'"):
        held_out(fits["true"], split, over="beta")


# --- marginal PIT by bin -------------------------------------------------------------------------


def test_histograms_are_flat_under_the_true_prior(truth):
    """Chi-squared over all cells and bins; with half the sd of theta it is far off."""
    fits, split = truth
    flat = pit_histograms(fits["true"], split.train, bins=6, cells=10, progress=False)
    off = pit_histograms(fits["narrow"], split.train, bins=6, cells=10, progress=False)
    assert flat["density"].dims == ("bin", "p")
    np.testing.assert_allclose(flat["density"].mean("p"), 1.0)
    np.testing.assert_array_equal(flat["n_items"], 2000)
    squares = [float(((f["density"] - 1) ** 2 * f["n_items"] / 10).sum()) for f in (flat, off)]
    assert 0.001 < sps.chi2.sf(squares[0], 6 * 9) < 0.999
    assert sps.chi2.sf(squares[1], 6 * 9) < 1e-9


def test_histograms_of_large_exposures(truth):
    """The same bins, fewer items; of values there are no exposures to choose by."""
    fits, split = truth
    every = pit_histograms(fits["true"], split.train, bins=6, progress=False)
    large = pit_histograms(fits["true"], split.train, bins=6, least_size=50, progress=False)
    np.testing.assert_allclose(every["score"], large["score"])
    assert int(large["n_items"].sum()) == (split.train.source["exposure"] >= 50).sum()
    none = pit_histograms(fits["true"], split.train, bins=6, least_size=1e9, progress=False)
    assert np.isnan(none["density"]).all()
    frame = test_predictive_normal.simulate(50, 7, values())
    items = soc.NormalItems(frame, score="t", value="y", noise_sd="s")
    with pytest.raises(soc.FitError, match="least_size"):
        pit_histograms(values(), items, least_size=1.0)
    with pytest.raises(soc.FitError, match="cells=0"):
        pit_histograms(values(), items, cells=0)
