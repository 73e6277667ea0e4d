"""Several columns of groups: statistics of the combinations of levels that occur."""

import ibis
import numpy as np
import pyarrow as pa
import pytest

import soc_pymc as soc
from tests.data.cell_references import assert_same
from tests.examples import COUNT_ROLES, crossed_frame
from tests.tables import BACKENDS, source_of
from tests.thinning import thinned

GROUP = ("country", "device")
OPTIONS = {"on_leakage": "ignore", "progress": False}


@pytest.fixture(scope="module")
def frame():
    return crossed_frame()


def statistics(source, group=GROUP, **options):
    items = soc.PoissonItems(source, **COUNT_ROLES, group=group)
    options = options if "edges" in options else {"bins": 12} | options
    return soc.summarize(items, **OPTIONS, **options)


@pytest.mark.parametrize("backend", thinned(BACKENDS, ("duckdb", "csv")))
def test_every_source_gives_the_same_groups(backend, frame, tmp_path):
    expected = statistics(frame)
    source = source_of(backend, pa.Table.from_pandas(frame, preserve_index=False), tmp_path)
    assert_same(expected, statistics(source, edges=expected.edges))


def test_statistics_add_up(frame):
    stats = statistics(frame)
    parts = [statistics(part, edges=stats.edges) for part in (frame[:150], frame[150:])]
    assert_same(sum(parts), stats)


def test_groups_are_the_combinations_that_occur(frame):
    stats = statistics(frame)
    assert stats.groups == tuple(sorted({f"{c} × {d}" for c, d in frame[list(GROUP)].to_numpy()}))
    assert [(grouping.column, grouping.levels) for grouping in stats.groupings] == [
        ("country", ("c00", "c01", "c02", "c03")),
        ("device", ("d00", "d01")),
    ]
    codes = (grouping.code for grouping in stats.groupings)
    for label, country, device in zip(stats.groups, *codes, strict=True):
        assert label == f"c0{country} × d0{device}"
    part, code = stats.table("part"), stats.groups.index("c01 × d00")
    expected = ((frame["country"] == "c01") & (frame["device"] == "d00")).sum()
    assert part["n"][part["group"] == code].sum() == expected


def test_labels_of_every_type(frame):
    numbers = frame.assign(year=frame["country"].str[1:].astype(int), new=frame["device"] == "d01")
    for source in (numbers, ibis.memtable(numbers)):
        assert statistics(source, ("year", "new")).groups[:2] == ("0 × false", "0 × true")
    for group in (["country"], ("country",)):
        assert statistics(frame, group).groups == statistics(frame, "country").groups


@pytest.mark.parametrize("column", ["country", "score", "gap", "half", "times", "own"])
def test_columns_that_are_no_groups_are_refused(frame, column):
    """A column twice, of another role, with gaps, fractions or the mark, or a level an item."""
    frame = frame.assign(half=0.5, gap="a", times="a", own=np.arange(len(frame)))
    frame.loc[:2, "gap"], frame.loc[:1, "times"] = None, "a×b"
    for source in (frame, ibis.memtable(frame)):
        with pytest.raises(soc.ItemsError, match=f"'{column}'"):
            statistics(source, ("country", column))
