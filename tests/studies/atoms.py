"""A default score: coverage of item intervals at it and beside it, and what it does to the curves.

    python -m tests.studies.atoms [--items 10000] [--simulations 30]

A fifth of the items have the score 0.05 itself, where theta has another mean and five times the
cv2. Rows: CPU seconds of a fit; coverage of 90% intervals of the items at the default score and of
the others; relative error of the posterior means of E(theta | t) and of cv2 at the default score,
and just below it; Pareto k; fits that converged.
"""

import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.studies import common
from tests.studies.common import fit, summarize, timed

DEFAULT, BESIDE = 0.05, 0.0495
MEAN, CV2, SPREAD = 0.08, 1.5, 0.3  # at the default score, and cv2 elsewhere


def simulated(n_items: int, seed: int) -> pd.DataFrame:
    """Items with their theta; ``default`` says which have the default score."""
    rng = np.random.default_rng(seed)
    score = DEFAULT * np.exp(rng.normal(0.0, 0.8, n_items))
    exposure = np.ceil(np.exp(rng.normal(4.0, 1.0, n_items)))
    default = rng.random(n_items) < 0.2
    score[default] = DEFAULT
    mean, cv2 = np.where(default, MEAN, score), np.where(default, CV2, SPREAD)
    return common.gamma_counts(rng, score, exposure, mean, cv2).assign(default=default)


def figures(frame: pd.DataFrame, prior: soc.Gamma) -> dict[str, float]:
    """Figures of one fit."""
    items = common.counts(frame)
    stats = summarize(items)
    model, seconds = timed(lambda: fit(stats, prior))
    inside = common.items_covered(common.posteriors(model, items))
    drawn = soc.calibration_curves(model, [BESIDE, DEFAULT])
    mean = drawn["mean"].mean(("chain", "draw")).to_numpy()
    cv2 = (drawn["variance"] / drawn["mean"] ** 2).mean(("chain", "draw")).to_numpy()
    return {
        "seconds": seconds,
        "covered_default": inside[frame["default"]].mean(),
        "covered_beside": inside[~frame["default"]].mean(),
        "mean_default": mean[1] / MEAN - 1.0,
        "cv2_default": cv2[1] / CV2 - 1.0,
        "mean_beside": mean[0] / BESIDE - 1.0,
        "cv2_beside": cv2[0] / SPREAD - 1.0,
        "pareto_k": float(model.status.pareto_k or np.nan),
        "converged": float(model.status.converged),
    }


def main() -> None:
    """Prints averages with the atom's shift and without."""
    chosen = common.options(
        __doc__, {"simulations": 1, "items": 2000}, items=10_000, simulations=30
    )
    for atoms in (True, False):
        prior = soc.Gamma(atoms=atoms)
        frames = (simulated(chosen.items, seed) for seed in range(chosen.simulations))
        common.show(common.averages([figures(frame, prior) for frame in frames]), f"atoms={atoms}")


if __name__ == "__main__":
    main()
