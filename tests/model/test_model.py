"""The model: density against plain coordinates, dims, and start."""

import gc
import weakref

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from scipy import special
from scipy import stats as sps

import soc_pymc as soc
from soc_pymc.families import bin_effects
from soc_pymc.inference.density import density as _density
from soc_pymc.inference.density import make_space as _space
from soc_pymc.inference.density import mode as interpreter
from soc_pymc.inference.density import posterior_draws as _draws
from soc_pymc.model import coordinates, laplace, problem
from soc_pymc.model.likelihood import log_marginal, shared
from soc_pymc.posterior.curves import curve_draws


@pytest.fixture(scope="module")
def built(small_statistics):
    return problem.build(small_statistics, soc.Gamma(soc.Spline(knots=6), soc.Spline(knots=5)))


def _plain_log_density(built, values):
    """Prior and likelihood written out in numpy, in the original coordinates."""
    total = 0.0
    at_bins = []
    for curve, about, variable in zip(
        built.curves, [c.laplace for c in built.coefficients], built.family.curves, strict=True
    ):
        design = curve.design
        line = values[f"{variable}_line"].to_numpy().squeeze()
        total += sps.norm.logpdf(line, design.line_mean, design.line_sd).sum()
        whole = design.line @ line
        for block, of in zip(design.blocks, about.blocks, strict=True):
            tau = float(values[f"{variable}_{block.name}_sd"].squeeze())
            z = values[f"{variable}_{block.name}"].to_numpy().squeeze()
            total += sps.halfnorm.logpdf(tau, scale=block.scale)
            total += sps.norm.logpdf(z, 0, tau).sum()
            whole = whole + block.design @ of.rotation @ z
        at_bins.append(whole)
    m, c = at_bins
    if built.effects:
        tau = float(values["log_mean_bin_effect_sd"].squeeze())
        total += sps.halfnorm.logpdf(tau, scale=built.effects.scale)
        return total + _averaged_over_effects(built, m, c, tau)
    bins = np.arange(len(m))
    return total + built.data.value_and_gradient(m[None], c[None], bins)[0].sum()


def _averaged_over_effects(built, m, c, tau):
    """Log marginal of all rows by the trapezoid rule over effects up to 4,000 tau."""
    at = np.linspace(-9.0, 9.0, 4001)
    effect, step = tau * np.sinh(at), tau * np.cosh(at) * (at[1] - at[0])
    sd = tau * np.sqrt(bin_effects._WIDTHS)[:, None]
    prior = (bin_effects._SHARES[:, None] * sps.norm.pdf(effect, 0.0, sd)).sum(axis=0)
    bins = np.arange(len(m))
    rows = m + effect[:, None], np.broadcast_to(c, (len(effect), len(c)))
    value = built.data.value_and_gradient(*rows, bins)[0]
    return special.logsumexp(value, axis=0, b=(prior * step)[:, None]).sum()


def test_effects_are_nearly_student():
    """The mixture of Normals is Student's t of 3 degrees of freedom to 4% within 50 scales."""
    at = np.linspace(0.0, 50.0, 501)
    sd = np.sqrt(bin_effects._WIDTHS)[:, None]
    mixture = (bin_effects._SHARES[:, None] * sps.norm.pdf(at, 0.0, sd)).sum(axis=0)
    np.testing.assert_allclose(mixture, sps.t.pdf(at, 3), rtol=0.04)


@pytest.fixture(scope="module")
def grouped_statistics():
    frame = soc.simulation.s1(1500, seed=2).assign(group=np.arange(1500) % 5 // 2)
    items = soc.PoissonItems(
        frame, score="score", count="count", exposure="exposure", group="group"
    )
    return soc.summarize(items, bins=12, joint=True, progress=False)


@pytest.mark.parametrize(
    "terms",
    [
        {},
        pytest.param({"groups": True}, marks=pytest.mark.slow),
        pytest.param({"exposure": soc.Spline(knots=4)}, marks=pytest.mark.slow),
        pytest.param({"bin_effects": True}, marks=pytest.mark.slow),
    ],
    ids=lambda terms: next(iter(terms), "plain"),
)
def test_density_equals_the_plain_one(grouped_statistics, terms):
    """Coordinates do not change the model: log density = plain log density + log Jacobian."""
    short = soc.Spline(knots=5)
    prior = soc.Gamma(short, short, **{"groups": False, **terms})
    built = problem.build(grouped_statistics, prior)
    space = _space(built.model)
    evaluate = _density(space)
    names = [v.name for v in built.model.free_RVs]
    rng = np.random.default_rng(0)
    for scale in (0.0, 1.0, 2.5):
        w = scale * rng.normal(size=space.dim)
        step = 1e-5 * np.eye(space.dim)
        draws = _draws(space, np.vstack([w, w + step, w - step])[None])
        flat = np.hstack([draws[n].to_numpy()[0].reshape(2 * space.dim + 1, -1) for n in names])
        ahead, behind = flat[1 : space.dim + 1], flat[space.dim + 1 :]
        log_jacobian = np.linalg.slogdet((ahead - behind) / 2e-5)[1]
        plain = _plain_log_density(built, draws.isel(draw=0))
        assert float(evaluate(w[None])[0][0]) == pytest.approx(plain + log_jacobian, abs=2e-4)


def test_gradient_is_the_slope(built):
    space = _space(built.model)
    evaluate = _density(space)
    w = np.random.default_rng(1).normal(size=(1, space.dim))
    gradient = evaluate(w)[1][0]
    for j in range(space.dim):
        step = np.zeros_like(w)
        step[0, j] = 1e-4
        slope = (evaluate(w + step)[0] - evaluate(w - step)[0])[0] / 2e-4
        assert gradient[j] == pytest.approx(slope, rel=1e-4, abs=1e-3)


def test_forward_inverts_backward(built):
    """The model's start is the Laplace start: w = 0 in every coordinate."""
    point = built.model.initial_point()
    assert max(np.abs(v).max() for v in point.values()) < 1e-8


@pytest.mark.parametrize("mode", ["interpreter", "NUMBA"])
@pytest.mark.slow
def test_likelihood_takes_draws_at_once(built, mode):
    """Rows of curves, or one curve for all rows of the other, by interpreter and by Numba."""
    arrays = shared(built.data)
    bins = np.arange(len(built.score))
    rng = np.random.default_rng(0)
    m, c = rng.normal(-3, 0.2, (4, len(bins))), rng.normal(-1, 0.2, (4, len(bins)))
    for here, there in ((m, c), (m, c[0]), (m[0], c)):
        inputs = [pt.tensor(shape=(None,) * x.ndim) for x in (here, there)]
        value = log_marginal("poisson", *inputs, bins, *arrays)[0]
        how = interpreter() if mode == "interpreter" else mode
        found, *slopes = pytensor.function(
            inputs, [value, *pt.grad(value.sum(), inputs)], mode=how
        )(here, there)
        want = built.data.value_and_gradient(*np.broadcast_arrays(here, there), bins)
        np.testing.assert_allclose(found, want[0], rtol=1e-12)
        for x, slope, all_slopes in zip((here, there), slopes, want[1:], strict=True):
            summed = all_slopes if x.ndim == 2 else all_slopes.sum(axis=0)
            np.testing.assert_allclose(slope, summed, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_log_likelihood_is_by_bin(small_statistics):
    """PyMC's own function: the log probability of a bin's items in every draw."""
    fit = soc.fit(small_statistics, method=soc.VI(draws=3), progress=False)
    with soc.model(small_statistics):
        by_bin = pm.compute_log_likelihood(fit.data, progressbar=False)["log_likelihood"]["count"]
    assert by_bin.dims == ("chain", "draw", "bin")
    hierarchy_built = problem.build(small_statistics, soc.Gamma())
    m, c = curve_draws(fit, hierarchy_built.score)
    want = hierarchy_built.data.value_and_gradient(m, c, np.arange(m.shape[1]))[0]
    np.testing.assert_allclose(by_bin.to_numpy().reshape(want.shape), want, rtol=1e-9)


def test_models_release_their_data(small_statistics):
    """PyMC never releases a distribution's functions, so they must not refer to histograms."""
    model = soc.model(small_statistics)
    held = [v for v in ancestors([model["count"]]) if isinstance(v, SharedVariable)]
    sizes = [np.size(v.get_value()) for v in held]
    assert max(sizes) > 500
    kept = weakref.ref(held[int(np.argmax(sizes))])
    del model, held
    gc.collect()
    assert kept() is None


def test_smoothing_scale_near_zero_is_finite(built):
    """tau down to 1e-50 and beyond: 1/tau^2 would overflow, the coordinates do not."""
    space = _space(built.model)
    evaluate = _density(space)
    w = np.zeros((3, space.dim))
    w[:, 0] = [-6.0, -12.0, -60.0]
    logp, gradient = evaluate(w)
    assert np.isfinite(logp).all()
    assert np.isfinite(gradient).all()
    assert (np.diff(logp) < 0).all()


def test_half_normal_scale_has_its_distribution():
    q = np.linspace(-8, 8, 33)
    tau = laplace.half_normal_scale(q, 0.7)
    np.testing.assert_allclose(sps.halfnorm.logsf(tau, scale=0.7), sps.norm.logsf(q), atol=1e-9)
    assert laplace.half_normal_scale(np.array(-30.0), 1.0) > 0


def test_model_has_named_variables_and_dims(small_statistics):
    model = soc.model(small_statistics)
    assert isinstance(model, pm.Model)
    assert {"bin", "mean_line_term", "mean_basis", "variance_line_term", "variance_basis"} <= set(
        model.coords
    )
    assert model.named_vars_to_dims["bin_log_mean"] == ("bin",)
    assert model.named_vars_to_dims["count"] == ("bin",)
    assert model.named_vars_to_dims["log_cv2_wiggle"] == ("variance_basis",)


@pytest.mark.slow
def test_prior_and_posterior_predictive_draws(small_statistics):
    """Drawn total counts of bins have the mean and variance of the model."""
    model = soc.model(small_statistics)
    with model:
        prior = pm.sample_prior_predictive(20, random_seed=1)
    assert prior["prior_predictive"]["count"].dims == ("chain", "draw", "bin")
    fit = soc.fit(small_statistics, progress=False)
    with model:
        drawn = pm.sample_posterior_predictive(
            fit.data, random_seed=2, progressbar=False, freeze_vars=[v.name for v in model.free_RVs]
        )
    totals = drawn["posterior_predictive"]["count"]
    observed = fit.data["observed_data"]["count"].to_numpy()
    z = (totals.mean(("chain", "draw")).to_numpy() - observed) / totals.std(("chain", "draw"))
    assert float(np.abs(z).max()) < 5


@pytest.mark.slow
def test_scores_below_zero_need_another_scale(small_frame):
    shifted = small_frame.assign(score=np.log(small_frame["score"]))
    stats = soc.summarize(
        soc.PoissonItems(shifted, score="score", count="count", exposure="exposure")
    )
    with pytest.raises(soc.FitError, match=r'scale="rank"'):
        soc.fit(stats)
    for scale in ("rank", "linear"):
        prior = soc.Gamma(soc.Spline(scale=scale), soc.Spline(scale=scale))
        assert soc.fit(stats, prior, progress=False).status.converged


@pytest.mark.parametrize(("centre", "sd"), [(0.0, 1.0), (1.5, 0.8), (-2.0, 0.9)])
def test_coordinate_of_a_scale_follows_the_quantiles(centre, sd):
    """For a normal density it is a line; on a coarse grid half a step would show."""
    q = np.linspace(-8.0, 8.0, 161)
    a, b, e, d = coordinates.density_shape(q, -0.5 * ((q - centre) / sd) ** 2)
    v = np.linspace(-3.0, 3.0, 13)
    fitted = a + b * np.sinh(d * (np.arcsinh(v) + e))
    np.testing.assert_allclose(fitted, centre + sd * v, atol=0.02 * sd)
