"""Files read by a chosen engine, for the command line: DuckDB, Spark or Polars.

Files pass the same checks before every engine, so that errors are the same. In Python the engine is
that of the user's Ibis table.
"""

import importlib.util
import os
import re
import shutil
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..._lib.errors import ItemsError
from ..._lib.threads import threads
from .item_files import Files, check_files
from .sources import readable

_PACKAGES = {"spark": "pyspark", "polars": "polars"}
_SPARK_TYPES = {  # Arrow's names of types in Parquet files
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "uint64": "decimal(20,0)",
    "float": "float",
    "double": "double",
    "bool": "boolean",
    "string": "string",
    "large_string": "string",
    "date32": "date",
    "timestamp": "timestamp",
}
_CSV_TYPES = {"BIGINT": "int64", "DOUBLE": "float64", "HUGEINT": "decimal(38, 0)"}


@contextmanager
def on_engine(engine: str, source: Any, columns: Sequence[str]) -> Iterator[Any]:
    """Items of files as a source for the engine "duckdb", "spark" or "polars".

    This is the source itself for DuckDB, else an Ibis table. Spark uses the active session, or a
    local one that is stopped at the end.
    """
    if engine == "duckdb":
        yield source
        return
    package = _PACKAGES[engine]
    if importlib.util.find_spec(package) is None:
        raise ItemsError(f"engine {engine!r} needs {package}: pip install soc_pymc[{engine}]")
    files = check_files(source, columns)
    if engine == "polars":
        yield _polars_table(files)
    else:
        with (
            _spark_session() as session,
            readable(),
            _spark_view(session, files) as table,
            warnings.catch_warnings(),
        ):
            # PySpark's warning repeats its error
            warnings.filterwarnings("ignore", "toPandas attempted Arrow optimization")
            yield table


def _delimiter(files: Files) -> str:
    import duckdb

    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT delimiter FROM sniff_csv(?, header=true)", [files.paths[0]]
        ).fetchone()
    return str(found[0]) if found else ","


def _typed(table: Any, files: Files) -> Any:
    """The selected columns of a table read from CSV files as text, with their types."""
    return table.select(
        **{c: table[c].cast(_CSV_TYPES.get(files.types[c], "string")) for c in files.wanted}
    )


# ---------------------------------------------------------------- Polars


def _polars_table(files: Files) -> Any:
    import ibis
    import polars as pl

    if files.form == "Parquet":
        frame = pl.scan_parquet(
            files.paths, glob=False, hive_partitioning=False, extra_columns="ignore"
        )
        return ibis.polars.connect(tables={"items": frame.select(files.wanted)}).table("items")
    frame = pl.scan_csv(files.paths, glob=False, separator=_delimiter(files), infer_schema=False)
    return _typed(ibis.polars.connect(tables={"items": frame}).table("items"), files)


# ---------------------------------------------------------------- Spark


@contextmanager
def _spark_session() -> Iterator[Any]:
    """The active session, or a temporary local one."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    session = _new_session(SparkSession.builder.appName("soc-pymc"))
    try:
        yield session
    finally:
        session.stop()


def _new_session(builder: Any) -> Any:
    # under spark-submit or Spark Connect the user configures the session
    if not {"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"} & os.environ.keys():
        if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
            raise ItemsError("engine 'spark' needs Java 17 or later, on the PATH or in JAVA_HOME")
        settings = {
            "spark.driver.memory": "4g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * threads()),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
        }
        builder = builder.master("local[*]").config(map=settings)
    with readable():
        return builder.getOrCreate()


@contextmanager
def _spark_view(session: Any, files: Files) -> Iterator[Any]:
    """Ibis table of files, a view that is dropped at the end."""
    import ibis

    hidden = [path for path in files.paths if os.path.basename(path).startswith(("_", "."))]
    if hidden:
        raise ItemsError(f"{hidden[0]}: Spark skips files named _* and .*: rename it")
    # Hadoop expands wildcards in names, and does not decode URI escapes
    paths = [
        "file://" + re.sub(r"([][{}*?\\])", r"\\\1", str(Path(p).resolve())) for p in files.paths
    ]
    if files.form == "Parquet":
        frame = _spark_parquet(session, files).parquet(*paths)
    else:
        # read as text and cast later, because Spark and DuckDB infer different types
        frame = session.read.csv(
            paths,
            header=True,
            enforceSchema=False,
            schema=_ddl(dict.fromkeys(files.types, "string")),
            sep=_delimiter(files),
            escape='"',
            mode="FAILFAST",
        )
    name = f"soc_pymc_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        table = ibis.pyspark.connect(session).table(name)
        yield table.select(*files.wanted) if files.form == "Parquet" else _typed(table, files)
    finally:
        session.catalog.dropTempView(name)


def _spark_parquet(session: Any, files: Files) -> Any:
    """Reader with a schema of the selected columns: Spark refuses some types of others."""
    types = {c: _spark_type(files.types[c]) for c in files.wanted}
    known = {c: kind for c, kind in types.items() if kind}
    return session.read.schema(_ddl(known)) if len(known) == len(types) else session.read


def _spark_type(arrow: str) -> str | None:
    decimal = re.fullmatch(r"decimal\d*\((\d+), (\d+)\)", arrow)
    if decimal:
        return f"decimal({decimal[1]},{decimal[2]})"
    values = re.match(r"dictionary<values=(\w+),", arrow)
    name = values[1] if values else arrow.partition("[")[0]
    return _SPARK_TYPES.get(name)


def _ddl(types: dict[str, str]) -> str:
    return ", ".join(f"`{c.replace('`', '``')}` {kind}" for c, kind in types.items())
