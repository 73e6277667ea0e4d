"""Item posteriors as an Ibis expression and as SQL text, run by several engines."""

import dataclasses
from functools import cache

import ibis
import numpy as np
import pandas as pd
import pytest
import sqlglot

import soc_pymc as soc
from soc_pymc.data.groups import arguments_of
from soc_pymc.front.cli import main
from soc_pymc.posterior import sql
from tests.posterior.test_auto import TERMS, items_of
from tests.thinning import thinned

ROLES = {"score": "score", "count": "count", "exposure": "exposure"}
NEW = ["theta_mean", "theta_sd", "theta_var", "theta_q05", "theta_q95"]
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


def _exact(fit, frame, items=soc.PoissonItems, roles=ROLES):
    return soc.item_posteriors(fit, items(frame, **roles), draws="all", progress=False)


def _score(fit, table, items=soc.PoissonItems, roles=ROLES):
    expression = soc.posterior_expression(fit, items(table, **roles))
    return expression.to_pandas().sort_values("id", ignore_index=True)


def _compare(found, exact, mean=1e-3, sd=1e-3, far=20.0, share=0.99):
    """Errors of means in posterior sd, and of sds, relative, within bounds for most items.

    Those of all items are at most `far` times as large.
    """
    error = {
        "mean": np.abs(found["theta_mean"] - exact["theta_mean"]) / exact["theta_sd"] / mean,
        "sd": np.abs(found["theta_sd"] / exact["theta_sd"] - 1) / sd,
    }
    for name, off in error.items():
        assert np.quantile(off, share) < 1, (name, np.quantile(off, share))
        assert off.max() < far, (name, off.max())
    np.testing.assert_allclose(found["theta_sd"] ** 2, found["theta_var"], rtol=1e-9)


def _compare_quantiles(found, exact, share=0.98):
    """Within 5e-3 posterior sd for most items; those that were not found count as wrong."""
    for name in ("theta_q05", "theta_q95"):
        off = (np.abs(found[name] - exact[name]) / exact["theta_sd"]).to_numpy(dtype=float)
        assert (off < 5e-3).mean() > share, (name, (off < 5e-3).mean())


@pytest.mark.parametrize("scale", thinned(["small", "log", "linear", "rank"], ["small", "log"]))
def test_agrees_with_all_draws(fits, frame, scale):
    found, exact = _score(fits[scale], ibis.memtable(frame)), _exact(fits[scale], frame)
    assert list(found.columns) == [*frame.columns, *NEW]
    # on a linear scale the outermost scores are far from all others
    _compare(found, exact, far=40.0 if scale == "linear" else 20.0)
    _compare_quantiles(found, exact)


def test_most_items_agree_closely(fits, frame):
    """Of a fit to 20,000 items."""
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
    good = found[NEW[:3]].iloc[[0, -2, -1]]
    assert np.isfinite(good.to_numpy(dtype=float)).all()


def test_bad_rows_are_null(fits):
    _check_bad(_score(fits["log"], ibis.memtable(_bad_rows())))


@pytest.mark.parametrize("scale", thinned(["linear", "rank"], ["rank"]))
def test_scores_below_0_are_good_on_other_scales(fits, scale):
    frame = pd.DataFrame({"id": [0, 1], "score": [-0.01, 0.0], "count": 1, "exposure": 9.0})
    found, exact = _score(fits[scale], ibis.memtable(frame)), _exact(fits[scale], frame)
    np.testing.assert_allclose(found["theta_mean"], exact["theta_mean"], rtol=0.02)


@pytest.mark.slow
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


@pytest.mark.slow
def test_text_on_bad_rows(fits):
    connection = ibis.duckdb.connect().con
    connection.register("items", _bad_rows())
    text = soc.posterior_sql(fits["log"], "items", columns=["id"])
    _check_bad(connection.execute(text).df())


@pytest.mark.parametrize(
    ("scale", "dialect"), [*(("small", dialect) for dialect in DIALECTS), ("rank", "postgres")]
)
@pytest.mark.slow
def test_dialects_parse(fits, scale, dialect):
    text = soc.posterior_sql(fits[scale], "sales.ads", columns=["id"], dialect=dialect)
    tree = sqlglot.parse_one(text, read="spark" if dialect == "pyspark" else dialect)
    assert tree.named_selects == [*ROLES, "id", *NEW]
    tables = {table.name for table in tree.find_all(sqlglot.exp.Table)}
    own = {named.alias for named in tree.find_all(sqlglot.exp.CTE)}
    assert tables - {"soc_values", ""} - own == {"ads"}
    assert "soc_items" not in text


@pytest.mark.slow
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


# --- other families and terms --------------------------------------------------------------------

KINDS = [(f, t) for f in ("Gamma", "Normal", "Beta") for t in TERMS]
KINDS += [("GammaMixture", "plain"), ("NormalMixture", "plain")]
FAST = [("Beta", "plain")]


@pytest.fixture(scope="module")
def fit_of(kept_fit):
    @cache
    def made(family, term):
        items = items_of(family, term)

        def make():
            stats = soc.summarize(items, bins=40, joint=True, progress=False)
            prior = getattr(soc, family)(**TERMS[term])
            return soc.fit(stats, prior, soc.VI(draws=400, seed=0), progress=False)

        return kept_fit(f"auto_{family}_{term}", make), items

    return made


def _scored(fit, items, n):
    """The first items by an expression and over all draws."""
    frame = items.source.head(n).assign(id=np.arange(n))
    roles = arguments_of(items.roles)
    found = _score(fit, ibis.memtable(frame), type(items), roles)
    return frame, found, _exact(fit, frame, type(items), roles)


def _check_kind(fit_of, family, term):
    """Fits to 2,000 items, whose outermost curves are hardly known."""
    fit, items = fit_of(family, term)
    _, found, exact = _scored(fit, items, 400)
    # of uncertain weights, and with polynomials along score and size, tables are less close
    close = 0.02 if fit.prior.gridded else 5e-3
    _compare(found, exact, close, close, share=0.95)
    _compare_quantiles(found, exact, 0.9)
    assert ("p_zero" in found) == fit.prior.zero
    if fit.prior.zero:
        assert np.abs(found["p_zero"] - exact["p_zero"]).max() < 0.01


@pytest.mark.parametrize(("family", "term"), FAST)
def test_other_kinds(fit_of, family, term):
    _check_kind(fit_of, family, term)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "term"), [kind for kind in KINDS if kind not in FAST])
def test_every_kind(fit_of, family, term):
    _check_kind(fit_of, family, term)


def test_text_with_groups_and_a_loaded_prior(fit_of, tmp_path, monkeypatch):
    """The exported file is loaded as it is, and one SELECT names it; unknown groups are NULL."""
    fit, items = fit_of("Normal", "groups")
    frame, found, _ = _scored(fit, items, 200)
    frame.loc[3, "group"] = "unknown"
    frame = frame.rename(columns={"group": "where"})
    path = soc.export_prior(fit, tmp_path / "prior.parquet")
    connection = ibis.duckdb.connect().con
    connection.register("items", frame)
    connection.execute(f"create table loaded as select * from read_parquet('{path}')")
    given = {"group": "where", "columns": ["id"]}
    text = soc.posterior_sql(fit, "items", prior="loaded", **given)
    assert len(text) < 50_000
    monkeypatch.setattr(sql, "_MOST_TEXT", 100_000)
    with pytest.raises(soc.FitError, match=r"characters, more than.*export_prior.*as prior="):
        soc.posterior_sql(fit, "items", **given)
    made = connection.execute(text).df().sort_values("id", ignore_index=True)
    new = found.filter(like="theta_").columns
    assert made[new].iloc[3].isna().all()
    rest = [k for k in range(200) if k != 3]
    np.testing.assert_allclose(made.loc[rest, new], found.loc[rest, new], rtol=1e-7)


@pytest.mark.slow
def test_crossed_groups(fit_of):
    fit, items = fit_of("Normal", "groups")
    frame = items.source.assign(other=np.where(np.arange(len(items.source)) % 2, "x", "y"))
    roles = {"score": "t", "value": "y", "noise_sd": "n", "group": ("group", "other")}
    stats = soc.summarize(soc.NormalItems(frame, **roles), bins=20, progress=False)
    fit = soc.fit(stats, progress=False)
    frame = frame.head(200).assign(id=np.arange(200))
    found = _score(fit, ibis.memtable(frame), soc.NormalItems, roles)
    _compare(found, _exact(fit, frame, soc.NormalItems, roles))


# --- successes in trials -------------------------------------------------------------------------

TRIALS = {"score": "t", "successes": "y", "trials": "n"}
BAD_TRIALS = [
    (None, 1, 9.0), (np.inf, 1, 9.0), (0.0, 1, 9.0), (1.0, 1, 9.0), (-0.1, 1, 9.0),
    (0.1, None, 9.0), (0.1, -1, 9.0), (0.1, 1.5, 9.0), (0.1, 1, None), (0.1, 1, -9.0),
    (0.1, 1, 9.5), (0.1, 10, 9.0), (0.1, 1, 0.0), (0.1, np.nan, 9.0), (0.1, 1, np.inf),
]  # fmt: skip


@pytest.mark.parametrize("scale", thinned(["logit", "linear", "rank"], ["logit"]))
def test_trials_agree_with_all_draws(scale):
    rng = np.random.default_rng(0)
    score = rng.beta(2.0, 5.0, 6000).clip(0.005, 0.995)
    trials = np.round(np.exp(rng.uniform(0.0, np.log(300.0), 6000)))
    hits = rng.binomial(trials.astype(int), rng.beta(20.0 * score, 20.0 * (1.0 - score)))
    frame = pd.DataFrame({"id": np.arange(6000), "t": score, "y": hits, "n": trials})
    stats = soc.summarize(soc.BinomialItems(frame, **TRIALS), progress=False)
    curve = soc.Spline(scale=scale)
    fit = soc.fit(stats, soc.Beta(mean=curve, variance=curve), progress=False)
    few = frame.head(1500)
    found = _score(fit, ibis.memtable(few), soc.BinomialItems, TRIALS)
    exact = _exact(fit, few, soc.BinomialItems, TRIALS)
    assert (np.abs(found["theta_mean"] - exact["theta_mean"]) / exact["theta_sd"]).max() < 1e-4
    assert np.abs(found["theta_sd"] / exact["theta_sd"] - 1).max() < 1e-3


def test_bad_trials_are_null(fit_of):
    fit, _ = fit_of("Beta", "plain")
    good = [(0.1, 0.0, 0.0), (0.999, 9.0, 9.0), (1e-9, 0.0, 2.0**40)]
    table = pd.DataFrame([*good, *BAD_TRIALS], columns=list("tyn"), dtype=float)
    table["id"] = range(len(table))
    found = _score(fit, ibis.memtable(table), soc.BinomialItems, TRIALS)
    assert np.isfinite(found[NEW[:3]].iloc[: len(good)].to_numpy(dtype=float)).all()
    assert found[NEW].iloc[len(good) :].isna().all(axis=None)


def test_names_of_other_kinds_and_the_command(fit_of, tmp_path, capsys):
    fit, _ = fit_of("Beta", "plain")
    with pytest.raises(
        soc.ItemsError, match=r"count= is not a column of .* successes= and trials="
    ):
        soc.posterior_sql(fit, "items", count="wins")
    fit.save(tmp_path / "fit.nc")
    words = ["sql", str(tmp_path / "fit.nc"), "--table", "games", "--successes", "wins"]
    assert main([*words, "--prior", "loaded"]) == 0
    text = soc.posterior_sql(fit, "games", successes="wins", prior="loaded")
    assert capsys.readouterr().out == text + "\n"
