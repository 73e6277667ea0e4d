"""Is the default as right as NUTS, and what do stock methods make of the same model?

    python -m tests.studies.agreement [--data NAME ...] [--cache DIR] [--methods [NAME ...]]
        [--iterations 30000]

Part 1 holds `soc.VI` to `soc.NUTS` on simulated and real data. Part 2 fits stock approximations to
the same model in plain coordinates, on two of the data sets, and linear-response DADVI on all;
`--methods` without names leaves it out. Real data are read from the folder that SOC_PYMC_DATA
names. `--cache` keeps the samples of NUTS, which know nothing of changes in the model: empty the
folder when it changes.
"""

import argparse
import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr

import soc_pymc as soc
from soc_pymc.families.family import family_of
from soc_pymc.model import problem
from soc_pymc.posterior.curves import curve_draws
from tests.studies import binomial, plain, sbc

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

_SIMULATED = {
    "S1": (soc.simulation.s1, sbc.SETTINGS["poisson"].items),
    "binomial": (binomial.simulated, binomial.ITEMS["binomial"]),
}
_REAL = {"adwords": ("clicks", "impressions"), "fremtpl2": ("claims", "exposure_years")}
_COMPARED = ("S1 20,000/50", "fremtpl2/200")
_EVERYWHERE = ("dadvi", "dadvi-centred")  # on all data sets

METHODS: dict[str, Callable[[problem.Problem, int], plain.Approximation]] = {
    "advi": lambda b, steps: plain.advi(plain.plain_model(b), False, steps),
    "advi-centred": lambda b, steps: plain.advi(plain.plain_model(b, True), False, steps),
    "full-rank": lambda b, steps: plain.advi(plain.plain_model(b), True, steps),
    "full-rank-centred": lambda b, steps: plain.advi(plain.plain_model(b, True), True, steps),
    "dadvi": lambda b, steps: plain.dadvi(plain.plain_model(b)),
    "dadvi-centred": lambda b, steps: plain.dadvi(plain.plain_model(b, True)),
    "dadvi-centred-300": lambda b, steps: plain.dadvi(plain.plain_model(b, True), draws=300),
    "laplace": lambda b, steps: plain.laplace(plain.plain_model(b)),
    "pathfinder": lambda b, steps: plain.pathfinder(plain.plain_model(b)),
}
"""Stock methods; the mode of the centred statement is at a scale of 0, so that Laplace has none."""


@dataclass(frozen=True)
class Case:
    """A data set with its reference, the default with many draws, and the default's CPU seconds."""

    stats: soc.Statistics
    nuts: soc.Fit
    default: soc.Fit
    seconds: float


def statistics(name: str) -> soc.Statistics | None:
    """Statistics of a data set; None where its folder is not known."""
    source, items, bins = DATA[name]
    if items is not None:
        simulate, as_items = _SIMULATED[source]
        chosen = as_items(simulate(items, seed=0))
    else:
        folder = os.environ.get("SOC_PYMC_DATA")
        if not folder:
            return None
        path, (count, exposure) = Path(folder) / f"{source}_items.parquet", _REAL[source]
        chosen = soc.PoissonItems(path, score="score", count=count, exposure=exposure)
    return soc.summarize(chosen, bins=bins, progress=False)


def quiet_fit(stats: soc.Statistics, method: soc.VI | soc.NUTS) -> soc.Fit:
    """A fit whose status is reported in the tables instead of a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ConvergenceWarning)
        return soc.fit(stats, method=method, progress=False)


def reference(name: str, stats: soc.Statistics, cache: Path | None) -> soc.Fit:
    """NUTS with a bulk effective sample of 5,000, from the cache if it is there.

    CPU seconds, and those of a first call with next to no draws, are in the tree's attributes.
    """
    path = cache / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}-nuts.nc" if cache else None
    if path and path.exists():
        return soc.load_fit(path)
    _, start_up = plain.spent(lambda: quiet_fit(stats, soc.NUTS(draws=10, tune=10, chains=2)))
    for draws in (3000, 6000, 12_000):
        method = soc.NUTS(draws=draws, chains=2, seed=1)
        fit, seconds = plain.spent(lambda method=method: quiet_fit(stats, method))
        if sampling_quality(fit)[1] >= 5000:
            break
    fit.data.attrs.update(cpu_seconds=seconds, start_up_seconds=start_up)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        fit.save(path)
    return fit


def fitted(name: str, stats: soc.Statistics, cache: Path | None) -> Case:
    """Both fits of a data set; the seconds are with the default's own number of draws."""
    nuts, default = reference(name, stats, cache), quiet_fit(stats, soc.VI(draws=8000))
    _, seconds = plain.spent(lambda: quiet_fit(stats, soc.VI()))
    return Case(stats, nuts, default, seconds)


def _scales(fit: soc.Fit) -> list[str]:
    return [f"{name}_wiggle_sd" for name in fit.prior.curve_names]


def _variables(fit: soc.Fit) -> xr.Dataset:
    """Draws of both curves at their knots and of their scales."""
    return fit.data["posterior"].to_dataset()[[*fit.prior.curve_names, *_scales(fit)]]


def sampling_quality(fit: soc.Fit) -> tuple[float, float]:
    """Largest R-hat and smallest bulk effective sample over both curves and scales."""
    posterior = _variables(fit)
    rhat, ess = az.rhat(posterior), az.ess(posterior, method="bulk")
    largest = max(float(v.max()) for v in rhat.data_vars.values())
    return largest, min(float(v.min()) for v in ess.data_vars.values())


def _r_squared(fit: soc.Fit) -> np.ndarray:
    """Share of the variance of theta that the score explains, by draw, bins weighted by items."""
    bins = fit.data["constant_data"]
    first, second = curve_draws(fit, bins["score"].to_numpy())
    mean, variance = family_of(fit.prior).natural_moments(first, np.exp(second))
    weight = bins["n_items"].to_numpy() / bins["n_items"].to_numpy().sum()
    explained = (mean - (mean @ weight)[:, None]) ** 2 @ weight
    return explained / (explained + variance @ weight)


def compared(draws: xr.Dataset, truth: xr.Dataset) -> pd.DataFrame:
    """Lowest and highest sd ratio and largest difference of means in sd, by variable."""
    rows = {}
    for name in draws.data_vars:
        found, right = (x[name].to_numpy() for x in (draws, truth))
        found, right = (x.reshape(x.shape[0] * x.shape[1], -1) for x in (found, right))
        ratio = found.std(axis=0) / right.std(axis=0)
        shift = np.abs(found.mean(axis=0) - right.mean(axis=0)) / right.std(axis=0)
        rows[name] = {
            "lowest sd ratio": ratio.min(),
            "highest sd ratio": ratio.max(),
            "largest difference of means": shift.max(),
        }
    return pd.DataFrame(rows).T


def _quantities(fit: soc.Fit) -> xr.Dataset:
    posterior = _variables(fit)
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    return posterior.assign({"R-squared": (("chain", "draw"), _r_squared(fit).reshape(shape))})


def agreement(case: Case) -> pd.DataFrame:
    """The default against NUTS, quantity by quantity, and whether it is within the limits."""
    table = compared(_quantities(case.default), _quantities(case.nuts))
    half = np.where(table.index.isin(case.nuts.prior.curve_names), 0.07, 0.15)
    table["within limits"] = (
        (table["lowest sd ratio"] >= 1 - half)
        & (table["highest sd ratio"] <= 1 + half)
        & (table["largest difference of means"] <= 0.1)
    )
    return table


def costs(case: Case) -> dict[str, float | bool]:
    """Quality of both fits and their CPU seconds."""
    rhat, ess = sampling_quality(case.nuts)
    status = case.default.status
    return {
        "NUTS R-hat": rhat,
        "NUTS bulk ESS": ess,
        "Pareto k": status.pareto_k,
        "effective sample": status.ess_fraction,
        "VI CPU s": case.seconds,
        "NUTS CPU s": case.nuts.data.attrs["cpu_seconds"],
        "within limits": bool(status.pareto_k < 0.7 and status.ess_fraction > 0.5),
    }


def _row(posterior: xr.Dataset, nuts: soc.Fit) -> dict[str, float]:
    truth = _variables(nuts)
    table = compared(posterior[list(truth.data_vars)], truth)
    curves = table.loc[list(nuts.prior.curve_names)]
    mean_scale, cv2_scale = _scales(nuts)
    return {
        "largest bias": curves["largest difference of means"].max(),
        "lowest sd ratio": curves["lowest sd ratio"].min(),
        "highest sd ratio": curves["highest sd ratio"].max(),
        "sd ratio, mean scale": table.loc[mean_scale, "lowest sd ratio"],
        "sd ratio, cv2 scale": table.loc[cv2_scale, "lowest sd ratio"],
    }


def stock_row(
    method: str, iterations: int, built: problem.Problem, nuts: soc.Fit
) -> tuple[dict[str, float], str]:
    """One stock method against NUTS, and a note; an empty row where it fails."""
    try:
        found = METHODS[method](built, iterations)
    except ImportError:
        return {}, "pymc-extras is not installed"
    except (ValueError, FloatingPointError) as error:
        return {}, f"failed: {error}"
    k, ess = plain.importance(found.log_weight)
    cost = {"CPU s": found.seconds, "first call CPU s": found.start_up}
    return {
        **_row(found.posterior, nuts),
        "Pareto k": k,
        "effective sample": ess,
        **cost,
    }, found.note


def comparison(
    case: Case, methods: list[str], iterations: int
) -> tuple[pd.DataFrame, dict[str, str]]:
    """All methods against NUTS on one data set, and notes."""
    built = problem.build(case.stats, case.nuts.prior)
    gap = max(
        plain.density_gap(built, plain.plain_model(built, centred), centred)
        for centred in (False, True)
    )
    rows, notes = {}, {"plain statement": f"log density equals the model's to {gap:.1g}"}
    for method in methods:
        rows[method], notes[method] = stock_row(method, iterations, built, case.nuts)
    status, attrs = case.default.status, case.nuts.data.attrs
    rows["soc.VI"] = {
        **_row(case.default.data["posterior"].to_dataset(), case.nuts),
        "Pareto k": status.pareto_k,
        "effective sample": status.ess_fraction,
        "CPU s": case.seconds,
    }
    rows["soc.NUTS"] = {
        **_row(case.nuts.data["posterior"].to_dataset(), case.nuts),
        "CPU s": attrs["cpu_seconds"],
        "first call CPU s": attrs["start_up_seconds"],
    }
    return pd.DataFrame(rows).T, notes


def _show(title: str, table: pd.DataFrame) -> None:
    print(f"\n{title}\n{table.to_string(float_format=lambda x: f'{x:.3g}')}", flush=True)


def main() -> None:
    """Run the study and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--iterations", type=int, default=30_000, help="of stock ADVI")
    chosen = parser.parse_args()
    within, quality = {}, {}
    for name in chosen.data:
        stats = statistics(name)
        if stats is None:
            print(f"{name}: skipped, SOC_PYMC_DATA is not set")
            continue
        case = fitted(name, stats, chosen.cache)
        within[name], quality[name] = agreement(case), costs(case)
        _show(f"{name}: soc.VI against soc.NUTS", within[name])
        methods = [m for m in chosen.methods if name in _COMPARED or m in _EVERYWHERE]
        if methods:
            table, notes = comparison(case, methods, chosen.iterations)
            _show(f"{name}: methods against soc.NUTS", table)
            print("\n".join(f"{method}: {note}" for method, note in notes.items()))
    if quality:
        _show("Quality and cost", pd.DataFrame(quality).T)
        tables = [*within.values(), pd.DataFrame(quality).T]
        missed = sum(int((~t["within limits"].astype(bool)).sum()) for t in tables)
        print(f"\n{missed} rows outside the limits" if missed else "\nall within the limits")


if __name__ == "__main__":
    main()
