import functools

import mpmath
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

import soc_pymc as soc
from soc_pymc._lib import errors
from soc_pymc.checks import _check, findings, leave_one_out, predictive
from soc_pymc.data.items import PoissonItems
from soc_pymc.families import poisson_gamma
from soc_pymc.families.poisson import POISSON_FORMS
from soc_pymc.families.priors import Gamma
from soc_pymc.inference.methods import VI
from soc_pymc.inference.results import Fit, Status
from soc_pymc.posterior.curves import curve_draws
from soc_pymc.posterior.predictive import posterior_of
from tests.studies import check_calibration

KNOTS = np.log([0.005, 0.02, 0.05, 0.15, 0.5])
LOG_MEAN = KNOTS - 0.1 * np.tanh(KNOTS + 3)
LOG_CV2 = np.log(0.3) - 0.6 * np.tanh(KNOTS + 3)


def hand_made_fit(sd=1e-6, cv2_factor=1.0, draws=50, status=None, seed=0):
    """Curves known at five knots, with independent normal uncertainty of the given sd."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, sd, (2, 2, draws, len(KNOTS)))
    posterior = xr.Dataset(
        {
            "log_mean": (("chain", "draw", "mean_knot"), LOG_MEAN + noise[0]),
            "log_cv2": (
                ("chain", "draw", "variance_knot"),
                LOG_CV2 + np.log(cv2_factor) + noise[1],
            ),
        },
        {
            "chain": [0, 1],
            "draw": np.arange(draws),
            "mean_knot": KNOTS,
            "variance_knot": KNOTS,
        },
    )
    bins = xr.Dataset({"score": ("bin", np.exp(KNOTS))})
    tree = xr.DataTree.from_dict({"posterior": posterior, "constant_data": bins})
    status = status or Status(True, "made by hand", 0.3, 0.9, 0.0)
    return Fit(tree, Gamma(), VI(), status)


def simulate(n, seed, power=0.0):
    """Items of the model with the curves of `hand_made_fit`; theta proportional to N^power."""
    from scipy.interpolate import CubicSpline

    rng = np.random.default_rng(seed)
    u = np.clip(rng.normal(np.log(0.05), 0.8, n), KNOTS[0], KNOTS[-1])
    mean, cv2 = (np.exp(CubicSpline(KNOTS, v, bc_type="natural")(u)) for v in (LOG_MEAN, LOG_CV2))
    exposure = np.ceil(np.exp(rng.normal(np.log(6), 1.8, n)))
    theta = rng.gamma(1 / cv2, mean * cv2) * (exposure / np.exp(np.log(exposure).mean())) ** power
    return pd.DataFrame(
        {
            "score": np.exp(u),
            "exposure": exposure,
            "count": rng.poisson(theta * exposure),
            "country": rng.choice(["de", "fr", None], n, p=[0.6, 0.3, 0.1]),
        }
    )


def as_items(frame):
    return PoissonItems(frame, score="score", count="count", exposure="exposure")


def arrays(frame):
    return tuple(frame[c].to_numpy(dtype=float) for c in ("score", "count", "exposure"))


def columns(*values):
    return dict(zip(("score", "count", "exposure"), values, strict=True))


def cdf_interval(fit, *values):
    return predictive.predictive_cdf(posterior_of(fit), columns(*values), progress=False)


@functools.cache
def good_result():
    return _check.check(
        hand_made_fit(sd=0.02), as_items(simulate(3000, 1)), by="country", progress=False
    )


# --- PIT ----------------------------------------------------------------------------------------


def test_predictive_cdf_is_the_negative_binomial_s():
    frame = simulate(200, 0)
    score, count, exposure = arrays(frame)
    below, upto = cdf_interval(hand_made_fit(), score, count, exposure)
    from scipy.interpolate import CubicSpline

    mean, cv2 = (
        np.exp(CubicSpline(KNOTS, v, bc_type="natural")(np.log(score))) for v in (LOG_MEAN, LOG_CV2)
    )
    exact = stats.nbinom(1 / cv2, 1 / (1 + exposure * mean * cv2))
    np.testing.assert_allclose(upto, exact.cdf(count), atol=1e-5)
    np.testing.assert_allclose(below, exact.cdf(count - 1), atol=1e-5)


def exact_cdf(y, n, log_mean, log_cv2):
    """P(Y <= y) of the negative binomial in 50 digits."""
    with mpmath.workdps(50):
        shape = mpmath.exp(-mpmath.mpf(log_cv2))
        ratio = mpmath.mpf(n) * mpmath.exp(mpmath.mpf(log_mean) + mpmath.mpf(log_cv2))
        total = pmf = (1 + ratio) ** -shape
        for k in range(1, y + 1):
            pmf *= (shape + k - 1) / k * ratio / (1 + ratio)
            total += pmf
        return float(total)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 127), st.floats(0, 1e4)), min_size=1, max_size=5),
    st.floats(-8, 2),
    st.floats(-28, 3),
)
@example([(11, 2190.0)], -5.0, -26.0)
def test_both_ways_to_a_cdf_are_exact(pairs, log_mean, log_cv2):
    y, n = np.array(pairs, dtype=float).T
    curves = np.full((1, len(y)), log_mean), np.full((1, len(y)), log_cv2)
    upto = [exact_cdf(int(k), float(m), log_mean, log_cv2) for k, m in zip(y, n, strict=True)]
    below = [
        exact_cdf(int(k) - 1, float(m), log_mean, log_cv2) if k else 0.0
        for k, m in zip(y, n, strict=True)
    ]
    for exact, few, many in zip(
        (below, upto),
        poisson_gamma._few_cdfs(y, n, *curves),
        poisson_gamma._many_cdfs(y, n, *curves),
        strict=True,
    ):
        np.testing.assert_allclose(few[0], exact, rtol=0, atol=1e-12)
        # the family's cdf is the Poisson limit from a shape of 1e11, right to about 1e-10 there
        np.testing.assert_allclose(many[0], exact, rtol=0, atol=1e-9)


def test_predictive_cdf_averages_over_curve_uncertainty():
    fit = hand_made_fit(sd=0.3, draws=2000)
    score, count, exposure = np.full(4, 0.05), np.array([0.0, 1, 4, 9]), np.full(4, 60.0)
    _, upto = cdf_interval(fit, score, count, exposure)
    from soc_pymc.posterior.curves import curve_draws

    log_mean, log_cv2 = curve_draws(fit, score)
    exact = stats.nbinom(np.exp(-log_cv2), 1 / (1 + exposure * np.exp(log_mean + log_cv2)))
    np.testing.assert_allclose(upto, exact.cdf(count).mean(axis=0), atol=2e-3)
    at_the_mean = stats.nbinom(
        np.exp(-log_cv2.mean(0)), 1 / (1 + exposure * np.exp((log_mean + log_cv2).mean(0)))
    ).cdf(count)
    assert np.abs(upto - at_the_mean).max() > 5e-3


def test_pit_is_calibrated_on_the_truth():
    rejected, p_values = 0, []
    fit = hand_made_fit()
    for seed in range(40):
        score, count, exposure = arrays(simulate(3000, 100 + seed))
        ends = cdf_interval(fit, score, count, exposure)
        u = predictive.randomised_pit(*ends, np.random.default_rng(seed))
        p_values.append(predictive.uniformity(u).p_value)
        rejected += p_values[-1] < 0.05
    assert rejected <= stats.binom(40, 0.05).ppf(0.999)
    assert stats.kstest(p_values, "uniform").pvalue > 0.001


def test_pit_has_power_against_twice_the_variance():
    frame = simulate(6000, 7)
    frame = frame[frame["exposure"] >= 50]
    score, count, exposure = arrays(frame)
    ends = cdf_interval(hand_made_fit(cv2_factor=2.0), score, count, exposure)
    u = predictive.randomised_pit(*ends, np.random.default_rng(0))
    assert predictive.uniformity(u).p_value < 1e-3


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_uniformity_is_scipy_s(values):
    u = np.array(values)
    ours, theirs = predictive.uniformity(u), stats.kstest(u, "uniform", method="exact")
    np.testing.assert_allclose(ours.distance, theirs.statistic, atol=1e-12)
    np.testing.assert_allclose(ours.p_value, theirs.pvalue, rtol=1e-6, atol=1e-12)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30),
    st.integers(2, 50),
)
def test_mean_ecdf_is_the_mean_of_uniform_cdfs(pairs, points):
    ends = np.sort(np.array(pairs), axis=1)
    # narrower intervals are steps by definition
    ends = ends[(np.diff(ends)[:, 0] > 1e-4) | (np.diff(ends)[:, 0] == 0)]
    if not len(ends):
        return
    grid = np.linspace(0, 1, points)
    width = np.diff(ends)[:, 0]
    ramp = np.where(
        width[:, None] > 0,
        np.clip((grid - ends[:, :1]) / np.where(width > 0, width, 1)[:, None], 0, 1),
        grid >= ends[:, 1:],
    )
    on_grid = np.isclose(ends[:, 1:], grid, rtol=0, atol=1e-9) & (width[:, None] == 0)
    keep = ~on_grid.any(axis=0)  # a step on a grid point is within rounding of either side
    ours = predictive.mean_pit_ecdf(ends[:, 0], ends[:, 1], grid)
    np.testing.assert_allclose(ours[keep], ramp.mean(axis=0)[keep], atol=1e-9)


def test_randomised_ecdfs_average_to_the_mean_ecdf():
    score, count, exposure = arrays(simulate(500, 3))
    ends = cdf_interval(hand_made_fit(), score, count, exposure)
    rng = np.random.default_rng(0)
    drawn = [predictive.randomised_pit(*ends, rng) for _ in range(400)]
    many = np.mean([predictive.pit_ecdf(u) for u in drawn], axis=0)
    np.testing.assert_allclose(many, predictive.mean_pit_ecdf(*ends), atol=5e-3)


def test_fifths_split_all_items_and_never_split_ties():
    value = np.array([1.0] * 50 + [2.0] * 5 + list(range(3, 48)))
    masks = dict(predictive.fifths("score", value))
    assert np.array_equal(np.sum(list(masks.values()), axis=0), np.ones(len(value)))
    assert all(len({bool(m) for m in mask[:50]}) == 1 for mask in masks.values())
    assert list(predictive.fifths("score", np.ones(10))) == []


# --- predictive ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_predictive_p_values_are_calibrated_on_the_truth():
    fit = hand_made_fit()
    found = [
        [t.p_value for t in predictive.predictive_tests(
            fit, columns(*arrays(simulate(400, 500 + seed))), seed=seed, progress=False
        )]
        for seed in range(40)
    ]  # fmt: skip
    for p_values in np.array(found).T:
        assert (p_values < 0.05).sum() <= stats.binom(40, 0.05).ppf(0.999)
        assert stats.kstest(p_values, "uniform").pvalue > 0.001


def test_predictive_tests_see_too_wide_a_prior():
    data = columns(*arrays(simulate(6000, 8)))
    wide = predictive.predictive_tests(hand_made_fit(cv2_factor=2.0), data, progress=False)
    scatter, zeros = wide
    assert scatter.name == "dispersion"
    assert scatter.ratio < 0.95
    assert scatter.p_value < 1e-4
    assert zeros.ratio < 1.0
    assert zeros.p_value < 0.01


def test_predictive_tests_see_added_zeros():
    score, count, exposure = arrays(simulate(4000, 9))
    count[np.random.default_rng(0).random(4000) < 0.1] = 0
    items = columns(score, count, exposure)
    _, zeros = predictive.predictive_tests(hand_made_fit(), items, progress=False)
    assert zeros.ratio > 1.03
    assert zeros.p_value < 1e-3


def simulated(n, log_mean, log_cv2, draws):
    """Counts of one item, so many times over."""
    fit = hand_made_fit(draws=draws // 2)
    posterior = fit.data["posterior"].to_dataset()
    posterior["log_mean"][:], posterior["log_cv2"][:] = log_mean, log_cv2
    tree = xr.DataTree.from_dict({"posterior": posterior})
    law = posterior_of(Fit(tree, Gamma(), VI(), fit.status))
    items = columns(np.array([0.05]), np.zeros(1), np.array([n]))
    return law.simulate(items, np.random.default_rng(0))


def test_simulated_counts_have_the_prior_s_moments():
    y = simulated(30.0, np.log(0.1), np.log(0.5), 200_000)
    assert y.mean() == pytest.approx(3.0, rel=0.02)
    assert y.var() == pytest.approx(3 + 0.5 * 9, rel=0.03)


def test_scatter_is_weighted_by_its_own_precision():
    """Its weight is variance / Var((y - mean)^2): one item's mean and variance then agree."""
    y = simulated(25.0, np.log(0.1), np.log(0.4), 1_000_000)
    one = POISSON_FORMS.scatter(y, np.array([25.0]), np.array([0.1]), np.array([0.4 * 0.01]))
    assert one.var() == pytest.approx(one.mean(), rel=0.05)


def test_tail_probability_is_two_sided_and_goes_beyond_the_replicates():
    draws = np.random.default_rng(0).normal(size=400)
    for shift in (0.5, 1.0, 1.5):
        exact = 2 * stats.norm.sf(shift)
        assert predictive.tail_probability(draws - shift) == pytest.approx(exact, rel=0.35)
        assert predictive.tail_probability(draws + shift) == pytest.approx(exact, rel=0.35)
    assert 1e-9 < predictive.tail_probability(draws + 5.0) < 1e-4
    assert predictive.tail_probability(np.zeros(400)) == 1.0


def test_thinning_keeps_whole_draws_of_every_chain():
    fit = hand_made_fit(sd=0.1, draws=50)
    few = predictive.thin(fit, 20).data["posterior"]
    assert few.sizes["chain"] == 2
    assert few.sizes["draw"] == 10
    kept = fit.data["posterior"]["log_mean"].sel(draw=few["draw"])
    np.testing.assert_array_equal(few["log_mean"], kept)


# --- the result ---------------------------------------------------------------------------------


def test_good_fit_passes_and_says_so():
    result = good_result()
    assert list(result.table) == ["check", "slice", "statistic", "p_value", "verdict"]
    assert set(result.table["verdict"]) <= {"ok", "look"}
    checks = set(result.table["check"])
    tests = {"PIT", "PIT of slices", "LOO-PIT", "dispersion", "zero counts", "leave-one-out"}
    assert checks == tests | {"converged", "pareto_k", "ess_fraction"}
    slices = result.table["slice"]
    assert slices.str.startswith("score ").sum() == 6
    assert slices.str.startswith("exposure ").sum() == 7
    assert {"country = de", "country = fr", "country = missing"} <= set(slices)
    sizes = result.data["pit"]["n_items"].to_series()
    assert sizes["exposure >= 50"] == (simulate(3000, 1)["exposure"] >= 50).sum()
    assert sizes["all items"] == 3000
    assert result.advice
    assert "0 fail" in repr(result)
    assert result.advice[0] in repr(result)
    assert "3,000 items" in repr(result)


def test_wide_prior_fails_with_advice():
    frame = simulate(6000, 11)
    result = _check.check(hand_made_fit(cv2_factor=2.0), as_items(frame), progress=False)
    failed = result.table[result.table["verdict"] == "fail"]
    assert {"PIT", "dispersion"} <= set(failed["check"])
    assert "exposure >= 50" in set(failed["slice"])
    assert any("less than the model says" in a for a in result.advice)


def test_score_dependent_error_fails_by_score():
    frame = simulate(6000, 12)
    frame["score"] = np.exp(np.log(0.05) - (np.log(frame["score"]) - np.log(0.05)))
    result = _check.check(hand_made_fit(), as_items(frame), progress=False)
    failed = result.table[result.table["verdict"] == "fail"]["slice"]
    assert failed.str.startswith("score ").any()
    assert any("off by score" in a for a in result.advice)


def test_level_that_differs_fails_by_name():
    frame = simulate(6000, 13)
    odd = frame["country"] == "fr"
    frame.loc[odd, "count"] = np.random.default_rng(0).poisson(frame.loc[odd, "count"] * 1.5)
    result = _check.check(hand_made_fit(), as_items(frame), by=["country"], progress=False)
    verdict = result.table.set_index("slice")["verdict"]
    assert verdict["country = fr"] == "fail"
    assert verdict["country = de"] != "fail"
    assert any("'country'" in a for a in result.advice)


def test_arviz_takes_the_data():
    import arviz

    data = good_result().data
    assert data["observed_data"].sizes["item"] == 3000
    assert data["constant_data"]["exposure"].dims == ("item",)
    loo = arviz.loo(data)
    score, count, exposure = arrays(simulate(3000, 1))
    from soc_pymc.families import poisson_gamma
    from soc_pymc.posterior.curves import curve_draws

    curves = (c.mean(axis=0) for c in curve_draws(hand_made_fit(), score))
    exact = poisson_gamma.log_pmf(count, exposure, *curves).sum()
    assert float(loo.elpd) == pytest.approx(exact, abs=5.0)


def test_subset_is_a_seeded_choice_of_the_items():
    frame = simulate(400, 2)
    trees = [
        _check.check(hand_made_fit(), as_items(frame), seed=seed, subset=100, progress=False).data
        for seed in (3, 3, 4)
    ]
    xr.testing.assert_identical(trees[0], trees[1])
    rows = trees[0]["observed_data"]["item"].to_numpy()
    assert len(np.unique(rows)) == 100
    assert not np.array_equal(rows, trees[2]["observed_data"]["item"])
    np.testing.assert_array_equal(trees[0]["observed_data"]["count"], frame["count"].iloc[rows])


def test_table_does_not_depend_on_the_kind_of_source(tmp_path):
    import polars as pl
    import pyarrow as pa

    frame = simulate(500, 4)
    frame.to_parquet(tmp_path / "items.parquet")
    sources = [frame, pl.from_pandas(frame), pa.table(frame), tmp_path / "items.parquet"]
    tables = [
        _check.check(hand_made_fit(), as_items(s), by="country", progress=False).table
        for s in sources
    ]
    for other in tables[1:]:
        pd.testing.assert_frame_equal(tables[0], other)


def test_only_the_most_frequent_levels_are_checked():
    frame = simulate(2000, 5)
    frame["ad"] = [f"n{k % 30}" for k in range(2000)]
    result = _check.check(hand_made_fit(), as_items(frame), by="ad", progress=False)
    assert result.table["slice"].str.startswith("ad = ").sum() == 21  # and all
    assert any("30 levels" in a for a in result.advice)


def test_numbers_and_dates_of_many_values_are_cut_into_fifths():
    frame = simulate(2000, 5)
    rng = np.random.default_rng(0)
    frame["age"] = np.where(rng.random(2000) < 0.1, np.nan, rng.normal(40, 10, 2000))
    frame["age"] = frame["age"].where(frame.index != 3, np.inf)
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(2000) // 20, unit="D")
    frame["few"] = np.arange(2000) % 3
    frame["yes"] = np.arange(2000) % 2 == 0
    frame["name"] = [f"n{k % 30}" for k in range(2000)]
    by = ["age", "day", "few", "yes", "name"]
    result = _check.check(hand_made_fit(), as_items(frame), by=by, subset=50, progress=False)
    n = result.data["pit"]["n_items"].to_series()
    ages = n[n.index.str.match(r"age \d/5: ")]
    assert len(ages) == 5
    assert ages.sum() + n["age = missing"] == 2000
    assert n["age = missing"] == frame["age"].isna().sum()
    assert ages.max() - ages.min() <= 2
    assert ages.index[-1].endswith("to inf")
    days = n[n.index.str.match(r"day \d/5: ")]
    assert days.index[0] == "day 1/5: 2024-01-01 to 2024-01-20"
    assert days.sum() == 2000
    assert set(n[n.index.str.startswith("few = ")].index) == {"few = 0", "few = 1", "few = 2"}
    assert len(n[n.index.str.startswith("yes = ")]) == 2
    assert len(n[n.index.str.startswith("name = ")]) == 20
    assert any("'name' has 30 levels" in a for a in result.advice)


def test_columns_do_not_take_the_names_of_other_slices():
    frame = simulate(1500, 5)
    items = as_items(frame.rename(columns={"score": "t"}).assign(score=np.arange(1500.0)))
    items = PoissonItems(items.source, score="t", count="count", exposure="exposure")
    fit = hand_made_fit()
    fit.data.attrs["roles"] = '{"score": "t", "count": "count", "exposure": "exposure"}'
    table = _check.check(fit, items, by=["score", "t"], subset=50, progress=False).table
    slices = table["slice"]
    assert slices.str.match(r"score \d/5: ").sum() == 5
    assert slices.str.match(r"column score \d/5: ").sum() == 5
    assert slices.str.match(r"t \d/5: ").sum() == 5
    assert slices[table["check"] == "PIT"].is_unique


def test_column_that_says_something_is_named_in_the_advice():
    frame = simulate(6000, 13)
    frame["age"] = np.random.default_rng(1).normal(size=6000)
    old = frame["age"] > 0.8
    frame.loc[old, "count"] = np.random.default_rng(0).poisson(frame.loc[old, "count"] * 1.5)
    result = _check.check(hand_made_fit(), as_items(frame), by="age", subset=50, progress=False)
    failed = result.table[result.table["verdict"] == "fail"]["slice"]
    assert failed.str.startswith("age 5/5: ").any()
    assert any("off by 'age'" in a and "score model" in a for a in result.advice)


def test_print_is_short_and_says_the_worst_first():
    frame = simulate(6000, 11)
    frame["ad"] = np.arange(6000) % 20
    result = _check.check(
        hand_made_fit(cv2_factor=2.0), as_items(frame), by="ad", subset=200, progress=False
    )
    lines = repr(result).splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines[1:7])) <= 120
    assert lines[1].split() == ["verdict", "what", "where", "found", "p"]
    assert [line.split()[0] for line in lines[2:7]] == ["fail"] * 5
    rest = lines[7]
    odd = (result.table["verdict"] != "ok").sum()
    assert f"{odd - 5} more like these" in rest
    assert "ok: " in rest
    assert lines[8] == f"- {result.advice[0]}"
    page = result._repr_html_()
    assert page.count("<tr>") == 6
    assert result.advice[0].replace("'", "&#x27;") in page


def test_page_escapes_names():
    frame = simulate(500, 2).assign(g="<script>")
    result = _check.check(hand_made_fit(), as_items(frame), by="g", subset=20, progress=False)
    odd = result.table.assign(
        verdict=np.where(result.table["slice"] == "g = <script>", "fail", "ok")
    )
    page = findings.as_html(odd, ["a < b"], 500)
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert "a &lt; b" in page


def test_items_left_out_have_the_cdf_of_the_others():
    """Against all draws with plain importance weights, curves known to an sd of .15 only."""
    fit = hand_made_fit(sd=0.15, draws=400)
    data = columns(*arrays(simulate(60, 4)))
    law = posterior_of(fit)
    each = law.log_density(data)
    ends = cdf_interval(fit, *data.values())
    left = leave_one_out.leave_items_out(fit, data, each, *ends)
    weight = np.exp(-each - (-each).max(axis=0))
    weight /= weight.sum(axis=0)
    log_mean, log_cv2 = curve_draws(fit, data["score"])
    exact = stats.nbinom(
        np.exp(-log_cv2), 1 / (1 + data["exposure"] * np.exp(log_mean + log_cv2))
    ).cdf(data["count"])
    moved = (weight * exact).sum(axis=0) - exact.mean(axis=0)
    assert np.abs(moved).max() > 0.015
    np.testing.assert_allclose(left.upto - ends[1], moved, atol=0.006)
    assert np.corrcoef(left.upto - ends[1], moved)[0, 1] > 0.9
    assert np.all(left.below <= left.upto)
    assert -1 < left.pareto_k < 0.7


@pytest.mark.slow
def test_p_values_of_a_grid_allow_for_its_steps():
    """Their median is one half within three of its standard errors (.008); at the grid's own
    distances it would be .55."""
    rng = np.random.default_rng(0)
    p, plain = [], []
    for _ in range(3000):
        far = np.abs(predictive.pit_ecdf(rng.random(400)) - predictive.GRID).max()
        p.append(predictive.grid_p_value(far, 400))
        plain.append(predictive._ks_p_value(far, 400))
    assert np.median(p) == pytest.approx(0.5, abs=0.03)
    assert np.median(plain) > 0.53
    assert stats.binom(3000, 0.05).ppf(0.001) <= np.sum(np.array(p) < 0.05)
    assert np.sum(np.array(p) < 0.05) <= stats.binom(3000, 0.055).ppf(0.999)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gamma", "normal"])
def test_checks_reject_no_more_than_they_should(family):
    """80 sets against the truth: each test within the central 0.9998 of Binomial(80, 0.05), and the
    share of all PIT tests that reject from 0.02 to 0.085: slices of a set share items, and by the
    study of 400 sets the standard error of 80 is 0.009 at most."""
    truth = check_calibration.template(family)
    rows = [
        (source, test, p)
        for seed in range(80)
        for (_, source), tests in check_calibration.null_run(
            family, "truth", truth, 600, 1000 + seed
        ).items()
        for test, p in tests.items()
    ]
    table = pd.DataFrame(rows, columns=["from", "test", "p"])
    table["rejected"] = table["p"] < 0.05
    of_test = table.groupby(["from", "test"])["rejected"].sum()
    assert of_test.max() <= stats.binom(80, 0.05).ppf(0.9999)
    of_pit = table[table["test"].str.startswith("PIT")]
    for _, part in of_pit.groupby("from"):
        assert 0.02 < part["rejected"].mean() < 0.085
        assert part["p"].median() == pytest.approx(0.5, abs=0.1)


@pytest.mark.slow
def test_checks_find_what_is_wrong():
    found = check_calibration.power_run(60_000, 77)
    wide, spike = found["x1.3", "items"], found["spike", "items"]
    assert wide["PIT, exposure >= 50"] < 0.05
    assert wide["dispersion, all items"] < 0.05
    assert spike["PIT, all items"] < 1e-6


def test_bad_arguments_are_named():
    items = as_items(simulate(50, 6))
    with pytest.raises(errors.ItemsError, match="'nation' is missing"):
        _check.check(hand_made_fit(), items, by="nation", progress=False)
    with pytest.raises(errors.FitError, match="subset=0"):
        _check.check(hand_made_fit(), items, subset=0, progress=False)


@pytest.mark.parametrize("n", [1, 2, 25])
def test_few_items_are_checked(n):
    result = _check.check(hand_made_fit(), as_items(simulate(n, 0).assign(
        score=np.linspace(0.02, 0.2, n)
    )), progress=False)  # fmt: skip
    assert "all items" in set(result.table["slice"])
    assert result.data["log_likelihood"].sizes["item"] == n


def test_inference_that_failed_comes_first():
    status = Status(False, "Pareto k 0.9", 0.9, 0.05, 1.0)
    verdicts = {finding[0]: finding[-1] for finding in _check.quality(status)}
    assert verdicts == {"converged": "fail", "pareto_k": "fail", "ess_fraction": "look"}
    assert len(_check.quality(Status(True, "fine", None, None, 1.0))) == 1
    result = _check.check(hand_made_fit(status=status), as_items(simulate(500, 0)), progress=False)
    assert "NUTS" in result.advice[0]


def test_verdicts_fail_after_correction_and_look_before():
    p = [0.004, 0.004, 0.004, 0.04, 0.06, np.nan]
    table = pd.DataFrame({"p_value": p, "verdict": [""] * 5 + ["ok"]})
    assert _check._verdicts(table) == ["look", "look", "look", "look", "ok", "ok"]
    table.loc[0, "p_value"] = 0.001
    assert _check._verdicts(table)[:2] == ["fail", "look"]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_bounds(values):
    p = np.array(values)
    adjusted = _check.holm(p)
    assert np.all(adjusted >= p)
    assert np.all(adjusted <= np.minimum(1.0, p * len(p)) + 1e-15)
    assert adjusted.min() == pytest.approx(min(1.0, p.min() * len(p)))
    assert np.all(np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0)


@pytest.mark.parametrize("distinct", [1, 2, 6, 60, 1000])
def test_weights_of_repeated_draws_are_not_vouched_for(distinct):
    """A tail of a few repeated numbers has no shape: k is infinite, weights are plain ones."""
    rng = np.random.default_rng(distinct)
    log_density = rng.normal(size=distinct)[rng.integers(distinct, size=1000)][:, None]
    log_weight, k = leave_one_out._smoothed(log_density)
    plain = np.exp(-log_density)
    assert np.exp(log_weight).sum() == pytest.approx(1.0)
    if distinct == 1:
        assert k[0] == 0.0
    if distinct in (2, 6):
        assert np.isinf(k[0])
    if distinct < 60:
        np.testing.assert_allclose(np.exp(log_weight), plain / plain.sum(), rtol=1e-12)
    if distinct == 1000:
        assert k[0] < 0.7
    assert not np.isnan(k).any()


# --- what the advice says of findings that are only seen together, or only looked at -------------


def _informative(seed, power=0.06, n=2965):
    """Check of a fit to items whose rate at equal score is proportional to N^power."""
    rng = np.random.default_rng(seed)
    score, exposure = np.exp(rng.normal(-2, 0.6, n)), np.exp(rng.normal(4, 1.2, n))
    theta = score * rng.gamma(4, 0.25, n) * (exposure / np.exp(4)) ** power
    count = rng.poisson(theta * exposure)
    items = as_items(pd.DataFrame({"score": score, "exposure": exposure, "count": count}))
    fit = soc.fit(soc.summarize(items, progress=False), method=soc.FiveSteps(), progress=False)
    return _check.check(fit, items, progress=False)


def test_slices_that_are_low_together_fail_together():
    """No fifth of the exposures fails by itself, but all do together, and the remedy is named."""
    result = _informative(7)
    own = result.table[result.table["slice"].str.match(r"exposure (\d/5: |>= )")]
    assert set(own["verdict"]) == {"ok", "look"}
    verdict = result.table.set_index("slice")["verdict"]
    assert verdict["exposure 1/5 to 5/5"] == "fail"
    assert any(
        said.startswith("The fit is off at some exposures.")
        and "soc.Gamma(exposure=soc.Spline())" in said
        for said in result.advice
    )


def test_a_look_names_its_remedy_too():
    result = _informative(6)
    assert "fail" not in set(result.table["verdict"])
    assert "nothing fails" in result.advice[0]
    assert any(
        said.startswith("If this is more than chance: The fit is off at some exposures.")
        and "soc.Gamma(exposure=soc.Spline())" in said
        for said in result.advice
    )


def test_slices_together_have_their_level():
    """Of 1,000 sets of five calibrated slices 5% are below 0.05, within 3.5 standard errors."""
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(1000):
        tests = [predictive.uniformity(rng.random(40)) for _ in range(5)]
        found = {
            f"score {k}/5: 1": predictive.SlicePit(None, None, 40, t)
            for k, t in enumerate(tests, 1)
        }
        ((check, where, _, p_value, _),) = _check._together(found)
        p_values.append(p_value)
    assert (check, where) == ("PIT of slices", "score 1/5 to 5/5")
    assert abs(np.mean(np.array(p_values) < 0.05) - 0.05) < 3.5 * np.sqrt(0.05 * 0.95 / 1000)


@pytest.mark.parametrize(("lowest", "highest"), [(0.1, 0.4), (0.1, 0.8)])
def test_too_little_scatter_within_exposures_advises_the_binomial(lowest, highest):
    """Successes in 1 to 6 trials, taken for counts: no knots or terms mend their noise."""
    rng = np.random.default_rng(5)
    n = 4000
    exposure = rng.integers(1, 7, n)
    rate = rng.uniform(lowest, highest, n)
    count = rng.binomial(exposure, rng.beta(12 * rate, 12 * (1 - rate)))
    items = as_items(pd.DataFrame({"score": rate, "exposure": exposure, "count": count}))
    with pytest.warns(soc.ItemsWarning, match="soc.BinomialItems"):
        stats_of = soc.summarize(items, progress=False)
    fit = soc.fit(stats_of, method=soc.FiveSteps(), progress=False)
    result = _check.check(fit, items, progress=False)
    assert result.table.set_index("check").loc["dispersion", "statistic"] < 1
    assert "soc.BinomialItems" in result.advice[0]
    assert not any("soc.Spline(" in said for said in result.advice)


def test_items_that_sway_the_fit_come_with_what_to_do():
    rows = [("leave-one-out", "all items", 0.9, np.nan, "look")]
    table = pd.DataFrame(rows, columns=["check", "slice", "statistic", "p_value", "verdict"])
    fit = hand_made_fit()
    (said,) = findings.advise(table, fit, posterior_of(fit).outcome, 100, ())
    assert "Pareto k 0.90" in said
    assert "arviz.plot_khat" in said
    assert "soc.evaluate.held_out" in said
