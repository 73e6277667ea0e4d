"""Folds: even, unrelated to neighbours and to outcomes, the same wherever items are; ids."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import soc_pymc as soc
from soc_pymc.data import validation
from tests.data.cell_references import fold_of_id
from tests.data.engines import put_on  # noqa: F401  # a fixture
from tests.examples import thinned
from tests.tables import ROLES

N, FOLDS = 600, 7


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(4)
    t = rng.uniform(0.1, 0.5, N)
    letters = ("user", "Zoë", "日本", "", "a'b\\") * (N // 5)
    columns = {"t": t, "y": rng.poisson(10 * t), "N": np.full(N, 10.0)}
    names = [f"{start}-{k}" for k, start in enumerate(letters)]
    return pa.table(columns | {"name": names, "number": range(N)})


def statistics(source, folds=FOLDS, **roles):
    """Returns statistics of two bins in folds."""
    items = soc.PoissonItems(source, **ROLES, **roles)
    return soc.summarize(items, edges=[0.3], folds=folds, progress=False)


def sizes(stats):
    """Returns the numbers of items by fold."""
    return [stats.of_fold(k).n_items for k in range(stats.folds)]


@pytest.mark.parametrize("folds", [2, 7, 10])
def test_folds_are_even_and_those_of_neighbours_unrelated(folds):
    """Chi-squared tests on ids in a row, far apart, and at random: none below .001 of 24."""
    rng = np.random.default_rng(5)
    count = np.arange(60_000)
    for ids in (count, 1000 * count + 7, 10**15 - count, rng.integers(0, 2**62, 60_000)):
        fold = fold_of_id(ids, folds)
        pairs = np.zeros((folds, folds))
        np.add.at(pairs, (fold[:-1], fold[1:]), 1)
        assert stats.chisquare(np.bincount(fold, minlength=folds)).pvalue > 1e-3
        assert stats.chi2_contingency(pairs)[1] > 1e-3


def test_by_default_only_whole_numbers_make_folds(table):
    columns = {"days": pa.array(range(N), pa.date32()), "halves": pa.array(np.arange(N) / 2)}
    for name, column in columns.items():
        table = table.append_column(name, column)
    made = {
        name: statistics(table, folds=None, id=name).folds for name in ("name", "number", *columns)
    }
    assert made == {"name": 0, "number": 10, "days": 0, "halves": 0}


def test_folds_never_look_at_the_outcome(table):
    frame = table.to_pandas()
    turned = frame.assign(y=frame["y"].to_numpy()[::-1])
    found = [sizes(statistics(source)) for source in (frame, turned)]
    assert found[0] == found[1]
    assert min(found[0]) > N / FOLDS / 2


def test_folds_of_a_column(table):
    frame = table.to_pandas().assign(part=np.arange(N) % 4)
    stats_of_four = statistics(frame, folds=None, fold="part")
    assert sizes(stats_of_four) == [N // 4] * 4
    more = statistics(frame[:100].assign(part=6), folds=None, fold="part")
    assert sizes(stats_of_four + more) == [N // 4] * 4 + [0, 0, 100]
    for fold in (-1, 4, True, "0"):
        with pytest.raises(soc.StatisticsError, match="folds are 0 to 3"):
            stats_of_four.of_fold(fold)


def test_a_missing_id_has_no_fold(table):
    frame = table.to_pandas().astype({"number": "Int64"})
    frame.loc[3, "number"] = None
    with pytest.raises(soc.ItemsError, match="'number': 1 of 600"):
        statistics(frame, id="number")
    assert statistics(frame, folds=0, id="number").n_items == N


@pytest.mark.parametrize("engine", thinned(["memory", "duckdb", "polars"], ["memory"]))
@pytest.mark.parametrize("column", ["name", "number"])
def test_an_id_of_several_rows_is_refused(engine, column, put_on, table, monkeypatch):  # noqa: F811
    """Doubled rows also look like leakage; of many ids a share is looked at."""
    doubled = pa.concat_tables([table, table.slice(0, 60), table.slice(0, 20)])
    source = doubled if engine == "memory" else put_on(engine, doubled)
    with pytest.raises(soc.ItemsError, match=rf"^column '{column}': 140 of 680 rows .* duplicates"):
        statistics(source, folds=None, id=column)
    monkeypatch.setattr(validation, "_IDS_AT_ONCE", 200)
    with pytest.raises(soc.ItemsError, match=r"about .* of 680 rows"):
        statistics(source, folds=None, id=column)
    assert statistics(table, folds=0, id=column).n_items == N


def test_an_id_may_have_a_row_each_day(table):
    days = [table.append_column("day", pa.array([day] * N)) for day in ("2024-01-01", "2024-01-02")]
    assert len(statistics(pa.concat_tables(days), id="number", date="day").days) == 2
    with pytest.raises(soc.ItemsError, match="more than once on one day"):
        statistics(pa.concat_tables([*days, days[0]]), id="number", date="day")


def test_ids_of_text_make_no_folds(table):
    with pytest.raises(soc.ItemsError, match=r"'name' holds text.*cluster="):
        statistics(table, id="name")
