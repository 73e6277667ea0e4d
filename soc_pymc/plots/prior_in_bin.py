"""The prior of one bin beside the outcomes of its items."""

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from numpy.typing import NDArray

from .._lib.arguments import real, shown, whole
from .._lib.errors import FitError, ItemsError
from ..data.items import Items
from ..data.tables import batches, open_table, scan
from ..inference.results import Fit
from ..posterior.item_columns import columns_of, posterior_roles
from ..posterior.predictive import Columns, Posterior, posterior_of
from .arguments import need_ax
from .fitted import at_exposure, column_name, need_prior, scores_estimate_theta, theta_unit
from .prior import prior_quantiles
from .style import GREY, RED, plain, tidy

__all__ = ["plot_prior_in_bin"]

Floats = NDArray[np.float64]

_LEVELS = np.concatenate([[5e-4], np.linspace(0.0025, 0.9975, 400), [0.9995]])
_FAR = 0.995  # quantile of the outcomes up to which they are shown
_EXPOSURE = 50.0
_POINT = 0.01  # of the axis: a narrower prior is drawn as a line


def plot_prior_in_bin(
    fit: Fit,
    items: Items,
    bin: int | None = None,
    least_exposure: float | None = None,
    ax: Axes | None = None,
    *,
    exposure: float | None = None,
) -> Axes:
    """Draw the prior density of theta in one bin over the histogram of its items' own outcomes.

    The two are not supposed to agree: the histogram is that of theta with noise added, and so is
    wider, and for counts has a spike at 0. Of a fit with groups the prior is the one that they
    share.

    Parameters
    ----------
    fit
        The fit; the prior is drawn at the posterior means of its curves, at the bin's score.
    items
        The items that made it, or others.
    bin
        Number of the bin, from 0, among those of the fit in the order of their scores; None takes
        the middle one.
    least_exposure
        Least exposure of the items shown; None is 50. Values have none.
    ax
        Axes to draw in; None makes a figure.
    exposure
        Exposure (noise sd) at which to draw the prior, of a fit with a term in it.

    Returns
    -------
    matplotlib.axes.Axes
        The axes that were drawn in.

    Raises
    ------
    FitError
        If `fit` is no fit, there is no such bin, the prior depends on the exposure and none is
        given, or the other way round, `least_exposure` is no number or items with values are given
        one, or `ax` is no axes.
    ItemsError
        If the items are not of the fit's kind, or none in the bin has such an exposure.

    Notes
    -----
    Section 5.1 of Muralidharan and Najmi.

    Examples
    --------
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(2000, seed=0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> stats = soc.summarize(items, progress=False)
    >>> fit = soc.fit(stats, method=soc.FiveSteps(), progress=False)
    >>> ax = soc.plots.plot_prior_in_bin(fit, items, least_exposure=20)
    >>> ax.get_xlabel()
    'theta and count / exposure, events per unit of exposure'
    """
    need_prior(fit, exposure)
    need_ax(ax)
    law = posterior_of(fit)
    if least_exposure is not None and not law.outcome.whole:
        raise FitError("items with values have no exposure: leave out least_exposure=")
    order = np.argsort(fit.data["constant_data"]["score"].to_numpy())
    number = len(order) // 2 if bin is None else whole(bin, "bin", 0)
    if number >= len(order):
        raise FitError(f"there is no bin {shown(number)}: the fit has {len(order):,}, from 0 on")
    own = fit.data["constant_data"].to_dataset().isel(bin=order[number])
    low, high = float(own["score_min"]), float(own["score_max"])
    least = _EXPOSURE if least_exposure is None else real(least_exposure, "least_exposure")
    outcome = _outcomes(fit, law, items, (low, high), least)
    if not len(outcome):
        such = f" with exposure >= {plain(least)}" if law.outcome.whole else ""
        raise ItemsError(
            f"bin {number} (scores {low:.4g} to {high:.4g}) holds no item{such}: take another bin "
            f"of {len(order):,}, or a lower least_exposure="
        )
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    _, lines = prior_quantiles(fit, np.array([float(own["score"])]), _LEVELS, exposure)
    _draw(fit, ax, law, lines[:, 0], outcome, least)
    if scores_estimate_theta(fit, law):
        ax.axvline(float(own["score"]), color=GREY, linewidth=1, linestyle="--", label="theta = t")
    ax.legend(frameon=False, fontsize=8)
    where = f"bin {number:,} of {len(order):,}, t from {low:.4g} to {high:.4g}"
    where += at_exposure(law, exposure)
    ax.set_title(f"Prior and outcomes in {where}", fontsize=10, loc="left")
    return ax


def _outcomes(
    fit: Fit, law: Posterior, items: Items, ends: tuple[float, float], least: float
) -> Floats:
    """Own rates (of exposure at least so much) or values of the items with scores between ends."""
    roles = posterior_roles(fit, law, items)
    scan(items, progress=False)
    names = list(dict.fromkeys(roles.values()))
    found = []
    for batch in batches(open_table(items.source, names), names):
        columns: Columns = columns_of(pa.Table.from_batches([batch]), roles)
        score, size = columns["score"], columns[law.outcome.size]
        inside = (score >= ends[0]) & (score <= ends[1])
        if law.outcome.whole:
            inside &= (size >= least) & (size > 0)
            found.append(columns["count"][inside] / size[inside])
        else:
            found.append(columns["value"][inside])
    return np.concatenate(found)


def _draw(fit: Fit, ax: Axes, law: Posterior, theta: Floats, outcome: Floats, least: float) -> None:
    """The histogram, and the density from closely spaced quantiles, whatever the prior's family."""
    ends = _range(law, theta, outcome)
    shown = outcome[(outcome >= ends[0]) & (outcome <= ends[1])]
    cells = int(np.clip(2.0 * len(outcome) ** 0.4, 12, 60))
    edges = np.linspace(*ends, cells + 1)
    share = np.histogram(shown, edges)[0] / (len(outcome) * np.diff(edges))
    if law.outcome.whole:
        count, size = (column_name(fit, role) or role for role in ("count", "exposure"))
        label = f"{count} / {size} of {len(outcome):,} items, {size} >= {plain(least)}"
        what = f"theta and {count} / {size}"
    else:
        value = column_name(fit, "value") or "value"
        label, what = f"{value} of {len(outcome):,} items", f"theta and {value}"
    beyond = len(outcome) - len(shown)
    label += f" ({beyond:,} beyond the axis)" if beyond else ""
    ax.stairs(share, edges, fill=True, color=GREY, alpha=0.35, label=label)
    highest = max(float(share.max()), _density(ax, theta, _POINT * (ends[1] - ends[0])))
    ax.set_xlim(*ends)
    ax.set_ylim(0, 1.15 * highest)
    ax.set_xlabel(f"{what}, {theta_unit(fit, law)}")
    ax.set_ylabel("density")
    tidy(ax)


def _density(ax: Axes, theta: Floats, width: float) -> float:
    """Draw the density between quantiles, or one upright line for all; returns its height."""
    if theta[-2] - theta[1] < width:
        label = "prior of theta given t, all but a point"
        ax.axvline(float(np.median(theta)), color=RED, linewidth=1.8, label=label)
        return 0.0
    middle, density = 0.5 * (theta[1:] + theta[:-1]), np.diff(_LEVELS) / np.diff(theta)
    ax.plot(middle, density, color=RED, linewidth=1.8, label="prior density of theta given t")
    return float(density.max())


def _range(law: Posterior, theta: Floats, outcome: Floats) -> tuple[float, float]:
    """Range that holds the prior and nearly all outcomes; from 0 on for rates."""
    high = max(float(theta[-2]), float(np.quantile(outcome, _FAR)))
    if law.outcome.whole:
        return 0.0, 1.02 * high
    low = min(float(theta[1]), float(np.quantile(outcome, 1 - _FAR)))
    pad = 0.02 * (high - low)
    return low - pad, high + pad
