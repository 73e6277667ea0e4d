"""Each thing of PyTensor and PyMC that may change with their versions does what is expected."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.link.vm import VMLinker
from scipy import stats as laws

from soc_pymc._model import internals
from soc_pymc._model.problem import build


def nodes(outputs):
    return [v.owner for v in internals.ancestors(outputs) if v.owner]


def test_functions_are_interpreted_and_equal_nodes_merged():
    x, unused = pt.vectors("x", "unused")
    function = internals.interpreted([x, unused], [pt.exp(x) + pt.exp(x), pt.second(x, 3.0)])
    twice, like = function(np.arange(3.0), np.zeros(1))
    np.testing.assert_allclose(twice, 2.0 * np.exp(np.arange(3.0)))
    np.testing.assert_array_equal(like, np.full(3, 3.0))
    maker = function.__wrapped__.maker
    assert isinstance(maker.linker, VMLinker)
    operations = [node.op for node in maker.fgraph.apply_nodes]
    assert operations.count(pt.exp) == 1
    assert pt.second not in operations


def test_threads_that_call_one_function_get_their_own_values():
    """PyTensor's functions store values of all threads in one place: most calls raised, or more."""
    x = pt.vector("x")
    function = internals.interpreted([x], pt.sort(pt.exp(-x) * x)[::-1].cumsum())
    inputs = [np.full(50_000, 1.0 + k) for k in range(8)]
    expected = list(map(function, inputs))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(function, 3 * inputs))
    np.testing.assert_array_equal(found, 3 * expected)


def test_merged_outputs_share_equal_nodes():
    x = pt.vector("x")
    outputs = [pt.exp(x), pt.exp(x)]
    assert len(nodes(outputs)) == 2
    assert len(nodes(internals.merged(outputs))) == 1


def test_vectorized_outputs_take_further_dimensions():
    x, rows = pt.vector("x"), pt.matrix("rows")
    [output] = internals.vectorized([x.sum()], {x: rows})
    function = internals.interpreted([rows], output)
    np.testing.assert_array_equal(function(np.ones((2, 3))), [3.0, 3.0])


def test_initial_points_are_transformed():
    with pm.Model() as model:
        pm.HalfNormal("scale", 1.0)
        pm.Normal("x", 2.0, 1.0, shape=2)
    scale, x = internals.initial_point(model)
    assert scale == pytest.approx(np.log(1.0))
    np.testing.assert_array_equal(x, [2.0, 2.0])


def test_parameters_out_of_range_raise():
    sd = pt.scalar("sd")
    function = internals.interpreted([sd], pm.logp(pm.Normal.dist(0.0, sd), 1.0))
    assert function(2.0) == pytest.approx(laws.norm.logpdf(1.0, 0.0, 2.0))
    with pytest.raises(internals.ParameterValueError):
        function(-1.0)


def test_transforms_change_a_variables_coordinates():
    class Doubled(internals.Transform):
        name, ndim_supp = "doubled", 0

        def backward(self, value, *inputs):
            return 2.0 * value

        def forward(self, value, *inputs):
            return value / 2.0

        def log_jac_det(self, value, *inputs):
            return pt.log(2.0) + pt.zeros_like(value)

    with pm.Model() as model:
        pm.Normal("x", 0.0, 1.0, transform=Doubled())
    [value] = model.value_vars
    assert value.name == "x_doubled__"
    found = internals.interpreted([value], model.logp())(0.7)
    assert found == pytest.approx(laws.norm.logpdf(1.4) + np.log(2.0))


def test_signatures_have_core_dimensions():
    with pm.Model() as model:
        pm.CustomDist(
            "y",
            pt.as_tensor(np.arange(4.0).reshape(2, 2)),
            observed=np.zeros(2),
            signature=internals.gufunc_signature([1]),
            logp=lambda value, rows: rows.sum(axis=-1),
        )
    assert internals.interpreted([], model.logp())() == 6.0


@pytest.mark.parametrize("mode", [None, pytest.param("NUMBA", marks=pytest.mark.slow)])
def test_rows_of_mixtures_are_numpys_with_their_slopes(example, mode):
    case = example("zeros")
    built = build(case.statistics, case.case.prior)
    predictors, cells = built.coordinates.parts[0].at_rows.sum(axis=1), built.mixture.cells
    predictors = predictors.reshape(len(cells.constant), -1)
    matrix = pt.matrix()
    value = internals.MixtureLogMarginal(built.family.name)(matrix, *cells.arrays)[0]
    outputs = [value, pt.grad(value.sum(), matrix)]
    if mode:
        function = pytensor.function([matrix], outputs, mode=mode)
    else:
        function = internals.interpreted([matrix], outputs)
    for found, expected in zip(function(predictors), cells.log_marginals(predictors), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
