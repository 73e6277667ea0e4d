"""The same table on DuckDB, Polars, Spark and PostgreSQL, on the user's connection."""

import contextlib

import ibis
import polars as pl
import pyarrow as pa
import pytest

ENGINES = ("duckdb", "polars", "postgres", "spark")
POSTGRES_TYPES = {
    pa.int32(): "integer", pa.int64(): "bigint", pa.float32(): "real", pa.string(): "text",
    pa.float64(): "double precision", pa.bool_(): "boolean", pa.date32(): "date",
}  # fmt: skip


@pytest.fixture
def put_on(request):
    """Puts an Arrow table on an engine; returns its Ibis table."""
    with contextlib.ExitStack() as stack:

        def put(engine, table):
            if engine == "duckdb":
                connection = ibis.duckdb.connect()
                connection.con.register("items", table)
                return connection.table("items")
            if engine == "polars":
                return ibis.polars.connect(tables={"items": pl.from_arrow(table)}).table("items")
            if engine == "spark":
                session = request.getfixturevalue("spark")
                session.createDataFrame(table).createOrReplaceTempView("items")
                stack.callback(session.catalog.dropTempView, "items")
                return ibis.pyspark.connect(session).table("items")
            connection = ibis.postgres.connect(**request.getfixturevalue("postgres_server"))
            stack.callback(connection.disconnect)
            return on_postgres(connection, table)

        yield put


def on_postgres(connection, table):
    """Copies an Arrow table into a temporary table of a PostgreSQL server."""
    columns = ", ".join(
        f'"{field.name}" '
        + POSTGRES_TYPES.get(field.type, str(field.type).replace("decimal128", "numeric"))
        for field in table.schema
    )
    names = ", ".join(f'"{name}"' for name in table.column_names)
    with connection.con.cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE items ({columns})")
        with cursor.copy(f"COPY items ({names}) FROM STDIN") as copy:
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                copy.write_row(row)
    return connection.table("items")
