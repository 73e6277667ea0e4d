"""Nothing is compiled for a new data set, neither by Numba nor by PyTensor."""

from collections import Counter
from contextlib import contextmanager

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numba.core import event
from pytensor.graph.replace import vectorize_graph
from pytensor.link.basic import JITLinker
from pytensor.link.c.basic import CLinker
from pytensor.tensor.blockwise import Blockwise

import soc_pymc as soc
from soc_pymc.families import poisson_rows as hist
from soc_pymc.families import rising
from soc_pymc.inference.density import mode


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


def _signatures():
    """Versions of each kernel in memory; a new one would have been compiled or loaded."""
    kernels = {k: v for k, v in vars(hist).items() if hasattr(v, "nopython_signatures")}
    assert "fill_rows" in kernels
    return {name: len(kernel.signatures) for name, kernel in kernels.items()}


@pytest.mark.parametrize(
    ("items", "bins", "knots", "method"),
    [
        (3001, 17, 20, soc.VI(seed=1)),
        (9000, 60, 7, soc.VI(seed=2, draws=300)),
        (5000, 1, 20, soc.VI(seed=3)),
        (6000, 50, 5, soc.VI(seed=4, batch=10)),
    ],
    ids=["other bins", "fewer knots", "one bin", "minibatches"],
)
@pytest.mark.slow
def test_a_second_data_set_compiles_nothing(small_fit, compilations, items, bins, knots, method):
    frame = soc.simulation.s1(items, seed=items)
    roles = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    stats = soc.summarize(roles, bins=bins, progress=False)
    prior = soc.Gamma(soc.Spline(knots=knots), soc.Spline(knots=knots))
    before = _signatures()
    with compilations() as counts:
        fit = soc.fit(stats, prior, method, progress=False)
    sizes = fit.data["posterior"].sizes
    assert sizes["chain"] * sizes["draw"] == method.draws
    assert counts.total() == 0, counts
    assert _signatures() == before


@pytest.mark.slow
def test_the_counters_count(compilations):
    """The counters detect a kernel for other types, and two compiled graphs."""
    kernel = numba.njit(rising.log1pmx.py_func)  # without a cache on disk that would spare it
    with compilations() as counts:
        kernel(0.5)
    assert counts["numba"] == 1
    with compilations() as counts:
        kernel(0.25)
    assert counts.total() == 0
    with compilations() as counts:
        kernel(np.float32(0.5))
    assert counts["numba"] == 1
    x = pt.vector("x")
    for linker, kind in (("numba", "pytensor jit"), ("c", "pytensor c")):
        mode = pytensor.compile.mode.Mode(linker=linker, optimizer="fast_compile")
        with compilations() as counts:
            pytensor.function([x], pt.exp(x), mode=mode)
        assert counts[kind] >= 1, linker


def test_operations_are_on_whole_arrays():
    """None goes number by number or draw by draw; values are those of the plain interpreter."""
    rows, matrix = pt.matrix("rows", shape=(None, 3)), np.arange(12.0).reshape(4, 3)
    vector = pt.vector("vector", shape=(3,))
    value = pt.exp(pt.dot(pt.as_tensor(matrix), vector)).sum()
    values = vectorize_graph(value, {vector: rows})
    slope = pt.grad(values.sum(), rows)
    whole = pytensor.function([rows], [values, slope], mode=mode())
    plain = pytensor.function(
        [rows], [values, slope], mode=pytensor.Mode(linker="py", optimizer=None)
    )

    def pieces(function):
        nodes = function.maker.fgraph.toposort()
        return sum(node.op == pt.second or isinstance(node.op, Blockwise) for node in nodes)

    assert pieces(plain) > pieces(whole) == 0
    at = np.random.default_rng(0).normal(size=(5, 3))
    for one, other in zip(whole(at), plain(at), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
