"""Simulation-based calibration: are posteriors right on average over data sets from the prior?

    python -m tests.studies sbc [--kind binomial] [--fits 200]

The rank of every true quantity among its posterior draws is uniform (Talts et al. 2018; Sailynoja,
Burkner and Vehtari 2022 for the bands). No fit is left out, converged or not.

Where locations are unbiased, ranks r and 1 - r have the same distribution, even if widths are wrong
(Yao, Vehtari, Simpson and Gelman 2018). Where widths are right as well, the spread, 4 mean|r -
1/2|, is 1; it is larger for draws too narrow. Two faults planted into the draws show what is seen.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from scipy import special
from scipy import stats as sps

import soc_pymc as soc
from soc_pymc._model.splines import spline_matrix
from soc_pymc.checks.findings import holm
from soc_pymc.families import family_of
from tests.studies import coverage
from tests.studies.common import Choice, counts, options, show, summarize, trials, values
from tests.studies.common import fit as fit_quietly

_QUANTILES = (0.02, 0.25, 0.5, 0.75, 0.98)
_FLIPS = 4000

FAULTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda draws: draws,
    "shifted by 0.3 sd": lambda draws: draws + 0.3 * draws.std(),
    "0.8 of the width": lambda draws: draws.mean() + 0.8 * (draws - draws.mean()),
}
"""Changes of a quantity's draws that make a right approximation wrong; the first has none."""


def _effects(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Items: t ~ Normal(0, 1), theta ~ Normal(t, 0.5), log sd of the noise ~ Normal(0, 0.5)."""
    rng = np.random.default_rng([seed, 1])  # not the stream that theta is drawn from
    score, noise_sd = rng.normal(size=n_items), np.exp(rng.normal(0.0, 0.5, n_items))
    value = rng.normal(rng.normal(score, 0.5), noise_sd)
    return pd.DataFrame({"score": score, "noise_sd": noise_sd, "value": value})


def _amounts(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Items with the scores and sizes of S1."""
    frame = soc.simulation.s1(n_items, seed)
    return frame.assign(amount=frame["theta"] * frame["exposure"])


def _of_events(frame: pd.DataFrame) -> soc.AmountItems:
    return soc.AmountItems(frame, score="score", amount="amount", events="exposure")


@dataclass(frozen=True)
class Setting:
    """A prior, a table of scores and sizes, and what makes items of it."""

    prior: Any
    frame: Callable[[int, int], pd.DataFrame]
    items: Callable[[pd.DataFrame], Any]


def _splines(scale: Any, level: float) -> dict[str, soc.Spline]:
    """Rates around a level known to a factor of 2, near-proportional scores, cv 0.2 to 1.1."""
    mean = soc.Spline(scale=scale, level=(level, 0.7), slope=(1.0, 0.3))
    variance = soc.Spline(scale=scale, level=(float(np.log(0.3)), 0.7), slope=(0.0, 0.5))
    return {"mean": mean, "variance": variance}


LEVELS = {"log": float(np.log(0.05)), "logit": float(special.logit(0.3)), "linear": 0.0}
GAMMA, BETA, NORMAL = (_splines(*pair) for pair in LEVELS.items())
SETTINGS = {
    "poisson": Setting(soc.Gamma(**GAMMA), soc.simulation.s1, counts),
    "binomial": Setting(soc.Beta(**BETA), coverage.successes, trials),
    "normal": Setting(soc.Normal(**NORMAL), _effects, values),
    "amount": Setting(soc.InverseGamma(**GAMMA), _amounts, _of_events),
}


def _prior_curves(stats: soc.Statistics, prior: Any, number: int, seed: int):
    """Draws from the prior of both curves at their knots and of the smoothing scales."""
    names = [*prior.curve_names, *(f"{name}_wiggle_sd" for name in prior.curve_names)]
    with soc.model(stats, prior):
        tree = pm.sample_prior_predictive(number, var_names=names, random_seed=seed)
    return {name: tree["prior"][name].to_numpy()[0] for name in names}


def _r_squared(prior: Any, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Share of the variance of theta that the score explains, by draw (last axis: items)."""
    mean, variance = family_of(prior).natural_moments(first, np.exp(second))
    explained = mean.var(axis=-1)
    return explained / (explained + variance.mean(axis=-1))


def replicates(
    fits: int, items: int, seed: int = 0, kind: str = "poisson"
) -> Iterator[tuple[soc.Fit, list[tuple[str, np.ndarray, float, float]]]]:
    """Fits to data sets from the prior: each with name, draws and truth of every quantity.

    The last entry is uniform on (0, 1) and breaks ties of ranks.
    """
    setting = SETTINGS[kind]
    prior, family = setting.prior, family_of(setting.prior)
    rng = np.random.default_rng(seed)
    frame = setting.frame(items, seed=seed)
    observed, size = (
        setting.items(frame).roles[role] for role in (family.outcome.observed, family.outcome.size)
    )
    first = summarize(setting.items(frame))
    truth = _prior_curves(first, prior, fits, seed)
    score = frame["score"].to_numpy()
    at_items = _matrices(fit_quietly(first, prior), score)
    points = np.quantile(score, _QUANTILES)
    some = score[:: max(1, items // 500)]
    for i in range(fits):
        curves = (matrix @ truth[name][i] for name, matrix in at_items.items())
        parameters = family.to_parameters(*curves)
        outcomes = family.simulate(*parameters, frame[size].to_numpy(dtype=float), rng)
        stats = summarize(
            setting.items(frame.assign(**{observed: outcomes})),
            edges=first.edges,
            on_leakage="ignore",
        )
        fit = fit_quietly(stats, prior, soc.VI(seed=i))
        yield fit, [(*one, rng.random()) for one in _quantities(fit, truth, i, points, some)]


def rank(drawn: np.ndarray, true: float, tie: float) -> float:
    """Rank in (0, 1) of the truth among draws."""
    below = np.mean(drawn < true) + np.mean(drawn == true) / 2
    return float((below * len(drawn) + tie) / (len(drawn) + 1))


def ranks(
    fits: int,
    items: int,
    seed: int = 0,
    kind: str = "poisson",
    faults: Mapping[str, Callable[[np.ndarray], np.ndarray]] = FAULTS,
) -> tuple[dict[str, pd.DataFrame], pd.DataFrame]:
    """Ranks of quantities (columns) in data sets (rows) by fault, and the statuses of the fits."""
    rows: dict[str, list[dict[str, float]]] = {fault: [] for fault in faults}
    statuses = []
    for fit, quantities in replicates(fits, items, seed, kind):
        statuses.append({"converged": fit.status.converged, "pareto_k": fit.status.pareto_k})
        for fault, change in faults.items():
            row = {name: rank(change(draws), *truth) for name, draws, *truth in quantities}
            rows[fault].append(row)
    tables = {fault: pd.DataFrame(table) for fault, table in rows.items()}
    return tables, pd.DataFrame(statuses).astype(float)


def _matrices(fit: soc.Fit, score: np.ndarray) -> dict[str, np.ndarray]:
    """Maps from a curve's values at its knots to those at scores, by the curve's name."""
    found = {}
    for curve, name in zip(("mean", "variance"), fit.prior.curve_names, strict=True):
        knots = fit.data["posterior"][f"{curve}_knot"].to_numpy()
        found[name] = spline_matrix(fit.axis(curve)(score), knots)
    return found


def _quantities(fit, truth, i, score, some):
    names = fit.prior.curve_names
    drawn = dict(zip(names, fit.curves.at(score), strict=True))
    for name, at in _matrices(fit, score).items():
        true = at @ truth[name][i]
        for j, q in enumerate(_QUANTILES):
            yield f"{name} at {q:.0%}", drawn[name][:, j], true[j]
        scale = f"{name}_wiggle_sd"
        yield scale, fit.data["posterior"][scale].to_numpy().ravel(), truth[scale][i]
    true_curves = (at @ truth[name][i] for name, at in _matrices(fit, some).items())
    found = (_r_squared(fit.prior, *pair) for pair in (fit.curves.at(some), true_curves))
    yield "R-squared", *found


_GRID = np.linspace(0.005, 0.995, 199)


def _extremeness(ranks: np.ndarray) -> np.ndarray:
    """Smallest two-sided binomial tail probability of the ECDF over a grid; rows are samples."""
    n = ranks.shape[1]
    below = (ranks[:, :, None] <= _GRID).sum(axis=1)
    tails = np.minimum(sps.binom.cdf(below, n, _GRID), sps.binom.sf(below - 1, n, _GRID))
    return 2 * tails.min(axis=1)


def _null(n: int, samples: int = 4000) -> np.ndarray:
    """`_extremeness` of uniform ranks: what makes pointwise bands simultaneous."""
    rng = np.random.default_rng(0)
    return np.concatenate([_extremeness(rng.random((200, n))) for _ in range(samples // 200)])


def uniformity(ranks: pd.DataFrame) -> pd.DataFrame:
    """Tests of uniformity of every quantity's ranks by simultaneous ECDF bands.

    They are as sensitive in the tails as in the middle; p is corrected by Holm's method.
    """
    observed, null = _extremeness(ranks.to_numpy(dtype=float).T), _null(len(ranks))
    p = ((null[:, None] <= observed).sum(axis=0) + 1) / (len(null) + 1)
    columns = {
        "largest ECDF difference": [sps.kstest(x, "uniform").statistic for _, x in ranks.items()],
        "p": p,
        "inside central 90%": ((ranks > 0.05) & (ranks < 0.95)).mean(),
        "p corrected": holm(p),
    }
    return pd.DataFrame(columns, index=ranks.columns)


def _asymmetry(ranks: np.ndarray) -> np.ndarray:
    """Largest difference between the ECDFs of ranks r and of 1 - r; rows are samples."""
    n = ranks.shape[1]
    mirrored = np.concatenate([ranks, 1.0 - ranks], axis=1)
    steps = np.where(np.argsort(mirrored, axis=1, kind="stable") < n, 1, -1)
    return np.abs(steps.cumsum(axis=1)).max(axis=1) / n


def symmetry(ranks: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Tests of the symmetry of every quantity's ranks, and of all by the mean of their distances.

    Random flips of r to 1 - r give the distances' own distribution: of all columns of a row at
    once, because they depend on each other.
    """
    r = ranks.to_numpy(dtype=float).T
    flips = np.random.default_rng(seed).random((_FLIPS, r.shape[1])) < 0.5
    null = np.array([_asymmetry(np.where(flips, 1 - x, x)) for x in r])
    null, distances = (np.vstack([x, x.mean(axis=0)]) for x in (null, _asymmetry(r)[:, None]))
    away = 4 * np.abs(r - 0.5)
    away = np.vstack([away, away.mean(axis=0)])
    columns = {
        "distance": distances[:, 0],
        "p of symmetry": ((null >= distances).sum(axis=1) + 1) / (_FLIPS + 1),
        "spread": away.mean(axis=1),
        "its error": away.std(axis=1, ddof=1) / np.sqrt(away.shape[1]),
    }
    return pd.DataFrame(columns, index=[*ranks.columns, "all"])


def main() -> None:
    small = {"fits": 3, "items": 1000}
    settings = {"kind": Choice(SETTINGS, "poisson"), "fits": 200, "items": 5000, "seed": 0}
    chosen = options(__doc__, small, **settings)
    tables, statuses = ranks(chosen.fits, chosen.items, chosen.seed, chosen.kind)
    tests = {fault: symmetry(table) for fault, table in tables.items()}
    show(uniformity(tables["none"]).join(tests["none"]), digits=3)
    of_faults = {fault: test.loc["all"] for fault, test in tests.items()}
    show(pd.DataFrame(of_faults).T, "All quantities, by planted fault", digits=3)
    show(statuses.describe(), digits=3)
