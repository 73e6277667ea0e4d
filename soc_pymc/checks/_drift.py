"""`drift`: days on which the curves of dated statistics moved.

The curves of all days are fitted once. A day departs from them by a level and a slope of the first
curve (log mean) and a level of the second (log cv2). Its log likelihood in these is summarised by
its mode and its curvature there; the departures of all days are a random walk.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy import optimize, special, stats

from .._lib.arguments import PROGRESS, SEED, A, OrNone, checked
from .._lib.arrays import Floats
from .._lib.errors import FitError, StatisticsError
from .._lib.threads import one_blas_thread
from .._model.splines import knots_in
from ..data.groups import day as day_rule
from ..data.statistics import Statistics
from ..families.family import family_of
from ..inference.fitting import fit as fit_all
from ..inference.results import FIT, Fit
from ..posterior.curves import place_of, with_posterior
from .observations import CurveRows, check_roles, curve_rows, observe, parts, thin
from .pit import pit_findings, pit_tests
from .results import FAIL, OK, SIDES, WARN, WARNS, Result, finding, result_table

PARTS = ("level", "slope", "spread")
"""Parts of a departure: of the first curve's level and slope, and of the second curve's level."""

HORIZON = 60  # days over which false alarms are bounded
FALSE_ALARMS = 0.05  # largest probability of any in so many days without a change beyond the walk
_STEP = 1e-3  # step of differences of gradients
_DRAWS = 100  # draws of a day's curves for its PIT


# --- a random walk, seen through each day's quadratic log likelihood -----------------------------

SDS = np.array([0.0, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3])
"""Grid of the sd of a step from one day to the next."""

_TYPICAL = 0.03  # sd of their half-normal prior
_START = 1.0  # sd of the first day's state
_VAGUE = 1e-6  # precision added where a day does not inform a part
_LIGHT = 1e-6  # share of the weight below which grid points are left out of the smoother


@dataclass(frozen=True)
class Gaussians:
    """Normal distributions of states: means (..., days, k) and covariances (..., days, k, k)."""

    mean: Floats
    covariance: Floats

    def averaged(self, weight: Floats) -> "Gaussians":
        """Moments of the mixtures over the first axis, with weights (points, days)."""
        mean = np.einsum("gt,gti->ti", weight, self.mean)
        centred = self.mean - mean
        covariance = np.einsum("gt,gtij->tij", weight, self.covariance)
        return Gaussians(mean, covariance + np.einsum("gt,gti,gtj->tij", weight, centred, centred))


@dataclass(frozen=True)
class Walk:
    """States of days."""

    smoothed: Gaussians  # given all days
    filtered: Gaussians  # given the days up to each
    p_value: Floats  # (days, k): of each part of a day's state, given the days before
    step: Floats  # (k,): posterior mean of the sds of steps


def walk(precision: Floats, pull: Floats, day: Floats) -> Walk:
    """States of days from their log likelihoods: L (days, k, k), h (days, k) and their numbers."""
    k = pull.shape[1]
    sds = np.stack(np.meshgrid(*[SDS] * k, indexing="ij"), axis=-1).reshape(-1, k)
    log_prior = np.log(_prior())[np.searchsorted(SDS, sds)].sum(axis=1)
    gap = np.diff(day, prepend=day[0])
    ahead, filtered, evidence = _forward(precision, pull, gap, sds)
    before = log_prior[:, None] + np.cumsum(evidence, axis=1) - evidence
    known, upto = (special.softmax(w, axis=0) for w in (before, before + evidence))
    p_value = np.einsum("gt,gti->ti", known, _p_values(precision, pull, ahead))
    last = upto[:, -1]
    heavy = last > _LIGHT * last.max()
    states = Gaussians(filtered.mean[heavy], filtered.covariance[heavy])
    weight = np.repeat((last[heavy] / last[heavy].sum())[:, None], len(pull), axis=1)
    smoothed = _backward(states, gap, sds[heavy]).averaged(weight)
    return Walk(smoothed, filtered.averaged(upto), p_value, last @ sds)


def _prior() -> Floats:
    """Probabilities of the grid under the half-normal prior."""
    cuts = np.concatenate([[0.0], SDS[1:2] / 2, np.sqrt(SDS[1:-1] * SDS[2:]), [np.inf]])
    return np.asarray(np.diff(stats.halfnorm.cdf(cuts, scale=_TYPICAL)))


def _forward(
    precision: Floats, pull: Floats, gap: Floats, sds: Floats
) -> tuple[Gaussians, Gaussians, Floats]:
    """States in advance and after each day, and each day's log evidence (points, days)."""
    days, k = pull.shape
    shape = len(sds), days, k
    ahead, after = (Gaussians(np.empty(shape), np.empty((*shape, k))) for _ in range(2))
    evidence, variance = np.empty(shape[:2]), sds[:, :, None] ** 2 * np.eye(k)
    mean, covariance = np.zeros(shape[::2]), np.tile(_START**2 * np.eye(k), (len(sds), 1, 1))
    for t in range(days):
        covariance = covariance + gap[t] * variance
        ahead.mean[:, t], ahead.covariance[:, t] = mean, covariance
        # with B = I + P L: covariance B^-1 P, mean m + B^-1 P (h - L m), and |B| in the evidence
        spread = np.eye(k) + covariance @ precision[t]
        covariance = np.linalg.solve(spread, covariance)
        covariance = (covariance + covariance.transpose(0, 2, 1)) / 2
        surprise = pull[t] - mean @ precision[t]
        step = np.einsum("gij,gj->gi", covariance, surprise)
        known = mean @ pull[t] - np.einsum("gi,ij,gj->g", mean, precision[t], mean) / 2
        gained = np.einsum("gi,gi->g", surprise, step) - np.linalg.slogdet(spread)[1]
        evidence[:, t] = known + gained / 2
        mean = mean + step
        after.mean[:, t], after.covariance[:, t] = mean, covariance
    return ahead, after, evidence


def _p_values(precision: Floats, pull: Floats, ahead: Gaussians) -> Floats:
    """Two-sided p-values of the days' own estimates (points, days, k) of each part of the state."""
    covariance = np.linalg.inv(precision + _VAGUE * np.eye(pull.shape[1]))
    estimate = np.einsum("tij,tj->ti", covariance, pull)
    variance = np.diagonal(covariance + ahead.covariance, axis1=-2, axis2=-1)
    return np.asarray(2 * special.ndtr(-np.abs(estimate - ahead.mean) / np.sqrt(variance)))


def _backward(filtered: Gaussians, gap: Floats, sds: Floats) -> Gaussians:
    """States given all days, by the smoother of Rauch, Tung and Striebel."""
    mean, covariance = filtered.mean.copy(), filtered.covariance.copy()
    variance = sds[:, :, None] ** 2 * np.eye(sds.shape[1])
    for t in range(mean.shape[1] - 2, -1, -1):
        ahead = covariance[:, t] + gap[t + 1] * variance
        gain = np.linalg.solve(ahead, covariance[:, t]).transpose(0, 2, 1)
        change = covariance[:, t + 1] - ahead
        covariance[:, t] += gain @ change @ gain.transpose(0, 2, 1)
        mean[:, t] += np.einsum("gij,gj->gi", gain, mean[:, t + 1] - mean[:, t])
    return Gaussians(mean, covariance)


# --- days that depart ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Drift(Result):
    """Curves that moved over days, made by `drift`.

    A departure from the curves of `fit` has three parts: ``level`` of the first curve at the
    average score (of log mean for counts, logit mean for trials; for values of the mean, in sds of
    theta), ``slope``, its increase one sd above, and ``spread``, of the second curve.

    Attributes
    ----------
    table
        For every day (``where``), ``what`` is each part: its ``value`` given all days, its 90%
        interval, and ``p`` of the day's outcomes given all days before it. With joint cells it is
        also ``PIT``, of the day's outcomes under the curves as known on its evening. A ``verdict``
        is ``"fail"``, an alarm, of which any comes with a probability of at most 5% in 60 days on
        which nothing changes beyond the walk, or ``"warn"`` where p times the day's number of tests
        is below 0.05.
    data
        By ``day`` and ``part``: ``smoothed`` (given all days) and ``filtered`` (given the days up
        to each), with covariances; by ``part`` the ``step``, the typical sd of the walk's daily
        step.
    fit
        The fit whose curves are departed from.
    """

    fit: Fit = field(kw_only=True)

    @property
    def alarms(self) -> tuple[str, ...]:
        """Days that fail."""
        return tuple(dict.fromkeys(self.table.loc[self.table["verdict"] == FAIL, "where"]))

    def fit_of(self, day: object = None) -> Fit:
        """The fit with the curves as known on the evening of one day.

        `day` is a date or text YYYY-MM-DD, None being the last. Every draw of the curves gets a
        draw of the day's departure. Raises `StatisticsError` if there is no such day.
        """
        days = self.data["day"].to_numpy().astype("datetime64[D]")
        day_wanted = days[-1] if day is None else day_rule(day, "day")
        if day_wanted not in days:
            raise StatisticsError(f"there is no day {day_wanted}; days are {days[0]} to {days[-1]}")
        states = self.data.isel(day=int(np.argmax(days == day_wanted)))
        mean, covariance = (states[n].to_numpy() for n in ("filtered", "filtered_covariance"))
        return _moved(self.fit, mean, covariance, _Scale(**self.data.attrs))


@checked(
    stats=A(Statistics, "statistics with days, from soc.summarize(items, date=...)"),
    fit=OrNone(FIT),
    seed=SEED,
    progress=PROGRESS,
)
@one_blas_thread
def drift(
    stats: Statistics,
    fit: Fit | None = None,
    *,
    seed: int = 0,
    progress: bool | None = None,
) -> Drift:
    """Estimate how the curves moved from day to day, and find days whose outcomes no longer fitted.

    The departures of days from the curves of `fit` are a random walk, so that a day with few items
    learns from the days beside it. Each day is tested against what the days before it predict.

    Parameters
    ----------
    stats
        Statistics with days, at least two of them.
    fit
        The fit whose curves days depart from, such as the one in use. None fits all days together.
    seed, progress
        Seed of the randomised PIT, and whether to show progress.

    Returns
    -------
    Drift
        The days' departures with a verdict for each day.

    Raises
    ------
    StatisticsError, FitError
        If there are no two days, or `fit` has other columns, steps or a single draw.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import soc_pymc as soc
    >>> frame = soc.simulation.s1(40_000, seed=0)
    >>> frame["day"] = pd.date_range("2026-03-01", periods=10).repeat(4000)
    >>> late = frame["day"] >= "2026-03-08"
    >>> frame["count"] += np.where(late, np.random.default_rng(0).poisson(0.5 * frame["count"]), 0)
    >>> items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    >>> soc.drift(soc.summarize(items, bins=40, date="day")).alarms[0]
    '2026-03-08'
    """
    if len(stats.days) < 2:
        raise StatisticsError(
            f"drift compares days, and these statistics keep {len(stats.days) or 'none'}: "
            "summarize the items of several days with date= a column of dates"
        )
    if fit is None:
        fit = fit_all(stats, progress=progress)
    check_roles(fit, stats)
    if fit.by_bin or fit.one_draw:
        raise FitError("drift needs a fit with smooth curves and draws, by soc.VI() or soc.NUTS()")
    scale = _scale(fit, curve_rows(fit, stats))
    days, by_day = zip(*stats.by_day(), strict=True)

    sites = [
        _site(fit, curve_rows(fit, by_day[day.start]), scale)
        for day in parts("days", len(days), 1, progress, "days")
    ]
    precision, pull = (np.array(values) for values in zip(*sites, strict=True))
    states = walk(precision, pull, stats.days.astype(np.int64).astype(float))
    pits: dict[str, list[dict[str, Any]]] = {}
    if fit.mean_only:  # outcomes say nothing of the spread
        for values in (states.p_value, states.smoothed.mean, states.filtered.mean):
            values[:, PARTS.index("spread")] = np.nan
    elif stats.coarse:
        thinned = thin(fit, _DRAWS)
        for day in parts("PIT of days", len(days), 1, progress, "days"):
            t = day.start
            day_fit = _moved(thinned, states.filtered.mean[t], states.filtered.covariance[t], scale)
            items, rng = observe(day_fit, by_day[t]), np.random.default_rng([seed, t])
            name = str(days[t])
            tests = pit_tests(day_fit, items, {name: items.n > 0}, rng, False)
            pits[name] = pit_findings(tests.pits)
    n = {str(day): part.n_items for day, part in zip(days, by_day, strict=True)}
    table = _table(n, states, pits)
    failed = table[table["verdict"] == FAIL].groupby("where")["what"].agg(", ".join)
    alarms = ", ".join(f"{day} ({what})" for day, what in failed.items())
    steps = ", ".join(f"{part} {step:.2g}" for part, step in zip(PARTS, states.step, strict=True))
    advice = (f"Alarms: {alarms or 'none'}.", f"Typical step from a day to the next: {steps}.")
    title = f"drift: {len(days):,} days, {stats.days[0]} to {stats.days[-1]}"
    variables: dict[str, Any] = {"step": ("part", states.step)}
    for name, state in (("smoothed", states.smoothed), ("filtered", states.filtered)):
        variables[name] = ("day", "part"), state.mean
        variables[f"{name}_covariance"] = ("day", "part", "other_part"), state.covariance
    coords = {"day": pd.DatetimeIndex(stats.days), "part": list(PARTS), "other_part": list(PARTS)}
    return Drift(table, xr.Dataset(variables, coords, scale._asdict()), advice, title, fit=fit)


# --- a day's log likelihood ----------------------------------------------------------------------


class _Scale(NamedTuple):
    """Centre and sd of the positions of all items, and the unit of the first curve's departures."""

    centre: float
    sd: float
    unit: float


def _scale(fit: Fit, rows: CurveRows) -> _Scale:
    position = place_of(fit, "mean", rows.score)
    centre = float(np.average(position, weights=rows.n))
    sd = float(np.sqrt(np.average((position - centre) ** 2, weights=rows.n)))
    unit = float(np.average(family_of(fit.prior).unit(rows.dispersion), weights=rows.n))
    return _Scale(centre, sd or 1.0, unit)


def _site(fit: Fit, rows: CurveRows, scale: _Scale) -> tuple[Floats, Floats]:
    """A day's log likelihood in its departure as precision (3, 3) and pull (3,) about its mode.

    A standard normal prior keeps the mode finite on days that say little, and is then taken out.
    """
    position = (place_of(fit, "mean", rows.score) - scale.centre) / scale.sd
    design = scale.unit * np.stack([np.ones(len(position)), position])

    def log_likelihood(departure: Floats) -> tuple[Floats, Floats]:
        """Values (k,) and gradients (k, 3) at departures (k, 3)."""
        curves = rows.location + departure[:, :2] @ design, rows.dispersion + departure[:, 2:]
        value, *slopes = rows.sums.value_and_gradient(*curves)
        gradient = np.column_stack([slopes[0] @ design.T, slopes[1].sum(axis=1)])
        return value.sum(axis=1), gradient

    def loss(x: Floats) -> tuple[float, Floats]:
        value, slope = log_likelihood(x[None])
        return x @ x / 2 - value[0], x - slope[0]

    x = optimize.minimize(loss, np.zeros(3), jac=True, method="BFGS").x
    _, slope = log_likelihood(np.vstack([x, x + _STEP * np.eye(3), x - _STEP * np.eye(3)]))
    bend = (slope[4:] - slope[1:4]) / (2 * _STEP)
    values, vectors = np.linalg.eigh((bend + bend.T) / 2)
    precision = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return precision, precision @ x + slope[0]


# --- results -------------------------------------------------------------------------------------


def _moved(fit: Fit, mean: Floats, covariance: Floats, scale: _Scale) -> Fit:
    """The fit with curves that depart by a normal departure, drawn for every draw."""
    posterior = fit.data["posterior"].to_dataset()
    shape = posterior.sizes["chain"], posterior.sizes["draw"], len(PARTS)
    noise = np.random.default_rng(0).normal(size=shape)
    noise -= noise.mean(axis=(0, 1))
    values, vectors = np.linalg.eigh(covariance)
    # no mean is known of a part that did not move
    drawn = np.nan_to_num(mean) + noise @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    x = xr.DataArray(drawn, dims=("chain", "draw", "part"))
    position = (knots_in(fit.data, "mean_knot") - scale.centre) / scale.sd
    line = scale.unit * (x[..., 0] + x[..., 1] * xr.DataArray(position, dims="mean_knot"))
    curves = {}
    for curve, departure in zip(family_of(fit.prior).curves, (line, x[..., 2]), strict=True):
        for name in (curve, *(f"{curve}_of_{grouping}" for grouping in fit.groupings)):
            if name in posterior:
                curves[name] = (posterior[name] + departure).transpose(*posterior[name].dims)
    return with_posterior(fit, posterior.assign(curves))


def _table(n: dict[str, int], states: Walk, pits: dict[str, list[dict[str, Any]]]) -> pd.DataFrame:
    """A row for each day and part, and for its PIT; `n` are the items of days."""
    mean, variance = states.smoothed.mean, np.diagonal(states.smoothed.covariance, 0, 1, 2)
    half = SIDES * np.sqrt(variance)
    rows: list[dict[str, Any]] = []
    for t, (day, number) in enumerate(n.items()):
        for k, part in enumerate(PARTS):
            ends = {"low": mean[t, k] - half[t, k], "high": mean[t, k] + half[t, k]}
            rows.append(finding(part, day, mean[t, k], states.p_value[t, k], n=number) | ends)
        rows += pits.get(day, [])
    table = result_table(rows).dropna(subset="p", ignore_index=True)
    of_day = table["p"] * table["what"].nunique()
    verdict = np.select([of_day < FALSE_ALARMS / HORIZON, of_day < WARNS], [FAIL, WARN], OK)
    return table.assign(verdict=verdict)
