"""The same items give the same numbers in any order, process, and number of threads."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc.data.tables import streaming

ROOT = Path(soc.__file__).parents[1]
ROLES = {"score": "score", "count": "count", "exposure": "exposure"}
OPTIONS = {"joint": True, "folds": 3, "progress": False}
REAL = 1e-12  # relative: sums of real numbers in another order differ by rounding


@pytest.fixture(scope="module")
def frame():
    made = soc.simulation.s1(20_000, seed=5)
    made["country"] = np.array(["Zürich", "a", "b"])[np.arange(len(made)) % 3]
    return made


def statistics(source):
    items = soc.PoissonItems(source, **ROLES, group="country")
    return soc.summarize(items, **OPTIONS)


def assert_same(one, two):
    """Edges and whole numbers bit for bit, sums of real numbers up to rounding."""
    assert one.data.sizes == two.data.sizes
    assert one.data.attrs == two.data.attrs
    whole = 0
    for name, values in one.data.variables.items():
        first, second = values.to_numpy(), two.data[name].to_numpy()
        if name == "edge" or first.dtype.kind in "iuOU":
            whole += first.dtype.kind in "iu"
            np.testing.assert_array_equal(first, second, err_msg=str(name))
        else:
            np.testing.assert_allclose(first, second, rtol=REAL, err_msg=str(name))
    np.testing.assert_array_equal(one.edges, two.edges)
    assert whole > 5


def test_shuffled_rows(frame):
    shuffled = frame.sample(frac=1, random_state=1)
    assert_same(statistics(frame), statistics(shuffled))


def test_files_in_another_order(frame, tmp_path):
    paths = []
    for k in range(4):
        paths.append(str(tmp_path / f"{k}.parquet"))
        frame.iloc[k::4].to_parquet(paths[-1])
    assert_same(statistics(paths), statistics(paths[::-1]))
    assert_same(statistics(frame), statistics(paths))


def test_items_read_in_other_portions(frame, monkeypatch):
    whole = statistics(frame)
    monkeypatch.setattr(streaming, "_READ", 701)
    monkeypatch.setattr(streaming, "_BLOCK", 1_500)
    assert_same(whole, statistics(frame))


SCRIPT = """
import hashlib, sys
import numpy as np
import soc_pymc as soc
roles = dict(score="score", count="count", exposure="exposure", group="country")
items = soc.PoissonItems(sys.argv[1], **roles)
stats = soc.summarize(items, joint=True, folds=3, progress=False)
fit = soc.load_fit(sys.argv[2])
plain = soc.PoissonItems(sys.argv[4], score="score", count="count", exposure="exposure")
scored = soc.item_posteriors(fit, plain, progress=False)
for name in stats.data.variables:
    values = stats.data[name].to_numpy()
    text = repr(values.tolist()).encode() if values.dtype == object else values.tobytes()
    print(name, hashlib.sha256(text).hexdigest())
np.save(sys.argv[3], np.stack([scored[name].to_numpy() for name in scored.column_names[-5:]]))
"""


@pytest.mark.slow
def test_other_processes_hash_seeds_and_threads(frame, small_fit, tmp_path):
    """All sums bit for bit, real ones too; item posteriors likewise on as many threads.

    On other numbers of threads OpenBLAS may sum in another order: to 1e-12.
    """
    frame.to_parquet(tmp_path / "items.parquet")
    frame.iloc[:2_000].to_parquet(tmp_path / "few.parquet")
    small_fit.save(tmp_path / "fit.nc")
    said, scored = [], []
    for seed, threads in (("0", "1"), ("1", "2"), ("random", "1")):
        names = ("OMP", "OPENBLAS", "MKL", "NUMBA", "ARROW_DEFAULT")
        limits = {f"{name}_NUM_THREADS": threads for name in names}
        env = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "POLARS_MAX_THREADS": threads}
        words = [sys.executable, "-c", SCRIPT, "items.parquet", "fit.nc"]
        words += ["scored.npy", "few.parquet"]
        done = subprocess.run(
            words, cwd=tmp_path, env={**os.environ, **limits, **env}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
        scored.append(np.load(tmp_path / "scored.npy"))
    assert len(said[0].splitlines()) > 20
    assert said[0] == said[1] == said[2]
    np.testing.assert_array_equal(scored[0], scored[2])
    np.testing.assert_allclose(scored[0], scored[1], rtol=1e-12)


def test_a_fit_is_the_same_bit_for_bit_in_one_process(small_statistics, small_fit):
    """The state of NumPy's global generator does not matter."""
    np.random.seed(7)  # noqa: NPY002
    again = soc.fit(small_statistics, method=soc.VI(seed=1), progress=False)
    for name, values in small_fit.data["posterior"].variables.items():
        np.testing.assert_array_equal(values, again.data["posterior"][name], err_msg=str(name))
