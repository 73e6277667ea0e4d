"""How results move where the prior or the likelihood counts less or more."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from .._lib.arguments import PROBABILITY, A, checked
from .._lib.arrays import Floats
from ..evaluate.power_scaling import COMPONENTS, THRESHOLD, Sensitivity, rows_of, scaled_weights
from ..inference.results import PARETO_K
from . import canvas
from .arguments import AxesOf

_RESULT = A(Sensitivity, "what soc.sensitivity(fit, stats) returned")
_POWERS = {0.8: canvas.GREEN, 1.0: canvas.CURVE, 1.25: canvas.PURPLE}
_APART = 0.22  # between the lines of one quantity
_NAMES = {"mean": "E(theta | t)", "log_variance": "log Var(theta | t)", "r_squared": "R²"}
_MOST = 12  # quantities with numbers above them


@checked(result=_RESULT, prob=PROBABILITY, axes=AxesOf(2))
def plot_sensitivity(
    result: Sensitivity,
    prob: float = 0.9,
    axes: Sequence[Axes] | NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw how posteriors move where the prior (above) or the likelihood (below) is power-scaled.

    Each quantity has three intervals with a dot at the median: with the density to the power 0.8,
    as it is, and to the power 1.25, in posterior sds from the posterior mean. The number above is
    the sensitivity, bold from 0.05 on. If the prior's intervals hardly move, the result does not
    depend on it. Intervals whose weights have a Pareto k above 0.7 are dotted: do not trust them.

    Parameters
    ----------
    result
        From `soc.sensitivity`.
    prob
        Probability of the intervals, between equal tails.
    axes
        Two axes to draw in; None makes a figure.

    Returns
    -------
    numpy.ndarray
        The two axes.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> result = soc.sensitivity(fit, stats)
    >>> len(soc.plots.plot_sensitivity(result))
    2
    """
    both = canvas.panels_in(axes, (8, 6.5), 2, sharex=True, sharey=True)
    rows = rows_of(result.data["posterior"].to_dataset())
    levels = np.array([(1 - prob) / 2, 0.5, (1 + prob) / 2])
    standard = [(values - values.mean()) / max(values.std(), 1e-300) for _, _, values in rows]
    for ax, name in zip(both, COMPONENTS, strict=True):
        log_density = result.data[f"log_{name}"]["total"].to_numpy()
        for k, (power, color) in enumerate(_POWERS.items()):
            weight, pareto_k = scaled_weights(log_density, power)
            ends = np.array([_quantiles(values, weight, levels) for values in standard])
            good = bool(power == 1.0 or pareto_k <= PARETO_K)
            label = f"to the power {power:g}" if power != 1.0 else "the fit"
            label += "" if good else f" (Pareto k {pareto_k:.1f})"
            at = np.arange(len(rows)) + _APART * (k - 1)
            dots = "solid" if good else "dotted"
            ax.vlines(at, ends[:, 0], ends[:, 2], color=color, linestyle=dots, label=label)
            ax.plot(at, ends[:, 1], "o", color=color, markersize=4)
        ax.margins(y=0.15)
        _numbers(ax, result.table[name].to_numpy())
        canvas.finish(
            ax,
            f"{name.capitalize()} scaled (numbers: sensitivity)",
            "",
            "posterior sds\nfrom the mean",
            False,
        )
        place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.98), "ncols": 3}
        ax.legend(**place, **canvas.FRAMELESS)
    _quantity_axis(both, rows)
    return both


def _quantiles(values: Floats, weight: Floats, levels: Floats) -> Floats:
    """Quantiles of weighted draws."""
    order = np.argsort(values, axis=None)
    share = np.cumsum(weight.ravel()[order])
    return np.interp(levels, share - 0.5 * weight.ravel()[order], values.ravel()[order])


def _numbers(ax: Axes, found: Floats) -> None:
    """Sensitivities above the intervals."""
    if len(found) > _MOST:
        return
    for k, value in enumerate(found):
        high = value >= THRESHOLD
        style: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 8}
        style |= {"weight": "bold"} if high else {"color": canvas.GREY}
        ax.text(k, 0.98, f"{value:.3f}", transform=ax.get_xaxis_transform(), **style)


def _quantity_axis(axes: NDArray[Any], rows: list[tuple[str, float, Floats]]) -> None:
    """Scores as ticks, and below them what the quantities are."""
    ax = axes[-1]
    names = np.array([name for name, _, _ in rows])
    ticks = ["" if np.isnan(score) else f"{score:.3g}" for _, score, _ in rows]
    step = -(-len(ticks) // 24)  # more would overlap
    ax.set_xticks(np.arange(len(ticks))[::step], ticks[::step], rotation=45)
    for name in dict.fromkeys(names):
        at = np.flatnonzero(names == name)
        words = _NAMES[name] + ("" if np.isnan(rows[at[0]][1]) else "\nat the score t")
        style: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 9}
        where = ax.get_xaxis_transform()
        ax.text(at.mean(), -0.22, words, transform=where, **style)
        for panel in axes if at[-1] + 1 < len(rows) else []:
            panel.axvline(at[-1] + 0.5, color=canvas.GREY, linewidth=0.6)
