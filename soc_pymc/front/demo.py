"""The whole workflow on simulated click rates, from table to posteriors."""

from pathlib import Path
from typing import Any

import pandas as pd

import soc_pymc as soc

from .._lib.files import replacing
from .._lib.progress import phase


def run(folder: Path, items: int = 1_000_000, seed: int = 0) -> pd.DataFrame:
    """Simulate items, fit, score and check them; leave tables and pictures in a folder.

    The simulation is that of the paper's Section 5.2: log theta ~ Normal(log t + 0.1, 0.5^2), so
    that the score t is 10% too low on the log scale and a lognormal truth meets a Gamma prior.

    Returns the root mean squared error of t, E(theta | t) and E(theta | t, y).
    """
    folder.mkdir(parents=True, exist_ok=True)
    names: dict[str, Any] = {"score": "score", "count": "count", "exposure": "exposure"}
    with phase("simulating click rates"), replacing(folder / "items.parquet") as temporary:
        soc.simulation.click_rates(items, seed=seed).to_parquet(temporary)
    clicks = soc.PoissonItems(str(folder / "items.parquet"), **names)
    stats = soc.summarize(clicks)
    print(stats)
    fitted = soc.fit(stats, method=soc.VI(seed=seed))
    print(fitted)
    fitted.save(folder / "fit.nc")
    soc.item_posteriors(fitted, clicks, out=folder / "posteriors.parquet")
    scored = pd.read_parquet(folder / "posteriors.parquet")
    theta = scored["theta"]
    inside = theta.between(scored["theta_q05"], scored["theta_q95"]).mean()
    print(f"90% item intervals cover the true theta of {inside:.1%} of the items")
    alone = soc.item_posteriors(fitted, soc.PoissonItems(scored[["score"]], score="score"))
    estimates = {"t": scored["score"], "E(theta | t)": alone["theta_mean"]}
    estimates["E(theta | t, y)"] = scored["theta_mean"]
    rmse = pd.Series({k: ((x - theta) ** 2).mean() ** 0.5 for k, x in estimates.items()})
    errors = pd.DataFrame({"rmse": rmse, "of t": rmse / rmse["t"]})
    print("\nRoot mean squared error against the known truth, and as a share of that of t:")
    print(errors.to_string(float_format="{:.5f}".format))
    result = soc.check(fitted, clicks)
    print(
        f"\n{result}\n\n(The truth here is lognormal and the prior Gamma: with many items the "
        "check sees the difference,\nas in the paper, though no probability is off by more than "
        "about 0.02.)"
    )
    axes = {"pit": soc.plots.plot_pit(result)[0], "curves": soc.plots.plot_curves(fitted)[0]}
    for name, ax in (axes | {"shrinkage": soc.plots.plot_shrinkage(scored, **names)}).items():
        with replacing(folder / f"{name}.png") as temporary:
            ax.figure.savefig(temporary, format="png", dpi=150, bbox_inches="tight")
    print(f"\n{folder}/ holds " + ", ".join(sorted(p.name for p in folder.iterdir())))
    return errors
