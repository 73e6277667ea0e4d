"""Headline tests: clicks as successes in trials beside clicks as counts in exposures.

    SOC_PYMC_DATA=... python -m tests.studies.upworthy [--splits 1]

A tenth of the impressions is kept to fit, drawn trial by trial, and the rest shows nearly the true
rates. Log likelihoods are Binomial, of the rest at each item's E(theta | t, y), whichever noise was
fitted: they differ by the estimates alone. The predictive PIT of the rest is under each fit's own
noise.
"""

import argparse
import os
import warnings
from pathlib import Path

import pandas as pd
from scipy import stats

import soc_pymc as soc

KINDS = {
    "binomial": (soc.BinomialItems, {"successes": "clicks", "trials": "impressions"}),
    "poisson": (soc.PoissonItems, {"count": "clicks", "exposure": "impressions"}),
}


def one_split(folder: Path, seed: int, kind: str) -> dict[str, float]:
    """Fit a tenth of every item's impressions, and judge by the rest."""
    source, (items, roles) = folder / "upworthy_items.parquet", KINDS[kind]
    split = soc.evaluate.split_items(items(source, score="score", **roles), 0.9, seed=seed)
    with warnings.catch_warnings():  # items that look like trials
        warnings.simplefilter("ignore", soc.ItemsWarning)
        statistics = soc.summarize(split.train, joint=True, progress=False)
    fit = soc.fit(statistics, progress=False)
    scored = soc.item_posteriors(fit, split.train, progress=False)
    rest = split.test.source[list(roles)].to_numpy()
    width = scored["theta_q95"] - scored["theta_q05"]
    held = soc.evaluate.held_out(fit, split, baselines=(), progress=False)
    checked = soc.check(fit, split.train, progress=False)
    clicks, impressions = rest.T
    return {
        "log likelihood of the rest": stats.binom.logpmf(
            clicks, impressions, scored["theta_mean"]
        ).sum(),
        "median width of 90% intervals": width.median(),
        "largest difference of the PIT": float(held.data["pit"]["distance"].isel(fit=0, slice=0)),
        "its p": float(held.data["pit"]["p_value"].isel(fit=0, slice=0)),
        "checks that fail": float((checked.table["verdict"] == "fail").sum()),
        "converged": fit.status.converged,
    }


def main() -> None:
    """Print a table for each split."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=1)
    chosen = parser.parse_args()
    folder = Path(os.environ["SOC_PYMC_DATA"])
    tables = [
        pd.DataFrame({kind: one_split(folder, seed, kind) for kind in KINDS})
        for seed in range(chosen.splits)
    ]
    for seed, table in enumerate(tables):
        print(f"\nsplit {seed}\n{table.to_string(float_format=lambda x: f'{x:.6g}')}", flush=True)


if __name__ == "__main__":
    main()
