"""How much of the variance of theta scores explain, as posteriors, and how far scores differ."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from .._lib.arguments import numbers_of
from .._lib.errors import FitError
from .arguments import need_ax, need_prob, one_of
from .style import BLUE, GREY, escaped, number_of, tidy

__all__ = ["plot_r_squared", "plot_score_comparison"]

Floats = NDArray[np.float64]

_GRID = 200  # points of a density
_HEIGHT = 0.62  # of the highest density, in rows
_SAME = 1e-9  # spread of draws, over their size, below which they are one number

_COMPARED = {  # label of the axis, and of the side on which a score is better
    "r_squared": ("R²(score) - R²({})", "more"),
    "unexplained": (
        "E Var(theta | score) - E Var(theta | {})\nin the square of the unit of theta",
        "less",
    ),
}


def plot_r_squared(
    draws: xr.DataArray | xr.Dataset | Mapping[str, xr.DataArray | xr.Dataset],
    prob: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Draw the posterior of R^2, the share of the variance of theta that a score explains.

    Each score or fit has a row: the posterior density, the median as a dot and the interval as a
    line; numbers stand at the right. Densities are scaled to equal heights. A fit that has a single
    draw, as those of `soc.FiveSteps`, is a dot alone.

    Parameters
    ----------
    draws
        From `soc.quantities.r_squared` or `soc.quantities.variance_parts`; or a dict of several, by
        the names of the scores or fits.
    prob
        Probability of the intervals, between equal tails.
    ax
        Axes to draw in; None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    FitError
        If there are no such draws, `prob` is not between 0 and 1, or `ax` is no axes.

    Notes
    -----
    R^2 is that of Section 5.1 of Muralidharan and Najmi. That two intervals overlap does not say
    that two scores of the same items are equally good, as their errors go together: see
    `plot_score_comparison`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> fit = soc.fit(soc.summarize(items, progress=False), progress=False)
    >>> soc.plots.plot_r_squared(soc.quantities.r_squared(fit)).get_xlabel()
    'R²: share of Var(theta) that the score explains'
    """
    need_prob(prob)
    need_ax(ax)
    given = draws if isinstance(draws, Mapping) and not isinstance(draws, xr.Dataset) else None
    named = {"": draws} if given is None else given
    rows = {str(name): _r_squared(found) for name, found in named.items()}
    if not rows:
        raise FitError("there are no draws of R² to draw: give those of soc.quantities.r_squared")
    ax = _rows(rows, prob, ax, "{:.3f}".format)
    ax.set_xlabel("R²: share of Var(theta) that the score explains")
    title = f"Posterior of R² ({_held(rows)}; dot: median, line: {prob:.0%} interval)"
    ax.set_title(title, fontsize=10, loc="left")
    return ax


def plot_score_comparison(
    compared: xr.Dataset,
    quantity: Literal["r_squared", "unexplained"] = "r_squared",
    prob: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Draw by how much scores of the same items differ from the first of them, with certainty.

    Each score but the first has a row: the posterior density of the difference, its median as a dot
    and its interval as a line. At the right stand the numbers, and the probability that the score
    is better than the first, which is the line at 0.

    Parameters
    ----------
    compared
        From `soc.quantities.compare_scores`.
    quantity
        ``"r_squared"``, more of which is better, or ``"unexplained"``, E Var(theta|score), less of
        which is.
    prob
        Probability of the intervals, between equal tails.
    ax
        Axes to draw in; None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    FitError
        If there is no such comparison or quantity, `prob` is not between 0 and 1, or `ax` is no
        axes.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> import soc_pymc as soc
    >>> more = np.random.default_rng(0).normal(0.02, 0.005, (1, 400))
    >>> compared = xr.Dataset(
    ...     {"r_squared": (("score", "draw"), more)}, {"score": ["new"]}, {"reference": "old"})
    >>> ax = soc.plots.plot_score_comparison(compared)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['new']
    """
    one_of(quantity, "quantity", tuple(_COMPARED))
    need_prob(prob)
    need_ax(ax)
    rows = _differences(compared, quantity)
    name = escaped(compared.attrs.get("reference", "first score"))
    label, better = _COMPARED[quantity]
    sign = 1.0 if better == "more" else -1.0
    chance = [f", P(better) {_percent(np.mean(sign * own > 0))}" for own in rows.values()]
    ax = _rows(rows, prob, ax, _signed, chance)
    ax.axvline(0, color=GREY, linewidth=1.2, linestyle="--", label=name)
    ax.set_xlabel(label.format(name))
    title = f"Scores against {name} ({_held(rows)}; line: {prob:.0%} interval; {better} is better)"
    ax.set_title(title, fontsize=10, loc="left")
    return ax


def _differences(compared: Any, quantity: str) -> dict[str, Floats]:
    """Draws of the differences from the first score, by the others' names."""
    if (
        not isinstance(compared, xr.Dataset)
        or not {quantity, "score"} <= set(compared.variables)
        or set(compared[quantity].dims) != {"score", "draw"}
        or not compared[quantity].size
    ):
        raise FitError(f"compared must come from soc.quantities.compare_scores, with {quantity}")
    values = numbers_of(compared[quantity].transpose("score", "draw").to_numpy(), "compared")
    return dict(zip(map(str, compared["score"].to_numpy()), values, strict=True))


def _r_squared(found: Any) -> Floats:
    """Draws of R^2, one after the other."""
    if isinstance(found, xr.Dataset) and "r_squared" in found:
        found = found["r_squared"]
    if (
        not isinstance(found, xr.DataArray)
        or set(found.dims) != {"chain", "draw"}
        or not found.size
    ):
        raise FitError(
            "draws must come from soc.quantities.r_squared, with dims chain and draw, or be a dict "
            "of such; two scores of compare_scores are drawn by soc.plots.plot_score_comparison"
        )
    return numbers_of(found.transpose("chain", "draw").to_numpy(), "draws").ravel()


def _rows(
    rows: Mapping[str, Floats],
    prob: float,
    ax: Axes | None,
    digits: Callable[[float], str],
    more: Sequence[str] = (),
) -> Axes:
    """A row for each set of draws, the first on top: density, interval, median and numbers."""
    if ax is None:
        size = (7.5, 1.1 + 0.8 * len(rows))
        _, ax = plt.subplots(figsize=size, layout="constrained")
    for k, (own, words) in enumerate(zip(rows.values(), more or ("",) * len(rows), strict=True)):
        _one_row(ax, -k, own, prob, digits, words)
    ax.set_yticks(-np.arange(len(rows)), [escaped(name, 28) for name in rows])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(-len(rows) + 0.6, 0.8)
    ax.margins(x=0.06)
    tidy(ax)
    ax.grid(visible=False, axis="y")
    ax.spines["left"].set_visible(False)
    return ax


def _one_row(
    ax: Axes, y: float, own: Floats, prob: float, digits: Callable[[float], str], words: str
) -> None:
    low, middle, high = np.quantile(own, [(1 - prob) / 2, 0.5, (1 + prob) / 2])
    text = digits(middle)
    # draws that are all one number have no density
    if len(own) > 1 and np.ptp(own) > _SAME * max(1e-300, float(np.abs(own).max())):
        across = np.linspace(own.min(), own.max(), _GRID)
        density = stats.gaussian_kde(own)(across)
        top = y + _HEIGHT * density / density.max()
        ax.fill_between(across, y, top, color=BLUE, alpha=0.25, linewidth=0)
        ax.hlines(y, low, high, color=BLUE, linewidth=2.4)
        text += f" ({digits(low)} to {digits(high)}){words}"
    ax.plot(middle, y, "o", color=BLUE, markersize=6)
    style: dict[str, Any] = {"fontsize": 8, "ha": "right", "va": "top"}
    place: dict[str, Any] = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points"}
    ax.annotate(text, (1, y), (0, -4), **place, **style)


def _held(rows: Mapping[str, Floats]) -> str:
    """Number of draws, or the least and the most of several."""
    number = [len(values) for values in rows.values()]
    several = f"{min(number):,} to " if min(number) < max(number) else ""
    return several + number_of(max(number), "draw")


def _signed(value: float) -> str:
    """A difference with three digits."""
    return f"{value:+#.3g}".rstrip(".")


def _percent(share: ArrayLike) -> str:
    """A probability in percent; never 0 or 100, which draws cannot tell."""
    number = float(np.asarray(share))
    if 0.001 <= number <= 0.999:
        return f"= {number:.1%}"
    return "> 99.9%" if number > 0.5 else "< 0.1%"
