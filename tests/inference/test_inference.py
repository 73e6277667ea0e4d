"""Inference: against NUTS, on hard cases, minibatches, determinism, and saved fits."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import soc_pymc as soc
from soc_pymc._lib.files import save_netcdf
from soc_pymc.inference import density, variational
from soc_pymc.inference.variational import (
    _variational_verdict,
    chosen,
    importance,
    weighed_draws,
)
from soc_pymc.model import problem
from tests.studies import hard_cases


def _stats(frame, **kwargs):
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    return soc.summarize(items, progress=False, **kwargs)


def _moments(fit, name):
    values = fit.data["posterior"][name].to_numpy()
    flat = values.reshape(-1, values.shape[-1])
    return flat.mean(axis=0), flat.std(axis=0)


@pytest.mark.slow
def test_agrees_with_nuts():
    """4,000 draws each: sd ratio has standard error 0.016 (0.022 with NUTS' autocorrelation), and
    40 of them are compared, so 0.92 to 1.08; means within 0.1 posterior sd likewise."""
    stats = _stats(soc.simulation.s1(20_000, seed=0), bins=50)
    fast = soc.fit(stats, method=soc.VI(draws=8000), progress=False)
    slow = soc.fit(stats, method=soc.NUTS(draws=2000, chains=2, seed=1), progress=False)
    assert fast.status.converged
    assert slow.status.converged, slow.status
    assert fast.status.pareto_k < 0.7
    assert fast.status.ess_fraction > 0.5
    assert slow.status.pareto_k is None
    for name in ("log_mean", "log_cv2"):
        (mean, sd), (true_mean, true_sd) = _moments(fast, name), _moments(slow, name)
        assert np.all(np.abs(sd / true_sd - 1) < 0.08)
        assert np.all(np.abs(mean - true_mean) < 0.1 * true_sd)


@pytest.mark.slow
def test_same_seed_same_fit(small_statistics, small_fit):
    again = soc.fit(small_statistics, method=soc.VI(seed=1), progress=False)
    xr.testing.assert_equal(again.data["posterior"].ds, small_fit.data["posterior"].ds)
    other = soc.fit(small_statistics, method=soc.VI(seed=2), progress=False)
    mean, sd = _moments(small_fit, "log_mean")
    assert not np.array_equal(_moments(other, "log_mean")[0], mean)
    assert np.all(np.abs(_moments(other, "log_mean")[0] - mean) < 0.25 * sd)


_FIT_AND_SAVE = """
import sys
import soc_pymc as soc
soc.fit(soc.load_statistics(sys.argv[1]), method=soc.VI(seed=1), progress=False).save(sys.argv[2])
"""


@pytest.mark.slow
def test_same_fit_in_another_process_and_with_more_threads(small_statistics, tmp_path):
    """Bit-identical with any number of threads."""
    small_statistics.save(tmp_path / "stats.nc")
    fits = []
    for number, threads in enumerate((1, 1, 2)):
        path = tmp_path / f"fit{number}.nc"
        limits = {f"{k}_NUM_THREADS": str(threads) for k in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
        subprocess.run(
            [sys.executable, "-c", _FIT_AND_SAVE, str(tmp_path / "stats.nc"), str(path)],
            env={**os.environ, **limits, "PYTHONPATH": str(Path(soc.__file__).parents[1])},
            check=True,
        )
        fits.append(soc.load_fit(path))
    one, *others = (f.data["posterior"].to_dataset() for f in fits)
    for other in others:
        xr.testing.assert_equal(one, other)


def _audited(stats):
    """An audit at the middle bin, with an unknown bias, and a number far from its start."""
    with soc.model(stats) as model:
        bias = pm.Normal("audit_bias", 0.0, 0.1)
        middle = model["bin_log_mean"][stats.bins // 2]
        pm.Normal("audit", middle + bias, 0.05, observed=np.log(0.1))
        far = pm.Normal("far", 1000.0, 100.0, shape=(2, 2))
        pm.Normal("far_seen", far, 1.0, observed=np.full((2, 2), 1200.0))
        pm.Potential("smooth_end", -0.5 * ((model["log_cv2"][0] - model["log_cv2"][1]) / 0.1) ** 2)
    return model


@pytest.mark.slow
def test_an_extended_model_agrees_with_nuts(small_statistics):
    """Every unknown of a model with terms of the user's own: limits as against NUTS above, wider
    for the effective sample of the weights (a third)."""
    fast = soc.fit(
        small_statistics, method=soc.VI(draws=4000), model=_audited(small_statistics),
        progress=False,
    )  # fmt: skip
    slow = soc.fit(
        small_statistics,
        method=soc.NUTS(draws=2000, chains=2, seed=1, target_accept=0.95),
        model=_audited(small_statistics),
        progress=False,
    )
    assert fast.status.converged
    assert slow.status.converged
    for name in ("audit_bias", "far", "log_mean", "log_cv2"):
        a, b = (f.data["posterior"][name] for f in (fast, slow))
        over = ("chain", "draw")
        assert float(abs(a.std(over) / b.std(over) - 1).max()) < 0.12
        assert float((abs(a.mean(over) - b.mean(over)) / b.std(over)).max()) < 0.15


@pytest.mark.slow
def test_an_extended_model_is_fitted(small_statistics, small_fit):
    """The audit moves the curve; independent parameters have their closed-form posterior."""
    fit = soc.fit(small_statistics, model=_audited(small_statistics), progress=False)
    assert fit.status.converged
    far = fit.data["posterior"]["far"]
    assert far.dims == ("chain", "draw", "far_dim_0", "far_dim_1")
    precision = 1 + 1 / 100**2
    np.testing.assert_allclose(far.mean(("chain", "draw")), 1200 - 200e-4 / precision, atol=0.2)
    np.testing.assert_allclose(far.std(("chain", "draw")), precision**-0.5, rtol=0.12)
    bias = fit.data["posterior"]["audit_bias"].to_numpy()
    score = fit.data["constant_data"]["score"].to_numpy()[small_statistics.bins // 2 :][:1]
    at = soc.calibration_curves(fit, score)["mean"].to_numpy()
    before = soc.calibration_curves(small_fit, score)["mean"].mean()
    assert float(at.mean()) > 1.02 * float(before)
    batched = soc.fit(
        small_statistics, method=soc.VI(batch=5), model=_audited(small_statistics), progress=False
    )  # fmt: skip
    moved = batched.data["posterior"]["audit_bias"].mean() - bias.mean()
    assert abs(float(moved)) < 0.3 * float(bias.std())


def test_a_model_that_is_not_an_extension(small_frame, small_statistics):
    with pytest.raises(soc.FitError, match="lacks count, log_cv2_line"):
        soc.fit(small_statistics, model=pm.Model())
    other = _stats(small_frame, bins=20, on_leakage="ignore")
    more = small_frame.assign(count=small_frame["count"] + 1)
    with pytest.raises(soc.FitError, match="other statistics"):
        soc.fit(_stats(more, edges=other.edges, on_leakage="ignore"), model=soc.model(other))
    with soc.model(small_statistics) as model:
        pm.Poisson("number", 3.0)
    with pytest.raises(soc.FitError, match=r"discrete unknowns \(number\)"):
        soc.fit(small_statistics, model=model)


@pytest.mark.slow
def test_minibatches_give_the_same_curves():
    """400 bins in batches of 40 against all bins: compared by the variational moments, so that no
    Monte Carlo error enters."""
    stats = _stats(soc.simulation.s1(60_000, seed=1), bins=400)
    full = soc.fit(stats, method=soc.VI(batch=0), progress=False)
    batched = soc.fit(stats, method=soc.VI(batch=40), progress=False)
    a, b = (f.data["variational"].ds for f in (full, batched))
    assert float(abs(b["sd"] / a["sd"] - 1).max()) < 0.1
    assert float((abs(b["mean"] - a["mean"]) / a["sd"]).max()) < 0.15
    assert batched.status.converged


def test_minibatches_average_to_the_whole(small_statistics):
    """Over the minibatches of all offsets every bin is seen once: the mean is the full density."""
    built = problem.build(small_statistics, soc.Gamma())
    space = density.make_space(built.model)
    rows = np.arange(20).reshape(5, 4).T  # 4 minibatches of 5 of the 20 bins
    whole, part = (
        density.density(space),
        density.minibatch_density(built, space, np.ascontiguousarray(rows)),
    )
    rng = np.random.default_rng(3)
    for size in (0.5, 3.0):  # far out the quadratics at the pilot are wrong, and must not matter
        w = size * rng.normal(size=space.dim)
        logp, gradient = whole(w[None])
        parts = part(np.tile(w, (4, 1)))
        assert parts[0].mean() == pytest.approx(logp[0], rel=1e-9)
        np.testing.assert_allclose(parts[1].mean(axis=0), gradient[0], rtol=1e-6, atol=1e-6)
        if size > 1:
            assert np.ptp(parts[0]) > 1e-3


def test_coordinates_are_standard_normal():
    """At the Laplace start the posterior's precision in the coordinates is the identity, to 0.15.

    Except for the smoothing scales, whose coordinate matches quantiles, not the curvature.
    """
    stats = _stats(soc.simulation.s1(50_000, seed=2), bins=50)
    space = density.make_space(problem.build(stats, soc.Gamma()).model)
    evaluate = density.density(space)
    step = 0.05 * np.eye(space.dim)
    precision = (evaluate(-step)[1] - evaluate(step)[1]) / 0.1
    curves = [i for i, name in enumerate(space.labels) if "sd" not in name]
    assert len(curves) == space.dim - 2
    assert np.abs(precision - np.diag(np.diag(precision))).max() < 0.15
    assert np.abs(np.diag(precision)[curves] - 1).max() < 0.15


@pytest.mark.slow
def test_scale_equivariance(small_frame, small_fit):
    """Exposures in another unit shift log mean by a constant and do not change cv2."""
    factor = 64.0
    scaled = small_frame.assign(exposure=small_frame["exposure"] * factor)
    level = soc.Spline(level=(np.log(0.05), 5.0))
    moved = soc.Spline(level=(np.log(0.05 / factor), 5.0))
    one = soc.fit(_stats(small_frame, bins=20), soc.Gamma(mean=level), progress=False)
    other = soc.fit(_stats(scaled, bins=20), soc.Gamma(mean=moved), progress=False)
    (mean, sd), (other_mean, other_sd) = _moments(one, "log_mean"), _moments(other, "log_mean")
    np.testing.assert_allclose(other_mean + np.log(factor), mean, atol=0.02 * sd.max())
    np.testing.assert_allclose(other_sd, sd, rtol=0.02)
    assert small_fit.status.converged


QUICK_CASES = ("one far item",)


@pytest.mark.parametrize(
    "case",
    [c if c in QUICK_CASES else pytest.param(c, marks=pytest.mark.slow) for c in hard_cases.CASES],
)
def test_hard_cases_converge_or_warn(case, tmp_path):
    """A finite posterior whose status is true: it converged, or a warning says what to do.

    It can be saved and loaded.

    `tests.studies.hard_cases` compares converged fits with NUTS.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stats = hard_cases.summarized(case)
        fit = soc.fit(stats, progress=False)
    stats.save(tmp_path / "stats.nc")
    assert soc.load_statistics(tmp_path / "stats.nc").data.identical(stats.data)
    fit.save(tmp_path / "fit.nc")
    assert soc.load_fit(tmp_path / "fit.nc").data.identical(fit.data)
    warned = [w for w in caught if issubclass(w.category, soc.ConvergenceWarning)]
    assert bool(warned) != fit.status.converged
    assert all("soc.NUTS()" in str(w.message) for w in warned)
    for name in ("log_mean", "log_cv2"):
        assert np.isfinite(fit.data["posterior"][name]).all()
    if case == "theta constant":
        assert np.exp(_moments(fit, "log_cv2")[0]).max() < 0.02
        assert np.abs(np.exp(_moments(fit, "log_mean")[0]) / 0.05 - 1).max() < 0.2
    if case == "cv2 of 10":
        assert 6 < np.exp(np.median(_moments(fit, "log_cv2")[0])) < 15
    if case == "all counts zero":
        assert np.exp(np.median(_moments(fit, "log_mean")[0])) < 1e-3
    if case == "exposures of 1e9":
        assert 0.2 < np.exp(np.median(_moments(fit, "log_cv2")[0])) < 0.31


def test_one_bin_is_a_constant():
    frame = soc.simulation.s1(2000, seed=2)
    fit = soc.fit(_stats(frame, bins=1), progress=False)
    assert fit.status.converged
    assert fit.data["posterior"].sizes["mean_knot"] == 1


def test_too_few_iterations_are_named():
    """A normal target 30 sd away, of unequal widths: one step is not enough, fifty are."""
    width = np.array([0.2, 1.0, 5.0])

    def evaluate(w):
        z = (w - 30.0) / width
        return -0.5 * (z**2).sum(axis=1), -z / width

    draws = variational._cross(3, 1, np.random.default_rng(0))
    _, _, problem = variational._maximise_bound(evaluate, draws, 1, lambda _: None)
    assert "max_iterations" in problem
    verdict = _variational_verdict(problem, 0.1, 0.9)
    assert not verdict["converged"]
    mean, sd, problem = variational._maximise_bound(evaluate, draws, 200, lambda _: None)
    assert problem == ""
    np.testing.assert_allclose(mean, 30.0, rtol=1e-2)
    np.testing.assert_allclose(sd, width, rtol=1e-2)


def test_a_diverging_seed_is_named():
    """A density that is not finite at the start or everywhere gives no silent result."""

    def evaluate(w):
        return np.full(len(w), -np.inf), np.full_like(w, np.nan)

    location, factor, problem = variational._gaussian(
        evaluate, np.zeros(3), soc.VI(), np.random.default_rng(0), lambda _: None
    )
    assert "not finite" in problem
    assert np.isfinite(location).all()
    assert np.isfinite(factor).all()
    _, log_weight = weighed_draws(
        evaluate, location, factor, 100, np.random.default_rng(0), lambda _: None
    )
    _, k, ess = importance(log_weight)
    assert (k, ess) == (np.inf, 0.0)
    verdict = _variational_verdict(problem, k, ess)
    assert not verdict["converged"]
    assert "soc.NUTS()" in verdict["reason"]


def test_pareto_k_finds_a_bad_approximation():
    rng = np.random.default_rng(0)
    x = 0.3 * rng.normal(size=4000)  # a third as wide as the target: k is 0.91
    _, k, ess = importance(-0.5 * x**2 + 0.5 * (x / 0.3) ** 2)
    verdict = _variational_verdict("", k, ess)
    assert k > 0.7
    assert not verdict["converged"]
    assert "soc.NUTS()" in verdict["reason"]
    assert importance(np.array([0.0, np.nan, 1.0] * 50))[1] == np.inf


def test_weights_that_matter_are_used():
    """Standard normal draws weighed to N(0.7, 1): resampled to it; equal weights keep the draws."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=8000)
    kept = chosen(0.7 * x, 2000, rng)
    assert abs(x[kept].mean() - 0.7) < 0.08  # 3 standard errors of 2,000 from 4,900 effective
    assert abs(x[kept].std() - 1.0) < 0.06
    np.testing.assert_array_equal(chosen(0.01 * x, 2000, rng), np.arange(2000))


def test_save_and_load(small_fit, tmp_path):
    path = tmp_path / "fit.nc"
    small_fit.save(path)
    again = soc.load_fit(path)
    xr.testing.assert_equal(again.data["posterior"].ds, small_fit.data["posterior"].ds)
    assert again.status == small_fit.status
    assert again.prior == small_fit.prior
    assert again.method == small_fit.method
    assert again.data.attrs == small_fit.data.attrs
    assert [p.name for p in tmp_path.iterdir()] == ["fit.nc"]


def test_files_that_are_not_fits(small_fit, tmp_path):
    with pytest.raises(soc.FitError, match="no such file"):
        soc.load_fit(tmp_path / "absent.nc")
    text = tmp_path / "text.nc"
    text.write_text("score,count\n")
    with pytest.raises(soc.FitError, match="does not hold a fit"):
        soc.load_fit(text)
    small_fit.save(tmp_path / "fit.nc")
    whole = (tmp_path / "fit.nc").read_bytes()
    (tmp_path / "cut.nc").write_bytes(whole[: len(whole) // 2])
    other = small_fit.data["posterior"].to_dataset()
    other.to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    for name in ("cut.nc", "other.nc"):
        with pytest.raises(soc.FitError, match="does not end with the checksum"):
            soc.load_fit(tmp_path / name)
    save_netcdf(other, tmp_path / "sealed.nc", soc.FitError)
    with pytest.raises(soc.FitError, match="has format None"):
        soc.load_fit(tmp_path / "sealed.nc")


def test_wrong_arguments(small_items, small_statistics):
    with pytest.raises(soc.FitError, match="summarize"):
        soc.fit(small_items)
    with pytest.raises(soc.FitError, match="method"):
        soc.fit(small_statistics, method="vi")
    with pytest.raises(soc.FitError, match="scale"):
        soc.Spline(scale="sqrt")
    with pytest.raises(soc.FitError, match="draws"):
        soc.VI(draws=0)
