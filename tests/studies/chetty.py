"""Neighbourhood effects on income: intervals of 595 commuting zones (Chetty and Hendren 2018).

    SOC_PYMC_DATA=... python -m tests.studies.chetty [--replicates 20] [--out chetty.csv]

The effects' estimates come with standard errors; the score is the mean outcome of the zone's
permanent residents. The kurtosis of the effects given the score is extreme, so that a Normal prior
under-covers (Armstrong, Kolesar and Plagborg-Moller 2022), which a mixture should not.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import soc_pymc as soc
from soc_pymc.posterior.predictive import posterior_of
from tests.studies import common

PRIORS = {"normal": soc.Normal(), "mixture": soc.NormalMixture()}
PUBLISHED = {"unshrunk": 0.7858, "robust EB": 0.1952, "parametric EB": 0.1234}
"""Mean half-lengths of 90% intervals in Armstrong, Kolesar and Plagborg-Moller (2022), table 1."""
_EXACT = 1e-9  # a noise sd that leaves outcomes equal to theta


def zones(folder: Path) -> tuple[pd.DataFrame, int]:
    """Zones with score, value and noise_sd, and the number of those dropped for a missing one."""
    raw = pd.read_csv(folder / "chetty_cz.csv")
    names = {"stayer25": "score", "theta25": "value", "se25": "noise_sd"}
    table = raw[["cz", "czname", *names]].rename(columns=names)
    complete = table.dropna().reset_index(drop=True)
    return complete, len(table) - len(complete)


def scored(table: pd.DataFrame, prior: str) -> tuple[soc.Fit, pd.DataFrame]:
    """Returns the fit and the scored table."""
    model = common.fitted(common.values(table), PRIORS[prior], joint=True)
    return model, common.posteriors(model, common.values(table))


def half_lengths(table: pd.DataFrame) -> dict[str, float]:
    """Mean half-lengths of 90% intervals, without a prior and with each of ours."""
    lengths = {"unshrunk": float(1.6448536 * table["noise_sd"].mean())}
    for prior in PRIORS:
        _, zones = scored(table, prior)
        lengths[f"soc_pymc, {prior}"] = float((zones["theta_q95"] - zones["theta_q05"]).mean() / 2)
    return lengths


def simulated(
    fit: soc.Fit, table: pd.DataFrame, draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Effects drawn from the fitted prior at the zones' scores, shape (draws, zones)."""
    columns = {"score": table["score"].to_numpy(), "value": np.zeros(len(table))}
    columns["noise_sd"] = np.full(len(table), _EXACT)
    effects = posterior_of(fit).simulate(columns, rng)
    return effects[rng.choice(len(effects), draws, replace=False)]


def coverage(table: pd.DataFrame, replicates: int, seed: int) -> pd.DataFrame:
    """Coverage of 90% intervals by each prior, in data drawn from the mixture's fit."""
    rng = np.random.default_rng(seed)
    truth, _ = scored(table, "mixture")
    rows = []
    for theta in simulated(truth, table, replicates, rng):
        again = table.assign(value=theta + table["noise_sd"] * rng.standard_normal(len(table)))
        rows.append({k: common.items_covered(scored(again, k)[1], theta).mean() for k in PRIORS})
    return common.averages(rows)


def main() -> None:
    """Prints the half-lengths and the coverage."""
    chosen = common.options(__doc__, {"replicates": 2}, replicates=20, seed=0, out=Path)
    table, dropped = zones(common.data_folder())
    print(f"{len(table)} zones, {dropped} dropped for a missing score, effect or standard error")
    lengths = pd.DataFrame({"published": PUBLISHED, "here": half_lengths(table)})
    common.show(lengths)
    if chosen.out:
        lengths.to_csv(chosen.out)
    if chosen.replicates:
        common.show(coverage(table, chosen.replicates, chosen.seed), "coverage of 90% intervals")


if __name__ == "__main__":
    main()
