"""Items in clusters: do 90% bands of both curves cover, with and without the clusters?

    python -m tests.studies.clusters [--simulations 10] [--first 0] [--out clusters.csv]
    python -m tests.studies.clusters --levels 12 --clusters 5

Theta given the score is Gamma with cv2 0.25, and items of one cluster share a normal effect of sd
0.3 on log theta, through a Gaussian copula. With ``--effect lognormal`` theta is a Gamma variable
times the exponential of the effect, which is no Gamma. Clusters are spread over all scores, or
local in the score: their centres differ, and their items lie within 0.2 of them (sd of log score).
Bands are pointwise at five scores, between the 5% and the 95% point. Bands without clusters are
those of the same draws, as normal bands, before clusters widened them. With ``--levels`` items are
in groups, each with clusters of its own, and bands are those of the groups' means at one score.
"""

import argparse
import warnings

import numpy as np
import pandas as pd
from scipy import special

import soc_pymc as soc

SHAPE, EFFECT = 4.0, 0.3  # of theta given the score; sd of the clusters' effect on log theta
CASES = [(number, where) for where in ("spread", "local") for number in (50, 500)]
AT = np.exp(-2.0 + special.ndtri([0.05, 0.25, 0.5, 0.75, 0.95]))
_ITEMS, _BINS = 10_000, 200
_SHARE = EFFECT**2 / special.polygamma(1, SHAPE)  # of the variance of log theta


def simulated(seed: int, clusters: int, where: str, effect: str = "gamma") -> pd.DataFrame:
    """Items of one data set."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, clusters, _ITEMS)
    if where == "local":
        log_t = rng.normal(-2.0, 1.0, clusters)[cluster] + rng.normal(0.0, 0.2, _ITEMS)
    else:
        log_t = rng.normal(-2.0, 1.0, _ITEMS)
    shared, own = rng.normal(size=clusters)[cluster], rng.normal(size=_ITEMS)
    exposure = rng.lognormal(3.0, 1.0, _ITEMS)
    if effect == "gamma":
        z = np.sqrt(_SHARE) * shared + np.sqrt(1.0 - _SHARE) * own
        factor = special.gammaincinv(SHAPE, special.ndtr(z)) / SHAPE
    else:
        factor = np.exp(EFFECT * shared) * rng.gamma(SHAPE, 1.0 / SHAPE, _ITEMS)
    count = rng.poisson(np.exp(log_t) * factor * exposure)
    return pd.DataFrame(
        {"t": np.exp(log_t), "y": count, "N": exposure, "campaign": cluster, "effect": effect}
    )


def truth(effect: str) -> dict[str, np.ndarray]:
    """Both curves at the scores of the bands."""
    more = np.exp(EFFECT**2) if effect == "lognormal" else 1.0
    log_mean = np.log(AT) + 0.5 * np.log(more)
    return {"log_mean": log_mean, "log_cv2": np.full(len(AT), np.log((1 + 1 / SHAPE) * more - 1))}


def one(seed: int, clusters: int, where: str, effect: str = "gamma") -> list[dict[str, object]]:
    """Rows of one data set: for both curves and every score, whether bands cover."""
    frame = simulated(seed, clusters, where, effect)
    items = soc.PoissonItems(frame, score="t", count="y", exposure="N")
    stats = soc.summarize(items, bins=_BINS, cluster="campaign", progress=False)
    fit = soc.fit(stats, method=soc.VI(seed=seed), progress=False)
    curves = soc.calibration_curves(fit, score=AT)
    draws = {"log_mean": curves["log_mean"], "log_cv2": -np.log(curves["shape"])}
    rows: list[dict[str, object]] = []
    for name, wanted in truth(effect).items():
        found = draws[name].transpose("chain", "draw", ...).to_numpy().reshape(-1, len(AT))
        low, high = np.quantile(found, [0.05, 0.95], axis=0)
        factors = fit.data["clusters"][name]
        knots = factors[factors.dims[0]].to_numpy()
        factor = np.interp(np.log(AT), knots, factors.to_numpy())
        away = np.abs(found.mean(axis=0) - wanted) * factor / found.std(axis=0)
        for k, t in enumerate(AT):
            rows.append(
                {
                    "seed": seed,
                    "clusters": clusters,
                    "where": where,
                    "effect": effect,
                    "curve": name,
                    "t": t,
                    "covers": bool(low[k] <= wanted[k] <= high[k]),
                    "without": bool(away[k] <= special.ndtri(0.95)),
                    "error": found[:, k].mean() - wanted[k],
                    "factor": factor[k],
                    "converged": fit.status.converged,
                }
            )
    return rows


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
    table = {"t": np.exp(log_t), "y": count, "N": exposure, "group": labels, "campaign": cluster}
    items = soc.PoissonItems(pd.DataFrame(table), score="t", count="y", exposure="N", group="group")
    kept = {"cluster": "campaign"} if clustered else {}
    fit = soc.fit(soc.summarize(items, bins=30, progress=False, **kept), progress=False)
    rows = []
    for k, label in enumerate(np.unique(labels)):
        draws = np.log(soc.calibration_curves(fit, [t], group=label)["mean"].to_numpy().ravel())
        error = draws.mean() - np.log(t) - deviation[k]
        low, high = np.quantile(draws - draws.mean() + error, [0.05, 0.95])
        rows.append({"covers": low < 0.0 < high, "sd": draws.std(), "error": error})
    return pd.DataFrame(rows)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Coverage by case and curve; its standard error takes the scores of a data set together."""
    keys = ["where", "clusters", "effect", "curve"]
    by_set = rows.groupby([*keys, "seed"])[["covers", "without", "error", "factor"]].mean()
    table = by_set.groupby(keys).mean()
    number = by_set.groupby(keys).size()
    table["se"] = by_set.groupby(keys)["covers"].std() / np.sqrt(number)
    return table.assign(data_sets=number).round(3)


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--where", choices=("spread", "local"))
    parser.add_argument("--clusters", type=int)
    parser.add_argument("--effect", choices=("gamma", "lognormal"), default="gamma")
    parser.add_argument("--levels", type=int, help="groups, with --clusters each")
    parser.add_argument("--out")
    given = parser.parse_args()
    warnings.simplefilter("error", soc.ItemsWarning)
    seeds = range(given.first, given.first + given.simulations)
    if given.levels:
        for clustered in (True, False):
            found = pd.concat(of_levels(s, given.levels, given.clusters, clustered) for s in seeds)
            error = np.sqrt((found["error"] ** 2).mean())
            print(f"clusters kept: {clustered}", found[["covers", "sd"]].mean().round(3).to_dict())
            print(f"root mean squared error {error:.3f}")
        return
    rows = []
    for number, where in CASES:
        if given.where in (None, where) and given.clusters in (None, number):
            for seed in seeds:
                rows += one(seed, number, where, given.effect)
    table = pd.DataFrame(rows)
    if given.out:
        table.to_csv(given.out, index=False)
    print(summary(table).to_string())


if __name__ == "__main__":
    main()
