"""Variational simulation-based calibration: are VI's marginals biased, and too narrow or wide?

    python -m tests.studies.vsbc [--kinds poisson normal] [--fits 100] [--items 5000] [--seed 0]

Data sets are drawn from the prior as in `tests.studies.sbc`, and p is the probability that a fit's
draws give to values below the truth. Where locations are unbiased, p and 1 - p have the same
distribution, even if widths are wrong (Yao, Vehtari, Simpson and Gelman 2018): their
Kolmogorov-Smirnov distance tests this. Where widths are right as well, p is uniform and the spread,
4 mean|p - 1/2|, is 1; it is larger for draws too narrow. The last rows are for all quantities
together, as they are and with two faults planted into the draws, to show what the tests can see.
No fit is left out, converged or not.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import pandas as pd

from tests.studies import sbc

_FLIPS = 4000

Change = Callable[[np.ndarray], np.ndarray]

FAULTS: dict[str, Change] = {
    "shifted by 0.3 sd": lambda drawn: drawn + 0.3 * drawn.std(),
    "0.8 of the width": lambda drawn: drawn.mean() + 0.8 * (drawn - drawn.mean()),
}
"""Changes of a quantity's draws that make a right approximation wrong."""


def probabilities(
    fits: int, items: int, seed: int, kind: str
) -> tuple[dict[str, pd.DataFrame], pd.DataFrame]:
    """p of every quantity (columns) in every data set (rows), as is ("") and by fault; statuses."""
    changes: dict[str, Change] = {"": lambda drawn: drawn, **FAULTS}
    found: dict[str, list[dict[str, float]]] = {label: [] for label in changes}
    statuses = []
    for fit, quantities in sbc.replicates(fits, items, seed=seed, kind=kind):
        statuses.append({"converged": fit.status.converged, "pareto_k": fit.status.pareto_k})
        for label, change in changes.items():
            row = {name: sbc.rank(change(x), *true) for name, x, *true in quantities}
            found[label].append(row)
    return {label: pd.DataFrame(rows) for label, rows in found.items()}, pd.DataFrame(statuses)


def _distances(p: np.ndarray) -> np.ndarray:
    """Largest difference between the ECDFs of p and 1 - p; rows are samples."""
    n = p.shape[1]
    both = np.concatenate([p, 1.0 - p], axis=1)
    steps = np.where(np.argsort(both, axis=1, kind="stable") < n, 1, -1)
    return np.abs(steps.cumsum(axis=1)).max(axis=1) / n


def table(found: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Tests of every column of p, and of all columns by the mean of their distances.

    p and 1 - p are mirror images, so the distances' own distribution is from random flips of p to
    1 - p, of all columns of a row at once, because they depend on each other. The corrected p-value
    of a column compares its distance with the largest of all columns.
    """
    p = found.to_numpy(dtype=float).T
    flips = np.random.default_rng(seed).random((_FLIPS, p.shape[1])) < 0.5
    own, null = _distances(p), np.array([_distances(np.where(flips, 1 - q, q)) for q in p])
    away = 4 * np.abs(p - 0.5)

    def row(p: np.ndarray, own: float, null: np.ndarray, most: np.ndarray, away: np.ndarray):
        return {
            "mean p": p.mean(),
            "KS distance": own,
            "p": (np.sum(null >= own) + 1) / (_FLIPS + 1),
            "p corrected": (np.sum(most >= own) + 1) / (_FLIPS + 1),
            "spread": away.mean(),
            "its error": away.std(ddof=1) / np.sqrt(len(away)),
        }

    rows = {
        name: row(p[i], own[i], null[i], null.max(axis=0), away[i])
        for i, name in enumerate(found.columns)
    }
    mean = null.mean(axis=0)
    rows["all"] = row(p, own.mean(), mean, mean, away.mean(axis=0))
    return pd.DataFrame(rows).T


def main() -> None:
    """Run the study and print a table for each kind of items."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = ["poisson", "normal"]
    parser.add_argument("--kinds", nargs="+", choices=list(sbc.SETTINGS), default=kinds)
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    for kind in chosen.kinds:
        start = time.process_time()
        found, status = probabilities(chosen.fits, chosen.items, chosen.seed, kind)
        tables = {label: table(p) for label, p in found.items()}
        faulty = {f"all, {label}": t.loc["all"] for label, t in tables.items() if label}
        shown = pd.concat([tables[""], pd.DataFrame(faulty).T])
        print(shown.to_string(float_format=lambda x: f"{x:.3f}"))
        print(
            f"{kind}: {chosen.fits} fits of {chosen.items} items, seed {chosen.seed}, "
            f"{status['converged'].mean():.1%} converged, Pareto k median "
            f"{status['pareto_k'].median():.2f}, {time.process_time() - start:.0f} CPU s\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
