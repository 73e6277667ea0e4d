"""Do mixtures hold on real data: do fits converge, agree with NUTS, and compare honestly?

    python -m tests.studies mixtures fits|nuts|compare|terms [--data NAME ...] [--seeds 5]
    python -m tests.studies mixtures sbc [--fits 100]

`fits`: convergence of each prior by data set and seed. `nuts`: `soc.GammaMixture()` by VI against
NUTS on the same model. `compare`: the mixture's elpd against the Gamma's. `terms`: held-out gains
of the mixture, the term in exposure and both. `sbc`: simulation-based calibration of the mixture.
Real data are read from the folder that SOC_PYMC_DATA names.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

import soc_pymc as soc
from soc_pymc.posterior.predictive import posterior_of
from tests.studies import agreement, common, sbc
from tests.studies.common import Choice, counts, fit, options, posteriors, real_counts, show

DATA = ("adwords", "fremtpl2", "homeruns", "upworthy thinned", "upworthy")
PARTS = ("fits", "nuts", "compare", "terms", "sbc")
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


def table_of(name: str) -> pd.DataFrame:
    """Items with columns score, count and exposure; thinned to a tenth of the trials on request."""
    source, *thinned = name.split()
    frame = real_counts(source)
    if thinned:
        rng = np.random.default_rng(1)
        exposure = rng.binomial(frame["exposure"], 0.1)
        failures = frame["exposure"] - frame["count"]
        count = rng.hypergeometric(frame["count"], failures, exposure)
        frame = frame.assign(count=count, exposure=exposure)[exposure > 0]
    return frame


def summarized(frame: pd.DataFrame, **how: Any) -> soc.Statistics:
    return common.summarize(counts(frame), joint=True, on_leakage="ignore", **how)


def fits(frame: pd.DataFrame, seeds: int) -> Iterator[dict[str, Any]]:
    stats = summarized(frame)
    for label, prior in PRIORS.items():
        for seed in range(seeds):
            status = fit(stats, prior, soc.VI(seed=seed)).status
            yield {"prior": label, "seed": seed, **dataclasses.asdict(status)}


def _log_cv2(curves: xr.Dataset) -> xr.Dataset:
    """Draws of log E(theta | t) and log cv2(theta | t), dims (chain, draw, score)."""
    log_mean = curves["log_mean"]
    both = {"log E": log_mean, "log cv2": curves["log_variance"] - 2.0 * log_mean}
    return xr.Dataset(both).transpose("chain", "draw", "score")


def against_nuts(frame: pd.DataFrame, draws: int) -> pd.DataFrame:
    """Compares VI with NUTS on the curves at 20 scores and on the posteriors of 300 items."""
    stats, prior = summarized(frame), soc.GammaMixture()
    method = soc.NUTS(draws=draws, tune=draws, chains=2, seed=1)
    nuts, seconds = common.timed(lambda: fit(stats, prior, method))
    models = fit(stats, prior, soc.VI(draws=4 * draws)), nuts
    score = np.quantile(frame["score"], np.linspace(0.01, 0.99, 20))
    drawn = [_log_cv2(soc.calibration_curves(model, score)) for model in models]
    rhat, ess = agreement.sampling_quality(drawn[1])
    divergences = int(nuts.data["sample_stats"]["diverging"].sum())
    print(f"{seconds:.0f} CPU s, R-hat {rhat:.3f}, ESS {ess:.0f}, {divergences} divergences")
    table = agreement.compared(*drawn)
    some = counts(frame.sample(300, random_state=0))
    ours, reference = (posteriors(model, some) for model in models)
    ratio = ours["theta_sd"] / reference["theta_sd"]
    apart = (ours["theta_mean"] - reference["theta_mean"]).abs() / reference["theta_sd"]
    table.loc["items"] = [ratio.min(), ratio.max(), apart.max()]
    return table


def compared(frame: pd.DataFrame) -> pd.DataFrame:
    stats = summarized(frame)
    both = {k: fit(stats, PRIORS[k]) for k in ("Gamma", "mixture")}
    return soc.compare(both, stats, progress=False)


def held_out(frame: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Log predictive density of a fifth of the items under fits to the others, over the Gamma's."""
    test = np.random.default_rng(seed).random(len(frame)) < 0.2
    stats = summarized(frame[~test])
    columns = {k: v.to_numpy(dtype=float) for k, v in frame[test].items()}
    density = {}
    for label, prior in PRIORS.items():
        density[label] = posterior_of(fit(stats, prior)).log_mean_density(columns)
    gain = pd.DataFrame(density).sub(density["Gamma"], axis=0)
    return pd.DataFrame({"gain": gain.sum(), "se": gain.std() * np.sqrt(len(gain))})


def ranks(number: int, items: int = 5000, seed: int = 0) -> tuple[pd.DataFrame, float]:
    """Ranks of both curves at five scores in fits to data sets from the prior; share converged."""
    prior, rng = soc.GammaMixture(**NARROW), np.random.default_rng(seed)
    first = summarized(soc.simulation.s1(items, seed=seed))
    drawn = soc.prior_predictive(prior, first, draws=number, items=items, seed=seed)
    curves, sizes = drawn["prior"].to_dataset(), drawn["constant_data"].to_dataset()
    grid, truth = curves["score"].to_numpy(), [v.to_numpy()[0] for v in _log_cv2(curves).values()]
    places = np.searchsorted(grid, np.quantile(sizes["score"], [0.02, 0.25, 0.5, 0.75, 0.98]))
    rows, converged = [], []
    for i in range(number):
        columns = {name: sizes[name].to_numpy() for name in ("score", "exposure")}
        columns["count"] = drawn["prior_predictive"]["count"].to_numpy()[0, i].astype(int)
        model = fit(summarized(pd.DataFrame(columns), edges=first.edges), prior, soc.VI(seed=i))
        converged.append(model.status.converged)
        pairs = zip(common.curves(model, grid[places]).items(), truth, strict=True)
        rows.append(
            {
                f"{name} at {j}": sbc.rank(draws[:, j], true[i, place], rng.random())
                for (name, draws), true in pairs
                for j, place in enumerate(places)
            }
        )
    return pd.DataFrame(rows), float(np.mean(converged))


def main() -> None:
    small = {"data": ["homeruns"], "seeds": 1, "fits": 2, "draws": 100, "items": 2000}
    chosen = options(
        __doc__, small, part=PARTS, data=Choice(DATA), seeds=5, fits=100, draws=1000, items=int
    )
    if chosen.part == "sbc":
        found, converged = ranks(chosen.fits, chosen.items or 5000)
        show(sbc.uniformity(found), digits=3)
        print(f"{converged:.0%} converged")
        return
    for name in chosen.data:
        frame = table_of(name).iloc[: chosen.items]
        if chosen.part == "fits":
            show(pd.DataFrame(fits(frame, chosen.seeds)), name)
        elif chosen.part == "nuts":
            show(against_nuts(frame, chosen.draws), name)
        else:
            show({"compare": compared, "terms": held_out}[chosen.part](frame), name)
