"""What sums of cells must fulfil to be of any items at all: ranges, inequalities, equal totals.

Statistics that were changed outside of this package, one column taken for another, do not.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..families.outcomes import Outcome
from ..families.validity import LEAST_SD
from .binning import MOST_VALUE_CELL, count_cell_range, exposure_cell_range, value_cell_range

__all__ = ["check_coherent"]

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]
Range = tuple[Any, Any]

_ROUNDING = 1e-9  # of sums, relative to those of absolute values: a billion items err by less
_TINY = 1e-290  # below which products of small numbers have lost their digits


def check_coherent(
    tables: Mapping[str, Columns], schema: Outcome, edges: Floats, coarse: int
) -> None:
    """Refuse tables of sums that no items have.

    Parameters
    ----------
    tables
        Columns by table, with whole-number keys in their ranges.
    schema
        Of the kind of items.
    edges
        Interior edges of the bins.
    coarse
        Bins in one bin of the joint cells; 0 where there are none.

    Raises
    ------
    ValueError
        Names the first column at fault.
    """
    # sums of cubes of large numbers may well be infinite, and are then compared as such
    with np.errstate(all="ignore"):
        real = {}
        for name, table in tables.items():
            keys = schema.tables[name].keys
            _check_keys(name, table, keys)
            real[name] = {c: v if c in keys else v.astype(float) for c, v in table.items()}
            for column, low, high in _ranges(name, real[name], schema, edges):
                _check_range(f"{name}_{column}", real[name][column], low, high)
        _check_totals(real, schema, coarse)
        if schema.kind == "poisson":
            _check_logs(real)


def _check_range(name: str, values: Floats, low: Any, high: Any) -> None:
    """Refuse values beyond their bounds by more than rounding; a bound that is NaN bounds none."""
    ends = [np.broadcast_to(np.asarray(end, dtype=float), values.shape) for end in (low, high)]
    slack = _ROUNDING * np.fmax(abs(ends[0]), abs(ends[1])) + _TINY
    slack = np.where(np.isfinite(slack), slack, 0.0)
    beyond = (values < ends[0] - slack) | (values > ends[1] + slack)
    missing = np.isnan(values) & ~(name.startswith("part_sum_log") & np.isnan(ends[0]))
    if (beyond | missing).any():
        raise ValueError(f"{name} is not possible beside the other columns")


def _check_keys(name: str, table: Columns, keys: Sequence[str]) -> None:
    """Rows are in the order of their keys, each key once."""
    order = np.lexsort([table[key] for key in reversed(keys)])
    same = np.ones(max(len(order) - 1, 0), dtype=bool)
    for key in keys:
        same &= table[key][1:] == table[key][:-1]
    if same.any() or (order != np.arange(len(order))).any():
        raise ValueError(f"the rows of {name} are not in the order of their keys, each once")


# --- ranges --------------------------------------------------------------------------------------


def _ranges(
    name: str, table: Columns, schema: Outcome, edges: Floats
) -> Iterator[tuple[str, Any, Any]]:
    """Columns of a table with the least and the most that they can be."""
    yield "n", np.ones(len(table["n"])), np.inf
    if schema.kind == "poisson":
        yield "sum_y", 0.0, np.inf
    elif name == "joint":
        yield from _of_values(table)
    else:
        yield "sum_y2", 0.0, np.inf
        yield "sum_y", *_within(np.sqrt(table["n"] * table["sum_y2"]))
    if name == "part":
        yield from _of_scores(table, edges)
        if schema.kind == "poisson":
            yield "sum_N", 0.0, np.inf
            yield "above", 0.0, table["n"]
        else:
            yield "sum_s2", 0.0, np.inf
        return
    for column in table:
        if column.endswith("cell") and column != "value_cell":
            kind = column if column != "cell" else f"{name}_cell"
            yield from (_of_counts if kind == "count_cell" else _of_sizes)(table, column)


def _within(most: Any) -> Range:
    return -most, most


def _of_scores(table: Columns, edges: Floats) -> Iterator[tuple[str, Any, Any]]:
    """Scores lie in their bins, and their sums between those of the least and the largest."""
    n, low, high = (table[c] for c in ("n", "score_min", "score_max"))
    ends = np.concatenate([[-np.inf], edges, [np.inf]])
    yield "score_min", ends[table["bin"]], high
    yield "score_max", low, np.nextafter(ends[table["bin"] + 1], -np.inf)
    if not (np.isfinite(low) & np.isfinite(high)).all():
        raise ValueError("part_score_min or part_score_max is not finite")
    yield "sum_t", n * low, n * high
    largest = np.maximum(low**2, high**2)
    yield "sum_t2", table["sum_t"] ** 2 / n, n * largest
    seen = low > 0
    logs = [np.log(np.where(seen, end, 1.0)) for end in (low, high)]
    for column, least, most in (
        ("sum_log_t", n * logs[0], n * logs[1]),
        ("sum_log_t2", 0.0, n * np.maximum(logs[0] ** 2, logs[1] ** 2)),
    ):
        values = table[column]
        if not np.isnan(values[~seen]).all():
            raise ValueError(f"part_{column} has numbers where scores have no logarithm")
        yield column, np.where(seen, least, values), np.where(seen, most, values)


def _of_counts(table: Columns, cell: str) -> Iterator[tuple[str, Any, Any]]:
    """Counts lie in their cells."""
    low, width = count_cell_range(table[cell])
    high = low + width
    for power in (1, 2, 3):
        column = "sum_y" if power == 1 else f"sum_y{power}"
        yield column, table["n"] * low**power, table["n"] * high**power
    yield "sum_y2", table["sum_y"] ** 2 / table["n"], np.inf


def _of_sizes(table: Columns, cell: str) -> Iterator[tuple[str, Any, Any]]:
    """Exposures, or squared noise sds, lie in their cells, and so do their means over outcomes."""
    low, width = exposure_cell_range(table[cell])
    high = low + width
    letter, weights = "N", ("n", "sum_y")
    if "sum_w" in table:
        low, high, letter, weights = low**2, high**2, "w", ("n", "sum_y2")
    for weight in weights:
        for power in (1, 2, 3):
            column = _times(weight, letter, power)
            if column in table:
                yield column, table[weight] * low**power, table[weight] * high**power
    for power in (1, 2, 3):
        column = _times("sum_y", letter, power)
        if letter == "w" and column in table:  # y has either sign
            one, two = (_times(weight, letter, power) for weight in weights)
            yield column, *_within(np.sqrt(table[one] * table[two]))
            middle, half = (low**power + high**power) / 2, (high**power - low**power) / 2
            about, most = middle * table["sum_y"], half * np.sqrt(table["n"] * table["sum_y2"])
            yield column, about - most, about + most
    if letter == "N":
        mean = table["sum_y"] / table["n"]
        yield "sum_y2", table["sum_y"] * np.maximum(mean, 1.0), table["sum_y"] ** 2


def _times(weight: str, letter: str, power: int) -> str:
    """Name of the sum of a weight times a power of the size."""
    stem = "sum_" if weight == "n" else weight
    return f"{stem}{letter}" + (str(power) if power > 1 else "")


def _of_values(table: Columns) -> Iterator[tuple[str, Any, Any]]:
    """Values lie in their cells."""
    low, width = value_cell_range(table["value_cell"], table["noise_cell"])
    cell, n = table["value_cell"], table["n"]
    # the outermost cells have no end, and values all but 0 count as 0
    high = np.where(cell >= MOST_VALUE_CELL, np.inf, low + width)
    low = np.where(cell <= -MOST_VALUE_CELL, -np.inf, low - LEAST_SD)
    yield "sum_y", n * low, n * high
    yield "sum_y3", n * low**3, n * high**3
    yield "sum_y2", table["sum_y"] ** 2 / n, n * np.maximum(low**2, high**2)


# --- totals --------------------------------------------------------------------------------------


def _check_totals(tables: Mapping[str, Columns], schema: Outcome, coarse: int) -> None:
    """A sum that several tables keep has the same total in each group, fold and bin of each."""
    names = [*schema.margins] + (["joint"] if coarse else [])
    for name in names:
        for other in ("part", *schema.margins):
            if other == name:
                continue
            keys = ("group", "bin") if name == "joint" else ("group", "fold", "bin")
            one, two = (_in_bins(tables[t], t, keys, coarse) for t in (name, other))
            code = np.unique(np.concatenate([one, two]), axis=0, return_inverse=True)[1]
            at = code.ravel()[: len(one)], code.ravel()[len(one) :]
            for column, own, its, scale in _shared(tables[name], tables[other], schema):
                size = int(code.max(initial=-1)) + 1
                mine, there, both = (
                    np.bincount(k, values, size)
                    for k, values in zip((*at, at[1]), (own, its, scale), strict=True)
                )
                apart = abs(mine - there) > _ROUNDING * both + _TINY
                if (apart | (np.isfinite(mine) != np.isfinite(there))).any():
                    raise ValueError(f"the cells do not add up: {name}_{column} and {other} differ")


def _in_bins(table: Columns, name: str, keys: Sequence[str], coarse: int) -> NDArray[Any]:
    """Keys of each row, with bins as wide as those of joint cells where these are compared."""
    wide = coarse if keys == ("group", "bin") and name != "joint" else 1
    return np.stack([table[k] // wide if k == "bin" else table[k] for k in keys], axis=1)


def _shared(one: Columns, two: Columns, schema: Outcome) -> Iterator[tuple[str, Any, Any, Any]]:
    """Columns that two tables have, with the sizes of the second's sums before they cancel."""
    for column in one:
        its = "sum_s2" if column == "sum_w" and "sum_s2" in two else column
        if its not in two or (column != "n" and not column.startswith("sum_")):
            continue
        scale = abs(two[its])
        if column == "sum_y" and schema.kind == "normal":  # values of either sign
            scale = np.sqrt(two["n"] * two["sum_y2"])
        yield column, one[column], two[its], scale


def _check_logs(tables: Mapping[str, Columns]) -> None:
    """Sums of y log N lie between those of the cells' ends."""
    part, cells = tables["part"], tables["exposure"]
    keys = ("group", "fold", "bin")
    both = [np.stack([t[k] for k in keys], axis=1) for t in (part, cells)]
    code = np.unique(np.concatenate(both), axis=0, return_inverse=True)[1].ravel()
    low, width = exposure_cell_range(cells["cell"])
    seen = (cells["sum_y"] > 0) & (low > 0)
    least, most = (
        np.bincount(
            code[len(part["n"]) :],
            np.where(seen, cells["sum_y"] * np.log(np.where(seen, end, 1.0)), 0.0),
            int(code.max(initial=-1)) + 1,
        )[code[: len(part["n"])]]
        for end in (low, low + width)
    )
    slack = _ROUNDING * (abs(least) + abs(most) + part["sum_y"]) + _TINY
    found = part["sum_y_log_N"]
    if not ((found >= least - slack) & (found <= most + slack)).all():
        raise ValueError("part_sum_y_log_N is not possible beside the other columns")
