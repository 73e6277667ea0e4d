"""Parquet files read by Spark or Polars, for the command line.

In Python the engine is that of the user's Ibis table.
"""

import importlib.util
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..._lib.errors import ItemsError
from ..._lib.threads import threads
from .item_files import Files, check_files
from .sources import readable

_PACKAGES = {"spark": "pyspark", "polars": "polars"}


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
    if files.form != "Parquet":
        raise ItemsError(f"engine {engine!r} reads Parquet files: write these as *.parquet")
    import ibis

    if engine == "polars":
        import polars as pl

        frame = pl.scan_parquet(files.paths, glob=False, hive_partitioning=False)
        yield ibis.polars.connect(tables={"items": frame.select(files.wanted)}).table("items")
        return
    with _spark_session() as session, readable(), _spark_view(session, files) as table:
        yield table


@contextmanager
def _spark_view(session: Any, files: Files) -> Iterator[Any]:
    """Ibis table of files, a view that is dropped at the end."""
    import ibis

    hidden = [path for path in files.paths if os.path.basename(path).startswith(("_", "."))]
    if hidden:
        raise ItemsError(f"{hidden[0]}: Spark skips files named _* and .*: rename it")
    # Hadoop expands wildcards in names
    paths = ["file://" + re.sub(r"([][{}*?\\])", r"\\\1", os.path.abspath(p)) for p in files.paths]
    frame = session.read.parquet(*paths)
    columns = [frame["`" + name.replace("`", "``") + "`"] for name in files.wanted]
    view = f"soc_pymc_{uuid.uuid4().hex}"
    frame.select(columns).createOrReplaceTempView(view)
    try:
        yield ibis.pyspark.connect(session).table(view)
    finally:
        session.catalog.dropTempView(view)


@contextmanager
def _spark_session() -> Iterator[Any]:
    """The active session, or a temporary local one."""
    from pyspark.sql import SparkSession

    if (active := SparkSession.getActiveSession()) is not None:
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
