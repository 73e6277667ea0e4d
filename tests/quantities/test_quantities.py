"""R^2, variance reduction, shrinkage, comparisons of scores, effects of groups, and sensitivity.

Against closed forms, sums over items one by one, refits and ArviZ.
"""

import re

import arviz_stats
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as distributions

import soc_pymc as soc
from soc_pymc import quantities
from soc_pymc._model.problem import build
from soc_pymc.checks.findings import p_value
from soc_pymc.fits import Fit, with_draws
from soc_pymc.inference.fit_tree import draw_densities
from soc_pymc.inference.variational import importance
from soc_pymc.posterior.predictive import posterior_of
from tests.examples import CASES, COUNT_ROLES, QUIET, part_of

ROLES = {"count": "count", "exposure": "exposure"}


def known_fit(fit: Fit, **curves) -> Fit:
    """A fit with one draw of given values at its knots: functions of the knots' scores."""
    posterior = fit.data["posterior"].to_dataset().isel(chain=[0], draw=[0])
    for name, values in curves.items():
        knot = posterior[name].dims[-1]
        axis = fit.axis(knot.removesuffix("_knot"))
        at = values(axis.inverse(fit.curves.knots(knot)))
        posterior[name] = (posterior[name].dims, at[None, None])
    return with_draws(fit, posterior)


def level(value):
    return lambda score: np.full(len(score), np.log(value))


@pytest.fixture(scope="module")
def plain_fit(small_fit):
    """E(theta | t) = t and cv2 = .25: straight lines on log t, which splines hold exactly."""
    return known_fit(small_fit, log_mean=np.log, log_cv2=level(0.25))


def test_closed_form(plain_fit, small_items, small_statistics):
    """With E(theta | t) = t, cv2 = .25: R^2 = Var t / (Var t + .25 E t^2), and of few wide bins."""
    t = small_items.source["score"].to_numpy()
    expected = t.var() / (t.var() + 0.25 * np.mean(t**2))
    fine = soc.summarize(small_items, **QUIET)
    # 400 bins hold t to second order
    assert abs(float(quantities.r_squared(plain_fit, fine)[0, 0]) - expected) < 1e-3
    # what the 20 bins of equal items that made the fit hide is the tail of the last one
    own_bins = quantities.r_squared(plain_fit)
    assert abs(float(own_bins[0, 0]) - expected) < 0.02
    same = quantities.r_squared(plain_fit, small_statistics)
    np.testing.assert_allclose(own_bins, same, rtol=1e-9)


def test_closed_form_of_four_scores(plain_fit):
    """The same without any width of bins: to rounding."""
    t = np.repeat([0.01, 0.02, 0.05, 0.4], [600, 200, 150, 50])
    frame = pd.DataFrame({"score": t, "count": 1, "exposure": 20.0})
    items = soc.PoissonItems(frame, **COUNT_ROLES)
    stats = soc.summarize(items, edges=[0.015, 0.03, 0.1], on_leakage="ignore", **QUIET)
    share = quantities.r_squared(plain_fit, stats)
    expected = t.var() / (t.var() + 0.25 * np.mean(t**2))
    assert float(share[0, 0]) == pytest.approx(expected, rel=1e-9)


def test_no_variance_and_no_exposure(small_fit, small_items):
    """Where t says all, R^2 is 1 and outcomes add nothing; nothing seen leaves the prior."""
    sure = known_fit(small_fit, log_mean=np.log, log_cv2=level(1e-12))
    assert float(quantities.r_squared(sure)[0, 0]) > 1 - 1e-9
    gain = quantities.variance_reduction(sure, small_items, **QUIET)
    share = quantities.shrinkage(sure, small_items, **QUIET)
    assert abs(float(gain.data["ratio"][0, 0]) - 1) < 1e-6
    assert abs(float(share.data["share"][0, 0]) - 1) < 1e-6
    constant = known_fit(small_fit, log_mean=level(0.1), log_cv2=level(0.3))
    np.testing.assert_allclose(quantities.r_squared(constant), 0.0, atol=1e-12)
    unseen = small_items.source.assign(count=0, exposure=0)
    unseen.loc[unseen.index[0], "exposure"] = 1
    items = soc.PoissonItems(unseen, score="score", **ROLES)
    gain = quantities.variance_reduction(small_fit, items, weight="items", **QUIET)
    np.testing.assert_allclose(gain.data["ratio"], 1.0, atol=1e-3)
    share = quantities.shrinkage(small_fit, items, **QUIET).data["share"]
    np.testing.assert_allclose(share, 1.0, atol=1e-3)


def test_units_and_names_of_columns(plain_fit, small_items):
    """In thousandths of the unit of N rates are a thousandth: ratios stay."""
    frame = small_items.source
    large = frame.assign(score=frame["score"] / 1000, exposure=frame["exposure"] * 1000)
    edges = soc.summarize(small_items, bins=40, **QUIET).edges
    plain = soc.summarize(small_items, edges=edges, **QUIET)
    large = soc.PoissonItems(large, **small_items.roles)
    scaled = soc.summarize(large, edges=edges / 1000, **QUIET)
    some_fit = soc.fit(scaled, method=soc.VI(draws=50), **QUIET)
    pairs = (known_fit(some_fit, log_mean=np.log, log_cv2=level(0.25)), scaled), (plain_fit, plain)
    squared = [quantities.r_squared(*pair) for pair in pairs]
    np.testing.assert_allclose(*squared, rtol=1e-9)
    ratios = [quantities.variance_reduction(*pair, **QUIET).data["ratio"] for pair in pairs]
    # cells of exposures times 1000 begin elsewhere
    np.testing.assert_allclose(*ratios, rtol=1e-3)
    renamed = frame.rename(columns={"count": "y", "exposure": "N"})
    renamed = soc.PoissonItems(renamed, score="score", count="y", exposure="N")
    same = [quantities.shrinkage(plain_fit, x, **QUIET).table for x in (renamed, small_items)]
    pd.testing.assert_frame_equal(*same)


def test_the_score_at_which_the_mean_reaches_a_target(plain_fit, small_fit):
    """E(theta | t) = t reaches c at t = c; of a parabola the first crossing counts."""
    at = quantities.score_at(plain_fit, [0.01, 0.03, 0.1])
    np.testing.assert_allclose(at.table["value"], [0.01, 0.03, 0.1], rtol=1e-3)
    t = soc.calibration_curves(small_fit)["score"].to_numpy()
    middle = np.log(t[[0, -1]]).mean()
    valley = known_fit(small_fit, log_mean=lambda s: np.abs(np.log(s) - middle) - 3)
    value = quantities.score_at(valley, np.exp(-2.5)).table["value"].item()
    assert np.log(value) == pytest.approx(middle - 0.5, abs=0.1)
    bands = soc.bands(soc.calibration_curves(small_fit, [0.05]), 0.9)["mean"].to_numpy().ravel()
    found = quantities.score_at(small_fit, bands[1]).table.iloc[0]
    assert found["value"] == pytest.approx(0.05, rel=0.01)
    assert found["low"] < 0.05 < found["high"]
    with pytest.raises(soc.FitError, match=r"no draw of E\(theta \| t\) reaches 50 at scores"):
        quantities.score_at(small_fit, 50)
    end = float(soc.calibration_curves(small_fit, [t[-1]])["mean"].median())
    partly = quantities.score_at(small_fit, end)  # half of the draws end below
    assert float(partly.data["reached"][0]) == pytest.approx(0.5, abs=0.01)
    assert np.isfinite(partly.data["score"]).all()
    assert re.match(r"In (49|50|51)\.\d% of the draws .* does not reach", partly.advice[0])
    curve = soc.calibration_curves(small_fit)["mean"].to_numpy().reshape(-1, len(t))
    lowest_ends = np.sort(curve.max(axis=1))[:2]
    nearly = quantities.score_at(small_fit, lowest_ends.mean())  # one of 1,000 draws ends below
    assert nearly.advice[0].startswith("In 0.1% of the draws")


NAMES = ("gamma", "normal", "beta", "gamma_mixture", "groups", "five_steps")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_ratios_are_sums_over_items(example, name):
    """Every draw against sums over the items; bins and cells cost a few percent of a draw's value,
    and less of the mean.
    """
    fit, items, frame = (getattr(example(name), part) for part in ("fit", "items", "frame"))
    law = posterior_of(fit)
    roles = {role: column for role, column in items.roles.items() if role != "group"}
    columns = {role: frame[column].to_numpy(dtype=float) for role, column in roles.items()}
    if name == "groups":
        columns["group"] = frame["kind"].to_numpy(dtype=object)
    size = columns[law.outcome.size]
    curves = law.curve_variables(columns)
    mean, after, _ = law.moments(columns)
    stats = soc.summarize(items, on_leakage="ignore", **QUIET)
    if fit.prior.exposure is None:
        explained, within = curves["mean"].var(axis=1), curves["variance"].mean(axis=1)
        squared = quantities.r_squared(fit, stats).to_numpy().ravel()
        exact = explained / (explained + within)
        assert squared.mean() == pytest.approx(exact.mean(), abs=4e-3)
        assert np.quantile(np.abs(squared / exact - 1), 0.9) < 0.02
    ratio = quantities.variance_reduction(fit, items, weight="items", bins=5, **QUIET)
    tolerance = 0.015 if fit.prior.gridded else 6e-3  # cells of mixtures are of merged bins
    exact = after.sum(axis=1) / curves["variance"].sum(axis=1)
    assert float(ratio.data["ratio"].mean()) == pytest.approx(exact.mean(), abs=tolerance)
    assert ratio.table["n"].iloc[1:].sum() == len(frame)
    if name == "beta":
        response = size / (curves["a"] + curves["b"] + size)
    else:
        response = size * after / mean if law.outcome.size == "exposure" else after / size**2
    share = quantities.shrinkage(fit, items, **QUIET).data["share"]
    assert float(share.mean()) == pytest.approx((1.0 - response).mean(), abs=tolerance)
    one_bin = quantities.variance_reduction(fit, stats, weight="items", bins=1, **QUIET)
    np.testing.assert_allclose(
        one_bin.data["ratio_by_bin"][..., 0], one_bin.data["ratio"], rtol=1e-12
    )
    row = ratio.table.iloc[0]
    wanted = np.quantile(ratio.data["ratio"], [0.05, 0.5, 0.95])
    if not fit.one_draw:
        np.testing.assert_allclose(row[["low", "value", "high"]].astype(float), wanted)
    assert row["where"] == "all items"


def test_five_steps_explain_as_much(small_statistics, small_fit):
    """Near the Bayesian means, between fits to 4,000 items in 20 bins."""
    fit = soc.fit(small_statistics, method=soc.FiveSteps(), **QUIET)
    squared = quantities.r_squared(fit)
    assert squared.shape == (1, 1)
    assert abs(float(squared[0, 0]) - float(quantities.r_squared(small_fit).mean())) < 0.1


@pytest.mark.slow
def test_what_exposure_explains_at_equal_scores_is_unexplained(by_size):
    """R^2 from simulated theta by regression on fine bins, known to some 3%, is asked to .05."""
    frame, stats, fit = by_size
    bins = frame["theta"].groupby(pd.cut(frame["score"], 60), observed=True)
    share = 1 - (frame["theta"] - bins.transform("mean")).var() / frame["theta"].var()
    for statistics in (None, stats):  # the fit itself keeps the sizes of a bin together
        assert float(quantities.r_squared(fit, statistics).mean()) == pytest.approx(share, abs=0.05)


@pytest.mark.slow
def test_outcomes_add_to_score_and_exposure_both(by_size):
    """The oracle's ratio, of shape 20 and rate 20 / E(theta | t, N), to a tenth."""
    frame, stats, fit = by_size
    ratio = quantities.variance_reduction(fit, stats, weight="items", bins=3, **QUIET).data["ratio"]
    mean = frame["score"] * np.where(frame["exposure"] > 1000, 2 / 3, 4 / 3)
    after = (20 + frame["count"]) / (20 / mean + frame["exposure"]) ** 2
    assert float(ratio.mean()) == pytest.approx(after.sum() / (mean**2 / 20).sum(), rel=0.1)


@pytest.fixture(scope="module")
def by_size():
    """Items whose rate halves from small exposures to large ones, and a fit that knows."""
    rng, n = np.random.default_rng(3), 6000
    frame, large = pd.DataFrame({"score": rng.uniform(0.02, 0.2, n)}), rng.random(n) < 0.5
    frame["exposure"] = np.where(large, 2000.0, 100.0)
    frame["theta"] = frame["score"] * np.where(large, 2 / 3, 4 / 3) * rng.gamma(20.0, 1 / 20, n)
    frame["count"] = rng.poisson(frame["theta"] * frame["exposure"])
    stats = soc.summarize(soc.PoissonItems(frame, **COUNT_ROLES), bins=15, joint=True, **QUIET)
    prior = soc.Gamma(exposure=soc.Spline())
    return frame, stats, soc.fit(stats, prior, soc.VI(draws=40), **QUIET)


@pytest.mark.slow
def test_the_better_score_is_found():
    """theta = m g h with E g = E h = 1: score a = m g explains more than b = m, by what the
    simulation knows, within 4 sds.

    Errors of scores that share outcomes go together: apart they would be taken to be larger.
    """
    rng, n = np.random.default_rng(1), 4000
    m = np.exp(rng.normal(np.log(0.05), 0.6, n))
    g, h = np.exp(rng.normal(-0.15, np.sqrt(0.3), n)), rng.gamma(4.0, 0.25, n)
    exposure = np.ceil(np.exp(rng.normal(np.log(20), 1.5, n)))
    frame = pd.DataFrame({"a": m * g, "b": m, "exposure": exposure})
    frame["count"] = rng.poisson(m * g * h * exposure)
    pairs = {}
    for name in ("a", "b"):
        items = soc.PoissonItems(frame, score=name, **ROLES)
        pairs[name] = soc.fit(soc.summarize(items, **QUIET), **QUIET), items
    found = quantities.compare_scores(pairs, **QUIET)
    draws = -found.data["unexplained"].sel(score="b").to_numpy()
    truth = frame["b"].var(ddof=0) - frame["a"].var(ddof=0)
    assert abs(draws.mean() - truth) < 4 * draws.std()
    assert (found.data["r_squared"] < 0).all()
    assert 0.3 < float(found.data["correlation"][0]) < 0.95
    worse, unexplained = found.table.to_dict("records")
    assert worse["high"] < 0 < unexplained["low"]
    assert worse["where"] == unexplained["where"] == "b - a"
    assert worse["p"] == 1.0 / found.data.sizes["draw"]  # the least that draws can show
    assert worse["verdict"] == unexplained["verdict"] == "warn"


@pytest.mark.parametrize("name", ["gamma", pytest.param("groups", marks=pytest.mark.slow)])
def test_a_score_is_as_good_as_itself(example, name):
    """And other items, or the same in another order, are refused."""
    fit, items = example(name).fit, example(name).items
    found = quantities.compare_scores({"a": (fit, items), "again": (fit, items)}, **QUIET)
    assert float(found.data["correlation"][0]) > 0.95
    assert float(np.abs(found.data["r_squared"]).max()) < 1e-9
    turned = CASES[name].items(items.source.iloc[::-1])
    with pytest.raises(soc.ItemsError, match="same rows"):
        quantities.compare_scores({"a": (fit, items), "b": (fit, turned)}, **QUIET)


@pytest.mark.slow
def test_effects_of_groups_are_those_of_the_curves(example):
    """Curves of both levels moved by constants that vary from draw to draw: the factor is exp of
    a level's constant less the items' mean of them. Quantiles of its draws are exact.
    """
    fit, stats = example("groups").fit, example("groups").statistics
    posterior = fit.data["posterior"].to_dataset()
    name = "log_mean_of_kind" if "log_mean_of_kind" in posterior else "log_mean_of_group"
    level = next(dim for dim in posterior[name].dims if dim not in ("chain", "draw", "mean_knot"))
    rng, shape = np.random.default_rng(0), (posterior.sizes["chain"], posterior.sizes["draw"], 2)
    values = np.array([0.4, -0.1]) + 0.1 * rng.normal(size=shape)
    moved = xr.DataArray(values, {level: ["a", "b"]}, ("chain", "draw", level))
    values = posterior["log_mean"] + moved.reindex_like(posterior[name][level])
    values = values.transpose(*posterior[name].dims)
    moved_fit = with_draws(fit, posterior.assign({name: values}))
    effects = quantities.group_effects(moved_fit, stats, prob=0.8)
    share = example("groups").frame["kind"].value_counts(normalize=True)[["a", "b"]].to_numpy()
    draws = moved.to_numpy().reshape(-1, 2)
    draws = draws - (draws @ share)[:, None]
    table = effects.table.set_index("where")
    sd = table.loc["all levels"]
    table = table.loc[["a", "b"]]
    ends = np.exp(np.quantile(draws, [0.1, 0.5, 0.9], axis=0))
    np.testing.assert_allclose(table[["low", "value", "high"]].T, ends, rtol=1e-6)
    above = (draws > 0).mean(axis=0)
    p = np.maximum(2 * np.minimum(above, 1 - above), 1.0 / len(draws))
    np.testing.assert_allclose(table["p"], p)
    excludes = (ends[0] > 1) | (ends[2] < 1)
    np.testing.assert_array_equal(table["verdict"] == "warn", excludes)
    spread = np.exp(np.quantile(draws.std(axis=1, ddof=1), [0.1, 0.5, 0.9]))
    np.testing.assert_allclose(sd[["low", "value", "high"]].astype(float), spread, rtol=1e-6)
    assert "0.4 would differ by chance" in effects.advice[0]
    assert f"factor of {sd['value']:.3g} (one sd; 80% interval" in repr(effects)


@pytest.mark.slow
def test_all_tables_of_results_have_one_form(example):
    """The same columns of the same types, and a verdict in every row."""
    groups, gamma = example("groups"), example("gamma")
    fit, items, options = gamma.fit, gamma.items, {"bins": 3, **QUIET}
    days = items.source.assign(day=pd.date_range("2026-03-01", periods=2).repeat(2000))
    dated = soc.summarize(soc.PoissonItems(days, **COUNT_ROLES, date="day"), **options)
    split, pair = soc.evaluate.split_items(items), (fit, items)
    results = {
        "check": soc.check(fit, items, subset=20, **QUIET),
        "held_out": soc.evaluate.held_out(fit, split, **options),
        "drift": soc.drift(dated, fit, **QUIET),
        "sensitivity": soc.sensitivity(fit, gamma.statistics, **QUIET),
        "group_effects": quantities.group_effects(groups.fit, groups.statistics),
        "compare_scores": quantities.compare_scores({"a": pair, "b": pair}, **QUIET),
        "variance_reduction": quantities.variance_reduction(fit, items, **options),
    }
    form = results["check"].table.dtypes
    assert list(form.index) == ["what", "where", "n", "value", "low", "high", "p", "verdict"]
    for name, result in results.items():
        pd.testing.assert_series_equal(result.table.dtypes, form, obj=name)
        assert set(result.table["verdict"]) <= {"ok", "warn", "fail"}, name


@given(st.floats(0, 1))
def test_a_printed_p_value_agrees_with_its_verdict(p):
    shown = p_value(p)
    for bound in (0.01, 0.05):
        assert shown.startswith("<") or (float(shown) < bound) == (p < bound)
    assert len(shown) <= 7 or min(abs(p / 0.01 - 1), abs(p / 0.05 - 1)) < 1e-3


def test_summary_has_the_fits_numbers(example):
    fit = example("gamma").fit
    table = fit.summary()
    means = table[table["quantity"] == "E(theta | t)"]
    curves = soc.calibration_curves(fit, means["score"].to_numpy())["mean"]
    for column, prob in (("lower", 0.05), ("median", 0.5), ("upper", 0.95)):
        expected = curves.quantile(prob, ("chain", "draw"))
        np.testing.assert_allclose(means[column], expected, rtol=1e-12)
    median = table.set_index("quantity")["median"]
    assert median["R-squared"] == pytest.approx(float(quantities.r_squared(fit).median()))
    assert median["Pareto k (at most 0.7)"] == fit.status.pareto_k
    assert "R-squared" not in set(example("groups").fit.summary()["quantity"])
    single_draw = example("five_steps").fit.summary()
    assert (single_draw["lower"] == single_draw["upper"]).all()


stats = part_of("gamma", "statistics")


def informative(power):
    """A prior that disagrees with the data a little, raised to a power."""
    by = np.sqrt(power)
    return soc.Gamma(
        mean=soc.Spline(knots=8, level=(-2, 0.1 / by), slope=(0.5, 0.1 / by), wiggle=0.1 / by),
        variance=soc.Spline(knots=8, level=(0, 0.5 / by), slope=(0, 0.3 / by), wiggle=0.2 / by),
    )


@pytest.fixture(scope="module")
def fits(stats):
    method = soc.VI(draws=4000)
    return {a: soc.fit(stats, informative(a), method, **QUIET) for a in (0.8, 1.0, 1.25)}


def shifts(fits, densities, alpha):
    """Shifts of posterior means in sds: of a refit under the scaled prior, and by reweighting."""
    base, refit = (soc.calibration_curves(fits[a], [0.014, 0.05, 0.18]) for a in (1.0, alpha))
    weight = importance((alpha - 1.0) * densities.ravel())[0].reshape(densities.shape)
    found = []
    for name in ("mean", "log_variance"):
        old, new = base[name].to_numpy(), refit[name].to_numpy()
        mean, sd = old.mean((0, 1)), old.std((0, 1))
        reweighted = (weight[:, :, None] * old).sum((0, 1))
        found.append(((new.mean((0, 1)) - mean) / sd, (reweighted - mean) / sd))
    return np.hstack(found)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.8, 1.25])
def test_reweighting_agrees_with_a_refit_under_the_scaled_prior(fits, stats, alpha):
    """And would not if prior and likelihood were exchanged."""
    prior, likelihood = draw_densities(fits[1.0], stats)
    truth, found = shifts(fits, prior, alpha)
    assert np.abs(truth).max() > 0.4
    assert np.abs(found - truth).max() < 0.15
    _, exchanged = shifts(fits, likelihood, alpha)
    assert np.abs(exchanged - truth).max() > 0.5


def test_densities_are_those_of_the_documented_prior_and_the_curves(stats):
    """Normal levels and slopes, half-normal wiggles; the likelihood from curves at bins' scores."""
    fit = soc.fit(stats, informative(1.0), soc.VI(draws=100), **QUIET)
    prior, likelihood = draw_densities(fit, stats)
    draws, expected = fit.data["posterior"], 0.0
    for name, spline in (("log_mean", fit.prior.mean), ("log_cv2", fit.prior.variance)):
        wiggle = draws[f"{name}_wiggle_sd"]
        expected = expected + distributions.halfnorm.logpdf(wiggle, 0, spline.wiggle)
        for place, (centre, sd) in enumerate((spline.level, spline.slope)):
            own = draws[f"{name}_line"].to_numpy()[..., place]
            expected = expected + distributions.norm.logpdf(own, centre, sd)
    np.testing.assert_allclose(prior, expected, rtol=1e-8)
    built = build(stats, fit.prior)
    curves = soc.calibration_curves(fit, built.score)
    m = curves["log_mean"].to_numpy()[0, :20]
    c = -np.log(curves["shape"].to_numpy()[0, :20])
    by_bin = built.pilot.data.values(m, c)
    np.testing.assert_allclose(likelihood[0, :20], by_bin.sum(axis=-1), rtol=1e-8)


def test_table_is_that_of_arviz(small_fit, stats):
    found = soc.sensitivity(small_fit, stats, **QUIET)
    table = arviz_stats.psense_summary(found.data, round_to=10)
    for name in ("prior", "likelihood"):
        rows = found.table[found.table["what"] == name]
        np.testing.assert_allclose(rows["value"], table[name].astype(float), atol=1e-8)
        assert set(rows["verdict"]) == {"ok"}
        assert len(rows) == 11


@pytest.mark.slow
def test_a_tight_wrong_prior_is_a_conflict(stats):
    prior = soc.Gamma(mean=soc.Spline(knots=2, level=(0.0, 0.05)))
    tight = soc.sensitivity(soc.fit(stats, prior, soc.VI(draws=4000), **QUIET), stats, **QUIET)
    assert tight.table["verdict"].iloc[0] == "fail"
    assert "Prior and data disagree on E(theta | t)" in repr(tight)


@pytest.mark.slow
def test_statistics_that_did_not_make_the_fit_are_refused(small_fit, example):
    with pytest.raises(soc.FitError, match="not those of the fit"):
        soc.sensitivity(small_fit, example("groups").statistics, **QUIET)
