"""Real tables with figures published by others: batting averages, commuting zones, headlines.

    SOC_PYMC_DATA=... python -m tests.studies published batting|zones|headlines

``batting``: averages of 2005 (Brown 2008), estimated on April to June, validated on July to
October. Every player's hits become X = arcsin(sqrt((H + 1/4)/(AB + 1/2))), about Normal with
variance 1/(4 AB), or are successes in trials, whose E(theta | t, y) is judged as X is. The score is
the log of the at-bats of the first half: who bats well bats often, which no published rule uses.

``zones``: neighbourhood effects on income, intervals of 595 commuting zones (Chetty and Hendren
2018). The score is the mean outcome of the zone's permanent residents. The kurtosis of the effects
given the score is extreme, so that a Normal prior under-covers (Armstrong, Kolesar and
Plagborg-Moller 2022), which a mixture should not.

``headlines``: clicks as successes in trials beside clicks as counts in exposures. A tenth of the
impressions is kept to fit, drawn trial by trial; log likelihoods are Binomial, of the rest at each
item's E(theta | t, y), whichever noise was fitted.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import soc_pymc as soc
from soc_pymc.posterior.predictive import posterior_of
from tests.studies import common
from tests.studies.common import averages, counts, fit, fitted, posteriors, show, trials, values

_STRAIGHT = {"mean": soc.Spline(scale="linear"), "variance": soc.Spline(scale="linear")}
BATTING_PRIORS = {
    "normal": soc.Normal(),
    "mixture": soc.NormalMixture(),
    "binomial": soc.Beta(**_STRAIGHT),
    "binomial mixture": soc.BetaMixture(**_STRAIGHT),
}
FEWEST = 11  # at-bats in a half
FIRST, SECOND = ("4", "5", "6"), ("7", "8", "9-10")

RULES = ("naive", "overall mean", "parametric EB, moments", "parametric EB, likelihood")
RULES += ("nonparametric EB", "James-Stein", "harmonic prior")
ERRORS = {
    "all players": (1.0, 0.852, 0.593, 0.902, 0.508, 0.525, 0.884),
    "nonpitchers": (1.0, 0.378, 0.387, 0.398, 0.372, 0.359),
}
PUBLISHED = {who: dict(zip(RULES, errors, strict=False)) for who, errors in ERRORS.items()}
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
    model = fitted(items, BATTING_PRIORS[prior], joint=True)
    theta = posteriors(model, items)["theta_mean"].to_numpy()
    return np.arcsin(np.sqrt(theta)) if prior.startswith("binomial") else theta


def plain_rules(table: pd.DataFrame) -> dict[str, float]:
    value = table["value"].to_numpy()
    mean = np.full(len(table), value.mean())
    return {"naive": normalised_error(table, value), "overall mean": normalised_error(table, mean)}


def errors(
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


def batting(chosen: Any) -> None:
    table = players(common.data_folder())
    print(f"{len(table)} players estimated, {table['value2'].notna().sum()} validated")
    fielders, pitchers = (table[table["pitcher"] == k].reset_index(drop=True) for k in (0, 1))
    priors = ["normal"] if chosen.small else list(BATTING_PRIORS)[::2]
    results = {}
    for name, part in (("all players", table), ("nonpitchers", fielders), ("pitchers", pitchers)):
        results[name] = errors(part, PUBLISHED.get(name, {}), priors, groups=part is table)
    show(pd.concat(results))


ZONE_PRIORS = {"normal": soc.Normal(), "mixture": soc.NormalMixture()}
PUBLISHED_LENGTHS = {"unshrunk": 0.7858, "robust EB": 0.1952, "parametric EB": 0.1234}
"""Mean half-lengths of 90% intervals in Armstrong, Kolesar and Plagborg-Moller (2022), table 1."""
_EXACT = 1e-9  # a noise sd that leaves outcomes equal to theta


def zones(folder: Path) -> tuple[pd.DataFrame, int]:
    """Zones with score, value and noise_sd, and the number of those dropped for a missing one."""
    raw = pd.read_csv(folder / "chetty_cz.csv")
    names = {"stayer25": "score", "theta25": "value", "se25": "noise_sd"}
    table = raw[["cz", "czname", *names]].rename(columns=names)
    complete = table.dropna().reset_index(drop=True)
    return complete, len(table) - len(complete)


def scored_zones(table: pd.DataFrame, prior: str) -> tuple[soc.Fit, pd.DataFrame]:
    model = fitted(values(table), ZONE_PRIORS[prior], joint=True)
    return model, posteriors(model, values(table))


def half_lengths(table: pd.DataFrame) -> dict[str, float]:
    """Mean half-lengths of 90% intervals, without a prior and with each of ours."""
    lengths = {"unshrunk": 1.6448536 * table["noise_sd"].mean()}
    for prior in ZONE_PRIORS:
        scored = scored_zones(table, prior)[1]
        lengths[f"soc_pymc, {prior}"] = (scored["theta_q95"] - scored["theta_q05"]).mean() / 2
    return lengths


def coverage(table: pd.DataFrame, replicates: int, seed: int) -> pd.DataFrame:
    """Coverage of 90% intervals by each prior, in data drawn from the mixture's fit."""
    rng, rows = np.random.default_rng(seed), []
    columns = {"score": table["score"].to_numpy(), "value": np.zeros(len(table))}
    columns["noise_sd"] = np.full(len(table), _EXACT)
    effects = posterior_of(scored_zones(table, "mixture")[0]).simulate(columns, rng)
    for theta in effects[rng.choice(len(effects), replicates, replace=False)]:
        again = table.assign(value=theta + table["noise_sd"] * rng.standard_normal(len(table)))
        rows.append(
            {k: common.items_covered(scored_zones(again, k)[1], theta).mean() for k in ZONE_PRIORS}
        )
    return averages(rows)


def of_zones(chosen: Any) -> None:
    table, dropped = zones(common.data_folder())
    print(f"{len(table)} zones, {dropped} dropped for a missing score, effect or standard error")
    show(pd.DataFrame({"published": PUBLISHED_LENGTHS, "here": half_lengths(table)}))
    show(coverage(table, chosen.replicates, chosen.seed), "coverage of 90% intervals")


KINDS = {
    "binomial": lambda frame: trials(frame, successes="count", trials="exposure"),
    "poisson": counts,
}


def one_split(frame: pd.DataFrame, seed: int, kind: str) -> dict[str, float]:
    """Fits a tenth of every item's impressions, and judges by the rest."""
    split = soc.evaluate.split_items(KINDS[kind](frame), 0.9, seed=seed)
    with warnings.catch_warnings():  # items that look like trials
        warnings.simplefilter("ignore", soc.ItemsWarning)
        model = fit(common.summarize(split.train, joint=True))
    scored, test = posteriors(model, split.train), split.test.source
    width = scored["theta_q95"] - scored["theta_q05"]
    held = soc.evaluate.held_out(model, split, progress=False)
    pit = held.table[held.table["what"] == "PIT"].iloc[0]
    checked = soc.check(model, split.train, progress=False)
    rest = (test[role] for role in split.test.roles if role not in ("score", "group"))
    likelihood = stats.binom.logpmf(*rest, scored["theta_mean"])
    row = {"log likelihood of the rest": likelihood.sum(), "median width": width.median()}
    row |= {"largest difference of the PIT": float(pit["value"]), "its p": float(pit["p"])}
    row["checks that fail"] = float((checked.table["verdict"] == "fail").sum())
    return row | common.quality(model)


def headlines(chosen: Any) -> None:
    frame = common.real_counts("upworthy").iloc[: 3000 if chosen.small else None]
    for seed in range(chosen.splits):
        columns = {kind: one_split(frame, seed, kind) for kind in KINDS}
        show(pd.DataFrame(columns), f"split {seed}", digits=6)


PARTS = {"batting": batting, "zones": of_zones, "headlines": headlines}


def main() -> None:
    small = {"replicates": 2}
    chosen = common.options(__doc__, small, part=PARTS, replicates=20, seed=0, splits=1)
    PARTS[chosen.part](chosen)
