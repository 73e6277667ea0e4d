"""Statistics and error texts of a table are equal on every engine, bit for bit."""

import contextlib
import decimal
import subprocess
import sys
from datetime import date

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import soc_pymc as soc
from soc_pymc._lib.errors import ItemsError
from soc_pymc.data.binning import block_of_labels, fold_of_id
from soc_pymc.data.tables.engines import on_engine
from soc_pymc.data.tables.sources import readable
from soc_pymc.front.cli import main
from tests.data.cell_references import count_cell, exposure_cell, fold_of_item
from tests.thinning import thinned

ROLES = {"score": "t", "count": "y", "exposure": "N"}
ENGINES = ("duckdb", "polars", "spark", "postgres")
N_SPARK = 5_000_000


@pytest.fixture
def put_on(request):
    """Put an Arrow table on an engine; returns its Ibis table on the user's connection."""
    with contextlib.ExitStack() as stack:

        def put(engine, table):
            return _PUT[engine](table, request, stack)

        yield put


def _put_duckdb(table, request, stack):
    connection = ibis.duckdb.connect()
    connection.con.register("items", table)
    return connection.table("items")


def _put_polars(table, request, stack):
    return ibis.polars.connect(tables={"items": pl.from_arrow(table)}).table("items")


def _put_spark(table, request, stack):
    session = request.getfixturevalue("spark")
    session.createDataFrame(table).createOrReplaceTempView("items")
    stack.callback(session.catalog.dropTempView, "items")
    return ibis.pyspark.connect(session).table("items")


_POSTGRES_TYPES = {
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.bool_(): "boolean",
    pa.date32(): "date",
}


def _put_postgres(table, request, stack):
    connection = ibis.postgres.connect(**request.getfixturevalue("postgres_server"))
    stack.callback(connection.disconnect)
    names = ", ".join(f'"{name}"' for name in table.column_names)
    columns = ", ".join(
        f'"{f.name}" ' + _POSTGRES_TYPES.get(f.type, str(f.type).replace("decimal128", "numeric"))
        for f in table.schema
    )
    with connection.con.cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE items ({columns})")
        with cursor.copy(f"COPY items ({names}) FROM STDIN") as copy:
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                copy.write_row(row)
    return connection.table("items")


_PUT = {
    "duckdb": _put_duckdb,
    "polars": _put_polars,
    "spark": _put_spark,
    "postgres": _put_postgres,
}


# ---------------------------------------------------------------- one table, every engine


def neighbours(numbers):
    """Numbers, with the next ones below and above."""
    x = np.asarray(numbers, dtype=float)
    return np.concatenate([np.nextafter(x, 0), x, np.nextafter(x, np.inf)])


def difficult(n=12_000, seed=0):
    """Items at the edges of cells, with ties, extreme scores and exposures, and N = 0."""
    rng = np.random.default_rng(seed)
    powers = neighbours(2.0 ** np.arange(-39, 10))
    score = np.concatenate(
        [powers, 10 ** rng.uniform(-12, 3, n // 2), rng.lognormal(-2, 1, n), np.full(n // 8, 0.125)]
    )
    steps = neighbours(2.0 ** rng.integers(-9, 29, n // 8) * (1 + rng.integers(0, 16, n // 8) / 16))
    exposure = 10 ** rng.uniform(-3, 9, len(score))
    exposure[rng.permutation(len(score))[: len(steps)]] = steps
    exposure[rng.permutation(len(score))[: n // 8]] = 1.0
    mean = np.minimum(score * exposure * rng.gamma(2, 0.5, len(score)), 1e6)
    count = np.minimum(rng.poisson(mean), 1_000_000)
    some = rng.permutation(len(score))
    count[some[:400]] = np.repeat([31, 32, 33, 47, 48, 2**19 - 1, 2**19, 999_999], 50)
    count[some[400:600]] = exposure[some[400:600]] = 0
    return pd.DataFrame({"t": score, "y": count, "N": exposure}).sample(frac=1, random_state=0)


def as_decimal(values, places):
    exact = [decimal.Decimal(repr(round(float(v), places))) for v in values]
    return pa.array(exact, pa.decimal128(18, places))


def typed(frame, kind):
    """The difficult items as an Arrow table with columns of another type."""
    if kind == "double":
        arrays = [frame["t"], frame["y"], frame["N"]]
    elif kind == "float":  # counts as floating point numbers
        arrays = [frame["t"], frame["y"].astype(float), frame["N"]]
    elif kind == "small":
        whole = np.ceil(frame["N"].clip(upper=2e9)).astype(np.int32)
        arrays = [frame["t"].astype(np.float32), frame["y"].astype(np.int32), whole]
    else:
        cents = frame["N"].clip(lower=0.01).where(frame["N"] > 0, 0.0)
        # scores of any sign, as most would be 0 in so few places
        arrays = [
            as_decimal(np.log(frame["t"]), 6),
            as_decimal(frame["y"], 0),
            as_decimal(cents, 3),
        ]
    arrays = [a if isinstance(a, pa.Array) else pa.array(a.to_numpy()) for a in arrays]
    rng = np.random.default_rng(1)
    n = len(frame)
    identity = rng.integers(-(2**40), 2**40, n)
    identity[:4] = [-(2**63), 2**63 - 1, -1, 0]
    return pa.table(
        {
            **dict(zip("tyN", arrays, strict=True)),
            "label": np.array(["Zürich", "a", "b", "", "A b"])[rng.integers(0, 5, n)],
            "size": pa.array(rng.integers(-1, 11, n), pa.int32()),
            "seen": rng.integers(0, 2, n).astype(bool),
            "id": identity,
            "fold": pa.array(rng.integers(0, 4, n), pa.int32()),
            "campaign": [f"Zürich {k}" for k in rng.integers(0, 300, n)],
        }
    )


FRAME = difficult()
CLOSE = np.unique(np.concatenate([neighbours([0.125, 1.0]), [1e-9, 0.01, 0.3]]))
MANY = np.unique(np.concatenate([np.nextafter(0.3, 1) + 2.0**-54 * np.arange(20), [-2.0, 5.0]]))
# columns of the items and options of summarize
TASKS = {
    "bins": ({"group": "label", "id": "id"}, {"bins": 40, "joint": True}),
    "exposure": ({"group": "size"}, {"bins": 25, "equal": "exposure", "folds": 7}),
    "count": ({"group": "seen", "fold": "fold"}, {"bins": 30, "equal": "count"}),
    "default": ({}, {}),
    "close": ({}, {"edges": CLOSE, "joint": 2000}),
    "many": ({"id": "id"}, {"edges": MANY, "folds": 3}),
    "none": ({}, {"edges": []}),
    "clusters": ({"group": "seen", "cluster": "campaign"}, {"bins": 25, "joint": "auto"}),
    "whole clusters": ({"cluster": "size", "id": "label"}, {"bins": 20, "folds": 6}),
}


def stats_of(source, columns=None, **options):
    items = soc.PoissonItems(source, **ROLES, **(columns or {}))
    options = {"joint": False, "on_leakage": "ignore", "progress": False} | options
    return soc.summarize(items, **options)


# ---------------------------------------------------------------- the same by pandas alone


def plain_terms(table):
    """Terms of all sums, by name, for every item."""
    t, y, x = (table[name].to_pandas().astype(float).to_numpy() for name in "tyN")
    log_t = np.log(np.where(t > 0, t, 1.0))
    powers = {f"sum_N{k}": x**k for k in (2, 3)} | {f"sum_y{k}": y**k for k in (2, 3)}
    mixed = {"sum_yN": y * x, "sum_yN2": y * x * x, "sum_yN3": y * x * x * x}
    return {
        "n": np.ones(len(t), dtype=np.int64),
        "sum_y": y.astype(np.int64),
        "sum_N": x,
        "sum_t": t,
        "sum_t2": t * t,
        "sum_log_t": log_t,
        "sum_log_t2": log_t**2,
        "sum_y_log_N": y * np.log(np.where(y > 0, x, 1.0)),
        "above": (y > x).astype(float),
        **powers,
        **mixed,
    }


def plain_keys(table, columns, options, stats):
    """Group, fold, bin and cells of every item."""
    t, y, x = (table[name].to_pandas().astype(float).to_numpy() for name in "tyN")
    group = np.zeros(len(t), dtype=np.int64)
    if "group" in columns:
        labels = [str(v).lower() if v in (True, False) else str(v)
                  for v in table[columns["group"]].to_pylist()]  # fmt: skip
        names, group = np.unique(np.array(labels, dtype=object), return_inverse=True)
        assert stats.groups == tuple(names)
    fold = np.zeros(len(t), dtype=np.int64)
    if "cluster" in columns:
        fold = block_of_labels([str(v) for v in table[columns["cluster"]].to_pylist()])
    elif "fold" in columns:
        fold = table[columns["fold"]].to_numpy()
    elif "id" in columns:
        fold = fold_of_id(table[columns["id"]].to_numpy(), options.get("folds", 10))
    elif "folds" in options:
        fold = fold_of_item(t, x, options["folds"])
    return {
        "group": group,
        "fold": fold,
        "bin": np.searchsorted(stats.edges, t, side="right"),
        "exposure_cell": exposure_cell(x),
        "count_cell": count_cell(y.astype(np.int64)),
    }


def assert_plain(stats, table, columns, options):
    """Every variable: keys and integers exactly, sums to 1e-12 of their absolute terms."""
    keys, terms = plain_keys(table, columns, options, stats), plain_terms(table)
    keys["coarse bin"] = keys["bin"] // max(int(stats.data.attrs["coarse"]), 1)
    part = {name: keys[name] for name in ("group", "fold", "bin")}
    by = {
        "bin": {"bin": keys["bin"]},
        "part": part,
        "exposure": part | {"cell": keys["exposure_cell"]},
        "count": part | {"cell": keys["count_cell"]},
        "joint": {
            "group": keys["group"],
            "bin": keys["coarse bin"],
            "exposure_cell": keys["exposure_cell"],
            "count_cell": keys["count_cell"],
        },
    }
    if "joint" not in options:
        assert stats.data.sizes.get("joint", 0) == 0
        del by["joint"]
    t = table["t"].to_pandas().astype(float).to_numpy()
    for dim, its in by.items():
        expected = plain_sums(terms, its, t)
        if dim == "bin":
            expected = expected.set_index("bin").reindex(range(stats.bins)).reset_index()
            sums = [name for name in expected if not name.startswith("score")]
            expected[sums] = expected[sums].fillna(0)
        names = [name for name in stats.data.data_vars if stats.data[name].dims == (dim,)]
        assert len(names) >= 4
        for name in names:
            wanted = name if dim == "bin" else name.removeprefix(f"{dim}_")
            assert_close(stats.data[name].to_numpy(), expected, wanted)


def plain_sums(terms, keys, t):
    sizes = {f"{name} size": np.abs(values) for name, values in terms.items()}
    grouped = pd.DataFrame({**terms, **sizes, "score": t}).groupby(list(keys.values()))
    # pandas sums with compensation, so these are right to the last bit or so
    sums = grouped.sum().drop(columns="score")
    sums["score_min"], sums["score_max"] = grouped["score"].min(), grouped["score"].max()
    return sums.rename_axis(list(keys)).reset_index()


def assert_close(found, expected, name):
    wanted = expected[name].to_numpy()
    if found.dtype.kind == "i" or name.startswith("score"):
        np.testing.assert_array_equal(found, wanted, err_msg=name)
        return
    known = np.full(len(found), True)
    if name.startswith("sum_log_t"):
        known = ~(expected["score_min"] <= 0).to_numpy()
        assert np.isnan(found[~known]).all()
    size = expected[f"{name} size"].to_numpy()
    assert (np.abs(found - wanted) <= 1e-12 * size)[known].all(), name


def assert_identical(one, other):
    """The same variables: integers, edges and extremes bit for bit, sums to 1e-12."""
    assert set(one.data.variables) == set(other.data.variables)
    assert one.data.sizes == other.data.sizes
    assert one.data.attrs == other.data.attrs
    for name, variable in one.data.variables.items():
        a, b = variable.to_numpy(), other.data[name].to_numpy()
        assert a.dtype == b.dtype
        if a.dtype.kind != "f" or name == "edges" or "score" in name:
            np.testing.assert_array_equal(a, b, err_msg=name)
        else:
            size = np.nanmax(np.abs(a), initial=0.0) if "log" in name else 0.0
            np.testing.assert_allclose(a, b, rtol=2e-12, atol=1e-13 * size, err_msg=name)


KINDS = ("double", "float", "small", "decimal")


# one type takes every task, the others the first
TYPED_TASKS = [(k, t) for k in KINDS for t in TASKS if k == "double" or t == "bins"]
# by default every task on one engine, and on the others what differs most
BY_DEFAULT = [("duckdb", *case) for case in TYPED_TASKS]
BY_DEFAULT += [("polars", "double", task) for task in ("bins", "exposure", "close", "clusters")]
BY_DEFAULT += [("postgres", kind, "bins") for kind in ("double", "small")]
BY_DEFAULT += [("postgres", "double", "clusters")]


@pytest.mark.parametrize(("kind", "task"), TYPED_TASKS)
def test_statistics_are_those_of_plain_pandas(kind, task):
    table, (columns, options) = typed(FRAME, kind), TASKS[task]
    assert_plain(stats_of(table.to_pandas(), columns, **options), table, columns, options)


@pytest.mark.parametrize(
    ("engine", "kind", "task"),
    thinned(
        [(engine, *case) for engine in ENGINES for case in TYPED_TASKS],
        BY_DEFAULT.__contains__,
    ),
)
def test_every_engine_gives_the_same_statistics(engine, kind, task, put_on):
    table, (columns, options) = typed(FRAME, kind), TASKS[task]
    there = stats_of(put_on(engine, table), columns, **options)
    assert_identical(stats_of(table.to_pandas(), columns, **options), there)
    assert_plain(there, table, columns, options)


# ---------------------------------------------------------------- Spark at size


@pytest.fixture(scope="module")
def five_million(tmp_path_factory):
    """A folder of Parquet files with five million items, and DuckDB's statistics of them."""
    folder = tmp_path_factory.mktemp("five_million")
    for part in range(4):
        frame = soc.simulation.s1(N_SPARK // 4, seed=part)[["score", "count", "exposure"]]
        frame.to_parquet(folder / f"part{part}.parquet")
    items = soc.PoissonItems(
        f"{folder}/*.parquet", score="score", count="count", exposure="exposure"
    )
    return folder, soc.summarize(items, bins=500, progress=False)


@pytest.mark.slow
def test_spark_on_five_million_rows_through_a_session(five_million, spark):
    folder, expected = five_million
    table = ibis.pyspark.connect(spark).read_parquet(str(folder))
    items = soc.PoissonItems(table, score="score", count="count", exposure="exposure")
    stats = soc.summarize(items, bins=500, progress=False)
    assert stats.n_items == N_SPARK
    assert_identical(expected, stats)


@pytest.mark.slow
def test_spark_on_five_million_rows_through_the_command_line(five_million, spark, tmp_path):
    folder, expected = five_million
    words = ["summarize", f"{folder}/*.parquet", "--score", "score", "--count", "count"]
    words += ["--exposure", "exposure", "--bins", "500", "--engine", "spark", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "stats.nc")]) == 0
    assert_identical(expected, soc.load_statistics(tmp_path / "stats.nc"))
    assert spark.sql("SELECT 1").count() == 1  # the session was the user's, and still runs


# ---------------------------------------------------------------- files on other engines


def words_for(source, out, engine):
    roles = ["--score", "t", "--count", "y", "--exposure", "N"]
    paths = source if isinstance(source, list) else [source]
    return ["summarize", *map(str, paths), *roles, "--engine", engine, "--quiet", "--out", str(out)]


def summarized(source, engine, tmp_path):
    out = tmp_path / f"{engine}.nc"
    assert main([*words_for(source, out, engine), "--bins", "20"]) == 0
    return soc.load_statistics(out)


def write_files(folder):
    """The same items as Parquet and as CSV, with columns and names that trouble engines."""
    frame = soc.simulation.s1(3000, seed=5)
    frame = frame.rename(columns={"score": "t", "count": "y", "exposure": "N"})[["t", "y", "N"]]
    frame["seen at"] = pd.Timestamp("2024-01-01").as_unit("ns")
    frame["a.`b"] = 'x, "y"'
    first, second = frame[:1000], frame[1000:].assign(y=frame["y"].astype(float))
    first.to_parquet(folder / "c[1]*.parquet")
    frame[1000:].to_parquet(folder / "d {2}%20.parquet")
    first.to_csv(folder / "c[1]*.csv.gz", index=False, sep=";")
    second.to_csv(folder / "d {2}.csv", index=False, sep=";")
    return {
        "parquet": [folder / "c[1]*.parquet", folder / "d {2}%20.parquet"],
        "csv": [folder / "c[1]*.csv.gz", folder / "d {2}.csv"],
    }


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("engine", ["polars", "spark"])
@pytest.mark.slow
def test_files_are_equal_on_every_engine(engine, form, tmp_path, request):
    if engine == "spark":
        request.getfixturevalue("spark")
    files = write_files(tmp_path)[form]
    expected = summarized(files, "duckdb", tmp_path)
    assert_identical(expected, summarized(files, engine, tmp_path))
    assert not [name for name in tmp_path.iterdir() if name.suffix == ".tmp"]


@pytest.mark.slow
def test_the_command_line_starts_its_own_session(spark, tmp_path):
    """In a separate process, because the tests' session is active in this one."""
    files = write_files(tmp_path)["parquet"]
    expected = summarized(files, "duckdb", tmp_path)
    command = [sys.executable, "-m", "soc_pymc"]
    command += [*words_for(files, tmp_path / "own.nc", "spark"), "--bins", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert_identical(expected, soc.load_statistics(tmp_path / "own.nc"))


@pytest.mark.parametrize("engine", ["duckdb", "polars", "spark"])
def test_files_are_checked_equally_for_every_engine(engine, tmp_path, capsys):
    """Before the engine starts, so that the texts are the same."""
    pytest.importorskip({"spark": "pyspark"}.get(engine, engine))
    good = pa.table({"t": [0.1, 0.2], "y": [1, 2], "N": [2.0, 3.0]})
    pq.write_table(good, tmp_path / "good.parquet")
    whole = (tmp_path / "good.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    pq.write_table(good.set_column(1, "y", pa.array([1.5, 2.0])), tmp_path / "half.parquet")
    pq.write_table(good.drop("y"), tmp_path / "less.parquet")
    good_file = f"{tmp_path}/good.parquet"
    for source, text in (
        (f"{tmp_path}/none*.parquet", f"{tmp_path}/none*.parquet: no file matches"),
        (f"{tmp_path}/none.parquet", f"{tmp_path}/none.parquet: there is no such file"),
        (f"{tmp_path}/cut.parquet", f"{tmp_path}/cut.parquet cannot be read as Parquet: "),
        (
            [good_file, f"{tmp_path}/half.parquet"],
            f"{tmp_path}/half.parquet holds column 'y' as double, but {good_file} as int64: "
            "write the files with one type",
        ),
        (
            [good_file, f"{tmp_path}/less.parquet"],
            f"{tmp_path}/less.parquet has no column 'y', but {good_file} has one",
        ),
    ):
        assert main(words_for(source, tmp_path / "s.nc", engine)) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"soc-pymc: error: {text}")
        assert error.count("\n") == 1
    assert not (tmp_path / "s.nc").exists()


@pytest.mark.parametrize("engine", ["duckdb", "polars", "spark"])
def test_a_damaged_page_is_one_clear_error(engine, tmp_path, request, capsys):
    if engine == "spark":
        request.getfixturevalue("spark")
    t = np.random.default_rng(0).uniform(size=5000)
    path = tmp_path / "page.parquet"
    pq.write_table(pa.table({"t": t, "y": [1] * 5000, "N": [2.0] * 5000}), path)
    data = bytearray(path.read_bytes())
    data[4:900] = b"\xff" * 896
    path.write_bytes(bytes(data))
    assert main(words_for(path, tmp_path / "s.nc", engine)) == 2
    error = capsys.readouterr().err
    assert error.startswith("soc-pymc: error: ")
    assert "cannot be read" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("engine", ["spark", "polars"])
def test_an_error_names_the_remedy_for_a_missing_engine(engine, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    package = {"spark": "pyspark", "polars": "polars"}[engine]
    assert main(words_for("x.parquet", "s.nc", engine)) == 2
    assert capsys.readouterr().err == (
        f"soc-pymc: error: engine '{engine}' needs {package}: pip install soc_pymc[{engine}]\n"
    )


def test_spark_would_skip_hidden_files(spark, tmp_path):
    pq.write_table(pa.table({"t": [0.1], "y": [1], "N": [2.0]}), tmp_path / "_part.parquet")
    with (
        pytest.raises(ItemsError, match=r"_part\.parquet: Spark skips files"),
        on_engine("spark", tmp_path / "_part.parquet", ["t"]),
    ):
        pass


# ---------------------------------------------------------------- the same errors everywhere

INF, NAN = float("inf"), float("nan")
GOOD = {"t": [0.1, 0.2, 0.3, 0.4, 0.5], "y": [0, 1, 2, 3, 4], "N": [1.0, 2.0, 3.0, 4.0, 5.0]}
BAD = {
    "null score": {"t": [0.1, None, None, 0.4, 0.5]},
    "NaN score": {"t": [0.1, NAN, 0.3, None, 0.5]},
    "infinite score": {"t": [0.1, INF, 0.3, -INF, 0.5]},
    "huge score": {"t": [0.1, 1e101, 0.3, -1e200, 0.5]},
    "null count": {"y": [0, None, 2, 3, 4]},
    "NaN count": {"y": [0.0, NAN, 2.0, None, 4.0]},
    "infinite count": {"y": [0.0, INF, 2.0, -INF, 4.0]},
    "negative count": {"y": [0, -1, -7, -5, -7]},
    "four negative counts": {"y": [-2, -1, -7, -5, -7]},
    "fractions": {"y": [0.5, 1.25, 2.0, 3.0, 4.0]},
    "decimal fractions": {"y": [decimal.Decimal(x) for x in ("0.5", "1.2", "2", "3", "4")]},
    "huge count": {"y": [0.0, 1e17, 2.0, 2.0**53, 1e300]},
    "huge whole count": {"y": [0, 2**53 + 1, 2**62, 3, 4]},
    "too many": {"t": [0.5] * 600, "y": [2**53 - 1] * 600, "N": [1.0] * 600},
    "null exposure": {"N": [1.0, None, 3.0, 4.0, 5.0]},
    "negative exposure": {"N": [-1.0, -0.5, 3.0, 4.0, 5.0]},
    "infinite exposure": {"N": [INF, NAN, 3.0, 4.0, 5.0]},
    "counts without exposure": {"N": [0.0, 0.0, 0.0, 4.0, -0.0]},
    "everything": {
        "t": [0.1, None, INF, 0.2, 1e101],
        "y": [-1.0, 2.5, 1.0, 2.0, 1e17],
        "N": [1.0, -2.0, NAN, 0.0, INF],
    },
    "wrong types": {
        "t": ["low", "high"] * 2 + ["?"],
        "y": [True, False, True, True, False],
        "N": [date(2020, 1, day) for day in range(1, 6)],
    },
    "missing columns": {"t": None, "N": None, "T": [0.1] * 5, "exposure": [1.0] * 5},
    "one score": {"t": [0.25] * 5},
    "no rows": {"t": [], "y": [], "N": []},
    "null group": {"group": ["a", None, "b", "", None]},
    "groups of fractions": {"group": [0.5, 1.0, 2.0, 2.0, 2.0]},
    "groups of days": {"group": [date(2020, 1, day) for day in range(1, 6)]},
    "null id": {"id": [1, None, -3, 4, 5]},
    "fractional ids": {"id": [0.5, 1.0, 2.0, 3.0, 4.0]},
    "null fold": {"fold": [0, None, 1, 1, 2]},
    "folds out of range": {"fold": [0, -1, 1000, 5000, 2]},
    "fractional folds": {"fold": [0.5, 1.0, NAN, INF, 4.0]},
}


def bad_table(name):
    columns = {k: v for k, v in {**GOOD, **BAD[name]}.items() if v is not None}
    kinds = {"t": pa.float64(), "y": pa.int64(), "N": pa.float64()}
    return pa.table({k: pa.array(v, None if v else kinds[k]) for k, v in columns.items()})


def error_of(source, name):
    columns = {role: role for role in ("group", "id", "fold") if role in BAD[name]}
    asked = {"folds": 3} if "id" in columns else {}  # else these would not be read
    with pytest.raises(ItemsError) as caught:
        stats_of(source, columns, **asked)
    return str(caught.value)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.slow
def test_tables_and_files_have_the_same_errors(name, tmp_path):
    table = bad_table(name)
    text = error_of(table, name)
    assert text
    assert error_of(table.to_pandas(types_mapper=pd.ArrowDtype), name) == text
    assert error_of(pl.from_arrow(table), name) == text
    pq.write_table(table, tmp_path / "items.parquet")
    in_file = error_of(tmp_path / "items.parquet", name)
    assert in_file.removeprefix(f"{tmp_path}/items.parquet: ") == text


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_has_the_same_errors(engine, put_on):
    different = {}
    for name in BAD:
        table = bad_table(name)
        found, expected = error_of(put_on(engine, table), name), error_of(table, name)
        if found != expected:
            different[name] = (found, expected)
    assert different == {}


def test_only_errors_of_engines_are_translated():
    def raising(error):
        with readable():
            raise error

    class Driver(Exception):
        pass

    DatabaseError = type("DatabaseError", (Driver,), {})
    lost = type("OperationalError", (DatabaseError,), {})("the server is gone\nand more")
    with pytest.raises(ItemsError, match=r"^the items cannot be read: the server is gone$"):
        raising(lost)
    with pytest.raises(ItemsError, match="page"):
        raising(pl.exceptions.ComputeError("page"))
    for error in (TypeError("mine"), KeyError("mine"), ValueError("mine")):
        with pytest.raises(type(error), match="mine"):
            raising(error)
    with pytest.raises(Exception, match="no such function"):
        raising(type("SyntaxError", (DatabaseError,), {})("no such function"))


def test_a_lost_connection_is_an_items_error(postgres_server):
    connection = ibis.postgres.connect(**postgres_server)
    connection.raw_sql("CREATE TEMPORARY TABLE mine (t float8, y int8, N float8)").close()
    table = connection.table("mine")
    other = ibis.postgres.connect(**postgres_server)
    pid = connection.con.info.backend_pid
    other.raw_sql(f"SELECT pg_terminate_backend({pid})").close()
    with pytest.raises(ItemsError, match="the items cannot be read"):
        stats_of(table.rename(N="n"))
    other.disconnect()


def test_a_view_that_fails_on_spark_is_an_items_error(spark):
    spark.sql(
        "SELECT 1D AS t, 1 AS y, cast(raise_error('broken') AS double) AS N"
    ).createOrReplaceTempView("failing")
    with pytest.raises(ItemsError, match=r"the items cannot be read: .*broken"):
        stats_of(ibis.pyspark.connect(spark).table("failing"))
    spark.catalog.dropTempView("failing")
