"""Batting averages of 2005 (Brown 2008): estimate on April to June, validate on July to October.

    SOC_PYMC_DATA=... python -m tests.studies.batting [--priors mixture] [--out batting.csv]

Every player's hits become X = arcsin(sqrt((H + 1/4)/(AB + 1/2))), about Normal with variance
1/(4 AB), or are successes in trials, whose E(theta | t, y) is judged as X is. The score is the log
of the at-bats of the first half: who bats well bats often, which none of the published rules uses.
"""

from pathlib import Path

import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.studies.common import Choice, data_folder, fitted, options, posteriors, show, values

_STRAIGHT = {"mean": soc.Spline(scale="linear"), "variance": soc.Spline(scale="linear")}
PRIORS = {
    "normal": soc.Normal(),
    "mixture": soc.NormalMixture(),
    "binomial": soc.Beta(**_STRAIGHT),
    "binomial mixture": soc.BetaMixture(**_STRAIGHT),
}
FEWEST = 11  # at-bats in a half
FIRST, SECOND = ("4", "5", "6"), ("7", "8", "9-10")

PUBLISHED = {
    "all players": {
        "naive": 1.0,
        "overall mean": 0.852,
        "parametric EB, moments": 0.593,
        "parametric EB, likelihood": 0.902,
        "nonparametric EB": 0.508,
        "harmonic prior": 0.884,
        "James-Stein": 0.525,
    },
    "nonpitchers": {
        "naive": 1.0,
        "overall mean": 0.378,
        "parametric EB, moments": 0.387,
        "parametric EB, likelihood": 0.398,
        "nonparametric EB": 0.372,
        "James-Stein": 0.359,
    },
}
"""Normalised total squared errors of Brown (2008), tables 2 and 3."""


def players(folder: Path) -> pd.DataFrame:
    """Players with enough at-bats in the first half.

    Columns pitcher, score (log at-bats), hits, at_bats, value and noise_sd of the first half, and
    those of the second, as value2: value and noise_sd are NaN where it has too few at-bats.
    """
    raw = pd.read_csv(folder / "brown2008_batting.csv")
    table = pd.DataFrame({"pitcher": raw["Pitcher?"].astype(int)})
    for suffix, months in (("", FIRST), ("2", SECOND)):
        at_bats, hits = (raw[[f"{k}({m})" for m in months]].sum(axis=1) for k in ("AB", "H"))
        enough = at_bats >= FEWEST
        table["at_bats" + suffix], table["hits" + suffix] = at_bats, hits
        table["value" + suffix] = np.arcsin(np.sqrt((hits + 0.25) / (at_bats + 0.5))).where(enough)
        table["noise_sd" + suffix] = (0.5 / np.sqrt(at_bats.where(enough))).astype(float)
    table = table[table["at_bats"] >= FEWEST].reset_index(drop=True)
    return table.assign(score=np.log(table["at_bats"]))


def normalised_error(table: pd.DataFrame, estimate: np.ndarray) -> float:
    """Total squared error on the second half, less its own noise, over that of X itself (TSE*)."""
    both = table["value2"].notna()

    def error(values: np.ndarray) -> float:
        squares = (table["value2"] - values) ** 2 - table["noise_sd2"] ** 2
        return float(squares[both].sum())

    return error(np.asarray(estimate)) / error(table["value"].to_numpy())


def ours(table: pd.DataFrame, prior: str, group: str | None = None) -> np.ndarray:
    """Posterior means by the package, with at-bats as the score."""
    roles = {"score": "score", "group": group}
    if prior.startswith("binomial"):
        items = soc.BinomialItems(table, successes="hits", trials="at_bats", **roles)
    else:
        items = values(table, group=group)
    model = fitted(items, PRIORS[prior], joint=True)
    theta = posteriors(model, items)["theta_mean"].to_numpy()
    return np.arcsin(np.sqrt(theta)) if prior.startswith("binomial") else theta


def plain_rules(table: pd.DataFrame) -> dict[str, float]:
    """TSE* of rules that need no package."""
    value = table["value"].to_numpy()
    mean = np.full(len(table), value.mean())
    return {"naive": normalised_error(table, value), "overall mean": normalised_error(table, mean)}


def compare(
    table: pd.DataFrame, published: dict[str, float], priors: list[str], groups: bool
) -> pd.DataFrame:
    """TSE* beside the published ones."""
    found = plain_rules(table)
    for prior in priors:
        name = f"soc_pymc, {prior}, score log AB"
        found[name] = normalised_error(table, ours(table, prior))
        if groups:
            estimate = ours(table, prior, group="pitcher")
            found[f"{name}, by pitcher"] = normalised_error(table, estimate)
    names = list(dict.fromkeys([*published, *found]))
    return pd.DataFrame({"published": published, "here": found}).reindex(names)


def main() -> None:
    """Prints all tables."""
    priors = Choice(PRIORS, ["normal", "binomial"])
    chosen = options(__doc__, {"priors": ["normal"]}, priors=priors, out=Path)
    table = players(data_folder())
    print(f"{len(table)} players estimated, {table['value2'].notna().sum()} validated")
    fielders, pitchers = (table[table["pitcher"] == k].reset_index(drop=True) for k in (0, 1))
    results = {}
    for name, part in (("all players", table), ("nonpitchers", fielders), ("pitchers", pitchers)):
        published = PUBLISHED.get(name, {})
        results[name] = compare(part, published, chosen.priors, groups=part is table)
    result = pd.concat(results)
    show(result)
    if chosen.out:
        result.to_csv(chosen.out)


if __name__ == "__main__":
    main()
