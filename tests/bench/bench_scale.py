"""Statistics and scoring of many items, in CPU time, as multiples of a plain scan in the same run.

Every step runs in a process of its own, which loads modules and kernels, then reports the CPU time
of the step itself, and its peak memory; the least of several such runs counts.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import soc_pymc as soc
from soc_pymc.__main__ import main as command
from tests.examples import COUNT_ROLES
from tests.studies.common import counts, fit, options, posteriors, show, summarize

_CHUNK, _BINS = 1_000_000, 1000
_FEW = 20_000_000  # items, up to which each step runs three times
_PAPER = (20e9, 10_000, 100)  # items, bins and cores


def scan(path: Path) -> None:
    """The plain scan: sums of the three columns."""
    connection = duckdb.connect(config={"memory_limit": "2GB", "threads": 2})
    connection.execute(f"SELECT sum(score), sum(count), sum(exposure) FROM '{path}'").fetchall()


def first_pass(path: Path) -> float:
    """Edges of 1,000 bins and all cells."""
    before = time.process_time()
    stats = summarize(counts(str(path)))
    spent = time.process_time() - before
    stats.save(path.with_suffix(".nc"))
    return spent


def _edges(path: Path) -> np.ndarray:
    return soc.load_statistics(path.with_suffix(".nc")).edges


def cells(path: Path) -> None:
    """Cells of bins that are known, as for tomorrow's items."""
    summarize(counts(str(path)), edges=_edges(path))


def many_bins(path: Path) -> None:
    """Cells of the paper's 10,000 bins, once these are known."""
    edges = _edges(path)
    position = np.linspace(0, len(edges) - 1, _PAPER[1] - 1)
    summarize(counts(str(path)), edges=np.interp(position, np.arange(len(edges)), edges))


def joint(path: Path) -> None:
    """Cells of known bins, with joint cells."""
    summarize(counts(str(path)), edges=_edges(path), joint=True)


def make_fit(path: Path) -> None:
    """The fit, by variational inference."""
    fit(soc.load_statistics(path.with_suffix(".nc"))).save(path.with_suffix(".fit.nc"))


def score(path: Path) -> None:
    """Item posteriors with two quantiles, to a file."""
    model = soc.load_fit(path.with_suffix(".fit.nc"))
    posteriors(model, counts(str(path)), out=path.with_name("posteriors.parquet"))


def chain(path: Path) -> None:
    """From items to posteriors by one command."""
    roles = [f"--{role}={column}" for role, column in COUNT_ROLES.items()]
    out = ["--bins", str(_BINS), "--quiet", "--out", str(path.with_name("chain.parquet"))]
    if command(["run", *roles, str(path), *out]) != 0:
        raise SystemExit("the command failed")


_ALL = (scan, first_pass, cells, many_bins, joint, make_fit, score, chain)
STEPS: dict[str, Callable[[Path], float | None]] = {step.__name__: step for step in _ALL}


def report(step: str, path: Path) -> None:
    """Runs a step once all is loaded; prints its CPU and wall seconds and its peak memory."""
    items = counts(soc.simulation.s1(200)[list(COUNT_ROLES)])
    summarize(items)
    if path.with_suffix(".fit.nc").exists():
        posteriors(soc.load_fit(path.with_suffix(".fit.nc")), items)
    wall, before = time.perf_counter(), time.process_time()
    measured = STEPS[step](path)
    cpu = time.process_time() - before if measured is None else measured
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"cpu": cpu, "wall": time.perf_counter() - wall, "peak": peak}))


def bench(items: int, folder: Path) -> pd.DataFrame:
    """CPU nanoseconds an item, plain scans, seconds and peak memory by step."""
    path = folder / f"items_{items}.parquet"
    if not path.exists():
        simulate(items, path)
    runs = pd.DataFrame({step: least(step, path, 3 if items <= _FEW else 2) for step in STEPS}).T
    for name in ("posteriors", "chain"):
        path.with_name(f"{name}.parquet").unlink()
    cost = runs["cpu"] / items * 1e9
    table = pd.DataFrame({"CPU ns an item": cost, "plain scans": cost / cost["scan"]})
    table = table.assign(**{"seconds": runs["wall"], "peak GB": runs["peak"] / 1e9})
    show(table, f"{items:,} items, {path.stat().st_size / 1e9:.2f} GB of Parquet, {_BINS:,} bins")
    return table


def least(name: str, path: Path, repeats: int) -> dict[str, float]:
    """CPU and wall seconds and peak memory of the run with the least CPU time."""
    words = [sys.executable, "-m", "tests.bench.bench_scale", "--step", name, str(path)]
    runs = (
        subprocess.run(words, capture_output=True, text=True, check=True) for _ in range(repeats)
    )
    return min((json.loads(r.stdout.splitlines()[-1]) for r in runs), key=lambda run: run["cpu"])


def simulate(items: int, path: Path) -> None:
    """Writes items of S1, a million at a time."""
    kinds = {"score": pa.float64(), "count": pa.int64(), "exposure": pa.float64()}
    with pq.ParquetWriter(path, pa.schema(list(kinds.items()))) as writer:
        for seed in range(-(-items // _CHUNK)):
            frame = soc.simulation.s1(min(_CHUNK, items - seed * _CHUNK), seed=seed)
            writer.write_table(pa.table({n: pa.array(frame[n], k) for n, k in kinds.items()}))


def main() -> None:
    """Runs the whole benchmark, or a step in its own process."""
    numbers = (10_000_000, 100_000_000)
    chosen = options(__doc__, {"items": [20_000]}, items=numbers, folder=Path, step=("", ""))
    if chosen.step[0]:
        report(chosen.step[0], Path(chosen.step[1]))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for items in sorted(chosen.items):
            cost = bench(items, folder)["CPU ns an item"]
    minutes = cost * _PAPER[0] / _PAPER[2] * 1e-9 / 60
    show(minutes, "Minutes for the paper's 20 billion items on 100 cores, by these CPU times")


if __name__ == "__main__":
    main()
