"""Neighbourhood effects on income: intervals of 595 commuting zones (Chetty and Hendren 2018).

    SOC_PYMC_DATA=... python -m tests.studies.chetty [--replicates 20] [--out chetty.csv]

The effects' estimates come with standard errors; the score is the mean outcome of the zone's
permanent residents. The kurtosis of the effects given the score is extreme, so that a Normal prior
under-covers (Armstrong, Kolesar and Plagborg-Moller 2022), which a mixture should not.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import soc_pymc as soc

PRIORS = {"normal": "Normal", "mixture": "NormalMixture"}
PUBLISHED = {"unshrunk": 0.7858, "robust EB": 0.1952, "parametric EB": 0.1234}
"""Mean half-lengths of 90% intervals in Armstrong, Kolesar and Plagborg-Moller (2022), table 1."""
_EXACT = 1e-9  # a noise sd that leaves outcomes equal to theta
_PROBS = (0.05, 0.95)


def zones(folder: Path) -> tuple[pd.DataFrame, int]:
    """Zones with score, value and noise_sd, and the number of those dropped for a missing one."""
    raw = pd.read_csv(folder / "chetty_cz.csv")
    names = {"stayer25": "score", "theta25": "value", "se25": "noise_sd"}
    table = raw[["cz", "czname", *names]].rename(columns=names)
    complete = table.dropna().reset_index(drop=True)
    return complete, len(table) - len(complete)


def fitted(table: pd.DataFrame, prior: str) -> tuple[soc.Fit, pd.DataFrame]:
    """Fit and scored table."""
    items = soc.NormalItems(table, score="score", value="value", noise_sd="noise_sd")
    stats = soc.summarize(items, joint=True, progress=False)
    fit = soc.fit(stats, getattr(soc, PRIORS[prior])(), progress=False)
    return fit, soc.item_posteriors(fit, items, quantiles=_PROBS, progress=False)


def half_lengths(table: pd.DataFrame) -> dict[str, float]:
    """Mean half-lengths of 90% intervals, without a prior and with each of ours."""
    found = {"unshrunk": float(1.6448536 * table["noise_sd"].mean())}
    for prior in PRIORS:
        _, scored = fitted(table, prior)
        found[f"soc_pymc, {prior}"] = float((scored["theta_q95"] - scored["theta_q05"]).mean() / 2)
    return found


def simulated(
    fit: soc.Fit, table: pd.DataFrame, draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Effects drawn from the fitted prior at the zones' scores, shape (draws, zones)."""
    from soc_pymc.posterior.predictive import posterior_of

    columns = {"score": table["score"].to_numpy(), "noise_sd": np.full(len(table), _EXACT)}
    every = posterior_of(fit).simulate(columns, rng)
    return every[rng.choice(len(every), draws, replace=False)]


def coverage(table: pd.DataFrame, replicates: int, seed: int) -> pd.DataFrame:
    """Coverage of 90% intervals by each prior, in data drawn from the mixture's fit."""
    rng = np.random.default_rng(seed)
    truth, _ = fitted(table, "mixture")
    rows = []
    for theta in simulated(truth, table, replicates, rng):
        again = table.assign(value=theta + table["noise_sd"] * rng.standard_normal(len(table)))
        row = {}
        for prior in PRIORS:
            _, scored = fitted(again, prior)
            row[prior] = np.mean((scored["theta_q05"] < theta) & (theta < scored["theta_q95"]))
        rows.append(row)
    every = pd.DataFrame(rows)
    return pd.DataFrame({"coverage": every.mean(), "se": every.std() / np.sqrt(replicates)})


def main() -> None:
    """Print the half-lengths and the coverage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    table, dropped = zones(Path(os.environ["SOC_PYMC_DATA"]))
    print(f"{len(table)} zones, {dropped} dropped for a missing score, effect or standard error")
    lengths = pd.DataFrame({"published": PUBLISHED, "here": half_lengths(table)})
    print(lengths.to_string(float_format=lambda x: f"{x:.4f}"))
    if chosen.out:
        lengths.to_csv(chosen.out)
    if chosen.replicates:
        covered = coverage(table, chosen.replicates, chosen.seed)
        print(covered.to_string(float_format=lambda x: f"{x:.3f}"))
        if chosen.out:
            covered.to_csv(chosen.out.with_stem(chosen.out.stem + "_coverage"))


if __name__ == "__main__":
    main()
