"""Do mixtures hold on real data: do fits converge, agree with NUTS, and compare honestly?

    python -m tests.studies.mixtures fits [--data NAME ...] [--seeds 5]
    python -m tests.studies.mixtures nuts [--data NAME ...]
    python -m tests.studies.mixtures compare [--data NAME ...]
    python -m tests.studies.mixtures terms [--data NAME ...]
    python -m tests.studies.mixtures sbc [--fits 100]

`fits`: convergence of each prior by data set and seed. `nuts`: `soc.GammaMixture()` by VI against
NUTS on the same model. `compare`: the mixture's elpd against the Gamma's. `terms`: held-out gains
of the mixture, the term in exposure and both. `sbc`: simulation-based calibration of the mixture.
Real data are read from the folder that SOC_PYMC_DATA names.
"""

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from scipy import stats as sps

import soc_pymc as soc
from soc_pymc.model.problem import build
from soc_pymc.posterior.predictive import posterior_of
from tests.studies import sbc

ROLES = {
    "adwords": ("clicks", "impressions"),
    "fremtpl2": ("claims", "exposure_years"),
    "homeruns": ("home_runs", "at_bats"),
    "upworthy": ("clicks", "impressions"),
}
DATA = ("adwords", "fremtpl2", "homeruns", "upworthy thinned", "upworthy")
_TERM = soc.Spline()
PRIORS = {
    "Gamma": soc.Gamma(),
    "Gamma, exposure": soc.Gamma(exposure=_TERM),
    "mixture": soc.GammaMixture(),
    "mixture, exposure": soc.GammaMixture(exposure=_TERM),
}
# so near the middle that one grid of components can represent all curves from it
NARROW = {
    "mean": soc.Spline(level=(float(np.log(0.05)), 0.3), slope=(1.0, 0.1), wiggle=0.1),
    "variance": soc.Spline(level=(float(np.log(0.3)), 0.3), slope=(0.0, 0.15), wiggle=0.1),
}
_DRAWS = {"draws": 1000, "tune": 1000, "chains": 2}


def table_of(name: str) -> pd.DataFrame:
    """Items with columns score, count and exposure; thinned to a tenth of the trials on request."""
    source = name.split()[0]
    count, exposure = ROLES[source]
    frame = pd.read_parquet(Path(os.environ["SOC_PYMC_DATA"]) / f"{source}_items.parquet")
    frame = frame.rename(columns={count: "count", exposure: "exposure"})
    frame = frame[["score", "count", "exposure"]]
    if name != source:
        rng = np.random.default_rng(1)
        kept = rng.binomial(frame["exposure"], 0.1)
        failures = frame["exposure"] - frame["count"]
        frame = frame.assign(
            count=rng.hypergeometric(frame["count"], failures, kept), exposure=kept
        )
        frame = frame[frame["exposure"] > 0]
    return frame


def items_of(frame: pd.DataFrame) -> soc.PoissonItems:
    """The items of a table."""
    return soc.PoissonItems(frame, score="score", count="count", exposure="exposure")


def summarized(frame: pd.DataFrame, **options: Any) -> soc.Statistics:
    """Statistics with joint cells."""
    options = {"joint": True, "on_leakage": "ignore", "progress": False} | options
    return soc.summarize(items_of(frame), **options)


def fits(names: list[str], seeds: int) -> Iterator[dict[str, Any]]:
    """Convergence of each fit."""
    for name in names:
        stats = summarized(table_of(name))
        for label, prior in PRIORS.items():
            for seed in range(seeds):
                start = time.process_time()
                status = soc.fit(stats, prior, soc.VI(seed=seed), progress=False).status
                yield {
                    "data": name,
                    "prior": label,
                    "seed": seed,
                    "converged": status.converged,
                    "pareto_k": status.pareto_k,
                    "ess": status.ess_fraction,
                    "repaired": "anneal" in status.reason,
                    "cpu": time.process_time() - start,
                }


def _curves(fit: soc.Fit, score: np.ndarray) -> xr.Dataset:
    """Draws of log E(theta | t) and log cv2(theta | t)."""
    found = posterior_of(fit).curves(score)
    log_cv2 = found["log_variance"] - 2.0 * found["log_mean"]
    sizes = fit.data["posterior"].sizes["chain"], fit.data["posterior"].sizes["draw"], len(score)
    dims = ("chain", "draw", "score")
    both = {"log E": found["log_mean"], "log cv2": log_cv2}
    return xr.Dataset({k: (dims, v.reshape(sizes)) for k, v in both.items()})


def agreement(name: str) -> dict[str, Any]:
    """VI against NUTS: the farthest of 20 scores, and of items."""
    frame = table_of(name)
    stats, prior = summarized(frame), soc.GammaMixture()
    start = time.perf_counter()
    nuts = soc.fit(stats, prior, soc.NUTS(seed=1, **_DRAWS), progress=False)
    seconds = time.perf_counter() - start
    vi = soc.fit(stats, prior, soc.VI(draws=4000), progress=False)
    score = frame["score"].quantile(np.linspace(0.01, 0.99, 20)).to_numpy()
    truth, found = (_curves(fit, score) for fit in (nuts, vi))
    row: dict[str, Any] = {"data": name, "minutes": seconds / 60.0}
    row["rhat"] = max(float(v.max()) for v in az.rhat(truth).data_vars.values())
    row["ess"] = min(float(v.min()) for v in az.ess(truth).data_vars.values())
    row["divergences"] = int(nuts.data["sample_stats"]["diverging"].sum())
    over = ("chain", "draw")
    for k in truth:
        sd = truth[k].std(over)
        ratio = (found[k].std(over) / sd).to_numpy()
        row[f"{k} sd ratios"] = f"{ratio.min():.2f} to {ratio.max():.2f}"
        # with a heavy tail the reference's own sd is uncertain, whatever its effective sample size
        chains = truth[k].std("draw")
        row[f"{k} sds of chains"] = float((chains.max("chain") / chains.min("chain")).max())
        ends = [of[k].quantile([0.05, 0.95], over) for of in (found, truth)]
        bands = (ends[0].diff("quantile") / ends[1].diff("quantile")).to_numpy()
        row[f"{k} band ratios"] = f"{bands.min():.2f} to {bands.max():.2f}"
        row[f"{k} mean"] = float((np.abs(found[k].mean(over) - truth[k].mean(over)) / sd).max())
    some = items_of(frame.sample(300, random_state=0))
    one, two = (soc.item_posteriors(f, some, progress=False) for f in (nuts, vi))
    off = (two["theta_mean"] - one["theta_mean"]).abs() / one["theta_sd"]
    row["item mean"] = float(off.max())
    ratio = two["theta_sd"] / one["theta_sd"]
    row["item sd ratios"] = f"{ratio.min():.3f} to {ratio.max():.3f}"
    return row


def compared(name: str) -> pd.DataFrame:
    """The table of `soc.compare` for the Gamma and the mixture."""
    stats = summarized(table_of(name))
    both = {k: soc.fit(stats, PRIORS[k], progress=False) for k in ("Gamma", "mixture")}
    return soc.compare(both, stats, progress=False).assign(data=name)


def held_out(name: str, seed: int = 0) -> pd.DataFrame:
    """Log predictive density of a fifth of the items under fits to the others, over the Gamma's."""
    frame = table_of(name)
    test = np.random.default_rng(seed).random(len(frame)) < 0.2
    stats = summarized(frame[~test])
    given = soc.PoissonItems(frame[test], score="score", count="count", exposure="exposure")
    density = {}
    for label, prior in PRIORS.items():
        fit = soc.fit(stats, prior, progress=False)
        columns = {k: frame[test][k].to_numpy(dtype=float) for k in given.roles}
        draws = posterior_of(fit).log_density(columns)
        density[label] = np.logaddexp.reduce(draws, axis=0) - np.log(len(draws))
    gain = pd.DataFrame(density).sub(density["Gamma"], axis=0)
    return pd.DataFrame({"gain": gain.sum(), "se": gain.std() * np.sqrt(len(gain))})


# --- simulation-based calibration ----------------------------------------------------------------


def _from_prior(stats: soc.Statistics, prior: Any, number: int, seed: int) -> soc.Fit:
    """A fit whose draws are those of the prior, on the grid of the statistics."""
    fit, built = soc.fit(stats, prior, progress=False), build(stats, prior)
    names = [str(name) for name in fit.data["posterior"] if str(name) in built.model.named_vars]
    with built.model:
        tree = pm.sample_prior_predictive(number, var_names=names, random_seed=seed)
    drawn = tree["prior"].to_dataset()[names]
    data = fit.data.copy()
    data["posterior"] = xr.DataTree(drawn)
    return replace(fit, data=data)


def _law(fit: soc.Fit, score: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shapes and rates (n, R) of the components at scores, and their weights (draws, n, R)."""
    posterior: Any = posterior_of(fit)
    columns = {"score": score, "exposure": np.ones(len(score))}
    shape, rate = np.broadcast_arrays(*posterior._prior(columns))
    weight = np.empty((posterior._weights.draws, *shape.shape))
    for at, own in posterior._weights.blocks(columns):
        weight[:, at] = own
    return shape, rate, weight


def _tail(fit: soc.Fit, score: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """P(theta > cut | t) by draw, (draws, n)."""
    shape, rate, weight = _law(fit, score)
    return np.einsum("dnr,nr->dn", weight, sps.gamma.sf(cut[:, None], shape, scale=1.0 / rate))


def ranks(number: int, items: int = 5000, seed: int = 0) -> pd.DataFrame:
    """Ranks of the truth in fits to data sets from the mixture's prior."""
    prior = soc.GammaMixture(**NARROW)
    frame = soc.simulation.s1(items, seed=seed)[["score", "count", "exposure"]]
    first = summarized(frame)
    # the truth's grid is that of a table in the middle of the prior
    centre = _curves(_from_prior(first, prior, 200, seed), frame["score"].to_numpy())
    middle = (np.exp(centre[k].median(("chain", "draw")).to_numpy()) for k in centre)
    mean, cv2 = middle
    rng = np.random.default_rng(seed)
    own = frame.assign(count=rng.poisson(rng.gamma(1.0 / cv2, cv2 * mean) * frame["exposure"]))
    truth = _from_prior(summarized(own, edges=first.edges), prior, number, seed)
    points = frame["score"].quantile([0.02, 0.25, 0.5, 0.75, 0.98]).to_numpy()
    true = _curves(truth, points)
    rows = []
    cut = 2.0 * np.exp(true["log E"].to_numpy()[0])  # (fits, points)
    shape, rate, weight = _law(truth, frame["score"].to_numpy())
    for i in range(number):
        below = np.cumsum(weight[i], axis=1)
        r = (below < rng.random((items, 1)) * below[:, -1:]).sum(axis=1)
        one = np.arange(items), np.minimum(r, shape.shape[1] - 1)
        theta = rng.gamma(shape[one], 1.0 / rate[one])
        own = frame.assign(count=rng.poisson(theta * frame["exposure"]))
        stats = summarized(own, edges=first.edges)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", soc.ConvergenceWarning)
            fit = soc.fit(stats, prior, soc.VI(seed=i), progress=False)
        found = _curves(fit, points)
        row = {"converged": fit.status.converged, "pareto_k": fit.status.pareto_k}
        drawn = {k: found[k].to_numpy()[0] for k in found}
        right = {k: true[k].to_numpy()[0, i] for k in found}
        drawn["P(theta > c)"] = _tail(fit, points, cut[i])
        only = replace(truth, data=_one_draw(truth, i))
        right["P(theta > c)"] = _tail(only, points, cut[i])[0]
        for k, j in ((k, j) for k in drawn for j in range(len(points))):
            row[f"{k} at {j}"] = sbc.rank(drawn[k][:, j], right[k][j], rng.random())
        some = rng.choice(items, 5, replace=False)
        after = posterior_of(fit).theta(
            {k: own[k].to_numpy(dtype=float)[some] for k in ("score", "count", "exposure")}
        )
        for j, at in enumerate(some):
            cdf = sps.gamma.cdf(theta[at], after.first[:, j], scale=1.0 / after.second[:, j])
            row[f"item {j}"] = float(after.weight[:, j] @ cdf)
        rows.append(row)
    return pd.DataFrame(rows)


def _one_draw(fit: soc.Fit, i: int) -> xr.DataTree:
    data = fit.data.copy()
    posterior = fit.data["posterior"].to_dataset()
    chain, draw = divmod(i, posterior.sizes["draw"])
    data["posterior"] = xr.DataTree(posterior.isel(chain=[chain], draw=[draw]))
    return data


def main() -> None:
    """Run one part and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("fits", "nuts", "compare", "terms", "sbc"))
    parser.add_argument("--data", nargs="*", choices=DATA, default=list(DATA))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--fits", type=int, default=100)
    chosen = parser.parse_args()
    if chosen.part == "fits":
        for row in fits(chosen.data, chosen.seeds):
            print(row, flush=True)
    elif chosen.part == "sbc":
        start, found = time.time(), ranks(chosen.fits)
        print(sbc.table(found).to_string(float_format=lambda x: f"{x:.3f}"))
        print(f"{found['converged'].mean():.0%} converged, {time.time() - start:.0f} s")
    else:
        part = {"nuts": agreement, "compare": compared, "terms": held_out}[chosen.part]
        for name in chosen.data:
            print(name, part(name), sep="\n", flush=True)


if __name__ == "__main__":
    main()
