"""Annealed importance sampling of densities whose moments are known."""

import numpy as np
import pytest
from scipy import special

from soc_pymc.inference.annealing import _WIDER, _moved, _State, annealed
from soc_pymc.inference.variational import importance, refined, weighed_draws

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


def exact_draws(n, rng):
    x = rng.normal(size=n)
    return np.column_stack([x, BEND * (x**2 - 1.0) + NARROW * rng.normal(size=n)])


def ignore(_):
    """No progress is shown."""


def run(factor, number, densities, seed, evaluate=banana, location=(0.0, 0.0)):
    rng = np.random.default_rng(seed)
    return annealed(evaluate, np.array(location), factor, number, densities, rng, ignore)


def moments(rows):
    x, y = rows.T
    return np.column_stack([np.ones(len(x)), x, y, x**2, y**2, x**2 * y])


def stepped(target, share, noise, rng):
    """The noise after 40 steps from draws of the density, with new momentum in between."""
    state = _State(noise, rng.normal(size=noise.shape), *target(noise))
    for _ in range(40):
        state = _moved(target, share, state, rng)
        fresh = rng.normal(size=noise.shape)
        state.momentum = 0.75 * state.momentum + np.sqrt(1.0 - 0.75**2) * fresh
    value, gradient = target(state.noise)
    assert state.logp == pytest.approx(value)
    assert state.gradient == pytest.approx(gradient)
    assert np.abs(state.noise - noise).mean() > 0.5
    return state.noise


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_steps_leave_the_density_unchanged(share):
    """Q^(1 - share) p^share, where p is N(mean, covariance) and q standard normal."""
    rng, n = np.random.default_rng(0), 40_000
    precision, mean = np.array([[2.0, 0.8], [0.8, 1.0]]), np.array([1.0, -0.5])

    def target(rows):
        slope = (mean - rows) @ precision
        return 0.5 * ((rows - mean) * slope).sum(axis=1), slope

    both = share * precision + (1.0 - share) * np.eye(2)
    middle = np.linalg.solve(both, share * precision @ mean)
    noise = middle + rng.multivariate_normal(np.zeros(2), np.linalg.inv(both), n)
    found = stepped(target, share, noise, rng)
    assert found.mean(axis=0) == pytest.approx(middle, abs=4.0 / np.sqrt(n))
    assert np.cov(found.T) == pytest.approx(np.linalg.inv(both), abs=6.0 / np.sqrt(n))


def test_steps_leave_the_banana_unchanged():
    rng = np.random.default_rng(1)
    each = moments(stepped(banana, 1.0, exact_draws(40_000, rng), rng))
    error = each.std(axis=0) / np.sqrt(len(each))
    assert (np.abs(each.mean(axis=0) - MOMENTS) <= 4.0 * error + 1e-12).all()


def test_weights_give_the_moments_of_the_density():
    """Of a Gaussian that is twice as wide, in every moment and the density's integral."""
    factor, number = 2.0 * np.diag(SDS), 100_000
    noise, log_weight = run(factor, number, 24, 2)
    # the integral of the banana over that of the unnormalised Gaussian
    unit = np.exp(log_weight) * 2.0 * np.pi * np.linalg.det(_WIDER * factor)
    each = unit[:, None] * moments(noise @ factor.T)
    error = each.std(axis=0) / np.sqrt(number)
    assert (np.abs(each.mean(axis=0) - MOMENTS) < 3.0 * error).all()
    assert (error[[0, 3, 4]] < 0.06 * MOMENTS[[0, 3, 4]]).all()


@pytest.mark.parametrize("seed", range(4))
def test_draws_are_better_than_those_of_the_gaussian(seed):
    """The effective sample is twice as large, with as many draws."""
    factor = 2.0 * np.diag(SDS)
    rng = np.random.default_rng(seed)
    _, alone = weighed_draws(banana, np.zeros(2), factor, 4000, rng, ignore)
    _, _, ess = importance(alone)
    assert ess < 0.25
    noise, log_weight = run(factor, 4000, 24, seed)
    weight, k, after = importance(log_weight)
    assert k < 0.7
    assert after > 1.9 * ess
    # bounded functions, because a square far out has a large error with so few draws
    x, y = (noise @ factor.T).T
    pairs = (np.cos(x), np.exp(-0.5)), (np.abs(x) > 1.0, 2.0 * special.ndtr(-1.0))
    for found, expected in (*pairs, (np.cos(y - BEND * (x**2 - 1.0)), np.exp(-0.5 * NARROW**2))):
        mean = weight @ found
        error = np.sqrt(weight**2 @ (found - mean) ** 2)
        assert abs(mean - expected) < 4.0 * error


def test_k_falls_where_the_gaussian_is_too_narrow():
    factor = np.diag(SDS)
    alone = weighed_draws(banana, np.zeros(2), factor, 4000, np.random.default_rng(2), ignore)[1]
    annealed_to = run(factor, 4000, 24, 2)[1]
    (_, k, ess), (_, after_k, after_ess) = importance(alone), importance(annealed_to)
    assert after_k < 0.7 < k
    assert after_ess > 1.5 * ess


def test_more_densities_are_better():
    sample = [importance(run(1.5 * np.diag(SDS), 4000, d, 5)[1])[2] for d in (2, 8, 24, 72)]
    assert (np.diff(sample) > 0.0).all()


def test_a_second_try_starts_from_the_moments_of_a_bad_one():
    """Target N(1, 2.2^2) in five dimensions, from N(0, 1)."""

    def target(rows):
        z = (rows - 1.0) / 2.2
        return -0.5 * (z**2).sum(axis=1), -z / 2.2

    rng, start = np.random.default_rng(0), (np.zeros(5), np.eye(5))
    noise, log_weight = annealed(target, *start, 1000, 12, rng, ignore)
    assert importance(log_weight)[2] < 0.2
    location, factor = refined(noise, log_weight, *start)
    noise, log_weight = annealed(target, location, factor, 1000, 24, rng, ignore)
    noise = location + noise @ factor.T
    weight, k, ess = importance(log_weight)
    assert k < 0.5
    assert ess > 0.7
    mean, error = weight @ noise, 2.2 / np.sqrt(1000 * ess)
    np.testing.assert_allclose(mean, 1.0, atol=4.0 * error)
    sd = np.sqrt(weight @ (noise - mean) ** 2)
    np.testing.assert_allclose(sd, 2.2, atol=4.0 * error)


def test_an_exact_gaussian_stays_as_it_is():
    """Where it is the density itself, weights take back that draws begin with wider ones."""

    def target(rows):
        return -0.5 * (rows**2).sum(axis=1) + 3.0, -rows

    noise, log_weight = run(np.eye(2), 20_000, 12, 0, target)
    assert np.mean(np.exp(log_weight - 3.0)) == pytest.approx(_WIDER**-2, rel=0.01)
    weight, _, ess = importance(log_weight)
    assert ess > 0.97
    assert weight @ noise**2 == pytest.approx(1.0, abs=0.05)


def test_draws_do_not_enter_where_the_density_is_zero():
    """Density 0 for x < -1, whose logarithm is -inf with a gradient of NaN."""

    def half(rows):
        out = rows[:, 0] < -1.0
        value = np.where(out, -np.inf, -0.5 * (rows**2).sum(axis=1))
        return value, np.where(out[:, None], np.nan, -rows)

    noise, log_weight = run(np.diag([0.3, 1.0]), 2000, 12, 0, half, (0.5, 0.0))
    assert (0.5 + 0.3 * noise[:, 0] > -1.0).all()
    assert np.isfinite(log_weight).all()
