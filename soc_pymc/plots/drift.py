"""How curves moved from day to day."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy import special

from .._lib.arguments import PROBABILITY, A, checked
from ..checks._drift import PARTS, Drift
from ..families.family import family_of
from . import canvas
from .arguments import AxesOf

_RESULT = A(Drift, "what soc.drift(stats) returned")


@checked(result=_RESULT, prob=PROBABILITY, axes=AxesOf(len(PARTS)))
def plot_drift(
    result: Drift,
    prob: float = 0.9,
    axes: Sequence[Axes] | NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw how level, slope and spread departed from the fit's curves, day by day.

    The band is what all days together say of each day, and the dots are what was known on its
    evening. Dashed lines are days with an alarm.

    Parameters
    ----------
    result
        From `soc.drift`.
    prob
        Probability of the bands, day by day.
    axes
        Three axes to draw in; None makes a figure.

    Returns
    -------
    numpy.ndarray
        The three axes.

    Examples
    --------
    >>> import pandas as pd
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(3000, seed=0)
    >>> frame["day"] = pd.date_range("2026-03-01", periods=10).repeat(300)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> stats = soc.summarize(items, bins=20, date="day")
    >>> len(soc.plots.plot_drift(soc.drift(stats)))
    3
    """
    three = canvas.panels_in(axes, (8, 7), len(PARTS), sharex=True)
    data, table = result.data, result.table
    day = table["day"].to_numpy()
    first, second = (name.replace("_", " ") for name in family_of(result.fit.prior).curves)
    units = (first, f"{first}, a score one sd higher", second)
    for ax, part, unit in zip(three, PARTS, units, strict=True):
        mean, sd = table[part].to_numpy(), table[f"{part}_sd"].to_numpy()
        half = special.ndtri((1 + prob) / 2) * sd
        ax.fill_between(day, mean - half, mean + half, color=canvas.CURVE, alpha=0.25, linewidth=0)
        ax.plot(day, mean, color=canvas.CURVE, label="all days")
        evening = data["filtered"].sel(part=part).to_numpy()
        ax.plot(day, evening, ".", color=canvas.BESIDE, label="up to the day")
        ax.axhline(0.0, color=canvas.REFERENCE, linewidth=0.6)
        for alarm in result.alarms:
            ax.axvline(np.datetime64(alarm), color=canvas.APART, linestyle="dashed")
        canvas.finish(ax, f"{part.capitalize()}: departure of {unit}", "", "", part == PARTS[0])
    three[-1].tick_params(axis="x", rotation=30)
    return three
