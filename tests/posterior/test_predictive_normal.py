"""Distributions of Normal fits against brute force, on fits made by hand."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import optimize, stats

import soc_pymc as soc
from soc_pymc._lib import errors
from soc_pymc.checks import predictive
from soc_pymc.families.priors import Normal, Spline
from soc_pymc.inference.methods import VI
from soc_pymc.inference.results import Fit, Status
from soc_pymc.posterior.curves import curve_draws
from soc_pymc.posterior.items import item_posteriors
from soc_pymc.posterior.predictive import posterior_of
from soc_pymc.posterior.quadrature import LIMITS, NodeTable

KNOTS = np.array([-2.0, -1.0, -0.3, 0.4, 1.1, 2.0])


def make_fit(sd=0.05, draws=500, chains=2, seed=0, **changes):
    """Curves known at six knots, with skewed and correlated uncertainty of about the given sd."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(2, chains, draws, 3)) @ np.vstack([np.ones(6), KNOTS / 2, np.sin(KNOTS)])
    mean = 0.5 + KNOTS + 0.3 * np.sin(2 * KNOTS) + sd * z[0]
    log_variance = np.log(0.5) + 0.4 * KNOTS + 2 * sd * (z[1] + 0.4 * z[0] + 0.3 * sd * z[1] ** 2)
    posterior = xr.Dataset(
        {
            "mean": (("chain", "draw", "mean_knot"), mean),
            "log_variance": (("chain", "draw", "variance_knot"), log_variance),
        },
        {
            "chain": np.arange(chains),
            "draw": np.arange(draws),
            "mean_knot": KNOTS,
            "variance_knot": KNOTS,
        },
    )
    tree = xr.DataTree.from_dict({"posterior": posterior})
    tree.attrs = {"kind": "normal", "roles": json.dumps(ROLES)}
    return Fit(tree, Normal(**changes), VI(), Status(True, "made by hand", 0.3, 0.9, 0.0))


ROLES = {"score": "t", "value": "y", "noise_sd": "s"}


def values_of(source, group=None):
    return soc.NormalItems(source, score="t", value="y", noise_sd="s", group=group)


def simulate(n, seed, fit=None):
    """Items of the mean curves of a fit."""
    rng = np.random.default_rng(seed)
    score = rng.uniform(-2, 2, n)
    noise_sd = np.exp(rng.normal(-0.3, 0.7, n))
    mean, log_variance = (c.mean(axis=0) for c in curve_draws(fit or make_fit(), score))
    theta = mean + np.exp(0.5 * log_variance) * rng.normal(size=n)
    return pd.DataFrame({"t": score, "y": theta + noise_sd * rng.normal(size=n), "s": noise_sd})


def columns_of(frame):
    return {role: frame[name].to_numpy(dtype=float) for role, name in ROLES.items()}


def components(fit, columns):
    """Posterior mean and sd of theta for every draw and item."""
    mean, log_variance = curve_draws(fit, columns["score"])
    v, w = np.exp(log_variance), columns["noise_sd"] ** 2
    precision = 1 / v + 1 / w
    return (mean / v + columns["value"] / w) / precision, precision**-0.5


def test_log_density_and_ends():
    fit = make_fit(sd=0.1)
    columns = columns_of(simulate(300, 1))
    law = posterior_of(fit)
    mean, log_variance = curve_draws(fit, columns["score"])
    exact = stats.norm(mean, np.sqrt(np.exp(log_variance) + columns["noise_sd"] ** 2))
    np.testing.assert_allclose(law.log_density(columns), exact.logpdf(columns["value"]), rtol=1e-10)
    below, upto = law.cdf_interval(columns)
    np.testing.assert_array_equal(below, upto)
    # nine nodes with the draws' first two moments: third moments are left out
    np.testing.assert_allclose(upto, exact.cdf(columns["value"]).mean(axis=0), atol=5e-4)


def test_spread_of_an_item_that_stands_for_many():
    """Its variance adds to theta's."""
    fit = make_fit()
    columns = columns_of(simulate(50, 2)) | {"spread": np.full(50, 0.3)}
    mean, log_variance = curve_draws(fit, columns["score"])
    sd = np.sqrt(np.exp(log_variance) + columns["noise_sd"] ** 2 + 0.3)
    exact = stats.norm.logpdf(columns["value"], mean, sd)
    np.testing.assert_allclose(posterior_of(fit).log_density(columns), exact, rtol=1e-10)


def test_simulated_values_have_the_marginals_moments():
    """100,000 draws of four items: 4 standard errors."""
    fit = make_fit(sd=1e-9, draws=50_000)
    columns = columns_of(simulate(4, 3))
    new = posterior_of(fit).simulate(columns, np.random.default_rng(0))
    mean, log_variance = (c.mean(axis=0) for c in curve_draws(fit, columns["score"]))
    variance = np.exp(log_variance) + columns["noise_sd"] ** 2
    assert (np.abs(new.mean(axis=0) - mean) < 4 * np.sqrt(variance / 1e5)).all()
    assert (np.abs(new.var(axis=0) / variance - 1) < 4 * np.sqrt(2 / 1e5)).all()


def test_posteriors_of_every_draw():
    """Moments by total variance to 1e-9; quantiles by brute force to 1e-5 sd."""
    fit = make_fit(sd=0.2)
    frame = simulate(40, 4)
    scored = item_posteriors(fit, values_of(frame), quantiles=(0.05, 0.9), progress=False)
    mean, sd = components(fit, columns_of(frame))
    np.testing.assert_allclose(scored["theta_mean"], mean.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(
        scored["theta_var"], (sd**2).mean(axis=0) + mean.var(axis=0), rtol=1e-9
    )
    for name, prob in (("theta_q05", 0.05), ("theta_q90", 0.9)):
        for i in range(0, 40, 5):
            brute = optimize.brentq(
                lambda x, i=i, p=prob: stats.norm.cdf(x, mean[:, i], sd[:, i]).mean() - p, -50, 50
            )
            assert abs(brute - scored[name].iloc[i]) < 1e-5 * scored["theta_sd"].iloc[i]


def extreme_items():
    scores = np.array([-6.0, -2.0, -0.1, 0.7, 2.0, 5.0])
    pairs = [(y, s) for y in (-30.0, -1.0, 0.4, 8.0, 1e4) for s in (1e-30, 1e-3, 0.3, 5.0, 1e30)]
    grid = [(t, y, s) for t in scores for y, s in pairs]
    return pd.DataFrame(grid, columns=["t", "y", "s"])


def test_all_draws_are_averaged_one_by_one():
    """Exactly; with "auto" the same items differ in the fourth digit."""
    fit, frame = make_fit(sd=0.2), simulate(300, 4)
    mean, log_variance = curve_draws(fit, frame["t"].to_numpy())
    gain = np.exp(log_variance) / (np.exp(log_variance) + frame["s"].to_numpy() ** 2)
    each = mean + gain * (frame["y"].to_numpy() - mean)
    within = (1 - gain) * np.exp(log_variance)
    variance = within.mean(axis=0) + each.var(axis=0)
    scored = posterior_of(fit).scorer((), "all", False)(columns_of(frame))
    np.testing.assert_allclose(scored[0], each.mean(axis=0), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(scored[2], variance, rtol=1e-10)


def test_the_table_scores_most_items():
    """The other method gives the same, but is slow."""
    fit = make_fit(sd=0.05)
    table, columns = NodeTable(fit), columns_of(simulate(2000, 5))
    cell, most = table.cells.find(columns), len(LIMITS) - 1
    table.prepare(most, [cell])
    assert (table.rows(most, cell) >= 0).mean() > 0.9


@pytest.mark.parametrize("sd", [0.003, 0.01, 0.03, 0.1, 0.3])
@pytest.mark.parametrize("which", ["simulated", "extreme"])
@pytest.mark.slow
def test_representative_within_a_thousandth_of_a_posterior_sd(sd, which):
    fit = make_fit(sd)
    frame = simulate(1000, 5) if which == "simulated" else extreme_items()
    every, few = (
        item_posteriors(fit, values_of(frame), draws=d, progress=False) for d in ("all", "auto")
    )
    names = ["theta_mean", "theta_sd", "theta_q05", "theta_q95"]
    error = (few - every)[names].abs().div(every["theta_sd"], axis=0).to_numpy()
    assert error.max() < 1e-3
    assert np.isfinite(few[names].to_numpy()).all()


def test_plug_in():
    fit, frame = make_fit(sd=0.2), simulate(60, 6)
    scored = item_posteriors(fit, values_of(frame), plug_in=True, progress=False)
    mean, log_variance = (c.mean(axis=0) for c in curve_draws(fit, frame["t"]))
    v, w = np.exp(log_variance), frame["s"] ** 2
    np.testing.assert_allclose(scored["theta_mean"], (mean * w + frame["y"] * v) / (v + w))
    np.testing.assert_allclose(scored["theta_var"], v * w / (v + w))
    exact = stats.norm(scored["theta_mean"], scored["theta_sd"]).ppf(0.05)
    np.testing.assert_allclose(scored["theta_q05"], exact, rtol=1e-6, atol=1e-8)


def test_curves():
    fit = make_fit()
    curves = soc.calibration_curves(fit, [-1.0, 0.5])
    assert set(curves.data_vars) == {"mean", "variance", "log_variance"}
    mean, _ = curve_draws(fit, [-1.0, 0.5])
    np.testing.assert_allclose(curves["mean"].to_numpy().reshape(mean.shape), mean)
    np.testing.assert_allclose(np.log(curves["variance"]), curves["log_variance"])
    assert curves["log_variance"].shape == (2, 500, 2)
    bands = soc.bands(curves, simultaneous=True)
    assert (bands["mean"].sel(bound="lower", score=-1.0) < 0).all()
    assert np.isfinite(bands["mean"]).all()


@pytest.mark.slow
def test_pit_and_dispersion_of_the_truth_and_of_too_little_variance():
    """KS p-values over 30 data sets: no more rejections than chance allows; then one that must."""
    fit = make_fit(sd=1e-6)
    p_values, scatter = [], []
    for seed in range(30):
        columns = columns_of(simulate(1500, 50 + seed))
        _, upto = predictive.predictive_cdf(posterior_of(fit), columns, progress=False)
        p_values.append(predictive.uniformity(upto).p_value)
        tests = predictive.predictive_tests(fit, columns, seed=seed, progress=False)
        assert [t.name for t in tests] == ["dispersion"]
        scatter.append(tests[0].p_value)
    for found in (p_values, scatter):
        assert stats.kstest(found, "uniform").pvalue > 1e-3
    frame = simulate(4000, 7)
    wide = frame.assign(y=frame["y"] + np.random.default_rng(0).normal(0, 0.4, 4000))
    tests = predictive.predictive_tests(fit, columns_of(wide), progress=False)
    assert tests[0].ratio > 1.05
    assert tests[0].p_value < 1e-3


def test_fits_and_items_of_different_kinds():
    fit = make_fit()
    counts = pd.DataFrame({"t": [0.1], "y": [1], "n": [5]})
    items = soc.PoissonItems(counts, score="t", count="y", exposure="n")
    for use in (soc.item_posteriors, soc.check):
        with pytest.raises(errors.ItemsError, match="value= and noise_sd="):
            use(fit, items, progress=False)


def test_values_that_cannot_be_scored(monkeypatch):
    """One bad row: the report is that of a scan of the items."""
    from soc_pymc.posterior import items as posteriors

    def reported(items, progress):
        raise errors.ItemsError("scanned")

    monkeypatch.setattr(posteriors, "scan", reported)
    for role, bad in (("t", np.nan), ("y", np.inf), ("s", 0.0), ("s", -1.0), ("y", np.nan)):
        frame = simulate(20, 0)
        frame.loc[7, role] = bad
        with pytest.raises(errors.ItemsError, match="scanned"):
            item_posteriors(make_fit(), values_of(frame), progress=False)


# --- groups, terms in exposure -------------------------------------------------------------------


@pytest.fixture
def grouped(monkeypatch):
    """A fit whose groups shift the mean: `a` by 1, `b` by -1, others only by noise."""
    from soc_pymc.posterior import curves as shared
    from soc_pymc.posterior import quadrature as nodes

    plain = make_fit(sd=0.05)
    posterior = plain.data["posterior"].to_dataset().assign_coords(group=["a", "b"])
    tree = plain.data.copy()
    tree["posterior"] = xr.DataTree(posterior)
    shift = {"a": 1.0, "b": -1.0}
    noise = np.random.default_rng(0).normal(size=(1000, 1))

    def curves(fit, score, *, group=None, exposure=None):
        assert exposure is None
        mean, log_variance = curve_draws(plain, score)
        if group is not None:
            known = np.array([label in shift for label in group])
            mean = mean + np.where(known, [shift.get(g, 0.0) for g in group], noise)
        return mean, log_variance

    def averages(fit, score, group, exposure):
        return tuple(x.mean(axis=0) for x in shared.curves_at(fit, score, group, exposure))

    for module in (shared, nodes):
        monkeypatch.setattr(module, "curve_draws", curves)
    monkeypatch.setattr(nodes, "average_curves", averages)
    return replace(plain, data=tree)


@pytest.mark.parametrize("draws", ["all", "auto"])
def test_each_item_has_its_groups_curves(grouped, draws):
    frame = simulate(90, 8).assign(g=np.repeat(["a", "b", "c"], 30))
    scored = item_posteriors(grouped, values_of(frame, "g"), draws=draws, progress=False)
    for label, shift in (("a", 1.0), ("b", -1.0)):
        own = scored[scored["g"] == label]
        moved = own.assign(y=own["y"] - shift)[["t", "y", "s"]]
        alone = item_posteriors(make_fit(sd=0.05), values_of(moved), progress=False)
        np.testing.assert_allclose(own["theta_mean"], alone["theta_mean"] + shift, atol=1e-3)
        np.testing.assert_allclose(own["theta_sd"], alone["theta_sd"], rtol=2e-3)
    new = scored[scored["g"] == "c"]
    alone = item_posteriors(make_fit(sd=0.05), values_of(new[["t", "y", "s"]]), progress=False)
    assert (new["theta_sd"] > alone["theta_sd"]).all()


def test_labels_are_text_whatever_their_type(grouped):
    frame = simulate(20, 9)
    for labels in (np.arange(20), np.arange(20) % 2 == 0, pd.Categorical(["a", "b"] * 10)):
        scored = item_posteriors(grouped, values_of(frame.assign(g=labels), "g"), progress=False)
        assert np.isfinite(scored["theta_mean"]).all()


def test_fits_with_groups_need_groups(grouped):
    with pytest.raises(errors.ItemsError, match="give them group="):
        item_posteriors(grouped, values_of(simulate(5, 0)), progress=False)
    curves = soc.calibration_curves(grouped, [0.0], group="a")
    shared = soc.calibration_curves(grouped, [0.0])
    np.testing.assert_allclose(curves["mean"], shared["mean"] + 1.0)
    with pytest.raises(errors.FitError, match=r"has no groups|groups are: none"):
        soc.calibration_curves(make_fit(), [0.0], group="a")


def test_terms_in_noise(monkeypatch):
    """Each item's noise sd changes its curve; curves average over the items' noise sds."""
    from soc_pymc.posterior import curves as shared
    from soc_pymc.posterior import quadrature as nodes

    plain = make_fit(sd=0.02)
    bins = xr.Dataset(
        {
            "share": (("part", "size_class"), np.array([[0.5, 0.5], [0.5, 0.5]])),
            "share_position": ("part", np.array([-1.0, 1.0])),
            "share_log_size": ("size_class", np.log([1.0, np.e])),
        }
    )
    tree = plain.data.copy()
    tree["constant_data"] = xr.DataTree(bins)
    fit = replace(plain, data=tree, prior=Normal(exposure=Spline()))

    def curves(_, score, *, group=None, exposure=None):
        mean, log_variance = curve_draws(plain, score)
        return mean + (0.0 if exposure is None else np.log(exposure)), log_variance

    def averages(fit, score, group, exposure):
        return tuple(x.mean(axis=0) for x in shared.curves_at(fit, score, group, exposure))

    for module in (shared, nodes):
        monkeypatch.setattr(module, "curve_draws", curves)
    monkeypatch.setattr(nodes, "average_curves", averages)
    frame = simulate(200, 10)
    for draws in ("all", "auto"):
        scored = item_posteriors(fit, values_of(frame), draws=draws, progress=False)
        away = frame.assign(y=frame["y"] - np.log(frame["s"]))
        alone = item_posteriors(plain, values_of(away), progress=False)
        moved = alone["theta_mean"] + np.log(frame["s"])
        np.testing.assert_allclose(scored["theta_mean"], moved, atol=1e-3)
    whole, known = (soc.calibration_curves(f, [0.2]).isel(score=0) for f in (fit, plain))
    np.testing.assert_allclose(whole["mean"], known["mean"] + 0.5)
    np.testing.assert_allclose(whole["variance"], known["variance"] + 0.25)
    at = soc.calibration_curves(fit, [0.2], exposure=np.e).isel(score=0)
    np.testing.assert_allclose(at["mean"], known["mean"] + 1.0)
    with pytest.raises(errors.FitError, match="no term in exposure"):
        soc.calibration_curves(plain, [0.2], exposure=2.0)
    with pytest.raises(errors.FitError, match="positive number"):
        soc.calibration_curves(fit, [0.2], exposure=-2.0)
