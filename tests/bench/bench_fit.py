"""CPU seconds of warm statistics and fits, by bins and by items.

    python -m tests.bench.bench_fit [--items 1000000]

A fit's cost depends on the distinct exposures and counts of a bin: a billion items are statistics
of 20 million added to themselves. NUTS and the default are compared by `tests.studies.agreement`.
"""

from functools import reduce
from operator import add

import pandas as pd

import soc_pymc as soc
from tests.studies.common import counts, fit, options, show, summarize, timed

_TARGETS = {200: 5, 1000: 10, 10_000: 60}  # CPU seconds of a warm fit, by bins
_BINS, _FEW, _MANY = 200, 20_000, 10_000_000


def billion() -> soc.Statistics:
    """Statistics of more than a billion items."""
    edges = summarize(counts(soc.simulation.s1(1_000_000, seed=1)), bins=_BINS).edges
    parts = [summarize(counts(soc.simulation.s1(_MANY, seed=s)), edges=edges) for s in (2, 3)]
    return reduce(lambda stats, _: stats + stats, range(6), add(*parts))


def main() -> None:
    """Prints a row for each step."""
    chosen = options(__doc__, {"items": _FEW}, items=1_000_000)
    items, rows = counts(soc.simulation.s1(chosen.items, seed=0)), {}
    for bins, target in _TARGETS.items():
        stats, rows[f"summarize, {bins:,} bins"] = timed(
            lambda b=bins: summarize(items, bins=b), repeats=3
        )
        step = f"fit, {bins:,} bins (target {target})"
        _, rows[step] = timed(lambda s=stats: fit(s), repeats=3)
    of_few = summarize(counts(soc.simulation.s1(_FEW, seed=0)), bins=_BINS)
    for stats in (of_few, billion()) if chosen.items > _FEW else (of_few,):
        step = f"fit, {stats.n_items:,} items, {_BINS} bins"
        _, rows[step] = timed(lambda s=stats: fit(s), repeats=3)
    show(pd.Series(rows, name="CPU s"), digits=3)


if __name__ == "__main__":
    main()
