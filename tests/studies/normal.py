"""Section 5.3 of the paper: Normal outcomes of Laplace effects, against the oracle given t.

    python -m tests.studies.normal --items 300000 --out normal.parquet

The paper's mixture of seven Normals had a mean squared error 11% above the oracle's and was 72%
further from theta than its own standard deviations said.

Rows by bin of score go to ``--out``, rows over all items to a file beside it (``_all``); another
run makes what is missing. All items are held in memory.
"""

from functools import partial
from pathlib import Path

import pandas as pd

import soc_pymc as soc
from tests.oracles import laplace_oracle
from tests.studies.common import Choice, options, show, values
from tests.studies.lognormal import SUMMARY, collected, fitted, judged

METHODS = {  # name in tables, prior, items in a bin of five steps
    "five": ("five steps", soc.NormalMixture(), 15_000),  # fewer give variances too small
    "mixture": ("Bayes, mixture", soc.NormalMixture(), None),
    "normal": ("Bayes, Normal", soc.Normal(), None),
}


def simulated(n_items: int, seed: int = 0) -> pd.DataFrame:
    """Items with the truth: E(theta | t) is t, and theta less it a Laplace and a chi2."""
    table = soc.simulation.laplace_effects(n_items, seed)
    mean, variance = laplace_oracle(table)
    return table.assign(
        true_mean=table["score"],
        true_variance=2.0 + 2.0 * 0.01**2,
        oracle_mean=mean,
        oracle_variance=variance,
    )


def run(
    n_items: int, method: str, seed: int = 0, bins: int = 20
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows by bin of score and the row over all items; prints the PIT by slice of `soc.check`."""
    items = values(simulated(n_items, seed))
    name, prior, items_in_bin = METHODS[method]
    model = fitted(items, prior, items_in_bin)
    checked = soc.check(model, items, subset=1000, progress=False).table.set_index("where")
    show(checked.loc[checked["what"] == "PIT", ["value", "p"]], f"PIT, {name}")
    return judged(items, model, name, bins)


def main() -> None:
    """Runs the methods and prints their figures."""
    small = {"items": 20_000, "prior": ["five", "normal"]}
    numbers = {"items": 1_000_000, "bins": 20, "seed": 0}
    chosen = options(__doc__, small, prior=Choice(METHODS), out=Path, **numbers)
    settings = {"seed": chosen.seed, "bins": chosen.bins}
    work = {(METHODS[m][0],): partial(run, chosen.items, m, **settings) for m in chosen.prior}
    show(collected(chosen, work).set_index("method")[[*SUMMARY, "mse_y"]])


if __name__ == "__main__":
    main()
