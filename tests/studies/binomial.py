"""Successes in trials: do bands and intervals cover, and what were counts in exposures worth?

    python -m tests.studies.binomial [--simulations 30] [--items 20000]

The mean rises from 0.05 to 0.95, curved, and the dispersion falls almost fivefold over the score's
range. Items have 1 to 500 trials. The same data are fitted as successes in trials and as counts in
exposures. The oracle knows both curves.
"""

import warnings

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special, stats

import soc_pymc as soc
from tests.studies import s1
from tests.studies.common import Choice, counts, fit, options, posteriors, show, summarize, trials

_SPREAD = 1.2  # sd of the scores' logit
_SCORES = special.expit(_SPREAD * stats.norm.ppf([0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98]))

ITEMS = {
    "binomial": trials,
    "poisson": lambda frame: counts(frame, count="successes", exposure="trials"),
}


def curves(score: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """True E(theta | t), and g = log(1/a + 1/b) of the Beta prior."""
    x = special.logit(score)
    mean = 0.05 + 0.9 * special.expit(1.3 * x + 0.5 * np.sin(1.5 * x))
    return mean, np.log(0.3) - 0.8 * np.tanh(x)


def prior_at(score: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """True a and b: a (1 - mean) = b mean = exp(-g)."""
    mean, g = curves(score)
    return np.exp(-g) / (1 - mean), np.exp(-g) / mean


def simulated(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Items: logit t ~ Normal(0, 1.2), trials log-uniform from 1 to 500, theta ~ Beta(a, b)."""
    rng = np.random.default_rng(seed)
    score = special.expit(rng.normal(0.0, _SPREAD, n_items))
    trials = np.floor(np.exp(rng.uniform(0.0, np.log(501.0), n_items))).astype(np.int64)
    theta = rng.beta(*prior_at(score))
    successes = rng.binomial(trials, theta)
    columns = {"score": score, "successes": successes, "trials": trials, "theta": theta}
    return pd.DataFrame(columns)


def one_seed(seed: int, items: int = 20_000, kind: str = "binomial") -> s1.Outcome:
    """Simulates items, fits them as one kind and judges the fit."""
    frame = simulated(items, seed)
    roles = ITEMS[kind](frame)
    with warnings.catch_warnings():  # counts that look like successes in trials
        warnings.simplefilter("ignore", soc.ItemsWarning)
        statistics = summarize(roles)
    model = fit(statistics, method=soc.VI(seed=seed))
    a, b = prior_at(frame["score"])
    oracle = (a + frame["successes"]) / (a + b + frame["trials"])
    curves = soc.calibration_curves(model, _SCORES)
    mean, variance = (
        curves[name].to_numpy().reshape(-1, len(_SCORES)) for name in ("mean", "variance")
    )
    a, b = prior_at(_SCORES)
    truth = {"mean": a / (a + b), "sd": stats.beta.std(a, b)}
    drawn = {"mean": mean, "sd": np.sqrt(variance)}
    return s1.judged(model, posteriors(model, roles), oracle, drawn, truth)


def main() -> None:
    """Prints a table for each kind."""
    small = {"simulations": 2, "items": 2000}
    chosen = options(__doc__, small, simulations=30, items=20_000, kinds=Choice(ITEMS))
    for kind in chosen.kinds:
        outcomes = [one_seed(seed, chosen.items, kind) for seed in range(chosen.simulations)]
        show(s1.table(outcomes), f"fitted as {kind} items")


if __name__ == "__main__":
    main()
