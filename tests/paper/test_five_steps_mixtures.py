"""Five steps with mixtures: likelihoods against direct searches, and distributions of fits."""

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, special
from scipy import stats as laws
from scipy.interpolate import CubicSpline

import soc_pymc as soc
from soc_pymc.families.poisson import inverse_trigamma
from soc_pymc.paper import fixed_weights
from soc_pymc.posterior.averages import cdf_interval, further_cdf_interval
from soc_pymc.posterior.predictive import posterior_of
from tests.examples import CASES, QUIET

STEPS = soc.FiveSteps()


@pytest.fixture(scope="module")
def counts():
    frame = soc.simulation.click_rates(20_000, sigma=1.0, seed=1)
    return soc.summarize(CASES["gamma"].items(frame), bins=10, joint=True, **QUIET)


@pytest.fixture(scope="module")
def values():
    frame = soc.simulation.laplace_effects(10_000, seed=1)
    frame["noise_sd"] = np.random.default_rng(0).choice([0.5, 1.0, 2.0], len(frame))
    frame["value"] = np.random.default_rng(1).normal(frame["theta"], frame["noise_sd"])
    return soc.summarize(CASES["normal"].items(frame), bins=8, joint=True, **QUIET)


@pytest.fixture(scope="module")
def gammas(counts):
    return soc.fit(counts, soc.GammaMixture(), STEPS, **QUIET)


@pytest.fixture(scope="module")
def normals(values):
    return soc.fit(values, soc.NormalMixture(), STEPS, **QUIET)


def test_em_ends_near_the_highest_likelihood():
    """No weights gain more than max_r sum n density_r / f - n nats: within 3 of it after EM."""
    rng = np.random.default_rng(0)
    places = np.linspace(-3, 3, 100)
    density = np.exp(-0.5 * (rng.normal(0, 1.3, 200)[:, None] - places) ** 2 / 0.5)
    items = rng.integers(1, 50, 200).astype(float)
    weight, value, ended = fixed_weights(density, items, np.full(100, 0.01))
    assert ended
    assert weight.min() >= 0
    assert weight.sum() == pytest.approx(1.0)
    assert value == pytest.approx(items @ np.log(density @ weight))
    gap = (density.T @ (items / (density @ weight))).max() - items.sum()
    assert 0 <= gap < 3


def test_mixtures_are_more_likely_than_one_gamma(counts, gammas):
    """In every bin, up to the grid; and by far in all, because a lognormal is no Gamma."""
    assert gammas.status.converged
    single = soc.fit(counts, soc.Gamma(), STEPS, **QUIET)
    mixed, alone = (f.data["per_bin"]["log_likelihood"].to_numpy() for f in (gammas, single))
    assert (mixed > alone - 0.1).all()  # the grid's Gammas are not quite the single one
    assert mixed.sum() > alone.sum() + 20


def components(fit, at):
    """Weights, places beside the curve, and sds of a bin's components."""
    names = ("weight", "component_place", "component_sd")
    return (fit.data["posterior"][name].to_numpy()[0, 0, at] for name in names)


def members(fit, at, mean):
    """Weights, and the components' Gammas or Normals at the curve's mean."""
    weight, place, sd = components(fit, at)
    if isinstance(fit.prior, soc.NormalMixture):
        return weight, laws.norm(place + mean, sd)
    shape = inverse_trigamma(sd**2)
    return weight, laws.gamma(shape, scale=np.exp(place + np.log(mean) - special.psi(shape)))


def prior_density(fit, at, theta):
    """Density of theta at a bin's centre, from the fit's components and its curve."""
    score = fit.data["constant_data"]["score"].to_numpy()[[at]]
    weight, law = members(fit, at, float(soc.calibration_curves(fit, score)["mean"].squeeze()))
    return law.pdf(theta[:, None]) @ weight


@pytest.mark.parametrize("name", ["gammas", "normals"])
def test_components_have_the_moments_of_the_curves(name, request):
    """At a bin's centre E and Var(theta | t) are the curves': to 1e-4, the error of storage."""
    fit = request.getfixturevalue(name)
    score = fit.data["constant_data"]["score"].to_numpy()
    curves = soc.calibration_curves(fit, score)
    for at in range(len(score)):
        mean, variance = (float(curves[key][0, 0, at]) for key in ("mean", "variance"))
        weight, law = members(fit, at, mean)
        assert weight @ law.mean() == pytest.approx(mean, rel=1e-4, abs=1e-4 * np.sqrt(variance))
        second = weight @ (law.var() + law.mean() ** 2)
        assert second - mean**2 == pytest.approx(variance, rel=1e-3)


@pytest.mark.parametrize("name", ["gammas", "normals"])
def test_distributions_by_quadrature(name, request):
    """Density, ends, further ends, posterior mean, sd and quantile of one item, to 1e-6."""
    fit, at = request.getfixturevalue(name), 4
    score = fit.data["constant_data"]["score"].to_numpy()[[at]]
    if name == "gammas":
        outcome, size, further, more = 4.0, 60.0, 7.0, 90.0
        columns = {"count": np.array([outcome]), "exposure": np.array([size])}
        theta = np.exp(np.linspace(-14, 4, 20_001))
        law = lambda size: laws.poisson(size * theta)  # noqa: E731
        likelihood, before = law(size).pmf(outcome), 1.0
    else:
        outcome, size, further, more = 2.0, 1.5, 1.0, 0.7
        columns = {"value": np.array([outcome]), "noise_sd": np.array([size])}
        theta = np.linspace(-30, 30, 60_001)
        law = lambda size: laws.norm(theta, size)  # noqa: E731
        likelihood, before = law(size).pdf(outcome), 0.0
    columns["score"] = score
    prior = prior_density(fit, at, theta)

    def over(function):
        return integrate.simpson(function * prior, x=theta)

    posterior = posterior_of(fit)
    marginal = over(likelihood)
    assert posterior.log_density(columns)[0, 0] == pytest.approx(np.log(marginal), abs=1e-6)
    for end, y in zip(cdf_interval(posterior, columns), (outcome - before, outcome), strict=True):
        assert end[0] == pytest.approx(over(law(size).cdf(y)), abs=1e-6)
    ends = further_cdf_interval(posterior, columns, np.array([further]), np.array([more]))
    for end, y in zip(ends, (further - before, further), strict=True):
        assert end[0] == pytest.approx(over(likelihood * law(more).cdf(y)) / marginal, abs=1e-6)
    items = CASES["gamma" if name == "gammas" else "normal"].items(pd.DataFrame(columns))
    scored = soc.item_posteriors(fit, items, draws="all", quantiles=(0.9,), **QUIET).iloc[0]
    mean = over(likelihood * theta) / marginal
    sd = np.sqrt(over(likelihood * theta**2) / marginal - mean**2)
    assert scored["theta_mean"] == pytest.approx(mean, rel=1e-6)
    assert scored["theta_sd"] == pytest.approx(sd, rel=1e-5)
    below = over(likelihood * (theta <= scored["theta_q90"])) / marginal
    assert below == pytest.approx(0.9, abs=1e-3)


def test_moments_of_log_theta_are_those_of_the_matched_gamma(counts):
    """E and Var(log theta) of each bin's components, to rounding."""
    fit = soc.fit(counts, soc.GammaMixture(), soc.FiveSteps(moments="log"), **QUIET)
    posterior = fit.data["posterior"]
    score = fit.data["constant_data"]["score"].to_numpy()
    knots = posterior["variance_knot"].to_numpy()
    spline = CubicSpline(knots, posterior["log_cv2"].to_numpy()[0, 0], bc_type="natural")
    for at, shape in enumerate(np.exp(-spline(np.log(score)))):
        weight, place, sd = components(fit, at)
        middle = weight @ place
        width = weight @ (sd**2 + (place - middle) ** 2)
        assert width == pytest.approx(special.polygamma(1, shape), rel=1e-8)
        assert middle == pytest.approx(special.psi(shape) - np.log(shape), abs=1e-8)


def test_empty_bins_take_a_neighbour():
    """An empty bin takes the nearer occupied bin, by number of bins."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"score": np.resize([0.1, 0.9], 100), "count": rng.poisson(2.0, 100), "exposure": 5.0}
    )
    stats = soc.summarize(
        CASES["gamma"].items(frame), edges=[0.2, 0.3, 0.4, 0.5, 0.6], joint=True, **QUIET
    )
    fit = soc.fit(stats, soc.GammaMixture(), STEPS, **QUIET)
    assert fit.curves.bin([0.1, 0.39, 0.41, 0.9]).tolist() == [0, 0, 1, 1]


def test_very_wide_priors_have_finite_mixtures():
    """With a cv2 of 50 log theta has a very long lower tail; moments stay finite."""
    rng = np.random.default_rng(3)
    score = np.exp(rng.normal(-3, 1, 2000))
    exposure = np.ceil(np.exp(rng.normal(2, 1, 2000)))
    count = rng.poisson(rng.gamma(1 / 50, 50 * score) * exposure)
    frame = pd.DataFrame({"score": score, "count": count, "exposure": exposure})
    stats = soc.summarize(CASES["gamma"].items(frame), bins=3, joint=True, **QUIET)
    with np.errstate(all="raise", under="ignore"):
        fit = soc.fit(stats, soc.GammaMixture(), STEPS, **QUIET)
    assert fit.status.converged
    rate = count.sum() / (score * exposure).sum()
    curves = soc.calibration_curves(fit, [0.05])
    assert np.log(float(curves["mean"].squeeze()) / (0.05 * rate)) == pytest.approx(0, abs=1.5)
    assert np.isfinite(curves["log_variance"]).all()
