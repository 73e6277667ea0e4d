"""Axes, knots and bases."""

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from soc_pymc._lib.errors import FitError
from soc_pymc._model import splines


def test_matrix_is_the_natural_spline_and_linear_beyond():
    rng = np.random.default_rng(0)
    knots = np.sort(rng.normal(size=7))
    values = rng.normal(size=7)
    inside = np.linspace(knots[0], knots[-1], 50)
    spline = CubicSpline(knots, values, bc_type="natural")
    np.testing.assert_allclose(splines.spline_matrix(inside, knots) @ values, spline(inside))
    outside = knots[-1] + np.array([1.0, 2.0, 3.0])
    beyond = splines.spline_matrix(outside, knots) @ values
    np.testing.assert_allclose(np.diff(beyond, 2), 0, atol=1e-10)
    assert np.diff(beyond)[0] == pytest.approx(float(spline(knots[-1], 1)))


def test_basis_spans_all_curves_and_penalises_roughness():
    rng = np.random.default_rng(1)
    u, w = np.sort(rng.normal(size=200)), rng.uniform(1, 3, 200)
    basis = splines.make_basis(u, w, 12)
    assert basis.wiggle.shape == (12, 10)
    full = np.column_stack([basis.line, basis.wiggle])
    assert np.linalg.matrix_rank(full) == 12
    # the prior's precision of a curve is proportional to its integral of f''^2
    fine = np.linspace(basis.knots[0], basis.knots[-1], 20001)
    ratios = []
    for z in rng.normal(size=(3, 10)):
        curve = CubicSpline(basis.knots, basis.wiggle @ z, bc_type="natural")
        ratios.append(np.trapezoid(curve(fine, 2) ** 2, fine) / (z @ z))
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-3)


def test_wiggle_has_unit_scale_over_the_items():
    rng = np.random.default_rng(2)
    u, w = np.sort(rng.normal(size=100)), rng.uniform(1, 3, 100)
    basis = splines.make_basis(u, w, 20)
    at_bins = splines.spline_matrix(u, basis.knots) @ basis.wiggle
    curves = at_bins @ rng.normal(size=(18, 4000))
    line = np.column_stack([np.ones(100), u])
    root = np.sqrt(w)[:, None]
    away = curves - line @ np.linalg.lstsq(line * root, curves * root, rcond=None)[0]
    assert np.average((away**2).mean(axis=1), weights=w) == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize(("bins", "wiggles"), [(1, 0), (2, 0), (3, 1), (50, 8)])
def test_few_bins_give_fewer_functions(bins, wiggles):
    basis = splines.make_basis(np.arange(bins, dtype=float), np.ones(bins), 10)
    assert basis.wiggle.shape[1] == wiggles
    assert np.isfinite(basis.wiggle).all()


def test_knots_follow_the_items():
    u = np.linspace(0, 1, 1000)
    w = np.where(u < 0.1, 9.0, 1.0)
    knots = splines.place_knots(u, w, 11)
    assert (np.diff(knots) > 0).all()
    assert np.sum(knots < 0.1) >= 5


def test_axes_are_monotone_and_invert():
    t = np.array([0.01, 0.2, 0.5])
    rank = splines.Axis("rank", (0.0, 0.1, 1.0), (0.0, 0.6, 1.0))
    for axis in (splines.Axis("log"), splines.Axis("linear"), rank):
        u = axis(t)
        assert (np.diff(u) > 0).all()
        np.testing.assert_allclose(axis.inverse(u), t)
    with pytest.raises(FitError, match="1 scores are 0 or below"):
        splines.Axis("log")([0.1, 0.0])


def test_positions_that_differ_by_rounding_share_a_knot():
    """A spline through both would be unbounded between them and the next knot."""
    a, b = np.log(20.0), np.log(2000.0)
    position = np.array([a, np.nextafter(a, b), b, np.nextafter(b, a), b])
    knots = splines.place_knots(position, np.ones(5), 20)
    assert len(knots) == 2
    np.testing.assert_allclose(knots, [a, b], rtol=1e-12)
