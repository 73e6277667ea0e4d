"""`drift`: days on which the curves of dated statistics moved.

A day departs from curves that are fitted once: in level and slope of the first (log mean), and in
level of the second (log cv2). Its log likelihood in these is summarised by its mode and curvature.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy import optimize, special

from .._lib.arguments import SEED, FitError, OrNone, StatisticsError
from .._lib.arrays import Floats, Pair
from .._lib.work import long_work, parts
from ..data.items import day as day_rule
from ..data.statistics import STATISTICS, Statistics
from ..fits import FIT, Curves, Fit, with_draws
from ..inference.fitting import fit_prior
from ..posterior.item_columns import check_statistics
from ..posterior.predictive import posterior_under
from .findings import (
    FAIL,
    OK,
    SIDES,
    WARN,
    WARNS,
    Finding,
    Result,
    result_table,
)
from .observations import CurveRows, curve_rows, observe
from .pit import Slice, cdf_ends, pit_tests, slice_pits

# of the first curve level and slope, of the second level
PARTS = ("level", "slope", "spread")
HORIZON = 60  # days over which false alarms are bounded
# largest probability of any in so many days without a change beyond the walk
FALSE_ALARMS = 0.05
_GRADIENT_STEP = 1e-3  # step of differences of gradients
_PIT_DRAWS = 100  # draws of a day's curves for its PIT
# grid of a daily step's sd
SDS = np.array([0.0, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3])
_TYPICAL = 0.03  # sd of their half-normal prior
_START = 1.0  # sd of the first day's state
_VAGUE = 1e-6  # precision added where a day does not inform a part


@dataclass(frozen=True, eq=False, repr=False)
class Drift(Result):
    """Curves that moved over days, made by `drift`.

    A departure from the curves of `fit` has three parts: ``level`` of the first curve at the
    average score (of log mean for counts, logit mean for trials; for values of the mean, in sds of
    theta), ``slope``, its increase one sd above, and ``spread``, of the second curve.

    Attributes
    ----------
    table : pandas.DataFrame
        For every day (``where``), each part (``what``): its ``value`` given all days, its 90%
        interval, and ``p`` of the day's outcomes given all days before it; and, with joint cells,
        ``PIT``, of the day's outcomes under the curves as known on its evening. Any ``"fail"``, an
        alarm, comes with a probability of at most 5% in 60 days without a change beyond the walk;
        ``"warn"`` is where p times the day's number of tests is < 0.05.
    data : xarray.Dataset
        By ``day`` and ``part``: ``smoothed`` (given all days) and ``filtered`` (given the days up
        to each), with covariances, and ``p_value``; by ``part`` the typical daily ``step``.
    fit : Fit
        The fit whose curves are departed from.
    """

    fit: Fit = field(kw_only=True)

    @property
    def alarms(self) -> tuple[str, ...]:
        """Days that fail."""
        return tuple(
            dict.fromkeys(self.table.loc[self.table["verdict"] == FAIL, "where"])
        )

    def fit_of(self, day: object = None) -> Fit:
        """Return the fit with the curves as known on the evening of a day, by default the last.

        `day` is a date or text YYYY-MM-DD. Raises `StatisticsError` if there is no such day.
        """
        days = self.data["day"].to_numpy().astype("datetime64[D]")
        evening = days[-1] if day is None else day_rule(day, "day")
        if evening not in days:
            raise StatisticsError(
                f"there is no day {evening}; days are {days[0]} to {days[-1]}"
            )
        shifted = _moved_curves(self.fit.curves, self.data.sel(day=evening))
        return with_draws(self.fit, shifted.posterior)


@long_work
def drift(
    stats: Statistics,
    fit: Fit | None = None,
    *,
    seed: int = 0,
    progress: bool | None = None,
) -> Drift:
    """Estimate how the curves moved from day to day, and find days whose outcomes no longer fitted.

    Departures are a random walk, and each day is tested against what the days before it predict.

    Parameters
    ----------
    stats : Statistics
        Statistics with days, at least two of them.
    fit : Fit or None
        The fit whose curves days depart from, such as the one in use. None fits all days together.
    seed : int
        Seed of the randomised PIT.
    progress : bool or None
        Whether to show progress.

    Returns
    -------
    Drift
        The days' departures with a verdict for each day.

    Raises
    ------
    StatisticsError, FitError
        If there are no two days, or `fit` has other columns or a single draw.

    References
    ----------
    .. [1] Rauch, Tung and Striebel (1965), Maximum likelihood estimates of linear dynamic
       systems, AIAA Journal 3, 1445-1450.

    Examples
    --------
    >>> import pandas as pd
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(40_000, seed=0)
    >>> frame["day"] = pd.date_range("2026-03-01", periods=10).repeat(4000)
    >>> frame.loc[frame["day"] >= "2026-03-08", "count"] *= 2
    >>> roles = {"score": "score", "count": "count", "exposure": "exposure", "date": "day"}
    >>> soc.drift(soc.summarize(soc.PoissonItems(frame, **roles), bins=40)).alarms[0]
    '2026-03-08'
    """
    stats = STATISTICS(stats, "stats")
    fit = OrNone(FIT)(fit, "fit")
    seed = SEED(seed, "seed")
    if len(stats.days) < 2:
        raise StatisticsError(
            f"drift compares days, and these statistics keep {len(stats.days) or 'none'}: "
            "summarize the items of several days with date= a column of dates"
        )
    if stats.noise_df:
        raise StatisticsError(
            "soc.drift needs known noise sds: summarize the items without noise_df="
        )
    if fit is None:
        fit = fit_prior(stats)
    curves = fit.curves
    check_statistics(curves, stats)
    if fit.one_draw:
        raise FitError(
            "drift needs a fit with draws of its curves, by soc.VI() or soc.NUTS()"
        )
    scale = _scale_of_walk(curves, curve_rows(curves, stats))
    days = [(day, stats.window("1d", day)) for day in stats.days]
    sites = [
        _site(curves, curve_rows(curves, days[chunk.start][1]), scale)
        for chunk in parts("days", len(days), 1, "days")
    ]
    precision, pull = (np.array(values) for values in zip(*sites, strict=True))
    states = walk(precision, pull, stats.days.astype(np.int64))
    coords = {
        "day": pd.DatetimeIndex(stats.days),
        "part": list(PARTS),
        "other_part": list(PARTS),
    }
    states = states.assign_coords(coords).assign_attrs(scale._asdict())
    if fit.mean_only:  # outcomes say nothing of the spread
        for name in ("p_value", "smoothed", "filtered"):
            states[name].loc[{"part": "spread"}] = np.nan
    table = _drift_table(curves.thin(_PIT_DRAWS), states, days, seed)
    failed = table[table["verdict"] == FAIL].groupby("where")["what"].agg(", ".join)
    alarms = ", ".join(f"{day} ({what})" for day, what in failed.items())
    steps = ", ".join(
        f"{part} {step:.2g}" for part, step in states["step"].to_series().items()
    )
    advice = (
        f"Alarms: {alarms or 'none'}.",
        f"Typical step from one day to the next: {steps}.",
    )
    title = f"drift: {len(days):,} days, {stats.days[0]} to {stats.days[-1]}"
    return Drift(table, states, advice, title, fit=fit)


def _drift_table(
    curves: Curves,
    states: xr.Dataset,
    days: Sequence[Any],
    seed: int,
) -> pd.DataFrame:
    rows: list[Finding] = []
    mean = states["smoothed"].to_numpy()
    p_value = states["p_value"].to_numpy()
    half = SIDES * np.sqrt(
        np.diagonal(states["smoothed_covariance"].to_numpy(), 0, 1, 2)
    )
    for chunk in parts("PIT of days", len(days), 1, "days"):
        t, (day, day_stats) = chunk.start, days[chunk.start]
        for part, value, width, p in zip(
            PARTS, mean[t], half[t], p_value[t], strict=True
        ):
            place = part, str(day), day_stats.n_items
            rows.append(
                Finding(*place, value=value, low=value - width, high=value + width, p=p)
            )
        if day_stats.has_joint and not curves.mean_only:
            shifted = _moved_curves(curves, states.isel(day=t))
            rng = np.random.default_rng([seed, t])
            posterior = posterior_under(shifted)
            items = observe(shifted, day_stats)
            pit_ends = cdf_ends(posterior, items.columns)
            masks = {Slice(str(day)): items.n > 0}
            pits = slice_pits(pit_ends, items.n, masks, rng)
            rows += pit_tests(posterior, items, masks, pits, rng)[1]
    table = result_table(rows).dropna(subset="p", ignore_index=True)
    of_day = table["p"] * table["what"].nunique()
    verdict = np.select(
        [of_day < FALSE_ALARMS / HORIZON, of_day < WARNS], [FAIL, WARN], OK
    )
    return result_table(table.assign(verdict=verdict))


class _Scale(NamedTuple):
    """Centre and sd of the positions of all items, and the unit of the first curve's departures."""

    centre: float
    sd: float
    unit: float

    def design(self, position: Floats) -> Floats:
        """First curve's departures at positions by level and slope, (2, n)."""
        return self.unit * np.stack(
            [np.ones(len(position)), (position - self.centre) / self.sd]
        )


def _scale_of_walk(curves: Curves, rows: CurveRows) -> _Scale:
    position = curves.position("mean", rows.score)
    unit = curves.family.unit(rows.dispersion)
    centre = np.average(position, weights=rows.n)
    sd = np.sqrt(np.average((position - centre) ** 2, weights=rows.n))
    return _Scale(
        float(centre), float(sd) or 1.0, float(np.average(unit, weights=rows.n))
    )


def _site(curves: Curves, rows: CurveRows, scale: _Scale) -> Pair:
    """A day's log likelihood in its departure as precision (3, 3) and pull (3,) about its mode."""
    design = scale.design(curves.position("mean", rows.score))

    def loss(x: Floats) -> tuple[float, Floats]:
        """Minus log likelihood and its slope, with a prior that keeps the mode finite."""
        shifted = np.stack([rows.location + x[:2] @ design, rows.dispersion + x[2]])
        value, by_first, by_second = rows.sums.value_and_gradient(*shifted[:, None])[
            :, 0
        ]
        return x @ x / 2 - value.sum(), x - np.append(
            design @ by_first, by_second.sum()
        )

    mode = optimize.minimize(loss, np.zeros(3), jac=True, method="BFGS").x
    ahead, behind = (
        np.array([loss(mode + step)[1] for step in sign * _GRADIENT_STEP * np.eye(3)])
        for sign in (1, -1)
    )
    bend = (ahead - behind) / (2 * _GRADIENT_STEP) - np.eye(3)
    values, vectors = np.linalg.eigh((bend + bend.T) / 2)
    precision = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return precision, precision @ mode + mode - loss(mode)[1]


def _moved_curves(curves: Curves, state: xr.Dataset) -> Curves:
    """Curves that depart by a day's filtered departure, drawn for every draw."""
    posterior = curves.posterior
    scale = _Scale(**state.attrs)
    zero = np.zeros(len(PARTS))
    normal = np.random.default_rng(0).multivariate_normal
    drawn = normal(
        zero, state["filtered_covariance"], curves.shape, "ignore", method="eigh"
    )
    # no mean is known of a part that did not move
    drawn += np.nan_to_num(state["filtered"].to_numpy()) - drawn.mean(axis=(0, 1))
    line = drawn[..., :2] @ scale.design(curves.knots("mean_knot"))
    departures = (
        xr.DataArray(line, dims=("chain", "draw", "mean_knot")),
        xr.DataArray(drawn[..., 2], dims=("chain", "draw")),
    )
    shifts = {}
    for curve, departure in zip(curves.family.curve_names, departures, strict=True):
        of_levels = (f"{curve}_of_{grouping}" for grouping in curves.groupings)
        for name in (curve, *of_levels):
            if name in posterior:
                values = posterior[name] + departure
                shifts[name] = values.transpose(*posterior[name].dims)
    return curves.with_draws(posterior.assign(shifts))


def walk(precision: Floats, pull: Floats, day: NDArray[Any]) -> xr.Dataset:
    """Return the data of `Drift` from log likelihoods: L (days, k, k), h (days, k), day numbers."""
    k = pull.shape[1]
    gap = np.diff(day, prepend=day[0])
    sds = np.stack(np.meshgrid(*[SDS] * k, indexing="ij"), axis=-1).reshape(-1, k)
    log_prior = np.log(_prior())[np.searchsorted(SDS, sds)].sum(axis=1)
    p_value, evidence, mean, covariance = _forward(precision, pull, gap, sds)
    after = special.softmax(log_prior[:, None] + np.cumsum(evidence, axis=1), axis=0)
    before = np.column_stack([np.exp(log_prior), after[:, :-1]])
    filtered = _averaged(after, mean, covariance)
    weight = np.broadcast_to(after[:, -1:], after.shape)
    smoothed = _averaged(weight, *_backward(mean, covariance, gap, sds))
    dims = "day", "part", "other_part"
    variables: dict[str, Any] = {"step": ("part", after[:, -1] @ sds)}
    variables["p_value"] = dims[:2], np.einsum("gt,gti->ti", before, p_value)
    for name, (means, covariances) in {
        "smoothed": smoothed,
        "filtered": filtered,
    }.items():
        variables |= {
            name: (dims[:2], means),
            f"{name}_covariance": (dims, covariances),
        }
    return xr.Dataset(variables)


def _prior() -> Floats:
    cuts = np.concatenate([[0.0], SDS[1:2] / 2, np.sqrt(SDS[1:-1] * SDS[2:]), [np.inf]])
    return np.diff(special.erf(cuts / (_TYPICAL * np.sqrt(2.0))))


def _averaged(weight: Floats, mean: Floats, covariance: Floats) -> Pair:
    average = np.einsum("gt,gti->ti", weight, mean)
    centred = mean - average
    within = np.einsum("gt,gtij->tij", weight, covariance)
    return average, within + np.einsum("gt,gti,gtj->tij", weight, centred, centred)


def _forward(precision: Floats, pull: Floats, gap: Floats, sds: Floats) -> list[Floats]:
    """Each day's p-values, log evidence, and means and covariances after it: (points, days, ..)."""
    eye = np.eye(pull.shape[1])
    mean = np.zeros_like(sds)
    covariance = np.tile(_START**2 * eye, (len(sds), 1, 1))
    days = []
    for L, h, distance in zip(precision, pull, gap, strict=True):
        covariance = covariance + distance * sds[:, :, None] ** 2 * eye
        # the day's own estimate has two-sided p-values given the days before
        noise = np.linalg.inv(L + _VAGUE * eye)
        sd = np.sqrt(np.diagonal(noise + covariance, 0, 1, 2))
        p_value = 2 * special.ndtr(-np.abs(noise @ h - mean) / sd)
        # with B = I + P L: covariance B^-1 P, mean m + B^-1 P (h - L m), and |B| in the evidence
        spread = eye + covariance @ L
        covariance = np.linalg.solve(spread, covariance)
        covariance = (covariance + covariance.transpose(0, 2, 1)) / 2
        surprise = h - mean @ L
        step = np.einsum("gij,gj->gi", covariance, surprise)
        known = mean @ h - np.einsum("gi,ij,gj->g", mean, L, mean) / 2
        gained = np.einsum("gi,gi->g", surprise, step) - np.linalg.slogdet(spread)[1]
        mean = mean + step
        days.append((p_value, known + gained / 2, mean, covariance))
    return [np.stack(values, axis=1) for values in zip(*days, strict=True)]


def _backward(mean: Floats, covariance: Floats, gap: Floats, sds: Floats) -> Pair:
    """States given all days, by the smoother of Rauch, Tung and Striebel."""
    variance = sds[:, :, None] ** 2 * np.eye(sds.shape[1])
    for t in range(mean.shape[1] - 2, -1, -1):
        ahead = covariance[:, t] + gap[t + 1] * variance
        gain = np.linalg.solve(ahead, covariance[:, t]).transpose(0, 2, 1)
        change = covariance[:, t + 1] - ahead
        covariance[:, t] += gain @ change @ gain.transpose(0, 2, 1)
        mean[:, t] += np.einsum("gij,gj->gi", gain, mean[:, t + 1] - mean[:, t])
    return mean, covariance
