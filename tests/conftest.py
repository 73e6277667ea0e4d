"""Shared items, statistics and fits: small, seeded, made once a session."""

import os
import shutil
from pathlib import Path

import pytest

import soc_pymc as soc

from . import postgres


@pytest.fixture(scope="session")
def small_frame():
    return soc.simulation.s1(4000, seed=3)


@pytest.fixture(scope="session")
def small_items(small_frame):
    return soc.PoissonItems(small_frame, score="score", count="count", exposure="exposure")


@pytest.fixture(scope="session")
def small_statistics(small_items):
    return soc.summarize(small_items, bins=20, progress=False)


@pytest.fixture(scope="session")
def small_fit(small_statistics):
    return soc.fit(small_statistics, method=soc.VI(seed=1), progress=False)


@pytest.fixture(scope="session")
def real_data():
    """Folder of the real data sets; tests that need it skip where it is absent."""
    folder = os.environ.get("SOC_PYMC_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("real data: set SOC_PYMC_DATA to the folder that holds it")
    return Path(folder)


@pytest.fixture(scope="session")
def spark():
    """A local Spark session; tests that need it skip where PySpark or Java is absent."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        pytest.skip("Spark needs Java")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres_server():
    """Arguments of a connection to a PostgreSQL server; skips where none can be started."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    try:
        with postgres.server() as arguments:
            yield arguments
    except postgres.Absent as error:
        pytest.skip(str(error))
