"""How far are items scored from an exported prior from those of every draw?

    python -m tests.studies.prior_tables [--items 300]

Each family with each term is fitted to simulated items of the same kind, and exported. Printed are
errors in posterior sd, as 99% point and largest of the items, the file's size, and the error of
`p_zero`.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.posterior.test_auto import TERMS, items_of

COLUMNS = {"mean": "theta_mean", "sd": "theta_sd", "lower": "theta_q05", "upper": "theta_q95"}
SINGLE = [(f, t) for f in ("Gamma", "Normal", "Beta") for t in TERMS]
CASES = [*SINGLE, *((f"{f}Mixture", "plain") for f in ("Gamma", "Normal", "Beta"))]


def errors(family: str, term: str, number: int, seed: int = 0) -> dict[str, Any]:
    """Errors of one fit's table for its first items."""
    items = items_of(family, term)
    stats = soc.summarize(items, bins=40, progress=False)
    prior = getattr(soc, family)(**TERMS[term])
    fit = soc.fit(stats, prior, soc.VI(draws=400, seed=seed), progress=False)
    frame = items.source.head(number)
    exact = soc.item_posteriors(fit, type(items)(frame, **items.roles), draws="all", progress=False)
    found: dict[str, Any] = {"family": family, "term": term}
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = soc.export_prior(fit, Path(folder) / "prior.parquet")
        except soc.SocError as refused:
            return found | {"refused": str(refused)}
        found["kB"] = path.stat().st_size // 1000
        table = soc.prior_table.load(path)
    group = frame["group"].to_numpy() if term == "groups" else None
    scored = soc.prior_table.score(table, *(frame[c].to_numpy(dtype=float) for c in "tyn"), group)
    for name, column in COLUMNS.items():
        error = np.abs(scored[name] - exact[column].to_numpy()) / exact["theta_sd"].to_numpy()
        found |= {name: np.quantile(error, 0.99), f"{name} most": error.max()}
    if "p_zero" in scored:
        found["p_zero most"] = np.abs(scored["p_zero"] - exact["p_zero"]).max()
    return found


def tables(number: int) -> Iterator[dict[str, Any]]:
    """All families and terms, those first that have no mixture."""
    for family, term in CASES:
        yield errors(family, term, number)


def main() -> None:
    """Print the errors as they come, then as one table."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--items", type=int, default=300)
    rows = []
    for row in tables(words.parse_args().items):
        print(row, flush=True)
        rows.append(row)
    print(pd.DataFrame(rows).to_string(float_format="{:.1e}".format))


if __name__ == "__main__":
    main()
