"""Nothing is pickled or started, and names of columns and groups are never more than text."""

import ast
from pathlib import Path

import h5py
import ibis
import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc._lib.files import seal

PACKAGE = Path(soc.__file__).parent
MODULES = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "dbm",
    "subprocess", "pty", "ctypes", "cffi", "code", "runpy", "socket", "urllib", "http", "ftplib",
    "requests", "xmlrpc", "yaml", "webbrowser",
}  # fmt: skip
METHODS = {
    "system", "popen", "execv", "execve", "fork", "posix_spawn", "startfile", "read_pickle",
    "to_pickle", "memmap", "fromfile", "create_function", "install_extension", "load_extension",
}  # fmt: skip
CALLS = {"eval", "exec", "compile", "__import__", "breakpoint", "input"}


def dangers(tree):
    """Returns names of what could run text or bytes of others."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [] if node.level else [node.module]
            yield from (name for name in names if name.split(".")[0] in MODULES)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in CALLS:
                yield node.func.id
            elif isinstance(node.func, ast.Attribute):
                of_numpy = isinstance(node.func.value, ast.Name) and node.func.value.id == "np"
                loads = of_numpy and node.func.attr == "load"
                yield from [node.func.attr] if loads or node.func.attr in METHODS else []
            yield from (k.arg for k in node.keywords if k.arg in ("allow_pickle", "shell"))


@pytest.mark.slow
def test_nothing_is_unpickled_evaluated_or_started():
    paths = sorted(PACKAGE.rglob("*.py"))
    assert paths
    assert not [(path, name) for path in paths for name in dangers(ast.parse(path.read_text()))]


NAME = '<img src=x onerror=alert(1)>";DROP TABLE items;--\x1b[2J{0.__class__}'


@pytest.fixture(scope="module")
def hostile(example):
    """Items, statistics and a fit with names that mean something to SQL, HTML and terminals."""
    frame = example("gamma").frame[:1500].rename(columns={"score": NAME, "count": "y" + NAME})
    frame["c" + NAME] = np.where(np.arange(len(frame)) % 2, NAME, "../../b")
    items = soc.PoissonItems(
        frame, score=NAME, count="y" + NAME, exposure="exposure", group="c" + NAME
    )
    stats = soc.summarize(items, bins=5, progress=False)
    few = soc.Spline(knots=2)
    fit = soc.fit(stats, soc.Gamma(mean=few, variance=few), soc.VI(draws=50), progress=False)
    return items, stats, fit


@pytest.mark.slow
def test_hostile_names_come_back_and_are_shown_as_text(hostile, tmp_path):
    items, stats, fit = hostile
    stats.save(tmp_path / "stats.nc")
    fit.save(tmp_path / "fit.nc")
    again = soc.load_statistics(tmp_path / "stats.nc"), soc.load_fit(tmp_path / "fit.nc")
    for each in again:
        assert each.groups == ("../../b", NAME)
    for shown in again:
        assert "<img" not in shown._repr_html_()
        assert "\x1b" not in repr(shown) + shown._repr_html_()
    assert "\x1b" not in repr(items)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit.nc", "stats.nc"]


def test_places_outside_of_arrays_are_refused(small_fit, tmp_path):
    """A sealed file cannot make products of matrices read memory that is not theirs."""
    path = tmp_path / "fit.nc"
    small_fit.save(path)
    with h5py.File(path, "r+") as file:
        file["deferred/matrix_0.1"][-1] = 2**30
    path.write_bytes(path.read_bytes() + seal(path.read_bytes()))
    with pytest.raises(soc.FitError, match="damaged"):
        soc.load_fit(path)


def test_hostile_names_pass_through_an_engine(hostile):
    """DuckDB takes them as names: the same numbers, and its other table stays."""
    items, stats, _ = hostile
    connection = ibis.duckdb.connect()
    connection.con.execute("CREATE TABLE items AS SELECT 1 AS kept")
    connection.con.register("ads", items.source)
    found = soc.summarize(
        soc.PoissonItems(connection.table("ads"), **items.roles.arguments),
        edges=stats.edges, progress=False,
    )  # fmt: skip
    assert (found.n_items, found.groups) == (stats.n_items, stats.groups)
    assert connection.table("items").count().execute() == 1
