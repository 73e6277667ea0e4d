"""Does the default agree with NUTS on the same statistics and model?

    python -m tests.studies agreement [--data NAME ...]

Eight data sets, simulated and real, of which the latter are read from the folder that
SOC_PYMC_DATA names; and hard cases, which must end in a right answer or a named failure: where
variational inference says that it converged, its curves must be those of NUTS.
"""

import os
from collections.abc import Callable

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr

import soc_pymc as soc
from tests.studies import common, coverage
from tests.studies.common import counts, fit, options, show, summarize, timed

DATA = {
    "S1 20,000/50": ("S1", 20_000, 50),
    "S1 1e6/200": ("S1", 1_000_000, 200),
    "S1 1e6/1000": ("S1", 1_000_000, 1000),
    "adwords/200": ("adwords", None, 200),
    "adwords/1000": ("adwords", None, 1000),
    "fremtpl2/200": ("fremtpl2", None, 200),
    "fremtpl2/1000": ("fremtpl2", None, 1000),
    "binomial 20,000/200": ("binomial", 20_000, 200),
}
"""Source, items simulated, bins."""
_CURVES, _OTHERS, _FARTHEST = 0.07, 0.15, 0.1  # limits of sd ratios about 1, and of means in sd
_ENOUGH = 5000  # bulk effective sample of NUTS
Rng = np.random.Generator


def _case(rng: Rng, score, exposure, cv2: float = 0.25, mean: float = 0.05) -> pd.DataFrame:
    """Counts whose theta has one mean and one cv2 for all scores; cv2 0 is a constant theta."""
    exposure = np.broadcast_to(exposure, np.shape(score))
    theta = mean if cv2 == 0 else rng.gamma(1 / cv2, mean * cv2, len(score))
    return pd.DataFrame(
        {"score": score, "exposure": exposure, "count": rng.poisson(theta * exposure)}
    )


def _outlier(rng: Rng) -> pd.DataFrame:
    frame = _case(rng, rng.lognormal(-3, 0.5, 3000), 50)
    frame.loc[len(frame) - 1, ["exposure", "count"]] = 10**6
    return frame


CASES: dict[str, Callable[[Rng], pd.DataFrame]] = {
    "all counts zero": lambda rng: _case(rng, rng.lognormal(-3, 0.5, 2000), 20, mean=0.0),
    "theta constant": lambda rng: _case(rng, rng.lognormal(-3, 0.5, 5000), 50, cv2=0.0),
    "two scores": lambda rng: _case(rng, rng.choice([0.03, 0.08], 2000), 50),
    "five items": lambda rng: _case(rng, rng.lognormal(-3, 0.5, 5), 20),
    "bins of one item": lambda rng: _case(rng, rng.lognormal(-3, 0.5, 100), 50),
    "one far item": lambda rng: _case(rng, np.r_[rng.lognormal(-3, 0.2, 3000), 50.0], 50),
    "cv2 of 10": lambda rng: _case(rng, rng.lognormal(-3, 0.5, 5000), 50, cv2=10.0),
    "two far clusters": lambda rng: _case(
        rng, np.exp(rng.choice([-9.0, 2.0], 4000) + 0.1 * rng.normal(size=4000)), 50, cv2=0.0
    ),
    "item with a count of a million": _outlier,
    "scores unrelated to theta": lambda rng: _case(rng, rng.lognormal(-3, 2.0, 4000), 50),
    "exposures of 1e9": lambda rng: _case(rng, rng.lognormal(-3, 0.5, 3000), 10**9),
    "exposures of 0.001": lambda rng: _case(rng, rng.lognormal(-3, 0.5, 3000), 0.001, mean=1.0),
}
"""What makes the items of each hard case from a random generator."""


def statistics(name: str, seed: int = 5) -> soc.Statistics:
    """Statistics of a data set or a case, whose items have a bin each where bins have one item."""
    if name in CASES:
        frame = CASES[name](np.random.default_rng(seed))
        bins = len(frame) if name == "bins of one item" else None
        return summarize(counts(frame), bins=bins, on_leakage="ignore")
    source, items, bins = DATA[name]
    if source == "binomial":
        return summarize(common.trials(coverage.successes(items)), bins=bins)
    frame = soc.simulation.s1(items, seed=0) if items else common.real_counts(source)
    return summarize(counts(frame), bins=bins)


def reference(stats: soc.Statistics, draws: int) -> tuple[soc.Fit, float]:
    """NUTS with a bulk effective sample of 5,000, and its CPU seconds."""
    for number in (draws, 2 * draws, 4 * draws):
        method = soc.NUTS(draws=number, chains=2, seed=1)
        nuts, seconds = timed(lambda method=method: fit(stats, method=method))
        if draws < 1000 or sampling_quality(_variables(nuts))[1] >= _ENOUGH:
            break
    return nuts, seconds


def _variables(fitted: soc.Fit) -> xr.Dataset:
    """Draws of both curves at their knots and of their smoothing scales, if they may bend."""
    names = fitted.prior.curve_names
    draws = fitted.data["posterior"].to_dataset()
    scales = [f"{name}_wiggle_sd" for name in names]
    return draws[[*names, *(scale for scale in scales if scale in draws)]]


def sampling_quality(posterior: xr.Dataset) -> tuple[float, float]:
    """Largest R-hat and smallest bulk effective sample of all variables."""
    rhat, ess = az.rhat(posterior), az.ess(posterior, method="bulk")
    largest = max(float(v.max()) for v in rhat.data_vars.values())
    return largest, min(float(v.min()) for v in ess.data_vars.values())


def compared(draws: xr.Dataset, truth: xr.Dataset) -> pd.DataFrame:
    """Lowest and highest sd ratio and largest difference of means in sd, by variable."""
    rows = {}
    for name in draws.data_vars:
        arrays = (x[name].to_numpy() for x in (draws, truth))
        rows[name] = common.against(*(x.reshape(x.shape[0] * x.shape[1], -1) for x in arrays))
    return pd.DataFrame(rows).T


def agreement(default: soc.Fit, nuts: soc.Fit, stats: soc.Statistics) -> pd.DataFrame:
    share = soc.quantities.r_squared
    draws = (_variables(f).assign({"R-squared": share(f, stats)}) for f in (default, nuts))
    table = compared(*draws)
    half = np.where(table.index.isin(nuts.prior.curve_names), _CURVES, _OTHERS)
    table["within limits"] = (
        (table["lowest sd ratio"] >= 1 - half)
        & (table["highest sd ratio"] <= 1 + half)
        & (table["largest difference of means"] <= _FARTHEST)
    )
    return table


def main() -> None:
    small = {"data": ["S1 20,000/50", "five items"], "draws": 200, "vi_draws": 1000}
    data = common.Choice([*DATA, *CASES])
    chosen = options(__doc__, small, data=data, draws=3000, vi_draws=8000)
    quality, within = {}, []
    for name in chosen.data:
        if name in DATA and DATA[name][1] is None and "SOC_PYMC_DATA" not in os.environ:
            print(f"{name}: skipped, SOC_PYMC_DATA is not set")
            continue
        stats = statistics(name)
        nuts, nuts_seconds = reference(stats, chosen.draws)
        default = fit(stats, method=soc.VI(draws=chosen.vi_draws))
        _, seconds = timed(lambda stats=stats: fit(stats, method=soc.VI()))
        table = agreement(default, nuts, stats)
        show(table, f"{name}: soc.VI against soc.NUTS", digits=3)
        status, (rhat, ess) = default.status, sampling_quality(_variables(nuts))
        quality[name] = {"NUTS R-hat": rhat, "NUTS bulk ESS": ess, **common.quality(default)}
        quality[name] |= {"NUTS converged": nuts.status.converged, "NUTS CPU s": nuts_seconds}
        quality[name] |= {"effective sample": status.ess_fraction, "VI CPU s": seconds}
        within += [*table["within limits"], status.pareto_k < 0.7, status.ess_fraction > 0.5]
    show(pd.DataFrame(quality).T, "Quality and cost", digits=3)
    print(f"\n{len(within) - sum(within)} of {len(within)} quantities are outside the limits")
