"""A default score: coverage of item intervals at it and beside it, and what it does to the curves.

    python -m tests.studies.atoms --items 10000 --data-sets 30

Scores are log-normal around 0.05, and a fifth of the items have the score 0.05 itself. Theta given
the score is Gamma with the score as its mean and a squared coefficient of variation (cv2) of 0.3;
at 0.05 its mean is 0.08 and its cv2 1.5, five times as large. Exposures are around 55.

Columns: seconds of processor time of a fit; coverage of 90% intervals of the items at the default
score and of those beside it, over all data sets, with the standard error of their mean; relative
error of the posterior means of E(theta | t) and of cv2 at the default score, and of both curves
just below it (at 0.0495), averaged over the data sets; Pareto k, the largest; fits that converged.
"""

import argparse
import time

import numpy as np
import pandas as pd

import soc_pymc as soc

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
    theta = rng.gamma(1.0 / cv2, mean * cv2)
    columns = {"t": score, "y": rng.poisson(theta * exposure), "N": exposure}
    return pd.DataFrame({**columns, "theta": theta, "default": default})


def items_of(frame: pd.DataFrame) -> soc.PoissonItems:
    """The items of a simulated table."""
    return soc.PoissonItems(frame, score="t", count="y", exposure="N")


def figures(frame: pd.DataFrame, prior: soc.Gamma) -> dict[str, float]:
    """Figures of one fit."""
    items = items_of(frame)
    stats = soc.summarize(items, progress=False)
    start = time.process_time()
    fit = soc.fit(stats, prior, progress=False)
    seconds = time.process_time() - start
    scored = soc.item_posteriors(fit, items, draws="representative", progress=False)
    inside = scored["theta"].between(scored["theta_q05"], scored["theta_q95"])
    drawn = soc.calibration_curves(fit, [BESIDE, DEFAULT])
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
        "pareto_k": float(fit.status.pareto_k or np.nan),
        "converged": float(fit.status.converged),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--data-sets", type=int, default=30)
    chosen = parser.parse_args()
    for atoms in (True, False):
        rows = [
            figures(simulated(chosen.items, seed), soc.Gamma(atoms=atoms))
            for seed in range(chosen.data_sets)
        ]
        table = pd.DataFrame(rows)
        error = table.std() / np.sqrt(len(table))
        print(f"atoms={atoms}, {len(table)} data sets of {chosen.items:,} items")
        print(pd.DataFrame({"mean": table.mean(), "s.e.": error, "max": table.max()}).round(4))


if __name__ == "__main__":
    main()
