"""Nothing is compiled for a new data set, neither by Numba nor by PyTensor."""

from collections import Counter
from contextlib import contextmanager

import pytest
from numba.core import event
from pytensor.link.basic import JITLinker
from pytensor.link.c.basic import CLinker

import soc_pymc as soc
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
