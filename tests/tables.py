"""A small table of four items of every kind, and the same table from every kind of source."""

import os
from typing import Any

import duckdb
import ibis
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import soc_pymc as soc

BACKENDS = ("pandas", "polars", "arrow", "stream", "duckdb", "parquet", "csv")
ROLES = {"score": "t", "count": "y", "exposure": "N"}
VALUE_ROLES = {"score": "t", "value": "v", "noise_sd": "s"}
TRIAL_ROLES = {"score": "t", "successes": "y", "trials": "N"}
KINDS = {
    "counts": (soc.PoissonItems, ROLES),
    "values": (soc.NormalItems, VALUE_ROLES),
    "successes": (soc.BinomialItems, TRIAL_ROLES),
}
COLUMNS: dict[str, Any] = {
    "t": [0.1, 0.2, 0.3, 0.4],
    "y": [0, 1, 2, 1],
    "N": [1.0, 2.0, 3.0, 4.0],
    "v": [0.1, -0.3, 0.2, 0.6],
    "s": [0.5, 0.5, 0.25, 1.0],
}


def source_of(backend: str, table: pa.Table, folder: str | os.PathLike[str] = ".") -> Any:
    """Returns an Arrow table as a source of items: a frame, a relation, or a file in a folder."""
    if backend == "pandas":
        return table.to_pandas()
    if backend == "polars":
        return pl.from_arrow(table)
    if backend == "arrow":
        return table
    if backend == "stream":  # any object that gives Arrow's C stream
        return duckdb.connect().from_arrow(table)
    if backend == "duckdb":
        connection = ibis.duckdb.connect()
        connection.con.register("mine", table)
        return connection.table("mine")
    path = os.path.join(folder, f"items.{backend}")
    if backend == "parquet":
        pq.write_table(table, path)
    else:
        pl.from_arrow(table).write_csv(path)
    return path
