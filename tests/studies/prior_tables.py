"""How far are items scored from an exported prior from those of every draw?

    python -m tests.studies.prior_tables [--items 300]

Each family with each term is fitted to simulated items and exported. Errors are in posterior sd, of
the table and of SQL on DuckDB: the 99% point and largest of the items, and the share of items
within 5e-3 sd; null is the share of quantiles that SQL does not give.
"""

import tempfile
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd

import soc_pymc as soc
from tests.bench.scoring import TERMS, items_of
from tests.studies.common import Choice, fitted, options, posteriors, show

COLUMNS = {"mean": "theta_mean", "sd": "theta_sd", "lower": "theta_q05", "upper": "theta_q95"}
PRIORS = {
    f"{family}-{term}": (family, how)
    for family in ("Gamma", "Normal", "Beta")
    for term, how in {**TERMS, "zero": {"zero": True}}.items()
}
PRIORS |= {
    f"{family}Mixture-plain": (f"{family}Mixture", {}) for family in ("Gamma", "Normal", "Beta")
}


def errors(case: str, number: int, n_fitted: int) -> dict[str, Any]:
    """Errors of one fit's table for its first items."""
    family, how = PRIORS[case]
    grouped = case.endswith("groups")
    items = items_of(family, grouped, n_fitted, seed=0)
    model = fitted(items, getattr(soc, family)(**how), soc.VI(draws=400), bins=40)
    frame = items.source.head(number)
    exact = posteriors(model, type(items)(frame, **items.roles), draws="all")
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = soc.export_prior(model, Path(folder) / "prior.parquet")
        except soc.SocError as refused:
            return {"refused": str(refused)}
        row: dict[str, Any] = {"kB": path.stat().st_size // 1000}
        table = soc.prior_table.load(path)
    group = frame["kind"].to_numpy() if grouped else None
    columns = [column for role, column in items.roles.items() if role != "group"]
    scored = soc.prior_table.score(table, *(frame[c].to_numpy(dtype=float) for c in columns), group)
    numbered = ibis.memtable(frame.assign(id=np.arange(len(frame))))
    by_sql = soc.posterior_expression(model, type(items)(numbered, **items.roles)).to_pandas()
    by_sql = by_sql.sort_values("id")
    for name, column in COLUMNS.items():
        sql = {f"sql {name}": by_sql[column].to_numpy()} if column in by_sql else {}
        for label, values in ({name: scored[name]} | sql).items():
            error = np.abs(values - exact[column].to_numpy()) / exact["theta_sd"].to_numpy()
            known = error[np.isfinite(error)]
            row |= {label: np.quantile(known, 0.99), f"{label} most": known.max()}
            row |= {f"{label} near": (error < 5e-3).mean()}
            row |= {f"{label} null": 1.0 - len(known) / len(error)} if label in sql else {}
    if "p_zero" in scored:
        row["p_zero most"] = np.abs(scored["p_zero"] - exact["p_zero"]).max()
    return row


def main() -> None:
    """Prints the errors of each family with each term."""
    small = {"items": 50, "cases": ["Gamma-plain", "Normal-groups"]}
    chosen = options(__doc__, small, items=300, fitted=2000, cases=Choice(PRIORS))
    rows = {case: errors(case, chosen.items, chosen.fitted) for case in chosen.cases}
    show(pd.DataFrame(rows).T, digits=2)


if __name__ == "__main__":
    main()
