"""Seconds of the text of `soc.posterior_sql` by items and engine, and slopes of time by items.

A slope of 1 is time in proportion to the items. Each time is the least of three, or of fewer beyond
twenty seconds.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import duckdb
import ibis
import numpy as np
import pandas as pd
import pyarrow as pa

import soc_pymc as soc
from tests import postgres
from tests.fixtures import spark_session
from tests.studies.common import Choice, counts, fit, options, show, summarize

_QUERY = "WITH scored AS ({}) SELECT sum(theta_mean), sum(theta_q95) FROM scored"
Run = Callable[[str], Any]


def on_duckdb(stack: contextlib.ExitStack, table: pa.Table) -> Run:
    """Runs queries on DuckDB."""
    connection = stack.enter_context(duckdb.connect())
    connection.register("items", table)
    return lambda text: connection.execute(text).fetchall()


def on_postgres(stack: contextlib.ExitStack, table: pa.Table) -> Run:
    """Runs queries on PostgreSQL with default settings."""
    connection = ibis.postgres.connect(**stack.enter_context(postgres.server()))
    stack.callback(connection.disconnect)
    postgres.copied(connection, table)
    connection.raw_sql("ANALYZE items").close()
    return lambda text: connection.raw_sql(text).fetchall()


def on_spark(stack: contextlib.ExitStack, table: pa.Table) -> Run:
    """Runs queries on Spark in this process."""
    session = spark_session()
    stack.callback(session.stop)
    session.conf.set("spark.sql.analyzer.maxIterations", "300")
    session.createDataFrame(table).createOrReplaceTempView("items")
    return lambda text: session.sql(text).collect()


ENGINES = {"duckdb": on_duckdb, "postgres": on_postgres, "spark": on_spark}


def seconds(engine: str, text: str, table: pa.Table) -> float:
    """Least seconds of three runs."""
    times: list[float] = []
    with contextlib.ExitStack() as stack:
        run = ENGINES[engine](stack, table)
        while len(times) < 3 and sum(times) < 20:
            start = time.perf_counter()
            run(_QUERY.format(text))
            times.append(time.perf_counter() - start)
    print(f"{engine}, {len(table):,} items: {min(times):.3g} s", flush=True)
    return min(times)


def main() -> None:
    """Times all engines."""
    few = {"items": [100, 200], "engines": ["duckdb"]}
    chosen = options(__doc__, few, items=(100, 1000, 10_000), engines=Choice(ENGINES))
    frame = soc.simulation.s1(max(chosen.items) + 5000, seed=0)
    model = fit(summarize(counts(frame.head(5000)), bins=50))
    columns = ["score", "count", "exposure"]
    rows: dict[int, dict[str, float]] = {items: {} for items in chosen.items}
    for engine in chosen.engines:
        text = soc.posterior_sql(model, "items", dialect=engine)
        for items in chosen.items:
            part = frame.tail(items)[columns]
            table = pa.Table.from_pandas(part, preserve_index=False)
            rows[items][engine] = seconds(engine, text, table)
    table = pd.DataFrame(rows).T
    slopes = np.log(table).diff().div(np.diff(np.log(table.index), prepend=np.nan), axis=0)
    show(table, "Seconds by items")
    show(slopes, "Slopes of time from the items before")


if __name__ == "__main__":
    main()
