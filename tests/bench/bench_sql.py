"""Seconds of the text of `soc.posterior_sql` by items, family and engine; slopes of time by items.

A slope of 1 is time in proportion to the items. Each time is the least of three, or of fewer beyond
twenty seconds.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import ibis
import numpy as np
import pandas as pd
import pyarrow as pa

import soc_pymc as soc
from tests import postgres
from tests.examples import CASES, FAMILIES
from tests.fixtures import spark_session
from tests.studies.common import Choice, counts, fit, options, show, summarize

_QUERY = "SELECT sum(theta_mean), sum(theta_q95) FROM ({}) AS scored"
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
    """Runs queries on Spark in this process, which compiles them as it does by default."""
    session = spark_session()
    stack.callback(session.stop)
    session.conf.set("spark.sql.codegen.wholeStage", "true")
    session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    session.conf.set("spark.sql.analyzer.maxIterations", "300")
    session.createDataFrame(table).createOrReplaceTempView("items")
    return lambda text: session.sql(text).collect()


ENGINES = {"duckdb": on_duckdb, "postgres": on_postgres, "spark": on_spark}


def seconds(engine: str, fit: soc.Fit, frame: pd.DataFrame, what: str) -> float:
    """Least seconds of three runs over the items in a frame."""
    times: list[float] = []
    text = soc.posterior_sql(fit, "items", dialect=engine)
    with contextlib.ExitStack() as stack:
        run = ENGINES[engine](stack, pa.Table.from_pandas(frame, preserve_index=False))
        while len(times) < 3 and sum(times) < 20:
            start = time.perf_counter()
            run(_QUERY.format(text))
            times.append(time.perf_counter() - start)
    print(f"{engine}, {what}, {len(frame):,} items: {min(times):.3g} s", flush=True)
    return min(times)


def by_items(engines: Sequence[str], sizes: Sequence[int]) -> None:
    """Times counts by their number."""
    frame = soc.simulation.s1(max(sizes) + 5000, seed=0)
    model = fit(summarize(counts(frame.head(5000)), bins=50))
    frame = frame[["score", "count", "exposure"]]
    columns = {
        engine: {n: seconds(engine, model, frame.tail(n), "gamma") for n in sizes}
        for engine in engines
    }
    table = pd.DataFrame(columns)
    slopes = np.log(table).diff().div(np.diff(np.log(table.index), prepend=np.nan), axis=0)
    show(table, "Seconds by items")
    show(slopes, "Slopes of time from the items before")


def by_family(engines: Sequence[str], names: Sequence[str], number: int) -> None:
    """Times the families of `tests.examples`, and further terms."""
    columns: dict[str, dict[str, float]] = {engine: {} for engine in engines}
    for name in names:
        case = CASES[name]
        make = getattr(case.frame, "func", case.frame)  # some are partial functions
        frame = make(number, 77)
        frame = frame[list(case.items(frame).roles.values())]
        model = case.fit()
        for engine in engines:
            columns[engine][name] = seconds(engine, model, frame, name)
    show(pd.DataFrame(columns), f"Seconds of {number:,} items")


def main() -> None:
    """Times all engines."""
    few = {"items": [100, 200], "engines": ["duckdb"], "families": ["normal"], "number": 100}
    chosen = options(
        __doc__,
        few,
        items=(100, 1000, 10_000),
        engines=Choice(ENGINES),
        families=Choice([*FAMILIES, "groups", "zeros"]),
        number=3000,
    )
    by_items(chosen.engines, chosen.items)
    by_family(chosen.engines, chosen.families, chosen.number)


if __name__ == "__main__":
    main()
