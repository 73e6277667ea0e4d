"""Projections onto non-decreasing curves: exact, nearest, and only where they are needed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline

from soc_pymc._model.splines import project_monotone


def wild_draws(seed, k=20, draws=200, rough=0.5):
    """Draws around a rising curve at uneven knots, nearly all of which fall somewhere."""
    rng = np.random.default_rng(seed)
    knots = np.cumsum(rng.gamma(0.5, size=k) + 0.05)
    gap = np.abs(knots[:, None] - knots) / np.ptp(knots)
    covariance = rough**2 * np.exp(-((6 * gap) ** 2)) + 1e-3 * np.eye(k)
    noise = rng.multivariate_normal(np.zeros(k), covariance, size=draws)
    return knots, np.tanh(3 * (knots - knots.mean()) / np.ptp(knots)) + noise


def least_slope(values, knots):
    """Least derivative of natural splines, from their own turning points, over the steepest secant.

    It takes all digits where values differ by little from a level.
    """
    least = np.inf
    for curve in np.atleast_2d(values):
        spline = CubicSpline(knots, curve - curve[0], bc_type="natural")
        turning = spline.derivative(2).roots(extrapolate=False)
        places = np.concatenate([knots, turning[np.isfinite(turning)]])
        steepest = np.abs(np.diff(curve) / np.diff(knots)).max()
        least = min(least, spline(places, 1).min() / max(steepest, 1e-300))
    return least


@pytest.mark.parametrize("k", [3, 5, 20])
def test_projected_draws_never_decrease(k):
    """To rounding: slopes between knots half a percent of the span apart lose 3 of 16 digits."""
    knots, values = wild_draws(k, k=k)
    moved = project_monotone(values, knots)
    assert least_slope(moved, knots) >= -1e-11
    assert (project_monotone(moved, knots) == moved).all()


def test_draws_that_never_decrease_are_untouched():
    knots, values = wild_draws(1, draws=400, rough=0.02, k=6)
    slopes = np.array([least_slope(curve, knots) for curve in values])
    rises, falls = slopes > 1e-9, slopes < -1e-9
    assert min(rises.sum(), falls.sum()) > 20
    moved = project_monotone(values, knots)
    assert (moved[rises] == values[rises]).all()
    assert (moved[falls] != values[falls]).any(axis=1).all()


def test_no_feasible_direction_is_better():
    """The cone's projection is orthogonal to what was cut off, v'P(v - v0) = 0, to 1e-8."""
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


@pytest.mark.parametrize("draws", [500, 24])
def test_default_metric_is_the_draws_covariance(draws):
    """Below five draws a knot, the mean of their covariance and its diagonal."""
    knots, values = wild_draws(5, k=6, draws=draws)
    plain = np.cov(values, rowvar=False, bias=True)
    ridge = 1e-6 * plain.diagonal().max() * np.eye(6)
    shrunk = 0.5 * (plain + np.diag(plain.diagonal()))
    covariance, alternative = (plain, shrunk) if draws == 500 else (shrunk, plain)
    result = project_monotone(values, knots)
    same = project_monotone(values, knots, np.linalg.inv(covariance + ridge))
    np.testing.assert_allclose(result, same, atol=1e-6)
    different = project_monotone(values, knots, np.linalg.inv(alternative + ridge))
    assert np.abs(result - different).max() > 1e-3


def test_few_knots_and_falling_curves():
    """One knot has no slope; two are averaged; falling curves become their weighted mean."""
    assert (project_monotone([[3.0], [1.0]], [0.0]) == [[3.0], [1.0]]).all()
    moved = project_monotone([[1.0, 3.0], [3.0, 1.0]], [0.0, 5.0], np.eye(2))
    np.testing.assert_allclose(moved, [[1, 3], [2, 2]], atol=1e-12)
    knots, fall = np.array([0.0, 0.1, 1.0, 3.0]), np.array([[4.0, 3.9, 3.0, 1.0]])
    moved = project_monotone(fall, knots, np.diag([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_allclose(moved, np.average(fall[0], weights=[1, 2, 3, 4]), rtol=1e-9)
    assert (project_monotone(np.full((3, 4), 0.3), knots) == 0.3).all()


def test_groups_are_projected_each_on_its_own():
    knots, draws = wild_draws(11, k=7)
    mirrored = draws[:, ::-1] * 2 + 1
    groups = np.stack([draws, mirrored], axis=1)
    moved = project_monotone(groups, knots)
    np.testing.assert_array_equal(moved[:, 0], project_monotone(draws, knots))
    np.testing.assert_array_equal(moved[:, 1], project_monotone(mirrored, knots))
    assert groups[0, 0, 0] == draws[0, 0]  # the input is not written to


@given(
    seed=st.integers(0, 10_000),
    k=st.integers(2, 15),
    level=st.sampled_from([0.0, -1e4, 1e-3]),
    size=st.sampled_from([1e-8, 1.0, 1e5]),
    unit=st.sampled_from([1e-6, 1.0, 1e4]),
)
def test_levels_and_units_change_only_the_units(seed, k, level, size, unit):
    knots, values = wild_draws(seed, k=k, draws=5, rough=1.0)
    moved = project_monotone(size * (level + values), unit * knots, np.eye(k))
    plain = size * (level + project_monotone(values, knots, np.eye(k)))
    np.testing.assert_allclose(moved, plain, atol=1e-7 * size * np.abs(values).max())
