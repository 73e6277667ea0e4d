"""Terms of the curves beyond the smooth line, and the splines, knots and axes beneath."""

import numpy as np
import pandas as pd
import pytest
from scipy.interpolate import CubicSpline

import soc_pymc as soc
from soc_pymc._lib.arguments import FitError
from soc_pymc._model import splines
from tests.examples import QUIET, SMALL_MIXTURE
from tests.oracles import s1_curves
from tests.studies import coverage as study

FEW = {"mean": soc.Spline(knots=4), "variance": soc.Spline(knots=2)}


def count_items(frame, group=None):
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure", group=group)


def log_mean(fit, score, **options):
    """Draws of log E(theta | t), (draws, scores)."""
    values = soc.calibration_curves(fit, score, **options)["log_mean"].to_numpy()
    return values.reshape(-1, len(score))


@pytest.mark.slow
def test_groups_are_partially_pooled():
    """A small group is between pooled and separate; a large one is as if fitted separately.

    90% bands of 3 groups x 11 scores, which are correlated: 20 of 33 cover.
    """
    frame, truth = study.in_groups(1, np.array([60, 600, 6000]))
    stats = soc.summarize(count_items(frame, "group"), bins=25, **QUIET)
    fit = soc.fit(stats, soc.Gamma(**FEW), **QUIET)
    assert fit.status.converged
    pooled = soc.fit(stats, soc.Gamma(**FEW, groups=False), **QUIET)

    def of_group(label):
        items = count_items(frame[frame["group"] == label])
        return soc.summarize(items, edges=stats.edges, **QUIET)

    small, large = (
        soc.fit(of_group(label), soc.Gamma(**FEW, groups=False), **QUIET)
        for label in ("g00", "g02")
    )
    score = study.SCORES

    def width(fit, **options):
        return log_mean(fit, score, **options).std(axis=0).mean()

    assert width(pooled) < width(fit, group="g00") < 0.9 * width(small)
    assert width(fit, group="new") > max(width(fit, group="g00"), 1.2 * width(fit))
    ours, separate = log_mean(fit, score, group="g02"), log_mean(large, score)
    difference = np.abs(ours.mean(axis=0) - separate.mean(axis=0))[2:-2]
    assert difference.max() < 0.8 * separate.std(axis=0)[2:-2].max()
    assert 0.75 < (ours.std(axis=0) / separate.std(axis=0))[2:-2].mean() < 1.1
    inside = 0
    for label, true_curves in zip(stats.groups, truth, strict=True):
        low, high = np.quantile(log_mean(fit, score, group=label), [0.05, 0.95], axis=0)
        inside += ((low <= true_curves[0]) & (true_curves[0] <= high)).sum()
    assert inside >= 20


@pytest.mark.slow
def test_a_term_in_exposure_finds_its_slopes():
    """Theta falls as exposure^-0.2 and its cv2 as exposure^-0.3: within 3.5 posterior sd."""
    rng = np.random.default_rng(4)
    frame = soc.simulation.s1(30_000, seed=4)
    mean, cv2 = (np.exp(curve) for curve in s1_curves(frame["score"]))
    size = frame["exposure"] / 6.0
    mean, cv2 = mean * size**-0.2, cv2 * size**-0.3
    frame["count"] = rng.poisson(rng.gamma(1.0 / cv2, mean * cv2) * frame["exposure"])
    stats = soc.summarize(count_items(frame), joint=True, **QUIET)
    fit = soc.fit(stats, soc.Gamma(**FEW, exposure=soc.Spline(knots=5)), **QUIET)
    assert fit.status.converged
    few, many = (soc.calibration_curves(fit, [0.05], exposure=n) for n in (2.0, 60.0))
    for sign, name, slope in ((1.0, "log_mean", -0.2), (-1.0, "shape", -0.3)):
        curves = [c[name] if name == "log_mean" else np.log(c[name]) for c in (few, many)]
        difference = (sign * (curves[1] - curves[0])).to_numpy().ravel()
        assert abs(difference.mean() - slope * np.log(30.0)) < 3.5 * difference.std()
        assert difference.std() < 0.5


def test_zero_and_distant_exposures_are_scored(example):
    """Exposures of 0, or beyond all in the fit, get the nearest exposure's curves."""
    frame = pd.DataFrame({"score": [0.05, 0.05], "count": [0, 400_000], "exposure": [0.0, 1e7]})
    scored = soc.item_posteriors(example("exposure").fit, count_items(frame), **QUIET)
    assert np.isfinite(scored.to_numpy()).all()
    assert scored["theta_mean"][1] == pytest.approx(0.04, rel=0.01)


def count_table(step):
    """Statistics of 40 bins, in one of which theta is larger by a factor."""
    frame = soc.simulation.s1(40_000, seed=5)
    edges = np.quantile(frame["score"], np.arange(1, 40) / 40)
    inside = np.searchsorted(edges, frame["score"], side="right") == 20
    theta = frame["theta"] * np.where(inside, step, 1.0)
    frame["count"] = np.random.default_rng(5).poisson(theta * frame["exposure"])
    return soc.summarize(count_items(frame), edges=edges, joint=True, **QUIET)


@pytest.mark.slow
@pytest.mark.parametrize(
    "prior",
    [
        soc.Gamma(**FEW, bin_effects=True),
        soc.GammaMixture(**FEW, **SMALL_MIXTURE, bin_effects=True),
    ],
    ids=["gamma", "mixture"],
)
def test_effects_of_bins_see_a_step(prior):
    """The bin that is off has its effect, and the curve its step; other bins stay on the curve.

    Effects have a Normal prior, and most are 0: so the one that is not is shrunk, by at most half.
    """
    stats, effect = count_table(1.4), np.log(1.4)
    fit = soc.fit(stats, prior, soc.VI(draws=400), **QUIET)
    assert fit.status.pareto_k < 0.7
    effects = fit.data["posterior"]["log_mean_of_bin"]
    low, high = effects.sel(effect_bin=20).quantile([0.02, 0.98])
    assert low > 0.05
    assert 0.5 * effect < float(effects.sel(effect_bin=20).mean()) < effect
    assert high < 1.2 * effect
    others = effects.drop_sel(effect_bin=20).mean(("chain", "draw"))
    assert float(np.abs(others).max()) < 0.4 * effect
    inside, beside = log_mean(fit, stats.edges[[19, 20]] * 1.0001).mean(axis=0)
    assert inside > beside  # the curve has the step, although it rises


@pytest.mark.slow
def test_monotone_curves_never_decrease():
    """Where rates fall with the score the constrained curve is flat, in new groups too."""
    rng = np.random.default_rng(6)
    score = np.exp(rng.normal(-3, 0.8, 2000))
    group = np.where(np.arange(2000) % 5 > 0, "a", "b")
    frame = pd.DataFrame({"score": score, "exposure": 50.0, "group": group})
    frame["count"] = rng.poisson(50.0 * rng.gamma(4.0, 0.05 * (score / 0.05) ** -0.3 / 4.0))
    stats = soc.summarize(count_items(frame, "group"), bins=20, **QUIET)
    far = np.geomspace(score.min() / 10, score.max() * 10, 200)
    free = log_mean(soc.fit(stats, soc.Gamma(**FEW, groups=False), **QUIET), far)
    assert np.diff(free.mean(axis=0)).min() < 0
    fit = soc.fit(stats, soc.Gamma(**FEW, monotone=True), soc.VI(draws=200), **QUIET)
    for options in ({}, {"group": "a"}, {"group": "new"}):
        assert np.diff(log_mean(fit, far, **options), axis=1).min() > -1e-12


@pytest.mark.slow
def test_effects_of_bins_are_shared_by_groups():
    """A step that both groups have at one bin is that bin's effect."""
    rng = np.random.default_rng(5)
    score = np.exp(rng.normal(-3, 0.8, 8000))
    step = np.where((score > 0.05) & (score < 0.06), 1.8, 1.0)
    count = rng.poisson(50 * score * step * rng.gamma(4.0, 0.25, 8000))
    frame = pd.DataFrame({"score": score, "count": count, "exposure": 50.0})
    frame["kind"] = rng.choice(["a", "b"], 8000)
    edges = np.array([0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15])
    stats = soc.summarize(count_items(frame, group="kind"), edges=edges, **QUIET)
    fit = soc.fit(stats, soc.Gamma(**FEW, bin_effects=True), soc.VI(draws=200), **QUIET)
    assert fit.status.pareto_k < 0.7
    effects = fit.data["posterior"]["log_mean_of_bin"].mean(("chain", "draw"))
    inside = (effects["effect_bin"] == np.searchsorted(edges, 0.055)).to_numpy()
    assert float(effects[inside].min()) > 0.3
    assert float(effects[~inside].max()) < 0.2


@pytest.mark.parametrize("prior", [soc.Gamma, soc.GammaMixture])
def test_a_constant_is_one_level_for_all_scores(example, prior):
    """On the other curve's scale, and at the mean of the curve that may vary, within a factor 2."""
    case = example("gamma")
    with_constant = prior(variance=soc.Constant(level=(-1, 2)))
    assert with_constant.variance == soc.Spline(knots=1, scale="log", level=(-1, 2))
    fit = soc.fit(case.statistics, with_constant, soc.VI(draws=200), **QUIET)
    curves = soc.calibration_curves(fit, [0.01, 0.05, 0.3])
    log_cv2 = (curves["log_variance"] - 2.0 * curves["log_mean"]).to_numpy().reshape(-1, 3)
    np.testing.assert_allclose(log_cv2[:, 1:], log_cv2[:, :1] + np.zeros(2), atol=1e-9)
    free = soc.calibration_curves(case.fit, [0.05])
    usual = (free["log_variance"] - 2.0 * free["log_mean"]).mean().item()
    assert abs(log_cv2.mean() - usual) < np.log(2.0)


def test_matrix_is_the_natural_spline_and_linear_beyond():
    rng = np.random.default_rng(0)
    knots = np.sort(rng.normal(size=7))
    values = rng.normal(size=7)
    inside = np.linspace(knots[0], knots[-1], 50)
    spline = CubicSpline(knots, values, bc_type="natural")
    np.testing.assert_allclose(splines.spline_matrix(inside, knots) @ values, spline(inside))
    outside = knots[-1] + np.array([1.0, 2.0, 3.0])
    beyond = splines.spline_matrix(outside, knots) @ values
    np.testing.assert_allclose(np.diff(beyond, 2), 0, atol=1e-10)
    assert np.diff(beyond)[0] == pytest.approx(float(spline(knots[-1], 1)))


def test_basis_spans_all_curves_and_penalises_roughness():
    rng = np.random.default_rng(1)
    u, w = np.sort(rng.normal(size=200)), rng.uniform(1, 3, 200)
    basis = splines.make_basis(u, w, 12)
    assert basis.wiggle.shape == (12, 10)
    full = np.column_stack([basis.line, basis.wiggle])
    assert np.linalg.matrix_rank(full) == 12
    # the prior's precision of a curve is proportional to its integral of f''^2
    fine = np.linspace(basis.knots[0], basis.knots[-1], 20001)
    ratios = []
    for z in rng.normal(size=(3, 10)):
        curve = CubicSpline(basis.knots, basis.wiggle @ z, bc_type="natural")
        ratios.append(np.trapezoid(curve(fine, 2) ** 2, fine) / (z @ z))
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-3)


def test_wiggle_has_unit_scale_over_the_items():
    rng = np.random.default_rng(2)
    u, w = np.sort(rng.normal(size=100)), rng.uniform(1, 3, 100)
    basis = splines.make_basis(u, w, 20)
    at_bins = splines.spline_matrix(u, basis.knots) @ basis.wiggle
    curves = at_bins @ rng.normal(size=(18, 4000))
    line = np.column_stack([np.ones(100), u])
    root = np.sqrt(w)[:, None]
    away = curves - line @ np.linalg.lstsq(line * root, curves * root, rcond=None)[0]
    assert np.average((away**2).mean(axis=1), weights=w) == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize(("bins", "wiggles"), [(1, 0), (2, 0), (3, 1), (50, 8)])
def test_few_bins_give_fewer_functions(bins, wiggles):
    basis = splines.make_basis(np.arange(bins, dtype=float), np.ones(bins), 10)
    assert basis.wiggle.shape[1] == wiggles
    assert np.isfinite(basis.wiggle).all()


def test_knots_follow_the_items():
    u = np.linspace(0, 1, 1000)
    w = np.where(u < 0.1, 9.0, 1.0)
    knots = splines.place_knots(u, w, 11)
    assert (np.diff(knots) > 0).all()
    assert np.sum(knots < 0.1) >= 5


def test_axes_are_monotone_and_invert():
    t = np.array([0.01, 0.2, 0.5])
    rank = splines.Axis("rank", (0.0, 0.1, 1.0), (0.0, 0.6, 1.0))
    for axis in (splines.Axis("log"), splines.Axis("linear"), rank):
        u = axis(t)
        assert (np.diff(u) > 0).all()
        np.testing.assert_allclose(axis.inverse(u), t)
    with pytest.raises(FitError, match="0 or below and have no logarithm: 1 of "):
        splines.Axis("log")([0.1, 0.0])


def test_positions_that_differ_by_rounding_share_a_knot():
    """A spline through both would be unbounded between them and the next knot."""
    a, b = np.log(20.0), np.log(2000.0)
    position = np.array([a, np.nextafter(a, b), b, np.nextafter(b, a), b])
    knots = splines.place_knots(position, np.ones(5), 20)
    assert len(knots) == 2
    np.testing.assert_allclose(knots, [a, b], rtol=1e-12)


def test_scores_off_the_axis_are_counted_by_item():
    """A bin that reaches across 0 hides which of its items are below."""
    frame = soc.simulation.s1(2000, seed=0)
    frame.loc[3:9, "score"] *= -1
    below = (frame["score"] < 0.1).sum()
    for edges, count in (([0.0, 0.1], "7"), ([0.1], f"up to {below:,}")):
        stats = soc.summarize(count_items(frame), edges=edges, **QUIET)
        with pytest.raises(FitError, match=f"^scores of {count} of 2,000 items are 0 or below"):
            soc.fit(stats, soc.Gamma(), **QUIET)
