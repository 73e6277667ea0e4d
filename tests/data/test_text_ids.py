"""Ids of text: no folds unless they are asked for, and then the same ones wherever items are."""

import hashlib

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import soc_pymc as soc
from soc_pymc._lib.errors import ItemsError, StatisticsError
from soc_pymc.data.binning import FOLD_PRIME, fold_of_id
from tests.data.test_engines import put_on  # noqa: F401  # a fixture: a table on an engine

ROLES = {"score": "t", "count": "y", "exposure": "N"}
N, FOLDS = 600, 7


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(4)
    t = rng.uniform(0.1, 0.5, N)
    names = [
        f"{letters}-{k}" for k, letters in enumerate(("user", "Zoë", "日本", "", "a'b\\") * 120)
    ]
    return pa.table({"t": t, "y": rng.poisson(10 * t), "N": np.full(N, 10.0), "id": names})


def expected(table):
    """Items by fold, from Python's own MD5."""
    digests = [hashlib.md5(name.encode()).digest()[:8] for name in table["id"].to_pylist()]
    numbers = [int.from_bytes(digest, "big") % FOLD_PRIME for digest in digests]
    return np.bincount(fold_of_id(numbers, FOLDS), minlength=FOLDS)


def by_fold(source, folds=FOLDS):
    items = soc.PoissonItems(source, **ROLES, id="id")
    part = soc.summarize(items, edges=[0.3], folds=folds, progress=False).table("part")
    return np.bincount(part["fold"], part["n"], FOLDS)


def test_folds_of_files_and_tables_in_memory(table, tmp_path):
    wanted = expected(table)
    assert stats.chisquare(wanted).pvalue > 1e-3
    pq.write_table(table, tmp_path / "a.parquet")
    table.to_pandas().to_csv(tmp_path / "a.csv", index=False)
    tables, files = [table, table.to_pandas(), pl.from_arrow(table)], ["a.parquet", "a.csv"]
    for source in [*tables, *(str(tmp_path / file) for file in files)]:
        np.testing.assert_array_equal(by_fold(source), wanted)


@pytest.mark.parametrize("engine", ["duckdb", "postgres", "spark"])
def test_folds_on_engines(engine, put_on, table):  # noqa: F811
    np.testing.assert_array_equal(by_fold(put_on(engine, table)), expected(table))


def test_an_engine_without_the_hash_says_so(put_on, table):  # noqa: F811
    ours = put_on("polars", table)
    with pytest.raises(ItemsError, match=r"'id' holds text.*but not in polars: give ids that are"):
        by_fold(ours)
    assert by_fold(ours, folds=None)[0] == N  # and no folds are made that nobody asked for


def test_by_default_only_whole_numbers_make_folds(table):
    numbers = table.set_column(3, "id", pa.array(range(N)))
    days = table.set_column(3, "id", pa.array(range(N), pa.date32()))
    fractions = table.set_column(3, "id", pa.array(np.arange(N) / 2))
    made = {
        name: soc.summarize(soc.PoissonItems(source, **ROLES, id="id"), progress=False)
        for name, source in {"text": table, "days": days, "fractions": fractions}.items()
    }
    assert {name: its.folds for name, its in made.items()} == dict.fromkeys(made, 0)
    whole = soc.summarize(soc.PoissonItems(numbers, **ROLES, id="id"), progress=False)
    assert whole.folds == 10
    with pytest.raises(StatisticsError, match="no folds"):
        soc.evaluate.cross_validate(made["text"])


def test_folds_of_text_and_of_numbers_do_not_mix(table):
    """The same id as text and as a number may be in different folds."""
    options = {"edges": [0.3], "folds": FOLDS, "progress": False}
    text = soc.summarize(soc.PoissonItems(table, **ROLES, id="id"), **options)
    numbers = table.set_column(3, "id", pa.array(range(N)))
    whole = soc.summarize(soc.PoissonItems(numbers, **ROLES, id="id"), **options)
    with pytest.raises(StatisticsError, match="folds in other ways"):
        _ = text + whole


def test_a_missing_id_has_no_fold(table):
    frame = table.to_pandas()
    frame.loc[3, "id"] = None
    with pytest.raises(ItemsError, match="column 'id': 1 of 600 rows is missing"):
        by_fold(frame)
    assert by_fold(frame, folds=None)[0] == N
