"""Projections onto non-decreasing curves: exact, nearest, and only where they are needed."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize

from soc_pymc.families.monotone import project_monotone
from soc_pymc.model.splines import spline_matrix


def wild_draws(seed, k=20, draws=200, rough=0.5):
    """Draws around a rising curve at uneven knots, nearly all of which fall somewhere."""
    rng = np.random.default_rng(seed)
    knots = np.cumsum(rng.gamma(0.5, size=k) + 0.05)
    distance = np.abs(knots[:, None] - knots) / np.ptp(knots)
    covariance = rough**2 * np.exp(-((6 * distance) ** 2)) + 1e-3 * np.eye(k)
    noise = rng.multivariate_normal(np.zeros(k), covariance, size=draws)
    return knots, np.tanh(3 * (knots - knots.mean()) / np.ptp(knots)) + noise


def least_rise(values, knots, points=20_001):
    """Least rise between neighbours of a fine grid that ends beyond the knots, over the size."""
    span = knots[-1] - knots[0]
    grid = np.union1d(np.linspace(knots[0] - span, knots[-1] + span, points), knots)
    # less the level, which only adds rounding of this evaluation
    curves = (values - values[..., :1]) @ spline_matrix(grid, knots).T
    return np.diff(curves, axis=-1).min() / np.abs(values).max()


def least_slope(values, knots):
    """Least derivative of each curve from the polynomials' own roots, over its steepest secant."""
    spline = CubicSpline(knots, values, bc_type="natural")
    turning = spline.derivative(2).roots(extrapolate=False)
    places = np.concatenate([knots, turning[np.isfinite(turning)]])
    steepest = np.abs(np.diff(values) / np.diff(knots)).max()
    return spline(places, 1).min() / max(steepest, 1e-300)


@pytest.mark.parametrize("k", [2, 3, 5, 20])
def test_projected_draws_never_decrease(k):
    """1e-12 of the curve's size on a grid, and a true minimum of the derivative of 0 to rounding
    (slopes between knots half a percent of the span apart lose 3 of 16 digits)."""
    knots, values = wild_draws(k, k=k)
    moved = project_monotone(values, knots)
    assert least_rise(moved, knots) >= -1e-12
    if k > 2:
        assert min(least_slope(v, knots) for v in moved) >= -1e-11


def test_draws_that_never_decrease_are_untouched():
    knots, values = wild_draws(1, draws=400, rough=0.02, k=6)
    rises = np.array([least_slope(v, knots) > 1e-9 for v in values])
    falls = np.array([least_slope(v, knots) < -1e-9 for v in values])
    assert rises.sum() > 20
    assert falls.sum() > 20
    moved = project_monotone(values, knots)
    assert (moved[rises] == values[rises]).all()
    assert (moved[falls] != values[falls]).any(axis=1).all()


def test_values_that_rise_between_knots_that_dip_are_moved():
    """Increasing values at the knots do not make an increasing spline."""
    knots = np.arange(4.0)
    values = np.array([[0.0, 0.01, 1.0, 1.01]])
    assert least_slope(values[0], knots) < -0.01
    moved = project_monotone(values, knots, np.eye(4))
    assert (moved != values).any()
    assert least_rise(moved, knots) >= -1e-12


@pytest.mark.parametrize("seed", range(4))
def test_nearest_by_a_generic_solver(seed):
    """SLSQP with the derivative's sign asked for at 400 places, a little looser than everywhere:
    distances agree to 1e-3 and the ways there to 2%."""
    knots, values = wild_draws(seed, k=8, draws=300)
    precision = np.linalg.inv(np.cov(values, rowvar=False) + 1e-3 * np.eye(8))
    grid = np.linspace(knots[0], knots[-1], 400)
    slopes = CubicSpline(knots, np.eye(8), bc_type="natural")(grid, 1)
    moved = project_monotone(values, knots, precision)
    root = np.linalg.cholesky(np.linalg.inv(precision))
    for before, after in list(zip(values, moved, strict=True))[:5]:
        away = np.linalg.solve(root, after - before)
        answer = minimize(
            lambda w: 0.5 * w @ w,
            np.zeros(8),
            jac=lambda w: w,
            constraints={
                "type": "ineq",
                "fun": lambda w, before=before: slopes @ (before + root @ w),
                "jac": lambda w: slopes @ root,
            },
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 1000},
        )
        assert answer.success
        assert 0.5 * away @ away == pytest.approx(answer.fun, rel=1e-3)
        assert np.abs(away - answer.x).max() < 0.02 * np.abs(away).max()


def test_optimal_to_the_last_digits():
    """The gap between the primal value and its dual bound, -v'P(v - v0) = 0 at the optimum (the
    cone's projection is orthogonal to what was cut off), and no better feasible direction."""
    knots, values = wild_draws(7, k=12)
    precision = np.linalg.inv(np.cov(values, rowvar=False) + 1e-3 * np.eye(12))
    moved = project_monotone(values, knots, precision)
    size = np.einsum("si,ij,sj->s", values, precision, values)
    product = np.einsum("si,ij,sj->s", moved, precision, moved - values)
    assert np.abs(product / size).max() < 1e-8
    rng = np.random.default_rng(0)
    feasible = project_monotone(values + rng.normal(scale=0.1, size=values.shape), knots, precision)
    outward = np.einsum("si,ij,sj->s", feasible, precision, moved - values)
    assert (outward / size).min() > -1e-8


def test_twice_is_once():
    knots, values = wild_draws(3)
    once = project_monotone(values, knots)
    assert (project_monotone(once, knots) == once).all()


def test_default_metric_is_the_draws_own():
    knots, values = wild_draws(5, k=6, draws=500)
    covariance = np.cov(values, rowvar=False, bias=True)
    ridge = 1e-6 * covariance.diagonal().max() * np.eye(6)
    given_one = project_monotone(values, knots, np.linalg.inv(covariance + ridge))
    np.testing.assert_allclose(project_monotone(values, knots), given_one, atol=1e-6)
    euclidean = project_monotone(values, knots, np.eye(6))
    assert np.abs(euclidean - given_one).max() > 1e-3


def test_one_knot_and_two():
    assert (project_monotone([[3.0], [1.0]], [0.0]) == [[3.0], [1.0]]).all()
    moved = project_monotone([[1.0, 3.0], [3.0, 1.0]], [0.0, 5.0], np.eye(2))
    np.testing.assert_allclose(moved, [[1, 3], [2, 2]], atol=1e-12)


def test_falling_curves_become_constants():
    knots = np.array([0.0, 0.1, 1.0, 3.0])
    fall = np.array([[4.0, 3.9, 3.0, 1.0]])
    moved = project_monotone(fall, knots, np.diag([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_allclose(moved, np.average(fall[0], weights=[1, 2, 3, 4]), rtol=1e-9)
    assert (project_monotone(np.full((3, 4), 0.3), knots) == 0.3).all()


def test_groups_are_projected_each_on_its_own():
    knots, first = wild_draws(11, k=7)
    second = first[:, ::-1] * 2 + 1
    both = np.stack([first, second], axis=1)
    moved = project_monotone(both, knots)
    np.testing.assert_array_equal(moved[:, 0], project_monotone(first, knots))
    np.testing.assert_array_equal(moved[:, 1], project_monotone(second, knots))
    metrics = np.stack([np.eye(7), np.diag(np.arange(1.0, 8.0))])
    moved = project_monotone(both, knots, metrics)
    np.testing.assert_array_equal(moved[:, 1], project_monotone(second, knots, metrics[1]))
    assert both[0, 0, 0] == first[0, 0]  # the input is not written to


@given(
    seed=st.integers(0, 10_000),
    k=st.integers(2, 15),
    level=st.sampled_from([0.0, -1e4, 1e-3]),
    size=st.sampled_from([1e-8, 1.0, 1e5]),
    unit=st.sampled_from([1e-6, 1.0, 1e4]),
)
@settings(max_examples=60, deadline=None)
def test_any_curves(seed, k, level, size, unit):
    """Never decreasing, and covariant with the level, the size and the unit of the axis: what
    rounding allows is 1e-12 of the curve's size."""
    knots, values = wild_draws(seed, k=k, draws=5, rough=1.0)
    moved = project_monotone(size * (level + values), unit * knots, np.eye(k))
    assert least_rise(moved, unit * knots, points=2001) >= -1e-12
    plain = size * (level + project_monotone(values, knots, np.eye(k)))
    np.testing.assert_allclose(moved, plain, atol=1e-7 * size * np.abs(values).max())


def test_thousand_draws_are_quick():
    """2 s of one processor; 4 here, for slower ones."""
    knots, values = wild_draws(2, draws=1000)
    start = time.process_time()
    project_monotone(values, knots)
    assert time.process_time() - start < 4.0


def test_metric_of_few_draws_half_believes_their_correlations():
    """Below five draws a knot, the covariance is the mean of the draws' own and its diagonal."""
    knots, values = wild_draws(6, k=6, draws=24)
    own = np.cov(values, rowvar=False, bias=True)
    ridge = 1e-6 * own.diagonal().max() * np.eye(6)
    half = 0.5 * (own + np.diag(own.diagonal())) + ridge
    found = project_monotone(values, knots)
    np.testing.assert_allclose(
        found, project_monotone(values, knots, np.linalg.inv(half)), atol=1e-6
    )
    whole = project_monotone(values, knots, np.linalg.inv(own + ridge))
    assert np.abs(found - whole).max() > 1e-3
