"""Section 5.1 of the paper, number by number and figure by figure, by five steps and Bayesian.

    SOC_PYMC_DATA=... python -m tests.studies.reproduction --data adwords --out adwords/
    python -m tests.studies.reproduction --data simulated --items 1000000 --out simulated/

A tenth of every item's exposure is held out, as in the paper. `numbers.csv` has a row for every
figure that the paper gives and a column for each method; of simulated items also what is true.
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.studies.figures import of_fits, of_split, save

BINS = {"adwords": 100, "simulated": 1000}
"""Bins of equal counts."""


def read(data: str, n_items: int, seed: int) -> pd.DataFrame:
    """Items with columns score, count and exposure; of simulation S1 with the truth too."""
    if data == "simulated":
        return soc.simulation.s1(n_items, seed)
    path = Path(os.environ["SOC_PYMC_DATA"], "adwords_items.parquet")
    names = {"score": "score", "clicks": "count", "impressions": "exposure"}
    return pd.read_parquet(path, columns=list(names)).rename(columns=names)


def items_of(frame: pd.DataFrame) -> soc.PoissonItems:
    """Items of a table whose columns have the names of their roles."""
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure")


def fits_of(items: soc.PoissonItems, bins: int) -> tuple[soc.Statistics, dict[str, soc.Fit]]:
    """Statistics in bins of equal counts, and fits by both methods; ours with exposure too."""
    stats = soc.summarize(items, bins=bins, equal="count", joint=True, progress=False)
    exposed = soc.Gamma(exposure=soc.Spline())
    fits = {
        "five steps": soc.fit(stats, method=soc.FiveSteps(moments="log"), progress=False),
        "Bayesian": soc.fit(stats, progress=False),
        "Bayesian with exposure": soc.fit(stats, exposed, progress=False),
    }
    return stats, fits


def in_sample(
    items: soc.PoissonItems, stats: soc.Statistics, fits: Mapping[str, soc.Fit]
) -> pd.DataFrame:
    """What the paper reads off the fits: spread of t, seconds, PIT, R-squared, variance left."""
    spread = fits["five steps"].data["constant_data"]["log_score_sd"]
    rows: dict[str, dict[str, float]] = {}
    for name, fit in fits.items():
        table = soc.check(fit, items, progress=False).table.set_index(["check", "slice"])
        share = soc.quantities.r_squared(fit, stats).to_numpy()
        left = soc.quantities.variance_reduction(fit, items, progress=False)["ratio"].to_numpy()
        rows[name] = {
            "seconds of the fit": fit.status.seconds,
            "PIT, all items: distance": table.loc[("PIT", "all items"), "statistic"],
            "PIT, all items: p": table.loc[("PIT", "all items"), "p_value"],
            "PIT, N >= 50: distance": table.loc[("PIT", "exposure >= 50"), "statistic"],
            "PIT, N >= 50: p": table.loc[("PIT", "exposure >= 50"), "p_value"],
            **_summary("R-squared", share),
            **_summary("E Var(theta | t, y) / Var(theta | t)", left),
        }
    numbers = pd.DataFrame(rows)
    numbers.loc["Sd(log t) in a bin, median"] = float(spread.median())
    numbers.loc["Sd(log t) in a bin, largest"] = float(spread.max())
    return numbers


def _summary(name: str, draws: np.ndarray) -> dict[str, float]:
    """Mean and sd of a posterior; a single draw has no sd."""
    sd = float(draws.std()) if draws.size > 1 else np.nan
    return {name: float(draws.mean()), f"{name}: sd": sd}


def truth(frame: pd.DataFrame) -> pd.Series:
    """The same of simulated items by the curves that made them."""
    mean, cv2 = frame["true_mean"], frame["true_cv2"]
    variance = cv2 * mean**2
    rate = 1.0 / (cv2 * mean)
    left = (1.0 / cv2 + frame["count"]) / (rate + frame["exposure"]) ** 2
    weight = frame["exposure"]
    found = {
        "R-squared": 1.0 - variance.mean() / (mean.var() + variance.mean()),
        "E Var(theta | t, y) / Var(theta | t)": (weight @ left) / (weight @ variance),
    }
    return pd.Series(found, name="truth")


def held_out(frame: pd.DataFrame, bins: int, seed: int) -> soc.evaluate.HeldOut:
    """Gains on a tenth of the exposure, of both methods and of first-order calibration."""
    split = soc.evaluate.split_items(items_of(frame), 0.1, seed)
    _, fits = fits_of(split.train, bins)
    return soc.evaluate.held_out(fits, split, seed=seed, progress=False)


def draw(folder: Path, items: soc.PoissonItems, bins: int) -> None:
    """Every figure of Section 5.1, by both methods."""
    for make in (of_fits, of_split):
        for name, axes in make("counts", items, bins):
            save(np.ravel(axes)[0].figure, folder / f"{name}.png")


def main() -> None:
    """Run the study; write its numbers, the table of gains and the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=BINS, default="adwords")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--bins", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    frame = read(chosen.data, chosen.items, chosen.seed)
    items, bins = items_of(frame), chosen.bins or BINS[chosen.data]
    stats, fits = fits_of(items, bins)
    numbers = in_sample(items, stats, fits)
    if chosen.data == "simulated":
        numbers = numbers.join(truth(frame))
    numbers.to_csv(chosen.out / "numbers.csv")
    print(numbers.to_string(float_format=lambda x: f"{x:.4g}"), flush=True)
    held = held_out(frame, bins, chosen.seed)
    held.table.to_csv(chosen.out / "gains.csv", index=False)
    print(held, flush=True)
    draw(chosen.out, items, bins)


if __name__ == "__main__":
    main()
