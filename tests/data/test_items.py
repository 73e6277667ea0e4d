"""Items: all kinds of sources give the same items, and the same errors for bad ones."""

import os
from datetime import date
from decimal import Decimal

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from soc_pymc._lib.errors import ItemsError
from soc_pymc.data.items import PoissonItems
from soc_pymc.data.summaries import summarize
from soc_pymc.data.tables import batches, kind_of, open_table, scan
from tests.thinning import thinned

ROLES = {"score": "t", "count": "y", "exposure": "N"}
KINDS = ("pandas", "polars", "arrow", "parquet", "csv", "ibis")


def source_of(kind, table, folder):
    """The Arrow table as another kind of source."""
    if kind == "pandas":
        return table.to_pandas()
    if kind == "polars":
        return pl.from_arrow(table)
    if kind == "arrow":
        return table
    if kind == "ibis":
        connection = ibis.duckdb.connect()
        connection.con.register("mine", table)
        return connection.table("mine")
    path = os.path.join(folder, f"items.{kind}")
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        pl.from_arrow(table).write_csv(path)
    return path


def problem(source, **roles):
    with pytest.raises(ItemsError) as caught:
        scan(PoissonItems(source, **{**ROLES, **roles}), progress=False)
    return str(caught.value)


def test_construction_reads_nothing_and_knows_its_roles():
    items = PoissonItems("not there.parquet", score="t", count="y", exposure="N")
    assert items.kind == "poisson"
    assert items.roles == ROLES
    assert "not there.parquet" in repr(items)
    with pytest.raises(AttributeError):
        items.score = "other"


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"score": "y"}, "score and count both name the column 'y'"),
        ({"exposure": ""}, "exposure='' must be the name of a column"),
        ({"count": 3}, "count=3 must be"),
        ({"group": "t"}, "score and group both name the column 't'"),
        ({"id": "i", "fold": "f"}, "id=, from which folds are made, or fold=, not both"),
    ],
)
def test_roles_must_be_distinct_names(bad, text):
    with pytest.raises(ItemsError, match=text):
        PoissonItems("x.csv", **{**ROLES, **bad})


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_source_gives_the_same_totals(kind, tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            'sc"o; ré': rng.uniform(-1, 1, 500),
            "cl'icks": rng.poisson(2, 500),
            "im pressions": rng.uniform(1, 9, 500),
            "other": ["x"] * 500,
        }
    )
    t, y, n, _ = (column.to_numpy() for column in table.columns)
    source = source_of(kind, table, tmp_path)
    roles = dict(zip(ROLES, table.column_names, strict=False))
    found = scan(PoissonItems(source, **roles), progress=False).totals
    assert (found.n, found.outcome) == (500, y.sum())
    assert found.sizes == pytest.approx(n.sum(), rel=1e-14)
    assert (found.score_min, found.score_max) == (t.min(), t.max())
    assert kind_of(source) == {"parquet": "files", "csv": "files"}.get(kind, kind)


BAD = {
    "t": [0.1, None, float("inf"), 0.2, 1e101],
    "y": [-1.0, 2.5, 1.0, 2.0, 1e17],
    "N": [1.0, -2.0, float("nan"), 0.0, float("inf")],
}
BAD_TEXT = """\
column 't': 1 of 5 rows is missing (null or NaN); scores must be finite numbers: fix or drop this \
row
column 't': 1 of 5 rows is infinite (inf); scores must be finite numbers: fix or drop this row
column 't': 1 of 5 rows is beyond 1e+90 in size (1e+101); scores must be finite numbers: fix or \
drop this row
column 'y': 1 of 5 rows is 2^53 or more (1e+17); counts must be whole numbers >= 0: fix or \
drop this row
column 'y': 1 of 5 rows is negative (-1); counts must be whole numbers >= 0: fix or drop this row
column 'N': 1 of 5 rows is missing (null or NaN); exposures must be finite numbers >= 0: fix or \
drop this row
column 'N': 1 of 5 rows is infinite (inf); exposures must be finite numbers >= 0: fix or drop this \
row
column 'N': 1 of 5 rows is negative (-2); exposures must be finite numbers >= 0: fix or drop this \
row
column 'y': 1 of 5 rows is not whole (2.5); counts must be whole numbers >= 0: fix or drop this row
column 'y': 1 of 5 rows is positive where column 'N' is 0 (2); counts must be whole numbers >= 0: \
fix or drop this row"""


@pytest.mark.parametrize("kind", KINDS)
def test_all_problems_in_one_error_with_the_same_text(kind, tmp_path):
    assert problem(source_of(kind, pa.table(BAD), tmp_path)) == BAD_TEXT


def test_ordered_tables_note_where_the_bad_rows_are(tmp_path):
    def notes(kind):
        with pytest.raises(ItemsError) as caught:
            scan(PoissonItems(source_of(kind, pa.table(BAD), tmp_path), **ROLES), progress=False)
        return getattr(caught.value, "__notes__", [])

    assert "column 'y' negative: rows 0, counted from 0" in notes("parquet")
    assert len(notes("parquet")) == 10
    assert notes("ibis") == []


def test_many_bad_rows_are_counted_and_the_lowest_values_shown():
    y = np.zeros(1000, dtype=int)
    y[[4, 9, 12, 700]] = [-1, -2, -1, -7]
    frame = pd.DataFrame({"t": 0.5, "y": y, "N": 1})
    with pytest.raises(ItemsError) as caught:
        summarize(PoissonItems(frame, **ROLES), progress=False)
    assert str(caught.value) == (
        "column 'y': 4 of 1,000 rows are negative (-7, -2, -1, ...); counts must be whole numbers "
        ">= 0: fix or drop these rows"
    )
    assert caught.value.__notes__ == ["column 'y' negative: rows 4, 9, 12, counted from 0"]


@pytest.mark.parametrize("kind", thinned(KINDS, ["pandas", "parquet"]))
@pytest.mark.parametrize(
    ("column", "role", "text"),
    [
        (["a", None, "b"], "group", "column 'extra': 1 of 3 rows is missing (null); groups must"),
        ([0.5, 1.0, 2.0], "group", "column 'extra' holds numbers with fractions; groups must be"),
        ([1, None, 3], "id", "column 'extra'"),
        ([0.5, 1.0, 2.0], "id", "column 'extra' holds numbers with fractions; folds need ids"),
        ([0, -1, 2], "fold", "column 'extra': 1 of 3 rows is negative (-1); folds must be whole"),
        ([0, 1000, 2], "fold", "is larger than 999 (1000); folds must be whole numbers from 0"),
        ([0, 1.5, 2], "fold", "column 'extra': 1 of 3 rows is not whole (1.5); folds must be"),
        ([0, None, 2], "fold", "is missing (null or NaN); folds must be whole numbers from 0"),
    ],
)
def test_groups_ids_and_folds_are_checked(kind, column, role, text, tmp_path):
    table = pa.table({"t": [0.1, 0.2, 0.3], "y": [0, 1, 2], "N": [1.0, 2.0, 3.0], "extra": column})
    items = PoissonItems(source_of(kind, table, tmp_path), **ROLES, **{role: "extra"})
    folds = 2 if role == "id" else None  # ids are not read where no folds are made
    with pytest.raises(ItemsError) as caught:
        summarize(items, edges=[0.15], folds=folds, progress=False)
    assert text in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_columns_are_named_with_a_close_match(kind, tmp_path):
    table = pa.table({"T": [0.1], "y": [1], "Exposure": [1.0]})
    assert problem(source_of(kind, table, tmp_path), exposure="exposures") == (
        "column 't' is missing; the table has 'T', 'y', 'Exposure': did you mean 'T'?\n"
        "column 'exposures' is missing; the table has 'T', 'y', 'Exposure': did you mean "
        "'Exposure'?"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_types_are_named(kind, tmp_path):
    table = pa.table({"t": ["low", "high"], "y": [True, False], "N": [date(2020, 1, 1)] * 2})
    assert problem(source_of(kind, table, tmp_path)) == (
        "column 't' holds text; scores must be finite numbers: convert it first\n"
        "column 'y' holds true/false values; counts must be whole numbers >= 0: convert it first\n"
        "column 'N' holds dates or times; exposures must be finite numbers >= 0: convert it first"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_table_is_an_error(kind, tmp_path):
    table = pa.table({"t": pa.array([], pa.float64()), "y": pa.array([], pa.int64()), "N": []})
    assert problem(source_of(kind, table, tmp_path)).endswith("the table of items has no rows")


def test_mixed_and_doubled_pandas_columns_are_errors():
    mixed = pd.DataFrame({"t": [0.1, "x"], "y": [1, 2], "N": [1, 2]})
    assert "column 't' holds mixed values" in problem(mixed)
    double = pd.DataFrame([[0.1, 1, 1, 2]], columns=["t", "y", "N", "t"])
    assert "column 't' occurs 2 times" in problem(double)
    twins = pd.DataFrame({"t": [0.1], "T": [1], "N": [1]})
    assert "'t' and 'T' differ in letter case only" in problem(twins, count="T")


def test_decimals_small_integers_and_unsigned_counts_are_numbers():
    frame = pa.table(
        {
            "t": [Decimal("0.25"), Decimal("0.50")],
            "y": pa.array([1, 2], pa.uint8()),
            "N": pa.array([3, 4], pa.float32()),
        }
    )
    found = scan(PoissonItems(frame, **ROLES), progress=False).totals
    assert (found.outcome, found.sizes, found.score_max) == (3, 7.0, 0.5)


def test_counts_are_totalled_exactly():
    frame = pd.DataFrame({"t": 0.5, "y": [2**53 - 1, 2**53 - 1, 1], "N": 1})
    found = scan(PoissonItems(frame, **ROLES), progress=False).totals
    assert found.outcome == 2**54 - 1
    stats = summarize(PoissonItems(frame, **ROLES), edges=[0.6], progress=False)
    assert stats.total_count == 2**54 - 1
    for number in (600, 5000):
        too_many = pd.DataFrame({"t": 0.5, "y": np.full(number, 2**53 - 1), "N": 1})
        assert "more than can be counted exactly" in problem(too_many)
        with pytest.raises(ItemsError, match="more than can be counted exactly"):
            summarize(PoissonItems(too_many, **ROLES), edges=[0.6], progress=False)


def test_unknown_sources_are_named():
    with pytest.raises(ItemsError, match=r"polars\.LazyFrame: collect\(\) it first"):
        kind_of(pl.LazyFrame())
    for source in ({"t": []}, [], 3, None):
        with pytest.raises(ItemsError, match="cannot be read from"):
            kind_of(source)


# ---------------------------------------------------------------- files


def write(path, t):
    pq.write_table(pa.table({"t": t, "y": [1] * len(t), "N": [2.0] * len(t)}), path)


def test_globs_are_read_in_sorted_order_and_rows_keep_theirs(tmp_path):
    rng = np.random.default_rng(1)
    parts = {name: rng.uniform(size=70_000) for name in ("b", "a", "c[1]*")}
    for name, values in parts.items():
        write(tmp_path / f"{name}.parquet", values)
    whole = np.concatenate([parts[name] for name in sorted(parts)])
    table = open_table(f"{tmp_path}/*.parquet")
    read = list(batches(table, ["t"], size=30_000))
    assert max(batch.num_rows for batch in read) <= 30_000
    np.testing.assert_array_equal(np.concatenate([b["t"].to_numpy() for b in read]), whole)
    one = open_table(tmp_path / "c[1]*.parquet", ["t"])
    np.testing.assert_array_equal(one.to_pyarrow()["t"].to_numpy(), parts["c[1]*"])


def test_bad_files_are_named(tmp_path):
    write(tmp_path / "good.parquet", [0.1, 0.2])
    whole = (tmp_path / "good.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "items.json").write_text("{}")
    (tmp_path / "items.csv").write_text("t,y,N\n0.1,1,2\n")
    for source, text in (
        (tmp_path, "is a directory: name its files"),
        (f"{tmp_path}/none*.csv", "none*.csv: no file matches"),
        (f"{tmp_path}/none.csv", "none.csv: there is no such file"),
        (f"{tmp_path}/c*.parquet", "cut.parquet cannot be read as Parquet"),
        ([f"{tmp_path}/good.parquet", f"{tmp_path}/cut.parquet"], "cut.parquet cannot be read"),
        (tmp_path / "items.json", "items are read from files named *.parquet, *.csv"),
        ([f"{tmp_path}/items.csv", f"{tmp_path}/good.parquet"], "good.parquet is Parquet, but"),
    ):
        assert text in problem(source)


def test_a_damaged_page_is_an_items_error(tmp_path):
    write(tmp_path / "page.parquet", np.random.default_rng(0).uniform(size=5000))
    data = bytearray((tmp_path / "page.parquet").read_bytes())
    data[200:900] = b"\xff" * 700
    (tmp_path / "page.parquet").write_bytes(bytes(data))
    with pytest.raises(ItemsError):
        scan(PoissonItems(tmp_path / "page.parquet", **ROLES), progress=False)


def test_files_must_agree_in_the_columns_used(tmp_path):
    write(tmp_path / "1.parquet", [0.1])
    pq.write_table(pa.table({"t": [0.1], "y": [1.5], "N": [1.0]}), tmp_path / "2.parquet")
    text = problem(f"{tmp_path}/*.parquet")
    assert "2.parquet holds column 'y' as double, but" in text
    pq.write_table(pa.table({"t": [0.1], "N": [1.0]}), tmp_path / "2.parquet")
    assert "2.parquet has no column 'y', but" in problem(f"{tmp_path}/*.parquet")


def test_fractions_in_a_later_csv_file_are_not_lost(tmp_path):
    (tmp_path / "1.csv").write_text("t,y,N\n0.1,1,2\n1,1,3\n")
    (tmp_path / "2.csv").write_text("t,y,N\n0.2,1,2.75\n")
    found = scan(PoissonItems(f"{tmp_path}/*.csv", **ROLES), progress=False).totals
    assert found.sizes == 7.75
    (tmp_path / "2.csv").write_text("t,y,N\n0.2,1.5,2.75\n")
    assert "column 'y': 1 of 3 rows is not whole (1.5)" in problem(f"{tmp_path}/*.csv")
    (tmp_path / "2.csv").write_text("t,N,y\n0.2,1,2.75\n")
    assert "2.csv has the columns 't', 'N', 'y', but" in problem(f"{tmp_path}/*.csv")
