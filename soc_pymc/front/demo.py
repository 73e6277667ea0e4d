"""The whole workflow on simulated click rates: fit, check, follow the advice, compare."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

import soc_pymc as soc

from .._lib.files import replacing
from ..plots import style

ROLES: dict[str, Any] = {"score": "score", "count": "count", "exposure": "exposure"}


def run(folder: Path, items: int = 200_000, seed: int = 0) -> pd.DataFrame:
    """Simulate items, fit, check, refit as the check advises, score; leave files in a folder.

    The simulation is that of the paper's Section 5.2: log theta ~ Normal(log t + 0.1, 0.5^2), so
    that the score t is 10% too low on the log scale and a lognormal truth meets a Gamma prior.

    Returns the root mean squared error of t, E(theta | t) and E(theta | t, y).
    """
    folder.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}
    with _timed(seconds, "simulate"), replacing(folder / "items.parquet") as temporary:
        soc.simulation.click_rates(items, seed=seed).to_parquet(temporary)
    clicks = soc.PoissonItems(str(folder / "items.parquet"), **ROLES)
    with _timed(seconds, "summarize"):
        stats = soc.summarize(clicks, joint=True)
    print(f"{stats}\n\nOne Gamma at each score, the default:")
    with _timed(seconds, "fit a Gamma"):
        gamma = soc.fit(stats, method=soc.VI(seed=seed))
    with _timed(seconds, "check it"):
        before = soc.check(gamma, clicks, subset=500)
    advised = any("GammaMixture" in line for line in before.advice)
    failed = "fail" in set(before.table["verdict"])
    summary = "No remedy stands out" if failed else "Nothing fails on so few items"
    reason = "The advice names" if advised else f"{summary}: try"
    print(f"{before}\n\nThe true rates are lognormal. {reason} a mixture of Gammas:")
    with _timed(seconds, "fit a mixture"):
        mixture = soc.fit(stats, soc.GammaMixture(), soc.VI(seed=seed))
    with _timed(seconds, "check it again"):
        after = soc.check(mixture, clicks, subset=500)
    print(f"{after}\n\nDoes it predict better? Leave-one-out, in nats:")
    with _timed(seconds, "compare"):
        table = soc.compare({"Gamma": gamma, "mixture": mixture}, stats)
    print(table[["rank", "elpd", "elpd_diff", "dse", "trust"]].round(1).to_string())
    mixture.save(folder / "fit.nc")
    with _timed(seconds, "score all items"):
        soc.item_posteriors(mixture, clicks, out=folder / "posteriors.parquet")
    scored = pd.read_parquet(folder / "posteriors.parquet")
    errors = _errors(mixture, scored)
    with replacing(folder / "demo.png") as temporary:
        _picture(mixture, scored).savefig(temporary, format="png", dpi=150)
    _print_gains(scored, errors)
    print("\nSeconds: " + ", ".join(f"{step} {value:.1f}" for step, value in seconds.items()))
    print(f"{folder}/ holds " + ", ".join(sorted(path.name for path in folder.iterdir())))
    return errors


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    """Record the elapsed seconds of a step."""
    begin = time.monotonic()
    yield
    seconds[step] = time.monotonic() - begin


def _errors(fit: soc.Fit, scored: pd.DataFrame) -> pd.DataFrame:
    """Return root mean squared errors against the truth, and as shares of that of the score."""
    alone = soc.item_posteriors(fit, soc.PoissonItems(scored[["score"]], score="score"))
    estimates = {
        "t": scored["score"],
        "E(theta | t)": alone["theta_mean"],
        "E(theta | t, y)": scored["theta_mean"],
    }
    error = {
        name: ((value - scored["theta"]) ** 2).mean() ** 0.5 for name, value in estimates.items()
    }
    rmse = pd.Series(error)
    return pd.DataFrame({"rmse": rmse, "of t": rmse / rmse["t"]})


def _print_gains(scored: pd.DataFrame, errors: pd.DataFrame) -> None:
    """Say in three lines what a user gains."""
    inside = scored["theta"].between(scored["theta_q05"], scored["theta_q95"]).mean()
    silent = scored[scored["count"] == 0]
    share = errors["of t"]
    print(
        f"\nWhat you gain:"
        f"\n- E(theta | t, y) has {1 - share['E(theta | t, y)']:.0%} less error than the score; "
        f"calibration alone, E(theta | t), has {1 - share['E(theta | t)']:.0%} less."
        f"\n- 90% intervals hold the true rate of {inside:.1%} of the items."
        f"\n- {len(silent):,} items without a click have estimates from "
        f"{silent['theta_mean'].quantile(0.05):.4f} to {silent['theta_mean'].quantile(0.95):.4f}, "
        "not 0."
    )


def _picture(fit: soc.Fit, scored: pd.DataFrame) -> Any:
    """Draw the curve over own rates, and the shrinkage of some items."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    rate = scored["count"] / scored["exposure"]
    part = scored[rate > 0].sample(min(600, int((rate > 0).sum())), random_state=0)
    low, high = scored["score"].quantile([0.002, 0.998])
    grid = np.geomspace(low, high, 100)
    lower, middle, upper = soc.bands(soc.calibration_curves(fit, grid))["mean"].to_numpy()
    left.scatter(
        part["score"], rate[part.index], s=6, color=style.OBSERVED, label="items' own rates"
    )
    left.fill_between(grid, lower, upper, color=style.CURVE, alpha=0.35, lw=0, label="90% band")
    left.plot(grid, middle, color=style.CURVE, label="E(theta | score)")
    left.plot(grid, grid, "--", color=style.REFERENCE, lw=1, label="theta = score")
    left.set(title="The score is too low: the curve runs above the dashed line")
    left.set(xlabel="score: predicted click rate", ylabel="click rate")
    points = right.scatter(
        rate[part.index], part["theta_mean"], s=10, c=np.log10(part["exposure"]), cmap="viridis"
    )
    right.axline((low, low), (high, high), ls="--", color=style.REFERENCE, lw=1)
    right.set(title="Few impressions: far from the item's own rate. Many: close to it")
    right.set(xlabel="own rate: clicks / impressions", ylabel="estimate E(theta | score, clicks)")
    bar = figure.colorbar(points, ax=right, label="impressions")
    powers = np.arange(int(np.log10(part["exposure"].max())) + 1)
    bar.set_ticks(powers, labels=[f"{10**power:,}" for power in powers])
    for ax in (left, right):
        _log_axes(ax, low / 2, high * 2)
    left.legend(**style.FRAMELESS, loc="upper left")
    return figure


def _log_axes(ax: Axes, low: float, high: float) -> None:
    """Set logarithmic axes with plain numbers."""
    style.tidy(ax)
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    ax.title.set_fontsize(10)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:g}")
