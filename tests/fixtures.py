"""Fixtures of all tests and of the examples in docstrings, loaded by `tests.plugin`."""

import contextlib
import functools
import gc
import os
import pickle
import shutil
import sys
from pathlib import Path

import hypothesis
import ibis
import polars as pl
import pytest

import soc_pymc as soc
from tests import clickhouse, postgres
from tests.examples import CASES, CROSSED, Example, part_of
from tests.tables import decoded, source_of

# the dearest examples of `tests.examples.CASES`: their kind is tested by default by another one
SLOW_CASES = ("exposure", "gamma_mixture")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """The slow tests have examples in docstrings, dear fits, and Spark with its virtual machine."""
    for item in items:
        parameters, fixtures = item.name.partition("[")[2], item.fixturenames
        slow = isinstance(item, pytest.DoctestItem) or "spark" in fixtures or "spark" in parameters
        if "example" in fixtures:
            slow |= any(case in parameters for case in SLOW_CASES)
        if slow:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """Modules are no garbage: collections need not look through them again and again."""
    gc.freeze()


# the same examples every time, and no clock: a slow machine is no fault
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, max_examples=20)
hypothesis.settings.load_profile("same")


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    """pyplot keeps every figure until it is closed, and warns at the twenty-first."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="session")
def kept_fit(tmp_path_factory):
    """Returns a fit by its name, made by the first worker that asks and read by the others.

    A pickle takes a tenth of the time of a saved fit, which has tests of its own. It is renamed
    when it is complete, so two workers at once do no harm.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # shared by all workers of this run

    def kept(name, make):
        path = folder / f"{name}.pickle"
        if not path.exists():
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_bytes(pickle.dumps(make()))
            partial.replace(path)
        return pickle.loads(path.read_bytes())

    return kept


@pytest.fixture(scope="session")
def example(kept_fit):
    """Returns an example of `tests.examples.CASES` by name: its frame, items, statistics, fit."""

    @functools.cache
    def of_name(name):
        case = CROSSED if name == "crossed" else CASES[name]
        return Example(case, lambda: kept_fit(f"example_{name}", case.fit))

    return of_name


small_frame = part_of("gamma", "frame")
small_items = part_of("gamma", "items")
small_statistics = part_of("gamma", "statistics")
small_fit = part_of("gamma", "fit")


@pytest.fixture(autouse=True)
def names_of_docstrings(request):
    """Gives examples in docstrings the Gamma example's `items`, `stats`, `fit` and prior.json."""
    if isinstance(request.node, pytest.DoctestItem):
        names = request.node.dtest.globs
        text = "".join(example.source for example in request.node.dtest.examples)
        gamma = request.getfixturevalue("example")("gamma")
        makers = {"items": lambda: gamma.items, "stats": lambda: gamma.statistics}
        for name, make in (makers | {"fit": lambda: gamma.fit}).items():
            if name in text:
                names[name] = make()
        if "prior.json" in text:
            request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))
            soc.export_prior(gamma.fit, "prior.json")


@pytest.fixture(scope="session")
def real_data():
    """Folder of the real data sets; tests that need it skip where it is absent."""
    folder = os.environ.get("SOC_PYMC_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("real data, whose licences forbid to ship it: SOC_PYMC_DATA names its folder")
    return Path(folder)


@pytest.fixture(scope="session")
def spark():
    """A local Spark session; tests that need it skip where PySpark or Java is absent."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        pytest.skip("no Java, in which Spark runs; the other engines are tested")
    session = spark_session()
    yield session
    session.stop()


def spark_session():
    """Returns a local session of Spark, made for small tables."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # its workers would run the python3 of the path, which may be of another version
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.memory", "2g")
        # a short session pays more for the second compiler of Java than it gains
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # tables are small, so that compiling a query would take longer than running it
        .config("spark.default.parallelism", "1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


@pytest.fixture(scope="session")
def postgres_server():
    """Arguments of a connection to a PostgreSQL server; skips where none can be started."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    try:
        with postgres.server() as arguments:
            yield arguments
    except postgres.Absent as error:
        pytest.skip(f"no PostgreSQL server could be started: {error}; other engines are tested")


@pytest.fixture
def put_on(request):
    """Puts an Arrow table on an engine; returns its Ibis table."""
    with contextlib.ExitStack() as stack:

        def put(engine, table):
            if engine in ("duckdb", "remote"):
                return source_of(engine, table)
            if engine == "polars":
                return ibis.polars.connect(tables={"items": pl.from_arrow(table)}).table("items")
            if engine == "datafusion":
                pytest.importorskip("datafusion")
                connection = ibis.datafusion.connect()
                return connection.create_table("items", table)
            table = decoded(table)
            if engine == "spark":
                session = request.getfixturevalue("spark")
                session.createDataFrame(table).createOrReplaceTempView("items")
                stack.callback(session.catalog.dropTempView, "items")
                return ibis.pyspark.connect(session).table("items")
            if engine == "clickhouse":
                pytest.importorskip("chdb")
                connection = ibis.clickhouse.connect(interface="chdb")
                stack.callback(connection.raw_sql, "DROP TABLE items")
                return clickhouse.copied(connection, table)
            connection = ibis.postgres.connect(**request.getfixturevalue("postgres_server"))
            stack.callback(connection.disconnect)
            return postgres.copied(connection, table)

        yield put
