"""The whole workflow on simulated click rates, from table to posteriors."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import soc_pymc as soc

from .._lib.files import replacing
from .._lib.progress import phase
from ..posterior.curves import curve_draws


def run(folder: Path, items: int = 1_000_000, seed: int = 0) -> pd.DataFrame:
    """Simulate items, fit, score and check them; leave tables and pictures in a folder.

    The simulation is that of the paper's Section 5.2: log theta ~ Normal(log t + 0.1, 0.5^2), so
    that the score t is 10% too low on the log scale and a lognormal truth meets a Gamma prior.

    Returns the root mean squared error against the true theta of t, E(theta | t) and
    E(theta | t, y).
    """
    folder.mkdir(parents=True, exist_ok=True)
    with phase("simulating click rates"):
        frame = soc.simulation.click_rates(items, seed=seed)
        table = folder / "items.parquet"
        with replacing(table) as temporary:
            frame.to_parquet(temporary)
    clicks = soc.PoissonItems(str(table), score="score", count="count", exposure="exposure")
    stats = soc.summarize(clicks)
    print(stats)
    fitted = soc.fit(stats, method=soc.VI(seed=seed))
    print(fitted)
    fitted.save(folder / "fit.nc")
    scored = folder / "posteriors.parquet"
    soc.item_posteriors(fitted, clicks, out=scored)
    errors = _errors(fitted, pd.read_parquet(scored))
    print("\nRoot mean squared error against the known truth, and as a share of that of t:")
    print(errors.to_string(float_format=lambda x: f"{x:.5f}"))
    result = soc.check(fitted, clicks)
    print(f"\n{result}")
    print(
        "\n(The truth here is lognormal and the prior Gamma: with many items the check sees the "
        "difference,\nas in the paper, though no probability is off by more than about 0.02.)"
    )
    _pictures(folder, fitted, result, scored)
    print(f"\n{folder}/ holds " + ", ".join(sorted(p.name for p in folder.iterdir())))
    return errors


def _errors(fitted: soc.Fit, scored: pd.DataFrame) -> pd.DataFrame:
    """Errors of three estimates of theta against the truth."""
    theta = scored["theta"].to_numpy()
    grid = np.geomspace(scored["score"].min(), scored["score"].max(), 2000)
    curve = np.exp(curve_draws(fitted, grid)[0]).mean(axis=0)
    estimates = {
        "t": scored["score"].to_numpy(),
        "E(theta | t)": np.interp(np.log(scored["score"]), np.log(grid), curve),
        "E(theta | t, y)": scored["theta_mean"].to_numpy(),
    }
    rmse = {name: float(np.sqrt(np.mean((e - theta) ** 2))) for name, e in estimates.items()}
    inside = (scored["theta_q05"] < theta) & (theta < scored["theta_q95"])
    print(f"90% item intervals cover the true theta of {inside.mean():.1%} of the items")
    return pd.DataFrame({"rmse": rmse, "of t": {k: v / rmse["t"] for k, v in rmse.items()}})


def _pictures(folder: Path, fitted: soc.Fit, result: Any, scored: Path) -> None:
    """Curves, PIT and shrinkage as files."""
    import matplotlib as mpl

    if "matplotlib.pyplot" not in sys.modules:
        mpl.use("agg")  # no screen is needed to write files
    import matplotlib.pyplot as plt

    with phase("drawing"):
        axes = {
            "curves": soc.plots.plot_curves(fitted)[0],
            "pit": soc.plots.plot_pit(result),
            "shrinkage": soc.plots.plot_shrinkage(
                pd.read_parquet(scored), score="score", count="count", exposure="exposure"
            ),
        }
        for name, ax in axes.items():
            figure = np.ravel(ax)[0].figure
            with replacing(folder / f"{name}.png") as temporary:
                figure.savefig(temporary, format="png", dpi=150, bbox_inches="tight")
            plt.close(figure)
