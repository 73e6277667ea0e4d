"""Every figure of the paper, from simulated items, for both methods.

    python -m tests.studies.figures --items 50000 --out figures
    python -m tests.studies.figures --items 50000 --out figures --overview docs/dev/figures.png
    python -m tests.studies.figures --accuracy lognormal.parquet --out figures

Counts are those of simulation S1, values those of Section 5.3. Pictures of accuracy are drawn from
the tables of tests.studies.lognormal and tests.studies.normal, where they are given.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np

import soc_pymc as soc
from soc_pymc import evaluate, plots, quantities
from tests.studies.grid import read

Picture = tuple[str, Any]
Fits = dict[str, soc.Fit]


def fit_both(stats: soc.Statistics) -> Fits:
    """Fits by both methods, by name."""
    return {
        "Bayes": soc.fit(stats, progress=False),
        "five steps": soc.fit(stats, method=soc.FiveSteps(), progress=False),
    }


def of_fits(kind: str, items: Any, bins: int) -> Iterator[Picture]:
    """Pictures of the two fits, and what checks say of them."""
    stats = soc.summarize(items, bins=bins, progress=False)
    fits = fit_both(stats)
    yield f"{kind}_bin_spread", plots.plot_bin_spread(stats)
    for method, fit in fits.items():
        name = f"{kind}_{method.replace(' ', '_')}"
        yield f"{name}_illustration", plots.plot_calibration_illustration(fit)
        yield f"{name}_smoothing", plots.plot_smoothing(fit, per_bin=fits["five steps"])
        yield f"{name}_adjusted_prior", plots.plot_adjusted_prior(fit)
        yield f"{name}_prior_in_bin", plots.plot_prior_in_bin(fit, items)
    for least in (0, 50) if kind == "counts" else (0,):
        found = {
            method: evaluate.pit_histograms(fit, items, least_size=least, progress=False)
            for method, fit in fits.items()
        }
        yield f"{kind}_marginal_pit_{least}", plots.plot_pit_histograms(found)
    weight = "exposure" if kind == "counts" else "items"
    left = {
        method: quantities.variance_reduction(fit, items, weight=weight, progress=False)
        for method, fit in fits.items()
    }
    yield f"{kind}_variance_gain", plots.plot_variance_gain(left)


def of_split(kind: str, items: Any, bins: int) -> Iterator[Picture]:
    """Pictures of what is held out."""
    split = evaluate.split_items(items)
    fits = fit_both(soc.summarize(split.train, bins=bins, progress=False))
    held = evaluate.held_out(fits, split, progress=False)
    yield f"{kind}_gain_by_bin", plots.plot_gain_by_bin(held)
    yield f"{kind}_predictive_pit", plots.plot_pit_histograms(held.data["pit"])


def of_accuracy(path: Path) -> Iterator[Picture]:
    """Pictures of a table of accuracy."""
    table = read(path)
    for quantity in ("mean", "variance", "mean_error", "variance_error"):
        yield f"{path.stem}_{quantity}", plots.plot_accuracy(table, quantity)
    yield f"{path.stem}_regret", plots.plot_regret(table)
    yield f"{path.stem}_error_ratio", plots.plot_error_ratio(table)


def overview(items: Any, bins: int, path: Path) -> None:
    """Six pictures in one."""
    stats = soc.summarize(items, bins=bins, progress=False)
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


def calibration_of_labels(path: Path) -> None:
    """The picture of the page on trials and labels."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 4000)
    labels = rng.random(4000) < 0.1 + 0.7 * p**1.5
    save(plots.plot_calibration(labels, p, name="scores").figure_, path)


def save(figure: Any, path: Path, dpi: int = 90) -> None:
    """Write a figure and forget it."""
    figure.savefig(path, dpi=dpi, pil_kwargs={"optimize": True})
    plt.close(figure)


def main() -> None:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--bins", type=int, default=100)
    parser.add_argument("--accuracy", type=Path, nargs="*", default=[], help="tables of accuracy")
    parser.add_argument("--out", type=Path, default=Path("figures"))
    parser.add_argument("--overview", type=Path, help="draw six pictures in one here, and no more")
    parser.add_argument("--labels", type=Path, help="draw the calibration of labels here alone")
    chosen = parser.parse_args()
    if chosen.labels:
        calibration_of_labels(chosen.labels)
        return
    chosen.out.mkdir(parents=True, exist_ok=True)
    frame = soc.simulation.s1(chosen.items, seed=0)
    counts = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    if chosen.overview:
        overview(counts, chosen.bins, chosen.overview)
        return
    frame = soc.simulation.laplace_effects(chosen.items, seed=0)
    values = soc.NormalItems(frame, score="score", value="value", noise_sd="noise_sd")
    for kind, items in {"counts": counts, "values": values}.items():
        for draw in (of_fits, of_split):
            for name, axes in draw(kind, items, chosen.bins):
                save(np.ravel(axes)[0].figure, chosen.out / f"{name}.png")
                print(name, flush=True)
    for path in chosen.accuracy:
        for name, axes in of_accuracy(path):
            save(np.ravel(axes)[0].figure, chosen.out / f"{name}.png")
            print(name, flush=True)


if __name__ == "__main__":
    main()
