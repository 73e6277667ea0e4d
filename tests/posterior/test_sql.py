"""Item posteriors as an Ibis expression and as SQL text, with hostile names, on several engines."""

import os
import subprocess
import sys
from itertools import product

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

import soc_pymc as soc
from soc_pymc.posterior import export
from tests import postgres
from tests.examples import COUNT_ROLES, FAMILIES, thinned
from tests.posterior.references import MOMENTS, thinned_fit

LIMITS = ["theta_q05", "theta_q95"]
NEW = [*MOMENTS, "theta_var", *LIMITS, "flagged"]
DIALECTS = ["duckdb", "postgres", "pyspark", "databricks", "bigquery", "snowflake", "trino"]
LABELS = ['o\'brien "hi"', "back\\slash", "--; drop table items é %s {x}", "NULL"]
HOSTILE = {
    "score": "a 'score'",
    "count": 'the "count"; --',
    "exposure": "é x, %s",
    "group": "select",
}
ROLES = {role: HOSTILE[role] for role in ("score", "count", "exposure")}


@pytest.fixture(scope="module")
def frame():
    """Items with hostile labels of groups in columns with hostile names."""
    table = soc.simulation.s1(12_000, seed=11)[["score", "count", "exposure"]]
    table["group"] = np.resize(LABELS, len(table))
    return table.rename(columns=HOSTILE).assign(id=np.arange(len(table)))


@pytest.fixture(scope="module")
def fit(frame):
    """A draw of a fit with the hostile groups, so that its table is short."""
    items = soc.PoissonItems(frame, **HOSTILE)
    statistics = soc.summarize(items, bins=10, progress=False)
    few = soc.Spline(knots=4)
    prior = soc.Gamma(mean=few, variance=few)
    return thinned_fit(soc.fit(statistics, prior, soc.VI(draws=200), progress=False), 1)


@pytest.fixture(scope="module")
def rows(frame):
    """A few rows to score."""
    return frame.head(200)


@pytest.fixture(scope="module")
def exact(fit, rows):
    """The rows scored by `item_posteriors`."""
    return soc.item_posteriors(fit, soc.PoissonItems(rows, **HOSTILE), progress=False)


def in_engine(engine, rows):
    """Returns a connection and its table of rows."""
    connection = getattr(ibis, engine).connect()
    if engine == "polars":
        return connection, connection.create_table("items", rows)
    connection.con.register("items", rows)  # Ibis cannot create a table with some names
    return connection, connection.table("items")


def rows_of(connection, text):
    """Returns the rows of a query on an engine."""
    if connection.name == "clickhouse":
        return connection.con.query_df(text)
    if connection.name == "datafusion":
        return connection.con.sql(text).to_pandas()
    with connection.con.cursor() as cursor:
        cursor.execute(text)
        names = [column.name for column in cursor.description]
        return pd.DataFrame(cursor.fetchall(), columns=names)


def assert_close(found, exact, columns=(*MOMENTS, *LIMITS), most_flagged=0.05, moments=1e-12):
    """Checks rows that are not flagged, in any order, to the digits that all forms share.

    Moments are sums in any order of the same numbers: 1e-12. The last step of Halley's method to a
    quantile leaves at most 1e-6.
    """
    found = found.sort_values("id", ignore_index=True)
    assert list(found["id"]) == list(exact["id"])
    flagged = found["flagged"].astype(bool).to_numpy()
    assert flagged.mean() < most_flagged
    for column in columns:
        unit = np.maximum(exact[column].abs(), exact["theta_sd"]).to_numpy()
        apart = np.abs(found[column].to_numpy(dtype=float) - exact[column].to_numpy()) / unit
        assert apart[~flagged].max() < (moments if column in MOMENTS else 1e-6), column


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_expression_with_hostile_names_and_labels(fit, rows, exact, engine):
    connection, table = in_engine(engine, rows)
    expression = soc.posterior_expression(fit, soc.PoissonItems(table, **HOSTILE))
    assert list(expression.columns) == [*rows.columns, *NEW]
    assert_close(connection.to_pandas(expression), exact)


@pytest.mark.parametrize("quantiles", thinned([[], [0.05, 0.95]], [[]]))
def test_text_with_hostile_names_of_tables_and_columns(fit, rows, exact, quantiles):
    connection = ibis.duckdb.connect().con
    connection.execute("create schema sales")
    connection.register("rows", rows)
    connection.execute('create table sales."My ""ads""; --" as select * from rows')
    options = {"columns": ["id"], "quantiles": quantiles}
    connection.execute("create table t5 as select * from rows")  # a name that Ibis writes too
    name = 'sales."My ""ads""; --"' if quantiles else "t5"
    found = connection.execute(soc.posterior_sql(fit, name, **options)).df()
    limits = LIMITS if quantiles else []
    added = [*MOMENTS, "theta_var", *limits, "flagged"]
    assert list(found.columns) == [*HOSTILE.values(), "id", *added]
    assert_close(found, exact, [*MOMENTS, *limits])


NO_NAMES = [
    "read_csv('/etc/passwd')", "items; drop table x", "a b", "", " ", "a.", ".a", "a..b", "a.b.c.d",
    "items --", "(select 1)", '"a', 'a"b', '"a"b"', '""', "1a", "a, b", "items as x", "'items'",
    '"a\n"', "a\n", "a/*x*/", None, 3,
]  # fmt: skip


@pytest.mark.parametrize("name", NO_NAMES, ids=repr)
def test_what_is_no_name_of_a_table_is_refused(fit, name):
    """Neither a call nor further statements: as items, and as the prior unless it is left out."""
    with pytest.raises(soc.ItemsError, match="table="):
        soc.posterior_sql(fit, name)
    if name is not None:
        with pytest.raises(soc.ItemsError, match="prior="):
            soc.posterior_sql(fit, "items", prior=name)


@pytest.mark.parametrize("dialect", thinned(DIALECTS, []))
def test_text_parses_in_its_dialect(fit, dialect, monkeypatch):
    """One SELECT of the columns, with the labels as they are, from the items' table alone."""
    if dialect != "duckdb":  # further steps to a quantile say the same again, and take long
        monkeypatch.setattr(export, "_STEPS", 1)
    # parsing all numbers of the prior takes long
    for prior in (*[None] * (dialect == "duckdb"), 'models."the prior"'):
        options = {"columns": ["id"], "prior": prior, "dialect": dialect}
        if dialect == "bigquery":  # whose names of columns have no such signs
            options |= {"score": "t", "count": "y", "exposure": "n", "group": "g"}
        text = soc.posterior_sql(fit, "sales.ads", **options)
        (tree,) = sqlglot.parse(text, read="spark" if dialect == "pyspark" else dialect)
        assert isinstance(tree, sqlglot.exp.Query)
        users = ["t", "y", "n", "g"] if dialect == "bigquery" else list(HOSTILE.values())
        assert tree.named_selects == [*users, "id", *NEW]
        tables = {"ads"} | ({"the prior"} if prior else set())
        defined = {named.alias for named in tree.find_all(sqlglot.exp.CTE)}
        named = {table.name for table in tree.find_all(sqlglot.exp.Table)}
        assert named - {"soc_values", ""} - defined == tables
        literals = {literal.name for literal in tree.find_all(sqlglot.exp.Literal)}
        assert set(LABELS) <= literals


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["bigquery", "trino", "databricks"])
def test_columns_functions_and_types_of_a_text(example, dialect, monkeypatch):
    """SQLGlot knows each column and function, and the type of what is selected."""
    monkeypatch.setattr(export, "_STEPS", 1)
    fit = example("gamma").fit
    text = soc.posterior_sql(fit, "items", columns=["id"], prior="prior", dialect=dialect)
    tree = sqlglot.parse_one(text, read=dialect)
    for call in list(tree.find_all(sqlglot.exp.Anonymous)):
        assert call.name == "ieee_divide"  # of BigQuery
        call.replace(sqlglot.exp.Div(this=call.expressions[0], expression=call.expressions[1]))
    nodes = dict.fromkeys(export.described(fit.curves)[1], "DOUBLE") | {"cell": "BIGINT"}
    items = dict.fromkeys(COUNT_ROLES, "DOUBLE") | {"id": "BIGINT"}
    schema = {"items": items, "prior": nodes | {"fit": "TEXT"}}
    qualified = qualify(tree, schema=schema, dialect=dialect, quote_identifiers=False)
    typed = annotate_types(qualified, schema=schema, dialect=dialect)
    kinds = {column.alias_or_name: str(column.type) for column in typed.selects}
    new = dict.fromkeys([*MOMENTS, "theta_var", *LIMITS], "DOUBLE") | {"flagged": "BOOLEAN"}
    assert kinds == items | new


SNOWFLAKE = """
import fakesnow, pyarrow.parquet as pq, snowflake.connector
rows = pq.read_table("items.parquet").to_pylist()
with fakesnow.patch():
    cursor = snowflake.connector.connect(database="db", schema="s").cursor()
    columns = ", ".join(f'"{name}" double' for name in rows[0])
    cursor.execute(f'create table "items" ({columns})')
    values = [tuple(row.values()) for row in rows]
    cursor.executemany('insert into "items" values (%s, %s, %s, %s)', values)
    cursor.execute(open("text.sql").read())
    cursor.fetch_pandas_all().to_parquet("scored.parquet")
"""


@pytest.mark.slow
def test_snowflake_by_an_emulator(example, tmp_path):
    """It needs versions of DuckDB and SQLGlot of its own, in a folder."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", tmp_path / "packages"]
    connector = "snowflake-connector-python[pandas]<5"  # later ones lack what fakesnow imports
    subprocess.run([*pip, "fakesnow>=0.12", connector], check=True)
    case, fit = example("gamma").case, example("gamma").fit
    frame = case.frame().head(100)[list(COUNT_ROLES)].astype(float).assign(id=np.arange(100.0))
    frame.to_parquet(tmp_path / "items.parquet")
    text = soc.posterior_sql(fit, '"items"', columns=["id"], dialect="snowflake")
    (tmp_path / "text.sql").write_text(text)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "packages")}
    command = [sys.executable, "-c", SNOWFLAKE]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True)
    exact = soc.item_posteriors(fit, case.items(frame), progress=False)
    # it reads nine digits of numbers in single precision as doubles
    assert_close(pd.read_parquet(tmp_path / "scored.parquet"), exact, moments=5e-9)


@pytest.mark.parametrize(
    ("dialect", "reason"),
    [
        *(("sqlite", "cannot be written"), ("polars", "not one of"), ("", "name")),
        *(("postgresql", "did you mean 'postgres'"), ("DUCKDB", "did you mean 'duckdb'")),
    ],
)
def test_dialects_that_cannot_express_the_text_are_refused(fit, dialect, reason):
    with pytest.raises(soc.ItemsError, match=reason) as caught:
        soc.posterior_sql(fit, "items", prior="prior", dialect=dialect)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_text_over_a_loaded_prior(fit, rows, exact, tmp_path):
    """The exported file is loaded as it is; a table of another fit gives no row."""
    connection = ibis.duckdb.connect().con
    connection.register("items", rows.rename(columns={"select": "where"}))
    text = soc.posterior_sql(fit, "items", group="where", columns=["id"], prior='"the prior"')
    path = soc.export_prior(fit, tmp_path / "prior.parquet")
    made = 'create or replace table "the prior" as select * '
    connection.execute(f"{made} from read_parquet('{path}')")
    assert_close(connection.execute(text).df(), exact)
    # the same columns, of another fit
    connection.execute(f"{made} replace ('other' as fit) from read_parquet('{path}')")
    assert len(connection.execute(text).df()) == 0


BAD_COUNTS = [
    (None, 1, 9.0), (np.nan, 1, 9.0), (np.inf, 1, 9.0), (0.1, None, 9.0), (0.1, -1, 9.0),
    (0.1, 1.5, 9.0), (0.1, np.nan, 9.0), (0.1, 1, None), (0.1, 1, -9.0), (0.1, 1, 0.0),
    (0.1, 1, np.inf), (0.1, 1, np.nan), (0.0, 1, 9.0), (-0.1, 1, 9.0), (-np.inf, 1, 9.0),
    (0.1, 2.0**53, 9.0),
]  # fmt: skip
GOOD_COUNTS = [(0.1, 1.0, 9.0), (1e-300, 0.0, 1e90), (1e90, 2.0**53 - 1.0, 1e-90)]
BAD_TRIALS = [
    (None, 1, 9.0), (np.inf, 1, 9.0), (0.0, 1, 9.0), (1.0, 1, 9.0), (-0.1, 1, 9.0),
    (0.1, None, 9.0), (0.1, -1, 9.0), (0.1, 1.5, 9.0), (0.1, 1, None), (0.1, 1, -9.0),
    (0.1, 1, 9.5), (0.1, 10, 9.0), (0.1, 1, 0.0), (0.1, np.nan, 9.0), (0.1, 1, np.inf),
]  # fmt: skip
GOOD_TRIALS = [(0.1, 0.0, 0.0), (0.999, 9.0, 9.0), (1e-9, 0.0, 2.0**40)]
BAD_VALUES = [
    (None, 1.0, 1.0), (np.inf, 1.0, 1.0), (0.1, None, 1.0), (0.1, np.nan, 1.0), (0.1, -np.inf, 1.0),
    (0.1, 1.0, None), (0.1, 1.0, 0.0), (0.1, 1.0, -1.0),
]  # fmt: skip
GOOD_VALUES = [(-50.0, 1e4, 1e-30), (0.0, -30.0, 1e30), (0.3, 0.0, 1.0)]
BAD_AMOUNTS = [
    (None, 1.0, 2.0), (np.inf, 1.0, 2.0), (0.0, 1.0, 2.0), (0.3, None, 2.0), (0.3, -1.0, 2.0),
    (0.3, 1.0, None), (0.3, 1.0, 1.5), (0.3, 1.0, 0.0), (0.3, 0.0, 2.0), (0.3, np.inf, 2.0),
]  # fmt: skip
GOOD_AMOUNTS = [(1.0, 2.0, 3.0), (0.5, 0.0, 0.0), (30.0, 1e-6, 1.0), (0.01, 1e9, 2.0**30)]
ROWS = {
    "inverse_gamma": (GOOD_AMOUNTS, BAD_AMOUNTS),
    "five_steps": (GOOD_COUNTS, BAD_COUNTS),
    "beta": (GOOD_TRIALS, BAD_TRIALS),
    "normal": (GOOD_VALUES, BAD_VALUES),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "name"),
    [
        *product(("duckdb", "postgres", "clickhouse"), ROWS),
        *product(("polars", "datafusion"), ["five_steps"]),
    ],
)
def test_rows_that_would_be_refused_are_null(example, name, engine, put_on):
    """Moments of good rows are finite, and all of bad ones NULL, whether missing or NaN."""
    (good, bad), case = ROWS[name], example(name).case
    names = example(name).items.roles.values()
    columns = {
        column: pa.array(value, pa.float64(), from_pandas=False)
        for column, value in zip(names, zip(*good, *bad, strict=True), strict=True)
    }
    rows = pa.table({"id": np.arange(len(good) + len(bad)), **columns})
    expression = soc.posterior_expression(example(name).fit, case.items(put_on(engine, rows)))
    found = expression.to_pandas().sort_values("id", ignore_index=True)
    assert len(found) == len(rows)
    assert np.isfinite(found[MOMENTS].iloc[: len(good)].to_numpy(dtype=float)).all()
    assert found[NEW].iloc[len(good) :].isna().all(axis=None)


@pytest.mark.slow
def test_spark(fit, rows, exact, spark):
    """Expression and text, with hostile names; a negative count and an unknown group are NULL."""
    table = rows.copy()
    table.loc[5, HOSTILE["count"]], table.loc[7, HOSTILE["group"]] = -1, "unknown"
    spark.createDataFrame(table).createOrReplaceTempView("items")
    spark.conf.set("spark.sql.analyzer.maxIterations", "300")  # as the page on scale says
    text = soc.posterior_sql(fit, "items", columns=["id"], dialect="pyspark")
    items = soc.PoissonItems(ibis.pyspark.connect(spark).table("items"), **HOSTILE)
    expression = soc.posterior_expression(fit, items)
    good = ~rows.index.isin([5, 7])
    for found in (spark.sql(text).toPandas(), expression.to_pandas()):
        found = found.sort_values("id", ignore_index=True)
        assert found[NEW].iloc[[5, 7]].isna().all(axis=None)
        assert_close(found[good], exact[good])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["clickhouse", "datafusion"])
def test_further_engines(fit, rows, exact, engine, put_on):
    """Expression and text."""
    table = put_on(engine, pa.Table.from_pandas(rows, preserve_index=False))
    connection = table.get_backend()
    text = soc.posterior_sql(fit, "items", columns=["id"], dialect=engine)
    expression = soc.posterior_expression(fit, soc.PoissonItems(table, **HOSTILE))
    for found in (rows_of(connection, text), expression.to_pandas()):
        assert_close(found, exact)


@pytest.mark.slow
def test_postgres(fit, rows, exact, postgres_server):
    """Expression and text; an unknown group is NULL."""
    connection = ibis.postgres.connect(**postgres_server)
    quoted = ['"' + name.replace('"', '""') + '"' for name in rows.columns]
    kinds = ["double precision", "bigint", "double precision", "text", "bigint"]
    typed = ", ".join(f"{name} {kind}" for name, kind in zip(quoted, kinds, strict=True))
    with connection.con.cursor() as cursor:
        cursor.execute(f"create table hostile ({typed})")
        values = [tuple(row) for row in rows.astype(object).itertuples(index=False)]
        cursor.executemany("insert into hostile values (%s, %s, %s, %s, %s)", values)
        cursor.execute("insert into hostile values (0.1, 1, 9.0, 'unknown', -1)")
        connection.con.commit()
    table = connection.table("hostile")
    expression = soc.posterior_expression(fit, soc.PoissonItems(table, **HOSTILE))
    text = soc.posterior_sql(fit, "hostile", columns=["id"], dialect="postgres")
    for found in (expression.to_pandas(), rows_of(connection, text)):
        unknown = found["id"] == -1
        assert found.loc[unknown, NEW].isna().all(axis=None)
        assert_close(found[~unknown], exact)
    connection.disconnect()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAMILIES, "groups", "exposure", "zeros"])
@pytest.mark.parametrize("engine", ["postgres", "datafusion"])
def test_every_family_in_every_way(example, name, engine, put_on, tmp_path):
    """Items are scored as `item_posteriors` scores them, in each way and without a detour.

    PostgreSQL compiles nothing, and knows nothing of its tables. Ten times as many items take ten
    times; comparing all with all takes a hundred times, and thirty allow for a busy machine.
    """
    case, fit = example(name).case, example(name).fit
    frame = case.frame().head(1500)
    frame = frame[list(case.items(frame).roles.values())].assign(id=np.arange(len(frame)))
    table = put_on(engine, pa.Table.from_pandas(frame, preserve_index=False))
    connection = table.get_backend()
    prior = pq.read_table(soc.export_prior(fit, tmp_path / "prior.parquet"))
    if engine == "postgres":
        postgres.copied(connection, prior, "prior")
    else:
        connection.create_table("prior", prior)
    connection.create_table("few", table.filter(table.id < 150), overwrite=True)
    options = {"columns": ["id"], "dialect": engine}
    ways = [
        lambda items: soc.posterior_sql(fit, items, prior="prior", **options),
        lambda items: soc.posterior_sql(fit, items, **options),
    ]
    if name == "exposure":
        with pytest.raises(soc.FitError, match="over a million"):
            ways.pop()("items")
    expression = soc.posterior_expression(fit, case.items(connection.table("few")))
    exact = soc.item_posteriors(fit, case.items(frame.head(150)), progress=False)
    exact = exact.assign(id=np.arange(150))
    for found in [expression.to_pandas(), *(rows_of(connection, way("few")) for way in ways)]:
        assert_close(found, exact, most_flagged=0.1)
    if engine == "postgres":
        ways.append(
            lambda items: connection.compile(
                soc.posterior_expression(fit, case.items(connection.table(items)))
            )
        )
        for way in ways:
            explained = [
                rows_of(connection, f"explain (analyze, format json) {way(items)}").iloc[0, 0][0]
                for items in ("few", "items")
            ]
            assert not any("JIT" in plan for plan in explained)
            few, many = (plan["Execution Time"] for plan in explained)
            assert many < 30 * few
