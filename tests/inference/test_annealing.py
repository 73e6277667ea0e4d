"""Annealed importance sampling of densities whose moments are known."""

import numpy as np
import pytest
from scipy import special

from soc_pymc.inference.refinements import WIDER, Annealing, Gaussian, annealed, moved
from soc_pymc.inference.variational import importance

BEND, NARROW = 0.5, 0.4
# of the banana: 1, x, y, x^2, y^2 and x^2 y
MOMENTS = np.array([1.0, 0.0, 0.0, 1.0, 2.0 * BEND**2 + NARROW**2, 2.0 * BEND])
SDS = np.sqrt(MOMENTS[3:5])


def banana(rows):
    """X ~ N(0, 1) and y given x ~ N(bend (x^2 - 1), narrow^2): log density and gradient."""
    x, y = rows.T
    away = (y - BEND * (x**2 - 1.0)) / NARROW
    gradient = np.column_stack([-x + 2.0 * BEND * x * away / NARROW, -away / NARROW])
    return -0.5 * (x**2 + away**2) - np.log(2.0 * np.pi * NARROW), gradient


def run(factor, number, densities, seed, evaluate=banana, location=(0.0, 0.0)):
    rng = np.random.default_rng(seed)
    annealing = Annealing(densities, angle=0.4)
    return annealed(evaluate, Gaussian(np.array(location), factor), number, annealing, rng)


def test_weights_give_the_moments_of_the_density():
    """From a Gaussian that is twice as wide: every moment and the density's integral."""
    factor, number = 2.0 * np.diag(SDS), 40_000
    noise, log_weight = run(factor, number, 24, 2)
    # the integral of the banana over that of the unnormalised Gaussian
    unit = np.exp(log_weight) * 2.0 * np.pi * np.linalg.det(WIDER * factor)
    x, y = (noise @ factor.T).T
    terms = unit[:, None] * np.column_stack([np.ones(number), x, y, x**2, y**2, x**2 * y])
    error = terms.std(axis=0) / np.sqrt(number)
    assert (np.abs(terms.mean(axis=0) - MOMENTS) < 3.0 * error).all()
    assert (error[[0, 3, 4]] < 0.1 * MOMENTS[[0, 3, 4]]).all()


@pytest.mark.parametrize("wide", [2.0, 1.0], ids=["too wide", "too narrow"])
def test_draws_are_better_than_those_of_the_gaussian(wide):
    """The effective sample is larger, its k is good, and bounded functions have their means."""
    factor = wide * np.diag(SDS)
    draws = np.random.default_rng(2).normal(size=(4000, 2))
    _, gaussian_k, gaussian_ess = importance(
        banana(draws @ factor.T)[0] + 0.5 * (draws**2).sum(axis=1)
    )
    noise, log_weight = run(factor, 4000, 24, 2)
    weight, k, ess = importance(log_weight)
    assert k < 0.7
    assert ess > 1.5 * gaussian_ess
    assert k < gaussian_k or wide == 2.0
    x, y = (noise @ factor.T).T
    cosine = np.cos(y - BEND * (x**2 - 1.0)), np.exp(-0.5 * NARROW**2)
    tail = np.abs(x) > 1.0, 2.0 * special.ndtr(-1.0)
    for function, expected in (cosine, tail, (np.cos(x), np.exp(-0.5))):
        mean = weight @ function
        error = np.sqrt(weight**2 @ (function - mean) ** 2)
        assert abs(mean - expected) < 4.0 * error


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_draws_of_the_density_stay_so_and_narrow_ones_spread(share):
    """Second moments to 4 standard errors; of draws too narrow, half of what was missing."""
    rng, number = np.random.default_rng(4), 20_000
    x, gap = share * rng.normal(size=(2, number))
    rows = np.column_stack([x, BEND * (x**2 - 1.0) + NARROW * gap])
    gaussian = Gaussian(np.zeros(2), np.diag(SDS))
    noise = moved(banana, gaussian, rows / SDS, 10, rng)
    x, y = gaussian.at(noise).T
    for values in (x, (y - BEND * (x**2 - 1.0)) / NARROW):
        error = 4.0 * np.sqrt(2.0 / number)
        least = 1.0 if share == 1.0 else 0.5 + 0.5 * share**2
        assert least - error < (values**2).mean() < 1.0 + error


def test_an_exact_gaussian_stays_as_it_is():
    """Where it is the density itself, weights take back that draws begin with wider ones."""

    def normal(rows):
        return -0.5 * (rows**2).sum(axis=1) + 3.0, -rows

    noise, log_weight = run(np.eye(2), 20_000, 12, 0, normal)
    assert np.mean(np.exp(log_weight - 3.0)) == pytest.approx(WIDER**-2, rel=0.01)
    weight, _, ess = importance(log_weight)
    assert ess > 0.97
    assert weight @ noise**2 == pytest.approx(1.0, abs=0.05)


def test_draws_do_not_enter_where_the_density_is_zero():
    """Density 0 for x < -1, whose logarithm is -inf with a gradient of NaN."""

    def half(rows):
        outside = rows[:, 0] < -1.0
        value = np.where(outside, -np.inf, -0.5 * (rows**2).sum(axis=1))
        return value, np.where(outside[:, None], np.nan, -rows)

    noise, log_weight = run(np.diag([0.3, 1.0]), 2000, 12, 0, half, (0.5, 0.0))
    assert (0.5 + 0.3 * noise[:, 0] > -1.0).all()
    assert np.isfinite(log_weight).all()
