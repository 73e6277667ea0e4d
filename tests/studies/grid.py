"""What the simulation studies share: methods side by side, tables that grow cell by cell."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

SUMMARY = [
    "method",
    "delta",
    "sigma",
    "mean_error",
    "variance_error",
    "regret",
    "regret_se",
    "expected_ratio",
    "expected_ratio_se",
    "error_ratio",
    "error_ratio_se",
    "ratio",
    "ratio_se",
    "mse_t",
    "mse_true_mean",
    "mse_mean",
    "mse_posterior",
    "mse_posterior_se",
    "converged",
    "pareto_k",
    "fit_seconds",
]


def read(path: Path) -> pd.DataFrame:
    """A table in Parquet or CSV; empty if there is none."""
    if not path.exists():
        return pd.DataFrame()
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


def write(table: pd.DataFrame, path: Path) -> None:
    """The same, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    table.to_parquet(part) if path.suffix == ".parquet" else table.to_csv(part, index=False)
    part.replace(path)


@dataclass(frozen=True)
class Results:
    """Rows by bin at `out`, and rows over all bins beside it (``_all``); both grow cell by cell.

    Rows know the `run` they are of (number of items, seed): those of another are refused.
    """

    out: Path | None
    run: dict[str, Any]

    @property
    def whole(self) -> Path | None:
        """Where rows over all bins are."""
        return self.out and self.out.with_stem(self.out.stem + "_all")

    def done(self, **labels: Any) -> bool:
        """Whether this cell's rows are there already."""
        table = read(self.whole) if self.whole else pd.DataFrame()
        if table.empty:
            return False
        for name, value in self.run.items():
            other = table[name][table[name] != value]
            if len(other):
                raise SystemExit(
                    f"{self.whole} holds {len(other)} rows of {name}={other.iloc[0]}, not {value}: "
                    "give another --out"
                )
        own = pd.Series(True, index=table.index)
        for name, value in labels.items():
            own &= table[name].isna() if value != value else table[name] == value
        return bool(own.any())

    def add(self, by_bin: pd.DataFrame, whole: pd.DataFrame) -> None:
        """Write a cell's rows and print those over all bins."""
        print(brief(whole), flush=True)
        if self.out and self.whole:
            for path, rows in ((self.out, by_bin), (self.whole, whole)):
                rows = rows.assign(**self.run)
                write(pd.concat([read(path), rows], ignore_index=True), path)


def brief(table: pd.DataFrame) -> str:
    """The columns that matter, as text."""
    shown = [c for c in [*SUMMARY, "mse_y"] if c in table and table[c].notna().any()]
    return table[shown].to_string(index=False, float_format=lambda x: f"{x:.4g}")


def label(table: pd.DataFrame, **labels: Any) -> pd.DataFrame:
    """The same labels before every row."""
    return pd.concat([pd.DataFrame(labels, index=table.index), table], axis=1)
