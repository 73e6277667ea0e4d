"""Whether a fit's time depends on the number of items behind its statistics."""

import soc_pymc as soc
from tests.bench.timing import Report, cpu

__all__ = ["bench"]

_BINS, _FEW = 200, 20_000
_CHUNK, _CHUNKS, _DOUBLINGS = 10_000_000, 2, 6
_BILLION_CHUNKS = 100
_TARGET = 2.0


def bench(report: Report, billion: bool) -> None:
    """Fit statistics of 20,000 and of a billion items in the same number of bins."""
    report.section(f"the same {_BINS} bins, other numbers of items (target: within {_TARGET:.0f}x)")
    few = _simulated(_FEW, seed=0, bins=_BINS)
    many = _billion(billion, report)
    short, long = (_fitted(stats, report) for stats in (few, many))
    report.say(f"ratio {long / short:.2f}")


def _fitted(stats: soc.Statistics, report: Report) -> float:
    """CPU seconds of a fit, printed with the number of cells that the fit sees."""
    seconds, fit = cpu(lambda: soc.fit(stats, progress=False))
    exposures, counts = (
        len(cells()[0]) / stats.bins for cells in (stats.exposure_cells, stats.count_cells)
    )
    note = f"a bin has {exposures:.0f} cells of exposure, {counts:.0f} of counts"
    report.line(f"fit, {stats.n_items:,} items", seconds, f"{note}; {fit.status.reason}")
    return seconds


def _billion(billion: bool, report: Report) -> soc.Statistics:
    """A billion items, all simulated or some of them over and over.

    A fit's cost depends on the distinct exposures and counts of a bin, of which doubling adds none.
    """
    chunks = _BILLION_CHUNKS if billion else _CHUNKS
    edges = _simulated(1_000_000, seed=1, bins=_BINS).edges
    total = _simulated(_CHUNK, seed=2, edges=edges)
    for chunk in range(1, chunks):
        total = total + _simulated(_CHUNK, seed=2 + chunk, edges=edges)
    if billion:
        report.say(f"{total.n_items:,} items were simulated, {_CHUNK:,} at a time")
        return total
    simulated = total.n_items
    for _ in range(_DOUBLINGS):
        total = total + total
    report.say(
        f"{simulated:,} items were simulated and their statistics added to themselves "
        f"{_DOUBLINGS} times, which adds items but no cells: the ratio is too low, and --billion, "
        "which simulates every item, gives the right one"
    )
    return total


def _simulated(items: int, seed: int, **options: object) -> soc.Statistics:
    frame = soc.simulation.s1(items, seed=seed)[["score", "count", "exposure"]]
    roles = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    return soc.summarize(roles, progress=False, **options)
