"""What a prior says of curves and outcomes, before any outcome is seen."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from .._lib.arguments import A, Whole, checked
from .._lib.arrays import Floats
from .._lib.errors import FitError
from ..families.family import FAMILIES
from ..families.outcomes import Outcome
from ..families.scales import LINEAR, LOG
from . import style

_RESULT = A(xr.DataTree, "what soc.prior_predictive(prior, stats) returned")
_PROBS = (0.05, 0.5, 0.95)
_SHOWN = (0.01, 0.99)  # of the curves, on a scale of positive values
_LEVELS = np.linspace(0.0, 1.0, 201)  # of the outcomes' distributions
_FEW = 10.0  # counts up to here lie evenly, more on a logarithmic axis
_LINE: dict[str, Any] = {"color": style.CURVE, "linewidth": 0.7, "alpha": 0.4}


@checked(result=_RESULT, lines=Whole(1))
def plot_prior_predictive(
    result: xr.DataTree,
    lines: int = 40,
    axes: Sequence[Axes] | NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw E(theta | t) (left) and the distribution of the items' outcomes (right) under a prior.

    Each thin line is one draw from the prior; the thick line is the median over all draws, the band
    holds the central 90% of them.

    Parameters
    ----------
    result, lines
        From `soc.prior_predictive`; and the number of draws with a thin line.
    axes
        Two axes to draw in; None makes a figure.

    Returns
    -------
    numpy.ndarray
        The two axes.

    Raises
    ------
    FitError
        If `result` is not from `soc.prior_predictive`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> result = soc.prior_predictive(soc.Gamma(), stats)
    >>> len(soc.plots.plot_prior_predictive(result))
    2
    """
    outcome, curves, drawn = _contents(result)
    both = style.panels(axes, (8, 4), 1, 2)
    mean = _by_draw(curves["mean"])
    score = curves["score"].to_numpy()
    _draw(both[0], score, mean, lines, along_x=True)
    if style.is_rate(score):
        style.scaled_axis(both[0].xaxis, LOG.name, score[0], score[-1])
    if outcome.theta is not LINEAR:
        low, high = map(float, np.quantile(mean, _SHOWN))
        style.scaled_axis(both[0].yaxis, outcome.theta.name, low, high)
        both[0].set_ylim(low, high)
    style.finish(both[0], "Curves drawn from the prior", "score", "E(theta | score)", False)
    sorted_outcomes = np.quantile(_by_draw(drawn), _LEVELS, axis=1, method="inverted_cdf").T
    _draw(both[1], _LEVELS, sorted_outcomes, lines, along_x=False)
    if outcome.positive:
        both[1].set_xscale("symlog", linthresh=_FEW)
        both[1].set_xlim(0.0, None)
    words = f"{outcome.words.outcome} of an item"
    items = style.number_of(drawn.sizes["item"], "item")
    style.finish(both[1], f"Outcomes of {items}", words, "share of items at or below")
    return both


def _contents(result: xr.DataTree) -> tuple[Outcome, xr.Dataset, xr.DataArray]:
    """The kind of outcome, the curves and the outcomes."""
    outcomes = {family.outcome.observed: family.outcome for family in FAMILIES.values()}
    if {"prior", "prior_predictive"} <= set(result.children):
        curves, drawn = (result[g].to_dataset() for g in ("prior", "prior_predictive"))
        names = [str(name) for name in drawn.data_vars if name in outcomes]
        if names and "item" in drawn.dims and "mean" in curves:
            return outcomes[names[0]], curves, drawn[names[0]]
    raise FitError("result must be what soc.prior_predictive(prior, stats) returned")


def _by_draw(values: xr.DataArray) -> Floats:
    array = values.transpose("chain", "draw", ...).to_numpy()
    return np.asarray(array.reshape(-1, array.shape[-1]), dtype=float)


def _draw(ax: Axes, across: Floats, values: Floats, lines: int, along_x: bool) -> None:
    """Lines of some draws, and the median and band of all, of values over or beside `across`."""
    low, middle, high = np.quantile(values, _PROBS, axis=0)
    number = min(lines, len(values))
    some = values[np.arange(number) * len(values) // number]

    def plot(line: Floats, **look: Any) -> None:
        ax.plot(*((across, line) if along_x else (line, across)), **look)

    for k, line in enumerate(some):
        plot(line, label=None if k else "draws from the prior", **_LINE)
    fill = ax.fill_between if along_x else ax.fill_betweenx
    fill(across, low, high, color=style.CURVE, alpha=0.12, linewidth=0, label="90% of the draws")
    plot(middle, color=style.CURVE, linewidth=2.6, label="median")
