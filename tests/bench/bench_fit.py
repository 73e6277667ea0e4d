"""CPU seconds of statistics, fits and scoring, beside a plain scan of the same columns.

    python -m tests.bench.bench_fit [--items 1000000] [--only warm scale] [--billion]

`warm`: summarize, fit and score once kernels are compiled. `scale`: a fit of 20,000 items and of a
billion; `--billion` simulates every one of them, a quarter of an hour, instead of adding statistics
to themselves. NUTS and the default are compared by `tests.studies.agreement`.
"""

import tempfile
from pathlib import Path

import duckdb

import soc_pymc as soc
from tests.studies.common import Choice, counts, fit, options, posteriors, summarize, timed

_TARGETS = {200: 5, 1000: 10, 10_000: 60}  # CPU seconds of a warm fit, by bins
_BINS, _FEW, _CHUNK = 200, 20_000, 10_000_000  # of the fits that tell the effect of items


def section(title: str) -> None:
    """Prints a heading."""
    print(f"\n{title}", flush=True)


def line(what: str, seconds: float, note: str = "") -> None:
    """Prints CPU seconds."""
    print(f"  {what:58s} {seconds:8.3f} CPU s  {note}".rstrip(), flush=True)


def _saved(items: int, path: Path) -> soc.PoissonItems:
    soc.simulation.s1(items, seed=0)[["score", "count", "exposure"]].to_parquet(path)
    return counts(str(path))


def _warm(items: soc.PoissonItems, folder: Path) -> None:
    """Statistics, warm fits, and scoring with the fit of 1,000 bins."""
    section("warm fit, pilot to status")
    fits = {}
    for bins, target in _TARGETS.items():
        stats, seconds = timed(lambda b=bins: summarize(items, bins=b), repeats=3)
        line(f"summarize, {bins:,} bins", seconds)
        fits[bins], seconds = timed(lambda s=stats: fit(s), repeats=3)
        note = f"target {target} CPU s; {fits[bins].status.reason}"
        line(f"fit, {stats.n_items:,} items, {bins:,} bins", seconds, note)
    out = folder / "scored.parquet"
    _, seconds = timed(lambda: posteriors(fits[1000], items, out=out))
    line("item posteriors to Parquet, two quantiles", seconds)


def _scale(billion: bool) -> None:
    """Fits statistics of 20,000 and of a billion items in the same number of bins.

    A fit's cost depends on the distinct exposures and counts of a bin, of which doubling adds none.
    """
    section(f"the same {_BINS} bins, other numbers of items (target: within 2x)")
    few = summarize(counts(soc.simulation.s1(_FEW, seed=0)), bins=_BINS)
    edges = summarize(counts(soc.simulation.s1(1_000_000, seed=1)), bins=_BINS).edges
    many = None
    for chunk in range(100 if billion else 2):
        stats = summarize(counts(soc.simulation.s1(_CHUNK, seed=2 + chunk)), edges=edges)
        many = stats if many is None else many + stats
    for _ in range(0 if billion else 6):
        many = many + many
    seconds = [timed(lambda s=stats: fit(s), repeats=3)[1] for stats in (few, many)]
    for stats, used in zip((few, many), seconds, strict=True):
        line(f"fit, {stats.n_items:,} items", used)
    print(f"ratio {seconds[1] / seconds[0]:.2f}" + (", too low: see --billion" * (not billion)))


def main() -> None:
    """Times the chosen sections and prints a line for each step."""
    small = {"items": 20_000, "only": ["warm"]}
    chosen = options(__doc__, small, items=1_000_000, only=Choice(("warm", "scale")), billion=False)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "items.parquet"
        items = _saved(chosen.items, path)
        query = f"select sum(score), sum(count), sum(exposure) from '{path}'"
        _, seconds = timed(lambda: duckdb.sql(query).fetchall(), repeats=3)
        line(f"plain scan of three columns, {chosen.items:,} items", seconds)
        if "warm" in chosen.only:
            _warm(items, Path(name))
        if "scale" in chosen.only:
            _scale(chosen.billion)


if __name__ == "__main__":
    main()
