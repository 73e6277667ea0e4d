"""The shape of amounts, from the squares of single amounts.

Given their sum, the n amounts of an item are shares of a Dirichlet law, whatever the item's theta:
the sum of the squared shares has mean (k + 1) / (n k + 1) at shape k. The estimate solves the
optimal estimating equation for these sums (Godambe 1960).
"""

import numpy as np
from scipy import optimize

from .._lib.arguments import ItemsError
from .._lib.arrays import Floats, Pair
from .sources import Source, open_table, readable

LEAST_SHAPE = 1e-3
MOST_SHAPE = 1e6
_ROUNDING = 1e-9  # relative, of sums of squares


def shape_of(
    source: Source, amount: str, events: str, squares: str, *, averaged: bool
) -> float:
    """Shape of the amounts of a table, one pass over which gives sums by number of events.

    Amounts are sums over events, or their averages if `averaged`.
    """
    table = open_table(source, [amount, events, squares])
    with readable(source):
        for name in (amount, events, squares):
            kind = table[name].type()
            if not kind.is_numeric():
                raise ItemsError(f"column {name!r} must hold numbers, not {kind}")
        y, n, square = (
            table[name].cast("float64") for name in (amount, events, squares)
        )
        rows = table.select(events=n, total=n * y if averaged else y, square=square)
        rows = rows.filter(rows["events"] >= 2, rows["total"] > 0)
        share = rows["square"] / rows["total"] / rows["total"]
        # at most that of one amount, at least that of equal amounts
        is_possible = (share <= 1.0 + _ROUNDING) & (
            share * rows["events"] >= 1.0 - _ROUNDING
        )
        rows = rows.mutate(share=share, bad=~is_possible.fill_null(False))
        by_events = rows.group_by("events").aggregate(
            items=rows.count(), share=rows["share"].sum(), bad=rows["bad"].sum()
        )
        sums = by_events.to_pyarrow().to_pydict()
    number = sum(sums["items"])
    if not number:
        raise ItemsError(
            f'shape="estimate" needs items of 2 or more events, and column {events!r} has none '
            "with a positive amount: give a number"
        )
    if bad := sum(sums["bad"]):
        raise ItemsError(
            f"column {squares!r} must be the sum of the squares of an item's single amounts, from "
            f"its amount^2 / events to its amount^2: {bad:,} of {number:,} items of 2 or more "
            "events are beyond"
        )
    n, items, shares = (
        np.array(sums[name], float) for name in ("events", "items", "share")
    )
    return estimated_shape(n, items, shares, squares)


def moments(n: Floats, k: float) -> Pair:
    """Mean and variance of the sum of the squared shares of n amounts of shape k."""
    total = n * k
    mean = (k + 1.0) / (total + 1.0)
    variance = 2.0 * k * (n - 1.0) / (total + 1.0) / (total + 2.0) / (total + 3.0)
    return mean, variance * mean


def estimated_shape(n: Floats, items: Floats, shares: Floats, name: str) -> float:
    """Shape from items and their sums of squared shares by number of events n."""

    def excess(log_k: float) -> float:
        k = float(np.exp(log_k))
        mean, variance = moments(n, k)
        slope = (n - 1.0) / (n * k + 1.0) ** 2
        return float((slope / variance) @ (shares - items * mean))

    ends = np.log(LEAST_SHAPE), np.log(MOST_SHAPE)
    least, most = map(excess, ends)
    if not least < 0.0 < most:
        way = "hardly" if most <= 0.0 else "too much"
        raise ItemsError(
            f'shape="estimate": by column {name!r} the amounts of an item differ {way}: give a '
            f"number between {LEAST_SHAPE:g} and {MOST_SHAPE:g}"
        )
    return float(np.exp(optimize.brentq(excess, *ends, xtol=1e-12)))
