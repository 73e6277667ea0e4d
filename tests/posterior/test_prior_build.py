"""Gauss rules of draws, and the cells of a table that items need."""

import numpy as np
import pytest

from soc_pymc.posterior.prior_build import _Cells, gauss_rules

RNG = np.random.default_rng(0)
MANY = RNG.normal(size=(3, 400)) ** 2 + [[1.0], [-3.0], [50.0]]
DRAWS = {
    "many": (MANY, 0.4 * MANY + RNG.normal(size=MANY.shape)),
    "three different": (MANY[:, np.arange(30) % 3], MANY[:, np.arange(30) % 3] ** 2),
    "one location": (0.0 * MANY + 7.0, MANY),
    "one draw": (0.0 * MANY + 7.0, 0.0 * MANY - 2.0),
}


@pytest.mark.parametrize("numbers", [(1, 1), (2, 2), (3, 3), (5, 5), (2, 5), (5, 3)])
@pytest.mark.parametrize("name", DRAWS)
def test_averages_of_polynomials_are_those_of_the_draws(name, numbers):
    """Of degree 2K - 1 in the first curve, and of products below degree K, L in the second."""
    location, dispersion = DRAWS[name]
    weight, first, second = gauss_rules(location, dispersion, np.array(numbers)).swapaxes(0, 1)
    number, most = numbers
    degrees = [(k, 0) for k in range(2 * number)]
    degrees += [(i, j) for i in range(number) for j in range(min(number - i, most))]
    for i, j in degrees:
        scale = np.abs(location).max(axis=1) ** i * np.abs(dispersion).max(axis=1) ** j
        average = (weight * first**i * second**j).sum(axis=1)
        expected = (location**i * dispersion**j).mean(axis=1)
        np.testing.assert_allclose(average / scale, expected / scale, atol=1e-9)


@pytest.mark.parametrize("name", ["normal", "exposure", "normal_mixture"])
def test_cells_are_made_when_asked_for_and_the_same_as_among_all(example, name):
    """Single precision of the coefficients; a cell that is not made has one node that is NaN."""
    cells, asked = _Cells(example(name).fit.curves), [5, 9]
    few = cells.nodes("", np.array([5, 9, 5]))
    assert set(_cell(few)[~np.isnan(few["weight_00"])]) == {*asked}
    more = cells.nodes("", np.array([2]))
    every = _Cells(example(name).fit.curves).nodes("")
    assert not np.isnan(every["weight_00"]).any()
    for column in few:
        values, later, among_all = (
            nodes[column][np.isin(_cell(nodes), asked)] for nodes in (few, more, every)
        )
        np.testing.assert_array_equal(values, later)
        np.testing.assert_allclose(values, among_all, rtol=1e-5, atol=1e-6)


def _cell(nodes):
    """Returns the cell of every node."""
    return np.cumsum(nodes["node"] == 0) - 1
