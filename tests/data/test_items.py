"""Items: what is named when they are made, every kind of file, and the folds of their ids."""

import time

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import soc_pymc as soc
from soc_pymc.data import engines, sources
from tests.data.cell_references import fold_of_id
from tests.examples import AMOUNT_ROLES, amount_frame, thinned
from tests.tables import BACKENDS, KINDS, ROLES, remote, source_of

MOMENTS = ["theta_mean", "theta_sd"]
QUIET = {"on_leakage": "ignore", "progress": False}


def totals(source, **roles):
    """Returns the numbers of items, counts and exposures of a source."""
    items = soc.PoissonItems(source, **(ROLES | roles))
    stats = soc.summarize(items, edges=[0.25], **QUIET)
    return stats.n_items, int(stats.data["sum_y"].sum()), float(stats.data["sum_N"].sum())


@pytest.mark.parametrize("kind", KINDS)
def test_construction_reads_nothing_and_knows_its_roles(kind):
    make, roles = KINDS[kind]
    items = make("not there.parquet", **roles, group="g", id="i")
    assert dict(items.roles) == roles | {"group": "g", "id": "i"}
    assert "not there.parquet" in repr(items)
    with pytest.raises(AttributeError):
        items.score = "other"
    with pytest.raises(soc.ItemsError, match="'t'"):
        make("not there.parquet", **(roles | {"group": "t"}))


def test_sources_without_rows_say_what_has_them():
    table = pa.table({"t": [0.1, 0.2, 0.3, 0.4], "y": [0, 1, 2, 1], "N": [2.0] * 4})
    lazy = polars.from_arrow(table).lazy()
    with pytest.raises(soc.ItemsError, match="RecordBatchReader can be read only once"):
        totals(table.to_reader())
    with pytest.raises(soc.ItemsError, match="LazyFrame has no rows yet"):
        totals(lazy)
    assert totals(lazy.collect()) == totals(table)
    assert totals(ibis.polars.connect({"items": lazy}).table("items")) == totals(table)


@pytest.mark.parametrize("backend", BACKENDS)
def test_labels_of_yes_and_no_are_successes(backend, tmp_path):
    numbers = pa.table({"t": [0.1, 0.2, 0.3, 0.4], "y": [0, 1, 1, 0], "N": [1] * 4})
    labels = numbers.set_column(1, "y", numbers["y"].cast(pa.bool_()))
    make, roles = KINDS["successes"]
    found, expected = (
        soc.summarize(make(source, **roles), edges=[0.25], **QUIET)
        for source in (source_of(backend, labels, tmp_path), numbers)
    )
    assert found.data.equals(expected.data)


def write(path, t, **columns):
    columns = {"t": t, "y": [1] * len(t), "N": [2.0] * len(t)} | columns
    pq.write_table(pa.table(columns), path)


def test_globs_and_names_with_their_characters(tmp_path, small_fit):
    """Files of a glob are read in sorted order; an existing file is not taken for a pattern."""
    rng = np.random.default_rng(1)
    scores = {name: rng.uniform(0.01, 0.3, 300) for name in ("b", "a", "c[1]*")}
    for name, values in scores.items():
        write(tmp_path / f"{name}.parquet", values)
    items = soc.PoissonItems(f"{tmp_path}/*.parquet", **ROLES)
    scored = soc.item_posteriors(small_fit, items, progress=False)
    expected = np.concatenate([scores[name] for name in sorted(scores)])
    np.testing.assert_array_equal(scored.column("t"), expected)
    assert totals(tmp_path / "c[1]*.parquet") == (300, 300, 600.0)


@pytest.mark.parametrize("settled", [True, False])
def test_a_file_is_read_once_until_it_is_written_again(settled, tmp_path, monkeypatch):
    path = tmp_path / "items.csv"
    read = []
    query = sources._query
    monkeypatch.setattr(sources, "_query", lambda *given: read.append(given) or query(*given))
    if settled:  # as if it had been written long ago
        monkeypatch.setattr(sources, "_SETTLED", -1e9)
    for values in ([1, 2], [3, 4]):  # of the same length
        pd.DataFrame({"x": values}).to_csv(path, index=False)
        for _ in range(3):
            assert sources.opened(path, ["x"]).to_pyarrow()["x"].to_pylist() == values
        assert sources.number_columns(path) == ["x"]
        time.sleep(0.05)  # beyond the clock of a file system's times
    assert len(read) == (2 if settled else 8)


def test_a_damaged_page_is_an_items_error(tmp_path):
    path = tmp_path / "page.parquet"
    write(path, np.random.default_rng(0).uniform(size=5000))
    content = bytearray(path.read_bytes())
    content[4:900] = b"\xff" * 896
    path.write_bytes(bytes(content))
    with pytest.raises(soc.ItemsError):
        totals(path)


N, FOLDS = 600, 7


@pytest.fixture(scope="module")
def id_table():
    rng = np.random.default_rng(4)
    t = rng.uniform(0.1, 0.5, N)
    letters = ("user", "Zoë", "日本", "", "a'b\\") * (N // 5)
    columns = {"t": t, "y": rng.poisson(10 * t), "N": np.full(N, 10.0)}
    names = [f"{start}-{k}" for k, start in enumerate(letters)]
    return pa.table(columns | {"name": names, "number": range(N)})


def fold_statistics(source, folds=FOLDS, **roles):
    """Returns statistics of two bins in folds."""
    items = soc.PoissonItems(source, **ROLES, **roles)
    return soc.summarize(items, edges=[0.3], folds=folds, progress=False)


def sizes(stats):
    """Returns the numbers of items by fold."""
    return [stats.of_fold(k).n_items for k in range(stats.folds)]


@pytest.mark.parametrize("folds", [2, 7, 10])
def test_folds_are_even_and_those_of_neighbours_unrelated(folds):
    """Consecutive, distant and random ids fall evenly: none of 24 chi-squared p-values < 0.001."""
    rng = np.random.default_rng(5)
    count = np.arange(60_000)
    for ids in (count, 1000 * count + 7, 10**15 - count, rng.integers(0, 2**62, 60_000)):
        fold = fold_of_id(ids, folds)
        pairs = np.zeros((folds, folds))
        np.add.at(pairs, (fold[:-1], fold[1:]), 1)
        assert stats.chisquare(np.bincount(fold, minlength=folds)).pvalue > 1e-3
        assert stats.chi2_contingency(pairs)[1] > 1e-3


def test_only_whole_numbers_make_folds(id_table):
    columns = {"days": pa.array(range(N), pa.date32()), "halves": pa.array(np.arange(N) / 2)}
    for name, column in columns.items():
        id_table = id_table.append_column(name, column)
    made = {
        name: fold_statistics(id_table, folds=None, id=name).folds
        for name in ("name", "number", *columns)
    }
    assert made == {"name": 0, "number": 10, "days": 0, "halves": 0}
    for name in ("name", *columns):
        with pytest.raises(soc.ItemsError, match=rf"'{name}' does not hold whole.*cluster="):
            fold_statistics(id_table, id=name)


def test_folds_never_look_at_the_outcome(id_table):
    frame = id_table.to_pandas()
    turned = frame.assign(y=frame["y"].to_numpy()[::-1])
    found = [sizes(fold_statistics(source)) for source in (frame, turned)]
    assert found[0] == found[1]
    assert min(found[0]) > N / FOLDS / 2


def test_folds_of_a_column(id_table):
    frame = id_table.to_pandas().assign(part=np.arange(N) % 4)
    stats_of_four = fold_statistics(frame, folds=None, fold="part")
    assert sizes(stats_of_four) == [N // 4] * 4
    more = fold_statistics(frame[:100].assign(part=6), folds=None, fold="part")
    assert sizes(stats_of_four + more) == [N // 4] * 4 + [0, 0, 100]
    for fold in (-1, 4, True, "0"):
        with pytest.raises(soc.StatisticsError, match="folds are 0 to 3"):
            stats_of_four.of_fold(fold)


def test_a_missing_id_has_no_fold(id_table):
    frame = id_table.to_pandas().astype({"number": "Int64"})
    frame.loc[3, "number"] = None
    with pytest.raises(soc.ItemsError, match="'number': 1 of 600"):
        fold_statistics(frame, id="number")
    assert fold_statistics(frame, folds=0, id="number").n_items == N


@pytest.mark.parametrize("engine", thinned(["memory", "duckdb", "polars"], ["memory"]))
@pytest.mark.parametrize("column", ["name", "number"])
def test_an_id_of_several_rows_is_refused(engine, column, put_on, id_table, monkeypatch):
    """Doubled rows also look like leakage; of many ids a share is looked at."""
    doubled = pa.concat_tables([id_table, id_table.slice(0, 60), id_table.slice(0, 20)])
    source = doubled if engine == "memory" else put_on(engine, doubled)
    with pytest.raises(soc.ItemsError, match=rf"^column '{column}': 140 of 680 rows .* duplicates"):
        fold_statistics(source, folds=None, id=column)
    monkeypatch.setattr(engines, "_IDS_AT_ONCE", 200)
    with pytest.raises(soc.ItemsError, match=r"about .* of 680 rows"):
        fold_statistics(source, folds=None, id=column)
    assert fold_statistics(id_table, folds=0, id=column).n_items == N


def test_an_id_may_have_a_row_each_day(id_table):
    days = [
        id_table.append_column("day", pa.array([day] * N)) for day in ("2024-01-01", "2024-01-02")
    ]
    assert len(fold_statistics(pa.concat_tables(days), id="number", date="day").days) == 2
    with pytest.raises(soc.ItemsError, match="more than once on one day"):
        fold_statistics(pa.concat_tables([*days, days[0]]), id="number", date="day")


@pytest.mark.slow
def test_averages_are_sums_over_their_events(tmp_path):
    """Bit for bit in statistics and posteriors, in memory and in SQL, also of a fit read again."""
    frame = amount_frame(1500).rename(columns={"amount": "mean"})
    frame.loc[:9, ["mean", "events"]] = 0.0
    totals = frame.assign(amount=frame["mean"] * frame["events"])
    sums = soc.AmountItems(totals, **AMOUNT_ROLES)
    roles = {"score": "score", "average": "mean", "events": "events"}
    options = {"bins": 20, "joint": True, **QUIET}
    expected = soc.summarize(sums, **options)
    for source in (frame, remote(frame)):
        stats_ = soc.summarize(soc.AmountItems(source, **roles), **options)
        for table in ("part", "events", "amounts", "joint"):
            for name, values in expected.table(table).items():
                np.testing.assert_allclose(stats_.table(table)[name], values, rtol=1e-12)
    soc.fit(stats_, method=soc.VI(draws=100), progress=False).save(tmp_path / "fit.nc")
    fit = soc.load_fit(tmp_path / "fit.nc")
    scored = soc.item_posteriors(fit, soc.AmountItems(frame, **roles), progress=False)[MOMENTS]
    pd.testing.assert_frame_equal(soc.item_posteriors(fit, sums, progress=False)[MOMENTS], scored)
    text = soc.posterior_sql(fit, "frame", columns=["theta"])
    found = duckdb.sql(text).df().set_index("theta").loc[frame["theta"]]
    clear = ~found["flagged"].to_numpy()
    np.testing.assert_allclose(found.loc[clear, MOMENTS], scored[clear], rtol=1e-9)
    wrong = frame.assign(events=0)
    with pytest.raises(soc.ItemsError, match="'mean': 1,490 of 1,500 rows are positive"):
        soc.summarize(soc.AmountItems(wrong, **roles), **QUIET)
    with pytest.raises(soc.ItemsError, match="average=, not both"):
        soc.AmountItems(frame, amount="theta", **roles)
