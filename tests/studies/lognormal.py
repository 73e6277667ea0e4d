"""Section 5.2 of the paper: click rates lognormal around real scores, against the exact oracle.

    SOC_PYMC_DATA=... python -m tests.studies.lognormal --items 200000 --out lognormal.parquet

Scores and exposures are those of search-ad keywords, repeated; a cell is a bias delta of log t and
a standard deviation sigma of log theta given t. The paper's figure of squared error over estimated
variance shows 5 to 10% too much wherever sigma is large, because a Gamma has no lognormal tail.

Rows by bin of score, those of `soc.evaluate.accuracy`, go to ``--out``, rows over all items to a
second file (``lognormal_all.parquet``); another run makes what is missing.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import soc_pymc as soc
from soc_pymc.evaluate.by_bin import accuracy_by_bin, given_score
from soc_pymc.families.outcomes import OUTCOMES
from tests.studies import grid
from tests.studies.blocks import ratio_with_error

PRIORS = {
    "five": "Gamma",
    "gamma": "Gamma",
    "mixture": "GammaMixture",
    "five-mixture": "GammaMixture",
}
NAMES = {
    "five": "five steps",
    "gamma": "Bayes, Gamma",
    "mixture": "Bayes, mixture",
    "five-mixture": "five steps, mixture",
}
CELLS = {
    f"delta={delta:g},sigma={sigma:g}": (delta, sigma)
    for delta in (-0.5, 0.0, 0.5)
    for sigma in (0.1, 0.25, 0.5, 1.0)
}
# Items in a bin of five steps: wide bins take their range of t for variance of theta, and a hundred
# weights of few items give posteriors that are too narrow.
_FIVE_STEPS_ITEMS = {"five": 500, "five-mixture": 2000}


def keywords(folder: Path, n_items: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and exposures of the search-ad keywords, repeated to a number of items."""
    columns = ["score", "impressions"]
    table = pd.read_parquet(folder / "adwords_items.parquet", columns=columns)
    return tuple(np.resize(table[c].to_numpy(), n_items) for c in columns)


def fit_items(items: soc.PoissonItems, prior: str, n_items: int) -> soc.Fit:
    """One method's fit: the five steps in up to 1,000 bins, the others variational."""
    made = getattr(soc, PRIORS[prior])()
    if prior.startswith("five"):
        bins = min(max(20, n_items // _FIVE_STEPS_ITEMS[prior]), 1000)
        stats = soc.summarize(items, bins=bins, joint=True, progress=False)
        moments = "log" if isinstance(made, soc.Gamma) else None  # as the paper smoothed
        return soc.fit(stats, made, soc.FiveSteps(moments=moments), progress=False)
    return soc.fit(soc.summarize(items, joint=True, progress=False), made, progress=False)


def run_cell(
    score: np.ndarray, exposure: np.ndarray, cell: str, prior: str, seed: int = 0
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Simulate, fit and score one cell through files; items with truth, and what the fit was."""
    delta, sigma = CELLS[cell]
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "items.parquet"), Path(folder, "scored.parquet")
        soc.simulation.lognormal_rates(score, exposure, delta, sigma, seed).to_parquet(path)
        start = time.perf_counter()
        items = soc.PoissonItems(str(path), score="score", count="count", exposure="exposure")
        fit = fit_items(items, prior, len(score))
        fitted = time.perf_counter()
        draws = "all" if prior.startswith("five") else "auto"
        soc.item_posteriors(fit, items, draws=draws, quantiles=(), out=out, progress=False)
        scored = time.perf_counter()
        table = pd.read_parquet(out)
    columns = {c: table[c].to_numpy() for c in ("score", "count", "exposure")}
    best, spread = soc.simulation.lognormal_oracle(*columns.values(), delta, sigma)
    mean, variance = given_score(fit, columns)
    true_mean = table["score"] * np.exp(delta + sigma**2 / 2)
    table = table.assign(
        mean=mean,
        variance=variance,
        true_mean=true_mean,
        true_variance=true_mean**2 * np.expm1(sigma**2),
        oracle_mean=best,
        oracle_variance=spread,
    )
    status = {
        "fit_seconds": fitted - start,
        "score_seconds": scored - fitted,
        "converged": fit.status.converged,
        "pareto_k": fit.status.pareto_k,
    }
    return table, status


def tables(
    items: pd.DataFrame, prior: str, cell: str, status: dict[str, object], bins: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows by bin of score, and the row over all items."""
    delta, sigma = CELLS[cell]
    labels = {"method": NAMES[prior], "delta": delta, "sigma": sigma}
    by_bin, whole = (
        grid.label(accuracy_by_bin(items, b, OUTCOMES["poisson"]), **labels) for b in (bins, 1)
    )
    more = figures(items, delta, sigma)
    return by_bin, whole.assign(**{k: v for k, v in more.items() if k not in whole}, **status)


def one_cell(
    score: np.ndarray, exposure: np.ndarray, cell: str, prior: str, seed: int = 0
) -> dict[str, object]:
    """Figures of one cell with standard errors that allow for repeated items."""
    table, status = run_cell(score, exposure, cell, prior, seed)
    return {"cell": cell, "prior": prior, **figures(table, *CELLS[cell]), **status}


def figures(table: pd.DataFrame, delta: float, sigma: float) -> dict[str, float]:
    """Error over variance beside the oracle's, regret and squared errors of scored items.

    ``expected_ratio`` and ``regret_percent`` put the oracle's exact posterior in place of theta:
    E[(theta - m)^2 | t, y] = V + (M - m)^2 with its mean M and variance V, without the luck of the
    simulated theta.
    """
    theta, mean, variance = (
        table[c].to_numpy(dtype=float) for c in ("theta", "theta_mean", "theta_var")
    )
    if "oracle_mean" in table:
        best, spread = (table[c].to_numpy() for c in ("oracle_mean", "oracle_variance"))
    else:
        columns = (table[c].to_numpy() for c in ("score", "count", "exposure"))
        best, spread = soc.simulation.lognormal_oracle(*columns, delta, sigma)
    error, best_error = (mean - theta) ** 2, (best - theta) ** 2
    expected = spread + (mean - best) ** 2
    ratio, ratio_se = ratio_with_error(
        {"ours": error / variance, "oracle": best_error / spread},
        lambda ours, oracle: ours / oracle,
    )
    exact, exact_se = ratio_with_error({"ours": expected / variance}, lambda ours: ours)
    regret, regret_se = ratio_with_error(
        {"ours": expected, "oracle": spread}, lambda ours, oracle: 100 * (ours / oracle - 1)
    )
    return {
        "ratio": ratio,
        "ratio_se": ratio_se,
        "expected_ratio": exact,
        "expected_ratio_se": exact_se,
        "regret_percent": regret,
        "regret_se": regret_se,
        "mse_score": float(np.mean((table["score"] - theta) ** 2)),
        "mse_ours": float(error.mean()),
        "mse_oracle": float(best_error.mean()),
    }


def main() -> None:
    """Run the grid, print its table, write rows after every cell and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--prior", choices=PRIORS, nargs="+", default=list(PRIORS))
    parser.add_argument("--cells", choices=["all", *CELLS], default="all", metavar="all|NAME")
    parser.add_argument("--bins", type=int, default=20, help="bins of score of the table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    score, exposure = keywords(Path(os.environ["SOC_PYMC_DATA"]), chosen.items)
    results = grid.Results(chosen.out, {"n_items": chosen.items, "seed": chosen.seed})
    rows = []
    for prior in chosen.prior:
        for cell in list(CELLS) if chosen.cells == "all" else [chosen.cells]:
            delta, sigma = CELLS[cell]
            if results.done(method=NAMES[prior], delta=delta, sigma=sigma):
                continue
            table, status = run_cell(score, exposure, cell, prior, chosen.seed)
            found = tables(table, prior, cell, status, chosen.bins)
            results.add(*found)
            rows.append(found[1])
    whole = grid.read(results.whole) if results.whole else pd.concat(rows)
    print(grid.brief(whole.sort_values(["delta", "sigma", "method"])))


if __name__ == "__main__":
    main()
