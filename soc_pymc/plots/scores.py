"""How good scores and posteriors are: variance explained, scores compared, gains bin by bin."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from scipy import stats

from .._lib.arguments import PROBABILITY, OneOf, checked, numbers_of, shown
from .._lib.arrays import Floats
from .._lib.errors import FitError
from . import canvas
from .arguments import AX, holds, need_columns

_GRID = 200  # points of a density
_HEIGHT = 0.62  # of the highest density, in rows
_SAME = 1e-9  # spread of draws, over their size, below which they are one number

_SQUARE = "\nin the square of the unit of theta"
_COMPARED = {  # label of the axis, and of the side on which a score is better
    "r_squared": ("R²(score) - R²({})", "more"),
    "unexplained": (f"E Var(theta | score) - E Var(theta | {{}}){_SQUARE}", "less"),
}
_APART = 0.12  # of the distance between bins: how far estimators are set apart
_NAMES = 8  # names that an error shows


@checked(prob=PROBABILITY, ax=AX)
def plot_r_squared(
    draws: xr.DataArray | xr.Dataset | Mapping[str, xr.DataArray | xr.Dataset],
    prob: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Draw the posterior of R^2, the share of the variance of theta that a score explains.

    Each score or fit has a row: the posterior density, the median as a dot and the interval as a
    line; numbers stand at the right. Densities are scaled to equal heights. A fit with a single
    draw, such as those of `soc.FiveSteps`, is a dot alone.

    Parameters
    ----------
    draws
        From `soc.quantities.r_squared` or `soc.quantities.variance_parts`; or a dict of several, by
        the names of the scores or fits.
    prob, ax
        Probability of the intervals, between equal tails; and axes to draw in, or None.

    Returns
    -------
    matplotlib.axes.Axes

    Notes
    -----
    R^2 is that of Section 5.1 of Muralidharan and Najmi. Two scores of the same items may differ
    although their intervals overlap, as their errors go together: see `plot_score_comparison`.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> soc.plots.plot_r_squared(soc.quantities.r_squared(fit)).get_xlabel()
    'R²: share of Var(theta) that the score explains'
    """
    single = isinstance(draws, xr.Dataset) or not isinstance(draws, Mapping)
    named = {"": draws} if single else draws
    rows = {str(name): _r_squared(found) for name, found in named.items()}
    if not rows:
        raise FitError("there are no draws of R² to draw: give those of soc.quantities.r_squared")
    title = f"Posterior of R² ({_draws(rows)}; dot: median, line: {prob:.0%} interval)"
    label = "R²: share of Var(theta) that the score explains"
    return _rows(rows, prob, ax, title, label, "{:.3f}".format)


@checked(quantity=OneOf("r_squared", "unexplained"), prob=PROBABILITY, ax=AX)
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
        ``"r_squared"``, more of which is better, or ``"unexplained"``, E Var(theta | score), less
        of which is.
    prob, ax
        As of `plot_r_squared`.

    Returns
    -------
    matplotlib.axes.Axes

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
    rows = _differences(compared, quantity)
    name = canvas.escaped(compared.attrs.get("reference", "first score"))
    label, better = _COMPARED[quantity]
    sign = 1.0 if better == "more" else -1.0
    chance = [f", P(better) {_percent(np.mean(sign * own > 0))}" for own in rows.values()]
    title = f"Scores against {name} ({_draws(rows)}; line: {prob:.0%} interval; {better} is better)"
    ax = _rows(rows, prob, ax, title, label.format(name), _signed, chance)
    ax.axvline(0, color=canvas.REFERENCE, linewidth=1.2, linestyle="--", label=name)
    return ax


def _differences(compared: Any, quantity: str) -> dict[str, Floats]:
    """Draws of the differences from the first score, by the others' names."""
    if not holds(compared, score="score", **{quantity: "score draw"}):
        raise FitError(f"compared must come from soc.quantities.compare_scores, with {quantity}")
    values = numbers_of(compared[quantity].transpose("score", "draw").to_numpy(), "compared")
    return dict(zip(map(str, compared["score"].to_numpy()), values, strict=True))


def _r_squared(found: Any) -> Floats:
    """Draws of R^2, one after the other."""
    found = found.to_dataset(name="r_squared") if isinstance(found, xr.DataArray) else found
    if not holds(found, r_squared="chain draw"):
        raise FitError(
            "draws must come from soc.quantities.r_squared, with dims chain and draw, or be a dict "
            "of such; two scores of compare_scores are drawn by soc.plots.plot_score_comparison"
        )
    values = found["r_squared"].transpose("chain", "draw").to_numpy()
    return numbers_of(values, "draws").ravel()


def _rows(
    rows: Mapping[str, Floats],
    prob: float,
    ax: Axes | None,
    title: str,
    label: str,
    digits: Callable[[float], str],
    more: Sequence[str] = (),
) -> Axes:
    """A row for each set of draws, the first on top: density, interval, median and numbers."""
    ax = canvas.panels_in(ax, (7.5, 1.1 + 0.8 * len(rows)))[0]
    for k, (own, words) in enumerate(zip(rows.values(), more or ("",) * len(rows), strict=True)):
        _one_row(ax, -k, own, prob, digits, words)
    ax.set_yticks(-np.arange(len(rows)), [canvas.escaped(name, 28) for name in rows])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(-len(rows) + 0.6, 0.8)
    ax.margins(x=0.06)
    canvas.finish(ax, title, label, "", legend=False)
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
        ax.fill_between(across, y, top, color=canvas.CURVE, alpha=0.25, linewidth=0)
        ax.hlines(y, low, high, color=canvas.CURVE, linewidth=2.4)
        text += f" ({digits(low)} to {digits(high)}){words}"
    ax.plot(middle, y, "o", color=canvas.CURVE, markersize=6)
    style: dict[str, Any] = {"fontsize": 8, "ha": "right", "va": "top"}
    place: dict[str, Any] = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points"}
    ax.annotate(text, (1, y), (0, -4), **place, **style)


def _draws(rows: Mapping[str, Floats]) -> str:
    """Number of draws, or the least and the most of several."""
    number = sorted(len(values) for values in rows.values())
    several = f"{number[0]:,} to " if number[0] < number[-1] else ""
    return several + canvas.number_of(number[-1], "draw")


def _signed(value: float) -> str:
    """A difference with three digits."""
    return f"{value:+#.3g}".rstrip(".")


def _percent(share: ArrayLike) -> str:
    """A probability in percent; never 0 or 100, which draws cannot tell."""
    number = float(np.asarray(share))
    if 0.001 <= number <= 0.999:
        return f"= {number:.1%}"
    return "> 99.9%" if number > 0.5 else "< 0.1%"


@checked(ax=AX)
def plot_gain_by_bin(
    held: Any, estimators: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the gain in held-out log-likelihood over the score t itself, in percent, by bin.

    Of values it is in percent of the squared error of t in noise sds: 100 would be no error at all.
    Bars are one standard error over items. Section 5.1 of Muralidharan and Najmi.

    Parameters
    ----------
    held
        What `soc.evaluate.held_out` returned with ``bins=``, or its table.
    estimators
        Names of estimators in the table, in the order of the legend; None takes E(theta | t) and
        E(theta | t, y) of every fit.
    ax
        Axes to draw in; None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import soc_pymc as soc
    >>> split = soc.evaluate.split_items(items)
    >>> stats = soc.summarize(split.train)
    >>> fit = soc.fit(stats, method=soc.FiveSteps())
    >>> held = soc.evaluate.held_out(fit, split, baselines=(), bins=4)
    >>> soc.plots.plot_gain_by_bin(held).get_xlabel()
    'score t'
    """
    table: pd.DataFrame = getattr(held, "table", held)
    numbers = ["bin", "score", "items", "gain_percent", "gain_percent_se"]
    need_columns(
        table, "soc.evaluate.held_out", numbers, ["estimator"], others=["events"], name="held"
    )
    names = _chosen(table, estimators)
    bins = table[table["bin"] >= 0]
    if bins.empty:
        raise FitError("the table has no rows by bin: ask held_out for bins=")
    rates, made = "events" in bins, ax is None  # scores of values are no rates
    ax = canvas.panels_in(ax, (7.5, 4.8))[0]
    ax.axhline(0, color=canvas.REFERENCE, linewidth=1.4, label="t itself")
    for k, name in enumerate(names):
        own = bins[bins["estimator"] == name].sort_values("bin")
        score = own["score"].to_numpy(dtype=float)
        across = _shifted(score, rates, _APART * (k - 0.5 * (len(names) - 1)))
        gain, error = (own[c].to_numpy(dtype=float) for c in ("gain_percent", "gain_percent_se"))
        style: dict[str, Any] = {"markersize": 4, "linewidth": 0.8, "elinewidth": 0.9}
        style |= {"fmt": f"{canvas.MARKERS[k % len(canvas.MARKERS)]}-", "color": _colour(k)}
        ax.errorbar(across, gain, yerr=error, label=_overall(table, name), **style)
    if rates:
        canvas.log_or_linear(ax.xaxis, bins["score"])
    unit = "% of that of t" if rates else "% of its squared error in noise sds"
    title = f"Held-out gain by bin ({_size(bins, names[0])}; bars: ± 1 s.e.)"
    label = f"gain in held-out log-likelihood over t\n{unit}"
    canvas.finish(ax, title, "score t", label, legend=False)
    # with many estimators no place in the axes is free
    canvas.legend_of_panels(ax, made, "upper center")
    return ax


def _chosen(table: pd.DataFrame, estimators: Sequence[str] | None) -> list[str]:
    """Names of the estimators to draw."""
    known = [name for name in dict.fromkeys(table["estimator"]) if isinstance(name, str)]
    if estimators is None:
        found = [name for name in known if "E(theta" in name]
        if not found:
            raise FitError(f"the table has no E(theta | t): name some of {_listed(known)}")
        return found
    try:
        names = [estimators] if isinstance(estimators, str) else list(estimators)
    except TypeError:
        names = []
    if not names or not all(isinstance(name, str) for name in names):
        raise FitError(
            f"estimators={shown(estimators)} must be names in a list: some of {_listed(known)}"
        )
    missing = [name for name in names if name not in known]
    if missing:
        raise FitError(
            f"{len(missing)} of {len(names)} estimators= are not in the table: {_listed(missing)}; "
            f"it has {_listed(known)}"
        )
    return names


def _listed(names: Sequence[str]) -> str:
    """Names on one line: the first of many, and the first words of long ones."""
    words = [" ".join(name.split())[:40] for name in names[:_NAMES]]
    more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
    return ", ".join(words) + more


def _colour(k: int) -> str:
    """Colour of a fit or an estimator by its number."""
    return canvas.PALETTE[k % len(canvas.PALETTE)]


def _overall(table: pd.DataFrame, name: str) -> str:
    """Name with the gain over all items, where the table has it."""
    row = table[(table["estimator"] == name) & (table["bin"] == -1)]
    if row.empty:
        return canvas.escaped(name)
    gain, error = float(row["gain_percent"].iloc[0]), float(row["gain_percent_se"].iloc[0])
    digits = 2 if error >= 0.01 or error == 0 else 4
    return f"{canvas.escaped(name)}: {gain:+.{digits}f} ± {error:.{digits}f}% overall"


def _size(bins: pd.DataFrame, name: str) -> str:
    own = bins[bins["estimator"] == name]
    items = f"{int(own['items'].sum()):,} items"
    return f"{items}, {int(own['events'].sum()):,} events" if "events" in own else items


def _shifted(score: Floats, rates: bool, by: float) -> Floats:
    """Scores moved by a share of the typical distance between them."""
    if len(score) < 2:
        return score
    if rates and canvas.is_rate(score):
        return np.asarray(score * np.exp(by * float(np.median(np.diff(np.log(score))))))
    return np.asarray(score + by * float(np.median(np.diff(score))))


@checked(prob=PROBABILITY, ax=AX)
def plot_variance_gain(
    reduction: xr.Dataset | dict[str, xr.Dataset], prob: float = 0.9, ax: Axes | None = None
) -> Axes:
    """Draw E Var(theta | t, y) / Var(theta | t) by bin: the share of variance that outcomes leave.

    Section 5.1 of Muralidharan and Najmi.

    Parameters
    ----------
    reduction
        From `soc.quantities.variance_reduction`, or a dict of several by name.
    prob, ax
        As of `plot_r_squared`; the bars at each bin are intervals.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import soc_pymc as soc
    >>> found = soc.quantities.variance_reduction(fit, items, bins=5)
    >>> soc.plots.plot_variance_gain(found).get_xlabel()
    'score t'
    """
    named = reduction if isinstance(reduction, dict) else {"": reduction}
    by_bin = {"ratio_by_bin": "chain draw bin", "n_items": "bin", "score": "bin"}
    kept = (holds(data, ratio="chain draw", **by_bin) for data in named.values())
    if not named or not all(kept):
        raise FitError(
            "reduction must come from soc.quantities.variance_reduction, or be a dict of such"
        )
    ax = canvas.panels_in(ax, (7, 4.5))[0]
    every = np.concatenate([data["score"].to_numpy() for data in named.values()])
    for k, (name, data) in enumerate(named.items()):
        _ratios(ax, name, data, prob, _colour(k))
    ax.axhline(1, color=canvas.REFERENCE, linewidth=1, linestyle="--")
    canvas.log_or_linear(ax.xaxis, every)
    ax.set_ylim(0, max(1.05, 1.05 * float(ax.dataLim.y1)))
    items = int(next(iter(named.values()))["n_items"].sum())
    title = f"Variance of theta that outcomes leave ({items:,} items)"
    canvas.finish(ax, title, "score t", "E Var(theta | t, y) / Var(theta | t)")
    return ax


def _ratios(ax: Axes, name: str, data: xr.Dataset, prob: float, colour: str) -> None:
    """Ratios of one fit with their posterior intervals, and the overall ratio."""
    by_bin = data["ratio_by_bin"].transpose("chain", "draw", "bin").to_numpy()
    draws = by_bin.reshape(-1, by_bin.shape[-1])
    levels = [(1 - prob) / 2, 0.5, (1 + prob) / 2]
    low, middle, high = np.quantile(draws, levels, axis=0)
    overall = np.quantile(data["ratio"].to_numpy(), levels)
    score, seen = data["score"].to_numpy(), np.isfinite(middle)
    style: dict[str, Any] = {"color": colour, "markersize": 4, "linewidth": 0.9}
    label = f"{canvas.escaped(name) or 'by bin'}; overall {overall[1]:.1%}"
    if len(draws) > 1:
        label += f" ({overall[0]:.1%} to {overall[2]:.1%}), bars and range: {prob:.0%}"
        error = np.array([middle - low, high - middle])[:, seen]
        ax.errorbar(score[seen], middle[seen], yerr=error, fmt="o-", label=label, **style)
    else:
        ax.plot(score[seen], middle[seen], "o-", label=label, **style)
    canvas.draw_floor(ax, score[~seen], "bins without items")
    ax.axhline(overall[1], color=colour, linewidth=1, linestyle=":")
