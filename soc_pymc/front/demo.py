"""The whole workflow on simulated click rates: fit, check, follow the advice, compare."""

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt

import soc_pymc as soc

from .._lib.files import replacing

ROLES: dict[str, Any] = {"score": "score", "count": "count", "exposure": "exposure"}


def run(folder: Path, items: int, seed: int, progress: bool | None) -> None:
    """Simulate items as in the paper's Section 5.2, fit, check, refit as advised, and score."""
    shown: dict[str, Any] = {"progress": progress}
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / "items.parquet") as temporary:
        soc.simulation.click_rates(items, seed=seed).to_parquet(temporary)
    clicks = soc.PoissonItems(str(folder / "items.parquet"), **ROLES)
    stats = soc.summarize(clicks, joint=True, **shown)
    print(f"{stats}\n\nOne Gamma at each score, the default:")
    gamma = soc.fit(stats, method=soc.VI(seed=seed), **shown)
    before = soc.check(gamma, clicks, subset=500, **shown)
    advised = any(isinstance(x.prior, soc.GammaMixture) for x in before.remedies)
    remedy = "The advice names" if advised else "A remedy is"
    print(f"{before}\n\nThe true rates are lognormal. {remedy} a mixture of Gammas:")
    mixture = soc.fit(stats, soc.GammaMixture(), soc.VI(seed=seed), **shown)
    after = soc.check(mixture, clicks, subset=500, **shown)
    print(f"{after}\n\nDoes it predict better? Leave-one-out, in nats:")
    table = soc.compare({"Gamma": gamma, "mixture": mixture}, stats, **shown)
    print(table[["rank", "elpd", "elpd_diff", "dse", "trust"]].round(1).to_string())
    mixture.save(folder / "fit.nc")
    soc.item_posteriors(mixture, clicks, out=folder / "posteriors.parquet", **shown)
    scored = pd.read_parquet(folder / "posteriors.parquet")
    with replacing(folder / "demo.png") as temporary:
        _picture(mixture, scored).savefig(temporary, format="png", dpi=150)
    alone = soc.PoissonItems(scored[["score"]], score="score")
    _print_gains(soc.item_posteriors(mixture, alone, **shown), scored)
    print(
        f"\n{folder}/ holds "
        + ", ".join(sorted(path.name for path in folder.iterdir()))
    )


def _print_gains(alone: pd.DataFrame, scored: pd.DataFrame) -> None:
    """Say in three lines what a user gains, with and without the outcomes."""
    theta = scored["theta"]

    def error(estimate: pd.Series) -> float:
        return float(((estimate - theta) ** 2).mean() ** 0.5)

    base = error(scored["score"])
    inside = theta.between(scored["theta_q05"], scored["theta_q95"]).mean()
    silent = scored[scored["count"] == 0]["theta_mean"]
    print(
        f"\nWhat you gain:"
        f"\n- E(theta | t, y) has {1 - error(scored['theta_mean']) / base:.0%} less error than the "
        f"score; calibration alone, E(theta | t), has {1 - error(alone['theta_mean']) / base:.0%} "
        "less."
        f"\n- 90% intervals hold the true rate of {inside:.1%} of the items."
        f"\n- {len(silent):,} items without a click have estimates from "
        f"{silent.quantile(0.05):.4f} to {silent.quantile(0.95):.4f}, not 0."
    )


def _picture(fit: soc.Fit, scored: pd.DataFrame) -> Any:
    """Draw both curves, and the shrinkage of items."""
    figure = plt.figure(figsize=(12, 6), layout="constrained")
    axes = figure.subplot_mosaic(
        [["mean", "items"], ["sd", "items"]], height_ratios=(3, 2)
    )
    soc.plots.plot_curves(fit, axes=[axes["mean"], axes["sd"]])
    soc.plots.plot_shrinkage(scored, **ROLES, ax=axes["items"])
    return figure
