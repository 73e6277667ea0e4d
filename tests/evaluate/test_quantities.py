"""Quantities of Section 5.1 against closed forms, sums over items one by one, and limits."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import soc_pymc as soc
from soc_pymc.evaluate.quantities import compare_scores, r_squared, shrinkage, variance_parts
from soc_pymc.evaluate.quantities import variance_reduction as reduction
from soc_pymc.evaluate.quantities.score_comparison import _pairing
from soc_pymc.inference.results import Fit
from soc_pymc.model.splines import knots_in
from soc_pymc.posterior.predictive import posterior_of

ROLES = {"count": "count", "exposure": "exposure"}


def known_fit(fit: Fit, **curves) -> Fit:
    """A fit with one draw of given values at its knots: functions of the knots' scores."""
    posterior = fit.data["posterior"].to_dataset().isel(chain=[0], draw=[0])
    for name, values in curves.items():
        knot = posterior[name].dims[-1]
        axis = fit.axis(knot.removesuffix("_knot"))
        at = values(axis.inverse(knots_in(fit.data, knot)))
        posterior[name] = (posterior[name].dims, at[None, None])
    groups = {name: node.to_dataset() for name, node in fit.data.children.items()}
    tree = xr.DataTree.from_dict({**groups, "posterior": posterior})
    tree.attrs = fit.data.attrs
    return Fit(tree, fit.prior, fit.method, fit.status)


def level(value):
    return lambda score: np.full(len(score), np.log(value))


@pytest.fixture(scope="module")
def plain_fit(small_fit):
    """E(theta | t) = t and cv2 = .25: straight lines on log t, which splines hold exactly."""
    return known_fit(small_fit, log_mean=np.log, log_cv2=level(0.25))


def brute(fit, items, weight):
    """R^2 and the ratio of variances, item by item, of every draw."""
    law, frame = posterior_of(fit), items.source
    columns = {role: frame[name].to_numpy(dtype=float) for role, name in items.roles.items()}
    curves, after = law.curves(columns["score"]), law.moments(columns)[1]
    w = np.ones(len(frame)) if weight == "items" else columns["exposure"]
    mean = curves["mean"] @ w / w.sum()
    explained = (curves["mean"] - mean[:, None]) ** 2 @ w / w.sum()
    left = curves["variance"] @ w / w.sum()
    return explained / (explained + left), (after @ w / w.sum()) / left


@pytest.mark.parametrize("weight", ["items", "exposure"])
def test_closed_form(plain_fit, small_items, small_statistics, weight):
    """With E(theta | t) = t, cv2 = .25: R^2 = Var t / (Var t + .25 E t^2), and of few wide bins."""
    t = small_items.source["score"].to_numpy()
    w = np.ones(len(t)) if weight == "items" else small_items.source["exposure"].to_numpy()
    mean, square = np.average(t, weights=w), np.average(t**2, weights=w)
    expected = (square - mean**2) / (square - mean**2 + 0.25 * square)
    fine = soc.summarize(small_items, progress=False)
    found = float(r_squared(plain_fit, fine, weight=weight)[0, 0])
    # 400 bins hold t to second order; exposure is spread over the scores of a bin unevenly
    tolerance = 1e-3 if weight == "items" else 4e-3
    assert abs(found - expected) < tolerance
    # what the 20 bins of equal items that made the fit hide is the tail of the last one
    assert abs(float(r_squared(plain_fit, weight=weight)[0, 0]) - expected) < 0.02
    of_same = r_squared(plain_fit, small_statistics, weight=weight)
    np.testing.assert_allclose(r_squared(plain_fit, weight=weight), of_same, rtol=1e-9)


def test_variance_within_bins_counts(plain_fit, small_items):
    """In 3 bins half the variance of t lies within them: without it R^2 would be far too small."""
    t = small_items.source["score"].to_numpy()
    edges = np.quantile(t, [1 / 3, 2 / 3])
    stats = soc.summarize(small_items, edges=edges, progress=False)
    expected = t.var() / (t.var() + 0.25 * (t**2).mean())
    found = float(r_squared(plain_fit, stats)[0, 0])
    means = np.array([t[np.searchsorted(edges, t, side="right") == k].mean() for k in range(3)])
    between = means.var() / (means.var() + 0.25 * (t**2).mean())
    # two scores a bin hold its variance, but not the third moment of the last one's tail
    assert abs(found - expected) < 0.5 * (expected - between)


@pytest.mark.parametrize("weight", ["items", "exposure"])
def test_item_by_item(small_fit, small_items, weight):
    """Every draw agrees with sums over the items to a third of its sd, means to .003."""
    squared, ratio = brute(small_fit, small_items, weight)
    stats = soc.summarize(small_items, progress=False)
    found = r_squared(small_fit, stats, weight=weight).to_numpy().ravel()
    # draws that shoot up beyond the last bin differ most: three sds of them are 10%
    np.testing.assert_allclose(found, squared, rtol=1e-2)
    assert abs(found.mean() - squared.mean()) < 2e-3
    gain = reduction(small_fit, small_items, weight=weight, bins=7, progress=False)
    np.testing.assert_allclose(gain["ratio"].to_numpy().ravel(), ratio, rtol=3e-2)
    assert abs(float(gain["ratio"].mean()) - ratio.mean()) < 3e-3
    assert gain.sizes["bin"] == 7
    assert int(gain["n_items"].sum()) == len(small_items.source)


def test_one_bin_is_all(small_fit, small_items):
    gain = reduction(small_fit, small_items, bins=1, progress=False)
    np.testing.assert_allclose(gain["ratio_by_bin"][..., 0], gain["ratio"], rtol=1e-12)
    share = shrinkage(small_fit, small_items, bins=1, progress=False)
    np.testing.assert_allclose(share["share_by_bin"][..., 0], share["share"], rtol=1e-12)


def test_no_variance_and_no_exposure(small_fit, small_items):
    """Where t says all, R^2 is 1 and outcomes add nothing; nothing seen leaves the prior."""
    sure = known_fit(small_fit, log_mean=np.log, log_cv2=level(1e-12))
    assert float(r_squared(sure)[0, 0]) > 1 - 1e-9
    assert abs(float(reduction(sure, small_items, progress=False)["ratio"][0, 0]) - 1) < 1e-6
    assert abs(float(shrinkage(sure, small_items, progress=False)["share"][0, 0]) - 1) < 1e-6
    constant = known_fit(small_fit, log_mean=level(0.1), log_cv2=level(0.3))
    np.testing.assert_allclose(r_squared(constant), 0.0, atol=1e-12)
    unseen = small_items.source.assign(count=0, exposure=0)
    unseen.loc[unseen.index[0], "exposure"] = 1
    items = soc.PoissonItems(unseen, score="score", **ROLES)
    gain = reduction(small_fit, items, weight="items", progress=False)
    np.testing.assert_allclose(gain["ratio"], 1.0, atol=1e-3)
    share = shrinkage(small_fit, items, progress=False)["share"]
    np.testing.assert_allclose(share, 1.0, atol=1e-3)


def test_shrinkage_is_the_priors_share(small_fit, small_items):
    """s = rate / (rate + N) of every item and draw; cells cost under 0.1%."""
    frame = small_items.source
    curves = posterior_of(small_fit).curves(frame["score"].to_numpy())
    expected = curves["rate"] / (curves["rate"] + frame["exposure"].to_numpy())
    found = shrinkage(small_fit, small_items, progress=False)
    np.testing.assert_allclose(found["share"].to_numpy().ravel(), expected.mean(axis=1), rtol=1e-3)


def test_unit_of_exposure(plain_fit, small_fit, small_items):
    """In thousandths of the unit of N rates are a thousandth: ratios stay, variances scale."""
    frame = small_items.source
    scaled = soc.PoissonItems(
        frame.assign(score=frame["score"] / 1000, exposure=frame["exposure"] * 1000),
        score="score", **ROLES,
    )  # fmt: skip
    edges = soc.summarize(small_items, bins=40, progress=False).edges
    stats = soc.summarize(scaled, edges=edges / 1000, progress=False)
    five = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    there = known_fit(five, log_mean=np.log, log_cv2=level(0.25))
    here = soc.summarize(small_items, edges=edges, progress=False)
    np.testing.assert_allclose(r_squared(there, stats), r_squared(plain_fit, here), rtol=1e-9)
    one, two = (
        reduction(f, s, progress=False)["ratio"] for f, s in ((there, stats), (plain_fit, here))
    )
    # cells of exposures times 1000 begin elsewhere
    np.testing.assert_allclose(one, two, rtol=1e-3)
    parts = variance_parts(there, stats), variance_parts(plain_fit, here)
    np.testing.assert_allclose(parts[0]["total"] * 1e6, parts[1]["total"], rtol=1e-9)


def test_values():
    """A Normal prior: R^2 and the ratio E[v s^2/(v + s^2)]/E v item by item."""
    rng = np.random.default_rng(5)
    t, s = rng.normal(3.0, 1.0, 3000), rng.choice([0.5, 1.0, 2.0], 3000)
    y = t + rng.normal(0, 0.7, 3000) + s * rng.normal(size=3000)
    frame = pd.DataFrame({"t": t, "y": y, "s": s})
    items = soc.NormalItems(frame, score="t", value="y", noise_sd="s")
    stats = soc.summarize(items, bins=60, progress=False)
    fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    curves = posterior_of(fit).curves(t)
    v, m = curves["variance"], curves["mean"]
    squared = m.var(axis=1) / (m.var(axis=1) + v.mean(axis=1))
    np.testing.assert_allclose(r_squared(fit).to_numpy().ravel(), squared, rtol=2e-3)
    gain = reduction(fit, items, weight="items", progress=False)["ratio"].to_numpy().ravel()
    after = v * s**2 / (v + s**2)
    np.testing.assert_allclose(gain, after.mean(axis=1) / v.mean(axis=1), rtol=2e-3)
    share = shrinkage(fit, items, progress=False)["share"].to_numpy().ravel()
    np.testing.assert_allclose(share, (s**2 / (v + s**2)).mean(axis=1), rtol=2e-3)
    with pytest.raises(soc.FitError, match="no exposure"):
        r_squared(fit, weight="exposure")
    with pytest.raises(soc.FitError, match="no exposure"):
        reduction(fit, items, progress=False)


def test_moments_are_those_of_posteriors(small_fit, small_items):
    """Averaged over draws, `moments` are what `item_posteriors` gives item by item."""
    some = small_items.source.iloc[:200]
    columns = {role: some[name].to_numpy(dtype=float) for role, name in small_items.roles.items()}
    items = soc.PoissonItems(some, score="score", **ROLES)
    scored = soc.item_posteriors(small_fit, items, quantiles=(), draws="all", progress=False)
    mean, variance, _ = posterior_of(small_fit).moments(columns)
    np.testing.assert_allclose(mean.mean(axis=0), scored["theta_mean"], rtol=1e-9)
    total = variance.mean(axis=0) + mean.var(axis=0)
    np.testing.assert_allclose(total, scored["theta_var"], rtol=1e-9)


@pytest.mark.slow
def test_exposure_terms_and_groups(small_frame):
    """The fit's own record of exposures agrees with statistics; groups need the statistics."""
    frame = small_frame.assign(country=np.where(np.arange(len(small_frame)) % 3, "se", "no"))
    items = soc.PoissonItems(frame, score="score", group="country", **ROLES)
    stats = soc.summarize(items, bins=20, joint=True, progress=False)
    term = soc.fit(stats, soc.Gamma(exposure=soc.Spline(knots=4), groups=False), progress=False)
    for weight in ("items", "exposure"):
        one, two = (r_squared(term, s, weight=weight) for s in (None, stats))
        # exposures of twenty parts of the score against those of every bin
        assert abs(float((one - two).mean())) < 0.02
    grouped = soc.fit(stats, progress=False)
    with pytest.raises(soc.FitError, match="statistics"):
        r_squared(grouped)
    columns = {c: frame[c].to_numpy(dtype=float) for c in ("score", "count", "exposure")}
    columns["group"] = frame["country"].to_numpy(dtype=object)
    law = posterior_of(grouped)
    before = law.curves(columns["score"], columns["group"])["variance"].sum(axis=1)
    expected = law.moments(columns)[1].sum(axis=1) / before
    found = reduction(grouped, items, weight="items", progress=False)["ratio"].to_numpy().ravel()
    np.testing.assert_allclose(found, expected, rtol=1e-2)


def test_pairing_has_the_correlation():
    rng = np.random.default_rng(0)
    a, b = rng.gamma(3.0, size=(2, 4000))
    for wanted in (-0.5, 0.0, 0.9, 1.0):
        order = _pairing(a, b, wanted, rng)
        assert sorted(order) == list(range(4000))
        # ranks of normal scores with correlation r have 6/pi arcsin(r/2); 4 standard errors
        ranks = np.corrcoef(np.argsort(np.argsort(a)), np.argsort(np.argsort(b[order])))[0, 1]
        assert abs(ranks - 6 / np.pi * np.arcsin(wanted / 2)) < 4 / np.sqrt(4000)


@pytest.fixture(scope="module")
def two_scores():
    """Scores of known quality: theta = m g h, ``a`` = m g explains more than ``b`` = m."""
    from tests.studies.two_scores import simulated

    frame, _ = simulated(4000, seed=1, apart=0.3)
    pairs = {}
    for name in ("a", "b"):
        items = soc.PoissonItems(frame, score=name, **ROLES)
        pairs[name] = soc.fit(soc.summarize(items, progress=False), progress=False), items
    return frame, pairs


@pytest.mark.slow
def test_better_score_is_found(two_scores):
    frame, pairs = two_scores
    found = compare_scores(pairs, sample=2000, progress=False)
    draws = -found["unexplained"].sel(score="b").to_numpy()
    truth = frame["b"].var(ddof=0) - frame["a"].var(ddof=0)
    assert abs(draws.mean() - truth) < 4 * draws.std()
    assert (found["r_squared"] < 0).all()
    # errors of scores that share outcomes go together: apart they would be taken to be larger
    parts = [variance_parts(fit)["explained"].to_numpy() for fit, _ in pairs.values()]
    assert 0.3 < float(found["correlation"][0]) < 0.95
    assert draws.std() < 0.9 * np.hypot(*(x.std() for x in parts))


def test_a_score_is_as_good_as_itself(small_fit, small_items):
    pair = (small_fit, small_items)
    found = compare_scores({"a": pair, "again": pair}, sample=500, progress=False)
    assert float(found["correlation"][0]) > 0.95
    assert abs(float(found["r_squared"].mean())) < 1e-9


def test_other_items_are_refused(small_fit, small_items):
    pair = (small_fit, small_items)
    turned = soc.PoissonItems(small_items.source.iloc[::-1], **small_items.roles)
    with pytest.raises(soc.ItemsError, match="same rows in the same order"):
        compare_scores({"a": pair, "b": (small_fit, turned)}, progress=False)
    with pytest.raises(soc.FitError, match="nothing to compare"):
        compare_scores({"a": pair}, progress=False)
    single = known_fit(small_fit, log_mean=np.log)
    with pytest.raises(soc.FitError, match="single draw"):
        compare_scores({"a": pair, "b": (single, small_items)}, progress=False)


def test_options_are_checked(small_fit, small_items):
    with pytest.raises(soc.FitError, match="weight="):
        r_squared(small_fit, weight="clicks")
    with pytest.raises(soc.FitError, match="bins="):
        reduction(small_fit, small_items, bins=0)
    other = soc.PoissonItems(
        small_items.source.assign(s=0.1 + small_items.source["score"]), score="s", **ROLES
    )
    with pytest.raises(soc.StatisticsError, match="roles"):
        r_squared(small_fit, soc.summarize(other, progress=False))


@pytest.mark.parametrize("smooth", [True, False])
def test_five_steps_have_one_draw(small_items, small_statistics, small_fit, smooth):
    """Points near the Bayesian means; steps are evaluated inside their own bins."""
    five = soc.fit(small_statistics, method=soc.FiveSteps(smooth=smooth), progress=False)
    found = r_squared(five)
    assert found.shape == (1, 1)
    # between fits to 4,000 items in 20 bins; the posterior sd is .03
    assert abs(float(found[0, 0]) - float(r_squared(small_fit).mean())) < 0.1
    one, two = (reduction(f, small_items, progress=False)["ratio"] for f in (five, small_fit))
    assert abs(float(one[0, 0]) - float(two.mean())) < 0.1
    law = posterior_of(five)
    columns = {role: small_items.source[role].to_numpy(dtype=float) for role in (*ROLES, "score")}
    ratio = law.moments(columns)[1].sum() / law.curves(columns["score"])["variance"].sum()
    by_items = reduction(five, small_items, weight="items", progress=False)["ratio"]
    assert abs(float(by_items[0, 0]) - ratio) < 0.02


def test_five_steps_of_a_mixture(small_items, small_fit):
    """Read from joint cells; near the Gamma, which is the truth."""
    stats = soc.summarize(small_items, bins=20, joint=True, progress=False)
    fit = soc.fit(stats, soc.GammaMixture(), soc.FiveSteps(), progress=False)
    found = reduction(fit, stats, progress=False)["ratio"]
    assert found.shape == (1, 1)
    assert (
        abs(float(found[0, 0] - reduction(small_fit, stats, progress=False)["ratio"].mean())) < 0.1
    )
    assert abs(float(r_squared(fit)[0, 0] - r_squared(small_fit).mean())) < 0.15
