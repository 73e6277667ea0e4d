"""Grouped passes over valid items: weights of a fine grid of scores, sums over joint cells.

The cells are those of `binning`, written as Ibis expressions that are exact on every engine.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..binning import EXACT_COUNTS, STEPS, ZERO_EXPOSURE, Grid, make_lookup
from .sources import readable

__all__ = [
    "cell_sums",
    "count_cell",
    "exposure_cell",
    "grid_weights",
    "score_cell",
    "with_bins",
]

_WIDE_COUNTS = 48  # 16 * 5 - 32: cells of counts >= 32 go on where the exact ones end


def _log_linear(size: Any, steps: int) -> Any:
    """2^steps times the octave of positive numbers, plus the whole step inside it.

    A logarithm that rounds to the wrong side of a power of two does no harm: the last step of one
    octave meets the first of the next, as long as a step is wider than the logarithm's error.
    """
    import ibis

    octave = size.log2().floor().cast("int64")
    unit = 1 << steps
    step = ((size / (ibis.literal(2.0) ** octave) - 1.0) * float(unit)).floor().cast("int64")
    return octave * unit + step


def _exact(number: float) -> Any:
    """A literal that no engine rounds, as it may when it reads decimals: odd integer times 2^e."""
    import ibis

    whole, below = float(number).as_integer_ratio()
    shift = (whole & -whole).bit_length() - 1 if whole else 0
    exponent = shift - (below.bit_length() - 1)
    odd = ibis.literal(whole >> shift, type="int64").cast("float64")
    return odd * ibis.literal(2.0) ** ibis.literal(exponent, type="int64")


def score_cell(score: Any, grid: Grid, low: float, high: float) -> Any:
    """`Grid.cell` of scores clipped to [low, high], as an Ibis expression."""
    import ibis

    clipped = ibis.least(ibis.greatest(score, _exact(low)), _exact(high))
    least, first = _exact(2.0**grid.floor), (grid.floor << grid.steps) - 1
    if low >= 2.0**grid.floor:
        return _log_linear(clipped, grid.steps) - first
    size = clipped.abs()
    cell = _log_linear(ibis.greatest(size, least), grid.steps) - first
    return (size >= least).ifelse((clipped > 0).ifelse(1, -1) * cell, 0)


def exposure_cell(exposure: Any) -> Any:
    """`binning.exposure_cell` as an Ibis expression."""
    positive = exposure > 0
    return positive.ifelse(_log_linear(positive.ifelse(exposure, 1.0), STEPS), ZERO_EXPOSURE)


def count_cell(count: Any) -> Any:
    """`binning.count_cell` as an Ibis expression."""
    import ibis

    wide = _log_linear(ibis.greatest(count, EXACT_COUNTS).cast("float64"), STEPS)
    return (count < EXACT_COUNTS).ifelse(count, wide - _WIDE_COUNTS)


def grid_weights(
    table: Any, grid: Grid, low: float, high: float, weight: str | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Occupied cells of scores clipped to [low, high], rising, and their weights.

    Parameters
    ----------
    table
        `Scan.table`.
    grid, low, high
        The cells.
    weight
        Column whose sum weighs; None counts the items.
    """
    cell = score_cell(table.score, grid, low, high)
    total = table.count() if weight is None else table[weight].sum().cast("float64")
    found = table.group_by(cell=cell).aggregate(weight=total)
    with readable():
        arrow = found.to_pyarrow()
    cells = arrow["cell"].to_numpy().astype(np.int64)
    order = np.argsort(cells)
    return cells[order], arrow["weight"].to_numpy().astype(float)[order]


def with_bins(table: Any, edges: NDArray[np.float64]) -> Any:
    """The table with the column ``bin``: [e_k, e_k+1) is bin k + 1, outer bins are open.

    Parameters
    ----------
    table
        `Scan.table`.
    edges
        Interior edges, strictly rising.
    """
    import ibis

    if len(edges) == 0:
        return table.mutate(bin=ibis.literal(0, type="int64"))
    lookup = make_lookup(edges)
    if lookup is None:  # edges too close for a grid: compare with every one
        passed = [(table.score >= _exact(edge)).cast("int64") for edge in edges]
        while len(passed) > 1:  # as a tree, for engines that limit an expression's depth
            passed = [sum(passed[i + 1 : i + 2], passed[i]) for i in range(0, len(passed), 2)]
        return table.mutate(bin=passed[0])
    import pyarrow as pa

    rows = ibis.memtable(pa.table({"cell": lookup.cell, "below": lookup.below, "cut": lookup.cut}))
    cell = score_cell(table.score, lookup.grid, lookup.low, lookup.high)
    joined = table.mutate(cell=cell).inner_join(rows, "cell")
    return joined.mutate(bin=joined.below + (joined.score >= joined.cut).cast("int64"))


def cell_sums(table: Any, edges: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Sums over joint cells of bin, exposure and count: columns by name, in no set order.

    Parameters
    ----------
    table
        `Scan.table`.
    edges
        Interior edges, strictly rising.
    """
    binned = with_bins(table, edges)
    keyed = binned.mutate(
        exposure_cell=exposure_cell(binned.exposure), count_cell=count_cell(binned["count"])
    )
    t, y, x = keyed.score, keyed["count"], keyed.exposure
    real = y.cast("float64")
    log_t = (t > 0).ifelse(t, 1.0).ln()
    log_x = (y > 0).ifelse(x, 1.0).ln()
    sums = {
        "sum_N": x,
        "sum_N2": x * x,
        "sum_y": y,
        "sum_y2": real * real,
        "sum_yN": real * x,
        "sum_yN2": real * x * x,
        "sum_t": t,
        "sum_t2": t * t,
        "sum_log_t": log_t,
        "sum_log_t2": log_t * log_t,
        "sum_N_t": x * t,
        "sum_N_log_t": x * log_t,
        "sum_y_log_N": real * log_x,
    }
    grouped = keyed.group_by("bin", "exposure_cell", "count_cell").aggregate(
        n=keyed.count(),
        score_min=t.min(),
        score_max=t.max(),
        **{name: value.sum() for name, value in sums.items()},
    )
    with readable():
        arrow = grouped.to_pyarrow()
    whole = {"bin", "exposure_cell", "count_cell", "n", "sum_y"}
    return {
        name: arrow[name].to_numpy().astype(np.int64 if name in whole else np.float64)
        for name in arrow.column_names
    }
