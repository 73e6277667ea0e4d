"""Simulation-based calibration: are posteriors right on average over data sets from the prior?

    python -m tests.studies.sbc [--kind binomial] [--fits 200] [--picture docs/dev/sbc.png]

Curves are drawn from the prior, outcomes from the curves, and the model is fitted to the outcomes:
the rank of every true quantity among its posterior draws is then uniform (Talts et al. 2018;
Sailynoja, Burkner and Vehtari 2022 for the bands). No fit is left out, converged or not.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from scipy import special
from scipy import stats as sps

import soc_pymc as soc
from soc_pymc.checks._check import holm
from soc_pymc.families.family import family_of
from soc_pymc.model.splines import spline_matrix
from soc_pymc.posterior.curves import curve_draws
from tests.studies import binomial

PRIOR = soc.Gamma(
    mean=soc.Spline(level=(float(np.log(0.05)), 0.7), slope=(1.0, 0.3)),
    variance=soc.Spline(level=(float(np.log(0.3)), 0.7), slope=(0.0, 0.5)),
)
"""Rates around 5% known to a factor of 2, near-proportional scores, cv of theta 0.2 to 1.1."""

_QUANTILES = (0.02, 0.25, 0.5, 0.75, 0.98)


def _counts(rng, log_mean, log_cv2, frame):
    theta = rng.gamma(np.exp(-log_cv2), np.exp(log_mean + log_cv2))
    return frame.assign(count=rng.poisson(theta * frame["exposure"]))


def _successes(rng, logit_mean, log_odds_cv2, frame):
    theta = rng.beta(*family_of(soc.Beta()).to_parameters(logit_mean, log_odds_cv2))
    return frame.assign(successes=rng.binomial(frame["trials"], theta))


def _values(rng, mean, log_variance, frame):
    theta = rng.normal(mean, np.exp(0.5 * log_variance))
    return frame.assign(value=rng.normal(theta, frame["noise_sd"]))


def _effects(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Items: t ~ Normal(0, 1), theta ~ Normal(t, 0.5), log sd of the noise ~ Normal(0, 0.5)."""
    rng = np.random.default_rng([seed, 1])  # not the stream that theta is drawn from
    score, noise_sd = rng.normal(size=n_items), np.exp(rng.normal(0.0, 0.5, n_items))
    value = rng.normal(rng.normal(score, 0.5), noise_sd)
    return pd.DataFrame({"score": score, "noise_sd": noise_sd, "value": value})


@dataclass(frozen=True)
class Setting:
    """A prior, items with its scores and sizes, and outcomes given both curves at the items."""

    prior: Any
    frame: Callable[[int, int], pd.DataFrame]
    items: Callable[[pd.DataFrame], Any]
    outcomes: Callable[..., pd.DataFrame]


SETTINGS = {
    "poisson": Setting(
        PRIOR,
        soc.simulation.s1,
        lambda frame: soc.PoissonItems(frame, score="score", count="count", exposure="exposure"),
        _counts,
    ),
    "binomial": Setting(
        soc.Beta(
            mean=soc.Spline(scale="logit", level=(float(special.logit(0.3)), 0.7), slope=(1, 0.3)),
            variance=soc.Spline(scale="logit", level=(float(np.log(0.3)), 0.7), slope=(0.0, 0.5)),
        ),
        binomial.simulated,
        binomial.ITEMS["binomial"],
        _successes,
    ),
    "normal": Setting(
        soc.Normal(
            mean=soc.Spline(scale="linear", level=(0.0, 0.7), slope=(1.0, 0.3)),
            variance=soc.Spline(scale="linear", level=(float(np.log(0.3)), 0.7), slope=(0.0, 0.5)),
        ),
        _effects,
        lambda frame: soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd"),
        _values,
    ),
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
    fits: int,
    items: int,
    bins: int | None = None,
    seed: int = 0,
    binned: bool = False,
    kind: str = "poisson",
) -> Iterator[tuple[soc.Fit, list[tuple[str, np.ndarray, float, float]]]]:
    """Fits to data sets from the prior: each with name, draws and truth of every quantity.

    The last entry is uniform on (0, 1) and breaks ties of ranks. Items draw theta from the curves
    at their own scores, or at the centre of their bin (`binned`), which is the model to the letter.
    """
    setting = SETTINGS[kind]
    prior = setting.prior
    rng = np.random.default_rng(seed)
    frame = setting.frame(items, seed=seed)
    first = soc.summarize(setting.items(frame), bins=bins, progress=False)
    truth = _prior_curves(first, prior, fits, seed)
    fit = soc.fit(first, prior, progress=False)
    score = frame["score"].to_numpy()
    if binned:
        centre = fit.data["constant_data"]["score"].to_numpy()
        score = centre[np.searchsorted(first.edges, score, side="right")]
    at_items = _matrices(fit, score)
    points = frame["score"].quantile(list(_QUANTILES)).to_numpy()
    some = frame["score"].to_numpy()[:: max(1, items // 500)]
    for i in range(fits):
        curves = (at @ truth[name][i] for name, at in at_items.items())
        summary = soc.summarize(
            setting.items(setting.outcomes(rng, *curves, frame)),
            edges=first.edges,
            on_leakage="ignore",
            progress=False,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", soc.ConvergenceWarning)
            fit = soc.fit(summary, prior, method=soc.VI(seed=i), progress=False)
        yield fit, [(*one, rng.random()) for one in _quantities(fit, truth, i, points, some)]


def rank(drawn: np.ndarray, true: float, tie: float) -> float:
    """Rank in (0, 1) of the truth among draws."""
    below = np.mean(drawn < true) + np.mean(drawn == true) / 2
    return float((below * len(drawn) + tie) / (len(drawn) + 1))


def ranks(*args: Any, **kwargs: Any) -> pd.DataFrame:
    """Ranks of all quantities (columns) in all data sets (rows) of `replicates`, and the status."""
    return pd.DataFrame(
        {"converged": fit.status.converged, "pareto_k": fit.status.pareto_k}
        | {name: rank(*one) for name, *one in quantities}
        for fit, quantities in replicates(*args, **kwargs)
    )


def _matrices(fit: soc.Fit, score: np.ndarray) -> dict[str, np.ndarray]:
    """Maps from a curve's values at its knots to those at scores, by the curve's name."""
    found = {}
    for curve, name in zip(("mean", "variance"), fit.prior.curve_names, strict=True):
        knots = fit.data["posterior"][f"{curve}_knot"].to_numpy()
        found[name] = spline_matrix(fit.axis(curve)(score), knots)
    return found


def _quantities(fit, truth, i, score, some):
    """Name, draws and truth of every quantity."""
    names = fit.prior.curve_names
    drawn = dict(zip(names, curve_draws(fit, score), strict=True))
    for name, at in _matrices(fit, score).items():
        true = at @ truth[name][i]
        for j, q in enumerate(_QUANTILES):
            yield f"{name} at {q:.0%}", drawn[name][:, j], true[j]
        scale = f"{name}_wiggle_sd"
        yield scale, fit.data["posterior"][scale].to_numpy().ravel(), truth[scale][i]
    true_curves = (at @ truth[name][i] for name, at in _matrices(fit, some).items())
    found = (_r_squared(fit.prior, *pair) for pair in (curve_draws(fit, some), true_curves))
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


def table(found: pd.DataFrame) -> pd.DataFrame:
    """Tests of uniformity of every quantity's ranks by simultaneous ECDF bands.

    They are as sensitive in the tails as in the middle; p is corrected by Holm's method.
    """
    names = [c for c in found if c not in ("converged", "pareto_k")]
    observed = _extremeness(found[names].to_numpy(dtype=float).T)
    null = _null(len(found))
    p = ((null[:, None] <= observed).sum(axis=0) + 1) / (len(null) + 1)
    result = pd.DataFrame(
        {
            "largest ECDF difference": {
                k: sps.kstest(found[k], "uniform").statistic for k in names
            },
            "p": dict(zip(names, p, strict=True)),
            "inside central 90%": {
                k: ((found[k] > 0.05) & (found[k] < 0.95)).mean() for k in names
            },
        }
    )
    result["p corrected"] = holm(result["p"].to_numpy())
    return result


def picture(found: pd.DataFrame, path: Path) -> None:
    """ECDF differences of all ranks with a band that holds all of them with probability 95%."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    names = list(table(found).index)
    level = float(np.quantile(_null(len(found)), 0.05 / len(names)))
    band = [sps.binom.ppf(q, len(found), _GRID) / len(found) for q in (level / 2, 1 - level / 2)]
    figure, axes = plt.subplots(3, 5, figsize=(12, 6.5), sharex=True, sharey=True)
    grid = np.linspace(0, 1, 400)
    for name, ax in zip(names, axes.ravel(), strict=False):
        ecdf = np.searchsorted(np.sort(found[name]), grid, side="right") / len(found)
        ax.fill_between(_GRID, band[0] - _GRID, band[1] - _GRID, color="0.85", linewidth=0)
        ax.plot(grid, ecdf - grid, color="#0072B2")
        ax.axhline(0, color="0.4", linewidth=0.8)
        ax.set_title(name, fontsize=10)
    for ax in axes.ravel()[len(names) :]:
        ax.remove()
    figure.supxlabel("rank of the truth among posterior draws")
    figure.supylabel("ECDF - uniform")
    figure.suptitle(f"{len(found)} data sets from the prior; grey: 95% band for all panels at once")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run the study, print its table and draw its picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=list(SETTINGS), default="poisson")
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--picture", type=Path)
    chosen = parser.parse_args()
    start = time.time()
    found = ranks(chosen.fits, chosen.items, kind=chosen.kind)
    print(table(found).to_string(float_format=lambda x: f"{x:.3f}"))
    print(
        f"{chosen.fits} fits of {chosen.items} items, {found['converged'].mean():.1%} converged, "
        f"Pareto k median {found['pareto_k'].median():.2f}, {time.time() - start:.0f} s"
    )
    if chosen.picture:
        picture(found, chosen.picture)


if __name__ == "__main__":
    main()
