"""What stands above the closed forms in the limits: laws of fits, cells of items, effects of bins.

Parts of `tests.studies.extremes`, which runs them. Laws are those of fits whose draws of the curves
are replaced by given ones, up to the bounds of 1e-100 and 1e100 that curves are kept within.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import mpmath as mp
import numpy as np
import pandas as pd
import xarray as xr

import soc_pymc as soc
from soc_pymc.families import bin_effects, components, mixture_rows, normal_rows
from soc_pymc.families.priors import COMPONENTS, CURVES
from soc_pymc.posterior.curves import curve_draws
from soc_pymc.posterior.predictive import posterior_of
from soc_pymc.posterior.quadrature import representative_nodes
from tests import exact
from tests import extreme_references as ref
from tests.studies.extremes import Point, Points

_LEAST = 1e-290
_PROBS = (0.05, 0.95)
_LOG_LIMIT = 230.0
_LOG_CV2 = (_LOG_LIMIT, np.log(1e8), np.log(2.0), np.log(1e-4), np.log(1e-12), -_LOG_LIMIT)
_LOG_VARIANCE = (-_LOG_LIMIT, 2 * np.log(1e-12), 0.0, 2 * np.log(1e12), _LOG_LIMIT)


@cache
def _statistics(prior: str) -> soc.Statistics:
    """Of a few plain items of the prior's kind."""
    rng = np.random.default_rng(0)
    score = np.exp(rng.normal(size=300))
    if prior.startswith("Gamma"):
        frame = pd.DataFrame({"t": score, "y": rng.poisson(score * 50.0), "N": 50.0})
        items: object = soc.PoissonItems(frame, score="t", count="y", exposure="N")
    else:
        frame = pd.DataFrame({"t": score, "y": score + rng.normal(size=300), "s": 0.5})
        items = soc.NormalItems(frame, score="t", value="y", noise_sd="s")
    return soc.summarize(items, bins=20, joint=True, progress=False)


@cache
def _fit(prior: str) -> soc.Fit:
    """A small fit, whose draws are replaced."""
    return soc.fit(_statistics(prior), getattr(soc, prior)(), soc.FiveSteps(), progress=False)


def _with(fit: soc.Fit, values: dict[str, tuple[tuple[str, ...], np.ndarray]]) -> soc.Fit:
    """The fit with other draws."""
    old = fit.data["posterior"].to_dataset()
    draws = next(iter(values.values()))[1].shape[1]
    knots = {k: old[k] for k in ("mean_knot", "variance_knot")}
    own = xr.Dataset(values, {"chain": [0], "draw": np.arange(draws), **knots})
    tree = xr.DataTree.from_dict({"posterior": own, "constant_data": fit.data["constant_data"]})
    tree.attrs = dict(fit.data.attrs)
    return replace(fit, data=tree)


def _constant(prior: str, first: list[float], second: list[float]) -> soc.Fit:
    """A fit with curves that do not depend on the score, draw by draw."""
    fit = _fit(prior)
    values = {}
    for name, knot, given in zip(
        CURVES[prior], ("mean_knot", "variance_knot"), (first, second), strict=True
    ):
        knots = fit.data["posterior"].sizes[knot]
        values[name] = (("chain", "draw", knot), np.tile(np.array(given)[None, :, None], knots))
    return _with(fit, values)


# --- laws ----------------------------------------------------------------------------------------


def _count_items(fast: bool) -> Iterator[tuple[float, float, float, float]]:
    """Log cv2, count, exposure and log mean."""
    for c, y, n in product(_LOG_CV2, (0.0, 30.0, 1e9), (1e-6, 1e12)):
        if fast and n < 1.0 and y:
            continue
        for factor in (1.001,) if fast else (0.01, 1.001, 50.0):
            yield float(c), y, n, float(np.log(factor * max(y, 0.2) / n))


def _total(means: list, variances: list) -> tuple[mp.mpf, mp.mpf]:
    """Mean and variance of an equal mixture."""
    mean = mp.fsum(means) / len(means)
    return mean, mp.fsum(v + (m - mean) ** 2 for m, v in zip(means, variances, strict=True)) / len(
        means
    )


def gamma_law(fast: bool) -> Points:
    """Posterior moments over two draws, by all ways of scoring; densities of both."""
    for c, y, n, m in _count_items(fast):
        fit = _constant("Gamma", [m, m + 0.1], [c, c + 0.2 if c < 200 else c - 0.2])
        law, columns = posterior_of(fit), {k: np.array([v]) for k, v in
                                     (("score", 1.0), ("count", y), ("exposure", n))}  # fmt: skip
        first, second = (x[:, 0] for x in curve_draws(fit, columns["score"]))
        shapes = [mp.exp(-mp.mpf(float(x))) for x in second]
        rates = [a / mp.exp(mp.mpf(float(x))) for a, x in zip(shapes, first, strict=True)]
        where = f"shape {np.exp(-c):g}, y {y:g}, N {n:g}, expected {n * np.exp(m):g}"
        driver = -c
        afters = [(a + y, b + mp.mpf(n)) for a, b in zip(shapes, rates, strict=True)]
        mean, total = _total([a / b for a, b in afters], [a / b**2 for a, b in afters])
        found = law.scorer((), "all", False)(columns)[:, 0]
        yield Point("law of Gamma: posterior mean", found[0], mean, where, driver)
        if total > _LEAST:
            yield Point("law of Gamma: posterior variance", found[2], total, where, driver)
        one = law.theta(columns)
        got = float(one.average(one.first / one.second)[0])
        yield Point("law of Gamma: mixture for decisions", got, mean, where, driver)
        logs = law.log_density(columns)[:, 0]
        for log, a, b in zip(logs, shapes, rates, strict=True):
            with mp.workdps(
                50 + max(0, int(3 * mp.log10(a)))
            ):  # of log Gamma(a + y) - log Gamma(a)
                want = ref.log_count(y, a, mp.mpf(n) * a / b)
            yield Point("law of Gamma: log density", float(log), want, where, driver)
        if not fast or y == 1e9:
            yield from _gamma_tails(c, y, n, m, where)


def _gamma_tails(c: float, y: float, n: float, m: float, where: str) -> Points:
    """Predictive cdf of the outcome and of a further one, and quantiles, of a single draw."""
    fit = _constant("Gamma", [m], [c])
    law = posterior_of(fit)
    columns = {"score": np.ones(1), "count": np.array([y]), "exposure": np.array([n])}
    # the curves as the law has them: in far tails their last digit counts
    _, *nodes = representative_nodes(fit, columns["score"])
    first, second = (mp.mpf(float(x[0, 0])) for x in nodes)
    a = mp.exp(-second)
    b = a / mp.exp(first)
    if not mp.mpf("1e-9") < a < mp.mpf("1e13"):
        return  # the references' integrals end there
    upto = ref.count_tails(y, a, mp.mpf(n) * mp.exp(first))[0]
    got = float(law.cdf_interval(columns)[1][0])
    if upto > _LEAST:
        yield Point("law of Gamma: predictive cdf", got, upto, where, -c)
    # a further count in a tenth of the exposure, near what is expected of it
    after, rate = a + y, b + mp.mpf(n)
    more, expected = 0.1 * n, mp.mpf(0.1 * n) * after / rate
    if expected < 1e10:
        next_one = np.array([float(mp.floor(expected))])
        got = float(law.further_cdf_interval(columns, next_one, np.array([more]))[1][0])
        upto, _ = ref.count_tails(next_one[0], after, expected)
        yield Point("law of Gamma: cdf of a further count", got, upto, where, -c)
    found = law.scorer(_PROBS, "all", False)(columns)[3:, 0]
    for prob, theta in zip(_PROBS, found, strict=True):
        if theta < _LEAST:
            continue
        x = mp.mpf(float(theta)) * rate
        lower, upper = ref.gamma_tails(after, x)
        density = mp.exp(after * mp.log(x) - x - mp.loggamma(after))
        p = mp.mpf(prob)
        away = (lower - p) if prob < 0.5 else (1 - p) - upper
        want = mp.mpf(float(theta)) * (1 - away / density)
        yield Point("law of Gamma: quantile", float(theta), want, where, -c)


def normal_law(fast: bool) -> Points:
    """The same of values; relative to their absolute terms, as they pass through 0."""
    noises = (1e-12, 1.0, 1e12)
    for c, noise, mean, z in product(
        _LOG_VARIANCE, noises, (0.0, -1e12), (0.3,) if fast else (-30.0, 0.3, 6.0)
    ):
        spread = float(np.exp(c / 2))
        y = float(np.clip(mean + z * np.hypot(noise, spread), -1e35, 1e35))
        fit = _constant("Normal", [mean, mean + 0.1 * min(spread, 1e35)], [c, c])
        law = posterior_of(fit)
        columns = {"score": np.ones(1), "value": np.array([y]), "noise_sd": np.array([noise])}
        first, second = (x[:, 0] for x in curve_draws(fit, columns["score"]))
        y_, w = mp.mpf(y), mp.mpf(noise) ** 2
        priors = [
            (mp.mpf(float(m)), mp.exp(mp.mpf(float(v)))) for m, v in zip(first, second, strict=True)
        ]
        after = [((m * w + v * y_) / (v + w), v * w / (v + w)) for m, v in priors]
        want, total = _total([m for m, _ in after], [v for _, v in after])
        where = f"y {y:g}, noise {noise:g}, mean {mean:g}, sd {spread:g}"
        scale = float(abs(mean) + abs(y) + mp.sqrt(total))
        found = law.scorer((), "all", False)(columns)[:, 0]
        yield Point("law of Normal: posterior mean", found[0], want, where, noise, scale)
        away = float(abs(want) / mp.sqrt(total))
        yield Point("law of Normal: posterior variance", found[2], total, where, away)
        one = law.theta(columns)
        got = float(one.average(one.first)[0])
        yield Point("law of Normal: mixture for decisions", got, want, where, noise, scale)
        logs = law.log_density(columns)[:, 0]
        for log, (m, v) in zip(logs, priors, strict=True):
            t = v + w
            density = -((y_ - m) ** 2) / (2 * t) - mp.log(2 * mp.pi * t) / 2
            yield Point("law of Normal: log density", float(log), density, where, noise, 1.0)


def step_mixture_law(fast: bool) -> Points:
    """Five-step mixtures: three components of given places, in units of their spread."""
    share = np.array([0.2, 0.5, 0.3])
    for spread, (y, factor), n in product(
        (1e-5, 1.0, 10.0), ((0.0, 1.0), (30.0, 1.0), (1e9, 1.001)), (1e-6, 1e12)
    ):
        m = float(np.log(factor * max(y, 0.2) / n))
        place = spread * np.array([-1.0, 0.0, 1.0])
        columns = {"score": np.ones(1), "count": np.array([y]), "exposure": np.array([n])}
        law, middle = _step_law("GammaMixture", m, share, place, 0.4 * spread, columns["score"])
        shape = ref.inverse_trigamma((0.4 * spread) ** 2)
        shift = mp.log(shape) - mp.digamma(shape)
        means = [mp.exp(mp.mpf(float(middle)) + mp.mpf(float(p)) + shift) for p in place]
        logs = [ref.log_count(y, shape, mp.mpf(n) * x) for x in means]
        weights = [mp.mpf(float(s)) * mp.exp(v) for s, v in zip(share, logs, strict=True)]
        after = [((shape + y), shape / x + mp.mpf(n)) for x in means]
        where = f"y {y:g}, N {n:g}, spread {spread:g}"
        moments = [(a / b, a / b**2) for a, b in after]
        yield from _step_points("Gamma", law, columns, weights, moments, where, y)
    for spread, noise in product((1e-12, 1.0, 1e12), (1e-12, 1.0, 1e12)):
        y, place = 0.7 * float(np.hypot(spread, noise)), spread * np.array([-1.0, 0.0, 1.0])
        columns = {"score": np.ones(1), "value": np.array([y]), "noise_sd": np.array([noise])}
        law, middle = _step_law("NormalMixture", 0.0, share, place, 0.4 * spread, columns["score"])
        v, w = mp.mpf(0.4 * spread) ** 2, mp.mpf(noise) ** 2
        centres = [mp.mpf(float(middle)) + mp.mpf(float(p)) for p in place]
        weights = [
            mp.mpf(float(s))
            * mp.exp(-((y - x) ** 2) / (2 * (v + w)))
            / mp.sqrt(2 * mp.pi * (v + w))
            for s, x in zip(share, centres, strict=True)
        ]
        moments = [((x * w + v * mp.mpf(y)) / (v + w), v * w / (v + w)) for x in centres]
        where = f"y {y:g}, noise {noise:g}, spread {spread:g}"
        yield from _step_points("Normal", law, columns, weights, moments, where, noise / spread)


def _step_law(
    prior: str, m: float, share: np.ndarray, place: np.ndarray, sd: float, score: np.ndarray
) -> tuple[object, float]:
    """The law with the same components in every bin, and the curve of the mean."""
    fit = _fit(prior)
    old = fit.data["posterior"]
    shape = (old.sizes["bin"], 1)
    rows = (share, place, np.full(3, sd))
    values = {
        name: (("chain", "draw", "bin", "component"), np.tile(row, shape)[None, None])
        for name, row in zip(COMPONENTS, rows, strict=True)
    }
    for name in old.data_vars:
        if old[name].dims[-1] in ("mean_knot", "variance_knot"):
            values[str(name)] = (old[name].dims, np.full(old[name].shape, m))
    own = _with(fit, values)
    return posterior_of(own), curve_draws(own, score)[0][0, 0]


def _step_points(
    kind: str, law: object, columns: dict, weights: list, moments: list, where: str, driver: float
) -> Points:
    total = mp.fsum(weights)
    share = [w / total for w in weights]
    mean = mp.fsum(s * m for s, (m, _) in zip(share, moments, strict=True))
    variance = mp.fsum(s * (v + (m - mean) ** 2) for s, (m, v) in zip(share, moments, strict=True))
    found = law.scorer((), "all", False)(columns)[:, 0]
    name = f"law of steps of {kind}s"
    log = float(law.log_density(columns)[0, 0])
    yield Point(f"{name}: log density", log, mp.log(total), where, driver, 1.0)
    floor = float(mp.sqrt(variance)) if kind == "Normal" else 0.0
    yield Point(f"{name}: posterior mean", found[0], mean, where, driver, floor)
    yield Point(f"{name}: posterior variance", found[2], variance, where, driver)


def mixture_law(fast: bool) -> Points:
    """A mixture by variational inference: its own frame and weights, items at limits."""
    if fast:
        return
    for prior, kind in (("GammaMixture", "Gamma"), ("NormalMixture", "Normal")):
        stats = _statistics(prior)
        fit = soc.fit(stats, getattr(soc, prior)(), soc.VI(draws=50), progress=False)
        law, score = posterior_of(fit), np.ones(1)
        location, variance = law._weights.components({"score": score})
        places = [mp.mpf(float(x)) for x in location[0]]
        ((_, weights),) = law._weights.blocks({"score": score})
        share = weights[:, 0]
        v = mp.mpf(float(variance[0, 0]))
        shape = ref.inverse_trigamma(v)
        shift = mp.log(shape) - mp.digamma(shape)
        for outcome, size in (
            product((0.0, 30.0, 1e6), (1e-6, 1.0, 30.0, 1e6))
            if kind == "Gamma"
            else product((-1e4, 0.3, 1e12), (1e-12, 1.0, 1e12))
        ):
            columns = {
                "score": score,
                law.outcome.observed: np.array([outcome]),
                law.outcome.size: np.array([size]),
            }
            n = mp.mpf(size)
            if kind == "Gamma":
                means = [mp.exp(x + shift) for x in places]
                logs = [ref.log_count(outcome, shape, n * x) for x in means]
                after = [(shape + outcome, shape / x + n) for x in means]
                moments = [(a / b, a / b**2) for a, b in after]
            else:
                total = v + n**2
                away = [mp.mpf(outcome) - x for x in places]
                logs = [-(d**2) / (2 * total) - mp.log(2 * mp.pi * total) / 2 for d in away]
                moments = [((x * n**2 + v * outcome) / total, v * n**2 / total) for x in places]
            density = [mp.exp(x - max(logs)) for x in logs]
            weights = _averaged(share, density)
            where = f"{law.outcome.observed} {outcome:g}, {law.outcome.size} {size:g}"
            yield from _mixture_points(kind, law, columns, weights, moments, where, size)


def _averaged(share: np.ndarray, density: list) -> list:
    """Posterior weights of the components, draw by draw, averaged over the draws."""
    whole = [mp.mpf(0)] * len(density)
    for row in share:
        own = [mp.mpf(float(s)) * d for s, d in zip(row, density, strict=True)]
        total = mp.fsum(own) * len(share)
        whole = [a + w / total for a, w in zip(whole, own, strict=True)]
    return whole


def _mixture_points(
    kind: str, law: object, columns: dict, weights: list, moments: list, where: str, driver: float
) -> Points:
    mean = mp.fsum(w * m for w, (m, _) in zip(weights, moments, strict=True))
    parts = zip(weights, moments, strict=True)
    variance = mp.fsum(w * (v + (m - mean) ** 2) for w, (m, v) in parts)
    found = law.scorer((), "all", False)(columns)[:, 0]
    floor = float(abs(mean) + mp.sqrt(variance)) if kind == "Normal" else 0.0
    away = float(abs(mean) / mp.sqrt(variance))
    name = f"law of mixtures of {kind}s"
    yield Point(f"{name}: posterior mean", found[0], mean, where, driver, floor)
    yield Point(f"{name}: posterior variance", found[2], variance, where, away)


# --- cells of several items ----------------------------------------------------------------------


def cells_of_counts(fast: bool) -> Points:
    """Bins of several items, some in one cell: value and slopes of the likelihood's kernel."""
    exposure = np.array([1e-6, 1.0, 1.0, 1.0, 64.0, 1e6, 1e12, 1e12])
    scales = (1e-3, 1.0) if fast else (1e-6, 1e-3, 1.0, 1e3)
    for shape, rate in product((1e-8, 0.5, 1e4, 1e12), scales):
        y = np.minimum(np.floor(rate * exposure * (1.0 + 0.3 * np.arange(8))), 1e9)
        h = exact.exact_histograms(np.zeros(8, dtype=int), y, exposure, 1)
        at = float(np.log(rate)), float(-np.log(shape))
        curves = np.array([[at[0]]]), np.array([[at[1]]])
        found = h.value_and_gradient(*curves, np.arange(1))[:, 0, 0]
        each = list(zip(y, exposure, strict=True))
        value = mp.fsum(exact.log_pmf(*pair, *at) for pair in each)
        slopes = [ref.count_slopes(*pair, *at) for pair in each]
        want = [mp.fsum(s[i] for s in slopes) for i in (0, 1)]
        size = sum(a * abs(np.log(b)) + a * abs(np.log(max(a, 1.0))) + 1.0 for a, b in each)
        where = f"8 items, rate {rate:g}, shape {shape:g}"
        # a slope of several items is a difference of theirs
        floors = [float(mp.fsum(abs(s[i]) for s in slopes)) + 1.0 for i in (0, 1)]
        most = float(y.max())
        yield Point(
            "cells of counts: value, to its data's terms", found[0], value, where, most, size
        )
        yield Point("cells of counts: slope in log mean", found[1], want[0], where, most, floors[0])
        yield Point("cells of counts: slope in log cv2", found[2], want[1], where, most, floors[1])


def cells_of_values(fast: bool) -> Points:
    """Rows of several cells of equal noise with several values each."""
    for spread, noise, mean, wide in product(
        (1e-12, 1.0, 1e12), (1e-12, 1.0, 1e12), (0.0, 1e3, 1e6), (1.0, 1e6)
    ):
        sds = np.repeat([noise, noise * wide], 4)
        total = np.hypot(spread, sds)
        y = mean + total * np.array([-1.0, 0.2, 0.5, 2.0] * 2)
        sums = np.zeros((2, 3, 4))
        for k, (own, sd) in enumerate(zip(y.reshape(2, 4), (noise, noise * wide), strict=True)):
            powers = (sd**2) ** np.arange(4)
            sums[k] = [4 * powers, own.sum() * powers, (own**2).sum() * powers]
        cells = normal_rows.make_normal_cells(1, np.zeros(2, dtype=np.int64), sums)
        c = float(2 * np.log(spread))
        curves = np.array([[mean]]), np.array([[c]])
        found = cells.value_and_gradient(*curves, np.arange(1))[:, 0, 0]
        each = [(a, s, mean, c) for a, s in zip(y, sds, strict=True)]
        value = mp.fsum(ref.normal_log_density(*one) for one in each)
        slopes = [ref.normal_slopes(*one) for one in each]
        want = [mp.fsum(s[i] for s in slopes) for i in (0, 1)]
        where = f"sd {spread:g}, noise {noise:g} and {wide:g} times it, mean {mean:g}"
        # squares about the row's centre lose digits where values are many sds from it
        away = float(max(abs(mean), np.abs(y).max()) / total.min())
        floors = (8.0, float((1.0 / total).sum()), 8.0)
        labels = ("value", "slope in mean, in sd", "slope in log variance")
        for label, got, true, floor in zip(labels, found, (value, *want), floors, strict=True):
            yield Point(f"cells of values: {label}", got, true, where, away, floor)


def joint_cells(fast: bool) -> Points:
    """A bin of three joint cells under a mixture of some shape, in nats an item."""
    z, number = components.NORMALS.z, np.array([1.0, 1e3, 1e6])
    curves = np.zeros((1, 2))
    base = components.value_frame(*curves.T)
    forms = components.NORMALS.forms(base, np.tanh(z / 4.0)[:, None] ** 3, curves)
    for low, shape in product((0.0, -60.0, -1e6), (0.0, 0.4, -8.0)):
        logs = np.linspace(low, 0.0, len(z))[None] * np.array([[1.0], [0.3], [0.0]])
        out, slope = np.empty((1, 1)), np.empty((1, 1, 3))
        cells = np.array([0, 3]), number, np.exp(logs).astype(np.float32), np.zeros(1)
        predictors = np.array([[[0.0, 0.0, shape]]])
        none = np.empty(0, dtype=np.float32)
        mixture_rows.all_rows(predictors, out, slope, *forms.arrays, *cells, none)
        weight = mixture_rows.solved(predictors, *forms.arrays)[0][0, 0]
        want = mp.fsum(
            mp.mpf(float(n)) * mp.log(
                mp.fsum(mp.mpf(float(w)) * mp.exp(mp.mpf(float(v)))
                        for w, v in zip(weight, row, strict=True))
            )
            for n, row in zip(number, logs, strict=True)
        )  # fmt: skip
        where = f"densities down to e^{low:g}, coefficient {shape:g}"
        size = float(number.sum())
        yield Point("joint cells: nats an item of a bin", out[0, 0], want, where, -low, size)


# --- effects of bins -----------------------------------------------------------------------------


def effects_of_values(fast: bool) -> Points:
    """A row's effect integrated out, ten Normals in closed form."""
    shares = [mp.mpf(float(s)) for s in bin_effects._SHARES]
    widths = [mp.mpf(float(w)) for w in bin_effects._WIDTHS]
    sds = (1e-12, 1e12) if fast else (1e-12, 1.0, 1e12)
    for spread, noise, tau in product(sds, sds, (1e-9, 1.0, 1e9)):
        total = float(np.hypot(spread, noise))
        y = total * np.array([-1.0, 0.2, 0.5, 2.0]) + 3.0 * tau * total
        powers = (noise**2) ** np.arange(4)
        sums = np.array([4 * powers, y.sum() * powers, (y**2).sum() * powers])[None]
        cells = normal_rows.make_normal_cells(1, np.zeros(1, dtype=np.int64), sums)
        c, log_tau = float(2 * np.log(spread)), float(np.log(tau * total))
        curves = np.zeros((1, 1)), np.array([[c]]), np.array([log_tau])
        found = bin_effects.value_and_gradient(*curves, *cells.arrays)[:, 0, 0]
        t, n = mp.exp(mp.mpf(c)) + mp.mpf(noise) ** 2, len(y)
        s1 = mp.fsum(mp.mpf(float(v)) for v in y)
        s2 = mp.fsum(mp.mpf(float(v)) ** 2 for v in y)
        square = mp.exp(2 * mp.mpf(log_tau))
        plain = -n * mp.log(2 * mp.pi * t) / 2 - s2 / (2 * t)
        parts = [
            p * mp.exp((s1 / t) ** 2 / (n / t + 1 / (w * square)) / 2)
            / mp.sqrt(1 + n * w * square / t)
            for p, w in zip(shares, widths, strict=True)
        ]  # fmt: skip
        want = plain + mp.log(mp.fsum(parts))
        where = f"sd {spread:g}, noise {noise:g}, tau {tau:g} sd"
        size = float(abs(plain) + 1)
        yield Point("effects of values: log marginal", found[0], want, where, tau, size)


def effects_of_counts(fast: bool) -> Points:
    """The same of a row of counts, in nats: the integral by a rule of five nodes."""
    shares, widths = bin_effects._SHARES, bin_effects._WIDTHS
    for shape, y, tau in product(
        (1e12,) if fast else (0.5, 1e4, 1e12), (0.0,) if fast else (0.0, 1e3), (0.2,)
    ):
        m, c = float(np.log(max(y, 0.3) * 1.05)), float(-np.log(shape))
        h = exact.exact_histograms(np.zeros(1, dtype=int), np.array([y]), np.ones(1), 1)
        curves = np.array([[m]]), np.array([[c]]), np.array([np.log(tau)])
        found = bin_effects.value_and_gradient(*curves, *h.arrays)[0, 0, 0]
        with mp.workdps(16):  # of nats, a millionth is asked for
            parts = (
                mp.mpf(float(p)) * _with_effect(y, shape, m, mp.sqrt(mp.mpf(float(w))) * tau)
                for p, w in zip(shares, widths, strict=True)
            )
            want = mp.log(mp.fsum(parts))
        where = f"y {y:g}, shape {shape:g}, tau {tau:g}"
        yield Point("effects of counts: log marginal, in nats", found, want, where, tau, 1.0)


def _with_effect(y: float, shape: float, m: float, sd: mp.mpf) -> mp.mpf:
    """Probability of a count whose log mean is m and a Normal effect of this sd."""
    narrow = 1 / mp.sqrt(1 / sd**2 + y / (1 + y / shape))
    ends = sorted({-14 * sd, -8 * narrow, mp.mpf(0), 8 * narrow, 14 * sd})

    def inside(e: mp.mpf) -> mp.mpf:
        own = mp.exp(ref.log_count(y, shape, mp.exp(mp.mpf(m) + e)))
        return own * mp.exp(-((e / sd) ** 2) / 2) / (sd * mp.sqrt(2 * mp.pi))

    return mp.quad(inside, ends, maxdegree=5)


PARTS = (
    gamma_law,
    normal_law,
    step_mixture_law,
    mixture_law,
    cells_of_counts,
    cells_of_values,
    joint_cells,
    effects_of_values,
    effects_of_counts,
)
