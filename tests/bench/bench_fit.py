"""CPU seconds of each step, as ratios to a plain scan of the same columns in the same run.

python -m tests.bench.bench_fit [--items 1000000]
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

import soc_pymc as soc


def cpu(work: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Least CPU seconds of several runs, and the last result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def main() -> None:
    """Time a scan, statistics, fits and scoring, and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "items.parquet"
        soc.simulation.s1(chosen.items, seed=0)[["score", "count", "exposure"]].to_parquet(path)
        items = soc.PoissonItems(str(path), score="score", count="count", exposure="exposure")
        query = f"select sum(score), sum(count), sum(exposure) from '{path}'"
        scan, _ = cpu(lambda: duckdb.sql(query).fetchall())
        report = _reporter(scan)
        report("plain scan of the three columns", scan)
        fit = None
        for bins in (50, 200, 1000):
            seconds, stats = cpu(lambda b=bins: soc.summarize(items, bins=b, progress=False))
            report(f"summarize, {bins} bins", seconds)
            seconds, fit = cpu(lambda s=stats: soc.fit(s, progress=False))
            report(f"fit, {bins} bins", seconds)
        for draws in ("plug_in", "representative"):
            options = {"plug_in": True} if draws == "plug_in" else {"draws": draws}
            seconds, _ = cpu(
                lambda o=options: soc.item_posteriors(
                    fit, items, out=path.with_name("scored.parquet"), progress=False, **o
                ),
                repeats=1,
            )
            report(f"item posteriors to Parquet, two quantiles, {draws}", seconds)


def _reporter(scan: float) -> Callable[[str, float], None]:
    def report(what: str, seconds: float) -> None:
        print(f"{what:60s} {seconds:8.3f} CPU s {seconds / scan:9.1f} scans", flush=True)

    return report


if __name__ == "__main__":
    main()
