"""Five steps with conjugate priors: smoothing, moments of log theta, and each bin's estimates."""

import mpmath
import numpy as np
import pandas as pd
import pytest
from scipy import optimize, special
from scipy import stats as laws
from scipy.interpolate import make_smoothing_spline

import soc_pymc as soc
from soc_pymc import paper
from soc_pymc._model.splines import spline_matrix
from soc_pymc.paper import match_gammas, smoothing_spline
from tests.examples import CASES, QUIET, ROLES, value_frame
from tests.family_records import RECORDS, prior_parameters
from tests.oracles import s1_curves

count_items = CASES["gamma"].items


@pytest.fixture(scope="module")
def frame():
    return soc.simulation.s1(40_000, seed=1)


@pytest.fixture(scope="module")
def statistics(frame):
    return soc.summarize(count_items(frame), bins=100, folds=2, **QUIET)


@pytest.fixture(scope="module")
def fits(statistics):
    return {
        moments: soc.fit(statistics, method=soc.FiveSteps(moments), **QUIET)
        for moments in ("plain", "log")
    }


def curve(fit, score, name="mean", **options):
    """The only draw of a curve at scores."""
    return soc.calibration_curves(fit, score, **options)[name].to_numpy().ravel()


def test_the_smoother_is_the_smoothing_spline(monkeypatch):
    """With a knot at each point and the same penalty, as SciPy's, to 1e-6."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(60))
    y, w = np.sin(4 * x) + 0.2 * rng.normal(size=60), rng.uniform(0.5, 2.0, 60)
    monkeypatch.setattr(paper, "_best_multiple", lambda *_: 1e-3)
    knots, values = smoothing_spline(x, y, w)
    # ours counts weights by their mean, and lengths in the range of the points
    scipys = make_smoothing_spline(x, y, w / w.mean(), lam=1e-3 * (x[-1] - x[0]) ** 3)
    np.testing.assert_allclose(spline_matrix(x, knots) @ values, scipys(x), atol=1e-6)


def test_the_smoother_finds_the_noise():
    """A sine in noise: mean squared error a tenth of the points'; straight lines stay straight."""
    rng = np.random.default_rng(1)
    x = np.linspace(0, 1, 300)
    truth = np.sin(5 * x)
    knots, values = smoothing_spline(x, truth + 0.3 * rng.normal(size=300), np.ones(300))
    assert np.mean((spline_matrix(x, knots) @ values - truth) ** 2) < 0.1 * 0.09
    bends = [
        np.ptp(np.diff(smoothing_spline(x, 0.3 * rng.normal(size=300), np.ones(300))[1]))
        for _ in range(20)
    ]
    assert np.median(bends) < 0.01  # restricted likelihood rarely follows noise
    for n in (1, 2, 3, 5):
        knots, values = smoothing_spline(x[:n], 1.0 + 2.0 * x[:n], np.ones(n))
        np.testing.assert_allclose(
            spline_matrix(x[:n], knots) @ values, 1.0 + 2.0 * x[:n], atol=1e-6
        )


def test_smooth_curves_recover_s1(frame, fits):
    """40,000 items in 100 bins: mean within 3%, log cv2 within .15, root mean squares.

    Sampling alone leaves about 1.5% and .07; bins that are not smoothed are twice as far or more.
    """
    score = np.quantile(frame["score"], np.linspace(0.01, 0.99, 99))
    log_mean, log_cv2 = s1_curves(score)
    bins = fits["plain"].data["constant_data"]["score"].to_numpy()
    estimates = np.log(fits["plain"].data["per_bin"]["mean"].to_numpy())
    rough = np.sqrt(np.mean((estimates - s1_curves(bins)[0]) ** 2))
    for moments, most in (("plain", 0.15), ("log", 0.2)):
        log_mean_error = np.log(curve(fits[moments], score)) - log_mean
        log_cv2_error = -np.log(curve(fits[moments], score, "shape")) - log_cv2
        assert np.sqrt(np.mean(log_mean_error**2)) < min(0.03, 0.5 * rough)
        assert np.sqrt(np.mean(log_cv2_error**2)) < most


@pytest.mark.slow
def test_posteriors_are_near_those_of_the_hierarchical_model(frame, statistics, fits):
    """On average means are within .03 posterior sd, and sds within 4%."""
    items = count_items(frame.head(2000))
    whole, steps = (
        soc.item_posteriors(fit, items, quantiles=(), **QUIET)
        for fit in (soc.fit(statistics, **QUIET), fits["plain"])
    )
    difference = (steps["theta_mean"] - whole["theta_mean"]).abs() / whole["theta_sd"]
    assert difference.mean() < 0.03
    assert np.log(steps["theta_sd"] / whole["theta_sd"]).abs().mean() < 0.04


def test_monotone_means_never_decrease():
    """A truly decreasing mean becomes flat."""
    rng = np.random.default_rng(2)
    t = rng.uniform(0.1, 1.0, 4000)
    frame = pd.DataFrame({"score": t, "count": rng.poisson(5 * (1.0 - 0.6 * t)), "exposure": 5.0})
    stats = soc.summarize(count_items(frame), bins=20, **QUIET)
    free, monotone = (
        curve(soc.fit(stats, prior, soc.FiveSteps(), **QUIET), np.linspace(0.1, 1.0, 200))
        for prior in (soc.Gamma(), soc.Gamma(monotone=True))
    )
    assert np.diff(free).min() < 0
    assert np.diff(monotone).min() >= -1e-12


def test_values_are_near_the_truth_and_pass_their_check():
    frame = value_frame(20_000, 0)
    stats = soc.summarize(CASES["normal"].items(frame), bins=50, joint=True, **QUIET)
    fit = soc.fit(stats, method=soc.FiveSteps(), **QUIET)
    score = np.linspace(-2.0, 2.0, 61)
    error = curve(fit, score) - (0.9 * score + 0.2 * np.sin(score))
    assert np.abs(error).mean() < 0.05
    error = curve(fit, score, "log_variance") - (0.4 * score - 0.8)
    assert np.abs(error).mean() < 0.1
    assert "fail" not in set(soc.check(fit, stats, **QUIET).table["verdict"])


def test_a_fit_is_used_as_any_other(fits):
    """Bands have no width; curves have SQL; one draw has no importance weights."""
    for fit in fits.values():
        assert fit.status.pareto_k is None
        banded = soc.bands(soc.calibration_curves(fit), simultaneous=True)["mean"]
        np.testing.assert_allclose(banded.sel(bound="lower"), banded.sel(bound="upper"))
    assert "SELECT" in soc.posterior_sql(fit, "ads", quantiles=())


# --- moments of log theta ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [1e-6, 0.03, 1.0, 1e5, 1e9])
def test_a_matched_gamma_has_the_moments(shape):
    """To 1e-10 of the sd of log theta, against mpmath."""
    with mpmath.workdps(40):
        middle, width = -3.0, float(mpmath.psi(1, shape))
        log_mean, log_cv2 = match_gammas(np.array([middle]), np.array([width]))
        a = mpmath.exp(-mpmath.mpf(float(log_cv2[0])))
        again = mpmath.psi(0, a) - mpmath.log(a) + mpmath.mpf(float(log_mean[0]))
        scale = 1 + abs(mpmath.psi(0, a)) + abs(mpmath.log(a))
        assert abs(float((again - middle) / scale)) < 1e-10
        assert float(mpmath.psi(1, a)) == pytest.approx(width, rel=1e-9)


def test_curves_follow_the_bins_moments_of_log_theta(fits):
    """The bins' estimates less the curve average to nothing, within their own scatter."""
    fit = fits["log"]
    score = fit.data["constant_data"]["score"].to_numpy()
    shape, log_mean = curve(fit, score, "shape"), curve(fit, score, "log_mean")
    smooth = {
        "mean_log": log_mean + special.psi(shape) - np.log(shape),
        "variance_log": special.polygamma(1, shape),
    }
    for name, values in smooth.items():
        estimates = fit.data["per_bin"][name].to_numpy()
        middle = (estimates - values)[5:-5]
        # the mean of 90 errors, four of its standard errors
        assert abs(middle.mean()) < 4 * middle.std() / np.sqrt(len(middle)), name
        # and smoother than the estimates
        assert np.abs(np.diff(values, 2)).mean() < 0.2 * np.abs(np.diff(estimates, 2)).mean()


def test_bins_of_few_events():
    """880 events in 60 bins: E(theta|t) within .25 in log, about three of its standard errors."""
    rng = np.random.default_rng(0)
    score, exposure = np.exp(rng.normal(-2.6, 0.5, 20_000)), rng.uniform(0.05, 1, 20_000)
    count = rng.poisson(score * rng.gamma(2, 0.5, 20_000) * exposure)
    frame = pd.DataFrame({"score": score, "count": count, "exposure": exposure})
    stats = soc.summarize(count_items(frame), bins=60, **QUIET)
    fit = soc.fit(stats, method=soc.FiveSteps(), **QUIET)
    inner = np.quantile(score, np.linspace(0.05, 0.95, 19))
    assert np.abs(np.log(curve(fit, inner) / inner)).max() < 0.25
    none = soc.summarize(count_items(frame.assign(count=0)), bins=2, **QUIET)
    with pytest.raises(soc.FitError, match="event"):
        soc.fit(none, method=soc.FiveSteps(), **QUIET)


# --- each bin's maximum likelihood ---------------------------------------------------------------


def counts(rng, exposure, log_mean, log_cv2, score=0.5):
    """Counts of one Gamma prior."""
    theta = rng.gamma(np.exp(-log_cv2), np.exp(log_mean + log_cv2), len(exposure))
    return pd.DataFrame(
        {"score": score, "count": rng.poisson(theta * exposure), "exposure": exposure}
    )


def per_bin(frame, edges=(), kind=soc.PoissonItems):
    """The fit, and its estimates by bin."""
    items = kind(frame, **ROLES[kind])
    stats = soc.summarize(items, edges=list(edges), on_leakage="ignore", **QUIET)
    fit = soc.fit(stats, method=soc.FiveSteps(), **QUIET)
    return fit, fit.data["per_bin"].to_dataset()


FAMILY = {soc.PoissonItems: "Gamma", soc.NormalItems: "Normal", soc.BinomialItems: "Beta"}


def marginal(frame, mean, variance, kind=soc.PoissonItems):
    """Log marginals of items under one mean and variance of theta."""
    outcome, size = (frame[column] for column in list(ROLES[kind].values())[1:])
    prior = prior_parameters(FAMILY[kind], mean, variance)
    law = RECORDS[FAMILY[kind]].marginal(*prior, size)
    return law.logpdf(outcome) if kind is soc.NormalItems else law.logpmf(outcome)


def bin_of(kind, rng):
    """600 items of one prior, whose sizes take few values."""
    size = rng.choice([0.5, 1.0, 2.0] if kind is soc.NormalItems else np.arange(1, 17), 600)
    if kind is soc.PoissonItems:
        return counts(rng, size.astype(float), -1.5, -1.0)
    if kind is soc.NormalItems:
        value = rng.normal(rng.normal(2.0, 0.8, 600), size)
        return pd.DataFrame({"score": 0.5, "value": value, "noise_sd": size})
    successes = rng.binomial(size, rng.beta(2.0, 5.0, 600))
    return pd.DataFrame({"score": 0.5, "successes": successes, "trials": size})


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        (soc.PoissonItems, (0.2, 0.02)),
        (soc.NormalItems, (2.0, 0.6)),
        pytest.param(soc.BinomialItems, (0.3, 0.03), marks=pytest.mark.slow),
    ],
)
def test_estimates_are_those_of_a_direct_search(kind, start):
    """Sizes of few values have exact cells: estimates to 1e-4, log likelihoods to 1e-6.

    The search on the items, whose derivatives are zero there, finds the maximum to 1e-5.
    """
    frame = bin_of(kind, np.random.default_rng(0))
    _, estimates = per_bin(frame, kind=kind)

    def minus(x):
        return -marginal(frame, x[0], np.exp(x[1]), kind).sum()

    options = {"xatol": 1e-8, "fatol": 1e-10}
    best = optimize.minimize(
        minus, [start[0], np.log(start[1])], method="Nelder-Mead", options=options
    )
    assert float(estimates["mean"][0]) == pytest.approx(best.x[0], rel=1e-4)
    assert np.log(float(estimates["variance"][0])) == pytest.approx(best.x[1], abs=1e-4)
    assert float(estimates["log_likelihood"][0]) == pytest.approx(-best.fun, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1e7])
def test_wide_cells_agree_to_their_error(scale):
    """Exposures from 1e-3 to 1e9, counts to 1e5: cells of 1/16 octave leave 1e-5."""
    rng = np.random.default_rng(1)
    exposure = scale * np.exp(rng.uniform(0, 4.6, 500))
    frame = counts(rng, exposure, np.log(30.0 / scale), -1.5)
    _, estimates = per_bin(frame)
    mean, variance = (float(estimates[name][0]) for name in ("mean", "variance"))

    def total(x):
        return marginal(frame, mean * np.exp(x[0]), variance * np.exp(x[1])).sum()

    # slopes over information: how far the items' own maximum is
    step = 1e-3
    for axis, allowed in ((0, 1e-5), (1, 1e-4)):
        ahead, behind = (total(sign * step * np.eye(2)[axis]) for sign in (1, -1))
        bend = (2 * total((0, 0)) - ahead - behind) / step**2
        assert abs((ahead - behind) / (2 * step) / bend) < 5 * allowed


def test_too_little_scatter_is_variance_zero():
    """Counts and values that vary less than their noise have the likelihood of one theta."""
    even = pd.DataFrame({"score": 0.5, "count": np.full(50, 3), "exposure": np.full(50, 10.0)})
    fit, estimates = per_bin(even)
    assert fit.status.converged
    assert float(estimates["mean"][0]) == pytest.approx(0.3, rel=1e-12)
    assert float(estimates["variance"][0]) == 0.0
    poisson = laws.poisson.logpmf(3, 3.0) * 50
    assert float(estimates["log_likelihood"][0]) == pytest.approx(poisson, rel=1e-12)
    # the slope there is half the sum of (y - 3)^2 - y: 10 counts 9 turn it, 5 counts 6 do not
    for high, number, zeros, positive in ((6, 5, 5, False), (9, 10, 20, True)):
        count = np.r_[np.full(50 - number - zeros, 3), np.zeros(zeros), np.full(number, high)]
        assert bool(per_bin(even.assign(count=count.astype(int)))[1]["variance"][0] > 0) is positive
    values = {"score": 0.0, "value": [1.0, 1.1, 0.9, 1.3], "noise_sd": [1.0, 1.0, 2.0, 0.5]}
    _, estimates = per_bin(pd.DataFrame(values), kind=soc.NormalItems)
    weighted = np.average(values["value"], weights=np.power(values["noise_sd"], -2.0))
    assert float(estimates["variance"][0]) == 0.0
    assert float(estimates["mean"][0]) == pytest.approx(weighted, rel=1e-9)


def test_bins_of_any_size_are_fitted():
    """One item, no event, one event, and counts of 1e6: no failure and no NaN."""
    parts = [
        pd.DataFrame({"score": [0.1], "count": [2], "exposure": [5.0]}),
        pd.DataFrame({"score": [0.3] * 2, "count": [0, 0], "exposure": [1.0, 4.0]}),
        pd.DataFrame({"score": [0.5] * 2, "count": [0, 1], "exposure": [1.0, 4.0]}),
        pd.DataFrame(
            {"score": [0.7] * 3, "count": [1_000_000, 2_000_000, 900_000], "exposure": [1e9] * 3}
        ),
        pd.DataFrame({"score": [0.9] * 3, "count": [40, 0, 100], "exposure": [1e-3, 1e-3, 2e-3]}),
    ]
    fit, estimates = per_bin(pd.concat(parts), edges=(0.2, 0.4, 0.6, 0.8))
    assert fit.status.converged
    assert np.isnan(estimates["mean"]).to_numpy().tolist() == [False, True, False, False, False]
    assert (estimates["variance"].to_numpy()[[3, 4]] > 0).all()
    scores = [0.1, 0.3, 0.5, 0.7, 0.9]
    assert np.isfinite(soc.calibration_curves(fit, scores)["mean"]).all()
    stats = soc.summarize(soc.PoissonItems(parts[3], **ROLES[soc.PoissonItems]), edges=[], **QUIET)
    alone = soc.fit(stats, method=soc.FiveSteps(), **QUIET)
    mean = soc.calibration_curves(alone, scores)["mean"].to_numpy().ravel()
    np.testing.assert_allclose(mean, 1.3e-3, rtol=1e-4)


def test_estimates_follow_units_and_ignore_order():
    """Exposures times 1,024: E / 1,024, Var / 1,024^2; items in another order: the same."""
    frame = soc.simulation.s1(3000, seed=3)
    edges = np.quantile(frame["score"], [0.25, 0.5, 0.75])
    _, estimates = per_bin(frame, edges)
    _, scaled = per_bin(frame.assign(exposure=1024.0 * frame["exposure"]), edges)
    np.testing.assert_allclose(scaled["mean"], estimates["mean"] / 1024, rtol=1e-6)
    np.testing.assert_allclose(scaled["variance"], estimates["variance"] / 1024**2, rtol=1e-5)
    _, shuffled = per_bin(frame.sample(frac=1, random_state=0), edges)
    np.testing.assert_allclose(shuffled["mean"], estimates["mean"], rtol=1e-12)
    np.testing.assert_allclose(shuffled["variance"], estimates["variance"], rtol=1e-9)


def test_the_search_finds_the_higher_of_two_maxima():
    """Many small items without overdispersion and one huge one: no point of a grid is higher."""
    frame = pd.DataFrame(
        {
            "score": 0.5,
            "count": [0] * 30 + [400] + [1] * 5,
            "exposure": [1.0] * 30 + [50.0] + [9.0] * 5,
        }
    )
    _, estimates = per_bin(frame)
    grid = [
        marginal(frame, mean, cv2 * mean**2).sum()
        for mean in np.exp(np.linspace(-3, 4, 18))
        for cv2 in np.exp(np.linspace(-6, 6, 16))
    ]
    assert float(estimates["log_likelihood"][0]) >= max(grid)


@pytest.mark.parametrize(("size", "cv2"), [(1e9, 0.3), (1e8, 1e-6)])
def test_huge_counts_converge_though_their_sums_round(size, cv2):
    """Counts of 1e8, whose sums cancel to 1e-4 nats: every bin ends near the truth.

    2,000 items in 20 bins know cv2 of a bin to 15% (2 / sqrt(200)): 5 such sds are allowed.
    """
    rng = np.random.default_rng(8)
    exposure = np.exp(rng.normal(np.log(size), 1.0, 2000))
    frame = counts(rng, exposure, np.log(0.05), np.log(cv2), score=rng.random(2000))
    fit, estimates = per_bin(frame, np.linspace(0.05, 0.95, 19))
    assert fit.status.converged, fit.status.reason
    np.testing.assert_allclose(estimates["variance"] / estimates["mean"] ** 2, cv2, rtol=0.75)
