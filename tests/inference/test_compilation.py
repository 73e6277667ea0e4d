"""Compiled loops give the same numbers, and nothing is compiled for a new data set."""

import ast
import inspect
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest
from numba.core import event
from pytensor.link.basic import JITLinker
from pytensor.link.c.basic import CLinker

import soc_pymc as soc
from soc_pymc.data import kernels as data_kernels
from soc_pymc.families import kernels as families_kernels
from soc_pymc.inference import row_kernels
from soc_pymc.inference.polynomials import Surrogates
from tests.examples import CASES, count_frame


@pytest.fixture
def compilations(monkeypatch):
    """A context manager that counts compilations while its block runs, by kind.

    Numba announces every compilation that its cache did not spare; of PyTensor the ways into
    compiling are counted, whether or not a cache would then have helped.
    """
    counts = Counter()

    def watch(owner, name, kind):
        plain = getattr(owner, name)

        def counting(*args, **kwargs):
            counts[kind] += 1
            return plain(*args, **kwargs)

        monkeypatch.setattr(owner, name, counting)

    watch(JITLinker, "create_jitable_thunk", "pytensor jit")
    watch(CLinker, "make_thunk", "pytensor c")

    @contextmanager
    def counted():
        counts.clear()
        with event.install_recorder("numba:compile") as recorder:
            yield counts
        counts["numba"] += sum(e.is_start for _, e in recorder.buffer)

    return counted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("items", "bins", "knots", "method"),
    [(3001, 17, 20, soc.VI(draws=300)), (5000, 1, 7, soc.VI()), (6000, 50, 5, soc.VI(batch=10))],
    ids=["other bins", "one bin", "minibatches"],
)
def test_a_second_data_set_compiles_nothing(small_fit, compilations, items, bins, knots, method):
    source = CASES["gamma"].items(count_frame(items, items))
    stats = soc.summarize(source, bins=bins, progress=False)
    prior = soc.Gamma(soc.Spline(knots=knots), soc.Spline(knots=knots))
    with compilations() as counts:
        fit = soc.fit(stats, prior, method, progress=False)
    sizes = fit.data["posterior"].sizes
    assert sizes["chain"] * sizes["draw"] == method.draws
    assert counts.total() == 0, counts


@pytest.mark.parametrize("module", [data_kernels, families_kernels, row_kernels])
def test_compiled_functions_have_names_of_their_own(module):
    """Numba's cache takes two of one name for each other, if two processes compiled them."""
    tree = ast.parse(inspect.getsource(module))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(names) == len(set(names)) > 1


@pytest.mark.slow
def test_compiled_polynomials_are_those_of_numpy():
    """Values, slopes and marks, with a row without a polynomial; to rounding of sums of 196."""
    rng = np.random.default_rng(8)
    degree = np.array([4, 6, 9, 13, 4])
    coefficients = np.zeros((5, 16, 16))
    for row, number in enumerate(degree):
        coefficients[row, : number + 1, : number + 1] = rng.normal(size=(number + 1, number + 1))
    reach = rng.uniform(0.5, 2.0, (2, 5))
    reach[:, 4] = 0.0
    polynomials = Surrogates(rng.normal(size=(2, 5)), reach, coefficients, degree)
    curves = polynomials.centre[:, :, None] + rng.uniform(-2.2, 2.2, (2, 5, 40))
    expected, outside = polynomials.values_and_slopes(*curves)
    results = np.empty_like(expected)
    marks = np.zeros_like(outside)
    row_kernels.fill(*curves, results[0], results[1:], marks, polynomials.arrays)
    np.testing.assert_array_equal(marks, outside)
    assert 0.2 < outside[:4].mean() < 0.8
    inside = ~outside
    np.testing.assert_allclose(results[:, inside], expected[:, inside], rtol=1e-11, atol=1e-11)
