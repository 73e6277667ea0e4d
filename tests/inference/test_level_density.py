"""Levels of groups that are integrated out: density, gradient, draws, and the whole model."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

import soc_pymc as soc
from soc_pymc.inference import level_density
from soc_pymc.inference.density import make_space
from soc_pymc.inference.departure import departure
from soc_pymc.inference.draw_densities import draw_densities
from soc_pymc.model import levels, problem
from soc_pymc.posterior.curves import curve_draws
from tests.studies import groups

PRIOR = soc.Gamma(mean=soc.Spline(knots=5), variance=soc.Spline(knots=3))
LEVELS = 9
pytestmark = pytest.mark.filterwarnings("ignore:exposures are whole numbers")


@pytest.fixture(scope="module")
def stats():
    frame, _ = groups.simulate(3, np.full(LEVELS, 40))
    return groups.summarize(frame)


@pytest.fixture(scope="module")
def density(stats):
    built = problem.build(stats, PRIOR)
    return level_density.LevelDensity(built, make_space(built.model))


@pytest.fixture(scope="module")
def rows(density):
    noise = np.random.default_rng(0).normal(size=(3, density.space.dim))
    return density.space.start + 0.7 * noise


@pytest.fixture(scope="module")
def fit(stats):
    return soc.fit(stats, PRIOR, soc.VI(draws=400), progress=False)


def test_gradient_is_that_of_the_density(density, rows, monkeypatch):
    # rows that change from polynomials to exact values would make differences jump
    nowhere = replace(density.surrogates, reach=np.zeros_like(density.surrogates.reach))
    monkeypatch.setattr(density, "surrogates", nowhere)
    evaluate, step = density.evaluate(), 1e-4 * np.eye(density.space.dim)
    for row in rows[:1]:
        above, below = (evaluate(row + sign * step)[0] for sign in (1.0, -1.0))
        gradient = evaluate(row[None])[1][0]
        np.testing.assert_allclose((above - below) / 2e-4, gradient, rtol=1e-5, atol=1e-5)


def test_density_is_the_integral_over_the_levels(density, rows):
    """Against draws from the levels' prior, with likelihoods of rows computed here."""
    rng = np.random.default_rng(1)
    at = density._shared(rows)
    for s in range(len(rows)):
        tau, coefficients = at.tau[:, s], at.coefficients[:, s]
        b = tau * rng.normal(size=(4000, len(tau)))
        total, variance = at.rest[s], 0.0
        for part in density.levels.parts:
            row = density.levels.order[part]
            curves = [
                (whole[part] @ coefficients[shared_of]) + b[:, own_of] @ own[part].T
                for (whole, own), shared_of, own_of in zip(
                    density._designs, density._shared_of, density._own_of, strict=True
                )
            ]
            value = density.data.value_and_gradient(*curves, row)[0].sum(axis=1)
            weight = np.exp(value - value.max())
            total += special.logsumexp(value) - np.log(len(b))
            variance += weight.var() / weight.mean() ** 2 / len(b)
        # 4 standard errors of the reference, and what a few proposals of nine levels vary by
        allowed = 4.0 * np.sqrt(variance)
        found = np.mean([density.fresh(rng)(rows[s][None])[0] for _ in range(20)])
        assert abs(found - total) < allowed + 0.1
        assert abs(density.evaluate()(rows[s][None])[0][0] - total) < allowed + 1.0


def test_draws_have_the_curves_of_all_levels(fit, stats):
    assert fit.status.converged
    assert fit.groups == stats.groups
    posterior = fit.data["posterior"]
    assert posterior["log_mean_of_group"].shape == (4, 100, LEVELS, 5)
    assert np.isfinite(posterior["log_cv2_of_group"]).all()
    assert {f"log_cv2_group_{kind}_sd" for kind in ("level", "slope")} <= set(posterior.data_vars)
    assert "group_sd" not in posterior
    assert curve_draws(fit, [0.05], group=["new"])[0].shape == (400, 1)


def test_the_draws_are_the_posterior_s(fit, stats):
    assert departure(fit, stats).sound


def test_likelihood_of_draws_is_that_of_their_curves(fit, stats):
    built = problem.build(stats, PRIOR)
    first, second = (
        np.stack([curve_draws(fit, built.score[r : r + 1], group=[fit.groups[g]])[k][7, 0]
                  for r, g in enumerate(built.rows.group)])
        for k in (0, 1)
    )  # fmt: skip
    likelihood = draw_densities(fit, stats, None)[1]
    assert likelihood[0, 7] == pytest.approx(built.data.likelihood(first, second)[0].sum())


def test_so_many_draws_do_not_fit_in_memory(density):
    with pytest.raises(soc.FitError, match=r"draws of the curves of 9 levels take .* VI\(draws=\)"):
        level_density.densities_of(density._built, density.space, draws=10**12)


def test_few_levels_are_parameters_like_others(stats, monkeypatch):
    monkeypatch.setattr(levels, "FEWEST_LEVELS", LEVELS + 1)
    assert problem.build(stats, PRIOR).levels is None


@pytest.mark.slow
def test_agrees_with_the_whole_model(fit, stats, monkeypatch):
    """The same posterior by the Gaussian of all coefficients, with weights.

    Both have a Monte Carlo error of 0.05 to 0.1 sd in means; breaking the levels' prior (twice its
    sd) moved means by more than 0.3 sd.
    """
    with monkeypatch.context() as patch:
        patch.setattr(levels, "FEWEST_LEVELS", LEVELS + 1)
        whole = soc.fit(stats, PRIOR, soc.VI(draws=1000), progress=False)
    mine = soc.fit(stats, PRIOR, soc.VI(draws=1000), progress=False)
    for name in ("log_mean", "log_cv2", "log_mean_of_group", "log_cv2_of_group"):
        one, other = (f.data["posterior"][name] for f in (mine, whole))
        sd = other.std(("chain", "draw"))
        shift = abs(one.mean(("chain", "draw")) - other.mean(("chain", "draw"))) / sd
        assert shift.max() < 0.3
        ratio = one.std(("chain", "draw")) / sd
        assert ratio.min() > 0.8
        assert ratio.max() < 1.25
