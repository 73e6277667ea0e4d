"""The same items give the same numbers in any order, process, and number of threads."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import soc_pymc as soc
from soc_pymc._lib.work import THREADS
from soc_pymc.data import local
from soc_pymc.posterior import scoring
from tests.data.cell_references import assert_same
from tests.examples import CASES, SINGLE_FAMILIES, count_frame, thinned

ROOT = Path(soc.__file__).parents[1]


@pytest.fixture(scope="module")
def frame():
    return count_frame(20_000, 5)


def statistics(source):
    return soc.summarize(CASES["groups"].items(source), joint=True, folds=3, progress=False)


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


OPTIONS = {"progress": False, "on_leakage": "ignore"}


def in_files(frame, folder):
    """Writes a frame into files with row groups of several sizes, one too large for a block."""
    paths = []
    for k, (part, rows) in enumerate(
        [(slice(0, 400), 90), (slice(400, 1250), 800), (slice(1250, None), 45)]
    ):
        paths.append(str(folder / f"{k}.parquet"))
        frame.iloc[part].to_parquet(paths[-1], row_group_size=rows)
    return paths


@pytest.mark.parametrize("name", thinned(SINGLE_FAMILIES, ["gamma"]))
def test_statistics(name, example, monkeypatch, tmp_path):
    """Small blocks of items, with labels that first occur late, merged joint cells and folds.

    Blocks round sums differently from one block, so these are compared to 1e-12.
    """
    frame = example(name).frame[:1500]
    late = np.arange(len(frame)) > 1100
    frame = frame.assign(group=np.where(late, "late", frame["kind"]), id=np.arange(len(frame)))
    items = {
        source: CASES[name].kind(table, **CASES[name].items(frame).roles, group="group", id="id")
        for source, table in {
            "files": in_files(frame, tmp_path),
            "pandas": frame,
            "Arrow": pa.Table.from_pandas(frame),
            "Polars": pl.from_pandas(frame),
        }.items()
    }
    options = {"bins": 40, "folds": 7, "joint": True}
    in_one_block = soc.summarize(items["pandas"], **options, **OPTIONS)
    monkeypatch.setattr(local, "_BLOCK", 120)
    for source in items.values():
        by_number = []
        for number in "123":
            monkeypatch.setenv(THREADS, number)
            by_number.append(soc.summarize(source, **options, **OPTIONS))
        assert_same(by_number[0], in_one_block)
        assert by_number[0].data.identical(by_number[1].data)
        assert by_number[0].data.identical(by_number[2].data)


@pytest.mark.parametrize("name", thinned(["groups", "normal"], ["groups"]))
def test_posteriors(name, example, monkeypatch, tmp_path):
    fit, case = example(name).fit, CASES[name]
    monkeypatch.setattr(scoring, "_BATCH_OF_FEW", 100)
    frame = example(name).frame[:350].copy()
    frame.loc[::70, "score"] *= 5.0  # beyond the knots
    frame.to_parquet(tmp_path / "items.parquet")
    scored = []
    for number in "123":
        monkeypatch.setenv(THREADS, number)
        scored.append(soc.item_posteriors(fit, case.items(frame), progress=False))
        out = tmp_path / f"{number}.parquet"
        items = case.items(str(tmp_path / "items.parquet"))
        soc.item_posteriors(fit, items, out=out, progress=False)
        scored.append(pq.read_table(out).to_pandas())
    for other in scored[1:]:
        pd.testing.assert_frame_equal(scored[0], other, check_exact=True)
