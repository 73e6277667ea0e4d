"""Polynomials in place of log marginals: good inside, exact outside and where refused."""

import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc.families import poisson_rows, surrogates
from soc_pymc.inference import density
from soc_pymc.model import problem
from tests.thinning import thinned


def _near(made, h, m, c):
    out = np.empty((3, *m.shape))
    poisson_rows.near_rows(m, c, np.arange(m.shape[1])[None], out, *made.arrays, *h.arrays)
    return out


@pytest.fixture(scope="module")
def built(small_statistics):
    return problem.build(small_statistics, soc.Gamma())


def test_inside_the_error_is_as_promised(built):
    """At random points of the boxes: values within the tolerance for a bin, slopes alike."""
    h, bins = built.data, np.arange(len(built.score))
    centre = np.log(h.total + 1) - np.log(np.add.reduceat(h.items * h.exposure, h.start[:-1]))
    low = (centre - 0.2, np.full(len(bins), -1.5))
    high = (centre + 0.2, np.full(len(bins), -0.5))
    made = surrogates.make_surrogates(h, low, high)
    assert (made.reach > 0).all()
    rng = np.random.default_rng(0)
    m, c = (rng.uniform(a, b, (50, len(bins))) for a, b in zip(low, high, strict=True))
    near, exact = _near(made, h, m, c), h.value_and_gradient(m, c, bins)
    # twelve points tested a bin: one of fifty may be up to a few times worse
    assert np.abs(near[0] - exact[0]).max() < 3e-3 / np.sqrt(len(bins))
    assert np.abs(near[1:] - exact[1:]).max() < 0.02
    assert np.abs(near[0] - exact[0]).max() > 0  # they are polynomials


def test_outside_it_is_exact(built):
    h, bins = built.data, np.arange(len(built.score))
    made = surrogates.make_surrogates(
        h, (np.full(len(bins), -3.1), np.full(len(bins), -1.1)),
        (np.full(len(bins), -3.0), np.full(len(bins), -1.0)),
    )  # fmt: skip
    for m, c in ((-2.99, -1.05), (-3.05, -1.11), (4.0, 9.0)):
        m, c = np.full((2, len(bins)), m), np.full((2, len(bins)), c)
        np.testing.assert_array_equal(_near(made, h, m, c), h.value_and_gradient(m, c, bins))


def test_a_bin_that_no_polynomial_fits_is_exact(built):
    """Boxes over twenty units, or without an end, get no polynomial."""
    h, bins = built.data, np.arange(len(built.score))
    wide = np.full(len(bins), 10.0)
    low = (-wide, -wide.copy())
    low[1][0] = np.nan
    made = surrogates.make_surrogates(h, low, (wide, wide))
    assert (made.reach == 0).all()
    m = c = np.zeros((1, len(bins)))
    np.testing.assert_array_equal(_near(made, h, m, c), h.value_and_gradient(m, c, bins))


@pytest.mark.parametrize("size", thinned([0.0, 1.0, 4.0], [1.0]))
def test_density_is_the_exact_one(built, size):
    """At the pilot, at draws, and far out: to 5e-3 nats, gradients to 1e-2 posterior sd."""
    space = density.make_space(built.model)
    w = size * np.random.default_rng(1).normal(size=(20, space.dim))
    near, exact = density.near_density(built, space)(w), density.density(space)(w)
    np.testing.assert_allclose(near[0], exact[0], atol=5e-3, rtol=0)
    np.testing.assert_allclose(near[1], exact[1], atol=1e-2, rtol=1e-6)


def test_sums_of_polynomials_are_those_of_the_rows(built):
    """Of two degrees, with their slopes; what is outside is marked and left out."""
    h, bins = built.data, np.arange(len(built.score))
    centre = np.log(h.total + 1) - np.log(np.add.reduceat(h.items * h.exposure, h.start[:-1]))
    wide = np.where(bins % 2, 1.0, 0.1)
    low = (centre - 0.4 * wide, -1.0 - 1.5 * wide)
    high = (centre + 0.4 * wide, -1.0 + 1.5 * wide)
    made = surrogates.make_surrogates(h, low, high, degrees=(5, 8))
    few = surrogates.make_surrogates(h, low, high)
    assert (made.reach > 0).mean() > (few.reach > 0).mean()
    assert set(made.degree) == {5, 8}
    rng = np.random.default_rng(0)
    m, c = (
        rng.uniform(a[:, None], b[:, None], (len(bins), 40)) for a, b in zip(low, high, strict=True)
    )
    m[:, 7] += 1.0
    value, slopes, outside = np.empty(40), np.empty((2, *m.shape)), np.empty(m.shape, dtype=bool)
    rest = made.arrays, made.degree
    left = surrogates.near_sums(m, c, bins, value, slopes, outside, *rest[0], rest[1])
    assert outside[:, 7].all()
    assert left == outside.sum() < 0.5 * m.size
    exact = h.value_and_gradient(np.ascontiguousarray(m.T), np.ascontiguousarray(c.T), bins)
    exact = exact.transpose(0, 2, 1)
    np.testing.assert_allclose(value, np.where(outside, 0.0, exact[0]).sum(axis=0), atol=3e-3)
    assert np.abs(np.where(outside, 0.0, slopes - exact[1:])).max() < 0.02
    alone = np.empty(40)
    surrogates.near_sums(m, c, bins, alone, slopes[:, :0], outside, *rest[0], rest[1])
    np.testing.assert_array_equal(alone, value)
