"""Five steps with conjugate priors: smoothing, steps, and uses of a fit."""

import numpy as np
import pandas as pd
import pytest
from scipy.interpolate import make_smoothing_spline

import soc_pymc as soc
from soc_pymc.inference.five_steps import curves as step_curves
from soc_pymc.inference.five_steps.curves import smoothing_spline
from soc_pymc.model.splines import spline_matrix
from soc_pymc.paper.simulation import s1_curves
from soc_pymc.posterior.curves import curve_draws


def _items(frame):
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure")


def _value_items(n, seed=0):
    rng = np.random.default_rng(seed)
    t = rng.normal(0.0, 1.0, n)
    noise = np.exp(rng.normal(0.0, 0.4, n))
    theta = rng.normal(t + 0.3 * t**2, np.exp(0.3 * t))
    frame = pd.DataFrame({"t": t, "y": rng.normal(theta, noise), "s": noise})
    return soc.NormalItems(frame, score="t", value="y", noise_sd="s")


@pytest.fixture(scope="module")
def s1():
    frame = soc.simulation.s1(40_000, seed=1)
    items = _items(frame)
    return frame, items, soc.summarize(items, bins=100, folds=2, joint=False, progress=False)


@pytest.fixture(scope="module")
def fits(s1):
    methods = {"smooth": soc.FiveSteps(), "steps": soc.FiveSteps(smooth=False)}
    return {name: soc.fit(s1[2], method=m, progress=False) for name, m in methods.items()}


def test_the_smoother_is_the_smoothing_spline(monkeypatch):
    """With a knot at each point and the same penalty, as SciPy's, to 1e-6."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(60))
    y, w = np.sin(4 * x) + 0.2 * rng.normal(size=60), rng.uniform(0.5, 2.0, 60)
    monkeypatch.setattr(step_curves, "_best_multiple", lambda *_: 1e-3)
    knots, values = smoothing_spline(x, y, w)
    # ours counts weights by their mean, and lengths in the range of the points
    scipys = make_smoothing_spline(x, y, w / w.mean(), lam=1e-3 * (x[-1] - x[0]) ** 3)
    np.testing.assert_allclose(spline_matrix(x, knots) @ values, scipys(x), atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_few_points_are_smoothed(n):
    x = np.arange(n, dtype=float)
    knots, values = smoothing_spline(x, 1.0 + 2.0 * x, np.ones(n))
    np.testing.assert_allclose(spline_matrix(x, knots) @ values, 1.0 + 2.0 * x, atol=1e-6)


def test_the_smoother_finds_the_noise():
    """A sine in noise: mean squared error a tenth of the points', straight lines stay straight."""
    rng = np.random.default_rng(1)
    x = np.linspace(0, 1, 300)
    truth = np.sin(5 * x)
    knots, values = smoothing_spline(x, truth + 0.3 * rng.normal(size=300), np.ones(300))
    assert np.mean((spline_matrix(x, knots) @ values - truth) ** 2) < 0.1 * 0.09
    line = [
        np.ptp(np.diff(smoothing_spline(x, 0.3 * rng.normal(size=300), np.ones(300))[1]))
        for _ in range(20)
    ]
    assert np.median(line) < 0.01  # restricted likelihood rarely follows noise


def test_smooth_curves_recover_s1(s1, fits):
    """40,000 items in 100 bins: mean within 3%, log cv2 within .15, root mean squares.

    Sampling alone leaves about 1.5% and .07; bins that are not smoothed are twice as far or more.
    """
    frame, _, _ = s1
    score = np.quantile(frame["score"], np.linspace(0.01, 0.99, 99))
    truth = s1_curves(score)
    off = {
        name: [
            np.sqrt(np.mean((own[0] - t) ** 2))
            for own, t in zip(curve_draws(fit, score), truth, strict=True)
        ]
        for name, fit in fits.items()
    }
    assert off["smooth"][0] < 0.03
    assert off["smooth"][1] < 0.15
    assert off["steps"][0] > 2.0 * off["smooth"][0]


def test_smooth_mean_is_what_is_stored(fits):
    """The mean is the smoothing spline itself; the log variance is off by less than 1e-4."""
    assert fits["smooth"].data["constant_data"].attrs["storage_error"] < 1e-4


def test_posteriors_are_near_those_of_the_hierarchical_model(s1, fits):
    """On 40,000 items means are within .03 posterior sd, on average, and sds within 4%."""
    frame, _, stats = s1
    items = _items(frame.head(2000))
    whole, own = (
        soc.item_posteriors(fit, items, quantiles=(), progress=False)
        for fit in (soc.fit(stats, progress=False), fits["smooth"])
    )
    away = (own["theta_mean"] - whole["theta_mean"]).abs() / whole["theta_sd"]
    assert away.mean() < 0.03
    assert (np.log(own["theta_sd"] / whole["theta_sd"])).abs().mean() < 0.04


@pytest.mark.parametrize("which", ["smooth", "steps"])
def test_all_ways_of_scoring_agree(s1, fits, which):
    """With one draw, all draws, representative ones and none are the same, to interpolation."""
    frame, _, _ = s1
    some = _items(frame.head(2000))
    table = [
        soc.item_posteriors(fits[which], some, progress=False, **given)
        for given in ({}, {"draws": "auto"}, {"plug_in": True})
    ]
    for other in table[1:]:
        for name in ("theta_mean", "theta_sd", "theta_q05", "theta_q95"):
            assert ((other[name] - table[0][name]).abs() / table[0]["theta_sd"]).max() < 1e-3
    first, second = curve_draws(fits[which], frame["score"].head(2000))
    shape = np.exp(-second[0]) + frame["count"].head(2000)
    rate = np.exp(-second[0] - first[0]) + frame["exposure"].head(2000)
    np.testing.assert_allclose(table[0]["theta_mean"], shape / rate, rtol=1e-10)


def test_steps_are_the_bins_own_estimates(s1, fits):
    """Curves are constant within a bin, jump at its edges, and take the outer bins beyond."""
    frame, _, stats = s1
    found = fits["steps"].data["per_bin"]["mean"].to_numpy()
    edges = stats.edges
    np.testing.assert_array_equal(fits["steps"].data["constant_data"]["edge"], edges)

    def mean(score):
        return soc.calibration_curves(fits["steps"], score)["mean"].to_numpy().ravel()

    np.testing.assert_allclose(mean(edges), found[1:], rtol=1e-12)
    np.testing.assert_allclose(mean(np.nextafter(edges, 0)), found[:-1], rtol=1e-12)
    outer = [1e-6, float(frame["score"].max()) * 10]
    np.testing.assert_allclose(mean(outer), found[[0, -1]], rtol=1e-12)


def test_empty_bins_take_a_neighbour():
    """An empty bin takes the nearer occupied bin, by number of bins."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"score": np.resize([0.1, 0.9], 100), "count": rng.poisson(2.0, 100), "exposure": 5.0}
    )
    stats = soc.summarize(_items(frame), edges=[0.2, 0.3, 0.4, 0.5, 0.6], progress=False)
    fit = soc.fit(stats, method=soc.FiveSteps(smooth=False), progress=False)
    assert fit.data["constant_data"]["edge"].to_numpy().tolist() == [0.4]
    assert fit.data["posterior"].sizes["bin"] == fit.data["per_bin"].sizes["bin"] == 2


@pytest.mark.parametrize("smooth", [True, False])
def test_monotone_means_never_decrease(smooth):
    """A truly decreasing mean becomes flat, by the option of the method or of the prior."""
    rng = np.random.default_rng(2)
    t = rng.uniform(0.1, 1.0, 4000)
    frame = pd.DataFrame({"score": t, "count": rng.poisson(5 * (1.0 - 0.6 * t)), "exposure": 5.0})
    stats = soc.summarize(_items(frame), bins=20, progress=False)
    score = np.linspace(0.1, 1.0, 200)
    plain, one, two = (
        soc.calibration_curves(soc.fit(stats, p, m, progress=False), score)["mean"].to_numpy()
        for p, m in (
            (soc.Gamma(), soc.FiveSteps(smooth=smooth)),
            (soc.Gamma(), soc.FiveSteps(smooth=smooth, monotone=True)),
            (soc.Gamma(monotone=True), soc.FiveSteps(smooth=smooth)),
        )
    )
    assert np.diff(plain).min() < 0
    assert np.diff(one).min() >= -1e-12
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("smooth", [True, False])
def test_values(smooth, tmp_path):
    """Normal priors: curves near the truth, saved and loaded, checked and drawn without errors."""
    items = _value_items(20_000)
    stats = soc.summarize(items, bins=50, joint=True, progress=False)
    fit = soc.fit(stats, method=soc.FiveSteps(smooth=smooth), progress=False)
    score = np.linspace(-1.5, 1.5, 61)
    curves = soc.calibration_curves(fit, score)
    off = np.abs(curves["mean"].to_numpy().ravel() - (score + 0.3 * score**2))
    assert off.mean() < (0.05 if smooth else 0.15)
    off = np.abs(curves["log_variance"].to_numpy().ravel() - 0.6 * score)
    assert off.mean() < (0.1 if smooth else 0.3)
    fit.save(tmp_path / "fit.nc")
    again = soc.load_fit(tmp_path / "fit.nc")
    assert again.method == fit.method
    assert again.data.equals(fit.data)
    result = soc.check(fit, stats, progress=False)  # cells: no item is left out of one draw
    assert set(result.table["check"]) == {"PIT", "PIT of slices", "converged"}
    assert "fail" not in set(result.table["verdict"])


def test_a_fit_is_used_as_any_other(s1, fits, tmp_path):
    """Saved and loaded, checked, banded, drawn, cross-validated, written as SQL."""
    frame, items, stats = s1
    for fit in fits.values():
        assert fit.status.pareto_k is None
        assert fit.status.ess_fraction is None
        fit.save(tmp_path / "fit.nc")
        again = soc.load_fit(tmp_path / "fit.nc")
        assert again.status == fit.status
        assert again.data.equals(fit.data)
        banded = soc.bands(soc.calibration_curves(fit), simultaneous=True)["mean"]
        np.testing.assert_allclose(banded.sel(bound="lower"), banded.sel(bound="upper"))
        assert len(soc.plots.plot_curves(fit)) == 2
    result = soc.check(fits["smooth"], _items(frame.head(2000)), progress=False)
    assert "fail" not in set(result.table["verdict"])
    assert "SELECT" in soc.posterior_sql(fits["smooth"], "ads")
    with pytest.raises(soc.FitError, match="steps"):
        soc.posterior_sql(fits["steps"], "ads")
    tables = [
        soc.evaluate.cross_validate(stats, method=m, progress=False)
        for m in (soc.FiveSteps(), soc.FiveSteps(smooth=False))
    ]
    assert tables[0]["elpd"].sum() > tables[1]["elpd"].sum()  # smoothing predicts better
    with pytest.raises(soc.FitError, match="one draw"):
        soc.compare(fits, items, progress=False)


def test_every_fit_says_how_wide_its_bins_are(s1, fits):
    """Sd of t and of log t inside bins, as of the items; NaN where there is no logarithm."""
    frame, _, stats = s1
    bins = fits["smooth"].data["constant_data"]
    of = np.searchsorted(stats.edges, frame["score"], side="right")
    inside = frame["score"].groupby(of)
    np.testing.assert_allclose(bins["score_sd"], inside.std(ddof=0), rtol=1e-6)
    logs = np.log(frame["score"]).groupby(of)
    np.testing.assert_allclose(bins["log_score_sd"], logs.std(ddof=0), rtol=1e-6)
    fit = soc.fit(
        soc.summarize(_value_items(500), bins=3, progress=False),
        method=soc.FiveSteps(),
        progress=False,
    )
    kept = fit.data["constant_data"]
    assert (kept["score_sd"] > 0).all()
    assert np.isnan(kept["log_score_sd"]).any()


def _refusals():
    spline = soc.Spline
    return [
        (soc.Gamma(mean=spline(knots=5)), {}, {}, r"mean=soc\.Spline\(knots=\)"),
        (soc.Gamma(variance=spline(wiggle=0.1)), {}, {}, "wiggle"),
        (soc.Gamma(exposure=spline()), {}, {}, "exposure"),
        (soc.Gamma(bin_effects=True), {}, {}, "bin_effects"),
        (soc.Normal(), {}, {}, r"use soc\.Gamma"),
        (soc.Gamma(), {"components": 5}, {}, "GammaMixture"),
        (soc.GammaMixture(), {}, {}, "joint"),
        (soc.GammaMixture(drift=1.0), {}, {}, "drift"),
        (soc.Gamma(), {}, {"start": True}, "start="),
    ]


@pytest.mark.parametrize(("prior", "method", "given", "text"), _refusals())
def test_what_five_steps_cannot_use_is_refused(s1, fits, prior, method, given, text):
    given = dict.fromkeys(given, fits["smooth"])
    with pytest.raises(soc.FitError, match=text):
        soc.fit(s1[2], prior, soc.FiveSteps(**method), progress=False, **given)


def test_groups_are_fitted_separately():
    """Each group's curves are those of a fit to its items; a new group has the pooled curves."""
    frame = soc.simulation.s1(12_000, seed=5).assign(land=np.resize(["a", "b", "b"], 12_000))
    frame.loc[frame.index[:3], "land"] = "few"
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure", group="land")
    stats = soc.summarize(items, bins=12, progress=False)
    fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    assert fit.groups == ("a", "b", "few")
    assert "2 groups by themselves" in fit.status.reason
    score = np.quantile(frame["score"], np.linspace(0.02, 0.98, 30))
    pooled = soc.fit(stats, soc.Gamma(groups=False), soc.FiveSteps(), progress=False)
    alone = soc.fit(stats.of_group("b"), soc.Gamma(groups=False), soc.FiveSteps(), progress=False)
    labels = [np.full(30, label) for label in ("b", "few", "new")]
    found = [curve_draws(fit, score, group=label)[0] for label in labels]
    np.testing.assert_allclose(found[0], curve_draws(alone, score)[0], atol=2e-3)  # other knots
    for own in found[1:]:
        np.testing.assert_allclose(own, curve_draws(pooled, score)[0], rtol=1e-12)
    scored = soc.item_posteriors(fit, items, progress=False)
    assert np.isfinite(scored["theta_mean"]).all()
    with pytest.raises(soc.FitError, match="groups=False"):
        soc.fit(stats, method=soc.FiveSteps(smooth=False), progress=False)


def test_no_events_and_invalid_options():
    frame = pd.DataFrame({"score": [0.1, 0.2, 0.3], "count": 0, "exposure": 1.0})
    stats = soc.summarize(_items(frame), bins=2, progress=False)
    with pytest.raises(soc.FitError, match="without an event"):
        soc.fit(stats, method=soc.FiveSteps(), progress=False)
    for wrong in ({"every": 0}, {"components": 1}):
        with pytest.raises(soc.FitError, match=f"{next(iter(wrong))}=. must be a whole number"):
            soc.FiveSteps(**wrong)


def test_command_line(tmp_path):
    """`fit --method five-steps` writes such a fit; options of other methods are refused."""
    from soc_pymc.front.cli import main

    stats = soc.summarize(_items(soc.simulation.s1(3000)), bins=10, progress=False)
    stats.save(tmp_path / "stats.nc")
    words = ["fit", str(tmp_path / "stats.nc"), "--out", str(tmp_path / "fit.nc")]
    words += ["--method", "five-steps", "--quiet"]
    main([*words, "--no-smooth", "--every", "2"])
    fit = soc.load_fit(tmp_path / "fit.nc")
    assert fit.method == soc.FiveSteps(smooth=False, every=2)
    main([*words, "--moments", "plain"])
    assert soc.load_fit(tmp_path / "fit.nc").method == soc.FiveSteps(moments="plain")
    assert main([*words, "--seed", "3"]) != 0
