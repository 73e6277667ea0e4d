"""Do 90% intervals hold the truth where items are few, and where theta hardly varies?

    python -m tests.studies few_items [--simulations 200] [--kinds counts] [--items 5 8]

Every simulation draws the true theta of each item: for counts from a Gamma of shape 4 around the
score, for values from a Normal whose sd of 0.2 is that of typical noise, for successes from a Beta
of size 8. With `--narrow` theta varies a hundredth as much (its sd a tenth).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tests.studies import common

ITEMS = (5, 8, 20, 34, 100)


def counts(z: np.ndarray, variance: float, rng: np.random.Generator) -> Mapping[str, Any]:
    """Counts of about 12 events."""
    score = np.exp(0.5 * z)
    shape = 4.0 / variance
    theta = rng.gamma(shape, score / shape)
    exposure = rng.uniform(5.0, 20.0, len(z))
    outcomes = {"count": rng.poisson(theta * exposure), "exposure": exposure}
    return {"score": score, "theta": theta, **outcomes}


def values(z: np.ndarray, variance: float, rng: np.random.Generator) -> Mapping[str, Any]:
    """Values with noise sds from 0.1 to 0.3."""
    score = 0.1 + 0.3 * z
    theta = rng.normal(score, 0.2 * np.sqrt(variance))
    noise_sd = rng.uniform(0.1, 0.3, len(z))
    outcomes = {"value": rng.normal(theta, noise_sd), "noise_sd": noise_sd}
    return {"score": score, "theta": theta, **outcomes}


def successes(z: np.ndarray, variance: float, rng: np.random.Generator) -> Mapping[str, Any]:
    """Successes in 10 to 59 trials."""
    score = 1.0 / (1.0 + np.exp(1.0 - 0.6 * z))
    size = 8.0 / variance
    theta = rng.beta(size * score, size * (1.0 - score))
    trials = rng.integers(10, 60, len(z))
    outcomes = {"successes": rng.binomial(trials, theta), "trials": trials}
    return {"score": score, "theta": theta, **outcomes}


KINDS = {
    "counts": (counts, common.counts),
    "values": (values, common.values),
    "successes": (successes, common.trials),
}


def judged(kind: str, items: int, scored: bool, variance: float, seed: int) -> dict[str, Any]:
    """Coverage of one simulated table's intervals, and the quality of its fit."""
    rng = np.random.default_rng([seed, items, scored])
    simulated, items_of = KINDS[kind]
    z = rng.normal(size=items) if scored else np.zeros(items)
    frame = pd.DataFrame(simulated(z, variance, rng))
    table = items_of(frame, score="score" if scored else None)
    fit = common.fitted(table, on_leakage="ignore")
    covered = common.items_covered(common.posteriors(fit, table), frame["theta"])
    row = {"kind": kind, "score": scored, "items": items, "covered": covered.mean()}
    return row | {"k": fit.status.pareto_k, "k below 0.7": fit.status.pareto_k < 0.7}


def study(kinds: list[str], sizes: list[int], variance: float, simulations: int) -> pd.DataFrame:
    """One row a simulation."""
    rows = [
        judged(kind, items, scored, variance, seed)
        for kind in kinds
        for scored in (False, True)
        for items in sizes
        for seed in range(simulations)
    ]
    return pd.DataFrame(rows)


def main() -> None:
    small = {"simulations": 2, "items": (5,), "kinds": ["values"]}
    kinds = common.Choice(KINDS)
    chosen = common.options(__doc__, small, simulations=200, items=ITEMS, kinds=kinds, narrow=False)
    variance = 0.01 if chosen.narrow else 1.0
    rows = study(chosen.kinds, chosen.items, variance, chosen.simulations)
    groups = rows.groupby(["kind", "score", "items"], sort=False)
    common.show(groups.mean(numeric_only=True), digits=3)
    common.show(groups[["covered"]].sem(), "standard errors", digits=2)
