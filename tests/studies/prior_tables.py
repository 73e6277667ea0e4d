"""How far are items scored from an exported prior from those of every draw?

    python -m tests.studies.prior_tables [--items 300]

Each family with each term is fitted to simulated items of the same kind, and exported. Printed are
errors in posterior sd, as 99% point and largest of the items, of the table and of SQL on DuckDB,
and the share of items within 5e-3 sd; the file's size, the error of `p_zero`, and the share of
quantiles that SQL does not give.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd

import soc_pymc as soc
from soc_pymc.data.groups import arguments_of
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
    frame, roles = items.source.head(number), arguments_of(items.roles)
    exact = soc.item_posteriors(fit, type(items)(frame, **roles), draws="all", progress=False)
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
    table = ibis.memtable(frame.assign(id=np.arange(len(frame))))
    by_sql = soc.posterior_expression(fit, type(items)(table, **roles)).to_pandas()
    by_sql = by_sql.sort_values("id")
    for name, column in COLUMNS.items():
        of = {"": scored[name]} | ({"sql ": by_sql[column].to_numpy()} if column in by_sql else {})
        for by, values in of.items():
            error = np.abs(values - exact[column].to_numpy()) / exact["theta_sd"].to_numpy()
            known = error[np.isfinite(error)]
            found |= {f"{by}{name}": np.quantile(known, 0.99), f"{by}{name} most": known.max()}
            found |= {f"{by}{name} near": (error < 5e-3).mean()}
            found |= {f"{by}{name} null": 1.0 - len(known) / len(error)} if by else {}
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
    print(pd.DataFrame(rows).to_string(float_format="{:.0e}".format))


if __name__ == "__main__":
    main()
