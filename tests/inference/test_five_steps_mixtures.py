"""Five steps with mixtures: likelihoods against direct searches, and distributions of fits."""

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, special, stats

import soc_pymc as soc
from soc_pymc.families.bin_mixtures import fixed_weights, free_normals, normals_step
from soc_pymc.paper.simulation import click_rates, laplace_effects
from soc_pymc.posterior.curves import bin_of, curve_draws
from soc_pymc.posterior.predictive import posterior_of


@pytest.fixture(scope="module")
def counts():
    frame = click_rates(20_000, sigma=1.0, seed=1)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    return frame, items, soc.summarize(items, bins=10, joint=True, progress=False)


@pytest.fixture(scope="module")
def values():
    frame = laplace_effects(10_000, seed=1)
    frame["noise_sd"] = np.random.default_rng(0).choice([0.5, 1.0, 2.0], len(frame))
    frame["value"] = np.random.default_rng(1).normal(frame["theta"], frame["noise_sd"])
    items = soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")
    return frame, items, soc.summarize(items, bins=8, joint=True, progress=False)


@pytest.fixture(scope="module")
def gammas(counts):
    return soc.fit(counts[2], soc.GammaMixture(), soc.FiveSteps(), progress=False)


@pytest.fixture(scope="module")
def normals(values):
    return soc.fit(values[2], soc.NormalMixture(), soc.FiveSteps(), progress=False)


def test_the_gap_bounds_the_missing_likelihood():
    """20,000 plain EM steps end no higher than the search, and no higher than its certificate."""
    rng = np.random.default_rng(0)
    places = np.linspace(-3, 3, 25)
    density = np.exp(-0.5 * (rng.normal(0, 1.3, 200)[:, None] - places) ** 2 / 0.5)
    items = rng.integers(1, 50, 200).astype(float)
    start = np.full(25, 1 / 25)
    weight, value, gap = fixed_weights(density, items, start, 1e-6)
    assert gap <= 1e-4  # the ridge of the Newton steps leaves 1e-5
    assert weight.min() >= 0
    assert weight.sum() == pytest.approx(1.0)
    em = start
    for _ in range(20_000):
        em = em * (density.T @ (items / (density @ em))) / items.sum()
    plain = items @ np.log(density @ em)
    assert plain <= value + gap
    assert plain > value - 0.5  # so near comes EM alone
    coarse = fixed_weights(density, items, start, 5.0)
    assert value - coarse[1] <= coarse[2] <= 5.0


def test_em_of_normals_never_decreases_and_finds_two_modes():
    """With three known noise sds; both modes to 0.1, a tenth of the noise."""
    rng = np.random.default_rng(1)
    n = 4000
    theta = np.where(rng.random(n) < 0.3, rng.normal(-2, 0.3, n), rng.normal(1, 0.5, n))
    noise = rng.choice([0.25, 0.5, 1.0], n)
    value = rng.normal(theta, np.sqrt(noise))
    weight, mean, variance = np.full(2, 0.5), np.array([-0.5, 0.5]), np.ones(2)
    trace = [normals_step(value, noise, np.ones(n), weight, mean, variance) for _ in range(60)]
    assert np.diff(trace).min() > -1e-9
    total = variance + noise[:, None]
    direct = np.log((weight * stats.norm.pdf(value[:, None], mean, np.sqrt(total))).sum(1)).sum()
    now = normals_step(value, noise, np.ones(n), weight, mean, variance)
    assert now == pytest.approx(direct, rel=1e-10)
    _, ended = free_normals(value, noise, np.ones(n), weight, mean, variance, 1e-3, 2000)
    assert ended
    np.testing.assert_allclose(mean, [-2, 1], atol=0.1)
    np.testing.assert_allclose(weight, [0.3, 0.7], atol=0.03)
    np.testing.assert_allclose(np.sqrt(variance), [0.3, 0.5], atol=0.15)


def test_gammas_certify_their_likelihood(counts, gammas):
    """At most .01 nats below the highest, and above the single Gamma's in every bin."""
    assert gammas.status.converged
    assert "nats below the highest likelihood" in gammas.status.reason
    single = soc.fit(counts[2], soc.Gamma(), soc.FiveSteps(), progress=False)
    mixed, one = (f.data["per_bin"]["log_likelihood"].to_numpy() for f in (gammas, single))
    assert (mixed > one - 0.1).all()  # the grid's Gammas are not quite the single one
    assert mixed.sum() > one.sum() + 20  # a lognormal is no Gamma
    assert gammas.data["posterior"].sizes["component"] == 100
    few = soc.fit(counts[2], soc.GammaMixture(), soc.FiveSteps(components=30), progress=False)
    assert few.data["posterior"].sizes["component"] == 30


def test_components_have_the_smooth_moments(counts, gammas, values, normals):
    """At a bin's centre E and Var(theta | t) are the curves', to 1e-10."""
    for fit in (gammas, normals):
        score = fit.data["constant_data"]["score"].to_numpy()
        curves = posterior_of(fit).curves(score)
        first, second = curve_draws(fit, score)
        if fit is gammas:
            np.testing.assert_allclose(curves["mean"], np.exp(first), rtol=1e-10)
            spread = curves["variance"] / curves["mean"] ** 2
        else:
            np.testing.assert_allclose(curves["mean"], first, atol=1e-10)
            spread = curves["variance"]
        # the curve of spreads is stored to 1e-4, and the bins' are the smoothing spline's own
        np.testing.assert_allclose(spread, np.exp(second), rtol=1e-9)


def test_unsmoothed_components_have_the_estimates(counts, values):
    """Their moments in a bin are the bin's own, for every score in it."""
    for prior, data in ((soc.GammaMixture(), counts[2]), (soc.NormalMixture(), values[2])):
        fit = soc.fit(data, prior, soc.FiveSteps(smooth=False), progress=False)
        score = fit.data["constant_data"]["score_max"].to_numpy()
        curves = posterior_of(fit).curves(score)
        found = fit.data["per_bin"]
        np.testing.assert_allclose(curves["mean"][0], found["mean"], rtol=1e-9)
        np.testing.assert_allclose(curves["variance"][0], found["variance"], rtol=1e-9)


def _prior_density(fit, score, theta):
    """Density of theta given a score, from the fit."""
    posterior = fit.data["posterior"]
    at = bin_of(fit, [score])[0]
    weight, place, sd = (
        posterior[k].to_numpy()[0, 0, at] for k in ("weight", "component_place", "component_sd")
    )
    place = place + curve_draws(fit, [score])[0][0, 0]
    if type(fit.prior).__name__ == "NormalMixture":
        return (weight * stats.norm.pdf(theta[:, None], place, sd)).sum(axis=1)
    from soc_pymc.families.components import inverse_trigamma

    shape = inverse_trigamma(sd**2)
    scale = np.exp(place - special.psi(shape))
    return (weight * stats.gamma.pdf(theta[:, None], shape, scale=scale)).sum(axis=1)


def test_distributions_of_counts_by_quadrature(gammas):
    """Density, ends, further ends, posterior mean and a quantile of one item, to 1e-6."""
    t, y, size, more, further = 0.03, 4.0, 60.0, 90.0, 7.0
    columns = {"score": np.array([t]), "count": np.array([y]), "exposure": np.array([size])}
    theta = np.exp(np.linspace(-14, 4, 20_001))
    measure = _prior_density(gammas, t, theta) * theta

    def over(values):
        return integrate.simpson(values * measure, x=np.log(theta))

    law = posterior_of(gammas)
    own = stats.poisson.pmf(y, size * theta)
    assert law.log_density(columns)[0, 0] == pytest.approx(np.log(over(own)), abs=1e-6)
    below, upto = law.cdf_interval(columns)
    assert below[0] == pytest.approx(over(stats.poisson.cdf(y - 1, size * theta)), abs=1e-6)
    assert upto[0] == pytest.approx(over(stats.poisson.cdf(y, size * theta)), abs=1e-6)
    ends = law.further_cdf_interval(columns, np.array([further]), np.array([more]))
    for end, k in zip(ends, (further - 1, further), strict=True):
        exact = over(own * stats.poisson.cdf(k, more * theta)) / over(own)
        assert end[0] == pytest.approx(exact, abs=1e-6)
    mean, sd, _, quantile = law.scorer((0.9,), "all", False)(columns)[:, 0]
    exact = over(own * theta) / over(own)
    assert mean == pytest.approx(exact, rel=1e-6)
    assert sd == pytest.approx(np.sqrt(over(own * theta**2) / over(own) - exact**2), rel=1e-5)
    assert over(own * (theta <= quantile)) / over(own) == pytest.approx(0.9, abs=1e-3)


def test_distributions_of_values_by_quadrature(normals):
    t, y, size, more, further = 0.5, 2.0, 1.5, 0.7, 1.0
    columns = {"score": np.array([t]), "value": np.array([y]), "noise_sd": np.array([size])}
    theta = np.linspace(-30, 30, 60_001)
    measure = _prior_density(normals, t, theta)

    def over(values):
        return integrate.simpson(values * measure, x=theta)

    law = posterior_of(normals)
    own = stats.norm.pdf(y, theta, size)
    assert law.log_density(columns)[0, 0] == pytest.approx(np.log(over(own)), abs=1e-6)
    below, upto = law.cdf_interval(columns)
    assert below[0] == upto[0] == pytest.approx(over(stats.norm.cdf(y, theta, size)), abs=1e-6)
    ends = law.further_cdf_interval(columns, np.array([further]), np.array([more]))
    exact = over(own * stats.norm.cdf(further, theta, more)) / over(own)
    assert ends[0][0] == ends[1][0] == pytest.approx(exact, abs=1e-6)
    mean, _, variance, _ = law.scorer((0.9,), "all", False)(columns)[:, 0]
    exact = over(own * theta) / over(own)
    assert mean == pytest.approx(exact, rel=1e-6)
    assert variance == pytest.approx(over(own * theta**2) / over(own) - exact**2, rel=1e-5)


def test_simulated_outcomes_have_the_right_moments(counts, gammas, normals):
    """20,000 draws at one score: mean within 5 standard errors."""
    rng = np.random.default_rng(2)
    n = 20_000
    for fit, outcome, size in ((gammas, "count", 50.0), (normals, "value", 1.0)):
        law = posterior_of(fit)
        columns = {
            "score": np.full(n, 0.05),
            law.outcome.size: np.full(n, size),
            outcome: np.zeros(n),
        }
        drawn = law.simulate(columns, rng)[0]
        curves = law.curves(np.array([0.05]))
        mean, variance = float(curves["mean"][0, 0]), float(curves["variance"][0, 0])
        if outcome == "count":
            mean, variance = size * mean, size * mean + size**2 * variance
        else:
            variance += size**2
        assert abs(drawn.mean() - mean) < 5 * np.sqrt(variance / n)
        assert drawn.var() == pytest.approx(variance, rel=0.3)


def test_heavy_tails_are_found(counts, gammas):
    """Lognormal theta: posterior means nearer to the truth than a single Gamma's are."""
    frame, items, data = counts
    single = soc.fit(data, soc.Gamma(), soc.FiveSteps(), progress=False)
    error = [
        np.mean(
            (np.log(soc.item_posteriors(f, items, progress=False)["theta_mean"] / frame["theta"]))
            ** 2
        )
        for f in (gammas, single)
    ]
    assert error[0] < error[1]


def test_mixtures_are_used_as_any_other(counts, gammas, values, normals, tmp_path):
    """Saved and loaded, checked from items and cells, drawn."""
    for fit, (frame, _, data) in ((gammas, counts), (normals, values)):
        fit.save(tmp_path / "fit.nc")
        again = soc.load_fit(tmp_path / "fit.nc")
        assert again.data.equals(fit.data)
        assert again.method == fit.method
        assert "fail" not in set(soc.check(fit, data, progress=False).table["verdict"])
        assert len(soc.plots.plot_curves(fit)) == 2
        assert isinstance(frame, pd.DataFrame)


def test_joint_cells_in_wider_bins(counts):
    """If bins of joint cells were merged, their mixture applies to all of them."""
    _, items, _ = counts
    data = soc.summarize(items, bins=64, joint=2000, progress=False)
    assert data.coarse > 1
    fit = soc.fit(data, soc.GammaMixture(), soc.FiveSteps(), progress=False)
    weight = fit.data["posterior"]["weight"].to_numpy()[0, 0]
    assert len(weight) == 64
    np.testing.assert_array_equal(weight[0], weight[data.coarse - 1])
    assert fit.status.converged


def test_very_wide_priors_have_finite_mixtures():
    """With a cv2 of 50 log theta has a very long lower tail; moments stay finite."""
    rng = np.random.default_rng(3)
    score = np.exp(rng.normal(-3, 1, 2000))
    exposure = np.ceil(np.exp(rng.normal(2, 1, 2000)))
    count = rng.poisson(rng.gamma(1 / 50, 50 * score) * exposure)
    frame = pd.DataFrame({"score": score, "count": count, "exposure": exposure})
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    data = soc.summarize(items, bins=3, joint=True, progress=False)
    with np.errstate(all="raise", under="ignore"):
        fit = soc.fit(data, soc.GammaMixture(), soc.FiveSteps(), progress=False)
    assert fit.status.converged
    rate = count.sum() / (score * exposure).sum()
    curves = soc.calibration_curves(fit, [0.05])
    assert np.log(float(curves["mean"].squeeze()) / (0.05 * rate)) == pytest.approx(0, abs=1.5)
    assert np.isfinite(curves["log_variance"]).all()
