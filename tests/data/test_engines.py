"""Statistics and errors of a table are the same from every engine, as plain NumPy has them."""

import functools
import re
from datetime import date

import ibis
import numpy as np
import pyarrow as pa
import pytest

import soc_pymc as soc
from soc_pymc.data import local as local_passes
from soc_pymc.data import sources
from soc_pymc.data.sources import is_remote
from tests.data.cell_references import (
    assert_plain,
    assert_same,
    block_of_cluster,
    fold_of_id,
    fold_of_item,
)
from tests.examples import COUNT_ROLES, thinned
from tests.tables import (
    BACKENDS,
    HARD_COLUMNS,
    KINDS,
    ROLES,
    as_decimal,
    decoded,
    hard_table,
    neighbours,
    simulated,
    source_of,
)
from tests.tables import COLUMNS as FOUR_ITEMS

IN_PROCESS = ("duckdb", "polars", "datafusion")  # whose rows are summed as those in memory are
# edges next to each other, and twenty in a row that differ by the last bits
CLOSE = np.nextafter(0.3, 1) + 2.0**-54 * np.arange(20)
EDGES = np.unique(np.concatenate([neighbours([0.125, 1.0]), [-2.0, 1e-9, 5.0], CLOSE]))
AMOUNT = {"counts": "count", "values": "items", "successes": "successes", "amounts": "events"}
# further roles and options of summarize
TASKS = {
    "groups and ids": ({"group": "label", "id": "id"}, {"bins": 40, "joint": True}),
    "equal amounts": ({"group": "size"}, {"bins": 25, "equal": "amount", "folds": 7}),
    "folds": ({"group": "seen", "fold": "fold"}, {"bins": 30}),
    "defaults": ({}, {}),
    "edges": ({}, {"edges": EDGES, "joint": 8000}),
    "no edges": ({}, {"edges": []}),
    "clusters": ({"group": "seen", "cluster": "campaign"}, {"bins": 25, "joint": True}),
}
FORMS = [("counts", "small"), ("values", "decimal"), ("counts", "float"), ("values", "extreme")]
# every task once, each kind in most; and every form of numbers once
CASES = [(list(KINDS)[k % 3], "double", task) for k, task in enumerate(TASKS)]
CASES += [("amounts", "double", task) for task in ("groups and ids", "clusters")]
CASES += [(kind, form, "folds") for kind, form in FORMS]


def summarized(kind, source, task):
    """Returns the statistics of a source of hard items."""
    further, options = TASKS[task]
    options = {"joint": False} | options
    if options.get("equal") == "amount":
        options["equal"] = AMOUNT[kind]
    make, roles = KINDS[kind]
    items = make(source, **roles, **further)
    return soc.summarize(items, on_leakage="ignore", progress=False, **options)


@functools.cache
def local(kind, form, task):
    """Returns the table, and its statistics in memory."""
    table = hard_table(kind, form)
    return table, summarized(kind, table.to_pandas(), task)


def assert_as_plain(stats, table, kind, task):
    """Checks statistics against plain sums of the table's items, with its groups and folds."""
    further, options = TASKS[task]
    columns = [table[name].to_pandas().astype(float).to_numpy() for name in HARD_COLUMNS[kind]]
    group = fold = None
    if "group" in further:
        values = table[further["group"]].to_pylist()
        labels = [str(v).lower() if isinstance(v, bool) else str(v) for v in values]
        names, group = np.unique(np.array(labels, dtype=object), return_inverse=True)
        assert stats.groups == tuple(names)
    if "cluster" in further:
        fold = block_of_cluster(table[further["cluster"]].to_pylist())
    elif "fold" in further:
        fold = table[further["fold"]].to_numpy()
    elif "id" in further:
        fold = fold_of_id(table[further["id"]].to_numpy(), 10)
    elif "folds" in options:
        fold = fold_of_item(columns[0], columns[2], options["folds"])
    assert_plain(stats, *columns, group, fold)


FIRST = ("double", "groups and ids")
ON_ENGINES = [(engine, *case) for engine in ("remote", "duckdb") for case in CASES]
ON_ENGINES += [(engine, kind, *FIRST) for engine in ("polars", "postgres") for kind in KINDS]
ON_ENGINES += [("spark", kind, *FIRST) for kind in ("counts", "amounts")]
ON_ENGINES += [(engine, *case) for engine in ("clickhouse", "datafusion") for case in CASES]
QUICK = [(engine, "counts", *FIRST) for engine in ("remote", "duckdb", "polars")]
QUICK += [("remote", *case) for case in CASES[-1:]]


@pytest.mark.parametrize(("kind", "form", "task"), CASES)
def test_statistics_in_memory_are_those_of_plain_numpy(kind, form, task):
    table, stats = local(kind, form, task)
    assert_as_plain(stats, table, kind, task)


@pytest.mark.parametrize(("engine", "kind", "form", "task"), thinned(ON_ENGINES, QUICK))
def test_every_engine_gives_the_same_statistics(engine, kind, form, task, put_on):
    table, stats = local(kind, form, task)
    found = summarized(kind, put_on(engine, table), task)
    np.testing.assert_array_equal(found.edges, stats.edges)
    assert found.data.attrs == stats.data.attrs
    assert_as_plain(found, table, kind, task)
    if engine in IN_PROCESS:  # in real numbers too
        assert found.data.identical(stats.data)


@pytest.mark.parametrize(
    "engine",
    thinned(
        ["duckdb", "polars", "datafusion", "remote", "postgres", "clickhouse"], ["duckdb", "remote"]
    ),
)
def test_rows_leave_only_engines_of_this_process(engine, put_on):
    assert is_remote(put_on(engine, pa.table(FOUR_ITEMS))) == (engine not in IN_PROCESS)


@pytest.mark.parametrize("engine", thinned(["remote", "postgres", "clickhouse"], ["remote"]))
def test_nothing_is_left_on_an_engine(engine, example, put_on):
    """Ibis keeps its temporary tables, of edges and labels, until the process ends."""
    case, fit = example("gamma").case, example("gamma").fit
    frame = case.frame().head(300)
    frame = frame.assign(campaign=(frame.index % 40).astype(str), id=frame.index)
    table = put_on(engine, pa.Table.from_pandas(frame, preserve_index=False))
    before = table.get_backend().list_tables()
    soc.summarize(soc.PoissonItems(table, **COUNT_ROLES, cluster="campaign"), progress=False)
    soc.item_posteriors(fit, case.items(table), progress=False)
    assert table.get_backend().list_tables() == before


@pytest.mark.parametrize("engine", ["duckdb", "remote"])
def test_expressions_are_summed_as_their_rows_are(engine, put_on):
    """A join with labels in memory, a filter and a calculated score."""
    table = put_on(engine, hard_table("counts"))
    names = ibis.memtable({"fold": range(3), "country": ["no", "se", "dk"]})
    joined = table.filter(table.N > 0).inner_join(names, "fold")
    ads = joined.mutate(t=joined.t * 2.0, fold=joined.fold % 2)
    options = {"edges": EDGES, "joint": True, "on_leakage": "ignore", "progress": False}
    roles = ROLES | {"group": "country", "fold": "fold"}
    found, expected = (
        soc.summarize(soc.PoissonItems(rows, **roles), **options) for rows in (ads, ads.to_pandas())
    )
    assert_same(found, expected)


@pytest.mark.parametrize("form", thinned(["parquet", "csv"], ["parquet"]))
@pytest.mark.parametrize(("kind", "task"), [("counts", "clusters"), ("values", "folds")])
def test_large_files_are_read_in_passes(kind, task, form, tmp_path, monkeypatch):
    """Small ones are held in memory; rows and statistics are the same, also without a score."""
    path, results = source_of(form, hard_table(kind), tmp_path), []
    items_of, roles = KINDS[kind]
    alone = items_of(path, **roles | {"score": None})
    for most in (sources._MOST_HELD, 0):
        monkeypatch.setattr(sources, "_MOST_HELD", most)
        rows = sources.opened(path, [roles["score"], "label"])
        table = pa.Table.from_batches(sources.batches(rows, rows.columns, 700))
        assert sources.count_of(rows) == table.num_rows
        statistics = [summarized(kind, path, task), soc.summarize(alone, folds=0, progress=False)]
        results.append([table, rows.to_pyarrow(), *(stats.data for stats in statistics)])
    for held, read in zip(*results, strict=True):
        assert held.equals(read)


def test_a_query_that_ends_a_pass_is_told(put_on, monkeypatch):
    """Another query on a connection of DuckDB ends its streams early, without an error."""
    frame = simulated("counts", n=50_000)
    table = put_on("duckdb", pa.table(frame))
    in_order = local_passes.in_order

    def disturbed(*arguments):
        table.get_backend().raw_sql("SELECT 1")
        return in_order(*arguments)

    monkeypatch.setenv("SOC_PYMC_THREADS", "1")
    monkeypatch.setattr(local_passes, "_BLOCK", 4096)
    monkeypatch.setattr(local_passes, "in_order", disturbed)
    with pytest.raises(soc.ItemsError, match="changed while"):
        soc.summarize(soc.PoissonItems(table, **ROLES), edges=[0.1], progress=False)


NAN, INF = float("nan"), float("inf")
BAD = {
    "numbers": {"t": [0.1, None, INF, 1e101], "y": [-1, 2.5, 1e17, 1.0], "N": [1, -2.0, NAN, 0]},
    "noise": {"v": [NAN, 1e300, 2.0, INF], "s": [1.0, -2.0, 0.0, 1e99]},
    "types": {"t": ["low"] * 4, "y": [True, False] * 2, "N": [date(2020, 1, 1)] * 4},
    "folds": {"fold": [0, -1, 1000, 5000], "label": ["a", None, "b", ""]},
}


def error_of(name, source):
    """Returns the text of the error for a bad table."""
    make, roles = KINDS["values" if name == "noise" else "counts"]
    further = {"fold": "fold", "group": "label"} if name == "folds" else {}
    with pytest.raises(soc.ItemsError) as caught:
        soc.summarize(make(source, **roles, **further), progress=False)
    return str(caught.value)


@pytest.mark.parametrize(
    ("engine", "name"),
    thinned(
        [(engine, name) for engine in ("remote", "duckdb") for name in BAD]
        + [(engine, "numbers") for engine in ("polars", "postgres", "clickhouse", "datafusion")],
        [("remote", "numbers"), ("duckdb", "numbers")],
    ),
)
def test_every_engine_has_the_same_errors(engine, name, put_on):
    """All faults are in one error, whose numbers and examples do not depend on the engine."""
    table = pa.table(FOUR_ITEMS | BAD[name])
    expected = error_of(name, table)
    assert expected.count("\n") >= 1
    assert error_of(name, put_on(engine, table)) == expected


SIX = {"t": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "y": [0, 1, 2, 1, 0, 3], "N": [2.0] * 6}
SIX |= {"v": [0.1, -0.3, 0.2, 0.6, 0.4, 0.5], "s": [0.5, 0.5, 0.25, 1.0, 0.5, 0.5]}
END = 2**64 - np.arange(1, 7, dtype=object)
FINE = pa.decimal128(38, 18)
LABELS = pa.DictionaryArray.from_arrays([0, 1, 0, 2, 0, 2], ["a", None, "b"])
# kinds of items, and columns that some engine sees otherwise
HOSTILE = {
    "zeros of both signs": (
        "values",
        {"v": [-0.0, 0.0] * 3, "t": [0.0, -0.0, 0.0, 1.0, -0.0, 2.0]},
    ),
    "atoms of both signs": ("successes", {"t": [0.0, -0.0] * 3, "N": [4.0] * 6}),
    "a population at zeros": ("values", {"t": [*[0.0, -0.0] * 40, *np.linspace(-3.0, 3.0, 600)]}),
    "subnormal scores": ("counts", {"t": [5e-324, 1e-310, 2.0**-1022, 1e-300, 0.1, 0.2]}),
    "subnormal sizes": ("counts", {"N": [5e-324, 1e-310, 2.0**-1022, 1.0, 2.0, 3.0]}),
    "subnormal values": ("values", {"v": [5e-324, -5e-324, 1e-310, -1e-160, 1e-160, 1.0]}),
    "subnormal counts": ("counts", {"y": [5e-324, 1.0, 2.0, 1.0, 0.0, 3.0]}),
    "nothing seen": ("counts", {"y": [0] * 6, "N": [0.0, 1.0] * 3}),
    "NaN scores": ("counts", {"t": [NAN, 0.2, 0.3, 0.4, 0.5, 0.6]}),
    "NaN counts": ("counts", {"y": [NAN, 1.0, 2.0, 1.0, 0.0, 3.0]}),
    "NaN noise": ("values", {"s": [NAN, 0.2, 0.3, 0.4, 0.5, 0.6]}),
    "fine decimals": (
        "values",
        {"v": as_decimal(SIX["v"], 18, FINE), "s": as_decimal([1e-9] * 6, 18, FINE)},
    ),
    "decimal counts": ("counts", {"y": as_decimal(SIX["y"], 0, pa.decimal128(38, 0))}),
    "32-bit sums": ("counts", {"y": np.full(6, 2**31 - 1, dtype=np.int32)}),
    "64-bit sums": ("counts", {"y": np.full(6, 2**53 - 1), "N": [1e15] * 6}),
    "counts beyond a float": ("counts", {"y": np.full(6, 2**62)}),
    "unsigned ids": ("counts", {"id": pa.array(END, pa.uint64())}),
    "unsigned counts": ("counts", {"y": pa.array(END, pa.uint64())}),
    "labels of null": ("counts", {"label": LABELS}),
}
UNSIGNED = ("duckdb", "remote", "parquet", "polars", "datafusion", "clickhouse")


def end_of(kind, source, columns):
    """Returns the statistics of a source, or the text of its error."""
    make, roles = KINDS[kind]
    names = {"group": "label", "id": "id"}
    further = {role: name for role, name in names.items() if name in columns}
    try:
        return soc.summarize(make(source, **roles, **further), on_leakage="ignore", progress=False)
    except soc.ItemsError as error:
        return str(error)


@pytest.mark.parametrize(
    ("engine", "name"),
    thinned(
        [(engine, name) for engine in (*UNSIGNED, "postgres", "spark") for name in HOSTILE],
        [("remote", name) for name in HOSTILE],
    ),
)
def test_hostile_items_end_in_the_same_integers_or_refusal(engine, name, put_on, tmp_path):
    """On Parquet files DuckDB filters by their statistics, which leave NaN out."""
    kind, columns = HOSTILE[name]
    rows = len(next(iter(columns.values())))
    table = pa.table({column: np.resize(x, rows) for column, x in SIX.items()} | columns)
    if engine not in UNSIGNED and "unsigned" in name:
        pytest.skip("PostgreSQL and Spark have no unsigned whole numbers")
    if engine == "parquet":
        path = source_of("parquet", decoded(table), tmp_path)
        source = put_on("remote", table).get_backend().read_parquet(path)
    else:
        source = put_on(engine, table)
    expected, found = (end_of(kind, rows, columns) for rows in (table, source))
    if isinstance(expected, str):
        assert found == expected
    else:
        np.testing.assert_array_equal(found.edges, expected.edges)
        assert_same(found, expected)


OFF = 3e-10 * np.array([1, -1, 1, -1])


@pytest.mark.parametrize("kind", ["counts", "successes"])
@pytest.mark.parametrize("engine", thinned([*BACKENDS, "remote", "engine postgres"], ["pandas"]))
def test_numbers_beside_a_whole_number_are_that_number(engine, kind, put_on, tmp_path):
    make, roles = KINDS[kind]

    def total(**columns):
        table = pa.table(FOUR_ITEMS | {"y": [0.0, 1.0, 2.0, 1.0]} | columns)
        within = engine.removeprefix("engine ")
        source = source_of(engine, table, tmp_path) if within == engine else put_on(within, table)
        stats = soc.summarize(make(source, **roles), edges=[0.25], progress=False)
        return stats.table("part")

    beside = {"y": np.array([0, 1, 2, 1]) + OFF}
    beside |= {"N": np.arange(1, 5) + OFF} if kind == "successes" else {}
    for name, column in total().items():
        np.testing.assert_array_equal(total(**beside)[name], column)
    with pytest.raises(soc.ItemsError, match=re.escape("not whole (2.000000002)")):
        total(y=[0, 1, 2 + 2e-9, 1])
    # whole numbers of 64 bits, read as floats
    with pytest.raises(soc.ItemsError, match=r"2 of 4 rows are not whole \(5e-324, 1e-323"):
        total(y=[0, 1.0, *np.array([1, 2]).view(float)])


@pytest.mark.slow
def test_a_lost_connection_is_an_items_error(postgres_server):
    connection = ibis.postgres.connect(**postgres_server)
    connection.raw_sql('CREATE TEMPORARY TABLE mine (t float8, y int8, "N" float8)').close()
    items = soc.PoissonItems(connection.table("mine"), **ROLES)
    other = ibis.postgres.connect(**postgres_server)
    other.raw_sql(f"SELECT pg_terminate_backend({connection.con.info.backend_pid})").close()
    with pytest.raises(soc.ItemsError, match="cannot be read"):
        soc.summarize(items, progress=False)
    other.disconnect()
