"""What all studies share: command lines, items, fits, coverage, real data and tables of results."""

import argparse
import os
import resource
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.examples import COUNT_ROLES, TRIAL_ROLES, VALUE_ROLES

counts = partial(soc.PoissonItems, **COUNT_ROLES)
values = partial(soc.NormalItems, **VALUE_ROLES)
trials = partial(soc.BinomialItems, **TRIAL_ROLES)
summarize = partial(soc.summarize, progress=False)
posteriors = partial(soc.item_posteriors, progress=False)


@dataclass(frozen=True)
class Choice:
    """An option with given names: several of them, or exactly one if the default is one name."""

    names: Iterable[str]
    default: list[str] | str | None = None  # None: all names


def options(
    doc: str | None, small: Mapping[str, Any], *, part: Iterable[str] = (), **defaults: Any
) -> argparse.Namespace:
    """Parses a study's command line.

    With ``--small`` the defaults are those of `small`, for a run of a few seconds. The first
    argument is one of the names in `part`, if there are any. A default of an option is a number, a
    text or a path; a tuple of several; a `Choice`; False for a flag; or a type, for no default.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if part:
        parser.add_argument("part", choices=list(part))
    parser.add_argument("--small", action="store_true", help="a run of a few seconds")
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **_option(default))
    if parser.parse_args().small:
        parser.set_defaults(**small)
    return parser.parse_args()


def _option(default: Any) -> dict[str, Any]:
    if default is False:
        return {"action": "store_true"}
    if isinstance(default, type):
        return {"type": default}
    if isinstance(default, Choice):
        names = list(default.names)
        if isinstance(default.default, str):
            return {"choices": names, "default": default.default}
        return {"choices": names, "default": default.default or names, "nargs": "+"}
    if isinstance(default, tuple):
        return {"type": type(default[0]), "nargs": "+", "default": list(default)}
    kind = Path if isinstance(default, Path) else type(default)
    return {"type": kind, "default": default}


def gamma_counts(
    rng: np.random.Generator, score: Any, exposure: Any, mean: Any, cv2: Any
) -> pd.DataFrame:
    """Items with a Gamma theta of this mean and cv2, by item or for all, and their counts."""
    theta = rng.gamma(1.0 / np.broadcast_to(cv2, np.shape(score)), mean * cv2)
    count = rng.poisson(theta * exposure)
    return pd.DataFrame({"score": score, "exposure": exposure, "count": count, "theta": theta})


def fit(stats: soc.Statistics, prior: Any = None, method: Any = None) -> soc.Fit:
    """Fits quietly: studies report convergence in their tables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soc.ConvergenceWarning)
        return soc.fit(stats, prior, method, progress=False)


def fitted(items: Any, prior: Any = None, method: Any = None, **how: Any) -> soc.Fit:
    return fit(summarize(items, **how), prior, method)


def quality(fit: soc.Fit) -> dict[str, Any]:
    """Convergence of a fit, as columns of a table."""
    return {"converged": fit.status.converged, "Pareto k": fit.status.pareto_k}


def curves(fit: soc.Fit, score: Any, **where: Any) -> dict[str, np.ndarray]:
    """Draws of log E(theta | t) and log cv2(theta | t) of counts, each (draws, scores)."""
    drawn = soc.calibration_curves(fit, score, **where)
    mean, variance = (
        drawn[name].transpose("chain", "draw", ...).to_numpy().reshape(-1, len(score))
        for name in ("log_mean", "log_variance")
    )
    return {"log mean": mean, "log cv2": variance - 2 * mean}


def covered(draws: np.ndarray, truth: Any) -> np.ndarray:
    """Whether the 90% interval of draws (first axis) holds the truth."""
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    return (low < truth) & (truth < high)


def items_covered(scored: pd.DataFrame, theta: Any = None) -> pd.Series:
    """Whether an item's 90% interval holds its theta."""
    theta = scored["theta"] if theta is None else theta
    return (scored["theta_q05"] <= theta) & (theta <= scored["theta_q95"])


def against(draws: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """Compares draws with a reference's: ratios of sds, and means apart in the reference's sd."""
    sd = reference.std(axis=0)
    ratio = draws.std(axis=0) / sd
    apart = np.abs(draws.mean(axis=0) - reference.mean(axis=0)) / sd
    return {
        "lowest sd ratio": float(ratio.min()),
        "highest sd ratio": float(ratio.max()),
        "largest difference of means": float(apart.max()),
    }


def timed(work: Callable[[], Any], repeats: int = 1) -> tuple[Any, float]:
    """Returns the last result and the least CPU seconds, with those of ended child processes."""

    def used() -> float:
        usage = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(u.ru_utime + u.ru_stime for u in usage)

    seconds = []
    for _ in range(repeats):
        before = used()
        result = work()
        seconds.append(used() - before)
    return result, min(seconds)


REAL = {
    "adwords": ("clicks", "impressions"),
    "fremtpl2": ("claims", "exposure_years"),
    "homeruns": ("home_runs", "at_bats"),
    "upworthy": ("clicks", "impressions"),
}
"""Columns of counts and exposures of the tables of real counts."""


def data_folder() -> Path:
    folder = os.environ.get("SOC_PYMC_DATA")
    if not folder:
        raise SystemExit("set SOC_PYMC_DATA to the folder of the real data sets")
    return Path(folder)


def real_counts(name: str) -> pd.DataFrame:
    """A real data set with columns score, count and exposure."""
    count, exposure = REAL[name]
    table = pd.read_parquet(data_folder() / f"{name}_items.parquet")
    columns = {"score": "score", count: "count", exposure: "exposure"}
    return table[list(columns)].rename(columns=columns)


def averages(rows: Sequence[Mapping[str, Any]] | pd.DataFrame) -> pd.DataFrame:
    """Averages of columns over data sets (rows), with standard errors and extremes."""
    table = pd.DataFrame(rows).select_dtypes(["number", "bool"]).astype(float)
    found = {"average": table.mean(), "standard error": table.std() / np.sqrt(table.count())}
    return pd.DataFrame(found | {"lowest": table.min(), "highest": table.max()})


def show(table: pd.DataFrame | pd.Series, title: str = "", digits: int = 4) -> None:
    """Prints a table in full, with significant digits."""
    text = table.to_string(float_format=lambda x: f"{x:.{digits}g}")
    print(f"\n{title}\n{text}" if title else text, flush=True)
