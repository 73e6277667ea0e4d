"""Distributions of outcomes and theta under a mixture, against quadrature and direct sums."""

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import soc_pymc as soc
from soc_pymc.families import components as parts
from soc_pymc.families.mixture_rows import solved
from soc_pymc.model.splines import spline_matrix
from soc_pymc.posterior.curves import curves_at
from soc_pymc.posterior.predictive import posterior_of
from tests.thinning import thinned

PROBS = (0.05, 0.5, 0.95)


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(3)
    n = 6000
    score = np.exp(rng.normal(np.log(0.02), 0.8, n))
    exposure = np.ceil(np.exp(rng.normal(np.log(80.0), 1.2, n)))
    theta = score * np.exp(0.7 * rng.normal(size=n))
    frame = pd.DataFrame({"t": score, "y": rng.poisson(theta * exposure), "N": exposure})
    items = soc.PoissonItems(frame, score="t", count="y", exposure="N")
    fit = soc.fit(
        soc.summarize(items, joint=True, progress=False), soc.GammaMixture(), progress=False
    )
    columns = {"score": score, "count": frame["y"].to_numpy(), "exposure": exposure}
    return posterior_of(fit), columns


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(4)
    n = 6000
    score = rng.normal(size=n)
    theta = score + rng.laplace(scale=0.7, size=n)
    noise = rng.choice([0.5, 1.0], n)
    value = rng.normal(theta, noise)
    frame = pd.DataFrame({"t": score, "y": value, "s": noise})
    items = soc.NormalItems(frame, score="t", value="y", noise_sd="s")
    fit = soc.fit(
        soc.summarize(items, joint=True, progress=False), soc.NormalMixture(), progress=False
    )
    return posterior_of(fit), {"score": score, "value": value, "noise_sd": noise}


def some(columns, step):
    return {name: np.asarray(of)[::step] for name, of in columns.items()}


def prior_of(law, score):
    """Location, variance and weights (draws, R) of the components at one score."""
    at = {"score": np.array([score])}
    location, variance = law._weights.components(at)
    ((_, weights),) = law._weights.blocks(at)
    return location[0], variance[0, 0], weights[:, 0]


def brute_force(law, columns):
    """Posterior by quadrature over theta, draw by draw, averaged over the draws."""
    location, variance, weights = prior_of(law, columns["score"][0])
    outcome, size = columns[law.outcome.observed][0], columns[law.outcome.size][0]
    if law.outcome.whole:
        shape = parts.inverse_trigamma(variance)
        x = np.linspace(np.log(1e-7), np.log(5.0), 20001)  # log theta
        log_rate = special.psi(shape) - location
        each = shape * (log_rate[:, None] + x) - np.exp(log_rate[:, None] + x)
        density = np.exp(each - special.gammaln(shape))
        likelihood = stats.poisson.pmf(outcome, np.exp(x) * size)
        theta = np.exp(x)
    else:
        theta = np.linspace(-25.0, 25.0, 20001)
        density = stats.norm.pdf(theta, location[:, None], np.sqrt(variance))
        likelihood = stats.norm.pdf(outcome, theta, size)
    each = (weights @ density) * likelihood
    posterior = (each / each.sum(axis=1, keepdims=True)).mean(axis=0)
    mean = posterior @ theta
    sd = np.sqrt(posterior @ (theta - mean) ** 2)
    cdf = np.cumsum(posterior) - 0.5 * posterior
    return np.array([mean, sd, sd**2, *np.interp(PROBS, cdf, theta)])


@pytest.mark.parametrize("kind", ["counts", "values"])
@pytest.mark.slow
def test_all_draws_against_quadrature(kind, request):
    law, columns = request.getfixturevalue(kind)
    few = some(columns, 1500)
    found = law.scorer(PROBS, "all", False)(few)
    for i in range(found.shape[1]):
        one = {name: of[i : i + 1] for name, of in few.items()}
        expected = brute_force(law, one)
        # quadrature's steps, and the last step of the search for quantiles
        assert np.abs(found[:, i] - expected).max() < 2e-3 * expected[1]


@pytest.mark.parametrize("kind", ["counts", "values"])
@pytest.mark.slow
def test_representative_draws_are_near_all(kind, request):
    law, columns = request.getfixturevalue(kind)
    few = some(columns, 20)
    near, exact = (law.scorer(PROBS, d, False)(few) for d in ("auto", "all"))
    away = np.abs(near - exact) / exact[1]
    # second order in the weights' uncertainty, and interpolation; 0.005 is of one item in many
    assert np.quantile(away[[0, 1, 3, 4, 5]], 0.99) < 1e-3
    assert away[[0, 1, 3, 4, 5]].max() < 5e-3


@pytest.mark.parametrize("kind", thinned(["counts", "values"], ["counts"]))
def test_plug_in_is_one_draw(kind, request):
    law, columns = request.getfixturevalue(kind)
    few = some(columns, 300)
    found, whole = (law.scorer(PROBS, "all", plug)(few) for plug in (True, False))
    assert found[0] == pytest.approx(whole[0], abs=0.3 * whole[1].max())
    assert (found != whole).any()


def test_log_density_and_ends_of_counts_agree(counts):
    """Probabilities of all counts add up to 1, and to the distribution function."""
    law, columns = counts
    y = np.arange(400)
    many = {
        "score": np.full(400, columns["score"][0]),
        "count": y,
        "exposure": np.full(400, 30.0),
    }
    pmf = np.exp(law.log_density(many)).mean(axis=0)
    assert pmf.sum() == pytest.approx(1.0, abs=1e-6)
    below, upto = law.cdf_interval(many)
    assert upto == pytest.approx(np.cumsum(pmf), abs=1e-6)
    assert below[1:] == pytest.approx(upto[:-1], abs=1e-9)


@pytest.mark.slow
def test_log_density_and_ends_of_values_agree(values):
    law, columns = values
    y = np.linspace(-20.0, 20.0, 4001)
    many = {
        "score": np.full(len(y), columns["score"][0]),
        "value": y,
        "noise_sd": np.full(len(y), 0.7),
    }
    density = np.exp(law.log_density(many)).mean(axis=0)
    below, upto = law.cdf_interval(many)
    assert (below == upto).all()
    assert np.gradient(upto, y) == pytest.approx(density, abs=1e-3)


def theta_moments(law, columns, weights):
    """Mean and variance of theta (draws, n) under weights (draws, n, R) of the components."""
    prior = law._prior(columns)
    means, own = np.broadcast_arrays(law.family.mean(*prior), law.family.variance(*prior))
    mean = np.einsum("dnr,nr->dn", weights, means)
    return mean, np.einsum("dnr,nr->dn", weights, own + means**2) - mean**2


@pytest.mark.parametrize("kind", ["counts", "values"])
def test_solved_weights_have_the_moments_of_the_curves(kind, request):
    """Each draw's components have the mean and variance of the draw's calibration curves.

    At the ends of the scores, where data hardly determine the variance, some draws leave what the
    components represent, and have another variance.
    """
    law, columns = request.getfixturevalue(kind)
    score = np.quantile(columns["score"], np.linspace(0.0, 1.0, 41))
    few, curves = {"score": score}, law.curves(score)
    mean, variance = theta_moments(law, few, law._weights._solve(few, None, False))
    plain = soc.calibration_curves(law._fit, score)
    for name in ("mean", "variance"):
        assert plain[name].to_numpy().reshape(-1, 41) == pytest.approx(curves[name])
    assert (mean - curves["mean"]) / np.sqrt(curves["variance"]) == pytest.approx(0.0, abs=1e-6)
    off = np.abs(variance / curves["variance"] - 1.0)
    assert off[:, 2:-1].max() < 1e-6
    assert (off[:, [1]] > 1e-6).mean() < 0.02


@pytest.mark.parametrize("kind", ["counts", "values"])
def test_interpolated_weights_are_those_of_the_solver(kind, request):
    """Total variation is at most 1e-4 between the knots, at which functions of the score end."""
    law, columns = request.getfixturevalue(kind)
    own = law._weights
    few = {"score": np.quantile(columns["score"], np.linspace(0.0, 1.0, 41))}
    every = own._weights(few, None, False)
    assert every.sum(axis=-1) == pytest.approx(1.0, abs=1e-5)
    away = 0.5 * np.abs(every - own._solve(few, None, False)).sum(axis=-1)
    position = law._fit.axis("mean")(few["score"])
    step = np.diff(own._solved.position[:2])
    inside = (position > own._knots[0] + 2.0 * step) & (position < own._knots[-1] - 2.0 * step)
    assert inside.sum() > 35
    assert away[:, inside].max() < 1e-4
    assert away.max() < 2e-3
    draws = np.array([5, 0, 5])
    assert (own._weights(few, draws, False) == every[draws]).all()


@pytest.mark.parametrize("kind", thinned(["counts", "values"], ["counts"]))
def test_simulated_outcomes_have_the_curves_moments(kind, request):
    law, columns = request.getfixturevalue(kind)
    score = float(np.median(columns["score"]))
    n, size = 200, 50.0 if law.outcome.whole else 0.7
    same = {"score": np.full(n, score), law.outcome.size: np.full(n, size)}
    drawn = law.simulate({**same, law.outcome.observed: np.zeros(n)}, np.random.default_rng(0))
    curves = law.curves(np.array([score]))
    mean, variance = curves["mean"][:, 0], curves["variance"][:, 0]
    if law.outcome.whole:
        expected, spread = size * mean, size**2 * variance + size * mean
    else:
        expected, spread = mean, variance + size**2
    error = np.sqrt(spread.mean() / drawn.size)
    assert drawn.mean() == pytest.approx(expected.mean(), abs=5 * error)
    assert drawn.var() == pytest.approx(spread.mean(), rel=0.05)  # 200,000 draws of heavy tails


def test_a_loaded_fit_scores_the_same(counts, tmp_path):
    law, columns = counts
    law._fit.save(tmp_path / "fit.nc")
    again = posterior_of(soc.load_fit(tmp_path / "fit.nc"))
    few = some(columns, 600)
    one, other = (x.scorer(PROBS, "all", False)(few) for x in (law, again))
    assert (one == other).all()


def test_spread_of_several_items_widens_theta(counts):
    law, columns = counts
    few = some(columns, 600)
    plain, wide = (
        law.log_density({**few, "spread": np.full(len(few["score"]), s)}) for s in (0.0, 0.1)
    )
    assert plain == pytest.approx(law.log_density(few))
    assert (plain != wide).any()


@pytest.mark.parametrize("kind", ["counts", pytest.param("values", marks=pytest.mark.slow)])
def test_moments_of_draws(kind, request):
    """Averaged over draws, posterior moments draw by draw are those that items are scored by."""
    law, columns = request.getfixturevalue(kind)
    few = some(columns, 200)
    scored = law.scorer((), "all", False)(few)
    mean, variance, _ = law.moments(few)
    # weights are averaged over draws before moments are taken: the same to rounding
    np.testing.assert_allclose(mean.mean(axis=0), scored[0], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(
        variance.mean(axis=0) + mean.var(axis=0), scored[2], rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("kind", ["counts", "values"])
def test_whole_posteriors_have_the_moments_of_scores(kind, request):
    """So have components drawn at random, up to chance."""
    law, columns = request.getfixturevalue(kind)
    few = some(columns, 500)
    mean, sd = law.scorer((), "all", False)(few)[:2]
    whole = law.theta(few)
    first, second = whole.first, whole.second
    each, within = (first / second, first / second**2) if kind == "counts" else (first, second)
    found = whole.average(each)
    np.testing.assert_allclose(found, mean, rtol=1e-6)
    variance = whole.average(within + (each - found) ** 2)
    np.testing.assert_allclose(np.sqrt(variance), sd, rtol=1e-6)
    draws = np.tile(np.arange(500), 20)
    uniform = np.random.default_rng(3).random((len(draws), len(mean)))
    first, second = law.theta_given(few, draws, uniform)
    each = first / second if kind == "counts" else first
    # 10,000 picks from the first 500 draws of the fit, whose own means are off by 1/sqrt(500)
    assert np.abs(each.mean(axis=0) - mean).max() < 0.15 * sd.max()
    assert np.abs((each.mean(axis=0) - mean) / sd).max() < 0.15


@pytest.mark.slow
def test_quantities_of_a_mixture(counts):
    """R^2 and what outcomes add, from joint cells, against sums over items."""
    law, columns = counts
    frame = pd.DataFrame({"t": columns["score"], "y": columns["count"], "N": columns["exposure"]})
    items = soc.PoissonItems(frame, score="t", count="y", exposure="N")
    gain = soc.quantities.variance_reduction(law._fit, items, weight="items", progress=False)
    few = some(columns, 3)
    after = law.moments(few)[1].mean(axis=1)
    curves = law.curves(few["score"])
    # every third item of 6,000: sampling of items and the width of cells
    assert (
        abs(float(gain["ratio"].mean()) - (after / curves["variance"].mean(axis=1)).mean()) < 0.03
    )
    own = curves["mean"].var(axis=1)
    expected = (own / (own + curves["variance"].mean(axis=1))).mean()
    assert abs(float(soc.quantities.r_squared(law._fit).mean()) - expected) < 0.03
    stats = soc.summarize(items, joint=False, progress=False)
    with pytest.raises(soc.StatisticsError, match="joint"):
        soc.quantities.variance_reduction(law._fit, stats, progress=False)


@pytest.mark.parametrize("kind", ["counts", "values"])
@pytest.mark.slow
def test_further_outcomes_against_every_draw(kind, request):
    """Posterior weights under every draw, item by item: 1e-4 for most, 1e-3 for all."""
    law, columns = request.getfixturevalue(kind)
    few = some(columns, 60)
    rng, n = np.random.default_rng(1), len(few["score"])
    size = np.full(n, 30.0) if law.outcome.whole else rng.choice([0.3, 1.0], n)
    further = np.quantile(few[law.outcome.observed], rng.uniform(size=n), method="nearest").astype(
        float
    )
    below, upto = law.further_cdf_interval(few, further, size)
    expected = np.empty((2, n))
    for i in range(n):
        location, variance, weights = prior_of(law, few["score"][i])
        y, own = few[law.outcome.observed][i], few[law.outcome.size][i]
        if law.outcome.whole:
            shape = parts.inverse_trigamma(variance)
            rate = np.exp(special.psi(shape) - location)
            density = stats.nbinom.pmf(y, shape, rate / (rate + own))
            after = stats.nbinom(shape + y, (rate + own) / (rate + own + size[i]))
            ends = after.cdf(further[i] - 1), after.cdf(further[i])
        else:
            total = variance + own**2
            density = stats.norm.pdf(y, location, np.sqrt(total))
            mean = (location * own**2 + variance * y) / total
            sd = np.sqrt(variance * own**2 / total + size[i] ** 2)
            ends = (stats.norm.cdf(further[i], mean, sd),) * 2
        posterior = weights * density
        posterior = (posterior / posterior.sum(axis=1, keepdims=True)).mean(axis=0)
        expected[:, i] = [posterior @ end for end in ends]
    away = np.abs(np.array([below, upto]) - expected)
    # second order in the weights' uncertainty, and interpolation
    assert np.quantile(away, 0.95) < 1e-4
    assert away.max() < 1e-3


# --- terms ---------------------------------------------------------------------------------------


def termed(**terms):
    """A fit of counts of two countries, whose rates fall with exposure, and its items."""
    rng, n = np.random.default_rng(8), 4000
    score = np.exp(rng.normal(np.log(0.05), 0.7, n))
    exposure = np.ceil(np.exp(rng.normal(np.log(60.0), 1.2, n)))
    country = rng.choice(["a", "b"], n)
    level = score * np.where(country == "a", 1.3, 0.8) * (exposure / 60.0) ** -0.15
    theta = level * np.exp(0.6 * rng.normal(size=n))
    frame = pd.DataFrame({"t": score, "y": rng.poisson(theta * exposure), "N": exposure})
    frame["country"] = country
    group = {"group": "country"} if terms.pop("grouped", False) else {}
    items = soc.PoissonItems(frame, score="t", count="y", exposure="N", **group)
    stats_of = soc.summarize(items, joint=True, bins=40, progress=False)
    return soc.fit(stats_of, soc.GammaMixture(**terms), progress=False), items


TERMS = {
    "exposure": {"exposure": soc.Spline()},
    "groups": {"grouped": True},
    "monotone": {"monotone": True},
    "both": {"exposure": soc.Spline(), "grouped": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TERMS)
def test_terms_of_a_mixture(name):
    """A fit converges; posteriors are those of weights that are solved for, draw by draw."""
    fit, items = termed(**TERMS[name])
    assert fit.status.converged, fit.status.reason
    frame = items.source.iloc[::400].reset_index(drop=True)
    few = soc.PoissonItems(frame, **items.roles)
    found = soc.item_posteriors(fit, few, progress=False)
    law = posterior_of(fit)
    assert (
        not fit.prior.monotone
        or (np.diff(law.curves(np.geomspace(0.01, 0.3, 50))["mean"]) >= 0).all()
    )
    score, y, size = (frame[k].to_numpy(dtype=float) for k in ("t", "y", "N"))
    group = frame["country"].to_numpy() if fit.groups else None
    z, functions, knots, given = _stored(fit)
    for i in range(len(frame)):
        one = score[[i]], None if group is None else group[[i]], size[[i]]
        both = np.stack(curves_at(fit, *one), axis=-1)
        base, start = law._weights._base(
            {"score": one[0], "exposure": one[2]} | ({"group": one[1]} if fit.groups else {})
        )
        forms = law.family.components.forms(base, functions, start)
        at = np.clip(fit.axis("mean")(one[0]), knots[0], knots[-1])
        rest = np.einsum("nk,dkj->dnj", spline_matrix(at, knots), given)
        weight = solved(np.concatenate([both, rest], axis=-1), *forms.arrays)[0][:, 0]
        shape = parts.inverse_trigamma(base.width())[0]
        rate = np.exp(special.psi(shape) - base.places(z)[0])
        density = weight * stats.nbinom.pmf(y[i], shape, rate / (rate + size[i]))
        posterior = (density / density.sum(axis=1, keepdims=True)).mean(axis=0)
        means = (shape + y[i]) / (rate + size[i])
        mean = posterior @ means
        sd = np.sqrt(posterior @ (means / (rate + size[i]) + (means - mean) ** 2))
        # without terms weights are interpolated between scores
        assert found["theta_mean"][i] == pytest.approx(mean, abs=1e-3 * sd)
        assert found["theta_sd"][i] == pytest.approx(sd, rel=1e-3)
        cdf = posterior @ special.gammainc(shape + y[i], (rate + size[i]) * found["theta_q95"][i])
        assert cdf == pytest.approx(0.95, abs=1e-3)


def _stored(fit):
    """Positions of components, functions of them, knots over the score, and coefficients there."""
    constant, values = fit.data["constant_data"], fit.data["posterior"]["weight_coefficient"]
    assert values.dims == ("chain", "draw", "weight_knot", "weight_function")
    knots = values["weight_knot"].to_numpy()
    given = values.to_numpy().reshape(-1, *values.shape[2:])
    return *(constant[f"component_{k}"].to_numpy() for k in ("z", "function")), knots, given
