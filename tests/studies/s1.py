"""Simulation S1: do bands and intervals cover, and is the error near the oracle's?

    python -m tests.studies.s1 [--simulations 50] [--items 20000]

Items have a curved mean and a dispersion that falls almost fivefold over the score's range, which
tools with one constant dispersion cannot follow. The oracle knows both curves.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

import soc_pymc as soc
from tests.oracles import s1_curves
from tests.studies import common

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
    """Simulates, fits and scores one data set."""
    frame = soc.simulation.s1(items, seed=seed)
    model = common.fitted(common.counts(frame), method=soc.VI(seed=seed))
    shape = 1 / frame["true_cv2"]
    oracle = (shape + frame["count"]) / (shape / frame["true_mean"] + frame["exposure"])
    truth = dict(zip(("log mean", "log cv2"), s1_curves(_SCORES), strict=True))
    scored = common.posteriors(model, common.counts(frame))
    return judged(model, scored, oracle, common.curves(model, _SCORES), truth)


def judged(
    model: soc.Fit,
    scored: pd.DataFrame,
    oracle: ArrayLike,
    drawn: dict[str, np.ndarray],
    truth: dict[str, np.ndarray],
) -> Outcome:
    """A fit against the truth: scored items with theta, and draws of curves by name."""
    inside = common.items_covered(scored)
    fifth = pd.qcut(scored["score"], 5, labels=False)
    return Outcome(
        items=float(inside.mean()),
        quintiles=inside.groupby(fifth).mean().to_numpy(),
        bands={name: common.covered(draws, truth[name]) for name, draws in drawn.items()},
        error=float(np.mean((scored["theta_mean"] - scored["theta"]) ** 2) ** 0.5),
        oracle_error=float(np.mean((oracle - scored["theta"]) ** 2) ** 0.5),
        converged=model.status.converged,
        pareto_k=float(model.status.pareto_k),
    )


def table(outcomes: list[Outcome]) -> pd.DataFrame:
    """Averages over data sets with their Monte Carlo standard errors."""
    rows = []
    for one in outcomes:
        row = {"items, overall": one.items}
        row |= {f"items, fifth {j + 1} of t": one.quintiles[j] for j in range(5)}
        row["bands, both curves"] = np.mean(list(one.bands.values()))
        row |= {f"bands, {name}": inside.mean() for name, inside in one.bands.items()}
        row["RMSE over the oracle's"] = one.error / one.oracle_error
        rows.append(row | {"converged": one.converged, "Pareto k": one.pareto_k})
    return common.averages(rows)


def main() -> None:
    """Runs the study and prints its table."""
    small = {"simulations": 3, "items": 2000}
    chosen = common.options(__doc__, small, simulations=50, items=20_000)
    common.show(table([one_seed(seed, chosen.items) for seed in range(chosen.simulations)]))


if __name__ == "__main__":
    main()
