"""Statistics and scoring of many items, in CPU time, as multiples of a plain scan in the same run.

Every step runs in a process of its own, which loads modules and kernels, then reports the CPU time
of the step itself, and its peak memory; the least of several such runs counts.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import soc_pymc as soc
from soc_pymc._lib.files import replacing

ROLES = {"score": "score", "count": "count", "exposure": "exposure"}
_CHUNK = 1_000_000
_BINS = 1000
_FEW, _REPEATS = 20_000_000, 3  # runs of each step where items are few
_TWICE = ("scan", "summarize", "score", "write")  # where they are many
_LIMIT = "2GB"  # memory limit of the engine that scans
_PAPER = (20e9, 10_000, 100)  # items, bins and cores


def main() -> None:
    """Run one step if it is named, else the whole benchmark."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--items", type=int, nargs="*", default=[10_000_000, 100_000_000])
    words.add_argument("--folder", type=Path, help="where to keep the simulated items")
    words.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    chosen = words.parse_args()
    if chosen.step:
        _report(STEPS[chosen.step[0]], Path(chosen.step[1]))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        costs = {items: _bench(items, folder) for items in chosen.items}
    _estimate(costs[max(costs)])


# --- steps, each in its own process --------------------------------------------------------------


def _scan(path: Path) -> None:
    """The plain scan: sums of the three columns."""
    connection = duckdb.connect(config={"memory_limit": _LIMIT, "threads": 2})
    connection.execute(f"SELECT sum(score), sum(count), sum(exposure) FROM '{path}'").fetchall()


def _summarize(path: Path) -> None:
    """Edges of 1,000 bins and all cells; the file of statistics is for other steps."""
    before = time.process_time()
    stats = _summarized(path)
    spent = time.process_time() - before
    stats.save(path.with_suffix(".nc"))
    raise _Spent(spent)


def _summarized(path: Path, **options: Any) -> soc.Statistics:
    return soc.summarize(soc.PoissonItems(str(path), **ROLES), progress=False, **options)


def _cells(path: Path) -> None:
    """Cells of bins that are known, as for tomorrow's items."""
    _summarized(path, edges=soc.load_statistics(path.with_suffix(".nc")).edges)


def _many_bins(path: Path) -> None:
    """Cells of the paper's 10,000 bins, once these are known."""
    stats = soc.load_statistics(path.with_suffix(".nc"))
    position = np.linspace(0, stats.bins - 2, _PAPER[1] - 1)
    edges = np.interp(position, np.arange(stats.bins - 1), stats.edges)
    _summarized(path, edges=edges)


def _folds(path: Path) -> None:
    """The same with ten folds."""
    _summarized(path, edges=soc.load_statistics(path.with_suffix(".nc")).edges, folds=10)


def _joint(path: Path) -> None:
    """The same with joint cells."""
    _summarized(path, edges=soc.load_statistics(path.with_suffix(".nc")).edges, joint=True)


def _fit(path: Path) -> None:
    """The fit, by variational inference."""
    stats = soc.load_statistics(path.with_suffix(".nc"))
    soc.fit(stats, progress=False).save(path.with_suffix(".fit.nc"))


def _score(path: Path) -> None:
    """Item posteriors with two quantiles, to a file."""
    fit = soc.load_fit(path.with_suffix(".fit.nc"))
    items = soc.PoissonItems(str(path), **ROLES)
    out = path.with_name("posteriors.parquet")
    soc.item_posteriors(fit, items, out=out, progress=False)


def _write(path: Path) -> None:
    """The same output table written again from memory, a piece at a time."""
    source = pq.ParquetFile(path.with_name("posteriors.parquet"))
    target = path.with_name("again.parquet")
    spent = 0.0
    with pq.ParquetWriter(target, source.schema_arrow) as writer:
        for group in range(source.num_row_groups):
            table = source.read_row_group(group)
            before = time.process_time()
            writer.write_table(table)
            spent += time.process_time() - before
    before = time.process_time()
    target.unlink()
    raise _Spent(spent + time.process_time() - before)


class _Spent(Exception):
    """CPU seconds of a step that measures itself."""


def _chain(path: Path) -> None:
    """From items to posteriors by one command."""
    from soc_pymc.front.cli import main as command

    words = ["run", str(path), "--bins", str(_BINS), "--quiet", "--out"]
    for role, column in ROLES.items():
        words[1:1] = [f"--{role}={column}"]
    if command([*words, str(path.with_name("chain.parquet"))]) != 0:
        raise SystemExit("the command failed")


STEPS: dict[str, Callable[[Path], None]] = {
    "scan": _scan,
    "summarize": _summarize,
    "cells": _cells,
    "many_bins": _many_bins,
    "folds": _folds,
    "joint": _joint,
    "fit": _fit,
    "score": _score,
    "write": _write,
    "chain": _chain,
}


def _warm(path: Path) -> None:
    """Load modules and kernels, by a step on few items."""
    few = soc.simulation.s1(200)[list(ROLES.values())]
    items = soc.PoissonItems(few, **ROLES)
    soc.summarize(items, progress=False)
    fitted = path.with_suffix(".fit.nc")
    if fitted.exists():
        fit = soc.load_fit(fitted)
        soc.item_posteriors(fit, items, progress=False)


def _report(step: Callable[[Path], None], path: Path) -> None:
    """Run a step; print its CPU and wall seconds and its peak memory."""
    _warm(path)
    wall, before = time.perf_counter(), time.process_time()
    try:
        step(path)
        cpu = time.process_time() - before
    except _Spent as spent:
        cpu = spent.args[0]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"cpu": cpu, "wall": time.perf_counter() - wall, "peak": peak}))


# --- the benchmark -------------------------------------------------------------------------------


def _bench(items: int, folder: Path) -> dict[str, float]:
    """CPU nanoseconds an item by step, printed."""
    path = folder / f"items_{items}.parquet"
    if not path.exists():
        _simulate(items, path)
    print(f"\n{items:,} items, {path.stat().st_size / 1e9:.2f} GB of Parquet, {_BINS:,} bins")
    found: dict[str, float] = {}
    for name, step in STEPS.items():
        spent = _least(name, path, _REPEATS if items <= _FEW else 1 + (name in _TWICE))
        found[name] = spent["cpu"] / items * 1e9
        print(
            f"  {step.__doc__.rstrip('.'):52s} {spent['cpu']:8.2f} CPU s {found[name]:7.1f} ns "
            f"an item {found[name] / found['scan']:6.1f} scans, {spent['wall']:7.1f} s, "
            f"{spent['peak'] / 1e9:5.2f} GB",
            flush=True,
        )
    print(f"  summarize: {found['summarize'] / found['scan']:.1f} scans (target 6)")
    both = found["scan"] + found["write"]
    print(f"  scoring: {found['score'] / both:.2f} times a scan and the write (target 2)")
    for left in ("posteriors.parquet", "chain.parquet"):
        path.with_name(left).unlink()
    return found


def _least(name: str, path: Path, repeats: int) -> dict[str, float]:
    """CPU and wall seconds and peak memory of the run with the least CPU time."""
    words = [sys.executable, "-m", "tests.bench.bench_scale", "--step", name, str(path)]
    runs = []
    for _ in range(repeats):
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return min(runs, key=lambda run: run["cpu"])


def _simulate(items: int, path: Path) -> None:
    """Items of S1, a million at a time."""
    kinds = {"score": pa.float64(), "count": pa.int64(), "exposure": pa.float64()}
    schema = pa.schema(list(kinds.items()))
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for seed in range(-(-items // _CHUNK)):
            frame = soc.simulation.s1(min(_CHUNK, items - seed * _CHUNK), seed=seed)
            writer.write_table(pa.table({n: pa.array(frame[n], k) for n, k in kinds.items()}))


def _estimate(cost: dict[str, float]) -> None:
    """Hours for the paper's numbers of items and bins, from these costs alone."""
    items, bins, cores = _PAPER
    minutes = items / cores * 1e-9 / 60
    print(
        f"\n{items:,.0f} items on {cores} cores, by these CPU times: statistics "
        f"{cost['summarize'] * minutes:.1f} min ({cost['many_bins'] * minutes:.1f} min in "
        f"{bins:,} known bins; every core sums its own files, and their statistics are added), "
        f"scoring {cost['score'] * minutes:.1f} min; the fit is that of {bins:,} bins whatever "
        "their items"
    )


if __name__ == "__main__":
    main()
