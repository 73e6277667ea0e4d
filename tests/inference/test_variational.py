"""Variational fits: hard cases, minibatches, weights, and what the status says."""

import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import soc_pymc as soc
from soc_pymc._model import laplace
from soc_pymc._model.problem import build
from soc_pymc.inference.density import systematic
from soc_pymc.inference.level_density import LevelDensity
from soc_pymc.inference.sampling import status_of_chains
from soc_pymc.inference.variational import importance, kept_draws
from tests.examples import COUNT_ROLES, OVER, QUIET, count_frame
from tests.studies import agreement

CASES = ["all counts zero", "theta constant", "five items", "one far item", "cv2 of 10"]
CASES += ["two far clusters", "exposures of 1e9"]


def curve_medians(fit, name):
    return np.exp(fit.data["posterior"][name].mean(OVER).to_numpy())


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_hard_cases_converge_or_warn(case):
    """A finite posterior near the truth whose status is true: it converged, or a warning names
    the remedy. `tests.studies.agreement` compares converged fits with NUTS."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = soc.fit(agreement.statistics(case), progress=False)
    warned = [w for w in caught if issubclass(w.category, soc.ConvergenceWarning)]
    assert bool(warned) != fit.status.converged
    assert all("soc.NUTS()" in str(w.message) for w in warned)
    for name in ("log_mean", "log_cv2"):
        assert np.isfinite(fit.data["posterior"][name]).all()
    mean, cv2 = curve_medians(fit, "log_mean"), curve_medians(fit, "log_cv2")
    if case == "theta constant":
        assert cv2.max() < 0.02
        np.testing.assert_allclose(mean, 0.05, rtol=0.2)
    if case == "cv2 of 10":
        assert 6 < np.median(cv2) < 15
    if case == "all counts zero":
        assert np.median(mean) < 1e-3
    if case == "exposures of 1e9":
        assert 0.2 < np.median(cv2) < 0.31


@pytest.mark.slow
def test_minibatches_give_the_same_curves():
    """400 bins in batches of 40 against all bins: compared by the variational moments, so that no
    Monte Carlo error of draws enters."""
    frame = soc.simulation.s1(60_000, seed=1)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, bins=400, progress=False)
    full, batched = (
        soc.fit(stats, method=soc.VI(batch=batch), progress=False) for batch in (0, 40)
    )
    a, b = (fit.data["variational"].to_dataset() for fit in (full, batched))
    np.testing.assert_allclose(b["sd"] / a["sd"], 1.0, atol=0.1)
    assert float((abs(b["mean"] - a["mean"]) / a["sd"]).max()) < 0.15
    assert batched.status.converged


@pytest.mark.slow
def test_too_few_iterations_are_named(small_statistics):
    method = soc.VI(max_iterations=1)
    with pytest.warns(soc.ConvergenceWarning, match="max_iterations"):
        fit = soc.fit(small_statistics, method=method, progress=False)
    assert not fit.status.converged


def test_pareto_k_finds_a_bad_approximation():
    """A third as wide as the target: the exact k of such weights is 1 - 0.3^2 = 0.91."""
    draws = 0.3 * np.random.default_rng(0).normal(size=4000)
    weight, k, _ = importance(-0.5 * draws**2 + 0.5 * (draws / 0.3) ** 2)
    assert k == pytest.approx(0.91, abs=0.2)
    assert weight.sum() == pytest.approx(1.0)
    assert importance(np.array([0.0, np.nan, 1.0] * 50))[1] == np.inf


def test_weights_that_matter_are_used():
    """Standard normal draws weighed to N(0.7, 1): resampled to it; equal weights keep the draws."""
    rng = np.random.default_rng(1)
    draws = rng.normal(size=8000)
    resampled = draws[kept_draws(0.7 * draws, 2000, rng)]
    assert abs(resampled.mean() - 0.7) < 0.08  # 3 standard errors of 2,000 from 4,900 effective
    assert abs(resampled.std() - 1.0) < 0.06
    np.testing.assert_array_equal(kept_draws(0.01 * draws, 2000, rng), np.arange(2000))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda x: (x, 0), ""),
        (lambda x: (x + 3 * np.arange(4)[:, None], 0), "R-hat"),
        (lambda x: (x, 3), "3 divergent"),
        (lambda x: (x[:1], 0), "single chain"),
        (lambda x: (np.cumsum(x, axis=1), 0), "effective sample"),
    ],
)
def test_bad_chains_have_not_converged(change, problem):
    """Chains that are far apart, diverge, are alone, or hardly move; and good ones."""
    draws, divergent = change(np.random.default_rng(0).normal(size=(4, 500)))
    diverging = np.zeros(draws.shape, dtype=bool)
    diverging.flat[:divergent] = True
    status = status_of_chains(
        {
            "posterior": xr.Dataset({"x": (OVER, draws)}),
            "sample_stats": xr.Dataset({"diverging": (OVER, diverging)}),
        }
    )
    assert status.converged is not bool(problem)
    assert problem in status.reason


@pytest.mark.parametrize(
    ("bins", "batch", "draws"), [(20_001, 256, 40), (50_000, 256, 40), (99, 30, 7)]
)
def test_minibatches_use_every_bin(bins, batch, draws):
    used = systematic(bins, batch, draws, np.random.default_rng(0))
    times = np.bincount(used.ravel(), minlength=bins)
    assert times.min() >= 1
    # one more where batches do not divide the draws, and one more at the ends, where they wrap
    assert times.max() <= times.min() + 2


def test_a_search_that_did_not_come_to_rest_is_named(monkeypatch):
    monkeypatch.setattr(laplace, "_MODE_ROUNDS", 1)
    items = soc.PoissonItems(count_frame(300), **COUNT_ROLES)
    spline = soc.Spline(knots=4)
    prior = soc.Gamma(mean=spline, variance=spline)
    fit = soc.fit(soc.summarize(items, bins=10, **QUIET), prior, soc.VI(draws=100), **QUIET)
    assert "did not converge" in fit.status.reason


def test_slopes_with_levels_integrated_out_are_those_of_values():
    """Of a dozen groups, at random points, to 1e-5 of slopes of up to 100; and near estimates.

    The average of the estimates' exponentials is the integral itself. Laplace's approximation of a
    group's part is off by a few hundredths of a nat.
    """
    rng = np.random.default_rng(8)
    frame = pd.DataFrame({"t": rng.uniform(0.01, 0.1, 1200), "n": 100.0})
    frame["group"] = np.arange(1200) % 12
    frame["y"] = rng.poisson(frame["t"] * np.exp(0.3 * np.sin(frame["group"])) * frame["n"])
    items = soc.PoissonItems(frame, score="t", count="y", exposure="n", group="group")
    spline = soc.Spline(knots=4)
    built = build(soc.summarize(items, bins=10), soc.Gamma(mean=spline, variance=spline))
    densities = LevelDensity(built, np.random.default_rng(1)).densities()
    start = built.space.start
    for point in rng.normal(start, 0.5, (2, len(start))):
        slope = densities.bound(point[None])[1][0]
        steps = 1e-4 * np.eye(len(start))
        ahead, behind = densities.bound(point + steps)[0], densities.bound(point - steps)[0]
        np.testing.assert_allclose(slope, (ahead - behind) / 2e-4, atol=1e-3)
        estimates = densities.weights(np.repeat(point[None], 200, axis=0))
        integral = np.logaddexp.reduce(estimates) - np.log(len(estimates))
        assert densities.bound(point[None])[0][0] == pytest.approx(integral, abs=0.5)


def test_natural_gradient_steps_mend_a_poor_gaussian():
    """Mean-field k is 0.72 with an effective sample of 37%; with correlations 0.56 and 73%."""
    frame = soc.simulation.s1(1500, seed=2)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, joint=True, **QUIET)
    fit = soc.fit(stats, soc.Gamma(exposure=soc.Spline()), **QUIET)
    assert "annealing" not in fit.status.reason
    assert fit.status.ess_fraction > 0.6
