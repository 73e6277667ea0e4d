"""CPU seconds of each step, as ratios to a plain scan of the same columns in the same run.

    python -m tests.bench.bench_fit [--items 1000000] [--only warm nuts] [--billion]

`--only` takes some of the sections warm, nuts, first, scale and rivals; `--billion` simulates every
one of a billion items, a quarter of an hour, instead of adding statistics to themselves.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import duckdb

import soc_pymc as soc
from tests.bench import first_fit, rivals, scaling
from tests.bench.timing import Report, cpu, spent

_SECTIONS = ("warm", "nuts", "first", "scale", "rivals")
_TARGETS = {200: 5, 1000: 10, 10_000: 60}  # CPU seconds of a warm fit, by bins
_NUTS = soc.NUTS(draws=1000, chains=2)


def _saved(items: int, path: Path) -> soc.PoissonItems:
    soc.simulation.s1(items, seed=0)[["score", "count", "exposure"]].to_parquet(path)
    return soc.PoissonItems(str(path), score="score", count="count", exposure="exposure")


def _warm(report: Report, items: soc.PoissonItems, count: int, folder: Path) -> None:
    """Statistics, warm fits, and scoring with the fit of the most bins up to 1,000."""
    report.section(f"warm fit, pilot to status, {count:,} items (twice as many for 10,000 bins)")
    fit = None
    for bins, target in _TARGETS.items():
        many = bins == max(_TARGETS)
        of = _saved(2 * count, folder / "twice.parquet") if many else items
        seconds, stats = cpu(lambda b=bins, i=of: soc.summarize(i, bins=b, progress=False))
        report.line(f"summarize, {stats.n_items:,} items, {bins:,} bins", seconds)
        repeats = 1 if many else 3
        seconds, done = cpu(lambda s=stats: soc.fit(s, progress=False), repeats)
        note = f"target {target} CPU s; {done.status.reason}"
        report.line(f"fit, {stats.n_items:,} items, {bins:,} bins", seconds, note)
        fit = fit if many else done
    _posteriors(report, fit, items, folder)


def _posteriors(report: Report, fit: Any, items: soc.PoissonItems, folder: Path) -> None:
    for draws in ("plug_in", "auto"):
        options = {"plug_in": True} if draws == "plug_in" else {"draws": draws}
        seconds, _ = cpu(
            lambda o=options: soc.item_posteriors(
                fit, items, out=folder / "scored.parquet", progress=False, **o
            ),
            repeats=1,
        )
        report.line(f"item posteriors to Parquet, two quantiles, {draws}", seconds)


def _nuts(report: Report, items: soc.PoissonItems) -> None:
    report.section("NUTS and the default on the same statistics, 200 bins (compiling included)")
    stats = soc.summarize(items, bins=200, progress=False)
    cpu(lambda: soc.fit(stats, progress=False), repeats=1)
    default = spent(lambda: soc.fit(stats, progress=False))
    report.line("VI", default.cpu, f"{default.wall:.1f} s wall")
    nuts = spent(lambda: soc.fit(stats, method=_NUTS, progress=False))
    report.line(repr(_NUTS), nuts.cpu, f"{nuts.wall:.1f} s wall; {nuts.result.status.reason}")
    report.say(
        f"NUTS over VI: {nuts.cpu / default.cpu:.1f} in CPU s, "
        f"{nuts.wall / default.wall:.1f} in wall s"
    )


def main() -> None:
    """Time the chosen sections and print one line for each step."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="+", choices=_SECTIONS, default=_SECTIONS)
    parser.add_argument("--billion", action="store_true")
    parser.add_argument(
        "--bambi-draws", type=int, default=1000, help="draws and tuning of its NUTS"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "items.parquet"
        items = _saved(chosen.items, path)
        query = f"select sum(score), sum(count), sum(exposure) from '{path}'"
        report = Report(cpu(lambda: duckdb.sql(query).fetchall())[0])
        report.line(f"plain scan of three columns, {chosen.items:,} items", report.scan)
        sections = {
            "warm": lambda: _warm(report, items, chosen.items, folder),
            "nuts": lambda: _nuts(report, items),
            "first": lambda: first_fit.bench(report),
            "scale": lambda: scaling.bench(report, chosen.billion),
            "rivals": lambda: rivals.bench(report, chosen.bambi_draws),
        }
        for section in chosen.only:
            sections[section]()


if __name__ == "__main__":
    main()
