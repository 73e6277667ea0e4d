"""Reading of items: only columns with a role, each file a few times, few threads."""

import os
import sys
import threading
import time
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import soc_pymc as soc
from soc_pymc._lib.work import THREADS
from soc_pymc.data.sources import connect
from tests.examples import COUNT_ROLES, QUIET, thinned

TASKS = "/proc/self/task"  # has an entry for each thread of the process


def mixed(number):
    """Returns values that no engine can read as one column."""
    return [(1, "a", None)[row % 3] for row in range(number)]


def pandas_table(frame):
    """Returns a table with mixed objects, names that differ in case only, and a repeated name."""
    odd = {"Id": 1, "ID": "b", "odd": mixed(len(frame)), "Score": None}
    table = frame.assign(**odd)
    table[7] = table[8] = 0.5
    return table.rename(columns={8: 7})


def polars_table(frame):
    odd = pl.Series("odd", mixed(len(frame)), dtype=pl.Object)
    twins = pl.DataFrame({"Id": range(len(frame)), "ID": range(len(frame))})
    return pl.from_pandas(frame).with_columns(odd, *twins)


def arrow_table(frame):
    """Returns a table with decimals that DuckDB lacks, a repeated name, and metadata."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    wide = pa.array([1] * len(frame)).cast(pa.decimal256(60, 2))
    for name in ("Id", "ID", "ID"):
        table = table.append_column(name, wide)
    return table.replace_schema_metadata({"source": "here"})


TABLES = {"pandas": pandas_table, "polars": polars_table, "arrow": arrow_table}


def first_columns(table, number):
    """Returns the first columns of a table of any kind."""
    if isinstance(table, pd.DataFrame):
        return table.iloc[:, :number]
    return table.select(
        list(range(number)) if isinstance(table, pa.Table) else pl.nth(*range(number))
    )


@pytest.mark.parametrize("kind", TABLES)
def test_columns_without_a_role_come_back_unchanged(kind, small_fit, small_frame):
    frame = small_frame[:60][list(COUNT_ROLES)].set_index(np.arange(60)[::-1])
    expected = soc.item_posteriors(small_fit, soc.PoissonItems(frame, **COUNT_ROLES), **QUIET)
    source = TABLES[kind](frame)
    scored = soc.item_posteriors(small_fit, soc.PoissonItems(source, **COUNT_ROLES), **QUIET)
    assert type(scored) is type(source)
    added = [name for name in expected.columns if name not in COUNT_ROLES]
    assert list(getattr(scored, "column_names", scored.columns))[-len(added) :] == added
    before = first_columns(scored, source.shape[1])
    if kind == "polars":
        assert before.drop("odd").equals(source.drop("odd"))
        assert before["odd"].to_list() == source["odd"].to_list()
    else:
        assert before.equals(source)
    if kind == "arrow":
        assert scored.schema.metadata == source.schema.metadata
    for name in added:
        np.testing.assert_array_equal(scored[name].to_numpy(), expected[name].to_numpy())


@pytest.mark.parametrize("kind", thinned(TABLES, ["polars"]))
def test_no_verb_reads_columns_without_a_role(kind, small_fit, small_frame):
    frame = small_frame[:400][list(COUNT_ROLES)]
    source = TABLES[kind](frame)
    tame, items = (soc.PoissonItems(table, **COUNT_ROLES) for table in (frame, source))
    stats, expected = (soc.summarize(each, bins=20, **QUIET) for each in (items, tame))
    assert stats.data.identical(expected.data)
    results = [soc.check(small_fit, each, **QUIET).table for each in (items, tame)]
    pd.testing.assert_frame_equal(*results)
    soc.evaluate.leakage(items, fresh=items)
    pairs = {"one": (small_fit, items), "other": (small_fit, items)}
    soc.quantities.compare_scores(pairs, **QUIET)


def renamed_answers(groups, names):
    """Returns numbers of many verbs for items whose columns have these names.

    They are those of score, count, exposure, group, id, and labels to slice on.
    """
    score, count, exposure, group, number, label = names
    frame = groups.frame.assign(number=np.arange(len(groups.frame)))
    frame["label"] = np.array(["l", "m", "n"])[frame["number"] % 3]
    frame = frame[["score", "count", "exposure", "kind", "number", "label"]].set_axis(names, axis=1)
    columns = {"score": score, "count": count, "exposure": exposure, "group": group}
    items = soc.PoissonItems(frame, **columns, id=number)
    stats = soc.summarize(items, bins=15, **QUIET)
    fit = replace(groups.fit, data=groups.fit.data.copy())
    fit.data.attrs["roles"] = stats.data.attrs["roles"]
    effects = soc.quantities.group_effects(fit, stats)
    total = soc.decisions.total(fit, items, by=label, weights=exposure, **QUIET)
    theta = soc.decisions.thompson_draws(fit, items, 2, **QUIET)
    return {
        "statistics": stats.table("part")["n"],
        "posteriors": soc.item_posteriors(fit, items, **QUIET)["theta_mean"],
        "effects": effects.table["value"],
        "draws": effects.data[f"effect_of_{group}"].to_numpy(),
        "check": soc.check(fit, items, by=label, subset=50, **QUIET).table["value"],
        "total": total,
        "theta": theta.sel(item=7),
        "above": soc.decisions.probability_above(fit, items, 0.05, **QUIET),
        "shrinkage": soc.quantities.shrinkage(fit, items, bins=3, **QUIET).table["value"],
    }


NAMES = {
    "dims": "chain mean_knot bound draw item bin",
    "roles": "count exposure score level group_1 group",
    "tables": "value n p slice rows_of_id where",
}


@pytest.mark.parametrize("kind", thinned(NAMES, ["roles"]))
def test_columns_may_have_names_that_results_have(kind, example):
    """Names of dims, of roles and of a table's columns change no number."""
    groups = example("groups")
    expected = renamed_answers(groups, ["t", "clicks", "views", "kind", "key", "site"])
    for verb, values in renamed_answers(groups, NAMES[kind].split()).items():
        np.testing.assert_array_equal(values, expected[verb], err_msg=verb)


def test_a_new_column_must_not_be_there(small_fit, small_frame):
    items = soc.PoissonItems(small_frame.assign(theta_sd=mixed(len(small_frame))), **COUNT_ROLES)
    with pytest.raises(soc.ItemsError, match="already has the columns 'theta_sd'"):
        soc.item_posteriors(small_fit, items, **QUIET)


LISTINGS = ("os.listdir", "os.scandir", "glob.glob", "glob.glob/2", "pathlib.Path.glob")
_counted = []  # folder and counts in use; an audit hook stays for ever


def _count(event, arguments):
    if _counted and event in LISTINGS and _counted[-1][0] in str(arguments[0]):
        _counted[-1][1]["listings"] += 1


@pytest.fixture(scope="module")
def hook():
    sys.addaudithook(_count)


def listings_of(folder, task):
    """Returns how often folders inside a folder are listed."""
    counts = {"listings": 0}
    _counted.append((str(folder), counts))
    try:
        task()
    finally:
        _counted.pop()
    return counts["listings"]


def verbs(fit, items, out):
    """Returns the verbs that read files."""
    return {
        "to a folder": lambda: soc.item_posteriors(fit, items, out=f"{out}/", **QUIET),
        "to a folder again": lambda: soc.item_posteriors(fit, items, out=f"{out}/", **QUIET),
        "to a file": lambda: soc.item_posteriors(fit, items, out=f"{out}.parquet", **QUIET),
        "to a table": lambda: soc.item_posteriors(fit, items, **QUIET),
        "summarize": lambda: soc.summarize(items, bins=5, on_leakage="ignore", **QUIET),
        "check": lambda: soc.check(fit, items, **QUIET),
    }


def test_work_is_linear_in_the_number_of_files(hook, example, small_frame, tmp_path):
    """Twice as many files list no folder more often."""
    fit, work = example("five_steps").fit, {}
    for number in (4, 8):
        folder = tmp_path / str(number)
        folder.mkdir()
        for file in range(number):
            part = small_frame[list(COUNT_ROLES)][40 * file : 40 * (file + 1)]
            part.to_parquet(folder / f"{file}.parquet", index=False)
        items = soc.PoissonItems(f"{folder}/*.parquet", **COUNT_ROLES)
        tasks = verbs(fit, items, tmp_path / f"scored{number}")
        work[number] = {name: listings_of(tmp_path, task) for name, task in tasks.items()}
    assert work[4] == work[8]
    assert min(work[4].values()) > 0


def most_threads(task):
    """Returns by how many the threads of this process grow while a task runs."""
    before, most, stop = len(os.listdir(TASKS)), [0], threading.Event()

    def watch():
        while not stop.is_set():
            most[0] = max(most[0], len(os.listdir(TASKS)))
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        task()
    finally:
        stop.set()
        watcher.join()
    return most[0] - before - 1


needs_proc = pytest.mark.skipif(not os.path.isdir(TASKS), reason="threads are counted on Linux")


@needs_proc
def test_cursors_share_the_threads_of_one_database(monkeypatch):
    """Eight queries at once have their own 8 threads and DuckDB's 7, not 8 times 7."""
    monkeypatch.setenv(THREADS, "8")
    connect().con.execute("SELECT 1")
    start = threading.Barrier(8)

    def query():
        start.wait()
        connect().con.execute("SELECT sum(hash(range) % 7) FROM range(2000000)").fetchall()

    def queries():
        running = [threading.Thread(target=query) for _ in range(8)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    assert 4 < most_threads(queries) <= 8 + 7


@needs_proc
def test_files_scored_at_once_do_not_multiply_threads(example, small_frame, tmp_path, monkeypatch):
    """One thread for each of six files and DuckDB's five; batches of a file start no more."""
    monkeypatch.setenv(THREADS, "6")
    monkeypatch.setattr("soc_pymc.posterior.scoring._BATCH_OF_FEW", 100)
    for file in range(12):
        small_frame[list(COUNT_ROLES)][:1500].to_parquet(tmp_path / f"{file}.parquet", index=False)
    items = soc.PoissonItems(f"{tmp_path}/*.parquet", **COUNT_ROLES)

    def task():
        soc.item_posteriors(example("five_steps").fit, items, out=f"{tmp_path}/scored/", **QUIET)

    arrow = pa.cpu_count() + pa.io_thread_count()
    assert most_threads(task) <= 6 + 5 + arrow


def decimals(kind, width):
    """Returns a function that makes a column of an Arrow table one of decimals."""

    def cast(frame):
        table = pa.Table.from_pandas(frame, preserve_index=False)
        counts = pa.array([Decimal(int(count)) for count in frame["count"]], kind(width, 0))
        return table.set_column(1, "count", counts)

    return cast


COUNTS = {
    "pandas, sparse": lambda frame: frame.assign(count=pd.arrays.SparseArray(frame["count"])),
    "Polars, 128 bits": lambda frame: pl.from_pandas(frame).cast({"count": pl.Int128}),
    "Arrow, decimal32": decimals(pa.decimal32, 9),
    "Arrow, decimal64": decimals(pa.decimal64, 18),
    "Arrow, decimal256": decimals(pa.decimal256, 60),
}


@pytest.mark.parametrize("kind", COUNTS)
def test_counts_of_rare_types_are_read(kind, small_fit):
    """The same statistics and posteriors as of 64-bit integers."""
    frame = soc.simulation.s1(500, seed=4)[["score", "count", "exposure"]]
    plain, other = (
        soc.PoissonItems(table, **COUNT_ROLES) for table in (frame, COUNTS[kind](frame))
    )
    assert soc.summarize(other, **QUIET).data.equals(soc.summarize(plain, **QUIET).data)
    scored = [soc.item_posteriors(small_fit, items, **QUIET) for items in (plain, other)]
    means = [np.asarray(table["theta_mean"]) for table in scored]
    np.testing.assert_array_equal(*means)


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["a", "b", "c"])])
def test_groups_of_polars_categories_are_read(kind, example):
    """The same statistics and posteriors as of text, and the categories come back."""
    groups = example("groups")
    text = pl.from_pandas(groups.frame)
    tables = text, text.cast({"kind": kind})
    items = [replace(groups.items, source=table) for table in tables]
    plain, other = (soc.summarize(each, bins=15, **QUIET).data for each in items)
    assert other.equals(plain)
    plain, other = (soc.item_posteriors(groups.fit, each, **QUIET) for each in items)
    assert other["theta_mean"].equals(plain["theta_mean"])
    assert other["kind"].dtype == kind


def test_half_floats_are_read():
    frame = soc.simulation.s1(500, seed=4)[["score", "count", "exposure"]]
    score = frame["score"].to_numpy().astype(np.float16)
    exact = soc.PoissonItems(frame.assign(score=score.astype(float)), **COUNT_ROLES)
    expected = soc.summarize(exact, **QUIET).data
    halves = frame.assign(score=score)
    for table in (halves, pl.from_pandas(halves), pa.Table.from_pandas(halves)):
        items = soc.PoissonItems(table, **COUNT_ROLES)
        assert soc.summarize(items, **QUIET).data.equals(expected)


def test_counts_beyond_64_bits_are_refused():
    frame = soc.simulation.s1(10, seed=4)
    large = pl.from_pandas(frame).with_columns(count=pl.lit(2**70, pl.Int128))
    with pytest.raises(soc.ItemsError, match=r"i128.*column 'count'"):
        soc.summarize(soc.PoissonItems(large, **COUNT_ROLES), **QUIET)
