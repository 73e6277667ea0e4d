"""CPU time of scoring items, by family: `python -m tests.bench.bench_fit [--only Gamma-exposure]`.

A prior table is made when items first need it, so two numbers tell the cost of scoring: the CPU
seconds that the first pass over the items takes more than a second pass, and the microseconds of an
item in the second pass. Beside them are the microseconds of an item over all draws, from a few.
"""

from typing import Any

import pandas as pd

import soc_pymc as soc
from soc_pymc.posterior.averages import scorer
from soc_pymc.posterior.item_columns import frame_columns, select
from soc_pymc.posterior.predictive import posterior_of
from tests import examples
from tests.studies.common import Choice, fit, options, show, summarize, timed

TERMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "exposure": {"exposure": soc.Spline()},
    "groups": {},
    "bins": {"bin_effects": True},
}
FAMILIES = {
    "Gamma": "gamma",
    "Normal": "normal",
    "Beta": "beta",
    "GammaMixture": "gamma_mixture",
    "NormalMixture": "normal_mixture",
}
CASES = [f"{family}-{term}" for family in FAMILIES for term in TERMS]
_PROBS = (0.05, 0.95)
_SAMPLE = 100  # items for all draws


def items_of(family: str, grouped: bool, n: int, seed: int) -> Any:
    """Items of the family's example, in two groups if they are grouped."""
    case = examples.FAMILIES[FAMILIES.get(family, "beta_mixture")]
    group = {"group": "kind"} if grouped else {}
    return case.kind(case.frame(n, seed), **examples.ROLES[case.kind], **group)


def measure(case: str, n_fitted: int, n: int) -> dict[str, float]:
    family, term = case.split("-")
    grouped = term == "groups"
    stats = summarize(items_of(family, grouped, n_fitted, 0), bins=100, joint=True)
    model = fit(stats, getattr(soc, family)(**TERMS[term]))
    posterior = posterior_of(model)
    columns = frame_columns(model.curves, items_of(family, grouped, n, 1))
    few = select(columns, slice(0, _SAMPLE))
    scorer(posterior, _PROBS, "auto")(few)  # compiles
    score = scorer(posterior_of(model), _PROBS, "auto")
    first, second = (timed(lambda: score(columns))[1] for _ in range(2))
    every = scorer(posterior, _PROBS, "all")
    all_draws = timed(lambda: every(few))[1] / _SAMPLE
    return {
        "cells, CPU s": max(first - second, 0.0),
        "us an item": second / n * 1e6,
        "us an item, all draws": all_draws * 1e6,
    }


def main() -> None:
    small = {"fitted": 2000, "items": 2000, "only": ["Gamma-plain"]}
    sizes = {"fitted": 50_000, "items": 20_000, "only": Choice(CASES)}
    chosen = options(__doc__, small, **sizes)
    rows = {case: measure(case, chosen.fitted, chosen.items) for case in chosen.only}
    show(pd.DataFrame(rows).T, digits=3)


if __name__ == "__main__":
    main()
