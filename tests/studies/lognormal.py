"""Section 5.2 of the paper: click rates lognormal around real scores, against the exact oracle.

    SOC_PYMC_DATA=... python -m tests.studies.lognormal --items 200000 --out lognormal.parquet

Scores and exposures are those of search-ad keywords, repeated; a cell is a bias delta of log t and
a standard deviation sigma of log theta given t. The paper's figure of squared error over estimated
variance shows 5 to 10% too much wherever sigma is large, because a Gamma has no lognormal tail.
Rows by bin of score go to ``--out``, rows over all items to ``lognormal_all.parquet``; another run
makes what is missing.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import soc_pymc as soc
from soc_pymc.families.outcomes import OUTCOMES
from tests.oracles import lognormal_oracle
from tests.studies.accuracy import accuracy, scored
from tests.studies.common import Choice, Rows, counts, fit, options, real_counts, show, summarize

METHODS = {  # name in tables, prior, items in a bin of five steps
    "five": ("five steps", soc.Gamma(), 500),
    "gamma": ("Bayes, Gamma", soc.Gamma(), None),
    "mixture": ("Bayes, mixture", soc.GammaMixture(), None),
    "five-mixture": ("five steps, mixture", soc.GammaMixture(), 2000),
}
"""Wide bins take their range of t for variance of theta; weights of few items are too narrow."""
CELLS = {
    f"delta={delta:g},sigma={sigma:g}": (delta, sigma)
    for delta in (-0.5, 0.0, 0.5)
    for sigma in (0.1, 0.25, 0.5, 1.0)
}
SUMMARY = ["regret", "regret_se", "expected_ratio", "expected_ratio_se", "error_ratio"]
SUMMARY += ["ratio", "mse_t", "mse_mean", "mse_posterior", "converged", "pareto_k", "fit_seconds"]


def simulated(
    keywords: pd.DataFrame, n_items: int, delta: float, sigma: float, seed: int = 0
) -> pd.DataFrame:
    """Items at the keywords' scores and exposures, with the truth."""
    score, exposure = (np.resize(keywords[c].to_numpy(), n_items) for c in ("score", "exposure"))
    table = soc.simulation.lognormal_rates(score, exposure, delta, sigma, seed)
    mean, variance = lognormal_oracle(score, table["count"], exposure, delta, sigma)
    true_mean = score * np.exp(delta + sigma**2 / 2)
    return table.assign(
        true_mean=true_mean,
        true_variance=true_mean**2 * np.expm1(sigma**2),
        oracle_mean=mean,
        oracle_variance=variance,
    )


def fitted(items: Any, prior: Any, items_in_bin: int | None) -> soc.Fit:
    """One method's fit: the five steps in up to 1,000 bins, the others variational."""
    if not items_in_bin:
        return fit(summarize(items, joint=True), prior)
    bins = min(max(20, len(items.source) // items_in_bin), 1000)
    moments = "log" if isinstance(prior, soc.Gamma) else "plain"  # as the paper smoothed
    stats = summarize(items, bins=bins, joint=True)
    return fit(stats, prior, soc.FiveSteps(moments=moments))


def judged(
    items: Any, model: soc.Fit, method: str, bins: int, **cell: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of `accuracy` by bin of score and over all items.

    ``ratio`` is ``error_ratio`` over that of the oracle on the same items.
    """
    frame, table = items.source, scored(model, items)
    by_bin, overall = (
        accuracy(table, number, OUTCOMES[items.kind]).assign(method=method, **cell)
        for number in (bins, 1)
    )
    oracle = ((frame["oracle_mean"] - frame["theta"]) ** 2 / frame["oracle_variance"]).mean()
    status = model.status
    return by_bin, overall.assign(
        ratio=overall["error_ratio"] / oracle,
        converged=status.converged,
        pareto_k=status.pareto_k,
        fit_seconds=status.seconds,
    )


def one_cell(
    keywords: pd.DataFrame, n_items: int, cell: str, method: str, seed: int = 0, bins: int = 20
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Simulates, fits and judges one cell."""
    delta, sigma = CELLS[cell]
    items = counts(simulated(keywords, n_items, delta, sigma, seed))
    name, prior, items_in_bin = METHODS[method]
    model = fitted(items, prior, items_in_bin)
    return judged(items, model, name, bins, delta=delta, sigma=sigma)


def collected(chosen: Any, work: Mapping[tuple[Any, ...], Callable[[], Any]]) -> pd.DataFrame:
    """Returns rows over all items; the work of methods and cells that are missing is done.

    Work is by the method, delta and sigma, or by the method alone.
    """
    run = {"n_items": chosen.items, "seed": chosen.seed}
    everything = chosen.out and chosen.out.with_stem(chosen.out.stem + "_all")
    by_bin, overall = Rows(chosen.out, **run), Rows(everything, **run)
    for labels, make in work.items():
        if not overall.has(**dict(zip(("method", "delta", "sigma"), labels, strict=False))):
            rows = make()
            by_bin.add(rows[0])
            overall.add(rows[1])
    return overall.table


def main() -> None:
    """Runs the grid, saves rows after every cell and method, and prints the table."""
    small = {"items": 20_000, "cells": ["delta=0,sigma=0.5"], "prior": ["five", "gamma"]}
    cells = Choice(["all", *CELLS], ["all"])
    numbers = {"items": 1_000_000, "bins": 20, "seed": 0}
    chosen = options(__doc__, small, prior=Choice(METHODS), cells=cells, out=Path, **numbers)
    settings = real_counts("adwords"), chosen.items
    work = {
        (METHODS[m][0], *CELLS[c]): partial(one_cell, *settings, c, m, chosen.seed, chosen.bins)
        for m in chosen.prior
        for c in (CELLS if "all" in chosen.cells else chosen.cells)
    }
    table = collected(chosen, work)
    show(table.set_index(["delta", "sigma", "method"]).sort_index()[SUMMARY])


if __name__ == "__main__":
    main()
