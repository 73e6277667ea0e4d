"""Distributions of Gamma fits whose curves also depend on exposure."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy import stats
from scipy.interpolate import CubicSpline

import soc_pymc as soc
from soc_pymc._lib import errors
from soc_pymc.families.priors import Gamma, Spline
from soc_pymc.posterior.curves import curve_draws
from soc_pymc.posterior.predictive import posterior_of
from tests.posterior.test_quadrature import frame_of, make_fit


@pytest.fixture(params=[0.01, 0.05, 0.2])
def by_exposure(request):
    """A fit in which both curves move with the exposure, differently in every draw."""
    plain = make_fit(request.param)
    slope = request.param * np.random.default_rng(0).normal(size=(1000, 1))
    knots = np.linspace(0.0, 10.0, 8)  # of log exposure
    x = np.log1p(np.exp(knots)) / 5
    terms = {
        "log_mean_by_exposure": ((0.5 + slope) * x, "mean_exposure_knot"),
        "log_cv2_by_exposure": (-(0.3 + slope) * x, "variance_exposure_knot"),
    }
    posterior = plain.data["posterior"].to_dataset()
    for name, (values, knot) in terms.items():
        posterior[name] = (("chain", "draw", knot), values[None])
        posterior = posterior.assign_coords({knot: knots})
    tree = xr.DataTree.from_dict({"posterior": posterior})
    fit = replace(plain, data=tree, prior=Gamma(exposure=Spline()))

    def curves(_, score, *, exposure):
        size = np.broadcast_to(exposure, len(score))
        at = np.clip(np.log(np.maximum(size, 1e-9)), 0.0, 10.0)
        term = CubicSpline(
            knots, np.array([v for v, _ in terms.values()]), axis=2, bc_type="natural"
        )
        first, second = curve_draws(plain, score)
        return first + term(at)[0], second + term(at)[1]

    return fit, curves


def columns_of(frame):
    return {role: frame[role].to_numpy(dtype=float) for role in ("score", "count", "exposure")}


@pytest.mark.slow
def test_representative_within_a_thousandth_of_a_posterior_sd(by_exposure):
    fit, curves = by_exposure
    score = np.exp(np.random.default_rng(1).normal(np.log(0.05), 0.8, 400))
    frame = frame_of(400, score)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    every, few = (soc.item_posteriors(fit, items, draws=d, progress=False) for d in ("all", "auto"))
    log_mean, log_cv2 = curves(fit, score, exposure=frame["exposure"].to_numpy())
    shape = np.exp(-log_cv2) + frame["count"].to_numpy()
    mean = shape / (np.exp(-log_cv2 - log_mean) + frame["exposure"].to_numpy())
    np.testing.assert_allclose(every["theta_mean"], mean.mean(axis=0), rtol=1e-9)
    names = ["theta_mean", "theta_sd", "theta_q05", "theta_q95"]
    error = (few - every)[names].abs().div(every["theta_sd"], axis=0)
    assert error.to_numpy().max() < 1e-3


def test_densities_and_ends_at_each_items_own_exposure(by_exposure):
    fit, curves = by_exposure
    frame = frame_of(60, np.geomspace(0.01, 0.3, 60))
    columns = columns_of(frame)
    spread = float(fit.data["posterior"]["log_cv2"].std("draw").max())
    log_mean, log_cv2 = curves(fit, columns["score"], exposure=columns["exposure"])
    shape = np.exp(-log_cv2)
    exact = stats.nbinom(shape, 1 / (1 + columns["exposure"] * np.exp(log_mean + log_cv2)))
    law = posterior_of(fit)
    # scipy's own log pmf loses digits at large shapes
    np.testing.assert_allclose(law.log_density(columns), exact.logpmf(columns["count"]), rtol=1e-6)
    below, upto = law.cdf_interval(columns)
    # nine nodes: right to the second order in the curves' uncertainty
    near = 0.01 * spread
    np.testing.assert_allclose(upto, exact.cdf(columns["count"]).mean(axis=0), atol=near)
    np.testing.assert_allclose(below, exact.cdf(columns["count"] - 1).mean(axis=0), atol=near)


def test_plug_in_at_each_items_own_exposure(by_exposure):
    fit, curves = by_exposure
    frame = frame_of(40, np.geomspace(0.01, 0.3, 40))
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    scored = soc.item_posteriors(fit, items, plug_in=True, progress=False)
    exposure = frame["exposure"].to_numpy()
    m, c = (d.mean(axis=0) for d in curves(fit, frame["score"].to_numpy(), exposure=exposure))
    mean = (np.exp(-c) + frame["count"]) / (np.exp(-c - m) + exposure)
    np.testing.assert_allclose(scored["theta_mean"], mean, rtol=1e-9)


def test_curves_over_exposures_keep_the_moments(by_exposure):
    """Averages over two exposures of equal shares: total variance, and the Gamma with both."""
    fit, curves = by_exposure
    shares = xr.Dataset(
        {
            "share": (("part", "size_class"), np.full((1, 2), 0.5)),
            "share_position": ("part", np.array([-3.0])),
            "share_log_size": ("size_class", np.log([5.0, 50.0])),
        }
    )
    tree = fit.data.copy()
    tree["constant_data"] = xr.DataTree(shares)
    found = soc.calibration_curves(replace(fit, data=tree), [0.05]).isel(chain=0, score=0)
    each = [curves(fit, np.array([0.05]), exposure=n) for n in (5.0, 50.0)]
    means = np.array([np.exp(m[:, 0]) for m, _ in each])
    variances = np.array([np.exp(2 * m[:, 0] + c[:, 0]) for m, c in each])
    np.testing.assert_allclose(found["mean"], means.mean(axis=0))
    np.testing.assert_allclose(found["variance"], variances.mean(axis=0) + means.var(axis=0))
    np.testing.assert_allclose(found["shape"] / found["rate"], found["mean"])
    np.testing.assert_allclose(found["shape"] / found["rate"] ** 2, found["variance"])


def test_pictures_of_the_score_alone_are_refused(by_exposure):
    with pytest.raises(errors.FitError, match="depends on the exposure"):
        soc.plots.plot_prior_ribbon(by_exposure[0])


def test_simulated_counts_have_the_marginals_moments():
    """50,000 counts of three items, one for each draw of nearly certain curves: 4 standard errors
    of their means, and 6% of their variances, which have heavy tails."""
    fit = make_fit(1e-6)
    columns = {
        "score": np.repeat([0.02, 0.05, 0.2], 50),
        "count": np.zeros(150),
        "exposure": np.repeat([5.0, 40.0, 300.0], 50),
    }
    drawn = posterior_of(fit).simulate(columns, np.random.default_rng(0)).reshape(-1, 3, 50)
    log_mean, log_cv2 = (c.mean(axis=0)[::50] for c in curve_draws(fit, columns["score"]))
    expected = columns["exposure"][::50] * np.exp(log_mean)
    variance = expected + np.exp(log_cv2) * expected**2
    number = drawn.shape[0] * 50
    away = drawn.mean(axis=(0, 2)) - expected
    assert (np.abs(away) < 4 * np.sqrt(variance / number)).all()
    assert (np.abs(drawn.var(axis=(0, 2)) / variance - 1) < 0.06).all()
