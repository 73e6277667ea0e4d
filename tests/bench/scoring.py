"""CPU time of scoring items by family and term.

    python -m tests.bench.scoring [--fitted 50000] [--items 20000] [--only Gamma-exposure ...]

Rules and moments in cells are made when items first need them, so two numbers tell the cost: the
CPU seconds that the first pass over the items takes more than a second pass, which no longer grow
once all cells are in use, and the microseconds of an item in the second pass. Beside them are the
microseconds of an item over all draws, from a few.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

import soc_pymc as soc
from soc_pymc.posterior.item_columns import frame_columns
from soc_pymc.posterior.predictive import posterior_of, select

TERMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "exposure": {"exposure": soc.Spline()},
    "groups": {},
    "bins": {"bin_effects": True},
}
CASES = [
    f"{family}-{term}"
    for family in ("Gamma", "Normal", "Beta", "GammaMixture", "NormalMixture")
    for term in TERMS
]
_PROBS = (0.05, 0.95)
_FEW = 100  # items for all draws


def items_of(family: str, grouped: bool, n: int, seed: int) -> Any:
    """Items whose theta depends on score, size and group."""
    rng = np.random.default_rng(seed)
    x, u = rng.normal(size=n), rng.normal(size=n)
    group = rng.choice(list("abcdefgh"), n)
    own = 0.8 * x + 0.1 * u + 0.2 * (group == "b")
    roles = {"score": "t", **({"group": "group"} if grouped else {})}
    if family.startswith("Gamma"):
        size = np.ceil(np.exp(2.5 + u))
        outcome = rng.poisson(size * 0.05 * np.exp(own) * rng.gamma(3.0, 1.0 / 3.0, n))
        frame = pd.DataFrame({"t": 0.05 * np.exp(x), "y": outcome, "n": size, "group": group})
        return soc.PoissonItems(frame, count="y", exposure="n", **roles)
    if family.startswith("Normal"):
        size = np.exp(0.5 * u - 0.5)
        outcome = own + 0.5 * rng.normal(size=n) + size * rng.normal(size=n)
        frame = pd.DataFrame({"t": x, "y": outcome, "n": size, "group": group})
        return soc.NormalItems(frame, value="y", noise_sd="n", **roles)
    size = np.ceil(np.exp(2.5 + u)).astype(int) + 1
    mean = special.expit(own - 1.0)
    outcome = rng.binomial(size, rng.beta(8.0 * mean, 8.0 * (1.0 - mean)))
    frame = pd.DataFrame({"t": special.expit(x - 1.0), "y": outcome, "n": size, "group": group})
    return soc.BinomialItems(frame, successes="y", trials="n", **roles)


def _seconds(run: Callable[[], Any]) -> float:
    before = time.process_time()
    run()
    return time.process_time() - before


def measure(case: str, fitted: int, n: int) -> str:
    """One line of the table."""
    family, term = case.split("-")
    grouped = term == "groups"
    stats = soc.summarize(
        items_of(family, grouped, fitted, 0), bins=100, joint=True, progress=False
    )
    fit = soc.fit(stats, getattr(soc, family)(**TERMS[term]), progress=False)
    law = posterior_of(fit)
    columns = frame_columns(fit, law, items_of(family, grouped, n, 1))
    few = select(columns, slice(0, _FEW))
    law.scorer(_PROBS, "auto", False)(few)  # compiles
    score = posterior_of(fit).scorer(_PROBS, "auto", False)
    first, second = (_seconds(lambda: score(columns)) for _ in range(2))
    every = law.scorer(_PROBS, "all", False)
    per_draws = _seconds(lambda: every(few)) / _FEW
    return (
        f"| {family} | {term} | {max(first - second, 0.0):.1f} | {second / n * 1e6:.1f} | "
        f"{per_draws * 1e6:,.0f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fitted", type=int, default=50_000, help="items of the fit")
    parser.add_argument("--items", type=int, default=20_000, help="items to score")
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES, metavar="CASE")
    chosen = parser.parse_args()
    print("| family | term | cells, CPU s | us an item | us an item, all draws |")
    print("|---|---|---|---|---|")
    for case in chosen.only:
        print(measure(case, chosen.fitted, chosen.items), flush=True)


if __name__ == "__main__":
    main()
