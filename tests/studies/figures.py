"""Every figure of the paper, from simulated items, for both methods.

    python -m tests.studies.figures --items 50000 --out figures
    python -m tests.studies.figures --items 50000 --out figures --overview docs/dev/figures.png
    python -m tests.studies.figures --accuracy lognormal.parquet --out figures

Counts are those of simulation S1, values those of Section 5.3. Pictures of accuracy are drawn from
a table of tests.studies.lognormal or tests.studies.normal.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np

import soc_pymc as soc
from soc_pymc import evaluate, plots, quantities
from tests.studies.common import counts, fit, options, read_table, summarize, values

Picture = tuple[str, Any]


def fit_both(stats: soc.Statistics) -> dict[str, soc.Fit]:
    """Fits by both methods, by name."""
    return {"Bayes": fit(stats), "five steps": fit(stats, method=soc.FiveSteps())}


def of_fits(kind: str, items: Any, bins: int) -> Iterator[Picture]:
    """Pictures of the two fits, and what checks say of them."""
    stats = summarize(items, bins=bins)
    fits = fit_both(stats)
    yield f"{kind}_bin_spread", plots.plot_bin_spread(stats)
    for method, model in fits.items():
        name = f"{kind}_{method.replace(' ', '_')}"
        yield f"{name}_illustration", plots.plot_calibration_illustration(model)
        yield f"{name}_smoothing", plots.plot_smoothing(model, per_bin=fits["five steps"])
        yield f"{name}_adjusted_prior", plots.plot_adjusted_prior(model)
        yield f"{name}_prior_in_bin", plots.plot_prior_in_bin(model, items)
    for least in (0, 50) if kind == "counts" else (0,):
        found = {
            method: evaluate.pit_histograms(model, items, least_size=least, progress=False)
            for method, model in fits.items()
        }
        yield f"{kind}_marginal_pit_{least}", plots.plot_pit_histograms(found)
    weight = "exposure" if kind == "counts" else "items"
    left = {
        method: quantities.variance_reduction(model, items, weight=weight, progress=False)
        for method, model in fits.items()
    }
    yield f"{kind}_variance_gain", plots.plot_variance_gain(left)


def of_split(kind: str, items: Any, bins: int) -> Iterator[Picture]:
    """Pictures of what is held out."""
    split = evaluate.split_items(items)
    fits = fit_both(summarize(split.train, bins=bins))
    held = evaluate.held_out(fits, split, progress=False)
    yield f"{kind}_gain_by_bin", plots.plot_gain_by_bin(held)
    yield f"{kind}_predictive_pit", plots.plot_pit_histograms(held.data["pit"])


def of_accuracy(path: Path) -> Iterator[Picture]:
    """Pictures of a table of accuracy."""
    table = read_table(path)
    for quantity in ("mean", "variance", "mean_error", "variance_error"):
        yield f"{path.stem}_{quantity}", plots.plot_accuracy(table, quantity)
    yield f"{path.stem}_regret", plots.plot_regret(table)
    yield f"{path.stem}_error_ratio", plots.plot_error_ratio(table)


def overview(items: Any, bins: int, path: Path) -> None:
    """Six pictures in one."""
    stats = summarize(items, bins=bins)
    fits = fit_both(stats)
    figure, axes = plt.subplots(3, 2, figsize=(12, 13), layout="constrained")
    plots.plot_calibration_illustration(fits["Bayes"], axes=axes[0])
    plots.plot_adjusted_prior(fits["five steps"], ax=axes[1, 0])
    plots.plot_prior_in_bin(fits["Bayes"], items, ax=axes[1, 1])
    found = evaluate.pit_histograms(fits["Bayes"], items, progress=False)
    plots.plot_pit_histograms(found, ax=axes[2, 0])
    left = {m: quantities.variance_reduction(f, items, progress=False) for m, f in fits.items()}
    plots.plot_variance_gain(left, ax=axes[2, 1])
    save(figure, path, dpi=60)


def save(figure: Any, path: Path, dpi: int = 90) -> None:
    """Write a figure and forget it."""
    figure.savefig(path, dpi=dpi, pil_kwargs={"optimize": True})
    plt.close(figure)


def main() -> None:
    """Draws all pictures."""
    small = {"items": 2000, "bins": 20}
    chosen = options(
        __doc__, small, items=50_000, bins=100, accuracy=Path, out=Path("figures"), overview=Path
    )
    items = {"counts": counts(soc.simulation.s1(chosen.items, seed=0))}
    if chosen.overview:
        overview(items["counts"], chosen.bins, chosen.overview)
        return
    chosen.out.mkdir(parents=True, exist_ok=True)
    items["values"] = values(soc.simulation.laplace_effects(chosen.items, seed=0))
    pictures = [
        draw(kind, items[kind], chosen.bins) for kind in items for draw in (of_fits, of_split)
    ]
    if chosen.accuracy:
        pictures.append(of_accuracy(chosen.accuracy))
    for name, axes in chain.from_iterable(pictures):
        save(np.ravel(axes)[0].figure, chosen.out / f"{name}.png")
        print(name, flush=True)


if __name__ == "__main__":
    main()
