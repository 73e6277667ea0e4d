"""Items in clusters: do 90% bands of both curves cover, with and without the clusters?

    python -m tests.studies.clusters [--simulations 10]
    python -m tests.studies.clusters --levels 12 --clusters 5

Items of one cluster share a normal effect of sd 0.3 on log theta, through a Gaussian copula.
Clusters are spread over all scores, or local: their items lie within 0.2 of a centre (sd of log
score). Bands without clusters are those of the same draws before clusters widened them. With
``--levels`` items are in groups, each with clusters of its own, and bands are those of the groups'
means at one score.
"""

from itertools import product

import numpy as np
import pandas as pd
from scipy import special

import soc_pymc as soc
from tests.studies import common
from tests.studies.common import covered, curves, fitted, show

SHAPE, EFFECT = 4.0, 0.3  # of theta given the score; sd of the clusters' effect on log theta
AT = np.exp(-2.0 + special.ndtri([0.05, 0.25, 0.5, 0.75, 0.95]))
_ITEMS, _BINS = 10_000, 200
_SHARE = EFFECT**2 / special.polygamma(1, SHAPE)  # of the variance of log theta
TRUTH = {"log mean": np.log(AT), "log cv2": np.full(len(AT), -np.log(SHAPE))}
_KEYS = ["where", "clusters", "curve"]


def simulated(seed: int, clusters: int, where: str) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, clusters, _ITEMS)
    if where == "local":
        log_t = rng.normal(-2.0, 1.0, clusters)[cluster] + rng.normal(0.0, 0.2, _ITEMS)
    else:
        log_t = rng.normal(-2.0, 1.0, _ITEMS)
    shared, alone = rng.normal(size=clusters)[cluster], rng.normal(size=_ITEMS)
    exposure = rng.lognormal(3.0, 1.0, _ITEMS)
    z = np.sqrt(_SHARE) * shared + np.sqrt(1.0 - _SHARE) * alone
    factor = special.gammaincinv(SHAPE, special.ndtr(z)) / SHAPE
    count = rng.poisson(np.exp(log_t) * factor * exposure)
    table = {"score": np.exp(log_t), "count": count, "exposure": exposure, "campaign": cluster}
    return pd.DataFrame(table)


def one(seed: int, clusters: int, where: str) -> pd.DataFrame:
    """Rows of one data set: for both curves and every score, whether bands cover."""
    items = common.counts(simulated(seed, clusters, where))
    model = fitted(items, method=soc.VI(seed=seed), bins=_BINS, cluster="campaign")
    drawn = curves(model, AT)
    tables = []
    for name, true in TRUTH.items():
        factors = model.data["clusters"][name.replace(" ", "_")]
        factor = np.interp(np.log(AT), factors[factors.dims[0]].to_numpy(), factors.to_numpy())
        error = drawn[name].mean(axis=0) - true
        narrow_sd = drawn[name].std(axis=0) / factor
        rows = {
            "covers": covered(drawn[name], true),
            "without": np.abs(error) <= special.ndtri(0.95) * narrow_sd,
            "error": error,
            "factor": factor,
        }
        tables.append(pd.DataFrame(rows).assign(curve=name, t=AT))
    return pd.concat(tables).assign(converged=model.status.converged)


def of_levels(seed: int, levels: int, each: int, clustered: bool = True) -> pd.DataFrame:
    """For every group: whether its 90% band of log E(theta | t) covers, its sd and its error."""
    rng = np.random.default_rng(seed)
    number, t = _ITEMS // 2, AT[2]
    cluster = rng.integers(0, levels * each, number)
    group, log_t = cluster // each, rng.normal(np.log(t), 0.7, number)
    deviation, shared = 0.2 * rng.normal(size=levels), rng.normal(size=levels * each)
    log_mean = log_t + deviation[group] + EFFECT * shared[cluster] - 0.5 * EFFECT**2
    exposure = rng.lognormal(3.0, 1.0, number)
    count = rng.poisson(np.exp(log_mean) * rng.gamma(SHAPE, 1.0 / SHAPE, number) * exposure)
    labels = np.char.add("g", np.char.zfill(group.astype(str), 4))
    table = {"score": np.exp(log_t), "count": count, "exposure": exposure, "group": labels}
    items = common.counts(pd.DataFrame(table).assign(campaign=cluster), group="group")
    model = fitted(items, bins=30, cluster="campaign" if clustered else None)
    rows = []
    for k, label in enumerate(np.unique(labels)):
        draws = curves(model, [t], group=label)["log mean"]
        true = np.log(t) + deviation[k]
        covers = bool(covered(draws, true)[0])
        rows.append({"covers": covers, "sd": draws.std(), "error": draws.mean() - true})
    return pd.DataFrame(rows)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Coverage by case and curve; its standard error takes the scores of a data set together."""
    by_set = rows.groupby([*_KEYS, "seed"])[["covers", "without", "error", "factor"]].mean()
    cases = by_set.groupby(_KEYS)
    table = cases.mean()
    table["se"] = cases["covers"].sem()
    return table.assign(data_sets=cases.size())


def main() -> None:
    small = {"simulations": 1, "where": ["spread"], "clusters": [50]}
    where = common.Choice(("spread", "local"))
    sizes = {"simulations": 10, "clusters": (50, 500), "levels": int}
    chosen = common.options(__doc__, small, where=where, **sizes)
    seeds = range(chosen.simulations)
    if chosen.levels:
        for clustered in (True, False):
            each = chosen.clusters[0]
            table = pd.concat(of_levels(s, chosen.levels, each, clustered) for s in seeds)
            show(common.averages(table), f"clusters known: {clustered}", digits=3)
            print(f"root mean squared error {np.sqrt((table['error'] ** 2).mean()):.3f}")
        return
    cases = product(seeds, chosen.clusters, chosen.where)
    keys = ("seed", "clusters", "where")
    rows = [one(*case).assign(**dict(zip(keys, case, strict=True))) for case in cases]
    show(summary(pd.concat(rows)), digits=3)


if __name__ == "__main__":
    main()
