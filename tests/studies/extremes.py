"""Every closed form in the limits against mpmath at 50 digits.

    python -m tests.studies.extremes
    python -m tests.studies.extremes --only "tail"

Prints for each function the worst relative error and where it is, and up to which value of what
drives the error it stays within 1e-9. An error is relative to the value itself; to max(1, |value|)
where the value itself passes through 0 (derivatives, log densities of values, posterior means of
values, marked `1`). Values below 1e-290 are left out: float64 ends there. Figures in
docs/dev/numerics.md. Shapes run from 1e-8 to 1e12, exposures from 1e-6 to 1e12, counts to 1e9,
noise and spread of values from 1e-12 to 1e12.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import mpmath as mp
import numpy as np
import pandas as pd

from soc_pymc import theory
from soc_pymc.families import (
    components,
    further,
    gamma_quantiles,
    mixture_rows,
    mixtures,
    normal_normal,
    normal_rows,
)
from soc_pymc.families import poisson_gamma as pg
from soc_pymc.families.family import GAMMA, NORMAL
from soc_pymc.posterior.predictive import ThetaMixture
from tests import exact
from tests import extreme_references as ref

LIMIT = 1e-9
_SHAPES = (1e-8, 1e-3, 0.5, 20.0, 1e4, 1e8, 1e12)
_EXPOSURES = (1e-6, 1.0, 1e12)
_COUNTS = (0.0, 1.0, 30.0, 1e4, 1e9)
_FACTORS = (1e-3, 0.9, 1.0, 1.001, 100.0)
_SIGMAS = (1e-12, 1e-3, 1.0, 1e5, 1e12)
_LEAST = 1e-290


@dataclass(frozen=True)
class Point:
    """One evaluation: what was found, what is true, where, and what drives the error."""

    name: str
    got: float
    want: mp.mpf
    where: str
    driver: float
    floor: float = 0.0

    @property
    def error(self) -> float:
        """Relative error as the module says."""
        scale = max(abs(self.want), mp.mpf(self.floor))
        if not np.isfinite(self.got):
            return float("inf")
        return float(abs(mp.mpf(self.got) - self.want) / scale) if scale else abs(self.got)


Points = Iterator[Point]


def _count_grid(fast: bool) -> Iterator[tuple[float, float, float, float]]:
    """Count, exposure, log mean and log cv2; expected counts around, far below and above."""
    shapes = _SHAPES[::2] if fast else _SHAPES
    exposures = _EXPOSURES[::2] if fast else _EXPOSURES
    for shape, exposure, y, factor in product(shapes, exposures, _COUNTS, _FACTORS):
        expected = factor * y if y else factor * 30.0
        yield y, exposure, float(np.log(expected / exposure)), float(-np.log(shape))


def _numbers(point: tuple[float, float, float, float]) -> tuple[float, mp.mpf, mp.mpf]:
    """Count, shape and expected count of the same floating point curves."""
    y, exposure, m, c = point
    return y, mp.exp(-mp.mpf(c)), mp.mpf(exposure) * mp.exp(mp.mpf(m))


def _named(y: float, exposure: float, m: float, c: float) -> str:
    return f"y {y:g}, N {exposure:g}, expected {exposure * np.exp(m):g}, shape {np.exp(-c):g}"


def log_marginal_counts(fast: bool) -> Points:
    """Log probability of a count."""
    for at in _count_grid(fast):
        want = exact.log_pmf(*at)
        yield Point("counts: log marginal", float(pg.log_pmf(*at)), want, _named(*at), at[0])


def rows_of_counts(fast: bool) -> Points:
    """The likelihood's kernel on a row of one item: value and slopes, and its second derivatives.

    The value is relative to the terms of the data alone, which curves do not change.
    """
    for at in _count_grid(fast):
        y, exposure, m, c = at
        h = exact.exact_histograms(np.zeros(1, dtype=int), np.array([y]), np.array([exposure]), 1)
        curves = np.array([[m]]), np.array([[c]])
        found = h.value_and_gradient(*curves, np.arange(1))[:, 0, 0]
        want = ref.count_slopes(*at)
        size = y * abs(np.log(exposure)) + y * abs(np.log(max(y, 1.0))) + 1.0
        log = exact.log_pmf(*at)
        name = _named(*at)
        driver = max(y, exposure * np.exp(m))
        yield Point("rows of counts: value, to its data's terms", found[0], log, name, y, size)
        yield Point("rows of counts: value", found[0], log, name, driver)
        yield Point("rows of counts: slope in log mean", found[1], want[0], name, driver, 1.0)
        yield Point("rows of counts: slope in log cv2", found[2], want[1], name, driver, 1.0)
        other = h.curvature(curves[0][0], curves[1][0], np.arange(1))[:, 0]
        yield Point("bins of counts: slope in log mean", other[1], want[0], name, driver, 1.0)
        yield Point("bins of counts: slope in log cv2", other[2], want[1], name, driver, 1.0)
        yield from _curvature(other, at, name, driver)


def _curvature(found: np.ndarray, at: tuple, name: str, driver: float) -> Points:
    y, a, mean = _numbers(at)
    turn = mean * a / (a + mean)
    by_mm = -turn * (a + y) / (a + mean)
    by_mc = turn * (mean - y) / (a + mean)
    y = mp.mpf(y)
    first = mp.digamma(a + y) - mp.digamma(a) - mp.log1p(mean / a) + (mean - y) / (a + mean)
    second = mp.polygamma(1, a + y) - mp.polygamma(1, a)
    second += mean / (a * (a + mean)) - (mean - y) / (a + mean) ** 2
    by_cc = a * first + a * a * second
    names = ("log mean, twice", "both", "log cv2, twice")
    for label, got, want in zip(names, found[3:], (by_mm, by_mc, by_cc), strict=True):
        yield Point(f"bins of counts: second, {label}", got, want, name, driver, 1.0)


def cdf_counts(fast: bool) -> Points:
    """P(Y <= y): by the incomplete beta function, and by adding up."""
    shapes = (1e-8, 0.5, 1e12) if fast else _SHAPES
    for shape, expected, z in product(shapes, (1e-6, 1.0, 1e4, 1e9), (-6.0, 0.3, 6.0)):
        sd = np.sqrt(expected * (1.0 + expected / shape))
        far = expected * np.exp(z) if shape < 20 else max(expected + z * sd, 0.0)
        y = float(np.floor(min(far, 1e9)))
        if fast and 200 < y < 1e6:
            continue
        m, c = float(np.log(expected / 7.0)), float(-np.log(shape))
        _, a, mean = _numbers((y, 7.0, m, c))
        want = ref.count_tails(y, a, mean)[0]
        name = _named(y, 7.0, m, c)
        if want > _LEAST:
            yield Point("counts: cdf", float(pg.cdf(y, 7.0, m, c)), want, name, y)
            ends = pg.cdf_interval(np.array([y]), np.array([7.0]), np.array([[m]]), np.array([[c]]))
            yield Point("counts: both ends of the cdf", ends[1][0, 0], want, name, y)


def posterior_counts(fast: bool) -> Points:
    """Posterior mean and variance of theta."""
    for at in _count_grid(True):
        y, exposure, m, c = at
        after = pg.update(*pg.shape_rate(m, c), y, exposure)
        a = mp.exp(-mp.mpf(c))
        rate = mp.exp(-mp.mpf(c) - mp.mpf(m)) + mp.mpf(exposure)
        name = _named(*at)
        yield Point("counts: posterior mean", float(pg.mean(*after)), (a + y) / rate, name, y)
        variance = float(pg.variance(*after))
        yield Point("counts: posterior variance", variance, (a + y) / rate**2, name, y)


def gamma_tails(fast: bool) -> Points:
    """Tails and partial expectations of a Gamma, for thresholds and losses."""
    places = (-7.0, 0.5, 7.0) if fast else (-20.0, -7.0, -1.0, 0.1, 3.0, 7.0, 20.0)
    for shape, z in product(_SHAPES[::2] if fast else _SHAPES, places):
        x = shape + z * np.sqrt(shape) if shape >= 1e3 else shape * np.exp(z / 2.0)
        lower, upper = ref.gamma_tails(shape, x)
        a, b = mp.mpf(shape), mp.mpf(float(x))
        bell = mp.exp(a * mp.log(b) - b - mp.loggamma(a))
        args = np.array([x]), np.array([shape]), np.array([1.0])
        wants = {
            "above": (upper, GAMMA.above(*args)),
            "excess": ((a - b) * upper + bell, GAMMA.excess(*args)),
            "shortfall": ((b - a) * lower + bell, GAMMA.shortfall(*args)),
        }
        for name, (want, got) in wants.items():
            if want > _LEAST:
                place = f"shape {shape:g}, cut {x:g}"
                yield Point(f"Gamma tail: {name}", float(got[0]), want, place, shape)


def gamma_quantiles_of(fast: bool) -> Points:
    """Quantiles of a Gamma: error of the quantile by that of the cdf there over the density."""
    probs = (1e-6, 0.5, 1 - 1e-6) if fast else (1e-12, 1e-6, 0.05, 0.5, 0.95, 1 - 1e-6)
    for shape, prob in product(_SHAPES[::2] if fast else _SHAPES, probs):
        x = float(pg.quantile(prob, shape, 1.0))
        a, p = mp.mpf(shape), mp.mpf(prob)
        place = f"shape {shape:g}, probability {prob:g}"
        if x < 1e-300:  # the quantile of the leading term, which is below all numbers
            want = mp.exp((mp.log(p) + mp.loggamma(a + 1)) / a)
            got = x if want > mp.mpf("1e-300") else 0.0
            yield Point("Gamma: quantile", got, want if got else mp.mpf(0), place, shape)
            continue
        lower, upper = ref.gamma_tails(shape, x)
        density = mp.exp(a * mp.log(x) - x - mp.loggamma(a))
        away = (lower - p) if p < 0.5 else (1 - p) - upper
        want = mp.mpf(x) * (1 - away / density)
        yield Point("Gamma: quantile", x, want, place, shape)


def table_quantiles(fast: bool) -> Points:
    """Quantiles by the table that scores items, in posterior sd; and its tail probabilities."""
    probs = (0.05, 0.5, 0.95)
    tables = gamma_quantiles.quantile_tables(probs)
    for shape, (k, prob) in product((2e-3, 0.1, 0.7, 15.0, 3e3, 2e7, 1e12), enumerate(probs)):
        cell, share = gamma_quantiles.table_cell(np.log(shape))
        scaled = gamma_quantiles.table_values(tables, k, cell, share)[0]
        got = np.exp(scaled / np.sqrt(shape)) * np.sqrt(shape)
        exact_one = float(pg.quantile(prob, shape, 1.0)) / np.sqrt(shape)
        place = f"shape {shape:g}, probability {prob:g}"
        want = mp.mpf(exact_one)
        yield Point("item kernels: quantile, in sd", float(got), want, place, shape, 1.0)
        x = float(shape * np.exp(0.3 / np.sqrt(shape)))
        tail, _ = gamma_quantiles.tail_and_density(shape, x, float(mp.loggamma(shape)), True)
        lower = ref.gamma_tails(shape, x)[0]
        yield Point("item kernels: cdf", float(tail), lower, place, shape)


def _value_grid(fast: bool) -> Iterator[tuple[float, float, float, float]]:
    """Value, noise sd, mean and log variance; means reach 1e12."""
    sigmas = _SIGMAS[::2] if fast else _SIGMAS
    for noise, spread, z in product(sigmas, sigmas, (-30.0, -1.0, 0.2, 6.0)):
        for mean in (0.0, 1.0, -1e12):
            total = float(np.hypot(noise, spread))
            yield mean + z * total, noise, mean, float(2.0 * np.log(spread))


def values(fast: bool) -> Points:
    """Marginal and posterior of a value with noise, and the likelihood's kernel on one item."""
    for at in _value_grid(fast):
        y, noise, mean, c = at
        where = f"y {y:g}, noise {noise:g}, mean {mean:g}, sd {np.exp(c / 2):g}"
        log = ref.normal_log_density(*at)
        got = float(normal_normal.log_density(*at))
        yield Point("values: log marginal", got, log, where, noise, 1.0)
        total = mp.sqrt(mp.exp(mp.mpf(c)) + mp.mpf(noise) ** 2)
        low = ref.normal_cdf((mp.mpf(y) - mp.mpf(mean)) / total)
        yield Point("values: cdf", float(normal_normal.cdf(*at)), low, where, noise)
        variance = mp.exp(mp.mpf(c))
        after = normal_normal.update(mean, float(np.exp(c)), y, noise**2)
        share = variance / (variance + mp.mpf(noise) ** 2)
        centre = mp.mpf(y) * share + mp.mpf(mean) * (1 - share)
        left = share * mp.mpf(noise) ** 2
        scale = float(abs(mp.mpf(y) * share) + abs(mp.mpf(mean) * (1 - share)))
        yield Point("values: posterior mean", float(after[0]), centre, where, noise, scale)
        yield Point("values: posterior variance", float(after[1]), left, where, noise)
        quantile = float(normal_normal.quantile(0.05, *after))
        z = mp.sqrt(2) * mp.erfinv(2 * mp.mpf(0.05) - 1)
        scale += float(mp.sqrt(left))
        want = centre + z * mp.sqrt(left)
        yield Point("values: posterior quantile", quantile, want, where, noise, scale)
        yield from _row_of_values(at, where)


def _row_of_values(at: tuple[float, float, float, float], where: str) -> Points:
    y, noise, mean, c = at
    w = np.array([noise**2]) ** np.arange(4)
    sums = np.stack([w, y * w, y * y * w])[None]
    cells = normal_rows.make_normal_cells(1, np.zeros(1, dtype=np.int64), sums)
    curves = np.array([[mean]]), np.array([[c]])
    found = cells.value_and_gradient(*curves, np.arange(1))[:, 0, 0]
    want = ref.normal_slopes(*at)
    wants = (ref.normal_log_density(*at), *want)
    # the slope in the mean is in the unit of one over the values: one sd is its size
    unit = float(1.0 / np.hypot(noise, np.exp(c / 2)))
    labels = ("value", "slope in mean, in sd", "slope in log variance")
    for label, got, true, floor in zip(labels, found, wants, (1.0, unit, 1.0), strict=True):
        yield Point(f"rows of values: {label}", got, true, where, abs(y), floor)


def mixture_counts(fast: bool) -> Points:
    """Mixtures of Gammas on the log scale: marginal and posterior moments."""
    z = components.GAMMAS.z[::6]
    spreads = (1e-5, 1e-2, 1.0, 10.0)
    for spread, (y, factor), exposure in product(
        spreads, ((0.0, 1.0), (30.0, 1.0), (1e4, 0.5), (1e9, 1.001)), (1e-6, 1e12)
    ):
        centre = np.log(factor * max(y, 1.0) / exposure)
        location = np.array([centre + spread * z])
        variance = np.array([(components.WIDTH * spread) ** 2])
        shape = ref.inverse_trigamma(variance[0])
        shift = mp.log(shape) - mp.digamma(shape)
        n = mp.mpf(exposure)
        means = [mp.exp(mp.mpf(float(v)) + shift) for v in location[0]]
        logs = [ref.log_count(y, shape, n * m) for m in means]
        where = f"y {y:g}, N {exposure:g}, spread {spread:g}"
        given = np.array([y]), np.array([exposure]), location, variance
        found = components.count_log_density(*given)
        whole = mp.log(mp.fsum(mp.exp(v) for v in logs) / len(z))
        top = found.max()
        log = float(top + np.log(np.exp(found - top).mean()))
        yield Point("mixture of Gammas: log marginal", log, whole, where, y)
        got = float(components.inverse_trigamma(variance)[0])
        yield Point("mixture of Gammas: shape", got, shape, where, 1 / spread)
        weight = [mp.exp(v - whole) / len(z) for v in logs]
        afters = [(shape + y) / (shape / m + n) for m in means]
        mean = mp.fsum(w * m for w, m in zip(weight, afters, strict=True))
        inside = (
            w * ((shape + y) / (shape / m + n) ** 2 + (after - mean) ** 2)
            for w, m, after in zip(weight, means, afters, strict=True)
        )
        each = _moments(GAMMA, *given)
        density = np.exp(found - top)
        blocks = [(np.arange(1), np.full((1, 1, len(z)), 1.0 / len(z)))]
        one = mixtures.draw_moments(density, *each, 0.0, np.zeros(1, dtype=np.int64), blocks, 1)
        total = mp.fsum(inside)
        yield Point("mixture of Gammas: posterior mean", one[0][0, 0], mean, where, y)
        yield Point("mixture of Gammas: posterior variance", one[1][0, 0], total, where, y)


def _moments(family, outcome, size, location, variance):
    """Mean and variance of theta given the outcome under each component."""
    prior = family.mixtures.parameters(location, variance[:, None])
    after = np.broadcast_arrays(*family.update(*prior, outcome[:, None], size[:, None]))
    return family.mean(*after), family.variance(*after)


def kernel_of_mixtures(fast: bool) -> Points:
    """The likelihood's kernel in single precision, absolute error in nats an item.

    At weights that are solved for where both curves and the path leave the grid's.
    """
    z = components.GAMMAS.z
    for spread, (y, factor), exposure in product(
        (1e-5, 1e-2, 1.0, 10.0),
        ((0.0, 1.0), (30.0, 1.0), (1e4, 0.5), (1e9, 1.001)),
        (1e-6, 1e12),
    ):
        shape = components.inverse_trigamma(np.array([spread**2]))
        curves = np.array([np.log(factor * max(y, 1.0) / exposure), -np.log(shape[0])])
        base = components.count_frame(*curves[:, None])
        forms = components.GAMMAS.forms(base, np.zeros((len(z), 1)), curves[None])
        predictors = np.array([[[curves[0] + 0.2 * min(spread, 1.0), curves[1] + 0.3, 0.6]]])
        own = np.array([y]), np.array([exposure])
        found = components.count_log_density(*own, base.places(z), base.width())
        top = found.max(keepdims=True)[0]
        cells = np.array([0, 1]), np.ones(1), np.exp(found - top).astype(np.float32), top
        out, slope = np.empty((1, 1)), np.empty((1, 1, 3))
        none = np.empty(0, dtype=np.float32)
        mixture_rows.all_rows(predictors, out, slope, *forms.arrays, *cells, none)
        weight = mixture_rows.solved(predictors, *forms.arrays)[0][0, 0]
        inner = ref.inverse_trigamma(base.width()[0])
        shift = mp.log(inner) - mp.digamma(inner) + mp.log(mp.mpf(exposure))
        logs = [
            ref.log_count(y, inner, mp.exp(mp.mpf(float(x)) + shift)) for x in base.places(z)[0]
        ]
        want = mp.log(mp.fsum(w * mp.exp(v) for w, v in zip(weight, logs, strict=True)))
        where = f"y {y:g}, N {exposure:g}, spread {spread:g}"
        yield Point(
            "kernel of mixtures: log marginal of an item, in nats",
            float(out[0, 0] - top[0]), want - mp.mpf(top[0]), where, 0.0, 1.0,
        )  # fmt: skip


def mixture_values(fast: bool) -> Points:
    """Mixtures of Normals: marginal, posterior moments, quantiles of a mixture of posteriors."""
    z = components.NORMALS.z[::6]
    for spread, noise, centre in product(_SIGMAS, _SIGMAS, (0.0, 1e12)):
        location, y = np.array([centre + spread * z]), centre + 0.7 * np.hypot(spread, noise)
        variance = np.array([(components.WIDTH * spread) ** 2])
        given = np.array([y]), np.array([noise**2]), location, variance
        found = components.value_log_density(*given)[0]
        v, w = mp.mpf(float(variance[0])), mp.mpf(float(noise)) ** 2
        away = [mp.mpf(float(y)) - mp.mpf(float(m)) for m in location[0]]
        logs = [-(d**2) / (2 * (v + w)) - mp.log(2 * mp.pi * (v + w)) / 2 for d in away]
        want = mp.log(mp.fsum(mp.exp(x) for x in logs) / len(z))
        top = found.max()
        log = float(top + np.log(np.exp(found - top).mean()))
        where = f"y {y:g}, spread {spread:g}, noise {noise:g}"
        yield Point("mixture of Normals: log marginal", log, want, where, noise, 1.0)
        means, widths = _moments(NORMAL, np.array([y]), np.array([noise]), location, variance)
        share = np.full((len(z), 1), 1.0 / len(z))
        summary = mixtures.normal_summaries(means.T, widths.T, (), share)
        afters = [(mp.mpf(float(m)) * w + v * mp.mpf(float(y))) / (v + w) for m in location[0]]
        mean = mp.fsum(afters) / len(z)
        total = v * w / (v + w) + mp.fsum((a - mean) ** 2 for a in afters) / len(z)
        scale = abs(centre) + spread + noise
        yield Point(
            "mixture of Normals: posterior mean", summary.mean[0], mean, where, noise, scale
        )
        away = abs(centre) / float(mp.sqrt(total))
        got = summary.variance[0]
        yield Point("mixture of Normals: posterior variance", got, total, where, away)


def mixed_gammas(fast: bool) -> Points:
    """Posteriors averaged over draws of the curves: moments, and the cdf at their quantiles."""
    for shape, y, prob in product((1e-3, 0.5, 1e4, 1e8, 1e12), (0.0, 30.0, 1e9), (0.05, 0.95)):
        log_mean = np.log(np.array([[0.9], [1.1]]) * max(y, 1.0) / 7.0)
        log_cv2 = -np.log(np.array([[shape], [1.3 * shape]]))
        found = mixtures.gamma_summaries(
            log_mean, log_cv2, np.array([y]), np.array([7.0]), (prob,), close=1e-12
        )
        shapes = [mp.exp(-mp.mpf(float(c))) + y for c in log_cv2[:, 0]]
        rates = [
            mp.exp(-mp.mpf(float(c)) - mp.mpf(float(m))) + 7
            for m, c in zip(log_mean[:, 0], log_cv2[:, 0], strict=True)
        ]
        means = [a / b for a, b in zip(shapes, rates, strict=True)]
        mean = mp.fsum(means) / 2
        within = mp.fsum(a / b**2 for a, b in zip(shapes, rates, strict=True)) / 2
        total = within + mp.fsum((m - mean) ** 2 for m in means) / 2
        where = f"shape {shape:g}, y {y:g}, probability {prob:g}"
        yield Point("mixed Gammas: mean", found.mean[0], mean, where, y)
        yield Point("mixed Gammas: variance", found.variance[0], total, where, y)
        theta = float(found.quantiles[0, 0])
        if theta < 1e-290:
            continue
        both = [ref.gamma_tails(a, mp.mpf(theta) * b) for a, b in zip(shapes, rates, strict=True)]
        side = 0 if prob < 0.5 else 1
        share = mp.fsum(tail[side] for tail in both) / 2
        wanted = mp.mpf(prob) if side == 0 else 1 - mp.mpf(prob)
        at = [mp.mpf(theta) * b for b in rates]
        density = mp.fsum(
            mp.exp(a * mp.log(x) - x - mp.loggamma(a)) for a, x in zip(shapes, at, strict=True)
        )
        away = (share - wanted) if side == 0 else (wanted - share)
        want = mp.mpf(theta) * (1 - away / (density / 2))
        yield Point("mixed Gammas: quantile", theta, want, where, y)


def theory_moments(fast: bool) -> Points:
    """Robbins' formula of a Gamma prior's own marginal, and Tweedie's of a Normal's."""
    for shape, y, exposure in product((0.5, 1e4, 1e12), _COUNTS, (1e-6, 1e12)):
        c, m = float(-np.log(shape)), float(np.log(max(y, 0.1) / exposure))
        a = mp.exp(-mp.mpf(c))
        rate = a / mp.exp(mp.mpf(m)) + mp.mpf(exposure)
        found = theory.poisson_cumulants(
            y, exposure, lambda k, e=exposure, m=m, c=c: pg.log_pmf(k, e, m, c)
        )
        where = f"shape {shape:g}, y {y:g}, N {exposure:g}"
        yield Point("theory: Robbins' mean", float(found[0]), (a + y) / rate, where, y)
        variance = (a + y) / rate**2
        yield Point("theory: Robbins' variance", float(found[1]), variance, where, shape + y)
    for noise, spread, y in product(_SIGMAS, _SIGMAS, (0.3, -5.0)):
        total = noise**2 + spread**2
        at = y * np.sqrt(total)
        found = theory.tweedie(at, noise, np.array([-at / total, -1.0 / total]))
        v, w = mp.mpf(spread) ** 2, mp.mpf(noise) ** 2
        where = f"y {at:g}, noise {noise:g}, sd {spread:g}"
        ratio = noise / spread
        mean = mp.mpf(float(at)) * v / (v + w)
        yield Point("theory: Tweedie's mean", float(found[0]), mean, where, ratio)
        yield Point("theory: Tweedie's variance", float(found[1]), v * w / (v + w), where, ratio)


def decision_values(fast: bool) -> Points:
    """Value of more exposure at a threshold, and expected variance, of a single Gamma."""
    for shape, more_share, cut in product((0.5, 20.0, 1e8), (0.1, 10.0), (0.8, 1.0, 1.3)):
        rate, more = shape / 2.0, more_share * shape / 2.0
        at = 2.0 * (1.0 + (cut - 1.0) / max(1.0, np.sqrt(shape)))
        theta = ThetaMixture(np.array([[shape]]), np.array([[rate]]))
        args = theta, np.array([more]), np.array([at])
        got = float(GAMMA.further.value(args[0], *args)[0])
        a, b, n, t = (mp.mpf(float(v)) for v in (shape, rate, more, at))
        least = mp.floor(t * (b + n) - a) + 1
        mean = a / b
        if least > 0:
            upto, above = ref.count_tails(least - 1, a, a * n / b)
            point = mp.exp(ref.log_count(least, a, a * n / b)) * least / b
            tail = above if not mean > t else -upto
        else:
            point, tail = mp.mpf(0), mp.mpf(0 if mean > t else 1)
        want = point + (mean - t) * tail
        where = f"shape {shape:g}, more {more:g}, cut {at:g}"
        yield Point("decisions: value of more exposure", got, want, where, shape)
        one = ThetaMixture(np.array([[shape]]), np.array([[rate]]), np.ones((1, 1)))
        left = float(further.expected_variance(GAMMA.further, one, np.array([more]))[0])
        yield Point("decisions: expected variance on a grid", left, a / b / (b + n), where, shape)


ALL: tuple[Callable[[bool], Points], ...] = (
    log_marginal_counts,
    rows_of_counts,
    cdf_counts,
    posterior_counts,
    gamma_tails,
    gamma_quantiles_of,
    table_quantiles,
    values,
    mixture_counts,
    kernel_of_mixtures,
    mixture_values,
    mixed_gammas,
    theory_moments,
    decision_values,
)


@mp.workdps(50)
def table(fast: bool = False, only: str = "") -> pd.DataFrame:
    """Worst error of each function, where it is, and up to which driver all are within 1e-9."""
    from tests.studies.extremes_fits import PARTS  # it needs this module

    rows = []
    for part in (*ALL, *PARTS):
        rows += [(p.name, p.error, p.where, p.driver) for p in part(fast) if only in p.name]
    points = pd.DataFrame(rows, columns=["function", "worst_error", "where", "driver"])
    found = []
    for name, own in points.groupby("function", sort=False):
        worst = own.loc[own["worst_error"].idxmax()]
        bad = own["driver"][own["worst_error"] > LIMIT]
        good = own["driver"][own["driver"] < bad.min()] if len(bad) else own["driver"]
        upto = "all" if not len(bad) else f"{good.max():.3g}" if len(good) else "none"
        found.append((name, len(own), worst["worst_error"], upto, worst["where"]))
    columns = ["function", "points", "worst_error", "within_1e-9_up_to", "where"]
    return pd.DataFrame(found, columns=columns).set_index("function")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of the functions' names")
    parser.add_argument("--fast", action="store_true", help="the grid of the default tests")
    given = parser.parse_args()
    with pd.option_context("display.width", 200, "display.max_colwidth", 80):
        print(table(given.fast, given.only).to_string(float_format="{:.1e}".format))


if __name__ == "__main__":
    main()
