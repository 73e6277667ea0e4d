"""Variational simulation-based calibration: are VI's marginals biased, and too narrow or wide?

    python -m tests.studies.vsbc [--kinds poisson normal] [--fits 100] [--items 5000] [--seed 0]

p is the probability that a fit's draws give to values below the truth. Where locations are
unbiased, p and 1 - p have the same distribution, even if widths are wrong (Yao, Vehtari, Simpson
and Gelman 2018): their Kolmogorov-Smirnov distance tests this. Where widths are right as well, the
spread, 4 mean|p - 1/2|, is 1; it is larger for draws too narrow. The last rows are for all
quantities together, as they are and with two faults planted into the draws.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from tests.studies import sbc
from tests.studies.common import Choice, options, show

_FLIPS = 4000

FAULTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "": lambda drawn: drawn,
    "shifted by 0.3 sd": lambda drawn: drawn + 0.3 * drawn.std(),
    "0.8 of the width": lambda drawn: drawn.mean() + 0.8 * (drawn - drawn.mean()),
}
"""Changes of a quantity's draws that make a right approximation wrong; the first has none."""


def probabilities(
    fits: int, items: int, seed: int, kind: str
) -> tuple[dict[str, pd.DataFrame], pd.DataFrame]:
    """p of every quantity (columns) in every data set (rows), as is ("") and by fault; statuses."""
    rows: dict[str, list[dict[str, float]]] = {label: [] for label in FAULTS}
    statuses = []
    for fit, quantities in sbc.replicates(fits, items, seed=seed, kind=kind):
        statuses.append({"converged": fit.status.converged, "pareto_k": fit.status.pareto_k})
        for label, change in FAULTS.items():
            rows[label].append({name: sbc.rank(change(x), *true) for name, x, *true in quantities})
    return {label: pd.DataFrame(table) for label, table in rows.items()}, pd.DataFrame(statuses)


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
    distances, null = _distances(p), np.array([_distances(np.where(flips, 1 - q, q)) for q in p])
    away = 4 * np.abs(p - 0.5)
    distances, null = np.append(distances, distances.mean()), np.vstack([null, null.mean(axis=0)])
    largest = np.vstack([np.tile(null[:-1].max(axis=0), (len(p), 1)), null[-1:]])
    away = np.vstack([away, away.mean(axis=0)])
    columns = {
        "mean p": np.append(p.mean(axis=1), p.mean()),
        "KS distance": distances,
        "p": ((null >= distances[:, None]).sum(axis=1) + 1) / (_FLIPS + 1),
        "p corrected": ((largest >= distances[:, None]).sum(axis=1) + 1) / (_FLIPS + 1),
        "spread": away.mean(axis=1),
        "its error": away.std(axis=1, ddof=1) / np.sqrt(away.shape[1]),
    }
    return pd.DataFrame(columns, index=[*found.columns, "all"])


def main() -> None:
    """Prints a table for each kind of items."""
    small = {"kinds": ["poisson"], "fits": 3, "items": 1000}
    chosen = options(
        __doc__,
        small,
        kinds=Choice(sbc.SETTINGS, ["poisson", "normal"]),
        fits=100,
        items=5000,
        seed=0,
    )
    for kind in chosen.kinds:
        found, status = probabilities(chosen.fits, chosen.items, chosen.seed, kind)
        tables = {label: table(p) for label, p in found.items()}
        faulty = {f"all, {label}": t.loc["all"] for label, t in tables.items() if label}
        show(pd.concat([tables[""], pd.DataFrame(faulty).T]), kind, digits=3)
        show(status.astype(float).describe(), digits=3)


if __name__ == "__main__":
    main()
