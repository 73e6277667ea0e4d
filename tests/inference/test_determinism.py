"""The same items give the same numbers in any order, process, and number of threads."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import soc_pymc as soc
from soc_pymc.data import local
from tests.examples import CASES, count_frame

ROOT = Path(soc.__file__).parents[1]
REAL = 1e-12  # relative: sums of real numbers in another order differ by rounding


@pytest.fixture(scope="module")
def frame():
    return count_frame(20_000, 5)


def statistics(source):
    return soc.summarize(CASES["groups"].items(source), joint=True, folds=3, progress=False)


def assert_same(ours, theirs):
    """Edges and whole numbers bit for bit, sums of real numbers up to rounding."""
    assert ours.data.sizes == theirs.data.sizes
    assert ours.data.attrs == theirs.data.attrs
    for name, values in ours.data.variables.items():
        numbers, others = values.to_numpy(), theirs.data[name].to_numpy()
        if name == "edge" or numbers.dtype.kind in "iuOU":
            np.testing.assert_array_equal(numbers, others, err_msg=str(name))
        else:
            np.testing.assert_allclose(numbers, others, rtol=REAL, err_msg=str(name))


def test_statistics_do_not_depend_on_the_order_of_items(frame, tmp_path, monkeypatch):
    """Of rows, of files, and of the portions that are read at once."""
    expected = statistics(frame)
    assert_same(expected, statistics(frame.sample(frac=1, random_state=1)))
    paths = []
    for k in range(4):
        paths.append(str(tmp_path / f"{k}.parquet"))
        frame.iloc[k::4].to_parquet(paths[-1])
    assert_same(expected, statistics(paths))
    assert_same(expected, statistics(paths[::-1]))
    monkeypatch.setattr(local, "_BLOCK", 1_500)
    assert_same(expected, statistics(frame))


@pytest.mark.slow
def test_same_seed_same_fit(small_statistics, small_fit):
    """Bit for bit, whatever NumPy's global generator; another seed is within 0.25 posterior sd."""
    np.random.seed(7)  # noqa: NPY002
    again = soc.fit(small_statistics, method=soc.VI(seed=1), progress=False)
    for name, values in small_fit.data["posterior"].variables.items():
        np.testing.assert_array_equal(values, again.data["posterior"][name], err_msg=str(name))
    other = soc.fit(small_statistics, method=soc.VI(seed=2), progress=False)
    ours, theirs = (f.data["posterior"]["log_mean"] for f in (small_fit, other))
    over = ("chain", "draw")
    difference = abs(ours.mean(over) - theirs.mean(over)) / ours.std(over)
    assert 0 < float(difference.max()) < 0.25


SCRIPT = """
import sys
import numpy as np
import soc_pymc as soc
items = soc.PoissonItems("items.parquet", score="score", count="count", exposure="exposure")
stats = soc.summarize(items, bins=20, progress=False)
fit = soc.fit(stats, method=soc.VI(seed=1, draws=200), progress=False)
np.savez(sys.argv[1], **fit.data["posterior"].data_vars)
scored = soc.item_posteriors(fit, items, progress=False)
np.save(sys.argv[2], np.stack([scored[name].to_numpy() for name in scored.column_names[-5:]]))
print(stats.data.to_dict())
"""


@pytest.mark.slow
def test_other_processes_hash_seeds_and_threads(frame, tmp_path):
    """Statistics and fits bit for bit; item posteriors to 1e-12."""
    frame.iloc[:4000].to_parquet(tmp_path / "items.parquet")
    printed, fits, scored = [], [], []
    for number, (seed, threads) in enumerate((("0", "1"), ("random", "2"))):
        names = ("OMP", "OPENBLAS", "MKL", "NUMBA", "ARROW_DEFAULT")
        limits = {f"{name}_NUM_THREADS": threads for name in names}
        env = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "POLARS_MAX_THREADS": threads}
        words = [sys.executable, "-c", SCRIPT, f"{number}.npz", f"{number}.npy"]
        run = subprocess.run(
            words, cwd=tmp_path, env={**os.environ, **limits, **env}, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        printed.append(run.stdout)
        fits.append(dict(np.load(tmp_path / f"{number}.npz")))
        scored.append(np.load(tmp_path / f"{number}.npy"))
    assert printed[0] == printed[1]
    np.testing.assert_equal(*fits)
    np.testing.assert_allclose(scored[0], scored[1], rtol=1e-12)
