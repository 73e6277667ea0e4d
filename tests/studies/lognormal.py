"""Section 5.2 of the paper: click rates lognormal around real scores, against the exact oracle.

    SOC_PYMC_DATA=... python -m tests.studies.lognormal --items 1000000 --prior mixture \
        --cells all --seed 0 --out lognormal.csv

Scores and exposures are those of search-ad keywords, repeated; a cell is a bias delta of log t and
a standard deviation sigma of log theta given t. The paper's figure of squared error over estimated
variance shows 5 to 10% too much wherever sigma is large, because a Gamma has no lognormal tail.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.studies.blocks import ratio_with_error

PRIORS = {"mixture": "GammaMixture", "gamma": "Gamma"}
CELLS = {
    f"delta={delta:g},sigma={sigma:g}": (delta, sigma)
    for delta in (-0.5, 0.0, 0.5)
    for sigma in (0.1, 0.25, 0.5, 1.0)
}


def keywords(folder: Path, n_items: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and exposures of the search-ad keywords, repeated to a number of items."""
    columns = ["score", "impressions"]
    table = pd.read_parquet(folder / "adwords_items.parquet", columns=columns)
    return tuple(np.resize(table[c].to_numpy(), n_items) for c in columns)


def one_cell(
    score: np.ndarray, exposure: np.ndarray, cell: str, prior: str, seed: int = 0
) -> dict[str, object]:
    """Simulate, fit and score one cell through files; figures against the oracle."""
    delta, sigma = CELLS[cell]
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "items.parquet"), Path(folder, "scored.parquet")
        soc.simulation.lognormal_rates(score, exposure, delta, sigma, seed).to_parquet(path)
        start = time.perf_counter()
        items = soc.PoissonItems(str(path), score="score", count="count", exposure="exposure")
        stats = soc.summarize(items, joint=True, progress=False)
        fit = soc.fit(stats, getattr(soc, PRIORS[prior])(), progress=False)
        fitted = time.perf_counter()
        soc.item_posteriors(fit, items, draws="representative", out=out, progress=False)
        scored = time.perf_counter()
        table = pd.read_parquet(out)
    return {
        "cell": cell,
        "prior": prior,
        **figures(table, delta, sigma),
        "fit_seconds": fitted - start,
        "score_seconds": scored - fitted,
        "converged": fit.status.converged,
        "pareto_k": fit.status.pareto_k,
    }


def figures(table: pd.DataFrame, delta: float, sigma: float) -> dict[str, float]:
    """Error over variance beside the oracle's, regret and squared errors of scored items.

    ``expected_ratio`` and ``regret_percent`` put the oracle's exact posterior in place of theta:
    E[(theta - m)^2 | t, y] = V + (M - m)^2 with its mean M and variance V, without the luck of the
    simulated theta.
    """
    theta, mean, variance = (
        table[c].to_numpy(dtype=float) for c in ("theta", "theta_mean", "theta_var")
    )
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
    """Run the study, print its table and write it after every cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--prior", choices=PRIORS, default="mixture")
    parser.add_argument("--cells", choices=["all", *CELLS], default="all", metavar="all|NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    score, exposure = keywords(Path(os.environ["SOC_PYMC_DATA"]), chosen.items)
    cells = list(CELLS) if chosen.cells == "all" else [chosen.cells]
    rows = []
    for cell in cells:
        rows.append(one_cell(score, exposure, cell, chosen.prior, chosen.seed))
        print(pd.DataFrame(rows[-1:]).to_string(index=False), flush=True)
        if chosen.out:
            pd.DataFrame(rows).to_csv(chosen.out, index=False)
    print(pd.DataFrame(rows).to_string(index=False, float_format=lambda x: f"{x:.5g}"))


if __name__ == "__main__":
    main()
