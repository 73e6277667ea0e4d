"""CPU seconds of statistics, fits and scoring, beside a plain scan of the same columns.

    python -m tests.bench.bench_fit [--items 1000000] [--only warm scale] [--billion]

`warm`: summarize, fit and score once kernels are compiled. `scale`: a fit of 20,000 items and of a
billion; `--billion` simulates every one of them, a quarter of an hour, instead of adding statistics
to themselves. NUTS and the default are compared by `tests.studies.agreement`.
"""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

import soc_pymc as soc
from tests.studies.common import Choice, counts, fit, options, posteriors, show, summarize, timed

_TARGETS = {200: 5, 1000: 10, 10_000: 60}  # CPU seconds of a warm fit, by bins
_SCORED = 1000  # bins of the fit that scores
_BINS, _FEW, _CHUNK = 200, 20_000, 10_000_000  # of the fits that tell the effect of items


Row = dict[str, Any]


def _row(step: str, seconds: float, note: str = "") -> Row:
    return {"step": step, "CPU s": seconds, "note": note}


def _warm(n_items: int, folder: Path) -> Iterator[Row]:
    """A plain scan, statistics, warm fits, and scoring with the fit of 1,000 bins."""
    path = folder / "items.parquet"
    soc.simulation.s1(n_items, seed=0)[["score", "count", "exposure"]].to_parquet(path)
    items = counts(str(path))
    query = f"select sum(score), sum(count), sum(exposure) from '{path}'"
    _, seconds = timed(lambda: duckdb.sql(query).fetchall(), repeats=3)
    yield _row(f"plain scan of three columns, {n_items:,} items", seconds)
    for bins, target in _TARGETS.items():
        stats, seconds = timed(lambda b=bins: summarize(items, bins=b), repeats=3)
        yield _row(f"summarize, {bins:,} bins", seconds)
        model, seconds = timed(lambda s=stats: fit(s), repeats=3)
        yield _row(f"fit, {bins:,} bins", seconds, f"target {target}; {model.status.reason}")
        if bins == _SCORED:
            score = partial(posteriors, model, items, out=folder / "scored.parquet")
            _, seconds = timed(score)
            yield _row("item posteriors to Parquet, two quantiles", seconds)


def _scale(billion: bool) -> Iterator[Row]:
    """Fits to statistics of 20,000 and of a billion items in the same number of bins.

    A fit's cost depends on the distinct exposures and counts of a bin, of which doubling adds none.
    """
    few = summarize(counts(soc.simulation.s1(_FEW, seed=0)), bins=_BINS)
    edges = summarize(counts(soc.simulation.s1(1_000_000, seed=1)), bins=_BINS).edges
    many = None
    for chunk in range(100 if billion else 2):
        stats = summarize(counts(soc.simulation.s1(_CHUNK, seed=2 + chunk)), edges=edges)
        many = stats if many is None else many + stats
    for _ in range(0 if billion else 6):
        many = many + many
    for stats in (few, many):
        _, seconds = timed(lambda s=stats: fit(s), repeats=3)
        yield _row(f"fit, {stats.n_items:,} items, {_BINS} bins", seconds, "target: within 2x")


def main() -> None:
    """Times the chosen sections and prints a row for each step."""
    small = {"items": 20_000, "only": ["warm"]}
    chosen = options(__doc__, small, items=1_000_000, only=Choice(("warm", "scale")), billion=False)
    with tempfile.TemporaryDirectory() as name:
        sections = {
            "warm": lambda: _warm(chosen.items, Path(name)),
            "scale": lambda: _scale(chosen.billion),
        }
        for section in chosen.only:
            show(pd.DataFrame(sections[section]()).set_index("step"), section, digits=3)


if __name__ == "__main__":
    main()
