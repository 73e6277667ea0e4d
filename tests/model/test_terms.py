"""Terms of the curves beyond the smooth line: groups, exposure, effects of bins, monotone."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import special
from scipy import stats as sps

import soc_pymc as soc
from soc_pymc.families import bin_effects, normal_rows
from soc_pymc.posterior.curves import curve_draws, knot_weights
from soc_pymc.posterior.predictive import posterior_of
from tests.studies import groups as study

SIZES = np.array([60, 400, 5000, 20_000])


def _items(frame, group=None):
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure", group=group)


@pytest.fixture(scope="module")
def grouped():
    """Statistics of four groups, a fit of all of them, and the truth."""
    frame, truth = study.simulate(1, SIZES)
    stats = soc.summarize(_items(frame, "group"), bins=60, progress=False)
    return stats, soc.fit(stats, progress=False), truth, frame


def _sd(fit, score, **of):
    return curve_draws(fit, score, **of)[0].std(axis=0).mean()


def _of(label, score):
    return np.full(len(score), label, dtype=object)


@pytest.mark.slow
def test_groups_are_partially_pooled(grouped):
    """A small group's bands are between pooled and separate ones; new groups have wider bands."""
    stats, fit, _, _ = grouped
    assert fit.status.converged
    pooled = soc.fit(stats, soc.Gamma(groups=False), progress=False)
    alone = soc.fit(stats.of_group("g00"), soc.Gamma(groups=False), progress=False)
    at = study.SCORES
    small, unseen = _sd(fit, at, group=_of("g00", at)), _sd(fit, at, group=_of("new", at))
    assert _sd(pooled, at) < _sd(fit, at, group=_of("g03", at)) < small
    assert small < 0.9 * _sd(alone, at)
    assert unseen > max(small, 1.2 * _sd(fit, at))
    again = curve_draws(fit, at, group=_of("new", at))[0]
    np.testing.assert_array_equal(again, curve_draws(fit, at, group=_of("new", at))[0])


@pytest.mark.slow
def test_a_large_group_equals_a_separate_fit(grouped):
    """20,000 items dominate the others: within half an sd of the separate fit, and as wide."""
    stats, fit, _, _ = grouped
    alone = soc.fit(stats.of_group("g03"), soc.Gamma(groups=False), progress=False)
    at = study.SCORES[2:-2]
    ours, theirs = curve_draws(fit, at, group=_of("g03", at))[0], curve_draws(alone, at)[0]
    sd = theirs.std(axis=0)
    assert np.abs(ours.mean(axis=0) - theirs.mean(axis=0)).max() < 0.8 * sd.max()
    assert 0.75 < (ours.std(axis=0) / sd).mean() < 1.1


@pytest.mark.slow
def test_groups_curves_cover_the_truth(grouped):
    """90% bands of 4 groups x 11 scores of one data set: 30 of 44 (they are correlated)."""
    stats, fit, truth, _ = grouped
    inside = 0
    for k, label in enumerate(stats.groups):
        curves = soc.calibration_curves(fit, study.SCORES, group=label)["log_mean"]
        low, high = curves.quantile([0.05, 0.95], ("chain", "draw")).to_numpy()
        inside += ((low <= truth[k, 0]) & (truth[k, 0] <= high)).sum()
    assert inside >= 30


def test_items_use_their_groups_curves(grouped_fit, grouped_items):
    frame = grouped_items.source
    few = pd.concat([frame[frame["kind"] == "b"].head(3)] * 2, ignore_index=True)
    few.loc[3:, "kind"] = "elsewhere"
    post = soc.item_posteriors(grouped_fit, _items(few, "kind"), draws="all", progress=False)
    own = curve_draws(grouped_fit, few["score"], group=few["kind"])
    shape = np.exp(-own[1]) + few["count"].to_numpy()
    rate = np.exp(-own[1] - own[0]) + few["exposure"].to_numpy()
    np.testing.assert_allclose(post["theta_mean"], (shape / rate).mean(axis=0), rtol=1e-9)
    assert (post["theta_sd"][3:].to_numpy() > post["theta_sd"][:3].to_numpy()).all()
    with pytest.raises(soc.ItemsError, match="group"):
        soc.item_posteriors(grouped_fit, _items(few), progress=False)


@pytest.mark.slow
def test_grouped_fits_agree_with_nuts():
    """Means within .25 sd, sds within 25%, over all groups' curves (NUTS itself is worth 0.05)."""
    frame, _ = study.simulate(3, np.array([100, 1500, 4000]))
    stats = soc.summarize(_items(frame, "group"), bins=25, progress=False)
    prior = soc.Gamma(soc.Spline(knots=6), soc.Spline(knots=4))
    vi = soc.fit(stats, prior, progress=False)
    nuts = soc.fit(stats, prior, soc.NUTS(draws=1000, chains=2, seed=0), progress=False)
    assert vi.status.pareto_k < 0.7
    for label in stats.groups:
        for a, b in zip(
            curve_draws(vi, study.SCORES, group=_of(label, study.SCORES)),
            curve_draws(nuts, study.SCORES, group=_of(label, study.SCORES)),
            strict=True,
        ):
            sd = b.std(axis=0)
            assert np.abs((a.mean(axis=0) - b.mean(axis=0)) / sd).max() < 0.25
            assert np.abs(np.log(a.std(axis=0) / sd)).max() < 0.25


@pytest.fixture(scope="module")
def informative():
    """Theta falls as exposure^-.2 and its cv2 as exposure^-.3."""
    rng = np.random.default_rng(4)
    frame = soc.simulation.s1(30_000, seed=4)
    log_mean, log_cv2 = soc.simulation.s1_curves(frame["score"])
    x = np.log(frame["exposure"] / 6.0)
    log_mean, log_cv2 = log_mean - 0.2 * x, log_cv2 - 0.3 * x
    theta = rng.gamma(np.exp(-log_cv2), np.exp(log_mean + log_cv2))
    frame["count"] = rng.poisson(theta * frame["exposure"])
    return soc.summarize(_items(frame), joint=True, progress=False), frame


@pytest.fixture(scope="module")
def exposed(informative):
    stats, _ = informative
    short = soc.Spline(knots=8)
    return soc.fit(stats, soc.Gamma(exposure=short), progress=False)


@pytest.mark.slow
def test_a_term_in_exposure_finds_its_slope(exposed):
    """Between exposures of 2 and 60 the true differences are -.68 and -1.02, within 3.5 sd."""
    assert exposed.status.converged
    score = np.array([0.05, 0.05])
    for values, slope in zip(
        curve_draws(exposed, score, exposure=[2.0, 60.0]), (-0.2, -0.3), strict=True
    ):
        difference = values[:, 1] - values[:, 0]
        gap = difference.mean() - slope * np.log(30.0)
        assert abs(gap) < 3.5 * difference.std()
    assert (values[:, 1] - values[:, 0]).std() < 0.5


@pytest.mark.slow
def test_curves_average_over_exposures(exposed, informative):
    """E(theta | t) without an exposure is the average over items with similar scores."""
    _, frame = informative
    near = frame[np.abs(np.log(frame["score"] / 0.05)) < 0.1]
    at = np.full(len(near), 0.05)
    log_mean, log_cv2 = curve_draws(exposed, at, exposure=near["exposure"])
    mean = np.exp(log_mean).mean(axis=1)
    variance = np.exp(log_cv2 + 2 * log_mean).mean(axis=1) + np.exp(log_mean).var(axis=1)
    curves = soc.calibration_curves(exposed, [0.05])
    assert float(curves["mean"].mean()) == pytest.approx(mean.mean(), rel=0.02)
    assert float(curves["variance"].mean()) == pytest.approx(variance.mean(), rel=0.06)
    one = soc.calibration_curves(exposed, [0.05], exposure=60.0)["log_mean"].to_numpy().ravel()
    np.testing.assert_allclose(one, curve_draws(exposed, [0.05], exposure=[60.0])[0].ravel())


def test_terms_in_exposure_from_joint_cells_of_several_bins():
    """Log curves from cells of 8 bins: means within .04, variances within .15 of cells of one.

    They differ a little, because a row has the scores of 8 bins.
    """
    frame = soc.simulation.s1(20_000, seed=0)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    curves = []
    for joint in (True, 4000):
        stats = soc.summarize(items, bins=64, joint=joint, progress=False)
        fit = soc.fit(stats, soc.Gamma(exposure=soc.Spline()), progress=False)
        curves.append(soc.calibration_curves(fit, [0.02, 0.05, 0.1]).mean(("chain", "draw")))
    assert stats.coarse == 8
    fine, wide = curves
    np.testing.assert_allclose(wide["log_mean"], fine["log_mean"], atol=0.04)
    np.testing.assert_allclose(wide["log_variance"], fine["log_variance"], atol=0.15)


def test_zero_and_distant_exposures_are_scored(exposure_fit):
    """Exposures of 0, or beyond all seen, get the smallest and the largest exposure's curves."""
    frame = pd.DataFrame({"score": [0.05, 0.05], "count": [0, 400_000], "exposure": [0.0, 1e7]})
    post = soc.item_posteriors(exposure_fit, _items(frame), progress=False)
    assert np.isfinite(post.to_numpy()).all()
    assert post["theta_mean"][1] == pytest.approx(0.04, rel=0.01)


@pytest.fixture(scope="module")
def stepped():
    """Fits with effects of bins to 40 bins, with a bin 40% off and without, and the edges."""
    frame = soc.simulation.s1(40_000, seed=5)
    stats = soc.summarize(_items(frame), bins=40, progress=False)
    bin_of = np.searchsorted(stats.edges, frame["score"], side="right")
    theta = frame["theta"] * np.where(bin_of == 20, 1.4, 1.0)
    frame["count"] = np.random.default_rng(5).poisson(theta * frame["exposure"])
    off = soc.summarize(_items(frame), edges=stats.edges, progress=False)
    prior = soc.Gamma(bin_effects=True)
    return soc.fit(off, prior, progress=False), soc.fit(stats, prior, progress=False), off, frame


@pytest.mark.slow
def test_effects_of_bins_see_a_step(stepped):
    """A bin that is 40% off gets its full effect; the others stay on the curve."""
    fit, smooth, off, _ = stepped
    assert fit.status.pareto_k < 0.7
    assert smooth.status.pareto_k < 0.7
    effects = fit.data["posterior"]["log_mean_of_bin"]
    low, high = effects.sel(effect_bin=20).quantile([0.05, 0.95])
    assert low < np.log(1.4) < high
    assert low > 0.1
    others = effects.drop_sel(effect_bin=20).mean(("chain", "draw"))
    assert float(np.abs(others).max()) < 0.05
    score = off.edges[[19, 20]] * 1.0001
    inside, beside = curve_draws(fit, score)[0].mean(axis=0)
    assert inside > beside  # the curve has the step, although it rises
    for it in (fit, smooth):
        assert float(it.data["posterior"]["log_mean_bin_effect_sd"].mean()) < 0.03


@pytest.mark.slow
def test_effects_are_those_of_nuts(stepped):
    """Effects drawn after VI have the means of those after NUTS within .3 sd, sds within 25%."""
    off = stepped[2]
    short = soc.Gamma(soc.Spline(knots=5), soc.Spline(knots=3), bin_effects=True)
    vi = soc.fit(off, short, progress=False)
    # R-hat of chains half as long is 1.004 to 1.012, by chance and processor
    nuts = soc.fit(off, short, soc.NUTS(draws=2000, tune=1000, chains=2), progress=False)
    assert nuts.status.converged
    a, b = (x.data["posterior"]["log_mean_of_bin"] for x in (vi, nuts))
    sd = b.std(("chain", "draw"))
    assert float(np.abs((a.mean(("chain", "draw")) - b.mean(("chain", "draw"))) / sd).max()) < 0.3
    assert float(np.abs(np.log(a.std(("chain", "draw")) / sd)).max()) < 0.25


@pytest.fixture(scope="module")
def stepped_grid(stepped):
    """The fit of the mixture, and of a Gamma with a share of zeros, to the table with a step."""
    frame, edges = stepped[3], stepped[2].edges
    stats = soc.summarize(_items(frame), edges=edges, joint=True, progress=False)
    priors = soc.GammaMixture(bin_effects=True), soc.Gamma(bin_effects=True, zero=True)
    return [soc.fit(stats, prior, progress=False) for prior in priors]


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
def test_effects_of_bins_on_a_grid_see_a_step(stepped, stepped_grid, which):
    """The bin that is 40% off has its effect, shrunk as a Normal prior shrinks it.

    The effect under the Gamma, whose t prior hardly shrinks it, stands for the bin's own data.
    """
    fit = stepped_grid[which]
    assert fit.status.pareto_k < 0.7
    name = "log_mean_of_bin"
    effects, single = (f.data["posterior"][name] for f in (fit, stepped[0]))
    assert effects.sizes["effect_bin"] == 40
    here, there = effects.sel(effect_bin=20), single.sel(effect_bin=20)
    own = 1.0 / (1.0 + there.var() / fit.data["posterior"]["log_mean_bin_effect_sd"] ** 2)
    assert float(here.mean()) == pytest.approx(float(there.mean() * own.mean()), abs=0.03)
    assert here.quantile(0.05) > 0.05
    others = effects.drop_sel(effect_bin=20).mean(("chain", "draw"))
    assert float(np.abs(others).max()) < 0.08
    # curves at a score are those of the shared curve with the bin's effect
    score = np.array([stepped[2].edges[19] * 1.0001])
    inside = curve_draws(fit, score)[0][:, 0]
    values, at = knot_weights(fit, "mean", score)
    assert inside == pytest.approx((values @ at.T)[:, 0] + here.to_numpy().ravel(), abs=1e-12)
    # and the mixture's mean is that curve
    found = posterior_of(fit).curves(score)["log_mean"][:, 0]
    share = 0.0 if which == 0 else posterior_of(fit).curves(score)["p_zero"][:, 0]
    assert found == pytest.approx(inside + np.log1p(-share), abs=1e-6)


@pytest.mark.slow
def test_effects_survive_saving(stepped, stepped_grid, tmp_path):
    for fit in (stepped[0], *stepped_grid):
        check_saving(fit, tmp_path)


def check_saving(fit, tmp_path):
    fit.save(tmp_path / "fit.nc")
    loaded = soc.load_fit(tmp_path / "fit.nc")
    score = [0.02, 0.05, 0.06]
    np.testing.assert_array_equal(curve_draws(loaded, score)[0], curve_draws(fit, score)[0])


@pytest.mark.parametrize("tau", [1e-9, 0.01, 0.2])
def test_effects_of_values_are_integrated_exactly(tau):
    """The log marginal of Normal rows has a closed form for every width: to 1e-9, with slopes."""
    rng = np.random.default_rng(0)
    n, mean, log_variance, noise = 40, 0.3, -1.0, 0.5
    y = rng.normal(0.8, 1.0, n)
    sums = np.array([[noise**k * (y**p).sum() for k in range(4)] for p in range(3)])[None]
    cells = normal_rows.make_normal_cells(1, np.zeros(1, dtype=np.int64), sums)

    def found(m, c, log_tau):
        at = (np.array([[m]]), np.array([[c]]), np.array([log_tau]))
        return bin_effects.value_and_gradient(*at, *cells.arrays)[:, 0, 0]

    own = np.exp(log_variance) + noise
    widths = bin_effects._WIDTHS * tau**2
    covariances = [own * np.eye(n) + w for w in widths]
    terms = [sps.multivariate_normal.logpdf(y, np.full(n, mean), s) for s in covariances]
    value, *slopes = found(mean, log_variance, np.log(tau))
    assert value == pytest.approx(special.logsumexp(terms, b=bin_effects._SHARES), abs=1e-9)
    at, step = np.array([mean, log_variance, np.log(tau)]), 1e-5
    for slope, move in zip(slopes, step * np.eye(3), strict=True):
        difference = (found(*(at + move)) - found(*(at - move)))[0] / (2 * step)
        assert slope == pytest.approx(difference, abs=1e-5)


@pytest.mark.slow
def test_effects_of_values_see_a_step():
    """The same for values: one of 30 bins is 0.5 off."""
    rng = np.random.default_rng(8)
    score = rng.normal(size=15_000)
    frame = pd.DataFrame({"score": score, "noise_sd": rng.uniform(0.3, 1.0, len(score))})
    bin_of = np.searchsorted(np.quantile(score, np.arange(1, 30) / 30), score)
    theta = rng.normal(score + 0.5 * (bin_of == 12), 0.4)
    frame["value"] = rng.normal(theta, frame["noise_sd"])
    items = soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")
    stats = soc.summarize(items, bins=30, progress=False)
    fit = soc.fit(stats, soc.Normal(bin_effects=True), progress=False)
    assert fit.status.pareto_k < 0.7
    effects = fit.data["posterior"]["mean_of_bin"]
    low, high = effects.sel(effect_bin=12).quantile([0.02, 0.98])
    assert low < 0.5 < high
    assert low > 0.25


def test_bin_effects_exclude_groups_exposure_and_minibatches(grouped_items, small_items):
    stats = soc.summarize(grouped_items, bins=5, progress=False)
    with pytest.raises(soc.FitError, match="groups=False"):
        soc.fit(stats, soc.Gamma(bin_effects=True), progress=False)
    stats = soc.summarize(small_items, bins=5, joint=True, progress=False)
    prior = soc.Gamma(bin_effects=True, exposure=soc.Spline())
    with pytest.raises(soc.FitError, match="leave exposure= out"):
        soc.fit(stats, prior, progress=False)
    prior, method = soc.Gamma(bin_effects=True), soc.VI(batch=10)
    with pytest.raises(soc.FitError, match="in minibatches"):
        soc.fit(stats, prior, method, progress=False)


@pytest.mark.slow
def test_monotone_curves_of_a_new_group():
    """Deviations drawn from their prior are projected too: no decrease beyond rounding."""
    frame = soc.simulation.s1(3000, seed=2)
    frame["group"] = np.where(np.arange(len(frame)) % 5 > 0, "A", "B")
    items = soc.PoissonItems(
        frame, score="score", count="count", exposure="exposure", group="group"
    )
    fit = soc.fit(soc.summarize(items, progress=False), soc.Gamma(monotone=True), progress=False)
    at = np.geomspace(1e-4, 5.0, 400)
    for label in ("A", "new"):
        log_mean, _ = curve_draws(fit, at, group=np.full(len(at), label, dtype=object))
        assert np.diff(log_mean, axis=1).min() > -1e-12


@pytest.mark.slow
def test_monotone_curves_never_decrease():
    """Where rates decrease with the score the constrained curve is flat, and never decreases."""
    rng = np.random.default_rng(6)
    score = np.exp(rng.normal(-3, 0.8, 3000))
    frame = pd.DataFrame({"score": score, "exposure": 50.0})
    frame["count"] = rng.poisson(50.0 * rng.gamma(4.0, 0.05 * (score / 0.05) ** -0.3 / 4.0))
    stats = soc.summarize(_items(frame), progress=False)
    at = np.geomspace(score.min() / 10, score.max() * 10, 3000)
    free, held = (
        soc.calibration_curves(soc.fit(stats, soc.Gamma(monotone=on), progress=False), at)
        for on in (False, True)
    )
    assert float(free["log_mean"].mean(("chain", "draw")).diff("score").min()) < 0
    assert float(held["log_mean"].diff("score").min()) > -1e-12


def test_terms_survive_saving(tmp_path, grouped_fit, exposure_fit):
    for fit, of in (
        (grouped_fit, {"group": _of("a", [1, 1])}),
        (exposure_fit, {"exposure": [3.0, 9.0]}),
    ):
        path = tmp_path / "fit.nc"
        fit.save(path)
        loaded = soc.load_fit(path)
        assert loaded.prior == fit.prior
        assert loaded.groups == fit.groups
        for a, b in zip(
            curve_draws(loaded, [0.02, 0.06], **of),
            curve_draws(fit, [0.02, 0.06], **of),
            strict=True,
        ):
            np.testing.assert_array_equal(a, b)


def test_missing_terms_are_refused(grouped_fit, grouped_items, exposure_fit):
    stats, fit = soc.summarize(grouped_items, bins=5, joint=False, progress=False), grouped_fit
    with pytest.raises(soc.FitError, match="joint=True"):
        soc.fit(stats, soc.Gamma(exposure=soc.Spline()), progress=False)
    with pytest.raises(soc.FitError, match="has no groups"):
        curve_draws(exposure_fit, [0.05], group=["a"], exposure=[1.0])
    with pytest.raises(soc.FitError, match="give the exposure"):
        curve_draws(exposure_fit, [0.05])
    with pytest.raises(soc.FitError, match="does not depend on the exposure"):
        curve_draws(fit, [0.05], exposure=[1.0])
    with pytest.raises(soc.FitError, match="monotone is of the mean alone"):
        soc.Gamma(monotone="variance")
    with pytest.raises(soc.FitError, match="not for these statistics"):
        soc.fit(stats, soc.Normal(), progress=False)
    with pytest.raises(soc.FitError, match="knots= and wiggle= alone"):
        soc.Gamma(exposure=soc.Spline(scale="rank"))
    with pytest.raises(TypeError):
        soc.Spline(monotone=True)
    assert dataclasses.replace(fit.prior, groups=False).groups is False
