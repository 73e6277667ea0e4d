"""How near estimates come to the truth of a simulation, bin by bin, over its parameters."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from .._lib.arguments import OneOf, OrNone, checked, switch
from .._lib.errors import FitError
from . import canvas
from .arguments import AxesOf, need_columns

_QUANTITIES = {  # column, with the column of the truth where there is one, and the label
    "mean": ("true_mean", "E(theta | t)"),
    "variance": ("true_variance", "Var(theta | t)"),
    "mean_error": (None, "squared error of E(theta | t, y)\n/ {mean}²"),
    "variance_error": (None, "squared error of Var(theta | t, y)\n/ {mean}⁴"),
}
_OF_ALL = {  # estimators that are the same whatever the method; dashes show beside dots
    "mse_y": ("y alone", (canvas.OBSERVED, ".")),
    "mse_t": ("t", (canvas.GIVEN, ".")),
    "mse_true_mean": ("true E(theta | t)", (canvas.BESIDE, "_")),
}
_OF_METHOD = {
    "mse_mean": ("fitted E(theta | t)", canvas.PURPLE),
    "mse_posterior": ("fitted E(theta | t, y)", canvas.CURVE),
}


@checked(quantity=OneOf(*_QUANTITIES), axes=AxesOf())
def plot_accuracy(table: pd.DataFrame, quantity: str = "mean", axes: Any = None) -> NDArray[Any]:
    """Draw estimates of every bin beside the truth, or the in-bin errors of item posteriors.

    Section 5.2 of Muralidharan and Najmi.

    Parameters
    ----------
    table
        From `soc.evaluate.accuracy`. Its standard errors are drawn as bars, where it has them.
    quantity
        ``"mean"`` or ``"variance"`` of theta given t, estimated and true; ``"mean_error"`` or
        ``"variance_error"``, in-bin averages of the squared error of E or Var(theta | t, y) over
        powers of E(theta | t), for values of Sd(theta | t).
    axes
        Axes to draw in, as many as the grid has; None makes a figure.

    Returns
    -------
    numpy.ndarray
        The axes, (sigmas, deltas), sigma increasing down; (1, 1) without such parameters.

    Raises
    ------
    FitError
        If an argument is not as above, or the number of axes is another one.

    Examples
    --------
    >>> import pandas as pd
    >>> import soc_pymc as soc
    >>> table = pd.DataFrame({"method": ["VI", "VI"], "delta": 0.0, "sigma": [0.1, 0.5], "bin": 0,
    ...     "score": 0.1, "true_mean": [0.1, 0.11], "mean": [0.1, 0.12]})
    >>> soc.plots.plot_accuracy(table).shape
    (2, 1)
    """
    truth, label = _QUANTITIES[quantity]
    columns = [quantity, *([truth] if truth else [])]
    _need(table, columns)
    # the table of values has y's own error, and is relative to the sd, as E(theta | t) may be 0
    label = label.format(mean="Sd(theta | t)" if "mse_y" in table else "E(theta | t)")

    def draw(ax: Axes, part: pd.DataFrame) -> None:
        if truth:
            own = _first(part).sort_values("score")
            style: dict[str, Any] = {"color": canvas.GIVEN, "linewidth": 1.1}
            ax.plot(own["score"], own[truth], label=f"true {label}", **style)
        for k, method, own in _methods(table, part):
            _dots(ax, own, quantity, f"{method}: estimated" if truth else method, _look(k), k > 0)
        canvas.log_or_linear(ax.yaxis, part[columns].to_numpy())

    return _grid(table, axes, label, draw)


@checked(axes=AxesOf())
def plot_regret(table: pd.DataFrame, axes: Any = None) -> NDArray[Any]:
    """Draw in-bin mean squared errors of estimators over that of the oracle E(theta | t, y), at 1.

    Colours are estimators, markers are methods. Sections 5.2 and 5.3 of Muralidharan and Najmi.

    Parameters
    ----------
    table, axes
        As of `plot_accuracy`.

    Returns
    -------
    numpy.ndarray
        As of `plot_accuracy`, as are errors.

    Examples
    --------
    >>> import pandas as pd
    >>> import soc_pymc as soc
    >>> table = pd.DataFrame({"method": ["VI"], "bin": 0, "score": 0.1, "mse_t": 2.0,
    ...     "mse_true_mean": 1.8, "mse_mean": 1.8, "mse_posterior": 1.01})
    >>> soc.plots.plot_regret(table)[0, 0].get_ylabel()
    'mean squared error / that of the oracle'
    """
    _need(table, ["mse_t", "mse_true_mean", *_OF_METHOD])
    shared = {name: style for name, style in _OF_ALL.items() if name in table}

    def draw(ax: Axes, part: pd.DataFrame) -> None:
        ax.axhline(1, color=canvas.REFERENCE, linewidth=1, label="oracle E(theta | t, y)")
        for name, (label, look) in shared.items():
            _dots(ax, _first(part), name, label, look)
        for k, method, own in _methods(table, part):
            for name, (label, colour) in _OF_METHOD.items():
                _dots(ax, own, name, f"{method}: {label}", (colour, _look(k)[1]), k > 0)
        canvas.log_or_linear(ax.yaxis, part[[*shared, *_OF_METHOD]].to_numpy())

    return _grid(table, axes, "mean squared error / that of the oracle", draw)


@checked(root=OrNone(switch), axes=AxesOf())
def plot_error_ratio(
    table: pd.DataFrame, root: bool | None = None, axes: Any = None
) -> NDArray[Any]:
    """Draw in-bin averages of the squared error of E(theta | t, y) over its predicted variance.

    They are 1 where posteriors are as wide as they should be, above 1 where they are too narrow.
    Sections 5.2 and 5.3 of Muralidharan and Najmi.

    Parameters
    ----------
    table, axes
        As of `plot_accuracy`.
    root
        Whether to draw square roots, which compare sds; None does so for tables of Normal data,
        without delta and sigma.

    Returns
    -------
    numpy.ndarray
        As of `plot_accuracy`, as are errors.

    Examples
    --------
    >>> import pandas as pd
    >>> import soc_pymc as soc
    >>> table = pd.DataFrame({"method": ["VI"], "bin": 0, "score": 0.1, "error_ratio": 1.21})
    >>> float(soc.plots.plot_error_ratio(table)[0, 0].lines[-1].get_ydata()[0])
    1.1
    """
    _need(table, ["error_ratio"])
    label = "squared error / Var(theta | t, y)"
    if not _has_grid(table) if root is None else root:
        label = f"√({label})"
        table = table.assign(error_ratio=np.sqrt(table["error_ratio"]))
        if "error_ratio_se" in table:
            half = 0.5 * table["error_ratio_se"] / table["error_ratio"]
            table = table.assign(error_ratio_se=half)

    def draw(ax: Axes, part: pd.DataFrame) -> None:
        ax.axhline(1, color=canvas.REFERENCE, linewidth=1)
        for k, method, own in _methods(table, part):
            _dots(ax, own, "error_ratio", method, _look(k), k > 0)

    return _grid(table, axes, label, draw)


def _look(k: int) -> tuple[str, str]:
    """Colour and marker of a method."""
    return canvas.PALETTE[k % len(canvas.PALETTE)], canvas.MARKERS[k % len(canvas.MARKERS)]


def _first(part: pd.DataFrame) -> pd.DataFrame:
    """Rows of the first method, for what is the same of all."""
    return part[part["method"] == part["method"].iloc[0]]


def _methods(table: pd.DataFrame, part: pd.DataFrame) -> Iterator[tuple[int, str, pd.DataFrame]]:
    """Number, name as text and rows of each method of a panel."""
    numbers = {method: k for k, method in enumerate(dict.fromkeys(table["method"]))}
    for method, own in part.groupby("method", sort=False):
        yield numbers[method], canvas.escaped(method), own


def _need(table: Any, columns: list[str]) -> None:
    """Refuse other tables than those of `soc.evaluate.accuracy` with columns of these numbers."""
    names = ["score", *columns]
    others = ["delta", "sigma", "mse_y", *(f"{name}_se" for name in (*names, *_OF_ALL))]
    need_columns(table, "soc.evaluate.accuracy", names, ["method"], others)
    if table.empty:
        raise FitError("the table has no rows: take one from soc.evaluate.accuracy")


def _has_grid(table: pd.DataFrame) -> bool:
    names = ["delta", "sigma"]
    return set(names) <= set(table) and bool(table[names].notna().to_numpy().all())


def _grid(
    table: pd.DataFrame, axes: Any, label: str, draw: Callable[[Axes, pd.DataFrame], None]
) -> NDArray[Any]:
    """The grid of axes, each cell drawn from its rows, with labels and one legend."""
    gridded = _has_grid(table)
    down, across = (
        sorted(table[name].unique()) if gridded else [None] for name in ("sigma", "delta")
    )
    rows, columns = len(down), len(across)
    if axes is not None and len(axes) != rows * columns:
        raise FitError(
            f"axes holds {len(axes)} axes, the grid has {rows} sigmas and {columns} deltas"
        )
    size = (min(2.9 * columns + 0.8, canvas.WIDEST), 2.1 * rows + 1.0) if gridded else (7, 4.5)
    row_of_axes = canvas.panels_in(axes, size, rows, columns, sharex=True, sharey="row")
    grid: NDArray[Any] = np.reshape(row_of_axes, (rows, columns))
    for (i, j), ax in np.ndenumerate(grid):
        part = table
        if gridded:
            part = table[(table["sigma"] == down[i]) & (table["delta"] == across[j])]
            ax.set_title(f"delta = {across[j]:g}, sigma = {down[i]:g}", fontsize=9)
        if not part.empty:
            draw(ax, part)
    _label(grid, label, table, axes is None)
    return grid


def _label(grid: NDArray[Any], label: str, table: pd.DataFrame, own: bool) -> None:
    """Labels, and one legend: above all panels of our own figure, else in the first panel."""
    for ax in grid.ravel():
        if "mse_y" not in table:  # that of values, whose scores are no rates
            canvas.log_or_linear(ax.xaxis, table["score"])
        ax.tick_params(labelsize=8)
        canvas.tidy(ax)
    for ax in grid[-1]:
        ax.set_xlabel("score t", fontsize=9)
    first = grid[0, 0]
    if grid.size == 1:
        first.set_ylabel(label)
        bins = canvas.number_of(table["score"].nunique(), "bin")
        first.set_title(bins, fontsize=10, loc="left")
    elif own:
        first.figure.supylabel(label, fontsize=10)
    else:
        for ax in grid[:, 0]:
            ax.set_ylabel(label, fontsize=8)
    entries = canvas.legend_entries(grid.ravel())
    canvas.legend_of_panels(first, own, "upper center", 3, **entries)


def _dots(
    ax: Axes, own: pd.DataFrame, name: str, label: str, look: tuple[str, str], hollow: bool = False
) -> None:
    """A dot for each bin, with a bar of one standard error where the table has it."""
    colour, marker = look
    score, value = (own[c].to_numpy(dtype=float) for c in ("score", name))
    size = 4.0 if len(own) <= canvas.MANY else 2.0
    if f"{name}_se" in own and len(own) <= canvas.MANY:
        error = own[f"{name}_se"].to_numpy(dtype=float)
        # on a logarithmic axis the lower end must stay above 0
        bars = [np.minimum(error, 0.9 * np.abs(value)), error]
        ax.errorbar(score, value, bars, fmt="none", ecolor=colour, elinewidth=0.7, alpha=0.45)
    (dots,) = ax.plot(score, value, marker, color=colour, alpha=0.8, label=label)
    edge = 1.2 if marker == "_" else 0.8 if hollow else 0
    dots.set(markersize=1.8 * size if marker in "._" else size, markeredgewidth=edge)
    dots.set_markerfacecolor("none" if hollow else colour)
