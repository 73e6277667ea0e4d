"""Variational simulation-based calibration: are VI's marginals biased, and which way?

    python -m tests.studies.vsbc [--kinds poisson normal] [--fits 100] [--items 5000]

Data sets are drawn from the prior as in `tests.studies.sbc`, and p is the probability that a fit's
draws give to values below the truth. Where the approximation is unbiased on average, p is as often
below a half as above, by whatever distance (Yao, Vehtari, Simpson and Gelman 2018): widths may be
wrong, but not locations. So p and 1 - p have the same distribution, which their Kolmogorov-Smirnov
distance tests. The two samples are mirror images, so the distance's own distribution comes from
random flips of p to 1 - p. No fit is left out, converged or not.
"""

import argparse
import time

import numpy as np
import pandas as pd

from soc_pymc.checks._check import holm
from tests.studies import sbc

_FLIPS = 4000


def _distances(p: np.ndarray) -> np.ndarray:
    """Largest difference between the ECDFs of p and 1 - p; rows are samples."""
    n = p.shape[1]
    both = np.concatenate([p, 1.0 - p], axis=1)
    steps = np.where(np.argsort(both, axis=1, kind="stable") < n, 1.0, -1.0) / n
    return np.abs(steps.cumsum(axis=1)).max(axis=1)


def symmetry(found: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Tests of the symmetry of every column of p about a half; p-values corrected by Holm."""
    p = found.to_numpy(dtype=float).T
    observed = _distances(p)
    flips = np.random.default_rng(seed).random((_FLIPS, p.shape[1])) < 0.5
    value = [
        (np.sum(_distances(np.where(flips, 1.0 - row, row)) >= own) + 1) / (_FLIPS + 1)
        for row, own in zip(p, observed, strict=True)
    ]
    return pd.DataFrame(
        {
            "share below half": (p < 0.5).mean(axis=1),
            "mean p": p.mean(axis=1),
            "KS distance": observed,
            "p": value,
            "p corrected": holm(np.array(value)),
        },
        index=found.columns,
    )


def main() -> None:
    """Run the study and print a table for each kind of items."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kinds", nargs="+", choices=list(sbc.SETTINGS), default=["poisson", "normal"]
    )
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    for kind in chosen.kinds:
        start = time.time()
        found = sbc.ranks(chosen.fits, chosen.items, seed=chosen.seed, kind=kind)
        ranks = found.drop(columns=["converged", "pareto_k"])
        print(symmetry(ranks).to_string(float_format=lambda x: f"{x:.3f}"))
        print(
            f"{kind}: {chosen.fits} fits of {chosen.items} items, {found['converged'].mean():.1%} "
            f"converged, Pareto k median {found['pareto_k'].median():.2f}, "
            f"{time.time() - start:.0f} s\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
