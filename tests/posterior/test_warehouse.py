"""Item posteriors as an Ibis expression and as SQL text, run by several engines."""

import dataclasses

import ibis
import numpy as np
import pandas as pd
import pytest
import sqlglot

import soc_pymc as soc
from soc_pymc.data.binning import Grid
from soc_pymc.posterior import warehouse
from tests.thinning import thinned

ROLES = {"score": "score", "count": "count", "exposure": "exposure"}
NEW = ["theta_mean", "theta_sd", "theta_var", "theta_shape", "theta_rate"]
DIALECTS = ["duckdb", "postgres", "pyspark", "databricks", "bigquery", "snowflake", "trino"]


@pytest.fixture(scope="module")
def frame():
    frame = soc.simulation.s1(1000, seed=11)[["score", "count", "exposure"]]
    frame.insert(0, "id", np.arange(len(frame)))
    return frame


@pytest.fixture(scope="module")
def fits(small_fit):
    frame = soc.simulation.s1(20_000, seed=5)
    items = soc.PoissonItems(frame, **ROLES)

    class Fits(dict):
        """Fits by the scale of their curves, made when they are asked for."""

        def __missing__(self, scale):
            curve = soc.Spline(scale=scale)
            stats = soc.summarize(items, bins=60, progress=False)
            prior = soc.Gamma(mean=curve, variance=curve)
            self[scale] = soc.fit(stats, prior, progress=False)
            return self[scale]

    return Fits(small=small_fit)


def _exact(fit, frame):
    items = soc.PoissonItems(frame, **ROLES)
    return soc.item_posteriors(fit, items, quantiles=(), progress=False)


def _score(fit, table):
    expression = soc.posterior_expression(fit, soc.PoissonItems(table, **ROLES))
    return expression.to_pandas().sort_values("id", ignore_index=True)


def _compare(found, exact, mean=1e-3, sd=1e-3, share=0.99):
    """Errors within bounds for a share of the items, and twenty times these for all."""
    error = {
        "mean": np.abs(found["theta_mean"] - exact["theta_mean"]) / exact["theta_sd"] / mean,
        "sd": np.abs(found["theta_sd"] / exact["theta_sd"] - 1) / sd,
    }
    for off in error.values():
        assert np.quantile(off, share) < 1
        assert off.max() < 20
    np.testing.assert_allclose(found["theta_sd"] ** 2, found["theta_var"], rtol=1e-9)
    np.testing.assert_allclose(found["theta_shape"] / found["theta_rate"], found["theta_mean"])
    np.testing.assert_allclose(found["theta_shape"] / found["theta_rate"] ** 2, found["theta_var"])


@pytest.mark.parametrize("scale", thinned(["small", "log", "linear", "rank"], ["small", "log"]))
def test_agrees_with_all_draws(fits, frame, scale):
    found = _score(fits[scale], ibis.memtable(frame))
    assert list(found.columns) == [*frame.columns, *NEW]
    _compare(found, _exact(fits[scale], frame))


def test_most_items_agree_closely(fits, frame):
    """As in the docstring for a fit to 20,000 items."""
    found = _score(fits["log"], ibis.memtable(frame))
    _compare(found, _exact(fits["log"], frame), 1e-4, 3e-4)


@pytest.mark.parametrize("scale", thinned(["log", "linear", "rank"], ["log"]))
def test_beyond_the_fit(fits, scale):
    """Straight lines continue, also for curves that are known a thousand times better."""
    fit = fits[scale]
    posterior = fit.data["posterior"]
    tree = fit.data.copy()
    centred = posterior.to_dataset().copy()
    for name in ("log_mean", "log_cv2"):
        middle = centred[name].mean(("chain", "draw"))
        near = middle + 1e-3 * (centred[name] - middle)
        centred[name] = near.transpose(*centred[name].dims)
    tree["posterior"] = centred
    known = dataclasses.replace(fit, data=tree)
    score = np.array([1e-9, 1e-6, 1e-4, 1e-3, 1.5, 2.5])
    frame = pd.DataFrame({"id": range(6), "score": score, "count": 2, "exposure": 30.0})
    found, exact = _score(known, ibis.memtable(frame)), _exact(known, frame)
    np.testing.assert_allclose(found["theta_mean"], exact["theta_mean"], rtol=2e-4)
    np.testing.assert_allclose(found["theta_var"], exact["theta_var"], rtol=4e-4)


def test_no_exposure_is_the_prior(fits):
    frame = pd.DataFrame({"id": [0], "score": [0.05], "count": [0], "exposure": [0.0]})
    found, exact = _score(fits["log"], ibis.memtable(frame)), _exact(fits["log"], frame)
    _compare(found, exact, 1e-4, 1e-4)


BAD = [
    (None, 1, 9.0), (np.nan, 1, 9.0), (np.inf, 1, 9.0), (0.1, None, 9.0), (0.1, -1, 9.0),
    (0.1, 1.5, 9.0), (0.1, np.nan, 9.0), (0.1, 1, None), (0.1, 1, -9.0), (0.1, 1, 0.0),
    (0.1, 1, np.inf), (0.1, 1, np.nan), (0.0, 1, 9.0), (-0.1, 1, 9.0), (-np.inf, 1, 9.0),
    (0.1, 2.0**53, 9.0),
]  # fmt: skip


def _bad_rows():
    import pyarrow as pa

    rows = [(0.1, 1.0, 9.0), *BAD, (1e-300, 0.0, 1e90), (1e90, 2.0**53 - 1.0, 1e-90)]
    columns = dict(zip(ROLES, zip(*rows, strict=True), strict=True))
    typed = {name: pa.array(v, pa.float64(), from_pandas=False) for name, v in columns.items()}
    return pa.table({"id": np.arange(len(rows)), **typed})


def _check_bad(found):
    found = found.sort_values("id", ignore_index=True)
    assert len(found) == len(BAD) + 3
    assert found[NEW].iloc[1 : len(BAD) + 1].isna().all(axis=None)
    good = found[["theta_mean", "theta_sd", "theta_var"]].iloc[[0, -2, -1]]
    assert np.isfinite(good.to_numpy(dtype=float)).all()


def test_bad_rows_are_null(fits):
    _check_bad(_score(fits["log"], ibis.memtable(_bad_rows())))


@pytest.mark.parametrize("scale", thinned(["linear", "rank"], ["rank"]))
def test_scores_below_0_are_good_on_other_scales(fits, scale):
    frame = pd.DataFrame({"id": [0, 1], "score": [-0.01, 0.0], "count": 1, "exposure": 9.0})
    found, exact = _score(fits[scale], ibis.memtable(frame)), _exact(fits[scale], frame)
    np.testing.assert_allclose(found["theta_mean"], exact["theta_mean"], rtol=0.02)


def test_polars(fits, frame):
    pytest.importorskip("polars")
    connection = ibis.polars.connect()
    table = connection.create_table("items", frame)
    for scale in ("log", "rank"):
        expression = soc.posterior_expression(fits[scale], soc.PoissonItems(table, **ROLES))
        found = connection.to_pandas(expression).sort_values("id", ignore_index=True)
        want = _score(fits[scale], ibis.memtable(frame))
        np.testing.assert_allclose(found[NEW], want[NEW], rtol=1e-7)
    bad = connection.create_table("bad", _bad_rows())
    expression = soc.posterior_expression(fits["log"], soc.PoissonItems(bad, **ROLES))
    _check_bad(connection.to_pandas(expression))


@pytest.mark.slow
def test_spark(fits, frame, spark):
    connection = ibis.pyspark.connect(spark)
    spark.createDataFrame(frame).createOrReplaceTempView("items")
    spark.createDataFrame(_bad_rows().to_pandas()).createOrReplaceTempView("bad")
    for scale in ("log", "rank"):
        table = connection.table("items")
        found = connection.to_pandas(
            soc.posterior_expression(fits[scale], soc.PoissonItems(table, **ROLES))
        )
        text = soc.posterior_sql(fits[scale], "items", columns=["id"], dialect="pyspark")
        want = _score(fits[scale], ibis.memtable(frame))
        for made in (found, spark.sql(text).toPandas()):
            made = made.sort_values("id", ignore_index=True)
            np.testing.assert_allclose(made[NEW], want[NEW], rtol=1e-7)
    text = soc.posterior_sql(fits["log"], "bad", columns=["id"], dialect="pyspark")
    _check_bad(spark.sql(text).toPandas())


@pytest.mark.slow
def test_postgres(fits, frame, postgres_server):
    connection = ibis.postgres.connect(**postgres_server)
    with connection.raw_sql(
        'create table scored_items (id bigint, score double precision, "count" bigint, '
        "exposure double precision)"
    ) as cursor:
        rows = list(frame.astype({"exposure": float}).itertuples(index=False, name=None))
        cursor.executemany("insert into scored_items values (%s, %s, %s, %s)", rows)
        connection.con.commit()
    for scale in ("log", "rank"):
        want = _score(fits[scale], ibis.memtable(frame))
        found = _score(fits[scale], connection.table("scored_items"))
        text = soc.posterior_sql(fits[scale], "scored_items", columns=["id"], dialect="postgres")
        with connection.raw_sql(text) as cursor:
            names = [column.name for column in cursor.description]
            of_text = pd.DataFrame(cursor.fetchall(), columns=names)
        for made in (found, of_text):
            made = made.sort_values("id", ignore_index=True)
            np.testing.assert_allclose(made[NEW].astype(float), want[NEW], rtol=1e-7)
    connection.disconnect()


@pytest.mark.parametrize("scale", ["log", "linear", "rank"])
@pytest.mark.slow
def test_text_says_the_same(fits, frame, scale):
    connection = ibis.duckdb.connect().con
    connection.execute("create schema sales")
    connection.register("frame", frame)
    connection.execute(
        'create table sales."My ""ads""" as select id, score as "a ""score""", '
        '"count"::smallint as "count", exposure::decimal(12, 3) as "ex, po" from frame'
    )
    text = soc.posterior_sql(
        fits[scale],
        'sales."My ""ads"""',
        score='a "score"',
        exposure="ex, po",
        columns=["id"],
    )
    found = connection.execute(text).df().sort_values("id", ignore_index=True)
    assert list(found.columns) == ['a "score"', "count", "ex, po", "id", *NEW]
    want = _score(fits[scale], ibis.memtable(frame))
    np.testing.assert_allclose(found[NEW], want[NEW], rtol=1e-8)


def test_text_on_bad_rows(fits):
    connection = ibis.duckdb.connect().con
    connection.register("items", _bad_rows())
    text = soc.posterior_sql(fits["log"], "items", columns=["id"])
    _check_bad(connection.execute(text).df())


@pytest.mark.parametrize(
    ("scale", "dialect"), [*(("small", dialect) for dialect in DIALECTS), ("rank", "postgres")]
)
@pytest.mark.slow
def test_dialects_parse(fits, scale, dialect, monkeypatch):
    monkeypatch.setattr(warehouse, "_CELLS", 8)  # parsing takes seconds for a whole table
    monkeypatch.setattr(warehouse, "_CLOSE", np.inf)
    text = soc.posterior_sql(fits[scale], "sales.ads", columns=["id"], dialect=dialect)
    tree = sqlglot.parse_one(text, read="spark" if dialect == "pyspark" else dialect)
    assert tree.named_selects == [*ROLES, "id", *NEW]
    tables = {table.name for table in tree.find_all(sqlglot.exp.Table)}
    assert tables - {"soc_values", ""} <= {"ads", "soc_curves", "soc_ladder"}
    assert "soc_items" not in text


def test_quotes_in_column_names(fits, frame):
    odd = frame.rename(columns={"score": "a 'score'", "count": 'the "count"', "exposure": "é x"})
    items = soc.PoissonItems(
        ibis.memtable(odd), score="a 'score'", count='the "count"', exposure="é x"
    )
    found = soc.posterior_expression(fits["log"], items).to_pandas()
    found = found.sort_values("id", ignore_index=True)
    np.testing.assert_allclose(found[NEW], _score(fits["log"], ibis.memtable(frame))[NEW])


def test_nothing_runs_before_execution(fits):
    table = ibis.table({"score": "float64", "count": "int64", "exposure": "float64"}, name="far")
    expression = soc.posterior_expression(fits["log"], soc.PoissonItems(table, **ROLES))
    assert list(expression.columns) == [*ROLES, *NEW]


def test_crowded_ranks():
    """Edges that share a cell: two lines err by less than the ranks between its edges."""
    rng = np.random.default_rng(0)
    score = np.sort(np.concatenate([rng.normal(size=200), 0.3 + 1e-9 * rng.random(5)]))
    rank = np.linspace(0, 1, len(score))
    ladder, error = warehouse._climbed(Grid(-6, 6), score, rank)
    t = np.linspace(-5, 5, 20_001)
    row = ladder.grid.cell(np.clip(t, ladder.low, ladder.high)) - ladder.cell[0]
    side = (t >= ladder.score[row]).astype(int)
    found = ladder.position[side, row] + ladder.slope[side, row] * (t - ladder.score[row])
    assert 0 < error < 0.03
    assert np.abs(np.clip(found, 0, 1) - np.interp(t, score, rank)).max() <= error + 1e-12


@pytest.mark.parametrize(
    ("scale", "remedy"),
    [
        ("linear", 'soc.item_posteriors or soc.Spline(scale="rank")'),
        ("rank", "soc.item_posteriors"),
    ],
)
def test_scores_that_no_table_can_represent(scale, remedy, monkeypatch):
    """The error names another remedy, not one already tried."""
    monkeypatch.setattr(warehouse, "_MOST_CELLS", 32)
    rng = np.random.default_rng(0)
    wide, narrow = rng.normal(0.0, 1e-9, 1500), 5.0 + rng.normal(0.0, 1e-12, 1500)
    score = rng.lognormal(0.0, 6.0, 3000) if scale == "linear" else np.append(wide, narrow)
    frame = pd.DataFrame({"score": score, "exposure": 100.0})
    frame["count"] = rng.poisson(5.0 + 5.0 * frame["score"].rank(pct=True))
    curve = soc.Spline(scale=scale)
    stats = soc.summarize(
        soc.PoissonItems(frame, **ROLES), bins=40, on_leakage="ignore", progress=False
    )
    fit = soc.fit(stats, soc.Gamma(curve, curve), soc.FiveSteps(), progress=False)
    with pytest.raises(soc.FitError, match=f"too unevenly on the {scale} scale") as caught:
        soc.posterior_sql(fit, "items")
    assert str(caught.value).partition(": use ")[2].startswith(remedy)
    assert ("Spline" in str(caught.value)) == (scale == "linear")


def test_errors(fits, frame):
    fit = fits["log"]
    with pytest.raises(soc.ItemsError, match="item_posteriors"):
        soc.posterior_expression(fit, soc.PoissonItems(frame, **ROLES))
    for column, message in (("theta_var", "'theta_var'"), ("soc_x", "soc_")):
        table = ibis.memtable(frame.assign(**{column: 0.0}))
        with pytest.raises(soc.ItemsError, match=message):
            soc.posterior_expression(fit, soc.PoissonItems(table, **ROLES))
    table = ibis.memtable(frame.drop(columns="count"))
    with pytest.raises(soc.ItemsError, match="'count'"):
        soc.posterior_expression(fit, soc.PoissonItems(table, **ROLES))
    with pytest.raises(soc.ItemsError, match="dialect 'klingon'"):
        soc.posterior_sql(fit, "ads", dialect="klingon")
    with pytest.raises(soc.ItemsError, match="theta_sd"):
        soc.posterior_sql(fit, "ads", columns=["theta_sd"])
    mixed = dataclasses.replace(fit, prior=soc.Gamma(variance=soc.Spline(scale="rank")))
    with pytest.raises(soc.FitError, match="one scale"):
        soc.posterior_sql(mixed, "ads")
