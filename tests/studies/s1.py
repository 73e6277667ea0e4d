"""Simulation S1: do bands and intervals cover, and is the error near the oracle's?

    python -m tests.studies.s1 [--seeds 50] [--items 20000]

Items have a curved mean and a dispersion that falls almost fivefold over the score's range, which
tools with one constant dispersion cannot follow. The oracle knows both curves.
"""

import argparse
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

import soc_pymc as soc
from soc_pymc.posterior.curves import curve_draws

_SCORES = 0.05 * np.exp(0.8 * np.array([-2.0537, -1.2816, -0.6745, 0.0, 0.6745, 1.2816, 2.0537]))
"""The 2, 10, 25, 50, 75, 90 and 98% points of t."""


@dataclass(frozen=True)
class Outcome:
    """One data set: coverage of item intervals and of bands, error over the oracle's, Pareto k."""

    items: float
    quintiles: np.ndarray
    bands: dict[str, np.ndarray]
    error: float
    oracle_error: float
    converged: bool
    pareto_k: float


def one_seed(seed: int, items: int = 20_000) -> Outcome:
    """Simulate, fit and score one data set."""
    frame = soc.simulation.s1(items, seed=seed)
    roles = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    fit = soc.fit(soc.summarize(roles, progress=False), method=soc.VI(seed=seed), progress=False)
    scored = soc.item_posteriors(fit, roles, progress=False)
    shape = 1 / frame["true_cv2"]
    oracle = (shape + frame["count"]) / (shape / frame["true_mean"] + frame["exposure"])
    names = ("log mean", "log cv2")
    curves = dict(zip(names, curve_draws(fit, _SCORES), strict=True))
    truth = dict(zip(names, soc.simulation.s1_curves(_SCORES), strict=True))
    return judged(fit, scored, oracle, curves, truth)


def judged(
    fit: soc.Fit,
    scored: pd.DataFrame,
    oracle: ArrayLike,
    curves: dict[str, np.ndarray],
    truth: dict[str, np.ndarray],
) -> Outcome:
    """A fit against the truth: scored items with theta, and draws of curves by name."""
    theta = scored["theta"]
    inside = (scored["theta_q05"] < theta) & (theta < scored["theta_q95"])
    fifth = pd.qcut(scored["score"], 5, labels=False)
    covered = {}
    for name, draws in curves.items():
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        covered[name] = (low < truth[name]) & (truth[name] < high)
    return Outcome(
        items=float(inside.mean()),
        quintiles=inside.groupby(fifth).mean().to_numpy(),
        bands=covered,
        error=float(np.mean((scored["theta_mean"] - theta) ** 2) ** 0.5),
        oracle_error=float(np.mean((oracle - theta) ** 2) ** 0.5),
        converged=fit.status.converged,
        pareto_k=float(fit.status.pareto_k),
    )


def table(outcomes: list[Outcome]) -> pd.DataFrame:
    """Averages over data sets with their Monte Carlo standard errors."""
    count = len(outcomes)
    rows = {"items, overall": [o.items for o in outcomes]}
    for j in range(5):
        rows[f"items, fifth {j + 1} of t"] = [o.quintiles[j] for o in outcomes]
    rows["bands, both curves"] = [np.mean(list(o.bands.values())) for o in outcomes]
    for name in outcomes[0].bands:
        rows[f"bands, {name}"] = [o.bands[name].mean() for o in outcomes]
    rows["RMSE over the oracle's"] = [o.error / o.oracle_error for o in outcomes]
    rows["converged"] = [o.converged for o in outcomes]
    rows["Pareto k"] = [o.pareto_k for o in outcomes]
    values = {k: np.asarray(v, dtype=float) for k, v in rows.items()}
    return pd.DataFrame(
        {
            "average": {k: v.mean() for k, v in values.items()},
            "standard error": {k: v.std(ddof=1) / np.sqrt(count) for k, v in values.items()},
            "lowest": {k: v.min() for k, v in values.items()},
            "highest": {k: v.max() for k, v in values.items()},
        }
    )


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--items", type=int, default=20_000)
    chosen = parser.parse_args()
    outcomes = [one_seed(seed, chosen.items) for seed in range(chosen.seeds)]
    print(table(outcomes).to_string(float_format=lambda x: f"{x:.4f}"))


if __name__ == "__main__":
    main()
