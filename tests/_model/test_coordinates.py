"""The parameters' log density with NumPy alone is that of the model in PyMC."""

import numpy as np
import pymc as pm
import pytest

import soc_pymc as soc
from soc_pymc._model.problem import build
from soc_pymc._model.pymc_model import ModelSpace, extended, pymc_model
from tests.examples import COUNT_ROLES, count_frame, thinned

NAMES = ["gamma", "normal", "beta", "groups", "exposure", "gamma_mixture", "zeros", "truncated"]


def problem_of(name, example):
    """Statistics and prior; of truncated counts the level is along a ridge."""
    if name != "truncated":
        return example(name).statistics, example(name).case.prior
    frame = count_frame(900).query("count > 0")
    items = soc.PoissonItems(frame, **COUNT_ROLES, truncated=True)
    return soc.summarize(items, bins=20, progress=False), soc.Gamma()


@pytest.mark.parametrize("name", thinned(NAMES, ["truncated"]))
def test_numpy_and_pymc_have_the_same_parameters(example, name):
    """At the start, at draws and far out: values, log densities and gradients to rounding."""
    built = build(*problem_of(name, example), full=True)
    if name == "truncated":
        assert 0.2 < built.coordinates.parts[0].line.bend.share < 1.0
    ours, theirs = built.coordinates, ModelSpace(built, pymc_model(built))
    rng = np.random.default_rng(0)
    direction = rng.normal(size=len(ours.start))
    np.testing.assert_allclose(theirs.start, ours.start, atol=1e-12)
    points = np.array([0.0, 1.0, -2.0, 4.0])[:, None] * direction
    at, expected = ours.at(points), theirs.at(points)
    np.testing.assert_allclose(at.log_density, expected.log_density, rtol=1e-9)
    slopes = []
    for values, known in zip(at.coefficients, expected.coefficients, strict=True):
        np.testing.assert_allclose(values, known, rtol=1e-9, atol=1e-12)
        slopes.append(rng.normal(size=values.shape))
    gradient, known = at.gradient(slopes), expected.gradient(slopes)
    np.testing.assert_allclose(gradient, known, rtol=1e-7, atol=1e-7 * np.abs(known).max())
    variables, draws = ours.variables(points), theirs.variables(points)
    ordered = sorted if name == "truncated" else list  # whose second curve comes first
    assert ordered(ours.dims) == ordered(theirs.dims) == ordered(variables)
    for key, values in variables.items():
        assert ours.dims[key] == theirs.dims[key]
        np.testing.assert_allclose(values, draws[key], rtol=1e-9, atol=1e-12)
    priors, known_priors = ours.densities(variables)[0], theirs.densities(draws)[0]
    for key, values in priors.items():
        np.testing.assert_allclose(values, known_priors[key], rtol=1e-9)
    for key, (dims, values) in theirs.constants.items():
        assert ours.constants[key][0] == dims
        np.testing.assert_array_equal(ours.constants[key][1], values)


@pytest.mark.slow
def test_where_an_added_scale_underflows_there_is_no_density(small_statistics):
    prior = soc.Gamma()
    with soc.model(small_statistics, prior) as model:
        pm.Normal("added", 0.0, pm.HalfNormal("added_sd"))
    space = extended(build(small_statistics, prior, full=True), model).space
    points = np.stack([space.start] * 3)
    points[1, [v.name for v in model.free_RVs].index("added_sd") - len(model.free_RVs)] = -1e4
    point = space.at(points)
    assert np.isfinite(point.log_density).tolist() == [True, False, True]
    slopes = [np.zeros_like(values) for values in point.coefficients]
    assert np.isfinite(point.gradient(slopes)).all()
