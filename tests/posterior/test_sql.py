"""Item posteriors as an Ibis expression and as SQL text, with hostile names, on several engines."""

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sqlglot

import soc_pymc as soc
from tests.posterior.references import errors_in_sd

NEW = ["theta_mean", "theta_sd", "theta_var", "theta_q05", "theta_q95"]
MOMENTS = NEW[:3]
DIALECTS = ["duckdb", "postgres", "pyspark", "databricks", "bigquery", "snowflake", "trino"]
LABELS = ["o'brien", 'say "hi"', "back\\slash", "--; drop table items", "é %s {x}", "NULL"]
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
    """A fit by five steps with the hostile groups, which takes no time."""
    items = soc.PoissonItems(frame, **HOSTILE)
    statistics = soc.summarize(items, bins=10, progress=False)
    return soc.fit(statistics, method=soc.FiveSteps(), progress=False)


@pytest.fixture(scope="module")
def rows(frame):
    """A few rows to score."""
    return frame.head(200)


@pytest.fixture(scope="module")
def exact(fit, rows):
    """The rows scored by `item_posteriors`."""
    return soc.item_posteriors(fit, soc.PoissonItems(rows, **HOSTILE), progress=False)


def assert_close(found, exact):
    """Checks moments and quantiles to 3e-3 posterior sd, whatever the order of rows."""
    found = found.sort_values("id", ignore_index=True)
    assert len(found) == len(exact)
    errors = errors_in_sd(found, exact, ["theta_mean", "theta_sd", "theta_q05", "theta_q95"])
    for column, error in errors.items():
        assert error.max() < 3e-3, column


# --- hostile names and labels --------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_expression_with_hostile_names_and_labels(fit, rows, exact, engine):
    connection = getattr(ibis, engine).connect()
    if engine == "duckdb":
        connection.con.register("items", rows)
        table = connection.table("items")
    else:
        table = connection.create_table("items", rows)
    expression = soc.posterior_expression(fit, soc.PoissonItems(table, **HOSTILE))
    assert list(expression.columns) == [*rows.columns, *NEW]
    assert_close(connection.to_pandas(expression), exact)


def test_text_with_hostile_names_of_tables_and_columns(fit, rows, exact):
    connection = ibis.duckdb.connect().con
    connection.execute("create schema sales")
    connection.register("rows", rows)
    connection.execute('create table sales."My ""ads""; --" as select * from rows')
    text = soc.posterior_sql(fit, 'sales."My ""ads""; --"', columns=["id"])
    found = connection.execute(text).df()
    assert list(found.columns) == [*HOSTILE.values(), "id", *NEW]
    assert_close(found, exact)


@pytest.mark.slow
def test_text_over_a_loaded_prior_and_renamed_columns(fit, rows, exact, tmp_path):
    """The exported file is loaded as it is, and one SELECT names it; unknown groups are NULL."""
    path = soc.export_prior(fit, tmp_path / "prior.parquet")
    connection = ibis.duckdb.connect().con
    renamed = rows.rename(columns={"select": "where"}).copy()
    renamed.loc[3, "where"] = "unknown"
    connection.register("items", renamed)
    connection.execute(f"create table loaded as select * from read_parquet('{path}')")
    text = soc.posterior_sql(fit, "items", group="where", columns=["id"], prior="loaded")
    found = connection.execute(text).df().sort_values("id", ignore_index=True)
    assert found[NEW].iloc[3].isna().all()
    known = rows.index != 3
    assert_close(found[known], exact[known])


@pytest.mark.slow
def test_crossed_groups(frame):
    """Two columns of groups, of which one has hostile labels."""
    groups = {"group": ("select", "device")}
    frame = frame.assign(device=np.where(frame["id"] % 5 < 2, "phone", "tv"))
    items = soc.PoissonItems(frame, **ROLES, **groups)
    statistics = soc.summarize(items, bins=6, progress=False)
    fit = soc.fit(statistics, method=soc.FiveSteps(), progress=False)
    few = frame.head(100)
    expected = soc.item_posteriors(fit, soc.PoissonItems(few, **ROLES, **groups), progress=False)
    table = ibis.memtable(few)
    found = soc.posterior_expression(fit, soc.PoissonItems(table, **ROLES, **groups))
    assert_close(found.to_pandas(), expected)


# --- rows that cannot be scored ------------------------------------------------------------------

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
    (0.1, 1.0, None), (0.1, 1.0, 0.0), (0.1, 1.0, -1.0), (0.1, 1.0, np.inf),
]  # fmt: skip
GOOD_VALUES = [(-50.0, 1e4, 1e-30), (0.0, -30.0, 1e30), (0.3, 0.0, 1.0)]
ROWS = {
    "five_steps": (GOOD_COUNTS, BAD_COUNTS),
    "beta": (GOOD_TRIALS, BAD_TRIALS),
    "normal": (GOOD_VALUES, BAD_VALUES),
}


def table_of_rows(example, name):
    """Returns the good rows followed by the bad ones, with both NaN and NULL."""
    good, bad = ROWS[name]
    names = example(name).case.items(None).roles.values()
    values = zip(*good, *bad, strict=True)
    columns = {
        column: pa.array(value, pa.float64(), from_pandas=False)
        for column, value in zip(names, values, strict=True)
    }
    return pa.table({"id": np.arange(len(good) + len(bad)), **columns})


def assert_bad_rows_are_null(name, found):
    """Checks that moments of good rows are finite, and all of bad ones NULL."""
    good, bad = ROWS[name]
    found = found.sort_values("id", ignore_index=True)
    assert len(found) == len(good) + len(bad)
    moments = found[MOMENTS].iloc[: len(good)].to_numpy(dtype=float)
    assert np.isfinite(moments).all()
    assert found[NEW].iloc[len(good) :].isna().all(axis=None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "engine"), [*((name, "duckdb") for name in ROWS), ("five_steps", "polars")]
)
def test_rows_that_would_be_refused_are_null(example, name, engine):
    connection = getattr(ibis, engine).connect()
    rows_of_kinds = table_of_rows(example, name)
    if engine == "duckdb":  # whose tables Ibis cannot create from a frame with some names
        connection.con.register("items", rows_of_kinds)
        table = connection.table("items")
    else:
        table = connection.create_table("items", rows_of_kinds)
    expression = soc.posterior_expression(example(name).fit, example(name).case.items(table))
    assert_bad_rows_are_null(name, connection.to_pandas(expression))


# --- engines and dialects ------------------------------------------------------------------------


@pytest.mark.slow
def test_spark(fit, rows, exact, spark):
    """Text, with hostile names and labels; a negative count and an unknown group are NULL."""
    table = rows.copy()
    table.loc[5, HOSTILE["count"]], table.loc[7, HOSTILE["group"]] = -1, "unknown"
    spark.createDataFrame(table).createOrReplaceTempView("items")
    text = soc.posterior_sql(fit, "items", columns=["id"], dialect="pyspark")
    found = spark.sql(text).toPandas().sort_values("id", ignore_index=True)
    assert found[NEW].iloc[[5, 7]].isna().all(axis=None)
    good = ~rows.index.isin([5, 7])
    assert_close(found[good], exact[good])


@pytest.mark.slow
def test_postgres(fit, rows, exact, postgres_server):
    """Expression and text."""
    connection = ibis.postgres.connect(**postgres_server)
    quoted = ['"' + name.replace('"', '""').replace("%", "%%") + '"' for name in rows.columns]
    kinds = ["double precision", "bigint", "double precision", "text", "bigint"]
    typed = ", ".join(f"{name} {kind}" for name, kind in zip(quoted, kinds, strict=True))
    with connection.con.cursor() as cursor:
        cursor.execute(f"create table hostile ({typed})".replace("%%", "%"))
        values = [tuple(row) for row in rows.astype(object).itertuples(index=False)]
        cursor.executemany("insert into hostile values (%s, %s, %s, %s, %s)", values)
        connection.con.commit()
    table = connection.table("hostile")
    expression = soc.posterior_expression(fit, soc.PoissonItems(table, **HOSTILE))
    assert_close(expression.to_pandas(), exact)
    text = soc.posterior_sql(fit, "hostile", columns=["id"], dialect="postgres")
    with connection.con.cursor() as cursor:
        cursor.execute(text)
        names = [column.name for column in cursor.description]
        assert_close(pd.DataFrame(cursor.fetchall(), columns=names), exact)
    connection.disconnect()


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_text_parses_in_its_dialect(example, dialect):
    """It names the user's columns and table, and no other table that is not defined in it."""
    fit = example("five_steps").fit
    text = soc.posterior_sql(fit, "sales.ads", columns=["id"], dialect=dialect)
    tree = sqlglot.parse_one(text, read="spark" if dialect == "pyspark" else dialect)
    assert tree.named_selects == ["score", "count", "exposure", "id", *NEW]
    tables = {table.name for table in tree.find_all(sqlglot.exp.Table)}
    defined = {named.alias for named in tree.find_all(sqlglot.exp.CTE)}
    assert tables - {"soc_values", ""} - defined == {"ads"}
