"""A part of every item's outcome, held out and predicted: search ads, motor policies (Section 5.1).

    SOC_PYMC_DATA=... python -m tests.studies.held_out adwords --splits 5
    SOC_PYMC_DATA=... python -m tests.studies.held_out fremtpl2 --splits 3 --out held_fremtpl2.csv

A tenth of the exposure is held out, by thinning. Fits: `soc.Gamma()` and
`soc.Gamma(exposure=soc.Spline())` by variational inference, and five steps in as many bins and in
200, smoothed and not. Prints the gain over t in percent, its standard error and its sd over splits,
and p-values of the predictive PIT.
"""

import argparse
import os
from pathlib import Path

import pandas as pd

import soc_pymc as soc

ROLES = {
    "adwords": {"score": "score", "count": "clicks", "exposure": "impressions"},
    "fremtpl2": {"score": "score", "count": "claims", "exposure": "exposure_years"},
}


def one_split(name: str, seed: int) -> soc.evaluate.HeldOut:
    """All fits to one training part, judged on the other."""
    source = Path(os.environ["SOC_PYMC_DATA"]) / f"{name}_items.parquet"
    split = soc.evaluate.split_items(soc.PoissonItems(source, **ROLES[name]), 0.1, seed=seed)
    stats = soc.summarize(split.train, joint=True, progress=False)
    few = soc.summarize(split.train, bins=200, progress=False)
    steps = soc.FiveSteps(smooth=False)
    fits = {
        "plain": soc.fit(stats, progress=False),
        "exposure": soc.fit(stats, soc.Gamma(exposure=soc.Spline()), progress=False),
        "five steps": soc.fit(stats, method=soc.FiveSteps(), progress=False),
        "five steps, 200 bins": soc.fit(few, method=soc.FiveSteps(), progress=False),
        "five steps, 200 bins as they are": soc.fit(few, method=steps, progress=False),
    }
    return soc.evaluate.held_out(fits, split, progress=False)


def summary(found: list[soc.evaluate.HeldOut]) -> pd.DataFrame:
    """Gains over all items, averaged over splits."""
    overall = pd.concat([f.table[f.table["bin"] == -1] for f in found])
    return overall.groupby("estimator", sort=False).agg(
        nats=("gain", "mean"),
        percent=("gain_percent", "mean"),
        standard_error=("gain_percent_se", "mean"),
        sd_over_splits=("gain_percent", "std"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=sorted(ROLES))
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--out", default=None, help="CSV of all tables, by split")
    chosen = parser.parse_args()
    found = []
    for seed in range(chosen.splits):
        found.append(one_split(chosen.data, seed))
        print(seed, found[-1], flush=True)
    print(summary(found).round(3).to_string())
    if chosen.out:
        tables = [f.table.assign(split=seed) for seed, f in enumerate(found)]
        pd.concat(tables).to_csv(chosen.out, index=False)


if __name__ == "__main__":
    main()
